"""Attacks on text against the obvious slow way, and where a party's tokens show in its update."""

import zlib
from typing import Any

import numpy as np
import pytest
import torch

from fedaudit.adversary.signals import measure
from fedaudit.adversary.vantage import view
from fedaudit.data.records import dataset
from fedaudit.errors import FedauditError
from fedaudit.learn.tasks import Training, build_task
from fedaudit.types import IGNORED, Moment, Records, Vantage

TOKENS, LENGTH, WORD = 40, 8, ("min-k", "zlib-ratio", "base-loss", "token-presence")


def texts(n: int, seed: int) -> Records:
    rng = np.random.default_rng(seed)
    windows = rng.choice(TOKENS, (n, LENGTH + 1), p=(p := 1 / np.arange(1, TOKENS + 1)) / p.sum())
    y = windows[:, 1:].copy()
    y[np.arange(LENGTH) >= rng.integers(2, LENGTH + 1, n)[:, None]] = IGNORED
    return dataset("text", windows[:, :-1], y, tokens=True).records


def seen(task: Any, before: Any, after: Any) -> Any:
    return view(Vantage.SERVER, "local", Moment(1), task, after, before)


def test_signals_equal_the_obvious_ones() -> None:
    rows = texts(30, 0)
    task = build_task("lstm", (LENGTH,), TOKENS, {"units": 6, "embedding": 4})
    before = task.initial(3)
    after = task.train(before, rows.take(np.arange(6)), Training("adam", 0.05, 3, 2), np.random.default_rng(0)).state
    found = measure(WORD, seen(task, before, after), rows, np.ones(len(rows), bool))
    for i in range(len(rows)):
        counted = [t for t in range(LENGTH) if rows.y[i, t] != IGNORED]

        def losses(state: Any, i: int = i, counted: list[int] = counted) -> list[float]:
            z = torch.from_numpy(task.outputs(state, rows.x[i : i + 1])[0])
            return [float(-torch.log_softmax(z[t], 0)[rows.y[i, t]]) for t in counted]

        least = sorted(losses(after), reverse=True)[: max(1, len(counted) // 5)]
        assert found["min-k"][i] == pytest.approx(np.mean(least), rel=1e-5)
        text = "".join(chr(t) for t in (rows.x[i, 0], *rows.y[i, counted]))
        assert found["zlib-ratio"][i] == pytest.approx(sum(losses(after)) / len(zlib.compress(text.encode())), rel=1e-5)
        assert found["base-loss"][i] / LENGTH == pytest.approx(np.mean(losses(task.initial(0))), rel=1e-5)
        moved = {t for t in range(TOKENS) if (before["embedding.weight"][t] != after["embedding.weight"][t]).any()}
        assert found["token-presence"][i] == -len({int(rows.x[i, t]) for t in counted} - moved)


def test_whoever_was_trained_on_has_every_token_present() -> None:
    rows = texts(400, 1)
    task = build_task("lstm", (LENGTH,), TOKENS, {"units": 6, "embedding": 4})
    before, members = task.initial(0), np.arange(len(rows)) < 5
    after = task.train(before, rows.take(members), Training("adam", 0.01, 1, 5), np.random.default_rng(0)).state
    score = measure(["token-presence"], seen(task, before, after), rows, members)["token-presence"]
    assert (score[members] == 0).all()
    assert (score[~members] < 0).mean() > 0.5


def test_what_no_text_gives_is_refused() -> None:
    task = build_task("mlp", (4,), 3, {"hidden": (4,)})
    rows = dataset("rows", np.random.default_rng(0).normal(size=(9, 4)), np.arange(9) % 3).records
    state = task.initial(0)
    for name in WORD:
        with pytest.raises(FedauditError, match="the records are no text"):
            measure([name], seen(task, state, state), rows, np.ones(9, bool))


def test_an_adapter_shows_no_rows_of_an_embedding() -> None:
    from fedaudit.learn.models.language import AdapterOptions

    task = build_task("llama", (LENGTH,), TOKENS, {"width": 8, "layers": 1, "heads": 2, "adapter": AdapterOptions(r=2)})
    state, rows = task.initial(0), texts(4, 0)
    with pytest.raises(FedauditError, match="no embedding of tokens is exchanged"):
        measure(["token-presence"], seen(task, state, state), rows, np.ones(4, bool))
