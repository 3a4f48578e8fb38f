"""Do the tests bite? Breaks a hundred lines of the audit, one at a time, and sees which test notices.

    python -m docs.make_mutants [--jobs 2] [--only 17,23]

Twenty-five mutants each of `audit`, `questions`, `results` and `stats`, drawn by a fixed seed from all places where a
comparison, a sign, a constant, a condition or a minimum can be turned round. Each is tried in a copy of the package,
with the test files that mention most of what its module defines. docs/mutants.md is written at the end.
"""

import argparse
import ast
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCES = ROOT / "src" / "fedaudit"
ROOMS, EACH, SEED = ("audit", "questions", "results", "stats"), 25, 26
FILES, SECONDS = 10, 400  # test files for a mutant, and how long they may take: a hanging test notices, too
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
        elif isinstance(node, ast.Constant) and type(node.value) in (int, float, bool):
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
        yield child
        yield from _running(child)


def drawn() -> list[Mutant]:
    found = []
    for room in ROOMS:
        every = [mutant for path in sorted((SOURCES / room).rglob("*.py")) for mutant in mutants_of(path)]
        found += random.Random(f"{SEED} {room}").sample(every, EACH)
    return found


def tests_for(mutant: Mutant) -> list[str]:
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
    return sorted(ranked, key=lambda path: -ranked[path])[:FILES]


def noticed_by(mutant: Mutant) -> str:
    """The first test that fails; empty if none does."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "src" / "fedaudit"
        shutil.copytree(SOURCES, copy, ignore=shutil.ignore_patterns("__pycache__"))
        (copy / mutant.path.relative_to(SOURCES)).write_text(mutant.applied())
        paths = os.pathsep.join([str(copy.parent), str(ROOT)])
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
        try:
            done = subprocess.run(
                [*command, *tests_for(mutant)],
                cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False,
                env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return "(time ran out)"
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    return failed[0] if failed else "" if done.returncode == 0 else f"(pytest ended with {done.returncode})"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="", help="numbers of mutants, with commas between them")
    asked = parser.parse_args()
    chosen = list(enumerate(drawn(), start=1))
    if asked.only:
        chosen = [(number, mutant) for number, mutant in chosen if number in map(int, asked.only.split(","))]
    rows = []
    with ThreadPoolExecutor(asked.jobs) as pool:
        for (number, mutant), test in zip(chosen, pool.map(lambda pair: noticed_by(pair[1]), chosen), strict=True):
            print(f"{number}: {mutant.text}: {test or 'SURVIVED'}", flush=True)
            rows.append(f"| {number} | {mutant.text} | {test or '**survived**'} |")
    killed = sum("**survived**" not in row for row in rows)
    if not asked.only:
        head = (
            "# Mutants\n\nMade by `python -m docs.make_mutants`: a hundred lines of `audit`, `questions`, `results` "
            "and `stats`, broken one at a time, and the first test that notices. Which places are broken is drawn by a "
            f"fixed seed; some changes make no difference to anybody.\n\n**{killed} of {len(rows)} are noticed.**\n\n"
            "| | change | noticed by |\n|---|---|---|\n"
        )
        (ROOT / "docs" / "mutants.md").write_text(head + "\n".join(rows) + "\n")
    print(f"{killed} of {len(rows)} noticed")


if __name__ == "__main__":
    main()
