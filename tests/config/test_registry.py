"""The registry: one module adds an entry, sections are read by the entry they name, and nothing heavy is imported."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fedaudit.config.registry import DATA, DEFENCES, MODELS, REGISTRIES, Options, Registry
from fedaudit.config.schema import parse
from fedaudit.errors import FedauditError

HEAVY = {"torch", "sklearn", "opacus", "scipy", "pyarrow", "dp_accounting"}

CHECKED = """
import json, sys
from fedaudit.config.schema import parse
parse({"data": {"name": "npz", "path": "a.npz"}, "model": {"name": "resnet8", "norm": "batch"},
       "defences": [{"name": "dp-sgd", "epsilon": 4.0, "clip": 1.0}, {"name": "memguard", "strength": 1.0}],
       "audit": {"attacks": ["loss", {"name": "fta", "signal": "loss"}]}})
print(json.dumps(sorted(sys.modules)))
"""
WRITTEN = (
    "import json, sys\nfrom fedaudit.cli.template import template\ntemplate()\nprint(json.dumps(sorted(sys.modules)))"
)


@pytest.mark.parametrize("program", [CHECKED, WRITTEN])
def test_a_configuration_is_checked_without_anything_heavy(program: str) -> None:
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    imported = set(json.loads(done.stdout))
    assert {"fedaudit.defences.dp_sgd", "fedaudit.data.npz", "fedaudit.learn.models.images"} <= imported
    assert not imported & HEAVY


@pytest.mark.parametrize("plural", REGISTRIES)
def test_every_entry_says_what_it_is(plural: str) -> None:
    entries = REGISTRIES[plural].entries
    assert len(entries) >= 7
    for name, entry in entries.items():
        assert entry.name == name
        assert len(entry.about) > 10
        assert callable(entry.make)


# ------------------------------------------------------------------ one module is enough

MODULE = """
from pydantic import Field
from fedaudit.config.registry import Options
from {package} import TOYS

class SpinOptions(Options):
    turns: int = Field(description="how many")
    left: bool | None = Field(None, description="which way")

@TOYS.register("top", "spins", SpinOptions)
def top(options, where):
    return f"{{options.name}} turns {{options.turns}} times {{where}}"
