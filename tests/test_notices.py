"""What is told is a code with its data: each has its words in one module, and no program depends on them."""

import ast
import inspect
import io
import json
import string
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import fedaudit
from fedaudit.audit import patience
from fedaudit.cli import auditing, terminal
from fedaudit.config.schema import Config
from fedaudit.report.words import ValueText
from fedaudit.results import document as results
from fedaudit.results.document import Document, Failure
from fedaudit.results.gate import hidden, parse_rules
from fedaudit.results.redaction import redacted
from fedaudit.session.assemble import SEARCH_TIME
from fedaudit.session.replay import recorded_notices, replay
from fedaudit.session.run import rounds, run
from fedaudit.session.session import TOLD, Session, some
from fedaudit.stats.wording import since_round
from fedaudit.types import Curve, as_notices, former, gap, notice, once, warning
from fedaudit.words import FAULTS, LINES, WORDS, all_words, line, words
from tests.audit.test_tear import asking
from tests.report import builder
from tests.worlds import config, silent

SRC = Path(fedaudit.__file__).parent
STORED = Path(__file__).parent / "results" / "stored"

# ------------------------------------------------------------------ no module compares prose

LOOKING = {
    *("startswith", "endswith", "removeprefix", "removesuffix", "replace", "find", "index", "count"),
    *("split", "rsplit", "partition", "rpartition", "match", "fullmatch", "search", "findall", "compile", "sub"),
}
ALLOWED = {
    "integrations/options.py": "keys and options inside the text of an error become arguments of Python",
    "config/attack_registry.py": "the help of an option, without its default",
    "config/schema.py": "pydantic puts two words of its own before a message",
    "errors.py": "torch has no error of its own for too little memory",
    "cli/judging.py": "an outcome of `verify`, as its file has it",
    "cli/template.py": "the name of a section in brackets",
    "data/ids.py": "names of columns",
    "report/html.py": "numbers with a space before the per cent sign",
    "report/values.py": "terminal sequences, quotation marks, paths and names of parties",
    "report/words.py": "a word of results.json",
    "results/advice.py": "the name of a contender in advice.json",
}


def is_prose(node: ast.AST, constants: set[str]) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and " " in node.value.strip()
    if isinstance(node, ast.Name):
        return node.id in constants
    if isinstance(node, ast.JoinedStr | ast.Tuple | ast.List | ast.Set | ast.BinOp | ast.Starred):
        return any(is_prose(child, constants) for child in ast.iter_child_nodes(node))
    return False


def compares_prose(tree: ast.Module) -> list[str]:
    """Every comparison with a text of several words, and every search for one."""
    constants: set[str] = set()
    for one in tree.body:
        if isinstance(one, ast.Assign) and is_prose(one.value, set()):
            constants |= {name.id for target in one.targets for name in ast.walk(target) if isinstance(name, ast.Name)}
    found = []
    for node in ast.walk(tree):
        looked_at: list[ast.AST] = []
        if isinstance(node, ast.Compare):
            looked_at = [node.left, *node.comparators]
        elif isinstance(node, ast.MatchValue):
            looked_at = [node.value]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LOOKING:
            looked_at = [*node.args]
        if any(is_prose(each, constants) for each in looked_at):
            found.append(ast.unparse(node)[:100])
    return found


@cache
def trees() -> dict[str, ast.Module]:
    return {path.relative_to(SRC).as_posix(): ast.parse(path.read_text()) for path in sorted(SRC.rglob("*.py"))}


def test_no_module_compares_prose() -> None:
    found = {name: compared for name, tree in trees().items() if (compared := compares_prose(tree))}
    assert {name: compared for name, compared in found.items() if name not in ALLOWED} == {}
    assert {*ALLOWED} <= {*found}, "what needs no exception any more has none"


@pytest.mark.parametrize(
    "code",
    [
        "if line.startswith('The search for'): pass",
        "TIME = 'it took longer than'\nwhy.startswith(TIME)",
        "found = 'no result' in line",
        "if status == f'interrupted at {round}': pass",
        "title.replace('realised ', 'of it')",
        "match line:\n    case 'not audited': pass",
    ],
)
def test_a_comparison_with_prose_is_seen(code: str) -> None:
    assert compares_prose(ast.parse(code))


# ------------------------------------------------------------------ each code has its words, and its data fit them


def made() -> list[tuple[str, str, set[str] | None]]:
    """Where, which code, and the names of its data where all of them are written out."""
    found = []
    for where, tree in trees().items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            name = node.func.id if isinstance(node.func, ast.Name) else ""
            name = "guard" if isinstance(node.func, ast.Attribute) and node.func.attr == "guard" else name
            if name not in ("notice", "warning", "gap", "guard"):
                continue
            code, names = node.args[0], [keyword.arg for keyword in node.keywords]
            if isinstance(code, ast.Constant) and isinstance(code.value, str) and where != "types/former.py":
                data = None if None in names else {str(one) for one in names}
                found.append(
                    (where, code.value, {*data, "error", "why"} if data is not None and name == "guard" else data)
                )
    return found


