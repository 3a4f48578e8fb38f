"""The commands to use before an audit: list what there is, write a configuration, plan its size."""

from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from fedaudit.cli.terminal import console


def list_(what: Annotated[str, typer.Argument(help="attacks, data, defences or models")]) -> None:
    """List what a configuration can name: attacks, data, defences or models."""
    from fedaudit.cli.catalogue import catalogue

    found = catalogue(what)
    table = Table("name", "what it is", *["keys"] * any(keys for _, _, keys in found), box=None)
    for name, *words in found:
        table.add_row(f"[bold]{escape(name)}[/bold]", *map(escape, words[: len(table.columns) - 1]))
    console.print(table)


def init(
    path: Annotated[Path, typer.Argument(help="The file to write.")] = Path("fedaudit.toml"),
) -> None:
    """Write a commented configuration: every key, what it means, and its default. Never overwrites a file."""
    from fedaudit.cli.template import write

    write(path)
    console.print(f"Written: {escape(str(path))}. Edit it, then run [bold]fedaudit run {escape(str(path))}[/bold]")


def plan(
    members: Annotated[int, typer.Option(min=1, help="Records (or subjects) trained on, all parties together.")],
    nonmembers: Annotated[int, typer.Option(min=1, help="Calibration non-members: they set the thresholds.")],
    evaluation: Annotated[
        int | None, typer.Option(min=1, help="Evaluation non-members (default: as many as members).")
    ] = None,
    fpr: Annotated[
        list[float] | None, typer.Option(help="False-positive rate; repeatable (default 0.01, 0.001, 0.0001).")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Number of rounds in the curve over rounds.")] = 1,
    parties: Annotated[
        int, typer.Option(min=1, help="Number of parties of equal size; local models have one threshold each.")
    ] = 1,
    confidence: Annotated[float, typer.Option(help="Confidence of every interval.")] = 0.95,
) -> None:
    """Before training: what an audit of this size can show, and how many non-members it takes.

    A risk is visible when the lower end of its interval lies above what guessing gives (the FPR; 0.5 for an AUC). Shown
    is the smallest true risk that is visible four times in five, for Gaussian scores. Records of one subject count less
    than one each: where there are subjects, plan with their number.
    """
    from fedaudit.cli.planning import plan as planned

    for title, rows in planned(members, nonmembers, evaluation or members, fpr, rounds, parties, confidence):
        titles = ("risk", "needed for a value", "for a lower end", "smallest visible risk")
        table = Table(*titles, box=SIMPLE_HEAD, title=title, title_justify="left")
        for row in rows:
            table.add_row(*row)
        console.print(table)
