"""Members and non-members with identical content, which no attack can tell apart."""

import hashlib

import numpy as np

from fedaudit.types import Game, Role


def twins(game: Game) -> list[str]:
    """A warning that counts the members whose content is also that of a non-member, whatever their ids; or nothing."""
    rows, member = game.candidates.rows, game.truth.mask(Role.MEMBER)
    pairs = zip(rows.x, rows.y, strict=True)
    content = np.array([hashlib.sha256(x.tobytes() + y.tobytes()).digest() for x, y in pairs], dtype="V32")
    shared = int(np.isin(content[member], content[~member]).sum())
    if not shared:
        return []
    return [
        f"{shared} of {int(member.sum())} members have the same content as a non-member: nobody can tell such twins "
        "apart, so what is found understates the risk of the others. Remove duplicates before the split."
    ]
