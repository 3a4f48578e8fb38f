"""Tests run beside other work: one thread each, set before torch or scikit-learn is imported."""

import gc
import hashlib
import os
import pickle
import signal
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tests.browser import setup
from tests.stats import simulated

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="fedaudit-cache-")  # no outcome of a self-test of this user

# Looking for cycles among the objects of torch and its kin again and again takes a tenth of the time.
gc.set_threshold(50_000, 20, 20)

FIRST = ("test_first_hours", "test_newcomers", "test_walkthroughs", "integrations/", "test_study", "session/", "cli/")

# A test run that was started in the background inherits an ignored Ctrl-C; the tests of Ctrl-C need the usual one.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def few_points() -> Iterator[None]:
    """A quarter of an audit's time goes into the points of its ROC curves, which are computed one by one."""
    from fedaudit.stats import roc

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(roc, "POINTS", 8)
        yield


@pytest.fixture(scope="session", autouse=True)
def blind_once() -> Iterator[None]:
    """Many tests audit the same records. The blind baseline, a quarter of a small audit, is fitted once on each."""
    from fedaudit.audit import controls

    fit = controls.blind_scores
    known: dict[bytes, tuple[Any, Any]] = {}

    def fitted(game: Any, seed: int) -> Any:
        who = game.candidates
        used = (who.id, who.subject, who.owner, who.rows.x, who.rows.y, game.truth.role, seed)
        key = hashlib.sha256(pickle.dumps(used)).digest()
        if key not in known:
            known[key] = fit(game, seed)
        scores, reported = known[key]
        return scores.copy(), reported.copy()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(controls, "blind_scores", fitted)
        yield


@pytest.fixture(scope="module")
def few_trees() -> Iterator[None]:
    """For tests of the audit around TEAR: its classifier compares one size in two folds, not three in five."""
    from fedaudit.adversary.attacks import tear

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tear, "SIZES", ((3, 20),))
        patch.setattr(tear, "FOLDS", 2)
        yield


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Whole commands and real processes first: a long file that begins last keeps the other cores idle."""
    if not any("::" in argument for argument in config.args):  # tests that were named stay in their order
        items.sort(key=lambda item: not any(room in item.nodeid for room in FIRST))
    items[:], left_out = without_simulations(items, config.option.markexpr, simulated.passed())
    config.hook.pytest_deselected(items=left_out)
    gc.freeze()  # what was imported until now stays


def without_simulations(
    items: Sequence[pytest.Item], marks: str, unchanged: bool
) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """What is run, and what is left out because nothing changed."""
    left_out = [item for item in items if item.get_closest_marker("simulation")]
    if not unchanged or "simulation" in marks:
        return list(items), []
    return [item for item in items if item not in left_out], left_out


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.args == config.getini("testpaths"):  # all tests, not some that somebody looks at
        terminalreporter.write_line(simulated.NOT_RUN if simulated.passed() else simulated.STALE)
        for name in setup.missing():
            terminalreporter.write_line(f"NOT RUN: tests in a browser, which need {name}")
