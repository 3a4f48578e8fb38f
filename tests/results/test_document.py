"""results.json as a tree of dataclasses: earlier files still read, nothing is lost on the way, NaN stays out."""

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import jsonschema
import numpy as np
import pytest
from pydantic import TypeAdapter

from fedaudit.config.schema import parse
from fedaudit.errors import REFUSED, FedauditError
from fedaudit.results.advice import Advice
from fedaudit.results.compare import Comparison
from fedaudit.results.document import SCHEMA_FILE, DataInfo, Document, Exposed, ExposedUnit, Withheld, load, save
from fedaudit.results.schema import UnreadableError, as_text, plain, read
from fedaudit.results.scores import Scored
from fedaudit.results.study import ListedCell, StudyFile
from fedaudit.session.prepare import prepare
from fedaudit.session.recording import About
from fedaudit.session.run import run
from fedaudit.types import Cost, Curve, Estimate
from fedaudit.types.stored import if_known
from tests.worlds import config, watch

STORED = Path(__file__).with_name("stored")  # as the version before this one wrote them
NAMES = ("people", "subjects", "private", "canaries", "failed", "recorded")


def stored(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((STORED / f"{name}.json").read_text())
    return found


def valid(values: dict[str, Any]) -> None:
    jsonschema.validate(values, json.loads(SCHEMA_FILE.read_text()))


# ------------------------------------------------------------------ files of an earlier and of a later version


@pytest.mark.parametrize("name", NAMES)
def test_a_file_of_the_former_version_reads_and_is_written_again_as_it_was(name: str) -> None:
    before = stored(name)
    valid(before)
    document = Document.from_json(before)
    assert document.to_json() == {"exposed": None} | before
    assert Document.from_json(document.to_json()) == document


@pytest.mark.parametrize("name", NAMES)
def test_a_file_is_written_again_byte_for_byte(name: str) -> None:
    text = (STORED / f"{name}.json").read_text()
    assert as_text(Document.from_json(json.loads(text))) == text


def test_a_result_of_a_question_from_outside_reads_back() -> None:
    """Its unit and the names of its metrics are its own; they follow the schema, too."""
    values = stored("people")
    entry = values["results"][0]
    entry["unit"] = "class-share"
    entry["estimates"] = dict.fromkeys(("share-of-class", "off-by@0.1", "f1@5"), entry["estimates"]["auc"])
    valid(values)
    found = Document.from_json(values).results[0]
    assert found.unit == "class-share"
    assert [estimate.name for estimate in found.estimates.values()] == list(entry["estimates"])
    assert plain(found) == entry


def keys(value: Any, path: str = "") -> set[str]:
    """Every key with its place; where keys are names, `*`. The configuration has keys of its own."""
    found: set[str] = set()
    if isinstance(value, list):
        for item in value:
            found |= keys(item, f"{path}[]")
    elif isinstance(value, dict) and path != ".run.config":
        named = path.endswith((".estimates", ".curves", ".accuracy", ".versions"))
        for key, item in value.items():
            here = f"{path}.*" if named else f"{path}.{key}"
            found |= {here} | keys(item, here)
    return found


def test_a_run_of_today_has_every_key_that_such_a_file_has(tmp_path: Path) -> None:
    """The same federation as in stored/people.json: subjects, a hidden attribute, parties that are named."""
    rng, n = np.random.default_rng(0), 240
    x, y = rng.normal(size=(n, 4)).astype(np.float32), rng.integers(0, 2, n)
    subject = np.array([f"p{i // 2}" for i in range(n)])
    np.savez(tmp_path / "people.npz", x=x, y=y, subject=subject, attribute=(x[:, 0] > 0).astype(int))
    before = stored("people")
    asked = before["run"]["config"] | {"data": {"name": "npz", "path": str(tmp_path / "people.npz")}}
    run(parse(asked), tmp_path / "run", lambda _what, _steps: nullcontext(lambda: None))
    after = json.loads((tmp_path / "run/results.json").read_text())
    valid(after)
    assert keys(before) <= keys(after)
    for old, new in zip(before["results"], after["results"], strict=True):
        assert old["estimates"].keys() <= new["estimates"].keys()
        assert old.get("curves", {}).keys() <= new.get("curves", {}).keys()


def with_more(values: Any, tree: Any) -> Any:
    """The JSON of a tree, with one more key wherever a dataclass stands."""
    if is_dataclass(tree):
        more = {key: with_more(item, getattr(tree, key)) for key, item in values.items()}
        return more | {"from_the_future": [1]}
    if isinstance(tree, Mapping):
        return {key: with_more(item, tree[key]) for key, item in values.items()}
    if isinstance(tree, tuple):
        return [with_more(item, one) for item, one in zip(values, tree, strict=True)]
    return values


@pytest.mark.parametrize("name", NAMES)
def test_what_a_later_version_adds_is_ignored(name: str) -> None:
    document = Document.from_json(stored(name))
    more = with_more(document.to_json(), document)
    assert json.dumps(more).count("from_the_future") >= 10
    assert Document.from_json(more) == document


def test_F16_a_newer_schema_is_refused_whatever_it_holds(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text(json.dumps({"schema": 2, "everything": "else"}))
    with pytest.raises(FedauditError, match="schema-newer") as raised:
        load(tmp_path)
    assert raised.value.exit_code == REFUSED


# ------------------------------------------------------------------ a new field


def test_a_new_field_is_one_line_with_a_default() -> None:
    """Left out while it says nothing; older files read; the JSON of the rest does not change."""

    @dataclass(frozen=True)
    class Later(DataInfo):
        licence: Annotated[str | None, if_known()] = None

    before = DataInfo("digits", 1797, 10, None, (64,))
    now = Later("digits", 1797, 10, None, (64,))
    assert plain(now) == plain(before)
    assert read(Later, plain(before)) == now
    said = replace(now, licence="CC0")
    assert plain(said) == plain(before) | {"licence": "CC0"}
    assert read(Later, plain(said)) == said
    assert read(DataInfo, plain(said)) == before


def test_everything_in_the_tree_is_frozen() -> None:
    def kinds(value: Any) -> set[type]:
        if is_dataclass(value):
            return {type(value)}.union(*(kinds(getattr(value, field.name)) for field in fields(value)))
        items = value.values() if isinstance(value, Mapping) else value if isinstance(value, tuple) else ()
        return set().union(*map(kinds, items))

    found = set().union(*(kinds(Document.from_json(stored(name))) for name in NAMES))
    assert len(found) > 12
    assert all(kind.__dataclass_params__.frozen for kind in found)  # type: ignore[attr-defined]


def test_lists_are_read_as_tuples_and_any_sequence_is_written() -> None:
    values = {"x": [1, 2.5], "value": [0.5, None], "low": [], "high": [math.nan, math.inf], "method": "m"}
    found = read(Curve, values)
    assert found == Curve((1.0, 2.5), (0.5, None), (), (None, None), "m")
    given = Curve(range(2), (0.5, None), [], (math.nan, 1), "m")
    assert plain(given) == {"x": [0.0, 1.0], "value": [0.5, None], "low": [], "high": [None, 1.0], "method": "m"}
    assert all(type(number) is float for number in plain(given)["x"])


def test_numbers_of_numpy_are_written_as_numbers() -> None:
    whole: Any = np.int64(3)
    number: Any = np.float32(0.5)
    yes: Any = np.True_
    nan: Any = np.float32(math.nan)
    assert json.dumps(plain(DataInfo("d", whole, whole, whole, (whole,)))).count("3") == 4
    assert plain(Cost(number, number, nan)) == {"epochs": 0.5, "queries": 0.5}
    assert plain(Withheld(1, "not audited", onwards=yes))["onwards"] is True


def test_in_a_configuration_null_stands_for_what_json_cannot_hold() -> None:
    entry = ListedCell("a1", {"lr": math.nan, "of": (1, math.inf), "model": {"hidden": (4, 2), "scale": -math.inf}})
    written = {"lr": None, "of": [1, None], "model": {"hidden": [4, 2], "scale": None}}
    assert plain(entry) == {"cell": "a1", "overrides": written}
    assert read(ListedCell, plain(entry)) == ListedCell("a1", written)


def test_what_says_nothing_is_left_out_and_what_is_0_is_not() -> None:
    assert plain(Cost(1, math.nan, None)) == {"epochs": 1.0}
    assert plain(Cost(1, 0, 0.0)) == {"epochs": 1.0, "queries": 0.0, "most_queries": 0.0}
    assert plain(Exposed("loss", "client", [], []))["subjects"] == []
    assert "subjects" not in plain(Exposed("loss", "client", []))


def test_three_fields_of_an_estimate_are_there_with_the_size_of_the_calibration_set() -> None:
    without = Estimate("auc", 0.5, 0.4, 0.6, 0.95, "m", "measured", 9, 9)
    names = ["value", "low", "high", "confidence", "method", "kind", "n_pos", "n_neg", "reason"]
    assert list(plain(without)) == names
    assert list(plain(replace(without, threshold=0.1))) == [*names[:-1], "threshold", "reason"]
    with_it = plain(replace(without, n_cal=0))
    assert list(with_it) == [*names[:-1], "n_cal", "threshold", "realised_fpr", "realised_fpr_interval", "reason"]


# ------------------------------------------------------------------ what is refused, and how it is said


def test_no_number_is_read_from_text_wherever_it_is_stored() -> None:
    """A field that is declared as `float` would be: `Number` is not."""
    for kind in (Document, Advice, StudyFile, Comparison, Scored):
        schema: Any = TypeAdapter(kind).core_schema
        found = [part for part in parts(schema) if part.get("type") in ("int", "float", "bool")]
        assert found
        assert all(part.get("strict") for part in found), kind


def parts(schema: Any) -> Iterator[dict[str, Any]]:
    """What a schema of pydantic is made of, for reading."""
    if isinstance(schema, dict):
        yield schema
        schema = [inner for name, inner in schema.items() if name != "serialization"]
    for inner in schema if isinstance(schema, list) else ():
        yield from parts(inner)


def test_an_odd_word_does_not_cost_the_file_that_holds_it() -> None:
    """It is refused where it is read; an audit is written to its end."""
    odd: Any = "guessed"
    written = plain(replace(estimate(1.0, 0.5, 2.0), kind=odd))
    assert written["kind"] == odd
    with pytest.raises(UnreadableError, match=r"^kind: 'measured', "):
        read(Estimate, written | {"name": "epsilon-gdp"})


def test_a_value_of_a_type_that_has_no_words_is_refused_by_its_place() -> None:
    @dataclass(frozen=True)
    class Later:
        day: date

    with pytest.raises(UnreadableError, match=r"^day: another value is needed$"):
        read(Later, {"day": "secret"})


@pytest.mark.parametrize(
    ("where", "value", "says"),
    [
        (("run",), None, "run: an object is needed"),
        (("run", "rounds"), "secret", "run.rounds: a whole number is needed"),
        (("run", "rounds"), True, "run.rounds: a whole number is needed"),
        (("run", "rounds"), 10**30, "run.rounds: a whole number is needed"),
        (("run", "rounds"), -1, "run.rounds: a number of at least 0 is needed"),
        (("run", "seconds"), math.nan, "run.seconds: a finite number is needed"),
        (("run", "parties", 0, "name"), 7, "run.parties[0].name: text is needed"),
        (("results",), {}, "results: a list is needed"),
        (("results", 0, "model"), "secret", "results[0].model: 'global' or 'local' is needed"),
        (("results", 0, "estimates", "auc", "value"), "secret", "results[0].estimates.auc.value: a number is"),
        (("results", 0, "estimates", "auc", "kind"), "secret", "estimates.auc.kind: 'measured', 'proved', 'model-"),
        (("results", 0, "estimates", "auc", "confidence"), 1.0, "confidence: a number below 1 is needed"),
        (("results", 0, "unit"), 7, "results[0].unit: text is needed"),
        (("results", 0, "estimates", "tpr@0.01", "value"), [0.1], "estimates['tpr@0.01'].value: a number is needed"),
        (("results", 0, "estimates", "tpr@0.01", "value"), [math.nan], "estimates['tpr@0.01'].value: a number is"),
        (("results", 0, "estimates", "tpr@0.01", "realised_fpr_interval"), [0.1], "interval[1]: it is missing"),
        (("results", 0, "estimates", "tpr@0.01", "realised_fpr_interval"), [0, 1, 2], "a list of 2 is needed"),
        (("results", 0, "estimates", "tpr@0.01", "realised_fpr_interval"), "secret", "interval: a list is needed"),
        (("results", 0, "estimates", "auc"), "secret", "results[0].estimates.auc: an object is needed"),
        (("results", 0, "estimates"), ["secret"], "results[0].estimates: an object is needed"),
        (("results", 0, "warnings"), "secret", "results[0].warnings: a list is needed"),
        (("exposed", "records", 0, "share_of_calibration_above"), "0.5", "above: a number is needed"),
    ],
)
def test_what_is_not_as_declared_is_refused_by_its_place_and_never_quoted(
    tmp_path: Path, where: tuple[Any, ...], value: Any, says: str
) -> None:
    values = stored("people")
    values["results"][0]["estimates"]["tpr@0.01"] = stored_tpr()
    Document.from_json(values)
    holder: Any = values
    for key in where[:-1]:
        holder = holder[key]
    holder[where[-1]] = value
    (tmp_path / "results.json").write_text(json.dumps(values))
    with pytest.raises(FedauditError) as raised:
        load(tmp_path)
    assert (raised.value.code, raised.value.exit_code) == ("results-unreadable", REFUSED)
    assert says in str(raised.value)
    assert "secret" not in str(raised.value)


def stored_tpr() -> dict[str, Any]:
    tpr = Estimate(
        "",
        0.1,
        0.0,
        0.2,
        0.95,
        "m",
        "measured",
        9,
        9,
        n_cal=9,
        threshold=0.5,
        realised_fpr=0.01,
        realised_fpr_interval=(0.0, 0.1),
    )
    return plain(tpr)


@pytest.mark.parametrize("key", ["run", "headlines", "results", "schema"])
def test_a_missing_part_is_named(tmp_path: Path, key: str) -> None:
    values = stored("people")
    del values[key]
    (tmp_path / "results.json").write_text(json.dumps(values))
    if key == "schema":
        assert read(Document, values).schema == 1  # a part may do without it, a file may not
    with pytest.raises(FedauditError, match=f"{key}: it is missing"):
        load(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "\ud800", "[" * 100_000])
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "results.json").write_bytes(text.encode(errors="surrogatepass"))
    with pytest.raises(FedauditError, match="results-unreadable"):
        load(tmp_path)


