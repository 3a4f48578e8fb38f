"""The benchmarks' own rules: names, what a result holds, which case it speaks for. Nothing here looks at a clock."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.__main__ import main, names
from benchmarks.measuring import Case, interleaved, verdict

ROOT = Path(__file__).parents[1]


def test_every_file_is_a_benchmark_with_a_row_in_the_table() -> None:
    table = (ROOT / "benchmarks" / "README.md").read_text()
    assert {"forward-signals", "round", "slope", "tpr-interval"} <= set(names())
    for name in names():
        assert f"| `{name}` |" in table
        assert "def run() -> " in (ROOT / "benchmarks" / f"{name.replace('-', '_')}.py").read_text()


def test_the_worst_case_speaks_for_all() -> None:
    cases = {"a": Case(30.0, 25.0, (1.0, 2.0)), "b": Case(5.0, 6.0, (1.0, 2.0))}
    result = verdict("x", "higher", cases, note=1)
    assert (result["ratio"], result["goal"], result["ok"]) == (5.0, 6.0, False)
    assert set(result["detail"]["cases"]) == {"a", "b"}
    lower = verdict("x", "lower", {"a": Case(0.2, 0.25, (1.0, 2.0)), "b": Case(0.1, 0.5, (1.0, 2.0))})
    assert (lower["ratio"], lower["ok"]) == (0.2, True)


def test_the_two_ways_run_in_turn() -> None:
    order: list[str] = []
    interleaved(lambda: order.append("a"), lambda: order.append("b"), 1.0, times=2)
    assert order == ["a", "b"] * 3


def test_an_unknown_name_is_refused_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert main("rond") == 2
    assert "forward-signals" in capsys.readouterr().err


def test_listing_imports_nothing_heavy() -> None:
    code = "import sys, benchmarks.__main__ as b; b.names(); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
