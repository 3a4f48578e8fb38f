"""TEAR end to end, on a small federation that overfits: what it finds, what it costs, what it never touches."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedaudit.adversary.attacks.base import Evidence, Own
from fedaudit.adversary.attacks.tear import Tear, best_threshold, boosted
from fedaudit.adversary.reductions import flatten, unflatten
from fedaudit.adversary.signals import boundary
from fedaudit.adversary.signals.searching import Searching, check_task
from fedaudit.adversary.vantage import View
from fedaudit.audit import Auditor
from fedaudit.config.schema import Config
from fedaudit.errors import FedauditError
from fedaudit.results.exposure import most_exposed
from fedaudit.session.prepare import Prepared, prepare
from fedaudit.session.run import rounds, run
from fedaudit.types import Audit, AuditResult, Game, Records, Role, Truth
from tests.worlds import config, null_world, silent, watch

pytestmark = pytest.mark.usefixtures("few_trees")
LABEL_ONLY = ["gap", "gap-rounds", "boundary", "tear", "tear-last"]
TEAR = {"queries": 240, "targets": 2, "own": 120}


def asking(attacks: list[str], tear: dict[str, Any] | None = None, **sections: dict[str, Any]) -> Config:
    """Five parties would be more like it; three are quicker. Many epochs, so that the model overfits."""
    federation = {"parties": 3, "rounds": 4, "local_epochs": 6, "lr": 1e-2} | sections.pop("federation", {})
    vantages = ["label-only-client", *(["client"] if "tear-deepfool" in attacks else [])]
    audit = {"vantages": vantages, "attacks": attacks, "tear": TEAR | (tear or {})}
    data = sections.pop("data", {"name": "breast-cancer"})
    return config(federation=federation, audit=audit, data=data, **sections)


def pooled(audit: Audit) -> dict[str, AuditResult]:
    return {r.attack: r for r in audit.results if r.party is None}


@pytest.fixture(scope="module")
def whole() -> tuple[Prepared, Audit]:
    prepared = prepare(asking([*LABEL_ONLY, "tear-deepfool"]))
    return prepared, watch(prepared)


def test_every_attack_has_its_estimates_its_vantage_and_its_cost(whole: tuple[Prepared, Audit]) -> None:
    _, audit = whole
    assert audit.failed == {}
    found = pooled(audit)
    for name in [*LABEL_ONLY, "tear-deepfool"]:
        entry = found[name]
        assert entry.vantage == ("client" if name == "tear-deepfool" else "label-only-client")
        assert {"auc", "accuracy", "precision", "recall"} <= set(entry.estimates)
        for estimate in (entry.estimates[n] for n in ("auc", "accuracy", "precision", "recall")):
            if estimate.reason == "nobody is called a member":
                assert (estimate.name, entry.estimates["recall"].value) == ("precision", 0.0)
                continue
            assert estimate.low is not None
            assert estimate.low <= estimate.value <= estimate.high  # type: ignore[operator]
    costs = {name: found[name].cost.queries for name in found if name != "blind"}
    assert costs["gap"] == 1
    assert costs["gap-rounds"] == 4
    assert 4 < (costs["tear"] or 0) <= TEAR["queries"]
    assert costs["tear-deepfool"] is None
    assert {h.vantage: h.attack for h in audit.headlines}["label-only-client"] == "tear"
    curve = found["tear"].curves["accuracy"]
    assert list(curve.x) == [1, 2, 3, 4]


def test_f1_is_counted_as_if_there_were_as_many_others_as_members(whole: tuple[Prepared, Audit]) -> None:
    prepared, audit = whole
    by_name = {attack.name: attack for attack in prepared.settings.attacks}
    found, sight = prepared.auditor.case().scores, prepared.auditor.outlooks.sights["(label-only-client)"]
    for name in ("tear", "tear-last", "boundary"):
        threshold, scores = found.threshold([sight], by_name[name]), found.of(sight, by_name[name])
        assert threshold is not None
        first, members, others, called = prepared.game.parties[0], 0, 0, {True: 0, False: 0}
        for score, role, party in zip(scores.tolist(), sight.role.tolist(), sight.party.tolist(), strict=True):
            if party == first or role not in (Role.MEMBER.value, Role.EVALUATION.value):
                continue
            member = role == Role.MEMBER.value
            members, others = members + member, others + (not member)
            called[member] += score > threshold
        assert members != others
        weight = members / others  # an outsider counts as so many
        right, wrong, missed = called[True], called[False] * weight, members - called[True]
        f1 = pooled(audit)[name].estimates["f1-balanced"]
        assert f1.value == pytest.approx(2 * right / (2 * right + wrong + missed))
        assert f1.low is not None
        assert f1.high is not None
        assert f1.value is not None
        assert f1.low < f1.value < f1.high


def test_what_was_learnt_by_heart_is_found(tmp_path: Path) -> None:
    """Labels drawn at random can be right only where they were learnt: every attack finds that."""
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "random.npz", x=rng.normal(size=(900, 20)).astype(np.float32), y=rng.integers(0, 4, 900))
    audit = watch(prepare(asking(LABEL_ONLY, data={"name": "npz", "path": str(tmp_path / "random.npz")})))
    for name in LABEL_ONLY:
        estimates = pooled(audit)[name].estimates
        for of in ("auc", "accuracy"):
            low = estimates[of].low
            assert low is not None
            assert low > 0.6, (name, of)


def test_the_first_party_is_never_judged_and_teaches_with_as_many_of_either_kind(
    whole: tuple[Prepared, Audit],
) -> None:
    prepared, audit = whole
    sight = prepared.auditor.outlooks.sights["(label-only-client)"]
    first = prepared.game.parties[0]
    assert (sight.party[sight.own(None)] == first).all()
    members = sight.role[sight.own(None)] == Role.MEMBER.value
    assert members.sum() == (~members).sum() == 57  # all that it has
    judged = (prepared.game.candidates.party != first) & prepared.game.truth.mask(Role.MEMBER)
    for entry in audit.results:
        assert entry.party != first or entry.attack == "blind"
        if entry.party is None and entry.attack in LABEL_ONLY:
            assert entry.estimates["auc"].n_pos == judged.sum()
    exposed = most_exposed(prepared.auditor, audit.headlines, salt="")
    assert exposed is not None
    assert exposed.records
    assert first not in {record.party for record in exposed.records}  # it knows what it trained on


def test_every_query_is_counted_and_no_record_costs_more_than_it_may(whole: tuple[Prepared, Audit]) -> None:
    prepared, _ = whole
    sight = prepared.auditor.outlooks.sights["(label-only-client)"]
    spent = sight.reductions["tear"].queries()
    assert spent is not None
    assert spent.max() <= TEAR["queries"]
    assert sight.queries == spent.sum() + 4 * len(spent)  # and one a round for gap and gap-rounds
    idle = (sight.party == prepared.game.parties[0]) & ~sight.own(None)
    assert (spent[idle] == 4).all()  # asked for its label, not searched


def test_every_party_has_its_own_cost(whole: tuple[Prepared, Audit]) -> None:
    prepared, audit = whole
    seen = prepared.auditor.outlooks.sights["(label-only-client)"]
    asked = seen.reductions["tear"].queries()
    assert asked is not None
    for entry in (r for r in audit.results if r.attack == "tear"):
        mine = ~seen.of_first & (True if entry.party is None else seen.party == entry.party)
        if mine.any():
            assert (entry.cost.queries, entry.cost.most_queries) == (asked[mine].mean(), asked[mine].max())


def test_neither_scores_nor_thresholds_know_who_of_the_judged_is_a_member(whole: tuple[Prepared, Audit]) -> None:
    prepared, _ = whole
    seen, before = prepared.auditor.outlooks.sights["(label-only-client)"], prepared.auditor.case().scores
    judged, role = np.flatnonzero(~seen.of_first), prepared.game.truth.role.copy()
    role[judged] = role[np.random.default_rng(0).permutation(judged)]
    other = Auditor(
        prepared.task, Game(prepared.game.candidates, Truth(prepared.game.truth.id, role)), prepared.settings
    )
    for round in rounds(prepared):
        other.observe(round)
    again, after = other.outlooks.sights["(label-only-client)"], other.case().scores
    for one, two in zip(seen.attacks, again.attacks, strict=True):
        assert np.array_equal(before.of(seen, one), after.of(again, two))
        assert before.threshold([seen], one) == after.threshold([again], two)


def test_the_threshold_of_tear_comes_from_records_that_its_classifier_did_not_see() -> None:
    """Learnt by heart, pure noise is told apart; by classifiers that did not see a record, it is not."""
    rng = np.random.default_rng(0)
    features, member = rng.normal(size=(120, 6)), np.repeat([True, False], 60)
    fitted = Tear().fit(Evidence(own=Own(features, member)))
    by_heart = fitted.score(features)
    assert fitted.threshold != best_threshold(by_heart, member)
    assert fitted.threshold == best_threshold(boosted(features, member)[1], member)


def test_the_distance_is_zero_exactly_where_the_label_is_wrong(whole: tuple[Prepared, Audit]) -> None:
    prepared, _ = whole
    sight = prepared.auditor.outlooks.sights["(label-only-client)"]
    judged = sight.party != prepared.game.parties[0]
    last = sight.reductions["tear"].columns[-1]  # type: ignore[attr-defined]
    right = sight.reductions["gap"].features()[:, 0]
    assert np.array_equal(last[judged, 0] == 0, right[judged] == 0)
    assert (last[judged & (right == 1), 0] > 0).all()


def test_it_goes_on_in_another_process_and_from_a_trace_bit_for_bit(whole: tuple[Prepared, Audit]) -> None:
    """After every round a fresh auditor takes over: by its state, and from what was stored of the rounds."""
    prepared, _ = whole
    by_state = fresh = Auditor(prepared.task, prepared.game, prepared.settings)
    stored: list[Any] = []
    for round in rounds(prepared):
        fresh = Auditor(prepared.task, prepared.game, prepared.settings)
        if stored:
            fresh.restore(unflatten(*flatten(by_state.state())))
        fresh.observe(round)
        again = Auditor(prepared.task, prepared.game, prepared.settings)
        for seen in stored:
            again.absorb(seen)
        stored.append(again.observe(round))
        by_state = fresh
        assert np.array_equal(scores(by_state), scores(again), equal_nan=True)
    assert np.array_equal(scores(by_state), scores(prepared.auditor), equal_nan=True)


def test_ctrl_c_in_the_middle_of_a_search_keeps_the_rounds_before_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third round's search is broken off after some of its labels. Taken up again, the run ends as one that nobody
    broke off."""
    settings = asking(LABEL_ONLY, federation={"rounds": 3})
    whole = run(settings, tmp_path / "whole", silent, tell=lambda line: None)
    measure, look, number, asked = Auditor.measure, boundary.Search.ask, [0], [0]

    def measuring(auditor: Auditor, round: Any) -> Any:
        number[0] = round.index
        return measure(auditor, round)

    def pressing(search: boundary.Search, *given: Any) -> Any:
        asked[0] += number[0] == 3
        if asked[0] == 5:
            os.kill(os.getpid(), signal.SIGINT)
        return look(search, *given)

    with monkeypatch.context() as patched:
        patched.setattr(Auditor, "measure", measuring)
        patched.setattr(boundary.Search, "ask", pressing)
        half = run(settings, tmp_path / "run", silent, tell=lambda line: None)
    assert asked[0] == 5
    assert half.run.status == "interrupted at round 2"
    kept = {r.attack: r for r in half.results if r.party is None}
    assert list(kept["tear"].curves["distance-members"].x) == [1, 2]
    assert kept["tear"].estimates["auc"].value is not None
    told: list[str] = []
    on = run(settings, tmp_path / "run", silent, tell=told.append)
    assert told[1:] == ["Resuming after round 2."]  # the first line says how long the search takes
    for attack in LABEL_ONLY:
        one, other = ({r.attack: r for r in d.results if r.party is None}[attack] for d in (whole, on))
        assert one.estimates == other.estimates
        assert one.cost.queries == other.cost.queries


