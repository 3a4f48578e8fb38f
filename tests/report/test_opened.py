"""A run in Python: data frames and figures say what results.json says, and the notebook of the docs runs."""

import csv
import json
import re
from contextlib import chdir
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedaudit
from fedaudit.cli.judging import _gate_as_json
from fedaudit.errors import FedauditError
from fedaudit.report import opened, words
from fedaudit.report.opened import OpenedRun
from fedaudit.report.values import cleaned
from fedaudit.results.document import Document, save
from fedaudit.results.gate import Gate, Judged, parse_rule
from fedaudit.results.table import as_csv, rows
from fedaudit.session.run import run as trained
from fedaudit.stats import over_runs
from fedaudit.stats.strongest import allowed
from tests import worlds
from tests.command import fedaudit as command
from tests.report import builder

NOTEBOOK = Path(__file__).parents[2] / "docs" / "notebook.ipynb"
pandas = pytest.importorskip("pandas")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("notebook")
    config = worlds.config(
        data={"name": "breast-cancer"}, federation={"rounds": 3}, audit={"attacks": ["loss", "fta-loss"]}
    )
    trained(config, found / "runs" / "my", worlds.silent, tell=lambda _: None)
    return found


@pytest.fixture(scope="module")
def run(folder: Path) -> OpenedRun:
    found = fedaudit.open(folder / "runs" / "my")
    assert isinstance(found, OpenedRun)
    return found


def test_every_figure_is_a_row(run: OpenedRun) -> None:
    frame = run.to_pandas()
    expected = [
        (e.attack, e.vantage, e.party, name, one.value, one.low)
        for e in run.document.results
        for name, one in e.estimates.items()
    ]
    got = frame[["attack", "vantage", "party", "measure", "value", "low"]].astype(object)
    assert [
        tuple(None if pandas.isna(cell) else cell for cell in row) for row in got.itertuples(index=False)
    ] == expected


def test_it_is_printed_in_a_few_lines(run: OpenedRun) -> None:
    """It was printed as half a megabyte."""
    first, *others = repr(run).splitlines()
    assert first.endswith("my, complete")
    assert [line.split(",")[0].strip() for line in others] == [one.vantage for one in run.document.headlines]
    assert len(repr(run)) < 1000


def test_a_doubt_is_a_column_and_a_gate_tells_it_to_programs(run: OpenedRun) -> None:
    """Without it, a figure at another rate looks like any other."""
    first = run.document.results[0]
    figures = {name: replace(own, doubt="fewer") for name, own in first.estimates.items()}
    assert {row["doubt"] for row in opened._figures(replace(first, estimates=figures))} == {"fewer"}
    found = Judged(parse_rule("auc > 0.6"), "loss", "client", "global", None, doubt="more")
    (told,) = _gate_as_json(Gate([found], 1))["findings"]
    assert told["doubt"] == "more"


def test_curves_are_rows_too(run: OpenedRun) -> None:
    frame = run.rounds
    first = next(e for e in run.document.results if "auc" in e.curves)
    mine = frame[(frame["attack"] == first.attack) & (frame["model"] == first.model) & (frame["measure"] == "auc")]
    mine = mine[mine["vantage"] == first.vantage]
    assert mine["round"].tolist() == list(first.curves["auc"].x)
    assert mine["value"].tolist() == list(first.curves["auc"].value)
    assert "roc" not in set(frame["measure"])
    assert len(run.roc) == sum(len(e.curves["roc"].x) for e in run.document.results if "roc" in e.curves)


def test_scores_are_those_of_the_file(run: OpenedRun) -> None:
    frame = run.scores
    assert {"id", "role", "attack", "score"} <= set(frame.columns)
    entry = next(e for e in run.document.results if e.attack == "loss" and e.vantage == "client" and e.party is None)
    mine = frame[(frame["attack"] == "loss") & (frame["model"] == "global") & ~frame["reference"]]
    members, outsiders = (mine[mine["role"] == role]["score"].to_numpy() for role in ("member", "evaluation"))
    beaten = np.mean(members[:, None] > outsiders) + np.mean(members[:, None] == outsiders) / 2
    assert entry.estimates["auc"].value == pytest.approx(beaten)


def test_results_that_were_passed_on_have_no_scores(tmp_path: Path) -> None:
    save(builder.read(builder.results()), tmp_path)
    with pytest.raises(FedauditError, match=r"no scores\.parquet"):
        _ = fedaudit.open(tmp_path).scores


def test_in_a_notebook_hostile_names_do_no_harm(tmp_path: Path) -> None:
    plain = builder.results()
    plain["run"]["name"] = "<script>alert(1)</script>"
    save(builder.read(plain), tmp_path)
    shown = fedaudit.open(tmp_path)._repr_html_()
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown
    assert fedaudit.open(tmp_path).verdict[0][:40] in shown


