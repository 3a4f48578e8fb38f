"""How much memory an audit of 100,000 records over 200 rounds needs, stored while it streams: under 1 GB.

    python -m benchmarks.stream_memory RECORDS ROUNDS      one JSON line: peak memory after each part, in MB

Measured in a process of its own. The task is cheap on purpose: what is measured is what the audit itself keeps.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fedaudit.adversary import attacks
from fedaudit.adversary.signals import DEAR
from fedaudit.audit import Auditor, Settings
from fedaudit.data.partition import game, iid
from fedaudit.data.records import dataset
from fedaudit.results.scores import save_scores
from fedaudit.trace.store import Store
from fedaudit.types import UNSEEN, Floats, Round, State, Trained, Vantage

RECORDS, ROUNDS, MOST_MB = 100_000, 200, 1000.0
INPUTS, CLASSES, PARTIES, EARLY = 8, 10, 4, 5


class Linear:
    """A task without torch: one layer."""

    classes = CLASSES
    base: State = UNSEEN

    def initial(self, seed: int) -> State:
        return {"w": np.random.default_rng(seed).normal(size=(INPUTS, CLASSES))}

    def outputs(self, state: State, x: Floats) -> Floats:
        return np.asarray(x @ state["w"])

    def asking(self, state: State) -> Callable[[Floats], Floats]:
        return lambda x: self.outputs(state, x)

    def last_layer(self, state: State, x: Floats) -> tuple[Floats, Floats]:
        return self.outputs(state, x), x


def run() -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.stream_memory", str(RECORDS), str(ROUNDS)]
    root = Path(__file__).parents[1]
    done = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)
    found = json.loads(done.stdout.splitlines()[-1])
    return {
        "name": "stream-memory",
        "ratio": round(found["end"] / MOST_MB, 3),
        "goal": 1.0,
        "better": "lower",
        "ok": found["end"] < MOST_MB,
        "detail": f"{RECORDS} records x {ROUNDS} rounds, {found['attacks']} attacks, global and local models, signals "
        f"stored ({found['stored']:.0f} MB): peak {found['end']:.0f} MB ({found['early']:.0f} after {EARLY} rounds), "
        f"{found['seconds']:.0f} s",
    }


def stream(records: int, rounds: int) -> dict[str, float]:
    rng = np.random.default_rng(0)
    rows = dataset("stream", rng.normal(size=(records, INPUTS)), rng.integers(0, CLASSES, records)).records
    split = game(rows, iid(rows, PARTIES, rng), 0.3, 0.3, rng)
    # The task below has outputs only, so: the attacks that read outputs.
    forward = [attack for attack in attacks.choose(None) if not set(attack.signals) & DEAR]
    settings = Settings((Vantage.CLIENT, Vantage.SERVER), forward, rounds)
    task = Linear()
    started, early = time.perf_counter(), 0.0
    auditor = Auditor(task, split, settings)
    with tempfile.TemporaryDirectory() as folder:
        model = task.initial(0)
        with Store.create(Path(folder), {"keep": "signals"}) as store:
            for index in range(1, rounds + 1):
                states = [_moved(model, rng) for _ in split.parties]
                sent = {party: Trained(state, 1, 0.1) for party, state in zip(split.parties, states, strict=True)}
                round = Round(index, model, sent, _moved(model, rng))
                store.append(round, auditor.observe(round))
                model = round.aggregate
                early = _peak() if index == EARLY else early
        streamed = _peak()
        stored = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file()) / 2**20
        found = auditor.snapshot()
        save_scores(auditor.score_parts(), Path(folder))
    return {
        "early": early, "streamed": streamed, "end": _peak(), "stored": stored, "attacks": len(settings.attacks),
        "failed": len(found.failed), "seconds": time.perf_counter() - started,
    }  # fmt: skip


def _moved(model: State, rng: np.random.Generator) -> State:
    return {"w": model["w"] + 0.05 * rng.normal(size=(INPUTS, CLASSES))}


def _peak() -> float:
    """Peak memory of this process so far, in MB. (What getrusage tells on Linux includes the starting process's.)"""
    if sys.platform == "darwin":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 2**10


if __name__ == "__main__":
    print(json.dumps(stream(int(sys.argv[1]), int(sys.argv[2]))))
