"""The defences, one in each file. Each registers itself with its name, its options and its accounting.

A defence that cannot work is refused when it is built, before training.
"""

from collections.abc import Iterable
from functools import reduce
from operator import or_

from fedaudit.config.registry import DEFENCES, Options
from fedaudit.defences.shared import DefenceOptions, Setting
from fedaudit.defences.slots import NONE, Defence, Guarded, Served

__all__ = ["NONE", "Defence", "DefenceOptions", "Guarded", "Served", "Setting", "build"]


def build(asked: Iterable[Options], setting: Setting) -> Defence:
    """All defences that a configuration names, combined."""
    return reduce(or_, (DEFENCES.entries[each.name].make(each, setting) for each in asked), NONE)
