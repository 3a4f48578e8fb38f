"""Errors that teach: a stable code, what is wrong, where, and what to do. Record values never appear in them."""

from collections.abc import Iterable
from difflib import get_close_matches

WRONG_USE = 2  # found before training: configuration or input
DEGRADED = 4  # training went on, part of the audit is missing
REFUSED = 5  # a stored artefact that will not be read
FAULT = 6  # ours: nothing the user did wrong is known


class FedauditError(Exception):
    """Anything the user can mend. `code` names the rule that was broken and never changes meaning."""

    def __init__(self, code: str, what: str, todo: str, *, where: str = "", exit_code: int = WRONG_USE):
        self.code, self.what, self.where, self.todo, self.exit_code = code, what, where, todo, exit_code
        super().__init__(f"[{code}] {what}{f' ({where})' if where else ''}. {todo}")


class NotGrantedError(FedauditError):
    """An attack reached for something that its adversary does not see."""

    def __init__(self, what: str, vantage: str):
        super().__init__(
            "not-granted",
            f"{what} cannot be had from the vantage {vantage!r}",
            "Choose a vantage that sees it, or an attack that does without.",
        )


def suggest(word: str, known: Iterable[str]) -> str:
    """What to do about an unknown word: the nearest known one, and the whole list."""
    names = sorted(known)
    near = get_close_matches(word, names, n=1, cutoff=0.5)
    hint = f"Did you mean {near[0]!r}? " if near else ""
    return f"{hint}Known: {', '.join(names)}."
