"""Properties that hold for whatever is read: it is taken as it was meant, or refused in words.

A few dozen examples of each, the same ones every time. `make soak` draws thousands of new ones.
"""

import csv
import io
import os
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import save_file

from fedaudit import data
from fedaudit.config import attack_registry
from fedaudit.config.registry import DATA, DEFENCES, MODELS, Registry
from fedaudit.config.schema import Config, load_config, parse
from fedaudit.config.section import Section
from fedaudit.data.cells import ABSENT, SEPARATORS, read_columns
from fedaudit.data.game_file import load_game
from fedaudit.errors import FedauditError, printable
from fedaudit.integrations import checkpoints
from fedaudit.results.gate import parse_rules
from fedaudit.results.scores import estimate
from fedaudit.toml import toml, written
from fedaudit.trace import journal
from fedaudit.trace.segments import DamagedError, digest, pack_state, unpack_state
from fedaudit.trace.store import safe_name
from tests.fuzz.readers import READERS, attempted, is_read

EXAMPLES = int(os.environ.get("FEDAUDIT_EXAMPLES", "0"))
SLOW = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]


def tried(few: int = 40) -> settings:
    return settings(
        max_examples=EXAMPLES or few,
        deadline=None,
        derandomize=not EXAMPLES,
        database=None,
        suppress_health_check=SLOW,
    )


@contextmanager
def folder() -> Iterator[Path]:
    """A new one for each example, which pytest's is not."""
    with tempfile.TemporaryDirectory() as place:
        yield Path(place)


# ------------------------------------------------------------------ configurations


def keys_of(section: type[Section]) -> dict[str, Any]:
    """All keys, with a section's own below them."""
    return {name: _inner(info.annotation) for name, info in section.model_fields.items()}


def _inner(annotation: Any) -> dict[str, Any]:
    kinds = [annotation, *getattr(annotation, "__args__", ())]
    found = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Section)]
    return keys_of(found[0]) if found else {}


def named(registry: Registry) -> st.SearchStrategy[dict[str, Any]]:
    """A section that names an entry, with some of this entry's keys."""

    def of(name: str) -> st.SearchStrategy[dict[str, Any]]:
        own = st.dictionaries(st.sampled_from([*registry.entries[name].keys, "name"]), VALUES, max_size=4)
        return own.map(lambda given: {"name": name, **given})

    return st.sampled_from([*registry.entries]).flatmap(of)


WORDS = st.text(st.characters(exclude_characters=":", exclude_categories=["Cs"]), max_size=8)
NUMBERS = st.one_of(
    st.integers(-3, 12), st.integers(), st.floats(), st.floats(0, 1), st.sampled_from([2**63, 10**400, -(2**70)])
)
KNOWN = st.sampled_from(
    ["iid", "dirichlet", "column", "subjects", "loss", "fta+signal=loss", "fta-confidence", "tear", "label", "server",
     "client", "adam", "poisson", "record", "signals", "auto", "all", "layer.weight", "fedsgd", "subject", "agg-mal"]
)  # fmt: skip
PLAIN = st.one_of(NUMBERS, KNOWN, st.booleans(), WORDS)
VALUES: st.SearchStrategy[Any] = st.recursive(
    PLAIN,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.one_of(KNOWN, WORDS), inner, max_size=3)),
    max_leaves=6,
)


@st.composite
def sections(draw: st.DrawFn, keys: Mapping[str, Any]) -> dict[str, Any]:
    chosen = draw(st.lists(st.sampled_from([*keys]), max_size=4, unique=True))
    return {key: draw(sections(keys[key]) if keys[key] and draw(st.booleans()) else VALUES) for key in chosen}


