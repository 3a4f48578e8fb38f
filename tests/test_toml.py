"""What is written as TOML is what is read."""

import math
import tomllib
from typing import Any

import pytest

from fedaudit.report.sections import recipe
from fedaudit.report.values import Results
from fedaudit.results.document import Document
from fedaudit.toml import toml, written
from tests.report import builder

VALUES = ['a"\\\n\u00e9', "\x7f\x00\t", 1, -2.5, True, [1, 2], [], {}, {"a": {"b c": "c", '"': 1}}, 1e300, math.inf]
CONFIGURATIONS: list[dict[str, Any]] = [
    *({"top": value, "data": {"b c": value, "in": {"x": value}, "list": [value, {"y": value}]}} for value in VALUES),
    *({"defences": [{"name": "x", "of\nit": value}, {"options": {"z": value}, "name": "y"}]} for value in VALUES),
    {"a.b": {"c": 1}, "a": {"b": {"c": [[{"d": 2}], []]}}, "": {"e": [{"f": 3}]}},
]


@pytest.mark.parametrize("value", VALUES)
def test_a_value_comes_back(value: object) -> None:
    assert tomllib.loads(f"v = {toml(value)}")["v"] == value


@pytest.mark.parametrize("config", CONFIGURATIONS)
def test_a_configuration_comes_back_and_so_does_that_of_a_report(config: dict[str, Any]) -> None:
    assert tomllib.loads(written(config)) == config
    results = builder.results()
    results["run"]["config"] = config
    shown = recipe(Results(Document.from_json(results)))
    assert shown is not None
    assert tomllib.loads(shown.toml) == config


def test_what_is_not_set_is_not_written() -> None:
    assert tomllib.loads(written({"a": {"b": None, "c": [None, 1], "d": {"e": None}}})) == {"a": {"c": [1], "d": {}}}
    assert written({"a": None}) == ""


def test_what_is_not_a_number_comes_back() -> None:
    assert math.isnan(tomllib.loads(f"v = {toml(math.nan)}")["v"])
