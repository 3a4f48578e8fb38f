"""What a study says about a factor, on cells whose answer is known: scores that were made for it."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedaudit.errors import FedauditError
from fedaudit.report.pages import level_text, study_page
from fedaudit.results.document import Document, Repeat, load, save
from fedaudit.results.repeats import every_attack, spread_over
from fedaudit.results.run_errors import errors_of_run
from fedaudit.results.scores import save_scores
from fedaudit.results.study import (
    CELLS,
    ListedCell,
    Outcome,
    StudyFile,
    factors,
    frontier,
    load_file,
    metric_of,
    outcomes,
    rows,
    save_file,
    save_table,
)
from fedaudit.results.table import rows as table_rows
from fedaudit.stats import Block, auc, auc_difference, over_runs
from fedaudit.stats.paired import errors_behind
from fedaudit.types import Cost, Estimate, Headline
from tests.report.builder import minimal, read

N = 400


def made(folder: Path, shifts: dict[str, float], accuracy: dict[str, float]) -> Path:
    """A study of two factors: cells whose members score higher by the shift of their first letter."""
    entries = []
    for cell, shift in shifts.items():
        scores = world(shift, int(cell[1]))
        found = auc([blocks(scores)])
        base = read(minimal())
        result = replace(
            base.results[0], attack="loss", vantage="client", model="global", party=None, estimates={"auc": found},
            cost=Cost(0.1), curves={},
        )  # fmt: skip
        headline = Headline("client", "loss", "global", {"auc": found}, 1, sentence="said", tone="found")
        at = accuracy[cell]
        right = Estimate("evaluation", at, at - 0.01, at + 0.01, 0.95, "exact", "measured", 100, 0)
        run = replace(base.run, status="complete", accuracy={"evaluation": right})
        (folder / CELLS / cell).mkdir(parents=True)
        save(Document(run=run, headlines=[headline], results=[result]), folder / CELLS / cell)
        save_scores([scores], folder / CELLS / cell)
        entries.append(ListedCell(cell, {"size": cell[0], "seed": int(cell[1])}))
    grid: dict[str, list[Any]] = {"size": ["a", "b"], "seed": [0, 1, 2]}
    save_file(
        StudyFile(schema=1, base={"audit": {}}, grid=grid, cells=entries, groups=[[e.cell] for e in entries]), folder
    )
    return folder


def world(shift: float, seed: int) -> dict[str, Any]:
    """The noise of a record is the same in all cells of a seed, as with one split of the data."""
    rng = np.random.default_rng(seed)
    role = np.repeat(["member", "evaluation", "calibration"], N)
    score = rng.normal(size=3 * N) + shift * (role == "member")
    ids = np.array([f"r{i}" for i in range(3 * N)])
    return {
        "id": ids, "subject": None, "party": "p", "role": role, "attack": "loss", "model": "global", "score": score,
        "reference": np.zeros(3 * N, bool),
    }  # fmt: skip


def blocks(scores: dict[str, Any]) -> Block:
    of = {name: scores["role"] == name for name in ("member", "evaluation", "calibration")}
    each = [scores["score"][mask] for mask in of.values()]
    ids = [scores["id"][mask] for mask in of.values()]
    return Block(each[0], each[1], each[2], None, (ids[0], ids[1], ids[2]))


SHIFTS = {f"{size}{seed}": shift for size, shift in (("a", 0.2), ("b", 1.0)) for seed in range(3)}
RIGHT = {cell: 0.9 if cell[0] == "b" else 0.7 for cell in SHIFTS}


def test_a_factor_is_read_off_cells_that_differ_in_it_alone(tmp_path: Path) -> None:
    found = outcomes(made(tmp_path, SHIFTS, RIGHT))
    assert metric_of(found) == "auc"
    size, seed = factors(found, tmp_path)
    assert (size.key, seed.key) == ("size", "seed")
    first, second = size.levels
    assert (first.difference, first.pairs, second.pairs, second.cells) == (None, 0, 3, 3)
    gaps = [auc_difference([blocks(world(1.0, s))], [blocks(world(0.2, s))]).value or 0.0 for s in range(3)]
    assert second.difference is not None
    assert second.difference.value == pytest.approx(np.mean(gaps))
    assert second.difference.low is not None
    assert second.difference.low > 0.1
    # The same noise in both cells of a pair: the difference is known better than either of the two.
    assert second.risk is not None
    assert second.risk.high is not None
    assert second.risk.low is not None
    assert second.difference.high is not None
    # Every level of the seed has a pair at both sizes, and nothing but chance between them.
    other = seed.levels[1]
    assert other.pairs == 2
    assert other.difference is not None
    assert other.difference.low is not None
    assert other.difference.high is not None
    assert other.difference.low < 0 < other.difference.high


def test_a_factor_without_effect_comes_out_null(tmp_path: Path) -> None:
    same = dict.fromkeys(SHIFTS, 0.5)
    size = factors(outcomes(made(tmp_path, same, RIGHT)), tmp_path)[0]
    difference = size.levels[1].difference
    assert difference is not None
    assert difference.value == 0
    assert difference.low == pytest.approx(0, abs=1e-6)


def test_a_cell_that_failed_leaves_its_pair_out_and_is_a_row(tmp_path: Path) -> None:
    made(tmp_path, SHIFTS, RIGHT)
    (tmp_path / CELLS / "b1" / "results.json").unlink()
    file = load_file(tmp_path)
    save_file(replace(file, failed={"b1": "[no-records] no records"}), tmp_path)
    found = outcomes(tmp_path)
    assert [o.status for o in found if not o.complete] == ["failed: [no-records] no records"]
    assert factors(found, tmp_path)[0].levels[1].pairs == 2
    save_table(found, tmp_path)
    assert [row["status"] for o in found for row in rows(o) if o.cell == "b1"] == ["failed: [no-records] no records"]
    page = study_page(tmp_path)
    assert "no-records" in page
    assert "Risk by size" in page


def test_hostile_names_are_harmless_on_the_page(tmp_path: Path) -> None:
    made(tmp_path, SHIFTS, RIGHT)
    file = load_file(tmp_path)
    evil = [ListedCell(e.cell, {"<script>alert(1)</script>": e.overrides["size"], "seed": 0}) for e in file.cells]
    save_file(replace(file, cells=evil), tmp_path)
    assert "<script>alert" not in study_page(tmp_path)


def with_tpr(folder: Path, risks: dict[str, float]) -> list[Outcome]:
    """The study after these cells were also given a TPR at 1 % FPR."""
    for cell, risk in risks.items():
        whole = load(folder / CELLS / cell)
        headline = whole.headlines[0]
        tpr = replace(headline.estimates["auc"], name="tpr@0.01", value=risk, low=risk - 0.05, high=risk + 0.05)
        quoted = replace(headline, estimates={**headline.estimates, "tpr@0.01": tpr})
        save(replace(whole, headlines=[quoted]), folder / CELLS / cell)
    return outcomes(folder)


ALL_TPR = {"a0": 0.1, "a1": 0.2, "a2": 0.2, "b0": 0.4, "b1": 0.5, "b2": 0.6}


def test_the_frontier_names_what_nothing_beats(tmp_path: Path) -> None:
    """The safest and the most accurate stand out."""
    found = with_tpr(made(tmp_path, SHIFTS, RIGHT), ALL_TPR)
    assert [one.overrides["size"] for one in frontier(found) if one.row.best] == ["a", "b"]
    html = study_page(tmp_path)
    assert "Cells that differ in their seeds alone are one configuration" in html
    assert "Usefulness against risk" in html
    assert "picked out at 1 % FPR" in html
    assert "risk: TPR at 1 % FPR" in html


@pytest.mark.parametrize("key", ["federation.seed", "data.data_seed", "federation.seed, data.data_seed"])
def test_a_lucky_seed_is_no_point_of_its_own(tmp_path: Path, key: str) -> None:
    """Three seeds of "b" spread around those of "a", which is as accurate and, on average, safer. The best of the three
    was on the frontier."""
    risks = {"a0": 0.3, "a1": 0.3, "a2": 0.3, "b0": 0.1, "b1": 0.5, "b2": 0.6}
    with_tpr(made(tmp_path, SHIFTS, dict.fromkeys(SHIFTS, 0.8)), risks)
    file = load_file(tmp_path)
    cells = [ListedCell(e.cell, {"size": e.overrides["size"], key: e.overrides["seed"]}) for e in file.cells]
    save_file(replace(file, cells=cells), tmp_path)
    safe, risky = frontier(outcomes(tmp_path))
    assert (safe.overrides, safe.cells, safe.row.best) == ({"size": "a"}, 3, True)
    assert (risky.overrides, risky.cells, risky.row.best) == ({"size": "b"}, 3, False)
    assert risky.row.risk
    assert risky.row.accuracy
    each = [replace(EXAMPLE, value=r, low=r - 0.05, high=r + 0.05) for cell, r in risks.items() if cell[0] == "b"]
    mean = over_runs(each)
    assert (risky.row.risk.value, risky.row.risk.low, risky.row.risk.high) == (mean.value, mean.low, mean.high)
    html = study_page(tmp_path)
    section = html.split('id="frontier"')[1].split("</section>")[0]
    assert "seed" not in section.replace("differ in their seeds alone", "")


def test_seeds_with_records_of_their_own_narrow_the_mean(tmp_path: Path) -> None:
    """The noise of a record is another with every seed here, so that the runs have nothing in common; or the same."""
    runs = outcomes(made(tmp_path, SHIFTS, RIGHT))
    safe = next(one for one in frontier(runs) if one.overrides["size"] == "a").row.risk
    same = [replace(one, folder=tmp_path / CELLS / "a0") for one in runs]  # not the scores of their results
    wide = next(one for one in frontier(same) if one.overrides["size"] == "a").row.risk
    assert safe
    assert wide
    assert safe.value == wide.value
    each = [auc([blocks(world(0.2, seed))]) for seed in range(3)]
    mean = over_runs(each, errors=[errors_behind("auc", [blocks(world(0.2, seed))]) for seed in range(3)])
    assert (safe.low, safe.high) == (mean.low, mean.high)
    assert (wide.low, wide.high) == (over_runs(each).low, over_runs(each).high)
    assert safe.high - safe.low < wide.high - wide.low
    level = factors(runs, tmp_path)[0].levels[0]
    assert level.risk is not None
    assert (level.risk.low, level.risk.high) == (mean.low, mean.high)


def test_every_attack_over_runs_asks_their_scores(tmp_path: Path) -> None:
    made(tmp_path, SHIFTS, RIGHT)
    folders = [tmp_path / CELLS / f"a{seed}" for seed in range(3)]
    runs = [load(folder) for folder in folders]
    results = [run.results for run in runs]
    errors = [errors_of_run(*run) for run in zip(folders, results, strict=True)]
    (known,), (unknown,) = every_attack(results, errors), every_attack(results)
    assert "have in common" in known.estimates["auc"].method
    assert (known.estimates["auc"].high or 1) < (unknown.estimates["auc"].high or 0)
    repeats = [Repeat(seed, run.headlines) for seed, run in enumerate(runs)]
    (spread,) = spread_over(repeats, errors=errors)
    assert spread.estimates["auc"] == known.estimates["auc"]
    seeded = {
        folder.name: replace(run, run=replace(run.run, config={"federation": {"seed": seed}}))
        for seed, (folder, run) in enumerate(zip(folders, runs, strict=True))
    }
    (row,) = table_rows(seeded, ["auc"], dict(zip(seeded, folders, strict=True)))
    assert row.estimate == known.estimates["auc"]


@pytest.mark.parametrize("doubted", [["b2"], ["b1", "b2"], ["b0", "b1", "b2"]])
def test_seeds_whose_risk_is_doubted_are_no_part_of_a_mean(tmp_path: Path, doubted: list[str]) -> None:
    """An attack beside the one that is quoted: by how much more it finds nobody knows."""
    with_tpr(made(tmp_path, SHIFTS, RIGHT), ALL_TPR)
    for cell in doubted:
        whole = load(tmp_path / CELLS / cell)
        refused = replace(EXAMPLE, value=None, low=None, high=None, doubt="more")
        other = replace(whole.results[0], attack="fta-loss", estimates={"tpr@0.01": refused})
        save(replace(whole, results=[*whole.results, other]), tmp_path / CELLS / cell)
    _, risky = frontier(outcomes(tmp_path))
    left = [risk for cell, risk in ALL_TPR.items() if cell[0] == "b" and cell not in doubted]
    assert (risky.cells, risky.row.best) == (len(left), bool(left))
    assert (risky.row.risk.value if risky.row.risk else None) == (pytest.approx(np.mean(left)) if left else None)


def test_a_level_is_told_without_cells_whose_risk_is_doubted(tmp_path: Path) -> None:
    """As in the table of configurations: an attack beside the one that is quoted may find more."""
    with_tpr(made(tmp_path, SHIFTS, RIGHT), ALL_TPR)

    def counted() -> list[int]:
        found = next(factor for factor in factors(outcomes(tmp_path), tmp_path) if factor.metric == "tpr@0.01")
        return [level.cells for level in found.levels]

    before = sum(counted())
    whole = load(tmp_path / CELLS / "b2")
    refused = replace(EXAMPLE, value=None, low=None, high=None, doubt="more")
    other = replace(whole.results[0], attack="fta-loss", estimates={"tpr@0.01": refused})
    save(replace(whole, results=[*whole.results, other]), tmp_path / CELLS / "b2")
    assert sum(counted()) == before - 1


def test_cells_with_a_quoted_figure_that_is_doubted_are_compared_by_their_auc(tmp_path: Path) -> None:
    found = with_tpr(made(tmp_path, SHIFTS, RIGHT), ALL_TPR)
    assert metric_of(found) == "tpr@0.01"
    whole = load(tmp_path / CELLS / "b2")
    doubted = replace(whole.headlines[0].estimates["tpr@0.01"], high=1.0, doubt="fewer")
    quoted = replace(whole.headlines[0], estimates={**whole.headlines[0].estimates, "tpr@0.01": doubted})
    save(replace(whole, headlines=[quoted]), tmp_path / CELLS / "b2")
    assert metric_of(outcomes(tmp_path)) == "auc"


EXAMPLE = Estimate("tpr@0.01", 0.0, 0.0, 0.0, 0.95, "exact", "measured", 100, 100)


@pytest.mark.parametrize("some", [{}, {cell: risk for cell, risk in ALL_TPR.items() if cell != "b2"}])
def test_cells_are_compared_by_what_all_of_them_have(tmp_path: Path, some: dict[str, float]) -> None:
    """One cell has too few people for a TPR at 1 %, or all have: every level and every cell is told by its AUC."""
    found = with_tpr(made(tmp_path, SHIFTS, RIGHT), some)
    assert metric_of(found) == "auc"
    assert {factor.metric for factor in factors(found, tmp_path)} == {"auc"}
    assert all(level.risk and level.risk.value for factor in factors(found, tmp_path) for level in factor.levels)
    aucs = {o.cell: o.document.headlines[0].estimates["auc"].value or 0.0 for o in found if o.document}
    means = {size: np.mean([aucs[cell] for cell in aucs if cell[0] == size]) for size in "ab"}
    risks = {one.overrides["size"]: one.row.risk.value if one.row.risk else None for one in frontier(found)}
    assert risks == pytest.approx(means)
    html = study_page(tmp_path)
    assert "Usefulness against risk" in html
    assert "risk: AUC" in html
    assert "chance (0.500)" in html
    assert "1 % FPR" not in html


def test_a_headline_without_any_of_the_risks_does_not_choose_among_them(tmp_path: Path) -> None:
    with_tpr(made(tmp_path, SHIFTS, RIGHT), ALL_TPR)
    whole = load(tmp_path / CELLS / "a0")
    canary = replace(whole.headlines[0], vantage="secagg-server", attack="canife", estimates={})
    save(replace(whole, headlines=[*whole.headlines, canary]), tmp_path / CELLS / "a0")
    assert metric_of(outcomes(tmp_path)) == "tpr@0.01"


def test_differences_are_in_sight_and_not_only_among_the_data_of_a_chart(tmp_path: Path) -> None:
    outside = re.sub(r"<details.*?</details>", "", study_page(made(tmp_path, SHIFTS, RIGHT)), flags=re.DOTALL)
    assert outside.count("difference in risk") == 1
    assert "pairs of cells" in outside


def test_levels_in_words() -> None:
    assert level_text([]) == "none"
    assert level_text([{"name": "dp-sgd", "clip": 1.0, "noise": 2}]) == "dp-sgd clip 1.0, noise 2"
    assert level_text([64, 16]) == "64 | 16"
    assert level_text("dirichlet") == "dirichlet"


def test_T1_the_order_of_rows_in_a_score_file_changes_nothing(tmp_path: Path) -> None:
    straight = factors(outcomes(made(tmp_path / "a", SHIFTS, RIGHT)), tmp_path / "a")[0]
    made(tmp_path / "b", SHIFTS, RIGHT)
    for number, cell in enumerate(SHIFTS):
        scores = world(SHIFTS[cell], int(cell[1]))
        order = np.random.default_rng(number).permutation(3 * N)
        mixed = {k: v[order] if isinstance(v, np.ndarray) else v for k, v in scores.items()}
        save_scores([mixed], tmp_path / "b" / CELLS / cell)
    again = factors(outcomes(tmp_path / "b"), tmp_path / "b")[0]
    for one, other in zip(straight.levels, again.levels, strict=True):
        assert (one.difference is None) == (other.difference is None)
        if one.difference and other.difference:
            assert one.difference.low == pytest.approx(other.difference.low, abs=1e-12)


def test_files_that_are_no_study_are_refused(tmp_path: Path) -> None:
    for text in ("", "[]", "{}", '{"schema": 99}', '{"schema": 1, "cells": [{"cell": "../../x", "overrides": {}}]}'):
        (tmp_path / "study.json").write_text(text)
        with pytest.raises(FedauditError) as error:
            load_file(tmp_path)
        assert error.value.exit_code == 5


def test_outcomes_know_what_is_complete() -> None:
    assert Outcome("a", {}, None, "complete").complete
    assert not Outcome("a", {}, None, "not run").complete