CONFIGS = st.fixed_dictionaries(
    {},
    optional={
        "data": st.one_of(named(DATA), VALUES),
        "model": st.one_of(named(MODELS), VALUES),
        "defences": st.one_of(st.lists(named(DEFENCES), max_size=2), VALUES),
        "federation": st.one_of(sections(_inner(Config.model_fields["federation"].annotation)), VALUES),
        "audit": st.one_of(sections(_inner(Config.model_fields["audit"].annotation)), VALUES),
        "adit": VALUES,
    },
)


@tried(60)
@given(raw=CONFIGS)
def test_B16_B2_any_tree_is_a_configuration_or_refused(raw: dict[str, Any]) -> None:
    config = attempted(lambda: parse(raw))
    if isinstance(config, FedauditError):
        return
    with folder() as place:
        (place / "c.toml").write_text(written(config.as_dict()), encoding="utf-8")
        assert load_config(place / "c.toml").hash() == config.hash()


@tried(100)
@given(key=st.sampled_from(["federation", "audit", "data", "model", "audit.reference", "audit.tear"]), value=VALUES)
def test_B16_any_word_after_set_is_taken_or_refused(key: str, value: Any) -> None:
    known = {"federation": "rounds", "audit": "fpr", "data": "path", "model": "hidden", "audit.reference": "alpha"}
    for text in (str(value), repr(value)):
        override = f"{key}.{known.get(key, 'queries')}={text}"
        attempted(partial(parse, {}, [override]))


@tried(100)
@given(tree=st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), VALUES, max_size=4))
def test_what_is_written_as_toml_is_read_back(tree: dict[str, Any]) -> None:
    try:
        text = "".join(f"{toml(key)} = {toml(value)}\n" for key, value in tree.items())
        text.encode()
    except (ValueError, TypeError):
        assume(False)
    assert str(tomllib.loads(text)) == str(tree)


# ------------------------------------------------------------------ tables

CELLS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12),
    st.integers().map(str),
    st.floats().map(str),
    st.sampled_from(
        [
            "",
            " ",
            "NA",
            "1,5",
            "1.234,5",
            "1,234",
            "=cmd()",
            '"',
            '""',
            "a;b",
            "x\ty",
            "\u2028",
            "0x1F",
            "1e400",
            "\ufeff",
            "'",
        ]
    ),
)


@st.composite
def tables(draw: st.DrawFn, cells: st.SearchStrategy[str] = CELLS) -> list[list[str]]:
    width = draw(st.integers(1, 4))
    names = draw(st.lists(st.one_of(WORDS, st.sampled_from(["y", "a", "b", "id"])), min_size=width, max_size=width))
    rows = draw(st.lists(st.lists(cells, min_size=width, max_size=width), max_size=6))
    return [names, *rows]


def as_csv(rows: list[list[str]], delimiter: str, quoting: Any, ends: str) -> str:
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, quoting=quoting, lineterminator=ends).writerows(rows)
    return text.getvalue()


def one_line_end(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n").strip()


def meant(cell: str) -> str:
    cell = one_line_end(cell)
    return "" if cell.lower() in ABSENT else cell


@tried(150)
@given(
    rows=tables(),
    delimiter=st.sampled_from([*SEPARATORS]),
    quoting=st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]),
    ends=st.sampled_from(["\n", "\r\n"]),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "latin-1"]),
)
def test_B21_a_table_comes_back_cell_by_cell_or_is_refused(
    rows: list[list[str]], delimiter: str, quoting: Any, ends: str, encoding: str
) -> None:
    blob = as_csv(rows, delimiter, quoting, ends).encode(encoding, errors="replace")
    with folder() as place:
        (place / "t.csv").write_bytes(blob)
        found = attempted(lambda: read_columns(place / "t.csv"))
    if isinstance(found, FedauditError):
        return
    for column in found.values():
        assert len(column.cells) == len(column.read)
        numbers = attempted(partial(getattr, column, "numbers"))
        assert numbers is None or isinstance(numbers, FedauditError) or len(numbers) == len(column)
    if encoding.startswith("utf-8"):
        kept = [row for row in rows[1:] if any(row)]
        assert [*map(one_line_end, found)] == [one_line_end(name) for name in rows[0]]
        assert [[meant(cell) for cell in row] for row in kept] == [
            [meant(str(cell)) for cell in row] for row in zip(*(column.cells for column in found.values()), strict=True)
        ]


