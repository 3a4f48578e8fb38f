"""A party's limit in a ClientApp: who decides it is settled before the first round, and what it withholds is the first
thing that the report says."""

import json
import logging
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, get_args

import jsonschema
import numpy as np
import pytest
from flwr.app import Context, Message
from flwr.clientapp.typing import ClientAppCallable

from fedaudit.data.set_aside import set_aside
from fedaudit.integrations.flower.client import PartyAudit
from fedaudit.integrations.options import checked, make_auditor
from fedaudit.integrations.party import WITHHELD
from fedaudit.report.values import cleaned
from fedaudit.report.words import verdict
from fedaudit.results.document import SCHEMA_FILE, Document, Withheld, load
from fedaudit.session.session import Session
from fedaudit.types import Game, Grade, gap
from tests.integrations.flower_world import LocalGrid, client_app
from tests.integrations.test_flower_client import game_of, send, spoilt
from tests.integrations.test_flower_trouble import deliver, given, restarted
from tests.integrations.worlds import net, part

QUICK = ("fta-confidence", "loss")
GRADES = get_args(Grade)
UNDECIDABLE = "tpr@0.01 > 0.05"  # 182 calibration records, and 546 are needed in a plan of three rounds
BY_SOME = "tpr@0.05 > {}"  # more than 100 are needed; of 182, an attack that is fitted leaves 98


def found(folder: Path) -> tuple[Document, str]:
    """The results and the verdict, as page and terminal give it."""
    jsonschema.validate(json.loads((folder / "results.json").read_text()), json.loads(SCHEMA_FILE.read_text()))
    document = load(folder)
    said = verdict(cleaned(document))
    first = said[0].partition(". ")[2] if said[0].split(".")[0].lower() in GRADES else said[0]
    assert first[:30] in (folder / "report.html").read_text()
    return document, " ".join(said)


def ours(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == "flwr" and "fedaudit" in record.getMessage()]


def test_a_limit_that_no_attack_can_decide_is_refused_before_the_first_round_and_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trained: list[int] = []

    def count(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        trained.append(1)
        return call_next(message, context)

    audit = PartyAudit(net, game_of, rounds=3, out=tmp_path, halt_if=UNDECIDABLE)
    replies = send(client_app([audit, count]), [1, 2, 3])
    assert [reply.error.reason for reply in replies] == [f"{WITHHELD} [limit-unreachable]"] * 3
    assert trained == []
    (line,) = ours(caplog)
    assert line.exc_info is None
    for words in (
        "NOT AUDITED, and nothing is sent",
        "182 calibration records are set aside",
        "Set more records aside",
    ):
        assert words in line.getMessage()
    document, said = found(tmp_path / "north")
    (withheld,) = document.run.withheld
    assert (withheld.round, withheld.because, withheld.onwards) == (1, "limit undecidable", True)
    assert (withheld.rule, withheld.attack) == (UNDECIDABLE, None)
    assert said.startswith(
        "This party has sent nothing from round 1 on: no attack can decide its limit tpr@0.01 > 0.05."
    )
    assert "Set more records aside, plan fewer rounds" in said
    assert len(document.degraded) == 1


@pytest.mark.parametrize("strict", [False, True])
def test_a_warning_that_no_attack_can_decide_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, strict: bool
) -> None:
    """The party asked for no protection: its training goes on, not audited, unless it is strict."""
    audit = PartyAudit(net, game_of, rounds=3, out=tmp_path, attacks=QUICK, warn_if=UNDECIDABLE, strict=strict)
    assert [reply.has_error() for reply in send(client_app([audit]), [1, 2, 3])] == [strict] * 3
    (line,) = ours(caplog)
    assert line.getMessage().startswith("fedaudit: this run is NOT AUDITED")
    document, said = found(tmp_path / "north")
    assert len(document.degraded) == 1
    assert bool(document.run.withheld) == said.startswith("This party has sent nothing") == strict


