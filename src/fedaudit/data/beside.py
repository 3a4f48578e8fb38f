"""Records from a second file, beside those that the parties train on: to set thresholds, or an adversary's own.

The file is read as [data] says. What a loader decides from a whole file, how it numbers classes and how it scales
columns, is taken from the first file, so that a row means the same in both.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.config.registry import Options
from fedaudit.data import load
from fedaudit.data.records import contents
from fedaudit.errors import FedauditError
from fedaudit.stats.blocks import hash_order
from fedaudit.types import Bools, Candidates, Dataset, Game, Records, Role, Strings, Truth

SALT = "calibration"
UNKNOWN = -1  # the last of the numbers by which others are replaced, so that it stays what it is
FIRST_ONLY = {"limit": None, "balance": None, "standardise": None}  # what [data] asks of the first file alone


def read_beside(options: Options, path: Path, first: Dataset, key: str) -> Dataset:
    """The records of the file, in the numbers of `first`, which is what the options themselves load.

    A record that both files hold is refused. `key` names the file in what is said of it.
    """
    fields = type(options).model_fields
    if "path" not in fields:
        what = f"{key} names a file, and {options.name} is not read from one"
        raise FedauditError("beside-data", what, f"Remove {key}, or give data that are read from a path.")
    if not path.exists():
        raise FedauditError("data-missing", f"there is no {path}", f"Check {key}.")
    as_read = options.model_copy(update=FIRST_ONLY)
    unscaled = as_read.model_copy(update={"scale": False}) if "scale" in fields else as_read

    def of_first(asked: Options) -> Dataset:
        """What is there already is not loaded again: that may take minutes, and half of the memory."""
        return first if asked == options else load(asked)

    other, whole = load(unscaled.model_copy(update={"path": path})), of_first(unscaled)
    _check_alike(other, whole, path, key)
    _check_numbers(other, first, path, key)
    records = _numbered(other, whole, path)
    _refuse_shared(records, whole.records, path, key)
    if unscaled != as_read:
        scaled = of_first(as_read).records
        y = records.y if first.classes else scaled_as(records.y, whole.records.y, scaled.y)
        records = replace(records, x=scaled_as(records.x, whole.records.x, scaled.x), y=y)
    if options.arguments().get("standardise"):
        before = load(options.model_copy(update={"standardise": None})).records
        records = replace(records, x=scaled_as(records.x, before.x, first.records.x))
    return replace(first, records=records)


def _check_alike(other: Dataset, first: Dataset, path: Path, key: str) -> None:
    differ = {
        "records of another shape": other.input_shape != first.input_shape,
        "other columns": other.columns != first.columns,
        "another vocabulary": other.vocabulary != first.vocabulary,
        "other attributes": other.records.attributes.keys() != first.records.attributes.keys(),
    }
    for what, is_so in differ.items():
        if is_so:
            todo = "Give a file of the same kind, with the same columns and the same words in them."
            raise FedauditError("beside-differs", f"{key}: {path} has {what} than data.path", todo)
    if (other.records.subject is None) != (first.records.subject is None):
        what = f"{key}: one of {path} and data.path says whose a record is, and the other does not"
        raise FedauditError("beside-differs", what, "Name the subject in both; records of one person err together.")


def _check_numbers(other: Dataset, first: Dataset, path: Path, key: str) -> None:
    """Of tokens, and of classes at positions, which have no names: a model of `first` has no place for others."""
    x, y = other.records.x, other.records.y
    tokens = first.classes if y.ndim > 1 else len(first.vocabulary) or first.records.x.max() + 1
    differ = {
        "larger numbers of tokens": x.dtype.kind in "iu" and x.max() >= tokens,
        "more classes": y.ndim > 1 and y.max() >= first.classes,
    }
    for what, is_so in differ.items():
        if is_so:
            todo = "Number tokens and classes as there, and leave out records that hold others."
            raise FedauditError("beside-differs", f"{key}: {path} has {what} than data.path", todo)


def _numbered(other: Dataset, first: Dataset, path: Path) -> Records:
    """Classes and attributes by the numbers that their names have in the first file."""

    def renumbered(name: str, codes: NDArray[Any]) -> NDArray[Any]:
        own, wanted = other.values.get(name), first.values.get(name)
        if own is None or wanted is None or own == wanted:
            return codes
        if unknown := len(set(own) - set(wanted)):
            what = f"{path} has {unknown} values of {name} that data.path has not"
            raise FedauditError("beside-differs", what, "Remove these rows.")
        numbers = np.array([*map(wanted.index, own), UNKNOWN], np.int64)
        return np.asarray(numbers[codes])

    found = other.records
    attributes = {name: renumbered(name, codes) for name, codes in found.attributes.items()}
    return replace(found, y=renumbered("label", found.y) if first.classes else found.y, attributes=attributes)


def scaled_as(values: NDArray[Any], before: NDArray[Any], after: NDArray[Any]) -> NDArray[Any]:
    """Every column by the factor and the shift that made `after` of `before`, whatever the order of their rows."""
    raw, scaled = before.astype(np.float64), after.astype(np.float64)
    spread = raw.std(axis=0)
    factor = np.where(spread > 0, scaled.std(axis=0) / np.where(spread > 0, spread, 1), 0)
    return np.asarray((values - raw.mean(axis=0)) * factor + scaled.mean(axis=0), after.dtype)


def _refuse_shared(records: Records, first: Records, path: Path, key: str) -> None:
    same = np.isin(contents(records), contents(first))
    if shared := int(same.sum()):
        what = f"{key}: {shared} of {len(records)} records of {path} are also in data.path"
        raise FedauditError("beside-shared", what, "Remove them from one of the two files: they may be trained on.")
    if shared := int(np.isin(records.id, first.id).sum()):
        what = f"{key}: {shared} ids occur in both {path} and data.path, though the contents differ"
        todo = "Make them unique, for example by a letter before all ids of one file."
        raise FedauditError("beside-ids", what, todo)


def refuse_shared_people(others: Strings | None, known: Strings | None, key: str) -> None:
    """Of those who are trained on or reported on, none may be in the file that `key` names."""
    if others is None or known is None:
        return
    if shared := int(np.isin(np.unique(others), known).sum()):
        what = f"{key} has records of {shared} people who are trained on or reported on"
        raise FedauditError("beside-people", what, "Remove them: a person has one role.")


# ------------------------------------------------------------------ what an adversary has of its own

LEAST_OWN = 20  # records: it trains on some, keeps the others, and an attack learns from both


def refuse_few(own: Records, split_people: bool, key: str) -> None:
    if len(own) < LEAST_OWN:
        what = f"{key} gives {len(own)} records: an adversary trains on some of its own, and learns from those held out"
        raise FedauditError("own-few", what, f"Give {LEAST_OWN} or more, best as many as a party has.")
    if own.subject is not None and not split_people and len(np.unique(own.subject)) < 2:
        what = f"{key} gives records of one person, and people are not split: none could be held out"
        raise FedauditError("own-few", what, "Give records of several people, best of as many as a party has.")


# ------------------------------------------------------------------ what sets thresholds


def calibrated_by(game: Game, others: Records) -> Game:
    """The game with these records in place of its calibration non-members, dealt out to the parties in turn."""
    rest = only(game, ~game.truth.mask(Role.CALIBRATION))
    names = game.parties
    refuse_shared_people(others.subject, rest.candidates.subject, "audit.calibration.path")
    if len(others) < len(names):
        what = f"audit.calibration.path has {len(others)} records for {len(names)} parties"
        raise FedauditError("empty-set", what, "Give every party one at least, and a hundred for a small FPR.")
    party = np.empty(len(others), rest.candidates.party.dtype)
    party[hash_order(others.id, SALT)] = np.resize(names, len(others))
    rows = _together(rest.candidates.rows, others)
    order = np.argsort(rows.id, kind="stable")
    rows, party = rows.take(order), np.concatenate([rest.candidates.party, party])[order]
    role = np.concatenate([rest.truth.role, np.full(len(others), Role.CALIBRATION.value)])[order]
    candidates = Candidates("record", rows.id, party, rows, np.arange(len(rows)), subject=rows.subject)
    return Game(candidates, Truth(rows.id, role))


def calibrated_with(game: Game, count: int) -> Game:
    """The game with so many of its calibration non-members: one of each party, then whoever comes first by hash."""
    known = np.flatnonzero(game.truth.mask(Role.CALIBRATION))
    if not len(game.parties) <= count <= len(known):
        what = f"audit.calibration.records is {count}, and there are {len(known)} for {len(game.parties)} parties"
        raise FedauditError("calibration-count", what, f"Set {len(game.parties)} to {len(known)}.")
    order = known[hash_order(game.candidates.id[known], SALT)]
    firsts = np.unique(game.candidates.party[order], return_index=True)[1]
    chosen = np.concatenate([order[firsts], np.delete(order, firsts)])[:count]
    kept = ~game.truth.mask(Role.CALIBRATION)
    kept[chosen] = True
    return only(game, kept)


def only(game: Game, kept: Bools) -> Game:
    """The game about these candidates. What is trained on stays the same."""
    old = game.candidates
    shown = kept[old.owner]
    candidates = replace(
        old,
        id=old.id[kept],
        party=old.party[kept],
        rows=old.rows.take(shown),
        owner=(np.cumsum(kept) - 1)[old.owner[shown]],
        subject=None if old.subject is None else old.subject[kept],
        held_by=None if old.held_by is None else {name: held[kept] for name, held in old.held_by.items()},
        has=None if old.has is None else old.has[kept],
    )
    return replace(game, candidates=candidates, truth=Truth(candidates.id, game.truth.role[kept]))


def _together(one: Records, other: Records) -> Records:
    join = np.concatenate
    subject = None if one.subject is None or other.subject is None else join([one.subject, other.subject])
    attributes = {name: join([codes, other.attributes[name]]) for name, codes in one.attributes.items()}
    return Records(join([one.x, other.x]), join([one.y, other.y]), join([one.id, other.id]), subject, attributes)
