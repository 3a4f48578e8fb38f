"""Do the tests bite? Breaks a hundred lines of the audit, one at a time, and sees which test notices.

    python -m docs.make_mutants [--jobs 2] [--only 17,23 [--tests tests/a.py tests/b.py]] [--kept build/mutants]

Twenty-five mutants each of `audit`, `questions`, `results` and `stats`, drawn by a fixed seed from all places where a
comparison, a sign, a constant, a condition or a minimum can be turned round, and found again by the text of their
lines. The tests of eight folders run once to see which of them reach a mutant; then it meets tests that reach it, in
the files that are most about it, the quickest first. docs/mutants.md is written at the end.

What was seen stays in the folder `--kept`: a run that was stopped goes on from there. `--only` tries its mutants anew,
with `--tests` against these files: those that were written since, or that lie in other folders.
"""

import argparse
import ast
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).parent.parent
SOURCES = ROOT / "src" / "fedaudit"
ROOMS, EACH, SEED = ("audit", "questions", "results", "stats"), 25, 26
DRAWN_AT = "f88587d"  # the commit whose lines were drawn from: a house that grows would have other mutants every day
# Whole commands, frameworks and simulations of coverage are left out: they take most of the time, and notice little
# that the tests of the rooms do not. What survives here may still be noticed by them.
FOLDERS = ("adversary", "audit", "federation", "fuzz", "questions", "report", "results", "stats")
TESTS = ["-m", "not evidence and not simulation"]
FILES, SECONDS = 8, 100  # test files for a mutant, and how long their tests may take when nothing is broken
INERT = ("frozen", "kw_only", "strict", "maxsize")  # they guard against mistakes of programmers, or cost time
# Changes that nobody can notice, by the line and what it becomes; and why.
EQUIVALENT = {
    (
        "return math.log(self.m * self.n) + 10  # so few trials never prove more",
        "return math.log(self.m * self.n) + 11  # so few trials never prove more",
    ): "where a search for an epsilon ends; so many trials prove nothing near it.",
}
SWAPS: dict[type[ast.AST], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
}


@dataclass(frozen=True)
class Mutant:
    path: Path
    line: int
    start: int  # where the old text lies in the file, in bytes
    end: int
    old: str
    new: str

    @property
    def text(self) -> str:
        return f"`{self.path.relative_to(SOURCES)}:{self.line}` `{self.old}` becomes `{self.new}`"

    @property
    def code(self) -> tuple[str, str]:
        """The line as it is, and as it becomes: what the mutant is known by where other lines move it."""
        source = self.path.read_bytes()
        begin, end = source.rfind(b"\n", 0, self.start) + 1, source.find(b"\n", self.end)
        broken = source[begin : self.start] + self.new.encode() + source[self.end : end]
        return source[begin:end].decode().strip(), broken.decode().strip()

    def applied(self) -> str:
        source = self.path.read_bytes()
        return (source[: self.start] + self.new.encode() + source[self.end :]).decode()


def mutants_of(path: Path) -> Iterator[Mutant]:
    """Every place of a file that can be turned round. Words, annotations and slots of text are left alone."""
    source = path.read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def at(line: int, column: int) -> int:
        return starts[line - 1] + column

    def between(left: ast.expr, right: ast.expr, kind: ast.AST) -> Iterator[Mutant]:
        old, new = SWAPS[type(kind)]
        begin, end = at(left.end_lineno or 0, left.end_col_offset or 0), at(right.lineno, right.col_offset)
        found = re.search(rb"(?<![\w<>=!*/])" + re.escape(old.encode()) + rb"(?![=*/\w])", source[begin:end])
        if found and b"\n" not in source[begin:end]:
            place = begin + found.start()
            yield Mutant(path, left.end_lineno or 0, place, place + len(old), old, new)

    for node in _running(ast.parse(source)):
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in SWAPS:
            yield from between(node.left, node.comparators[0], node.ops[0])
        elif isinstance(node, ast.BoolOp):
            yield from between(node.values[0], node.values[1], node.op)
        elif isinstance(node, ast.BinOp) and type(node.op) in SWAPS and not _is_text(node):
            yield from between(node.left, node.right, node.op)
        elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            begin, end = at(node.lineno, node.col_offset), at(node.end_lineno or 0, node.end_col_offset or 0)
            yield Mutant(path, node.lineno, begin, end, source[begin:end].decode(), _other(node.value))
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            begin = at(node.lineno, node.col_offset)
            yield Mutant(path, node.lineno, begin, begin + 4, "not ", "")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("min", "max"):
            begin = at(node.func.lineno, node.func.col_offset)
            new = {"min": "max", "max": "min"}[node.func.id]
            yield Mutant(path, node.lineno, begin, begin + 3, node.func.id, new)


