"""The search of `fedaudit advise`: which positions of the levers leave most accuracy for the least risk?

1. First, for half of the places, three levers with all that they make together, because some help only in company,
   and then others by themselves. Then each next generation combines the best so far, as NSGA-II does: parents are
   configurations that no other beats in both risk and accuracy; a child moves all levers that either of the two has
   moved, some of them elsewhere, and now and then one of its own (docs/decisions/0017-search.md).
2. All are trained for a quarter of the rounds. A quarter of them go on to half of the rounds, and half of those to the
   end: front by front, the configurations that no other beats in both, spread over the accuracies. Every look counts
   as a federation that stops there.

A model with less than half of the best accuracy at that look goes on last: it is an answer to nobody, whatever it
hides. So does one that gives away more than half of what the worst of them does, however accurate it is.

Looks are kept beside the runs, and why there is none where the change is to blame. Proposals depend on nothing else, so
that a search that was killed and is begun again makes the same ones and trains only what is missing.

What does not fit takes no place: another change is tried instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import combinations
from pathlib import Path

import numpy as np

from fedaudit.config.schema import Config
from fedaudit.errors import REFUSED, FedauditError
from fedaudit.results import advice as results
from fedaudit.results.advice import Risk, Tried, beats, right
from fedaudit.results.document import load
from fedaudit.results.gate import Gate, Rule, judge
from fedaudit.session.levers import NO_CHANGE, Change, Lever, changed, together
from fedaudit.session.trials import (
    ANOTHER_FOLDER,
    LASTING,
    WITHOUT_A_PLACE,
    Bench,
    FailedTrial,
    Trial,
    keep,
    kept,
    kept_in,
    unusable,
)
from fedaudit.session.workers import News
from fedaudit.stats.wording import fpr_of

GENERATION, PARENTS = 8, 5  # configurations that are proposed at a time, and that they are made of
ATTEMPTS = 20  # to find a child that was not proposed before
PARTS = (0.25, 0.5, 1.0)  # of the rounds, after which runs are looked at
ON = (1.0, 0.25, 0.125)  # the share of the configurations that is trained up to each
FIRST = ("update", "model", "rate")  # levers that did most on the demo's federation, on which this was built
ELSEWHERE = 1 / 3  # how often a child has a lever of its parents in another position
OF_ITS_OWN = 0.25  # levers that a child moves beside its parents', in the mean


Moved = Mapping[str, Change]  # by lever, those that are not where they were


@dataclass(frozen=True)
class Contender:
    """A configuration on its way through the search: why it was left, and what was seen after each rung."""

    change: Change
    config: Config | None
    folder: Path
    _: KW_ONLY
    moved: Moved = field(default_factory=dict)
    status: str = ""
    unfit: bool = False  # nothing was trained
    looks: tuple[Tried, ...] = ()

    @property
    def last(self) -> Tried:
        return self.looks[-1]

    def told(self, planned: int) -> list[Tried]:
        """Each look as a federation that stops there; one that was never looked at says why."""
        if not self.looks:
            return [tried(self.change, 0, planned, self.status)]
        before = [replace(look, status="went on") for look in self.looks[:-1]]
        end = "trained to the end" if self.last.rounds == self.last.of else f"left after round {self.last.rounds}"
        return [*before, replace(self.last, status=self.status or end)]


def tried(change: Change, rounds: int, of: int, status: str = "") -> Tried:
    """Before anything was seen."""
    return Tried(
        name=change.name, words=change.words, overrides=change.overrides, rounds=rounds, of=of, status=status, risk=None
    )


def stopped(change: Change, rounds: int, of: int) -> Change:
    """With the rounds after which it was looked at."""
    if rounds == of:
        return change
    stop = Change(f"{rounds} rounds", f"stop after {rounds} rounds", {"federation.rounds": rounds})
    if change is NO_CHANGE:
        return stop
    overrides = {**change.overrides, **stop.overrides}
    return Change(f"{change.name}, {stop.name}", f"{change.words}, and {stop.words}", overrides)


# ------------------------------------------------------------------ the search


@dataclass(frozen=True)
class LeverSearch:
    """What is searched: changes of `config` by these levers, each run looked at by `limit`. `always`: what every
    configuration has changed beside."""

    config: Config
    levers: Sequence[Lever]
    limit: Rule
    _: KW_ONLY
    always: Sequence[Change] = ()
    places: int = 8  # configurations that are begun

    @property
    def chance(self) -> float:
        """The risk by a guess."""
        return fpr_of(self.limit.metric) or 0.5

    def run(self, bench: Bench) -> list[Contender]:
        return self.promoted(bench, self._screened(bench))

    def promoted(self, bench: Bench, field: Sequence[Contender]) -> list[Contender]:
        """Those that were trained up to the first rung, the best of them further."""
        field, (first, *later) = list(field), rungs(self.config)
        on = list(range(len(field)))
        for rung, share in zip(later, shares(first, *later)[1:], strict=True):
            alive = [place for place in on if field[place].looks and not field[place].status]
            best = further([field[place].last for place in alive], math.ceil(share * self.places), self.chance)
            on = [alive[place] for place in best]
            for place, one in zip(on, self.trained(bench, [field[place] for place in on], rung), strict=True):
                field[place] = one
        return field

    def _screened(self, bench: Bench) -> list[Contender]:
        """Up to the first rung: the levers that do most, with all that they make together, others by themselves, and
        then children."""
        rng, field = np.random.default_rng(self.config.federation.seed), list[Contender]()
        first, half = opening(self.levers), self.places // 2
        wave, first = [{}, *first[:half]], first[half:]
        while wave:
            new = [self.contender(bench, moved) for moved in wave]
            known = {one.folder for one in field}
            field += self.trained(bench, [one for one in new if one.folder not in known], rungs(self.config)[0])
            begun = sum(not one.unfit for one in field)
            left, more = min(GENERATION, self.places - begun), max(0, half + 1 - begun)
            wave, first = first[:more], first[more:]
            if not wave and left > 0 and len(field) < 2 * self.places:
                wave = children(field, self.levers, left, rng)
        return field

    def contender(self, bench: Bench, moved: Moved) -> Contender:
        change = together(self.config, [*self.always, *moved.values()])
        try:
            config = changed(self.config, change)
            return Contender(change, config, bench.folder(config), moved=moved)
        except FedauditError as error:
            return Contender(
                change, None, bench.out / change.name, moved=moved, status=f"does not fit: {error.what}", unfit=True
            )

    def trained(self, bench: Bench, field: Sequence[Contender], rung: int) -> list[Contender]:
        """All of them up to this rung, with what was seen there."""
        unseen = [
            (one, one.config) for one in field if one.config is not None and kept(one.folder, rung, self.limit) is None
        ]
        bench.needed.update(one.folder for one in field if one.config is not None)
        failed = bench.run([Trial(one.folder, config, rung) for one, config in unseen])
        return [one if one.config is None else self._looked_at(bench, one, rung, failed) for one in field]

    def _looked_at(self, bench: Bench, one: Contender, rung: int, failed: Mapping[Path, News]) -> Contender:
        """With what was seen, or with a status if it does not fit or failed."""
        known, wrong = kept(one.folder, rung, self.limit), failed.get(one.folder)
        seen = known or self._seen(one, rung, wrong)
        lasting = bool(known or isinstance(seen, Tried) or (wrong and wrong.what in LASTING))
        if lasting and not known:
            keep(seen, one.folder, rung, self.limit)
        if isinstance(seen, Tried):
            return replace(one, looks=(*one.looks, seen))
        after = f" after round {one.last.rounds}" if one.looks else ""
        status = f"does not fit: {seen.why}" if seen.unfit else f"failed{after}: {seen.why}"
        again = f" (delete {kept_in(one.folder, rung, self.limit)} to try it again)" if lasting else ""
        bench.tell(f"{one.change.name}: {status}{again}")
        return replace(one, status=status, unfit=seen.unfit)

    def _seen(self, one: Contender, rung: int, wrong: News | None) -> Tried | FailedTrial:
        if wrong is not None:
            return FailedTrial(why=wrong.why, unfit=wrong.what in WITHOUT_A_PLACE and not one.looks)
        try:
            return looked(one, rung, self.config.federation.rounds, self.limit)
        except FedauditError as error:
            if error.exit_code == REFUSED:  # damaged, or the run has gone on
                raise
            return FailedTrial(why=error.what, unfit=False)


def rungs(config: Config) -> list[int]:
    """The rounds after which runs are looked at."""
    planned = config.federation.rounds
    return sorted({min(planned, max(2, math.ceil(planned * part))) for part in PARTS})


def shares(*rungs: int) -> list[float]:
    """Of the configurations, those that are trained up to each rung."""
    return [ON[0], *ON[len(ON) - len(rungs) + 1 :]]


def most_rounds(places: int, rungs: Sequence[int]) -> int:
    """To train, if so many configurations are begun."""
    on = [math.ceil(share * places) for share in shares(*rungs)]
    return sum(count * (rung - before) for count, rung, before in zip(on, rungs, (0, *rungs), strict=False))


def looked(one: Contender, rung: int, planned: int, limit: Rule) -> Tried:
    """What a run has come to after this round."""
    try:
        gate, document = judge(one.folder, [limit]), load(one.folder)
    except FedauditError as error:
        if error.exit_code == REFUSED:
            raise unusable(one.folder, error.what) from None
        raise
    if document.run.rounds != rung:
        why = f"it is at round {document.run.rounds}, and what was seen after round {rung} was not kept"
        raise unusable(one.folder, why, ANOTHER_FOLDER)
    return replace(
        tried(stopped(one.change, rung, planned), rung, planned),
        risk=worst(gate),
        upper=upper(gate),
        estimates=results.named(accuracy=document.accuracy),
    )


def upper(gate: Gate) -> float | None:
    """The largest of all upper ends. None if one has none, or if there is nothing."""
    ends = [finding.high for finding in gate.findings]
    return None if None in ends or not ends else max(end for end in ends if end is not None)


def worst(gate: Gate) -> Risk | None:
    """The largest of the risks that the limit speaks of, by what is certain. None if one of them has no value, or one
    that is doubted."""
    if not gate.findings or any(finding.value is None or finding.doubt for finding in gate.findings):
        return None
    f = max(gate.findings, key=lambda finding: (-1.0 if finding.low is None else finding.low, finding.value or 0.0))
    assert f.value is not None
    return Risk(attack=f.attack, vantage=f.vantage, model=f.model, party=f.party, value=f.value, low=f.low, high=f.high)


# ------------------------------------------------------------------ proposals


def children(field: Sequence[Contender], levers: Sequence[Lever], count: int, rng: np.random.Generator) -> list[Moved]:
    """Up to so many that were not proposed before, without positions that did not fit by themselves. Fewer where
    parents have nothing new to make."""
    seen, found = {_key(one.moved) for one in field}, list[Moved]()
    unfit = [change for one in field if one.unfit and len(one.moved) == 1 for change in one.moved.values()]
    levers = [replace(lever, positions=[p for p in lever.positions if p not in unfit]) for lever in levers]
    able = [one for one in field if one.looks]
    parents = [able[place].moved for place in spread([one.looks[0] for one in able], PARENTS)]
    for _ in range(count * ATTEMPTS if len(parents) > 1 else 0):
        pair = [parents[place] for place in rng.permutation(len(parents))[:2]]
        child: dict[str, Change] = {}
        for lever in levers:
            own = [moved[lever.name] for moved in pair if lever.name in moved]
            change = own[rng.integers(len(own))] if own else None
            if rng.random() < (ELSEWHERE if own else OF_ITS_OWN / len(levers)):
                change = _another(lever, change, rng)
            child |= {lever.name: change} if change else {}
        if _key(child) not in seen and len(found) < count:
            seen.add(_key(child))
            found.append(child)
    return found


def _another(lever: Lever, own: Change | None, rng: np.random.Generator) -> Change | None:
    """Another position: each next one in the list half as often, because they begin with those that are worth most. A
    lever with no other goes back."""
    others = [position for position in lever.positions if position != own]
    return others[min(int(rng.geometric(0.5)), len(others)) - 1] if others else None


def _key(moved: Moved) -> frozenset[tuple[str, str]]:
    return frozenset((lever, change.name) for lever, change in moved.items())


def opening(levers: Sequence[Lever]) -> list[Moved]:
    """The first positions of the levers that do most, alone and in all combinations; then every other position by
    itself, one of each lever after the other."""
    most = [{lever.name: lever.positions[0]} for name in FIRST for lever in levers if lever.name == name]
    some = [chosen for size in range(1, len(most) + 1) for chosen in combinations(most, size)]
    ranked = [(place, {lever.name: change}) for lever in levers for place, change in enumerate(lever.positions)]
    alone = [moved for _, moved in sorted(ranked, key=lambda one: one[0]) if moved not in most]
    return [*({name: change for one in chosen for name, change in one.items()} for chosen in some), *alone]


# ------------------------------------------------------------------ who goes on


def further(looks: Sequence[Tried], count: int, chance: float) -> list[int]:
    """The places of so many that go on: first of those that leave at most half of what the worst of them does."""
    excess = {place: look.risk.value - chance for place, look in enumerate(looks) if look.risk}
    halved = [place for place in excess if excess[place] <= results.HALF * max(excess.values())]
    chosen: list[int] = []
    for places in (halved, [place for place in excess if place not in halved]):
        chosen += [places[one] for one in spread([looks[place] for place in places], count - len(chosen))]
    return chosen


def spread(looks: Sequence[Tried], count: int) -> list[int]:
    """The places of so many, front by front; of a front with too many, as far apart in accuracy as can be."""
    best = max(map(right, looks), default=0.0)
    useful = [place for place, look in enumerate(looks) if look.risk and right(look) >= results.HALF * best]
    rest = [place for place, look in enumerate(looks) if look.risk and place not in useful]
    chosen: list[int] = []
    for front in (*fronts(looks, useful), *fronts(looks, rest)):
        left, ordered = count - len(chosen), sorted(front, key=lambda place: right(looks[place]))
        if len(ordered) > left:
            steps = [round(step * (len(ordered) - 1) / max(1, left - 1)) for step in range(left)]
            ordered = [ordered[::-1][step] for step in steps]  # the most accurate first, if there is room for one
        chosen += ordered
    return chosen


def fronts(looks: Sequence[Tried], places: Sequence[int]) -> Iterator[list[int]]:
    """Those that no other beats in both risk and accuracy; then the same of what is left."""
    left = list(places)
    while left:
        front = [place for place in left if not any(beats(looks[other], looks[place]) for other in left)]
        yield front
        left = [place for place in left if place not in front]
