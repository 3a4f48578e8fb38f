"""Small real federations that several tests audit: handwritten digits or letters, two or three parties, seconds."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

from fedaudit.adversary.attacks import every, made
from fedaudit.config.schema import Config, parse
from fedaudit.session.prepare import prepare
from fedaudit.session.selftest import null_world as null_world
from fedaudit.session.selftest import watch as watch
from fedaudit.session.workers import Kind, News, Work, reason
from fedaudit.types import Audit


def config(**sections: dict[str, Any]) -> Config:
    base: dict[str, dict[str, Any]] = {
        "data": {"name": "digits"},
        "federation": {"parties": 2, "rounds": 5, "members": 0.3, "nonmembers": 0.3, "batch_size": 32, "lr": 3e-3},
        "model": {"hidden": [64]},
        "audit": {},
    }
    for section, values in sections.items():
        given = base[section] | values
        base[section] = {key: value for key, value in given.items() if value is not None}  # None takes a key out
    return parse(base)


def half_digits(folder: Path) -> dict[str, str]:
    """Every other digit, as a section of data: for worlds with very many attacks."""
    x, y = load_digits(return_X_y=True)
    np.savez(folder / "digits.npz", x=x[::2] / 16, y=y[::2])
    return {"name": "npz", "path": str(folder / "digits.npz")}


ON_TEXT = ("min-k", "zlib-ratio", "base-gain", "token-presence")  # attacks that no other records can feed


def of_records() -> list[str]:
    """All attacks on records of any kind, but for those that need an adversary with a shadow model."""
    found = [name for name in every("record", "source") if "shadow" not in made(name).fitted_on]
    return [name for name in found if name not in ON_TEXT]


def silent(_what: str, _steps: int) -> AbstractContextManager[Callable[[], None]]:
    """Progress that nobody watches."""
    return nullcontext(lambda: None)


def in_turn(pieces: Sequence[Any], do: Work, _workers: int) -> Iterator[News]:
    """As `session.workers.work`, one piece after another and in this process."""
    for number, piece in enumerate(pieces):
        told: list[tuple[Kind, str, str]] = []
        try:
            do(piece, lambda *news, told=told: told.append(news))
        except Exception as error:
            told.append(("failed", "", reason(error)))
        else:
            told.append(("done", "", ""))
        yield from (News(number, *news) for news in told)


@cache
def plain() -> Audit:
    """The default attacks on the federation that `config` gives when nothing is asked for."""
    return watch(prepare(config()))


def plays(path: Path, roles: int = 96, speeches: int = 2, seed: int = 0) -> Path:
    """A file like Shakespeare's: every role says random letters, so that what a model knows of them it has learnt."""
    rng = np.random.default_rng(seed)
    letters = np.array(list("abcdefghij ."))

    def speech() -> str:
        return "".join(rng.choice(letters, int(rng.integers(30, 90))).tolist())

    path.write_text(json.dumps({f"play|ROLE {i}": [speech() for _ in range(speeches)] for i in range(roles)}))
    return path


def text_config(path: Path, **sections: dict[str, Any]) -> Config:
    """A federation of two on such a file."""
    base: dict[str, dict[str, Any]] = {
        "data": {"name": "shakespeare", "path": str(path), "length": 12},
        # Single windows are dealt out: so few roles would leave too few people on a side.
        "federation": {
            "parties": 2,
            "rounds": 4,
            "local_epochs": 3,
            "batch_size": 16,
            "lr": 2e-2,
            "split_subjects": True,
        },
        "model": {"name": "lstm", "embedding": 6, "units": 24, "layers": 1},
    }
    return parse({name: base.get(name, {}) | sections.get(name, {}) for name in {*base, *sections}})
