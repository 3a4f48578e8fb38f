"""Killed at any moment, a run resumes and ends with the results of an undisturbed one, bit for bit."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.trace.killing import ROUNDS

ROOT = Path(__file__).parents[2]
RANDOM = 1
CALLS = [3, 20, 22, 25, 28, 31]  # in the first file; at moments of a later round's writes


@pytest.mark.skipif(sys.platform == "win32", reason="forks")
def test_F1_K33_killed_runs_resume_to_the_same_results(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.trace.killing", str(tmp_path), str(RANDOM), *map(str, CALLS)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    killed = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(killed) == RANDOM + len(CALLS)
    for run in killed:
        assert run["resumed"] == 0, (run, done.stderr)
        assert run["differs"] == [], run
        assert run["died"] == -signal.SIGKILL, run
        if 0 < run["rounds"] < ROUNDS:
            assert f"Resuming after round {run['rounds']}" in run["told"]
    at_calls = [run for run in killed if run["kind"] == "call"]
    assert len({run["rounds"] for run in at_calls}) > 1
