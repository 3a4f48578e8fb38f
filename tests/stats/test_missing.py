"""T33: a pooled figure names the parties that it says nothing about."""

import numpy as np

from fedaudit.results.scores import absent_of, blocks_of
from fedaudit.stats import Block, over_runs
from fedaudit.stats.roc import Absent, estimates
from fedaudit.types import MOST_NAMED, Missing


def block(party: str, members: int = 30, evaluation: int = 20, calibration: int = 200) -> Block:
    rng = np.random.default_rng(len(party))
    return Block(rng.normal(size=members) + 1, rng.normal(size=evaluation), rng.normal(size=calibration), party=party)


def test_T33_each_figure_names_whom_it_leaves_out_and_why() -> None:
    blocks = [
        block("a"),
        block("b", calibration=0),
        block("c", evaluation=0),
        block("d", members=0),
        block("adversary", 0, 0, 0),
    ]
    found = estimates(
        blocks, [0.05], 0.95, [Absent("e", "unseen", 12), Absent("f", "unseen", 3), Absent("g", "unfit", 9)]
    )
    always = (Missing("unseen", ("e", "f"), 2, 7, 15), Missing("unfit", ("g",), 1, 7, 9))
    nobody = Missing("no-members", ("d",), 1, 7, 0)
    assert set(found["auc"].missing) == {*always, nobody, Missing("no-evaluation", ("c",), 1, 7, 30)}
    assert set(found["tpr@0.05"].missing) == {*always, nobody, Missing("no-calibration", ("b",), 1, 7, 30)}


def test_nobody_is_missing_from_the_figure_of_one_party_or_of_one_threshold_for_all() -> None:
    assert not estimates([block("a", calibration=0)], [0.05], 0.95)["tpr@0.05"].missing
    assert not estimates([block("")], [0.05], 0.95)["auc"].missing
    assert not estimates([block("a"), block("b")], [0.05], 0.95)["auc"].missing


def test_of_many_parties_some_are_named_and_all_are_counted() -> None:
    absent = [Absent(f"p{i}", "unseen", 2) for i in range(50)]
    (found,) = estimates([block("a")], [], 0.95, absent)["auc"].missing
    assert (found.count, found.of, found.members, len(found.parties)) == (50, 51, 100, MOST_NAMED)


def test_the_scores_of_a_run_tell_who_has_none() -> None:
    size = {"a": 300, "b": 300, "c": 300}
    names, total = np.repeat(list(size), 300), 900
    rng = np.random.default_rng(0)
    scores = {
        "id": np.arange(total).astype(str), "party": names, "attack": np.full(total, "x"),
        "model": np.full(total, "local"),
        "role": np.tile(np.repeat(["member", "evaluation", "calibration"], 100), 3), "score": rng.normal(size=total),
        "reference": np.zeros(total, bool),
    }  # fmt: skip
    scores["score"][names == "b"] = np.nan
    assert absent_of(scores, "x", "local") == [Absent("b", "unseen", 100)]
    assert [one.party for one in blocks_of(scores, "x", "local")] == ["a", "c"]
    assert absent_of(scores, "x", "global") == []
    scores["reference"][[250, 260]] = True  # an attack that is fitted on known non-members, of whom b has none
    assert absent_of(scores, "x", "local") == [Absent("b", "unfit", 100)]


def test_who_is_missing_from_one_run_is_missing_from_the_mean() -> None:
    runs = [
        estimates([block("a"), block("b")], [], 0.95)["auc"],
        estimates([block("a")], [], 0.95, [Absent("b", "unseen", 30)])["auc"],
        estimates([block("b")], [], 0.95, [Absent("a", "unseen", 40)])["auc"],
    ]
    assert over_runs(runs).missing == (Missing("unseen", ("b", "a"), 2, 2, 40),)
    assert over_runs(runs[:1]).missing == ()
