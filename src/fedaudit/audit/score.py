"""Score: turn what the attacks kept of the rounds into one number per candidate, and sort these into the three sets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedaudit.adversary.attacks.base import BaseAttack, Evidence, Own
from fedaudit.adversary.reductions import Kept, WholeSeries
from fedaudit.adversary.vantage import View
from fedaudit.audit.collect import Sight, in_order, quietly
from fedaudit.audit.costs import load_learners, timed
from fedaudit.audit.outlooks import Outlooks
from fedaudit.errors import FedauditError
from fedaudit.stats import Block, hash_order
from fedaudit.stats.roc import Absent
from fedaudit.types import Bools, Floats, Measured, Role, gap

NO_SCORES = "no scores: too few rounds were seen, or none could be computed from them"


class Scores:
    """The scores after the rounds so far. It is made for one snapshot; each score is computed once.

    `barred`: the party that is itself the adversary.
    """

    def __init__(self, outlooks: Outlooks, barred: str | None = None):
        self.outlooks, self.own, self.barred = outlooks, outlooks.own, barred
        self._found: dict[tuple[int, str, int], Floats] = {}
        self._blocks: dict[tuple[int, str, str | None], Block] = {}  # of the attack that was asked about last
        self.thresholds: dict[tuple[int, str], float | None] = {}  # of attacks that fix one on their own records
        self.asked: dict[tuple[int, str], Floats | None] = {}  # how many labels each candidate cost
        self.fitting: dict[tuple[int, str, int], float] = {}  # seconds, by sight, attack and how many it knew

    @quietly
    def of(self, sight: Sight, attack: BaseAttack, k: int | None = None) -> Floats:
        """`k`: for an attack that knows some candidates, how many there are on each side."""
        count = known_to(sight, attack) if k is None or "known" not in attack.fitted_on else k
        key = id(sight), attack.name, count
        if key not in self._found:
            self._found[key] = _one_each(self._score(sight, attack, count), len(sight.id), attack.name)
        return self._found[key]

    def _score(self, sight: Sight, attack: BaseAttack, k: int) -> Floats:
        nothing = np.full(len(sight.id), np.nan)
        if not sight.rounds and not sight.pending:
            return nothing
        if "shadow" in attack.fitted_on:
            target, own = self.series(sight, attack)
            if own is None or self.own is None:
                return nothing
            member = self.own.role == Role.MEMBER.value
            taught = self.fit(sight, attack, Evidence(shadow=Own(own, member)))
            self.thresholds[id(sight), attack.name] = getattr(taught, "threshold", None)
            return taught.score(target)
        features = self._kept(sight, attack).features()
        if "own" in attack.fitted_on:
            mine = sight.own(attack.own)
            label = sight.role[mine] == Role.MEMBER.value
            taught = self.fit(sight, attack, Evidence(own=Own(features[mine], label)))
            self.thresholds[id(sight), attack.name] = getattr(taught, "threshold", None)
            return taught.score(features)
        if cannot_fit(sight, attack):
            return nothing
        if attack.calibrates_less:
            attack = self.fit(sight, attack, _evidence(sight, attack, features, k), k)
        return _some(attack.score(features), features, attack.name)

    def fit(self, sight: Sight, attack: BaseAttack, evidence: Evidence, k: int = 0) -> BaseAttack:
        """The fitted attack; the time that it takes is part of what the attack costs."""
        if "shadow" in attack.fitted_on or "own" in attack.fitted_on:
            load_learners()
        with timed(self.fitting, (id(sight), attack.name, k)):
            return attack.fit(evidence)

    def series(self, sight: Sight, attack: BaseAttack) -> tuple[Floats, Floats | None]:
        """Series of the target's candidates and of the adversary's own, over the rounds in which both were seen."""
        if self.own is None:
            raise FedauditError("no-shadow", f"{attack.name} needs a shadow model", 'Set audit.adversary = "agg-sh".')
        target, own = sight.reductions[attack.name], self.own.reductions[attack.name]
        assert isinstance(target, WholeSeries)
        assert isinstance(own, WholeSeries)
        rounds = [round for round in target.rounds if round in own.rounds]
        return target.at(rounds), own.at(rounds) if rounds else None

    def _kept(self, sight: Sight, attack: BaseAttack) -> Kept:
        """What the attack kept of the rounds. A deferred attack measures the last model only now, in a copy."""
        kept = sight.reductions[attack.name]
        if attack.name not in sight.later or attack.name in sight.settled:
            self.asked[id(sight), attack.name] = kept.queries()
            return kept
        view = sight.pending
        if view is None:
            raise FedauditError(
                "deferred",
                f"{attack.name} needs the last model, and neither that model nor its signals were kept",
                'Ask after the next round, or run again with audit.keep = "snapshots".',
            )
        measured = self._look(sight, attack, view)
        looked = attack.reduce(len(sight.id))
        looked.restore(kept.state())
        why = sight.reduce(attack, looked, view.moment, in_order(measured, sight.row_ids), measured)
        if why:
            raise FedauditError("attack", why, "The other attacks are not affected.")
        self.asked[id(sight), attack.name] = looked.queries()
        return looked

    def _look(self, sight: Sight, attack: BaseAttack, view: View) -> Measured:
        """What the attack sees of the last model. Ctrl-C leaves out all attacks that share these signals, for good."""
        try:
            return sight.look(attack.signals, view)
        except KeyboardInterrupt:
            broken_off = dict.fromkeys(attack.signals, gap("broken-off"))
            nothing = Measured(sight.row_ids, {}, 0.0, 0.0, failed=broken_off)
            return sight.looked.setdefault(tuple(attack.signals), nothing)

    # ------------------------------------------------------------------ what can be said of them

    def defined(self, sight: Sight, attack: BaseAttack) -> bool:
        """Has enough been observed for this attack to give scores? For a party that rarely takes part, perhaps not."""
        return bool(np.isfinite(self.of(sight, attack)).any())

    def unscored(self, sight: Sight, attack: BaseAttack) -> int:
        """How many candidates have no finite score."""
        return int((~np.isfinite(self.of(sight, attack)))[self.judged(sight, attack)].sum())

    def judged(self, sight: Sight, attack: BaseAttack) -> Bools:
        """The candidates that an attack is judged on. A party that attacks others is not judged on its own records."""
        attacker = sight.first if attack.by_first_party else self.barred if "shadow" in attack.fitted_on else None
        if attacker is None:
            return np.ones(len(sight.id), bool)
        return ~sight.of_first if attacker == sight.first else np.asarray(sight.party != attacker)

    def block(self, sight: Sight, attack: BaseAttack, party: str | None = None) -> Block:
        """The scores, of one party's candidates or all, sorted into the three sets. Several figures are computed from
        them, one attack after the other: so those of one attack are kept."""
        key = id(sight), attack.name, party
        if key not in self._blocks:
            self._blocks = {place: kept for place, kept in self._blocks.items() if place[1] == attack.name}
            self._blocks[key] = self._sorted(sight, attack, party)
        return self._blocks[key]

    def _sorted(self, sight: Sight, attack: BaseAttack, party: str | None) -> Block:
        judged = self.judged(sight, attack)
        scores = np.full(len(sight.id), np.nan)
        scores[judged] = finite(self.of(sight, attack)[judged], attack.name)
        mine = judged & (True if party is None else sight.party == party)
        mine &= ~spent(sight, attack)
        sets = [mine & sight.of_role[role] for role in (Role.MEMBER, Role.EVALUATION, Role.CALIBRATION)]
        whose = sight.subject
        names = None if whose is None else (whose[sets[0]], whose[sets[1]], whose[sets[2]])
        ids = sight.index[sets[0]], sight.index[sets[1]], sight.index[sets[2]]
        own = str(sight.party[0]) if sight.model == "local" and len(sight.party) else ""
        return Block(scores[sets[0]], scores[sets[1]], scores[sets[2]], names, ids, party=own)

    def threshold(self, sights: Sequence[Sight], attack: BaseAttack) -> float | None:
        """The threshold that an attack fixed on the adversary's own records, which are the same at all sights."""
        found = {self.thresholds.get((id(sight), attack.name)) for sight in sights if self.defined(sight, attack)}
        return found.pop() if len(found) == 1 else None

    def queries(self, sights: Sequence[Sight], attack: BaseAttack, party: str | None) -> tuple[float, float] | None:
        """How many labels a candidate (of one party, or any) that is not the adversary's own cost: on average, and at
        most. None where labels are not what it costs."""
        counts = []
        for sight in sights:
            asked = self.asked.get((id(sight), attack.name)) if self.defined(sight, attack) else None
            mine = self.judged(sight, attack) & (True if party is None else sight.party == party)
            counts += [] if asked is None else [asked[mine]]
        every = np.concatenate(counts) if sum(map(len, counts)) else None
        return None if every is None else (float(every.mean()), float(every.max()))

    def blocks(self, sights: Sequence[Sight], attack: BaseAttack, party: str | None = None) -> list[Block]:
        """One block for each sight, without parties of which too little was observed."""
        return [self.block(sight, attack, party) for sight in sights if self.defined(sight, attack)]

    def absent(self, sights: Sequence[Sight], attack: BaseAttack) -> list[Absent]:
        """The parties that have no block, though the attack is judged on them."""
        gone = [s for s in sights if s.model == "local" and len(s.party) and not self.defined(s, attack)]
        return [
            Absent(str(sight.party[0]), "unfit" if cannot_fit(sight, attack) else "unseen", int(members.sum()))
            for sight in gone
            if self.judged(sight, attack).any()
            for members in [sight.of_role[Role.MEMBER]]
        ]

    def epochs(self, sights: Sequence[Sight], attack: BaseAttack) -> float:
        """`cost.epochs`, as `costs` defines it."""
        return self.seconds(sights, attack) / self.outlooks.unit([s for s in sights if s.model == "local"])

    def seconds(self, sights: Sequence[Sight], attack: BaseAttack) -> float:
        """What an attack is charged at these sights, and at that of the adversary's own records if it learns there."""
        own = [self.own] if "shadow" in attack.fitted_on and self.own else []
        fitted = [self.fitting.get((id(sight), attack.name, known_to(sight, attack)), 0.0) for sight in sights]
        return sum(sight.cost(attack) for sight in (*sights, *own)) + sum(fitted)


