"""A run folder that is taken away while training."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fedaudit.session.run import run
from tests.worlds import config


@pytest.mark.parametrize("replaced", [False, True], ids=["deleted", "replaced"])
def test_F2_a_folder_that_is_taken_away_while_training_costs_the_record_and_is_said(
    tmp_path: Path, replaced: bool
) -> None:
    """It ended as complete, with a journal that nobody can find."""
    out, rounds = tmp_path / "run", [0]

    def step() -> None:
        rounds[0] += 1
        if rounds[0] == 2:
            out.rename(tmp_path / "elsewhere")
            if replaced:
                shutil.copytree(tmp_path / "elsewhere", out)

    @contextmanager
    def progress(what: str, steps: int) -> Iterator[Callable[[], None]]:
        yield step if what == "Training and auditing" else lambda: None

    document = run(config(federation={"rounds": 4}, audit={"attacks": ["loss"]}), out, progress)
    assert not document.complete
    assert any("deleted or replaced" in line for line in document.degraded), document.degraded
    assert not (out / "results.json").exists()
