"""Is anything of this person's in the federation? The paper's three attacks, from losses alone, and five beyond it.

Suri, Kanani, Marathe, Peterson: "Subject Membership Inference Attacks in Federated Learning", 2022/23, section IV.

Adversary: whoever can query the final model (subject-loss, subject-neighbourhood) or the global model of every round
(subject-rounds). It has records of the person: the trained ones (item-based) or others (distribution-based), and knows
of k subjects that they are members, and of k others that they are not.

subject-loss           1. The loss of every record of the subject under the last model.
                       2. The score is the share of records whose loss is at most lambda.
subject-rounds         1. In every round, the loss of the subject's records together.
                       2. The score is the number of rounds in which it fell.
subject-neighbourhood  as subject-loss, with the mean loss of noisy copies of a record in place of its own.

lambda is the value that tells the known subjects apart best: by balanced accuracy, then by AUC; of several equally good
ones the middle one. The threshold on the score is set on the same known subjects, by the judge.

Deviations:
- subject-loss takes the share of records, not their number: people with many records would look like members.
- The model before the first round is not observed, so that r rounds have r - 1 steps.
- The paper names the attack on neighbourhoods in its appendix and leaves open how it works; this is our reading.
- Thresholds are tuned for balanced accuracy. Tuned for F1, "everybody is a member" wins at chance, with F1 .667.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from fedaudit.adversary.attacks.base import BaseAttack, Evidence, FittedOn, Gather, OneSignal
from fedaudit.adversary.attacks.gradients import LayerAttack
from fedaudit.adversary.attacks.matched import MatchedFilter
from fedaudit.adversary.attacks.reference import ReferenceAttack
from fedaudit.adversary.attacks.trajectory import FTA
from fedaudit.adversary.attacks.unmix import Unmix
from fedaudit.adversary.reductions import Kept
from fedaudit.adversary.signals.outputs import NEIGHBOURHOOD
from fedaudit.config.attack_registry import ATTACKS, Short
from fedaudit.stats import balanced_accuracy
from fedaudit.types import Bools, Floats, Moment

LAMBDAS = 200  # values that are tried


class OfSubjects(BaseAttack):
    """What all attacks on subjects share."""

    question: ClassVar[str] = "subject"

    @property
    def fitted_on(self) -> tuple[FittedOn, ...]:
        return ("known",)


# ------------------------------------------------------------------ the last model's losses


@ATTACKS.register("subject-loss", "share of the person's records with a low loss under the last model")
@dataclass(frozen=True)
class SubjectLoss(OfSubjects, OneSignal):
    """The share of low losses. `threshold` belongs to the fitted copy."""

    signal: ClassVar[str] = "loss"
    gather: ClassVar[Gather] = "sorted"
    every_round: ClassVar[bool] = False
    threshold: float | None = None

    def reduce(self, n: int) -> Kept:
        return LastOfAll(self.signal, n)

    def fit(self, evidence: Evidence) -> Self:
        known = evidence.known
        assert known is not None, "subjects of known membership decide on lambda"
        return replace(self, threshold=best_threshold(known.features, np.asarray(known.label, bool)))

    def score(self, features: Floats) -> Floats:
        if self.threshold is None:  # no known subject had a record with a loss
            return np.full(len(features), np.nan)
        return shares(features, np.array([self.threshold]))[:, 0]


@ATTACKS.register(
    "subject-neighbourhood",
    "subject-loss on noisy copies of the records; ten passes",
    brief="subject-loss on noisy copies of the records",
)
@dataclass(frozen=True)
class SubjectNeighbourhood(SubjectLoss):
    signal: ClassVar[str] = NEIGHBOURHOOD
    deferred: ClassVar[bool] = True


class LastOfAll(Kept):
    """The last values of all records of a candidate, sorted; NaN where it has fewer than others."""

    def __init__(self, signal: str, n: int):
        self.signal = signal
        self.values: Floats = np.full((n, 1), np.nan)

    def observe(self, moment: Moment, values: Mapping[str, Floats]) -> None:
        now = values[self.signal]
        self.values = now.reshape(len(now), -1).copy()

    def features(self) -> Floats:
        return self.values


def shares(losses: Floats, thresholds: Floats) -> Floats:
    """subjects x thresholds: the share of a subject's losses that are at most that. NaN is no loss."""
    counts = np.sum(np.isfinite(losses), axis=1)
    below = np.stack([np.searchsorted(np.sort(own[np.isfinite(own)]), thresholds, side="right") for own in losses])
    return np.where(counts[:, None] > 0, below / np.maximum(counts, 1)[:, None], np.nan)