def _other(value: float) -> str:
    if isinstance(value, bool):
        return str(not value)
    return str(value + 1) if isinstance(value, int) else str(value * 1.5 if value else 0.5)


def _is_text(node: ast.BinOp) -> bool:
    sides = (node.left, node.right)
    return any(isinstance(s, ast.JoinedStr) or (isinstance(s, ast.Constant) and type(s.value) is str) for s in sides)


def _running(node: ast.AST) -> Iterator[ast.AST]:
    """What runs and is no text: without f-strings, annotations, assertions and what only a type checker reads."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.JoinedStr | ast.Assert | ast.Raise | ast.Subscript):
            continue
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        if isinstance(child, ast.keyword) and child.arg in INERT:
            continue
        yield child
        yield from _running(child)


def drawn() -> list[tuple[int, Mutant]]:
    """The mutants with their numbers, where they are now. What is no longer there is left out."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(["git", "archive", DRAWN_AT, "src"], cwd=ROOT, capture_output=True, check=True).stdout
        subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
        then = Path(folder) / SOURCES.relative_to(ROOT)
        for room in ROOMS:
            every = [mutant for path in sorted((then / room).rglob("*.py")) for mutant in mutants_of(path)]
            found += [again(mutant, then) for mutant in random.Random(f"{SEED} {room}").sample(every, EACH)]
    return [(number, mutant) for number, mutant in enumerate(found, start=1) if mutant]


def again(mutant: Mutant, then: Path) -> Mutant | None:
    """The same change of the same line today; of several such lines, the one at the same place among them."""

    def alike(path: Path) -> list[Mutant]:
        return [other for other in mutants_of(path) if other.code == mutant.code] if path.exists() else []

    place = alike(mutant.path).index(mutant)
    today = alike(SOURCES / mutant.path.relative_to(then))
    return today[place] if place < len(today) else None


PROBE = """
import json, os, time
FOLDER = os.environ["REACHED"]
BEFORE = set(json.loads(os.environ["BEFORE"]))
seen = set()
def pytest_collection_modifyitems(items):
    items[:] = [item for item in items if item.nodeid not in BEFORE]
def hit(mutant):
    test, _, phase = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")
    if (mutant, test, phase) not in seen:
        seen.add((mutant, test, phase))
        with open(f"{FOLDER}/{os.getpid()}.hits", "a") as file:
            file.write(json.dumps([mutant, test, phase]) + "\\n")
def pytest_runtest_logreport(report):
    if "PYTEST_XDIST_WORKER" not in os.environ:
        with open(f"{FOLDER}/seconds", "a") as file:
            file.write(json.dumps([report.nodeid, report.duration, report.outcome]) + "\\n")
"""


@dataclass(frozen=True)
class Reached:
    """Which tests run the function that a mutant lies in, and how long each test takes."""

    tests: dict[int, list[str]]
    seconds: dict[str, float]

    def best(self, number: int, mutant: Mutant, most: float) -> list[str]:
        """Tests that reach a mutant, in the files that mention most of its module, the quickest first. A constant that
        is read on import is reached by no test that can be seen: all tests of these files."""
        reaching = self.tests.get(number) or list(self.seconds)
        ranked = [file for file in mentioning(mutant) if any(test.startswith(f"{file}::") for test in reaching)]
        chosen, spent = list[str](), 0.0
        for test in sorted(reaching, key=lambda test: self.seconds[test]):
            spent += self.seconds[test] * (test.split("::")[0] in ranked[:FILES])
            if test.split("::")[0] in ranked[:FILES] and (not chosen or spent <= most):
                chosen.append(test)
        return chosen


