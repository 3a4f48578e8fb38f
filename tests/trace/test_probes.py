"""Probes in a trace: late parties and conflicts belong to the probe, not to the round before it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedaudit.trace.store import Store
from fedaudit.types import Round, Trained
from fedaudit.words import all_words


def state(value: float) -> dict[str, np.ndarray]:
    return {"w": np.full(2, float(value))}


def round(index: int, probe: int, start: float, made: float, **sent: float) -> Round:
    trained = {name: Trained(state(value), 1, 0.1) for name, value in sent.items()}
    return Round(index, state(start), trained, state(made), commit=not probe, probe=probe)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with Store.create(tmp_path / "trace", {"keep": "snapshots"}) as store:
        assert store.append(round(1, 0, 0, 1, a=1)) == "new"
        assert store.append(round(1, 1, 1, 2, a=2)) == "new"
    return tmp_path / "trace"


def read(folder: Path) -> dict[tuple[int, int], dict[str, Any]]:
    store = Store.read(folder)
    made = [store.round(entry) for entry in store.entries()]
    return {(r.index, r.probe): {name: of.state["w"][0] for name, of in r.sent.items()} for r in made}


def test_a_late_party_of_a_probe_is_added_to_the_probe(folder: Path) -> None:
    with Store.resume(folder) as store:
        assert store.append(round(1, 1, 1, 2, a=2, b=3)) == "changed"
        assert store.append(round(1, 1, 1, 2, a=2, b=3)) == "repeated"
    assert read(folder) == {(1, 0): {"a": 1}, (1, 1): {"a": 2, "b": 3}}
    assert all_words(Store.read(folder).warnings()) == ["Round 1, probe 1: the answer of party 'b' came late."]


def test_a_late_party_of_a_probe_before_the_first_round(tmp_path: Path) -> None:
    with Store.create(tmp_path / "trace", {"keep": "snapshots"}) as store:
        store.append(round(0, 1, 0, 1, a=1))
        assert store.append(round(0, 1, 0, 1, a=1, b=2)) == "changed"
    assert read(tmp_path / "trace") == {(0, 1): {"a": 1, "b": 2}}


@pytest.mark.parametrize("made", [2, 7])
def test_a_known_probe_with_other_content_is_a_conflict(folder: Path, made: float) -> None:
    with Store.resume(folder) as store:
        assert store.append(round(1, 1, 1, made, a=7)) == "changed"
        assert store.append(round(1, 1, 1, made, a=7)) == "repeated"
        assert store.append(round(1, 0, 0, 1, a=7)) == "changed"  # the round's own conflict is another one
    assert read(folder) == {(1, 0): {"a": 1}, (1, 1): {"a": 2}}
    twice = "party 'a' answered twice, with different models. The first answer counts."
    assert all_words(Store.read(folder).warnings()) == [f"Round 1, probe 1: {twice}", f"Round 1: {twice}"]
