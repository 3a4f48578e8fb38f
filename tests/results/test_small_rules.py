"""Rules of a line or two that larger tests run through without noticing what they decide."""

import json
from pathlib import Path

import numpy as np
import pytest

from fedaudit.errors import FedauditError
from fedaudit.results.advice import Advice, Confirmed, sentences
from fedaudit.results.compare import _other_questions
from fedaudit.results.document import Document
from fedaudit.results.gate import _select, parse_limit, parse_rule
from fedaudit.results.limits import party_rule
from fedaudit.results.scores import _finite
from fedaudit.results.study import _mean
from fedaudit.stats import over_runs
from fedaudit.types import Estimate

CANARIES = Document.from_json(json.loads(Path(__file__).with_name("stored").joinpath("canaries.json").read_text()))


@pytest.mark.parametrize("where", ["attack=loss", "vantage=server", "party=a"])
def test_the_limit_of_a_party_takes_no_brackets(where: str) -> None:
    with pytest.raises(FedauditError, match="takes no brackets"):
        party_rule(f"auc[{where}] > 0.6")


def test_one_score_in_a_hundred_may_be_missing_and_counts_as_the_least_suspicious() -> None:
    scores = np.arange(1000.0)
    scores[:10] = np.nan
    found = _finite(scores, Path("a.csv"))
    assert np.array_equal(found[10:], scores[10:])
    assert (found[:10] == -np.inf).all()
    scores[10] = np.inf
    with pytest.raises(FedauditError, match="11 of 1000 scores are not finite"):
        _finite(scores, Path("a.csv"))


def test_a_figure_of_another_attack_is_not_measured_by_the_one_that_is_named() -> None:
    assert [one.entry.attack for one in _select(CANARIES, parse_rule("epsilon-split[attack=canife] > 1"))] == ["canife"]
    with pytest.raises(FedauditError, match="not measured"):
        _select(CANARIES, parse_rule("epsilon-split[attack=loss] > 1"))


def test_runs_are_compared_by_what_other_questions_found_in_both() -> None:
    found = _other_questions({"a": CANARIES, "b": CANARIES})
    assert {one.attack for one in found} == {"canife"}
    assert _other_questions({"a": CANARIES}) == []


def risk(value: float) -> Estimate:
    return Estimate("auc", value, value - 0.1, value + 0.1, 0.95, "mid-ranks", "measured", 9, 9)


def test_two_cells_have_a_mean_and_one_is_itself() -> None:
    assert _mean([risk(0.6), risk(0.8)]) == over_runs([risk(0.6), risk(0.8)], 0.0)
    assert _mean([risk(0.6)]) == risk(0.6)
    assert _mean([]) is None


def test_an_accuracy_is_told_beside_what_it_was_before() -> None:
    def told(*names: str) -> str:
        one = Confirmed(
            name="clipping", points=["limit"], words="clip", overrides={}, seed=1, verdict="below the limit",
            meets=True, why_not="", risk=None, risk_before=None, largest_before=None, strongest=None, guarantee=None,
            estimates={name: risk(0.7) for name in names},
        )  # fmt: skip
        advice = Advice(
            schema=1, limit="auc < 0.6", confidence=0.95, rungs=[], tried=[], confirmed=[one], recommended="clipping",
            nearest=None, sentences=(), cost=None,
        )  # fmt: skip
        return " ".join(sentences(advice, parse_limit("auc < 0.6")))

    assert "The model is right on" in told("accuracy", "accuracy-before")
    assert "The model is right on" not in told("accuracy")
    assert "The model is right on" not in told()
    assert "What it costs is not known" in told()
    assert "hardly a model any more" not in told("accuracy", "accuracy-before")
