"""Every id, name and value of a table is a marker. None turns up where nobody says that it may.

Ids, people, classes and values stand in the files that say who was trained on, and nowhere else. Names of columns, of
parties and of files also stand in results, in their report and on the terminal, because people must know what is
meant; names of classes stand in results and in their report, where groups are told apart. The redacted report has none
of them.
"""

import csv
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import numpy as np
import pytest
from safetensors.torch import save_file
from torch import nn

import fedaudit as api
from fedaudit.data.game_file import save_game
from fedaudit.results.document import REDACTED, REPORT, RESULTS, load
from fedaudit.types import Game
from tests.command import fedaudit

SECRETS = ("zq-rec", "zq-who", "zq-class", "zq-word", "4711.")  # ids, people, classes, values
NAMES = ("zq-", "zq_", "ZqPlug")
ID, WHO, CLINIC, CLASS = "zq-col's id", "zq-col's who", "zq-col's clinic", "zq-col's class"
FEATURES = ["zq-col's first", 'zq-col "second"', "zq-col" + "n" * 195, "zq-col words"]
CLINICS = ["zq-party's A", "zq-party B"]
HOLD_IDS = {"scores.parquet", "signals"}  # files and folders of a run that are said to hold them
CONFIG = """
[data]
name = "table"
path = "zq-dir/zq-file.csv"
id = "zq-col's id"
subject = "zq-col's who"
label = "zq-col's class"
attributes = ["zq-col's clinic"]
impute = "mean"
[federation]
parties = 2
partition = "column"
column = "zq-col's clinic"
rounds = 2
members = 0.4
nonmembers = 0.3
[model]
name = "mlp"
hidden = [4]
[audit]
attacks = ["loss"]
fpr = [0.2]
keep = "snapshots"
"""
PLUG_IN = """
import signal
import numpy as np
from dataclasses import dataclass
from fedaudit.adversary.attacks.base import BaseAttack
from fedaudit.adversary.reductions import Kept

class Last(Kept):
    def __init__(self, n):
        self.loss = np.full(n, np.nan)
    def observe(self, moment, values):
        self.loss = values["loss"]
    def features(self):
        return -self.loss[:, None]

@dataclass(frozen=True)
class ZqPlugFails(BaseAttack):
    signals = ("loss",)
    def reduce(self, n):
        return Last(n)
    def score(self, features):
        raise ValueError("zq-rec00001 of zq-who001 is 4711.5 " + str(features))

class ZqPlugLacks(ZqPlugFails):
    def score(self, features):
        found = features[:, 0].copy()
        found[::7] = np.nan
        return found

class Stopped(Last):
    def observe(self, moment, values):
        super().observe(moment, values)
        if moment.round == 2:
            signal.raise_signal(signal.SIGINT)

class ZqPlugStops(ZqPlugFails):
    def reduce(self, n):
        return Stopped(n)

class ZqPlugWorks(ZqPlugFails):
    def score(self, features):
        return features[:, 0]
"""
PLUGGED = '"zq_plug:ZqPlugFails", "zq_plug:ZqPlugLacks", "zq_plug:ZqPlugWorks"'
Rows = dict[str, list[str]]


