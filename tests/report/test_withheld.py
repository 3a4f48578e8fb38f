"""Updates that did not leave: the first sentences of a verdict."""

from fedaudit.report.words import preface, verdict, withheld_updates
from fedaudit.results.document import Withheld
from fedaudit.types import Estimate
from tests.report import builder

TPR = Estimate("tpr@0.01", 0.129, 0.11, 0.15, 0.995, "m", "measured", 900, 300, n_cal=700, guaranteed=(0.101, 0.16))


def alone(*rounds: int) -> list[str]:
    return withheld_updates([Withheld(number, "not audited", reason="the disk is full") for number in rounds])


def test_rounds_are_counted_up() -> None:
    said = "This party withheld its {}, which could not be audited; the warnings say why."
    assert alone() == []
    assert alone(3) == [said.format("update of round 3")]
    assert alone(3, 2) == [said.format("updates of rounds 2 and 3")]
    assert alone(1, 2, 3, 4, 7, 9, 10) == [said.format("updates of rounds 1 to 4, 7, 9 and 10")]


def test_a_crossed_limit_is_told_with_its_attack_and_figures() -> None:
    crossed = Withheld(
        4, "limit crossed", onwards=True, rule="tpr@0.01 > 0.05", attack="matched-filter", estimates={"tpr@0.01": TPR}
    )
    assert withheld_updates([crossed]) == [
        "This party has sent nothing from round 4 on: what was about to leave then crosses its limit tpr@0.01 > 0.05 "
        "(found by matched-filter: TPR 12.9 % at 1 % FPR, 99.5 % interval 11.0–15.0, at least 10.1 % guaranteed)."
    ]


def test_the_verdict_begins_with_it() -> None:
    document = builder.results()
    why = "182 calibration records are set aside, 546 are needed. Set more records aside."
    told = {"round": 1, "because": "limit undecidable", "onwards": True, "rule": "tpr@0.01 > 0.05", "reason": why}
    document["run"] |= {"withheld": [told], "status": "recorded up to round 1 of 3"}
    results = builder.quotable(document)
    first = f"This party has sent nothing from round 1 on: no attack can decide its limit tpr@0.01 > 0.05. {why}"
    assert preface(results)[0] == first
    assert verdict(results)[0] == first
