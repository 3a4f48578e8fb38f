"""How results look in a terminal: tables, warnings, the verdict, progress with the time left, and the end on Ctrl-C."""

import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.segment import Segment
from rich.text import Text

from fedaudit.errors import DEGRADED, FedauditError, printable

if TYPE_CHECKING:
    from fedaudit.report.sections import RepeatedMeasure
    from fedaudit.report.values import Results
    from fedaudit.report.words import ResultRow, ValueText
    from fedaudit.results.advice import Advice
    from fedaudit.results.document import Document
    from fedaudit.results.scores import Scored
    from fedaudit.types import Estimate


class Inert(Console):
    """A console where text from files (names, ids, locks) is harmless: its escape sequences are shown, not obeyed."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else printable(text), style, control)

    def on_broken_pipe(self) -> NoReturn:
        """Rich would end with 1, which here says that a gate failed."""
        self.quiet = True
        print_nowhere()
        sys.exit(UNREAD)


def unwritten(error: OSError) -> FedauditError:
    """What is to be said when there is no place for the output. The files of a run are not affected."""
    what = f"the output could not be written: {error.strerror}"
    return FedauditError("output", what, "Make room.", exit_code=DEGRADED)


UNREAD = 141  # nobody reads the output any more: what a shell says of a program that SIGPIPE ended


def is_unread() -> bool:
    """Is the output closed, or that of errors? Windows cannot say: a pipe that broke there is taken for one of them."""
    if sys.platform == "win32":
        return True
    ends = select.poll()
    for number in (1, 2):
        ends.register(number, 0)
    return any(told & (select.POLLERR | select.POLLHUP) for _, told in ends.poll(0))


def flush() -> None:
    """Hands out what was printed, as long as a failure can still be told. After one, Python must not try again."""
    try:
        sys.stdout.flush()
    except OSError as error:
        print_nowhere()
        if isinstance(error, BrokenPipeError):
            sys.exit(UNREAD)
        raise unwritten(error) from None


def print_nowhere() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


console = Inert()
errors = Inert(stderr=True)


def write_report(
    document: "Document",
    directory: Path,
    name: str = "report.html",
    brief: bool = False,
    advice: "Advice | None" = None,
) -> Path | None:
    """Writes the report. If that fails, it says so; the results are already on disk."""
    try:
        from fedaudit.report.html import write

        write(document, directory / name, brief, advice)
    except Exception as error:
        errors.print(
            f"[yellow]The report could not be rendered ({escape(repr(error))}); the numbers are not affected.[/yellow]"
        )
        return None
    return directory / name


def say(document: "Document", written: Path | None) -> None:
    from fedaudit.report.remarks import at_once
    from fedaudit.report.values import cleaned
    from fedaudit.report.words import (
        details,
        figures_of,
        others,
        spread,
        summary,
        summary_of_others,
        verdict,
    )

    results, notes = cleaned(document), Notes()
    say_attacks(results, notes)
    for entry in others(results):
        whose = f"{entry.vantage}, {entry.model} models, {entry.party or 'all parties'}"
        figures = [(title, notes.short(value)) for title, value in figures_of(entry)]
        show_table([(entry.attack, whose), *figures])
    notes.show()
    for line in verdict(results):
        console.print(f"\n[bold]{escape(line)}[/bold]")
    console.print()
    for line in [*details(results), *spread(results)]:
        console.print(escape(line))
    say_repeats(results)
    remarks, more = at_once(results)
    console.print()
    for line in remarks:
        console.print(f"[yellow]![/yellow] {escape(line)}")
    if more:
        where = "in the report" if written else "in results.json and in `fedaudit report`"
        show(f"  and {more} more remark{'' if more == 1 else 's'}, {where}", "dim")
    if written:
        console.print(f"\nReport: {escape(str(written))}\n")
    for line in aligned([*summary(results), *summary_of_others(results)]):
        show(line, "bold")


def say_repeats(results: "Results") -> None:
    """Every attack over the training runs, where there were several."""
    from fedaudit.report.sections import repeated

    shown, notes = [row for row in repeated(results) if row.main], Notes()
    if not shown:
        return
    of = shown[0].measure
    names = [f"  {row.attack}" if row.measure == of else f"  {row.attack}, {row.measure}" for row in shown]
    cells = [(name, notes.short(row.mean), row.smallest, row.largest) for name, row in zip(names, shown, strict=True)]
    head, *lines = aligned([(of, "mean over runs", "smallest", "largest"), *cells])
    _show_by_place(head, [(row, line, "") for row, line in zip(shown, lines, strict=True)])
    notes.show()


def _show_by_place(head: str, lines: Sequence[tuple["ResultRow | RepeatedMeasure", str, str]]) -> None:
    """Rows with their lines and styles. Where they were seen is on a line of its own: as a cell it would squeeze the
    intervals."""
    console.print()
    show(head, "dim")
    place = None
    for row, line, style in lines:
        if (row.vantage, row.model) != place:
            place = (row.vantage, row.model)
            show("no model at all" if row.attack == "blind" else f"{row.vantage}, {row.model} models", "dim")
        show(line, style)


def say_attacks(results: "Results", notes: "Notes") -> None:
    """Every attack at every rate that was asked for. Columns for which there is no room make a table of their own."""
    from fedaudit.report.words import headline_rows, row_titles

    rows = headline_rows(results)
    attack, _, _, auc, tpr, fpr, cost, *further = row_titles(results, short=True)
    groups = [[[auc, *(notes.short(r.auc) for r in rows)]]]
    groups += [[[tpr, *(notes.short(r.tpr) for r in rows)], [fpr, *(r.realised_fpr for r in rows)]]]
    groups += [[[cost, *(r.cost for r in rows)]]]
    for at, (title, realised) in enumerate(zip(further[::2], further[1::2], strict=True)):
        found = [r.further[at] for r in rows]
        groups += [[[title, *(notes.short(each) for each, _ in found)], [realised, *(each for _, each in found)]]]
    for columns in side_by_side([attack, *(f"  {r.attack}" for r in rows)], groups):
        head, *lines = aligned(list(zip(*columns, strict=True)))
        styled = zip(rows, lines, ("bold" if row.primary else "" for row in rows), strict=True)
        _show_by_place(head, list(styled))
    console.print()


def say_scores(scored: "Scored") -> None:
    """The estimates of `fedaudit score`, each with its counts, confidence and method."""
    from fedaudit.report.words import ValueText

    found, notes = scored.estimates, Notes()
    sure = f"{100 * found['auc'].confidence:.4g} % interval"
    rows = [("estimate", "value", sure, "FPR", "members", "non-members", "calibration")]
    for name, e in found.items():
        value = notes.short(ValueText(number(e.value), e.reason or "" if e.value is None else ""))
        interval = ABSENT if e.low is None else f"{number(e.low)} to {number(e.high)}"
        counts = (str(e.n_pos), str(e.n_neg), str(e.n_cal or ABSENT))
        rows.append((name, value, interval, number(e.realised_fpr), *counts))
    show_table(rows)
    notes.show()
    for name, e in found.items():
        why = f"; {e.reason}" if e.reason and e.value is not None else ""
        console.print(escape(f"{name}: {e.method}{why}"))
    if scored.epsilons:
        say_epsilons(scored.epsilons)
    for line in [*scored.warnings, *scored.notices]:
        console.print(f"[yellow]![/yellow] {escape(line)}")


def say_epsilons(epsilons: Mapping[str, "Estimate"]) -> None:
    """The figures of epsilon, each with its kind and with the most that so many trials could show."""
    rows = [("epsilon", "kind", "value", "interval", "confidence", "ceiling")]
    for name, e in epsilons.items():
        one_sided = e.kind == "proved" and e.value is not None
        interval = f"at least {number(e.low)}" if one_sided else f"{number(e.low)} to {number(e.high)}"
        rows.append((name, e.kind, number(e.value), interval, f"{100 * e.confidence:.4g} %", number(e.ceiling)))
    show_table(rows)
    for name, e in epsilons.items():
        console.print(escape(f"{name}: {e.reason or e.method}"))


# ------------------------------------------------------------------ never cut lines: half an interval says nothing

ABSENT = "–"
GAP = "  "  # between two columns
Column = Sequence[str]


class Notes:
    """Reasons why there is no number: a mark in the table, and the text below it."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def short(self, figure: "ValueText") -> str:
        if not figure.why:
            return figure.text
        if figure.why not in self.reasons:
            self.reasons.append(figure.why)
        return f"{figure.text} [{self.reasons.index(figure.why) + 1}]"

    def show(self) -> None:
        for place, reason in enumerate(self.reasons, start=1):
            console.print(escape(f"[{place}] {reason}"))


