"""What a terminal of 80 columns shows: every interval whole, every reason in words."""

import copy
import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from fedaudit.cli import terminal
from fedaudit.report.remarks import ranked
from fedaudit.report.values import cleaned
from fedaudit.report.words import headline_rows
from fedaudit.results.scores import estimate as scored
from fedaudit.types import notice, warning
from fedaudit.words import all_words
from tests.report.builder import Json, entry, quotable, read, results, tpr
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
        (line,) = [line for line in lines if line.split()[:1] == [row.attack] and str(row.auc) in line][:1]
        cells = (str(row.auc), "– [1]" if row.tpr.why == REASON else str(row.tpr), row.realised_fpr)
        assert all(cell in line for cell in cells), line
    assert " ".join(shown.getvalue().split()).count(f"[1] {REASON}") == 1
    assert "…" not in shown.getvalue()


def at_two_rates() -> Json:
    document = copy.deepcopy(results(attacks=2))
    for found in [*document["results"], *document["headlines"]]:
        if found["attack"] != "blind":
            found["estimates"]["tpr@0.001"] = tpr(0.0123)
    return document


@pytest.mark.parametrize("config", ["asked", "default", "none"])
def test_every_rate_that_was_asked_for_is_shown(shown: io.StringIO, config: str) -> None:
    """It showed one. The others have a table of their own where there is no room beside it."""
    document = at_two_rates()
    audit = document["run"]["config"]["audit"]
    if config == "default":
        del audit["fpr"]
    elif config == "none":  # a federation trained elsewhere: all rates that were estimated
        document["run"]["config"] = {}
    terminal.say(read(document), None)
    text = shown.getvalue()
    assert max(map(len, text.splitlines())) <= 80
    assert text.count("TPR at 1 % FPR") == 1
    expected = 0 if config == "default" else 1
    assert text.count("TPR at 0.1 % FPR") == expected
    whole = [row for row in headline_rows(quotable(document)) if row.attack != "blind"]
    assert [text.count(str(row.further[0][0])) for row in whole if row.further] == expected * [len(whole)] * len(whole)


def test_a_wide_terminal_has_room_for_all_rates(shown: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "console", Console(file=shown, width=140))
    terminal.say(read(at_two_rates()), None)
    (head,) = [line for line in shown.getvalue().splitlines() if line.startswith("attack ")]
    assert head.split("  ")[0] == "attack"
    assert "TPR at 1 % FPR" in head
    assert "TPR at 0.1 % FPR" in head


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


def test_at_most_three_remarks_and_first_what_makes_the_figures_too_small(shown: io.StringIO) -> None:
    """A run of twelve remarks: what the reader must do comes first, what nobody asked is on the page."""
    twins = "87 of 447 members have the same content as a non-member."
    document = read(results())
    told = [
        *(
            notice("update-cannot-tell", why=why, updates=12)
            for why in ("all-moved", "inputs-too-many", "several-steps")
        ),
        notice("update-leaves", vantage="server", summed=False, what=["who"]),
        notice("seconds-for-epochs"),
        notice("fpr-left-out", fpr=0.001, needed=1000, available=228),
    ]
    warnings = ["The labels of both sides differ.", "An attack scores below chance.", twins]
    document = replace(
        document, warnings=warnings, notices=all_words(told), understates=[twins],
        told=(*(warning("line", text=text) for text in warnings), *told),
    )  # fmt: skip
    terminal.say(document, Path("report.html"))
    lines = shown.getvalue().splitlines()
    remarks = [line for line in lines if line.startswith("! ")]
    assert remarks == [f"! {twins}", *(f"! {text}" for text in warnings[:2])]
    assert f"  and {len(told)} more remarks, in the report" in lines
    assert [said for said, on_the_page in ranked(cleaned(document)) if on_the_page] == all_words(told[:4])
    assert ranked(cleaned(document))[3][0].startswith("FPR 0.001 needs 1000 calibration non-members")
