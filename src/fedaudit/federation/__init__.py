"""Who takes part in which round, and when. The training itself, which needs torch, is in `simulate`."""

from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np

from fedaudit.types import Moment, Plan

Sampling = Literal["uniform", "poisson"]

START = Moment(0)


def scheduled(plans: Sequence[Plan], after: Moment = START) -> Iterator[tuple[Moment, Plan]]:
    """The moment of each plan, for plans after the given moment. Probes do not change the round number."""
    now = START
    for plan in plans:
        now = Moment(now.round + 1) if plan.commit else Moment(now.round, now.probe + 1)
        if now > after:
            yield now, plan


def up_to(plans: Sequence[Plan], round: int) -> list[Plan]:
    """The plans of the first rounds, with the probes that follow the last of them. A canary's probe of the round after
    that (`Plan.canaries`) belongs to that round's plan, and is not among them."""
    return [plan for moment, plan in scheduled(plans) if moment.round <= round]


def plans(
    parties: Sequence[str], rounds: int, participation: float, sampling: Sampling, seed: int, stream: int = 2
) -> list[Plan]:
    """One plan for each round. The first rounds are the same however many follow. `stream` selects the random numbers.

    `uniform`: a fixed number of parties (participation x parties, at least one), drawn without replacement.
    `poisson`: each party by its own coin. A round may then be empty, and leaves the model as it is.
    """
    names = np.array(sorted(parties))
    rng = np.random.default_rng([seed, stream])
    if participation == 1:
        return [Plan(tuple(names.tolist()))] * rounds
    count = max(1, round(participation * len(names)))

    def draw() -> Plan:
        if sampling == "poisson":
            drawn = names[rng.random(len(names)) < participation]
        else:
            drawn = np.sort(rng.choice(names, count, replace=False))
        return Plan(tuple(drawn.tolist()))

    return [draw() for _ in range(rounds)]
