"""A game in a file: who was trained on what. An npz of plain arrays: x, y, party, role, and where known id, subject.

Integers in x are tokens, as in `set_aside`.
"""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.data.npz import UNREADABLE, check_size, plain_arrays
from fedaudit.data.set_aside import identified, joined
from fedaudit.errors import REFUSED, FedauditError
from fedaudit.files import write_atomically
from fedaudit.types import Candidates, Game, Role, Truth

NEEDED = ("x", "y", "party", "role")


def save_game(game: Game | Sequence[Game], path: str | Path) -> None:
    """One party's game, or the games of several parties as one. Any `load_game` reads it."""
    game = game if isinstance(game, Game) else joined(*game)
    rows = game.candidates.rows
    columns: dict[str, NDArray[Any]] = {
        "x": rows.x, "y": rows.y, "id": rows.id, "party": game.candidates.party, "role": game.truth.role
    }  # fmt: skip
    if rows.subject is not None:
        columns["subject"] = rows.subject
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **columns)
    write_atomically(Path(path), buffer.getvalue())


def load_game(path: Path) -> Game:
    """Roles are member, evaluation and calibration. Nothing executable is read."""
    columns = _columns(path)
    missing = [name for name in NEEDED if name not in columns]
    if missing:
        what = f"{path} has no {', '.join(missing)}"
        raise FedauditError(
            "game-file", what, f"Give an npz with {', '.join(NEEDED)} and, where known, id and subject."
        )
    if len({values.shape[:1] for values in columns.values()}) > 1:
        raise FedauditError(
            "game-file", f"{path}: the arrays have different lengths", "Give every array one row for each record."
        )
    for name in ("party", "role"):
        if columns[name].ndim != 1:
            what = f"{path}: {name} has shape {columns[name].shape}"
            raise FedauditError("game-file", what, f"Give every record one {name}.")
    role, party = columns["role"].astype(np.str_), columns["party"].astype(np.str_)
    unknown = np.flatnonzero(~np.isin(role, [r.value for r in Role]))
    absent = [r.value for r in Role if r.value not in role]
    if len(unknown) or absent:
        strange = f"the role of {len(unknown)} records is unknown, the first is record {unknown[:1].sum() + 1}"
        what = f"{path}: {strange if len(unknown) else f'no record has the role {absent[0]!r}'}"
        raise FedauditError("game-role", what, "Roles are member (trained on), evaluation and calibration (never).")
    records, order = identified(path.name, columns["x"], columns["y"], columns.get("id"), columns.get("subject"))
    candidates = Candidates(
        "record", records.id, party[order], records, np.arange(len(records)), subject=records.subject
    )
    return Game(candidates, Truth(records.id, role[order]))


def _columns(path: Path) -> dict[str, NDArray[Any]]:
    try:
        check_size(path, "game-size")
        with np.load(path, allow_pickle=False) as archive:
            return plain_arrays({name: archive[name] for name in archive.files})
    except OSError as error:
        raise FedauditError("game-missing", f"cannot read {path}: {error.strerror}", "Check the path.") from None
    except UNREADABLE:
        raise FedauditError(
            "game-unreadable", f"{path} is not an npz of plain arrays", "Write it with numpy.savez.", exit_code=REFUSED
        ) from None
