"""Which values does nobody in the party have, which has exactly one record, and which belong to the same records?

A layer `z = W x + b` on the input: a step moves column j of W by the sum of g x_j over the records, g being what the
loss says of z. Where no record has x_j, nothing moves it but what moves every weight. In the order of trying:

1. unmoved; in a mean of several parties, whose weights are rounded on the way, within four units in the last place;
2. within half a quantum, where secure aggregation rounds to one;
3. shrunk by a factor that many columns share (weight decay);
4. moved as the optimiser moves a weight that has no gradient but its own decay;
5. moved with the bias, where the input is standardised, so that "nobody has it" is a constant other than 0.
Where BatchNorm stands first, its running means stand in: one that only forgets belongs to a column of zeros.

The first rule that some column obeys is the rule of this training. Words are rows of an embedding. Nothing is told
where the input is changed before the layer (dropout, noise, LayerNorm), and nothing where entries of the update were
left out: then a bias stands still beside a row that moved, or the last layer has holes.

*Exactly one*: a unit of ReLU that is off for all bearers of a value does not move their column. With one bearer these
are its own off-units. The share of units that stand still is held against that of 1, 2, ... outsiders under this model,
weighed by how many of so many records would have the value (beta-binomial, from outsiders). In a mean of parties that
train with Adam, equal steps cancel as well: there the weights that moved must have moved equally far, as one record's.

*The same bearers*: two columns that moved alike, up to what rounding does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.errors import OF_OTHERS
from fedaudit.questions.update.parts import (
    BesideTruth,
    CannotTell,
    Known,
    Listed,
    OneUpdate,
    Table,
    compared,
    most_probable,
    steps_of,
)
from fedaudit.types import Bools, Estimate, Floats, Ints, Notice, Records, State, notice

if TYPE_CHECKING:
    from fedaudit.questions.update import UpdateSection

TRIED = 8  # outsiders that show where the input goes
FEW_ABSENT = 3.0  # expected absent values below which an empty list says that none is absent
ROUNDING = 4  # units in the last place, in a mean of several parties
SHRUNK = 2e-6  # of the largest weight: how well a common factor must fit
HOLES_BIAS, HOLES_LAST = 0.005, 0.03  # of units, of weights: above these, entries were left out
FEW_ODD = 2  # units: in a mean, single steps of Adam may cancel each other
STANDARDISED = 1e-2
SILENT = 1e-3  # of outsiders: above this, some members may have moved no weight at all
AT_ONCE = 32  # units
BEARERS, DRAWS = 12, 200  # most bearers that are told apart, and draws for each
DRAWN, TIMES = 300, 4  # outsiders among whom bearers are drawn, and times in an epoch at which they may be seen
ONE_SIZE, FEW_MOVED = 0.05, 8  # how near to each other steps of one size are; weights that are too few to tell
ALIKE = 1e-3  # of the longer of two columns
PAIRED = 3000  # columns among which pairs are looked for, at most


# ------------------------------------------------------------------ the layer on the input


@dataclass(frozen=True, kw_only=True)
class InputLayer:
    """The layer that the input goes into, a column for each value: before and after the round."""

    words: bool  # an embedding, whose rows are words
    before: Floats  # units x values, in double precision
    after: Floats
    bias: tuple[Floats, Floats] | None
    last: tuple[Floats, Floats] | None  # the last layer's weights, if it is another
    ulp: Floats  # the distance between two numbers of the precision that was sent, at each weight
    relu: bool = False  # whether units that are off for a record get nothing from it
    drops: bool = False  # whether dropout, too, switches units off
    padding: int | None = None  # a word that is never trained
    left: float | None = None  # these are running means: what is left of one after the round, where nothing came

    def has(self, x: NDArray[Any], base: Floats) -> Bools:
        """Which records have which values."""
        if not self.words:
            return np.asarray(x.reshape(len(x), -1) != base)
        found = np.zeros((len(x), self.before.shape[1]), bool)
        tokens = x.reshape(len(x), -1)
        found[np.arange(len(x))[:, None], tokens] = True
        return found


def entry_of(update: OneUpdate, known: Known) -> InputLayer:
    """Where the model takes its input, by asking it; with arrays alone, the first matrix is taken for it."""
    return update.once("entry", lambda: _entry_of(update, known))


def _entry_of(update: OneUpdate, known: Known) -> InputLayer:
    names = [name for name, value in update.sent.items() if value.ndim == 2 and value.dtype.kind == "f"]
    taken = Taken("".join(names[:1]))
    if update.task is not None:
        of_model = known.of_model(update.received)
        taken = of_model("taken", lambda: asked(update.task, update.received, known.outsiders))
    if taken.momentum is not None:
        return _statistics(update, taken)
    first = taken.name
    if first not in update.sent or first not in update.received or update.sent[first].ndim != 2:
        raise CannotTell("no-matrix")
    beside = first.removesuffix("weight") + "bias"
    bias = _both(update, beside) if beside in update.sent and not taken.words else None
    last = names[-1] if names and names[-1] != first else None
    before, after = _both(update, first)
    sent = update.sent[first]
    ulp = np.spacing(np.maximum(np.abs(before), np.abs(after)).astype(sent.dtype)).astype(np.float64)
    if taken.words:
        before, after, ulp = before.T, after.T, ulp.T
    return InputLayer(
        words=taken.words,
        before=before,
        after=after,
        bias=bias,
        last=_both(update, last) if last else None,
        ulp=ulp,
        relu=taken.relu,
        drops=taken.drops,
        padding=taken.padding,
    )


def _statistics(update: OneUpdate, taken: Taken) -> InputLayer:
    """BatchNorm on the input: after so many steps, a column that is 0 in all records has this much of its old mean."""
    assert taken.momentum is not None
    steps = update.sent[f"{taken.name}num_batches_tracked"] - update.received[f"{taken.name}num_batches_tracked"]
    before, after = (each[None] for each in _both(update, f"{taken.name}running_mean"))
    left = float((1 - taken.momentum) ** float(steps))
    nothing = np.zeros_like(before)
    return InputLayer(words=False, before=before, after=after, bias=None, last=None, ulp=nothing, left=left)


def _both(update: OneUpdate, name: str) -> tuple[Floats, Floats]:
    """Before and after, both as precise as what was sent."""
    sent = update.sent[name]
    return update.received[name].astype(sent.dtype).astype(np.float64), sent.astype(np.float64)


@dataclass(frozen=True)
class Taken:
    """What takes the input: the name of a matrix, or of a BatchNorm (with its momentum) up to its last dot."""

    name: str
    _: KW_ONLY
    words: bool = False
    relu: bool = False
    drops: bool = False
    padding: int | None = None
    momentum: float | None = None


def asked(task: Any, received: State, outsiders: Records | None) -> Taken:
    """What takes the input as it is, while the model is being trained."""
    if outsiders is None or not hasattr(task, "fresh") or len(outsiders) < 2:
        raise CannotTell("model-unknown")
    import torch
    from torch import nn

    from fedaudit.learn.tasks import tensor

    module, x = task.fresh(received), tensor(outsiders.x[:TRIED])
    flat = x.reshape(len(x), -1)
    taken: list[nn.Module] = []

    def look(layer: nn.Module, inputs: tuple[Any, ...]) -> None:
        given = inputs[0] if inputs and isinstance(inputs[0], torch.Tensor) else None
        if given is not None and given.numel() == flat.numel() and torch.equal(given.reshape(flat.shape), flat):
            taken.append(layer)

    leaves = [layer for layer in module.modules() if not list(layer.children())]
    hooks = [layer.register_forward_pre_hook(look) for layer in leaves]
    with torch.random.fork_rng(devices=[]), torch.no_grad(), _of_their_model():
        module(x)
    for hook in hooks:
        hook.remove()
    names = {layer: f"{name}." if name else "" for name, layer in module.named_modules()}
    for layer in taken:
        if isinstance(layer, nn.BatchNorm1d) and layer.momentum is not None and layer.track_running_stats:
            return Taken(names[layer], momentum=layer.momentum)
        if isinstance(layer, nn.Linear | nn.Embedding):
            if sum(getattr(each, "weight", None) is layer.weight for each in leaves) > 1:
                raise CannotTell("tied")
            if not layer.weight.requires_grad:
                raise CannotTell("frozen")
            if isinstance(layer, nn.Embedding):
                return Taken(f"{names[layer]}weight", words=True, padding=layer.padding_idx)
            with _of_their_model():
                relu = _relu_follows(module, layer, x)
            drops = any(isinstance(each, nn.modules.dropout._DropoutNd) and each.p > 0 for each in leaves)
            return Taken(f"{names[layer]}weight", relu=relu, drops=drops)
    raise CannotTell("input-changed")


@contextmanager
def _of_their_model() -> Iterator[None]:
    """A model that does not answer eight records, or fewer, in its own way."""
    try:
        yield
    except OF_OTHERS:
        raise CannotTell("model-unknown") from None


def _relu_follows(module: Any, layer: Any, x: Any) -> bool:
    """Does a record move exactly the units that it switches on? Asked of a few outsiders, by what the answers' gradient
    says of each unit."""
    import torch

    made: list[Any] = []
    hook = layer.register_forward_hook(lambda _, __, units: made.append(units))
    answers = module.eval()(x)
    hook.remove()
    if layer.bias is None or len(made) != 1:
        return False
    (moves,) = torch.autograd.grad(answers.square().sum(), made, allow_unused=True)
    return moves is not None and float(((made[0] > 0) == (moves != 0)).double().mean()) > 0.95


# ------------------------------------------------------------------ what is known from outsiders


@dataclass(frozen=True)
class Usual:
    """Of each value: what a record without it has there, whether such records exist, and how many outsiders have it."""

    base: Floats
    possible: Bools
    having: Ints
    of: int

    def chance(self, records: int) -> Floats:
        """That none of so many records has it."""
        from scipy.special import betaln

        a, b = self.having + 0.5, self.of - self.having + 0.5
        return np.asarray(np.exp(betaln(a, b + records) - betaln(a, b)))

    def chances(self, records: int, most: int) -> Floats:
        """That 0, 1, ..., most of so many records have it."""
        from scipy.stats import betabinom

        k = np.arange(most + 1)[:, None]
        return np.asarray(betabinom.pmf(k, records, self.having + 0.5, self.of - self.having + 0.5))


def usual_of(entry: InputLayer, update: OneUpdate, known: Known) -> Usual:
    return known.of_model(update.received)("usual", lambda: usual(entry, known.some))


def usual(entry: InputLayer, outsiders: Records | None) -> Usual:
    width = entry.before.shape[1]
    if outsiders is None:
        return Usual(np.zeros(width), np.ones(width, bool), np.zeros(width, np.int64), 0)
    if entry.words:
        having = entry.has(outsiders.x, np.zeros(width)).sum(axis=0)
        possible = np.arange(width) != (-1 if entry.padding is None else entry.padding)
        return Usual(np.zeros(width), possible, having.astype(np.int64), len(outsiders))
    x = outsiders.x.reshape(len(outsiders), -1)
    low, high = x.min(axis=0), x.max(axis=0)
    at_low, zero = (x == low).sum(axis=0), (x == 0).any(axis=0)
    two_valued = at_low + (x == high).sum(axis=0) >= len(x)
    base = np.where(zero, 0.0, np.where(2 * at_low >= len(x), low, high)).astype(np.float64)
    return Usual(base, zero | two_valued, (x != base).sum(axis=0).astype(np.int64), len(outsiders))


# ------------------------------------------------------------------ the rules


@dataclass(frozen=True)
class Ruled:
    """Which columns stand still by a rule; where it is about single weights, which of these do, and what the data moved
    of each."""

    rule: str
    columns: Bools
    _: KW_ONLY
    still: Bools | None = None
    moved: Floats | None = None
    bias_still: Bools | None = None
    last_still: Bools | None = None
    by_chance: float = 0.0  # the share of the last layer's weights that stand still because they moved so little


def rules(entry: InputLayer, update: OneUpdate, known: Known, common: Usual, quantum: float | None) -> Iterator[Ruled]:
    """In the order in which they are tried."""
    if entry.left is not None:
        near = 1e-5 * np.abs(entry.before[0]) + 1e-8
        yield Ruled("statistics", np.abs(entry.after - entry.left * entry.before)[0] <= near)
        return
    moved, pairs = entry.after - entry.before, {"bias": entry.bias, "last": entry.last}
    if not update.summed:
        rest = {k: (p[0] == p[1]) if p else None for k, p in pairs.items()}
        yield _of_weights("unmoved", moved == 0, moved, rest)
    yield _rounded(entry, update, moved, pairs)
    if quantum:
        yield Ruled("quantum", np.sqrt((moved**2).mean(axis=0)) < quantum / 2)
    yield from _shrunk(entry, update, known, pairs)
    if (decayed := _decayed(entry, update, known)) is not None:
        yield decayed
    if (common.base[common.possible] != 0).any() and entry.bias is not None:
        yield Ruled("standardised", _with_bias(moved, entry.bias[1] - entry.bias[0], common.base))


def _rounded(
    entry: InputLayer, update: OneUpdate, moved: Floats, pairs: Mapping[str, tuple[Floats, Floats] | None]
) -> Ruled:
    """Within a few units in the last place. Small steps fall there, too: about as many as into the next such range."""
    units = {k: np.abs(p[1] - p[0]) / _spacing(p, update) for k, p in pairs.items() if p}
    rest = {k: units[k] <= ROUNDING if k in units else None for k in pairs}
    found = _of_weights("rounding", np.abs(moved) <= ROUNDING * entry.ulp, moved, rest)
    if "last" not in units:
        return found
    live = (units["last"] > ROUNDING).any(axis=0)
    next_to = (units["last"] > ROUNDING) & (units["last"] <= 2 * ROUNDING)
    return replace(found, by_chance=float(next_to[:, live].mean()) if live.any() else 0.0)


def _of_weights(rule: str, still: Bools, moved: Floats, rest: Mapping[str, Bools | None]) -> Ruled:
    columns = np.asarray(still.all(axis=0))
    return Ruled(rule, columns, still=still, moved=moved, bias_still=rest["bias"], last_still=rest["last"])


def _spacing(pair: tuple[Floats, Floats], update: OneUpdate) -> Floats:
    kind = next(value.dtype for value in update.sent.values() if value.dtype.kind == "f")
    return np.asarray(np.spacing(np.maximum(np.abs(pair[0]), np.abs(pair[1])).astype(kind)), np.float64)


def _shrunk(
    entry: InputLayer, update: OneUpdate, known: Known, pairs: Mapping[str, tuple[Floats, Floats] | None]
) -> Iterator[Ruled]:
    """All that have no gradient shrink by one factor, up to rounding in each step: two columns at least must agree."""
    length = (entry.before**2).sum(axis=0)
    rho = (entry.before * entry.after).sum(axis=0) / np.where(length > 0, length, 1.0)
    steps = max(steps_of(update, known))

    def still(before: Floats, after: Floats, ulp: Floats, factor: Floats | float) -> Bools:
        largest = max(float(np.abs(before).max(initial=0.0)), 1e-12)
        return np.asarray(np.abs(after - factor * before) <= np.minimum((ROUNDING + steps) * ulp, SHRUNK * largest))

    fits = still(entry.before, entry.after, entry.ulp, rho).all(axis=0) & (length > 0)
    if fits.sum() < 2:
        return
    factor = float(np.median(rho[fits]))
    rest = {key: still(*pair, _spacing(pair, update), factor) if pair else None for key, pair in pairs.items()}
    moved = entry.after - factor * entry.before
    yield _of_weights("shrunk", still(entry.before, entry.after, entry.ulp, factor), moved, rest)


DECAYS = (1e-5, 1e-4, 5e-4, 1e-3, 5e-3, 1e-2, 5e-2, 0.1)
RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
SCANNED = 8  # units on which the settings are looked for


def _decayed(entry: InputLayer, update: OneUpdate, known: Known) -> Ruled | None:
    """Adam with its decay in the gradient moves a weight without data by nearly its sign alone: run it. What is not
    known of its settings is looked for, and those that most columns obey are taken."""
    if str(known.training.get("optimizer", "adam")) != "adam" or update.summed:
        return None
    rates = (float(known.training["lr"]),) if "lr" in known.training else RATES
    decay = known.training.get("weight_decay")
    decays = (float(decay),) if decay else () if decay == 0.0 else DECAYS
    counts = steps_of(update, known)
    few = slice(0, SCANNED)
    best: tuple[int, float, float, int] = (0, 0.0, 0.0, 0)
    for rate in rates:
        for weight in decays:
            for steps, end in _without_data(entry.before[few], rate, weight, counts):
                agree = int(_near(end, entry.after[few], entry.ulp[few]).all(axis=0).sum())
                best = max(best, (agree, rate, weight, steps))
    if not best[0]:
        return None
    _, rate, weight, steps = best
    ((_, end),) = _without_data(entry.before, rate, weight, (steps,))
    rest: dict[str, Bools | None] = {}
    for key, pair in (("bias", entry.bias), ("last", entry.last)):
        ends = [one for _, one in _without_data(pair[0], rate, weight, (steps,))] if pair else []
        rest[key] = _near(ends[0], pair[1], _spacing(pair, update)) if pair else None
    return _of_weights("decayed", _near(end, entry.after, entry.ulp), entry.after - end, rest)


def _near(expected: Floats, after: Floats, ulp: Floats) -> Bools:
    return np.asarray(np.abs(expected - after) <= 16 * ulp + 1e-9)


def _without_data(start: Floats, lr: float, decay: float, counts: Sequence[int]) -> Iterator[tuple[int, Floats]]:
    """Adam (defaults but for these) on weights whose only gradient is their decay, after each of so many steps."""
    w, m, v = start.astype(np.float64).copy(), np.zeros_like(start), np.zeros_like(start)
    for step in range(1, max(counts, default=0) + 1):
        g = decay * w
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        w = w - lr * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)
        if step in counts:
            yield step, w


def _with_bias(moved: Floats, bias: Floats, base: Floats) -> Bools:
    """dW_j = c_j db for plain steps, and sign(c_j) db for Adam's, where every record has the constant c_j."""
    length = float(np.sqrt((bias**2).sum()))
    if not length:
        return np.zeros(len(base), bool)
    plain = np.sqrt(((moved - bias[:, None] * base) ** 2).sum(axis=0)) < STANDARDISED * np.abs(base) * length
    signed = np.sqrt(((moved - bias[:, None] * np.sign(base)) ** 2).sum(axis=0)) < STANDARDISED * length
    either = plain if plain.sum() >= signed.sum() else signed
    return np.asarray(either & (base != 0))


