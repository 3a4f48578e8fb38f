"""What a crafted canary owes to what: CIFAR-10 without noise, one thing changed at a time.

The model is frozen, nothing is noised, and each of the 640 parties takes one step on its only picture. What a party
sends is therefore the same at every probe, and is computed once; a probe adds up those that its coins draw. Four
canaries are crafted each time, with 200 steps, and each is looked for in 100 probes, half of them with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from docs.canary_cases import cifar, design_of
from fedaudit.config.schema import parse
from fedaudit.learn.tasks import TorchTask, Training
from fedaudit.questions.canary.crafting import Objective
from fedaudit.questions.canary.judge import MIDDLE
from fedaudit.questions.canary.parties import Canaries, Design
from fedaudit.questions.canary.watch import ALIVE
from fedaudit.session.prepare import prepare
from fedaudit.types import Floats, Records, Role, State

CANARIES, STEPS, PROBES, RATE = 4, 200, 100, 0.1
BEFORE = 4000  # pictures of nobody's, on which a model is trained before the federation begins


@dataclass(frozen=True)
class Setting:
    """What is changed. `epochs`: of training before the federation begins."""

    change: Callable[[Design, Path], Design] = lambda design, _: design
    rate: float = RATE
    epochs: int = 0


@dataclass
class World:
    """The parties' pictures, and the models that a setting may start from."""

    task: TorchTask
    design: Design
    parties: list[Records]
    public: Records
    evaluation: Records
    models: dict[int, State] = field(default_factory=dict)

    def model(self, epochs: int) -> State:
        if epochs not in self.models:
            how = Training("adam", 2e-3, epochs, 32)
            begin = self.task.initial(0)
            trained = self.task.train(begin, self.public, how, np.random.default_rng(0)).state if epochs else begin
            self.models[epochs] = trained
        return self.models[epochs]

    def accuracy(self, model: State) -> float:
        guessed = self.task.outputs(model, self.evaluation.x).argmax(axis=1)
        return float((guessed == self.evaluation.y).mean())


def world(data: Path) -> World:
    prepared = prepare(parse(cifar(data, {"canaries": CANARIES, "steps": STEPS, "pool": 256})))
    game, rows = prepared.game, prepared.game.candidates.rows
    calibration, evaluation = (
        rows.take(np.flatnonzero(game.truth.mask(role))) for role in (Role.CALIBRATION, Role.EVALUATION)
    )
    design = replace(design_of(prepared), mocks=64)
    parties = [game.members(party) for party in game.parties]
    return World(prepared.task, design, parties, calibration.take(np.arange(BEFORE)), evaluation.take(np.arange(1000)))


def measured(known: World, setting: Setting, data: Path) -> dict[str, Any]:
    """Scores of the probes, canary by canary: <sum, u_c> / C^2."""
    design, model = setting.change(known.design, data), known.model(setting.epochs)
    rng = np.random.default_rng(1)
    planted = Canaries(design).at(known.task, model)
    sent = np.stack([design.sent(known.task, model, one, rng) for one in known.parties])
    along = sent @ planted.updates.T / planted.unit**2  # parties x canaries
    own = (np.linalg.norm(planted.updates, axis=1) / planted.unit) ** 2
    drawn = rng.random((PROBES, len(sent))) < setting.rate
    present = np.stack([rng.permutation(np.arange(PROBES) % 2 == 0) for _ in own], axis=1)
    scores = drawn @ along + present * own
    return {
        "norm": planted.norm.tolist(),
        "dead": int((planted.norm < ALIVE).sum()),
        "health": planted.health.tolist(),
        "sd": spread(scores, present).tolist(),
        "accuracy": ((scores > MIDDLE) == present).mean(axis=0).tolist(),
        "clipped": float((np.linalg.norm(sent, axis=1) > 0.999 * (design.clip or np.inf)).mean()),
        "model": known.accuracy(model),
    }


def spread(scores: Floats, present: np.ndarray[Any, Any]) -> Floats:
    """The standard deviation around the means with and without, for each canary."""
    centred = scores.copy()
    for column, there in zip(centred.T, present.T, strict=True):
        for kind in (there, ~there):
            column[kind] -= column[kind].mean()
    return np.asarray(np.sqrt((centred**2).sum(axis=0) / (len(scores) - 2)))


# ------------------------------------------------------------------ what is changed


def recipe(**new: Any) -> Setting:
    return Setting(lambda design, _: replace(design, recipe=replace(design.recipe, **new)))


def objective(kind: Objective) -> Setting:
    return recipe(objective=kind)


def of_design(**new: Any) -> Setting:
    return Setting(lambda design, _: replace(design, **new))


def half_of_the_classes(design: Design, _: Path) -> Design:
    return replace(design, pool=design.pool.take(np.flatnonzero(design.pool.y < 5)))


def other_pictures(design: Design, data: Path) -> Design:
    """Mock parties with pictures of CIFAR-100, whose classes mean something else."""
    count, stored = len(design.pool), np.load(data / "cifar100.npz")
    x = stored["x_train"][:count].transpose(0, 3, 1, 2).astype(np.float32) / 255
    names = np.array([f"other-{number}" for number in range(count)])
    return replace(design, pool=Records(x, stored["y_train"][:count].astype(np.int64) % 10, names))


def local_epochs(design: Design, _: Path) -> Design:
    return replace(design, training=replace(design.training, epochs=5))


SETTINGS: dict[str, Setting] = {
    "as it is": Setting(),
    "the printed objective": objective("printed"),
    "orthogonal only": objective("orthogonal"),
    "long only": objective("long"),
    "norm constant R 3 times as large": recipe(reach=3.0),
    "norm constant R a third": recipe(reach=1 / 3),
    "clip norm 3 times as large": of_design(clip=0.3),
    "clip norm 10 times as large": of_design(clip=1.0),
    "16 parties a round": Setting(rate=0.025),
    "256 parties a round": Setting(rate=0.4),
    "one start each": recipe(starts=1),
    "50 steps": recipe(steps=50),
    "600 steps": recipe(steps=600),
    "pool of 16": of_design(mocks=16),
    "pool of 160": of_design(mocks=160),
    "pool without five of the ten classes": Setting(half_of_the_classes),
    "pool of CIFAR-100": Setting(other_pictures),
    "crafting begins with a record": recipe(initial="data"),
    "5 local epochs": Setting(local_epochs),
    "model trained for 1 epoch": Setting(epochs=1),
    "model trained for 2 epochs": Setting(epochs=2),
}


def ablations(data: Path) -> dict[str, Any]:
    known = world(data)
    return {name: measured(known, setting, data) for name, setting in SETTINGS.items()}
