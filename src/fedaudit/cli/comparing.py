"""`fedaudit compare`: several runs side by side."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from fedaudit.cli.options import AsJson, as_json, in_a_folder, printed_as_json, write_file
from fedaudit.cli.terminal import ABSENT, console, show

if TYPE_CHECKING:
    from fedaudit.results.compare import ComparedRun, Comparison


def compare(
    runs: Annotated[list[Path], typer.Argument(help="Folders written by `fedaudit run`.")],
    out: AsJson = None,
    page: Annotated[
        Path | None, typer.Option(help="Also write the comparison to this HTML file.", callback=in_a_folder)
    ] = None,
) -> None:
    """Compare the accuracy and risk of several runs, and the epsilon each claims.

    Risks are compared like with like: the same attack, from the same vantage, on the same kind of model; and on the
    same records where the runs share them, which shows smaller differences than two intervals side by side. A star
    marks a run that no other run beats in both accuracy and risk.
    """
    from fedaudit.results.compare import compare as compared
    from fedaudit.results.schema import plain

    found = compared(runs)
    if not printed_as_json(plain(found)):
        say(found)
    write_file(out, as_json(plain(found)))
    if page:
        from fedaudit.report.pages import comparison_page

        write_file(page, comparison_page(found))


def say(found: "Comparison") -> None:
    """A few short lines for each run, and then like beside like."""
    from fedaudit.questions import metric
    from fedaudit.report.pages import concerns, safer
    from fedaudit.results.compare import in_points
    from fedaudit.stats.wording import full_text

    for row in found.rows:
        console.print(f"\n{'* ' if row.best else ''}[bold]{escape(row.run)}[/bold]  {escape(row.defences)}")
        show(f"    verdict              {', '.join(f'{who}: {grade}' for who, grade in row.grades.items()) or ABSENT}")
        show(f"    accuracy             {row.accuracy.text() if row.accuracy else ABSENT}")
        show(f"    TPR at 1 % FPR       {row.risk.text() if row.risk else ABSENT}")
        if row.whose:
            show(f"      of {row.whose}")
        show(f"    epsilon              {epsilon(row)}")
        if row.per_person:
            show(f"      per person: {row.per_person.text}")
    for like in found.alike:
        console.print(escape(f"\n{like.attack}, {like.vantage}, {like.model} models: {metric(like.metric).title}"))
        for run, estimate in like.risks.items():
            show(f"    {full_text(like.metric, estimate)}  {run}")
        for gap in found.differences:
            if concerns(gap, like):
                show(f"    {in_points(gap.metric, gap)}  {gap.first} minus {gap.second}")
                show(f"      {safer(gap)}; {gap.shared:,} of {gap.records:,} records in common")
    if found.differences:
        console.print("\nThe intervals of all differences hold together, with 95 % confidence.")
    console.print()
    for line in found.notes:
        console.print(f"[yellow]![/yellow] {escape(line)}")


def epsilon(row: "ComparedRun") -> str:
    if row.epsilon is None:
        return ABSENT
    most = "" if row.allowed is None else f"; it allows a TPR of {row.allowed:.3g}"
    return f"{row.epsilon:.3g} ({row.unit}){most}"
