"""A defence of the user's own: `name = "package.module:function"`."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from fedaudit.config.code import imported
from fedaudit.config.registry import DEFENCES
from fedaudit.defences.shared import DefenceOptions, Setting
from fedaudit.defences.slots import SLOTS, Defence, Slot
from fedaudit.errors import OF_OTHERS, FedauditError


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
