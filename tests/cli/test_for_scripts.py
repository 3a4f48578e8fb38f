"""What scripts and pipelines see: JSON on standard output, JUnit, exit codes, plain text of 80 columns, Ctrl-C."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from xml.etree import ElementTree as Xml

import numpy as np
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save_file

from fedaudit import __version__
from fedaudit.cli.commands import COMMANDS
from fedaudit.stats import Block
from fedaudit.stats.paired import tpr_difference
from tests.command import fedaudit as command

SMALL = """
[data]
name = "digits"
[federation]
parties = 2
rounds = 3
[model]
hidden = [16]
[audit]
attacks = ["loss", "fta-loss"]
fpr = [0.01]
"""


fedaudit = partial(command, columns=80)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs on the same records, one with weight decay, and one of another seed."""
    folder = tmp_path_factory.mktemp("scripts")
    (folder / "bare.toml").write_text(SMALL)
    (folder / "decay.toml").write_text(SMALL + '[[defences]]\nname = "l2"\nstrength = 0.01\n')
    (folder / "private.toml").write_text(SMALL + '[[defences]]\nname = "dp-sgd"\nepsilon = 4.0\nclip = 1.0\n')
    for name, change in (("bare", "federation.seed=0"), ("decay", "federation.seed=0"), ("other", "federation.seed=7")):
        config = "bare.toml" if name == "other" else f"{name}.toml"
        done = fedaudit("run", config, "--out", f"runs/{name}", "--set", change, cwd=folder)
        assert done.returncode == 0, done.stdout + done.stderr
    return folder


# ------------------------------------------------------------------ plain text


def readable(text: str) -> None:
    assert max(map(len, text.splitlines()), default=0) <= 80, max(text.splitlines(), key=len)
    assert not set(text) & set("…\x1b\r╭│╰─"), "cut, coloured or boxed"


@pytest.mark.parametrize("command", [*COMMANDS, ""])
def test_help_is_plain_text_that_keeps_its_brackets(tmp_path: Path, command: str) -> None:
    done = fedaudit(*([command] if command else []), "--help", cwd=tmp_path)
    assert done.returncode == 0
    readable(done.stdout)
    assert "\\[" not in done.stdout
    words = " ".join(done.stdout.split())
    shown = {
        "gate": '"tpr@0.01[attack=loss, vantage=server, model=local, party=*] > 0.05"',
        "import": "an npz with x, y, party, role[, id, subject]",
        "score": "CSV or parquet: member (0/1), score[, id, subject].",
        "run": "A TOML file.",
    }
    assert shown.get(command, "--help") in words


@pytest.mark.parametrize(
    "arguments",
    [
        ("list", "attacks"),
        ("list", "data"),
        ("plan", "--members", "300", "--nonmembers", "300", "--calibration", "400"),
        ("gate", "runs/bare", "--fail-if", "tpr@0.01[attack=*, party=*] > 0.05", "--fail-if", "epsilon > 3"),
        ("compare", "runs/bare", "runs/decay", "runs/other"),
        ("report", "runs/bare"),
        ("verify", "private.toml"),
    ],
)
def test_everything_is_readable_at_80_columns_and_in_a_log(runs: Path, arguments: tuple[str, ...]) -> None:
    done = fedaudit(*arguments, cwd=runs)
    assert done.stdout, done.stderr
    assert done.returncode in (0, 1, 3), done.stderr
    readable(done.stdout)