def expected(code: str) -> tuple[set[str], bool]:
    """The names of the data that its words need, and whether there may be others."""
    wording = LINES.get(code) or WORDS[code]
    if isinstance(wording, str):
        return {str(name).split("!")[0] for _, name, _, _ in string.Formatter().parse(wording) if name}, True
    parameters = inspect.signature(wording).parameters.values()
    return {one.name for one in parameters if one.default is one.empty and one.kind is not one.VAR_KEYWORD}, any(
        one.kind is one.VAR_KEYWORD or one.default is not one.empty for one in parameters
    )


def test_every_notice_that_is_made_has_words_and_the_data_for_them() -> None:
    assert len(made()) > 90
    for where, code, data in made():
        if data == {"text"}:
            continue
        assert code in {**WORDS, **LINES}, (where, code)
        needed, more = expected(code)
        if data is not None:
            assert needed <= data, (where, code, needed - data)
            assert more or data <= needed, (where, code, data - needed)


def test_no_words_are_left_of_what_nobody_tells() -> None:
    elsewhere = [node for name, tree in trees().items() if name != "words/__init__.py" for node in ast.walk(tree)]
    written = {node.value for node in elsewhere if isinstance(node, ast.Constant)}
    assert {*WORDS, *LINES} - written == set()


def test_a_line_becomes_a_sentence_and_a_sentence_stays_one() -> None:
    assert line(gap("round-empty", round=3)) == "round 3 is empty: nobody sent a model"
    assert words(gap("round-empty", round=3)) == "Round 3 is empty: nobody sent a model."
    assert words(warning("below-chance", attack="loss")).startswith("loss ranks outsiders")
    assert all_words(["A sentence of somebody else's."]) == ["A sentence of somebody else's."]
    many = [gap("round-empty", round=number) for number in range(TOLD + 7)]
    assert words(some(many)[-1]) == "And 7 more like these."
    assert len(some(many)) == TOLD + 1


def test_notices_are_stored_and_told_once() -> None:
    told = [warning("twins", shared=1, of=2, unit="record"), gap("no-record", rounds=[1, 2]), notice("text", text="a")]
    assert [*as_notices(json.loads(json.dumps([one.stored() for one in told])))] == told
    assert once([*told, *told]) == told
    assert notice("canary-weak", norm=float("nan")).stored()["data"] == {"norm": None}


# ------------------------------------------------------------------ results say both


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("notices") / "run"
    run(config(audit={"attacks": ["loss", "fta-loss"], "fusion": {"attacks": ["fta-loss", "fta-logit"]}}), out, silent)
    return out


def test_results_have_a_code_for_every_sentence(finished: Path) -> None:
    document = results.load(finished)
    assert document.run.ended == "complete"
    assert {"section-unread", "fpr-left-out"} <= {one.code for one in document.told}
    assert all_words(document.told) == [*document.warnings, *document.notices]
    stored = json.loads((finished / "results.json").read_text())
    assert {"code": "section-unread", "level": "notice", "data": {"section": "fusion"}} in stored["told"]
    passed_on = redacted(document)
    assert [one.code for one in passed_on.told] == [*(one.code for one in document.told), "redacted"]
    assert all_words(passed_on.told) == [*passed_on.warnings, *passed_on.notices]


def test_a_run_json_has_both_and_the_former_one_is_read() -> None:
    told = [notice("coins-split"), notice("search-time", records=1, queries=2, per_second=3.0, given_up=60.0)]
    both = {"notices": all_words(told), "told": [one.stored() for one in told]}
    assert [*recorded_notices(both)] == told
    sentences = {"notices": all_words(told)}
    assert [one.code for one in recorded_notices(sentences)] == ["text", "search-time"]
    assert all_words(recorded_notices(sentences)) == sentences["notices"]
    newer = {"notices": ["Something new."], "told": [{"code": "of-tomorrow", "level": "notice", "data": {}}]}
    assert all_words(recorded_notices(newer)) == ["Something new."]


@pytest.mark.parametrize("name", sorted(path.name for path in STORED.glob("*.json")))
def test_results_of_the_former_version_say_as_much(name: str) -> None:
    values = json.loads((STORED / name).read_text())
    document = results.brought_up(Document.from_json(values))
    assert document.run.ended is not None
    assert all_words(document.told) == [*values["warnings"], *values["notices"]]
    for curve in [one for entry in document.results for one in entry.curves.values()]:
        assert curve.simultaneous == ("simultaneous" in curve.method)


@pytest.mark.parametrize(
    ("status", "ending"),
    [
        ("complete", "complete"),
        ("interrupted at round 3", "interrupted"),
        ("interrupted before every party was isolated", "interrupted"),
        ("degraded", "degraded"),
        ("recorded with gaps, up to round 2 of 4", "recorded"),
        ("not audited", "not-audited"),
    ],
)
def test_how_former_runs_ended(status: str, ending: str) -> None:
    assert former.ending(status) == ending


# ------------------------------------------------------------------ other words change nothing


