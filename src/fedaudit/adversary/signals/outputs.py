"""Signals from one forward pass: logit, loss, confidence, modified entropy, and the last layer's gradient norm.

Everything follows from the rescaled logit in float64. Computed in float32 as logsumexp(z) - z_y, the loss of several
per cent of the members is exactly 0, and these ties sit just where the threshold is. A regression has a loss (the
squared error) and a gradient norm, and nothing else.

A record with a class at each of several positions (text) has, as in training, the sum of its positions' losses; the
mean of their rescaled logits and of their modified entropies; as confidence the geometric mean of the probabilities,
exp(-loss / positions); and the norm of the sum of their gradients, which is no product of norms. Positions that are
IGNORED do not count, and a record with fewer that count has the same loss as one whose other positions were like these:
the mean over them, times all positions, so that no attack on the loss learns how long a record is.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.adversary.vantage import View
from fedaudit.errors import FedauditError
from fedaudit.types import IGNORED, Bools, Floats, Grant, Ints, Records

TINY = np.finfo(np.float64).tiny
VALUES = 2**21  # outputs in float64 that are held at a time, where records have many of them


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


def expit(logit: Floats) -> Floats:
    from scipy import special  # a configuration that names attacks is checked without it

    return np.asarray(special.expit(logit))


def loss(answers: Answers) -> Floats:
    return np.asarray(np.logaddexp(0.0, -answers.logit))  # softplus(-logit)


def modified_entropy(answers: Answers) -> Floats:
    """-(1 - p_y) log p_y - sum over the other classes of p_i log(1 - p_i) (Song and Mittal 2021)."""
    wrong = expit(-answers.logit)
    p = answers.spread * wrong[:, None]
    # Only the likeliest wrong class can come near 1, where computing 1 - p_i by subtraction loses all digits.
    rows, top = np.arange(len(p)), answers.spread.argmax(axis=1)
    p_top = p[rows, top].copy()
    rest = answers.spread.copy()
    rest[rows, top] = 0.0
    besides_top = expit(answers.logit) + wrong * rest.sum(axis=1)
    p[rows, top] = 0.0
    others = -(p * np.log1p(-p)).sum(axis=1) - p_top * np.log(np.maximum(besides_top, TINY))
    return np.asarray(wrong * loss(answers) + others)


def gradient_norm(answers: Answers) -> Floats:
    """Of the loss with respect to the last layer: |p - onehot(y)| times the norm of the layer's input."""
    assert answers.last_input is not None
    error = expit(-answers.logit) * np.sqrt(1.0 + (answers.spread**2).sum(axis=1))
    return np.asarray(error * np.linalg.norm(answers.last_input, axis=1))


