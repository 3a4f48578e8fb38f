"""How much memory an audit of 100,000 records over 200 rounds needs, stored while it streams: under 1 GB.

    python -m benchmarks.stream_memory '{"records": 100000}'      one JSON line; the keys are those of `Load`

Measured in a process of its own. The task is cheap on purpose: what is measured is what the audit itself keeps.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
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

    def __init__(self, inputs: int = INPUTS):
        self.inputs = inputs

    def initial(self, seed: int) -> State:
        return {"w": np.random.default_rng(seed).normal(size=(self.inputs, CLASSES))}

    def outputs(self, state: State, x: Floats) -> Floats:
        return np.asarray(x @ state["w"])

    def asking(self, state: State) -> Callable[[Floats], Floats]:
        return lambda x: self.outputs(state, x)

    def last_layer(self, state: State, x: Floats) -> tuple[Floats, Floats]:
        return self.outputs(state, x), x


def run() -> dict[str, Any]:
    found = alone({})
    return {
        "name": "stream-memory",
        "ratio": round(found["end"] / MOST_MB, 3),
        "goal": 1.0,
        "better": "lower",
        "ok": found["end"] < MOST_MB,
        "detail": f"{RECORDS} records x {ROUNDS} rounds, {found['attacks']} attacks, global and local models, signals "
        f"stored ({found['stored']:.0f} MB): peak {found['end']:.0f} MB ({found['marks'][0][2]:.0f} after {EARLY} "
        f"rounds), {found['streaming'] + found['judging']:.0f} s",
    }


def alone(load: dict[str, Any]) -> dict[str, Any]:
    """`stream` in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.stream_memory", json.dumps(load)]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@dataclass(frozen=True)
class Load:
    """An audit that is stored while it streams. `planned`: rounds, of which the first `rounds` are run; `attacks`: so
    many of those that read outputs, the primary one first; `marks`: rounds after which the memory is noted."""

    records: int = RECORDS
    rounds: int = ROUNDS
    parties: int = PARTIES
    inputs: int = INPUTS
    attacks: int | None = None
    planned: int | None = None
    marks: tuple[int, ...] = (EARLY,)


Mark = tuple[int, float, float, float]  # a round, the memory now and at its peak in MB, processor seconds so far


def stream(load: Load, marks: list[Mark] | None = None) -> dict[str, Any]:
    """Peak memory in MB and processor seconds. `marks`: where they are noted, for a long run that may be cut off."""
    marks = [] if marks is None else marks
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(load.records, load.inputs)).astype(np.float32), rng.integers(0, CLASSES, load.records)
    rows = dataset("stream", x, y).records
    split = game(rows, iid(rows, load.parties, rng), 0.3, 0.3, rng)
    # The task below has outputs only, so: the attacks that read outputs.
    forward = [attack for attack in attacks.choose(None) if not set(attack.signals) & DEAR]
    forward.sort(key=lambda attack: attack.name != "fta-confidence")
    planned = load.planned or load.rounds
    settings = Settings((Vantage.CLIENT, Vantage.SERVER), forward[: load.attacks], planned)
    task = Linear(load.inputs)
    auditor = Auditor(task, split, settings)
    before, began = resident(), time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        model = task.initial(0)
        with Store.create(Path(folder), {"keep": "signals"}) as store:
            for index in range(1, load.rounds + 1):
                states = [_moved(model, rng) for _ in split.parties]
                sent = {party: Trained(state, 1, 0.1) for party, state in zip(split.parties, states, strict=True)}
                round = Round(index, model, sent, _moved(model, rng))
                store.append(round, auditor.observe(round))
                model = round.aggregate
                if index in load.marks:
                    marks.append((index, resident(), _peak(), time.process_time() - began))
        streamed, streaming = _peak(), time.process_time() - began
        stored = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file()) / 2**20
        found = auditor.snapshot()
        save_scores(auditor.score_parts(), Path(folder))
    return {
        "before": before, "marks": marks, "streamed": streamed, "end": _peak(), "stored": stored,
        "attacks": len(settings.attacks), "failed": len(found.failed), "streaming": streaming,
        "judging": time.process_time() - began - streaming,
    }  # fmt: skip


def _moved(model: State, rng: np.random.Generator) -> State:
    return {"w": model["w"] + 0.05 * rng.normal(size=model["w"].shape)}


def resident() -> float:
    """Memory of this process now, in MB."""
    return _status("VmRSS") if sys.platform != "darwin" else _peak()


def _peak() -> float:
    """Peak memory of this process so far, in MB. (What getrusage tells on Linux includes the starting process's.)"""
    if sys.platform == "darwin":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return _status("VmHWM")


def _status(what: str) -> float:
    return int(Path("/proc/self/status").read_text().split(f"{what}:")[1].split()[0]) / 2**10


if __name__ == "__main__":
    print(json.dumps(stream(Load(**json.loads(sys.argv[1])))))
