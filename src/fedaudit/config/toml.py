"""Writes values as TOML, and reads files of it."""

import json
import math
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic_core import to_jsonable_python

from fedaudit.errors import FedauditError

# Who gives data where a configuration is expected is told what to write into one.
_OF_DATA = 'These are data. Write a configuration (`fedaudit init my.toml`) with [data] name = "{}" and path = "...".'
DATA_INSTEAD = {
    **dict.fromkeys((".csv", ".tsv", ".parquet"), _OF_DATA.format("table")),
    ".npz": _OF_DATA.format("npz"),
}


def toml(value: Any) -> str:
    """A value on one line. TOML writes text, numbers and lists as JSON does, with two exceptions."""
    plain = to_jsonable_python(value)
    if isinstance(plain, Mapping):
        items = ", ".join(f"{toml(str(key))} = {toml(item)}" for key, item in plain.items() if item is not None)
        return f"{{ {items} }}" if items else "{}"
    if isinstance(plain, list):
        return f"[{', '.join(toml(item) for item in plain)}]"
    if isinstance(plain, float) and not math.isfinite(plain):
        return str(plain)  # nan, inf and -inf; JSON would write NaN and Infinity
    return json.dumps(plain, ensure_ascii=False).replace("\x7f", "\\u007f")


def written(config: Mapping[str, Any]) -> str:
    """A whole configuration: a table for each section, and one for each defence."""
    lines: list[str] = []
    for section, values in config.items():
        several = isinstance(values, list | tuple)
        for table in values if several else [values]:
            lines += ["", f"[[{section}]]" if several else f"[{section}]"]
            lines += [f"{key} = {toml(value)}" for key, value in table.items() if value is not None]
    return "\n".join(lines[1:]) + "\n"


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """The whole file. `what` it is begins the code of an error."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))  # some editors begin a file with a mark
    except OSError as error:
        raise FedauditError(f"{what}-missing", f"cannot read {path}: {error.strerror}", "Check the path.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        todo = DATA_INSTEAD.get(path.suffix.lower(), "Correct that line.")
        raise FedauditError(f"{what}-syntax", f"{path} is not valid TOML: {error}", todo) from None
