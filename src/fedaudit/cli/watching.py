"""`fedaudit watch`: a run in the terminal while it goes on, wherever it was started."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.live import Live
from rich.text import Text

from fedaudit.cli.terminal import ABSENT, aligned, console, show
from fedaudit.errors import REFUSED, FedauditError

if TYPE_CHECKING:
    from fedaudit.results.running import Follower, Running
    from fedaudit.trace.lineage import RecordedRound
    from fedaudit.types import RoundRisk

EVERY = 0.5  # seconds between two looks
AROUND = 6  # lines of the terminal that are no rounds
Epsilons = dict[int, float | None]


def watch(
    run_dir: Annotated[Path, typer.Argument(help="The folder of a run, also of one that has not begun.")],
) -> None:
    """Rounds, risk with its band, epsilon spent and who is absent, as a run goes on; ends when the run does.

    In brackets: the ends of the band, which at the run's confidence holds for all planned rounds at once. What a guess
    without the model scores is in the report.

    The run may be on another machine, as long as its folder is seen from here; it does not notice. Where the output is
    no terminal, each round is a line. Ctrl-C ends the watching, not the run.
    """
    from fedaudit.results.running import Follower

    _refuse_what_is_no_run(run_dir)
    follower = Follower(run_dir)
    try:
        run = _followed(follower)
    except KeyboardInterrupt:
        show("Stopped watching. The run goes on by itself.")
        return
    if run.state == "damaged":
        raise FedauditError("watch-damaged", f"{run_dir}: {run.why}", "Restore it, or run it again.", exit_code=REFUSED)
    if _has_results(run_dir):
        follower.document()  # refuses results that are not as they were written
    show(_where(run_dir))


def _refuse_what_is_no_run(folder: Path) -> None:
    from fedaudit.results.running import kind_of, under

    kind = kind_of(folder)
    if kind == "run":
        return
    if folder.exists() and not folder.is_dir():
        raise FedauditError("not-a-run", f"{folder} is no folder", "Give the folder of a run.")
    if kind:
        todo = f"`fedaudit serve {folder}` shows it in a browser; to watch is for a single run."
        raise FedauditError("not-a-run", f"{folder} holds {'a study' if kind == 'study' else 'an advice'}", todo)
    if inner := [str(found) for found, of in under(folder) if of == "run"][:3]:
        todo = f"Name one of them, for example {inner[0]}; `fedaudit serve {folder}` shows all of them."
        raise FedauditError("not-a-run", f"{folder} is no run, but holds some", todo)


def _followed(follower: "Follower") -> "Running":
    """Shows the run until it is over."""
    from fedaudit.results.running import uncounted

    run = follower.look()
    if console.is_interactive:
        with Live(console=console, auto_refresh=False) as live:
            while True:
                live.update(_screen(run), refresh=True)
                if run.over:
                    break
                time.sleep(EVERY)
                run = follower.look()
    else:
        told, state, why = replace(run, rounds=()), "", ""
        while True:
            if not why and (why := uncounted(run)):
                show(why)
            told = _tell(run, told)
            if run.state != state and not run.over and run.state != "running":
                show(_standing(run))
            state = run.state
            if run.over:
                break
            time.sleep(EVERY)
            run = follower.look()
        show(_standing(run))
    return run


def _standing(run: "Running") -> str:
    """What is to be known at a glance: how far it is, what it is doing, how long it will take."""
    from fedaudit.words.times import spoken

    of = f" of {run.planned}" if run.planned else ""
    far = f"round {run.newest}{of}" if run.rounds else "before its first round"
    doing = {
        "starting": "waiting for the first round" if run.folder.exists() else "there is no such folder yet; waiting",
        "running": "running" if run.left is None else f"about {spoken(run.left)} left",
        "computing": "all rounds are recorded; the results are being computed",
        "quiet": f"no sign of life for {spoken(max(0.0, time.time() - run.heard))}: a long round, or it was killed",
        "ended": f"ended: {run.why or 'complete'}",
        "damaged": f"damaged: {run.why}",
    }[run.state]
    lines = f"; {run.damaged_lines} lines of its journal are damaged and left out" if run.damaged_lines else ""
    return f"{run.folder}: {far}, {doing}{lines}"


def _has_results(folder: Path) -> bool:
    from fedaudit.results.document import RESULTS

    return (folder / RESULTS).is_file()


def _where(folder: Path) -> str:
    if _has_results(folder):
        return f"`fedaudit report {folder}` says what was found."
    return "It has no results."


# ------------------------------------------------------------------ a line for each round


def _tell(run: "Running", told: "Running") -> "Running":
    """Those that were added since. A run that went back to an earlier round is told again from there."""
    from fedaudit.results.running import added, epsilons

    new = added(run, told)
    counted = epsilons(run, [round.round for round in new]) if new else {}
    for round in new:
        show(_line(run, round, counted))
    return run


def _line(run: "Running", round: "RecordedRound", epsilons: Epsilons) -> str:
    of = f" of {run.planned}" if run.planned else ""
    said = [f"{_place(one)} {_value(one)}" for one in round.risks]
    if epsilons:
        said.append(f"epsilon {_epsilon(epsilons, round.round)}")
    if absent := run.absent(round):
        said.append(f"absent: {', '.join(absent)}")
    return f"round {round.round}{of}: {'; '.join(said) or 'recorded'}"


# ------------------------------------------------------------------ a screen that changes


def _screen(run: "Running") -> Group:
    standing = Text(_standing(run), style="bold red" if run.state == "damaged" else "bold")
    if not run.rounds:
        return Group(standing)
    from fedaudit.results.running import epsilons as counted
    from fedaudit.results.running import uncounted

    shown = run.rounds[-max(3, console.height - AROUND) :]
    epsilons, why = counted(run, [round.round for round in shown]), uncounted(run)
    places = list(dict.fromkeys(_place(one) for round in shown for one in round.risks))
    while True:  # what does not fit is left out, from the end
        rows = [("round", *places, *(["epsilon"] if epsilons else []), "absent")]
        rows += [_row(run, round, places, epsilons) for round in shown]
        head, *lines = aligned(rows)
        if len(places) <= 1 or max(map(len, (head, *lines))) <= console.width:
            return Group(standing, Text(why), Text(head, style="dim"), *map(Text, lines))
        places = places[:-1]


def _row(run: "Running", round: "RecordedRound", places: Sequence[str], epsilons: Epsilons) -> tuple[str, ...]:
    found = {_place(one): _value(one) for one in round.risks}
    spent = [_epsilon(epsilons, round.round)] if epsilons else []
    absent = ", ".join(run.absent(round)) or ABSENT
    return (str(round.round), *(found.get(place, ABSENT) for place in places), *spent, absent)


def _place(one: "RoundRisk") -> str:
    return f"{one.vantage}, {one.model}: {one.attack} {one.metric}"


def _value(one: "RoundRisk") -> str:
    from fedaudit.stats.wording import point_text

    return point_text(one.metric, one.value, one.low, one.high)


def _epsilon(epsilons: Epsilons, round: int) -> str:
    value = epsilons.get(round)
    return ABSENT if value is None else f"{value:.4g}"
