"""`python -m fedaudit`, and the installed command.

The current folder is left out of the places to import from, before anything else is imported: it may be one that
somebody sent. The first second of a command goes into imports. Whoever presses Ctrl-C in
that second is told that nothing had started.
"""

import atexit
import gc
import os
import sys


def leave_out_current_folder() -> None:
    """`python -m` puts it first, and an empty part of PYTHONPATH means it, too. One that is named there stays."""
    here, named = os.getcwd(), os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if sys.path and sys.path[0] in ("", here):
        del sys.path[0]
    if "" in named and here not in named:
        sys.path[:] = [place for place in sys.path if place != here]
    sys.path[:] = [place for place in sys.path if place]


def main() -> None:
    atexit.register(gc.freeze)  # or Python ends with a second's search for cycles among all that was imported
    leave_out_current_folder()
    import signal

    from fedaudit.errors import stop_at_once

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop_at_once)
    from fedaudit.cli.commands import main as command

    command()


if __name__ == "__main__":  # the processes of a study import this module, too
    main()
