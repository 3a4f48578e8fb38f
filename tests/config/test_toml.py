"""What is written as TOML is what is read."""

import math
import tomllib

import pytest

from fedaudit.config.toml import toml

VALUES = ['a"\\\n\u00e9', "\x7f\x00\t", 1, -2.5, True, [1, 2], [], {}, {"a": {"b c": "c", '"': 1}}, 1e300, math.inf]


@pytest.mark.parametrize("value", VALUES)
def test_a_value_comes_back(value: object) -> None:
    assert tomllib.loads(f"v = {toml(value)}")["v"] == value


def test_what_is_not_a_number_comes_back() -> None:
    assert math.isnan(tomllib.loads(f"v = {toml(math.nan)}")["v"])
