"""A training that goes on although its audit cannot: said in the log and on the page, from the first round on."""

import logging
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from fedaudit import __version__
from fedaudit.errors import FedauditError
from fedaudit.integrations.options import NOT_AUDITED
from fedaudit.results import document as results
from fedaudit.results.document import DataInfo, Document, RunInfo
from fedaudit.session.session import in_words, sentences

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

        document = _document(name, lines, rounds)
        results.save(document, out)
        write_page(document, out / results.REPORT)


def _set_aside(found: Path) -> None:
    try:
        ours = not found.exists() or results.load(found.parent).run.status == NOT_AUDITED
    except FedauditError:  # damaged: nobody knows whose they are
        ours = False
    if not ours:
        found.replace(found.with_name("results-before.json"))


def _document(name: str, lines: list[str], rounds: int) -> Document:
    nothing = DataInfo("", 0, 0, None, ())
    now = datetime.now(UTC).isoformat(timespec="seconds")
    run = RunInfo(name, __version__, now, NOT_AUDITED, {}, "", 0, {}, rounds, 0.0, nothing, (), None)
    told = sentences(lines)
    return Document(run=run, headlines=(), results=(), warnings=told, degraded=told)
