"""Every block of code in README and docs/ is carried out by a test, or says in a comment above it why it is not:

    <!-- not run: it takes hours -->

A page that is followed from top to bottom by a test of its own is named in FOLLOWED. Of all other pages, configurations
are read, Python is executed and commands are run here, one page after the other in a folder that has what their reader
has. So a new block is carried out by itself.
"""

import gc
import json
import re
import shutil
import tomllib
import warnings
from collections.abc import Callable, Iterator
from contextlib import chdir
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
import pytest
import typer.main

import fedaudit
from fedaudit.cli.commands import app
from fedaudit.config.schema import parse
from fedaudit.data.game_file import save_game
from fedaudit.session.verify.evidence import read_claim
from tests.pages import command

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
FOLLOWED = {
    "README.md": "test_readme.py",
    "commands.md": "test_readme.py",
    "architecture.md": "test_walkthroughs.py",
    "plugins.md": "test_plugins.py",
    **dict.fromkeys(
        (f"start-{name}.md" for name in ("csv", "loop", "scores", "data-owner", "researcher", "dp-developer")),
        "test_newcomers.py",
    ),
    **dict.fromkeys(("start-flower.md", "start-privacy-officer.md"), "test_first_hours.py"),
}
FENCE = re.compile(r"(<!-- not run: (?P<why>[^>]{10,}) -->\n+)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.S | re.M)
SHOWN = ("text",)  # what a command prints, a listing: nothing to carry out


class CodeBlock(NamedTuple):
    language: str
    text: str
    why_not: str | None


def blocks(page: Path) -> Iterator[CodeBlock]:
    for found in FENCE.finditer(page.read_text(encoding="utf-8")):
        yield CodeBlock(found["language"], found["text"], found["why"])


def to_do(page: str, language: str) -> list[str]:
    """What this file carries out of a page."""
    return [one.text for one in blocks(DOCS / page) if one.language == language and one.why_not is None]


OURS = [page.name for page in PAGES if page.name not in FOLLOWED]


def having(language: str) -> list[str]:
    return [page for page in OURS if to_do(page, language)]


# ------------------------------------------------------------------ the rule


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_says_what_it_is(page: Path) -> None:
    assert {one.language for one in blocks(page)} <= {"sh", "python", "toml", "json", *SHOWN}


@pytest.mark.parametrize("page", FOLLOWED)
def test_a_page_that_is_followed_elsewhere_is_named_there(page: str) -> None:
    assert page in (ROOT / "tests" / FOLLOWED[page]).read_text(encoding="utf-8")


# ------------------------------------------------------------------ configurations

# Sections that a page shows without what they need beside them.
BESIDE: dict[str, dict[str, Any]] = {
    "adapters.md": {"data": {"name": "text", "path": "notes.jsonl"}},
    "subjects.md": {"data": {"name": "baskets"}},
}


def laid_over(base: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    both = dict(base)
    for key, value in more.items():
        both[key] = (
            laid_over(both[key], value) if isinstance(value, dict) and isinstance(both.get(key), dict) else value
        )
    return both


@pytest.mark.parametrize("page", having("toml"))
def test_configurations_are_read(page: str, tmp_path: Path) -> None:
    """A key that is gone, or misspelt, is refused."""
    for text in to_do(page, "toml"):
        raw = tomllib.loads(text)
        if "claim" in raw:
            (tmp_path / "claim.toml").write_text(text)
            read_claim(tmp_path / "claim.toml", 1)
        elif "grid" in raw:
            for key, values in raw["grid"].items():
                for value in values:
                    path = key.split(".")
                    parse({path[0]: {path[1]: value}} if len(path) == 2 else {key: value})
        elif page == "flower.md" and "halt_if" in raw:
            from fedaudit.integrations.flower.guard import read_site

            (tmp_path / "site.toml").write_text(text)
            assert read_site(tmp_path / "site.toml").rounds == raw["rounds"]
        else:
            parse(laid_over(BESIDE.get(page, {}), raw))


@pytest.mark.parametrize("page", having("json"))
def test_components_are_there_and_take_these_arguments(page: str) -> None:
    for text in to_do(page, "json"):
        shown = json.loads(text)
        module, _, name = shown["path"].rpartition(".")
        assert set(shown["args"]) <= set(signature(getattr(import_module(module), name)).parameters)


# ------------------------------------------------------------------ Python


def flower() -> dict[str, Any]:
    import torch
    from flwr.clientapp import ClientApp
    from flwr.serverapp.strategy import FedAvg

    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(400, 8)).astype(np.float32), np.arange(400) % 2
    games = [fedaudit.set_aside(x[i::2], y[i::2], party=f"hospital-{i + 1}")[1] for i in (0, 1)]
    model = torch.nn.Linear(8, 2)
    return {
        "x": x, "y": y, "fedaudit": fedaudit, "ClientApp": ClientApp, "FedAvg": FedAvg, "Net": lambda: model,
        "my_game": lambda context: games[0], "client_fn": lambda context: None, "games": games, "name_of": str,
        "model": model, "game_a": games[0],
        "game_b": games[1], "parties": ["hospital-1", "hospital-2"], "average": lambda updates: updates["hospital-1"],
        "train_locally": lambda model, party: {name: value.clone() for name, value in model.state_dict().items()},
    }  # fmt: skip


def nvflare() -> dict[str, Any]:
    x, y = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32), np.arange(200) % 2
    Path("local").mkdir()
    return {"x": x, "y": y, "fedaudit": fedaudit, "save_game": save_game}


