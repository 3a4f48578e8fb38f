"""Signals of records that are text: a class at every position, and tokens as inputs.

min-k: the mean loss of the fifth of a record's tokens that the model expects least (Shi et al. 2024, as we know it).
zlib-ratio: the sum of a record's losses for each byte that zlib makes of it (Carlini et al. 2021, as we know it). Here
the bytes are those of the tokens' numbers, written as characters, because a record is known by its tokens.
base-loss: the loss under the model that the federation started from, which is public where it fine-tunes one.
token-presence: how many of a record's tokens have a row of the embedding that the update did not move, negated. A row
moves only if somebody who made the update has its token (and the optimizer decays no weights).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.adversary.signals.outputs import Answers, loss, parts
from fedaudit.adversary.vantage import View
from fedaudit.errors import FedauditError
from fedaudit.types import IGNORED, Bools, Floats, Grant, Records

MIN_K, ZLIB, BASE, PRESENCE = "min-k", "zlib-ratio", "base-loss", "token-presence"
SHARE = 0.2  # of a record's tokens
NEEDS: dict[str, frozenset[Grant]] = {
    **dict.fromkeys((MIN_K, ZLIB), frozenset({Grant.OUTPUTS})),
    BASE: frozenset({Grant.WEIGHTS}),
}
PRESENCE_NEEDS = {PRESENCE: frozenset({Grant.WEIGHTS, Grant.START})}


def measure(
    names: Iterable[str], view: View, rows: Records, known: Bools, rng: np.random.Generator
) -> dict[str, Floats]:
    _check_text(rows)
    names = list(names)
    found: dict[str, Floats] = {}
    if {MIN_K, ZLIB} & set(names):
        each = [_at_positions(view.ask(rows.x[part]), rows.y[part]) for part in parts(rows.y, view.classes)]
        losses = np.concatenate(each)
        found[MIN_K], found[ZLIB] = _of_least_expected(losses), np.nansum(losses, axis=1) / _compressed(rows.x, rows.y)
    if BASE in names:
        from fedaudit.adversary.signals import matched

        found[BASE] = matched.loss(view.task, view.task.initial(0), rows)
    return {name: found[name] for name in names}


def _check_text(rows: Records) -> None:
    if rows.x.dtype.kind != "i" or rows.y.ndim == 1:
        what = "the records are no text: tokens, with the next one as the label at every position"
        todo = "Take min-k, zlib-ratio, base-gain and token-presence out of audit.attacks."
        raise FedauditError("no-tokens", what, todo)


def _at_positions(z: Floats, y: NDArray[Any]) -> Floats:
    """records x positions; NaN where nothing is predicted."""
    counts = y != IGNORED
    each = loss(Answers.of(z.reshape(-1, z.shape[-1]), np.where(counts, y, 0).reshape(-1))).reshape(y.shape)
    return np.where(counts, each, np.nan)


def _of_least_expected(losses: Floats) -> Floats:
    """The mean of the largest ones, a fifth of those that count and at least one."""
    ranked = -np.sort(-losses, axis=1)  # NaN last
    many = np.maximum(1, np.floor(SHARE * np.isfinite(losses).sum(axis=1)).astype(int))
    chosen = np.arange(losses.shape[1]) < many[:, None]
    return np.asarray(np.where(chosen, ranked, 0.0).sum(axis=1) / many)


def _compressed(x: NDArray[Any], y: NDArray[Any]) -> Floats:
    """Bytes of each record after compression, its last token included. Numbers that are no characters move up."""
    found = []
    for tokens, labels in zip(x, y, strict=True):
        counted = labels[labels != IGNORED]
        text = "".join(chr(t if t < 0xD800 else t + 0x800) for t in (int(tokens[0]), *map(int, counted)))
        found.append(len(zlib.compress(text.encode())))
    return np.array(found, np.float64)


def measure_presence(
    names: Iterable[str], view: View, rows: Records, known: Bools, rng: np.random.Generator
) -> dict[str, Floats]:
    _check_text(rows)
    name = _embedding(view, int(rows.x.max()))
    if view.received is None:
        return {}
    moved = (view.received[name] != view.weights[name]).any(axis=1)
    counts = rows.y != IGNORED
    absent = np.array([len(np.unique(x[c & ~moved[x]])) for x, c in zip(rows.x, counts, strict=True)], np.float64)
    return dict.fromkeys(names, -absent)


def _embedding(view: View, highest: int) -> str:
    """The weights of the embedding of tokens, where it is exchanged."""
    from torch import nn

    module = getattr(view.task, "architecture", nn.Module())
    found = [
        f"{name}.weight"
        for name, layer in module.named_modules()
        if isinstance(layer, nn.Embedding) and layer.num_embeddings > highest and layer.weight.requires_grad
    ]
    if not found or found[0] in view.task.base:
        what = "no embedding of tokens is exchanged, whose rows could show which tokens a party has"
        raise FedauditError("no-embedding", what, "Take token-presence out of audit.attacks.")
    return found[0]
