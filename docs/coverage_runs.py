"""Simulated training runs whose mean is known: on records of their own, on one set, and with roles dealt again."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from docs.coverage_worlds import NORMAL, Rng, Shots, shot
from fedaudit.stats import Block, auc, auc_difference, over_runs, tpr_at_fpr, tpr_difference
from fedaudit.stats.intervals import of_sum
from fedaudit.stats.paired import errors_behind
from fedaudit.types import Estimate, Floats, Ints

OWN, SHARED, DEALT = "records of their own", "one set", "roles dealt again"
FAR = 12.0  # above all others


@dataclass(frozen=True, kw_only=True)
class Trained:
    """The mean over training runs whose strength varies by `spread`.

    Four fifths of a score's variance are the record's own (half of that its person's, where people have several),
    the rest is the run's. `odd`: the share of records, members and others, that lie far above. `ahead`: the mean of the
    difference between two attacks on the same records, of which the second is weaker by so much.
    """

    runs: int
    deal: str
    side: int = 150  # members, and as many non-members; four times as many set a threshold
    spread: float = 0.0
    shift: float = 1.0
    fpr: float | None = None
    odd: float = 0.0
    records: int = 1  # of a person
    ahead: float | None = None

    def truth(self, shift: float) -> float:
        if self.fpr is not None:
            return float(NORMAL.sf((NORMAL.isf(self.fpr) - shift) / np.sqrt(1 + self.spread**2)))
        plain, far = (float(NORMAL.cdf(s / np.sqrt(2 + self.spread**2))) for s in (shift, shift - FAR))
        p = self.odd
        return ((1 - p) ** 2 + p**2) * plain + p * (1 - p) * (1 + far)

    def __call__(self, rng: Rng) -> Shots:
        """By the rule, without knowing whose the scores are, and by Student's t alone; and the first run's interval,
        which does not claim to cover the mean."""
        records, errors = self._records(rng), []
        found: list[Estimate] = []
        for run, strength in enumerate(self.shift + self.spread * rng.standard_normal(self.runs)):
            if run and self.deal == OWN:
                records = self._records(rng)
            names = np.arange(len(records)) // self.records + (10**6 * run if self.deal == OWN else 0)
            order = self._order(rng, len(records))
            blocks = [self._block(rng, records[order], names[order], strength)]
            if self.ahead is None:
                found.append(auc(blocks) if self.fpr is None else tpr_at_fpr(blocks, self.fpr, prove=False))
                errors.append(errors_behind(found[-1].name, blocks))
                continue
            others = [self._block(rng, records[order], names[order], strength - self.ahead)]
            if self.fpr is None:
                found.append(auc_difference(blocks, others))
            else:
                found.append(tpr_difference(blocks, others, self.fpr))
            name = found[-1].name.removesuffix("-difference")
            one, two = errors_behind(name, blocks), errors_behind(name, others)
            errors.append(of_sum(one, two, -1.0) if one and two else None)
        truth = self.truth(self.shift) - (0.0 if self.ahead is None else self.truth(self.shift - self.ahead))
        least = 0.0 if self.ahead is None else -1.0
        alone = over_runs([replace(e, low=e.value, high=e.value) for e in found], least)
        ways = {
            "over runs": over_runs(found, least, errors=errors),
            "not known whose": over_runs(found, least),
            "Student's t": alone,
            "single run": found[0],
        }
        return {name: own["interval"] for name, one in ways.items() if (own := shot(one, truth))}

    def _records(self, rng: Rng) -> Floats:
        """What is a record's own in its score, persons in a row."""
        people = self.side * (2 if self.fpr is None else 6) // self.records
        own = rng.standard_normal(people * self.records)
        if self.records > 1:
            own = (own + np.repeat(rng.standard_normal(people), self.records)) / np.sqrt(2)
        return np.asarray(np.sqrt(0.8) * own + FAR * (rng.random(len(own)) < self.odd))

    def _order(self, rng: Rng, size: int) -> Ints:
        """A person has one role."""
        people = np.arange(size // self.records)
        if self.deal == DEALT:
            people = rng.permutation(people)
        return np.asarray((people[:, None] * self.records + np.arange(self.records)).ravel())

    def _block(self, rng: Rng, own: Floats, names: Ints, strength: float) -> Block:
        scores = own + np.sqrt(0.2) * rng.standard_normal(len(own))
        (a, b, c), (x, y, z) = (self._parts(each) for each in (scores, names))
        whose = (x, y, z)
        return Block(a + strength, b, c, whose) if self.records > 1 else Block(a + strength, b, c, ids=whose)

    def _parts(self, each: Floats | Ints) -> Sequence[Floats]:
        return np.split(each, [self.side, 2 * self.side])
