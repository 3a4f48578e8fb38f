"""A defended run from end to end: interrupted and resumed, replayed, and shown in the report."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from fedaudit.config.schema import Config, parse
from fedaudit.privacy.accounting import promise_from, stated
from fedaudit.privacy.statement import Process
from fedaudit.report.html import write
from fedaudit.results.document import Document
from fedaudit.session.prepare import prepare
from fedaudit.session.replay import replay
from fedaudit.session.run import rounds, run
from tests.worlds import silent


def settings(*defences: dict[str, Any], **federation: Any) -> Config:
    return parse({
        "data": {"name": "breast-cancer"}, "federation": {"parties": 3, "rounds": 4, "batch_size": 64} | federation,
        "model": {"hidden": [32]}, "audit": {"attacks": ["loss"]}, "defences": list(defences),
    })  # fmt: skip


def train(config: Config, out: Path, **options: Any) -> Document:
    return run(config, out, silent, tell=lambda line: None, **options)


def test_D8_a_resumed_run_is_charged_for_every_round(tmp_path: Path) -> None:
    config = settings({"name": "dp-sgd", "noise": 1.0, "clip": 1.0})
    whole = train(config, tmp_path / "whole")

    def interrupted(*given: Any) -> Any:
        for round in rounds(*given):
            yield round
            if round.index == 2:
                raise KeyboardInterrupt

    half = train(config, tmp_path / "resumed", engine=interrupted)
    resumed = train(config, tmp_path / "resumed")
    early, late = half.run.guarantee, whole.run.guarantee
    assert early is not None
    assert late is not None
    assert early.scope == "whole run of 2 rounds"
    assert (early.epsilon or 0) < (late.epsilon or 0)
    assert resumed.run.guarantee == late
    assert resumed.headlines == whole.headlines  # the same noise in the same rounds
    again = replay(tmp_path / "resumed", [], tmp_path / "again", silent)
    assert again.run.guarantee == late
    write(whole, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "whole run of 4 rounds" in page
    assert "everybody outside the party that holds the record" in page


def test_rounds_to_which_nobody_comes_are_recorded_and_charged(tmp_path: Path) -> None:
    config = settings({"name": "dp-fedavg", "noise": 1.0, "clip": 1.0}, participation=0.2, sampling="poisson", rounds=6)
    document = train(config, tmp_path / "run")
    assert document.run.rounds == 6
    assert document.run.guarantee is not None
    assert document.run.guarantee.process == Process("user", 1.0, 1, "poisson", 0.2)


def test_the_report_says_that_memguard_protects_nobody_who_holds_the_weights(tmp_path: Path) -> None:
    document = train(settings({"name": "memguard", "strength": 1.0}), tmp_path / "run")
    assert document.run.guarantee is None
    write(document, tmp_path / "report.html")
    assert "adversaries who hold the weights" in (tmp_path / "report.html").read_text()


def test_D8_the_guarantee_counts_the_rounds_done() -> None:
    prepared = prepare(settings({"name": "dp-sgd", "noise": 1.0, "clip": 1.0}))
    for round in rounds(prepared):
        prepared.auditor.observe(round)
        if round.index == 2:
            early = stated(prepared.promises, prepared.auditor.last_round)
    late = stated(prepared.promises, prepared.auditor.last_round)
    assert early is not None
    assert late is not None
    assert early.epsilon is not None
    assert late.epsilon is not None
    assert early.epsilon < late.epsilon
    assert late.curve.epsilon[1] == pytest.approx(early.epsilon, rel=1e-6)
    # A new process that knows only the configuration and the number of rounds states the same.
    other = prepare(settings({"name": "dp-sgd", "noise": 1.0, "clip": 1.0}))
    assert stated(other.promises, prepared.auditor.last_round) == late
    assert [promise_from(asdict(promise)) for promise in other.promises] == list(other.promises)  # as in run.json