def _one_each(scores: Any, candidates: int, attack: str) -> Floats:
    """What an attack from outside returns may be anything; a score is one number for each candidate."""
    found = np.asarray(scores)
    if found.shape != (candidates,) or found.dtype.kind not in "fiub":
        what = f"{attack} gives {found.dtype} scores of shape {found.shape} for {candidates} candidates"
        raise FedauditError("attack-scores", what, "Let its score return one number for each row of the features.")
    return found if found.dtype.kind == "f" else found.astype(np.float64)


def known_to(sight: Sight, attack: BaseAttack) -> int:
    """How many candidates on each side an attack usually knows; 0 for one that is not fitted on them."""
    return usual(sight) if "known" in attack.fitted_on else 0


def spent(sight: Sight, attack: BaseAttack) -> Bools:
    """The candidates that an attack is fitted on. They are not reported on and set no threshold."""
    used = sight.reference & attack.calibrates_less
    return np.asarray(used | known(sight, usual(sight))[0] if "known" in attack.fitted_on else used)


def _evidence(sight: Sight, attack: BaseAttack, features: Floats, k: int) -> Evidence:
    """What the adversary knows of this sight's candidates: non-members, and k of each kind where it knows some."""
    if "known" not in attack.fitted_on:
        return Evidence(features[sight.reference])
    members, nonmembers = known(sight, k)
    both = members | nonmembers
    return Evidence(features[sight.reference], known=Own(features[both], members[both]))


