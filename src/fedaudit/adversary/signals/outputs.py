"""Signals from one forward pass: logit, loss, confidence, modified entropy, and the last layer's gradient norm.

All are computed from the rescaled logit in float64. If the loss were computed in float32 as logsumexp(z) - z_y, it
would be exactly 0 for several per cent of the members, and these ties would lie just where the threshold is. A
regression has a loss (the squared error) and a gradient norm, and no other signals.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from fedaudit.adversary.vantage import View
from fedaudit.errors import FedauditError
from fedaudit.types import Bools, Floats, Grant, Records

TINY = np.finfo(np.float64).tiny


@dataclass(frozen=True)
class Answers:
    """What a classifier says about labelled records."""

    logit: Floats  # rescaled: z_y - logsumexp(z without y)
    spread: Floats  # shares of the other classes in the probability that the label does not get; 0 at the label
    last_input: Floats | None = None  # the input of the last layer, with a 1 for its bias

    @classmethod
    def of(cls, z: Floats, y: NDArray[Any], last_input: Floats | None = None) -> "Answers":
        others = z.astype(np.float64)
        rows = np.arange(len(y))
        own = others[rows, y].copy()
        others[rows, y] = -np.inf
        top = others.max(axis=1)
        weights = np.exp(others - top[:, None])
        total = weights.sum(axis=1)
        return cls(own - top - np.log(total), weights / total[:, None], last_input)


def rescaled_logit(z: Floats, y: NDArray[Any]) -> Floats:
    """z_y - logsumexp(z without y)."""
    return Answers.of(z, y).logit


def loss(answers: Answers) -> Floats:
    return np.asarray(np.logaddexp(0.0, -answers.logit))  # softplus(-logit)


def modified_entropy(answers: Answers) -> Floats:
    """-(1 - p_y) log p_y - sum over the other classes of p_i log(1 - p_i) (Song and Mittal 2021)."""
    wrong = special.expit(-answers.logit)
    p = answers.spread * wrong[:, None]
    # Only the likeliest wrong class can come near 1, where computing 1 - p_i by subtraction loses all digits.
    rows, top = np.arange(len(p)), answers.spread.argmax(axis=1)
    p_top = p[rows, top].copy()
    rest = answers.spread.copy()
    rest[rows, top] = 0.0
    besides_top = special.expit(answers.logit) + wrong * rest.sum(axis=1)
    p[rows, top] = 0.0
    others = -(p * np.log1p(-p)).sum(axis=1) - p_top * np.log(np.maximum(besides_top, TINY))
    return np.asarray(wrong * loss(answers) + others)


def gradient_norm(answers: Answers) -> Floats:
    """Of the loss with respect to the last layer: |p - onehot(y)| times the norm of the layer's input."""
    assert answers.last_input is not None
    error = special.expit(-answers.logit) * np.sqrt(1.0 + (answers.spread**2).sum(axis=1))
    return np.asarray(error * np.linalg.norm(answers.last_input, axis=1))


SIGNALS: dict[str, Callable[[Answers], Floats]] = {
    "logit": lambda answers: answers.logit,
    "loss": loss,
    "confidence": lambda answers: special.expit(answers.logit),
    "modified-entropy": modified_entropy,
    "gradient-norm": gradient_norm,
}

NEEDS: dict[str, frozenset[Grant]] = {name: frozenset({Grant.OUTPUTS}) for name in SIGNALS} | {
    "gradient-norm": frozenset({Grant.OUTPUTS, Grant.WEIGHTS})
}


def measure(
    names: Iterable[str], view: View, rows: Records, known: Bools, rng: np.random.Generator
) -> dict[str, Floats]:
    return of_view(names, view, rows)


def of_view(names: Iterable[str], view: View, rows: Records) -> dict[str, Floats]:
    """The named signals, from a single forward pass."""
    names = list(names)
    last_input: Floats | None = None
    if "gradient-norm" in names:
        z, last_input = view.task.last_layer(view.weights, rows.x)
    else:
        z = view.ask(rows.x)
    return from_answers(z, rows.y, names, view.classes, last_input)


def from_answers(
    z: Floats, y: NDArray[Any], names: Iterable[str], classes: int, last_input: Floats | None = None
) -> dict[str, Floats]:
    """The named signals of a classifier's outputs, or of a regression's (classes = 0)."""
    if not classes:
        return {name: _of_regression(name, z, y, last_input) for name in names}
    return from_outputs(z, y, names, last_input)


def from_outputs(
    z: Floats, y: NDArray[Any], names: Iterable[str], last_input: Floats | None = None
) -> dict[str, Floats]:
    answers = Answers.of(z, y, last_input)
    return {name: SIGNALS[name](answers) for name in names}


def _of_regression(name: str, z: Floats, y: NDArray[Any], last_input: Floats | None) -> Floats:
    error = z.reshape(len(y)) - y.astype(np.float64)
    if name == "loss":
        return np.asarray(error**2)
    if name == "gradient-norm":
        assert last_input is not None
        return np.asarray(2 * np.abs(error) * np.linalg.norm(last_input, axis=1))
    raise FedauditError(
        "no-classes",
        "the task is a regression, which has a loss and gradients but no logit, confidence or entropy",
        "In audit.attacks, name attacks on the loss or on gradients only.",
    )
