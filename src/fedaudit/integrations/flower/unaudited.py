"""A training that goes on although its audit cannot: said in the log and on the page, from the first round on."""

import logging
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from fedaudit.errors import FedauditError
from fedaudit.integrations.options import not_audited
from fedaudit.results import document as results
from fedaudit.results.document import Withheld
from fedaudit.session.session import code_of, in_words
from fedaudit.types import Notice, gap
from fedaudit.words import line

log = logging.getLogger("flwr")  # an app's own log, so that it appears where its owner looks
NOT_AUDITED = "not-audited"  # the code of what is told then


def say(round: int | None, error: Exception, withheld: bool = False, again: bool = False) -> Notice:
    """Tells the owner of this app in one line, and returns what the report is to say. Nothing of it leaves the node.

    `round`: None if it is the whole run, 0 if it is not known which. Only a fault that nobody foresaw has a traceback,
    and only the first time (`again`: it was told before).
    """
    foreseen = isinstance(error, FedauditError | OSError)
    todo = error.todo if isinstance(error, FedauditError) else ""
    told = gap(NOT_AUDITED, round=round, withheld=withheld, error=code_of(error), why=in_words(error), todo=todo)
    log.error("fedaudit: %s", line(told), exc_info=None if foreseen or again else error)
    return told


def is_about(told: Notice, error: Exception) -> bool:
    """Was this error told?"""
    return (told.data.get("error"), told.data.get("why")) == (code_of(error), in_words(error))


def write(out: Path | None, name: str, told: Sequence[Notice], rounds: int, withheld: Sequence[Withheld] = ()) -> None:
    """A report that says so. Results of another audit in the same folder are kept under another name: nobody must take
    them for results of this one. A disk that refuses is not the training's business."""
    if out is None:
        return
    with suppress(OSError):
        _set_aside(out / results.RESULTS)
        from fedaudit.report.html import write as write_page

        document = not_audited(name, told, rounds, withheld)
        results.save(document, out)
        write_page(document, out / results.REPORT)


def _set_aside(found: Path) -> None:
    try:
        ours = not found.exists() or results.load(found.parent).run.ending == "not-audited"
    except FedauditError:  # damaged: nobody knows whose they are
        ours = False
    if not ours:
        found.replace(found.with_name("results-before.json"))
