"""What was found after each round, as scalars for TensorBoard, MLflow and Weights & Biases, where [track] asks for it.

They are read from the run on disk, as `fedaudit watch` reads it, after every round that was recorded. A tracker that
fails is told of once, and the audit goes on without it: it is a copy of what results.json has.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, Protocol

from fedaudit.config.schema import TrackSection
from fedaudit.errors import FedauditError
from fedaudit.results.running import Follower, Running, added, epsilons
from fedaudit.session.session import in_words
from fedaudit.trace.lineage import RecordedRound
from fedaudit.trace.store import load_manifest
from fedaudit.types import Notice, RoundRisk, notice

How = Literal["finished", "interrupted", "failed"]


class Tracker(Protocol):
    def log(self, values: Mapping[str, float], round: int) -> None: ...

    def close(self, how: How) -> None: ...


class Tracking:
    """Of the run in this folder. Rounds that it has already were sent by whoever recorded them. A tracker is opened
    when there is something to send."""

    def __init__(self, folder: Path, asked: Mapping[str, str]):
        self.asked, self._follower = dict(asked), Follower(folder)
        self._open: dict[str, Tracker] = {}
        self._before = self._follower.look()

    def send(self) -> list[Notice]:
        """The rounds that were added. What failed is told, and not asked again."""
        run = self._follower.look()
        if run.state == "damaged":
            return []
        new, self._before = added(run, self._before), run
        told = [self._each(partial(_log, values=scalars(run, round), round=round.round)) for round in new]
        return [notice for some in told for notice in some]

    def close(self, how: How) -> list[Notice]:
        """Once: whoever closes it again changes nothing."""
        self.asked = {name: where for name, where in self.asked.items() if name in self._open}
        told = self._each(lambda one: one.close(how))
        self.asked = {}
        return told

    def _each(self, act: Callable[[Tracker], None]) -> list[Notice]:
        failed = []
        for name, where in list(self.asked.items()):
            try:
                if name not in self._open:
                    self._open[name] = KINDS[name](where, self._follower.folder)
                act(self._open[name])
            except Exception as error:  # of other people's code
                del self.asked[name]
                failed.append(notice("track-failed", tracker=name, why=in_words(error)))
        return failed


def _log(one: Tracker, values: Mapping[str, float], round: int) -> None:
    one.log(values, round)


def scalars(run: Running, round: RecordedRound) -> dict[str, float]:
    """Names without what MLflow refuses, which is most of what is not in a path; and none is the folder of another."""
    found: dict[str, float] = {}
    for one in round.risks:
        for end, value in (("", one.value), ("-low", one.low), ("-high", one.high)):
            if value is not None:
                found[_name(one) + end] = value
    if (epsilon := epsilons(run, [round.round]).get(round.round)) is not None:
        found["epsilon"] = epsilon
    found["parties"] = float(len(round.parties))
    return found


def _name(one: RoundRisk) -> str:
    path = f"{one.vantage}/{one.model}/{one.attack}/{one.metric}"
    return "".join(sign if sign.isalnum() or sign in "_-./" else "_" for sign in path)


# ------------------------------------------------------------------ the three


def own_name(run: Path) -> str:
    """TensorBoard takes what lies in one folder for one run: those of the same name, and one that replaces another, are
    told apart."""
    mark = hashlib.sha256(f"{run.resolve()} {load_manifest(run).get('created')}".encode()).hexdigest()[:8]
    return f"{run.name}-{mark}"


class TensorBoard:
    def __init__(self, folder: str, run: Path):
        from tensorboardX import SummaryWriter

        self._writer = SummaryWriter(str(Path(folder) / own_name(run)))

    def log(self, values: Mapping[str, float], round: int) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, round)
        self._writer.flush()  # whoever looks sees the round now

    def close(self, how: How) -> None:
        self._writer.close()


class MLflow:
    def __init__(self, uri: str, run: Path):
        from mlflow import MlflowClient

        self._client = MlflowClient(tracking_uri=uri)
        experiment = self._client.get_experiment_by_name("fedaudit")
        known = experiment.experiment_id if experiment else self._client.create_experiment("fedaudit")
        self._run = self._client.create_run(known, run_name=run.name).info.run_id

    def log(self, values: Mapping[str, float], round: int) -> None:
        for name, value in values.items():
            self._client.log_metric(self._run, name, value, step=round)

    def close(self, how: How) -> None:
        status = {"finished": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}
        self._client.set_terminated(self._run, status=status[how])


class WeightsAndBiases:
    """Where and whether anything is sent is for WANDB_MODE and wandb's own settings to say."""

    def __init__(self, project: str, run: Path):
        import wandb

        self._run = wandb.init(project=project, name=run.name, dir=str(run))
        self._run.define_metric("*", step_metric="round")  # its own steps only rise, and a round may be done again

    def log(self, values: Mapping[str, float], round: int) -> None:
        self._run.log({**values, "round": round})

    def close(self, how: How) -> None:
        self._run.finish(exit_code=int(how != "finished"))


KINDS: dict[str, Callable[[str, Path], Tracker]] = {
    "tensorboard": TensorBoard,
    "mlflow": MLflow,
    "wandb": WeightsAndBiases,
}
MODULES = {"tensorboard": "tensorboardX", "mlflow": "mlflow", "wandb": "wandb"}


def tracked(asked: TrackSection | None, run: Path) -> Tracking | None:
    wanted = _wanted(asked)
    return Tracking(run, wanted) if wanted else None


def _wanted(asked: TrackSection | None) -> dict[str, str]:
    return {} if asked is None else asked.model_dump(exclude_none=True)


def refuse_missing(asked: TrackSection | None) -> None:
    """What is asked for and not installed is wrong use. Told before a folder is touched: --force would have replaced
    the run that is there by one that cannot begin."""
    for name in _wanted(asked):
        if find_spec(MODULES[name]) is None:
            what = f"[track] asks for {name}, and {MODULES[name]} is not installed"
            raise FedauditError("track-missing", what, "Install it: pip install 'fedaudit[track]'.")


@contextmanager
def closed_as_it_ends(tracking: Tracking | None) -> Iterator[None]:
    """A run that does not come to its results is no longer running for those who follow it, either."""
    how: How = "failed"
    try:
        yield
    except KeyboardInterrupt:
        how = "interrupted"
        raise
    finally:
        if tracking is not None:
            tracking.close(how)
