"""Crafting: gradients of several canaries at once, the objective, and what becomes of a canary under each."""

from typing import Any

import numpy as np
import pytest
import torch

from fedaudit.errors import FedauditError
from fedaudit.learn.tasks import TorchTask, Training, build_task, tensor
from fedaudit.questions.canary.crafting import (
    Best,
    CraftedRecords,
    CraftingRecipe,
    _first_text,
    check_text,
    craft,
    flat,
    objective,
    one_by_one,
    spread_of,
    together,
)
from fedaudit.questions.canary.parties import Canaries, Design
from fedaudit.types import Floats, Records, State

LR = 0.1


def pictures(n: int, seed: int = 0) -> Records:
    rng = np.random.default_rng(seed)
    x = rng.random((n, 1, 8, 8)).astype(np.float32)
    return Records(x, rng.integers(0, 3, n), np.array([f"r{i:03d}" for i in range(n)]))


def world(n: int = 24) -> tuple[TorchTask, State, Records]:
    task = build_task("cnn", (1, 8, 8), 3, {"filters": 16})
    return task, task.initial(0), pictures(n)


def update(task: TorchTask, state: State, record: Records) -> Floats:
    trained = task.train(state, record, Training("sgd", LR, 1, 1), np.random.default_rng(0)).state
    return flat({k: state[k].astype(np.float64) - trained[k] for k in state}, task.architecture)


def mocks(task: TorchTask, state: State, pool: Records, clip: float) -> Floats:
    sent = np.stack([update(task, state, pool.take(np.array([i]))) for i in range(len(pool))])
    norms = np.linalg.norm(sent, axis=1, keepdims=True)
    return np.asarray(sent / np.maximum(norms, clip))


def crafted(clip: float, **recipe: Any) -> tuple[CraftedRecords, Floats]:
    """Canaries, and what each would send, in units of the clip norm."""
    task, state, pool = world()
    made = craft(
        task, state, mocks(task, state, pool, clip), clip / LR, pool, CraftingRecipe(**recipe), np.random.default_rng(1)
    )
    sent = np.stack([update(task, state, made.records.take(np.array([i]))) for i in range(len(made.records))])
    return made, sent / clip


def test_the_best_of_several_starts_goes_on() -> None:
    """It beats the mean of all starts, and is compared with the median of where they began."""
    alone, _ = crafted(0.05, count=6, starts=6, target=1, steps=200)
    chosen, _ = crafted(0.05, count=1, starts=6, target=1, steps=200)
    assert chosen.after[0] < alone.after.mean()
    assert chosen.before == pytest.approx(alone.before[:1])


def test_each_canary_is_taken_at_its_best() -> None:
    """Whatever comes after: the one that gets worse stays as it was, the other one moves on."""
    first, second = torch.zeros(2, 3), torch.ones(2, 3)
    best = Best(first, np.array([1.0, 1.0]), steps=100)
    best.see(second, np.array([2.0, 0.5]))
    best.see(2 * second, np.array([np.nan, 0.7]))  # a loss that is no number is no better
    assert best.loss.tolist() == [1.0, 0.5]
    assert best.point.tolist() == [[0, 0, 0], [1, 1, 1]]
    assert best.take(np.array([1])).point.tolist() == [[1, 1, 1]]


def test_columns_of_a_table_may_differ_in_scale() -> None:
    """Years beside grams beside a rare yes or no, as they stand in a table: the canary is long, and stands out."""
    rng = np.random.default_rng(0)
    columns = [rng.normal(4, 2, 200), rng.normal(200, 100, 200), rng.random(200) < 0.02, rng.normal(0, 1e-3, 200)]
    x = np.stack(columns, axis=1).astype(np.float32)
    assert spread_of(x)[1] == pytest.approx(100, rel=0.2)
    assert spread_of(x)[3] == pytest.approx(np.median(x.std(0)) / 10)
    pool = Records(x, rng.integers(0, 2, 200), np.array([f"r{i:03d}" for i in range(200)]))
    task = build_task("mlp", (4,), 2, {"hidden": [16]})
    for seed in (3, 5):  # without steps to scale, or taken as they are last, these canaries die
        how = Training("sgd", LR, 1, 8)
        design = Design(
            pool=pool, mocks=16, size=8, training=how, clip=1.0, recipe=CraftingRecipe(steps=200), seed=seed
        )
        planted = Canaries(design).at(task, task.initial(seed))
        assert (planted.health[0] > 0.9, planted.norm[0] > 0.99, planted.spread[0] < 0.1) == (True, True, True)


