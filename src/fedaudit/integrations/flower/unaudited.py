"""A training that goes on although its audit cannot: said in the log and on the page, from the first round on."""

import logging
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from fedaudit.errors import FedauditError
from fedaudit.integrations.options import NOT_AUDITED, not_audited
from fedaudit.results import document as results
from fedaudit.results.document import Withheld
from fedaudit.session.session import in_words

log = logging.getLogger("flwr")  # an app's own log, so that it appears where its owner looks


def say(where: str, error: Exception, withheld: bool = False, again: bool = False) -> str:
    """Tells the owner of this app in one line, and returns what the report is to say. Nothing of it leaves the node.

    Only a fault that nobody foresaw has a traceback, and only the first time (`again`: it was told before).
    """
    foreseen = isinstance(error, FedauditError | OSError)
    nothing = ", and nothing is sent" if withheld else ""
    todo = f". {error.todo}" if isinstance(error, FedauditError) else ""
    line = f"{where} is NOT AUDITED{nothing}: {in_words(error)}{todo}"
    log.error("fedaudit: %s", line, exc_info=None if foreseen or again else error)
    return line


def write(out: Path | None, name: str, lines: list[str], rounds: int, withheld: Sequence[Withheld] = ()) -> None:
    """A report that says so. Results of another audit in the same folder are kept under another name: nobody must take
    them for results of this one. A disk that refuses is not the training's business."""
    if out is None:
        return
    with suppress(OSError):
        _set_aside(out / results.RESULTS)
        from fedaudit.report.html import write as write_page

        document = not_audited(name, lines, rounds, withheld)
        results.save(document, out)
        write_page(document, out / results.REPORT)


def _set_aside(found: Path) -> None:
    try:
        ours = not found.exists() or results.load(found.parent).run.status == NOT_AUDITED
    except FedauditError:  # damaged: nobody knows whose they are
        ours = False
    if not ours:
        found.replace(found.with_name("results-before.json"))
