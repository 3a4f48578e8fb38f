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

from fedaudit.adversary.attacks.base import FittedOn
from fedaudit.adversary.attacks.gradients import LayerAttack
from fedaudit.adversary.attacks.matched import MatchedFilter
from fedaudit.adversary.attacks.reference import ReferenceAttack
from fedaudit.adversary.attacks.subjects import OfSubjects
from fedaudit.adversary.attacks.trajectory import FTA
from fedaudit.config.attack_registry import ATTACKS, Short
from fedaudit.types import Bools, Floats


@ATTACKS.register("subject-fta", "slope of the mean confidence in the labels of the person's records")
@dataclass(frozen=True)
class SubjectFTA(OfSubjects, FTA): ...


@ATTACKS.register(
    "subject-gradient",
    "how the gradients of the person's records lie to the update, mean over the records",
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
