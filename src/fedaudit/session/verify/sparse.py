"""A claim of the sparse vector technique, as NVIDIA FLARE's `SVTPrivacy` makes it: a few coordinates of an update
leave, clipped and with Laplace noise; the filter itself counts what that costs.

The clip norm does not leave a site, but its ratio to the noise does: a coordinate that costs e has noise of scale
2 gamma / e. That is enough to tell values that carry no such noise by how they are spread.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field
from scipy import stats

from fedaudit.session.verify.evidence import ERROR, ROUNDING
from fedaudit.types import Floats, Round, State

_Epsilon = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Outcome = Literal["PASS", "FAIL", "CANNOT TELL"]
Found = tuple[Outcome, str]
NOT_KEPT = 'the trace holds no models: record with keep = "snapshots"'
MECHANISM = "mechanism"  # the key that tells such a claim from others
WIDE = 2.0  # how many medians a value must exceed to be counted as far out


class SparseLedger(BaseModel):
    """Of one party: what its filter counted until the last round, and the parts of one call."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    party: str
    epsilon: _Epsilon
    calls: Annotated[int, Field(ge=1)]
    threshold: _Epsilon
    query: _Epsilon
    release: _Epsilon
    released: Annotated[int, Field(ge=1)]  # coordinates in one call

    @property
    def one_call(self) -> float:
        return self.threshold + self.query + self.release


