"""Runs and their traces: live and replayed are one, what was begun differently is refused, trouble costs no numbers."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from fedaudit.adversary.attacks.trajectory import LastLoss
from fedaudit.audit import Auditor, patience
from fedaudit.audit.collect import in_order
from fedaudit.config.schema import Config
from fedaudit.errors import FedauditError
from fedaudit.results import document as results
from fedaudit.results.document import Document
from fedaudit.results.running import Follower
from fedaudit.session.prepare import prepare
from fedaudit.session.recording import unbroken
from fedaudit.session.replay import replay
from fedaudit.session.run import run
from fedaudit.stats import roc
from fedaudit.trace.store import Store
from fedaudit.types import Audit, Measured
from fedaudit.words import all_words
from tests import sealed
from tests.trace.killing import outcome
from tests.worlds import config, silent, watch

SMALL = {"rounds": 4}


def small(**audit: Any) -> Config:
    return config(federation=SMALL, audit={"attacks": ["fta-confidence", "loss"], **audit})


def train(settings: Config, out: Path, **options: Any) -> Document:
    return run(settings, out, silent, tell=lambda line: None, **options)


def copy(source: Path, target: Path) -> Path:

    return Path(shutil.copytree(source, target))


def same(a: Path, b: Path) -> bool:
    left, right = outcome(a), outcome(b)
    return all(left[key] == right[key] for key in left if key != "run") and left["run"]["accuracy"] == right["run"][
        "accuracy"
    ]  # fmt: skip


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with snapshots. Nobody writes here."""
    out = tmp_path_factory.mktemp("recorded") / "run"
    train(small(keep="snapshots"), out)
    return out


# ------------------------------------------------------------------ live and replayed


def test_what_was_found_after_each_round_is_recorded_with_it(recorded: Path) -> None:
    """For those who watch the run. It is what the results say in the end, also after the round."""
    rounds = Follower(recorded).look().rounds
    told = {(r.vantage, r.model, r.attack, r.metric) for r in rounds[-1].risks}
    assert len(told) >= 2
    curves = {
        (entry.vantage, str(entry.model), entry.attack, metric): curve
        for entry in results.load(recorded).results if entry.party is None
        for metric, curve in entry.curves.items()
    }  # fmt: skip
    for place in told:
        curve = curves[place]
        found = [
            (float(round.round), risk.value, risk.low, risk.high)
            for round in rounds for risk in round.risks
            if (risk.vantage, risk.model, risk.attack, risk.metric) == place
        ]  # fmt: skip
        assert found == list(zip(curve.x, curve.value, curve.low, curve.high, strict=True))


def costs(directory: Path) -> list[float]:
    document = json.loads((directory / "results.json").read_text())
    return [entry["cost"]["epochs"] for entry in document["results"] if entry["attack"] != "blind"]


def test_a_replayed_audit_is_the_live_one_bit_for_bit(recorded: Path, tmp_path: Path) -> None:
    document = replay(recorded, [], tmp_path, silent)
    assert same(recorded, tmp_path)
    assert costs(recorded) == costs(tmp_path)
    jsonschema.validate(document.to_json(), json.loads(results.SCHEMA_FILE.read_text()))


def test_signals_are_replayed_without_torch(tmp_path: Path) -> None:
    train(small(), tmp_path / "run")
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from fedaudit.session.replay import replay\n"
        "from fedaudit.stats import roc\n"
        f"roc.POINTS = {roc.POINTS}\n"
        "from contextlib import nullcontext\n"
        "replay(Path(sys.argv[1]), [], Path(sys.argv[2]), lambda what, steps: nullcontext(lambda: None))\n"
        "assert 'torch' not in sys.modules"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code, str(tmp_path / "run"), str(tmp_path / "again")]
    subprocess.run(command, check=True, env=environment)
    assert same(tmp_path / "run", tmp_path / "again")
    with pytest.raises(FedauditError, match="'fta-logit' needs the signal 'logit'") as caught:
        replay(tmp_path / "run", ["fta-logit"], tmp_path, silent)
    assert caught.value.exit_code == 2


