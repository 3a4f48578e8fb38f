"""`python -m fedaudit`, and the installed command.

The first second of a command goes into imports. Who presses Ctrl-C then is told that nothing was begun.
"""

import os
import signal
import sys
from types import FrameType

from fedaudit import STOPPED


def stop_at_once(_: int, __: FrameType | None) -> None:
    """Nothing is open yet, so that the process may end where it is: an import that is cut short raises anything."""
    sys.stderr.write(f"\n{STOPPED}\n")
    sys.stderr.flush()
    os._exit(130)


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop_at_once)
    from fedaudit.cli.commands import main as command

    command()


if __name__ == "__main__":
    main()
