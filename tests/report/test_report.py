"""The page: what it shows, what it leaves out, and that nothing hostile or foreign gets in."""

import base64
import copy
import hashlib
import html
import json
import math
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from fedaudit import report
from fedaudit.report import words
from tests.report import builder
from tests.report.builder import Json, quotable, read

EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>\x1b[31mred\x1b[0m\u202egnp"
SECTIONS = (
    "verdict", "adversary", "attacks", "roc", "rounds", "trajectories", "parties", "exposed", "blind", "cost",
    "utility", "repeats", "guarantee", "helps", "answers",
    "limits", "reproduce", "notes",
)  # fmt: skip
VOID = {"meta", "link", "br", "img", "input", "hr"}


class Page(HTMLParser):
    """What a browser would build: tags with attributes, and the text of every element with an id."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text: dict[str, str] = {}
        self.section = ""
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.append((tag, given))
        if tag == "section":
            self.section = given.get("id") or ""
            self.text[self.section] = ""
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag, f"</{tag}> closes another element"
        if tag == "section":
            self.section = ""

    def handle_data(self, data: str) -> None:
        if self.section:
            self.text[self.section] += data


def render(results: Json) -> str:
    return report.render(read(results))


def page(results: Json) -> Page:
    built = Page(render(results))
    assert built.open == [], "elements left open"
    return built


def svgs(source: str) -> list[ElementTree.Element]:
    return [ElementTree.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", source, re.DOTALL)]


# ------------------------------------------------------------------ sections


def test_a_whole_audit_shows_every_section_in_order() -> None:
    assert tuple(page(builder.results()).text) == SECTIONS


def test_the_smallest_audit_shows_only_what_it_has() -> None:
    built = page(builder.minimal())
    assert tuple(built.text) == ("verdict", "adversary", "attacks", "cost", "helps", "answers", "limits")
    links = {given["href"] for tag, given in built.tags if tag == "a" and given.get("href")}
    assert links == {"#verdict", "#adversary", "#attacks", "#cost", "#helps", "#answers", "#limits"}


@pytest.mark.parametrize(
    "section, path, nothing",
    [
        ("exposed", ("exposed",), None),
        ("trajectories", ("trajectories",), []),
        ("utility", ("run", "accuracy"), {}),
        ("guarantee", ("run", "guarantee"), None),
        ("repeats", ("run", "repeats"), []),
    ],
)
def test_a_section_goes_with_its_data(section: str, path: tuple[str, ...], nothing: Any) -> None:
    results = builder.results()
    holder = results
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = nothing
    assert set(SECTIONS) - set(page(results).text) == {section}


def test_curves_parties_and_blind_go_with_their_results() -> None:
    results = builder.results()
    results["results"] = [r for r in results["results"] if r["party"] is None and r["attack"] != "blind"]
    for entry in results["results"]:
        entry.pop("curves", None)
    built = page(results)
    assert set(SECTIONS) - set(built.text) == {"roc", "rounds", "parties", "blind"}
    assert "No blind check" in built.text["limits"]


def test_empty_results_still_make_an_honest_page() -> None:
    built = page({"schema": 1, "run": builder.bare_run(), "headlines": [], "results": []})
    assert tuple(built.text) == ("verdict", "answers", "limits")
    assert "No attack has a result" in built.text["verdict"]


def test_every_chart_is_followed_by_its_data() -> None:
    source = render(builder.results())
    drawn = svgs(source)
    assert len(drawn) >= 8
    assert source.count("<summary>Data of this chart</summary>") == len(drawn)
    assert source.count("<figure>") == len(drawn)


def test_the_table_has_every_estimate_with_its_interval_and_counts() -> None:
    shown = page(builder.results()).text["attacks"]
    for word in ("7.7\u00a0%", "6.3–9.1", "TPR at 0.1 % FPR", "1,800", "1,750", "2,400", "Clopper-Pearson"):
        assert word in shown


def test_the_frame_around_an_auc_below_chance_is_explained_where_there_is_one() -> None:
    for area, framed in ((0.3, True), (0.7, False)):
        shown = render(builder.minimal(0.0, area))
        assert ('class="heat-alarm"' in shown) == framed
        assert ("In a framed cell the whole interval lies below chance" in shown) == framed


def test_page_and_command_line_say_the_same() -> None:
    for results in (builder.results(), builder.minimal(0.012, 0.503), builder.minimal(None, 0.56)):
        shown = " ".join(page(results).text["verdict"].split())
        for finding in words.findings(quotable(results)):
            assert finding.sentence.replace("\u00a0", " ") in shown
            assert finding.sentence in " ".join(report.verdict(quotable(results)))


def test_null_is_a_dash_with_its_reason() -> None:
    results = builder.minimal(None, 0.56)
    for entry in (results["headlines"][0], results["results"][0]):
        entry["estimates"]["tpr@0.01"]["reason"] = "needs 57 more calibration non-members"
    source = render(results)
    assert '<p class="value">–</p><p class="note">needs 57 more' in source
    assert 'title="needs 57 more calibration non-members">–</td>' in source
    assert "None" not in source


def test_non_finite_numbers_are_no_values() -> None:
    """Straight from an audit that found them; no file could say so."""
    document = read(builder.results())
    odd = replace(document.results[0].estimates["auc"], value=math.nan, low=-math.inf, high=math.inf)
    results = [replace(entry, estimates={**entry.estimates, "auc": odd}) for entry in document.results]
    source = report.render(replace(document, results=results))
    assert not re.search(r"\b(nan|inf)\b", source)
    assert "came out NaN or infinite" in source


def test_untested_vantages_are_listed() -> None:
    assert "the server" in page(builder.minimal()).text["limits"].lower()
    whole = page(builder.results()).text["limits"]
    assert "gradient inversion" in whole
    assert "An outsider; a party that sees labels only; the server under secure aggregation." in whole


@pytest.mark.parametrize("repeats, says", [(0, "conditional on this one training run"), (4, "run 4 times")])
def test_one_run_is_admitted(repeats: int, says: str) -> None:
    results = builder.results()
    results["run"]["repeats"] = results["run"]["repeats"][:repeats]
    assert says in page(results).text["limits"]


def test_the_configuration_comes_back_as_toml() -> None:
    results = builder.results()
    results["run"]["config"]["data"]["path"] = 'C:\\data\\"quoted"'
    block = re.search(r"<pre[^>]*><code>(.*?)</code></pre>", render(results), re.DOTALL)
    assert block is not None
    assert tomllib.loads(html.unescape(block[1])) == results["run"]["config"]


# ------------------------------------------------------------------ hostile strings and the policy


def hostile() -> Json:
    results = builder.results()
    run = results["run"]
    run |= {"name": EVIL, "status": EVIL, "config_hash": EVIL, "created": EVIL, "versions": {EVIL: EVIL}}
    run["data"]["name"] = EVIL
    run["config"] = {EVIL: {EVIL: EVIL, "list": [EVIL, {"deep": EVIL}]}}
    run["parties"][0]["name"] = EVIL
    run["guarantee"] |= {"against": EVIL, "accountant": EVIL, "problems": [EVIL]}
    results["warnings"] = [EVIL, "x" * 1_000_000]
    results["notices"] = [EVIL]
    results["exposed"]["records"][0]["id_hash"] = EVIL
    results["exposed"]["records"][1]["id_hash"] = "=cmd()"
    results["exposed"]["attack"] = EVIL
    for entry in results["results"]:
        entry["warnings"] = [EVIL]
        entry["party"] = EVIL if entry["party"] == "party-0" else entry["party"]
        entry["attack"] = EVIL if entry["attack"] == "fta-loss" else entry["attack"]
        entry["estimates"]["auc"] |= {"method": EVIL, "reason": EVIL}
        entry["estimates"][EVIL] = builder.estimate(0.5)
        for curve in entry.get("curves", {}).values():
            curve["method"] = f"simultaneous {EVIL}"
    results["headlines"].append(results["headlines"][0] | {"vantage": EVIL})
    return results


def test_B18_S2_hostile_strings_come_out_inert() -> None:
    source = render(hostile())
    built = page(hostile())
    clean = page(builder.results())
    assert {tag for tag, _ in built.tags} <= {tag for tag, _ in clean.tags}
    assert sum(tag == "script" for tag, _ in built.tags) == 1
    assert not any(name.startswith("on") for _, given in built.tags for name in given)
    assert "<script>alert" not in source
    assert "&lt;script&gt;alert(1)" in source  # shown, not swallowed
    assert "\x1b" not in source
    assert "[31m" not in source
    assert "\u202e" not in source
    assert "x" * 700 not in source
    assert len(source) < 400_000
    assert all(drawn.get("role") == "img" for drawn in svgs(source))


def test_B18_a_cell_never_starts_a_formula() -> None:
    results = builder.results()
    results["exposed"]["records"][0]["id_hash"] = "=cmd()"
    source = render(results)
    assert ">=cmd()" not in source
    assert ">&#39;=cmd()<" in source


def test_B18_what_the_command_line_prints_is_inert_too() -> None:
    printed = report.verdict(quotable(hostile()))
    for row in report.headline_rows(quotable(hostile())):
        printed += [row.attack, row.vantage, row.model, str(row.auc), str(row.tpr), *row.warnings]
    assert any("alert(1)" in words for words in printed)
    assert all(words.isprintable() for words in printed)
    assert max(map(len, printed)) < 3000


def test_lone_surrogates_can_be_written(tmp_path: Path) -> None:
    results = builder.minimal()
    results["run"]["name"] = "a\ud800b"
    report.write(read(results), tmp_path / "report.html")
    assert "<h1>ab</h1>" in (tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("build", [builder.minimal, builder.results, hostile])
def test_S2_the_policy_allows_exactly_what_the_page_holds(build: Callable[[], Json]) -> None:
    source = render(build())
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', source)
    assert policy is not None
    rules = dict(rule.split(" ", 1) for rule in policy[1].replace("&#39;", "'").split("; "))
    assert rules["default-src"] == "'none'"
    assert set(rules) == {"default-src", "style-src", "script-src", "base-uri", "form-action"}
    for tag in ("style", "script"):
        held = re.findall(rf"<{tag}>(.*?)</{tag}>", source, re.DOTALL)
        assert len(held) == 1
        digest = base64.b64encode(hashlib.sha256(held[0].encode()).digest()).decode()
        assert rules[f"{tag}-src"] == f"'sha256-{digest}'"
    assert source.index("Content-Security-Policy") < source.index("<style>")


@pytest.mark.parametrize("build", [builder.minimal, builder.results])
def test_S2_nothing_is_fetched_and_nothing_is_styled_inline(build: Callable[[], Json]) -> None:
    source = render(build())
    assert "http:" not in source
    assert "https:" not in source
    assert "url(" not in source
    assert "@import" not in source
    built = Page(source)
    for tag, given in built.tags:
        assert "style" not in given
        assert "src" not in given
        assert tag not in {"link", "iframe", "object", "embed", "img", "base", "form"}
        assert (given.get("href") or "#").startswith("#")


# ------------------------------------------------------------------ the file, and what loading it costs


def test_writing_replaces_the_file_and_leaves_nothing_behind(tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    target.write_text("old")
    report.write(read(builder.minimal()), target)
    assert target.read_bytes() == render(builder.minimal()).encode()
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


def test_rendering_does_not_change_the_results() -> None:
    document = read(hostile())
    before = copy.deepcopy(document)
    assert report.render(document) == report.render(document)
    assert document == before


def test_the_report_loads_no_training_library(tmp_path: Path) -> None:
    results = builder.results()
    for headline in results["headlines"]:  # results of before 0.2 have no sentences: making them takes scipy
        headline["sentence"] = "Nothing beyond chance was found."
    (tmp_path / "results.json").write_text(json.dumps(results))
    code = (
        "import sys; from pathlib import Path; from fedaudit.report import render; "
        "from fedaudit.results.document import load; assert render(load(Path('.'))); "
        "print([m for m in ('torch', 'sklearn', 'scipy', 'pandas') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.strip() == "[]"


def with_attribute() -> Json:
    names = ("excess-over-blind", "members-minus-nonmembers", "members-auc", "nonmembers-auc", "blind-auc")
    found = {name: builder.estimate(0.1 + 0.1 * i, 0.15) | {"low": -0.05 + 0.1 * i} for i, name in enumerate(names)}
    guessed = builder.entry("attribute", "server", None, None, unit="attribute", estimates=found)
    whole = builder.results()
    return whole | {"results": [*whole["results"], guessed, guessed | {"party": "party-1"}]}


def test_an_attribute_has_a_table_of_its_own_with_both_differences() -> None:
    source = render(with_attribute())
    section = source.split('id="attribute"')[1].split("</section>")[0]
    assert "+0.100 (-0.050 to +0.250)" in section
    assert "+0.200 (+0.050 to +0.350)" in section
    assert "party-1" in section
    assert "attribute" not in [row.attack for row in words.headline_rows(quotable(with_attribute()))]
    assert 'id="attribute"' not in render(builder.results())


def test_limits_say_what_was_asked_after_all() -> None:
    plain = builder.results()
    assert "it was not asked" in render(plain)
    named = {"accuracy": builder.estimate(0.7), "auc-other-party": builder.estimate(0.83), "auc": builder.estimate(0.6)}
    rows = [builder.entry("source", "server", None, None, estimates=named, party=party) for party in (None, "party-0")]
    config = plain["run"]["config"]
    mal = plain["run"] | {"config": config | {"audit": config["audit"] | {"adversary": "agg-mal"}}}
    page = render(plain | {"run": mal, "results": [*plain["results"], *rows]})
    assert "it was not asked" not in page
    assert "isolates each party (agg-mal)" in page
    table = re.sub("</?span.*?>", "", page.split("Whose record is it?")[1].split("</table>")[0])
    assert "0.830 (0.818–0.842)" in table


def test_the_command_line_shows_both_differences_of_an_attribute(capsys: pytest.CaptureFixture[str]) -> None:
    from fedaudit.cli.terminal import say

    say(read(with_attribute()), None)
    printed = capsys.readouterr().out
    assert "+0.100 (-0.050 to +0.250)" in printed
    assert "+0.200 (+0.050 to +0.350)" in printed
