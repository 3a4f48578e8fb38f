"""Studies: small real federations on handwritten digits, audited cell by cell."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from fedaudit.config.schema import Config
from fedaudit.config.study import load_study
from fedaudit.errors import FedauditError
from fedaudit.results import document as results
from fedaudit.results.study import CELLS, TABLE, Outcome, load_file, outcomes
from fedaudit.session import study as studies
from fedaudit.session.prepare import Prepared, prepare
from fedaudit.session.run import run
from fedaudit.session.study import Piece, audit_piece, run_study
from fedaudit.trace import journal
from fedaudit.types import gap
from tests.worlds import in_turn, silent

ROOT = Path(__file__).parents[2]
BASE = """
[data]
name = "digits"
[federation]
rounds = 2
batch_size = 32
lr = 3e-3
[model]
hidden = [32]
[audit]
attacks = ["loss", "fta-confidence"]
"""
GRID = '"federation.parties" = [2, 3]\n"federation.seed" = [0, 1]'


def write(folder: Path, grid: str = GRID, base: str = BASE, head: str = "") -> Path:
    (folder / "base.toml").write_text(base)
    path = folder / "study.toml"
    path.write_text(f'base = "base.toml"\n{head}\n[grid]\n{grid}\n')
    return path


def told() -> tuple[list[str], Any]:
    lines: list[str] = []
    return lines, lines.append


def audited(path: Path, out: Path, workers: int = 1) -> list[Outcome]:
    return run_study(load_study(path), out, workers, silent, lambda _: None)


def table(out: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(out / TABLE).to_pylist()
    return rows


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process: starting others takes longer than the cells."""
    monkeypatch.setattr(studies, "work", in_turn)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An undisturbed study: two cells that are trained together, and two that are not."""
    folder = tmp_path_factory.mktemp("study")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(studies, "work", in_turn)
        audited(write(folder, MIXED), folder / "out")
    return folder / "out"


MIXED = '"federation.parties" = [2, 3]\ndefences = [[], [{ name = "l2", strength = 1e-3 }]]'


def test_every_cell_has_its_results_and_every_estimate_is_a_row(whole: Path) -> None:
    found = outcomes(whole)
    assert [outcome.status for outcome in found] == ["complete"] * 4
    assert [outcome.overrides["federation.parties"] for outcome in found] == [2, 2, 3, 3]
    rows = table(whole)
    for outcome in found:
        assert outcome.document is not None
        mine = [row for row in rows if row["cell"] == outcome.cell]
        expected = [(r.attack, r.vantage, r.party, n, e.value, e.low, e.high)
                    for r in outcome.document.results for n, e in r.estimates.items()]  # fmt: skip
        got = [tuple(row[k] for k in ("attack", "vantage", "party", "estimate", "value", "low", "high"))
               for row in mine if row["attack"]]  # fmt: skip
        assert got == expected
        accuracy = {row["estimate"]: row["value"] for row in mine if not row["attack"]}
        assert accuracy["accuracy-evaluation"] == outcome.document.run.accuracy["evaluation"].value
        assert json.loads(mine[0]["overrides"]) == dict(outcome.overrides)
    assert {row["unit"] for row in rows if row["attack"]} == {"record"}


def test_only_federations_without_a_defence_are_trained_together(whole: Path) -> None:
    groups = {len(group) for group in load_file(whole).groups}
    assert groups == {1, 2}


def test_a_cell_that_is_trained_with_others_finds_what_it_finds_alone(whole: Path, tmp_path: Path) -> None:
    """To what float32 leaves of it: the scores agree, and so do the estimates."""
    study = load_study(whole.parent / "study.toml")
    cell = study.cells[0]
    run(cell.config, tmp_path / "alone", silent, tell=lambda _: None)
    together, alone = results.load(whole / CELLS / cell.name), results.load(tmp_path / "alone")
    pairs = zip(together.results, alone.results, strict=True)
    for one, other in pairs:
        assert (one.attack, one.vantage, one.party) == (other.attack, other.vantage, other.party)
        assert one.estimates["auc"].value == pytest.approx(other.estimates["auc"].value, abs=0.02)
    folders = (whole / CELLS / cell.name, tmp_path / "alone")
    scores = [pq.read_table(folder / "scores.parquet")["score"].to_numpy() for folder in folders]
    assert np.corrcoef(*scores)[0, 1] > 0.999


def test_a_study_that_is_finished_trains_nothing(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (whole / TABLE).read_bytes()

    def refuse(*_: object) -> Any:
        raise AssertionError("nothing is left to do")

    monkeypatch.setattr(studies, "audit_piece", refuse)
    lines, tell = told()
    run_study(load_study(whole.parent / "study.toml"), whole, 1, silent, tell)
    assert lines == ["4 of 4 cells are already there."]
    assert (whole / TABLE).read_bytes() == before


@pytest.mark.usefixtures("here")
def test_a_larger_grid_keeps_what_is_there(whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path / "out")
    kept = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out" / CELLS).glob("*")}
    more = audited(write(tmp_path, MIXED.replace("[2, 3]", "[2, 3, 4]")), tmp_path / "out")
    assert [outcome.status for outcome in more] == ["complete"] * 6
    assert all((tmp_path / "out" / CELLS / name).stat().st_mtime_ns == when for name, when in kept.items())


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("number", [0, 1], ids=["in a group", "alone"])
def test_a_cell_of_which_a_part_is_missing_is_audited_again(whole: Path, tmp_path: Path, number: int) -> None:
    out, path, cell = copied(whole, tmp_path, number)
    document = results.load(out / CELLS / cell)
    results.save(replace(document, degraded=["attack loss"]), out / CELLS / cell)
    assert [outcome.complete for outcome in outcomes(out)].count(False) == 1
    lines, tell = told()
    found = run_study(load_study(path), out, 1, silent, tell)
    assert lines[0].startswith(f"Cell {cell} (")
    assert lines[0].endswith("is audited again; part of the audit is missing: attack loss")
    assert all(outcome.complete for outcome in found)
    assert table(out) == table(whole)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("file", ["results.json", "scores.parquet"])
@pytest.mark.parametrize("number", [0, 1], ids=["in a group", "alone"])
def test_F3_a_damaged_cell_is_named_and_made_again(whole: Path, tmp_path: Path, number: int, file: str) -> None:
    out, path, cell = copied(whole, tmp_path, number)
    blob = bytearray((out / CELLS / cell / file).read_bytes())
    blob[len(blob) // 2] ^= 1
    (out / CELLS / cell / file).write_bytes(blob)
    statuses = {outcome.cell: outcome.status for outcome in outcomes(out)}  # as `fedaudit report` reads them
    assert statuses.pop(cell).startswith(f"damaged: {out / CELLS / cell / file} is not as it was written")
    assert set(statuses.values()) == {"complete"}
    lines, tell = told()
    run_study(load_study(path), out, 1, silent, tell)
    assert f"Cell {cell} (" in lines[0]
    assert f"{file} is not as it was written" in lines[0]
    assert table(out) == table(whole)


def copied(whole: Path, folder: Path, number: int) -> tuple[Path, Path, str]:
    """A finished study of one's own, its file, and the name of a cell."""
    shutil.copytree(whole, folder / "out")
    path = write(folder, MIXED)
    return folder / "out", path, load_study(path).cells[number].name


