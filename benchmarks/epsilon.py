"""Epsilon of 1,000 sampled steps, and the curve over 200 rounds against one accountant for each point."""

import time
from typing import Any

from fedaudit.privacy import accounting
from fedaudit.privacy.accounting import curve, epsilon
from fedaudit.privacy.statement import Process

STEPS = Process("record", 0.8, 5, "poisson", 0.01)  # sigma .8, q .01; 200 rounds are 1,000 steps
ROUNDS, DELTA = 200, 1e-5
MOST_SECONDS, MOST_ERROR, LEAST_SPEEDUP = 0.2, 2e-4, 5.0


def run() -> dict[str, Any]:
    epsilon(STEPS, 1, DELTA)  # imports
    seconds, value = min(_timed(lambda: epsilon(STEPS, ROUNDS, DELTA)) for _ in range(5))
    curve_seconds, points = _timed(lambda: curve(STEPS, list(range(1, ROUNDS + 1)), DELTA))
    each = list(range(20, ROUNDS + 1, 20))  # every 20th point stands for its neighbours
    slow_seconds, slow = _timed(lambda: [epsilon(STEPS, done, DELTA) for done in each])
    ratio = slow_seconds / len(each) * ROUNDS / curve_seconds
    accounting.INTERVAL, usual = 1e-4, accounting.INTERVAL
    try:
        error = abs(value / epsilon(STEPS, ROUNDS, DELTA) - 1)
    finally:
        accounting.INTERVAL = usual
    same = max(abs(points[done - 1] / there - 1) for done, there in zip(each, slow, strict=True))
    ok = seconds <= MOST_SECONDS and error <= MOST_ERROR and ratio >= LEAST_SPEEDUP and same <= 1e-6
    return {
        "name": "epsilon",
        "ratio": round(ratio, 2),
        "goal": LEAST_SPEEDUP,
        "better": "higher",
        "ok": ok,
        "detail": f"one figure in {seconds:.3f} s (goal {MOST_SECONDS}), error {error:.1e} (goal {MOST_ERROR}); "
        f"{ROUNDS}-point curve in {curve_seconds:.1f} s, equal to one accountant a point to {same:.0e}",
    }


def _timed(compute: Any) -> tuple[float, Any]:
    """In seconds of this process, which other work on the machine does not change; one thread does it all."""
    started = time.process_time()
    found = compute()
    return time.process_time() - started, found
