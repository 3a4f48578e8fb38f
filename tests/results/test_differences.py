"""Runs compared on the same records, and scores read back as the auditor had them."""

import json
from pathlib import Path

import numpy as np
import pytest

from fedaudit.results.compare import compare
from fedaudit.results.gate import _corrected
from fedaudit.results.scores import blocks_of, load_scores, save_scores
from fedaudit.stats import Block, auc, tpr_at_fpr, tpr_difference
from fedaudit.types import AuditResult, Cost, Estimate, Floats
from tests import sealed
from tests.report.builder import bare_run, estimate

MEMBERS, OTHERS, CALIBRATION = 600, 100, 900
ROLES = np.repeat(["member", "evaluation", "calibration"], [MEMBERS, OTHERS, CALIBRATION])
MANY = np.repeat(["member", "evaluation", "calibration"], [600, 4000, 900])


def scored(rng: np.random.Generator, shift: float, common: Floats, alike: float = 0.95) -> Floats:
    own = rng.normal(size=len(common))
    return np.asarray(np.sqrt(alike) * common + np.sqrt(1 - alike) * own + shift * (ROLES == "member"), np.float64)


def save(folder: Path, scores: Floats, order: np.ndarray, with_scores: bool = True, roles: np.ndarray = ROLES) -> Path:
    sets = [scores[role == roles] for role in ("member", "evaluation", "calibration")]
    found = tpr_at_fpr([Block(sets[0], sets[1], sets[2])], 0.01)
    told = estimate(found.value) | {"low": found.low, "high": found.high}
    headline = {
        "vantage": "client",
        "attack": "loss",
        "model": "global",
        "compared": 1,
        "estimates": {"tpr@0.01": told},
    }
    folder.mkdir()
    run = bare_run() | {"accuracy": {"evaluation": estimate(0.3)}}
    document = {"schema": 1, "run": run, "headlines": [headline], "results": []}
    sealed.write(folder / "results.json", json.dumps(document))
    if with_scores:
        part = {"id": np.array([f"record-{i}" for i in range(len(scores))])[order], "subject": None, "party": "a",
                "role": roles[order], "attack": "loss", "model": "global", "score": scores[order],
                "reference": np.zeros(len(scores), bool)}  # fmt: skip
        save_scores([part], folder)
    return folder


