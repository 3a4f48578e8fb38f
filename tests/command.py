"""The command line in this process, with what a script gets: exit code, standard output, standard error.

A process of one's own takes seconds to import. Tests start one where it is the point: signals, imports, the installed
command, what no terminal at all means.
"""

import io
import signal
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from fedaudit.cli import terminal
from fedaudit.cli.commands import main
from fedaudit.config import code


def fedaudit(*arguments: str, cwd: Path, columns: int = 200) -> CompletedProcess[str]:
    """Code beside a configuration is imported anew by every command, as in a process of its own."""
    out, err = io.StringIO(), io.StringIO()
    ended: object = None
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    modules = set(sys.modules)
    with chdir(cwd), redirect_stdout(out), redirect_stderr(err), pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(columns))
        for console in (terminal.console, terminal.errors):  # which looked at the environment when they were made
            patch.setattr(console, "_width", columns)
        patch.setattr(sys, "argv", ["fedaudit", *arguments])
        patch.setattr(code, "_folders", [])
        try:
            main()
        except SystemExit as end:
            ended = end.code
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            for name in set(sys.modules) - modules:
                if Path(cwd).resolve() in Path(getattr(sys.modules[name], "__file__", None) or "/").resolve().parents:
                    del sys.modules[name]
    assert ended is None or isinstance(ended, int), ended
    return CompletedProcess(["fedaudit", *arguments], ended or 0, out.getvalue(), err.getvalue())
