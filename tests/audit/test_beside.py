"""Attacks beside the primary one: their difference on the same records, in results and on the page."""

import pytest

from fedaudit.adversary.attacks import choose
from fedaudit.report.sections import beside
from fedaudit.session.prepare import prepare
from fedaudit.stats import auc_difference
from fedaudit.types import Vantage
from tests.worlds import config, watch


def test_every_attack_has_its_difference_to_the_primary_one() -> None:
    prepared = prepare(config(audit={"attacks": ["loss", "fta-confidence", "fta-loss"]}))
    audit = watch(prepared)
    case, primary = prepared.auditor.case(), prepared.auditor.case().primary(Vantage.CLIENT)
    assert primary is not None
    assert primary.name == "fta-confidence"
    found = {r.attack: r for r in audit.results if (r.model, r.party) == ("global", None)}
    assert not found["fta-confidence"].beside
    (loss,) = choose(["loss"])
    others = len([a for a in case.alive(Vantage.CLIENT, "global") if a.name != primary.name])
    blocks = [[case.scores.block(prepared.auditor.outlooks.everyone, attack)] for attack in (loss, primary)]
    slow = auc_difference(blocks[0], blocks[1], 1 - 0.05 / others)
    gap = found["loss"].beside["auc-minus-primary"]
    values = [found[name].estimates["auc"].value for name in ("loss", "fta-confidence")]
    assert gap.value == pytest.approx((values[0] or 0) - (values[1] or 0))
    assert (gap.low, gap.high) == (slow.low, slow.high)
    assert gap.method.startswith("minus fta-confidence; ")


def test_the_page_lists_them() -> None:
    from tests.report.builder import estimate, quotable, results

    values = results()
    for entry in values["results"]:
        if entry["attack"] == "loss" and entry["party"] is None:
            gap = estimate(None) | {"value": -0.1, "low": -0.15, "high": -0.02}
            entry["beside"] = {"tpr@0.01-minus-primary": gap}
    table = beside(quotable(values), "tpr@0.01")
    assert table is not None
    assert table.rows[0][2:] == ["-10.0 (-15.0 to -2.0)", "weaker"]
    assert beside(quotable(results()), "tpr@0.01") is None