@tried()
@given(
    rows=tables(st.one_of(CELLS, st.sampled_from(["0", "1", "2.5"]))),
    task=st.sampled_from(["classification", "regression"]),
)
def test_any_table_is_learnt_from_or_refused_without_quoting_it(rows: list[list[str]], task: str) -> None:
    secret = "MARKER-7391"
    rows = [
        rows[0],
        *([f"{secret}{cell}" if cell and not cell[:1].isdigit() else cell for cell in row] for row in rows[1:]),
    ]
    with folder() as place:
        (place / "t.csv").write_text(as_csv(rows, ",", csv.QUOTE_ALL, "\n"), encoding="utf-8")
        asked = {"name": "table", "path": place / "t.csv", "label": "y", "task": task, "impute": "mean"}
        found = attempted(lambda: data.load(DATA.read(asked)))
    if isinstance(found, FedauditError):
        assert secret not in str(found)
    else:
        assert np.isfinite(found.records.x).all()


# ------------------------------------------------------------------ score files


@tried(12)
@given(
    members=st.lists(st.sampled_from(["1", "0", "yes", "no", "TRUE", "false", "1.0"]), min_size=30, max_size=60),
    scores=st.lists(st.one_of(st.floats(-5, 5), st.sampled_from([0.0, 1.0])), min_size=60, max_size=60),
    odd=st.sampled_from(["", "nan", "inf", "-inf", "1e309", "x", "1,5"]),
    place=st.integers(0, 200),
    seed=st.integers(0, 9),
)
def test_T1_K28_scores_give_the_same_in_any_order_or_are_refused(
    members: list[str], scores: list[float], odd: str, place: int, seed: int
) -> None:
    rows = [[f"r{i}", member, repr(scores[i])] for i, member in enumerate(members)]
    if place < len(rows):
        rows[place][2] = odd
    shuffled = [rows[i] for i in np.random.default_rng(seed).permutation(len(rows))]
    said = []
    with folder() as here:
        for order in (rows, shuffled):
            (here / "s.csv").write_text(as_csv([["id", "member", "score"], *order], ",", csv.QUOTE_MINIMAL, "\n"))
            found = attempted(lambda: estimate(here / "s.csv", (0.5,), 0.95))
            if isinstance(found, FedauditError):
                said.append(found.code)
                continue
            said.append(repr(found.estimates))
            for one in found.estimates.values():
                assert one.value is None or 0 <= one.value <= 1
                assert one.low is None or one.high is None or 0 <= one.low <= one.high <= 1
    assert said[0] == said[1]


# ------------------------------------------------------------------ checkpoints and arrays

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=10)
FLOATS = st.sampled_from([np.float16, np.float32, np.float64, np.int64, np.int32, np.uint8, np.int8, np.bool_])
ARRAYS = FLOATS.flatmap(lambda kind: hnp.arrays(kind, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)))
STATES = st.dictionaries(NAMES, ARRAYS, max_size=4)


@tried()
@given(state=STATES)
def test_B8_a_checkpoint_comes_back_bit_by_bit(state: dict[str, Any]) -> None:
    with folder() as place:
        path = place / "round-1.safetensors"
        try:
            save_file(state, path)
        except Exception:  # names that safetensors keeps for itself
            assume(False)
        found = checkpoints.read(path, False)
    assert {name: (value.dtype, value.shape, value.tobytes()) for name, value in found.items()} == {
        name: (value.dtype, value.shape, value.tobytes()) for name, value in state.items()
    }


