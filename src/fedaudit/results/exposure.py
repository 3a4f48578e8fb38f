"""The most exposed records and subjects: those that the strongest quoted attack would pick out first.

This list is itself membership data. The ids are hashed with a salt, random numbers of the run that stay in its folder:
without them, a list of names does not undo the hashes. The owner of a record can find it by party and score in
scores.parquet.

Of text, its beginning is shown. A word that fewer than `COMMON` people have in what was set aside for calibration
(records, where nobody knows whose they are) might say whose it is, and is left out.
"""

import hashlib
import re
import secrets
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from fedaudit.audit.auditor import Auditor
from fedaudit.audit.score import known, usual
from fedaudit.files import write_atomically
from fedaudit.results.document import Exposed, ExposedUnit
from fedaudit.stats.strongest import leading
from fedaudit.types import IGNORED, Game, Headline, Role, Vantage

MOST = 20
SALT = "salt"  # a file beside the results, which is not passed on with them
CUT, COMMON, LEFT_OUT = 80, 10, "\u2592\u2592\u2592"  # characters of a text; people who must have a word to show it
Row = tuple[float, float, str, str, str, int]  # calibration records above, minus the score, party, id, subject, which


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


def most_exposed(
    auditor: Auditor, headlines: Sequence[Headline], salt: str, vocabulary: Sequence[str] = ()
) -> Exposed | None:
    """Members ranked by the share of their panel's calibration non-members that score at least as high. `vocabulary`:
    of text, what each token stands for."""
    gravest = leading(headlines)
    if gravest is None:
        return None
    headline = gravest.whose
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
            who = str(sight.party[i]), str(sight.id[i]), str(subject[i])
            rows.append((float(above[i]), -float(scores[i]), *who, int(sight.index[i])))
    shown = TextsShown(auditor.game, vocabulary)
    records = [
        ExposedUnit(_hashed(salt, name), party, -minus, above, shown.text(which))
        for above, minus, party, name, _, which in sorted(rows)[:MOST]
    ]
    if auditor.game.candidates.unit == "subject":
        return Exposed(headline.attack, headline.vantage, [], _subjects(rows, salt))
    subjects = None if auditor.game.candidates.subject is None else _subjects(rows, salt)
    return Exposed(headline.attack, headline.vantage, records, subjects)


class TextsShown:
    """The texts of records, as far as they may be shown."""

    def __init__(self, game: Game, vocabulary: Sequence[str]):
        self.rows, self.vocabulary = game.candidates.rows, vocabulary
        self.readable = bool(vocabulary) and self.rows.y.ndim > 1 and len(self.rows) == len(game.candidates)
        self.known: Counter[str] = Counter()
        if self.readable:
            said: dict[str, set[str]] = {}  # by author: one who wrote much makes none of his words common
            authors = game.candidates.id if game.candidates.subject is None else game.candidates.subject
            for row in np.flatnonzero(game.truth.mask(Role.CALIBRATION)):
                said.setdefault(str(authors[row]), set()).update(re.findall(r"\w+", self._whole(int(row))))
            self.known.update(word for words in said.values() for word in words)

    def text(self, row: int) -> str:
        if not self.readable:
            return ""
        whole = " ".join(self._whole(row).split())
        shown = re.sub(r"\w+", lambda word: word[0] if self.known[word[0]] >= COMMON else LEFT_OUT, whole)
        return shown if len(shown) <= CUT else f"{shown[:CUT]}\u2026"

    def _whole(self, row: int) -> str:
        labels = self.rows.y[row]
        tokens = (self.rows.x[row][0], *labels[labels != IGNORED])
        return "".join(self.vocabulary[t] if t < len(self.vocabulary) else LEFT_OUT for t in map(int, tokens))


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
