"""`federation.weight_decay`: a training option that does what the defence l2 does."""

from typing import Any

import numpy as np
import pytest

from fedaudit.config.schema import parse
from fedaudit.errors import FedauditError
from fedaudit.session.prepare import prepare
from fedaudit.session.run import rounds
from fedaudit.types import State

SMALL: dict[str, Any] = {
    "data": {"name": "digits"},
    "model": {"hidden": [8]},
    "audit": {"attacks": ["loss"]},
}
L2 = [{"name": "l2", "strength": 0.1}]


def last_model(defences: list[dict[str, Any]], **federation: Any) -> State:
    prepared = prepare(parse(SMALL | {"federation": {"rounds": 2, **federation}, "defences": defences}))
    *_, last = rounds(prepared)
    return last.aggregate


@pytest.mark.parametrize("how", [{"optimizer": "adam"}, {"optimizer": "sgd", "lr": 0.1}, {"algorithm": "fedsgd"}])
def test_weights_decay_as_by_the_defence(how: dict[str, Any]) -> None:
    option, defence, without = last_model([], weight_decay=0.1, **how), last_model(L2, **how), last_model([], **how)
    for name in without:
        np.testing.assert_array_equal(option[name], defence[name])
    assert any((option[name] != without[name]).any() for name in without)


def test_one_of_them_is_enough() -> None:
    with pytest.raises(FedauditError, match="l2 decays the weights, too"):
        last_model(L2, weight_decay=0.1)


def test_a_configuration_without_it_is_written_as_before() -> None:
    assert "weight_decay" not in parse(SMALL).as_dict().get("federation", {})