def test_attacks_that_leave_too_few_calibration_records_are_left_out_of_the_limit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They are named once and stay in the audit; the others decide, as before they were refused together."""
    audit = PartyAudit(net, game_of, rounds=3, out=tmp_path, halt_if=BY_SOME.format(0.9))
    assert all(reply.has_content() for reply in send(client_app([audit]), [1, 2, 3]))
    told = [record.getMessage() for record in ours(caplog) if "Left out of the limit" in record.getMessage()]
    assert len(told) == 1
    assert re.search(r"\(fitted on 84 of 182 calibration records, which leaves 98 of \d+ needed\): fusion, ", told[0])
    document, _ = found(tmp_path / "north")
    assert document.run.status == "complete"
    assert [told[0].removeprefix("fedaudit: ")] == [line for line in document.notices if "Left out of the" in line]
    assert "fusion" in {entry.attack for entry in document.results}


def test_the_limit_is_decided_by_an_attack_that_can(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Fusion is the primary attack, and cannot; loss can, and is above a limit of nothing in the first round."""
    audit = PartyAudit(net, game_of, rounds=3, out=tmp_path, attacks=["fusion", "loss"], halt_if=BY_SOME.format(0))
    assert all(reply.has_error() for reply in send(client_app([audit]), [1, 2]))
    assert "round 1 crosses the limit 'tpr@0.05 > 0': loss, tpr@0.05 0.0" in caplog.text
    document, said = found(tmp_path / "north")
    (withheld,) = document.run.withheld
    assert (withheld.because, withheld.attack, withheld.rule) == ("limit crossed", "loss", "tpr@0.05 > 0")
    guaranteed = withheld.estimates["tpr@0.05"].guaranteed
    assert guaranteed is not None
    assert guaranteed[0] > 0
    assert "crosses its limit tpr@0.05 > 0 (found by loss: TPR" in said


def test_a_limit_for_each_metric_has_its_own_deciders(caplog: pytest.LogCaptureFixture) -> None:
    """Fusion cannot decide the TPR and leads in deciding the AUC; in the first round, loss alone has a value."""
    names, first = ["fusion", "loss"], BY_SOME.format(0)
    audit = PartyAudit(net, game_of, rounds=3, attacks=names, warn_if=first, halt_if="auc > 0.01")
    assert [reply.has_error() for reply in send(client_app([audit]), [1, 2])] == [True, True]
    assert "round 1 crosses the limit 'tpr@0.05 > 0': loss" in caplog.text
    assert "round 1 crosses the limit 'auc > 0.01': loss" in caplog.text


def test_a_halt_in_the_first_round_is_reported(tmp_path: Path) -> None:
    audit = PartyAudit(net, game_of, rounds=3, out=tmp_path, attacks=["loss"], halt_if="auc > 0.01")
    grid = LocalGrid(client_app([audit]))
    assert deliver(grid, 1).has_error()
    document, said = found(tmp_path / "north")
    assert document.run.status == "recorded up to round 1 of 3"
    assert said.startswith(
        "This party has sent nothing from round 1 on: what was about to leave then crosses its limit"
    )
    assert "(found by loss: AUC 0.5" in said
    assert "what had leaked by then, and what the withheld update would have" in said
    before = (tmp_path / "north/results.json").read_text()
    restarted(grid)
    assert deliver(grid, 2).has_error()
    assert (tmp_path / "north/results.json").read_text() == before


def test_updates_that_a_strict_party_withheld_are_in_the_verdict(tmp_path: Path) -> None:
    audit = PartyAudit(net, game_of, rounds=4, out=tmp_path, attacks=QUICK, halt_if="auc > 0.9", strict=True)
    assert [reply.has_error() for reply in send(client_app([audit, spoilt]), [1, 2, 3])] == [True] * 3
    document, said = found(tmp_path / "north")
    assert [(update.round, update.because, update.onwards) for update in document.run.withheld] == [
        (number, "not audited", False) for number in (1, 2, 3)
    ]
    assert said.startswith("This party withheld its updates of rounds 1 to 3, which could not be audited;")


