"""The command line in this process, with what a script gets: exit code, standard output, standard error.

A process of one's own takes seconds to import. Tests start one where it is the point: signals, imports, the installed
command, what no terminal at all means.
"""

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
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


IN_TURN = """
import gc, json, sys
from pathlib import Path
from tests.command import fedaudit
for command in json.loads(sys.argv[1]):
    done = fedaudit(*command, cwd=Path.cwd(), columns=250)
    print(json.dumps([done.returncode, done.stdout, done.stderr]))
gc.freeze()
"""


def with_packages(place: Path | None, *commands: Sequence[str], cwd: Path) -> list[CompletedProcess[str]]:
    """The commands, one after the other in a process that finds the packages of a folder before all others."""
    places = [str(place or ""), str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, places)), "PYTHONSAFEPATH": "1"}
    program = [sys.executable, "-c", IN_TURN, json.dumps(commands)]
    done = subprocess.run(program, cwd=cwd, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return [CompletedProcess(["fedaudit", *each], *line) for each, line in zip(commands, lines, strict=True)]
