"""Reads a directory of checkpoints as rounds.

    DIR/round-0.safetensors          the model before the first round (needed where parties' models are given)
    DIR/round-1.safetensors          the global model after round 1; any name that ends in the round's number
    DIR/round-1/global.safetensors   or, as a folder: the global model ...
    DIR/round-1/NAME.safetensors     ... and party NAME's model as it was sent (or its change, with `deltas`)
    DIR/round-1/broadcast.safetensors   only where it is not the last round's global model

Torch files (.pt, .pth) are read on request only, by torch's reader of plain tensors, which runs no code. DIR may also
be a trace that was recorded without records to audit with.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedaudit.errors import REFUSED, FedauditError
from fedaudit.integrations.states import matched, numpy_state
from fedaudit.trace.manifest import RUN
from fedaudit.trace.segments import MAX_BYTES, DamagedError
from fedaudit.trace.store import Store
from fedaudit.types import UNSEEN, Round, State, Trained

GLOBAL, BROADCAST = ("global", "aggregate"), "broadcast"
TORCH = (".pt", ".pth")
UNKNOWN = 0.0  # a checkpoint does not say how long an epoch took


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
    torch: bool = False,
    deltas: bool = False,
    lost: Callable[[str], None] = lambda what: None,
) -> Iterator[Round]:
    """The rounds in order. `like`: the model whose parameters they must be (default: the first checkpoint's). `lost` is
    told of rounds of a trace that are not as they were written: they are left out."""
    if (directory / RUN).is_file():
        yield from _recorded(Store.read(directory), lost)
        return
    last: tuple[int, State] | None = None
    for index, found in sorted(find(directory, torch).items()):
        made = read(found.made, torch)
        like = made if like is None else like
        made = matched(made, like, f"round {index}, {found.made.name}")
        if index > 0:
            start = last[1] if last and last[0] == index - 1 else None
            if found.broadcast is not None:
                start = matched(read(found.broadcast, torch), like, f"round {index}, {found.broadcast.name}")
            if start is None and found.parties:
                what = f"the model that the parties of round {index} started from is missing"
                todo = f"Add round {index - 1}, or {BROADCAST}.safetensors to round {index}."
                raise FedauditError("no-broadcast", what, todo, where=str(directory))
            sent = {}
            if start is not None:
                for name, path in sorted(found.parties.items()):
                    sent[name] = _sent(read(path, torch), start, deltas, path)
            yield Round(index, start or UNSEEN, sent, made)
        last = index, made


def _recorded(store: Store, lost: Callable[[str], None]) -> Iterator[Round]:
    for line in store.damage():
        lost(line)
    for entry in store.entries():
        try:
            if entry.kept:
                yield store.round(entry)
        except DamagedError as error:
            lost(f"round {entry.round} of the trace is damaged and left out: {error}")


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


def _sent(given: State, start: State, deltas: bool, path: Path) -> Trained:
    """A party's model as sent. A mix-up of weights and changes is detected by their size."""
    where = f"{path.parent.name}, {path.stem}"
    given = matched(given, start, where)
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
