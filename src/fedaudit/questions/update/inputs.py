"""Which whole records, or words, does an update give away? What `recovery` finds, beside the truth.

Records: where they go into a dense layer with ReLU as they are. Words: where the first attention takes them in; with an
embedding that is trained, `presence` tells them already. A record counts as read off where every column is right, to a
hundredth of that column's spread among outsiders.

The guess from outsiders lists as many records as were read off: those that outsiders have most often.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.learn.models.mlp import HIDDEN
from fedaudit.questions.update import recovery
from fedaudit.questions.update.parts import (
    BesideTruth,
    CannotTell,
    Known,
    Listed,
    OneUpdate,
    Table,
    compared,
    most_probable,
)
from fedaudit.questions.update.presence import entry_of
from fedaudit.types import Estimate, Floats, Ints, Notice, Records, State, notice

if TYPE_CHECKING:
    from fedaudit.questions import Ground
    from fedaudit.questions.update import UpdateSection

OUTSIDERS = 500  # that say which values there are, and how often units are off
RIGHT = 0.01  # of a column's spread
# What was looked for and not found is a result. Of the rest, nothing can be told.
LOOKED = ("", "not-found")
VALUES = ("value", "v_proj", "v", "w_v", "wv")  # what linear layers of attention are called that take in the values


class Inputs:
    def look(self, update: OneUpdate, known: Known, options: UpdateSection) -> Table:
        outsiders = known.some
        if outsiders is None or update.task is None:
            raise CannotTell("inputs-entry")
        if outsiders.x.dtype.kind in "iu":
            return _words(update, outsiders)
        try:
            entry = entry_of(update, known)
        except CannotTell:
            raise CannotTell("inputs-entry") from None
        if entry.words or entry.bias is None or not entry.relu:
            raise CannotTell("inputs-relu")
        layer = recovery.MovedLayer(
            weight=entry.before,
            bias=entry.bias[0],
            moved=entry.after - entry.before,
            moved_bias=entry.bias[1] - entry.bias[0],
            last=entry.last is None,
        )
        found = read_off(layer, outsiders, np.random.default_rng(known.seed), update.examples)
        if found.unsure not in LOOKED:
            raise CannotTell(f"inputs-{found.unsure}")
        rows = found.records if len(found) else np.zeros((1, layer.moved.shape[1]))
        return {
            "inputs-record": rows,
            "inputs-found": np.full(len(rows), len(found) > 0),
            "inputs-way": np.full(len(rows), found.way),
        }

    def judge(self, seen: Sequence[BesideTruth], known: Known, confidence: float) -> Mapping[str, Estimate]:
        outsiders = known.some
        if outsiders is None:
            return {}
        found: dict[str, Estimate] = {}
        for name, key, listed in (
            ("exact-inputs", "inputs-record", records_beside),
            ("exact-words", "inputs-word", words_beside),
        ):
            mine = [one for one in seen if key in one.table]
            lists = [listed(one.table, one.members, outsiders) for one in mine]
            found |= compared(name, lists, [one.party for one in mine], confidence)
        return found

    def say(self, one: BesideTruth, known: Known, options: UpdateSection) -> Notice | None:
        words = "inputs-word" in one.table
        count = int(one.table["inputs-found"].sum())
        if not count:
            return None
        where = {"party": one.party, "round": one.round, "vantage": one.vantage}
        return notice("update-inputs", **where, count=count, of=len(one.members), words=words)


def read_off(
    layer: recovery.MovedLayer, outsiders: Records, rng: np.random.Generator, records: int
) -> recovery.Recovered:
    """Both ways; what gives more records. All of a batch, or else those that moved a unit alone."""
    x = outsiders.x[:OUTSIDERS].reshape(min(OUTSIDERS, len(outsiders)), -1).astype(np.float64)
    domain = recovery.Domain.of(x)
    alone = recovery.by_ratio(layer, domain)
    whole = recovery.by_rank(layer, domain, x, rng, records=records)
    return alone if len(alone) > len(whole) else whole


# ------------------------------------------------------------------ records beside the truth


def same(rows: Floats, others: Floats, spread: Floats) -> Ints:
    """For each row, which of the others it is; -1: none."""
    found = np.full(len(rows), -1)
    for place, row in enumerate(rows):
        away = (np.abs(others - row) / spread).max(axis=1, initial=0.0)
        if len(away) and away.min() <= RIGHT:
            found[place] = int(away.argmin())
    return found


def records_beside(table: Table, members: Records, outsiders: Records) -> Listed:
    """All records that are true, listed or guessed, each once. Numbers of true ones are the same in every round."""
    x = members.x.reshape(len(members), -1).astype(np.float64)
    outside = outsiders.x.reshape(len(outsiders), -1).astype(np.float64)
    spread = np.ptp(outside, axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    true = np.unique(x, axis=0)
    listed = np.asarray(table["inputs-record"], np.float64)[np.asarray(table["inputs-found"], bool)]
    usual, often = np.unique(outside, axis=0, return_counts=True)
    guessed = usual[most_probable(often, len(listed))]
    is_true = [same(rows, true, spread) for rows in (listed, guessed)]
    false = [int((found < 0).sum()) for found in is_true]
    whole = len(true) + sum(false)
    masks = [np.zeros(whole, bool) for _ in is_true]
    start = len(true)
    for mask, found, wrong in zip(masks, is_true, false, strict=True):
        mask[found[found >= 0]] = True
        mask[start : start + wrong] = True
        start += wrong
    return Listed(masks[0], np.arange(whole) < len(true), masks[1], np.arange(whole))


def words_beside(table: Table, members: Records, outsiders: Records) -> Listed:
    listed = np.asarray(table["inputs-found"], bool)
    true, often = np.zeros(len(listed), bool), np.bincount(outsiders.x.ravel(), minlength=len(listed))
    true[np.unique(members.x)] = True
    return Listed(listed, true, most_probable(often, int(listed.sum())), np.arange(len(listed)))


# ------------------------------------------------------------------ words


def _words(update: OneUpdate, outsiders: Records) -> Table:
    taken = attention_of(update.task, update.received, outsiders)
    if taken is None:
        raise CannotTell("inputs-attention")
    name, pick, vectors = taken
    if name not in update.sent:
        raise CannotTell("inputs-attention")
    before, after = (pick(np.asarray(state[name], np.float64)) for state in (update.received, update.sent))
    vocabulary = update.task.classes
    found = recovery.by_span(after - before, before, vectors, vocabulary)
    if found.unsure:
        raise CannotTell(f"inputs-{found.unsure}")
    listed = np.zeros(vocabulary, bool)
    listed[found.word] = True
    return {"inputs-word": np.arange(vocabulary), "inputs-found": listed}


class _Seen(Exception):
    """No error: the rest of the pass is not needed."""


Pick = Callable[[Floats], Floats]  # the rows of the value projection, of weights that may hold more


def attention_of(task: Any, received: State, outsiders: Records) -> tuple[str, Pick, Callable[[Ints], Floats]] | None:
    """The first value projection: the name of its weights, which part of them it is, and what goes into it for words,
    at every position. None where there is none, or where what goes into it depends on other words."""
    if not hasattr(task, "fresh"):
        return None
    import torch
    from torch import nn

    module = task.fresh(received).eval()
    layer: nn.Module | None = None
    name, pick, first = "", _whole, True
    for own, each in module.named_modules():
        if isinstance(each, nn.MultiheadAttention) and each.in_proj_weight is not None:
            layer, name, pick, first = each, f"{own}.in_proj_weight", _last_third, each.batch_first
            break
        if isinstance(each, nn.Linear) and own.rpartition(".")[2] in VALUES:
            layer, name = each, f"{own}.weight"
            break
        if own.endswith("c_attn") and getattr(each, "weight", None) is not None:  # keys, queries and values, transposed
            layer, name, pick = each, f"{own}.weight", _last_third_transposed
            break
    if layer is None:
        return None
    caught: list[Any] = []

    def catch(_: nn.Module, inputs: tuple[Any, ...], more: Mapping[str, Any]) -> None:
        caught[:] = [inputs[0] if inputs else more.get("query", more.get("hidden_states"))]
        raise _Seen

    layer.register_forward_pre_hook(catch, with_kwargs=True)
    length = outsiders.x.shape[1]

    def entering(tokens: NDArray[Any]) -> Floats:
        with suppress(_Seen):
            module(torch.from_numpy(np.ascontiguousarray(tokens)))
        vectors = caught[0].detach().double().numpy()
        return np.asarray(vectors if first else vectors.transpose(1, 0, 2))

    def of_words(numbers: Ints) -> Floats:
        return entering(np.repeat(numbers[:, None], length, axis=1))

    some = outsiders.x[:1].astype(np.int64)
    beside = of_words(some[0])[np.arange(length), np.arange(length)]
    if not caught or not np.allclose(entering(some)[0], beside, rtol=1e-4, atol=1e-6):
        return None
    return name, pick, of_words


def _whole(weight: Floats) -> Floats:
    return weight


def _last_third(weight: Floats) -> Floats:
    return weight[2 * len(weight) // 3 :]


def _last_third_transposed(weight: Floats) -> Floats:
    return _last_third(weight.T)


# ------------------------------------------------------------------ before training


def foreseen(ground: Ground) -> list[str]:
    """For the model `mlp`, whose shape is known before it is built."""
    config, game = ground.config, ground.game
    given = config.model.arguments()
    hidden = given.get("hidden", HIDDEN)
    if config.model.name != "mlp" or not hidden or given.keys() & {"rank", "projection"}:
        return []
    adam = config.federation.algorithm == "fedavg" and config.federation.optimizer == "adam"
    sizes = sorted({game.size(party) for party in game.parties})
    return [
        room_of(hidden[0], math.prod(ground.dataset.input_shape), size, adam=adam) for size in {sizes[0], sizes[-1]}
    ]


def room_of(units: int, inputs: int, records: int, *, adam: bool) -> str:
    """What one update of a party with so many records can give away, from the shape of the first layer and how the
    party trains."""
    found = recovery.capacity(units, inputs, records)
    shape = f"update: {units} units on {inputs} inputs, {records} records behind an update"
    if adam:
        return f"{shape}: Adam scales every weight by itself, which hides sums of records: none is read off."
    if found.complete > 0.5:
        return f"{shape}: all of them can be read off, if no local step is noisy (fresh ReLU units, half of them off)."
    room = (
        f"there is room for at most {found.limit:,} different ones"
        if records > found.limit
        else f"they have room, but finding all takes more than {recovery.KERNELS:,} tries"
    )
    alone = f"about {found.alone:.1f}" if found.alone >= 0.05 else "none"
    return f"{shape}: {room}; {alone} of them can be expected to move a unit alone, and be read off by that."


PART = Inputs()
