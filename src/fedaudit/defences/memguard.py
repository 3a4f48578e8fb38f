"""MemGuard: changes the model's answers until a membership classifier is undecided. The weights stay as they are.

Jia et al., "MemGuard: defending against black-box membership inference attacks via adversarial examples", CCS 2019.

1. The operator trains a membership classifier of its own on the answers of the released model.
2. For each answer the smallest change is sought that makes this classifier undecided and keeps the predicted label.
3. The change is made with the chance that keeps the mean distortion (L1, of probabilities) within the budget; the same
   answer is always changed in the same way, so asking twice reveals nothing.

It fills the serve slot: adversaries who hold the weights (a client, the server) are not affected at all, and neither
are those who use labels only.

Deviations. The change is sought by bisection on the path to the flattest answer with the same label, or to the most
certain one if the classifier changes its mind on that path only, instead of by gradient descent over all answers; where
it does so on neither, the answer stays. The classifier's non-members are crossovers of two members with one label,
because a federation has no spare records to give away.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.config.registry import DEFENCES
from fedaudit.defences.shared import Defence, DefenceOptions, Setting, within
from fedaudit.errors import FedauditError
from fedaudit.types import Floats, Records, State, notice

if TYPE_CHECKING:
    from fedaudit.defences.shared import Slot
    from fedaudit.learn.tasks import TorchTask

TOP = 10  # sorted probabilities the classifier looks at
STEPS = 40


class MemGuardOptions(DefenceOptions):
    strength: float = Field(
        description="how far answers are changed on average, in L1 of probabilities: between 0 and 2"
    )

    @property
    def slots(self) -> tuple[Slot, ...]:
        return ("serve",)


@DEFENCES.register(
    "memguard",
    "changes served answers until a membership classifier is undecided (strength = mean distortion)",
    MemGuardOptions,
)
def memguard(asked: MemGuardOptions, setting: Setting) -> Defence:
    if not setting.task.classes:
        raise FedauditError(
            "memguard",
            "MemGuard changes class probabilities, and this task is a regression",
            "Remove it from [[defences]].",
        )
    parts = [setting.sources[name]() for name in sorted(setting.sources)]
    x, y, id = (np.concatenate([getattr(part, field) for part in parts]) for field in ("x", "y", "id"))
    if y.ndim > 1:
        what = "MemGuard bends one answer a record, and these have one at every position"
        raise FedauditError("memguard", what, "Use it where a record has one label.")
    members = Records(x, y, id)
    budget = within(asked.name, asked.strength, 0, 2)
    return Defence(asked.name, serve=MemGuard(members, budget), notices=(notice("memguard"),))


@dataclass(frozen=True)
class MemGuard:
    """Fills the serve slot."""

    members: Records
    budget: float
    keeps_labels: ClassVar[bool] = True  # so that whoever sees labels only need not wait for the change

    def __call__(self, task: TorchTask, state: State, outputs: Floats) -> Floats:
        from scipy import special

        answers = special.softmax(outputs, axis=1)
        certainty = self._classifier(task, state)
        member = certainty(answers) > 0
        label = answers.argmax(axis=1)
        flattest, surest = _flattest(label, answers.shape[1]), _surest(label, answers.shape[1])
        by_flattening = (certainty(flattest) > 0) != member
        end = np.where(by_flattening[:, None], flattest, surest)
        undecided = by_flattening | ((certainty(surest) > 0) != member)  # the sign changes on the way there
        low, high = np.zeros(len(answers)), np.ones(len(answers))
        for _ in range(STEPS):
            middle = (low + high) / 2
            same = (certainty(_between(answers, end, middle)) > 0) == member
            low, high = np.where(same, middle, low), np.where(same, high, middle)
        bent = _between(answers, end, high)
        distortion = np.abs(bent - answers).sum(axis=1)
        bend = undecided & (_one_time(answers) * distortion < self.budget)
        served = np.where(bend[:, None], bent, answers)
        return np.where(bend[:, None], np.log(np.maximum(served, 1e-30)), outputs)

    def _classifier(self, task: TorchTask, state: State) -> Any:
        from scipy import special
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        inside = special.softmax(task.outputs(state, self.members.x), axis=1)
        outside = special.softmax(task.outputs(state, crossovers(self.members)), axis=1)
        model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
        truth = np.repeat([1, 0], [len(inside), len(outside)])
        model.fit(np.concatenate([_features(inside), _features(outside)]), truth)
        return lambda answers: model.decision_function(_features(answers))


def crossovers(members: Records) -> NDArray[Any]:
    """For each member a record that takes about half of its features from another member with the same label."""
    rng = np.random.default_rng(0)
    partner = np.arange(len(members))
    for label in np.unique(members.y):
        own = np.flatnonzero(members.y == label)
        partner[own] = rng.permutation(own)
    return np.where(rng.random(members.x.shape) < 0.5, members.x, members.x[partner]).astype(members.x.dtype)


def _features(answers: Floats) -> Floats:
    top = -np.sort(-answers, axis=1)[:, :TOP]
    return np.log(np.maximum(top, 1e-12))


def _flattest(label: NDArray[Any], classes: int) -> Floats:
    """Uniform, except for a little more at the label, which keeps it."""
    flat = np.full((len(label), classes), 1 / classes)
    flat[np.arange(len(label)), label] += 1e-3
    return np.asarray(flat / flat.sum(axis=1, keepdims=True))


def _surest(label: NDArray[Any], classes: int) -> Floats:
    return np.asarray(np.eye(classes)[label])


def _between(answers: Floats, end: Floats, share: Floats) -> Floats:
    return np.asarray((1 - share[:, None]) * answers + share[:, None] * end)


def _one_time(answers: Floats) -> Floats:
    """A number in [0, 1) for every answer, always the same for the same answer."""
    digests = [hashlib.sha256(row.tobytes()).digest()[:8] for row in np.ascontiguousarray(answers)]
    return np.array([int.from_bytes(d) / 2**64 for d in digests])
