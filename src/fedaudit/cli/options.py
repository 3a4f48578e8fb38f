"""Options that several groups of commands have, and what they do."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from fedaudit.errors import FedauditError

Set = Annotated[
    list[str] | None, typer.Option("--set", help="Override one key: --set federation.rounds=10. Repeatable.")
]


def in_a_folder(path: Path | None) -> Path | None:
    """Checked before the work begins: the folder of a file that will be written must exist."""
    if path and not path.parent.is_dir():
        raise FedauditError(
            "unwritable", f"there is no folder {path.parent} for {path.name}", "Create it, or give another file."
        )
    return path


AsJson = Annotated[Path | None, typer.Option(help="Also write the result to this JSON file.", callback=in_a_folder)]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, and nothing else, on standard output.")]


def write_file(path: Path | None, text: str) -> None:
    from fedaudit.files import write_atomically

    try:
        if path:
            write_atomically(path, text)
    except OSError as error:
        raise FedauditError("unwritable", f"cannot write {path}: {error.strerror}", "Give another file.") from None


def as_json(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def print_json(document: Mapping[str, Any]) -> None:
    """Not through the console, which would wrap its lines."""
    sys.stdout.write(as_json(document))
