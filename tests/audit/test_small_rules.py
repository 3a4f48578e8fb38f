"""Rules of a line or two that larger tests run through without noticing what they decide."""

from dataclasses import replace

import numpy as np
import pytest

from fedaudit.adversary.attacks import made
from fedaudit.audit import Auditor, Settings
from fedaudit.audit.case import OverRounds, below_chance
from fedaudit.audit.controls import Blind, share_right
from fedaudit.audit.score import usual_of
from fedaudit.config.schema import parse
from fedaudit.privacy.statement import Process
from fedaudit.questions import MINUS, Metric, metric
from fedaudit.questions.attribute.judge import _finding
from fedaudit.questions.canary.judge import _accountant
from fedaudit.questions.canary.watch import Mechanism
from fedaudit.questions.record.judge import median
from fedaudit.session.prepare import prepare
from fedaudit.session.run import rounds
from fedaudit.stats import Block, auc
from fedaudit.stats.gaussian import gaussian_epsilon
from fedaudit.types import Candidates, Estimate, Game, Records, Role, Truth, Vantage, warning
from tests.worlds import config


def test_with_too_few_people_none_is_known() -> None:
    assert usual_of(1, 1) == 0
    assert usual_of(1_000, 0) == 0


def test_the_error_is_shared_among_rounds_and_then_among_attacks() -> None:
    settings = Settings(vantages=(Vantage.CLIENT,), attacks=[made("loss")], rounds=10, confidence=0.9)
    alone, several = settings.shares(1, 0), settings.shares(5, 1)
    assert alone.primary == pytest.approx(1 - 0.1 / 10)
    assert several.primary == pytest.approx(1 - 0.1 / 10 / 2)
    assert several.other == pytest.approx(1 - 0.1 / 10 / 2 / 4)
    assert settings.shares(5, 2).primary == pytest.approx(1 - 0.1 / 10 / 2 / 2)  # two limits, two leading attacks
    assert settings.shares(3, 9).primary == pytest.approx(1 - 0.1 / 10 / 3)  # never more than there are


def test_a_band_counts_people_where_there_are_people_and_records_otherwise() -> None:
    ids = np.array(["a", "b", "c", "d"])
    party, owner = np.array(["p"] * 4), np.arange(4)
    truth = Truth(ids, np.array([Role.MEMBER.value] * 4))
    for subject, units in ((None, 4), (np.array(["x", "x", "y", "z"]), 3)):
        rows = Records(np.zeros((4, 2), np.float32), np.zeros(4, np.int64), ids, subject)
        game = Game(Candidates("record", ids, party, rows, owner, subject=subject), truth)
        assert OverRounds(game, 2, 0.95, ["auc"]).units == units


def test_a_record_with_one_label_counts_once() -> None:
    found = share_right(np.array([True, False, True, True]), np.arange(4), "record", 0.95)
    assert found.value == 0.75
    assert "positions" not in found.method
    several = share_right(np.array([[True, False], [True, True]]), np.arange(2), "record", 0.95)
    assert several.value == 0.75
    assert "2 positions a record" in several.method


def estimate(low: float | None, high: float | None) -> Estimate:
    return Estimate("accuracy", 0.5, low, high, 0.95, "", "measured", 10, 10)


@pytest.mark.parametrize(
    ("excess", "gap", "attack", "finding"),
    [
        ((0.1, 0.2), (None, None), 0.6, "no-comparison"),
        ((0.1, 0.2), (0.1, 0.2), None, "at-chance"),
        ((0.1, 0.2), (0.1, 0.2), 0.5, "at-chance"),  # at chance exactly is no better than chance
        ((0.1, 0.2), (0.1, 0.2), 0.51, "revealed"),
        ((0.0, 0.2), (0.1, 0.2), 0.51, "trace"),
        ((-0.2, -0.1), (0.0, 0.2), 0.51, "blind-is-better"),
        ((-0.2, 0.0), (0.0, 0.2), 0.51, "neither"),
        ((0.0, 0.2), (0.0, 0.2), 0.51, "neither"),
        ((0.1, 0.2), (0.0, 0.2), 0.51, "of-everybody"),
    ],
)
def test_what_is_said_of_an_attribute(
    excess: tuple[float, float], gap: tuple[float | None, float | None], attack: float | None, finding: str
) -> None:
    assert _finding(estimate(*excess), estimate(*gap), estimate(attack, 0.9)) == finding


