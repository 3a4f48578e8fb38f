"""What a terminal of 80 columns shows: every interval whole, every reason in words."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from fedaudit.cli import terminal
from fedaudit.report.words import headline_rows
from fedaudit.results.score_file import estimate as scored
from tests.report.builder import entry, quotable, read, results, tpr
from tests.results.test_score_file import rows, write

REASON = "40 calibration non-members are there and 100 are needed, so that no threshold can be set"


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    text = io.StringIO()
    monkeypatch.setattr(terminal, "console", Console(file=text, width=80))
    return text


def test_every_interval_is_whole_at_80_columns(shown: io.StringIO) -> None:
    document = results()
    for attack, share, area in (("gradient-norm-all", 0.00123, 0.529), ("fta-confidence", 0.542, 0.9)):
        document["results"].append(entry(attack, "secagg-server", share, area))
    lacking = entry("modified-entropy", "secagg-server", None, 0.6)
    lacking["estimates"]["tpr@0.01"] = tpr(None, reason=REASON)
    document["results"] += [lacking, lacking | {"attack": "loss"}]
    terminal.say(read(document), None)
    lines = shown.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert "secagg-server, global models" in lines
    for row in headline_rows(quotable(document)):
        (line,) = [line for line in lines if line.split()[:1] == [row.attack] and row.auc in line][:1]
        cells = (row.auc, "– [1]" if REASON in row.tpr else row.tpr, row.realised_fpr)
        assert all(cell in line for cell in cells), line
    assert " ".join(shown.getvalue().split()).count(f"[1] {REASON}") == 1
    assert "…" not in shown.getvalue()


def test_score_says_how_sure_and_how(shown: io.StringIO, tmp_path: Path) -> None:
    found = scored(write(tmp_path / "a.csv", rows()), None, 0.9, 1e-5)
    terminal.say_scores(found)
    lines = shown.getvalue().splitlines()
    assert "90 % interval" in lines[1]
    for name, e in found.epsilons.items():
        assert any(line.startswith(f"{name} ") and "90 %" in line for line in lines), name
        assert f"{name}: {e.reason or e.method}" in " ".join(shown.getvalue().split())
    for name, e in found.estimates.items():
        assert any(line.startswith(name) and f"{e.low:.4f} to {e.high:.4f}" in line for line in lines)
        assert f"{name}: {e.method}" in " ".join(shown.getvalue().split())
    assert max(map(len, lines)) <= 80
