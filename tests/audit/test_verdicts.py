"""How often a verdict speaks of a leak where there is none, and calls safe what lies exactly at the limit."""

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom, norm

from fedaudit.results.gate import Decision, judge, parse_rule
from tests.audit.test_audit import FINDINGS
from tests.results.test_strongest import FPR, OTHERS, PRIMARY, written
from tests.worlds import config, null_world, watch


def worlds_with_a_finding(seeds: range) -> list[int]:
    """Null worlds, audited with everything that runs by default, whose verdict speaks of a leak."""
    found = []
    for seed in seeds:
        audit = watch(null_world(config(federation={"seed": seed, "rounds": 5})))
        if any(headline.tone in FINDINGS for headline in audit.headlines):
            found.append(seed)
    return found


@pytest.mark.evidence
def test_K8_of_200_null_worlds_at_most_one_in_twenty_has_a_finding() -> None:
    found = worlds_with_a_finding(range(1000, 1200))
    print(f"{len(found)} of 200 null worlds have a finding in their verdict: {found}")
    assert len(found) <= 10


@pytest.mark.evidence
@pytest.mark.parametrize("leaking", [PRIMARY, "loss"])
def test_what_lies_exactly_at_the_limit_is_rarely_called_safe_or_violated(tmp_path: Path, leaking: str) -> None:
    """By one attack, the primary or another; the others find nothing."""
    shift, worlds = 1.0, 600
    limits = {"auc": norm.cdf(shift / np.sqrt(2)), f"tpr@{FPR:g}": norm.sf(norm.isf(FPR) - shift)}
    shifts = dict.fromkeys((PRIMARY, *OTHERS), 0.0) | {leaking: shift}
    for metric, limit in limits.items():
        verdicts = []
        for seed in range(worlds):
            written(tmp_path, shifts, 10 * seed)
            verdicts.append(judge(tmp_path, [parse_rule(f"{metric} > {limit}")]).verdict)
        wrong = {verdict: verdicts.count(verdict) for verdict in (Decision.SAFE, Decision.VIOLATED)}
        print(f"{metric} exactly at {limit:.4f} by {leaking}: {wrong} of {worlds}")
        assert max(wrong.values()) <= binom.ppf(0.999, worlds, 0.025)