def test_version(tmp_path: Path) -> None:
    for argument, said in (("--version", f"fedaudit {__version__}\n"), ("version", f"{__version__}\n")):
        done = fedaudit(argument, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (0, said)


def test_the_version_is_that_of_the_changelog() -> None:
    latest = re.search(r"^## (.+)$", (Path(__file__).parents[2] / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert latest is not None
    assert latest[1] in (__version__, f"{__version__.removesuffix('.dev0')} (unreleased)")


def test_the_installed_command_is_the_module(tmp_path: Path) -> None:
    """What pip put on the path, `python -m fedaudit`, and what the other tests call in their own process. As in a CI
    log: no terminal, so that 80 columns are assumed."""
    installed, module = [str(Path(sys.executable).with_name("fedaudit"))], [sys.executable, "-m", "fedaudit"]
    log = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "FORCE_COLOR")}
    for program, *arguments in (
        (installed, "list", "attacks"),
        (installed, "report", "nowhere"),
        (module, "list", "attacks"),
        (module, "version"),
    ):
        typed = [*program, *arguments]
        found = subprocess.run(typed, cwd=tmp_path, capture_output=True, text=True, check=False, env=log)
        here = fedaudit(*arguments, cwd=tmp_path)
        assert (found.returncode, found.stdout, found.stderr) == (here.returncode, here.stdout, here.stderr)


# ------------------------------------------------------------------ gate


def test_gate_prints_json_and_nothing_else(runs: Path) -> None:
    rules = ("tpr@0.01 > 0.99", "auc[attack=loss, party=*] >= 0.0", "accuracy < 0.1", "epsilon > 8")
    done = fedaudit("gate", "runs/bare", *(w for rule in rules for w in ("--fail-if", rule)), "--json", cwd=runs)
    found = json.loads(done.stdout)
    assert (done.returncode, found["exit_code"], found["verdict"]) == (1, 1, "violated")
    assert [(each["fail_if"], each["verdict"]) for each in found["rules"]] == [
        ("tpr@0.01 > 0.99", "safe"),
        ("auc[attack=loss, party=*] >= 0.0", "violated"),
        ("accuracy < 0.1", "safe"),
        ("epsilon > 8", "violated"),  # nothing is claimed
    ]
    document = json.loads((runs / "runs/bare/results.json").read_text())
    stored = document["run"]["accuracy"]["evaluation"]
    (accuracy,) = [f for f in found["findings"] if f["condition"] == "accuracy < 0.1"]
    assert [accuracy[key] for key in ("value", "low", "high")] == [stored[key] for key in ("value", "low", "high")]
    assert any("claims no differential privacy" in f["note"] for f in found["findings"])


def test_gate_writes_junit_that_no_pipeline_takes_for_a_pass(runs: Path, tmp_path: Path) -> None:
    middle = json.loads((runs / "runs/bare/results.json").read_text())["run"]["accuracy"]["evaluation"]["value"]
    rules = ("tpr@0.01 > 0.99", "auc > 0.0", f"accuracy < {middle}")
    given = [word for rule in rules for word in ("--fail-if", rule)]
    done = fedaudit("gate", "runs/bare", *given, "--junit", str(tmp_path / "gate.xml"), cwd=runs)
    assert done.returncode == 1
    suite = Xml.parse(tmp_path / "gate.xml").getroot()
    assert {key: suite.get(key) for key in ("tests", "failures", "errors")} == {
        "tests": "3", "failures": "1", "errors": "1"
    }  # fmt: skip
    outcomes = {case.get("name"): [child.tag for child in case] for case in suite}
    assert outcomes == {
        rules[0]: ["system-out"],
        rules[1]: ["failure", "system-out"],
        rules[2]: ["error", "system-out"],
    }
    assert fedaudit("gate", "runs/bare", *given, "--junit", "nowhere/gate.xml", cwd=runs).returncode == 2


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        ("auc > 0 and accuracy < 0.1", 0),  # one condition is safe
        ("auc > 0 and accuracy > 0.1", 1),  # all are violated
        ("auc > 0 and epsilon > 1 and tpr@0.01 >= 0", 1),
        ("auc > 0 or accuracy < 0.1", 2),
        ("auc < 0.5", 2),  # no risk is too small
        ("accuracy[party=*] < 0.5", 2),
        ("auc >> 0.5", 2),
    ],
)
def test_several_conditions(runs: Path, rule: str, code: int) -> None:
    assert fedaudit("gate", "runs/bare", "--fail-if", rule, cwd=runs).returncode == code


# ------------------------------------------------------------------ compare, score, plan


def scores_of(run: Path, attack: str) -> Block:
    """The plain way from scores.parquet to a block: row by row."""
    rows = pq.read_table(run / "scores.parquet").to_pylist()
    mine = [row for row in rows if (row["attack"], row["model"]) == (attack, "global")]
    sets = [
        [row for row in mine if row["role"] == role and not (row["reference"] and role == "calibration")]
        for role in ("member", "evaluation", "calibration")
    ]
    scores = [np.array([row["score"] for row in part]) for part in sets]
    ids = [np.array([row["id"] for row in part]) for part in sets]
    return Block(scores[0], scores[1], scores[2], None, (ids[0], ids[1], ids[2]))


