"""Reads files of TOML."""

import tomllib
from pathlib import Path
from typing import Any

from fedaudit.errors import FedauditError

MAX_BYTES = 16 * 2**20  # of a file that somebody wrote by hand; a device would have no end
# Who gives data where a configuration is expected is told what to write into one.
_OF_DATA = 'These are data. Write a configuration (`fedaudit init my.toml`) with [data] name = "{}" and path = "...".'
DATA_INSTEAD = {
    **dict.fromkeys((".csv", ".tsv", ".parquet"), _OF_DATA.format("table")),
    ".npz": _OF_DATA.format("npz"),
}


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """The whole file. `what` it is begins the code of an error."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise FedauditError(f"{what}-size", f"{path} is larger than 16 MiB", "Give a file of TOML.")
        text = content.decode("utf-8-sig")  # some editors begin a file with a mark
        return tomllib.loads(text.replace("\r\n", "\n"))
    except OSError as error:
        raise FedauditError(f"{what}-missing", f"cannot read {path}: {error.strerror}", "Check the path.") from None
    except UnicodeDecodeError:
        todo = DATA_INSTEAD.get(path.suffix.lower(), "Save it as UTF-8.")
        raise FedauditError(f"{what}-syntax", f"{path} is not text in UTF-8", todo) from None
    except RecursionError:
        what_is = f"{path} holds lists or tables inside one another, many hundreds deep"
        raise FedauditError(f"{what}-syntax", what_is, "Write it flat.") from None
    except tomllib.TOMLDecodeError as error:
        todo = DATA_INSTEAD.get(path.suffix.lower(), "Correct that line.")
        raise FedauditError(f"{what}-syntax", f"{path} is not valid TOML: {error}", todo) from None
