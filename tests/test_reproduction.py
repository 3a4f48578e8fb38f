"""The papers' claims: every one can be tested as it is written down, and is decided as it says."""

from dataclasses import replace
from pathlib import Path

import pytest

from docs import make_reproduction
from docs.make_reproduction import apart, configured, holds
from docs.reproduction_claims import CLAIMS, SETTINGS, Above, Claim, Of, Within
from fedaudit.types import Estimate

TESTED = [claim for claim in CLAIMS if isinstance(claim, Claim)]


def figures(claim: Claim) -> list[Of]:
    tests = [[test.first, test.second] if isinstance(test, Above) else [test.of] for test in claim.tests]
    return [*(of for each in tests for of in each), *claim.beside]


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_is_a_configuration_and_asks_for_all_that_is_looked_at(name: str) -> None:
    config = configured(name, 2, Path("nowhere"))
    assert config.federation.seed == 2
    asked = {str(name) for name in config.audit.attacks or ()} | ({"attribute"} if config.audit.attribute else set())
    wanted = {of.attack for claim in TESTED for of in figures(claim) if of.setting == name}
    assert wanted
    assert wanted <= asked


def estimate(value: float, half: float) -> Estimate:
    return Estimate("auc", value, value - half, value + half, 0.95, "", "measured", 100, 100)


@pytest.mark.parametrize(
    ("values", "verdict"), [((0.2, 0.05), "confirmed"), ((0.2, 0.3), "not confirmed"), (None, "not run")]
)
def test_a_claim_holds_only_with_the_whole_interval(
    values: tuple[float, float] | None, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = estimate(*values) if values else None
    monkeypatch.setattr(make_reproduction, "difference", lambda _: found)
    monkeypatch.setattr(make_reproduction, "mean", lambda _: found)
    above, within = Above(Of("a", "b"), Of("a", "c")), Within(Of("a", "b"), 0.1, 0.3)
    for test in (above, within):
        claim = replace(TESTED[0], tests=(test,))
        assert holds(claim) == verdict
    if values:
        assert holds(replace(TESTED[0], tests=(above, Within(Of("a", "b"), 0.9, 1.0)))) == "not confirmed"


def test_two_federations_err_apart() -> None:
    found = apart(estimate(0.7, 0.03), estimate(0.5, 0.04))
    assert found is not None
    assert (found.value, found.low, found.high) == pytest.approx((0.2, 0.15, 0.25))
