"""FTA's slopes of 50,000 records x 3 metrics over 200 rounds, from running sums, against a vectorised polyfit.

Twice: all 200 rounds from nothing, and what a live audit needs after each round, where polyfit has to begin anew.
"""

from typing import Any

import numpy as np

from benchmarks.measuring import interleaved, verdict
from fedaudit.adversary.attacks import made
from fedaudit.types import Moment

ROUNDS, RECORDS, METRICS, GOAL = 200, 50_000, ("loss", "confidence", "logit"), 60.0


def run() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    rounds = np.arange(1.0, ROUNDS + 1)
    table = rng.normal(size=(ROUNDS, len(METRICS), RECORDS))  # the layout that suits polyfit best

    def polyfit() -> Any:
        return np.polyfit(rounds, table.reshape(ROUNDS, -1), 1)[0].reshape(len(METRICS), RECORDS)

    def observed(reductions: dict[str, Any], index: int) -> None:
        values = dict(zip(METRICS, table[index], strict=True))
        for reduction in reductions.values():
            reduction.observe(Moment(index + 1), values)

    def slopes(reductions: dict[str, Any]) -> list[Any]:
        return [reduction.features()[:, 0] for reduction in reductions.values()]

    def streamed(rounds: int = ROUNDS) -> dict[str, Any]:
        reductions = {metric: made(f"fta-{metric}").reduce(RECORDS) for metric in METRICS}
        for index in range(rounds):
            observed(reductions, index)
        return reductions

    for ours, theirs, sign in zip(slopes(streamed()), polyfit(), (-1, 1, 1), strict=True):
        assert np.allclose(ours, sign * theirs, atol=1e-12)
    live = streamed(ROUNDS - 1)

    def one_round_more() -> list[Any]:
        observed(live, ROUNDS - 1)
        return slopes(live)

    weights = (rounds - rounds.mean()) / ((rounds - rounds.mean()) ** 2).sum()
    bound = interleaved(polyfit, lambda: weights @ table.reshape(ROUNDS, -1), GOAL, times=3)
    cases = {
        "all rounds": interleaved(polyfit, lambda: slopes(streamed()), GOAL, times=3),
        "one round more": interleaved(polyfit, one_round_more, GOAL, times=3),
    }
    return verdict("slope", "higher", cases, reading_the_table_once=round(bound.ratio, 1), numbers_kept_a_record=6)
