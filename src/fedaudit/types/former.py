"""What the version before this one wrote in words alone, and what it meant.

Their words are on disk and do not change any more. Nothing else asks what a sentence says.
"""

from fedaudit.types import Ending, Level, Notice

_ENDINGS: dict[str, Ending] = {  # by the first word of the status
    "complete": "complete",
    "interrupted": "interrupted",
    "degraded": "degraded",
    "recorded": "recorded",
    "not": "not-audited",
}
_STARTS = {"The search for decision boundaries may ask for": "search-time", "Repeat with seed ": "repeat"}


def ending(status: str) -> Ending:
    return _ENDINGS.get(status.partition(" ")[0], "recorded")


def notice(sentence: str, level: Level) -> Notice:
    code = next((code for start, code in _STARTS.items() if sentence.startswith(start)), "text")
    return Notice(code, level, {"text": sentence})


def simultaneous(method: str) -> bool:
    """Does the band of a curve hold for all its rounds at once?"""
    return "simultaneous" in method.lower()
