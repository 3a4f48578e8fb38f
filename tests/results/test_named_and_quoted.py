"""Whoever is missing from a figure is named wherever the figure is shown; and a run is quoted by one figure everywhere.

The worlds are made: parties of unequal sizes, some without records to set a threshold, some never seen.
"""

import io
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from fedaudit.cli import judging, terminal
from fedaudit.report import formats, html, live, pages, words
from fedaudit.report.evidence import write_pack
from fedaudit.report.values import cleaned
from fedaudit.results.compare import Comparison, compare
from fedaudit.results.document import Document, PartyInfo, load, save
from fedaudit.results.gate import Decision, judge, parse_rule
from fedaudit.results.merge import hand_over, merge
from fedaudit.results.running import Running
from fedaudit.results.scores import absent_of, blocks_of, load_scores, save_scores
from fedaudit.results.study import Outcome, frontier
from fedaudit.results.table import as_csv, rows
from fedaudit.stats.roc import estimates
from fedaudit.stats.strongest import Heard, Shares, chosen, leading, quoted_figures
from fedaudit.stats.wording import full_text, share, share_span, without
from fedaudit.types import AuditResult, Cost, Role
from fedaudit.words.headlines import Scene, worded
from tests.report.builder import bare_run

PRIMARY, OTHER = "matched-filter", "loss"
RATES = (0.01, 0.05, 0.1)
NAMES = ("hospital-ash", "hospital-birch", "hospital-cedar", "hospital-dogwood", "hospital-elm")
# By party: members, evaluation and calibration records, the shift of its members; None: it was never seen.
World = Mapping[str, tuple[int, int, int, float | None]]


def world(seed: int) -> World:
    """At least one party is whole; of the others, about half lack something."""
    rng = np.random.default_rng(seed)
    found: dict[str, tuple[int, int, int, float | None]] = {}
    for place, name in enumerate(NAMES[: int(rng.integers(2, 6))]):
        members, evaluation, calibration = (int(n) for n in rng.integers(60, 300, 3))
        shift = float(rng.choice([0.0, 1.0, 2.5]))
        lacks = "" if place == 0 else str(rng.choice(["", "", "", "calibration", "evaluation", "unseen"]))
        found[name] = (
            members,
            0 if lacks == "evaluation" else evaluation,
            0 if lacks == "calibration" else calibration + 100,
            None if lacks == "unseen" else shift,
        )
    return found


def written(folder: Path, parties: World, seed: int = 0) -> Document:
    """A run with two attacks on the local models of these parties, as `fedaudit run` leaves it."""
    folder.mkdir(parents=True, exist_ok=True)
    rng, parts = np.random.default_rng(seed), []
    for attack, strength in ((PRIMARY, 1.0), (OTHER, 0.5)):
        for party, (*sizes, shift) in parties.items():
            role = np.repeat([role.value for role in (Role.MEMBER, Role.EVALUATION, Role.CALIBRATION)], sizes)
            score = rng.normal(size=len(role)) + strength * (shift or 0.0) * (role == Role.MEMBER.value)
            ids = np.array([f"{party}-{each}" for each in range(len(role))])
            parts.append({
                "attack": attack, "model": "local", "party": party, "role": role, "id": ids, "subject": None,
                "score": score if shift is not None else np.full(len(role), np.nan),
                "reference": np.zeros(len(role), bool),
            })  # fmt: skip
    save_scores(parts, folder)
    scores = load_scores(folder)
    assert scores is not None
    shares, said, results = Shares.among(0.95, 1 + len(RATES), 1 + len(RATES)), [], []
    for attack in (PRIMARY, OTHER):
        blocks, absent = blocks_of(scores, attack, "local"), absent_of(scores, attack, "local")
        own, decisive = (estimates(blocks, RATES, c, absent) for c in (0.95, shares.of(attack == PRIMARY)))
        said.append(Heard(attack, "local", own if attack == PRIMARY else decisive, decisive, attack == PRIMARY))
        results.append(AuditResult(attack, "server", "local", "record", None, round=5, estimates=own, cost=Cost(0.1)))
    quoted = chosen({"server": said}, len(said))
    scene = Scene(results, 5, quoted.name, primary=quoted.primary, average=quoted.average)
    bare = Document.from_json({"schema": 1, "run": bare_run(), "headlines": [], "results": []})
    infos = [PartyInfo(name, members=m, evaluation=e, calibration=c) for name, (m, e, c, _) in parties.items()]
    config = {"audit": {"fpr": list(RATES)}, "federation": {"seed": seed}}
    run = replace(bare.run, name=folder.name, parties=infos, config=config, ended="complete", rounds=5)
    document = replace(bare, run=run, headlines=worded(quoted.headlines, scene), results=results)
    save(document, folder)
    return document


