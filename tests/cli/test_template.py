"""`fedaudit init`: what it writes is the default configuration, whatever keys there are."""

import tomllib
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field

from fedaudit.cli.template import _section, toml, write
from fedaudit.config.schema import Config, load_config
from fedaudit.errors import FedauditError


def test_what_is_written_is_the_default_configuration(tmp_path: Path) -> None:
    write(tmp_path / "a.toml")
    assert load_config(tmp_path / "a.toml") == Config()


def test_every_key_is_there(tmp_path: Path) -> None:
    write(tmp_path / "a.toml")
    lines = (tmp_path / "a.toml").read_text().splitlines()
    for section, field in Config.model_fields.items():
        assert {f"[{section}]", f"# [{section}]", f"# [[{section}]]"} & set(lines)
        default = field.get_default(call_default_factory=True)
        keys = type(default).model_fields if isinstance(default, BaseModel) else ()
        for key in keys:
            assert any(line.removeprefix("# ").startswith((f"{key} =", f"[{section}.{key}")) for line in lines), key


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text("mine")
    with pytest.raises(FedauditError, match="exists"):
        write(path)
    assert path.read_text() == "mine"
    with pytest.raises(FedauditError, match="unwritable"):
        write(tmp_path / "nowhere" / "a.toml")


class Colour(StrEnum):
    RED = "red"


class Inner(BaseModel):
    """[inner] what is inside."""

    depth: int
    text: str = 'a "quoted" \\ word\n'


class Outer(BaseModel):
    """Keys of every kind that a configuration may get."""

    off: Inner | None = None
    on: Inner = Inner(depth=3)
    colour: Colour = Colour.RED
    colours: tuple[Colour, ...] = (Colour.RED,)
    path: Path | None = Field(None, description="where\nit is")
    small: Annotated[float, Field(gt=0)] = 1e-7
    either: Literal["a", "b"] | None = "b"
    made: list[int] = Field(default_factory=lambda: [1, 2])
    table: dict[str, float | None] = Field(default_factory=lambda: {"a b": 1.5, "c": None})
    flag: bool = True
    several: tuple[Inner, ...] = ()
    given: list[Inner] = Field(default_factory=lambda: [Inner(depth=1, text="t")])


def test_keys_of_every_kind() -> None:
    lines = list(_section(Outer, (), Outer(), commented=False))
    text = "\n".join(lines)
    again = Outer.model_validate(tomllib.loads(text))
    assert again == Outer(table={"a b": 1.5})
    assert "# path =  # where it is" in lines
    assert "small = 1e-07  # above 0" in lines
    assert 'either = "b"  # "a" | "b"' in lines
    assert lines[lines.index("# [off]") + 1] == "# depth ="
    assert lines[lines.index("# [[several]]") + 1] == "# depth ="
    assert lines[lines.index("[on]") - 1] == "# what is inside."


def test_toml_values() -> None:
    for value in ('a"\\\n\u00e9', 1, -2.5, True, [1, 2], [], {}, {"a": {"b": "c"}}, 1e300):
        assert tomllib.loads(f"v = {toml(value)}")["v"] == value
