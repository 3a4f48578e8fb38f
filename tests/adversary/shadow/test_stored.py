"""Reference and shadow models beside a stored trace: replayed, resumed, or told why not."""

from pathlib import Path
from typing import Any

import pytest

from fedaudit.audit import Auditor
from fedaudit.config.schema import Config
from fedaudit.results.document import Document
from fedaudit.session.replay import replay
from fedaudit.session.run import run
from tests.trace.killing import outcome
from tests.worlds import config, silent

ASKED = ["fta-confidence", "kta-logit", "lira"]


def small(**audit: Any) -> Config:
    return config(
        data={"name": "breast-cancer"},
        federation={"rounds": 4, "parties": 2},
        audit={"attacks": ASKED, "reference": {"models": 4}, "fpr": [0.1], **audit},
    )


def train(settings: Config, out: Path) -> Document:
    return run(settings, out, silent, tell=lambda line: None)


def found(directory: Path) -> Any:
    return outcome(directory)["results"]


def test_a_stored_trace_is_attacked_with_references_as_a_live_one(tmp_path: Path) -> None:
    train(small(), tmp_path / "live")
    replay(tmp_path / "live", [], tmp_path / "from-signals", silent)
    assert found(tmp_path / "live") == found(tmp_path / "from-signals")
    train(small(attacks=["fta-confidence"], keep="snapshots"), tmp_path / "plain")
    replay(tmp_path / "plain", ASKED, tmp_path / "from-models", silent)
    assert found(tmp_path / "live") == found(tmp_path / "from-models")


class Killed(BaseException):
    pass


def killed_after(rounds: int, settings: Config, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measure = Auditor.measure

    def until(self: Auditor, round: Any) -> Any:
        if round.index > rounds:
            raise Killed
        return measure(self, round)

    with monkeypatch.context() as patched:
        patched.setattr(Auditor, "measure", until)
        with pytest.raises(Killed):
            train(settings, out)


def test_a_killed_run_resumes_with_its_references_where_models_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = small(keep="snapshots")
    train(settings, tmp_path / "undisturbed")
    killed_after(2, settings, tmp_path / "killed", monkeypatch)
    train(settings, tmp_path / "killed")
    assert found(tmp_path / "undisturbed") == found(tmp_path / "killed")


def test_without_models_the_other_attacks_go_on_and_references_say_why_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_after(2, small(), tmp_path / "killed", monkeypatch)
    document = train(small(), tmp_path / "killed")
    assert {r.attack for r in document.results} >= {"fta-confidence"}
    assert "kta-logit" not in {r.attack for r in document.results}
    assert any("kta-logit" in warning and "stand at round 0" in warning for warning in document.warnings)


def test_shadow_attacks_resume_from_signals_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = small(adversary="agg-sh", attacks=["loss", "gradient-series"])
    train(settings, tmp_path / "undisturbed")
    killed_after(2, settings, tmp_path / "killed", monkeypatch)
    train(settings, tmp_path / "killed")
    assert found(tmp_path / "undisturbed") == found(tmp_path / "killed")
    replay(tmp_path / "undisturbed", [], tmp_path / "replayed", silent)
    assert found(tmp_path / "undisturbed") == found(tmp_path / "replayed")
