"""The commands that read existing files: a finished run, a claim, a file of scores."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from fedaudit.cli.options import Set
from fedaudit.cli.terminal import ABSENT, console, number, say, say_scores, write_report
from fedaudit.errors import DEGRADED, FedauditError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedaudit.results.differences import Difference

AsJson = Annotated[
    Path | None,
    typer.Option(help="Also write the result to this JSON file.", callback=lambda path: _in_a_folder(path)),
]


def report(
    run_dir: Annotated[Path, typer.Argument(help="A folder written by `fedaudit run`.")],
    redact: Annotated[
        bool, typer.Option("--redact", help="Without exposed records, names and paths: report-redacted.html.")
    ] = False,
) -> None:
    """Write report.html again from results.json. Needs no training and no torch."""
    from fedaudit.report.redact import redacted
    from fedaudit.results import document as results
    from fedaudit.trace.checksums import unchecked

    document, told = results.load(run_dir), unchecked(results.results_file(run_dir))
    document = replace(document, notices=[*document.notices, *([told] if told else [])])
    document, name = (redacted(document), results.REDACTED) if redact else (document, results.REPORT)
    written = write_report(document, run_dir if run_dir.is_dir() else run_dir.parent, name)
    say(document, written)
    if not written:
        raise typer.Exit(DEGRADED)


def score(
    file: Annotated[Path, typer.Argument(help="CSV or parquet: id, member (0/1), score[, subject].")],
    fpr: Annotated[
        list[float] | None, typer.Option(help="False-positive rate; repeatable (default 0.001, 0.01).")
    ] = None,
    confidence: Annotated[float, typer.Option(help="Confidence of every interval.")] = 0.95,
    epsilon: Annotated[bool, typer.Option("--epsilon", help="Also compute four figures of empirical epsilon.")] = False,
    delta: Annotated[
        float | None, typer.Option(help="The delta of epsilon (default 1e-5).", show_default=False)
    ] = None,
    attack: Annotated[
        str | None,
        typer.Option(help="Which attack of a run's scores.parquet; its scores on the global model are used."),
    ] = None,
    out: AsJson = None,
) -> None:
    """The statistics alone, on scores of your own: AUC and TPR at fixed FPR, with intervals; epsilon on request.

    Half of the non-members (chosen by a hash of their id, so the order of rows does not matter) set the thresholds,
    the other half measure the realised FPR. Higher scores must mean "member".
    """
    from fedaudit.results.plain import plain
    from fedaudit.results.score_file import estimate

    if delta is not None and not epsilon:
        raise FedauditError(
            "delta-alone", "--delta has no effect without --epsilon", "Add --epsilon, or remove --delta."
        )
    at = 1e-5 if epsilon and delta is None else delta
    found = estimate(file, tuple(fpr) if fpr else None, confidence, at, attack)
    say_scores(found)
    _write_json(out, plain(found))


def gate(
    run_dir: Annotated[Path, typer.Argument(help="A folder written by `fedaudit run`.")],
    fail_if: Annotated[
        list[str],
        typer.Option(help='What is not allowed, for example "tpr@0.01 > 0.05". Repeatable.', show_default=False),
    ],
) -> None:
    """Check a finished run against limits, for use in scripts and pipelines.

    A rule is violated when the lower end of an interval is above the limit, safe when the upper end is below it, and
    otherwise undecided. By default it looks at the primary attack of every vantage, pooled over the parties;
    "tpr@0.01[attack=loss, vantage=client, party=*] > 0.05" selects other results; * means all of them. Several results
    share the error of their lower ends. No run is safe whose audit understates the risk (people or twins on both sides,
    a part that is missing), and none is violated if a blind guess without any model beats chance.

    Exit codes: 0 safe, 1 violated, 2 wrong use, 3 undecided, 5 a stored file was refused.
    """
    from fedaudit.results.document import results_file
    from fedaudit.results.gate import judge, parse_rule
    from fedaudit.trace.checksums import unchecked

    found = judge(run_dir, [parse_rule(text) for text in fail_if])
    table = Table("not allowed", "attack", "seen by", "party", "value", "interval", "verdict", box=SIMPLE_HEAD)
    for f in found.findings:
        rule, who = f"{f.rule.metric} > {f.rule.limit:g}", f"{f.vantage}, {f.model}"
        interval = f"{number(f.low)} to {number(f.high)}"
        cells = (rule, f.attack, who, f.party or "all", number(f.value), interval, f.verdict.value)
        table.add_row(*(escape(cell) for cell in cells))
    console.print(table)
    if found.primary:
        quoted = ", ".join(f"{attack} ({vantage})" for vantage, attack in found.primary.items())
        console.print(escape(f"Looked at the primary attack of each vantage: {quoted}."))
    for note in dict.fromkeys(f"{f.attack}, {f.party or 'all'}: {f.note}" for f in found.findings if f.note):
        console.print(f"[yellow]![/yellow] {escape(note)}")
    if told := unchecked(results_file(run_dir)):
        console.print(f"[yellow]![/yellow] {escape(told)}")
    if found.looked_at > 1:
        console.print(f"Lower ends above a limit are corrected for the {found.looked_at} results checked (Bonferroni).")
    console.print(
        {0: "[green]safe[/green]", 1: "[red]violated[/red]"}.get(found.exit_code, "[yellow]undecided[/yellow]")
    )
    raise typer.Exit(found.exit_code)


def verify(
    path: Annotated[Path, typer.Argument(help="A configuration, or a folder with a recorded run.")],
    claim: Annotated[
        Path | None, typer.Option(help="A TOML file with [claim]: what is claimed about a run of somebody else.")
    ] = None,
    set_: Set = None,
    out: AsJson = None,
) -> None:
    """Is a claim of differential privacy kept? Ten checks without any attack, each PASS, FAIL or CANNOT TELL.

    A configuration is tried on a few records and trained for three rounds; a recorded run (audit.keep = "snapshots") is
    only read.
    Exit code 1 if a check fails, 3 if none does and one cannot tell.
    """
    from fedaudit.session.verify import verify as checked

    found = checked(path, claim, set_ or ())
    colours = {"PASS": "green", "FAIL": "bold red", "CANNOT TELL": "yellow"}
    for made in dict.fromkeys(check.claim for check in found):
        table = Table("", "question", "", "evidence", box=SIMPLE_HEAD, pad_edge=False, title=made, title_justify="left")
        for check in (check for check in found if check.claim == made):
            colour = colours[check.outcome]
            table.add_row(check.id, check.question, f"[{colour}]{check.outcome}[/{colour}]", escape(check.evidence))
        console.print(table)
    _write_json(out, {"schema": 1, "checks": [asdict(check) for check in found]})
    outcomes = {check.outcome for check in found}
    raise typer.Exit(1 if "FAIL" in outcomes else 3 if "CANNOT TELL" in outcomes else 0)


def compare(
    runs: Annotated[list[Path], typer.Argument(help="Folders written by `fedaudit run`.")],
    out: AsJson = None,
) -> None:
    """Compare the accuracy and risk of several runs, and the epsilon each claims. A star: no other run is better in
    both."""
    from fedaudit.results.compare import compare as compared
    from fedaudit.results.plain import plain

    found = compared(runs)
    table = Table(
        "", "run", "defences", "accuracy", "risk: TPR at 1 % FPR", "of", "epsilon", "it allows", box=SIMPLE_HEAD
    )
    for row in found.rows:
        accuracy, risk = (span.text() if span else ABSENT for span in (row.accuracy, row.risk))
        epsilon = ABSENT if row.epsilon is None else f"{row.epsilon:.3g} ({row.unit})"
        most = ABSENT if row.allowed is None else f"{row.allowed:.3g}"
        cells = ("*" if row.best else "", row.run, row.defences, accuracy, risk, row.whose, epsilon, most)
        table.add_row(*(escape(cell) for cell in cells))
    console.print(table)
    if found.differences:
        console.print(_differences(found.differences))
    for line in found.notes:
        console.print(f"[yellow]![/yellow] {escape(line)}")
    _write_json(out, plain(found))


def _differences(found: "Sequence[Difference]") -> Table:
    title = "Risk minus risk on the same records (percentage points; 95 % for all differences together)"
    table = Table("risk of", "minus that of", "seen by", "difference", "safer", box=SIMPLE_HEAD, title=title)
    for gap in found:
        interval = f"{100 * gap.value:+.1f} ({100 * gap.low:+.1f} to {100 * gap.high:+.1f})"
        cells = (gap.first, gap.second, gap.vantage, interval, gap.safer or "not settled")
        table.add_row(*(escape(cell) for cell in cells))
    return table


def _in_a_folder(path: Path | None) -> Path | None:
    """Checked before the work begins: the folder of a JSON file must exist."""
    if path and not path.parent.is_dir():
        raise FedauditError(
            "unwritable", f"there is no folder {path.parent} for {path.name}", "Create it, or give another --out."
        )
    return path


def _write_json(path: Path | None, document: dict[str, Any]) -> None:
    from fedaudit.files import write_atomically

    try:
        if path:
            write_atomically(path, json.dumps(document, indent=1, allow_nan=False) + "\n")
    except OSError as error:
        raise FedauditError("unwritable", f"cannot write {path}: {error.strerror}", "Give another --out.") from None
