"""Models of ours: what they are made of, what they refuse, and that they can be averaged."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedaudit.config.registry import MODELS
from fedaudit.config.schema import parse
from fedaudit.data.records import dataset
from fedaudit.errors import FedauditError
from fedaudit.federation.simulate import Trainer, average, federate, party_rng
from fedaudit.learn.many import linear_layers
from fedaudit.learn.tasks import Training, build_task, freeze
from fedaudit.types import Moment, Plan, Records, Trained

OF_TEXT = ("lstm", "lstm-label", "gpt", "llama", "causal-lm")
LARGER = {"lenet": 12, "alexnet": 16}  # the smallest pictures that they take
OURS = {name: entry.make for name, entry in MODELS.entries.items() if name != MODELS.stand_in}


def images(n: int = 24, size: int = 8, seed: int = 0) -> Records:
    rng = np.random.default_rng(seed)
    return dataset("images", rng.normal(size=(n, 3, size, size)), rng.integers(0, 4, n), id=np.arange(n)).records


@pytest.mark.parametrize("name", [name for name in OURS if name not in OF_TEXT])
@pytest.mark.parametrize("classes", [4, 0])
def test_every_model_trains_on_images_and_knows_its_last_layer(name: str, classes: int) -> None:
    size = LARGER.get(name, 8)
    task, rows = build_task(name, (3, size, size), classes, {}), images(size=size)
    if not classes:
        rows = Records(rows.x, rows.y.astype(np.float32), rows.id)
    state = task.initial(0)
    task.check(state, rows)
    trained = task.train(state, rows, Training(lr=1e-3, epochs=2, batch_size=8), np.random.default_rng(0))
    outputs, last = task.last_layer(trained.state, rows.x)
    assert outputs.shape == (24, max(classes, 1))
    assert np.array_equal(last[:, -1], np.ones(24))  # the bias
    assert not np.array_equal(outputs, task.outputs(state, rows.x))


def parameters(name: str, shape: tuple[int, ...], classes: int, **options: Any) -> int:
    return sum(p.numel() for p in OURS[name](shape, classes, **options).parameters())


def test_sizes_are_those_of_the_papers() -> None:
    assert parameters("linear", (600,), 100) == 60_100
    assert parameters("mlp", (600,), 100, hidden=(512, 256, 128)) == 484_836
    # 5 x 5 x 32, 5 x 5 x 32 x 64, 7 x 7 x 64 x 2048, 2048 x 62, with biases: LEAF's 6.6 million
    assert parameters("leaf-cnn", (1, 28, 28), 62) == 832 + 51_264 + 6_424_576 + 127_038
    # He et al.: 0.27 and 0.85 million for 20 and 56 layers; 1 x 1 shortcuts add 2,752
    assert 0.26e6 < parameters("resnet20", (3, 32, 32), 10) < 0.28e6
    assert 0.84e6 < parameters("resnet56", (3, 32, 32), 10) < 0.87e6
    # ResNet-18 with 3 x 3 convolutions alone, as it is commonly used on CIFAR-10
    assert parameters("resnet18", (3, 32, 32), 10) == 11_173_962
    # LEAF: embedding, 4 gates with two biases each in two layers, linear
    lstm = 80 * 8 + 4 * 256 * (8 + 256 + 2) + 4 * 256 * (256 + 256 + 2) + 256 * 80 + 80
    assert parameters("lstm", (80,), 80) == lstm
    # Zagoruyko and Komodakis: 36.5 million for 28 layers ten times as wide
    assert 36.3e6 < parameters("wide-resnet", (3, 32, 32), 10, depth=28, width=10) < 36.7e6
    # LeCun et al.: 61,706 with a linear output and all maps connected
    assert parameters("lenet", (1, 28, 28), 10) == 61_706
    convolutions = 3 * 64 * 9 + 64 * 192 * 9 + 192 * 384 * 9 + 384 * 256 * 9 + 256 * 256 * 9 + 64 + 192 + 384 + 512
    assert parameters("alexnet", (3, 32, 32), 10) == convolutions + 4 * 256 * 10 + 10
    assert parameters("tanh-cnn", (3, 32, 32), 100) == 896 + 18_496 + 8 * 8 * 64 * 128 + 128 + 128 * 100 + 100
    tweets = 400 * 25 + 4 * 100 * (25 + 100 + 2) + 4 * 100 * (100 + 100 + 2) + 100 * 2 + 2
    assert parameters("lstm-label", (25,), 2, tokens=400) == tweets
    for name, depth, shortcuts in (("resnet8", 8, 2), ("resnet20", 20, 2), ("resnet56", 56, 2), ("resnet18", 18, 3)):
        layers = [m for m in OURS[name]((3, 32, 32), 10).modules() if isinstance(m, nn.Conv2d | nn.Linear)]
        assert len(layers) == depth + shortcuts


@pytest.mark.parametrize(("size", "blocks"), [(32, 3), (28, 3), (8, 2)])
def test_the_cnn_has_as_many_blocks_as_its_images_bear(size: int, blocks: int) -> None:
    for filters in (16, 32, 64):
        model = OURS["cnn"]((3, size, size), 10, filters=filters)
        widths = [m.out_channels for m in model.modules() if isinstance(m, nn.Conv2d)]
        assert widths == [filters * 2**i for i in range(blocks)]
        assert model(torch.zeros(2, 3, size, size)).shape == (2, 10)


@pytest.mark.parametrize(
    ("name", "sizes"),
    [("lenet", (28, 32, 12)), ("alexnet", (32, 28, 17)), ("tanh-cnn", (32, 8)), ("wide-resnet", (32, 8))],
)
def test_networks_of_papers_take_pictures_of_several_sizes(name: str, sizes: tuple[int, ...]) -> None:
    for size in sizes:
        assert OURS[name]((3, size, size), 10)(torch.zeros(2, 3, size, size)).shape == (2, 10)


def test_an_lstm_gives_a_sequence_one_label() -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 6, (60, 9))
    rows = dataset("text", x, (x == 5).any(axis=1).astype(int), tokens=True).records
    task = build_task("lstm-label", (9,), 2, {"tokens": 6, "units": 16, "layers": 1})
    task.check(task.initial(0), rows)
    trained = task.train(task.initial(0), rows, Training(lr=2e-2, epochs=60, batch_size=10), rng)
    assert (task.outputs(trained.state, rows.x).argmax(axis=1) == rows.y).mean() > 0.95


@pytest.mark.parametrize("name", ["cnn", "leaf-cnn", "resnet8", "lenet", "alexnet", "tanh-cnn", "wide-resnet"])
@pytest.mark.parametrize("shape", [(64,), (8, 8), (3, 2, 8)])
def test_images_of_another_shape_are_refused(name: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(FedauditError, match="channels, height, width") as caught:
        build_task(name, shape, 4, {})
    assert caught.value.code == "model-shape"


def text(n: int = 30, positions: int = 7, seed: int = 0) -> Records:
    windows = np.random.default_rng(seed).integers(0, 5, (n, positions + 1))
    return dataset("text", windows[:, :-1], windows[:, 1:], tokens=True).records


def test_the_lstm_learns_the_next_token_at_every_position() -> None:
    task, rows = build_task("lstm", (7,), 5, {"units": 32, "layers": 1}), text()
    state = task.initial(0)
    task.check(state, rows)
    trained = task.train(state, rows, Training(lr=2e-2, epochs=150, batch_size=8), np.random.default_rng(0))
    outputs = task.outputs(trained.state, rows.x)
    assert outputs.shape == (30, 7, 5)
    assert (outputs.argmax(axis=2) == rows.y)[:, 3:].mean() > 0.9  # thirty texts, known by heart
    found, last = task.last_layer(trained.state, rows.x)
    assert np.array_equal(found, outputs)
    assert last.shape == (30, 7, 33)
    assert np.array_equal(last[..., -1], np.ones((30, 7)))  # the bias
    changed = rows.x.copy()
    changed[:, 4] = (changed[:, 4] + 1) % 5
    assert np.array_equal(
        task.outputs(state, changed)[:, :4], task.outputs(state, rows.x)[:, :4]
    )  # it cannot look ahead


@pytest.mark.parametrize(("shape", "classes"), [((7,), 0), ((7, 3), 5), ((3, 8, 8), 10)])
def test_the_lstm_takes_sequences_of_tokens_only(shape: tuple[int, ...], classes: int) -> None:
    with pytest.raises(FedauditError, match="lstm needs sequences of tokens") as caught:
        build_task("lstm", shape, classes, {})
    assert caught.value.code == "model-shape"
    task = build_task("lstm", (3,), 4, {"units": 4})
    features = dataset("a", np.eye(4)[:, :3], np.arange(4), id=np.arange(4)).records
    with pytest.raises(FedauditError, match=r"type float32.*features are floats, tokens are integers"):
        task.check(task.initial(0), features)


def test_group_norm_by_default_and_batch_norm_on_request() -> None:
    def kinds(**options: str) -> set[str]:
        return {type(m).__name__ for m in OURS["resnet8"]((3, 8, 8), 4, **options).modules() if "Norm" in repr(m)}

    assert "GroupNorm" in kinds()
    assert "BatchNorm2d" not in kinds()
    assert "BatchNorm2d" in kinds(norm="batch")
    assert "GroupNorm" not in kinds(norm="batch")


def test_B8_batch_norm_survives_averaging() -> None:
    task = build_task("resnet8", (3, 8, 8), 4, {"norm": "batch"})
    parties = [Trainer(f"p{i}", images(16 + 8 * i, seed=i), Training(batch_size=8)) for i in range(3)]
    *_, last = federate(task, parties, [Plan(("p0", "p1", "p2"))] * 2, 0)
    counters = [value for name, value in last.aggregate.items() if name.endswith("num_batches_tracked")]
    assert counters
    for counter in counters:
        assert isinstance(counter, np.ndarray)
        assert counter.dtype == np.int64
    assert {key: value.dtype for key, value in last.aggregate.items()} == {
        key: value.dtype for key, value in last.broadcast.items()
    }
    task.outputs(last.aggregate, images().x)


def test_B8_a_counter_loses_nothing_to_rounding() -> None:
    for sizes in ([3, 7, 11], [1, 1, 1], [49, 1, 3]):
        sent = {str(i): Trained({"n": np.array(5)}, size, 0.0) for i, size in enumerate(sizes)}
        assert average(sent)["n"] == 5


def test_keys_of_another_model_are_refused() -> None:
    assert parse({"model": {"name": "cnn", "filters": 16}}).model.arguments() == {"filters": 16}
    assert parse({"model": {"name": "mine:net", "options": {"a": 1}}}).model.arguments() == {"a": 1}
    for wrong in ({"name": "cnn", "hidden": [9]}, {"filters": 16}, {"name": "cnn", "norm": "batch"}):
        with pytest.raises(FedauditError, match="belongs to"):
            parse({"model": wrong})
    with pytest.raises(FedauditError, match=r"options belongs to package\.module:factory, not to mlp"):
        parse({"model": {"options": {"a": 1}}})
    config = parse({"model": {"name": "resnet8", "norm": "batch"}})
    assert parse(config.as_dict()) == config


# ------------------------------------------------------------------ smaller networks: rank and projection


def test_the_largest_layer_is_a_product_of_two() -> None:
    """The same answers as one layer with the product for its weights."""
    torch.manual_seed(0)
    small = OURS["mlp"]((20,), 3, hidden=(8, 30), rank=4)
    linear = [layer for layer in small if isinstance(layer, nn.Linear)]
    assert [tuple(layer.weight.shape) for layer in linear] == [(8, 20), (4, 8), (30, 4), (3, 30)]  # 8 x 30 was largest
    assert [layer.bias is None for layer in linear] == [False, True, False, False]
    whole = OURS["mlp"]((20,), 3, hidden=(8, 30))
    one = [layer for layer in whole if isinstance(layer, nn.Linear)]
    with torch.no_grad():
        one[0].load_state_dict(linear[0].state_dict())
        one[1].weight.copy_(linear[2].weight @ linear[1].weight)
        one[1].bias.copy_(linear[2].bias)
        one[2].load_state_dict(linear[3].state_dict())
        x = torch.randn(7, 20)
        assert torch.allclose(small(x), whole(x), atol=1e-6)


def test_a_product_of_two_is_frozen_as_one_layer() -> None:
    small = freeze(OURS["mlp"]((20,), 3, hidden=(30, 8), rank=4), 1)
    assert [name for name, weight in small.named_parameters() if weight.requires_grad] == [
        "4.weight", "4.bias", "6.weight", "6.bias",
    ]  # fmt: skip
    apart = nn.Sequential(nn.Linear(20, 4, bias=False), nn.ReLU(), nn.Linear(4, 3))
    assert [weight.requires_grad for weight in freeze(apart, 1).parameters()] == [False, True, True]
    with pytest.raises(FedauditError, match="the model has 1 layers with weights"):
        freeze(OURS["mlp"]((600,), 100, hidden=(), rank=10), 1)


def test_a_logistic_regression_may_have_a_rank() -> None:
    assert parameters("mlp", (600,), 100, hidden=(), rank=10) == 600 * 10 + 10 * 100 + 100


def test_a_projection_is_the_same_everywhere_and_neither_trained_nor_exchanged() -> None:
    options = {"hidden": (6,), "projection": 5}
    tasks = [build_task("mlp", (3, 8, 8), 4, options) for _ in range(2)]
    rows = images()
    state = tasks[0].initial(1)
    assert {value.shape for value in state.values()} == {(6, 5), (6,), (4, 6), (4,)}
    assert np.array_equal(tasks[0].outputs(state, rows.x), tasks[1].outputs(state, rows.x))
    matrices = [task.architecture.get_buffer("1.matrix") for task in tasks]
    assert torch.equal(*matrices)
    sums = torch.from_numpy(rows.x).flatten(1) @ matrices[0]
    spread = sums.square().mean() / torch.from_numpy(rows.x).square().mean()
    assert float(spread) == pytest.approx(192 / 5, rel=0.3)  # lengths are kept, on average
    behind = build_task("mlp", (5,), 4, {"hidden": (6,)})
    same = dict(zip(behind.initial(0), state.values(), strict=True))
    assert np.allclose(behind.outputs(same, sums.numpy()), tasks[0].outputs(state, rows.x), atol=1e-5)
    before = matrices[0].clone()
    tasks[0].train(state, rows, Training(lr=0.1), np.random.default_rng(0))
    assert torch.equal(tasks[0].architecture.get_buffer("1.matrix"), before)


@pytest.mark.parametrize(
    ("options", "code", "remedy"),
    [
        ({"hidden": (8,), "rank": 6}, "model-rank", "Set at most 5"),  # 6 x (20 + 8) numbers for 20 x 8
        ({"hidden": (), "rank": 3}, "model-rank", "Set at most 2"),
        ({"hidden": (1,), "rank": 1}, "model-rank", "Leave it out"),
        ({"projection": 20}, "model-projection", "Set less than 20"),
    ],
)
def test_what_makes_no_network_smaller_is_refused(options: dict[str, Any], code: str, remedy: str) -> None:
    with pytest.raises(FedauditError, match=remedy) as caught:
        build_task("mlp", (20,), 3, options).initial(0)
    assert caught.value.code == code
    with pytest.raises(FedauditError):
        parse({"model": {"name": "linear", "rank": 2}})


@pytest.mark.parametrize("options", [{"rank": 2}, {"projection": 12}, {"rank": 2, "projection": 12}])
def test_many_parties_with_a_smaller_network_are_trained_one_by_one(options: dict[str, Any]) -> None:
    """The stacked trainer knows plain stacks alone."""
    task = build_task("mlp", (20,), 3, {"hidden": (16,), **options})
    assert linear_layers(task.architecture) is None
    rng = np.random.default_rng(0)
    rows = dataset("a", rng.normal(size=(30, 20)), rng.integers(0, 3, 30), id=np.arange(30)).records
    parties = [Trainer(f"p{i}", rows, Training(lr=1e-3, batch_size=8)) for i in range(9)]
    (round,) = federate(task, parties, [Plan(tuple(p.name for p in parties))], 3)
    alone = task.train(round.broadcast, rows, parties[0].training, party_rng(3, Moment(1), "p0"))
    assert all(np.array_equal(round.sent["p0"].state[key], value) for key, value in alone.state.items())