def table(people: int = 90) -> Rows:
    rng = np.random.default_rng(0)
    n = 2 * people
    rows = {
        ID: [f"zq-rec{i:05}" for i in range(n)],
        WHO: [f"zq-who{i // 2:03}" for i in range(n)],
        CLINIC: [CLINICS[i // 2 % 2] for i in range(n)],
        CLASS: [f"zq-class {'ab'[bit]}" for bit in rng.integers(0, 2, n)],
    }
    rows |= {name: [f"4711.{digits:06}" for digits in rng.integers(0, 10**6, n)] for name in FEATURES[:3]}
    rows[FEATURES[3]] = [f"zq-word {'cd'[bit]}" for bit in rng.integers(0, 2, n)]
    rows[FEATURES[0]][5] = ""
    return rows


def written(path: Path, rows: Mapping[str, Sequence[str]]) -> Path:
    path.parent.mkdir(exist_ok=True)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([[*rows], *zip(*rows.values(), strict=True)])
    return path


def quiet(text: str, *more: str) -> None:
    for secret in (*SECRETS, *more):
        place = text.find(secret)
        assert place < 0, text[max(0, place - 300) : place + 100]


def told(*arguments: str, cwd: Path, code: int) -> CompletedProcess[str]:
    done = fedaudit(*arguments, cwd=cwd)
    quiet(done.stdout + done.stderr)
    assert done.returncode == code, done
    return done


def unmarked(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file() and not HOLD_IDS & set(path.parts):
            text = path.read_bytes().decode(errors="replace")
            text = text.replace("zq-class", "") if path.name in (RESULTS, REPORT) else text
            quiet(text, *(NAMES if path.name == REDACTED else ()))


def checked(run: Path) -> None:
    """All files of a run, and its report without names."""
    assert fedaudit("report", run.name, "--redact", cwd=run.parent).returncode == 0
    assert "(left out)" in (run / REDACTED).read_text()
    unmarked(run)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("zq-home")
    (folder / "zq_plug.py").write_text(PLUG_IN)
    written(folder / "zq-dir/zq-file.csv", table())
    (folder / "zq-run.toml").write_text(CONFIG.replace('["loss"]', f'["loss", {PLUGGED}]'))
    return folder


@pytest.fixture(scope="module")
def finished(place: Path) -> Path:
    """A run in which attacks fail and quote records. Nobody writes here but reports."""
    told("run", "zq-run.toml", "--out", "zq-run", cwd=place, code=4)
    return place / "zq-run"


def test_a_run_whose_attacks_quote_records(finished: Path) -> None:
    document = load(finished)
    assert {one.attack for one in document.failed} == {"zq-plug-fails", "zq-plug-lacks"}
    assert {"cells-filled", "attack-failed"} <= {one.code for one in document.told}
    assert "zq-party's A" in (finished / "report.html").read_text().replace("&#39;", "'")
    checked(finished)


def test_a_run_that_is_stopped(place: Path) -> None:
    (place / "zq-stopped.toml").write_text(
        CONFIG.replace('["loss"]', '["loss", "zq_plug:ZqPlugStops"]').replace("rounds = 2", "rounds = 3")
    )
    done = fedaudit("run", "zq-stopped.toml", "--out", "zq-stopped", cwd=place)
    quiet(done.stdout + done.stderr)
    assert load(place / "zq-stopped").run.ending == "interrupted"
    checked(place / "zq-stopped")


def test_what_is_made_from_a_run(finished: Path, place: Path) -> None:
    told(
        "audit",
        "zq-run",
        "--attack",
        "loss",
        "--attack",
        "fta-loss",
        "--trust-code",
        "--out",
        "zq-again",
        cwd=place,
        code=0,
    )
    checked(place / "zq-again")
    told("gate", "zq-run", "--fail-if", "auc[party=zq-party B, attack=loss] > 0.99", cwd=place, code=0)
    told("compare", "zq-run", "zq-again", "--page", "zq-compared.html", "--out", "zq-compared.json", cwd=place, code=0)
    told("score", "zq-again/scores.parquet", "--attack", "loss", "--json", cwd=place, code=0)
    told("verify", "zq-run", cwd=place, code=2)
    for made in ("html", "json"):
        quiet((place / f"zq-compared.{made}").read_text())


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


DAMAGE: dict[str, tuple[str, Callable[[Path], object]]] = {
    "results.json": ("report", _cut),
    "scores.parquet": ("score", _cut),
    "run.json": ("audit", _cut),
    "journal.jsonl": ("audit", lambda path: path.write_text(path.read_text().replace('"parties"', '"par', 1))),
    "signals": ("audit", lambda path: _cut(next(path.rglob("*.parquet")))),
}


@pytest.mark.parametrize("file", DAMAGE)
def test_damaged_files(finished: Path, tmp_path: Path, file: str) -> None:
    command, damage = DAMAGE[file]
    shutil.copytree(finished.parent, tmp_path, dirs_exist_ok=True)
    run = tmp_path / "zq-run"
    damage(run / file)
    more = {"score": ["--attack", "loss"], "audit": ["--attack", "loss", "--trust-code"]}.get(command, [])
    done = fedaudit(command, f"zq-run/{file}" if command == "score" else "zq-run", *more, cwd=tmp_path)
    quiet(done.stdout + done.stderr)
    assert done.returncode == (4 if file in ("signals", "journal.jsonl") else 5), done
    if done.returncode == 4:
        checked(run / "audit")


def _twice(column: str) -> Callable[[Rows], object]:
    return lambda rows: rows[column].__setitem__(7, rows[column][8])


def _set(column: str, text: str) -> Callable[[Rows], object]:
    return lambda rows: rows[column].__setitem__(7, text)


BAD: dict[str, Callable[[Rows], object]] = {
    "id-twice": _twice(ID),
    "no-id": _set(ID, ""),
    "no-subject": _set(WHO, ""),
    "no-class": _set(CLASS, ""),
    "word-among-numbers": _set(FEATURES[1], "zq-word among numbers"),
    "infinite": _set(FEATURES[1], "inf"),
    "one-class": lambda rows: rows.update({CLASS: ["zq-class a"] * len(rows[ID])}),
    "few": lambda rows: rows.update({name: cells[:12] for name, cells in rows.items()}),
    "column-gone": lambda rows: rows.pop(WHO),
    "surplus-cell": lambda rows: rows.update(
        {FEATURES[3]: [f"{cell}\n4711.5,zq-rec00007" for cell in rows[FEATURES[3]]]}
    ),
    "undeclared-id": lambda rows: rows.update({"zq-col patient_id": [f"zq-rec-{cell}" for cell in rows[ID]]}),
    "one-clinic": lambda rows: rows.update({CLINIC: [CLINICS[0]] * len(rows[ID])}),
}


@pytest.mark.parametrize("bad", BAD)
def test_tables_that_are_refused(tmp_path: Path, bad: str) -> None:
    rows = table(40)
    BAD[bad](rows)
    path = written(tmp_path / "zq-dir/zq-file.csv", rows)
    if bad == "surplus-cell":
        path.write_text(
            path.read_text().replace("4711.5,", "4711.5,4711.6,4711.7,4711.8").replace('"zq-word', "zq-word")
        )
    (tmp_path / "zq-run.toml").write_text(CONFIG)
    told("run", "zq-run.toml", "--out", "zq-run", cwd=tmp_path, code=2)


def _scores(**columns: str) -> Rows:
    ids = [f"zq-rec{i:03}" for i in range(80)]
    member = ["1"] * 40 + ["0"] * 40
    score = [f"0.{i * 7919 % 1000:03}" for i in range(80)]
    rows = {"id": ids, "member": member, "score": score, "subject": [f"zq-who{i // 2}" for i in range(80)]}
    for name, cell in columns.items():
        rows[name][70:75] = [cell] * 5
    return rows


@pytest.mark.parametrize(
    ("cells", "code"),
    [
        ({}, 0),
        ({"id": "zq-rec003"}, 2),
        ({"id": ""}, 2),
        ({"subject": ""}, 2),
        ({"member": "zq-class"}, 2),
        ({"score": "zq-word"}, 2),
        ({"score": "nan"}, 2),
    ],
)
def test_files_of_scores(tmp_path: Path, cells: dict[str, str], code: int) -> None:
    written(tmp_path / "zq-dir/zq-scores.csv", _scores(**cells))
    told("score", "zq-dir/zq-scores.csv", "--fpr", "0.1", "--epsilon", cwd=tmp_path, code=code)
    told("score", "zq-dir/zq-scores.csv", "--fpr", "0.1", "--json", cwd=tmp_path, code=code)


def _games() -> list[Game]:
    rng = np.random.default_rng(0)
    games = []
    for start, name in enumerate(CLINICS):
        x, y = rng.normal(4711, 1, (80, 3)), rng.integers(0, 2, 80)
        ids = np.array([f"zq-rec{start}{i:03}" for i in range(80)])
        who = np.array([f"zq-who{name}" for name in ids])
        games.append(api.set_aside(x, y, party=name, id=ids, subject=who)[1])
    return games


def test_a_loop(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model = nn.Linear(3, 2)
    options: dict[str, Any] = {"attacks": ["loss"], "fpr": [0.2], "vantages": ["client", "server"]}
    with api.record(model, _games(), out=tmp_path / "zq-loop", rounds=3, **options) as audit:
        for number in (1, 2):
            updates: dict[str, Any] = {name: nn.Linear(3, 2).state_dict() for name in CLINICS}
            if number == 2:
                updates["zq-party of nobody"] = model.state_dict()
            audit.observe(number, model, updates=updates)
    assert not audit.document.complete
    checked(tmp_path / "zq-loop")
    captured = capfd.readouterr()
    quiet(captured.out + captured.err)


def test_checkpoints(tmp_path: Path) -> None:
    save_game(_games(), tmp_path / "zq-games.npz")
    for number in (0, 1, 2):
        (tmp_path / f"zq-rounds/round-{number}").mkdir(parents=True)
        for who in ("global", *CLINICS)[: 1 if number == 0 else None]:
            made = nn.Sequential(nn.Flatten(), nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).state_dict()
            save_file(made, tmp_path / f"zq-rounds/round-{number}/{who}.safetensors")
    more = ["--set", "model.hidden=[4]", "--set", 'audit.attacks=["loss"]', "--set", "audit.fpr=[0.2]"]
    asked = ["import", "zq-rounds", "--game", "zq-games.npz", *more]
    told(*asked, "--out", "zq-imported", cwd=tmp_path, code=0)
    checked(tmp_path / "zq-imported")
    held = dict(np.load(tmp_path / "zq-games.npz"))
    role = np.where(np.arange(len(held["id"])) == 7, held["id"], held["role"])
    for bad in ({"role": role}, {"id": np.full_like(held["id"], "zq-rec")}):
        np.savez(tmp_path / "zq-games.npz", **(held | bad))
        told(*asked, "--out", "zq-bad", cwd=tmp_path, code=2)


@pytest.mark.evidence  # its processes start slowly
def test_a_study(place: Path) -> None:
    (place / "zq-bad.toml").write_text(CONFIG.replace('["loss"]', '["loss", "zq_plug:ZqPlugFails"]'))
    (place / "zq-study.toml").write_text('base = "zq-bad.toml"\n[grid]\n"federation.lr" = [0.001, 0.01]\n')
    told("study", "zq-study.toml", "--out", "zq-study", "--workers", "1", cwd=place, code=4)
    told("report", "zq-study", cwd=place, code=0)
    unmarked(place / "zq-study")
