"""Are outsiders really outsiders? What makes members and non-members alike, so that attacks look too weak."""

import hashlib

import numpy as np

from fedaudit.types import Game, Role


def understated(game: Game) -> list[str]:
    """Why what is found in this game may be less than the risk: people on both sides, and twins. Or nothing."""
    return [*split_people(game), *twins(game)]


def split_people(game: Game) -> list[str]:
    """A warning that counts the non-members of whose people other records were trained on."""
    subject, member = game.candidates.subject, game.truth.mask(Role.MEMBER)
    if subject is None:
        return []
    shared = int(np.isin(subject[~member], subject[member]).sum())
    if not shared:
        return []
    return [
        f"{shared:,} of {int((~member).sum()):,} non-members belong to people who were trained on: an attack that "
        "knows these people mistakes such records for members, so what is found understates the risk. Give every "
        "person one role (federation.split_subjects = false)."
    ]


def twins(game: Game) -> list[str]:
    """A warning that counts the members whose content is also that of a non-member, whatever their ids."""
    rows, member = game.candidates.rows, game.truth.mask(Role.MEMBER)
    member = member[game.candidates.owner]
    pairs = zip(rows.x, rows.y, strict=True)
    content = np.array([hashlib.sha256(x.tobytes() + y.tobytes()).digest() for x, y in pairs], dtype="V32")
    shared = int(np.isin(content[member], content[~member]).sum())
    if not shared:
        return []
    what = "members" if game.candidates.unit == "record" else "records of members"
    return [
        f"{shared} of {int(member.sum())} {what} have the same content as a non-member: nobody can tell such twins "
        "apart, so what is found understates the risk of the others. Remove duplicates before the split."
    ]
