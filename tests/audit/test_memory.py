"""What an audit keeps does not grow with the number of rounds."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(sys.platform == "win32", reason="measured with getrusage")
def test_F18_memory_does_not_grow_with_the_rounds() -> None:
    """The values of 16,000 records are 1.3 MB a round: keeping them would show."""
    command = [sys.executable, "-m", "benchmarks.stream_memory", "16000", "15"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["failed"] == 0
    assert found["streamed"] - found["early"] < 10, found
