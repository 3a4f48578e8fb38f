"""Runs audits in forked processes and kills them with SIGKILL, at random moments or at a chosen system call.

    python -m tests.trace.killing FOLDER RANDOM_KILLS [CALL ...]

Prints one JSON line for each killed run: where it was killed, what it resumed from, and in what its results differ
from those of an undisturbed run (an empty list is what is hoped for). Forking saves importing torch every time.
"""

import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedaudit.config.schema import Config, parse
from fedaudit.session.run import run
from fedaudit.stats import roc
from fedaudit.trace.store import Store
from tests.worlds import silent

ROUNDS = 6
SECTIONS: dict[str, Any] = {
    "data": {"name": "breast-cancer"},
    "federation": {"parties": 2, "rounds": ROUNDS, "batch_size": 32},
    "model": {"hidden": [32]},
    "audit": {"attacks": ["fta-confidence", "fta-loss", "loss", "back-front-diff"]},
}


def audit(config: Config, out: Path) -> None:
    def tell(line: str) -> None:
        with (out / "told.txt").open("a") as file:
            file.write(line + "\n")

    run(config, out, silent, tell=tell)


def forked(act: Callable[[], None]) -> int:
    """The process id of a child that does it and ends."""
    child = os.fork()
    if child:
        return child
    try:
        act()
        os._exit(0)
    except BaseException as error:
        print(f"child: {error!r}", file=sys.stderr, flush=True)
        os._exit(1)


def end_of(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def killing_itself(at: int, act: Callable[[], None]) -> Callable[[], None]:
    """Dies at its `at`-th fsync or rename: odd numbers just before it, even ones just after."""

    def acts() -> None:
        calls = 0

        def deadly(call: Callable[..., None]) -> Callable[..., None]:
            def wrapped(*arguments: Any) -> None:
                nonlocal calls
                for moment in ("before", "after"):
                    calls += 1
                    if calls == at:
                        os.kill(os.getpid(), signal.SIGKILL)
                    if moment == "before":
                        call(*arguments)

            return wrapped

        os.fsync, os.replace = deadly(os.fsync), deadly(os.replace)
        act()

    return acts


def outcome(directory: Path) -> dict[str, Any]:
    """All that must not depend on having been killed."""
    document = json.loads((directory / "results.json").read_text())
    for changing in ("created", "seconds", "name"):
        del document["run"][changing]
    for result in document["results"]:
        del result["cost"]
    for unit in [unit for kind in ("records", "subjects") for unit in (document["exposed"] or {}).get(kind) or ()]:
        del unit["id_hash"]  # its salt is random
    return {**document, "scores": (directory / "scores.parquet").read_bytes().hex()}


def main(folder: Path, random_kills: int, calls: list[int]) -> None:
    config, roc.POINTS = parse(SECTIONS), 4
    audit(config, folder / "whole")  # here, so that the children find everything imported
    whole = outcome(folder / "whole")
    started = time.perf_counter()
    assert end_of(forked(lambda: audit(config, folder / "timed"))) == 0
    lasts = time.perf_counter() - started
    rng = random.Random(int.from_bytes(os.urandom(4), "big"))
    moments: list[tuple[str, float | int]] = [("seconds", rng.uniform(0, 0.8 * lasts)) for _ in range(random_kills)]
    for number, (kind, when) in enumerate([*moments, *(("call", call) for call in calls)]):
        out, died = folder / f"killed-{number}", 0
        while died == 0:  # a kill that came after the end is none: again, in half the time
            shutil.rmtree(out, ignore_errors=True)
            out.mkdir()
            if kind == "seconds":
                child = forked(lambda out=out: audit(config, out))  # type: ignore[misc]
                time.sleep(when)
                os.kill(child, signal.SIGKILL)
            else:
                child = forked(killing_itself(int(when), lambda out=out: audit(config, out)))  # type: ignore[misc]
            died = end_of(child)
            if kind == "call":
                break  # the same call would come to the same end
            when = when / 2 if died == 0 else when
        rounds = Store.read(out).lineage.newest if (out / "run.json").exists() else 0
        resumed = end_of(forked(lambda out=out: audit(config, out)))  # type: ignore[misc]
        again = outcome(out) if resumed == 0 else {}
        told = (out / "told.txt").read_text() if (out / "told.txt").exists() else ""
        line = {
            "kind": kind, "when": round(when, 3), "died": died, "rounds": rounds, "resumed": resumed,
            "told": told.strip(), "differs": [key for key in whole if whole[key] != again.get(key)],
        }  # fmt: skip
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), [int(call) for call in sys.argv[3:]])
