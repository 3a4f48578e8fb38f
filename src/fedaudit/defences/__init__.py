"""The defences. Each registers itself with its name, its options and its accounting.

A defence that cannot work is refused when it is built, before training.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import or_
from typing import Any

from pydantic import Field

from fedaudit.config.code import imported
from fedaudit.config.registry import DEFENCES, Options
from fedaudit.defences.shared import NONE, SLOTS, Defence, DefenceOptions, Guarded, Setting, Slot
from fedaudit.errors import OF_OTHERS, FedauditError

__all__ = ["NONE", "Defence", "DefenceOptions", "Guarded", "Setting", "build"]


def build(asked: Iterable[Options], setting: Setting) -> Defence:
    """All defences that a configuration names, combined."""
    return reduce(or_, (_made(each, setting) for each in asked), NONE)


def _made(asked: Options, setting: Setting) -> Defence:
    entry = DEFENCES.find(asked.name)
    if entry is None:
        raise FedauditError("unknown-defence", *DEFENCES.unknown(asked.name))
    made: Defence = entry.make(asked, setting)
    return made


# ------------------------------------------------------------------ the user's own


class OwnDefenceOptions(DefenceOptions):
    fills: tuple[Slot, ...] = Field(description="its slots: gradient, update, aggregate, serve", min_length=1)
    options: dict[str, Any] = Field({}, description="what the function is called with, beside the setting")

    @property
    def slots(self) -> tuple[Slot, ...]:
        return self.fills


@DEFENCES.register(
    "package.module:function",
    "your own: function(setting, **options) -> fedaudit.defences.Defence; fills = its slots",
    OwnDefenceOptions,
)
def own(asked: OwnDefenceOptions, setting: Setting) -> Defence:
    function = imported(asked.name, "defence-import")
    try:
        made: object = function(setting, **asked.options)
    except FedauditError:
        raise
    except OF_OTHERS as error:
        what = f"{asked.name} raised {type(error).__name__}"
        raise FedauditError("defence-function", what, "Call it with these options yourself to see why.") from error
    if not isinstance(made, Defence):
        what = f"{asked.name} returned {type(made).__name__}"
        raise FedauditError("defence-function", what, "Let it return a fedaudit.defences.Defence.")
    filled = tuple(slot for slot in SLOTS if getattr(made, slot))
    if set(filled) != set(asked.fills):
        what = (
            f"{asked.name} fills {', '.join(filled) or 'no slot'}, and the configuration says {', '.join(asked.fills)}"
        )
        raise FedauditError("defence-function", what, f"Write fills = [{', '.join(map(repr, filled))}].")
    return made
