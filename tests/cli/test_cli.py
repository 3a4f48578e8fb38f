"""The command line as a user meets it: exit codes, messages, files."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import jsonschema
import pytest

from fedaudit.results.document import SCHEMA_FILE
from tests.command import fedaudit

SMALL = """
[data]
name = "digits"
[federation]
parties = 2
rounds = 3
[model]
hidden = [16]
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    folder = tmp_path_factory.mktemp("cli")
    (folder / "small.toml").write_text(SMALL)
    return folder, fedaudit("run", "small.toml", "--repeats", "2", cwd=folder)


def test_E0_run_ends_with_a_table_a_verdict_and_a_report(
    finished: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    folder, done = finished
    assert done.returncode == 0, done.stderr
    assert "fta-confidence" in done.stdout
    assert "sees the global models" in done.stdout
    assert (folder / "runs/small/report.html").read_text().startswith("<!doctype html>")
    assert (folder / "runs/small/scores.parquet").is_file()


def test_results_follow_the_published_schema(finished: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    document = json.loads((finished[0] / "runs/small/results.json").read_text())
    jsonschema.validate(document, json.loads(SCHEMA_FILE.read_text()))
    assert document["run"]["status"] == "complete"
    assert {entry["seed"] for entry in document["run"]["repeats"]} == {0, 1}
    for entry in document["results"]:
        for estimate in entry["estimates"].values():  # no naked number
            assert estimate["method"]
            assert estimate["value"] is None or estimate["low"] <= estimate["value"] <= estimate["high"]
            assert estimate["value"] is not None or estimate["reason"]


def test_repeats_give_mean_and_spread_of_every_attack(
    finished: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    folder, done = finished
    runs = [json.loads((folder / f"runs/small{of}/results.json").read_text()) for of in ("", "/seed-1")]
    pooled = [
        {(e["attack"], e["vantage"], e["model"]): e["estimates"] for e in each["results"] if "auc" in e["estimates"]}
        for each in ({**one, "results": [e for e in one["results"] if e["party"] is None]} for one in runs)
    ]
    attacks = [e for e in runs[0]["run"]["attacks_over_runs"] if "auc" in e["estimates"]]
    over = {(e["attack"], e["vantage"], e["model"]): e for e in attacks}
    assert over.keys() == pooled[0].keys() == pooled[1].keys()
    assert len(over) > 10
    for who, entry in over.items():
        first, second = (estimates[who]["auc"]["value"] for estimates in pooled)
        mean = entry["estimates"]["auc"]
        assert (entry["runs"], entry["smallest"]["auc"], entry["largest"]["auc"]) == (2, *sorted((first, second)))
        assert mean["value"] == pytest.approx((first + second) / 2)
        assert mean["low"] <= mean["value"] <= mean["high"]
        assert "the share that the runs have in common (" in mean["method"] or who[0] == "blind"
    printed = done.stdout.split("mean over runs       smallest  largest")[1]
    page = (folder / "runs/small/report.html").read_text().split("Every attack over the runs")[1].split("</table>")[0]
    for attack, _, _ in over:
        assert f"\n  {attack}" in printed
        assert f">{attack}<" in page


def test_report_again_needs_neither_torch_nor_sklearn(finished: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, _ = finished
    first = (folder / "runs/small/report.html").read_text()
    (folder / "runs/small/report.html").unlink()
    code = (
        "import sys; sys.argv = ['fedaudit', 'report', 'runs/small']\n"
        "import fedaudit.cli.commands\n"
        "try: fedaudit.cli.commands.main()\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        "assert not {'torch', 'sklearn'} & set(sys.modules), 'heavy'"
    )
    subprocess.run([sys.executable, "-c", code], cwd=folder, check=True, capture_output=True)
    assert (folder / "runs/small/report.html").read_text() == first


def test_a_finished_run_is_attacked_again_and_protected(
    finished: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    folder, _ = finished
    again = fedaudit("audit", "runs/small", "--attack", "loss", cwd=folder)
    assert again.returncode == 0, again.stderr
    first, second = (
        json.loads((folder / path / "results.json").read_text()) for path in ("runs/small", "runs/small/audit")
    )
    found = {(r["vantage"], r["model"], r["party"]): r["estimates"] for r in first["results"] if r["attack"] == "loss"}
    assert found == {
        (r["vantage"], r["model"], r["party"]): r["estimates"] for r in second["results"] if r["attack"] == "loss"
    }
    for wrong in (["--out", "runs/small"], ["--out", "runs/small/seed-1"], ["--attack", "loss", "--attack", "loss"]):
        refused = fedaudit("audit", "runs/small", *wrong, cwd=folder)
        assert refused.returncode == 2, wrong
        assert "holds a run" in refused.stderr or "given twice" in refused.stderr
    assert json.loads((folder / "runs/small/results.json").read_text()) == first
    other = fedaudit("run", "small.toml", "--set", "federation.lr=0.5", cwd=folder)
    assert other.returncode == 2  # the run that is there is intact
    told = " ".join(other.stderr.split())
    assert "federation.lr was 0.001 and is now 0.5" in told
    assert "another folder with --out, or replace that run with --force" in told


def test_help_needs_neither_torch_nor_sklearn(tmp_path: Path) -> None:
    code = (
        "import sys; sys.argv = ['fedaudit', '--help']\n"
        "import fedaudit.cli.commands\n"
        "try: fedaudit.cli.commands.main()\n"
        "except SystemExit: pass\n"
        "assert not {'torch', 'sklearn', 'scipy', 'pyarrow'} & set(sys.modules), 'heavy'"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("federation.ronds=3", "Did you mean 'rounds'"),
        ('audit.attacks=["fta-confidense"]', "Did you mean 'fta-confidence'"),
        ("data.name=digit", "Did you mean 'digits'"),
        ("model.name=mpl", "Did you mean 'mlp'"),
        ("federation.parties=2000", "records cannot be split among 2000 parties"),
        ("audit.fpr=[0.0001]", "needs 10000 calibration non-members"),
        ('audit.attacks=["tear"]', "add a vantage that can run it: label-only-client"),
        ("data.name=npz", "needs data.path"),
        ('audit.vantages=["client", "client"]', "client is listed twice"),
        ('audit.attacks=["loss", "fta-loss", "loss"]', "loss is listed twice"),
        ("model.name=odd:raises", "ValueError: no such width"),
    ],
)
def test_E2_bad_input_is_exit_2_before_training(tmp_path: Path, change: str, says: str) -> None:
    (tmp_path / "odd.py").write_text("def raises(shape, classes): raise ValueError('no such width')")
    (tmp_path / "small.toml").write_text(SMALL.replace("hidden = [16]", "" if "odd:" in change else "hidden = [16]"))
    done = fedaudit("run", "small.toml", "--set", change, cwd=tmp_path)
    assert done.returncode == 2, done.stdout + done.stderr
    assert says in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()


def test_missing_file_and_empty_folder(tmp_path: Path) -> None:
    assert fedaudit("run", "none.toml", cwd=tmp_path).returncode == 2
    done = fedaudit("report", ".", cwd=tmp_path)
    assert (done.returncode, "results.json" in done.stderr) == (2, True)


def with_a_broken(function: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The command, with one function of ours that raises."""

    def broken(*arguments: object) -> None:
        raise ValueError("secret")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(function, broken)
        patch.setattr(tempfile, "tempdir", str(cwd))
        return fedaudit(*arguments, cwd=cwd, columns=400)


def test_E6_a_fault_of_ours_is_no_failed_gate(tmp_path: Path) -> None:
    done = with_a_broken("fedaudit.cli.template.catalogue", "list", "data", cwd=tmp_path)
    assert done.returncode == 6
    assert "[fault] ValueError" in done.stderr
    assert "secret" not in done.stderr
    (written,) = tmp_path.glob("fedaudit-*.txt")
    assert str(written) in done.stderr
    assert "ValueError: secret" in written.read_text()


def test_F15_E4_a_report_that_cannot_be_rendered_leaves_the_numbers(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(SMALL + '[audit]\nattacks = ["loss"]\n')
    done = with_a_broken("fedaudit.report.html.write", "run", "small.toml", cwd=tmp_path)
    assert done.returncode == 4, done.stderr
    assert "The report could not be rendered" in done.stderr
    assert "loss" in done.stdout
    document = json.loads((tmp_path / "runs/small/results.json").read_text())
    assert document["run"]["status"] == "complete"
    assert (tmp_path / "runs/small/scores.parquet").is_file()
    assert with_a_broken("fedaudit.report.html.write", "report", "runs/small", cwd=tmp_path).returncode == 4
    assert fedaudit("report", "runs/small", cwd=tmp_path).returncode == 0


def test_F16_results_without_their_journal_say_that_nothing_vouches_for_them(
    finished: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    document = json.loads((finished[0] / "runs/small/results.json").read_text())
    (tmp_path / "results.json").write_text(json.dumps(document))
    done = fedaudit("report", ".", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "fta-confidence" in done.stdout
    assert "results.json has no checksum" in " ".join(done.stdout.split())
    for schema in (0, -5):
        (tmp_path / "results.json").write_text(json.dumps({**document, "schema": schema}))
        done = fedaudit("report", ".", cwd=tmp_path)
        assert done.returncode == 5
        assert "schema: a number of at least 1 is needed" in " ".join(done.stderr.split())


def test_F16_E5_a_newer_schema_is_refused(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text(json.dumps({"schema": 99, "run": {}, "results": []}))
    done = fedaudit("report", ".", cwd=tmp_path)
    assert done.returncode == 5
    assert "Install a newer fedaudit" in done.stderr
    (tmp_path / "results.json").write_text("{")
    assert fedaudit("report", ".", cwd=tmp_path).returncode == 5


@pytest.mark.parametrize("what", ["attacks", "data", "defences", "models"])
def test_lists(tmp_path: Path, what: str) -> None:
    done = fedaudit("list", what, cwd=tmp_path)
    assert done.returncode == 0
    found = {"attacks": "fta-confidence", "data": "attribute_key", "defences": "higradavg", "models": "resnet20"}
    assert found[what] in done.stdout


@pytest.mark.parametrize(("typed", "meant"), [("runs", "run"), ("audti", "audit")])
def test_an_unknown_command_is_hinted_at_once(tmp_path: Path, typed: str, meant: str) -> None:
    """Typer and click each said what was meant."""
    done = fedaudit(typed, cwd=tmp_path)
    assert done.returncode == 2
    assert f"there is no command {typed!r}. Did you mean {meant!r}? Known: advise, audit, " in done.stderr
    assert done.stderr.count("Did you mean") == 1


def test_list_of_nothing(tmp_path: Path) -> None:
    assert fedaudit("list", "atacks", cwd=tmp_path).returncode == 2


PRESSES_CTRL_C = """
import itertools, os, signal
from torch import nn

batches = itertools.count(1)

class Net(nn.Module):
    def __init__(self, inputs, classes):
        super().__init__()
        self.layer = nn.Linear(inputs, classes)

    def forward(self, x):
        if self.training and next(batches) == 40:  # in the middle of a later round
            os.kill(os.getpid(), signal.SIGINT)
        return self.layer(x)

def net(input_shape, classes):
    return Net(input_shape[0], classes)
"""


def test_F14_ctrl_c_leaves_a_valid_report(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(PRESSES_CTRL_C)
    (tmp_path / "long.toml").write_text(
        SMALL.replace("rounds = 3", "rounds = 300").replace("hidden = [16]", 'name = "mine:net"')
    )
    done = fedaudit("run", "long.toml", cwd=tmp_path)
    assert done.returncode == 4, done.stderr  # part of the audit is missing
    document = json.loads((tmp_path / "runs/long/results.json").read_text())
    assert document["run"]["status"].startswith("interrupted at round ")
    assert "interrupted" in " ".join(done.stdout.split()).lower()


@pytest.mark.evidence
def test_F14_ctrl_c_in_a_repeat_stops_the_series_and_is_said(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(PRESSES_CTRL_C.replace("== 40", "== 100"))  # 60 batches a run: in the second
    (tmp_path / "six.toml").write_text(
        SMALL.replace("rounds = 3", "rounds = 6").replace("hidden = [16]", 'name = "mine:net"')
    )
    done = fedaudit("run", "six.toml", "--repeats", "3", cwd=tmp_path)
    assert done.returncode == 4, done.stderr
    assert not (tmp_path / "runs/six/seed-2").exists()
    stopped = json.loads((tmp_path / "runs/six/seed-1/results.json").read_text())
    assert stopped["run"]["status"].startswith("interrupted at round ")
    document = json.loads((tmp_path / "runs/six/results.json").read_text())
    assert [entry["seed"] for entry in document["run"]["repeats"]] == [0]
    assert document["degraded"] == [
        f"Repeat with seed 1: {stopped['run']['status']}, left out of the spread. "
        "Give the same command again to continue.",
        "Repeat with seed 2: not trained.",
    ]
    assert "Repeat with seed 1: interrupted" in " ".join(done.stdout.split())
    (tmp_path / "mine.py").write_text(PRESSES_CTRL_C.replace("== 40", "== -1"))
    again = fedaudit("run", "six.toml", "--repeats", "3", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    document = json.loads((tmp_path / "runs/six/results.json").read_text())
    assert [entry["seed"] for entry in document["run"]["repeats"]] == [0, 1, 2]
    assert document["degraded"] == []
    assert not any("Repeat" in line for line in document["warnings"])


def test_T24_repeats_do_not_share_their_seeds(
    finished: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    """The runs differ in their split and in their model; a seed that was used twice would make the spread too small."""
    folder = finished[0] / "runs/small"
    manifests = [json.loads((path / "run.json").read_text()) for path in (folder, folder / "seed-1")]
    for field in ("seed", "data", "start"):
        assert manifests[0][field] != manifests[1][field], field


def test_score_prints_and_writes(tmp_path: Path) -> None:
    lines = [f"m{i},1,{i % 50 + 30}" for i in range(200)] + [f"n{i},0,{i % 50}" for i in range(600)]
    (tmp_path / "s.csv").write_text("\n".join(["id,member,score", *lines]))
    done = fedaudit("score", "s.csv", "--out", "found.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "tpr@0.01" in done.stdout
    assert json.loads((tmp_path / "found.json").read_text())["estimates"]["auc"]["n_pos"] == 200
    lost = fedaudit("score", "s.csv", "--out", "nowhere/found.json", cwd=tmp_path)
    assert (lost.returncode, "there is no folder nowhere" in lost.stderr) == (2, True)
    assert not (tmp_path / "nowhere").exists()
