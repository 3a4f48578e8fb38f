"""A canary among Flower's clients: nothing without authority, a banner in what it sends, scores from models alone."""

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp

from fedaudit.integrations.flower.canary import AUTHORISED, BANNER, SCORES, CanaryMod
from fedaudit.learn.tasks import TorchTask, Training
from fedaudit.questions.canary.crafting import CraftingRecipe
from fedaudit.types import State
from tests.integrations.flower_world import LocalGrid
from tests.integrations.worlds import net, part

CLIP, NODE = 0.5, 101


def mod(lr: float = 0.1) -> CanaryMod:
    pool = part("south")[0]
    how = Training("sgd", lr, 1, 64)
    return CanaryMod(
        task=TorchTask(net, 10),
        pool=lambda _: pool,
        clip=CLIP,
        denominator=1.0,
        training=how,
        delta=0.01,
        mocks=6,
        size=20,
        recipe=CraftingRecipe(steps=20),
    )


def world(authorised: bool, lr: float = 0.1) -> tuple[LocalGrid, CanaryMod]:
    canary = mod(lr)
    app = ClientApp(mods=[canary])

    @app.train()
    def train(message: Message, context: object) -> Message:
        raise AssertionError("the canary answers itself")

    grid = LocalGrid(app)
    if authorised:
        grid.contexts[NODE].run_config[AUTHORISED] = True
    return grid, canary


def asked(model: State) -> Message:
    content = RecordDict({"arrays": ArrayRecord({name: Array(value) for name, value in model.items()})})
    return Message(content, dst_node_id=NODE, message_type=MessageType.TRAIN)


def test_S9_without_authority_nothing_is_sent() -> None:
    grid, canary = world(authorised=False)
    reply = grid.deliver(asked(canary.task.initial(0)))
    assert reply.has_error()
    assert "nobody has said" in str(reply.error.reason)


def test_S9_K18_its_scores_tell_the_rounds_in_which_it_was_there() -> None:
    """The server sums and adds a little noise; what arrives next is all that the canary sees."""
    grid, canary = world(authorised=True)
    model, rng = canary.task.initial(0), np.random.default_rng(0)
    for _ in range(15):
        reply = grid.deliver(asked(model))
        assert reply.content.config_records["fedaudit"]["banner"] == BANNER
        sent = {name: array.numpy() for name, array in reply.content.array_records["arrays"].items()}
        change = {name: sent[name].astype(np.float64) - model[name] for name in model}
        norm = float(np.sqrt(sum(np.sum(v**2) for v in change.values())))
        scale = min(1.0, CLIP / norm) if norm else 1.0
        model = {
            name: (model[name] + scale * change[name] + rng.normal(0, 0.02 * CLIP, change[name].shape)).astype(
                np.float32
            )
            for name in model
        }
    context = grid.contexts[NODE]
    kept = context.state.config_records[SCORES]
    score, present = np.array(kept["score"]), np.array(kept["present"])
    assert len(score) == 14
    assert 0 < present.sum() < 14
    assert (score[present] > 0.8).all()
    assert (np.abs(score[~present]) < 0.2).all()
    found = canary.estimate(context)
    assert found is not None
    assert found.value is not None
    assert found.value > 0.5
    assert found.kind == "proved"


def test_a_dead_canary_proves_nothing() -> None:
    """With so small a step its update is far below the clip norm: the rounds count, and nothing is guessed."""
    grid, canary = world(authorised=True, lr=1e-6)
    for _ in range(4):
        grid.deliver(asked(canary.task.initial(0)))
    context = grid.contexts[NODE]
    assert np.isnan(context.state.config_records[SCORES]["score"]).all()
    found = canary.estimate(context)
    assert found is not None
    assert found.value == 0
