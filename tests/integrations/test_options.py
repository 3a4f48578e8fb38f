"""The arguments of Python's entry points: each is passed on, told to have no effect, or refused."""

from typing import Any

import pytest

from fedaudit.adversary.attacks.fusion import Fusion
from fedaudit.adversary.signals.searching import SearchOptions
from fedaudit.adversary.signals.updates import FilterOptions
from fedaudit.data.set_aside import joined
from fedaudit.errors import FedauditError
from fedaudit.integrations.options import AuditOptions, checked, make_auditor
from tests.integrations.worlds import games, net


def made(**options: Any) -> Any:
    return make_auditor(net(), joined(*games()), checked(4, **options)).settings


def test_sections_reach_the_attacks_that_read_them() -> None:
    search = made(vantages=["label-only-client"], attacks=["gap"], tear={"queries": 240, "own": 120, "targets": 2})
    assert search.search == SearchOptions(240, 2, own=120)
    matched = made(attacks=["matched-filter"], matched={"damping": 0.5, "fit": "nonmembers"})
    assert matched.filter == FilterOptions("nonmembers", 0.5)
    assert matched.attacks[0].fitted_on == ("nonmembers",)
    (fusion,) = made(attacks=["fusion"], fusion={"attacks": ["loss", "fta-loss"], "weights": [2, 1]}).attacks
    assert isinstance(fusion, Fusion)
    assert (fusion.parts[0].name, fusion.shares) == ("loss", (2.0, 1.0))


def test_attacks_may_have_options() -> None:
    asked = ["loss", {"name": "fta", "degree": 5}, {"name": "matched-filter", "damping": 0.5}]
    found = made(attacks=asked, matched={"fit": "nonmembers"})
    assert [attack.name for attack in found.attacks] == ["loss", "fta+degree=5", "matched-filter+damping=0.5"]
    assert (found.filter, found.filters) == (
        FilterOptions("nonmembers"),
        {"+damping=0.5": FilterOptions("nonmembers", 0.5)},
    )
    with pytest.raises(FedauditError, match=r"attacks\[1\] has no key 'degre'.*Did you mean 'degree'"):
        checked(4, attacks=["loss", {"name": "fta", "degre": 5}])


def test_a_section_that_no_attack_reads_is_told() -> None:
    found = made(attacks=["loss"], tear={"queries": 240}, matched={"damping": 0.5}, fusion={"weights": [2, 1]})
    unread = {one.data["section"] for one in found.notices if one.code == "section-unread"}
    assert unread == {"tear", "matched", "fusion"}


@pytest.mark.parametrize("name", ["reference", "adversary", "attribute", "canary", "unit"])
def test_what_only_a_training_of_our_own_can_do_is_refused(name: str) -> None:
    values: dict[str, Any] = {
        "adversary": "agg-sh",
        "attribute": {"name": "area"},
        "unit": "record",
        "reference": {"models": 4},
    }
    assert name not in AuditOptions.__optional_keys__
    with pytest.raises(FedauditError, match=rf"{name}=\.\.\. needs a federation that fedaudit trains itself"):
        checked(4, **{name: values.get(name, {})})
