"""The file of a study: a base configuration and a grid of overrides. Every cell is checked before any is trained."""

import copy
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from fedaudit.config.schema import Config, explain, load_config, parse, put, read_toml, twice
from fedaudit.config.section import Section
from fedaudit.errors import FedauditError
from fedaudit.toml import toml

_GRID = 'Write, for example, "federation.parties" = [2, 4] in [grid].'


class StudyConfig(Section):
    """A study: every combination of the values in [grid] is one cell, which is audited like a run."""

    base: Path = Field(description="the configuration that the cells share, relative to this file")
    engine: Literal["local", "ray"] = Field("local", description="who runs the cells: processes here, or Ray")
    address: str | None = Field(None, description='engine "ray": an existing cluster; not set: one on this machine')
    grid: Annotated[dict[str, tuple[Any, ...]], Field(min_length=1)] = Field(
        description='keys of the configuration, each with its values: "federation.parties" = [2, 4]; '
        'keys that go together share them: "data.users, federation.parties" = [10, 100]'
    )


@dataclass(frozen=True)
class Cell:
    """One combination. Its name is the hash of its configuration."""

    name: str
    overrides: Mapping[str, Any]
    config: Config

    @property
    def title(self) -> str:
        return titled(self.overrides)


@dataclass(frozen=True)
class Study:
    base: Config
    grid: Mapping[str, Sequence[Any]]
    cells: Sequence[Cell]
    engine: Literal["local", "ray"] = "local"
    address: str | None = None


def titled(overrides: Mapping[str, Any]) -> str:
    """The overrides of a cell on one line. Defences are told by their names and numbers."""
    return ", ".join(f"{key} = {toml(value)}" for key, value in overrides.items()) or "the base"


def load_study(path: Path) -> Study:
    try:
        file = StudyConfig.model_validate(read_toml(path, "study"))
    except ValidationError as error:
        raise explain(error, str(path)) from None
    if file.address is not None and file.engine != "ray":
        what = 'address has no effect without engine = "ray"'
        raise FedauditError("bad-value", what, "Remove it, or set the engine.", where=str(path))
    base = path.parent / file.base
    for key, values in file.grid.items():
        if not values or not all(part for each in _keys(key) for part in each.split(".")):
            raise FedauditError("grid", f"{key!r} in [grid] needs a list of values", _GRID, where=str(path))
        if again := twice(values):
            raise FedauditError("grid", f"{key!r} lists {again} twice", "List it once.", where=str(path))
    cells = [
        _cell(base, dict(zip(file.grid, values, strict=True))) for values in itertools.product(*file.grid.values())
    ]
    names: dict[str, Cell] = {}
    for cell in cells:
        if other := names.get(cell.name):
            what = f"two cells of [grid] are the same configuration: {other.title}; {cell.title}"
            raise FedauditError("grid", what, "Take one of the values out.", where=str(path))
        names[cell.name] = cell
    return Study(load_config(base), file.grid, cells, file.engine, file.address)


def _keys(text: str) -> list[str]:
    """Several keys that always have the same value are written as one, with commas between them."""
    return [key.strip() for key in text.split(",")]


def _cell(base: Path, overrides: Mapping[str, Any]) -> Cell:
    raw = read_toml(base, "config")
    for keys, value in overrides.items():
        for key in _keys(keys):
            unfit = FedauditError("grid", f"{key!r} in [grid] names a key inside a key", _GRID, where=str(base))
            put(raw, key.split("."), copy.deepcopy(value), unfit)
    try:
        config = parse(raw, where=str(base))
    except FedauditError as error:
        what = f"the cell {titled(overrides)}: {error.what}"
        raise FedauditError(error.code, what, error.todo, where=error.where, exit_code=error.exit_code) from None
    return Cell(config.hash(), dict(overrides), config)
