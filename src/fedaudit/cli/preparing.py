"""The commands to use before an audit: list what there is, write a configuration, plan its size."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.padding import Padding

from fedaudit.cli.options import Set, printed_as_json
from fedaudit.cli.terminal import console, show_table
from fedaudit.errors import FedauditError


def list_(
    what: Annotated[str, typer.Argument(help="attacks, questions, data, defences or models")],
) -> None:
    """List what a configuration can name: attacks, questions, data, defences or models."""
    from fedaudit.cli.template import catalogue

    for name, lines in catalogue(what):
        console.print(f"[bold]{escape(name)}[/bold]")
        for line in lines:
            console.print(Padding(escape(line), (0, 0, 0, 4), expand=False))


def init(
    path: Annotated[Path, typer.Argument(help="The file to write.")] = Path("fedaudit.toml"),
) -> None:
    """Write a commented configuration: every key, what it means, and its default. Never overwrites a file."""
    from fedaudit.cli.template import write

    write(path)
    console.print(f"Written: {escape(str(path))}. Edit it, then run [bold]fedaudit run {escape(str(path))}[/bold]")


def selftest(
    config: Annotated[
        Path | None, typer.Argument(help="A TOML file: test with its attacks and its confidence, not the usual ones.")
    ] = None,
) -> None:
    """Is this installation sound? In about a minute, audits worlds whose truth is known.

    Where no candidate was trained on, whatever is found is a false alarm. A planted leak must be found. Of a Gaussian
    mechanism with a known epsilon, the proved bound must lie below it and the fitted interval around it, as often as
    they promise. The outcome is kept in your cache folder, and stands in the results and the report of every later run
    with the same versions and sources. Exit code 6 if the installation is not sound.
    """
    from fedaudit.cli.terminal import progress
    from fedaudit.config.schema import load_config
    from fedaudit.errors import FAULT
    from fedaudit.results.selftest import keep
    from fedaudit.session.selftest import selftest as tested

    outcome = tested(progress, load_config(config) if config else None)
    rows = [
        ("tested", "outcome", "should be"),
        ("nothing to find: false alarms", str(outcome.false_alarms), "few"),
        ("planted leaks found", str(outcome.found), "all"),
        ("Gaussian mechanism: proved bounds above its epsilon", str(outcome.bounds_above), "few"),
        ("Gaussian mechanism: fitted intervals around its epsilon", str(outcome.fits_around), "nearly all"),
    ]
    show_table(rows)
    console.print(f"Attacks: {escape(', '.join(outcome.attacks))}. {outcome.seconds:.0f} s.", highlight=False)
    if config and outcome.found.count < outcome.found.of:
        console.print("The attacks of this configuration are too weak to find every planted leak.")
    keep(outcome)
    if not outcome.sound:
        console.print(
            "This installation is NOT sound: do not trust its audits. Install the versions of constraints.txt in a new "
            "environment and try again; if it stays so, report it with `fedaudit --version`."
        )
        raise typer.Exit(FAULT)
    console.print("This installation is sound. Reports of later runs say so.")


def plan(
    config: Annotated[Path | None, typer.Argument(help="A TOML file: plan for the game that it describes.")] = None,
    members: Annotated[int | None, typer.Option(min=1, help="Records (or people) trained on, in all parties.")] = None,
    nonmembers: Annotated[
        int | None, typer.Option(min=1, help="Evaluation non-members: reported on, as in a configuration.")
    ] = None,
    calibration: Annotated[
        int | None, typer.Option(min=1, help="Calibration non-members: they set the thresholds.")
    ] = None,
    fpr: Annotated[
        list[float] | None, typer.Option(help="False-positive rate; repeatable (default 0.01, 0.001, 0.0001).")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds over which a curve is watched.")] = 1,
    parties: Annotated[int, typer.Option(min=1, help="Parties of equal size; local models have a threshold each.")] = 1,
    confidence: Annotated[float, typer.Option(help="Confidence of every interval.")] = 0.95,
    set_: Set = None,
) -> None:
    """Before training: what an audit of this size can show, and how many non-members it takes.

    A risk is visible when the lower end of its interval lies above what guessing gives (the FPR; 0.5 for an AUC). The
    tables show the smallest true risk that is visible four times in five, for Gaussian scores. Several records of one
    subject count for less than independent ones: where there are subjects, plan with the number of subjects. With
    CONFIG the data are read and all numbers are those of its game; attacks that are fitted on half of the calibration
    records have tables of their own. `gate`, and limits that stop a party, use guaranteed ends, which need more records
    than the interval of a report.
    """
    from fedaudit.cli.planning import expected_of, plan_of
    from fedaudit.cli.planning import plan as planned

    lines, foreseen = list[str](), list[str]()
    if config is not None:
        from fedaudit.config.schema import load_config
        from fedaudit.questions import every
        from fedaudit.session.prepare import build, defend, stage

        if members or nonmembers or calibration or fpr:
            what = "CONFIG says how many records there are, and at which rates"
            raise FedauditError("plan", what, "Leave out the numbers, or CONFIG.")
        staged = stage(load_config(config, set_ or ()))
        found, lines = plan_of(staged), expected_of(staged, build(staged))
        foreseen = [
            line
            for question in every().values()
            for line in question.foreseen(staged.ground, lambda: defend(staged, build(staged)))
        ]
    elif set_:
        raise FedauditError("plan", "--set changes a configuration, and none is given", "Give CONFIG.")
    elif members and nonmembers and calibration:
        found = planned(members, calibration, nonmembers, fpr, rounds, parties, confidence)
    else:
        given = {"members": members, "nonmembers": nonmembers, "calibration": calibration}
        missing = next(name for name, number_of in given.items() if not number_of)
        what = f"--{missing} is missing; --nonmembers are those that are reported on, no longer those that calibrate"
        if not (members or nonmembers or calibration):
            what = "nothing says how large the audit is to be"
        raise FedauditError("plan", what, "Give CONFIG, or --members, --nonmembers and --calibration.")
    tables = [{"title": title, "rows": [asdict(row) for row in rows]} for title, rows in found.tables]
    counts = [asdict(each) for each in found.counts]
    if printed_as_json({"schema": 1, "first": found.first, "counts": counts, "tables": tables, "expected": lines}):
        return
    console.print(escape(found.first), highlight=False)
    if found.counts:
        show_table(
            [("party", "trained on", "to report on", "to set thresholds"), *(each.cells() for each in found.counts)]
        )
    console.print(
        "\nFor each risk: calibration non-members needed for a value, for a lower end above 0, and for a limit to be "
        "crossed; and the smallest true risk that is visible four times in five:"
    )
    for title, rows in found.tables:
        console.print(f"\n{escape(title)}", end="")
        titles = ("risk", "value", "lower end", "limit", "smallest visible risk")
        show_table([titles, *(row.cells() for row in rows)])
    for line in (*lines, *foreseen):
        console.print(escape(line))