@pytest.mark.usefixtures("here")
def test_F8_another_base_is_refused_and_names_the_field(whole: Path, tmp_path: Path) -> None:
    path = write(tmp_path, MIXED, BASE.replace("lr = 3e-3", "lr = 1e-2"))
    with pytest.raises(FedauditError, match=r"another base: federation.lr was 0.003 and is now 0.01") as error:
        audited(path, whole)
    assert error.value.exit_code == 2


@pytest.mark.usefixtures("here")
def test_a_failed_cell_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    """1,500 parties leave some of them without a record; the cells beside it are audited."""
    path = write(tmp_path, '"federation.parties" = [2, 1500, 3]')
    lines, tell = told()
    found = run_study(load_study(path), tmp_path / "out", 1, silent, tell)
    assert [outcome.status.split(":")[0] for outcome in found] == ["complete", "failed", "complete"]
    assert len(lines) == 1
    assert "federation.parties = 1500" in lines[0]
    rows = [row for row in table(tmp_path / "out") if row["cell"] == found[1].cell]
    assert [row["status"].startswith("failed: [") for row in rows] == [True]
    assert rows[0]["value"] is None


@pytest.mark.usefixtures("here")
def test_a_group_that_begins_again_leaves_its_complete_cells_alone(tmp_path: Path) -> None:
    """Three cells that are trained together, one of them without results: broken off or not, the two others stay."""
    path, out = write(tmp_path, '"federation.parties" = [2, 3, 4]'), tmp_path / "out"
    study, cells = load_study(path), [outcome.cell for outcome in audited(path, out)]
    whole, kept = table(out), contents(out, cells[::2])
    (out / CELLS / cells[1] / "results.json").unlink()

    def broken_off(kind: str, what: str, why: str) -> None:
        raise KeyboardInterrupt

    piece = Piece([(cell.name, cell.config) for cell in study.cells], out, frozenset(cells[::2]))
    with pytest.raises(KeyboardInterrupt):
        audit_piece(piece, broken_off)
    assert contents(out, cells[::2]) == kept
    assert [outcome.complete for outcome in outcomes(out)] == [True, False, True]
    assert all(outcome.complete for outcome in audited(path, out))
    assert contents(out, cells[::2]) == kept
    assert table(out) == whole


