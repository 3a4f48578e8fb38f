"""Questions by name, their metrics, and those that look for themselves."""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedaudit import questions
from fedaudit.audit import Auditor
from fedaudit.audit.settings import of_membership
from fedaudit.config.schema import parse
from fedaudit.errors import FedauditError
from fedaudit.questions import Metric, OfRounds, Verdict, metric
from fedaudit.results.document import Document
from fedaudit.session.prepare import Prepared, prepare
from fedaudit.session.recording import About
from fedaudit.session.run import rounds
from fedaudit.stats import proportion
from fedaudit.stats.wording import full_text, number_text, span_text
from fedaudit.types import Grant, Round, Vantage
from fedaudit.words import all_words
from tests.worlds import config


class Lengths(OfRounds):
    """How long is each party's update? Of no use, and simple to check."""

    name = "lengths"
    about = "whose update is long?"
    unit = "party"
    needs = frozenset({Grant.UPDATE})
    metrics = (Metric("long-updates", "long updates", "share", chance=0.5),)
    fails = False

    def look(self, view: Any, options: Any) -> Mapping[str, Any]:
        if self.fails:
            raise RuntimeError("broken")
        return {"length": np.sqrt(sum(float((change**2).sum()) for change in view.update.values()))}

    def conclude(self, case: Any, seen: Mapping[str | None, Any], options: Any, vantage: Any, model: Any) -> Verdict:
        lengths = [float(one["length"][0]) for glances in seen.values() for one in glances.values]
        told = f"lengths: {', '.join(f'{length:.4g}' for length in lengths)}"
        found = proportion([np.array(lengths) > 0], [None], case.settings.confidence, "long-updates")
        return Verdict([case.result(self.name, vantage, model, {found.name: found}, question=self)], [told])


@pytest.fixture
def lengths(monkeypatch: pytest.MonkeyPatch) -> Iterator[Lengths]:
    question = Lengths()
    monkeypatch.setattr(questions, "_of_others", lambda: ({"lengths": question}, {}))
    questions._described.cache_clear()
    yield question
    questions._described.cache_clear()


@pytest.fixture(scope="module")
def world() -> tuple[Prepared, list[Round]]:
    prepared = prepare(config(federation={"rounds": 3}, audit={"attacks": ["loss"]}))
    return prepared, list(rounds(prepared))


def asking(prepared: Prepared, question: OfRounds) -> Auditor:
    asked = {question.name: question.ask([], {})}
    return Auditor(prepared.task, prepared.game, replace(prepared.settings, asked=asked))


def test_an_observer_sees_every_local_model_and_its_state_can_be_stored(
    lengths: Lengths, world: tuple[Prepared, list[Round]]
) -> None:
    prepared, seen = world
    whole, first, second = (asking(prepared, lengths) for _ in range(3))
    for round in seen:
        whole.observe(round)
    for round in seen[:2]:
        first.observe(round)
    second.restore(first.state())
    second.observe(seen[2])
    found, resumed = whole.snapshot(), second.snapshot()
    (result,) = (r for r in found.results if r.attack == "lengths")
    assert (result.vantage, result.model, result.question, result.unit) == ("server", "local", "lengths", "party")
    assert result.estimates["long-updates"].n_pos == 3 * 2
    by_hand = [
        sum(float(((r.broadcast[k] - r.sent[party].state[k]) ** 2).sum()) for k in r.broadcast) ** 0.5
        for party in prepared.game.parties
        for r in seen
    ]
    assert f"lengths: {', '.join(f'{length:.4g}' for length in by_hand)}" in all_words(found.notices)
    assert [r.estimates for r in found.results] == [r.estimates for r in resumed.results]