def cannot_fit(sight: Sight, attack: BaseAttack) -> bool:
    """Known non-members must be two at least, and known candidates one of each kind."""
    few = "nonmembers" in attack.fitted_on and int(sight.reference.sum()) < 2
    return few or ("known" in attack.fitted_on and not usual(sight))


def why_undefined(sight: Sight, attack: BaseAttack) -> str:
    if "known" in attack.fitted_on and not usual(sight):
        return "too few are left to report on when some are known to the adversary"
    if cannot_fit(sight, attack):
        return f"needs 2 known non-members to be fitted on, and there are {int(sight.reference.sum())}"
    return NO_SCORES


def _some(scores: Floats, features: Floats, attack: str) -> Floats:
    """The same, unless it is nothing at all although nothing was missing: that is a fault of the attack."""
    found = np.asarray(scores)
    if found.size and found.dtype.kind == "f" and not np.isfinite(found).any() and np.isfinite(features).all():
        what = f"{attack}: no score is a number, and what it kept of the rounds is"
        raise FedauditError("nan-scores", what, "Let its score() return a number for each candidate.")
    return scores


def finite(scores: Floats, attack: str) -> Floats:
    """Scores without NaN and infinity. A few such scores count as the least suspicious; more than 1 % is an error,
    unless all are NaN, because the attack has not seen enough rounds yet."""
    bad = ~np.isfinite(scores)
    count = int(bad.sum())
    if 0.01 * len(scores) < count < len(scores):
        raise FedauditError(
            "nan-scores",
            f"{attack}: {count} of {len(scores)} scores are NaN or infinite",
            "Look for extreme values in the records, or take the attack out of audit.attacks.",
        )
    return np.where(bad, -np.inf, scores) if count else scores


