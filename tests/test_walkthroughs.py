"""docs/architecture.md is followed: its names exist, and its walk-throughs are carried out in a copy of the package, as
a contributor would, and then used from the command line."""

import json
import os
import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import fedaudit
from tests.command import with_packages
from tests.pages import command
from tests.test_layers import LAYERS

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
FEDERATION = """
[federation]
parties = 2
rounds = 3
[model]
hidden = [32]
"""


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def new_files() -> dict[str, str]:
    """The code of the walk-throughs by the file that its first line names: `# PATH`."""
    named = [block.split("\n", 1) for block in blocks("python")]
    shown = [first.removeprefix("# ") for first, _ in named]
    return {path: code for path, (_, code) in zip(shown, named, strict=True) if not re.search("^from |, in ", path)}


def excerpts() -> list[str]:
    """Code that stands in an example: `# from PATH`."""
    return [block for block in blocks("python") if block.startswith("# from ")]


def additions() -> dict[tuple[str, str], str]:
    """Lines for a file that is there, by the file and the list in it: `# PATH, in LIST`."""
    named = [block.split("\n", 1) for block in blocks("python")]
    places = {first.removeprefix("# "): code for first, code in named if ", in " in first}
    return {(place.split(", in ")[0], place.split(", in ")[1]): code for place, code in places.items()}


def added(text: str, into: str, code: str) -> str:
    """Imports go below the last import of the file, the other lines to the top of the list."""
    imports = [line for line in code.splitlines() if line.startswith("from ")]
    entries = [line for line in code.splitlines() if line.startswith("    ")]
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if re.match(rf"{into}\b.* = [{{(]", line))
    lines[start + 1 : start + 1] = entries
    last = max((i for i, line in enumerate(lines[:start]) if line.startswith("from ")), default=0)
    lines[last:last] = imports
    return "\n".join(lines) + "\n"


# ------------------------------------------------------------------ the text

NAMES = sorted(
    {name for name in re.findall(r"`([a-z_]+(?:\.\w+)+)`", PAGE) if name.split(".")[0] in LAYERS} - {"results.json"}
)


@pytest.mark.parametrize("name", NAMES)
def test_every_name_on_the_page_exists(name: str) -> None:
    assert found(f"fedaudit.{name}") is not None


def found(name: str) -> Any:
    """A module, or what it holds."""
    try:
        return import_module(name)
    except ModuleNotFoundError:
        owner, _, last = name.rpartition(".")
        return getattr(found(owner), last)


def test_the_path_of_a_record_is_named_step_by_step() -> None:
    """So that the test above cannot pass on a page without names."""
    assert len(NAMES) > 50


def test_every_room_has_a_line() -> None:
    table = PAGE.split("## The rooms")[1].split("\n## ")[0]
    rooms = [
        name for line in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", line)
    ]
    there = {path.name.removesuffix(".py") for path in Path(fedaudit.__file__).parent.iterdir()}
    assert rooms == [layer for layer in LAYERS if layer in there - {"__main__"}]


# ------------------------------------------------------------------ the walk-throughs


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package and of the test table, in which the steps have been followed."""
    root = tmp_path_factory.mktemp("walkthroughs")
    shutil.copytree(Path(fedaudit.__file__).parent, root / "src" / "fedaudit")
    for path, code in new_files().items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(code)
    for (path, into), code in additions().items():
        (root / path).write_text(added((ROOT / path).read_text(encoding="utf-8"), into, code))
    return root


@pytest.fixture(scope="module")
def said(copy: Path) -> dict[str, str]:
    """What the commands answer in the copy: lists, and a run of all that was added."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    lines = [json.dumps({"x": row.tolist(), "y": int(digit)}) for row, digit in zip(x / 16, y, strict=True)]
    here = copy / "here"
    here.mkdir()
    (here / "digits.jsonl").write_text("\n".join(lines))
    (here / "my.toml").write_text("\n".join([FEDERATION, *blocks("toml")]))
    commands = {what: ["list", what] for what in ("attacks", "questions", "defences", "data")}
    commands |= {"init": ["init", "template.toml"], "run": ["run", "my.toml"], "report": ["report", "runs/my"]}
    done = dict(zip(commands, with_packages(copy / "src", *commands.values(), cwd=here), strict=True))
    assert {name: one.stderr for name, one in done.items() if one.returncode} == {}
    return {name: one.stdout for name, one in done.items()}