def test_one_that_fails_costs_itself_alone(
    lengths: Lengths, world: tuple[Prepared, list[Round]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Lengths, "fails", True)
    auditor = asking(world[0], lengths)
    for round in world[1]:
        auditor.observe(round)
    found = auditor.snapshot()
    assert "RuntimeError" in found.failed["lengths"]
    assert {r.attack for r in found.results} == {"loss", "blind"}


@pytest.mark.parametrize(
    "change",
    [
        lambda verdict: None,
        lambda verdict: Verdict(),  # neither a result nor a word on why there is none
        lambda verdict: Verdict([{"a": 1}]),  # type: ignore[list-item]
        lambda verdict: Verdict([replace(r, attack="loss") for r in verdict.results]),
        lambda verdict: Verdict([replace(r, estimates={"auc": r.estimates["long-updates"]}) for r in verdict.results]),
        lambda verdict: Verdict([replace(r, estimates={"long-updates": 0.5}) for r in verdict.results]),
    ],
)
def test_what_is_no_result_of_its_own_is_refused(
    lengths: Lengths, world: tuple[Prepared, list[Round]], monkeypatch: pytest.MonkeyPatch, change: Any
) -> None:
    concluded = Lengths.conclude
    monkeypatch.setattr(Lengths, "conclude", lambda *given: change(concluded(*given)))
    auditor = asking(world[0], lengths)
    for round in world[1]:
        auditor.observe(round)
    found = auditor.snapshot()
    assert "lengths" in found.failed
    assert {r.attack for r in found.results} == {"loss", "blind"}


class Anywhere(Lengths):
    """Asked of whoever sees models, and of use nowhere: it fails at the server."""

    name = "anywhere"
    needs = frozenset({Grant.WEIGHTS})
    looking = False

    def look(self, view: Any, options: Any) -> Mapping[str, Any]:
        if self.looking and view.party == "party-1":
            raise RuntimeError("broken")
        return {"length": np.ones(1)}

    def conclude(self, case: Any, seen: Mapping[str | None, Any], options: Any, vantage: Any, model: Any) -> Verdict:
        if not self.looking and vantage is Vantage.SERVER:
            raise RuntimeError("broken")
        return super().conclude(case, seen, options, vantage, model)


@pytest.mark.parametrize("looking", [False, True])
def test_one_that_fails_at_one_vantage_keeps_its_results_at_the_others(
    looking: bool, world: tuple[Prepared, list[Round]], monkeypatch: pytest.MonkeyPatch
) -> None:
    question = Anywhere()
    monkeypatch.setattr(Anywhere, "looking", looking)
    monkeypatch.setattr(questions, "_of_others", lambda: ({"anywhere": question}, {}))
    auditor, resumed = asking(world[0], question), asking(world[0], question)
    for round in world[1]:
        auditor.observe(round)
    resumed.restore(auditor.state())
    for found in (auditor.snapshot(), resumed.snapshot()):
        assert [r.vantage for r in found.results if r.attack == "anywhere"] == ["client"]
        assert found.failed == {}
        document = Document.of(found, About.foreign("x", auditor).info(auditor, "complete", 0.0))
        (missing,) = document.degraded
        assert missing.startswith("anywhere failed from server on local models, and has no result there: RuntimeError")
        assert missing in document.warnings
        assert not document.complete


def test_what_an_error_says_is_left_out_of_results_and_shown_to_whoever_debugs(
    lengths: Lengths,
    world: tuple[Prepared, list[Round]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(Lengths, "conclude", lambda *_: dict[str, Any]()["patient 17"])
    auditor = asking(world[0], lengths)
    for round in world[1]:
        auditor.observe(round)
    with caplog.at_level(logging.INFO, "fedaudit"):
        assert "patient 17" not in str(auditor.snapshot())
    assert caplog.text == ""
    with caplog.at_level(logging.DEBUG, "fedaudit"):
        found = auditor.snapshot()
    assert "KeyError: 'patient 17'" in caplog.text
    assert "Traceback" in caplog.text
    document = Document.of(found, About.foreign("x", auditor).info(auditor, "complete", 0.0))
    assert document.degraded == ["question lengths"]


def test_whoever_sees_too_little_is_not_asked(lengths: Lengths, world: tuple[Prepared, list[Round]]) -> None:
    asked = {"lengths": lengths.ask([], {})}
    alone = replace(world[0].settings, vantages=(Vantage.CLIENT,), asked=asked)
    with pytest.raises(FedauditError, match="the question 'lengths' needs update: 'client' does not") as refused:
        alone.checked(asked=True)
    assert refused.value.todo == "Take it out of [audit.questions], or add a vantage that sees it: server."


def test_a_section_asks_a_question_and_wrong_ones_are_refused(lengths: Lengths) -> None:
    assert parse({"audit": {"questions": {"lengths": {}}}}).audit.questions == {"lengths": {}}
    with pytest.raises(FedauditError, match="no options: remove long"):
        parse({"audit": {"questions": {"lengths": {"long": 1}}}})
    with pytest.raises(FedauditError, match=r"unknown question 'length'.*Did you mean 'lengths'"):
        parse({"audit": {"questions": {"length": {}}}})


@pytest.mark.parametrize(
    ("name", "todo"),
    [
        ("record", "Name an attack that asks it in audit.attacks."),
        ("canary", "Name canife or one-shot in audit.attacks; [audit.canary] sets them."),
        ("coins", "Set federation.coins = true."),
        ("attribute", "Set [audit.attribute] name, and audit.adversary."),
        ("mine:Lengths", 'Enter it under "fedaudit.questions" there'),
    ],
)
def test_one_that_no_section_asks_says_how_it_is_asked(name: str, todo: str) -> None:
    with pytest.raises(FedauditError, match=f"audit.questions.{name}: ") as refused:
        parse({"audit": {"questions": {name: {}}}})
    assert refused.value.todo.startswith(todo)


def test_no_attack_at_all_is_what_an_empty_list_says(lengths: Lengths) -> None:
    attacks: dict[str, Any] = {"attacks": [], "vantages": ["server"]}
    found = prepare(config(audit={**attacks, "questions": {"lengths": {}}})).settings
    assert (found.attacks, list(found.asked)) == ([], ["lengths"])
    with pytest.raises(FedauditError, match="no attack is to be run, and no question is asked") as refused:
        prepare(config(audit=attacks))
    assert refused.value.todo == "Leave audit.attacks out for the default attacks, or name some."


def test_figures_that_another_question_describes_otherwise_are_to_be_renamed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Auc(Lengths):
        name = "auc-again"
        metrics = (Metric("auc", "something else"),)

    class Longer(Lengths):
        name = "longer"
        metrics = (Metric("long-updates", "the longer ones"),)

    points = {"lengths": Lengths, "auc-again": Auc, "longer": Longer}
    monkeypatch.setattr(questions, "plugged_in", lambda plural: (points, {}))
    usable, broken = questions._of_others.__wrapped__()
    assert list(usable) == ["lengths"]
    assert broken == {
        "auc-again": "its metric 'auc' is described otherwise by the question 'record': rename it",
        "longer": "its metric 'long-updates' is described otherwise by the question 'lengths': rename it",
    }
    monkeypatch.setattr(questions, "_of_others", lambda: (usable, broken))
    with pytest.raises(FedauditError, match="rename it") as refused:
        questions.named("longer")
    assert refused.value.todo == "Mend its package and install it again, or leave it out."


# ------------------------------------------------------------------ metrics


def test_every_metric_is_described_once() -> None:
    described: dict[str, Metric] = {}
    for question in questions.every().values():
        for one in question.metrics:
            assert described.setdefault(one.name, one) == one, one.name


@pytest.mark.parametrize(
    ("name", "text", "span"),
    [
        ("tpr@0.01", "12.3 %", "11.1–13.4"),
        ("auc", "0.123", "0.111–0.134"),
        ("excess-over-blind", "+0.123", "+0.111 to +0.134"),
        ("tpr@0.01-minus-primary", "+12.3", "+11.1 to +13.4"),
        ("auc-minus-primary", "+0.123", "+0.111 to +0.134"),
        ("epsilon-one-run", "0.123", "0.111–0.134"),
        ("nobody-knows-it", "0.123", "0.111–0.134"),
    ],
)
def test_a_figure_is_printed_as_its_metric_says(name: str, text: str, span: str) -> None:
    assert (number_text(name, 0.123), span_text(name, 0.111, 0.134)) == (text, span)


def test_titles_and_chance() -> None:
    assert (metric("tpr@0.001").title, metric("tpr@0.001").chance) == ("TPR at 0.1 % FPR", 0.001)
    assert metric("balanced-accuracy@25").title == "balanced accuracy, tuned on 25 known people a side"
    assert metric("balanced-accuracy@25").chance == 0.5
    assert span_text("epsilon-bonferroni", 1.5, None) == "1.500 or more"
    assert full_text("auc", None) == "–"


def test_attacks_name_questions_that_there_are() -> None:
    from fedaudit.adversary import attacks

    for name in ("loss", "source", "subject-loss"):
        assert of_membership(attacks.made(name))