SIGNALS: dict[str, Callable[[Answers], Floats]] = {
    "logit": lambda answers: answers.logit,
    "loss": loss,
    "confidence": lambda answers: expit(answers.logit),
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
    found = [_of_part(names, view, rows.x[part], rows.y[part]) for part in parts(rows.y, view.classes)]
    return found[0] if len(found) == 1 else {name: np.concatenate([one[name] for one in found]) for name in names}


def _of_part(names: Sequence[str], view: View, x: NDArray[Any], y: NDArray[Any]) -> dict[str, Floats]:
    last_input: Floats | None = None
    if "gradient-norm" in names:
        z, last_input = view.task.last_layer(view.weights, x)
    else:
        z = view.ask(x)
    return from_answers(z, y, names, view.classes, last_input)


def parts(y: NDArray[Any], classes: int) -> list[slice]:
    """All records at once; where each has a class at several positions, as many as memory holds the answers of."""
    if y.ndim == 1:
        return [slice(None)]
    rows = max(1, VALUES // (math.prod(y.shape[1:]) * classes))
    return [slice(start, start + rows) for start in range(0, max(len(y), 1), rows)]


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
    if y.ndim > 1:
        return at_positions(z, y, names, last_input)
    answers = Answers.of(z, y, last_input)
    return {name: SIGNALS[name](answers) for name in names}


def at_positions(
    z: Floats, y: NDArray[Any], names: Iterable[str], last_input: Floats | None = None
) -> dict[str, Floats]:
    """Of records x positions x classes: every position has the signals of a record, which are then brought together."""
    counts = y.reshape(len(y), -1) != IGNORED
    answers = Answers.of(z.reshape(-1, z.shape[-1]), np.where(counts, y.reshape(len(y), -1), 0).reshape(-1))
    share = counts.mean(axis=1)

    def each(values: Floats) -> Floats:
        return np.asarray(values.reshape(len(y), -1) * counts)

    def summed_gradients() -> Floats:
        """|sum of b_s a_s'|, b_s = p - onehot at position s and a_s its input: from b_s.b_t and a_s.a_t alone."""
        assert last_input is not None
        error = answers.spread.copy()
        error[np.arange(y.size), np.where(counts.reshape(-1), y.reshape(-1), 0)] = -1.0
        error *= (expit(-answers.logit) * counts.reshape(-1))[:, None]
        b, a = error.reshape(z.shape), last_input.reshape(len(y), each(answers.logit).shape[1], -1)
        squares = ((b @ b.swapaxes(1, 2)) * (a @ a.swapaxes(1, 2))).sum(axis=(1, 2))
        return np.asarray(np.sqrt(np.maximum(squares, 0.0)))

    brought_together: dict[str, Callable[[], Floats]] = {
        "logit": lambda: each(answers.logit).mean(axis=1) / share,
        "loss": lambda: each(loss(answers)).sum(axis=1) / share,
        "confidence": lambda: np.exp(-each(loss(answers)).mean(axis=1) / share),
        "modified-entropy": lambda: each(modified_entropy(answers)).mean(axis=1) / share,
        "gradient-norm": summed_gradients,
    }
    return {name: brought_together[name]() for name in names}


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


# ------------------------------------------------------------------ the loss of noisy copies of a record

# The noise depends on the round only, so that scoring twice gives identical values.

MERLIN, NEIGHBOURHOOD = "merlin", "neighbourhood-loss"
MERLIN_COPIES, MERLIN_SIGMA = 100, 0.01
MERLIN_ROWS = 4096  # number of records for which noise is drawn at a time
NEIGHBOURS, NEIGHBOURS_SHARE = 10, 0.1  # the noise, as a share of the features' spread


def measure_merlin(
    names: Iterable[str], view: View, rows: Records, known: Bools, rng: np.random.Generator
) -> dict[str, Floats]:
    """Merlin's signal (Jayaraman et al. 2021): how often a little noise on the record makes its loss rise. For a
    record that the model has learnt, the loss is near a local minimum."""
    _check_noise_fits(rows, "merlin")
    starts = range(0, len(rows), MERLIN_ROWS)
    parts = [rows.take(np.arange(i, min(i + MERLIN_ROWS, len(rows)))) for i in starts]
    found = np.concatenate([_rises(view, part, rng) for part in parts]) / MERLIN_COPIES
    return dict.fromkeys(names, found)


def _rises(view: View, rows: Records, rng: np.random.Generator) -> Ints:
    before = _loss_at(rows.x, view, rows)
    rises = np.zeros(len(rows), np.int64)
    for _ in range(MERLIN_COPIES):
        noise = rng.standard_normal(rows.x.shape, dtype=np.float32)
        rises += _loss_at(rows.x + np.float32(MERLIN_SIGMA) * noise, view, rows) > before
    return rises


def measure_neighbourhood(
    names: Iterable[str], view: View, rows: Records, known: Bools, rng: np.random.Generator
) -> dict[str, Floats]:
    """The mean loss of a few noisy copies: a model that has learnt a person's records, and not just one of them, is
    sure of itself around them, too."""
    _check_noise_fits(rows, "subject-neighbourhood")
    scale, total = np.float32(NEIGHBOURS_SHARE * rows.x.std()), np.zeros(len(rows))
    for _ in range(NEIGHBOURS):
        total += _loss_at(rows.x + scale * rng.standard_normal(rows.x.shape, dtype=np.float32), view, rows)
    return dict.fromkeys(names, total / NEIGHBOURS)


def _loss_at(x: NDArray[Any], view: View, rows: Records) -> Floats:
    return of_view(["loss"], view, Records(x, rows.y, rows.id))["loss"]


def _check_noise_fits(rows: Records, attack: str) -> None:
    if rows.x.dtype.kind != "f":
        what = "the records hold tokens, to which no noise can be added"
        raise FedauditError("tokens", what, f"Take {attack} out of audit.attacks.")


# ---------------------- a record with a hidden attribute set to each of its values

ATTRIBUTE = "attribute-gradient-norm"  # records x values of the attribute
ATTRIBUTE_NEEDS: dict[str, frozenset[Grant]] = {ATTRIBUTE: NEEDS["gradient-norm"]}


@dataclass(frozen=True)
class Probe:
    """Which inputs of a record hold the attribute, and what they are for each of its values."""

    name: str
    columns: Ints
    settings: NDArray[np.float32]  # values x columns

    @property
    def values(self) -> int:
        return len(self.settings)

    def measure(
        self, names: Iterable[str], view: View, rows: Records, known: Bools, rng: np.random.Generator
    ) -> dict[str, Floats]:
        """records x values: the gradient norm with the attribute set to each value in turn."""
        norms = []
        for setting in self.settings:
            x = rows.x.copy()
            x[:, self.columns] = setting
            norms.append(of_view(["gradient-norm"], view, replace(rows, x=x))["gradient-norm"])
        return {name: np.column_stack(norms) for name in names}

    def rest(self, rows: Records, classes: int) -> Floats:
        """Everything about a record except the attribute: the other inputs, and the label."""
        inputs = np.delete(rows.x.reshape(len(rows), -1), self.columns, axis=1).astype(np.float64)
        label = np.eye(classes)[rows.y] if classes else rows.y[:, None].astype(np.float64)
        return np.column_stack([inputs, label])
