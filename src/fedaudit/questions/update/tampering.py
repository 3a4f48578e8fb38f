"""Models that a dishonest server prepares so that an update gives single records away: to try a party's check on them.

Three published tricks, as we know them, each from the model as it is and records of the server's own. They are for
simulations: `fedaudit run` asks for `--i-am-authorised`.

imprint   Robbing the Fed. Every unit of the first dense layer measures the same direction and is cut at another
          quantile of it; the layer behind treats all units alike. Two neighbouring units differ by the records between
          their cuts, and where that is one record, dW_i - dW_j over db_i - db_j is that record.
trap      When the curious abandon honesty, tuned: in each unit, negative weights outweigh positive ones, and the bias
          is set so that it fires for one record in a hundred of the server's own. A unit that fires for one record of a
          party gives that record.
fishing   Fishing for user data. The last layer keeps the row of one class alone and a bias that makes this class
          improbable: only records of that class move the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from fedaudit.errors import FedauditError
from fedaudit.questions.update.incoming import SeenLayer, layers_of
from fedaudit.types import Floats, Plan, State

if TYPE_CHECKING:
    from fedaudit.learn.tasks import TorchTask
    from fedaudit.questions import Ground

Trick = Literal["imprint", "trap", "fishing"]
SCALE = 0.9  # of a trap's positive weights against its negative ones
FIRES = 0.01  # of the server's records, for which a trap fires
UNLIKELY = 10.0  # by how much the class that is fished for is made improbable


def tampered(
    trick: Trick, state: State, layers: Sequence[SeenLayer], rng: np.random.Generator, noise: float = 0.0
) -> State:
    """The model with one trick in it. `layers`: its dense layers with what goes into them for records of the server's
    own (`incoming.layers_of`). `noise`: of an imprint's rows, relative to their length, to hide that they are equal."""
    if len(layers) < 2 or layers[0].inputs is None or f"{layers[0].name}.bias" not in state:
        what = f"{trick} needs a model with two dense layers, the first with a bias, and records to tune it on"
        raise FedauditError("tampering", what, "Use the model mlp, or leave the trick out.")
    first, last = layers[0], layers[-1]
    if trick == "fishing":
        return {**state, **_fished(last)}
    weight, bias = _imprint(first, rng, noise) if trick == "imprint" else _trap(first, rng)
    changed = {f"{first.name}.weight": weight, f"{first.name}.bias": bias}
    if trick == "imprint" and first.following is not None:
        alike = np.repeat(layers[1].weight.mean(axis=1, keepdims=True), len(weight), axis=1)
        changed[f"{layers[1].name}.weight"] = alike + np.abs(alike).mean()
    return {**state, **{name: np.asarray(value, state[name].dtype) for name, value in changed.items()}}


def _imprint(layer: SeenLayer, rng: np.random.Generator, noise: float) -> tuple[Floats, Floats]:
    assert layer.inputs is not None
    units, inputs = layer.weight.shape
    direction = np.abs(rng.standard_normal(inputs)) / inputs
    rows = np.tile(direction, (units, 1))
    rows += noise * np.linalg.norm(direction) * rng.standard_normal(rows.shape) / np.sqrt(inputs)
    cuts = np.quantile(layer.inputs @ direction, (np.arange(units) + 0.5) / units)
    return rows, -cuts


def _trap(layer: SeenLayer, rng: np.random.Generator) -> tuple[Floats, Floats]:
    assert layer.inputs is not None
    rows = np.abs(rng.standard_normal(layer.weight.shape)) / np.sqrt(layer.weight.shape[1])
    negative = rng.permuted(np.arange(rows.size).reshape(rows.shape) % 2 == 0, axis=1)
    rows = np.where(negative, -rows, SCALE * rows)
    return rows, -np.quantile(layer.inputs @ rows.T, 1 - FIRES, axis=0)


def _fished(layer: SeenLayer, wanted: int = 0) -> dict[str, Floats]:
    weight, bias = np.zeros_like(layer.weight), np.zeros_like(layer.bias)
    weight[wanted], bias[wanted] = layer.weight[wanted], -UNLIKELY
    return {f"{layer.name}.weight": weight, f"{layer.name}.bias": bias}


def planted(trick: Trick, ground: Ground, task: TorchTask, plans: Sequence[Plan]) -> list[Plan]:
    """The plans, and after the first round a probe: its parties train the prepared model, and nothing of it is kept."""
    own = ground.game.outsiders.x
    rng = np.random.default_rng([ground.config.federation.seed, 31])

    def broadcast(model: State) -> State:
        return tampered(trick, model, layers_of(task, model, own), rng)

    return [*plans[:1], Plan(plans[0].parties, commit=False, broadcast=broadcast), *plans[1:]]
