"""Values on their way to a reader: hostile strings made harmless, and names left out of what is passed on.

Left out of a redacted report are the exposed records, the names of the run, the data and the parties (which are
numbered), every path, and whatever stands in quotation marks in a warning, because it may be a name or an id. Numbers
stay as they are.
"""

import math
import re
import unicodedata
from collections.abc import Mapping, Sequence, Set
from typing import Any, NewType

from fedaudit.results.document import Document
from fedaudit.types import Vantage, notice

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
    return LONGEST if name == "sentence" else LONG if name in SENTENCES else limit


Results = NewType("Results", Document)  # of which every string has been cleaned, so that it may be shown


def cleaned(document: Document) -> Results:
    return Results(Document.from_json(clean_tree(document.to_json())))


# ------------------------------------------------------------------ what is passed on names nobody


LEFT_OUT = "(left out)"
TEXTS = {
    *("warnings", "notices", "reason", "sentence", "details", "degraded"),
    *("understates", "useless", "status", "problems"),
}
NAMES = {"party", "name"}
KEPT = ("data.name", "audit.", "federation.partition", "defences.name", "model.name")  # words of fedaudit's own

_QUOTED = re.compile(r"(['\"“])([^'\"”]{1,200})(['\"”])")
_PATH = re.compile(r"(?:[A-Za-z]:\\|(?<![\w.])~?/|\.{1,2}/|\\\\)\S*[^\s.,;:)]|\b[\w.-]+/[\w./-]+\.\w+")


def redacted(document: Document) -> Document:
    """The same results, to be passed on. The document itself is not changed."""
    names = {party.name: f"party {number}" for number, party in enumerate(document.run.parties, start=1)}
    names |= {document.run.name: "this federation"} if document.run.name else {}
    names |= {document.run.data.name: "these data"} if document.run.data.name not in ("", *_own(document)) else {}
    words = {*names.values(), *Vantage, *(entry.attack for entry in document.results)}
    values = _redacted(document.to_json(), names, words)
    values["exposed"] = None
    values.pop("told", None)  # the sentences say it, and are redacted
    for entry in values["results"]:
        entry.pop("told", None)
    run = values["run"]
    run["name"] = "federation"
    run["config"] = _config(run["config"])
    run["config_hash"] = ""  # a guess at what was left out could be checked with it
    found = Document.from_json(values)
    return found.noting(notice("redacted"))


def _own(document: Document) -> tuple[str, ...]:
    """The data's name where it is a word of fedaudit's own, such as `baskets`, and not that of a file."""
    data = document.run.config.get("data")
    name = data.get("name") if isinstance(data, Mapping) else None
    return (name,) if isinstance(name, str) and ":" not in name else ()


def _redacted(value: Any, names: Mapping[str, str], words: Set[str], key: str = "") -> Any:
    """Names and sentences, wherever they stand in the results; the rest as it is."""
    if isinstance(value, Mapping):
        return {each: _redacted(item, names, words, each) for each, item in value.items()}
    if isinstance(value, list):
        return [_redacted(item, names, words, key) for item in value]
    if not isinstance(value, str) or key not in NAMES | TEXTS:
        return value
    return names.get(value, value) if key in NAMES else _without(value, names, words)


def _without(text: str, names: Mapping[str, str], words: Set[str]) -> str:
    for name in sorted(names, key=len, reverse=True):
        text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", names[name], text)
    text = _QUOTED.sub(lambda found: found[0] if found[2] in words else LEFT_OUT, text)
    return _PATH.sub(LEFT_OUT, text)


def _config(section: Any, path: str = "") -> Any:
    """Numbers and fedaudit's own words stay; any other text may be a path, or the name of a column."""
    if isinstance(section, Mapping):
        return {key: _config(item, f"{path}{key}.") for key, item in section.items()}
    if isinstance(section, list | tuple):
        return [_config(item, path) for item in section]
    if not isinstance(section, str):
        return section
    own = any(path.startswith(kept) for kept in KEPT) and not re.search(r"[:/\\.]", section)
    known = own and not path.startswith("audit.attribute")
    return section if known else LEFT_OUT
