"""What an audit tells beside its figures: a code, which programs look at, and the data of its sentence.

`fedaudit.words` has the sentences. Nothing else may depend on how they are put.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field, PlainSerializer
from pydantic_core import to_json

from fedaudit.types.stored import WORD

# A warning casts doubt on a figure, a notice says what else must be known, and a gap is a part that is missing.
Level = Literal["warning", "notice", "gap"]


def _plain(data: Mapping[str, Any]) -> dict[str, Any]:
    """As JSON has it: NaN and infinity are null."""
    found: dict[str, Any] = json.loads(to_json(dict(data), inf_nan_mode="null", fallback=str))
    return found


@dataclass(frozen=True)
class Notice:
    """`data`: plain values, as JSON has them. One with a `text` is told by that text, as it came from outside."""

    code: Annotated[str, Field(json_schema_extra={"pattern": f"^{WORD}$"})]
    level: Level
    data: Annotated[Mapping[str, Any], PlainSerializer(_plain)] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((self.code, self.level))  # equal ones must be found equal; their data may be unhashable

    def stored(self) -> dict[str, Any]:
        return {"code": self.code, "level": self.level, "data": _plain(self.data)}


def warning(code: str, **data: Any) -> Notice:
    return Notice(code, "warning", data)


def notice(code: str, **data: Any) -> Notice:
    return Notice(code, "notice", data)


def gap(code: str, **data: Any) -> Notice:
    return Notice(code, "gap", data)


def once(notices: Iterable[Notice]) -> list[Notice]:
    """Each of them once, in the order in which they were told first."""
    return list(dict.fromkeys(notices))


def as_notices(told: Iterable[Notice | str | Mapping[str, Any]], level: Level = "notice") -> Sequence[Notice]:
    """Also from what was stored (`Notice.stored`), and from sentences of somebody else's."""
    return [_as_notice(one, level) for one in told]


def _as_notice(told: Notice | str | Mapping[str, Any], level: Level) -> Notice:
    if isinstance(told, Notice):
        return told
    if isinstance(told, str):
        return Notice("text", level, {"text": told})
    return Notice(str(told["code"]), told["level"], dict(told["data"]))
