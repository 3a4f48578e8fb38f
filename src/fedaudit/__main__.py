"""`python -m fedaudit`."""

from fedaudit.cli import main

main()