@pytest.mark.parametrize("doubted", [False, True])
def test_a_figure_at_another_rate_is_not_subtracted(doubted: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    scores = [rng.normal(size=len(MANY)) + 2.0 * (MANY == "member") for _ in "ab"]
    scores[1] += 3.0 * doubted * (MANY == "calibration")
    folders = [
        save(tmp_path / name, own, np.arange(len(MANY)), roles=MANY) for name, own in zip("ab", scores, strict=True)
    ]
    assert [gap.metric for gap in compare(folders).differences] == ["tpr@0.01"] * (not doubted)


def runs(tmp_path: Path, with_scores: bool) -> list[Path]:
    rng = np.random.default_rng(0)
    common = rng.normal(size=len(ROLES))
    scores = [scored(rng, shift, common) for shift in (2.4, 2.1)]
    orders = [np.arange(len(ROLES)), rng.permutation(len(ROLES))]  # rows are stored in any order
    pairs = zip("ab", scores, orders, strict=True)
    return [save(tmp_path / name, own, order, with_scores) for name, own, order in pairs]


def test_a_difference_is_settled_on_the_same_records_though_the_intervals_overlap(tmp_path: Path) -> None:
    folders = runs(tmp_path, with_scores=True)
    found = compare(folders)
    risks = [row.risk for row in found.rows]
    assert risks[0] is not None
    assert risks[1] is not None
    assert risks[0].overlaps(risks[1])
    (gap,) = found.differences
    assert (gap.first, gap.second, gap.vantage, gap.safer) == ("a", "b", "client", "b")
    assert gap.value == pytest.approx(risks[0].value - risks[1].value)
    assert gap.low > 0
    assert found.notes == []
    blocks = []
    for folder in folders:
        scores = load_scores(folder)
        assert scores is not None
        blocks.append(blocks_of(scores, "loss", "global"))
    slow = tpr_difference(blocks[0], blocks[1], 0.01, 0.95)
    assert (gap.low, gap.high) == (slow.low, slow.high)


def test_three_runs_share_the_error_of_their_differences(tmp_path: Path) -> None:
    folders = runs(tmp_path, with_scores=True)
    rng = np.random.default_rng(1)
    third = save(tmp_path / "c", scored(rng, 2.1, rng.normal(size=len(ROLES))), np.arange(len(ROLES)))
    found = compare([*folders, third]).differences
    assert [(gap.first, gap.second) for gap in found] == [("a", "b"), ("a", "c"), ("b", "c")]
    assert {gap.confidence for gap in found} == {1 - 0.05 / 3}
    assert found[2].safer is None
    assert any(
        "b and c, client, loss, global models: the intervals of their differences hold 0" in n
        for n in compare([*folders, third]).notes
    )


def test_runs_are_compared_by_auc_too(tmp_path: Path) -> None:
    """Where few stand out and everybody is a little exposed, the rate at 1 % settles nothing."""
    rng = np.random.default_rng(5)
    folders = []
    for name, shift in (("plain", 0.8), ("private", 0.1)):
        scores = scored(rng, shift, rng.normal(size=len(ROLES)))
        folder = save(tmp_path / name, scores, np.arange(len(ROLES)))
        document = json.loads((folder / "results.json").read_text())
        area = auc([Block(*(scores[role == ROLES] for role in ("member", "evaluation", "calibration")))])
        told = estimate(area.value) | {"low": area.low, "high": area.high}
        document["headlines"][0]["estimates"]["auc"] = told
        sealed.write(folder / "results.json", json.dumps(document))
        folders.append(folder)
    found = {gap.metric: gap for gap in compare(folders).differences}
    assert {gap.confidence for gap in found.values()} == {1 - 0.05 / 2}
    assert found["tpr@0.01"].safer is None
    assert found["auc"].safer == "private"
    assert not [note for note in compare(folders).notes if "not clear which is safer" in note]


def test_without_scores_the_intervals_are_laid_side_by_side(tmp_path: Path) -> None:
    found = compare(runs(tmp_path, with_scores=False))
    assert found.differences == []
    assert "overlap" in found.notes[0]
    assert "scores are missing" in found.notes[0]


def test_the_gate_corrects_a_figure_of_a_tiny_party_and_two_larger_ones() -> None:
    """It is computed again on all three, and must not be said to be from a different run."""
    rng = np.random.default_rng(2)
    sizes = {"a": (200, 50, 800), "b": (200, 50, 700), "tiny": (20, 5, 30)}
    columns: dict[str, list[np.ndarray]] = {name: [] for name in ("id", "party", "role", "score")}
    blocks = []
    for party, counts in sizes.items():
        sets = [rng.normal(2.5 * (i == 0), 1, n) for i, n in enumerate(counts)]
        blocks.append(Block(sets[0], sets[1], sets[2]))
        columns["score"].append(np.concatenate(sets))
        columns["role"].append(np.repeat(["member", "evaluation", "calibration"], counts))
        columns["party"].append(np.full(sum(counts), party))
        columns["id"].append(np.array([f"{party}-{i}" for i in range(sum(counts))]))
    scores = {name: np.concatenate(parts) for name, parts in columns.items()}
    total = len(scores["id"])
    scores |= {"attack": np.full(total, "loss"), "model": np.full(total, "local"), "reference": np.zeros(total, bool)}
    found = tpr_at_fpr(blocks, 0.01)
    assert (found.n_pos, found.n_cal) == (420, 1530)
    estimates: dict[str, Estimate] = {"tpr@0.01": found}
    entry = AuditResult(
        "loss", "server", "local", "record", None, round=5, estimates=estimates, cost=Cost(1.0), warnings=[]
    )
    low, note = _corrected(entry, "tpr@0.01", 0.99, scores, 0)
    assert note == ""
    assert found.guaranteed is not None
    assert low is not None
    assert 0 < low < found.guaranteed[0]