def thinned(entry: InputLayer, ruled: Ruled) -> bool:
    """Were entries of the update left out? Then a weight that stands still says nothing."""
    if ruled.still is not None and ruled.bias_still is not None:
        odd = (~ruled.still).any(axis=1) != ~ruled.bias_still
        if odd.sum() > max(HOLES_BIAS * len(odd), FEW_ODD):
            return True
    if ruled.last_still is not None and ruled.last_still.size:
        live = (~ruled.last_still).any(axis=0)
        return bool(live.any() and ruled.last_still[:, live].mean() - ruled.by_chance > HOLES_LAST)
    if entry.last is None and not entry.relu and not entry.words and ruled.still is not None:
        # The one layer there is: softmax gives every class of a column that moved something.
        moved = ruled.still[:, ~ruled.columns]
        return bool(moved.size and moved.mean() > HOLES_LAST)
    return False


def moves_nothing(entry: InputLayer, outsiders: Records) -> float:
    """The share of outsiders that switch off every unit: of members like these, the update knows nothing. Few units are
    enough to find that out of nearly all."""
    if not entry.relu or entry.bias is None:
        return 0.0
    left = outsiders.x.reshape(len(outsiders), -1)
    for start in range(0, len(entry.before), AT_ONCE):
        some = slice(start, start + AT_ONCE)
        left = left[((left @ entry.before[some].T.astype(left.dtype) + entry.bias[0][some]) <= 0).all(axis=1)]
        if not len(left):
            break
    return len(left) / len(outsiders)