@tried()
@given(state=STATES, flipped=st.integers(0, 8 * 400))
def test_F12_B8_a_stored_model_comes_back_bit_by_bit_or_not_at_all(state: dict[str, Any], flipped: int) -> None:
    assume("__metadata__" not in state)
    blob, known = pack_state(state), digest(state)
    found = unpack_state(blob, known)
    assert list(found) == list(state)
    assert digest(found) == known
    damaged = bytearray(blob)
    damaged[flipped // 8 % len(blob)] ^= 1 << flipped % 8
    again = attempted(lambda: unpack_state(bytes(damaged), known))
    assert isinstance(again, DamagedError) or digest(again) == known  # some bits mean nothing, such as those of a space


ANY_ARRAY = st.one_of(
    ARRAYS,
    hnp.arrays(
        st.sampled_from(["<U3", "S3", "complex64", "datetime64[s]", "timedelta64[D]", ">f8", "<f4,<i2"]),
        hnp.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=3),
    ),
    hnp.arrays(np.float64, st.tuples(st.just(3), st.just(2))),
    hnp.arrays(np.int64, st.just(3), elements=st.integers(0, 2)),
    st.just(np.array(["member", "evaluation", "calibration"])),
)


@tried(120)
@given(
    arrays=st.dictionaries(
        st.sampled_from(["x", "y", "id", "subject", "attribute", "party", "role", "n_features", "s"]), ANY_ARRAY
    ),
    tokens=st.booleans(),
    task=st.sampled_from(["classification", "regression"]),
)
def test_B17_any_arrays_are_data_and_a_game_or_refused(arrays: dict[str, Any], tokens: bool, task: str) -> None:
    with folder() as place:
        path = place / "a.npz"
        np.savez(path, allow_pickle=False, **arrays)
        asked = {"name": "npz", "path": path, "tokens": tokens, "task": task}
        asked |= {"session_key": "s"} if "s" in arrays else {}
        attempted(lambda: load_game(path))
        attempted(lambda: data.load(DATA.read(asked)))


# ------------------------------------------------------------------ names, rules, words, lines


@tried(200)
@given(names=st.lists(st.text(), min_size=2, max_size=4, unique=True))
def test_B18_names_of_parties_are_files_apart_and_stay_in_their_folder(names: list[str]) -> None:
    files = [safe_name(name) for name in names]
    assert len({file.lower() for file in files}) == len(names)
    for file in files:
        assert Path(file).name == file
        assert 0 < len(file) <= 41
        assert not file.startswith(".")


@tried(200)
@given(text=st.text())
def test_B18_nothing_printed_is_obeyed(text: str) -> None:
    said = str(FedauditError("code", text, text))
    assert all(char in "\n\t" or printable(char) == char for char in said)


METRICS = st.sampled_from(["auc", "tpr@0.01", "tpr@0.001", "tpr@2", "accuracy", "epsilon", "tpr", "auc@0.1", "x"])
SIGNS = st.sampled_from([">", ">=", "<", "<=", "=", "<>", "≥", ""])
LIMITS = st.one_of(
    st.floats().map(str), st.floats(0, 1).map(str), st.sampled_from(["5%", "0,05", "nan", "inf", "1_0", "٠"])
)
SELECTED = st.dictionaries(st.sampled_from(["attack", "vantage", "party", "model"]), st.text(max_size=6), max_size=3)


@st.composite
def rules(draw: st.DrawFn) -> str:
    chosen = draw(SELECTED)
    bracket = f"[{', '.join(f'{key}={value}' for key, value in chosen.items())}]" if chosen else ""
    return f"{draw(METRICS)}{bracket} {draw(SIGNS)} {draw(LIMITS)}"


