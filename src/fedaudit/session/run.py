"""`fedaudit run`: from a configuration to a finished run directory."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedaudit.adversary.signals.references import SIGNALS as OF_REFERENCES
from fedaudit.config.schema import Config
from fedaudit.files import refuse_foreign
from fedaudit.results.document import Document
from fedaudit.session import label_only
from fedaudit.session.about import About
from fedaudit.session.engines import Engine, rounds
from fedaudit.session.events import Event, Listener, Note, RoundDone
from fedaudit.session.prepare import Prepared, prepare
from fedaudit.session.recording import Tell, TraceWriter, check_config, continued
from fedaudit.session.session import Session, nobody
from fedaudit.trace.journal import JOURNAL
from fedaudit.trace.segments import digest
from fedaudit.trace.store import RUN, is_former, load_manifest
from fedaudit.words import words

# (what is being done, in how many rounds; 0 if that is not known) -> a context that gives a function to call after each
Progress = Callable[[str, int], AbstractContextManager[Callable[[], None]]]


def run(
    config: Config, out: Path, progress: Progress, force: bool = False, tell: Tell = print, engine: Engine | None = None
) -> Document:
    """Train, audit and record; leave results.json and scores.parquet in `out`. An unfinished run is resumed."""
    refuse_foreign(out, [RUN, JOURNAL])
    if not force:
        config = continued(out, config)
        check_config(out, config)
    going_on = (out / RUN).exists() and not force
    with progress("Reading the data", 0):
        begun = load_manifest(out) if going_on else None
        prepared = prepare(config, begun.get("attacks", ()), is_former(begun)) if begun else prepare(config)
    config = prepared.config
    steps: list[Callable[[], None]] = []

    def listen(event: Event) -> None:
        if isinstance(event, RoundDone) and not event.moment.probe:
            steps[-1]()
        elif isinstance(event, Note):
            tell(words(event.what))

    with opened(prepared, out, force, listen) as session:
        if finished := session.trace and session.trace.finished():
            tell(f"{out} already holds this run, finished. Nothing is trained; use --force to train again.")
            return finished
        if using := references_at_risk(prepared):
            tell(
                f'{using}: the reference models are lost if the run is killed; audit.keep = "snapshots" prevents that.'
            )
        for told in prepared.settings.notices:
            if told.code == label_only.TIME:
                tell(words(told))
        after, model = session.resume()
        with progress("Training and auditing", config.federation.rounds - after.round) as step:
            steps.append(step)
            session.watch((engine or rounds)(prepared, after, model))
        return ended(prepared, session, out, progress)


@contextmanager
def opened(prepared: Prepared, out: Path, force: bool, listen: Listener = nobody) -> Iterator[Session]:
    """A session that watches what was prepared, and records it in `out`."""
    about = About.configured(out.name, prepared.config, prepared.dataset, prepared.promises)
    with TraceWriter.start(out, manifest(prepared, about), force) as recording:
        yield Session(prepared.auditor, recording, about, strict=True, listen=listen, snapshot=prepared.snapshot)


def ended(prepared: Prepared, session: Session, out: Path, progress: Progress) -> Document:
    """After the last round: what the engine could not do, what is done after the training, and the results."""
    for gap in prepared.gaps:
        session.gap(gap)
    isolate(prepared, progress)
    with progress("Computing statistics", 0):
        cut = prepared.isolation and not prepared.isolation.complete
        document = session.finish(out, "interrupted before every party was isolated" if cut else None)
    assert document is not None
    return document


def isolate(prepared: Prepared, progress: Progress) -> None:
    """Runs the malicious aggregator, after the honest federation is finished."""
    planned = prepared.config.federation.rounds
    if prepared.isolation and prepared.auditor.last_round == planned:
        steps = len(prepared.parties) * planned
        with progress("Isolating each party (agg-mal)", steps) as step, suppress(KeyboardInterrupt):
            prepared.isolation.run(step)


def references_at_risk(prepared: Prepared) -> str:
    """Attacks that could not continue after a kill, because the rounds that trained their references are not stored."""
    using = [attack.name for attack in prepared.settings.attacks if set(attack.signals) & set(OF_REFERENCES)]
    return ", ".join(using) if prepared.config.audit.keep == "signals" else ""


def manifest(prepared: Prepared, about: About) -> dict[str, Any]:
    return {
        **about.manifest(prepared.auditor, prepared.config.audit.keep),
        "guarantee": [asdict(promise) for promise in prepared.promises],
        "start": digest(prepared.task.initial(prepared.config.federation.seed)),
    }