def test_only_the_list_of_questions_and_the_test_table_are_touched() -> None:
    assert not [path for path in new_files() if (ROOT / path).exists()]
    assert set(additions()) == {
        ("src/fedaudit/questions/__init__.py", "ROOMS"),
        ("tests/adversary/attacks/test_registry.py", "ROWS"),
    }


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("attacks", r"lowest-loss\n +the lowest loss of the record in any round\s+skip = 0  # rounds at the beginning"),
        ("questions", r"class-shares\n +of which classes has a party more records than the other parties"),
        ("defences", r"sparsify\n +small changes of weights are not sent \(strength = their share\)\s+keys: strength"),
        ("data", r"json-lines\n +a file of JSON lines with x and y \(path, whose\)\s+keys: path, whose"),
    ],
)
def test_what_was_added_is_listed(said: dict[str, str], what: str, says: str) -> None:
    assert re.search(says, said[what])


@pytest.mark.usefixtures("said")
def test_the_template_explains_what_was_added(copy: Path) -> None:
    written = (copy / "here" / "template.toml").read_text()
    assert "the share of the weights whose change is not sent" in written
    assert "the file of JSON lines" in written


def test_the_tests_of_the_page_pass(copy: Path) -> None:
    ours = [path for path in new_files() if path.startswith("tests/")]
    table = [path for path, _ in additions() if path.startswith("tests/")]
    assert (len(ours), len(table)) == (4, 1)
    chosen = "lowest or largest or lines or every_attack or asked_by_its_name or which_bias"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", *ours, *table, "-k", chosen],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy / "src"), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    # Two of the attack, two of the question, one of each other; of the table, contract, sign, and that none is missing.
    assert "9 passed" in done.stdout, done.stdout + done.stderr


def test_what_was_added_runs_together_in_a_real_audit(copy: Path, said: dict[str, str]) -> None:
    results = json.loads((copy / "here" / "runs" / "my" / "results.json").read_text())
    assert results["run"]["data"] | {"input_shape": None} == {
        "name": "digits", "records": 1797, "classes": 10, "subjects": None, "input_shape": None,
    }  # fmt: skip
    assert results["run"]["config"]["defences"] == [{"name": "sparsify", "strength": 0.9}]
    found = [r for r in results["results"] if r["party"] is None and "auc" in r["estimates"]]
    pooled = {(r["attack"], r["model"]): r["estimates"]["auc"] for r in found}
    for model in ("global", "local"):
        for name in ("lowest-loss", "lowest-loss+skip=1"):
            assert pooled[name, model]["low"] < pooled[name, model]["value"] < pooled[name, model]["high"]
    assert results["degraded"] == []
    (asked,) = (r for r in results["results"] if r.get("question") == "class-shares")
    told = asked["estimates"]["rightly-told"]
    assert (asked["unit"], asked["vantage"], asked["model"]) == ("party", "server", "local")
    assert told["low"] < told["value"] <= told["high"]
    page = (copy / "here" / "runs" / "my" / "report.html").read_text()
    assert "classes told rightly" in page, said["report"]


def test_another_framework_is_audited_as_the_page_says(tmp_path: Path) -> None:
    """What the page shows stands in the example; its commands run, and leave what it says."""
    for excerpt in excerpts():
        first, code = excerpt.split("\n", 1)
        assert code in (ROOT / first.removeprefix("# from ")).read_text(encoding="utf-8")
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    (commands,) = blocks("sh")
    said = [command(line, tmp_path) for line in commands.splitlines()]
    assert len(said) == 3
    results = json.loads((tmp_path / "runs/numpy/results.json").read_text())
    assert results["degraded"] == []
    assert {entry["model"] for entry in results["results"]} == {"global", "local"}
    attacks = {entry["attack"] for entry in results["results"]}
    assert {"loss", "fta-confidence", "round-gain", "gradient-norm", "blind"} <= attacks
    assert "without torch offers no gradients): matched-filter, gradient-cosine" in " ".join(said[1].split())
    assert said[2].splitlines()[-1] == "safe"


# ------------------------------------------------------------------ docs/codes.md


def test_every_code_in_the_name_of_a_test_is_explained() -> None:
    page = (ROOT / "docs" / "codes.md").read_text(encoding="utf-8")
    explained = {
        code for row in re.findall(r"^\| ([A-Z][0-9, A-Z]*) \|", page, re.MULTILINE) for code in row.split(", ")
    }
    named = [
        re.findall(r"def test_((?:[A-Z][0-9]+_)+)", path.read_text()) for path in (ROOT / "tests").rglob("test_*.py")
    ]
    used = {code for names in named for name in names for code in name.strip("_").split("_")}
    assert len(used) > 50
    assert used <= explained


def test_codes_stay_out_of_the_sources() -> None:
    """But for the checks of `fedaudit verify`, whose codes are shown to the user."""
    for path in sorted((ROOT / "src").rglob("*.py")):
        found = re.findall(r"\((?:[TFBK][0-9]{1,2})\)|\b[TFBK][0-9]{1,2}:", path.read_text(encoding="utf-8"))
        assert not found, path.name