def test_figures_draw_what_the_results_hold(run: OpenedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    plot = _plot()
    ax = run.plot_rounds("auc")
    first = next(iter(run._lines()))[0].finding.curves["auc"]
    assert np.array_equal(np.asarray(ax.lines[0].get_ydata()), np.asarray(first.value, float))
    assert len(ax.collections) == len(run._lines()), "a band for each line"
    roc = run.plot_roc()
    assert (roc.get_xscale(), roc.get_yscale()) == ("log", "log")
    assert all(np.asarray(line.get_ydata()).min() >= opened.FLOOR for line in roc.lines), (
        "zero has no place on a log scale"
    )
    plot.close("all")
    with pytest.raises(FedauditError, match=r"no result of this run has 'tpr@0.5'.*auc"):
        run.plot_rounds("tpr@0.5")
    plot.close("all")


def test_the_most_that_a_claim_allows_is_drawn(tmp_path: Path) -> None:
    plot = _plot()
    document = builder.read(builder.results())
    claim = document.run.guarantee
    assert claim is not None
    assert claim.binding is not None
    save(document, tmp_path)
    line = fedaudit.open(tmp_path).plot_roc().lines[-1]
    xs, ys = np.asarray(line.get_xdata()), np.asarray(line.get_ydata())
    assert ys.tolist() == [max(allowed(claim.binding, claim.delta, x), opened.FLOOR) for x in xs.tolist()]
    plot.close("all")


def test_rates_without_a_tpr_are_a_gap_and_no_line(tmp_path: Path) -> None:
    """The points on either side were joined."""
    plot = _plot()
    plain = builder.results()
    for entry in plain["results"]:
        for end in ("value", "low", "high") if "roc" in entry.get("curves", {}) else ():
            entry["curves"]["roc"][end][3] = None
    save(builder.read(plain), tmp_path)
    drawn = fedaudit.open(tmp_path)
    (line, *_) = drawn.plot_roc().lines
    assert np.flatnonzero(np.isnan(np.asarray(line.get_ydata(), float))).tolist() == [3]
    assert len(np.asarray(line.get_xdata())) == len(drawn._lines()[0][0].finding.curves["roc"].x)
    plot.close("all")


def test_without_the_package_it_says_what_to_install(run: OpenedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(FedauditError, match=r"fedaudit\[notebook\]"):
        run.to_pandas()


def test_the_notebook_runs(folder: Path) -> None:
    plot = _plot()
    cells = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    assert len(cells) >= 6
    assert not any(cell["outputs"] for cell in cells), "stored without its outputs"
    known: dict[str, Any] = {}
    with chdir(folder):
        for cell in cells:
            exec(cell["source"], known)
    plot.close("all")
    assert (folder / "roc.pdf").read_bytes().startswith(b"%PDF")


def _plot() -> Any:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plot

    return plot


# ------------------------------------------------------------------ attacks and runs in one table


def seeded(seed: int, shift: float, defences: tuple[dict[str, str], ...] = ()) -> Document:
    plain = builder.results()
    plain["run"]["config"] = {"federation": {"seed": seed}, "defences": list(defences)}
    for entry in plain["results"]:
        auc = entry["estimates"]["auc"]
        if auc["value"] is not None:
            for end in ("value", "low", "high"):
                auc[end] = min(auc[end] + shift, 1.0)
    return builder.read(plain)


def test_of_runs_that_differ_in_their_seed_the_mean_is_shown() -> None:
    runs = {"a": seeded(0, 0.0), "b": seeded(1, 0.02), "c": seeded(0, 0.1, ({"name": "dp-sgd"},))}
    found = rows(runs, ["auc"])
    assert {(row.configuration, row.runs) for row in found} == {("a", 2), ("c", 1)}
    for row in found:
        names = ("a", "b") if row.configuration == "a" else ("c",)
        place = row.attack, row.vantage, row.model, None
        each = [
            e.estimates["auc"]
            for n in names
            for e in runs[n].results
            if (e.attack, e.vantage, e.model, e.party) == place
        ]
        expected = each[0] if len(each) == 1 else over_runs(each)
        assert (row.estimate.value, row.estimate.low, row.estimate.high) == (
            expected.value,
            expected.low,
            expected.high,
        )
        assert (row.smallest, row.largest) == (min(e.value or 0 for e in each), max(e.value or 0 for e in each))


def test_a_copy_of_a_run_is_no_second_one() -> None:
    runs = {"a": seeded(0, 0.0), "copied": seeded(0, 0.0), "b": seeded(1, 0.02)}
    assert {(row.configuration, row.runs) for row in rows(runs, ["auc"])} == {("a", 2)}


def test_runs_without_a_value_are_not_counted() -> None:
    """They are left out of the mean, whose row said that they were in it."""
    runs = {name: seeded(seed, 0.01 * seed) for seed, name in enumerate("abc")}
    (entry,) = [e for e in runs["b"].results if (e.attack, e.vantage, e.party) == ("loss", "client", None)]
    lost = replace(entry.estimates["auc"], value=None, low=None, high=None, reason="of another kind")
    results = [replace(e, estimates={**e.estimates, "auc": lost}) if e is entry else e for e in runs["b"].results]
    runs["b"] = replace(runs["b"], results=results)
    counted = {(r.attack, r.vantage, r.estimate.name): (r.runs, r.estimate.method) for r in rows(runs)}
    assert counted["loss", "client", "auc"][0] == 2
    assert counted["loss", "client", "auc"][1].startswith("mean over 2 training runs")
    assert counted["loss", "client", "tpr@0.01"][0] == 3


def test_a_question_whose_figures_have_no_value_has_a_row_with_the_reason() -> None:
    missing = {"value": None, "low": None, "high": None, "kind": "proved", "reason": "too few trials"}
    found = {name: builder.estimate(0.0) | missing for name in ("epsilon-split", "epsilon-ranks")}
    entry = builder.entry("canife", "secagg-server", None, None, unit="user", estimates=found, question="canary")
    document = builder.read(builder.results() | {"results": [entry]})
    (row,) = rows({"run": document})
    assert (row.estimate.name, row.estimate.value, row.estimate.reason) == ("epsilon-ranks", None, "too few trials")
    (said,) = words.summed_up(cleaned(document))
    assert said.startswith("canife, seen from secagg-server on ")
    assert said.endswith(" has no value: too few trials.")
    assert not words.summary_of_others(cleaned(document))


def test_the_table_as_a_file_reads_back(tmp_path: Path) -> None:
    for name, document in {"one": seeded(0, 0.0), "two": seeded(1, 0.02)}.items():
        (tmp_path / name).mkdir()
        save(document, tmp_path / name)
    done = command("table", "one", "two", "--csv", "table.csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    read = list(csv.DictReader((tmp_path / "table.csv").read_text().splitlines()))
    assert {line["runs"] for line in read} == {"2"}
    assert {line["measure"] for line in read} == {"auc", "tpr@0.01"}
    assert all(float(line["low"]) <= float(line["value"]) <= float(line["high"]) for line in read if line["value"])
    assert re.search(r"^fta-\S+ +client, global +auc +one +2 ", done.stdout, re.MULTILINE)


def test_what_looks_like_a_formula_is_inert_in_a_table() -> None:
    plain = builder.results()
    plain["results"][0]["attack"] = "=cmd()"
    text = as_csv(rows({"-run": builder.read(plain)}, ["auc"]))
    assert "\n=" not in text
    assert ",-run" not in text


def test_a_figure_that_no_run_has_is_refused(tmp_path: Path) -> None:
    save(seeded(0, 0.0), tmp_path)
    done = command("table", str(tmp_path), "--measure", "tpr@0.3", cwd=tmp_path)
    assert done.returncode == 2
    assert "no attack of these runs has tpr@0.3" in done.stderr


def stored(name: str, seed: int) -> Document:
    """A run of the version before this one, as if it had been trained with this seed."""
    plain = json.loads((Path(__file__).parents[1] / "results" / "stored" / f"{name}.json").read_text())
    plain["run"]["config"] = {"federation": {"seed": seed}}
    for entry in plain["results"]:
        if entry["attack"] == "canife":  # under the name that the figure has now
            proved = entry["estimates"].pop("epsilon-bonferroni")
            entry["estimates"]["epsilon-ranks"] = {**proved, "name": "epsilon-ranks", "value": 0.5 + seed}
    return builder.read(plain)


def test_other_questions_are_in_the_table_by_the_figure_that_sums_them_up() -> None:
    found = {(row.attack, row.estimate.name) for row in rows({"a": stored("people", 0)})}
    assert found == {
        *((attack, name) for attack in ("loss", "source") for name in ("auc", "tpr@0.2")),
        ("attribute", "excess-over-blind"),
        ("blind", "auc"),
    }


def test_a_named_figure_of_another_question_has_its_mean_over_runs() -> None:
    runs = {"a": stored("people", 0), "b": stored("people", 1)}
    (row,) = rows(runs, ["members-accuracy"])
    assert (row.attack, row.configuration, row.runs) == ("attribute", "a", 2)
    own = next(e for e in runs["a"].results if e.attack == "attribute" and e.party is None)
    assert row.estimate.value == pytest.approx(own.estimates["members-accuracy"].value)
    assert row.estimate.low is not None


def test_what_a_run_proves_has_no_mean_over_runs() -> None:
    found = [row for row in rows({"a": stored("canaries", 0), "b": stored("canaries", 1)}) if row.attack == "canife"]
    assert [(row.configuration, row.runs, row.estimate.name, row.estimate.value) for row in found] == [
        ("a", 1, "epsilon-ranks", 0.5),
        ("b", 1, "epsilon-ranks", 1.5),
    ]