def test_a_difference_lies_between_minus_one_and_one() -> None:
    of_difference = metric("auc" + MINUS)
    assert (of_difference.least, of_difference.most, of_difference.chance) == (-1.0, 1.0, 0.0)
    assert not of_difference.gated


def test_the_claim_of_one_round_is_that_of_its_noise() -> None:
    claim = Mechanism(1e-5, process=Process("user", 2.0, 1, "poisson", 0.5))
    found = _accountant(claim, 3, 0.95)
    assert found["epsilon-accountant-round"].value == pytest.approx(gaussian_epsilon(0.5, 1e-5))
    assert _accountant(claim, 0, 0.95) == {}


def test_what_settings_do_not_say_is_what_a_configuration_says_by_default() -> None:
    settings, usual = Settings((Vantage.CLIENT,), [made("loss")], 1), parse({})
    assert (settings.seed, settings.confidence) == (usual.federation.seed, usual.audit.confidence)
    assert settings.filter_share == 1.0  # one layer, which has all the weights


def test_below_chance_is_told_only_if_it_holds_among_all_that_was_looked_at() -> None:
    rng = np.random.default_rng(0)
    blocks = [Block(rng.normal(-0.4, 1, 200), rng.normal(0, 1, 200), np.empty(0))]
    found = auc(blocks, 0.95)
    assert found.high is not None
    assert found.high < 0.5
    for looked_at in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024):
        high = auc(blocks, 1 - 0.05 / looked_at).high
        assert high is not None
        told = below_chance("loss", blocks, found, looked_at)
        assert told == ([warning("below-chance", attack="loss")] if high < 0.5 else [])
    assert not told  # the lowest of a thousand lies as low
    assert below_chance("loss", blocks, replace(found, value=None, low=None, high=None), 1) == []


def test_of_attacks_that_do_not_lead_only_some_rounds_are_remembered_and_the_last() -> None:
    prepared = prepare(config(federation={"rounds": 4}))
    of_limit = {"auc > 0.9": frozenset[str]()}
    attacks = [made("loss"), made("modified-entropy")]
    settings = Settings((Vantage.CLIENT,), attacks, 4, left_out_of=of_limit)
    audit = Auditor(prepared.task, prepared.game, settings)
    vars(audit)["thinned"] = frozenset({1, 4})
    for round in rounds(prepared):
        audit.observe(round)
        seen = {attack: set(found) for (_, attack, _), found in audit.history.items()}
        assert seen["loss"] == set(range(1, round.index + 1))
        assert seen["modified-entropy"] == {1, round.index}


def test_the_median_lies_between_the_ranks_that_a_binomial_gives() -> None:
    """Of twenty values, fewer than six lie below the median once in forty-eight times."""
    assert median(np.arange(1.0, 21), 0.95) == (10.5, 6.0, 15.0)
    assert median(np.array([2.0, 1.0, np.nan]), 0.95) == (1.5, None, None)
    assert median(np.array([np.nan]), 0.95) == (None, None, None)


def test_what_the_blind_guess_cost_is_told_in_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = prepare(config(federation={"rounds": 2}, audit={"attacks": ["loss"]}))
    for round in rounds(prepared):
        prepared.auditor.observe(round)
    case = prepared.auditor.case()
    monkeypatch.setattr(case.outlooks, "unit", lambda: 1e9)  # seconds of an epoch
    blind = Blind(prepared.game, 0)
    cost = blind.judge(case).cost
    assert cost is not None
    assert 0 < (cost.epochs or 0) < 1e-6


def test_parties_are_compared_only_where_the_primary_attack_can_be_run() -> None:
    """A server without a client sees the global models, too, where fedmia has no updates to look at."""
    prepared = prepare(config(federation={"rounds": 2, "parties": 3}))
    audit = Auditor(prepared.task, prepared.game, Settings((Vantage.SERVER,), [made("fedmia")], 2))
    for round in rounds(prepared):
        audit.observe(round)
    found = audit.snapshot()
    assert found.failed == {}
    assert {one.model for one in found.more_exposed} <= {"local"}


def test_a_metric_is_a_share_unless_it_says_otherwise() -> None:
    assert (Metric("a", "b").least, Metric("a", "b").most) == (0.0, 1.0)
