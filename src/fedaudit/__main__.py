"""`python -m fedaudit`."""

from fedaudit.cli.commands import main

main()