@pytest.fixture
def garbled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every notice is told in the same two words."""
    for table in (WORDS, LINES):
        for code in table:
            monkeypatch.setitem(table, code, "other words")


def document_of(**changes: Any) -> Document:
    return replace(builder.read(builder.results()), **changes)


@pytest.mark.usefixtures("garbled")
def test_the_time_of_a_search_is_told_and_not_repeated_whatever_its_words(tmp_path: Path) -> None:
    lines: list[str] = []
    plain = asking(["boundary"], federation={"rounds": 3}).as_dict()
    plain["audit"]["keep"] = "snapshots"

    def two(prepared: Any, *given: Any) -> Any:
        yield from islice(rounds(prepared, *given), 2)

    run(Config.model_validate(plain), tmp_path / "run", silent, tell=lines.append, engine=two)
    assert lines[1:] == ["other words"]  # the first line says what is trained on
    again = replay(tmp_path / "run", [], tmp_path / "again", silent)  # which measures the stored models again
    assert [one.code for one in again.told].count(SEARCH_TIME) == 1


def test_what_took_too_long_is_known_by_its_code() -> None:
    error = patience.TooLongError(4)
    error.what = "other words"
    told = patience.failure(error)
    assert (told.code, words(told)) == (patience.HANGS, "other words")
    assert patience.failure(ValueError()).code == "fault"


@pytest.mark.usefixtures("garbled")
def test_what_was_told_of_repeats_is_replaced_whatever_its_words() -> None:
    other = gap("round-empty", round=1)
    document = document_of(warnings=(), notices=(), degraded=(), told=()).lacking(other)
    document = document.noting(notice("coins-split")).lacking(gap("repeat-not-trained", seed=1))
    again = document.without(auditing.REPEATS)
    assert [one.code for one in again.told] == ["round-empty", "coins-split"]
    assert (again.warnings, again.notices) == (["Other words."], ["other words"])
    # Of a former version the sentences alone are known, and two that are the same are the same.
    old = ["Repeat with seed 1: not trained.", "Round 1 is empty."]
    kept = document_of(warnings=old, notices=["A notice."], degraded=old, told=()).without(auditing.REPEATS)
    assert (kept.warnings, kept.notices, kept.degraded) == (["Round 1 is empty."], ["A notice."], ["Round 1 is empty."])


def test_the_gate_looks_at_how_a_run_ended_and_at_places_in_a_list() -> None:
    (rule,) = parse_rules("auc[attack=loss] > 0.9")
    document = document_of()
    assert hidden(document, rule) == ""
    interrupted = replace(document, run=replace(document.run, status="other words", ended="interrupted"))
    assert hidden(interrupted, rule)
    other = replace(document, failed=[Failure("merlin", "x")], degraded=["other words"])
    assert hidden(other, rule) == ""
    assert hidden(replace(other, failed=[Failure("loss", "x")]), rule)
    assert hidden(replace(other, degraded=["other words", "and more"]), rule)


def test_a_band_holds_for_all_rounds_whatever_its_method_is_called() -> None:
    curve = Curve([1, 2], [0.6, 0.7], [0.55, 0.6], [0.7, 0.8], "other words", simultaneous=True)
    assert since_round(curve, 0.5) == 1
    assert since_round(replace(curve, method="simultaneous over rounds", simultaneous=False), 0.5) is None


def test_reasons_are_below_the_table_whatever_they_say(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    monkeypatch.setattr(terminal, "console", Console(file=shown, width=80))
    notes = terminal.Notes()
    assert notes.short(ValueText("–", "too few (of 3)")) == "– [1]"
    assert notes.short(ValueText("–", "other words")) == "– [2]"
    assert notes.short(ValueText("–", "too few (of 3)")) == "– [1]"
    assert (notes.short(ValueText("0.7 (0.6–0.8)")), notes.short(ValueText("– (a value)"))) == (
        "0.7 (0.6–0.8)",
        "– (a value)",
    )
    notes.show()
    assert "[1] too few (of 3)" in shown.getvalue()


@pytest.mark.usefixtures("garbled")
def test_a_fault_is_a_gap_whatever_its_words() -> None:
    session = Session(None)
    for code in FAULTS:
        with session.guard(code, round=1):
            raise FileNotFoundError(2, "No such file or directory")
    assert [one.code for one in session.gaps] == [*FAULTS]
    assert {one.data["why"] for one in session.gaps} == {"No such file or directory"}
    assert {words(one) for one in session.gaps} == {"Other words."}


@pytest.mark.usefixtures("garbled")
def test_an_error_that_was_told_is_known_again_whatever_its_words() -> None:
    import logging

    from fedaudit.errors import FedauditError
    from fedaudit.integrations.recorder import is_about, tell_unaudited

    error = FedauditError("party-game", "the game is about 2 parties", "Give one.")
    told = tell_unaudited(logging.getLogger("tests"), 3, error)
    assert is_about(told, error)
    assert not is_about(told, FedauditError("party-game", "the game is about 3 parties", "Give one."))
    assert not is_about(gap("line", text="the game is about 2 parties"), error)
