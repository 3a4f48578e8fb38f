"""What comes in: a party's look at the model that it is asked to train, before it trains.

A server that wants single records can prepare the model for it. Such models look unlike trained ones, and a party can
see that with a few hundred of its own records and one forward pass. Nothing here trains, and nothing leaves the party.

Of every dense layer but the last:

1. partners    the share of units with a partner: another unit with the same weights up to a factor, or one that the
               next layer treats alike (Robbing the Fed, as we know it: one direction, cut at many quantiles);
2. nested      the share of pairs of units of which one fires only for records for which the other fires, too (of the
               first dense layer alone: behind it, honest units follow each other as well);
3. rare        the share of units that fire for at least one record and for at most 2 % of them (trap weights of "When
               the curious abandon honesty", as we know them);
   aloof       in its place with less than 100 records: the share of units that lie, on average, 1.5 to 4 standard
               deviations below where they fire.

Of the last layer:

4. outsized    its largest row, by norm, against the median row, of two rows against the other (fishing for a class, as
               we know it).

Of the rounds before:

5. jump        by how much more an array changed than in any earlier round that was seen;
6. unforeseen  how far an array lies from where its last change would have taken it, in the same sense.

As a part of the question, it looks at the model that every update started from, with records of outsiders in the place
of a party's own, and without earlier rounds. It has no figure to compare with the truth: what it says is a warning.

`Incoming` holds what earlier rounds said, as arrays and plain values, so that any framework can keep it between rounds.
It needs arrays alone: `layers_of` collects them from a torch task.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedaudit.questions.update.parts import BesideTruth, CannotTell, Known, OneUpdate, Table
from fedaudit.types import Bools, Estimate, Floats, Ints, Notice, State, warning

if TYPE_CHECKING:
    from fedaudit.questions.update import UpdateSection

RECORDS = 200  # of its own that a party asks the model about
UNITS = 192  # of a layer that are looked at
SAME = 0.98  # cosine, without its sign
SELDOM = 0.02  # of the records
COUNTED = 100  # records from which on it is counted for how many a unit fires
BELOW = (1.5, 4.0)  # standard deviations: a unit whose mean lies so far below 0 fires seldom, but does
TINY = 1e-12
FEWEST = 20  # records and units: with fewer, shares say nothing
HISTORY = 5  # earlier rounds that a change is compared with
ROUNDS = 3  # that must have been seen before a change can be sudden

Figure = Literal["partners", "nested", "rare", "aloof", "outsized", "jump", "unforeseen"]
# Above these a model is suspicious. Set by `docs/make_incoming.py limits` on models of other data than those reported.
LIMITS: Mapping[Figure, float] = {
    "partners": 0.05,
    "nested": 0.40,
    "rare": 0.40,
    "aloof": 0.60,
    "outsized": 10.0,
    "jump": 5.0,
    "unforeseen": 5.0,
}


@dataclass(frozen=True)
class SeenLayer:
    """A dense layer: z = weight @ input + bias. `inputs`: what goes into it for the party's records, in rows, where
    that is known. `following`: the weights of the dense layer behind it, where that takes its units one by one."""

    name: str
    weight: Floats
    bias: Floats
    _: KW_ONLY
    inputs: Floats | None = None
    following: Floats | None = None
    first: bool = False
    last: bool = False


@dataclass(frozen=True)
class Alarm:
    """A figure above its limit. `where`: the layer, or the array."""

    figure: Figure
    where: str
    value: float
    limit: float

    def plain(self) -> dict[str, Any]:
        return {"figure": self.figure, "where": self.where, "value": self.value, "limit": self.limit}


# ------------------------------------------------------------------ of one model


def figures_of(layer: SeenLayer) -> dict[Figure, float]:
    """The figures of a layer that can be told."""
    if layer.last:
        rows = np.linalg.norm(layer.weight, axis=1)
        usual = np.median(rows) if len(rows) > 2 else rows.min(initial=np.inf)
        largest = float(rows.max(initial=0.0))
        return {"outsized": largest / max(float(usual), TINY * largest, TINY)} if len(rows) > 1 else {}
    if len(layer.weight) < FEWEST:
        return {}
    some = _drawn(layer)
    weight, bias = np.asarray(layer.weight[some], np.float32), layer.bias[some]
    found: dict[Figure, float] = {}
    if bias.any():  # alike rows part records by their biases alone; factors of adapters are alike, and have none
        paired = _paired(weight)
        if layer.following is not None and len(layer.following) >= FEWEST:
            paired |= _paired(np.asarray(layer.following[:, some].T, np.float32))
        found["partners"] = float(paired.mean())
    if layer.inputs is not None and len(layer.inputs) >= FEWEST:
        reached = np.asarray(layer.inputs, np.float32) @ weight.T + bias.astype(np.float32)
        if len(reached) < COUNTED:
            found["aloof"] = _aloof(reached)
        else:
            found["rare"] = _rare(reached)
        if layer.first:  # behind it, units of honest models follow each other as well
            found["nested"] = _nested(reached > 0)
    return found


def _drawn(layer: SeenLayer) -> Ints:
    """Some of its units. Which, nobody knows who does not have the party's records: else the others could be
    prepared."""
    if len(layer.weight) <= UNITS:
        return np.arange(len(layer.weight))
    secret = zlib.crc32(np.ascontiguousarray(layer.inputs).tobytes()) if layer.inputs is not None else 0
    return np.sort(np.random.default_rng(secret).choice(len(layer.weight), UNITS, replace=False))


def _paired(rows: Any) -> Bools:
    """Which rows have another one of the same direction, or of the opposite one."""
    unit = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-30)
    alike = np.abs(unit @ unit.T)
    np.fill_diagonal(alike, 0)
    return np.asarray((alike > SAME).any(axis=1))


def _nested(fires: Bools) -> float:
    """Of the pairs of units that fire for some records but not for all: in how many does one set lie in the other?"""
    count = fires.sum(axis=0)
    some = fires[:, (count > 0) & (count < len(fires))].astype(np.float32)
    if some.shape[1] < FEWEST:
        return 0.0
    both, size = some.T @ some, some.sum(axis=0)
    inside = both >= np.minimum(size[:, None], size) - 0.5
    units = len(inside)
    return float((np.count_nonzero(inside) - units) / (units * (units - 1)))  # every pair twice, none with itself


def _rare(reached: Any) -> float:
    count = (reached > 0).sum(axis=0)
    return float(np.mean((count >= 1) & (count <= max(1, int(SELDOM * len(reached))))))


def _aloof(reached: Any) -> float:
    """What fires for one record in a hundred fires for few of fifty, or none: mean and spread tell it all the same."""
    below = -reached.mean(axis=0) / np.maximum(reached.std(axis=0), TINY)
    return float(np.mean((below > BELOW[0]) & (below < BELOW[1])))


def suspicious(layers: Sequence[SeenLayer], limits: Mapping[Figure, float] = LIMITS) -> list[Alarm]:
    """What looks prepared in one model."""
    return [
        Alarm(figure, layer.name, value, limits[figure])
        for layer in layers
        for figure, value in figures_of(layer).items()
        if not value <= limits[figure]  # NaN is suspicious, too
    ]


# ------------------------------------------------------------------ of a series of models

BUCKETS = 256  # sums that stand for an array: its length follows from them to about a tenth


@dataclass(frozen=True)
class Incoming:
    """What the models of earlier rounds said, for each array of weights: where it was and its last change, as sums of
    its values with random signs, and how large its changes and its surprises were. Numbers by name, and nothing else:
    a framework keeps them as `plain` has them.

    `left`: where the arrays were before models that were suspicious. `secret`: which signs (`secret_of`)."""

    before: Mapping[str, Floats] = field(default_factory=dict)
    change: Mapping[str, Floats] = field(default_factory=dict)
    changes: Mapping[str, Floats] = field(default_factory=dict)
    surprises: Mapping[str, Floats] = field(default_factory=dict)
    _: KW_ONLY
    left: Mapping[str, Floats] = field(default_factory=dict)
    secret: int = 0

    def look(
        self, state: State, layers: Sequence[SeenLayer] = (), limits: Mapping[Figure, float] = LIMITS
    ) -> tuple[list[Alarm], Incoming]:
        """What is suspicious about the model that came in, and what is kept for the next one. A suspicious change is
        not taken for usual. The next model may follow from the suspicious one, or from the one before it: the shorter
        way is judged. An array that did not change says nothing of how far others do."""
        now = {name: _sums(value, self.secret) for name, value in state.items() if _weights(value)}
        ways = {
            name: [sums - place[name] for place in (self.before, self.left) if name in place]
            for name, sums in now.items()
        }
        shortest = {name: min(steps, key=np.linalg.norm) for name, steps in ways.items() if steps}
        moved = {name: step for name, step in shortest.items() if step.any()}
        aside = {name: step - self.change[name] for name, step in moved.items() if name in self.change}
        alarms = suspicious(layers, limits)
        alarms += _sudden("jump", moved, self.changes, limits["jump"])
        alarms += _sudden("unforeseen", aside, self.surprises, limits["unforeseen"])
        if not all(np.isfinite(sums).all() for sums in now.values()):
            return alarms, self
        if alarms:
            return alarms, replace(self, before=now, change={}, left=self.left or self.before)
        changes, surprises = _longer(self.changes, moved), _longer(self.surprises, aside)
        return [], Incoming(now, {**self.change, **moved}, changes, surprises, secret=self.secret)

    def plain(self) -> dict[str, list[float]]:
        kept = {f"{part} {name}": kept.tolist() for part in KEPT for name, kept in getattr(self, part).items()}
        return {**kept, SECRET: [float(self.secret)]}

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Incoming:
        """What `plain` gave."""
        found: dict[str, dict[str, Floats]] = {part: {} for part in KEPT}
        for key, values in plain.items():
            if key == SECRET:
                continue
            part, _, name = key.partition(" ")
            found[part][name] = np.array(values, np.float64)
        return cls(**found, secret=int(plain.get(SECRET, [0])[0]))


KEPT = ("before", "change", "changes", "surprises", "left")
SECRET = "secret"


def secret_of(x: Any) -> int:
    """Of a party's records: whoever knows the signs can change a model without changing the sums. A number that a float
    holds."""
    some = np.ascontiguousarray(np.asarray(x)[:RECORDS])
    return int.from_bytes(hashlib.sha256(some.tobytes()).digest()[:6], "big")


def _weights(value: Any) -> bool:
    return bool(value.dtype.kind == "f" and value.ndim > 1 and value.size > 0)


def _sums(value: Any, secret: int = 0) -> Floats:
    """The same signs for every array of this size, in every round of a party."""
    flat = np.asarray(value).ravel()
    signed = np.zeros(-(-flat.size // BUCKETS) * BUCKETS)
    np.multiply(flat, _signs(flat.size, secret), out=signed[: flat.size])
    return np.asarray(signed.reshape(-1, BUCKETS).sum(axis=0))


@lru_cache(maxsize=32)
def _signs(size: int, secret: int) -> NDArray[np.int8]:
    bits = np.frombuffer(np.random.default_rng([size, secret] if secret else size).bytes(size // 8 + 1), np.uint8)
    return np.asarray(2 * np.unpackbits(bits)[:size].astype(np.int8) - 1)


def _sudden(figure: Figure, now: Mapping[str, Floats], earlier: Mapping[str, Floats], limit: float) -> list[Alarm]:
    found = []
    for name, value in now.items():
        past = earlier.get(name, np.empty(0))
        if len(past) >= ROUNDS:
            ratio = float(np.linalg.norm(value) / past.max())
            if not ratio <= limit:
                found.append(Alarm(figure, name, ratio, limit))
    return found


def _longer(earlier: Mapping[str, Floats], now: Mapping[str, Floats]) -> dict[str, Floats]:
    """Lengths, of the last few rounds. The first change is from a model that nobody trained: it counts like others."""
    longer = {
        name: np.append(earlier.get(name, np.empty(0)), np.linalg.norm(value))[-HISTORY:]
        for name, value in now.items()
        if value.any()
    }
    return {**earlier, **longer}


# ------------------------------------------------------------------ from a torch task


def layers_of(task: Any, state: State, x: Any) -> list[SeenLayer]:
    """The dense layers of the model in the order in which records pass them, with what goes into each for at most
    RECORDS of these. Empty for a model of another framework, or one without such layers."""
    module = getattr(task, "architecture", None)
    if module is None:
        return []
    from torch import nn

    named = {layer: name for name, layer in module.named_modules() if isinstance(layer, nn.Linear)}
    entered: dict[nn.Linear, list[Any]] = {}  # in the order of the pass, a part for each batch

    def remember(layer: nn.Linear, inputs: tuple[Any, ...], _: Any) -> None:
        entered.setdefault(layer, []).append(inputs[0].reshape(-1, inputs[0].shape[-1])[: 4 * RECORDS].numpy())

    hooks = [layer.register_forward_hook(remember) for layer in named]
    try:
        task.outputs(state, np.asarray(x)[:RECORDS])
    finally:
        for hook in hooks:
            hook.remove()
    passed = list(entered)
    weights = [layer.weight.detach().numpy().copy() for layer in passed]  # the module is scratch space
    found = []
    for place, (layer, weight) in enumerate(zip(passed, weights, strict=True)):
        behind = weights[place + 1] if place + 1 < len(passed) else None
        found.append(
            SeenLayer(
                named[layer],
                weight,
                np.zeros(len(weight)) if layer.bias is None else layer.bias.detach().numpy().copy(),
                inputs=np.concatenate(entered[layer]),
                following=behind if behind is not None and behind.shape[1] == len(weight) else None,
                first=place == 0,
                last=place == len(passed) - 1,
            )
        )
    return found


# ------------------------------------------------------------------ the part


class IncomingPart:
    def look(self, update: OneUpdate, known: Known, options: UpdateSection) -> Table:
        x = known.outsiders.x if known.outsiders is not None else np.zeros(0)

        def figures() -> list[tuple[str, Figure, float]]:
            layers = layers_of(update.task, update.received, x) if len(x) else []
            return [(layer.name, figure, value) for layer in layers for figure, value in figures_of(layer).items()]

        found = known.of_model(update.received)("incoming", figures)
        if not found:
            raise CannotTell("incoming-layers")
        where, figure, value = (np.array(column) for column in zip(*found, strict=True))
        return {"incoming-where": where, "incoming-figure": figure, "incoming-value": value}

    def judge(self, seen: Sequence[BesideTruth], known: Known, confidence: float) -> Mapping[str, Estimate]:
        return {}

    def say(self, one: BesideTruth, known: Known, options: UpdateSection) -> Notice | None:
        columns = (one.table[f"incoming-{column}"].tolist() for column in ("where", "figure", "value"))
        alarms = [Alarm(figure, where, value, LIMITS[figure]) for where, figure, value in zip(*columns, strict=True)]
        loud = [alarm.plain() for alarm in alarms if not alarm.value <= alarm.limit]
        return warning("update-incoming", round=one.round, alarms=loud) if loud else None


PART = IncomingPart()