def reached_by_tests(chosen: list[tuple[int, Mutant]], kept: Path) -> Reached:
    """Runs all tests on a copy in which each mutant's function tells that it is run. What is in the folder already
    was seen by a run that was stopped."""
    before = {test for test, _, _ in _lines(kept / "seconds")}
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "src" / "fedaudit"
        shutil.copytree(SOURCES, copy, ignore=shutil.ignore_patterns("__pycache__"))
        (copy.parent / "fedaudit_probe.py").write_text(PROBE)
        for path in {mutant.path for _, mutant in chosen}:
            (copy / path.relative_to(SOURCES)).write_text(_telling(path, [c for c in chosen if c[1].path == path]))
        command = [sys.executable, "-m", "pytest", "-p", "fedaudit_probe", "-p", "no:cacheprovider", "-n", "2"]
        probing = {"REACHED": str(kept), "BEFORE": json.dumps(sorted(before))}
        done = subprocess.run(
            [*command, "--dist", "worksteal", *TESTS, *(f"tests/{folder}" for folder in FOLDERS)],
            cwd=ROOT,
            env=_environment(copy) | probing,
            check=False,
        )
    if done.returncode not in (0, 1, 5):  # passed, failed, nothing left to run
        sys.exit(f"pytest ended with {done.returncode}: start again to go on")
    seconds: dict[str, float] = {}
    failed = set()
    for test, took, outcome in _lines(kept / "seconds"):
        seconds[test] = seconds.get(test, 0) + took
        if outcome != "passed" or "\n" in test or "\\n" in test:
            failed.add(test)  # what is skipped notices nothing, and such a name cannot be asked for
    tests: dict[int, set[str]] = {}
    for path in kept.glob("*.hits"):
        for mutant, test, phase in _lines(path):
            # What a file's fixture does is looked at by all of its tests.
            of_file = [other for other in seconds if other.split("::")[0] == test.split("::")[0]]
            tests.setdefault(mutant, set()).update(of_file if phase == "(setup)" else [test])
    usable = {test: took for test, took in seconds.items() if test not in failed}
    return Reached({m: sorted(t for t in found if t in usable) for m, found in tests.items()}, usable)


def _telling(path: Path, mutants: list[tuple[int, Mutant]]) -> str:
    lines = path.read_text().splitlines(keepends=True)
    functions = [n for n in ast.walk(ast.parse("".join(lines))) if isinstance(n, ast.FunctionDef)]
    places = []
    for number, mutant in mutants:
        around = [f for f in functions if f.body[0].lineno <= mutant.line <= (f.end_lineno or 0)]
        if around:
            body = max(around, key=lambda function: function.lineno).body
            first = (
                body[1]
                if len(body) > 1 and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
                else body[0]
            )
            places.append((first.lineno, first.col_offset, number))
    for line, column, number in sorted(places, reverse=True):
        lines.insert(line - 1, " " * column + f'__import__("fedaudit_probe").hit({number})\n')
    return "".join(lines)


def _lines(path: Path) -> list[list[Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _environment(copy: Path) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(copy.parent), str(ROOT)]), "OMP_NUM_THREADS": "1"}


