"""`fedaudit import`: reads a directory of checkpoints as rounds, makes a trace of them, and audits it if the game is
known.

    DIR/round-0.safetensors          the model before the first round (needed where parties' models are given)
    DIR/round-1.safetensors          the global model after round 1; any name that ends in the round's number
    DIR/round-1/global.safetensors   or, as a folder: the global model ...
    DIR/round-1/NAME.safetensors     ... and party NAME's model as it was sent (or its change, with `deltas`)
    DIR/round-1/broadcast.safetensors   only where it is not the last round's global model

Torch files (.pt, .pth) are read on request only, by torch's reader of plain tensors, which runs no code. DIR may also
be a trace that was recorded without records to audit with.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedaudit.audit import Auditor
from fedaudit.config.schema import Config
from fedaudit.data.game_file import load_game
from fedaudit.data.records import classes_of
from fedaudit.errors import REFUSED, FedauditError
from fedaudit.integrations.options import open_session, refuse_ours
from fedaudit.integrations.plain import matched, numpy_state
from fedaudit.learn.models.own import exchanged_of, forward_of
from fedaudit.learn.tasks import build_task
from fedaudit.results.document import Document
from fedaudit.session.assemble import Request, assemble
from fedaudit.session.recording import base_hash, check_same
from fedaudit.session.run import Progress
from fedaudit.trace.segments import MAX_BYTES, DamagedError
from fedaudit.trace.store import RUN, Store
from fedaudit.types import UNSEEN, Game, Notice, Round, State, Trained, gap

GLOBAL, BROADCAST = ("global", "aggregate"), "broadcast"
TORCH = (".pt", ".pth")
UNKNOWN = 0.0  # a checkpoint does not say how long an epoch took


def import_checkpoints(
    directory: Path, out: Path, progress: Progress, *, game: Path | None, config: Config, torch: bool, deltas: bool
) -> Document | None:
    """Writes the trace to `out`, and, with a game, results and report. Wrong files are refused before that."""
    stored = partial(rounds, directory, torch=torch, deltas=deltas)
    auditor = None
    with progress("Reading the checkpoints", 0):
        if game is not None:
            first = next(stored(), None)
            auditor = _auditor(directory, load_game(game), config, torch, first.aggregate if first else {})
        task = auditor.task if auditor else None
        made = partial(stored, like=task.initial(0) if task else None, base=task.base if task else UNSEEN)
        many = sum(1 for _ in made())  # read once without a trace: a wrong file is refused before anything is written
    session = open_session(out, auditor, strict=True)
    if session.last:
        session.trace.store.close() if session.trace else None
        what = f"{out} already holds a trace, up to round {session.last}"
        raise FedauditError("not-empty", what, "Choose another folder with --out.")
    lost: list[Notice] = []
    with progress("Auditing the checkpoints" if auditor else "Recording the checkpoints", many) as step:
        session.watch(_counted(made(lost=lost.append), step))
    for each in lost:
        session.gap(each)
    with progress("Computing statistics", 0):
        return session.finish(out)


def _counted(rounds: Iterable[Round], step: Callable[[], None]) -> Iterator[Round]:
    for round in rounds:
        yield round
        step()


def _auditor(directory: Path, game: Game, config: Config, torch: bool, first: State) -> Auditor:
    refuse_ours(config.audit)
    rows = game.candidates.rows
    labels = 0 if rows.y.dtype.kind == "f" else classes_of(rows)
    model = config.model
    build = partial(
        build_task,
        model.name,
        rows.x.shape[1:],
        options=model.arguments(),
        forward=forward_of(model),
        exchanged=exchanged_of(model),
    )
    task = build(classes=labels)
    if labels and not task.base and (classes := _outputs(first, task.initial(0))) > labels:
        task = build(classes=classes)
    return assemble(Request.beside(config, game, rounds=_count(directory, torch)), task)


def _outputs(model: State, like: State) -> int:
    """The number of classes of the checkpoint's last layer: the game may not have records of every class."""
    name, last = str(len(like) - 1), list(like)[-1]  # without names, parameters are numbered
    found = model.get(last, model.get(name, like[last]))
    return int(found.shape[0]) if found.ndim == like[last].ndim > 0 else 0