def side_by_side(first: Column, groups: Sequence[Sequence[Column]]) -> list[list[Column]]:
    """Tables that begin with `first` and are no wider than the terminal, if that can be; a group is not torn apart."""
    tables = [[first, *groups[0]]]
    for group in groups[1:]:
        if sum(map(width, [*tables[-1], *group])) - len(GAP) <= console.width:
            tables[-1] += group
        else:
            tables.append([first, *group])
    return tables


def width(column: Column) -> int:
    return max(map(cell_len, column)) + len(GAP)


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    if not rows:
        return []
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    return [GAP.join(set_cell_size(*cell) for cell in zip(row, widths, strict=True)).rstrip() for row in rows]


def show_table(rows: Sequence[Sequence[str]]) -> None:
    head, *lines = aligned(rows)
    console.print()
    show(head, "dim")
    for line in lines:
        show(line)
    console.print()


def show(line: str, style: str = "") -> None:
    console.print(Text(line, style=style), soft_wrap=True)


def number(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.4f}"


EVERY = 30.0  # seconds between two lines of progress in a log


@contextmanager
def progress(what: str, steps: int) -> Iterator[Callable[[], None]]:
    """A bar with the time left, where `steps` rounds are to be done; else a spinner. In a log, where nothing moves, a
    line every half minute."""
    if not errors.is_interactive:
        with logged(what, steps) as step:
            yield step
        return
    from rich import progress as rich

    columns: list[rich.ProgressColumn] = [rich.SpinnerColumn(), rich.TextColumn("{task.description}")]
    if steps:
        left = [rich.TextColumn("time left"), rich.TimeRemainingColumn()]
        columns = [columns[1], rich.BarColumn(), rich.MofNCompleteColumn(), *left]
    with rich.Progress(*columns, console=errors, transient=not steps) as bar:
        task = bar.add_task(what, total=steps or None)
        yield lambda: bar.advance(task)


