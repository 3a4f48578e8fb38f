"""Reads files of TOML."""

import tomllib
from pathlib import Path
from typing import Any

from fedaudit.errors import FedauditError

# Who gives data where a configuration is expected is told what to write into one.
_OF_DATA = 'These are data. Write a configuration (`fedaudit init my.toml`) with [data] name = "{}" and path = "...".'
DATA_INSTEAD = {
    **dict.fromkeys((".csv", ".tsv", ".parquet"), _OF_DATA.format("table")),
    ".npz": _OF_DATA.format("npz"),
}


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """The whole file. `what` it is begins the code of an error."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))  # some editors begin a file with a mark
    except OSError as error:
        raise FedauditError(f"{what}-missing", f"cannot read {path}: {error.strerror}", "Check the path.") from None
    except UnicodeDecodeError:
        todo = DATA_INSTEAD.get(path.suffix.lower(), "Save it as UTF-8.")
        raise FedauditError(f"{what}-syntax", f"{path} is not text in UTF-8", todo) from None
    except tomllib.TOMLDecodeError as error:
        todo = DATA_INSTEAD.get(path.suffix.lower(), "Correct that line.")
        raise FedauditError(f"{what}-syntax", f"{path} is not valid TOML: {error}", todo) from None