# ------------------------------------------------------------------ exactly one, and the same bearers


def singles(
    entry: InputLayer, ruled: Ruled, known: Known, outsiders: Records, common: Usual, update: OneUpdate
) -> Floats:
    """The probability that exactly one record has a value that somebody has; NaN where that cannot be told."""
    unknown = np.full(len(common.base), np.nan)
    if not entry.relu or entry.drops or entry.bias is None or ruled.still is None or not update.examples:
        return unknown
    live = np.asarray((~ruled.still).any(axis=1))
    if live.sum() < 16:
        return unknown
    one_step, epochs = steps_of(update, known) == (1,), int(known.training.get("epochs", 1))
    law = _law(entry, live, _bearers(entry, outsiders, known, update), 0 if one_step else epochs, known.seed)
    standing = np.where(ruled.columns, 0.0, ruled.still[live].mean(axis=0))
    mean, sd = law.mean(axis=0)[:, None], np.sqrt(law.var(axis=0) + 0.25 / live.sum() ** 2)[:, None]
    prior = common.chances(update.examples, BEARERS)[1:]
    prior[-1] += np.maximum(1 - common.chance(update.examples) - prior.sum(axis=0), 0.0)
    weighed = np.exp(-0.5 * ((standing - mean) / sd) ** 2) / sd * prior
    total = weighed.sum(axis=0)
    found = np.where(total > 0, weighed[0] / np.where(total > 0, total, 1.0), 0.0)
    can = ~ruled.columns & common.possible & (common.base == 0)
    if update.summed and known.training.get("optimizer") != "sgd":
        found[_of_several(entry, ruled, np.flatnonzero(can & (found > 0.5)))] = 0.0
    return np.where(can, found, np.nan)


