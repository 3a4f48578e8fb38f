"""What `fedaudit selftest` found out about this installation, kept for this user and quoted by every later run."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from fedaudit.files import write_atomically
from fedaudit.types.stored import Count, Flag, Many, Number, Positive


@dataclass(frozen=True)
class Counted:
    count: Count
    of: Positive

    def __str__(self) -> str:
        return f"{self.count} of {self.of}"


@dataclass(frozen=True, kw_only=True)
class SelfTest:
    """Audits of worlds whose truth is known, by the versions that are installed here."""

    created: str
    fedaudit: str
    code: Annotated[str, Field(description="a hash of the sources: a version number outlives many changes")]
    versions: Mapping[str, str]
    attacks: Annotated[Many[str], Field(description="that were tried")]
    confidence: Number
    false_alarms: Annotated[Counted, Field(description="audits of a world with nothing to find that found something")]
    found: Annotated[Counted, Field(description="planted leaks that were found")]
    bounds_above: Annotated[Counted, Field(description="proved bounds above the true epsilon of a Gaussian mechanism")]
    fits_around: Annotated[Counted, Field(description="intervals of the Gaussian fit that hold the true epsilon")]
    sound: Annotated[Flag, Field(description="all of these are as often as the confidence promises")]
    seconds: Number

    @property
    def setting(self) -> tuple[str, str, Mapping[str, str], tuple[str, ...], float]:
        return self.fedaudit, self.code, self.versions, tuple(self.attacks), self.confidence


@cache
def code() -> str:
    """Of the sources that are running."""
    folder, found = Path(__file__).parents[1], hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        found.update(f"{path.relative_to(folder)}\n".encode() + path.read_bytes())
    return found.hexdigest()[:16]


def _file() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fedaudit" / "selftest.json"


_KEPT = TypeAdapter(tuple[SelfTest, ...])


def keep(outcome: SelfTest) -> Path:
    """Beside those of other settings; an earlier one of the same setting is replaced."""
    others = [kept for kept in _all_kept() if kept.setting != outcome.setting]
    write_atomically(_file(), _KEPT.dump_json((*others, outcome), indent=1))
    return _file()


def _all_kept() -> Sequence[SelfTest]:
    with suppress(OSError, RuntimeError, ValidationError):  # no home, no file, or not ours
        return _KEPT.validate_json(_file().read_bytes())
    return ()


def kept_for(fedaudit: str, versions: Mapping[str, str], attacks: Sequence[str], confidence: float) -> SelfTest | None:
    """What these versions did at this confidence, with as many of these attacks as possible."""
    asked = fedaudit, code(), versions, confidence
    fitting = [kept for kept in _all_kept() if (kept.fedaudit, kept.code, kept.versions, kept.confidence) == asked]
    return max(fitting, key=lambda kept: len({*kept.attacks} & {*attacks}), default=None)
