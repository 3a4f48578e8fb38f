"""The figures of every round arrive at TensorBoard, MLflow and Weights & Biases as the journal has them."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from fedaudit.config.schema import TrackSection, parse
from fedaudit.errors import FedauditError
from fedaudit.integrations.options import open_session
from fedaudit.results import document as results
from fedaudit.results.running import Follower
from fedaudit.session.prepare import Prepared
from fedaudit.session.recording import continued
from fedaudit.session.run import rounds, run
from fedaudit.session.tracking import MLflow, Tracking, own_name, scalars, tracked
from fedaudit.trace.store import HOST_CLAIM, Store
from fedaudit.types import Moment, Round, RoundRisk, State
from tests.command import fedaudit
from tests.trace.test_store import round_, seen

MANIFEST = {"keep": "signals", "parties": ["A", "B", "C"], "attacks": ["loss"], "rounds": 3, "created": "today"}
NAME = "client/global/loss/tpr_0.01"
EXPECTED = {f"{NAME}{end}": [0.1, 0.2] for end in ("", "-low", "-high")} | {
    "epsilon": [0.5, 1.0],
    "parties": [2.0, 2.0],
}


def recorded(folder: Path, track: TrackSection) -> None:
    """Two rounds, each sent when it is recorded."""
    with Store.create(folder, MANIFEST) as store:
        tracking = tracked(track, folder)
        assert tracking is not None
        for number in (1, 2):
            place = {"vantage": "client", "model": "global", "attack": "loss", "metric": "tpr@0.01"}
            found = RoundRisk(**place, value=number / 10, low=number / 10, high=number / 10)
            spent = "".join(f"[[spent]]\nround = {n}\nepsilon = {n / 2}\n" for n in range(1, number + 1))
            (folder / HOST_CLAIM).write_text(spent)
            store.append(round_(number), seen(number), [found])
            assert tracking.send() == []
            assert tracking.send() == []  # nothing twice
        assert tracking.close("finished") == []
        assert tracking.close("failed") == []  # it is closed


def test_tensorboard_reads_every_round(tmp_path: Path) -> None:
    recorded(tmp_path / "run", TrackSection(tensorboard=str(tmp_path / "board")))
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.record_writer import RecordWriter  # noqa: F401 - the format is theirs

    found: dict[str, list[float]] = {}
    (file,) = (tmp_path / "board" / own_name(tmp_path / "run")).iterdir()
    data = file.read_bytes()
    while data:  # length, its checksum, the event, its checksum
        size = int.from_bytes(data[:8], "little")
        event, data = Event.FromString(data[12 : 12 + size]), data[16 + size :]
        for one in event.summary.value:
            found.setdefault(one.tag, []).append(round(one.simple_value, 6))  # they are float32
    assert found == EXPECTED


def test_mlflow_reads_every_round(tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow", reason="mlflow brings two dozen packages: make evidence installs it")
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    where = (tmp_path / "flow").as_uri()
    recorded(tmp_path / "run", TrackSection(mlflow=where))
    client = mlflow.MlflowClient(tracking_uri=where)
    (run,) = client.search_runs([client.get_experiment_by_name("fedaudit").experiment_id])
    assert (run.info.run_name, run.info.status) == ("run", "FINISHED")
    found = {name: [one.value for one in client.get_metric_history(run.info.run_id, name)] for name in run.data.metrics}
    assert found == EXPECTED
    for how in ("interrupted", "failed"):
        MLflow(where, tmp_path / how).close(how)
    runs = client.search_runs([run.info.experiment_id])
    ended = {one.info.run_name: one.info.status for one in runs}
    assert ended == {"run": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}


def test_wandb_takes_every_round_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason="wandb is large and starts a process: make evidence installs it")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    recorded(tmp_path / "run", TrackSection(wandb="fedaudit"))
    (file,) = (tmp_path / "run").rglob("run-*.wandb")
    kept = file.read_bytes()
    assert all(name.encode() in kept for name in EXPECTED)


@pytest.mark.evidence
def test_all_three_as_they_are_installed(tmp_path: Path) -> None:
    """MLflow and wandb beside this installation, for these tests alone."""
    beside = tmp_path / "beside"
    install = ["-m", "pip", "install", "-q", "--target", str(beside), "mlflow-skinny>=3", "wandb>=0.20", "tensorboardX"]
    subprocess.run([sys.executable, *install], check=True)
    places = os.pathsep.join([str(beside), *sys.path])
    test = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore", __file__, "-rs"]
    done = subprocess.run(test, env=os.environ | {"PYTHONPATH": places}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
    assert "skipped" not in done.stdout


class Broken:
    def log(self, *_: object) -> None:
        raise OSError("no route to it")

    def close(self, how: str) -> None:
        raise AssertionError("it is not asked again")


def test_a_tracker_that_fails_is_told_of_once_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: str, __: Path) -> Broken:
        return Broken()

    kinds: dict[str, Callable[[str, Path], object]] = {"tensorboard": broken}
    monkeypatch.setattr("fedaudit.session.tracking.KINDS", kinds)
    settings = ["data.name='digits'", "data.limit=400", "federation.rounds=2", "federation.parties=2"]
    settings += ["audit.attacks=['loss']", "track.tensorboard='board'"]
    sets = [word for one in settings for word in ("--set", one)]
    done = fedaudit("demo", "--out", "run", *sets, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    document = results.load(tmp_path / "run")
    assert [one.data["tracker"] for one in document.told if one.code == "track-failed"] == ["tensorboard"]
    assert document.run.ending == "complete"
    run = Follower(tmp_path / "run").look()
    assert set(scalars(run, run.rounds[-1])) >= {"client/global/loss/auc", "client/global/loss/auc-low"}


class Kept:
    """A tracker that remembers."""

    def __init__(self) -> None:
        self.rounds: list[int] = []
        self.ended: list[str] = []

    def log(self, _: object, round: int) -> None:
        self.rounds.append(round)

    def close(self, how: str) -> None:
        self.ended.append(how)


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Kept:
    one = Kept()
    kinds: dict[str, Callable[[str, Path], object]] = {"tensorboard": lambda _, __: one}
    monkeypatch.setattr("fedaudit.session.tracking.KINDS", kinds)
    return one


def test_rounds_that_are_done_again_are_sent_again(tmp_path: Path, kept: Kept) -> None:
    with Store.create(tmp_path / "run", MANIFEST) as store:
        tracking = Tracking(tmp_path / "run", {"tensorboard": "board"})
        back = round_(2)
        for one in (round_(1), back, round_(3), replace(back, aggregate=round_(9).aggregate)):
            store.append(one, seen(one.index), [])
            tracking.send()
    assert kept.rounds == [1, 2, 3, 2]


@pytest.mark.parametrize(
    ("error", "how"), [(ValueError, "failed"), (KeyboardInterrupt, "interrupted"), (None, "finished")]
)
def test_a_tracker_is_told_how_the_run_ended(
    tmp_path: Path, kept: Kept, error: type[BaseException] | None, how: str
) -> None:
    def engine(prepared: Prepared, after: Moment, model: State | None) -> Iterator[Round]:
        for one in rounds(prepared, after, model):
            yield one
            if error is not None:
                raise error

    asked = parse({**SMALL, "track": {"tensorboard": "board"}})
    with nullcontext() if error is None else pytest.raises(error):
        run(asked, tmp_path / "run", quietly, tell=lambda _: None, engine=engine)
    assert kept.ended == [how]


def test_runs_of_one_name_are_apart_on_the_board(tmp_path: Path) -> None:
    names = []
    for folder, created in (("a", "today"), ("b", "today"), ("a", "tomorrow")):
        Store.create(tmp_path / folder / "run", MANIFEST | {"created": created}).close()
        names.append(own_name(tmp_path / folder / "run"))
    assert len(set(names)) == 3


@pytest.mark.parametrize("where", ["https://me:secret@host:5000", "postgresql://me@host/runs"])
def test_a_password_is_not_stored_with_a_run(where: str) -> None:
    with pytest.raises(FedauditError, match="MLFLOW_TRACKING_PASSWORD") as refused:
        parse({"track": {"mlflow": where}})
    assert "secret" not in str(refused.value)
    assert parse({"track": {"mlflow": "http://host:5000/a@b"}}).track is not None


SMALL = {
    "data": {"name": "digits", "limit": 400},
    "federation": {"rounds": 2, "parties": 2},
    "model": {"hidden": [4]},
    "audit": {"attacks": ["loss"]},
}


def quietly(_: str, __: int) -> AbstractContextManager[Callable[[], None]]:
    return nullcontext(lambda: None)


def test_what_is_asked_for_and_not_installed_is_told_before_the_run_that_is_there_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, asked = tmp_path / "run", parse({**SMALL, "track": {"wandb": "x"}})
    run(parse(SMALL), out, quietly, tell=lambda _: None)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    monkeypatch.setattr("fedaudit.session.tracking.find_spec", lambda _: None)
    with pytest.raises(FedauditError, match=r"pip install 'fedaudit\[track\]'"):
        run(asked, out, quietly, force=True, tell=lambda _: None)
    with pytest.raises(FedauditError, match=r"pip install 'fedaudit\[track\]'"):
        open_session(out, None, track=asked.track)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    assert tracked(None, tmp_path) is None
    assert Tracking(tmp_path, {}).send() == []


def test_a_run_goes_on_with_another_tracker_or_none(tmp_path: Path) -> None:
    begun = {"config": parse({**SMALL, "track": {"wandb": "x"}}).as_dict()}
    assert continued(tmp_path, begun, parse(SMALL)).track is None
    with pytest.raises(FedauditError, match=r"federation.rounds was 2 and is now 3"):
        continued(tmp_path, begun, parse({**SMALL, "federation": {"rounds": 3, "parties": 2}}))