# ------------------------------------------------------------------ everything that shows a figure


def printed(monkeypatch: pytest.MonkeyPatch, module: object, say: Callable[[], object]) -> str:
    out = io.StringIO()
    with monkeypatch.context() as patched:
        for place in (terminal, module):
            patched.setattr(place, "console", Console(file=out, width=100_000, color_system=None))
        say()
    return out.getvalue()


def plain(page: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]*>", "", page)).replace("\u00a0", " ").split())


def section(page: str, name: str) -> str:
    return plain(page.split(f'id="{name}"', 1)[1].split("</section>", 1)[0])


def compared(first: Path, second: Path) -> Comparison:
    return compare([first, second])


def shown(folder: Path, other: Path, document: Document, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """By place, what it says of this run."""
    page, found = html.render(document), compared(folder, other)
    pack = folder.parent / f"{folder.name}-pack"
    write_pack(folder, pack)
    listed = live.ListedRun("0", folder.name, "run", Running(folder=folder, state="ended"), document=document)
    mine = [row for row in found.rows if row.run == folder.name]
    beside = replace(found, rows=mine, alike=[], differences=[], notes=[])
    table = rows({"run": document})
    return {
        "terminal": printed(monkeypatch, terminal, lambda: terminal.say(document, None)),
        "summary": " ".join(text for line in words.summary(cleaned(document)) for text in line),
        "verdict": section(page, "verdict"),
        "attacks": section(page, "attacks"),
        "summary page": plain(html.render(document, brief=True)),
        "annex": plain((pack / "dpia-annex.html").read_text()),
        "evidence": plain((pack / "evidence.html").read_text()),
        "markdown": formats.markdown(document),
        "json": formats.as_json(document),
        "compare": printed(monkeypatch, judging, lambda: judging.say_comparison(beside)),
        "compare page": plain(pages.comparison_page(beside)),
        "table": as_csv(table),
        "serve": plain(str(live.parts(live.of_run(listed)))),
        "serve's list": plain(str(live.parts(live.listing([listed])))),
    }


@pytest.mark.parametrize("seed", range(8))
def test_whoever_is_missing_from_a_figure_is_named_wherever_it_is_shown(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parties = world(seed)
    document = written(tmp_path / "run", parties, seed)
    written(tmp_path / "other", world(100), 100)
    quoted = leading(document.headlines)
    assert quoted is not None
    assert quoted.estimate is not None
    lacking = "evaluation" if quoted.name == "auc" else "calibration"
    place = {"evaluation": 1, "calibration": 2}[lacking]
    gone = {name for name, sizes in parties.items() if sizes[3] is None or not sizes[place]}
    assert {name for missing in quoted.estimate.missing for name in missing.parties} == gone
    for where, said in shown(tmp_path / "run", tmp_path / "other", document, monkeypatch).items():
        assert all(name in said for name in gone), where
        counted = sum(parties[name][0] for name in gone)
        assert not gone or f"with {counted} members" in said or len(quoted.estimate.missing) > 1, where


def test_a_gate_passes_nothing_on_a_figure_that_leaves_parties_out(tmp_path: Path) -> None:
    whole: World = {"hospital-ash": (200, 150, 300, 0.0), "hospital-birch": (200, 150, 300, 0.0)}
    written(tmp_path / "whole", whole)
    written(tmp_path / "part", {**whole, "hospital-cedar": (150, 150, 0, 2.0)})
    rules = [parse_rule("tpr@0.1 > 0.9")]
    assert judge(tmp_path / "whole", rules).verdict is Decision.SAFE
    found = judge(tmp_path / "part", rules)
    assert found.verdict is Decision.UNDECIDED
    assert all("without hospital-cedar" in finding.note for finding in found.findings)


def test_a_merge_names_whom_its_figures_leave_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parties: World = {
        "hospital-ash": (200, 150, 300, 1.0),
        "hospital-birch": (150, 150, 0, 2.0),
        "hospital-cedar": (150, 150, 200, 0.0),
    }
    written(tmp_path / "run", parties)
    folders = [tmp_path / name for name in parties]
    for folder in folders:
        hand_over(tmp_path / "run", folder, folder.name)
    document, _ = merge(folders, "all")
    (headline,) = document.headlines
    assert [one.parties for one in headline.estimates["tpr@0.01"].missing] == [("hospital-birch",)]
    assert "hospital-birch" in headline.sentence
    assert "of 2 of 3 parties" in headline.sentence
    for said in (
        printed(monkeypatch, terminal, lambda: terminal.say(document, None)),
        section(html.render(document), "verdict"),
    ):
        assert "without hospital-birch (1 of 3 parties with 150 members" in said


# ------------------------------------------------------------------ one figure


@pytest.mark.parametrize("shift", [0.0, 0.4, 1.0, 3.0])
def test_everything_quotes_the_same_figure_of_a_run(
    shift: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parties: World = {"hospital-ash": (200, 150, 300, shift), "hospital-birch": (150, 150, 60, shift)}
    document = written(tmp_path / "run", parties, 3)
    written(tmp_path / "other", parties, 4)
    (quoted,) = quoted_figures(document.headlines)
    assert quoted.estimate is not None
    text = full_text(quoted.name, quoted.estimate).split(", without")[0]
    as_share = f"{share(quoted.estimate.value, 1)} ({share_span(quoted.estimate.low, quoted.estimate.high)}"
    ends = [
        f"{end:.6g}" for end in (quoted.estimate.value, quoted.estimate.low, quoted.estimate.high) if end is not None
    ]
    for where, said in shown(tmp_path / "run", tmp_path / "other", document, monkeypatch).items():
        if where == "table":
            (line,) = (line for line in said.splitlines() if line.endswith("yes"))
            found = [f"{float(cell):.6g}" for cell in line.split(",")[6:9]]
            assert found == ends, where
        elif where in ("attacks",):
            continue  # every attack with an interval of its own: that of the quoted one pays for nothing
        else:  # an AUC is "how often it tells which is which" in a sentence
            assert any(all(part in said for part in own.split(" (")) for own in (text[:-1], as_share)), where


def test_compare_does_not_quote_another_attack_because_its_lower_end_is_higher(tmp_path: Path) -> None:
    """It quoted 3.6 % (0.1-7.2) of a server whose report said 6.7 % (0-22.8)."""
    document = written(tmp_path / "run", {"hospital-ash": (200, 150, 300, 0.0), "hospital-birch": (99, 99, 99, 0.0)})
    written(tmp_path / "other", {"hospital-ash": (200, 150, 300, 1.0)})
    (headline,) = document.headlines
    estimate = headline.estimates["tpr@0.01"]
    better = replace(document.results[1].estimates["tpr@0.01"], value=0.036, low=0.001, high=0.072)
    worse = replace(estimate, value=0.067, low=0.0, high=0.228)
    quoted = replace(headline, estimates={**headline.estimates, "tpr@0.01": worse})
    results = [replace(entry, estimates={**entry.estimates, "tpr@0.01": better}) for entry in document.results]
    save(replace(document, headlines=[quoted], results=results), tmp_path / "run")
    row = next(row for row in compare([tmp_path / "run", tmp_path / "other"]).rows if row.run == "run")
    assert row.risk is not None
    assert (row.risk.value, row.risk.low, row.risk.high) == (0.067, 0.0, 0.228)
    (configuration,) = frontier([Outcome("cell", {}, load(tmp_path / "run"), "complete")])
    assert configuration.row.risk == row.risk
    assert without(worse) in row.whose
