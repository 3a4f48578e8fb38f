"""Small real federations that several tests audit: handwritten digits or letters, two or three parties, seconds."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

from fedaudit.adversary.attacks import every, made
from fedaudit.audit import Auditor
from fedaudit.config.schema import Config, parse
from fedaudit.federation.simulate import Trainer
from fedaudit.session.prepare import Prepared, prepare
from fedaudit.session.run import rounds
from fedaudit.session.workers import Kind, News, Work, reason
from fedaudit.stats import random_half
from fedaudit.types import Audit, Candidates, Game, Role, Truth


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


def of_records() -> list[str]:
    """All attacks on records, but for those that need an adversary with a shadow model."""
    return [name for name in every("record", "source") if "shadow" not in made(name).fitted_on]


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


def watch(prepared: Prepared) -> Audit:
    for round in rounds(prepared):
        prepared.auditor.observe(round)
    return prepared.auditor.snapshot()


@cache
def plain() -> Audit:
    """The default attacks on the federation that `config` gives when nothing is asked for."""
    return watch(prepare(config()))


def null_world(settings: Config) -> Prepared:
    """The parties train on half of the calibration records, which then leave the game: no candidate was trained on."""
    prepared = prepare(settings)
    candidates, truth = prepared.game.candidates, prepared.game.truth
    trained_on = truth.mask(Role.CALIBRATION) & random_half(candidates.id, "null-world")
    parties: list[Any] = []
    for party in prepared.parties:
        assert isinstance(party, Trainer)
        mine = candidates.rows.take(trained_on & (candidates.party == party.name))
        parties.append(Trainer(party.name, mine, party.training))
    rows = candidates.rows.take(~trained_on)
    fewer = Candidates("record", rows.id, candidates.party[~trained_on], rows, np.arange(len(rows)), rows.subject)
    game = Game(fewer, Truth(rows.id, truth.role[~trained_on]))
    auditor = Auditor(prepared.task, game, prepared.settings)
    return replace(prepared, game=game, parties=parties, auditor=auditor)


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
