"""Writes values as TOML. For reading, Python has `tomllib`."""

import json
import math
from collections.abc import Mapping
from typing import Any

from pydantic_core import to_jsonable_python


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