"""


@pytest.fixture
def toys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """A registry in a package of its own, whose modules stand in a folder and in no list."""
    package = tmp_path / "toys_for_a_test"
    package.mkdir()
    (package / "__init__.py").write_text(
        "from fedaudit.config.registry import Registry\n"
        'TOYS = Registry(section="toy", plural="toys", package=__name__, word="toy", about="To play with.",\n'
        '              default="ball", always={"colour": "red"})\n'
    )
    (package / "top.py").write_text(MODULE.format(package=package.name))
    (package / "ball.py").write_text(
        f"from {package.name} import TOYS\n@TOYS.register('ball', 'rolls')\ndef ball(options, where): return where\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [name for name in sys.modules if name.startswith(package.name)]:
        monkeypatch.delitem(sys.modules, name)
    found: Registry = __import__(package.name).TOYS
    return found


def test_a_module_in_the_folder_is_an_entry(toys: Registry) -> None:
    assert list(toys.entries) == ["ball", "top"]
    options = toys.read({"name": "top", "turns": 3})
    entry = toys.find(options.name)
    assert entry is not None
    assert (entry.about, list(entry.keys)) == ("spins", ["turns", "left"])
    assert entry.make(options, "here") == "top turns 3 times here"
    assert options.arguments() == {"turns": 3}


def test_a_name_can_be_taken_once(toys: Registry) -> None:
    assert "top" in toys.entries
    with pytest.raises(ValueError, match="two entries 'top'"):
        toys.register("top", "another")(print)
    toys.register("kite", "flies")(print)
    assert list(toys.entries) == ["ball", "kite", "top"]


def test_a_section_without_a_name_is_the_default_entry(toys: Registry) -> None:
    assert toys.read({}) == Options(name="ball")
    assert toys.read(Options(name="ball")) == Options(name="ball")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"name": "tp"}, "unknown toy 'tp'"),
        ({"turns": 3}, "turns belongs to top, not to ball"),
        ({"name": "top"}, "top needs turns"),
        ({"name": "top", "turns": 1, "lft": True}, "unknown key"),
        ({"colour": "blue"}, "unknown key"),
        ({"name": 3}, "valid string"),
        ({"name": "top", "turns": "many"}, "valid integer"),
    ],
)
def test_what_an_entry_does_not_take_is_refused(toys: Registry, given: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        toys.read(given)


def test_keys_that_were_always_stored_are_read_and_written_with_every_entry(toys: Registry) -> None:
    options = toys.read({"name": "top", "turns": 3, "colour": "red"})
    assert options == toys.read({"name": "top", "turns": 3})
    stored = toys.written(options.model_dump(exclude_none=True))
    assert stored == {"name": "top", "turns": 3, "colour": "red"}
    assert toys.read(stored) == options


# ------------------------------------------------------------------ the registries of fedaudit


def test_a_name_with_a_colon_is_ones_own() -> None:
    assert MODELS.find("somewhere:net") is MODELS.entries["package.module:factory"]
    assert DATA.find("somewhere:data") is DATA.entries["package.module:function"]
    assert DEFENCES.find("somewhere:shield") is DEFENCES.entries["package.module:function"]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"path": "mine.npz"}, "path belongs to .*cifar10, cifar100, .*npz.*, not to baskets"),
        ({"name": "digits", "x_key": "bits"}, "x_key belongs to npz, not to digits"),
        (
            {"name": "cifar10", "task": "regression"},
            "task belongs to npz, table, package.module:function, not to cifar10",
        ),
        ({"name": "mnist"}, "mnist needs path"),
        ({"name": "mnist", "path": "a.npz", "length": 9}, "length belongs to shakespeare, text, not to mnist"),
    ],
)
def test_a_key_of_another_data_set_is_refused(data: dict[str, Any], says: str) -> None:
    with pytest.raises(FedauditError, match=says) as caught:
        parse({"data": data})
    assert (caught.value.code, caught.value.exit_code) == ("bad-value", 2)


@pytest.mark.parametrize(
    ("given", "code", "says"),
    [
        ({"data": {"pth": "a"}}, "unknown-key", "unknown key 'data.pth'.*Did you mean 'path', a key of .* and others"),
        (
            {"defences": [{"name": "l2", "strength": 1}, {"name": "l2", "strenth": 1}]},
            "unknown-key",
            "defences.1.stren",
        ),
        ({"defences": [{"name": "l2"}]}, "defence-key", "defences.0.strength: l2 needs strength"),
        ({"defences": [{"epsilon": 1.0}]}, "bad-value", "defences.0.name: Field required"),
        ({"defences": [3]}, "bad-value", "defences.0"),
        ({"model": 3}, "bad-value", "model"),
        ({"model": {"name": "mpl"}}, "bad-value", "model.name.*Did you mean 'mlp'"),
        ({"audit": {"fusion": {"atacks": ["loss"]}}}, "unknown-key", "audit.fusion.atacks.*Did you mean 'attacks'"),
    ],
)
def test_errors_say_where(given: dict[str, Any], code: str, says: str) -> None:
    with pytest.raises(FedauditError, match=says) as caught:
        parse(given, where="mine.toml")
    assert caught.value.code == code
    assert "(mine.toml)" in str(caught.value)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"federation": {"lr": True}}, "federation.lr: a number is needed, and not true or false"),
        ({"federation": {"server_lr": True}}, "federation.server_lr: a number is needed, and not true or false"),
        ({"audit": {"attacks": [{"name": "fta", "degree": True}]}}, r"audit.attacks.0.degree: a number is needed"),
        ({"audit": {"fpr": [0.1, False]}}, "audit.fpr: a number is needed"),
        ({"audit": {"attacks": [{"name": "fta", "ratio": 1}]}}, r"0.ratio'.* Known: degree, name, signal, weights\."),
        (
            {"audit": {"attacks": [{"name": "mine:Attack", "degree": 1}]}},
            r"unknown key 'audit.attacks.0.degree'.*What is yours stands under options: options = \{ degree = ... \}",
        ),
        ({"data": {"name": "mine:load", "path": "x"}}, r"options = \{ path = ... \}"),
    ],
)
def test_what_is_no_number_and_whose_keys_are_known(given: dict[str, Any], says: str) -> None:
    with pytest.raises(FedauditError, match=says):
        parse(given)


def test_what_is_true_or_false_stays_so() -> None:
    assert parse({"federation": {"secagg": True}, "model": {"name": "mine:net", "options": {"wide": True}}})


# As the former version computed them: the cells of its studies are found by these.
HASHES: list[tuple[dict[str, Any], str]] = [
    ({}, "9cfc6d66ce416629"),
    ({"data": {"name": "digits"}, "model": {"hidden": [32]}}, "9b4445b6e245010a"),
    ({"data": {"name": "npz", "path": "mine.npz", "task": "regression", "x_key": "bits"}}, "57ef070b431f87a1"),
    (
        {"data": {"name": "cifar10", "path": "cifar"}, "model": {"name": "resnet20", "norm": "batch"}},
        "015e262f1862c32f",
    ),
    ({"model": {"name": "cnn", "filters": 16}}, "4ebae06147e52fe7"),
    ({"model": {"name": "mine:net", "options": {"width": 3}}}, "9a46e54ea01d3dc8"),
    (
        {"defences": [{"name": "dp-sgd", "epsilon": 8, "clip": 1}, {"name": "memguard", "strength": 1}]},
        "7eae42be462b2b7e",
    ),
    (
        {"defences": [{"name": "dp-fedavg", "noise": 1.0, "delta": 1e-06, "clip": 0.5, "local": True}]},
        "a382dc13adf893db",
    ),
    ({"defences": [{"name": "clip-only", "clip": 0.5}]}, "37568b659e605595"),
    ({"federation": {"partition": "subjects", "secagg": True}}, "4c5a397e82fe0310"),
]


@pytest.mark.parametrize(("given", "hash"), HASHES)
def test_a_configuration_keeps_its_hash(given: dict[str, Any], hash: str) -> None:
    config = parse(given)
    assert config.sharing(0.3, 0.3).hash() == hash  # as they were written before the data decided it
    assert parse(config.as_dict()) == config
