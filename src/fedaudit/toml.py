"""Writes values and whole configurations as TOML. What is not set (None) is left out, since TOML has no word for it."""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic_core import to_jsonable_python


def toml(value: Any) -> str:
    """A value on one line. TOML writes text, numbers and lists as JSON does, with two exceptions."""
    plain = to_jsonable_python(value)
    if isinstance(plain, Mapping):
        items = ", ".join(f"{_key(key)} = {toml(item)}" for key, item in plain.items() if item is not None)
        return f"{{ {items} }}" if items else "{}"
    if isinstance(plain, list):
        return f"[{', '.join(toml(item) for item in plain if item is not None)}]"
    if isinstance(plain, float) and not math.isfinite(plain):
        return str(plain)  # nan, inf and -inf; JSON would write NaN and Infinity
    return json.dumps(plain, ensure_ascii=False).replace("\x7f", "\\u007f")


def written(config: Mapping[str, Any]) -> str:
    """A whole configuration: a table for each section, and one for each defence."""
    return "".join(f"{line}\n" for line in _lines(to_jsonable_python(config), ())).lstrip("\n")


def _lines(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    """The values of a table, then the tables in it, each with its path as heading."""
    for key, value in table.items():
        if value is not None and not _tables(value):
            yield f"{_key(key)} = {toml(value)}"
    for key, value in table.items():
        inner = (*path, key)
        name = ".".join(map(_key, inner))
        for own in _tables(value):
            yield from ("", f"[{name}]" if isinstance(value, Mapping) else f"[[{name}]]")
            yield from _lines(own, inner)


def _tables(value: Any) -> Sequence[Mapping[str, Any]]:
    """The tables as which a value is written; none, if it is written on one line."""
    if isinstance(value, Mapping):
        return [value]
    return value if isinstance(value, list) and all(isinstance(item, Mapping) for item in value) else []


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else toml(key)
