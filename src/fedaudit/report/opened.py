"""A run in Python: its results as data frames, in a notebook, and as figures for a paper.

pandas and matplotlib are imported when they are asked for: `pip install 'fedaudit[notebook]'` brings both.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from fedaudit.errors import FedauditError
from fedaudit.questions import metric
from fedaudit.report import words
from fedaudit.report.charts import Line, named
from fedaudit.report.taken import readings
from fedaudit.report.values import Results, cleaned
from fedaudit.report.words import Finding
from fedaudit.results.document import Document, load
from fedaudit.stats.strongest import allowed
from fedaudit.stats.wording import fpr_of, without
from fedaudit.types import AuditResult, Curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

FLOOR = 1e-4  # of the axes of a ROC curve, which have no zero
COLOURS = ("#2a62c9", "#b4451f", "#1f7a4d", "#7a3fa0", "#8a6a00", "#3b4252")


def open(run: str | Path) -> OpenedRun:
    """The results of a run: a folder that fedaudit wrote, or its results.json."""
    path = Path(run)
    return OpenedRun(path, load(path))


@dataclass(frozen=True)
class OpenedRun:
    """`document` is results.json as it is; everything else is made from it, and from scores.parquet."""

    path: Path
    document: Document

    def __repr__(self) -> str:
        """A line for each vantage: the whole document is a megabyte."""
        name = self._results.run.name or "federation"
        told = [*words.summary(self._results), *(one.line for one in readings(self._results))]
        lines = [f"  {', '.join(filter(None, line))}" for line in told]
        return "\n".join([f"fedaudit.open({str(self.path)!r}): {name}, {self.document.run.ending}", *lines])

    @cached_property
    def _results(self) -> Results:
        return cleaned(self.document)

    @property
    def verdict(self) -> list[str]:
        """The sentences of the report."""
        return words.verdict(self._results)

    # ------------------------------------------------------------------ data frames

    def to_pandas(self) -> DataFrame:
        """A row for each figure of each result, with its interval, its method and its counts."""
        return _frame([row for entry in self.document.results for row in _figures(entry)])

    @property
    def rounds(self) -> DataFrame:
        """A row for each round of each curve over rounds."""
        found: list[dict[str, Any]] = []
        for entry in self.document.results:
            for name, curve in entry.curves.items():
                if name != "roc":
                    found += _points(entry, name, curve, "round")
        return _frame(found)

    @property
    def roc(self) -> DataFrame:
        """A row for each point of each ROC curve."""
        curves = [(entry, entry.curves["roc"]) for entry in self.document.results if "roc" in entry.curves]
        return _frame([point for entry, curve in curves for point in _points(entry, "tpr", curve, "fpr")])

    @property
    def groups(self) -> DataFrame:
        """A row for each group and figure: in the group, elsewhere, and the difference."""
        found = self.document.groups
        rows: list[dict[str, Any]] = []
        for one in found.results if found else ():
            place = {"vantage": one.vantage, "model": one.model, "attack": one.attack, **vars(one.group)}
            for name, inside in one.inside.items():
                sides = {"value": inside.value, "elsewhere": one.outside[name].value}
                ends = {
                    "difference": one.beyond[name].value,
                    "low": one.beyond[name].low,
                    "high": one.beyond[name].high,
                }
                rows.append({**place, "measure": name, **sides, **ends, "stands_out": one.stands_out == name})
        return _frame(rows)

    @property
    def scores(self) -> DataFrame:
        """A row for each candidate and attack. This is membership data: it says who was trained on."""
        from fedaudit.results.scores import load_scores

        found = load_scores(self.path)
        if found is None:
            what = f"there is no scores.parquet beside the results in {self.path}"
            raise FedauditError("no-scores", what, "Give the folder of the run, not a results.json that was passed on.")
        return _pandas().DataFrame(dict(found))

    # ------------------------------------------------------------------ in a notebook

    def _repr_html_(self) -> str:
        rows = words.headline_rows(self._results)
        head = ("attack", "vantage", "model", "AUC", words.row_titles(self._results)[4])
        cells = [(r.attack, r.vantage, r.model, str(r.auc), str(r.tpr)) for r in rows]
        said = Markup("").join(Markup("<p>{}</p>").format(line) for line in self.verdict)
        titles = Markup("").join(Markup("<th>{}</th>").format(title) for title in head)
        body = Markup("").join(
            Markup("<tr>{}</tr>").format(Markup("").join(Markup("<td>{}</td>").format(cell) for cell in row))
            for row in cells
        )
        name = escape(self._results.run.name or "federation")
        return str(
            Markup("<h3>{}</h3>{}<table><thead><tr>{}</tr></thead><tbody>{}</tbody></table>").format(
                name, said, titles, body
            )
        )

    # ------------------------------------------------------------------ figures

    def plot_roc(self, ax: Axes | None = None) -> Axes:
        """Members picked out against outsiders accused, both on log scales, with bands; what the run quotes of each
        vantage. Where the training claims differential privacy, the most that the claim allows anybody is drawn, too.
        """
        ax = ax or _axes()
        for line, colour in self._lines():
            _draw(ax, line, "roc", colour, floor=FLOOR)
        ax.plot([FLOOR, 1], [FLOOR, 1], color="#888888", linewidth=1, linestyle=":", label="guessing")
        claim = self.document.run.guarantee
        if claim is not None and claim.binding is not None:
            xs = [10 ** (-4 + 4 * i / 80) for i in range(81)]
            most = [max(allowed(claim.binding, claim.delta, x), FLOOR) for x in xs]
            ax.plot(
                xs, most, color="#111111", linewidth=1, linestyle="--", label=f"allowed by epsilon {claim.binding:.3g}"
            )
        ax.set(xscale="log", yscale="log", xlim=(FLOOR, 1), ylim=(FLOOR, 1))
        ax.set(xlabel="false-positive rate", ylabel="true-positive rate")
        ax.legend(frameon=False)
        return ax

    def plot_rounds(self, measure: str | None = None, ax: Axes | None = None) -> Axes:
        """A measure after each round, with its band: the TPR that the report quotes, unless another is named."""
        name = measure or words.main_tpr(self._results) or "auc"
        ax = ax or _axes()
        drawn = [_draw(ax, line, name, colour) for line, colour in self._lines()]
        if not any(drawn):
            known = sorted({key for entry in self.document.results for key in entry.curves if key != "roc"})
            what = f"no result of this run has {name!r} over the rounds"
            raise FedauditError("no-curve", what, f"It has: {', '.join(known) or 'none'}.")
        chance = fpr_of(name) or metric(name).chance
        if chance is not None:
            ax.axhline(chance, color="#888888", linewidth=1, linestyle=":", label="guessing")
        ax.set(xlabel="round", ylabel=metric(name).title)
        ax.legend(frameon=False)
        return ax

    def _lines(self) -> list[tuple[Line, str]]:
        """As the page draws them."""
        found: list[Finding] = words.drawn(self._results, words.findings(self._results))
        return [(line, COLOURS[place % len(COLOURS)]) for place, line in enumerate(named(found))]


def _draw(ax: Axes, line: Line, key: str, colour: str, floor: float | None = None) -> bool:
    curve = line.finding.curves.get(key)
    if curve is None:
        return False
    points = sorted(zip(curve.x, curve.value, curve.low, curve.high, strict=True), key=lambda point: point[0])
    kept = [point for point in points if floor is None or point[0] >= floor]  # without a value: a gap
    xs = [x for x, *_ in kept]
    values, lows, highs = ([_at_least(row[end], floor) for row in kept] for end in (1, 2, 3))
    ax.plot(xs, values, color=colour, linewidth=1.6, label=f"{line.name} ({line.finding.attack})")
    ax.fill_between(xs, lows, highs, color=colour, alpha=0.18, linewidth=0)
    return True


def _at_least(value: float | None, floor: float | None) -> float:
    if value is None:
        return float("nan")
    return value if floor is None else max(value, floor)


def _figures(entry: AuditResult) -> list[dict[str, Any]]:
    place = {name: getattr(entry, name) for name in ("attack", "vantage", "model", "party", "unit", "question")}
    counted = (
        "value",
        "low",
        "high",
        "confidence",
        "kind",
        "n_pos",
        "n_neg",
        "n_cal",
        "realised_fpr",
        "method",
        "reason",
        "doubt",
    )
    return [
        {**place, "measure": name, **{key: getattr(e, key) for key in counted}}
        | {"missing": without(e), "epochs": entry.cost.epochs}
        for name, e in entry.estimates.items()
    ]


def _points(entry: AuditResult, name: str, curve: Curve, x: str) -> list[dict[str, Any]]:
    place = {"attack": entry.attack, "vantage": entry.vantage, "model": entry.model, "measure": name}
    return [
        {**place, x: at, "value": value, "low": low, "high": high, "simultaneous": curve.simultaneous}
        for at, value, low, high in zip(curve.x, curve.value, curve.low, curve.high, strict=True)
    ]


def _frame(rows: list[dict[str, Any]]) -> DataFrame:
    return _pandas().DataFrame(rows)


def _axes() -> Axes:
    axes: Axes = _imported("matplotlib.pyplot").subplots(figsize=(5.0, 4.0), layout="constrained")[1]
    return axes


def _pandas() -> Any:
    return _imported("pandas")


def _imported(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        package = name.partition(".")[0]
        what = f"{package} is not installed, and this needs it"
        raise FedauditError("no-package", what, "Install it: pip install 'fedaudit[notebook]'.") from None
