"""Options that several commands have, and help in plain text, in which what stands in brackets stays."""

import inspect
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import click
import typer
from typer.core import TyperCommand, TyperGroup
from typer.models import ArgumentInfo

from fedaudit.cli.terminal import unwritten
from fedaudit.errors import FedauditError, suggest

Set = Annotated[
    list[str] | None, typer.Option("--set", help="Override one key: --set federation.rounds=10. Repeatable.")
]

JSON = "fedaudit.json"


def in_a_folder(path: Path | None) -> Path | None:
    """Checked before the work begins: the folder of a file that will be written must exist."""
    if path and not path.parent.is_dir():
        raise FedauditError(
            "unwritable", f"there is no folder {path.parent} for {path.name}", "Create it, or give another file."
        )
    return path


AsJson = Annotated[Path | None, typer.Option(help="Also write the result to this JSON file.", callback=in_a_folder)]


def write_file(path: Path | None, text: str) -> None:
    from fedaudit.files import write_atomically

    try:
        if path:
            write_atomically(path, text)
    except OSError as error:
        raise FedauditError("unwritable", f"cannot write {path}: {error.strerror}", "Give another file.") from None


def as_json(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def printed_as_json(document: Mapping[str, Any]) -> bool:
    """Prints the result if --json asks for it. Not through the console, which would wrap its lines."""
    wanted = bool(click.get_current_context().meta.get(JSON))
    if wanted:
        try:
            sys.stdout.write(as_json(document))
        except BrokenPipeError:
            raise  # nobody reads any more, and `main` ends without a word
        except OSError as error:
            raise unwritten(error) from None
    return wanted


# ------------------------------------------------------------------ help in plain text


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


def _remember(context: click.Context, option: click.Parameter, given: Any) -> None:
    context.meta[f"fedaudit.{option.name}"] = given


class JsonCommand(PlainCommand):
    """A command with --json. The option is the command's and not a parameter of its function, which may have many."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        about = "Print the result as JSON, and nothing else, on standard output."
        self.params.append(click.Option(["--json"], is_flag=True, expose_value=False, callback=_remember, help=about))