# ------------------------------------------------------------------ NaN and infinity


def test_a_nan_in_one_estimate_costs_neither_the_file_nor_the_others(tmp_path: Path) -> None:
    """A real audit, of which one number comes out as NaN."""
    prepared = prepare(config(federation={"rounds": 2}, audit={"attacks": ["loss", "fta-loss"]}))
    audit = watch(prepared)
    first, *others = audit.results
    odd = replace(first.estimates["auc"], value=math.nan)
    curve = Curve([1.0, 2.0], [math.nan, 0.5], [-math.inf, 0.4], [math.inf, 0.6], "pointwise")
    worse = replace(first, estimates={**first.estimates, "auc": odd}, curves={"auc": curve})
    described = About.foreign("a", prepared.auditor).info(prepared.auditor, "complete", 1.0)
    unit = ExposedUnit("0f", "party-0", -math.inf, 0.1)
    exposed = Exposed("loss", "client", [unit])
    save(Document.of(replace(audit, results=[worse, *others]), described, exposed=exposed), tmp_path)

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    text = (tmp_path / "results.json").read_text()
    values = json.loads(text, parse_constant=refuse)
    valid(values)
    auc = values["results"][0]["estimates"]["auc"]
    assert (auc["value"], auc["low"], auc["high"]) == (None, None, None)
    assert "NaN or infinite" in auc["reason"]
    assert values["results"][0]["curves"]["auc"]["value"] == [None, 0.5]
    assert values["exposed"]["records"][0]["score"] is None
    expected = Document.of(audit, described).to_json()
    assert values["results"][1:] == expected["results"][1:]
    assert values["headlines"] == expected["headlines"]
    assert load(tmp_path).results[0].estimates["auc"].value is None