def best_threshold(losses: Floats, member: Bools) -> float | None:
    """The lambda under which shares tell known members from known non-members best."""
    every = np.unique(losses[np.isfinite(losses)])
    if not len(every) or not member.any() or member.all():
        return None
    tried = every[np.unique(np.linspace(0, len(every) - 1, LAMBDAS).astype(int))]
    found = shares(losses, tried)
    quality = np.array([(balanced_accuracy(own[member], own[~member]), auc(own, member)) for own in found.T])
    best = np.flatnonzero((quality == max(map(tuple, quality))).all(axis=1))
    return float(tried[best[len(best) // 2]])


def auc(scores: Floats, member: Bools) -> float:
    ahead = scores[member][:, None] - scores[~member][None]
    return float(np.mean((ahead > 0) + 0.5 * (ahead == 0)))


# ------------------------------------------------------------------ the losses over the rounds


@ATTACKS.register("subject-rounds", "in how many rounds the loss of the person's records fell")
@dataclass(frozen=True)
class SubjectRounds(OfSubjects, OneSignal):
    """In how many rounds the subject's loss fell."""

    signal: ClassVar[str] = "loss"

    def reduce(self, n: int) -> Kept:
        return Fallen(n)


class Fallen(Kept):
    """The loss before, and how often it has fallen. The mean of a subject's losses falls when their sum does."""

    def __init__(self, n: int):
        self.before: Floats = np.full(n, np.nan)
        self.times: Floats = np.full(n, np.nan)

    def observe(self, moment: Moment, values: Mapping[str, Floats]) -> None:
        now = values["loss"]
        compared = np.isfinite(self.before) & np.isfinite(now)
        fell = np.where(compared, np.nan_to_num(self.times) + (now < self.before), self.times)
        self.times, self.before = fell, np.where(np.isfinite(now), now, self.before)

    def features(self) -> Floats:
        return self.times[:, None]


# ------------------------------------------------------------------ beyond the paper: what is strong about records

# Adversary: as above; for subject-cosine, subject-matched and subject-unmix it also sees updates, for subject-rmia and
# subject-corrected it has data of other people and trains reference models on them.
#
# Each takes the mean over the subject's records of what is measured for a record:
#
# subject-fta        the slope of the confidence in the label over the rounds (`trajectory`).
# subject-cosine     the angle between gradient and update, in the layer that varies least over known non-members
#                    (`gradients`).
# subject-matched    the matched filter (`matched`): is the gradient in the update?
# subject-unmix      the update explained by the records of all candidates together (`unmix`).
# subject-corrected  the loss under the last model, less its mean under the reference models.
# subject-rmia       log Pr(subject | model) - log mean over the references of Pr(subject | reference), where
#                    Pr(subject) is the geometric mean over its records (`reference`).
#
# References are trained on an outsider's people only: whoever has fresh records of a person
# cannot train one model with that person and one without.


@ATTACKS.register("subject-fta", "slope of the mean confidence in the labels of the person's records")
@dataclass(frozen=True)
class SubjectFTA(OfSubjects, FTA): ...


@ATTACKS.register(
    "subject-gradient",
    "how well the gradients of the person's records agree with the update, mean over the records",
    short=[Short("subject-cosine", "mean angle between the gradients of the person's records and the update")],
)
@dataclass(frozen=True)
class SubjectCosine(OfSubjects, LayerAttack):
    fitted_on: ClassVar[tuple[FittedOn, ...]] = ("known", "nonmembers")


@ATTACKS.register(
    "subject-matched",
    "the gradients of the person's records looked for in the update: matched-filter for people",
    brief="the gradients of the person's records looked for in the update",
)
@dataclass(frozen=True)
class SubjectMatched(OfSubjects, MatchedFilter):
    @property
    def fitted_on(self) -> tuple[FittedOn, ...]:
        return ("known", "nonmembers") if (self.fit_on or self.whitened_on) == "nonmembers" else ("known",)


@ATTACKS.register(
    "subject-unmix",
    "the update explained by the gradients of all candidates' records together: unmix for people",
    brief="the update explained by the gradients of all candidates' records together",
)
@dataclass(frozen=True)
class SubjectUnmix(OfSubjects, Unmix): ...


# ------------------------------------------------------------------ beside reference models


@dataclass(frozen=True)
class BesideReferences(OfSubjects, ReferenceAttack):
    bank: ClassVar[str] = "plain-reference"
    outside: ClassVar[bool] = True

    @property
    def metric(self) -> str:
        return "loss"


@ATTACKS.register("subject-corrected", "loss of the person's records, less that under reference models on other people")
class SubjectCorrected(BesideReferences):
    def compare(self, target: Floats, references: Floats, inside: Bools) -> Floats:
        return np.asarray(references.mean(axis=1) - target)


@ATTACKS.register(
    "subject-rmia", "likelihood of the person's records, relative to its mean under such reference models"
)
class SubjectRMIA(BesideReferences):
    def compare(self, target: Floats, references: Floats, inside: Bools) -> Floats:
        from scipy import special

        return np.asarray(-target - special.logsumexp(-references, axis=1) + np.log(references.shape[1]))
