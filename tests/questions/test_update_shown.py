"""What docs/one-update.md and docs/inputs.md show of the demo's baskets, counted again: each prints what it counted."""

import json
from typing import Any

import pytest

from docs.make_inputs import of_data, of_words, one_run
from docs.make_one_update import LABELS, TRIALS, World, one_labelled, one_trial

WORLD = World()
TOLD = [
    *(f"baskets-{kind}" for kind in (20, 60, 100, "sgd", "momentum", "adamw", "adam-l2", "sgd-l2", "3-epochs")),
    "sum-of-4",
    "secagg-plus",
    "float16",
]
UNTOLD = ["sum-of-4-one-step", "top-50", "top-10", "top-1", "dropout", "layer-norm", "noise", "dp-sgd"]


def counted(name: str) -> list[dict[str, Any]]:
    found = one_trial(WORLD, TRIALS[name]) if name in TRIALS else one_labelled(WORLD, LABELS[name])
    print("\n" + json.dumps({name: found}))
    return found


@pytest.mark.evidence
@pytest.mark.parametrize("name", TOLD)
def test_what_nobody_has_is_listed_rightly_and_wholly(name: str) -> None:
    for one in counted(name):
        value = {figure: estimate[0] for figure, estimate in one["figures"].items()}
        assert (value["presence-precision"], value["presence-recall"]) == (1, 1)
        assert value["presence-blind"] < 0.6
        if "singletons-precision" in value:
            assert value["singletons-precision"] >= 0.85
            assert value["singletons-blind"] < 0.6
        assert value.get("twins-precision", 1) >= 0.9
        assert not one["unable"]


@pytest.mark.evidence
@pytest.mark.parametrize("name", UNTOLD)
def test_where_nothing_can_be_told_there_is_no_list(name: str) -> None:
    for one in counted(name):
        assert one["unable"]
        assert one["figures"] == {}


@pytest.mark.evidence
def test_lists_held_against_other_records_are_no_better_than_the_guess() -> None:
    for one in counted("null"):
        for figure in ("presence", "singletons", "twins"):
            assert one["figures"][figure][1] <= one["figures"][f"{figure}-blind"][2]


@pytest.mark.evidence
@pytest.mark.parametrize(
    ("name", "most"), [*((f"labels-{n}", 0.1) for n in (16, 64, 256)), ("labels-skewed-sgd", 0.35)]
)
def test_few_records_are_counted_under_a_wrong_class(name: str, most: float) -> None:
    for one in counted(name):
        figures = one["figures"]
        assert figures["label-error"][0] <= most < figures["label-error-blind"][0]
        assert figures["label-interval"][2] >= 0.95


@pytest.mark.evidence
@pytest.mark.parametrize(
    ("round", "records", "least"),
    [*((0, b, 6) for b in (2, 4, 6, 8, 12)), (0, 16, 4), *((10, b, 6) for b in (2, 4, 6))],
)
def test_whole_batches_come_out(round: int, records: int, least: int) -> None:
    data = of_data("baskets", WORLD.folder)
    assert data is not None
    found = [one_run(data, {"data": "baskets", "round": round, "b": records}, seed) for seed in range(6)]
    print("\n" + json.dumps(found))
    assert sum(one["right"] == one["of"] for one in found) >= least
    assert all(one["listed"] == one["right"] for one in found)


@pytest.mark.evidence
@pytest.mark.parametrize("sentences", [1, 2, 4, 8])
def test_every_word_comes_out_and_no_other(sentences: int) -> None:
    found = [of_words(sentences, seed) for seed in range(3)]
    print("\n" + json.dumps(found))
    assert all(one["listed"] == one["right"] == one["of"] for one in found)
