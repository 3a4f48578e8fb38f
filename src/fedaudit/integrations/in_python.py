"""Errors in the words of whoever calls fedaudit from Python, who has no configuration file and no command line."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from fedaudit.errors import FedauditError

LISTS, SECTIONS = ("attacks", "fpr", "vantages"), ("tear", "matched", "fusion")
NAMES = "|".join((*LISTS, *SECTIONS, "confidence", "keep", "rounds", "seed"))
VALUE = r"""(\[[^\]]*\]|"[^"]*"|'[^']*'|-?\d[\d.e-]*|true|false)"""
OURS = (
    r"fedaudit run|federation\.coins|audit\.(adversary|attribute|unit|reference|canary)"  # what only `fedaudit run` has
)

NEEDS_OURS = "needs a federation that fedaudit trains itself"
ANOTHER_FOLDER = "Give another folder (out=...), or remove this one if it is not needed."

KEYS: tuple[tuple[str, str], ...] = (
    (r"Correct \S+ in the configuration", "Correct this argument"),
    (r"unknown key 'audit\.(\w+)\.(\w+)'", r"\1={...} has no key '\2'"),
    (r"unknown key 'audit\.attacks\.(\d+)\.(\w+)'", r"attacks[\1] has no key '\2'"),
    (r"\baudit\.attacks\.(\d+)\.(\w+)", r'attacks[\1]["\2"]'),
    (r"\baudit\.questions\.([\w-]+)\.(\w+)", r'questions["\1"]["\2"]'),
    (r"\baudit\.questions\.([^\s.]+?)(?=:? |$)", r'questions["\1"]'),
    (r"\[audit\.questions(\.NAME)?\]|\baudit\.questions\b", "questions={...}"),
    (rf"audit\.({'|'.join(SECTIONS)})\.(\w+) = {VALUE}", r'\1={"\2": \3}'),
    (rf"audit\.({'|'.join(SECTIONS)})\.(\w+)", r'\1={"\2": ...}'),
    (r"the (attack|vantage) out of \[audit\]", r"the \1 out of \1s=[...]"),
    (rf"\b(?:audit|federation)\.({NAMES})\.(\d+)", r"\1[\2]"),
    (rf"\b(?:audit|federation)\.({NAMES}) = {VALUE}", r"\1=\2"),
    (rf"\b(?:audit|federation)\.({'|'.join(LISTS)})\b", r"\1=[...]"),
    (rf"\[audit\.({NAMES})\]|\baudit\.({'|'.join(SECTIONS)})\b", r"\1\2={...}"),
    (rf"\b(?:audit|federation)\.({NAMES})\b", r"\1=..."),
    (r"raise federation\.members", "set aside less (evaluation=..., calibration=... of fedaudit.set_aside)"),
    (r"\baudit\.(\w+)\b", r"\1=..."),
    (r"add a vantage that (can run|sees) it:", r"add a vantage that \1 it to vantages=[...]:"),
    (r"with --out( \(out= in Python\))?", "(out=...)"),
    (r'then \[model\] forward = "[^"]*", or forward= in Python', "then give it as an argument (forward=...)"),
    (r"; options come from \[model\.options\]", ""),
    (r"run the command in a folder", "start Python in a folder"),
    (r", but the configuration names none", ""),
)


def worded(text: str) -> str:
    """The same with arguments of Python instead of keys and options."""
    for key, argument in KEYS:
        text = re.sub(key, argument, text)
    return text


def translated(error: FedauditError) -> FedauditError:
    what, todo, where = worded(error.what), worded(error.todo), error.where
    if "--force" in error.todo:
        todo = ANOTHER_FOLDER
    elif re.search(OURS, error.todo):
        todo = "Leave it out." if NEEDS_OURS in what else f"Leave it out: it {NEEDS_OURS}."
    where = "" if where == "configuration" else where
    return FedauditError(error.code, what, todo, where=where, exit_code=error.exit_code)


@contextmanager
def in_python() -> Iterator[None]:
    """Errors that leave the block speak of Python's arguments."""
    try:
        yield
    except FedauditError as error:
        raise translated(error) from error.__cause__