def contents(out: Path, cells: list[str]) -> dict[Path, tuple[int, bytes]]:
    """Of every file of these cells, and when it was written."""
    files = [file for cell in cells for file in (out / CELLS / cell).rglob("*") if file.is_file()]
    return {file: (file.stat().st_mtime_ns, file.read_bytes()) for file in files}


@pytest.mark.usefixtures("here")
def test_a_cell_that_fails_again_costs_its_neighbours_nothing(tmp_path: Path) -> None:
    path, out = write(tmp_path, '"federation.parties" = [2, 1500, 3]'), tmp_path / "out"
    cells = [outcome.cell for outcome in audited(path, out)]
    kept = contents(out, cells[::2])
    assert [outcome.complete for outcome in audited(path, out)] == [True, False, True]
    assert contents(out, cells[::2]) == kept


def test_a_process_that_dies_takes_only_its_cell(tmp_path: Path) -> None:
    (tmp_path / "deadly.py").write_text(
        "import os, signal\n"
        "from fedaudit.learn.models.mlp import mlp\n"
        "def fatal(shape, classes):\n    os.kill(os.getpid(), signal.SIGKILL)\n"
        "def harmless(shape, classes):\n    return mlp(shape, classes, (16,))\n"
    )
    base = BASE.replace("hidden = [32]", 'name = "deadly:harmless"')
    path = write(tmp_path, '"model.name" = ["deadly:harmless", "deadly:fatal"]', base)
    sys.path.insert(0, str(tmp_path))
    try:
        found = audited(path, tmp_path / "out")
    finally:
        sys.path.remove(str(tmp_path))
    assert [outcome.status for outcome in found] == [
        "complete", "failed: its process was ended by SIGKILL (out of memory?)"
    ]  # fmt: skip


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    "grid",
    [
        pytest.param(GRID, marks=pytest.mark.evidence),  # in small: a group that begins again
        '"federation.parties" = [2, 3]\ndefences = [[{ name = "l2", strength = 1e-3 }]]',
    ],
)
def test_F1_killed_in_the_middle_it_ends_in_the_same_table(tmp_path: Path, grid: str) -> None:
    """Cells that are trained together begin again; a cell that is alone goes on from its last round."""
    path = write(tmp_path, grid, BASE.replace("rounds = 2", "rounds = 12"))
    assert all(outcome.complete for outcome in audited(path, tmp_path / "whole"))
    killed = tmp_path / "killed"
    child = started(path, killed)
    until(lambda: most_rounds(killed) >= 3, child)
    workers = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    ended = time.monotonic() + 60
    while any(Path(f"/proc/{worker}").exists() for worker in workers):  # on a busy machine they take a moment
        assert time.monotonic() < ended
        time.sleep(0.05)
    assert len(list(killed.glob("cells/*/results.json"))) < len(load_study(path).cells)
    assert not (killed / TABLE).exists()
    found = audited(path, killed)
    assert all(outcome.complete for outcome in found)
    assert table(killed) == table(tmp_path / "whole")
    went_on = [outcome.cell for outcome in found if "resumed" in events(killed / CELLS / outcome.cell)]
    assert bool(went_on) == ("l2" in grid)


