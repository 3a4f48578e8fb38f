"""The published schema is what the dataclasses say, and it refuses what no version ever wrote."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import jsonschema
import pytest

from fedaudit.results.document import SCHEMA_FILE, DataInfo
from fedaudit.results.schema import of_kind, schema
from fedaudit.types import Kind, ModelKind, Vantage
from fedaudit.types.stored import if_known
from tests.results.test_document import NAMES, stored

VALIDATOR = jsonschema.Draft202012Validator(schema())


def test_the_published_file_is_made_from_the_dataclasses() -> None:
    again = "Run `python -m fedaudit.results.schema`."
    assert json.loads(SCHEMA_FILE.read_text()) == schema(), again
    VALIDATOR.check_schema(schema())


@pytest.mark.parametrize("name", NAMES)
def test_files_of_version_0_1_0_follow_it(name: str) -> None:
    VALIDATOR.validate(stored(name))


def test_a_new_field_is_in_it_and_not_asked_for() -> None:
    @dataclass(frozen=True)
    class Later(DataInfo):
        licence: Annotated[str | None, if_known()] = None

    before, now = of_kind(DataInfo), of_kind(Later)
    assert now["required"] == before["required"]
    assert now["properties"] == before["properties"] | {"licence": {"type": "string"}}


def at(values: Any, path: str) -> tuple[Any, Any]:
    """What holds the last key of a path, and that key."""
    *places, last = (int(key) if key.isdigit() else key for key in path.split("/"))
    for key in places:
        values = values[key]
    return values, last


AUC = "results/0/estimates/auc"
AN_ESTIMATE = stored("people")["results"][0]["estimates"]["auc"]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("schema", 2),
        ("run", None),
        ("run/rounds", -1),
        ("run/seed", 1.5),
        ("run/versions/numpy", 2),
        ("run/data", []),
        ("run/parties/0", {"name": "p"}),
        ("run/guarantee", []),
        ("run/accuracy/evaluation", 0.5),
        ("run/more", 1),
        ("headlines/0/compared", 0),
        ("headlines/0/vantage", "nowhere"),
        ("headlines/0/estimates", {}),
        ("results/0/more", 1),
        ("results/0/vantage", "nowhere"),
        ("results/0/model", "both"),
        ("results/0/unit", "Household"),
        ("results/0/unit", 7),
        ("results/0/party", 0),
        ("results/0/round", -1),
        ("results/0/estimates", {}),
        ("results/0/cost", {}),
        ("results/0/cost/epochs", -0.1),
        ("results/0/warnings", "none"),
        ("results/0/estimates/precision", {}),
        ("results/0/estimates/AUC", AN_ESTIMATE),
        ("results/0/estimates/tpr@", AN_ESTIMATE),
        ("results/0/estimates/two words", AN_ESTIMATE),
        ("results/0/beside", {"auc": AN_ESTIMATE}),
        (f"{AUC}/value", "0.5"),
        (f"{AUC}/more", 1),
        (f"{AUC}/confidence", 1),
        (f"{AUC}/confidence", 0),
        (f"{AUC}/method", ""),
        (f"{AUC}/kind", "guessed"),
        (f"{AUC}/n_pos", -1),
        (f"{AUC}/n_neg", 1.5),
        (f"{AUC}/n_cal", -1),
        (f"{AUC}/realised_fpr_interval", [0.1]),
        (f"{AUC}/ceiling", None),
        (f"{AUC}/guaranteed", None),
        (f"{AUC}/name", "auc"),
        (f"{AUC}/reason", 1),
        ("results/0/curves/roc/x", [None]),
        ("results/0/curves/roc/more", 1),
        ("exposed", []),
        ("failed", [{"attack": "loss"}]),
        ("warnings", [1]),
        ("degraded", None),
    ],
)
def test_it_refuses(path: str, value: Any) -> None:
    values = stored("people")
    holder, key = at(values, path)
    holder[key] = value
    assert not VALIDATOR.is_valid(values)


@pytest.mark.parametrize("name", ["auc", "tpr@0.01", "tpr@1e-05", "epsilon-one-run", "f1@5", "share-of-class2"])
def test_a_metric_may_have_any_name_of_this_shape(name: str) -> None:
    values = stored("people")
    values["results"][0] |= {"estimates": {name: AN_ESTIMATE}, "beside": {f"{name}-minus-primary": AN_ESTIMATE}}
    VALIDATOR.validate(values)


@pytest.mark.parametrize(
    "path",
    [
        *("schema", "run", "headlines", "results", "warnings", "notices"),
        *(f"run/{key}" for key in ("name", "fedaudit", "created", "status", "config", "config_hash", "seed")),
        *(f"run/{key}" for key in ("versions", "rounds", "data", "parties", "accuracy", "guarantee")),
        *(f"headlines/0/{key}" for key in ("vantage", "attack", "model", "compared", "estimates")),
        *(f"results/0/{key}" for key in ("attack", "vantage", "model", "unit", "party", "round", "cost", "warnings")),
        *(f"{AUC}/{key}" for key in ("value", "low", "high", "confidence", "method", "kind", "n_pos", "n_neg")),
        *("results/0/estimates", f"{AUC}/reason", "results/0/cost/epochs", "run/parties/0/calibration"),
        *(f"results/0/curves/roc/{key}" for key in ("x", "value", "low", "high", "method")),
    ],
)
def test_it_asks_for(path: str) -> None:
    values = stored("people")
    holder, key = at(values, path)
    del holder[key]
    assert not VALIDATOR.is_valid(values)


def test_its_words_are_those_of_the_types() -> None:
    definitions = schema()["$defs"]
    entry, estimate = definitions["AuditResult"]["properties"], definitions["Estimate"]["properties"]
    assert entry["vantage"]["enum"] == [vantage.value for vantage in Vantage]
    assert entry["model"]["enum"] == list(ModelKind.__args__)  # type: ignore[attr-defined]
    assert estimate["kind"]["enum"] == list(Kind.__args__)  # type: ignore[attr-defined]


def test_the_command_writes_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedaudit.results import schema as module

    monkeypatch.setattr(module, "SCHEMA_FILE", tmp_path / "results.schema.json")
    module.main()
    assert (tmp_path / "results.schema.json").read_bytes() == SCHEMA_FILE.read_bytes()
