"""The band over rounds in a real audit: made round by round as it would be from all rounds at once (T5)."""

from dataclasses import replace

import numpy as np
import pytest

from fedaudit.adversary.attacks import choose
from fedaudit.audit.case import OverRounds
from fedaudit.session.prepare import prepare
from fedaudit.session.run import rounds
from fedaudit.stats import Block, auc, auc_difference, band_confidences, tpr_at_fpr
from fedaudit.stats.bands import Band
from fedaudit.stats.paired import auc_influence, by_unit, tpr_influence
from fedaudit.stats.wording import since_round
from fedaudit.types import Candidates, Curve, Game, Records, Role, Truth
from fedaudit.words import all_words
from tests.worlds import config


@pytest.mark.parametrize("model", ["global", "local"])
def test_T5_the_band_uses_how_rounds_err_together(model: str) -> None:
    prepared = prepare(config(audit={"attacks": ["loss", "fta-confidence"]}))
    auditor, each = prepared.auditor, []
    (attack,) = choose(["fta-confidence"])
    for round in rounds(prepared):
        auditor.observe(round)
        sights = [auditor.outlooks.everyone] if model == "global" else list(auditor.outlooks.local.values())
        if blocks := auditor.case().scores.blocks(sights, attack):
            each.append(blocks)
    found = [r for r in auditor.snapshot().results if (r.attack, r.model, r.party) == ("fta-confidence", model, None)]
    curve = found[0].curves["auc"]
    confidences = band_confidences(by_unit([(auc_influence(blocks), blocks) for blocks in each]), 5)
    assert list(curve.x) == [2, 3, 4, 5]  # one round has no slope
    assert curve.value[-1] == found[0].estimates["auc"].value
    for i, (blocks, confidence) in enumerate(zip(each, confidences, strict=True)):
        again = auc(blocks, confidence)
        assert (curve.low[i], curve.high[i]) == pytest.approx((again.low, again.high), abs=1e-6)
    shared = auc(each[-1], 1 - 0.05 / 5)  # five rounds, an equal share of the error each
    assert (curve.low[-1] or 0) > (shared.low or 0) + 1e-3
    assert "widened as far as the correlation of their errors requires" in curve.method
    if "tpr@0.01" in found[0].curves:
        confidences = band_confidences(by_unit([(tpr_influence(blocks, 0.01), blocks) for blocks in each]), 5)
        last = tpr_at_fpr(each[-1], 0.01, confidences[-1])
        assert found[0].curves["tpr@0.01"].high[-1] == pytest.approx(last.high, abs=1e-6)


def test_T5_an_audit_that_goes_on_from_its_state_draws_the_same_band() -> None:
    given = config(audit={"attacks": ["loss"]})
    whole, parts = prepare(given), prepare(given).auditor
    for round in rounds(whole):
        whole.auditor.observe(round)
        parts.observe(round)
        again = prepare(given).auditor
        again.restore(parts.state())
        parts = again
    assert whole.auditor.bands.keys() == parts.bands.keys()
    for of, band in whole.auditor.bands.items():
        assert len(band.curves()["auc"].x) == 5
        assert band.curves() == parts.bands[of].curves()


def test_since_round_is_read_from_the_band_and_can_begin_earlier() -> None:
    """Rounds that err together: what equal shares of the error leave open, the band settles."""
    band = Band(20)
    for _ in range(20):
        band.add(np.ones(50))
    sizes = np.linspace(2.2, 2.9, 20)  # how far each round's AUC is above chance, in standard errors
    curve = Curve(list(range(1, 21)), [None] * 20, [0.0] * 20, [1.0] * 20, "", simultaneous=True)

    def lows(levels: list[float]) -> list[float]:
        from scipy.stats import norm

        return [0.5 + 0.01 * (size - norm.isf((1 - own) / 2)) for size, own in zip(sizes, levels, strict=True)]

    shared, banded = lows([1 - 0.05 / 20] * 20), lows(band.levels)
    assert since_round(replace(curve, low=shared), 0.5) is None
    assert since_round(replace(curve, low=banded), 0.5) is not None


def test_round_against_round_is_a_difference_on_the_same_records() -> None:
    given = config(
        federation={"rounds": 8, "local_epochs": 6, "members": 0.1, "nonmembers": 0.4}, audit={"attacks": ["loss"]}
    )
    prepared = prepare(given)
    first: list[Block] = []
    (attack,) = choose(["loss"])
    for round in rounds(prepared):
        prepared.auditor.observe(round)
        blocks = prepared.auditor.case().scores.blocks([prepared.auditor.outlooks.everyone], attack)
        first = first or blocks
    band = prepared.auditor.bands["client", "loss", "global"]
    change, slow = band.change("auc"), auc_difference(blocks, first)
    assert change is not None
    assert (change.first, change.last) == (1, 8)
    assert change.value == pytest.approx(slow.value)
    ends = band.curves()["auc"]
    apart = np.hypot((ends.value[-1] or 0) - (ends.low[-1] or 0), (ends.high[0] or 0) - (ends.value[0] or 0))
    assert slow.low is not None
    assert change.value - apart < change.low <= slow.low + 1e-9  # narrower than two intervals, no narrower than alone
    said = [note for note in all_words(prepared.auditor.snapshot().notices) if "between rounds 1 and 8" in note]
    assert bool(said) == (change.low > 0 or change.high < 0)


@pytest.mark.parametrize("later", [0.0, 2.0])
def test_a_round_at_another_rate_is_no_end_of_a_change(later: float) -> None:
    """The threshold of the last round is far too high: the attack would seem to have lost nearly all it found."""
    rng, sizes = np.random.default_rng(0), (300, 3000, 3000)
    ids = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    rows = Records(np.zeros((6300, 2), np.float32), np.zeros(6300, np.int64), np.arange(6300).astype(str))
    truth = Truth(rows.id, np.repeat([Role.MEMBER.value, Role.EVALUATION.value, Role.CALIBRATION.value], sizes))
    game = Game(Candidates("record", rows.id, np.full(6300, "p"), rows, np.arange(6300)), truth)
    band, again = (OverRounds(game, 2, 0.95, ["tpr@0.01"]) for _ in "ab")
    members, evaluation, calibration = (rng.normal(shift, 1, n) for shift, n in zip((3, 0, 0), sizes, strict=True))
    for round, by in ((1, 0.0), (2, later)):
        blocks = [Block(members, evaluation, calibration + by, ids=(ids[0], ids[1], ids[2]))]
        band.add(round, blocks, {"tpr@0.01": tpr_at_fpr(blocks, 0.01)})
    again.restore(band.state())
    for seen in (band, again):
        assert (seen.change("tpr@0.01") is None) == bool(later)
