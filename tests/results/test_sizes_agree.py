"""T6: `plan`, a run, its hint, `gate` and a party's limit agree about how many calibration records it takes."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from fedaudit.adversary.attacks import choose
from fedaudit.adversary.attacks.base import BaseAttack
from fedaudit.audit.settings import calibrating, reference_half
from fedaudit.cli.planning import plan
from fedaudit.data.records import dataset
from fedaudit.results.document import Document, save
from fedaudit.results.gate import FAILED, UNDECIDED, judge, parse_rule
from fedaudit.results.limits import party_rule, why_never
from fedaudit.results.scores import blocks_of, load_scores, save_scores
from fedaudit.stats import needed_for_lower_end, tpr_at_fpr
from fedaudit.types import AuditResult, Candidates, Cost, Estimate, Game, Headline, Truth
from tests.report.builder import bare_run

MEMBERS, EVALUATION = 60, 20


def game_of(parties: int, calibration: int) -> Game:
    each = MEMBERS + EVALUATION + calibration
    roles = np.repeat(["member", "evaluation", "calibration"], [MEMBERS, EVALUATION, calibration])
    rng = np.random.default_rng(calibration)
    total = parties * each
    rows = dataset("none", rng.normal(size=(total, 1)).astype(np.float32), np.arange(total) % 2).records
    party = np.repeat([f"party-{i}" for i in range(parties)], each)
    candidates = Candidates("record", rows.id, party, rows, np.arange(total), subject=None)
    return Game(candidates, Truth(rows.id, np.tile(roles, parties)))


@dataclass(frozen=True)
class Run:
    game: Game
    folder: Path
    found: Estimate


def perfect_run(folder: Path, parties: int, calibration: int, fpr: float, attack: BaseAttack) -> Run:
    """What an attack leaves behind that puts every member above every outsider."""
    game = game_of(parties, calibration)
    role, whose = game.truth.role, game.candidates.party
    reference = np.zeros(len(role), bool)
    for party in game.parties:
        index = game.candidates.of_party(party)
        reference[index] = reference_half(game, index) & attack.calibrates_less
    scores = np.where(role == "member", 9.0, np.random.default_rng(0).random(len(role)))
    parts = [
        {"id": game.candidates.id[at], "subject": None, "party": whose[at], "role": role[at], "attack": attack.name,
         "model": "local", "score": scores[at], "reference": reference[at]}
        for at in map(game.candidates.of_party, game.parties)
    ]  # fmt: skip
    folder.mkdir()
    save_scores(parts, folder)
    stored = load_scores(folder)
    assert stored is not None
    found = tpr_at_fpr(blocks_of(stored, attack.name, "local"), fpr)
    entry = AuditResult(
        attack.name,
        "server",
        "local",
        "record",
        None,
        round=5,
        estimates={found.name: found},
        cost=Cost(1.0),
        warnings=[],
    )
    bare = Document.from_json({"schema": 1, "run": bare_run(), "headlines": [], "results": []})
    headline = Headline("server", attack.name, "local", {found.name: found}, 1)
    save(replace(bare, headlines=[headline], results=[entry]), folder)
    return Run(game, folder, found)


def planned(run: Run, left: int, fpr: float, column: int) -> int:
    """How many each party needs by the plan's table for local models; its last column says how many are missing."""
    k = len(run.game.parties)
    rows = plan(k * MEMBERS, k * left, k * EVALUATION, [fpr], parties=k).tables[1 if k > 1 else 0][1]
    needed = int(rows[0].cells()[column].replace(",", ""))
    missing = rows[0].cells()[4].partition("none: ")[2].partition(" too few")[0].replace(",", "")
    if column == 2:
        assert (int(missing) if missing.isdigit() else 0) == max(needed - k * left, 0)
    assert needed % k == 0
    return needed // k


@pytest.mark.parametrize("number", range(20))
def test_T6_plan_run_hint_gate_and_limit_agree(number: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(number)
    fpr, parties = float(rng.choice([0.02, 0.05, 0.1])), int(rng.choice([1, 1, 2, 4]))
    (attack,) = choose([str(rng.choice(["loss", "fusion"]))])  # fusion is fitted on half of the calibration records
    proved = needed_for_lower_end(fpr, 0.95, parties, guaranteed=True)
    quoted = needed_for_lower_end(fpr, 0.95, parties)
    around = int(rng.choice([proved, quoted])) + int(rng.integers(-2, 3))
    run = perfect_run(tmp_path / "run", parties, max(around, 12) * (2 if attack.calibrates_less else 1), fpr, attack)
    sizes = [calibrating(run.game, [run.game.candidates.of_party(p)], attack.calibrates_less) for p in run.game.parties]
    left, most = min(sizes), max(sizes)  # a fitted attack leaves every party another number; the plan is for the least
    if run.found.value is None:
        assert most < np.ceil(1 / fpr)
        return
    low, guaranteed = run.found.low, run.found.guaranteed
    assert low is not None
    assert guaranteed is not None
    needs = planned(run, left, fpr, 2), planned(run, left, fpr, 3)
    for end, needed in zip((low, guaranteed[0]), needs, strict=True):  # the plan and the run
        assert left < needed or end > 0
        assert most >= needed or end <= 0
    if low <= 0 and left == most:  # the hint and the plan
        assert run.found.reason is not None
        assert int(run.found.reason.split("there are ")[1].split()[0]) == needs[0] - left
    gate = judge(run.folder, [parse_rule(f"tpr@{fpr:g} > 0")])  # the gate and the plan
    assert left < needs[1] or gate.exit_code == FAILED
    assert most >= needs[1] or gate.exit_code == UNDECIDED
    if parties == 1:  # a party's limit and the plan
        rule = party_rule(f"tpr@{fpr:g} > 0")
        assert rule is not None
        assert bool(why_never(rule, run.game, attack, 0.95)) == (left < needs[1])
