"""Values on their way to a reader: hostile strings made harmless."""

import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, NewType

from fedaudit.results.document import Document

LIMIT = 200  # characters of any foreign string
LONG, LONGEST = 600, 1600  # the same for sentences, and for all that is said of one headline
SENTENCES = frozenset({"warnings", "notices", "reason", "method", "understates", "details", "useless", "glossary"})
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
                item, formula=formula or name == "config", limit=_limit(name, limit), depth=depth - 1
            )
            for key, item in value.items()
        }
    if isinstance(value, Sequence):
        return [clean_tree(item, formula=formula, limit=limit, depth=depth - 1) for item in value]
    return clean(str(value), limit, formula=formula)


def _limit(name: str, limit: int) -> int:
    return LONGEST if name in ("sentence", "most_exposed") else LONG if name in SENTENCES else limit


Results = NewType("Results", Document)  # of which every string has been cleaned, so that it may be shown


def cleaned(document: Document) -> Results:
    return Results(Document.from_json(clean_tree(document.to_json())))
