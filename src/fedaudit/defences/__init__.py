"""The defences, one in each file. Each registers itself with its name, its options and its accounting.

A defence that cannot work is refused when it is built, before training.
"""

from collections.abc import Iterable
from functools import reduce
from operator import or_

from fedaudit.config.registry import DEFENCES, Options
from fedaudit.defences.shared import DefenceOptions, Setting
from fedaudit.defences.slots import NONE, Defence, Guarded
from fedaudit.errors import FedauditError

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