def _count(directory: Path, torch: bool) -> int:
    if (directory / RUN).is_file():
        return max(Store.read(directory).lineage.newest, 2)
    return max(find(directory, torch))


# ------------------------------------------------------------------ reading


@dataclass(frozen=True)
class Found:
    """The files of one round."""

    made: Path
    broadcast: Path | None = None
    parties: Mapping[str, Path] = field(default_factory=dict)


def rounds(
    directory: Path,
    *,
    like: State | None = None,
    base: State = UNSEEN,
    torch: bool = False,
    deltas: bool = False,
    lost: Callable[[Notice], None] = lambda what: None,
) -> Iterator[Round]:
    """The rounds in order. `like`: the model whose parameters they must be (default: the first checkpoint's); `base`:
    what of it is not exchanged. `lost` is told of rounds of a trace that are not as they were written: they are left
    out."""
    if (directory / RUN).is_file():
        store = Store.read(directory)
        check_same(directory, store.manifest, {"base": base_hash(base)})
        for round in _recorded(store, lost):
            for party in (party for party, trained in round.sent.items() if not trained.is_model):
                why = "this was found when it was recorded"
                lost(gap("no-model", rounds=[round.index], party=party, why=why, todo="See the log of that run."))
            yield round if like is None else _renamed(round, like, base)
        return
    last: tuple[int, State] | None = None
    for index, found in sorted(find(directory, torch).items()):
        made = read(found.made, torch)
        like = made if like is None else like
        made = matched(made, like, f"round {index}, {found.made.name}", base)
        if index > 0:
            start = last[1] if last and last[0] == index - 1 else None
            if found.broadcast is not None:
                start = matched(read(found.broadcast, torch), like, f"round {index}, {found.broadcast.name}", base)
            if start is None and found.parties:
                what = f"the model that the parties of round {index} started from is missing"
                todo = f"Add round {index - 1}, or {BROADCAST}.safetensors to round {index}."
                raise FedauditError("no-broadcast", what, todo, where=str(directory))
            sent = {}
            if start is not None:
                for name, path in sorted(found.parties.items()):
                    sent[name] = _sent(read(path, torch), start, deltas, path, base)
            yield Round(index, start or UNSEEN, sent, made)
        last = index, made


def _recorded(store: Store, lost: Callable[[Notice], None]) -> Iterator[Round]:
    for damaged in store.damage():
        lost(damaged)
    for entry in store.entries():
        try:
            if entry.kept:
                yield store.round(entry)
        except DamagedError as error:
            lost(gap("trace-damaged", round=entry.round, why=str(error)))


def _renamed(round: Round, like: State, base: State) -> Round:
    """With the model's own names: a trace that was recorded without a model has those under which states came."""

    def own(state: State, whose: str) -> State:
        return matched(state, like, f"round {round.index}, {whose}", base) if state else state

    sent = {party: replace(trained, state=own(trained.state, party)) for party, trained in round.sent.items()}
    broadcast, made = own(round.broadcast, BROADCAST), own(round.aggregate, GLOBAL[0])
    return replace(round, broadcast=broadcast, sent=sent, aggregate=made)


def find(directory: Path, torch: bool) -> dict[int, Found]:
    """Which file is what. Names decide; nothing is opened."""
    found: dict[int, Found] = {}
    try:
        entries = sorted(directory.iterdir())
    except OSError as error:
        raise FedauditError("no-checkpoints", f"cannot read {directory}: {error.strerror}", "Check the path.") from None
    for entry in entries:
        number = re.search(r"(\d+)$", entry.stem if entry.is_file() else entry.name)
        if number is None or not (entry.is_dir() or _is_model(entry, torch)):
            continue
        index = int(number[1])
        if index in found:
            what = f"{found[index].made.name} and {entry.name} are both round {index}"
            raise FedauditError("two-checkpoints", what, "Keep one of them.", where=str(directory))
        found[index] = _folder(entry, index, torch) if entry.is_dir() else Found(entry)
    if sum(index > 0 for index in found) < 2:
        what = f"{directory} holds {sum(index > 0 for index in found)} rounds of checkpoints"
        todo = "Give at least two: files or folders whose names end in the round's number, like round-1.safetensors."
        raise FedauditError("no-checkpoints", what, todo)
    return found


