"""How results look in a terminal: tables, warnings, the verdict, and progress with the time left."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

console = Console()
errors = Console(stderr=True)


def write_report(document: dict[str, Any], directory: Path) -> Path | None:
    """The numbers are already on disk: a failing report is said, and costs nothing else."""
    try:
        from fedaudit.report.html import write

        write(document, directory / "report.html")
    except Exception as error:
        errors.print(
            f"[yellow]The report could not be rendered ({escape(repr(error))}); the numbers are not affected.[/yellow]"
        )
        return None
    return directory / "report.html"


def say(document: dict[str, Any], written: Path | None) -> None:
    from fedaudit.report.words import (
        ATTRIBUTE_TITLES,
        attribute_rows,
        headline_rows,
        row_titles,
        spread,
        verdict,
        warnings,
    )

    # Fits 80 columns: an interval that is cut off is no interval.
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    attack, _, _, auc, tpr, realised, cost = row_titles(document)
    for title in (attack, auc, tpr, realised.replace("realised ", ""), cost.replace("cost in ", "")):
        table.add_column(title, no_wrap=True)
    place = None
    for row in headline_rows(document):
        if (row.vantage, row.model) != place:
            place = (row.vantage, row.model)
            heading = "no model at all" if row.attack == "blind" else f"{row.vantage}, {row.model} models"
            table.add_row(f"[dim]{escape(heading)}[/dim]")
        cells = (f"  {row.attack}", row.auc, row.tpr, row.realised_fpr, row.cost)
        table.add_row(*(escape(cell) for cell in cells), style="bold" if row.primary else "")
    console.print(table)
    if guessed := attribute_rows(document):
        table = Table("hidden attribute, all parties", "AUC", box=SIMPLE_HEAD, pad_edge=False, header_style="dim")
        for title, value in list(zip(ATTRIBUTE_TITLES, guessed[0], strict=True))[1:]:
            table.add_row(escape(title), escape(value))
        console.print(table)
    for line in [*warnings(document), *document.get("notices", ())]:
        console.print(f"[yellow]![/yellow] {escape(line)}")
    console.print(f"\n[bold]{escape(verdict(document))}[/bold]")
    for line in spread(document):
        console.print(escape(line))
    if written:
        console.print(f"\nReport: {escape(str(written))}")


def say_epsilons(epsilons: dict[str, Any]) -> None:
    """Side by side, each under its label and beside the most that its trials could show."""
    table = Table("epsilon", "kind", "value", "interval", "ceiling", "note")
    for name, e in epsilons.items():
        one_sided = e["kind"] == "proved" and e["value"] is not None
        interval = f"at least {number(e['low'])}" if one_sided else f"{number(e['low'])} to {number(e['high'])}"
        table.add_row(
            name, e["kind"], number(e["value"]), interval, number(e.get("ceiling")), e["reason"] or e["method"]
        )
    console.print(table)


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


@contextmanager
def progress(what: str, steps: int) -> Iterator[Callable[[], None]]:
    """A bar with the time left; a spinner where the number of steps is not known."""
    from rich import progress as rich

    columns: list[rich.ProgressColumn] = [rich.SpinnerColumn(), rich.TextColumn("{task.description}")]
    if steps:
        left = [rich.TextColumn("time left"), rich.TimeRemainingColumn()]
        columns = [columns[1], rich.BarColumn(), rich.MofNCompleteColumn(), *left]
    with rich.Progress(*columns, console=errors, transient=not steps) as bar:
        task = bar.add_task(what, total=steps or None)
        yield lambda: bar.advance(task)