def test_compare_puts_like_beside_like_and_pairs_the_records(runs: Path, tmp_path: Path) -> None:
    paths = ("runs/bare", "runs/decay", "runs/other")
    done = fedaudit("compare", *paths, "--json", "--page", str(tmp_path / "compared.html"), cwd=runs)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for like in found["alike"]:
        assert list(like["risks"]) == ["bare", "decay", "other"]
    place = ("client", "global", "tpr@0.01")
    (like,) = [like for like in found["alike"] if (like["vantage"], like["model"], like["metric"]) == place]
    attack = like["attack"]
    of = (attack, "global", "tpr@0.01")
    same = [gap for gap in found["differences"] if (gap["attack"], gap["model"], gap["metric"]) == of]
    gaps = {(gap["first"], gap["second"]): gap for gap in same}
    assert list(gaps) == [("bare", "decay"), ("bare", "other"), ("decay", "other")]
    gap = gaps["bare", "decay"]
    blocks = {name: [scores_of(runs / "runs" / name, attack)] for name in ("bare", "decay")}
    expected = tpr_difference(blocks["bare"], blocks["decay"], 0.01, gap["confidence"])
    assert [gap[end] for end in ("value", "low", "high")] == pytest.approx(
        [expected.value, expected.low, expected.high]
    )
    assert gap["shared"] == gap["records"] > 1000  # dealt out alike
    alone = like["risks"]["bare"]["high"] - like["risks"]["bare"]["low"]
    assert gap["high"] - gap["low"] < 2 * alone  # at a higher confidence, and still narrower than two side by side
    page = (tmp_path / "compared.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "bare minus decay" in page
    assert page.count("<table>") == 2 + len(found["alike"]), "the runs, and the data of the chart"
    assert page.count('<p class="sideways">') == page.count("<table>") + page.count("<figure>")
    assert page.count("<script") == 1, "our own, which shows what lies under the pointer"


def test_score_prints_json_and_still_writes_it(tmp_path: Path) -> None:
    lines = [f"m{i},1,{i % 50 + 30}" for i in range(200)] + [f"n{i},0,{i % 50}" for i in range(600)]
    (tmp_path / "s.csv").write_text("\n".join(["id,member,score", *lines]))
    done = fedaudit("score", "s.csv", "--json", "--out", "found.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == json.loads((tmp_path / "found.json").read_text())
    assert json.loads(done.stdout)["estimates"]["auc"]["n_pos"] == 200


def test_plan_prints_json_with_numbers(tmp_path: Path) -> None:
    numbers = ("--members", "300", "--nonmembers", "300", "--calibration", "400", "--fpr", "0.01", "--fpr", "0.001")
    done = fedaudit("plan", *numbers, "--json", cwd=tmp_path)
    (table,) = json.loads(done.stdout)["tables"]
    first, second, area = table["rows"]
    assert (first["risk"], first["needed_for_a_value"], first["reason"]) == ("tpr@0.01", 100, "")
    assert 0.01 < first["smallest_visible"] < 1
    assert (second["smallest_visible"], second["reason"]) == (None, "3,288 too few")
    assert area["risk"] == "auc"


# ------------------------------------------------------------------ folders of others, and Ctrl-C


def test_out_never_mixes_into_a_folder_of_somebody_else(runs: Path, tmp_path: Path) -> None:
    thesis = tmp_path / "thesis"
    thesis.mkdir()
    (thesis / "chapter.tex").write_text("mine")
    (tmp_path / "a-file").write_text("mine")
    (runs / "study.toml").write_text('base = "bare.toml"\n[grid]\n"federation.seed" = [0, 1]\n')
    (tmp_path / "checkpoints").mkdir()
    for round in (0, 1, 2):
        save_file({"0.weight": np.zeros((2, 2), np.float32)}, tmp_path / f"checkpoints/round-{round}.safetensors")
    for arguments in (
        ("run", "bare.toml", "--out", str(thesis)),
        ("run", "bare.toml", "--out", str(thesis), "--force"),
        ("demo", "--out", str(thesis)),
        ("audit", "runs/bare", "--out", str(thesis)),
        ("run", "bare.toml", "--out", str(tmp_path / "a-file")),
        ("import", str(tmp_path / "checkpoints"), "--out", str(thesis)),
        ("study", "study.toml", "--out", str(thesis)),
        ("advise", "bare.toml", "--limit", "auc < 0.6", "--out", str(thesis)),
    ):
        done = fedaudit(*arguments, cwd=runs)
        assert done.returncode == 2, (arguments, done.stdout, done.stderr)
        assert re.search("is not empty and not a run of fedaudit|is a file", " ".join(done.stderr.split()))
    assert [path.name for path in thesis.iterdir()] == ["chapter.tex"]
    (tmp_path / "empty").mkdir()
    assert fedaudit("audit", "runs/bare", "--out", str(tmp_path / "empty"), cwd=runs).returncode == 0
    assert fedaudit("audit", "runs/bare", "--out", str(tmp_path / "empty"), cwd=runs).returncode == 0  # its own


@pytest.mark.parametrize("after", [0.15, 0.4, 0.8])
def test_ctrl_c_while_the_command_still_starts_says_so(tmp_path: Path, after: float) -> None:
    """In the middle of the imports. The moment is not exact, and need not be: at each of them it is said."""
    (tmp_path / "bare.toml").write_text(SMALL.replace("rounds = 3", "rounds = 5000"))
    started = subprocess.Popen(
        [sys.executable, "-X", "importtime", "-m", "fedaudit", "run", "bare.toml"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert started.stderr is not None
    for line in started.stderr:  # ours runs from here on; what Python does before nobody can speak for
        if line.endswith(" fedaudit\n"):
            break
    time.sleep(after)
    started.send_signal(signal.SIGINT)
    _, said = started.communicate()
    assert started.returncode == 130, said[-500:]
    assert "Stopped before there was anything to report." in said
    assert "Traceback" not in said
