"""The command line. Heavy imports happen inside the commands: `--help` and `report` stay quick."""

import contextlib
import ctypes
import json
import os
import signal
import sys
import tempfile
import traceback
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from fedaudit import __version__
from fedaudit.cli.terminal import ABSENT, console, errors, number, progress, say, say_scores, write_report
from fedaudit.errors import DEGRADED, FAULT, FedauditError

if TYPE_CHECKING:
    from fedaudit.results.document import Document

app = typer.Typer(
    name="fedaudit",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="""What does your federation give away? fedaudit trains (or watches) a federation, attacks it the way a
participant or the server could, and says with honest error bars who can learn what about whom.

Start with [bold]fedaudit demo[/bold]: a real audit on real data in about two minutes.

Then write a configuration (see README) and [bold]fedaudit run my.toml[/bold]. Have scores of your own?
[bold]fedaudit score my.csv[/bold] gives the statistics alone.

Exit codes: 0 done, 1 a gate failed, 2 wrong use or input (found before training), 3 a gate is undecided, 4 part of the
audit is missing, 5 a stored file was refused, 6 a fault of fedaudit itself.""",
)

Out = Annotated[Path | None, typer.Option(help="Folder for results and report (default: runs/NAME).")]
Set = Annotated[
    list[str] | None, typer.Option("--set", help="Override one key: --set federation.rounds=10. Repeatable.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace whatever run the folder holds, and train anew.")]
AsJson = Annotated[
    Path | None,
    typer.Option(help="Write it as JSON, too, into a folder that exists.", callback=lambda path: _in_a_folder(path)),
]
EngineName = Annotated[
    str, typer.Option(help="Who trains: local (a plain loop) or flower-simulation (Flower and Ray).")
]
Repeats = Annotated[int, typer.Option(min=1, help="Train and audit again with the next K-1 seeds; shows the spread.")]


@app.command()
def demo(out: Out = None, set_: Set = None, force: Force = False) -> None:
    """Audit a small federation on real supermarket baskets: four parties, 40 rounds, client and server."""
    from fedaudit.config.schema import parse

    _run(parse({}, set_ or ()), out or Path("runs/demo"), 1, force)


@app.command()
def run(
    config: Annotated[Path, typer.Argument(help="A TOML file.")],
    out: Out = None,
    set_: Set = None,
    repeats: Repeats = 1,
    force: Force = False,
    engine: EngineName = "local",
) -> None:
    """Train the federation that CONFIG describes and audit it round by round.

    Results, scores and an offline HTML report are left in the output folder, and a record of every round. A run that
    was killed or interrupted goes on from its last complete round when the same command is given again; one that is
    finished is shown again without training.
    """
    from fedaudit.config.schema import load_config

    _run(load_config(config, set_ or ()), out or Path("runs") / config.stem, repeats, force, engine)


@app.command()
def audit(
    run_dir: Annotated[Path, typer.Argument(help="A folder left by `fedaudit run`, finished or not.")],
    attack: Annotated[
        list[str] | None, typer.Option(help="Attack by name; repeatable (default: those of the run).")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the results (default: RUN_DIR/audit).")] = None,
) -> None:
    """Attack a recorded federation again, without training: with its stored signals, or with its stored models.

    Signals are enough for every attack that reads them; other attacks need a run with audit.keep = "snapshots".
    """
    from fedaudit.config.schema import twice
    from fedaudit.session.replay import replay
    from fedaudit.trace.store import RUN

    out = out or run_dir / "audit"
    if (out / RUN).exists():
        what = f"{out} holds a run, and its results would be replaced"
        raise FedauditError("not-empty", what, "Choose another folder with --out.")
    if named := twice(attack or ()):
        raise FedauditError("bad-value", f"--attack {named} is given twice", "Give it once.")
    document = replay(run_dir, attack or [], out, progress)
    _finish(document, out)


@app.command(name="import")
def import_(
    directory: Annotated[Path, typer.Argument(help="Checkpoints, a file or a folder a round; or a recorded trace.")],
    out: Annotated[Path, typer.Option(help="Folder for the trace, results and report.")] = Path("runs/imported"),
    game: Annotated[
        Path | None, typer.Option(help="Who was trained on what: an npz with x, y, party, role[, id, subject].")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="A TOML file; its [model] and [audit] are used.")] = None,
    set_: Set = None,
    torch: Annotated[bool, typer.Option("--torch", help="Read .pt and .pth, too: as plain tensors, no code.")] = False,
    deltas: Annotated[bool, typer.Option("--deltas", help="The parties' files hold changes, not weights.")] = False,
) -> None:
    """Make a trace from checkpoints of a federation that was trained elsewhere, and audit it if the game is given.

    Without --game only the trace is made. Roles in the game: member (trained on), evaluation and calibration (never).
    """
    from fedaudit.config.schema import load_config, parse
    from fedaudit.integrations.importing import import_checkpoints

    settings = parse({}, set_ or ()) if config is None else load_config(config, set_ or ())
    document = import_checkpoints(directory, out, game=game, config=settings, torch=torch, deltas=deltas)
    if document is None:
        console.print(f"Trace: {escape(str(out))}")
        return
    _finish(document, out)