def events(cell: Path) -> list[str]:
    return [event["event"] for event in journal.read(cell / "journal.jsonl").events]


def most_rounds(out: Path) -> int:
    return max((events(path.parent).count("round") for path in out.glob("cells/*/journal.jsonl")), default=0)


def test_F14_ctrl_c_keeps_what_is_done(tmp_path: Path) -> None:
    grid = '"federation.rounds" = [2, 400]\ndefences = [[{ name = "l2", strength = 1e-3 }]]'
    path = write(tmp_path, grid)
    child = started(path, tmp_path / "out")
    until(lambda: len(list((tmp_path / "out").glob("cells/*/results.json"))) == 1, child)
    os.kill(child.pid, signal.SIGINT)
    assert child.wait(timeout=60) == 4
    assert [outcome.status for outcome in outcomes(tmp_path / "out")] == ["complete", "not run"]
    assert {row["status"] for row in table(tmp_path / "out")} == {"complete", "not run"}


def started(path: Path, out: Path) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "fedaudit", "study", str(path), "--out", str(out), "--workers", "1"]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def until(happened: Any, child: "subprocess.Popen[bytes]") -> None:
    for _ in range(4800):  # minutes, where others use the machine, too
        if happened():
            return
        assert child.poll() is None, "it ended too early"
        time.sleep(0.05)
    raise AssertionError("it did not happen")


def test_the_pieces_of_a_group_fail_one_by_one(tmp_path: Path) -> None:
    """In one process, to see what is told: the cell whose folder cannot be written fails, its neighbour does not."""
    study = load_study(write(tmp_path))
    cells = [(cell.name, cell.config) for cell in study.cells]
    (tmp_path / CELLS).mkdir()
    (tmp_path / CELLS / cells[1][0]).write_text("a file where a folder should be")
    news: list[tuple[str, str]] = []
    audit_piece(Piece(cells, tmp_path), lambda kind, what, why: news.append((kind, what)))
    assert [what for kind, what in news if kind == "failed"] == [cells[1][0]]
    assert sum(kind == "step" for kind, _ in news) == 3 * 2
    assert sum((tmp_path / CELLS / name / "results.json").exists() for name, _ in cells) == 3


def test_a_cell_of_a_group_ends_as_any_run_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What could not be done for it is in its results, whether it was trained alone or with others."""
    study, prepared = load_study(write(tmp_path)), prepare

    def lacking(config: Config) -> Prepared:
        made = prepared(config)
        made.gaps.append(gap("line", text=f"seed {config.federation.seed} lacks something"))
        return made

    monkeypatch.setattr(studies, "prepare", lacking)
    audit_piece(Piece([(cell.name, cell.config) for cell in study.cells], tmp_path), lambda *_: None)
    for cell in study.cells:
        found = results.load(tmp_path / CELLS / cell.name)
        assert f"Seed {cell.config.federation.seed} lacks something." in found.degraded
