"""The most exposed records and subjects: those that the strongest quoted attack would pick out first.

This list is itself membership data. The ids are hashed with a key made from all data of the federation, which nobody
outside has. The owner of a record can find it by party and score in scores.parquet.
"""

import hashlib
from collections.abc import Sequence

import numpy as np

from fedaudit.audit.auditor import Auditor
from fedaudit.audit.known import known, usual
from fedaudit.results.document import Exposed, ExposedUnit
from fedaudit.types import Headline, Role, Vantage

MOST = 20
Row = tuple[float, float, str, str, str]  # share of calibration records above, minus the score, party, id, subject


def most_exposed(auditor: Auditor, headlines: Sequence[Headline], key: str) -> Exposed | None:
    """Members ranked by the share of their panel's calibration non-members that score at least as high."""
    if not headlines:
        return None
    headline = max(headlines, key=lambda h: h.estimates["auc"].value or 0.0)
    (attack,) = [a for a in auditor.settings.attacks if a.name == headline.attack]
    rows: list[Row] = []
    found = auditor.case().scores
    for sight in auditor.panels.of(Vantage(headline.vantage), headline.model):
        if not found.defined(sight, attack):
            continue
        scores, calibration = found.of(sight, attack), np.sort(found.block(sight, attack).calibration)
        above = 1 - np.searchsorted(calibration, scores, side="left") / max(len(calibration), 1)
        names = sight.candidates.subject
        subject = sight.id if names is None else names[sight.index]
        reported = sight.role == Role.MEMBER.value
        if attack.tunes:
            reported &= ~known(sight, usual(sight))[0]  # known before the attack, which exposed nothing of theirs
        for i in np.flatnonzero(reported):
            rows.append((float(above[i]), -float(scores[i]), str(sight.party[i]), str(sight.id[i]), str(subject[i])))
    records = [
        ExposedUnit(_hashed(key, name), party, -minus, above) for above, minus, party, name, _ in sorted(rows)[:MOST]
    ]
    if auditor.game.candidates.unit == "subject":
        return Exposed(headline.attack, headline.vantage, [], _subjects(rows, key))
    subjects = None if auditor.game.candidates.subject is None else _subjects(rows, key)
    return Exposed(headline.attack, headline.vantage, records, subjects)


def _subjects(rows: list[Row], key: str) -> list[ExposedUnit]:
    """A subject is as exposed as its most exposed record. Ties are broken by the mean over its records."""
    mine: dict[str, list[Row]] = {}
    for row in rows:
        mine.setdefault(row[4], []).append(row)
    ranked = sorted(mine.items(), key=lambda item: (min(item[1])[0], float(np.mean([r[0] for r in item[1]])), item[0]))
    return [
        ExposedUnit(_hashed(key, name), ", ".join(sorted({row[2] for row in own})), -min(own)[1], min(own)[0])
        for name, own in ranked[:MOST]
    ]


def _hashed(key: str, name: str) -> str:
    return hashlib.sha256(f"{key}|{name}".encode()).hexdigest()[:12]
