"""Tests run beside other work: one thread each, set before torch or scikit-learn is imported."""

import os
import signal

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")

FIRST = ("test_first_hours", "test_newcomers", "test_walkthroughs", "integrations/", "test_study", "session/", "cli/")

# A test run that was started in the background inherits an ignored Ctrl-C; the tests of Ctrl-C need the usual one.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whole commands and real processes first: a long file that begins last keeps the other cores idle."""
    items.sort(key=lambda item: not any(room in item.nodeid for room in FIRST))
