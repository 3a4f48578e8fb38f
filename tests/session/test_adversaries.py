"""Which attacks an adversary brings along, and what is refused before training."""

from typing import Any

import pytest

from fedaudit.errors import FedauditError
from fedaudit.session.assemble import chosen
from fedaudit.session.prepare import prepare
from fedaudit.words import all_words
from tests.worlds import config, watch


def names(**audit: Any) -> list[str]:
    return [attack.name for attack in chosen(config(audit=audit))]


def test_nobody_gets_attacks_that_were_not_asked_for() -> None:
    assert names(adversary="agg-sh", attacks=["gradient-series"]) == ["gradient-series"]
    assert names(adversary="agg-sh", attacks=["loss"]) == ["loss", "gradient-series", "logit-series", "cs-mia"]
    assert "fusion" in names(adversary="agg-sh")
    attribute = {"attribute": {"name": "area"}, "adversary": "agg-sh"}
    assert names(attacks=["attribute"], **attribute) == ["attribute"]
    assert names(attacks=["loss", "attribute"], **attribute) == ["loss", "attribute"]


@pytest.mark.parametrize("adversary", ["agg-sh", "agg-mal"])
def test_a_series_attack_alone(adversary: str) -> None:
    asked: dict[str, Any] = {"adversary": adversary, "attacks": ["gradient-series"]}
    small: dict[str, Any] = {"data": {"name": "diabetes"}, "federation": {"rounds": 2}}
    with pytest.raises(FedauditError, match="none of the attacks can be run from 'client'"):
        prepare(config(audit=asked, **small))
    audit = watch(prepare(config(audit=asked | {"vantages": ["server"]}, **small)))
    assert audit.failed == {}
    assert [h.attack for h in audit.headlines] == ([] if adversary == "agg-mal" else ["gradient-series"])


def test_how_to_ask_for_an_attribute() -> None:
    with pytest.raises(FedauditError, match=r"\[audit\.attribute\] name"):
        chosen(config(audit={"attacks": ["attribute"]}))


@pytest.mark.parametrize(
    ("section", "options", "reader"),
    [
        ("canary", {"canaries": 1}, None),
        ("fusion", {"weights": [2, 1]}, "fusion"),
        ("reference", {"models": 4}, "lira"),
        ("matched", {"fit": "nonmembers"}, "matched-filter"),
        ("tear", {"queries": 90}, "gap"),
    ],
)
def test_options_that_no_attack_reads_are_told(section: str, options: dict[str, Any], reader: str | None) -> None:
    def told(*attacks: str) -> bool:
        seen = ["client", "server", "label-only-client"] if "gap" in attacks else ["client", "server"]
        prepared = prepare(config(audit={"attacks": [*attacks], section: options, "vantages": seen}))
        return any(line.startswith(f"[audit.{section}] has no effect") for line in all_words(prepared.settings.notices))

    assert told("loss")
    if reader:
        assert not told("loss", reader)
