"""Help in plain text: what stands in brackets stays, and it reads the same in a terminal and in a log."""

import inspect
from typing import Any, get_args, get_type_hints

import click
from typer.core import TyperCommand, TyperGroup
from typer.models import ArgumentInfo

from fedaudit.errors import FedauditError, suggest


class PlainGroup(TyperGroup):
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Says what is meant instead of an unknown command, once. Typer and some versions of click each add a hint."""
        name = args[0]
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            what = f"there is no command {name!r}"
            raise FedauditError("unknown-command", what, suggest(name, self.commands)) from None


class PlainCommand(TyperCommand):
    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Arguments and options, each with its help text. Typer puts a backslash before its own brackets, and with some
        versions of click it loses the help texts of arguments."""
        said = arguments_of(self.callback)
        for title, kind in (("Arguments", click.Argument), ("Options", click.Option)):
            rows = []
            for param in self.get_params(ctx):
                record = param.get_help_record(ctx) if isinstance(param, kind) else None
                if record:
                    about, text = said.get(str(param.name), ""), record[1].replace("\\[", "[")
                    rows.append((record[0], text if about in text else f"{about}  {text}"))
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def arguments_of(function: Any) -> dict[str, str]:
    """What the declaration of a command says about its arguments."""
    hints = get_type_hints(inspect.unwrap(function), include_extras=True)
    found = {name: note for name, hint in hints.items() for note in get_args(hint) if isinstance(note, ArgumentInfo)}
    return {name: note.help or "" for name, note in found.items()}