READERS: dict[str, Callable[[], dict[str, Any]]] = {"flower.md": flower, "nvflare.md": nvflare}


@pytest.mark.parametrize("page", having("python"))
def test_python_is_executed_as_printed(page: str, tmp_path: Path) -> None:
    with chdir(tmp_path):
        known = READERS.get(page, dict)()
        for number, text in enumerate(to_do(page, "python"), 1):
            exec(compile(text, f"{page}, block {number}", "exec"), known)
        with warnings.catch_warnings():  # a strategy that trains nothing is closed with its process, and that goes on
            warnings.simplefilter("ignore", ResourceWarning)
            known.clear()
            gc.collect()


# ------------------------------------------------------------------ commands

SMALL = """
[data]
name = "digits"
[federation]
parties = {parties}
rounds = 2
[model]
hidden = [16]
[audit]
attacks = ["loss", "fta-confidence"]
fpr = [0.01]
keep = "snapshots"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What readers have: runs of their own, what other sites handed over, two checkpoints, a configuration."""
    here = tmp_path_factory.mktemp("commands")
    for name, parties in (("my", 2), ("site", 1), ("three", 3)):
        (here / f"{name}.toml").write_text(SMALL.format(parties=parties))
        command(f"fedaudit run {name}.toml", here)
    for party, site in zip(("party-0", "party-1", "party-2"), ("site-a", "site-b", "site-c"), strict=True):
        command(f"fedaudit hand-over runs/three --party {party} --out {site}", here)
    shutil.copytree(here / "runs/my", here / "runs/mine")
    first = here / "runs/my/rounds/00001"
    shutil.copy(first / "party-party-0.safetensors", here / "sent.safetensors")
    shutil.copy(first / "broadcast.safetensors", here / "received.safetensors")
    (here / "columns.txt").write_text("\n".join(f"pixel {number}" for number in range(64)))
    (here / "study.toml").write_text(next(text for text in to_do("studies.md", "toml") if "[grid]" in text))
    return here


@pytest.mark.evidence
@pytest.mark.parametrize("page", having("sh"))
def test_commands_run_as_printed(page: str, folder: Path) -> None:
    for text in to_do(page, "sh"):
        for line in text.splitlines():
            command(line, folder)


# ------------------------------------------------------------------ commands within sentences

SPAN = re.compile(r"`(fedaudit [a-z][^`]*)`")


def commands_named(page: Path) -> list[str]:
    return SPAN.findall(re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.S | re.M))


@pytest.mark.parametrize("page", [page for page in PAGES if commands_named(page)], ids=lambda page: page.name)
def test_commands_in_sentences_exist_with_these_options(page: Path) -> None:
    program = typer.main.get_command(app)
    assert isinstance(program, click.Group)
    for line in commands_named(page):
        names = line.split()[1].split("|")
        for name in names:
            one = program.commands.get(name)
            assert one is not None, line
            known = {option for given in one.params for option in given.opts} | {"--help"}
            ours = line.split(" -- ")[0]
            assert set(re.findall(r"(?<=\s)--[a-z][\w-]*", ours)) <= known, line
