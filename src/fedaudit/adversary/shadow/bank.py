"""A bank of reference models: what would the target say about a record if it had, or had not, been trained on it?

1. N models (even) start as the federation's initial model did.
2. Their training sets are drawn from one party's records, members and both kinds of non-members alike, in pairs of
   complementary random halves: every record is in exactly N/2 sets. The draw is random and says nothing about who was a
   member.
3. In every round each model trains on from its own last state, for as many epochs as a party (`local_epochs`) and with
   the federation's optimiser, on the soft labels (1 - alpha) onehot + alpha p_target, where p_target is what the
   observed model answers. That is (1 - alpha) CE + alpha KL(target || reference) at temperature 1, up to a constant.
   For a regression the target is (1 - alpha) y + alpha prediction, under squared error.
4. Each model is asked about every record.

Three choices that the paper leaves open: a reference starts as the federation's initial model; its optimiser is fresh
in every round, as a party's is; KL takes the target's answer as the truth, at temperature 1.

An adversary who knows that the parties train under DP-SGD may train its references in the same way (`Defended`): with
the parties' own defence, the same clipping, noise multiplier and batch size, and the same soft labels.

There are two adversaries. *Informed*: the party audits itself, with models trained on its own records. No real
adversary knows a party's records so well, which makes it an upper estimate. *Outside*: N models on random
halves of an adversary's own data, in which no candidate occurs.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import special
from torch import nn

from fedaudit.adversary.shadow import BANKS, INSIDE, SIGNALS, References, is_outside
from fedaudit.adversary.signals import outputs
from fedaudit.adversary.vantage import View
from fedaudit.defences.shared import Gradient
from fedaudit.errors import FedauditError
from fedaudit.learn.many import Loop, Stacked, beside, steps_of
from fedaudit.learn.tasks import TorchTask, Training, tensor
from fedaudit.types import IGNORED, Bools, Floats, Ints, Records, Stored, Strings


class Bank:
    """References with one alpha for one kind of model: a group of N for each party whose records are audited."""

    def __init__(
        self, *, references: References, task: TorchTask, name: str, metrics: list[str], rows: Records, party: Strings
    ):
        alpha = BANKS[name]
        self.name, self.metrics, self.rows = name, metrics, rows
        self.alpha = references.alpha if alpha is None else alpha
        self.task = task
        self.inside: Bools = np.zeros((len(rows), references.models), bool)
        self.groups: list[ReferenceModels] = []
        self.round = 0  # the last one it trained for
        everyone = np.arange(len(rows))
        if is_outside(name):
            if references.own is None:
                raise FedauditError(
                    "no-own-data",
                    f"the reference models {name!r} need data of the adversary's own",
                    "Give References(own=...).",
                )
            self.groups.append(ReferenceModels(references, task, "outside", references.own, everyone))
            return
        for whose in sorted(set(party.tolist())):
            index = np.flatnonzero(party == whose)
            group = ReferenceModels(references, task, whose, rows.take(index), index)
            self.inside[index] = group.inside
            self.groups.append(group)

    @property
    def signals(self) -> set[str]:
        return {f"{self.name}-{metric}" for metric in self.metrics}

    def answers(self, signals: Iterable[str], view: View, absorbed: int) -> dict[str, Floats]:
        """What the references answer after a round, records x models, for the signals that belong to this bank.

        The first call for a round trains every reference as long as a party trains; if that is interrupted, the bank
        stays as it was. `absorbed` is the last round that the audit has seen: if the bank was not trained for it, it is
        behind.
        """
        self._learn(view, absorbed)
        metrics = [SIGNALS[signal][1] for signal in signals if signal in self.signals]
        found = {metric: np.empty(self.inside.shape) for metric in metrics}
        for group in self.groups if metrics else ():
            for part in outputs.parts(self.rows.y[group.index], self.task.classes):
                index = group.index[part]
                y, classes = self.rows.y[index], self.task.classes
                for model, z in enumerate(group.answers(self.rows.x[index])):
                    for metric, column in outputs.from_answers(z, y, metrics, classes).items():
                        found[metric][index, model] = column
        named = {f"{self.name}-{metric}": values for metric, values in found.items()}
        return named if is_outside(self.name) or not named else named | {INSIDE: self.inside.astype(np.float64)}

    def state(self) -> Stored:
        """The references' weights, as arrays, so that another process can continue from the same round."""
        weights = [[value.numpy() for value in group.models.weights()] for group in self.groups]
        return {"round": self.round, "weights": weights}

    def restore(self, state: Stored) -> None:
        self.round = state["round"]
        for group, weights in zip(self.groups, state["weights"], strict=True):
            group.models.restore([torch.from_numpy(np.array(value)) for value in weights])

    def _learn(self, view: View, absorbed: int) -> None:
        if self.round < absorbed:
            raise FedauditError(
                "references-behind",
                f"the reference models stand at round {self.round}, and round {absorbed} was read from a file",
                'Audit again from the start: with audit.keep = "snapshots" that needs no training of the federation.',
            )
        if view.round == self.round:
            return
        before = [group.models.weights() for group in self.groups]
        try:
            for group in self.groups:
                group.learn(view, self.alpha)
        except BaseException:
            for group, weights in zip(self.groups, before, strict=True):
                group.models.restore(weights)
            raise
        self.round = view.round