def _folder(folder: Path, index: int, torch: bool) -> Found:
    models = {path.stem: path for path in sorted(folder.iterdir()) if _is_model(path, torch)}
    made = next((models.pop(name) for name in GLOBAL if name in models), None)
    if made is None:
        what = f"round {index} has no global model: there is neither {' nor '.join(GLOBAL)} in {folder.name}"
        raise FedauditError(
            "no-global", what, "Save the model after aggregation as global.safetensors.", where=str(folder.parent)
        )
    broadcast = models.pop(BROADCAST, None)
    return Found(made, broadcast, {name.removeprefix("party-"): path for name, path in models.items()})


def _is_model(path: Path, torch: bool) -> bool:
    if not path.is_file() or path.name.startswith("."):
        return False
    if path.suffix in TORCH and not torch:
        what = f"{path.name} is a torch file, which may hold code"
        todo = "Save it as safetensors, or add --torch to read it as plain tensors (anything else in it is refused)."
        raise FedauditError("torch-file", what, todo, where=str(path.parent), exit_code=REFUSED)
    return path.suffix == ".safetensors" or path.suffix in TORCH


def read(path: Path, torch: bool) -> State:
    """The tensors of a file. A file with anything else is refused."""
    if path.stat().st_size > MAX_BYTES:
        raise FedauditError(
            "checkpoint-size", f"{path} is larger than 16 GiB", "Remove it from the folder.", exit_code=REFUSED
        )
    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as arrays:
                return {name: arrays[name] for name in arrays.files}
        return numpy_state(_torch(path) if path.suffix in TORCH and torch else _safetensors(path))
    except FedauditError:
        raise
    except Exception as error:  # whatever a hostile file makes a parser say
        what = f"{path.name} holds something other than named tensors ({type(error).__name__})"
        raise FedauditError(
            "checkpoint", what, "Save only the state_dict.", where=str(path), exit_code=REFUSED
        ) from None


def _safetensors(path: Path) -> Mapping[str, Any]:
    from safetensors.torch import load_file

    loaded: Mapping[str, Any] = load_file(path)
    return loaded


def _torch(path: Path) -> Mapping[str, Any]:
    import torch

    loaded = torch.load(path, map_location="cpu", weights_only=True)
    for name in ("state_dict", "model_state_dict", "model"):
        if isinstance(loaded, Mapping) and isinstance(loaded.get(name), Mapping):
            loaded = loaded[name]
    if not isinstance(loaded, Mapping) or not all(isinstance(value, torch.Tensor) for value in loaded.values()):
        raise TypeError("not a state_dict")
    return loaded


def _sent(given: State, start: State, deltas: bool, path: Path, base: State) -> Trained:
    """A party's model as sent. A mix-up of weights and changes is detected by their size."""
    where = f"{path.parent.name}, {path.stem}"
    given = matched(given, start, where, base)
    floats = [name for name, value in start.items() if value.dtype.kind == "f"]
    size, moved = (_norm(start, floats), _norm({n: given[n] - start[n] for n in floats}, floats))
    if deltas and moved < 0.5 * size:
        what = (
            "this is close to the model it started from, so it holds weights, but --deltas says that files hold changes"
        )
        raise FedauditError("weights-for-deltas", what, "Remove --deltas.", where=where)
    if not deltas and moved > 0.5 * size and _norm(given, floats) < 0.5 * size:
        what = "this is much smaller than the model it started from, so it holds a change of the weights"
        raise FedauditError("deltas-for-weights", what, "Add --deltas.", where=where)
    state = {n: (start[n] + v).astype(start[n].dtype) if deltas and n in floats else v for n, v in given.items()}
    return Trained(state, 1, UNKNOWN)


def _norm(state: Mapping[str, Any], names: list[str]) -> float:
    return float(np.sqrt(sum(float(np.sum(np.square(state[name], dtype=np.float64))) for name in names)))