@contextmanager
def logged(what: str, steps: int) -> Iterator[Callable[[], None]]:
    """Lines of progress from a thread of their own: they come even while one step takes minutes."""
    done, over, begun = [0], threading.Event(), time.monotonic()

    def tell() -> None:
        while not over.wait(EVERY):
            errors.print(escape(so_far(what, done[0], steps, time.monotonic() - begun)))

    def step() -> None:
        done[0] += 1

    teller = threading.Thread(target=tell, name="fedaudit-progress", daemon=True)
    teller.start()
    try:
        yield step
    finally:
        over.set()
        teller.join()
        spent = time.monotonic() - begun
        if steps:
            from fedaudit.words.times import spoken

            errors.print(escape(f"{what}: {done[0]} of {steps} done in {spoken(spent)}."))


def so_far(what: str, done: int, steps: int, spent: float) -> str:
    """What is done, and the time left if the rounds that follow take as long as those that are done."""
    from fedaudit.words.times import spoken

    if not steps:
        return f"{what}: {spoken(spent)} so far."
    left = f"about {spoken(spent / done * (steps - done))} left" if done else "time left not known yet"
    return f"{what}: {done} of {steps} done in {spoken(spent)}, {left}."


# ------------------------------------------------------------------ Ctrl-C and SIGTERM are answered at once


AGAIN = "Stopping without waiting for the work in progress."


@contextmanager
def heard(first: str) -> Iterator[None]:
    """Says `first` when the user first asks for the end. What the signal itself does is not changed.

    Python calls a signal's handler only when the main thread comes back from whatever it computes. The wake-up socket
    is written to at once, and a thread listens to it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ears, mouth = socket.socketpair()
    mouth.setblocking(False)
    listener = threading.Thread(target=_answer, args=(ears, first), name="fedaudit-stopping", daemon=True)
    listener.start()
    before = signal.set_wakeup_fd(mouth.fileno(), warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        mouth.close()
        listener.join()
        ears.close()


def _answer(ears: socket.socket, first: str) -> None:
    said = first
    while received := ears.recv(1):
        if received[0] in (signal.SIGINT, signal.SIGTERM):
            errors.print(escape(said))
            said = AGAIN
