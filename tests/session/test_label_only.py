"""What is refused or told before training about an adversary who asks for labels."""

from typing import Any

import numpy as np
import pytest

from fedaudit.config.schema import Config
from fedaudit.errors import FedauditError
from fedaudit.session.assemble import speed
from fedaudit.session.prepare import prepare
from tests.audit.test_tear import asking


def test_too_few_queries_for_the_rounds_are_refused() -> None:
    """They left one label a round: the distance of no record was ever found, and nobody was told."""
    with pytest.raises(FedauditError, match=r"leaves 0 labels .* 60 rounds.*at least 120") as refused:
        prepare(asking(["tear"], {"queries": 50, "targets": 1}, federation={"rounds": 60}))
    assert refused.value.code == "few-queries"
    with pytest.raises(FedauditError, match=r"targets = 'all' needs 2.*at least 300"):
        prepare(asking(["tear"], {"queries": 50, "targets": "all"}, federation={"rounds": 150}))
    prepare(asking(["boundary"], {"queries": 50, "targets": 1}, federation={"rounds": 60}))  # the last round has all


def test_records_outside_the_bounds_are_refused() -> None:
    with pytest.raises(FedauditError, match=r"run from .* to .*, and audit\.tear\.bounds") as refused:
        prepare(asking(["tear"], {"bounds": [0.0, 1.0]}))
    assert refused.value.code == "bounds"
    prepare(asking(["tear"], {"bounds": [-100.0, 100.0]}))
    prepare(asking(["gap"], {"bounds": [0.0, 1.0]}))  # it asks about records only


def test_a_rate_that_needs_the_adversarys_own_records_is_refused() -> None:
    """Calibration records of the first party set no threshold for it."""

    def rated(*attacks: str) -> Any:
        plain = asking([*attacks], federation={"members": 0.4, "nonmembers": 0.4}).as_dict()
        plain["audit"]["fpr"] = [0.01]
        return prepare(Config.model_validate(plain))

    with pytest.raises(FedauditError, match=r"FPR 0\.01 needs .* of which gap leaves .* the adversary's own"):
        rated("gap")


def test_the_speed_is_that_of_the_search_which_loads_the_model_once(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = prepare(asking(["gap"]))
    loaded, asks = [0], prepared.task.asking

    def counted(state: Any) -> Any:
        loaded[0] += 1
        return asks(state)

    monkeypatch.setattr(prepared.task, "asking", counted)
    monkeypatch.setattr(prepared.task, "outputs", None)
    assert np.isfinite(speed(prepared.task, prepared.game, 0))
    assert loaded == [1]
