"""Prepares values for display: makes hostile strings harmless, and formats numbers together with their intervals."""

import math
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NewType

from fedaudit.results.document import Document
from fedaudit.types import Estimate

NONE = "–"
LIMIT = 200  # characters of any foreign string
LONG = 600  # the same for sentences
SENTENCES = frozenset({"warnings", "notices", "reason", "method"})
DEPTH = 12

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)?", re.DOTALL)
_FORMULA = re.compile(r"^(?:[=+@]|-(?=[^\s\d]))")


def clean(text: str, limit: int = LIMIT, *, formula: bool = False) -> str:
    """A string from outside without terminal sequences, control, bidi or unprintable characters, and of limited length.

    A leading `=`, `+`, `@` or `-` gets an apostrophe unless `formula`: tables are pasted into spreadsheets. Markup is
    left alone here; the template engine escapes it. Cleaning twice changes nothing.
    """
    if text.isprintable() and len(text) <= limit and not (text[:1] in "=+@- " or text[-1:] == " "):
        return text
    head = _ANSI.sub("", text[: 4 * limit])
    kept = "".join(
        " " if c in "\t\n\r" else c for c in head if c in "\t\n\r" or not unicodedata.category(c).startswith("C")
    ).strip()
    if not formula and _FORMULA.match(kept):
        kept = "'" + kept
    return kept if len(kept) <= limit and len(text) <= 4 * limit else kept[: limit - 1] + "…"


def clean_tree(value: Any, *, formula: bool = False, limit: int = LIMIT, depth: int = DEPTH) -> Any:
    """Results with every string cleaned, keys included, and every number finite (or None)."""
    if isinstance(value, str):
        return clean(value, limit, formula=formula)
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**64 else None
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if depth == 0:
        return "…"
    if isinstance(value, Mapping):
        return {
            (name := clean(str(key), formula=True)): clean_tree(
                item, formula=formula or name == "config", limit=LONG if name in SENTENCES else limit, depth=depth - 1
            )
            for key, item in value.items()
        }
    if isinstance(value, Sequence):
        return [clean_tree(item, formula=formula, limit=limit, depth=depth - 1) for item in value]
    return clean(str(value), limit, formula=formula)


Results = NewType("Results", Document)  # of which every string has been cleaned, so that it may be shown


def cleaned(document: Document) -> Results:
    return Results(Document.from_json(clean_tree(document.to_json())))


# ------------------------------------------------------------------ writing numbers


def count(value: float | None) -> str:
    return NONE if value is None else f"{value:,.0f}"


def rate(value: float) -> str:
    """A fixed rate such as an FPR: `1 %`, `0.1 %`."""
    return f"{100 * value:.4g} %"


def decimals(*shares: float | None) -> int:
    """How many decimals a percentage needs: two significant digits of the smallest, at most three decimals."""
    positive = [100 * s for s in shares if s and s > 0]
    smallest = min(positive, default=1.0)
    return 1 if smallest >= 1 else min(3, 1 - math.floor(math.log10(smallest)))


def share(value: float | None, digits: int | None = None) -> str:
    """`7.7 %`"""
    if value is None:
        return NONE
    if value in (0, 1):
        return f"{100 * value:.0f} %"
    return f"{100 * value:.{decimals(value) if digits is None else digits}f} %"


def share_span(low: float | None, high: float | None) -> str:
    """`6.4–9.2` in percent"""
    if low is None or high is None:
        return NONE
    return f"{share(low)[:-2]}–{share(high)[:-2]}"


def plain_span(low: float | None, high: float | None) -> str:
    return NONE if low is None or high is None else f"{low:.3f}–{high:.3f}"


def is_share(name: str) -> bool:
    return name.startswith("tpr@") or name == "accuracy"


def number_text(name: str, value: float | None) -> str:
    if value is None:
        return NONE
    return share(value) if is_share(name) else f"{value:.3f}"


def span_text(name: str, low: float | None, high: float | None) -> str:
    return share_span(low, high) if is_share(name) else plain_span(low, high)


def point_text(name: str, value: float | None, low: float | None, high: float | None) -> str:
    """A value with its interval."""
    return NONE if value is None else f"{number_text(name, value)} ({span_text(name, low, high)})"


def value_of(est: Estimate | None) -> float | None:
    return None if est is None else est.value


def value_text(name: str, est: Estimate | None) -> str:
    return number_text(name, value_of(est))


def interval_text(name: str, est: Estimate | None) -> str:
    return NONE if est is None else span_text(name, est.low, est.high)


def full_text(name: str, est: Estimate | None) -> str:
    """Value with its interval, or a dash with the reason."""
    if est is None or est.value is None:
        return f"{NONE} ({est.reason})" if est and est.reason else NONE
    return point_text(name, est.value, est.low, est.high)


def confidence(est: Estimate | None) -> str:
    return f"{100 * (est.confidence if est else 0.95):.4g} %"


# ------------------------------------------------------------------ the configuration, as it was written


def toml(config: Mapping[str, Any]) -> str:
    return "\n".join(_toml_lines(config, ())).strip()


def _toml_lines(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    if path:
        yield f"\n[{'.'.join(map(_toml_key, path))}]"
    for key, value in table.items():
        if value is not None and not isinstance(value, Mapping):
            yield f"{_toml_key(key)} = {_toml_value(value)}"
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _toml_lines(value, (*path, key))


def _toml_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _toml_value(key)


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list):
        return f"[{', '.join(_toml_value(item) for item in value if item is not None)}]"
    if isinstance(value, Mapping):
        pairs = (f"{_toml_key(k)} = {_toml_value(v)}" for k, v in value.items() if v is not None)
        return f"{{ {', '.join(pairs)} }}"
    return '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'
