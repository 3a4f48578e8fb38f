"""Columns of a table that cannot be used as they are, and the lines of a configuration that mend it. All are told at
once, so that whoever has many does not meet them one by one."""

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum

from fedaudit.errors import FedauditError
from fedaudit.toml import toml


class Kind(Enum):
    """What is wrong with a column: the code of the error, and how it is said of one column and of several."""

    WORDS = ("table-words", "holds words like names", "hold words like names")
    NOTHING = ("table-cell", "is empty", "are empty")
    EMPTY = ("table-cell", "has empty cells", "have empty cells")
    WRONG = ("table-cell", "has cells that are wrong", "have cells that are wrong")
    ID = ("table-id", "looks like an id", "look like ids")


class Unfit(FedauditError):
    """One column that cannot be used. `todo`: what to do about it, where that is not the same for all of its kind."""

    def __init__(self, kind: Kind, what: str, todo: str = ""):
        super().__init__(kind.value[0], what, todo)
        self.kind = kind


def told(wrong: Mapping[str, Unfit], dropped: Sequence[str]) -> FedauditError:
    """The first column explained, the others named by what is wrong with them, and what to write about all of them.
    `dropped`: the columns that data.drop names already."""
    first, *others = wrong
    what = wrong[first].what
    for kind in Kind:
        if names := [repr(name) for name in others if wrong[name].kind is kind]:
            what += f"; {', '.join(names)} {kind.value[1 if len(names) == 1 else 2]}"
            what += " as well" if kind is wrong[first].kind else ""
    return FedauditError(wrong[first].code, what, " ".join(_remedies(wrong, dropped)))


def _remedies(wrong: Mapping[str, Unfit], dropped: Sequence[str]) -> Iterator[str]:
    by_kind = {kind: [name for name, each in wrong.items() if each.kind is kind] for kind in Kind}
    useless = [name for name, each in wrong.items() if each.kind in (Kind.WORDS, Kind.NOTHING)]
    lines = [f"drop = {toml([*dropped, *useless])}"] if useless else []
    lines += ['impute = "median"'] if by_kind[Kind.EMPTY] else []
    if lines:
        instead = ["name a column of words as id or subject"] if by_kind[Kind.WORDS] else []
        instead += ["fill in what is empty"] if by_kind[Kind.EMPTY] else []
        yield f"Under [data] write {' and '.join(lines)}{''.join(f', or {other}' for other in instead)}."
    if ids := by_kind[Kind.ID]:
        declared = ", ".join(dict.fromkeys(filter(None, (wrong[name].todo for name in ids))))
        rest = f"drop = {toml([*dropped, *useless, *ids])} (it is of no use), or keep_ids = true (learn from it)"
        yield f"Under [data] write what is true of it: {declared}{', ' * bool(declared)}{rest}."
    yield from dict.fromkeys(wrong[name].todo for name in by_kind[Kind.WRONG])
