"""Signals that need only a model's outputs: logit, loss, confidence.

Everything follows from the rescaled logit in float64. Computed in float32 as logsumexp(z) - z_y, the loss of several
per cent of the members is exactly 0, and these ties sit just where the threshold is.
"""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from fedaudit.types import Floats


def rescaled_logit(z: Floats, y: NDArray[Any]) -> Floats:
    """z_y - logsumexp(z without y)."""
    others = z.astype(np.float64)
    rows = np.arange(len(y))
    own = others[rows, y].copy()
    others[rows, y] = -np.inf
    return np.asarray(own - special.logsumexp(others, axis=1))


SIGNALS: dict[str, Callable[[Floats], Floats]] = {
    "logit": lambda logit: logit,
    "loss": lambda logit: np.logaddexp(0.0, -logit),  # softplus(-logit)
    "confidence": special.expit,
}


def from_outputs(z: Floats, y: NDArray[Any], names: Iterable[str]) -> dict[str, Floats]:
    logit = rescaled_logit(z, y)
    return {name: SIGNALS[name](logit) for name in names}
