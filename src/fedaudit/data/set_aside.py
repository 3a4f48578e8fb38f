"""Before training: which of a party's records are trained on, and which are set aside to audit it."""

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.data.datasets import array, read
from fedaudit.data.records import arranged
from fedaudit.errors import FedauditError
from fedaudit.types import Candidates, Game, Ints, Records, Role, Strings, Truth


def set_aside(
    x: Any,
    y: Any = None,
    *,
    party: str = "party",
    evaluation: float = 0.2,
    calibration: float = 0.2,
    seed: int = 0,
    id: NDArray[Any] | str | None = None,
    subject: NDArray[Any] | str | None = None,
) -> tuple[Records, Game]:
    """What this party may train on (`.x`, `.y`), and the game that audits it.

    x and y are arrays, tensors or columns. Without y, x is a dataset or a loader of torch or Hugging Face, without
    augmentation (`data.datasets`); `id` and `subject` may then be names of columns.

    Integers in x are taken for tokens and stay whole; give features as floats (or bytes, or bits): they become float32.
    y has a label for each record, or one for each of its positions (-100: nothing is predicted there).

    Every record is placed by a hash of the seed and its id (its subject's name, where there are subjects): a call in
    another process, in another order, or after records were added, gives every record the same place. That is what
    keeps a record that was once set aside out of all later training.
    """
    if not (evaluation > 0 and calibration > 0 and evaluation + calibration < 1):
        what = (
            f"evaluation {evaluation:g} and calibration {calibration:g} must be above 0 and leave records to train on"
        )
        raise FedauditError("fractions", what, "Choose, for example, 0.2 and 0.2.")
    if y is None:
        found = read(party, x, [name for name in (id, subject) if isinstance(name, str)])
        x, y = found.x, found.y
        id, subject = (found.named[own] if isinstance(own, str) else own for own in (id, subject))
    elif isinstance(id, str) or isinstance(subject, str):
        what = f"{party}: id and subject name columns of a dataset, and arrays are given"
        raise FedauditError("dataset", what, "Give an array with one name for each record.")
    records, _ = identified(party, array(x), array(y), id, subject)
    place = _places(records.id if records.subject is None else records.subject, seed)
    role = np.where(place < calibration, Role.CALIBRATION.value, Role.MEMBER.value)
    role = np.where((place >= calibration) & (place < calibration + evaluation), Role.EVALUATION.value, role)
    for wanted in Role:
        if not (role == wanted.value).any():
            what = f"{party}: of {len(records)} records none is left for {wanted.value}"
            raise FedauditError("empty-set", what, "Set larger parts aside, or join parties: so few tell nothing.")
    names = np.full(len(records), party)
    candidates = Candidates("record", records.id, names, records, np.arange(len(records)), subject=records.subject)
    game = Game(candidates, Truth(records.id, role.astype(np.str_)))
    return game.members(party), game


def identified(
    name: str, x: NDArray[Any], y: NDArray[Any], id: NDArray[Any] | None, subject: NDArray[Any] | None
) -> tuple[Records, Ints]:
    """The rows as records, and their order: checked, with ids, sorted by these; labels as they are.

    Read as values and not as labels, because labels mean the same in every party: a party that lacks a class must not
    number the others anew.
    """
    x, y = np.asarray(x), np.asarray(y)
    id = None if id is None else np.asarray(id)
    subject = None if subject is None else np.asarray(subject)
    if y.dtype.kind not in "fiub":
        raise FedauditError("labels", f"{name}: y is {y.dtype}", "Give labels as the model numbers them: 0, 1, ...")
    tokens = x.dtype.kind in "iu" and x.dtype.itemsize > 1
    found, order = arranged(name, x, y, id, subject, {}, regression=y.ndim == 1, tokens=tokens)
    records = found.records
    if y.dtype.kind != "f":
        records = replace(records, y=records.y.astype(np.int64))
    return records, order


def _places(names: Strings, seed: int) -> NDArray[np.float64]:
    """A number in [0, 1) for each name, the same whatever else there is."""
    unique, inverse = np.unique(names, return_inverse=True)
    digests = (hashlib.sha256(f"fedaudit-aside|{seed}|{name}".encode()).digest()[:8] for name in unique)
    return np.array([int.from_bytes(d, "big") / 2**64 for d in digests])[inverse]


def joined(*games: Game) -> Game:
    """The games of several parties as one, for whoever may see them all (a simulation, or one operator's loop)."""
    if not games or not all(isinstance(game, Game) for game in games):
        what = f"a game is wanted, and {'none' if not games else 'something else'} is given"
        raise FedauditError("no-game", what, "Give the parties' games: the second of what fedaudit.set_aside gives.")
    parts = [game.candidates for game in games]
    ids = np.concatenate([part.id for part in parts])
    if len(np.unique(ids)) < len(ids):
        # The same content in two parties is two records: one may be a member where the other is not.
        ids = np.concatenate([np.char.add(np.char.add(part.party, "/"), part.id) for part in parts])
    if len({(part.rows.x.dtype.kind, part.rows.x.shape[1:], part.rows.y.shape[1:]) for part in parts}) > 1:
        what = "the parties' records differ in shape, or hold tokens in one party and features in another"
        raise FedauditError("games-differ", what, "Prepare x and y alike in all parties.")
    subjects = [part.subject for part in parts if part.subject is not None]
    without = [name for game in games if game.candidates.subject is None for name in game.parties]
    if subjects and without:
        what = f"whose each record is, is known of some parties, but not of {', '.join(without)}"
        raise FedauditError("games-differ", what, "Give fedaudit.set_aside `subject` in all parties, or in none.")
    subject = np.concatenate(subjects) if subjects else None
    x, y = np.concatenate([p.rows.x for p in parts]), np.concatenate([p.rows.y for p in parts])
    order = np.argsort(ids, kind="stable")
    rows = Records(x, y, ids, subject).take(order)
    party = np.concatenate([part.party for part in parts])[order]
    role = np.concatenate([game.truth.role for game in games])[order]
    return Game(
        Candidates("record", rows.id, party, rows, np.arange(len(rows)), subject=rows.subject), Truth(rows.id, role)
    )