def test_an_interrupted_run_searches_once_for_all_attacks_and_all_that_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The results, the most exposed records and the scores rest on one search of the last model that was seen."""
    prepared = prepare(asking(["boundary", "tear-last"]))
    auditor, made = prepared.auditor, rounds(prepared)
    sight = auditor.outlooks.sights["(label-only-client)"]
    first, asked = Searching._search, list[int]()

    def counted(search: Searching, view: View, *given: Any) -> Any:
        before = view.queries.count
        found = first(search, view, *given)
        asked.append(view.queries.count - before)
        return found

    monkeypatch.setattr(Searching, "_search", counted)
    for _ in range(2):
        auditor.observe(next(made))
    for number in (1, 2):  # and once more after another round
        audit = auditor.snapshot()
        most_exposed(auditor, audit.headlines, salt="")
        scores(auditor)
        assert len(asked) == number
        view = sight.pending
        assert view is not None
        assert view.queries.count == asked[-1] + len(sight.row_ids)  # one search, and one label for everybody
        assert pooled(audit)["boundary"].cost.queries == pooled(audit)["tear-last"].cost.queries
        auditor.observe(next(made))


def scores(auditor: Auditor) -> np.ndarray:
    return np.array(auditor.score_table()["score"], np.float64)


def test_under_memguard_every_score_is_bit_equal() -> None:
    plain, guarded = asking(LABEL_ONLY), asking(LABEL_ONLY)
    guarded = Config.model_validate(guarded.as_dict() | {"defences": [{"name": "memguard", "strength": 1.0}]})
    tables = []
    for settings in (plain, guarded):
        prepared = prepare(settings)
        watch(prepared)
        tables.append(scores(prepared.auditor))
    assert np.array_equal(tables[0], tables[1], equal_nan=True)


def test_where_nobody_was_trained_on_nothing_is_found() -> None:
    audit = watch(null_world(asking([*LABEL_ONLY, "tear-deepfool"])))
    for name in [*LABEL_ONLY, "tear-deepfool"]:
        estimates = pooled(audit)[name].estimates
        for of in ("auc", "accuracy"):
            low, high = estimates[of].low, estimates[of].high
            assert low is not None
            assert high is not None
            assert low < 0.5 < high, (name, of)


def test_one_boundary_for_each_class_as_in_the_paper() -> None:
    prepared = prepare(asking(["tear"], {"targets": "all"}))
    audit = watch(prepared)
    sight = prepared.auditor.outlooks.sights["(label-only-client)"]
    column = sight.reductions["tear"].columns[0]  # type: ignore[attr-defined]
    assert column.shape[1] == 2
    y = prepared.game.candidates.rows.y
    asked = np.isfinite(column).any(axis=1)
    right = column[np.arange(len(y)), 1 - y] > 0
    assert np.isnan(column[np.arange(len(y)), y][asked & right]).all()
    assert pooled(audit)["tear"].estimates["auc"].value is not None


def test_too_few_records_of_its_own_are_refused_before_training() -> None:
    with pytest.raises(FedauditError, match="learns from the first party's own records"):
        prepare(asking(["tear"], federation={"parties": 12}))


@pytest.mark.parametrize("attack", ["gap", "tear"])
def test_only_those_who_see_nothing_but_labels_run_it(attack: str) -> None:
    """A client sees labels, too: it must not be told that it does not."""
    settings = config(audit={"vantages": ["client"], "attacks": [attack]})
    with pytest.raises(FedauditError, match="is run from the vantage 'label-only-client' alone") as refused:
        prepare(settings)
    assert refused.value.todo.endswith("add a vantage that can run it: label-only-client.")
    settings = config(audit={"vantages": ["outsider"], "attacks": ["fta-loss"]})
    with pytest.raises(FedauditError, match=r"needs every-round and outputs: 'outsider' does not see every-round\."):
        prepare(settings)


def test_a_regression_has_no_labels() -> None:
    with pytest.raises(FedauditError, match="one label each"):
        prepare(config(data={"name": "diabetes"}, audit={"vantages": ["label-only-client"], "attacks": ["gap"]}))


def test_tokens_have_labels_and_nothing_between_them() -> None:
    rows = Records(np.zeros((3, 4), np.int64), np.zeros(3, np.int64), np.array(["a", "b", "c"]))
    check_task(2, rows, between=False)  # gap and gap-rounds ask about the records themselves
    with pytest.raises(FedauditError, match="between two tokens"):
        check_task(2, rows, between=True)


def test_the_time_is_told_in_advance(tmp_path: Path) -> None:
    told: list[str] = []

    def stop(prepared: Prepared, *_: Any) -> Any:
        assert any("labels" in line and "second" in line for line in told)  # before anything is trained
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(asking(["tear"]), tmp_path / "run", silent, tell=told.append, engine=stop)
