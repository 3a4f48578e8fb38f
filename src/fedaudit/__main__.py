"""`python -m fedaudit`."""

from fedaudit.cli.commands import main

if __name__ == "__main__":  # the processes of a study import this module, too
    main()
