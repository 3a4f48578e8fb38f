"""The shapes that the page is made of: tables, tiles, panels of facts."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field

from markupsafe import Markup

LONG = 30  # characters; a column with a longer cell holds words, which may be broken into lines


@dataclass(frozen=True)
class Table:
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""

    @property
    def wordy(self) -> list[bool]:
        """Which columns hold words."""
        return [any(_length(row[at]) > LONG for row in self.rows) for at in range(len(self.head))]


def _length(cell: str) -> int:
    """As it is read: a link is as long as its words."""
    return len(cell.striptags() if isinstance(cell, Markup) else cell)


@dataclass(frozen=True)
class Tile:
    label: str
    value: str
    span: str
    note: str


@dataclass(frozen=True)
class MatrixCell:
    value: str
    span: str
    shade: str
    reason: str = ""


@dataclass(frozen=True)
class Matrix:
    groups: Sequence[tuple[str, str, str]]  # title, model, colour
    rows: Sequence[tuple[str, bool, Sequence[MatrixCell]]]
    rate: str
    table: Table
    notes: Sequence[str] = ()  # who is missing from which figures

    @property
    def below_chance(self) -> bool:
        return any(cell.shade == "heat-alarm" for _, _, cells in self.rows for cell in cells)


@dataclass(frozen=True)
class Figure:
    svg: Markup
    legend: Sequence[tuple[str, str]]  # class, text
    caption: str
    table: Table
    heading: str = ""


@dataclass(frozen=True)
class Panel:
    """A part of a section: a sentence, then facts, tables (with their headings, which may be empty), figures, a
    picture, a text that is shown as it is, and tables that a reader may unfold."""

    lead: str
    facts: Sequence[tuple[str, str]] = ()
    tables: Sequence[tuple[str, Table]] = ()
    _: KW_ONLY
    tone: str = ""
    heading: str = ""
    figures: Sequence[Figure] = ()
    picture: Markup | None = None
    caption: str = ""  # of the picture
    text: str = ""
    folded: Sequence[tuple[str, Table]] = ()
    sentences: Sequence[str] = ()  # right after the lead


@dataclass(frozen=True)
class PageSection:
    """A section of the page: where links lead, its heading, what the list of contents calls it, and its parts."""

    id: str
    title: str
    short: str
    panels: Sequence[Panel]
    first: bool = False  # right after the verdict


@dataclass(frozen=True)
class Recipe:
    toml: str
    command: str
    facts: Sequence[tuple[str, str]]
    versions: Sequence[tuple[str, str]] = field(default=())
