"""Writes docs/trust.md: for each item of docs/codes.md its tests, their outcomes and the number of cases tried.

    python -m docs.make_trust [JUNIT.xml | CAMPAIGN.log] ...

Outcomes come from what pytest writes with --junitxml, figures of campaigns from what `make soak` prints. They are kept
in docs/trust.json beside the page; a test without a new outcome keeps its last one. `make soak` gives all of them.
"""

import ast
import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
PAGE, KEPT = ROOT / "docs" / "trust.md", ROOT / "docs" / "trust.json"
CODE = r"[BDEFKST][0-9]{1,2}"
IN_NAME = re.compile(rf"(?<=_)({CODE})(?=_|$)")
EXAMPLES = 40  # of a property, unless it says otherwise: `tried` of tests/fuzz/test_properties.py

HEAD = """# What was tested

For each item of [codes.md](codes.md): the tests that name it, how they ended when this page was made, and how many
cases they tried (parameters of a test, examples of a property). An item without a test has a line in
[limits.md](limits.md).
Made by `python -m docs.make_trust` from the results of the tests; [coverage.md](coverage.md) has the simulations of how
often intervals hold, and `make soak` repeats the campaigns.

"""
CAMPAIGNS = """## Campaigns

What `make soak` last found: files that a coverage-guided search made of whole ones, examples of properties, and runs
that were killed. *Read* were taken as whole, all others refused in words. A fault is any other answer, or a result that
differs. What was a fault once is mended, and in the corpus or in a test of its own.

| campaign | tried | read | faults |
|---|---|---|---|
"""
TABLE = "## Tests\n\n| item | test | outcome | cases |\n|---|---|---|---|\n"


@dataclass(frozen=True)
class Test:
    """One function. `file` and `name` as pytest writes them."""

    file: str
    name: str
    codes: tuple[str, ...]
    mark: str  # evidence, simulation or nothing
    examples: int  # of each case

    @property
    def id(self) -> str:
        return f"{self.file}::{self.name}"


def explained() -> list[str]:
    """The codes of docs/codes.md, in its order."""
    page = (ROOT / "docs" / "codes.md").read_text(encoding="utf-8")
    rows = re.findall(rf"^\| ({CODE}(?:, {CODE})*) \|", page, re.MULTILINE)
    return [code for row in rows for code in row.split(", ")]


def without_test() -> set[str]:
    """The codes of the first table of docs/limits.md."""
    page = (ROOT / "docs" / "limits.md").read_text(encoding="utf-8")
    return set(re.findall(rf"^\| ({CODE}) \|", page.partition("## What is covered in part")[0], re.MULTILINE))


def tests() -> Iterator[Test]:
    """Every test with a code in its name, read from the sources."""
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                codes = tuple(dict.fromkeys(IN_NAME.findall(node.name)))
                if codes:
                    file = path.relative_to(ROOT).as_posix()
                    yield Test(file, node.name, codes, _mark(node), _examples(node))


def _mark(node: ast.FunctionDef) -> str:
    decorators = " ".join(ast.unparse(each) for each in node.decorator_list)
    return next((mark for mark in ("evidence", "simulation") if f"mark.{mark}" in decorators), "")


def _examples(node: ast.FunctionDef) -> int:
    """How many examples of a property are drawn; the property may stand inside the test."""
    for each in (
        call for inner in ast.walk(node) if isinstance(inner, ast.FunctionDef) for call in inner.decorator_list
    ):
        if isinstance(each, ast.Call) and ast.unparse(each.func) == "tried":
            return int(ast.literal_eval(each.args[0])) if each.args else EXAMPLES
        if isinstance(each, ast.Call) and ast.unparse(each.func) == "settings":
            given = {key.arg: key.value for key in each.keywords}
            return int(ast.literal_eval(given["max_examples"])) if "max_examples" in given else 1
    return 1


# ------------------------------------------------------------------ outcomes


def read_junit(path: Path) -> dict[str, dict[str, Any]]:
    """By test: how all of its cases ended, and how many there were."""
    found: dict[str, list[str]] = {}
    for case in ElementTree.parse(path).iter("testcase"):
        wrong = [kind for kind in ("failure", "error", "skipped") if case.find(kind) is not None]
        file = (case.get("classname") or "").replace(".", "/") + ".py"
        name = (case.get("name") or "").partition("[")[0]
        found.setdefault(f"{file}::{name}", []).append(wrong[0] if wrong else "passed")
    return {test: {"outcome": _worst(ended), "cases": len(ended)} for test, ended in found.items()}


def _worst(ended: list[str]) -> str:
    order = ("error", "failure", "passed", "skipped")
    return min(ended, key=order.index)


def read_campaigns(path: Path) -> dict[str, list[int | None]]:
    """Lines such as "npz: 8557 tried, 162 read, 0 faults"."""
    text = path.read_text(encoding="utf-8", errors="replace")
    found = re.findall(r"^([\w ,-]+): (\d+) tried,(?: (\d+) read,)? (\d+) faults$", text, re.MULTILINE)
    return {name: [int(number) if number else None for number in numbers] for name, *numbers in found}


# ------------------------------------------------------------------ the page


def page(kept: Mapping[str, Any]) -> str:
    rows = [
        f"| {name} | {tried:,} | {'' if read is None else f'{read:,}'} | {faults:,} |"
        for name, (tried, read, faults) in kept["campaigns"].items()
    ]
    known = [*tests()]
    lines = []
    for code in explained():
        mine = [test for test in known if code in test.codes]
        lines += [f"| {code} | `{test.id}` | {_outcome(test, kept)} |" for test in mine]
        if not mine:
            lines.append(f"| {code} | none: [limits.md](limits.md) | not covered | 0 |")
    cases = sum(entry["cases"] for entry in kept["tests"].values())
    total = f"{len(known)} tests name an item; {cases:,} cases of them are counted below.\n\n"
    return (
        HEAD + CAMPAIGNS + "\n".join(rows) + "\n\n" + TABLE.replace("\n\n", f"\n\n{total}", 1) + "\n".join(lines) + "\n"
    )


def _outcome(test: Test, kept: Mapping[str, Any]) -> str:
    found = kept["tests"].get(test.id)
    if found is None:
        command = {"evidence": "`make evidence`", "simulation": "`make simulations`"}.get(test.mark, "`make test`")
        return f"run by {command} | "
    return f"{found['outcome']} | {found['cases']:,}"


def main() -> None:
    kept = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.is_file() else {"campaigns": {}, "tests": {}}
    known = {test.id: test for test in tests()}
    for path in map(Path, sys.argv[1:]):
        if path.suffix == ".xml":
            for name, entry in read_junit(path).items():
                if name in known and entry["outcome"] != "skipped":
                    kept["tests"][name] = entry | {"cases": entry["cases"] * known[name].examples}
        else:
            kept["campaigns"] |= read_campaigns(path)
    kept["tests"] = {name: kept["tests"][name] for name in known if name in kept["tests"]}
    KEPT.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(kept), encoding="utf-8")


if __name__ == "__main__":
    main()