def _of_several(entry: InputLayer, ruled: Ruled, columns: Ints) -> Ints:
    """Which of these columns have several bearers, though much of them stands still: Adam's steps are of one size,
    so that those of two parties may cancel. What one record moved in one step of an epoch is of one size throughout."""
    if ruled.moved is None or ruled.still is None or ruled.rule == "decayed":
        return columns[:0]
    rows = zip(*(each[:, columns].T for each in (~ruled.still, np.abs(ruled.moved), entry.ulp)), strict=True)
    alike = np.full(len(columns), np.nan)
    for place, (moved, size, ulp) in enumerate(rows):
        sizes = size[moved]
        if len(sizes) >= FEW_MOVED:
            middle = np.partition(sizes, len(sizes) // 2)[len(sizes) // 2]
            alike[place] = (np.abs(sizes - middle) <= ONE_SIZE * middle + 2 * ulp[moved]).mean()
    of_one_size = alike >= 1 - ONE_SIZE
    return columns[(alike < 1 - ONE_SIZE) & of_one_size.any()]


@dataclass(frozen=True)
class Bearers:
    """Outsiders, and what the layer makes of them before the round."""

    x: NDArray[np.float32]
    before: NDArray[np.float32]


def _bearers(entry: InputLayer, outsiders: Records, known: Known, update: OneUpdate) -> Bearers:
    def made() -> Bearers:
        assert entry.bias is not None
        x = outsiders.x.reshape(len(outsiders), -1)[:DRAWN].astype(np.float32)
        return Bearers(x, x @ entry.before.T.astype(np.float32) + entry.bias[0].astype(np.float32))

    return known.of_model(update.received)("bearers", made)


def _law(entry: InputLayer, live: Bools, bearers: Bearers, epochs: int, seed: int) -> Floats:
    """Draws x bearers: the share of live units that are off for all of 1, 2, ... outsiders, each seen once an epoch, at
    a time of its own between the model received and the model sent; without epochs, at the model received."""
    assert entry.bias is not None
    first = bearers.before[:, live]
    rng = np.random.default_rng([seed, update_seed(entry)])
    who = rng.integers(len(first), size=(DRAWS, BEARERS))
    if epochs:
        final = bearers.x @ entry.after[live].T.astype(np.float32) + entry.bias[1][live].astype(np.float32)
        times = (np.arange(epochs * TIMES, dtype=np.float32) + 0.5) / (epochs * TIMES)
        off = np.stack([np.packbits(first + when * (final - first) <= 0, axis=1) for when in times])
        when = np.arange(epochs) * TIMES + rng.integers(TIMES, size=(DRAWS, BEARERS, epochs))
        seen = np.bitwise_and.reduce(off[when, who[..., None]], axis=2)
    else:
        seen = np.packbits(first <= 0, axis=1)[who]
    return np.asarray(np.bitwise_count(np.bitwise_and.accumulate(seen, axis=1)).sum(axis=2) / live.sum())


def update_seed(entry: InputLayer) -> int:
    return int(np.abs(entry.after).sum() * 1e6) % 2**31


def twins(entry: InputLayer, ruled: Ruled, steps: int) -> Ints:
    """For each value a number that it shares with those that moved alike; -1: it moved alone, or not at all."""
    group = np.full(entry.before.shape[1], -1, np.int64)
    if ruled.moved is None or ruled.still is None or ruled.rule == "decayed":
        return group
    mine = np.flatnonzero(~ruled.columns)
    if not 2 <= len(mine) <= PAIRED:
        return group
    length = np.sqrt(np.einsum("ij,ij->j", ruled.moved, ruled.moved)[mine])
    noise = 2.5 * np.sqrt(np.einsum("ij,ij->j", entry.ulp, entry.ulp)[mine] * steps)
    some = _of_like_length(length, noise)
    mine, length, noise = mine[some], length[some], noise[some]
    moved = ruled.moved[:, mine]
    apart = np.maximum(length[:, None] ** 2 + length**2 - 2 * moved.T @ moved, 0.0)
    near = apart <= np.minimum(ALIKE * np.maximum(length[:, None], length), noise[:, None] + noise) ** 2
    np.fill_diagonal(near, False)
    number = 0
    for place in range(len(mine)):
        if group[mine[place]] < 0 and near[place].any():
            fellows = near[place] & (group[mine] < 0)
            if fellows.any():
                group[mine[place]], group[mine[fellows]] = number, number
                number += 1
    return group


def _of_like_length(length: Floats, noise: Floats) -> Ints:
    """Columns with another of nearly the same length: no others can have moved alike."""
    order = np.argsort(length, kind="stable")
    close = np.diff(length[order]) <= np.minimum(ALIKE * length[order][1:], 2 * noise.max())
    return np.sort(order[np.append(close, False) | np.append(False, close)])


# ------------------------------------------------------------------ the part


class Presence:
    def look(self, update: OneUpdate, known: Known, options: UpdateSection) -> Table:
        outsiders = known.some
        entry = entry_of(update, known)
        if np.array_equal(entry.before, entry.after):
            raise CannotTell("nothing-moved")
        common = usual_of(entry, update, known)
        found: Ruled | None = None
        for ruled in rules(entry, update, known, common, options.quantum):
            if thinned(entry, ruled):
                raise CannotTell("thinned")
            if (ruled.columns & common.possible).any():
                found = ruled
                break
        expected = common.chance(update.examples)[common.possible] if common.of and update.examples else np.zeros(0)
        if found is None:
            if not len(expected):
                raise CannotTell("all-moved")
            if expected.sum() >= FEW_ABSENT:
                raise CannotTell("nothing-stands-still")
            found = Ruled("none", np.zeros(len(common.base), bool))
        absent = found.columns & common.possible
        spread = float(np.sqrt((expected * (1 - expected)).sum()))
        most = bool(len(expected)) and absent.sum() > expected.sum() + 6 * spread + 3
        if outsiders is not None and not most:
            silent = known.of_model(update.received)("silent", lambda: moves_nothing(entry, outsiders))
            most = silent > SILENT
        alone = singles(entry, found, known, outsiders, common, update) if outsiders is not None else np.full(
            len(absent), np.nan
        )  # fmt: skip
        steps = steps_of(update, known)
        return {
            "update-absent": absent,
            "update-possible": common.possible,
            "update-single": alone,
            "update-twin": twins(entry, found, steps[0] if len(steps) == 1 else 1),
            "update-base": common.base,
            "update-words": np.full(len(absent), entry.words),
            "update-rule": np.full(len(absent), found.rule),
            "update-at-most": np.full(len(absent), most),
        }

    def judge(self, seen: Sequence[BesideTruth], known: Known, confidence: float) -> Mapping[str, Estimate]:
        outsiders = known.some
        if outsiders is None:
            return {}
        absent, alone, pairs, whose = [], [], [], []
        for one in seen:
            held = Held.of(one, outsiders)
            absent.append(held.absent())
            if (listed := held.alone()) is not None:
                alone.append((listed, one.party))
            if (paired := held.paired()) is not None:
                pairs.append((paired, one.party))
            whose.append(one.party)
        return {
            **compared("presence", absent, whose, confidence),
            **compared("singletons", [each for each, _ in alone], [party for _, party in alone], confidence),
            **compared("twins", [each for each, _ in pairs], [party for _, party in pairs], confidence),
        }

    def say(self, one: BesideTruth, known: Known, options: UpdateSection) -> Notice | None:
        table = one.table
        absent, alone = table["update-absent"], table["update-single"] > 0.5
        twin = table["update-twin"]
        linked = alone & (twin >= 0)
        if not absent.any() and not alone.any():
            return notice("update-none-absent", party=one.party, round=one.round, vantage=one.vantage)
        shown = {}
        if options.names:
            some = {"absent": absent, "alone": alone}
            names = {key: [known.column(int(j)) for j in np.flatnonzero(each)[:SHOWN]] for key, each in some.items()}
            shown = {"exposed": names}
        return notice(
            "update-presence",
            party=one.party,
            round=one.round,
            vantage=one.vantage,
            absent=int(absent.sum()),
            alone=None if np.isnan(table["update-single"]).all() else int(alone.sum()),
            linked=int(linked.sum()),
            of=int(table["update-possible"].sum()),
            at_most=bool(table["update-at-most"][0]),
            tokens=bool(table["update-words"][0]),
            shown=shown,
        )


SHOWN = 5  # names of each kind that a sentence has


@dataclass(frozen=True)
class Held:
    """A table beside the truth: which of the records that were trained on have which values, and which outsiders."""

    table: Table
    having: Bools  # members x values
    outside: Bools
    common: Usual

    @classmethod
    def of(cls, one: BesideTruth, outsiders: Records) -> Held:
        base = np.asarray(one.table["update-base"], np.float64)
        nothing = np.zeros((1, len(base)))
        text = bool(one.table["update-words"][0])
        entry = InputLayer(words=text, before=nothing, after=nothing, bias=None, last=None, ulp=nothing)
        outside = entry.has(outsiders.x, base)
        common = Usual(base, one.table["update-possible"], outside.sum(axis=0).astype(np.int64), len(outsiders))
        return cls(one.table, entry.has(one.members.x, base), outside, common)

    def absent(self) -> Listed:
        can = self.common.possible
        listed = self.table["update-absent"][can]
        blind = most_probable(self.common.chance(len(self.having))[can], int(listed.sum()))
        return Listed(listed, np.asarray(~self.having.any(axis=0))[can], blind, np.flatnonzero(can))

    def alone(self) -> Listed | None:
        """None where exactly one could not be told."""
        told = self.table["update-single"]
        if np.isnan(told).all():
            return None
        can = self.common.possible & (self.common.base == 0)
        listed = np.nan_to_num(told[can]) > 0.5
        one = self.common.chances(len(self.having), 1)[1][can]
        blind = most_probable(one, int(listed.sum()))
        return Listed(listed, self.having.sum(axis=0)[can] == 1, blind, np.flatnonzero(can))

    def paired(self) -> Listed | None:
        """Pairs of values: those that moved alike, and those that the same records have. What nobody has is no pair."""
        group = self.table["update-twin"]
        borne = np.asarray(self.having.any(axis=0))
        held = np.flatnonzero((borne & self.common.possible) | (group >= 0))
        if not (group >= 0).any() or len(held) > PAIRED:
            return None
        patterns = np.packbits(self.having[:, held], axis=0).T.copy()
        _, same = np.unique(patterns, axis=0, return_inverse=True)
        first, second = np.triu_indices(len(held), 1)
        listed = (group[held][first] == group[held][second]) & (group[held][first] >= 0)
        true = (same.ravel()[first] == same.ravel()[second]) & borne[held][first]
        outside = self.outside[:, held].astype(np.float64)
        count = outside.sum(axis=0)
        shared = outside.T @ outside
        differing = (count[:, None] + count - 2 * shared) / self.common.of
        either = (count[:, None] + count - shared) / self.common.of
        n = len(self.having)
        likely = (1 - differing) ** n - (1 - either) ** n
        blind = most_probable(likely[first, second], int(listed.sum()))
        return Listed(listed, true, blind, held[first] * len(self.common.base) + held[second])


PART = Presence()
