"""A training that goes on although its audit cannot: said in the log and on the page, from the first round on."""

import logging
from contextlib import suppress
from pathlib import Path

from fedaudit.errors import FedauditError
from fedaudit.integrations.options import NOT_AUDITED, not_audited
from fedaudit.results import document as results
from fedaudit.session.session import in_words

log = logging.getLogger("flwr")  # an app's own log, so that it appears where its owner looks


def say(where: str, error: Exception) -> str:
    """Tells the owner of this app, and returns what the report is to say. Nothing of it leaves the node."""
    line = f"{where} is NOT AUDITED: {in_words(error)}"
    log.error("fedaudit: %s. %s", line, error.todo if isinstance(error, FedauditError) else "", exc_info=error)
    return line


def write(out: Path | None, name: str, lines: list[str], rounds: int) -> None:
    """A report that says so. Results of another audit in the same folder are kept under another name: nobody must take
    them for results of this one. A disk that refuses is not the training's business."""
    if out is None:
        return
    with suppress(OSError):
        _set_aside(out / results.RESULTS)
        from fedaudit.report.html import write as write_page

        document = not_audited(name, lines, rounds)
        results.save(document, out)
        write_page(document, out / results.REPORT)


def _set_aside(found: Path) -> None:
    try:
        ours = not found.exists() or results.load(found.parent).run.status == NOT_AUDITED
    except FedauditError:  # damaged: nobody knows whose they are
        ours = False
    if not ours:
        found.replace(found.with_name("results-before.json"))
