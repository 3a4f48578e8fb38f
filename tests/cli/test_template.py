"""`fedaudit init`: what it writes is the default configuration, whatever keys there are."""

import tomllib
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field
from pydantic.fields import FieldInfo

from fedaudit.cli.template import _model_in, _section, template, write
from fedaudit.config.registry import DEFENCES, REGISTRIES, Registry
from fedaudit.config.schema import AuditSection, Config, FederationSection, load_config, parse
from fedaudit.errors import FedauditError
from tests.command import fedaudit


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


def keys_of(kind: type[BaseModel]) -> list[tuple[str, FieldInfo]]:
    """Of a section and of the sections in it."""
    found = []
    for name, field in kind.model_fields.items():
        inner = _model_in(field.annotation)
        found += keys_of(inner) if inner else [(name, field)]
    return found


@pytest.mark.parametrize("kind", [FederationSection, AuditSection])
def test_every_key_says_what_it_means(kind: type[BaseModel]) -> None:
    lines = template().splitlines()
    for name, field in keys_of(kind):
        assert field.description, name
        assert any(line.startswith((f"{name} =", f"# {name} =")) and field.description in line for line in lines), name


def part(registry: Registry) -> list[str]:
    """The lines of the template about one registry."""
    lines = template().splitlines()
    start = lines.index(f"# {registry.about}")
    return lines[start : next((at for at in range(start, len(lines)) if not lines[at]), len(lines))]


@pytest.mark.parametrize("arguments", [["list", "--help"], ["gate", "--help"]])
def test_help_names_questions(arguments: list[str], tmp_path: Path) -> None:
    assert "questions" in fedaudit(*arguments, cwd=tmp_path).stdout


def test_the_options_of_attacks_are_there_and_can_be_set() -> None:
    """What is commented out is read as it stands, once a reader has chosen it."""
    lines = template().splitlines()
    at = lines.index('# name = "fta"  # slope of a signal of the record over the rounds')
    chosen = "\n".join(line.removeprefix("# ") for line in lines[at - 1 : at + 4])
    assert parse(tomllib.loads(chosen)).audit.attacks == ("fta-confidence",)


@pytest.mark.parametrize("plural", REGISTRIES)
def test_every_entry_stands_in_the_template_with_its_keys(plural: str) -> None:
    lines = part(REGISTRIES[plural])
    for name, entry in REGISTRIES[plural].entries.items():
        assert any(f'"{name}"' in line for line in lines), name
        for key, field in entry.keys.items():
            assert field.description, (name, key)
            assert any(line.startswith((f"{key} =", f"# {key} =")) and field.description in line for line in lines)


def test_the_defences_of_the_template_can_be_switched_on() -> None:
    """Uncommented, and with the values that only the user can know, every block is what it says."""
    values = {"clip": "1.0", "noise": "1.0", "strength": "0.5", "rank": "4", "share": "0.1", "fills": '["update"]'}
    lines = []
    for line in part(DEFENCES)[1:]:
        bare = line.removeprefix("#").strip()
        key = bare.split(" ")[0]
        lines.append(bare.replace(" =  #", f" = {values[key]}  #") if key in values else bare)
    text = "\n".join(line for line in lines if " =  #" not in line)
    found = parse(tomllib.loads(text)).defences
    assert [each.name for each in found] == list(DEFENCES.entries)
    assert all(each.arguments() for each in found)


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


def test_keys_of_every_kind() -> None:
    lines = list(_section(Outer, (), Outer(), commented=False))
    text = "\n".join(lines)
    again = Outer.model_validate(tomllib.loads(text))
    assert again == Outer(table={"a b": 1.5})
    assert "# path =  # where it is" in lines
    assert "small = 1e-07  # above 0" in lines
    assert 'either = "b"  # "a" | "b"' in lines
    assert lines[lines.index("# [off]") + 1] == "# depth ="
    assert lines[lines.index("[on]") - 1] == "# What is inside."
