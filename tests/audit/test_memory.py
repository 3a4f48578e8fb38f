"""What an audit keeps does not grow with the number of rounds."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from benchmarks.stream_memory import Linear
from fedaudit.adversary.attacks import choose
from fedaudit.audit import Auditor, Settings, settings
from fedaudit.data.partition import game, iid
from fedaudit.data.records import dataset
from fedaudit.types import Round, Vantage

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(sys.platform == "win32", reason="measured with getrusage")
def test_F18_memory_does_not_grow_with_the_rounds() -> None:
    """The values of 16,000 records are 1.3 MB a round: keeping them would show."""
    command = [sys.executable, "-m", "benchmarks.stream_memory", '{"records": 16000, "rounds": 15}']
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["failed"] == 0
    ((_, _, early, _),) = found["marks"]
    assert found["streamed"] - early < 10, found


@pytest.mark.parametrize("limits", [{}, {"auc": frozenset[str]()}])
def test_F18_of_very_many_rounds_some_are_followed(
    limits: Mapping[str, frozenset[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A band keeps every round that it has seen, and the correlations of all of them: of 40 rounds, five have a place.
    A limit is checked after every round all the same."""
    monkeypatch.setattr(settings, "MOST_FOLLOWED", 4)
    task = Linear()
    rng = np.random.default_rng(0)
    rows = dataset("few", rng.normal(size=(600, 8)).astype(np.float32), rng.integers(0, 10, 600)).records
    parts = game(rows, iid(rows, 2, rng), 0.3, 0.3, rng)
    asked = Settings((Vantage.CLIENT,), choose(["loss", "fta-confidence"]), 40, left_out_of=limits)
    auditor = Auditor(task, parts, asked)
    state, followed = task.initial(0), [1, 10, 20, 30, 40]
    assert asked.followed == len(followed)
    for index in range(1, 41):
        before, state = state, {"w": state["w"] + 0.05 * rng.normal(size=state["w"].shape)}
        auditor.observe(Round(index, before, {}, state))
        if limits and index > 1:
            heard = auditor.after(index, Vantage.CLIENT, "global", "auc")
            assert [one.attack for one in heard] == ["fta-confidence", "loss"]
        for found in auditor.history.values():
            assert len(found) <= 13 + len(followed), index
    (band,) = auditor.bands.values()
    assert [len(measure.band.units) for measure in band.measures.values()] == [4, 4]  # one round has no slope
    (curve,) = (r.curves["auc"] for r in auditor.snapshot().results if r.attack == "fta-confidence" and not r.party)
    assert list(curve.x) == followed[1:]
    assert "over 5 of 40 planned rounds" in curve.method
    assert auditor.settings.follows(40)
