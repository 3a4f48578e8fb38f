"""The questions that an audit can ask, by name, and the figures that they report.

A question is added by a folder here and a line in `ROOMS`, or by an entry point of another package in the group
`fedaudit.questions`. Nothing else names it: gate, comparison, study, advice, page and terminal read its metrics.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import import_module

from fedaudit.config.attack_registry import BLIND
from fedaudit.config.registry import plugged_in
from fedaudit.errors import OF_OTHERS, FedauditError, suggest
from fedaudit.questions.question import MINUS, Against, Metric, OfRounds, Question, Verdict, of_base
from fedaudit.types import AuditResult

__all__ = [
    "MINUS",
    "Against",
    "Metric",
    "OfRounds",
    "Question",
    "Verdict",
    "asked_by",
    "every",
    "metric",
    "named",
    "of",
    "of_membership",
    "unusable",
]

ROOMS = (  # folders; each holds a QUESTION
    "record",
    "subject",
    "source",
    "attribute",
    "canary",
    "coins",
)


@cache
def _ours() -> dict[str, Question]:
    found = [import_module(f"fedaudit.questions.{folder}").QUESTION for folder in ROOMS]
    return {question.name: question for question in found}


@cache
def _of_others() -> tuple[dict[str, Question], dict[str, str]]:
    """From installed packages; and why some cannot be used."""
    found, broken = plugged_in("questions")
    usable: dict[str, Question] = {}
    for name, made in found.items():
        try:
            question = made() if isinstance(made, type) else made
        except OF_OTHERS as error:
            broken[name] = f"it cannot be made ({type(error).__name__}: {error})"
            continue
        if not isinstance(question, Question) or question.name != name:
            broken[name] = "it is no Question of that name: derive it from fedaudit.questions.Question and set `name`"
        elif name in _ours():
            broken[name] = "fedaudit has a question of that name: rename it"
        elif clash := _clash(question, [*_ours().values(), *usable.values()]):
            broken[name] = clash
        else:
            usable[name] = question
    return usable, broken


def _clash(question: Question, others: Sequence[Question]) -> str:
    """Which of its figures another question describes otherwise. Whoever prints one finds it by its name."""
    for other in others:
        known = {metric.name: metric for metric in other.metrics}
        for mine in question.metrics:
            if known.get(mine.name, mine) != mine:
                return f"its metric {mine.name!r} is described otherwise by the question {other.name!r}: rename it"
    return ""


def every() -> dict[str, Question]:
    """By name, ours first."""
    return _ours() | _of_others()[0]


def unusable() -> dict[str, str]:
    """Questions of installed packages that cannot be used, and why."""
    return _of_others()[1]


def named(name: str) -> Question:
    found, (_, broken) = every(), _of_others()
    if name in found:
        return found[name]
    if name in broken:
        what = f"the question {name!r} cannot be used: {broken[name]}"
        raise FedauditError("unknown-question", what, "Mend its package and install it again, or leave it out.")
    if ":" in name:
        what = f"{name!r} names code, and a question is known by an entry point of an installed package alone"
        todo = f'Enter it under "fedaudit.questions" there (docs/plugins.md). {suggest(name, found)}'
        raise FedauditError("unknown-question", what, todo)
    raise FedauditError("unknown-question", f"unknown question {name!r}", suggest(name, found))


def of(entry: AuditResult) -> Question | None:
    """The question that a result answers; None if its package is not installed here. The results of former versions
    do not name it: it follows from their unit."""
    former = {"user": "canary", "attribute": "attribute", "subject": "subject"}
    name = entry.question or ("source" if entry.attack == "source" else former.get(entry.unit, "record"))
    return every().get(name)


def of_membership(entry: AuditResult) -> bool:
    """Is it the result of an attack on who was trained on? The blind guess is none: it sees no model."""
    question = of(entry)
    return question is not None and question.of_membership and entry.attack != BLIND


def asked_by() -> dict[str, str]:
    """Names in `audit.attacks` that ask a question without being attacks, and the question's name."""
    return {name: question.name for question in every().values() for name in question.asked_by}


@cache
def _described() -> dict[str, Metric]:
    return {metric.name: metric for question in reversed(every().values()) for metric in question.metrics}


def metric(name: str) -> Metric:
    """The description of a figure. One that no installed question describes is printed as a plain number: its run may
    come from a machine with another package."""
    base = name.removesuffix(MINUS).partition("@")[0]
    found = _described().get(base)
    return Metric(name, name, most=float("inf"), least=float("-inf")) if found is None else of_base(found, name)