def of_groups(rng: np.random.Generator) -> Records:
    """Three groups of one-hot columns, some of them rare, beside years, incomes and a tiny concentration."""
    shares = ([0.5, 0.3, 0.15, 0.05], [0.9, 0.08, 0.01, 0.005, 0.005], [0.6, 0.39, 0.01])
    groups = [np.eye(len(each))[rng.choice(len(each), 400, p=each)] for each in shares]
    numbers = [rng.normal(40, 15, 400), rng.lognormal(9, 1, 400), rng.normal(0, 1e-3, 400)]
    x = np.column_stack([*groups, *numbers]).astype(np.float32)
    y = (x[:, 0] + rng.normal(0, 0.5, 400) > 0.5).astype(np.int64)
    return Records(x, y, np.array([f"r{i:03d}" for i in range(400)]))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_groups_of_one_hot_columns_beside_numbers(seed: int) -> None:
    """On a model that has learnt: the canary is long, and stands out from parties it was not crafted against."""
    pool, task = of_groups(np.random.default_rng(seed)), build_task("mlp", (15,), 2, {"hidden": [16]})
    learnt = task.train(task.initial(seed), pool, Training("adam", 0.01, 5, 32), np.random.default_rng(0)).state
    design = Design(
        pool=pool,
        mocks=16,
        size=8,
        training=Training("sgd", LR, 1, 8),
        clip=0.5,
        recipe=CraftingRecipe(steps=100),
        seed=seed,
    )
    planted = Canaries(design).at(task, learnt)
    assert (planted.health[0] > 0.8, planted.norm[0] > 0.99, planted.spread[0] < 0.1) == (True, True, True)


def test_gradients_of_several_canaries_are_those_of_each_alone() -> None:
    task, state, pool = world(5)
    x, y = tensor(pool.x), tensor(pool.y)
    found = together(task, state)(x, y).numpy()
    for i in range(5):
        module = task.fresh(state).eval()
        loss = torch.nn.functional.cross_entropy(module(x[i : i + 1]), y[i : i + 1])
        loss.backward()  # type: ignore[no-untyped-call]
        slow = torch.cat([p.grad.flatten() for p in module.parameters() if p.grad is not None]).numpy()
        assert found[i] == pytest.approx(slow, abs=1e-6)


def test_the_objective_is_what_it_says() -> None:
    rng = np.random.default_rng(0)
    g, u = rng.normal(size=(3, 7)), rng.normal(size=(4, 7))
    found = objective(torch.from_numpy(g), torch.from_numpy(u), 5.0).numpy()
    for i in range(3):
        norm = float(np.linalg.norm(g[i]))
        slow = np.mean([np.dot(one, g[i] / norm) ** 2 for one in u]) + (max(5.0 - norm, 0.0) / 5.0) ** 2
        assert found[i] == pytest.approx(slow)
    alone = objective(torch.from_numpy(g), torch.from_numpy(u), 5.0, "orthogonal").numpy()
    short = objective(torch.from_numpy(g), torch.from_numpy(u), 5.0, "long").numpy()
    assert alone + short == pytest.approx(found)


def test_a_canary_is_long_and_stands_out() -> None:
    made, sent = crafted(0.2, count=2, steps=150, target=1)
    assert made.records.y.tolist() == [1, 1]
    assert (np.linalg.norm(sent, axis=1) > 0.99).all()  # clipping makes it exactly C
    assert (made.after < 0.2 * made.before).all()


