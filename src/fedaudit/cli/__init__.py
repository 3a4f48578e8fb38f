"""The command line."""

from fedaudit.cli.commands import app, main

__all__ = ["app", "main"]