# ------------------------------------------------------------------ candidates whose membership the adversary knows

# It tunes on them, so they are not reported on. The paper on subject membership has its thresholds tuned on 1, 5, 10,
# 25 and 100 known subjects. Known members leave the reported ones; known non-members come from the half of the
# calibration set on which attacks are fitted anyway. Who is known is decided by a hash of the name, so that the k known
# are among the next larger k.
KNOWN = (1, 5, 10, 25, 100)  # on each side
USUAL = 25  # for AUC and TPR; fewer where not enough remain
KNOWN_ORDER = "known"  # salt of the hash
REMAINING = 2  # members to report on for each known one, at least


def known(sight: Sight, k: int) -> tuple[Bools, Bools]:
    """The k known members of a sight, and the k known non-members."""
    member = sight.role == Role.MEMBER.value
    return _first(sight, member, k), _first(sight, sight.reference, k)


def _first(sight: Sight, among: Bools, k: int) -> Bools:
    chosen = np.zeros(len(sight.id), bool)
    candidates = np.flatnonzero(among)
    chosen[candidates[hash_order(sight.id[candidates], KNOWN_ORDER)[:k]]] = True
    return chosen


def possible(sight: Sight) -> list[int]:
    """The numbers of known candidates that leave enough to report on."""
    return _leaving_enough(int((sight.role == Role.MEMBER.value).sum()), int(sight.reference.sum()))


def usual(sight: Sight) -> int:
    """How many are known where nothing else is said; 0: too few remain for any."""
    return usual_of(int((sight.role == Role.MEMBER.value).sum()), int(sight.reference.sum()))


def usual_of(members: int, nonmembers: int) -> int:
    """The same from counts: members, and known non-members."""
    return max((k for k in _leaving_enough(members, nonmembers) if k <= USUAL), default=0)


def _leaving_enough(members: int, nonmembers: int) -> list[int]:
    return [k for k in KNOWN if (1 + REMAINING) * k <= members and k <= nonmembers]
