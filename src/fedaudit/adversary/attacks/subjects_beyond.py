"""Is anything of this person's in the federation? Attacks beyond the paper's: those that are strong about records.

Adversary: as in `subjects`; for subject-cosine and subject-matched it also sees updates, for subject-rmia and
subject-corrected it has data of other people and trains reference models on them.

Each takes the mean over the subject's records of what is measured for a record:

subject-fta        the slope of the confidence in the label over the rounds (`trajectory`).
subject-cosine     the angle between gradient and update, in the layer that varies least over known non-members
                   (`gradients`).
subject-matched    the matched filter (`matched`): is the gradient in the update?
subject-corrected  the loss under the last model, less its mean under the reference models.
subject-rmia       log Pr(subject | model) - log mean over the references of Pr(subject | reference), where Pr(subject)
                   is the geometric mean over its records (`reference`).

References are trained on an outsider's people only: whoever has fresh records of a person has none to train on for whom
membership could be changed at will.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy import special

from fedaudit.adversary.attacks.gradients import LayerAttack
from fedaudit.adversary.attacks.matched import MatchedFilter
from fedaudit.adversary.attacks.reference import ReferenceAttack
from fedaudit.adversary.attacks.subjects import OfSubjects
from fedaudit.adversary.attacks.trajectory import FTA
from fedaudit.adversary.reductions import Mean
from fedaudit.types import Bools, Floats


@dataclass(frozen=True)
class SubjectFTA(OfSubjects, FTA):
    metric: str = "confidence"

    @property
    def name(self) -> str:
        return "subject-fta"


@dataclass(frozen=True)
class SubjectCosine(OfSubjects, LayerAttack):
    @property
    def name(self) -> str:
        return "subject-cosine"

    @property
    def signals(self) -> tuple[str, ...]:
        return ("gradient-cosine",)

    def reduce(self, n: int) -> Mean:
        return Mean("gradient-cosine", n)


@dataclass(frozen=True)
class SubjectMatched(OfSubjects, MatchedFilter):
    @property
    def name(self) -> str:
        return "subject-matched"


# ------------------------------------------------------------------ beside reference models


@dataclass(frozen=True)
class BesideReferences(OfSubjects, ReferenceAttack):
    outside: bool = True
    bank: ClassVar[str] = "plain-reference"
    deferred: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return self.title

    @property
    def metric(self) -> str:
        return "loss"


class SubjectCorrected(BesideReferences):
    title = "subject-corrected"

    def compare(self, target: Floats, references: Floats, inside: Bools) -> Floats:
        return np.asarray(references.mean(axis=1) - target)


class SubjectRMIA(BesideReferences):
    title = "subject-rmia"

    def compare(self, target: Floats, references: Floats, inside: Bools) -> Floats:
        return np.asarray(-target - special.logsumexp(-references, axis=1) + np.log(references.shape[1]))
