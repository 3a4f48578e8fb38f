"""Flower's home in a folder of the test: audits keep their memory there, and no test finds another's."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def flower_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path_factory.mktemp("flwr-home")
    monkeypatch.setenv("FLWR_HOME", str(home))
    return home
