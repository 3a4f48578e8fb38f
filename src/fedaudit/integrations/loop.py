"""An audit beside a training loop of your own, in a few lines.

    with fedaudit.record(model, [game_a, game_b], out="runs/mine", rounds=20) as audit:
        for round in range(1, 21):
            updates = {party: train_locally(party) for party in parties}      # your code
            model.load_state_dict(average(updates))                           # your code
            audit.observe(round, model, updates=updates)

When the block ends, results.json, scores.parquet and report.html are in `out`.
"""

import copy
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch
from torch import nn

from fedaudit.adversary import attacks as registry
from fedaudit.audit import Auditor, Settings
from fedaudit.config.arguments import checked
from fedaudit.data.set_aside import joined
from fedaudit.errors import FedauditError
from fedaudit.integrations.recorder import Keep, Recorder, open_trace
from fedaudit.integrations.states import matched, numpy_state
from fedaudit.learn.tasks import TorchTask
from fedaudit.results.document import Document
from fedaudit.types import UNSEEN, Game, Round, State, Trained, Vantage

Model = TorchTask | nn.Module | Callable[[], nn.Module]


def record(
    model: Model,
    game: Game | Sequence[Game],
    *,
    out: str | Path,
    rounds: int,
    vantages: Iterable[str] = (Vantage.CLIENT, Vantage.SERVER),
    attacks: Iterable[str] | None = None,
    fpr: Sequence[float] | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    keep: Keep = "signals",
    strict: bool = False,
) -> "Recording":
    """Audit `rounds` planned rounds of a loop of your own. Wrong use is refused here, before any training.

    `out` also holds the trace (`keep="snapshots"`: with all models). A loop that is started again on the same folder,
    from a model that it left there, goes on with the same audit.
    """
    whole = game if isinstance(game, Game) else joined(*game)
    auditor = make_auditor(model, whole, rounds, vantages, attacks, fpr, confidence, seed)
    start = numpy_state(model.state_dict()) if isinstance(model, nn.Module) else None
    recorder = Recorder(auditor, open_trace(Path(out), auditor, keep), strict=strict)
    return Recording(recorder, auditor, Path(out), start)


class Recording:
    """`observe` once a round, as it ends. Faults of the audit stay inside, unless `strict`."""

    def __init__(self, recorder: Recorder, auditor: Auditor, out: Path, start: State | None):
        self.recorder, self.game, self.out = recorder, auditor.game, out
        assert auditor.task is not None
        self.like = auditor.task.initial(0)
        self.model = start  # the global model that the next round starts from
        self.latest: tuple[int, State | None] = (0, None)  # the last round, and what it started from
        self.clock = time.perf_counter()

    def observe(
        self,
        round: int,
        model: nn.Module | Mapping[str, Any],
        updates: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """The global model after the round, and each party's model as it was sent (its weights, not the change).

        Round 0 is the model before the first round; it need not be given when `record` was given the model itself.
        """
        elapsed = time.perf_counter() - self.clock
        with self.recorder.guard(f"round {round} is missing"):
            made = matched(numpy_state(_state(model)), self.like, f"round {round}, global model")
            before = self.latest[1] if round == self.latest[0] else self.model  # told again: it started there, too
            self.latest, self.model = (round, before), made
            if round > 0:
                self._observe(round, before, made, updates or {}, elapsed)
        self.clock = time.perf_counter()

    def _observe(
        self, round: int, before: State | None, made: State, updates: Mapping[str, Mapping[str, Any]], elapsed: float
    ) -> None:
        unknown = sorted(set(updates) - set(self.game.parties))
        if unknown:
            raise FedauditError(
                "unknown-party",
                f"{', '.join(unknown)} is not a party of the game",
                f"Parties: {', '.join(self.game.parties)}.",
                where=f"round {round}",
            )
        sent = {}
        for party, update in updates.items():
            state = matched(numpy_state(_state(update)), self.like, f"round {round}, {party}")
            sent[party] = Trained(state, len(self.game.members(party)), elapsed / len(updates))
        if before is None and sent:
            self.recorder.gap(
                f"round {round}: what the parties started from is not known, so their models are left out"
            )
            sent = {}
        self.recorder.observe(Round(round, before or UNSEEN, sent, made))

    def __enter__(self) -> Self:
        self.clock = time.perf_counter()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if kind is not None:
            self.recorder.broke_off(kind)
        self.recorder.finish(self.out.name, self.out)

    @property
    def document(self) -> Document | None:
        """What results.json holds, once the block has ended."""
        return self.recorder.document


def make_auditor(
    model: Model,
    game: Game,
    rounds: int,
    vantages: Iterable[str],
    attacks: Iterable[str] | None,
    fpr: Sequence[float] | None,
    confidence: float,
    seed: int,
    default: Iterable[str] | None = None,
) -> Auditor:
    """Everything that can be refused is refused here; attacks that nobody asked for are left out if they do not fit."""
    asked = checked(rounds=rounds, vantages=vantages, attacks=attacks, fpr=fpr, confidence=confidence, seed=seed)
    audit, federation = asked.audit, asked.federation
    settings = Settings(
        audit.vantages,
        registry.choose(default if audit.attacks is None else audit.attacks),
        federation.rounds,
        audit.fpr or None,
        audit.confidence,
        federation.seed,
    )
    settings = settings.checked(asked=attacks is not None)
    task = as_task(model, game)
    initial = task.initial(0)
    task.check(initial, game.candidates.rows)
    settings = settings.suited_to(task, initial, game.candidates.rows, asked=attacks is not None)
    return Auditor(task, game, settings)


def as_task(model: Model, game: Game) -> TorchTask:
    """A module is copied, so that the audit never touches the one that is being trained."""
    if isinstance(model, TorchTask):
        return model
    with torch.random.fork_rng(devices=[]):  # building a model must not move the training's random numbers
        own = (copy.deepcopy(model) if isinstance(model, nn.Module) else model()).cpu()
    rows = game.candidates.rows
    if rows.y.dtype.kind == "f":
        return TorchTask(lambda: copy.deepcopy(own), 0)
    with torch.inference_mode():
        width = own.eval()(torch.from_numpy(np.ascontiguousarray(rows.x[:1]))).shape[-1]
    if int(rows.y.max()) >= width or int(rows.y.min()) < 0:
        what = f"the model has {width} outputs, labels run from {int(rows.y.min())} to {int(rows.y.max())}"
        raise FedauditError("model-outputs", what, "Number the labels from 0, one output for each.")
    return TorchTask(lambda: copy.deepcopy(own), int(width))


def _state(model: nn.Module | Mapping[str, Any]) -> Mapping[str, Any]:
    return model.state_dict() if isinstance(model, nn.Module) else model
