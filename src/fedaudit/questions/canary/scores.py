"""The scores of canaries: what does the noisy sum tell about one party that is known to be there, or not?

Maddock, Sablayrolles, Stock: "CANIFE: Crafting canaries for empirical privacy measurement in federated learning", ICLR
2023. Andrew, Kairouz, Oh, Oprea, McMahan, Suriyakumar: "One-shot empirical privacy estimation for federated learning",
ICLR 2024.

Adversary: whoever sees the sum of the updates, secure aggregation and noise included, and has a party of its own.

canife
1. The canary's update u_c is known: its record was crafted for this model, and training on it is no secret.
2. The score of a sum is <sum, u_c> / C^2: about 1 with the canary and 0 without; noise sigma C spreads both by sigma.

one-shot
1. Each canary is a random direction c of norm 1, sent with norm C in every round in which it takes part.
2. The score is the cosine of c and a change of the model: of each round (the largest counts), or from the first model
   to the last. A direction that was never sent has (1 + cosine) / 2 ~ Beta((d - 1) / 2, (d - 1) / 2), whatever the
   model does: nearly N(0, 1/d).

The scores are about parties, not about records; `judge` says what they show.
"""

from __future__ import annotations

import numpy as np

from fedaudit.adversary.vantage import View
from fedaudit.types import Floats


def summed(view: View, order: list[str], denominator: float) -> Floats | None:
    """The noisy sum as a descent direction, in one vector; None where the start of the round was not observed."""
    change = view.update
    if change is None:
        return None
    return denominator * np.concatenate([np.asarray(change[name], np.float64).ravel() for name in order])


def canife_scores(total: Floats, updates: Floats, unit: Floats) -> Floats:
    """<sum, u_c> / C^2 for each canary (row of `updates`); `unit` is C."""
    return np.asarray(updates @ total / unit**2)


def cosines(change: Floats, directions: Floats) -> Floats:
    """Of each direction (a row of norm 1) with a change of the model; 0 where the model did not change."""
    length = float(np.linalg.norm(change))
    return np.asarray(directions @ change / length) if length > 0 else np.zeros(len(directions))