def estimate(value: float | None, low: float | None, high: float | None, reason: str | None = None) -> Estimate:
    return Estimate("epsilon-gdp", value, low, high, 0.95, "fit", "model-based", 10, 10, reason=reason)


@pytest.mark.parametrize(
    ("given", "written"),
    [
        (estimate(1.0, 0.5, math.inf), (1.0, 0.5, None, "the upper end came out NaN or infinite")),
        (estimate(1.0, math.nan, 2.0), (1.0, None, 2.0, "the lower end came out NaN or infinite")),
        (estimate(math.inf, 0.5, 2.0), (None, None, None, "the value came out NaN or infinite")),
        (estimate(math.nan, None, None, "no members"), (None, None, None, "no members")),
        (estimate(1.0, 0.5, 2.0), (1.0, 0.5, 2.0, None)),
        (estimate(None, None, None, "no members"), (None, None, None, "no members")),
    ],
)
def test_an_estimate_that_is_not_finite_says_so(given: Estimate, written: tuple[Any, ...]) -> None:
    found = plain(given)
    assert tuple(found[key] for key in ("value", "low", "high", "reason")) == written


def test_a_threshold_may_be_infinite_without_a_word() -> None:
    tpr = Estimate(
        "tpr@0.01",
        0.0,
        0.0,
        0.2,
        0.95,
        "m",
        "measured",
        9,
        9,
        n_cal=9,
        threshold=math.inf,
        realised_fpr=0.0,
        realised_fpr_interval=(0.0, math.nan),
    )
    assert plain(tpr) | {"threshold": None, "realised_fpr_interval": None, "reason": None} == plain(tpr)


def test_where_null_has_no_meaning_nothing_is_written() -> None:
    with pytest.raises(UnreadableError, match="epochs: a finite number is needed"):
        as_text(Cost(math.nan))
