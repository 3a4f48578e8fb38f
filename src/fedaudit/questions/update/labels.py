"""Which classes does a party have, and how many records of each?

With a cross-entropy loss, one step of plain gradient descent moves the bias of class c by lr (n_c / n - pbar_c): the
share of records that have it, less what the model says of it on average. (The closed form of iDLG, LLG and their like,
as we know them from their abstracts.) What the model says of the party's records is not known; outsiders stand in:

1. n (pbar + db / lr), moved to the nearest counts that are not negative and sum to n; whole numbers for small n.
2. How far that may be off: the same of parties that are drawn from outsiders, with classes as estimated. Outsiders are
   not fitted as closely as members, so that a bias is left: it grows with training.

Clipping, noise and entries left out change the bias, too: then nothing is counted. The biases of one step of softmax
sum to 0; where they do not, something else moved them.

After several steps the bias has no such form. On request (`simulate`), the receiver trains parties of outsiders from
the model that it sent (RLU and Decaf do the like, as we understand their abstracts):

3. six parties for each of three mixtures of classes, from even to very uneven. The mixture whose biases moved about as
   far is taken, and a line is fitted from how a bias moved to how many records its class has beyond the usual.
4. Uneven mixtures: the estimate itself is simulated, three times, and what it explains is subtracted.
5. How far that may be off: six further parties that nothing was fitted on, the widest of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.questions.update import presence
from fedaudit.questions.update.parts import BesideTruth, CannotTell, Known, OneUpdate, Table, steps_of
from fedaudit.stats import Block, auc, proportion
from fedaudit.types import Estimate, Floats, Ints, Notice, Records, notice

if TYPE_CHECKING:
    from fedaudit.questions.update import UpdateSection

WHOLE = 64  # records up to which counts are rounded
SPLITS, DRAWS = 10, 10  # of outsiders in two halves, and parties for each, for what the estimate may be off
PARTIES = 6  # that are trained for each mixture of classes
MIXTURES = (None, 0.3, 0.05)  # the concentration of a Dirichlet distribution; None: as outsiders are
REFINED = 3  # times that an uneven estimate is simulated
LEVEL = 0.95  # of the interval of a count


class Labels:
    def look(self, update: OneUpdate, known: Known, options: UpdateSection) -> Table:
        outsiders = known.some
        if outsiders is None or update.task is None or not update.examples:
            raise CannotTell("classes-unknown")
        if known.classes < 2 or outsiders.y.ndim != 1 or outsiders.y.dtype.kind not in "iu":
            raise CannotTell("no-classes")
        if known.defended:
            raise CannotTell("bias-defended")
        if update.summed and not update.by_records:
            raise CannotTell("bias-unweighted")
        bias = last_bias(update, known.classes)
        moved = update.sent[bias].astype(np.float64) - update.received[bias]
        if not moved.any():
            raise CannotTell("bias-still")
        if _thinned(update, known):
            raise CannotTell("bias-thinned")
        usual = shares(outsiders, known.classes) * update.examples
        if _one_plain_step(update, known):
            if not sums_to_nothing(update.sent[bias], moved, float(known.training["lr"])):
                raise CannotTell("bias-changed")
            found = closed_form(update, known, outsiders, moved)
        elif options.simulate:
            found = Simulation(update, known, outsiders, bias).counts(moved)
        else:
            raise CannotTell("several-steps")
        return {
            "labels-count": found.count,
            "labels-low": found.low,
            "labels-high": found.high,
            "labels-usual": usual,
        }

    def judge(self, seen: Sequence[BesideTruth], known: Known, confidence: float) -> Mapping[str, Estimate]:
        number = {party: place for place, party in enumerate(dict.fromkeys(one.party for one in seen))}
        wrong: dict[str, list[Floats]] = {"count": [], "usual": []}
        blocks: dict[str, list[Block]] = {"count": [], "usual": []}
        whose, held, classes = [], [], []
        for one in seen:
            table, place = one.table, number[one.party] * 2**40
            true = np.bincount(one.members.y.astype(np.int64), minlength=len(table["labels-count"])).astype(np.float64)
            whose.append(place + np.arange(len(one.members)))
            which = place + np.arange(len(true))
            classes.append(which)
            held.append((table["labels-low"] <= true) & (true <= table["labels-high"]))
            has = true > 0
            for name in ("count", "usual"):
                guess = table[f"labels-{name}"]
                wrong[name].append(_misplaced(guess, true, len(one.members)))
                if has.any() and not has.all():
                    clusters = which[has], which[~has], which[:0]
                    blocks[name].append(Block(guess[has], guess[~has], guess[:0], clusters))
        counted = "share of records counted under a wrong class"
        found = {
            "label-error": proportion(wrong["count"], whose, confidence, "label-error", counted, by="record"),
            "label-error-blind": proportion(
                wrong["usual"],
                whose,
                confidence,
                "label-error-blind",
                f"{counted}, by the outsiders' classes",
                by="record",
            ),
            "label-interval": proportion(
                held,
                classes,
                confidence,
                "label-interval",
                f"share of counts inside their {LEVEL:.0%} interval",
                by="class",
            ),
        }
        if blocks["count"]:
            found |= {
                name: _named(auc(blocks[of], confidence), name)
                for name, of in (("label-auc", "count"), ("label-auc-blind", "usual"))
            }
        return found

    def say(self, one: BesideTruth, known: Known, options: UpdateSection) -> Notice | None:
        table = one.table
        count = table["labels-count"]
        shown: dict[str, Any] = {}
        if options.names:
            largest = np.argsort(-count, kind="stable")[:SHOWN]
            shown = {"exposed": {"counts": [[int(c), float(round(count[c]))] for c in largest]}}
        return notice(
            "update-labels",
            party=one.party,
            round=one.round,
            vantage=one.vantage,
            records=len(one.members),
            classes=len(count),
            missing=int((table["labels-high"] < 1).sum()),
            within=float((table["labels-high"] - table["labels-low"]).mean() / 2),
            shown=shown,
        )


SHOWN = 3  # classes whose counts a sentence has


def _named(estimate: Estimate, name: str) -> Estimate:
    from dataclasses import replace

    return replace(estimate, name=name)


def _misplaced(guess: Floats, true: Floats, records: int) -> Floats:
    """As many records as are counted under a wrong class, each a 1; a part of one, a fraction."""
    wrong = float(np.abs(guess - true).sum() / 2)
    return np.clip(wrong - np.arange(records), 0.0, 1.0)


def last_bias(update: OneUpdate, classes: int) -> str:
    names = [n for n, v in update.sent.items() if v.shape == (classes,) and n.endswith("bias") and n in update.received]
    if not names:
        raise CannotTell("no-bias")
    return names[-1]


def shares(outsiders: Records, classes: int) -> Floats:
    """How the classes are among outsiders; one that nobody has there has half a record."""
    counts = np.bincount(outsiders.y.astype(np.int64), minlength=classes) + 0.5
    return np.asarray(counts / counts.sum())


def _thinned(update: OneUpdate, known: Known) -> bool:
    """By what the layer on the input shows, where the model has one that can be read."""
    try:
        entry = presence.entry_of(update, known)
    except CannotTell:
        return False
    common = presence.usual_of(entry, update, known)
    return presence.thinned(entry, next(presence.rules(entry, update, known, common, None)))


def sums_to_nothing(sent: NDArray[Any], moved: Floats, rate: float) -> bool:
    """Shares and probabilities both sum to 1, so that the biases of one step sum to 0, up to rounding: of each bias as
    it was sent, and of the probabilities before."""
    of_biases = np.spacing(np.abs(sent)).astype(np.float64).sum()
    return bool(abs(moved.sum()) <= presence.ROUNDING * (of_biases + 4 * float(np.finfo(np.float32).eps) * rate))


def _one_plain_step(update: OneUpdate, known: Known) -> bool:
    how = known.training
    plain = how.get("optimizer") == "sgd" and "lr" in how and not how.get("weight_decay")
    return bool(plain) and steps_of(update, known) == (1,)


# ------------------------------------------------------------------ one step


@dataclass(frozen=True)
class Counts:
    count: Floats
    low: Floats
    high: Floats


def closed_form(update: OneUpdate, known: Known, outsiders: Records, moved: Floats) -> Counts:
    n, classes, rate = update.examples, known.classes, float(known.training["lr"])
    said = known.of_model(update.received)("said", lambda: probabilities(update, outsiders))
    found = nearest_counts(n * (said.mean(axis=0) + moved / rate), n)
    rng = np.random.default_rng([known.seed, n])
    likely = (found + 0.5) / (found + 0.5).sum()
    off = np.empty((SPLITS, DRAWS, classes))
    for split in range(SPLITS):
        # Half of the outsiders are the party, and the other half what the receiver has.
        order = rng.permutation(len(outsiders))
        mine, theirs = order[: len(order) // 2], order[len(order) // 2 :]
        true, step = _steps(said[mine], outsiders.y[mine], n, likely, rng)
        guess = n * (said[theirs].mean(axis=0) + step)
        off[split] = nearest_counts(guess, n) - true
    low, high = np.quantile(off.reshape(-1, classes), [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return Counts(found, np.maximum(np.floor(found - high), 0.0), np.minimum(np.ceil(found - low), n))


def _steps(said: Floats, y: Ints, n: int, likely: Floats, rng: np.random.Generator) -> tuple[Ints, Floats]:
    """Parties of n of these records, with classes drawn by how likely they are: how many of each they have, and how the
    step moves the bias, over the learning rate."""
    by_class, many = np.argsort(y, kind="stable"), np.bincount(y, minlength=len(likely))
    share = np.where(many > 0, likely, 0.0)
    true = rng.multinomial(n, share / share.sum(), size=DRAWS)
    label = np.repeat(np.tile(np.arange(len(likely)), DRAWS), true.ravel())
    place = (np.cumsum(many) - many)[label] + (rng.random(len(label)) * many[label]).astype(np.int64)
    party = np.repeat(np.arange(DRAWS), n)
    drawn = np.bincount(party * len(y) + by_class[place], minlength=DRAWS * len(y)).reshape(DRAWS, len(y))
    return true, (true - drawn @ said) / n


def probabilities(update: OneUpdate, records: Records) -> Floats:
    outputs = update.task.outputs(update.received, records.x)
    raised = np.exp(outputs - outputs.max(axis=1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=1, keepdims=True))


def nearest_counts(guess: Floats, records: int) -> Floats:
    """The nearest point with entries that are not negative and sum to so many; whole numbers where they are few. A row
    each, where there are several."""
    rows = np.atleast_2d(guess)
    ordered = -np.sort(-rows, axis=1)
    excess = (np.cumsum(ordered, axis=1) - records) / np.arange(1, rows.shape[1] + 1)
    last = rows.shape[1] - 1 - np.argmax((ordered > excess)[:, ::-1], axis=1)
    found = np.maximum(rows - np.take_along_axis(excess, last[:, None], axis=1), 0.0)
    if records <= WHOLE:
        found = np.array([_whole(row, records) for row in found], np.float64)
    return np.asarray(found.reshape(guess.shape))


# ------------------------------------------------------------------ several steps: trained on outsiders


@dataclass
class Simulation:
    """Parties of outsiders, trained from the model that the party received, as the party trains."""

    update: OneUpdate
    known: Known
    outsiders: Records
    bias: str

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng([self.known.seed, self.update.round, self.update.examples])
        self.usual = shares(self.outsiders, self.known.classes)

    def trained(self, wanted: Ints) -> Floats:
        """How the last bias moves for a party with so many records of each class."""
        from fedaudit.learn.tasks import Training

        chosen = []
        for label, many in enumerate(wanted.tolist()):
            own = np.flatnonzero(self.outsiders.y == label)
            if many and len(own):
                chosen.append(self.rng.choice(own, many, replace=many > len(own)))
        records = self.outsiders.take(np.concatenate(chosen))
        how = Training(**self.known.training)
        sent = self.update.task.train(self.update.received, records, how, self.rng).state
        return np.asarray(sent[self.bias].astype(np.float64) - self.update.received[self.bias])

    def party(self, mixture: float | None) -> tuple[Ints, Floats]:
        """Records of each class, and how the bias moved."""
        share = self.usual if mixture is None else self.rng.dirichlet(self.usual * len(self.usual) * mixture)
        there = np.bincount(self.outsiders.y.astype(np.int64), minlength=self.known.classes) > 0
        share = np.where(there, share, 0.0)
        wanted = self.rng.multinomial(self.update.examples, share / share.sum())
        return wanted, self.trained(wanted)

    def counts(self, moved: Floats) -> Counts:
        n = self.update.examples
        families = {mixture: [self.party(mixture) for _ in range(PARTIES)] for mixture in MIXTURES}
        at_rest = np.mean([bias for _, bias in families[None]], axis=0)

        def far(bias: Floats) -> float:
            return float(np.log(max(((bias - at_rest) ** 2).sum(), 1e-300)))

        mixture = min(MIXTURES, key=lambda each: abs(np.mean([far(bias) for _, bias in families[each]]) - far(moved)))
        x = np.concatenate([bias - at_rest for _, bias in families[mixture]])
        y = np.concatenate([wanted - n * self.usual for wanted, _ in families[mixture]])
        slope = float((x * y).sum() / max((x * x).sum(), 1e-300))
        count = self._estimate(moved, at_rest, slope, mixture)
        # What nothing was fitted on says how far it may be off.
        off = [self._off(*self.party(mixture), at_rest, slope, mixture) for _ in range(PARTIES)]
        low = min(float(np.quantile(one, (1 - LEVEL) / 2)) for one in off)
        high = max(float(np.quantile(one, (1 + LEVEL) / 2)) for one in off)
        spread = np.sqrt(count + 1)
        return Counts(
            count, np.maximum(np.floor(count - high * spread), 0.0), np.minimum(np.ceil(count - low * spread), n)
        )

    def _estimate(self, moved: Floats, at_rest: Floats, slope: float, mixture: float | None) -> Floats:
        n = self.update.examples
        first = nearest_counts(n * self.usual + slope * (moved - at_rest), n)
        if mixture is None:
            return first
        refined = [first]
        for _ in range(REFINED):
            explained = self.trained(_whole(refined[-1], n))
            refined.append(nearest_counts(refined[-1] + slope * (moved - explained), n))
        return np.asarray(np.mean(refined[1:], axis=0))

    def _off(self, wanted: Ints, moved: Floats, at_rest: Floats, slope: float, mixture: float | None) -> Floats:
        guess = self._estimate(moved, at_rest, slope, mixture)
        return np.asarray((guess - wanted) / np.sqrt(guess + 1))


def _whole(counts: Floats, records: int) -> Ints:
    whole = np.floor(counts)
    whole[np.argsort(whole - counts, kind="stable")[: max(records - int(whole.sum()), 0)]] += 1
    return whole.astype(np.int64)


PART = Labels()
