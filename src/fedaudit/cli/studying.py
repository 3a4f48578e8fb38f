"""The commands that train many federations: a grid of them, or the defences that might help."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from fedaudit.cli.options import Set
from fedaudit.cli.stopping import heard
from fedaudit.cli.terminal import console, errors, progress
from fedaudit.errors import DEGRADED

if TYPE_CHECKING:
    from fedaudit.config.schema import Config
    from fedaudit.results.advice import Advice

UNDECIDED = 3

Workers = Annotated[
    int | None, typer.Option(min=1, help="Processes, each with one thread (default: one for each core).")
]


def study(
    file: Annotated[Path, typer.Argument(help="A TOML file that names a base and a grid.")],
    out: Annotated[Path | None, typer.Option(help="Folder for the study (default: studies/NAME).")] = None,
    workers: Workers = None,
) -> None:
    """Audit every combination of settings: what makes federations leak?

    FILE names a configuration and the keys to vary:

    \b
        base = "my.toml"
        [grid]
        "federation.parties" = [2, 4, 8]
        defences = [[], [{ name = "dp-sgd", clip = 1.0, noise = 1.0 }]]

    Each of the six combinations is a cell: a run of its own in OUT/cells. All are checked before any is trained. A cell
    that fails is named, and the others go on. After Ctrl-C or a kill, the same command continues where the study
    stopped. With engine = "ray" the cells are spread over a Ray cluster (address = "...").

    OUT/study.parquet holds every estimate of every cell, OUT/report.html risk by factor and accuracy against risk.
    Exit code 4 if a cell is missing.
    """
    from fedaudit.config.study import load_study
    from fedaudit.report.pages import write_study
    from fedaudit.results.study import TABLE
    from fedaudit.session.study import run_study

    out = out or Path("studies") / file.stem
    loaded = load_study(file)
    cores = workers or os.cpu_count() or 1
    kept = "Stopping. The table and the report of the complete cells follow; the same command goes on with the rest."
    with heard(kept):
        found = run_study(loaded, out, cores, progress, lambda line: errors.print(escape(line)))
    done = sum(outcome.complete for outcome in found)
    console.print(f"{done} of {len(found)} cells are complete: {escape(str(out / TABLE))}")
    console.print(f"Report: {escape(str(write_study(out)))}")
    if done < len(found):
        console.print("Give the same command again to go on with the rest.")
        raise typer.Exit(DEGRADED)


def advise(
    config: Annotated[Path, typer.Argument(help="A TOML file.")],
    limit: Annotated[
        str, typer.Option(help='What must hold, for example "tpr@0.01 < 0.02" or "auc[vantage=client] < 0.6".')
    ],
    out: Annotated[Path | None, typer.Option(help="Folder for the advice (default: advice/NAME).")] = None,
    set_: Set = None,
    workers: Workers = None,
) -> None:
    """What should be changed so that this federation stays below a limit, and what does that cost in accuracy?

    Tries the changes that fit: DP-SGD at several noises, subject- and user-level DP, clipping, weight decay, dropout,
    fewer rounds or epochs, secure aggregation, larger parties, frozen layers. All are trained for a quarter of the
    rounds. Those whose lower end is then above the limit are dropped. At most half of all changes go on to half of the
    rounds, and at most half of those to the end. The best one is then trained again with another seed and attacked with
    everything: that run was not used for choosing, and its intervals are the ones to quote.

    OUT/advice.json and advice.html say what to change, what that gains and what it costs; OUT/advised.toml is the
    changed configuration. If nothing meets the limit, they say so and name what comes nearest. A limit is met when
    `fedaudit gate` would call it safe: the upper end of the interval lies below the limit.

    Exit codes: 0 a change was confirmed, 3 none was.
    """
    from fedaudit.config.schema import load_config
    from fedaudit.files import refuse_foreign, writing
    from fedaudit.results.advice import ADVICE
    from fedaudit.results.gate import parse_limit
    from fedaudit.session.advise import TRIALS
    from fedaudit.session.advise import advise as search

    wanted = parse_limit(limit)
    loaded = load_config(config, set_ or ())
    out = out or Path("advice") / config.stem
    refuse_foreign(out, [ADVICE, TRIALS])
    cores = workers or os.cpu_count() or 1
    kept = "Stopping, without advice. What was trained so far is kept: the same command goes on from there."
    with heard(kept), writing(out):  # a second search would find the trials locked, and advise nothing
        advice, advised = search(loaded, wanted, out, cores, progress, lambda line: errors.print(escape(line)))
        written = write_advice(advice, advised, out)
    for line in advice.sentences:
        console.print(escape(line))
    console.print(f"\nAdvice: {escape(str(written))}")
    if advice.recommended is None:
        raise typer.Exit(UNDECIDED)


def write_advice(advice: "Advice", advised: "Config | None", out: Path) -> Path:
    from fedaudit.files import write_atomically
    from fedaudit.report.pages import write_advice
    from fedaudit.results.advice import ADVISED, save
    from fedaudit.toml import written

    save(advice, out)
    if advised is not None:
        head = (
            "" if advice.recommended else f"# This comes nearest to {advice.limit}. It was not confirmed to meet it.\n"
        )
        write_atomically(out / ADVISED, head + written(advised.as_dict()))
    return write_advice(advice, out)
