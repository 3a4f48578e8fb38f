"""Members and others over the rounds: a few numbers a round, right ones, and none of them about one person."""

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy import special

from fedaudit.audit.auditor import Auditor
from fedaudit.audit.trajectories import LEAST, OneSide, Trajectories, difference
from fedaudit.session.prepare import Prepared, prepare
from fedaudit.session.run import rounds
from fedaudit.types import Floats, Role, Round, Trajectory
from tests.worlds import config


@cache
def world() -> tuple[Prepared, tuple[Round, ...]]:
    prepared = prepare(config(audit={"attacks": ["fta-confidence"]}))
    return prepared, tuple(rounds(prepared))


def watched(*seen: Round, auditor: Auditor | None = None) -> Auditor:
    auditor = auditor or world()[0].auditor.fresh()
    for round in seen:
        auditor.observe(round)
    return auditor


@cache
def found() -> dict[str, Trajectory]:
    auditor = watched(*world()[1])
    return {one.model: one for one in auditor.snapshot().trajectories}


def confidences(model: str, round: Round) -> tuple[Floats, Floats]:
    """Of members and of others, one record at a time."""
    prepared, _ = world()
    task, candidates, truth = prepared.task, prepared.game.candidates, prepared.game.truth
    sides: tuple[list[float], list[float]] = [], []
    for row in range(len(candidates)):
        state = round.aggregate if model == "global" else round.sent[str(candidates.party[row])].state
        logits = task.outputs(state, candidates.rows.x[row : row + 1])[0]
        sure = special.softmax(logits.astype(np.float64))[int(candidates.rows.y[row])]
        sides[0 if truth.role[row] == Role.MEMBER.value else 1].append(float(sure))
    return np.array(sides[0]), np.array(sides[1])


@pytest.mark.parametrize("model", ["global", "local"])
def test_it_is_what_asking_the_models_one_record_at_a_time_gives(model: str) -> None:
    one, last = found()[model], world()[1][-1]
    members, others = confidences(model, last)
    for curve, values in ((one.members, members), (one.others, others)):
        quartiles = curve.low[-1], curve.value[-1], curve.high[-1]
        assert quartiles == pytest.approx(np.quantile(values, (0.25, 0.5, 0.75)).tolist(), abs=1e-6)
    assert one.apart.value[-1] == pytest.approx(members.mean() - others.mean(), abs=1e-6)
    assert one.apart.x == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert (one.fewest_members, one.fewest_others) == (len(members), len(others))


def test_the_interval_is_the_usual_one_where_everybody_is_independent() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.beta(5, 1, 400), rng.beta(4, 1, 400)
    value, low, high = difference(OneSide(a, np.arange(400)), OneSide(b, 400 + np.arange(400)), 0.95)
    error = np.sqrt(a.var(ddof=1) / 400 + b.var(ddof=1) / 400)
    assert high - value == pytest.approx(special.stdtrit(399, 0.975) * error, rel=1e-9)
    assert value - low == pytest.approx(high - value)


def test_people_with_records_on_both_sides_are_counted_once() -> None:
    """Their records are alike: the two means move together, and the difference hardly at all."""
    rng = np.random.default_rng(1)
    own = rng.uniform(0.1, 0.9, 100)
    one, two = (OneSide(own + rng.normal(0, 0.01, 100), np.arange(100)) for _ in range(2))
    strangers = OneSide(two.values, 100 + np.arange(100))
    paired, apart = difference(one, two, 0.95), difference(one, strangers, 0.95)
    assert paired[2] - paired[1] < 0.1 * (apart[2] - apart[1])


def test_in_null_worlds_the_band_misses_zero_no_more_often_than_it_may() -> None:
    """Forty people with five records each, skewed as confidences are, and rounds that err together."""
    rng, planned, worlds = np.random.default_rng(2), 10, 400
    whose = np.repeat(np.arange(40), 5)
    each = Trajectories(planned, 0.95).of_each
    missed = 0
    for _ in range(worlds):
        person, record = rng.normal(0, 1, 40)[whose], rng.normal(0, 1, 200)
        found = False
        for grown in np.linspace(0.5, 4, planned):
            sure = special.expit(grown + person + record + 0.3 * rng.normal(0, 1, 200))
            _, low, high = difference(OneSide(sure[:100], whose[:100]), OneSide(sure[100:], whose[100:]), each)
            found |= low > 0 or high < 0
        missed += found
    assert missed <= 0.05 * worlds


def test_a_restart_goes_on_where_it_stopped() -> None:
    prepared, seen = world()
    before = watched(*seen[:3])
    after = prepared.auditor.fresh()
    after.trajectories.restore(json.loads(json.dumps(before.trajectories.state())))
    for round in seen[3:]:
        watched(round, auditor=after)
    assert {one.model: one for one in after.trajectories.found()} == found()


def test_nothing_is_said_of_a_handful_of_people() -> None:
    """A quartile of nine is nearly one person's own value."""
    prepared, seen = world()
    truth = prepared.game.truth
    members = np.flatnonzero(truth.mask(Role.MEMBER))
    for kept, told in ((LEAST - 1, 0), (LEAST, 1)):
        role = truth.role.copy()
        role[members[kept:]] = Role.EVALUATION.value
        game = replace(prepared.game, truth=replace(truth, role=role))
        auditor = Auditor(prepared.task, game, replace(prepared.settings, vantages=prepared.settings.vantages[:1]))
        for round in seen[:2]:
            auditor.observe(round)
        assert len(auditor.trajectories.found()) == told


def test_attacks_that_ask_for_no_confidence_are_not_made_to() -> None:
    """The picture is made of what was measured anyway."""
    prepared = prepare(config(audit={"attacks": ["loss"]}, federation={"rounds": 2}))
    for round in rounds(prepared):
        prepared.auditor.observe(round)
    assert prepared.auditor.snapshot().trajectories == []
