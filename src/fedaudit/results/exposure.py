"""The most exposed records and subjects: those that the strongest quoted attack would pick out first.

This list is itself membership data. The ids are hashed with a salt, random numbers of the run that stay in its folder:
without them, a list of names does not undo the hashes. The owner of a record can find it by party and score in
scores.parquet.
"""

import hashlib
import secrets
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from fedaudit.audit.auditor import Auditor
from fedaudit.audit.score import known, usual
from fedaudit.files import write_atomically
from fedaudit.results.document import Exposed, ExposedUnit
from fedaudit.stats.strongest import certain
from fedaudit.stats.wording import main_tpr
from fedaudit.types import Headline, Role, Vantage

MOST = 20
SALT = "salt"  # a file beside the results, which is not passed on with them
Row = tuple[float, float, str, str, str]  # share of calibration records above, minus the score, party, id, subject


def stored_salt(directory: Path) -> str | None:
    with suppress(OSError, UnicodeDecodeError):
        text = (directory / SALT).read_text(encoding="ascii").strip()
        return text if len(text) == 64 else None
    return None


def new_salt(directory: Path | None) -> str:
    """Random numbers, kept in the folder where that is possible."""
    salt = secrets.token_hex(32)
    with suppress(OSError):
        if directory is not None:
            write_atomically(directory / SALT, f"{salt}\n")
    return salt


def most_exposed(auditor: Auditor, headlines: Sequence[Headline], salt: str) -> Exposed | None:
    """Members ranked by the share of their panel's calibration non-members that score at least as high."""
    if not headlines:
        return None
    name = main_tpr([headline.estimates for headline in headlines])
    headline = max(headlines, key=lambda h: certain(h, name))
    (attack,) = [a for a in auditor.settings.attacks if a.name == headline.attack]
    rows: list[Row] = []
    found = auditor.case().scores
    for sight in auditor.outlooks.of(Vantage(headline.vantage), headline.model):
        if not found.defined(sight, attack):
            continue
        scores, calibration = found.of(sight, attack), np.sort(found.block(sight, attack).calibration)
        above = 1 - np.searchsorted(calibration, scores, side="left") / max(len(calibration), 1)
        names = sight.candidates.subject
        subject = sight.id if names is None else names[sight.index]
        reported = (sight.role == Role.MEMBER.value) & found.judged(sight, attack)
        if "known" in attack.fitted_on:
            reported &= ~known(sight, usual(sight))[0]  # known before the attack, which exposed nothing of theirs
        for i in np.flatnonzero(reported):
            rows.append((float(above[i]), -float(scores[i]), str(sight.party[i]), str(sight.id[i]), str(subject[i])))
    records = [
        ExposedUnit(_hashed(salt, name), party, -minus, above) for above, minus, party, name, _ in sorted(rows)[:MOST]
    ]
    if auditor.game.candidates.unit == "subject":
        return Exposed(headline.attack, headline.vantage, [], _subjects(rows, salt))
    subjects = None if auditor.game.candidates.subject is None else _subjects(rows, salt)
    return Exposed(headline.attack, headline.vantage, records, subjects)


def _subjects(rows: list[Row], salt: str) -> list[ExposedUnit]:
    """A subject is as exposed as its most exposed record, and is ranked like it."""
    mine: dict[str, list[Row]] = {}
    for row in rows:
        mine.setdefault(row[4], []).append(row)
    ranked = sorted(mine.items(), key=lambda item: (min(item[1])[:2], item[0]))
    return [
        ExposedUnit(_hashed(salt, name), ", ".join(sorted({row[2] for row in own})), -min(own)[1], min(own)[0])
        for name, own in ranked[:MOST]
    ]


def _hashed(salt: str, name: str) -> str:
    return hashlib.sha256(f"{salt}|{name}".encode()).hexdigest()[:12]
