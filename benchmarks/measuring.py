"""How two ways are compared: in turn, so that whatever else the machine does falls on both; the median of ratios."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal


@dataclass(frozen=True)
class Case:
    """One setting of a benchmark."""

    ratio: float
    goal: float
    seconds: tuple[float, float]  # of the two ways, median


def interleaved(top: Callable[[], Any], bottom: Callable[[], Any], goal: float, times: int = 5) -> Case:
    """The median over pairs of (time of `top` / time of `bottom`), after one pair to warm up."""
    pairs = []
    for _ in range(times + 1):
        begin = time.perf_counter()
        top()
        middle = time.perf_counter()
        bottom()
        pairs.append((middle - begin, time.perf_counter() - middle))
    pairs = pairs[1:]
    seconds = median(a for a, _ in pairs), median(b for _, b in pairs)
    return Case(median(a / b for a, b in pairs), goal, seconds)


def verdict(name: str, better: Literal["lower", "higher"], cases: dict[str, Case], **detail: Any) -> dict[str, Any]:
    """The result: the ratio and goal of the case that does worst against its goal, with all of them in the detail."""
    success = {key: c.goal / c.ratio if better == "lower" else c.ratio / c.goal for key, c in cases.items()}
    worst = cases[min(success, key=lambda key: success[key])]
    shown = {
        key: {"ratio": round(c.ratio, 3), "goal": c.goal, "ms": [float(f"{1000 * s:.3g}") for s in c.seconds]}
        for key, c in cases.items()
    }
    return {
        "name": name,
        "ratio": round(worst.ratio, 3),
        "goal": worst.goal,
        "better": better,
        "ok": min(success.values()) >= 1,
        "detail": {"cases": shown, **detail},
    }
