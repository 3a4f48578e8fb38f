"""Whole records and words from one update: what is found is there, and where nothing can be told, nothing is."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_digits
from torch import nn

from fedaudit.learn.tasks import TorchTask, Training
from fedaudit.questions.update import UpdateSection, recovery
from fedaudit.questions.update.inputs import PART, records_beside, room_of, same
from fedaudit.questions.update.parts import BesideTruth, CannotTell, Known, OneUpdate
from fedaudit.questions.update.recovery import Domain, MovedLayer
from fedaudit.types import Floats, Records

UNITS, COLUMNS = 96, 40


def rows(n: int, seed: int, kind: str) -> Floats:
    rng = np.random.default_rng(seed)
    x = rng.random((n, COLUMNS)) < 0.3 if kind == "bits" else rng.normal(size=(n, COLUMNS))
    return x.astype(np.float32).astype(np.float64)


def mlp(classes: int = 5, hidden: tuple[int, ...] = (UNITS, 32), columns: int = COLUMNS) -> TorchTask:
    widths = (columns, *hidden)
    layers = [each for a, b in zip(widths, hidden, strict=False) for each in (nn.Linear(a, b), nn.ReLU())]
    return TorchTask(lambda: nn.Sequential(*[_copy(one) for one in layers], nn.Linear(widths[-1], classes)), classes)


def _copy(layer: nn.Module) -> nn.Module:
    return nn.Linear(layer.in_features, layer.out_features) if isinstance(layer, nn.Linear) else nn.ReLU()


def records(x: Floats, classes: int = 5) -> Records:
    y = (x.sum(axis=1) * 7).astype(np.int64) % classes
    return Records(x.astype(np.float32), y, np.array([f"r{k:04d}" for k in range(len(x))]))


def update(task: TorchTask, mine: Records, seed: int = 0, **training: Any) -> OneUpdate:
    how = Training(**{"optimizer": "sgd", "lr": 0.1, "epochs": 1, "batch_size": len(mine), **training})
    received = task.initial(seed)
    sent = task.train(received, mine, how, np.random.default_rng(seed)).state
    return OneUpdate(received=received, sent=sent, task=task, examples=len(mine))


def dense(one: OneUpdate, last: bool = False) -> MovedLayer:
    before, after = (np.asarray(state["0.weight"], np.float64) for state in (one.received, one.sent))
    b0, b1 = (np.asarray(state["0.bias"], np.float64) for state in (one.received, one.sent))
    return MovedLayer(before, b0, after - before, b1 - b0, last)


def known(kind: str, n: int = 200) -> Known:
    return Known(outsiders=records(rows(n, 99, kind)), classes=5)


def matched(found: Floats, truth: Floats) -> tuple[int, int]:
    """How many of the true records were found, and how many that were found are not true."""
    which = same(found, truth, np.ones(truth.shape[1]))
    return len(set(which[which >= 0].tolist())), int((which < 0).sum())


# ------------------------------------------------------------------ records


@pytest.mark.parametrize("kind", ["bits", "numbers"])
@pytest.mark.parametrize("many", [1, 2, 5])
def test_a_small_batch_is_read_off_to_the_last_record(kind: str, many: int) -> None:
    x = rows(many, 1, kind)
    table = PART.look(update(mlp(), records(x)), known(kind), UpdateSection())
    assert table["inputs-found"].all()
    assert matched(np.asarray(table["inputs-record"]), x) == (many, 0)
    if kind == "bits":
        assert set(np.unique(table["inputs-record"])) <= {0.0, 1.0}


def test_each_way_by_itself_finds_what_is_there_and_nothing_else() -> None:
    rng = np.random.default_rng(0)
    for kind in ("numbers", "bits"):
        x, outside = rows(4, 2, kind), rows(200, 99, kind)
        layer = dense(update(mlp(), records(x)))
        whole = recovery.by_rank(layer, Domain.of(outside), outside, rng, records=4)
        assert (whole.way, matched(whole.records, x)) == ("rank", (4, 0))
        alone = recovery.by_ratio(layer, Domain.of(outside))
        assert (alone.way, alone.unsure) == (("ratio", "") if kind == "bits" else ("", "no-check"))
        assert matched(alone.records, x)[1] == 0


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("apart", [0.05, 0.3])
def test_what_two_classes_and_one_hidden_layer_mix_alike_is_not_taken_for_a_record(seed: int, apart: float) -> None:
    """Units that fire for the same records agree on a mixture of these, to the last digit."""
    x = rows(3, seed, "numbers")
    x[1] = x[0] + apart * x[1]  # two records that switch on nearly the same units
    layer = dense(update(mlp(2, (UNITS,)), records(x, 2), seed))
    usable = layer.moved_bias != 0
    ratios = layer.moved[usable] / layer.moved_bias[usable, None]
    false = same(ratios, x, np.ones(COLUMNS)) < 0
    agreeing = (np.abs(ratios[false][:, None] - ratios[false]).max(axis=2) < 1e-3).sum(axis=1)
    assert agreeing.max() >= 5, "the world of this test has no such mixture"
    outside, rng = rows(200, 99, "numbers"), np.random.default_rng(0)
    found = recovery.by_rank(layer, Domain.of(outside), outside, rng, records=3, kernels=2**13)
    assert matched(found.records, x)[1] == 0


def test_records_that_move_all_units_in_proportion_are_not_told_as_one() -> None:
    x = rows(2, 0, "numbers")
    x[1] = x[0] * 1.01
    layer, outside = dense(update(mlp(2, (UNITS,)), records(x, 2))), rows(200, 99, "numbers")
    rng = np.random.default_rng(0)
    assert recovery.factors(layer, rng).rank == 1
    assert recovery.by_rank(layer, Domain.of(outside), outside, rng, records=2).unsure == "merged"
    assert recovery.by_rank(layer, Domain.of(outside), outside, rng).unsure == "merged"
    blindly = recovery.by_rank(layer, Domain.of(outside), outside, rng, records=1)  # what the rule prevents
    assert len(blindly) == 1


def test_units_that_leave_two_records_open_give_no_column() -> None:
    """Where two of three records leave all units off, any mixture of the two fits."""
    x = rows(3, 0, "numbers")
    layer = dense(update(mlp(), records(x)))
    search = recovery.Columns(recovery.factors(layer, np.random.default_rng(0)), np.full(UNITS, 0.5), 0.1)
    off = ~layer.firing(x)[:, search.live]
    assert search._refitted(off[0]) is not None
    assert np.count_nonzero(off[0] & off[1]) >= 3
    assert search._refitted(off[0] & off[1]) is None


def test_few_directions_are_found_without_a_whole_decomposition() -> None:
    layer = dense(update(mlp(), records(rows(6, 3, "numbers"))))
    whole = np.column_stack([layer.moved, layer.moved_bias])
    split = recovery.factors(layer, np.random.default_rng(0))
    slow = np.linalg.svd(whole, compute_uv=False)
    assert split.rank == 6
    assert np.allclose(split.size, slow[:6])
    assert np.allclose(split.left @ split.right, whole, atol=1e-7)
    assert slow[6] < 1e-2 * slow[5]


def test_levels_are_those_of_the_outsiders_and_near_is_near() -> None:
    outside = np.column_stack([np.tile([0.0, 1.0], 50), np.tile([0.0, 2.0, 5.0, 5.0], 25), np.linspace(0, 1, 100)])
    domain = Domain.of(outside)
    assert domain.discrete.tolist() == [True, True, False]
    given = np.array([[0.01, 4.97, 0.3], [0.99, 2.2, 0.3], [0.5, 0.0, 0.3], [1.0, 0.0, 7.0]])
    snapped, on = domain.snapped(given)
    for row, taken, near in zip(given, snapped, on, strict=True):  # the obvious way
        slow = [min((abs(value - level), level) for level in set(outside[:, j])) for j, value in enumerate(row[:2])]
        assert near == (slow[0][0] <= 0.02 * 1 and slow[1][0] <= 0.02 * 2)
        assert [one[1] for one in slow] == taken[:2].tolist()
        assert taken[2] == row[2]


@pytest.mark.parametrize(
    ("how", "why"),
    [({"optimizer": "adam", "lr": 1e-3}, "inputs-normalised"), ({"lr": 1e-12}, "inputs-unmoved")],
)
def test_where_nothing_can_be_told_nothing_is(how: dict[str, Any], why: str) -> None:
    with pytest.raises(CannotTell) as told:
        PART.look(update(mlp(), records(rows(3, 5, "bits")), **how), known("bits"), UpdateSection())
    assert told.value.code == why


def test_more_records_than_directions_and_a_model_of_one_layer_are_not_tried() -> None:
    with pytest.raises(CannotTell, match="inputs-too-many"):
        PART.look(update(mlp(), records(rows(60, 5, "numbers"))), known("numbers"), UpdateSection())
    layer = dense(update(mlp(5, (UNITS,)), records(rows(3, 5, "bits"))), last=True)
    assert recovery.by_ratio(layer, Domain.of(rows(200, 99, "bits"))).unsure == "one-layer"


def test_figures_against_records_that_were_not_trained_on_are_those_of_the_guess() -> None:
    x = rows(4, 6, "bits")
    table = PART.look(update(mlp(), records(x)), known("bits"), UpdateSection())

    def judged(members: Records) -> Any:
        one = BesideTruth(party="a", round=1, vantage="server", table=table, members=members)
        return PART.judge([one], known("bits"), 0.95)

    right, null = judged(records(x)), judged(records(rows(4, 7, "bits")))
    assert (right["exact-inputs"].value, right["exact-inputs-precision"].value) >= (0.75, 1)
    assert right["exact-inputs-blind"].value == 0
    assert null["exact-inputs"].value == null["exact-inputs-blind"].value == 0


def test_a_false_record_counts_against_the_list() -> None:
    x = rows(3, 8, "bits")
    table = {"inputs-record": np.vstack([x[:2], 1 - x[:1]]), "inputs-found": np.ones(3, bool)}
    beside = records_beside(table, records(x), records(rows(50, 99, "bits")))
    assert (beside.true.sum(), beside.listed.sum(), (beside.true & beside.listed).sum()) == (3, 3, 2)


WAYS: dict[str, dict[str, Any]] = {
    "one step": {},
    "six steps": {"epochs": 3, "batch_size": 2},
    "adam": {"optimizer": "adam", "lr": 1e-3},
    "two classes, one hidden layer": {},
    "two records nearly the same": {},
}


def of(kind: str) -> Floats:
    if kind in ("bits", "numbers"):
        return rows(600, 5, kind)
    x = np.asarray((load_digits() if kind == "digits" else load_breast_cancer()).data, np.float64)
    x = x / 16 if kind == "digits" else (x - x.mean(axis=0)) / x.std(axis=0)
    return x.astype(np.float32).astype(np.float64)


def one_of_200(kind: str, way: str, seed: int) -> tuple[int, int, int]:
    """Records that were read off rightly, wrongly, and how many there are."""
    everybody, rng = of(kind), np.random.default_rng([seed, 3])
    order, many = rng.permutation(len(everybody)), int(rng.integers(2, 7))
    x, outside = everybody[order[:many]].copy(), everybody[order[-200:]]
    if way == "two records nearly the same":
        x[1] = x[0]
        x[1, 0] = outside[outside[:, 0] != x[0, 0], 0][0] if (outside[:, 0] != x[0, 0]).any() else x[0, 0]
        x[1, 1:4] = x[2 % many, 1:4]
    two = way == "two classes, one hidden layer"
    classes, hidden = (2, (128,)) if two else (5, (128, 32))
    how = {"batch_size": many, **WAYS[way]}
    layer = dense(update(mlp(classes, hidden, x.shape[1]), records(x, classes), seed, **how))
    domain = Domain.of(outside)
    found = recovery.by_rank(layer, domain, outside, rng, records=many, kernels=2**13)
    alone = recovery.by_ratio(layer, domain)
    right, wrong = matched(found.records, x)
    return max(right, matched(alone.records, x)[0]), wrong + matched(alone.records, x)[1], many


@pytest.mark.evidence
def test_no_record_is_accepted_that_is_not_there_in_200_runs() -> None:
    counts: dict[str, list[int]] = {}
    for way in WAYS:
        for kind in ("bits", "numbers", "digits", "breast-cancer"):
            for seed in range(10):
                right, wrong, many = one_of_200(kind, way, seed)
                of_cell = counts.setdefault(f"{way}, {kind}", [0, 0, 0])
                for place, count in enumerate((right == many, wrong, 1)):
                    of_cell[place] += int(count)
    print("complete runs, false records, runs:", counts)
    assert sum(cell[2] for cell in counts.values()) == 200
    assert sum(cell[1] for cell in counts.values()) == 0
    assert sum(cell[0] for name, cell in counts.items() if name.startswith("one step")) >= 30


# ------------------------------------------------------------------ words


class OneBlock(nn.Module):
    def __init__(self, words: int, positions: int, width: int):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(positions, width)
        self.block = nn.TransformerEncoderLayer(width, 2, width, 0.0, batch_first=True)
        self.head = nn.Linear(width, words)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(self.block(self.words(x) + self.places(torch.arange(x.shape[1]))))
        return out


def sentences(n: int, seed: int, words: int) -> Records:
    x = np.random.default_rng(seed).integers(words, size=(n, 6))
    return Records(x, x, np.array([f"s{k:03d}" for k in range(n)]))


def test_the_words_of_sentences_are_read_off_and_no_others() -> None:
    task = TorchTask(lambda: OneBlock(300, 6, 32), 300)
    mine, others = sentences(3, 1, 300), Known(outsiders=sentences(40, 2, 300), classes=300)
    table = PART.look(update(task, mine), others, UpdateSection())
    assert np.flatnonzero(table["inputs-found"]).tolist() == np.unique(mine.x).tolist()
    with pytest.raises(CannotTell, match="inputs-full-rank"):
        PART.look(update(task, sentences(10, 3, 300)), others, UpdateSection())


# ------------------------------------------------------------------ before training


def test_how_many_records_move_a_unit_alone_is_what_a_count_gives() -> None:
    rng = np.random.default_rng(0)
    counts = []
    for _ in range(400):
        fires = rng.random((5, 64)) < 0.5
        counts.append(len({int(fires[:, unit].argmax()) for unit in range(64) if fires[:, unit].sum() == 1}))
    expected = recovery.capacity(64, 100, 5).alone
    assert math.isclose(float(np.mean(counts)), expected, abs_tol=0.1)


def test_the_room_of_a_shape_is_told_in_words() -> None:
    assert "all of them can be read off" in room_of(512, 600, 8, adam=False)
    assert "at most 100 different ones" in room_of(512, 100, 500, adam=False)
    assert "Adam" in room_of(512, 600, 8, adam=True)
