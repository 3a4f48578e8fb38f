"""The shapes that the page is made of: tables, tiles, panels of facts."""

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Table:
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


@dataclass(frozen=True)
class Tile:
    label: str
    value: str
    span: str
    note: str


@dataclass(frozen=True)
class Cell:
    value: str
    span: str
    shade: str
    reason: str = ""


@dataclass(frozen=True)
class Matrix:
    groups: Sequence[tuple[str, str, str]]  # title, model, colour
    rows: Sequence[tuple[str, bool, Sequence[Cell]]]
    rate: str
    table: Table
    blind: bool = False

    @property
    def below_chance(self) -> bool:
        return any(cell.shade == "heat-alarm" for _, _, cells in self.rows for cell in cells)


@dataclass(frozen=True)
class Panel:
    """A short list of facts with a sentence before it."""

    lead: str
    facts: Sequence[tuple[str, str]] = ()
    tables: Sequence[tuple[str, Table]] = ()
    tone: str = ""


@dataclass(frozen=True)
class Recipe:
    toml: str
    command: str
    facts: Sequence[tuple[str, str]]
    versions: Sequence[tuple[str, str]] = field(default=())