def mentioning(mutant: Mutant) -> list[str]:
    """The test files that mention most of what the module defines, and the module itself most of all."""
    module = ".".join(("fedaudit", *mutant.path.relative_to(SOURCES).with_suffix("").parts)).removesuffix(".__init__")
    names = {
        node.name
        for node in ast.walk(ast.parse(mutant.path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and len(node.name) > 3 and not node.name.startswith("_")
    }
    ranked: dict[str, float] = {}
    room = mutant.path.relative_to(SOURCES).parts[0]
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text()
        said = sum(bool(re.search(rf"\b{name}\b", text)) for name in names)
        ranked[str(path.relative_to(ROOT))] = said + 5 * (module in text) + 0.5 * (f"tests/{room}/" in str(path))
    return sorted(ranked, key=lambda path: -ranked[path])


# What takes seconds to import and has nothing to do with a mutant: every trial is a copy of a process that has it.
HEAVY = ("opacus", "pyarrow.parquet", "pytest", "scipy.stats", "sklearn.ensemble", "sklearn.neural_network", "torch")


@dataclass
class Trial:
    """A mutant that meets its tests, in a process of its own."""

    number: int
    folder: Path
    process: int = 0
    deadline: float = field(default_factory=lambda: time.monotonic() + 4 * SECONDS)

    @classmethod
    def start(cls, number: int, mutant: Mutant, tests: list[str]) -> "Trial":
        trial = cls(number, Path(tempfile.mkdtemp(prefix="mutant-")))
        copy = trial.folder / "src" / "fedaudit"
        shutil.copytree(SOURCES, copy, ignore=shutil.ignore_patterns("__pycache__"))
        (copy / mutant.path.relative_to(SOURCES)).write_text(mutant.applied())
        (trial.folder / "tests").write_text("\n".join(tests))
        trial.process = os.fork()
        if not trial.process:
            trial._meet(copy)
        return trial

    def _meet(self, copy: Path) -> NoReturn:
        os.setpgid(0, 0)
        told = os.open(self.folder / "told", os.O_WRONLY | os.O_CREAT)
        os.dup2(told, 1)
        os.dup2(told, 2)
        os.chdir(ROOT)
        os.environ.update(_environment(copy))
        sys.path[:0] = [str(copy.parent), str(ROOT)]
        code = 99
        try:
            plain = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
            code = int(import_module("pytest").main([*plain, *TESTS, f"@{self.folder / 'tests'}"]))
        finally:
            sys.stdout.flush()
            os._exit(code)

    def outcome(self) -> str | None:
        """The first test that failed, empty if none did, None while they run."""
        ended, status = os.waitpid(self.process, os.WNOHANG)
        late = time.monotonic() > self.deadline
        if not ended and not late:
            return None
        if not ended:
            os.killpg(self.process, signal.SIGKILL)
            os.waitpid(self.process, 0)
        told = (self.folder / "told").read_text(errors="replace")
        shutil.rmtree(self.folder)
        if not ended:
            return "(time ran out)"
        failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", told, re.MULTILINE)
        code = os.waitstatus_to_exitcode(status)
        return failed[0] if failed else "" if code == 0 else f"(pytest ended with {code})"


def outcomes_of(
    pairs: list[tuple[int, Mutant]], tests: Callable[[int, Mutant], list[str]], jobs: int
) -> Iterator[tuple[int, str]]:
    for module in HEAVY if pairs else ():
        import_module(module)
    waiting, running = list(pairs), list[Trial]()
    while waiting or running:
        while waiting and len(running) < jobs:
            number, mutant = waiting.pop(0)
            running.append(Trial.start(number, mutant, tests(number, mutant)))
        time.sleep(0.2)
        for trial in list(running):
            if (found := trial.outcome()) is not None:
                running.remove(trial)
                yield trial.number, found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long a mutant's tests may take unbroken")
    parser.add_argument("--only", default="", help="numbers of mutants, with commas between them")
    parser.add_argument("--tests", nargs="*", help="test files, instead of tests that were seen to reach a mutant")
    parser.add_argument("--kept", type=Path, default=ROOT / "build" / "mutants", help="what was seen until now")
    asked = parser.parse_args()
    asked.kept.mkdir(parents=True, exist_ok=True)
    reached, tried = asked.kept / "reached.json", asked.kept / "tried"
    chosen = drawn()
    if not reached.exists():
        reached.write_text(json.dumps(asdict(reached_by_tests(chosen, asked.kept))))
    seen = json.loads(reached.read_text())
    known = Reached({int(number): found for number, found in seen["tests"].items()}, seen["seconds"])
    outcomes, first = dict[int, str](), dict[int, str]()
    for number, test in _lines(tried):
        outcomes[number] = test or outcomes.get(number, "")
        first.setdefault(number, test)
    anew, mutants = {int(number) for number in asked.only.split(",") if number}, dict(chosen)

    def tests(number: int, mutant: Mutant) -> list[str]:
        return asked.tests or known.best(number, mutant, asked.seconds)

    todo = [pair for pair in chosen if pair[0] in anew or (not anew and pair[0] not in outcomes)]
    for number, test in outcomes_of(todo, tests, asked.jobs):
        outcomes[number] = test or outcomes.get(number, "")
        first.setdefault(number, test)
        with tried.open("a") as file:
            file.write(json.dumps([number, test]) + "\n")
        print(f"{number}: {mutants[number].text}: {test or 'SURVIVED'}", flush=True)
    if mutants.keys() <= outcomes.keys():
        (ROOT / "docs" / "mutants.md").write_text(page(chosen, outcomes, sum(map(bool, first.values()))))


def page(chosen: list[tuple[int, Mutant]], outcomes: dict[int, str], at_first: int) -> str:
    rows = []
    for number, mutant in chosen:
        told = outcomes[number] or ("makes no difference" if mutant.code in EQUIVALENT else "**survives**")
        rows.append(f"| {number} | {mutant.text} | {told} |")
    killed = sum(bool(outcomes[number]) for number, _ in chosen)
    alike = [
        (mutant, why) for number, mutant in chosen if not outcomes[number] and (why := EQUIVALENT.get(mutant.code))
    ]
    share = killed / (len(rows) - len(alike))
    drawn_in_all = EACH * len(ROOMS)
    head = f"""# Mutants

Made by `python -m docs.make_mutants`: lines of `audit`, `questions`, `results` and `stats`, broken one at a time, and
the first test that was seen to notice. {drawn_in_all} places were drawn by a fixed seed from all of commit {DRAWN_AT};
{drawn_in_all - len(chosen)} of these lines have been rewritten since. Line numbers are those of today.

**{killed} of {len(rows)} are noticed, and {len(alike)} can make no difference: {share:.0%} of those that can.** When
they were drawn, {at_first} of {drawn_in_all} were noticed by the tests that the script tries first. The others met more
of the tests, or tests that were written for them. What the tests make of lines that nobody has looked at is nearer to
that first figure.

| | change | noticed by |
|---|---|---|
"""
    told = "".join(f"- {mutant.text}: {why}\n" for mutant, why in alike)
    return head + "\n".join(rows) + "\n\nThose that make no difference:\n\n" + told


if __name__ == "__main__":
    main()