def test_a_second_answer_that_a_strict_party_withheld_is_in_the_verdict(tmp_path: Path) -> None:
    """After the last round, whose results cannot be computed again."""
    seeds = iter((0, 0, 7))

    def other_seed(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        return client_app(seeds_from=next(seeds))(message, context)

    audit = PartyAudit(net, game_of, rounds=2, out=tmp_path, attacks=(*QUICK, "merlin"), strict=True)
    send(client_app([audit, other_seed]), [1, 2, 2])
    document, said = found(tmp_path / "north")
    assert said.startswith("This party withheld its update of round 2, which could not be audited;")
    assert document.failed == ()


def fails(monkeypatch: pytest.MonkeyPatch, rounds: tuple[int, ...]) -> Callable[..., None]:
    """The audit raises in these rounds."""
    observe = Session.observe

    def fragile(self: Session, round: Any) -> None:
        if round.index in rounds:
            raise RuntimeError("no memory")
        observe(self, round)

    monkeypatch.setattr(Session, "observe", fragile)
    return observe


def test_a_fault_that_nobody_foresaw_has_one_traceback(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails(monkeypatch, (2, 3))
    audit = PartyAudit(net, game_of, rounds=4, out=tmp_path, attacks=QUICK, strict=True)
    assert [reply.has_error() for reply in send(client_app([audit]), [1, 2, 3, 4])] == [False, True, True, False]
    faults = [record for record in ours(caplog) if "NOT AUDITED" in record.getMessage()]
    assert [record.exc_info is not None for record in faults] == [True, False]
    document, said = found(tmp_path / "north")
    assert said.startswith("This party withheld its updates of rounds 2 and 3, which could not be audited;")
    assert len([line for line in document.degraded if "NOT AUDITED" in line]) == 2


def test_a_fault_in_the_last_round_is_in_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fails(monkeypatch, (3,))
    send(client_app([PartyAudit(net, game_of, rounds=3, out=tmp_path, attacks=QUICK, strict=True)]), [1, 2, 3])
    _, said = found(tmp_path / "north")
    assert said.startswith("This party withheld its update of round 3, which could not be audited;")


def test_a_condition_that_is_known_has_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    def gone(context: Context) -> Game:
        raise FileNotFoundError(2, "No such file or directory")

    for game, options in ((gone, {}), (game_of, {"attacks": ["lira"]})):
        send(client_app([PartyAudit(net, game, rounds=3, **options)]), [1, 2])  # type: ignore[arg-type]
    faults = [record for record in ours(caplog) if "NOT AUDITED" in record.getMessage()]
    assert len(faults) == 4
    assert all(record.exc_info is None for record in faults)


def test_what_was_told_and_withheld_is_remembered() -> None:
    session = Session(make_auditor(net, part("north")[1], checked(3, attacks=QUICK)))
    session.gap(gap("round-empty", round=1))
    session.withhold(Withheld(1, "not audited"))
    arrays, text = session.state()
    other = Session(make_auditor(net, part("north")[1], checked(3, attacks=QUICK)))
    other.restore(arrays, text)
    assert (other.gaps, other.withheld) == ([gap("round-empty", round=1)], [Withheld(1, "not audited")])


def test_records_of_few_people_cannot_decide_a_limit(caplog: pytest.LogCaptureFixture) -> None:
    """Under strict this was found after two rounds, and withheld every update from then on."""
    records = part("north")[0]
    game = set_aside(records.x, records.y, party="north", subject=np.arange(len(records.x)) % 25)[1]
    audit = PartyAudit(net, partial(given, game), rounds=3, attacks=QUICK, halt_if="auc > 0.6", strict=True)
    replies = send(client_app([audit]), [1, 2])
    assert [reply.error.reason for reply in replies] == [f"{WITHHELD} [limit-unreachable]"] * 2
    assert caplog.text.count("needs records of 8 subjects") == 1
