"""The commands that read existing files: a finished run, a claim, a file of scores."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.padding import Padding

from fedaudit.cli.options import AsJson, Set, as_json, printed_as_json, write_file
from fedaudit.cli.terminal import console, progress, say, say_scores, write_report
from fedaudit.errors import DEGRADED, FedauditError


def report(
    run_dir: Annotated[Path, typer.Argument(help="A folder written by `fedaudit run`, `study` or `advise`.")],
    redact: Annotated[
        bool, typer.Option("--redact", help="Leave out exposed records, names and paths: report-redacted.html.")
    ] = False,
) -> None:
    """Write report.html again from results.json. Needs no training and no torch.

    For a study, the report shows risk by factor and accuracy against risk, from its cells. For advice, advice.html is
    written from advice.json.
    """
    from fedaudit.report.values import redacted
    from fedaudit.results import document as results
    from fedaudit.trace.journal import unchecked

    if of_many := _of_many(run_dir):
        console.print(f"Report: {escape(str(of_many))}")
        return
    document = results.load(run_dir).noting(*unchecked(results.results_file(run_dir)))
    document, name = (redacted(document), results.REDACTED) if redact else (document, results.REPORT)
    written = write_report(document, run_dir if run_dir.is_dir() else run_dir.parent, name)
    say(document, written)
    if not written:
        raise typer.Exit(DEGRADED)


def _of_many(folder: Path) -> Path | None:
    """The page of a study or of an advice; None if the folder holds neither."""
    from fedaudit.report.pages import write_advice, write_study
    from fedaudit.results import advice, study

    if study.is_study(folder):
        return write_study(folder)
    return write_advice(advice.load(folder), folder) if (folder / advice.ADVICE).is_file() else None


def score(
    file: Annotated[Path, typer.Argument(help="CSV or parquet: member (0/1), score[, id, subject].")],
    fpr: Annotated[
        list[float] | None, typer.Option(help="False-positive rate; repeatable (default 0.001, 0.01).")
    ] = None,
    confidence: Annotated[float, typer.Option(help="Confidence of every interval.")] = 0.95,
    epsilon: Annotated[bool, typer.Option("--epsilon", help="Also compute four figures of empirical epsilon.")] = False,
    delta: Annotated[
        float | None, typer.Option(help="The delta of epsilon (default 1e-5).", show_default=False)
    ] = None,
    attack: Annotated[
        str | None, typer.Option(help="Which attack of a run's scores.parquet; needed where it holds several.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="Which models of a run's scores.parquet: global or local (default: global, if there)."),
    ] = None,
    out: AsJson = None,
) -> None:
    """The statistics alone, on scores of your own: AUC and TPR at fixed FPR, with intervals; epsilon on request.

    Half of the non-members (chosen by a hash of their id, so the order of rows does not matter) set the thresholds,
    the other half measure the realised FPR. Higher scores must mean "member".

    The scores.parquet of a run says itself who set thresholds and who was reported on: name an attack of it, and what
    comes out is what its results.json says.
    """
    from fedaudit.results.schema import plain
    from fedaudit.results.scores import estimate

    if delta is not None and not epsilon:
        raise FedauditError(
            "delta-alone", "--delta has no effect without --epsilon", "Add --epsilon, or remove --delta."
        )
    at = 1e-5 if epsilon and delta is None else delta
    found = estimate(file, tuple(fpr) if fpr else None, confidence, at, attack, model)
    if not printed_as_json(plain(found)):
        say_scores(found)
    write_file(out, as_json(plain(found)))


def verify(
    path: Annotated[Path, typer.Argument(help="A configuration, or a folder with a recorded run.")],
    claim: Annotated[
        Path | None, typer.Option(help="A TOML file with [claim]: what is claimed about somebody else's run.")
    ] = None,
    set_: Set = None,
    out: AsJson = None,
) -> None:
    """Is a claim of differential privacy kept? Ten checks without any attack, each PASS, FAIL or CANNOT TELL.

    Where it is known whose the records are, an eleventh says what one person is promised.
    A configuration is tried on a few records and trained for three rounds; a recorded run (audit.keep = "snapshots") is
    only read.
    Exit code 1 if a check fails, 3 if none does and one cannot tell.
    """
    from fedaudit.session.verify import verify as checked

    with progress("Checking the claim", 0):
        found = checked(path, claim, set_ or ())
    colours = {"PASS": "green", "FAIL": "bold red", "CANNOT TELL": "yellow"}
    for made in dict.fromkeys(check.claim for check in found):
        console.print(f"\n{escape(made)}")
        for check in (check for check in found if check.claim == made):
            colour = colours[check.outcome]
            console.print(f"\n{check.id} [{colour}]{check.outcome}[/{colour}] {escape(check.question)}")
            console.print(Padding(escape(check.evidence), (0, 0, 0, 4), expand=False))
    console.print()
    write_file(out, as_json({"schema": 1, "checks": [asdict(check) for check in found]}))
    outcomes = {check.outcome for check in found}
    raise typer.Exit(1 if "FAIL" in outcomes else 3 if "CANNOT TELL" in outcomes else 0)