@tried(200)
@given(
    text=st.one_of(
        rules(), st.tuples(rules(), st.sampled_from([" and ", " or ", " "]), rules()).map("".join), st.text()
    ),
    ends=st.tuples(st.floats(0, 1), st.floats(0, 1)).map(sorted),
)
def test_E2_a_rule_is_understood_or_refused_and_never_both_kept_and_broken(text: str, ends: list[float]) -> None:
    found = attempted(lambda: parse_rules(text))
    if isinstance(found, FedauditError):
        assert found.code == "gate-rule"
        return
    for rule in found:
        assert np.isfinite(rule.limit)
        assert not (rule.broken_for_sure(*ends) and rule.kept_for_sure(*ends))
        assert not rule.broken_for_sure(None, None)
        assert not rule.kept_for_sure(None, None)


VALUE = st.one_of(st.text(), st.lists(st.text(), max_size=3))


@tried(200)
@given(name=st.sampled_from(["fta", "a:b"]), options=st.dictionaries(st.from_regex(r"[a-z_]+", fullmatch=True), VALUE))
def test_an_attack_and_its_options_survive_being_one_word(name: str, options: dict[str, Any]) -> None:
    word = attempted(lambda: attack_registry.written(name, options))
    assume(not isinstance(word, FedauditError))
    assert attack_registry.read_word(word) == (name, options)


@tried(200)
@given(word=st.one_of(st.text(), st.lists(st.one_of(KNOWN, WORDS), min_size=1, max_size=4).map("+".join)))
def test_B16_any_word_is_an_attack_or_refused(word: str) -> None:
    assume(":" not in word)
    is_read("attack", word.encode(errors="surrogatepass"), Path())


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner, max_size=3)),
    max_leaves=8,
)
EVENTS = st.lists(
    st.dictionaries(st.text(min_size=2), JSON, max_size=3).map(lambda rest: {**rest, "event": "x"}), max_size=5
)


@tried(100)
@given(events=EVENTS, taken=st.integers(0, 9), flipped=st.integers(0, 4000), torn=st.integers(0, 40))
def test_F12_F1_a_journal_tells_what_is_whole_and_what_is_missing(
    events: list[dict[str, Any]], taken: int, flipped: int, torn: int
) -> None:
    events = [{key: value for key, value in event.items() if key != "check"} for event in events]
    lines = [journal.encode(number, event) for number, event in enumerate(events, start=1)]
    with folder() as place:
        path = place / journal.JOURNAL
        path.write_bytes(b"".join(lines))
        whole = journal.read(path)
        assert [{key: value for key, value in event.items() if key != "n"} for event in whole.events] == events
        assert (whole.damaged, whole.torn, whole.removed) == ([], False, 0)
        kept = [line for number, line in enumerate(lines) if number != taken]
        blob = bytearray(b"".join(kept))
        if blob:
            blob[flipped // 8 % len(blob)] ^= 1 << flipped % 8
        path.write_bytes(blob[: len(blob) - torn] if torn else blob)
        found = journal.read(path)
    assert all(event in whole.events for event in found.events)
    if len(found.events) < len(kept):
        assert found.torn or found.damaged or found.removed


# ------------------------------------------------------------------ bytes of every kind of file


@pytest.mark.parametrize("name", [*READERS])
def test_B17_F12_damaged_bytes_are_read_or_refused(name: str, tmp_path: Path) -> None:
    """Bytes of a whole file that were changed, cut off, doubled or taken from elsewhere."""
    wholes = [*READERS[name].whole()]

    @tried(4)
    @given(st.data())
    def damaged(draw: st.DataObject) -> None:
        blob = bytearray(draw.draw(st.sampled_from(wholes)))
        for _ in range(draw.draw(st.integers(1, 3))):
            place = draw.draw(st.integers(0, max(0, len(blob) - 1)))
            end = draw.draw(st.integers(place, min(len(blob), place + 20)))
            blob[place:end] = draw.draw(st.one_of(st.binary(max_size=8), st.just(bytes(blob[place:end]) * 2)))
        is_read(name, bytes(blob), tmp_path)

    damaged()