@app.command()
def report(run_dir: Annotated[Path, typer.Argument(help="A folder left by `fedaudit run`.")]) -> None:
    """Render report.html again from results.json. Needs no training and no torch."""
    from fedaudit.results import document as results

    document = results.load(run_dir)
    written = write_report(document, run_dir if run_dir.is_dir() else run_dir.parent)
    say(document, written)
    if not written:
        raise typer.Exit(DEGRADED)


@app.command(name="list")
def list_(what: Annotated[str, typer.Argument(help="attacks, data, defences or models")]) -> None:
    """What can be named in a configuration: attacks, data, defences or models."""
    from fedaudit.cli.catalogue import catalogue

    found = catalogue(what)
    table = Table("name", "what it is", *["keys"] * any(keys for _, _, keys in found), box=None)
    for name, *words in found:
        table.add_row(f"[bold]{escape(name)}[/bold]", *map(escape, words[: len(table.columns) - 1]))
    console.print(table)


@app.command()
def score(
    file: Annotated[Path, typer.Argument(help="CSV or parquet: id, member (0/1), score[, subject].")],
    fpr: Annotated[
        list[float] | None, typer.Option(help="False-positive rate; repeatable (default 0.001, 0.01).")
    ] = None,
    confidence: Annotated[float, typer.Option(help="Of every interval.")] = 0.95,
    epsilon: Annotated[bool, typer.Option("--epsilon", help="Add the four figures of an empirical epsilon.")] = False,
    delta: Annotated[
        float | None, typer.Option(help="At which delta epsilon is asked for (default 1e-5).", show_default=False)
    ] = None,
    attack: Annotated[
        str | None, typer.Option(help="Whose scores, in a run's scores.parquet: those of the global model.")
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
        raise FedauditError("delta-alone", "--delta says at which delta epsilon is asked for", "Add --epsilon.")
    at = 1e-5 if epsilon and delta is None else delta
    found = estimate(file, tuple(fpr) if fpr else None, confidence, at, attack)
    say_scores(found)
    _write_json(out, plain(found))


@app.command()
def init(
    path: Annotated[Path, typer.Argument(help="Where to write it.")] = Path("fedaudit.toml"),
) -> None:
    """Write a commented configuration: every key, what it means, and its default. Never overwrites a file."""
    from fedaudit.cli.template import write

    write(path)
    console.print(
        f"Written: {escape(str(path))}. Change what you like, then [bold]fedaudit run {escape(str(path))}[/bold]"
    )


@app.command()
def gate(
    run_dir: Annotated[Path, typer.Argument(help="A folder left by `fedaudit run`.")],
    fail_if: Annotated[
        list[str], typer.Option(help='What must not be: "tpr@0.01 > 0.05". Repeatable.', show_default=False)
    ],
) -> None:
    """Hold a finished run to its limits: for use in scripts and pipelines.

    A rule is violated when the lower end of an interval is above the limit, safe when the upper end is below it, and
    otherwise undecided. By default it looks at the primary attack of every vantage, pooled over the parties;
    "tpr@0.01[attack=loss, vantage=client, party=*] > 0.05" looks elsewhere, * being every one. Several results share
    the error of their lower ends. Nothing is safe where the audit says that it understates the risk (people or twins on
    both sides, a part that is missing), and nothing is violated where a blind guess without any model beats chance.

    Exit codes: 0 safe, 1 violated, 2 wrong use, 3 undecided, 5 a stored file was refused.
    """
    from fedaudit.results.gate import judge, parse_rule

    found = judge(run_dir, [parse_rule(text) for text in fail_if])
    table = Table("must not be", "attack", "seen by", "party", "value", "interval", "verdict", box=SIMPLE_HEAD)
    for f in found.findings:
        rule, who = f"{f.rule.metric} > {f.rule.limit:g}", f"{f.vantage}, {f.model}"
        interval = f"{number(f.low)} to {number(f.high)}"
        cells = (rule, f.attack, who, f.party or "all", number(f.value), interval, f.verdict.value)
        table.add_row(*(escape(cell) for cell in cells))
    console.print(table)
    for note in dict.fromkeys(f"{f.attack}, {f.party or 'all'}: {f.note}" for f in found.findings if f.note):
        console.print(f"[yellow]![/yellow] {escape(note)}")
    if found.primary:
        quoted = ", ".join(f"{attack} ({vantage})" for vantage, attack in found.primary.items())
        console.print(escape(f"Looked at the primary attack of each vantage: {quoted}."))
    if found.looked_at > 1:
        console.print(f"Lower ends above a limit are corrected for {found.looked_at} results looked at (Bonferroni).")
    console.print(
        {0: "[green]safe[/green]", 1: "[red]violated[/red]"}.get(found.exit_code, "[yellow]undecided[/yellow]")
    )
    raise typer.Exit(found.exit_code)


@app.command()
def plan(
    config: Annotated[Path | None, typer.Argument(help="A TOML file: plan for the game that it describes.")] = None,
    members: Annotated[int | None, typer.Option(min=1, help="Records (or people) trained on, in all parties.")] = None,
    nonmembers: Annotated[
        int | None, typer.Option(min=1, help="Evaluation non-members: reported on, as in a configuration.")
    ] = None,
    calibration: Annotated[
        int | None, typer.Option(min=1, help="Calibration non-members: they set the thresholds.")
    ] = None,
    set_: Set = None,
    fpr: Annotated[
        list[float] | None, typer.Option(help="False-positive rate; repeatable (default 0.01, 0.001, 0.0001).")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds over which a curve is watched.")] = 1,
    parties: Annotated[int, typer.Option(min=1, help="Parties of equal size; local models have a threshold each.")] = 1,
    confidence: Annotated[float, typer.Option(help="Of every interval.")] = 0.95,
) -> None:
    """Before training: what an audit of this size can show, and how many non-members it takes.

    A risk is visible when the lower end of its interval lies above what guessing gives (the FPR; 0.5 for an AUC). Shown
    is the smallest true risk that is visible four times in five, for Gaussian scores. Records of one subject count less
    than one each: where there are subjects, plan with their number. With CONFIG the data are read and all numbers are
    those of its game; attacks that are fitted on half of the calibration records have tables of their own.
    """
    from fedaudit.cli.planning import plan as planned
    from fedaudit.cli.planning import plan_of

    if config is not None:
        from fedaudit.config.schema import load_config
        from fedaudit.session.prepare import stage

        if members or nonmembers or calibration or fpr:
            what = "CONFIG says how many records there are, and at which rates"
            raise FedauditError("plan", what, "Leave out the numbers, or CONFIG.")
        tables = plan_of(stage(load_config(config, set_ or ())))
    elif members and nonmembers and calibration:
        tables = planned(members, calibration, nonmembers, fpr, rounds, parties, confidence)
    else:
        given = {"members": members, "nonmembers": nonmembers, "calibration": calibration}
        missing = next(name for name, number_of in given.items() if not number_of)
        what = f"--{missing} is missing; --nonmembers are those that are reported on, no longer those that calibrate"
        raise FedauditError("plan", what, "Give CONFIG, or --members, --nonmembers and --calibration.")
    for title, rows in tables:
        titles = ("risk", "needed for a value", "for a lower end", "smallest visible risk")
        table = Table(*titles, box=SIMPLE_HEAD, title=escape(title), title_justify="left")
        for row in rows:
            table.add_row(*row)
        console.print(table)


@app.command()
def verify(
    path: Annotated[Path, typer.Argument(help="A configuration, or a folder with a recorded run.")],
    claim: Annotated[Path | None, typer.Option(help="TOML with [claim]: what is said about a run of others.")] = None,
    set_: Set = None,
    out: AsJson = None,
) -> None:
    """Is a claim of differential privacy kept? Ten checks without any attack, each PASS, FAIL or CANNOT TELL.

    A configuration is probed and trained for three rounds; a recorded run (audit.keep = "snapshots") is read.
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


@app.command()
def compare(
    runs: Annotated[list[Path], typer.Argument(help="Folders left by `fedaudit run`.")],
    out: AsJson = None,
) -> None:
    """Utility against risk of several runs, with the epsilon each claims. A star: no other run is better in both."""
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
    for line in found.notes:
        console.print(f"[yellow]![/yellow] {escape(line)}")
    _write_json(out, plain(found))


@app.command()
def version() -> None:
    """The version of fedaudit."""
    console.print(__version__)


# ------------------------------------------------------------------ what the commands share


def _run(config: Any, out: Path, repeats: int, force: bool, engine: str = "local") -> None:
    from functools import partial

    from fedaudit.results.document import save
    from fedaudit.session.engines import engine_named
    from fedaudit.session.run import run

    trains = engine_named(engine)
    run_audit = partial(
        run, progress=progress, force=force, tell=lambda line: errors.print(escape(line)), engine=trains
    )
    document = run_audit(config, out)
    if repeats > 1:
        document = _repeat(document, config, out, repeats, run_audit)
        save(document, out)
    _finish(document, out)


REPEAT = "Repeat with seed "


def _repeat(document: "Document", config: Any, out: Path, repeats: int, run_audit: Any) -> "Document":
    """Train again with the next seeds. A run that was cut short ends the series and is no part of the spread."""
    from fedaudit.results.document import Repeat

    found, missing = [Repeat(config.federation.seed, document.headlines)], []
    status = document.run.status
    for seed in range(config.federation.seed + 1, config.federation.seed + repeats):
        if status != "complete":
            missing.append(f"{REPEAT}{seed}: not trained.")
            continue
        federation = config.federation.model_copy(update={"seed": seed})
        try:
            again = run_audit(config.model_copy(update={"federation": federation}), out / f"seed-{seed}")
        except KeyboardInterrupt:
            status = "interrupted before it had results"
        else:
            status = again.run.status
            missing += [f"{REPEAT}{seed}: {what}" for what in again.degraded]
        if status == "complete":
            found.append(Repeat(seed, again.headlines))
        else:
            missing.append(f"{REPEAT}{seed}: {status}, left out of the spread. The same command goes on from there.")
    # A finished run still says what was missing the last time.
    warnings, degraded = (
        [*(line for line in lines if not line.startswith(REPEAT)), *missing]
        for lines in (document.warnings, document.degraded)
    )
    return replace(document, run=replace(document.run, repeats=found), warnings=warnings, degraded=degraded)


def _finish(document: "Document", out: Path) -> None:
    """Show the results; an audit of which a part is missing, be it the report, ends with exit code 4."""
    written = write_report(document, out)
    say(document, written)
    if not written or not document.complete:
        raise typer.Exit(DEGRADED)


def _in_a_folder(path: Path | None) -> Path | None:
    """Said before the work: where `--out` is a file, its folder is the user's to make; a run's folder is ours."""
    if path and not path.parent.is_dir():
        raise FedauditError("unwritable", f"there is no folder {path.parent} for {path.name}", "Name another place.")
    return path


def _write_json(path: Path | None, document: dict[str, Any]) -> None:
    from fedaudit.files import write_atomically

    try:
        if path:
            write_atomically(path, json.dumps(document, indent=1, allow_nan=False) + "\n")
    except OSError as error:
        raise FedauditError("unwritable", f"cannot write {path}: {error.strerror}", "Name another place.") from None


def tune_process() -> None:
    """For this process only, and before torch is loaded: waiting threads must not burn the cores that others need,
    and freed memory is kept, which makes training of small models about twice as fast on Linux."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            libc = ctypes.CDLL("libc.so.6")
            libc.mallopt(-4, 0)  # M_MMAP_MAX
            libc.mallopt(-1, 2**30)  # M_TRIM_THRESHOLD


def main() -> None:
    tune_process()
    sys.path.insert(0, "")  # a user's own model is found beside where the command is run
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ended politely: the same as Ctrl-C
    try:
        app()
    except FedauditError as error:
        errors.print(f"[bold red]Error[/bold red] {escape(str(error))}")
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        errors.print("\nStopped before there was anything to report.")
        sys.exit(130)
    except Exception as error:
        errors.print(f"[bold red]Error[/bold red] {escape(_fault(error))}")
        sys.exit(FAULT)


def _fault(error: Exception) -> str:
    """Only the kind of an unforeseen error: its words may quote records. All of it goes to a file, for a bug report."""
    what = f"[fault] {type(error).__name__}: a fault of fedaudit itself, or of code that it was given"
    try:
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", prefix="fedaudit-", suffix=".txt", delete=False
        ) as file:
            traceback.print_exception(error, file=file)
    except OSError as unwritten:
        return f"{what}. Where it happened could not be written down: {unwritten.strerror}."
    return f"{what}. Where it happened is in {file.name}; read it before you pass it on, it may quote your data."
