"""Simulations of how often intervals hold run when what they are about has changed since they last passed.

    python -m tests.stats.simulated

runs all tests with the mark `simulation`, and notes in simulated.txt what they passed with. As long as that is what is
here, `make test` leaves them out: `make coverage` repeats them at length, and a few of every kind have no such mark.
"""

import hashlib
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STAMP = Path(__file__).with_suffix(".txt")
HEAD = "# Written by `make simulations` after all of them passed with the sources that have this hash.\n"
simulation = partial(pytest.param, marks=pytest.mark.simulation)  # a case of a test that has others, too
NOT_RUN = "The simulations of tests/stats were left out: they passed with these sources. `make simulations` runs them."
STALE = (
    "src/fedaudit/stats or its tests have changed since the simulations last passed, so all of them were run. "
    "`make simulations` notes that they pass; commit tests/stats/simulated.txt with the change."
)


def sources(root: Path = ROOT) -> Iterator[tuple[str, str]]:
    """All that decides whether a simulation passes: names and contents."""
    for pattern in ("src/fedaudit/stats/**/*.py", "tests/stats/**/*.py", "docs/*coverage*.py"):
        for path in sorted(root.glob(pattern)):
            yield str(path.relative_to(root)), path.read_text(encoding="utf-8")
    for line in (root / "constraints.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith(("numpy==", "scipy==")):
            yield "constraints.txt", line


def digest(root: Path = ROOT) -> str:
    return hashlib.sha256(repr(list(sources(root))).encode()).hexdigest()


def passed(root: Path = ROOT, stamp: Path = STAMP) -> bool:
    """Did all simulations pass with what is here now?"""
    return stamp.is_file() and stamp.read_text(encoding="utf-8") == f"{HEAD}{digest(root)}\n"


def main() -> int:
    before = digest()
    failed = pytest.main(["-m", "simulation", "-n", "2", "--dist", "worksteal", str(Path(__file__).parent)])
    if not failed:
        STAMP.write_text(f"{HEAD}{before}\n", encoding="utf-8")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