def test_snapshots_replay_attacks_that_nobody_ran(recorded: Path, tmp_path: Path) -> None:
    names = ["fta-logit", "loss", "merlin"]
    replay(recorded, names, tmp_path / "replayed", silent)
    train(small(attacks=names), tmp_path / "live")
    assert same(tmp_path / "live", tmp_path / "replayed")


def test_deferred_attacks_resume_and_replay(tmp_path: Path) -> None:
    """Merlin looks at the last model alone: it is measured and stored in the last planned round."""
    settings = small(attacks=["loss", "merlin"])
    train(settings, tmp_path / "run")
    replay(tmp_path / "run", [], tmp_path / "again", silent)
    assert same(tmp_path / "run", tmp_path / "again")


def test_values_are_joined_by_id_and_what_is_missing_is_nan() -> None:
    measured = Measured(np.array(["c", "a", "b"]), {"loss": np.array([3.0, 1.0, 2.0])}, 0.0, 0.0)
    found = in_order(measured, np.array(["a", "b", "x", "c"]))["loss"]
    assert np.array_equal(found, [1.0, 2.0, np.nan, 3.0], equal_nan=True)


# ------------------------------------------------------------------ what a folder already holds


def test_F8_another_configuration_seed_or_data_is_refused(recorded: Path, tmp_path: Path) -> None:
    for change, says in (({"lr": 0.5}, "federation.lr was 0.003 and is now 0.5"), ({"seed": 7}, "federation.seed")):
        other = config(federation={**SMALL, **change}, audit=small(keep="snapshots").audit.model_dump())
        with pytest.raises(FedauditError, match=says) as caught:
            train(other, recorded)
        assert caught.value.exit_code == 2
    out = copy(recorded, tmp_path / "run")
    manifest = json.loads((out / "run.json").read_text())
    assert manifest["confidence"] == 0.95  # of the bands, for whoever follows the run
    for field, says in (("data", "the records"), ("start", "the model to start from")):
        sealed.write(out / "run.json", json.dumps({**manifest, field: "0" * 64}))
        with pytest.raises(FedauditError, match=f"the hash of {says} was 0+ and is now .*--out") as caught:
            train(small(keep="snapshots"), out)
        assert caught.value.exit_code == 2
    sealed.write(out / "run.json", json.dumps({**manifest, "data": "0" * 64}))
    with pytest.raises(FedauditError, match=r"the hash of the records was 0+ and is now .* Put the data") as caught:
        replay(out, [], tmp_path / "audit", silent)
    assert caught.value.exit_code == 2
    Store.resume(out).close()  # a refusal leaves no lock behind


def test_a_finished_run_is_shown_again_and_trained_anew_on_demand(recorded: Path, tmp_path: Path) -> None:
    out = copy(recorded, tmp_path / "run")
    before = (out / "journal.jsonl").read_bytes()
    told: list[str] = []
    shown = run(small(keep="snapshots"), out, silent, tell=told.append)
    assert shown.to_json() == json.loads((out / "results.json").read_text())
    assert "finished" in told[0]
    assert (out / "journal.jsonl").read_bytes() == before
    train(small(), out, force=True)  # another configuration, insisted on
    assert not (out / "rounds").exists()
    assert Store.read(out).finished


