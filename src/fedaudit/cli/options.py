"""Options that several groups of commands have, and what they do."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import click
import typer

from fedaudit.cli.plain_help import PlainCommand
from fedaudit.cli.terminal import unwritten
from fedaudit.errors import FedauditError

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
        except OSError as error:
            raise unwritten(error) from None
    return wanted


def _remember(context: click.Context, option: click.Parameter, given: Any) -> None:
    context.meta[f"fedaudit.{option.name}"] = given


class JsonCommand(PlainCommand):
    """A command with --json. The option is the command's and not a parameter of its function, which may have many."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        about = "Print the result as JSON, and nothing else, on standard output."
        self.params.append(click.Option(["--json"], is_flag=True, expose_value=False, callback=_remember, help=about))
