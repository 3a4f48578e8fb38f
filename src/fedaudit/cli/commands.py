"""The command line. Heavy imports happen inside the commands: `--help` and `report` stay quick."""

import contextlib
import ctypes
import errno
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable

import typer
from rich.markup import escape

from fedaudit import __version__
from fedaudit.cli import auditing, judging, preparing
from fedaudit.cli.terminal import console, errors
from fedaudit.errors import FAULT, FedauditError

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


def version() -> None:
    """The version of fedaudit."""
    console.print(__version__)


# In the order in which `--help` names them.
COMMANDS: dict[str, Callable[..., None]] = {
    "demo": auditing.demo,
    "run": auditing.run,
    "audit": auditing.audit,
    "import": auditing.import_,
    "report": judging.report,
    "list": preparing.list_,
    "score": judging.score,
    "init": preparing.init,
    "gate": judging.gate,
    "plan": preparing.plan,
    "verify": judging.verify,
    "compare": judging.compare,
    "version": version,
}
for name, command in COMMANDS.items():
    app.command(name=name)(command)


def tune_process() -> None:
    """Settings for this process, made before torch is loaded. Waiting threads do not use the processor, and freed
    memory is kept, which makes training of small models about twice as fast on Linux."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            libc = ctypes.CDLL("libc.so.6")
            libc.mallopt(-4, 0)  # M_MMAP_MAX
            libc.mallopt(-1, 2**30)  # M_TRIM_THRESHOLD


def main() -> None:
    tune_process()
    sys.path.insert(0, "")  # so that a user's own model is found in the current folder
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # SIGTERM is treated like Ctrl-C
    try:
        app()
    except FedauditError as error:
        errors.print(f"[bold red]Error[/bold red] {escape(str(error))}")
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        errors.print("\nStopped before there was anything to report.")
        sys.exit(130)
    except OSError as error:
        if (refused := _refused_by_the_system(error)) is None:
            errors.print(f"[bold red]Error[/bold red] {escape(_fault(error))}")
            sys.exit(FAULT)
        errors.print(f"[bold red]Error[/bold red] {escape(str(refused))}")
        sys.exit(refused.exit_code)
    except Exception as error:
        errors.print(f"[bold red]Error[/bold red] {escape(_fault(error))}")
        sys.exit(FAULT)


# What the system refuses because of the name or the rights of a file, and nothing that fedaudit could do about it.
OF_FILES = (errno.ENAMETOOLONG, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ELOOP)


def _refused_by_the_system(error: OSError) -> FedauditError | None:
    if error.errno not in OF_FILES or not isinstance(error.filename, str):
        return None
    name = error.filename if len(error.filename) <= 80 else f"{error.filename[:60]}… ({len(error.filename)} characters)"
    return FedauditError("file", f"{name}: {error.strerror}", "Give another file or folder.")


def _fault(error: Exception) -> str:
    """The type of an unexpected error, without its message, which may quote records. A file gets all of it."""
    what = f"[fault] {type(error).__name__}: a bug in fedaudit, or an error in your own model or code"
    try:
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", prefix="fedaudit-", suffix=".txt", delete=False
        ) as file:
            traceback.print_exception(error, file=file)
    except OSError as unwritten:
        return f"{what}. The traceback could not be saved: {unwritten.strerror}."
    return f"{what}. The traceback is in {file.name}. Read it before you pass it on: it may quote your data."