class ReferenceModels:
    """N models on random halves of the same records, and the rows of the panel that they are asked about."""

    def __init__(self, references: References, task: TorchTask, whose: str, data: Records, index: Ints):
        self.task, self.training, self.seed = task, Training(**references.training), references.seed
        self.whose, self.data, self.index = whose, data, index
        self.inside = draw_inside(len(data), references.models, self._rng(0))
        self.sets = [np.flatnonzero(column) for column in self.inside.T]
        module = task.fresh(task.initial(references.seed))  # as the federation begins
        self.defended: Defended | None = None
        if references.gradient:
            self.defended = Defended(task, module, references.models, self.training, references.gradient)
        self.models: Loop | Stacked = self.defended or beside(
            module, references.models, self.training, task.classes, positions=data.y.ndim > 1
        )
        self.dtype = next(p for p in module.parameters() if p.is_floating_point()).detach().numpy().dtype

    def learn(self, view: View, alpha: float) -> None:
        targets = self._targets(view, alpha)
        rng = self._rng(view.round)
        if self.defended:
            self.defended.train(self.data, targets, self.sets, rng)
            return
        for _ in range(self.training.epochs):  # as many as the parties train in a round
            steps = steps_of(self.sets, self.training.batch_size, rng)
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(int(rng.integers(2**63)))  # dropout
                self.models.epoch(torch.from_numpy(self.data.x), torch.from_numpy(targets), steps)

    def _targets(self, view: View, alpha: float) -> NDArray[Any]:
        """What the references learn, as precise as their weights; the target is asked in parts, not to hold all of its
        answers in float64."""
        x, y, classes = self.data.x, self.data.y, self.task.classes
        found = [
            soft_targets(view.ask(x[part]), y[part], classes, alpha).astype(self.dtype)
            for part in outputs.parts(y, classes)
        ]
        return found[0] if len(found) == 1 else np.concatenate(found)

    def answers(self, x: NDArray[Any]) -> NDArray[Any]:
        return self.models.outputs(tensor(x)).numpy()

    def _rng(self, round: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, round, zlib.crc32(f"reference|{self.whose}".encode())])


class Defended(Loop):
    """Reference models that train under the parties' defence, with its clipping, noise and batches.

    One is trained after the other: each needs its own noise, and Opacus takes the steps.
    """

    def __init__(self, task: TorchTask, module: nn.Module, count: int, training: Training, gradient: Gradient):
        super().__init__(module, count, training, task.classes)
        self.task, self.gradient = task, gradient

    def train(self, data: Records, targets: Floats, sets: Sequence[Ints], rng: np.random.Generator) -> None:
        """Trains each model on its own rows, with soft labels."""
        taught = replace(data, y=targets if self.classes else targets[:, 0])
        for module, rows in zip(self.modules, sets, strict=True):
            trained = self.gradient(self.task, self.task.state_of(module), taught.take(rows), self.training, rng)
            self.task.load(module, trained.state)


def draw_inside(records: int, models: int, rng: np.random.Generator) -> Bools:
    """records x models: pairs of complementary halves, so that every record is in exactly half of the sets."""
    inside = np.zeros((records, models), bool)
    for pair in range(0, models, 2):
        inside[rng.permutation(records)[: records // 2], pair] = True
        inside[:, pair + 1] = ~inside[:, pair]
    return inside


def soft_targets(answers: Floats, y: NDArray[Any], classes: int, alpha: float) -> Floats:
    if not classes:
        return np.asarray((1 - alpha) * y[:, None] + alpha * answers.reshape(len(y), 1))
    targets = alpha * special.softmax(answers, axis=-1)
    flat = targets.reshape(-1, targets.shape[-1])  # a row for each record, or for each of its positions
    labels = y.reshape(-1)
    flat[labels == IGNORED] = 0.0  # no loss comes from there
    rows = np.flatnonzero(labels != IGNORED)
    flat[rows, labels[rows]] += 1 - alpha
    return np.asarray(targets)
