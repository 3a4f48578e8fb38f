"""The command line. Heavy imports happen inside the commands: `--help` and `report` stay quick."""

import errno
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from typing import Annotated, NoReturn

import typer
from rich.markup import escape

from fedaudit import __version__
from fedaudit.cli import auditing, judging, preparing, serving, watching
from fedaudit.cli.options import JsonCommand, PlainCommand, PlainGroup
from fedaudit.cli.terminal import UNREAD, console, errors, flush, is_unread, unwritten
from fedaudit.errors import FAULT, INTERRUPTED, FedauditError, not_installed, out_of_memory, stop_at_once
from fedaudit.learn import tune_process

app = typer.Typer(
    name="fedaudit",
    cls=PlainGroup,
    no_args_is_help=True,
    rich_markup_mode=None,  # plain text: markup would eat what stands in brackets, and boxes do not fit into logs
    pretty_exceptions_enable=False,
    help="""What does your federation give away? fedaudit trains (or watches) a federation, attacks it the way a
participant or the server could, and says with honest error bars who can learn what about whom.

Start with fedaudit demo: a real audit on real data in about two minutes.

Then write a configuration (docs/commands.md) and fedaudit run my.toml. Have scores of your own?
fedaudit score my.csv gives the statistics alone.

Exit codes: 0 done, 1 a gate failed, 2 wrong use or input, found before training (also: the folder holds a run of
another configuration), 3 a gate is undecided, 4 part of the audit is missing, 5 a stored file was refused (damaged,
changed, unsafe or newer), 6 a fault of fedaudit itself, 130 stopped before there was anything to report, 141 nobody
read the output to its end.""",
)


def _version(asked: bool) -> None:
    if asked:
        console.print(f"fedaudit {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def everywhere(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version, and stop.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Options of all commands."""


def version() -> None:
    """Print the version number alone, as a script wants it."""
    console.print(__version__, highlight=False)


# In the order in which `--help` names them, with what it says: short enough for a line of 80 columns.
COMMANDS: dict[str, tuple[Callable[..., None], str]] = {
    "demo": (auditing.demo, "Audit a small federation on real supermarket baskets."),
    "run": (auditing.run, "Train a federation and audit it round by round."),
    "audit": (auditing.audit, "Attack a recorded federation again, without training."),
    "import": (auditing.import_, "Audit a federation that was trained elsewhere."),
    "guard": (auditing.guard, "Start a Flower node that sends nothing unaudited."),
    "watch": (watching.watch, "Follow a run that goes on, in the terminal."),
    "report": (judging.report, "Write report.html again from results.json."),
    "serve": (serving.serve, "Runs in a browser, up to date while they train."),
    "evidence": (judging.evidence, "A pack that answers what regulators ask for."),
    "table": (judging.table, "Attacks and runs in one table, with means over seeds."),
    "list": (preparing.list_, "List attacks, questions, data, defences, models."),
    "score": (judging.score, "The statistics alone, on scores of your own."),
    "init": (preparing.init, "Write a configuration with every key explained."),
    "gate": (judging.gate, "Check a finished run against limits."),
    "plan": (preparing.plan, "Before training: what an audit of this size can show."),
    "hand-over": (judging.hand_over, "At a site: scores without names for the consortium."),
    "merge": (judging.merge, "One verdict from what several sites handed over."),
    "look": (judging.look, "What two checkpoints say by themselves."),
    "verify": (judging.verify, "Is a claim of differential privacy kept?"),
    "compare": (judging.compare, "Compare several runs."),
    "study": (auditing.study, "Audit every combination of a grid of settings."),
    "advise": (auditing.advise, "What to change to stay below a limit, and its price."),
    "selftest": (preparing.selftest, "Is this installation sound? Takes about a minute."),
    "version": (version, "Print the version number."),
}
KINDS = dict.fromkeys(("score", "gate", "plan", "compare"), JsonCommand)
for name, (command, about) in COMMANDS.items():
    app.command(name=name, cls=KINDS.get(name, PlainCommand), short_help=about)(command)


def main() -> None:
    """Where nobody reads the output any more, it ends without a word."""
    try:
        for number in (signal.SIGINT, signal.SIGTERM):  # SIGTERM is treated like Ctrl-C
            signal.signal(number, signal.default_int_handler)
        tune_process()
        try:
            app()
        finally:
            flush()
    except KeyboardInterrupt:
        stop_at_once()
    except SystemExit as end:
        if end.code == INTERRUPTED:  # how typer ends after Ctrl-C, without a word
            stop_at_once()
        broken = end.__context__
        if isinstance(broken, BrokenPipeError) and end.code != UNREAD:  # typer ends with 1, whatever pipe it was
            if is_unread():
                sys.exit(UNREAD)
            _report(broken)
        raise
    except Exception as error:
        _report(error)


def _report(error: Exception) -> NoReturn:
    known = _known(error)
    errors.print(f"[bold red]Error[/bold red] {escape(str(known) if known else _fault(error))}")
    sys.exit(known.exit_code if known else FAULT)


# What the system refuses because of a file's name or permissions; fedaudit cannot do anything about it.
OF_FILES = (errno.ENAMETOOLONG, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ELOOP)


def _known(error: Exception) -> FedauditError | None:
    """What is said of an error that is no fault of fedaudit."""
    if isinstance(error, FedauditError):
        return error
    if out_of_memory(error):
        what = "there is not enough memory for this"
        return FedauditError("memory", what, "Give fewer records, parties or attacks, or a larger machine.")
    if isinstance(error, ModuleNotFoundError):
        return not_installed(error.name or "")
    if not isinstance(error, OSError):
        return None
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return unwritten(error)
    if error.errno not in OF_FILES or not isinstance(error.filename, str):
        return None
    name = error.filename if len(error.filename) <= 80 else f"{error.filename[:60]}… ({len(error.filename)} characters)"
    return FedauditError("file", f"{name}: {error.strerror}", "Give another file or folder.")


def _fault(error: Exception) -> str:
    """The type of an unexpected error, without its message, which may quote records. All of it goes to a file."""
    what = f"[fault] {type(error).__name__}: a bug in fedaudit, or an error in your own model or code"
    try:
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", prefix="fedaudit-", suffix=".txt", delete=False
        ) as file:
            traceback.print_exception(error, file=file)
    except OSError as unwritten:
        return f"{what}. The traceback could not be saved: {unwritten.strerror}."
    return f"{what}. The traceback is in {file.name}. Read it before you pass it on: it may quote your data."