class DeclaredSparse(BaseModel):
    """[claim] with `mechanism = "sparse-vector"`: of whole updates, each party's its own."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    mechanism: Literal["sparse-vector"]
    epsilon: _Epsilon  # of the party that has spent most
    unit: Literal["user"] | None = None
    adjacency: Literal["add-remove", "replace"] | None = None
    kind: Literal["WEIGHTS", "WEIGHT_DIFF"] = "WEIGHT_DIFF"  # what is thinned
    epsilon_one_round: _Epsilon | None = None
    ledgers: Annotated[tuple[SparseLedger, ...], Field(min_length=1)]


@dataclass
class Sent:
    """Of one party: in how many rounds it took part, and what is seen of those whose models were kept."""

    rounds: int = 0
    kept: int = 0  # in how many of them its model was
    most: tuple[int, str] = (0, "")  # coordinates that are not 0, and in which round
    bare: set[str] = field(default_factory=set)  # arrays that changed and can carry no noise
    far: list[tuple[str, int, int]] = field(default_factory=list)  # round, values, how many of them are far out

    def take(self, label: str, kind: str, before: State, after: State) -> None:
        self.kept += 1
        values = []
        for name, array in after.items():
            if array.ndim == 0 or array.dtype.kind != "f":
                self.bare |= {name} if np.any(array != before[name]) else set()
            else:
                left = array if kind == "WEIGHTS" else array - before[name]
                values.append(np.abs(left[left != 0].astype(np.float64)))
        sizes: Floats = np.concatenate(values) if values else np.zeros(0)
        self.most = max(self.most, (sizes.size, label))
        if sizes.size:
            self.far.append((label, sizes.size, int(np.sum(sizes > WIDE * np.median(sizes)))))


def seen_in(said: DeclaredSparse, took_part: Iterable[str], rounds: Iterable[tuple[int, Round]]) -> dict[str, Sent]:
    """`took_part`: the names of parties, once for every round that they sent an update in."""
    found = {party: Sent(rounds=count) for party, count in Counter(took_part).items()}
    for branch, round in rounds:
        label = f"round {round.index}" + (f" of branch {branch}" if branch else "")
        for party, trained in round.sent.items():
            if trained.state:
                found[party].take(label, said.kind, round.broadcast, trained.state)
    return found


# ------------------------------------------------------------------ the checks


class SparseCheck(NamedTuple):
    id: str
    question: str
    found: Found
    looks: bool = True  # at rounds


def judged(said: DeclaredSparse, seen: dict[str, Sent]) -> Iterator[SparseCheck]:
    ledgers = [(one, seen.get(one.party, Sent())) for one in said.ledgers]
    accounted = [*_summed(said), *(_accounted(*one) for one in ledgers)]
    yield SparseCheck("V1", "Are unit and adjacency stated?", _stated(said), looks=False)
    yield SparseCheck("V2", "Is every update that left accounted for?", _first(accounted, said, seen))
    yield SparseCheck(
        "V3", "Do no more coordinates leave than are accounted for?", _first([_counted(*o) for o in ledgers])
    )
    yield SparseCheck("V4", "Does everything that leaves carry noise?", _first([_covered(*o) for o in ledgers]))
    yield SparseCheck("V5", "Is the noise there?", _first([_noisy(*o) for o in ledgers]))
    yield SparseCheck("V6", "Does the proof hold that the epsilon is taken from?", _proved(), looks=False)


def _first(found: list[Found], said: DeclaredSparse | None = None, seen: dict[str, Sent] | None = None) -> Found:
    """The worst of all parties."""
    if said is not None and seen is not None and (silent := sorted({*seen} - {one.party for one in said.ledgers})):
        return "FAIL", f"{', '.join(silent)} sent updates that no filter accounted for"
    worst: tuple[Outcome, ...] = ("FAIL", "CANNOT TELL", "PASS")
    return min(found, key=lambda one: worst.index(one[0]))


def _stated(said: DeclaredSparse) -> Found:
    if missing := [what for what in ("unit", "adjacency") if getattr(said, what) is None]:
        return "FAIL", f"not stated: {' and '.join(missing)}"
    return "PASS", f"one whole update, {said.adjacency}, delta 0"


def _summed(said: DeclaredSparse) -> Iterator[Found]:
    """What is stated for all parties must hold for the one that has spent most."""
    most, dearest = max(said.ledgers, key=lambda one: one.epsilon), max(said.ledgers, key=lambda one: one.one_call)
    if said.epsilon < most.epsilon * (1 - ROUNDING):
        yield "FAIL", f"epsilon {said.epsilon:.4g} is stated, and {most.party} has spent {most.epsilon:.4g}"
    one = said.epsilon_one_round
    if one is not None and one < dearest.one_call * (1 - ROUNDING):
        yield "FAIL", f"one round is stated to cost {one:.4g}, and an update of {dearest.party} {dearest.one_call:.4g}"


def _accounted(one: SparseLedger, sent: Sent) -> Found:
    true = one.one_call * sent.rounds
    if one.calls < sent.rounds:
        what = f"{one.party}: {one.calls} of {sent.rounds} updates are accounted (was the filter started anew?)"
        return "FAIL", f"{what}: they cost {true:.4g}, {one.epsilon:.4g} is stated"
    if one.epsilon < true * (1 - ROUNDING):
        return "FAIL", f"{one.party}: {sent.rounds} updates cost {true:.4g}, {one.epsilon:.4g} is stated"
    return "PASS", f"{one.party}: {sent.rounds} updates of epsilon {one.one_call:.4g} each, {one.epsilon:.4g} is stated"


def _counted(one: SparseLedger, sent: Sent) -> Found:
    most, label = sent.most
    if not sent.kept:
        return "CANNOT TELL", f"{one.party}: {NOT_KEPT}"
    if most > one.released:
        return "FAIL", f"{one.party}, {label}: {most} coordinates are not 0, {one.released} are accounted for"
    return "PASS", f"{one.party}: at most {most} coordinates of {one.released}"


def _covered(one: SparseLedger, sent: Sent) -> Found:
    if sent.bare:
        what = f"{one.party}: left as they were: {', '.join(sorted(sent.bare)[:5])}"
        return "FAIL", f"{what} (whole numbers, or arrays without dimensions, which the filter lets pass)"
    if not sent.kept:
        return "CANNOT TELL", f"{one.party}: {NOT_KEPT}"
    return "PASS", f"{one.party}: no array without dimensions and no whole numbers changed"


def _noisy(one: SparseLedger, sent: Sent) -> Found:
    """Laplace noise of scale b on values within r b: of those at least this share lies beyond twice the median."""
    if not sent.kept:
        return "CANNOT TELL", f"{one.party}: {NOT_KEPT}"
    if not sent.far:
        return "CANNOT TELL", f"{one.party}: every value that left is 0"
    r = one.release / (2 * one.released)
    least = math.exp(-(WIDE * (math.log(2) + r) + r))
    for label, size, far in sent.far:
        if stats.binom.cdf(far, size, least) < ERROR:
            what = f"{one.party}, {label}: {far / size:.1%} of {size} values exceed {WIDE:g} medians"
            return "FAIL", f"{what}; with the noise that is accounted for it would be {least:.1%} or more"
    if all(stats.binom.cdf(0, size, least) >= ERROR for _, size, _ in sent.far):
        return "CANNOT TELL", f"{one.party}: too few values, or too little noise beside the clip, to tell"
    return "PASS", f"{one.party}: values are spread at least as widely as by noise of that scale"


def _proved() -> Found:
    return "CANNOT TELL", (
        "the sparse vector technique stops after as many answers as are paid for. This filter takes all that lie above "
        "the threshold and draws among them. The technique's proof does not cover that"
    )