def test_F14_an_interrupted_run_goes_on(recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Auditor.measure

    def impatient(auditor: Auditor, round: Any) -> Any:
        if round.index == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return real(auditor, round)

    with monkeypatch.context() as patched:
        patched.setattr(Auditor, "measure", impatient)
        document = train(small(keep="snapshots"), tmp_path)
    assert document.run.status == "interrupted at round 2"
    assert not Store.read(tmp_path).finished
    told: list[str] = []
    run(small(keep="snapshots"), tmp_path, silent, tell=told.append)
    assert told == ["Resuming after round 2."]
    assert same(recorded, tmp_path)


def test_F1_K33_cut_off_after_every_line_of_the_journal(tmp_path: Path) -> None:
    """With parties that come and go, and rounds to which nobody comes."""
    federation = {"parties": 3, "rounds": 5, "participation": 0.4, "sampling": "poisson", "seed": 24}
    audit = {"attacks": ["fta-loss", "loss", "merlin"], "keep": "snapshots"}
    settings = config(data={"name": "breast-cancer"}, federation=federation, audit=audit)
    whole = tmp_path / "whole"
    train(settings, whole)
    entries = Store.read(whole).entries()
    assert [len(entry.parties) for entry in entries] == [3, 0, 2, 1, 0]
    lines = (whole / "journal.jsonl").read_bytes().splitlines(keepends=True)
    for kept in range(len(lines)):
        out = copy(whole, tmp_path / f"cut-{kept}")
        (out / "journal.jsonl").write_bytes(b"".join(lines[:kept]))
        (out / "results.json").unlink()
        train(settings, out)
        assert same(whole, out), kept
    replay(whole, [], tmp_path / "replayed", silent)
    assert same(whole, tmp_path / "replayed")


def test_an_interrupt_is_not_lost_where_recording_fails() -> None:
    def record() -> None:
        with unbroken():
            os.kill(os.getpid(), signal.SIGINT)
            raise OSError

    with pytest.raises(KeyboardInterrupt):
        record()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_waits_until_a_round_is_recorded() -> None:
    steps = []

    def record() -> None:
        with unbroken():
            os.kill(os.getpid(), signal.SIGINT)
            steps.append("recorded")

    with pytest.raises(KeyboardInterrupt):
        record()
    assert steps == ["recorded"]


# ------------------------------------------------------------------ damage


def flip(path: Path) -> None:
    blob = bytearray(path.read_bytes())
    blob[len(blob) // 2] ^= 1
    path.write_bytes(blob)


def test_F12_a_damaged_round_is_a_gap_and_is_named(recorded: Path, tmp_path: Path) -> None:
    out = copy(recorded, tmp_path / "run")
    flip(out / "signals/00002.parquet")
    document = replay(out, [], tmp_path / "again", silent)
    (warning,) = document.warnings
    assert warning.startswith("Round 2: signals/00002.parquet has another checksum")
    primary = document.headlines[0].fixed, "global", None
    (curve,) = [r.curves["auc"] for r in document.results if (r.attack, r.model, r.party) == primary]
    assert curve.x == [3, 4]  # rounds 1 and 3 make the first slope
    prepared = prepare(small())
    for stored, entry in zip(Store.read(recorded).rounds(), Store.read(recorded).entries(), strict=True):
        if entry.round != 2:
            prepared.auditor.observe(stored)
    expected = {e.name: e.value for r in prepared.auditor.snapshot().results[:1] for e in r.estimates.values()}
    assert {name: e.value for name, e in document.results[0].estimates.items()} == expected


def test_a_damaged_model_cannot_be_resumed_from_but_the_rest_is_read(recorded: Path, tmp_path: Path) -> None:
    out = copy(recorded, tmp_path / "run")
    (out / "results.json").unlink()  # as if killed just before the end
    flip(out / "rounds/00004/aggregate.safetensors")
    with pytest.raises(FedauditError, match=r"cannot resume: 00004/aggregate.safetensors") as caught:
        train(small(keep="snapshots"), out)
    assert caught.value.exit_code == 5
    replay(out, [], tmp_path / "again", silent)
    assert same(recorded, tmp_path / "again")


# ------------------------------------------------------------------ trouble while running


def test_F2_a_full_disk_stops_the_recording_and_not_the_audit(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Store.append

    def full(store: Store, round: Any, seen: Any = None, found: Any = ()) -> Any:
        if round.index == 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(store, round, seen)

    with monkeypatch.context() as patched:
        patched.setattr(Store, "append", full)
        document = train(small(keep="snapshots"), tmp_path / "run")
    expected = json.loads((recorded / "results.json").read_text())
    assert [r["estimates"] for r in document.to_json()["results"]] == [r["estimates"] for r in expected["results"]]
    (warning,) = document.warnings
    assert warning.startswith("Recording stopped at round 3 (No space left on device)")
    assert document.degraded == [warning]
    assert Store.read(tmp_path / "run").lineage.newest == 2
    train(small(keep="snapshots"), tmp_path / "run")  # with space again, it goes on from there
    assert same(recorded, tmp_path / "run")


def test_F2_results_that_cannot_be_written_are_still_returned(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(results, "save", full)
    document = train(small(keep="snapshots"), tmp_path / "run")
    assert "could not be written" in document.degraded[0]
    expected = json.loads((recorded / "results.json").read_text())
    assert document.to_json()["headlines"] == expected["headlines"]


def test_a_folder_that_cannot_be_written_is_found_before_training(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(FedauditError, match="cannot write to") as caught:
        train(small(), tmp_path / "file" / "run")
    assert caught.value.exit_code == 2


class Broken(LastLoss):
    """Raises where it is told to."""

    where = ""

    @property
    def name(self) -> str:
        return "broken"

    def reduce(self, n: int) -> Any:
        reduction: Any = super().reduce(n)
        if self.where == "observe":
            reduction.observe = self.fail
        return reduction

    def score(self, features: Any) -> Any:
        return self.fail() if self.where == "score" else super().score(features)

    @property
    def signals(self) -> tuple[str, ...]:
        return ("no-such-signal",) if self.where == "signal" else ("loss",)

    def fail(self, *_: Any) -> Any:
        raise MemoryError("too much for me")


def with_broken(where: str, **audit: Any) -> Audit:
    attack = type("Broken", (Broken,), {"where": where})()
    prepared = prepare(small(**audit))
    settings = prepared.settings
    object.__setattr__(settings, "attacks", [attack, *settings.attacks])
    auditor = Auditor(prepared.task, prepared.game, settings)
    object.__setattr__(prepared, "auditor", auditor)
    return watch(prepared)


@pytest.mark.parametrize("where", ["observe", "score", "signal"])
def test_F3_an_attack_that_raises_costs_no_other_attack(recorded: Path, where: str) -> None:
    audit = with_broken(where)
    expected = json.loads((recorded / "results.json").read_text())
    assert list(audit.failed) == ["broken"]
    assert [w for w in all_words(audit.warnings) if w.startswith("broken failed and has no result")]
    found = Document.of(audit, results.load(recorded).run).to_json()
    assert [(r["attack"], r["estimates"]) for r in found["results"]] == [
        (r["attack"], r["estimates"]) for r in expected["results"]
    ]
    assert found["headlines"] == expected["headlines"]
    assert found["failed"][0]["attack"] == "broken"


@pytest.mark.parametrize("where", ["observe", "score"])
def test_F3_an_attack_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    def hang(*_: Any) -> None:
        while True:
            pass

    monkeypatch.setattr(Broken, "fail", hang)
    monkeypatch.setattr(patience, "SECONDS", 2.0)
    audit = with_broken(where, vantages=["client"])  # every model that it is tried on costs as much
    assert "took longer than 2 s" in audit.failed["broken"]
    assert {result.attack for result in audit.results} == {"fta-confidence", "loss", "blind"}


def test_F3_when_the_primary_fails_the_first_listed_takes_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    from fedaudit.adversary.attacks.trajectory import FTA

    def fail(self: Any, features: Any) -> Any:
        raise ValueError("no")

    monkeypatch.setattr(FTA, "score", fail)
    audit = watch(prepare(small()))
    assert list(audit.failed) == ["fta-confidence"]
    assert {headline.attack for headline in audit.headlines} == {"loss"}
    assert {result.attack for result in audit.results} == {"loss", "blind"}
