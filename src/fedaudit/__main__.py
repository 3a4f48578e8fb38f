"""`python -m fedaudit`, and the installed command.

The first second of a command goes into imports. Who presses Ctrl-C then is told that nothing was begun.
"""

import signal

from fedaudit.errors import stop_at_once


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop_at_once)
    from fedaudit.cli.commands import main as command

    command()


if __name__ == "__main__":  # the processes of a study import this module, too
    main()
