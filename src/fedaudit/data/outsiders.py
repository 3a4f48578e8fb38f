"""Are outsiders really outsiders? What makes members and non-members alike, so that attacks look too weak."""

import hashlib

import numpy as np

from fedaudit.types import Game, Notice, Role, warning


def understated(game: Game) -> list[Notice]:
    """Why what is found in this game may be less than the risk: people on both sides, and twins. Or nothing."""
    return [*split_people(game), *twins(game)]


def split_people(game: Game) -> list[Notice]:
    """A warning that counts the non-members of whose people other records were trained on."""
    subject, member = game.candidates.subject, game.truth.mask(Role.MEMBER)
    if subject is None:
        return []
    shared = int(np.isin(subject[~member], subject[member]).sum())
    return [warning("split-people", shared=shared, of=int((~member).sum()))] if shared else []


def twins(game: Game) -> list[Notice]:
    """A warning that counts the members whose content is also that of a non-member, whatever their ids."""
    rows, member = game.candidates.rows, game.truth.mask(Role.MEMBER)
    member = member[game.candidates.owner]
    pairs = zip(rows.x, rows.y, strict=True)
    content = np.array([hashlib.sha256(x.tobytes() + y.tobytes()).digest() for x, y in pairs], dtype="V32")
    shared = int(np.isin(content[member], content[~member]).sum())
    return [warning("twins", shared=shared, of=int(member.sum()), unit=game.candidates.unit)] if shared else []