def test_the_printed_objective_shortens_a_gradient_that_cannot_turn_away() -> None:
    """The erratum. 64 mock updates have a cosine of 0.5 with the gradient, which can only change its length: as printed
    it is shortest to be dead, in the best of health; normalised, it is as long as is needed."""
    lengths = torch.linspace(0.01, 3.0, 300)
    gradients = lengths[:, None] * torch.tensor([0.5, 0.75**0.5])
    updates = torch.tensor([[1.0, 0.0]]).repeat(64, 1)
    printed, good = (objective(gradients, updates, 1.0, kind) for kind in ("printed", "normalised"))
    dead = int(printed.argmin())
    assert float(lengths[dead]) == pytest.approx(1 / 17, abs=0.01)  # 16 a^2 + (1 - a)^2
    assert 1 - float(printed[dead]) / float(printed[100]) > 0.9  # the health of a canary that began with length 1
    assert float(lengths[int(good.argmin())]) >= 0.99


def test_a_class_that_does_not_exist_is_refused() -> None:
    with pytest.raises(FedauditError, match="classes 0 to 2"):
        crafted(0.2, target=3, steps=1)


# ------------------------------------------------------------------ text


def texts(n: int, length: int = 6, tokens: int = 5) -> Records:
    rng = np.random.default_rng(0)
    whole = rng.integers(0, tokens, (n, length + 1))
    return Records(whole[:, :-1], whole[:, 1:], np.array([f"t{i:02d}" for i in range(n)]))


def test_crafting_of_texts_begins_with_every_text_of_the_pool_once_if_there_are_as_many() -> None:
    pool = texts(6)
    logits = _first_text(pool, CraftingRecipe(6, initial="data"), 5, np.random.default_rng(0))
    assert logits.shape == (6, 7, 5)  # a text and the token after it
    whole = np.concatenate([pool.x, pool.y[:, -1:]], axis=1)
    nearest = [int((logits[i].argmax(-1).numpy() == whole).mean(axis=1).argmax()) for i in range(6)]
    assert sorted(nearest) == list(range(6))


def test_the_gradient_of_a_text_is_that_of_its_tokens() -> None:
    task = build_task("lstm", (6,), 5, {"units": 8, "embedding": 3, "layers": 1})
    state, pool = task.initial(0), texts(3)
    hot = torch.nn.functional.one_hot(tensor(np.concatenate([pool.x, pool.y[:, -1:]], axis=1)), 5).float()
    found = one_by_one(task, state)(hot[:, :-1], hot[:, 1:]).detach().numpy()
    for i in range(3):
        sent = update(task, state, pool.take(np.array([i]))) / LR
        assert found[i] == pytest.approx(sent, abs=2e-5)


def test_a_text_canary_is_made_of_tokens_and_stands_out() -> None:
    task = build_task("lstm", (6,), 5, {"units": 8, "embedding": 3, "layers": 1})
    state, pool = task.initial(0), texts(16)
    sent = np.stack([update(task, state, pool.take(np.array([i]))) for i in range(16)])
    clip = float(np.linalg.norm(sent, axis=1).min())
    units = sent / np.linalg.norm(sent, axis=1, keepdims=True)
    made = craft(
        task, state, units, clip / LR, pool, CraftingRecipe(steps=60, initial="data"), np.random.default_rng(0)
    )
    assert made.records.x.dtype == np.int64
    assert 0 <= made.records.x.min() <= made.records.x.max() < 5
    assert np.array_equal(made.records.x[:, 1:], made.records.y[:, :-1])
    own = update(task, state, made.records)
    along = np.abs(units @ own) / np.linalg.norm(own)
    others = np.abs(units @ units.T)[~np.eye(16, dtype=bool)]
    assert along.mean() < others.mean()


def test_labels_that_are_not_the_next_token_are_refused() -> None:
    task = build_task("lstm", (6,), 5, {"units": 8, "embedding": 3, "layers": 1})
    pool = texts(4)
    check_text(task, pool, None)
    with pytest.raises(FedauditError, match="next one"):
        check_text(task, Records(pool.x, pool.y[:, ::-1].copy(), pool.id), None)
    with pytest.raises(FedauditError, match="starts = 4, but a canary of text has one start"):
        check_text(task, pool, 4)
