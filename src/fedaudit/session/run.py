"""`fedaudit run`: from a configuration to a finished run directory."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from fedaudit.adversary.shadow import SIGNALS as OF_REFERENCES
from fedaudit.config.schema import Config
from fedaudit.federation import START, up_to
from fedaudit.files import refuse_foreign
from fedaudit.results.document import Document
from fedaudit.session.assemble import SEARCH_TIME
from fedaudit.session.prepare import Prepared, prepare
from fedaudit.session.recording import About, TraceWriter, continued
from fedaudit.session.session import Event, Listener, Note, RoundDone, Session, nobody
from fedaudit.session.tracking import closed_as_it_ends, refuse_missing, tracked
from fedaudit.stats.wording import rate
from fedaudit.trace import journal
from fedaudit.trace.journal import JOURNAL
from fedaudit.trace.segments import digest
from fedaudit.trace.store import RUN, Store, load_manifest
from fedaudit.types import Game, Moment, Role, Round, State, Trained
from fedaudit.words import words

# (prepared, moment, model) -> the rounds after that moment, starting from that model
Engine = Callable[[Prepared, Moment, State | None], Iterator[Round]]
# (what is being done, in how many rounds; 0 if that is not known) -> a context that gives a function to call after each
Progress = Callable[[str, int], AbstractContextManager[Callable[[], None]]]


def run(
    config: Config,
    out: Path,
    progress: Progress,
    force: bool = False,
    tell: Callable[[str], None] = print,
    engine: Engine | None = None,
    authorised: bool = False,
) -> Document:
    """Train, audit and record; leave results.json and scores.parquet in `out`. An unfinished run is resumed."""
    refuse_missing(config.track)
    refuse_foreign(out, [RUN, JOURNAL])
    begun = load_manifest(out) if (out / RUN).exists() and not force else None
    if begun:
        config = continued(out, begun, config)
        if not Store.read(out).finished:
            with suppress(OSError):
                journal.record(out, {"event": "resuming"})  # whoever watches waits while the data are read
    with progress("Reading the data", 0):
        prepared = prepare(config, begun.get("attacks", ()) if begun else (), authorised)
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
        if begun is None:
            tell(trained_on(prepared.game))
        if using := references_at_risk(prepared):
            tell(
                f'{using}: the reference models are lost if the run is killed; audit.keep = "snapshots" prevents that.'
            )
        for told in prepared.settings.notices:
            if told.code == SEARCH_TIME:
                tell(words(told))
        after, model = session.resume()
        with progress("Training and auditing", config.federation.rounds - after.round) as step:
            steps.append(step)
            session.watch((engine or rounds)(prepared, after, model))
        return ended(prepared, session, out, progress)


def trained_on(game: Game) -> str:
    """Which part of the data is trained on: the audit speaks for a model of that part."""
    candidates = game.candidates
    who = "records" if candidates.unit == "record" and candidates.subject is None else "people"
    whose = candidates.id if candidates.subject is None else candidates.subject
    members, evaluation, calibration = (len(np.unique(whose[game.truth.mask(role)])) for role in Role)
    several = f" at {len(game.parties)} parties" * (len(game.parties) > 1)
    everybody = len(np.unique(whose))
    part = rate(round(members / everybody, 2))
    return (
        f"{members:,} of {everybody:,} {who}{several} are trained on ({part}); {evaluation:,} are "
        f"reported on as non-members, and {calibration:,} set thresholds."
    )


@contextmanager
def opened(prepared: Prepared, out: Path, force: bool, listen: Listener = nobody) -> Iterator[Session]:
    """A session that watches what was prepared, and records it in `out`."""
    refuse_missing(prepared.config.track)
    about = About.configured(out.name, prepared.config, prepared.dataset, prepared.promises)
    manifest = {
        **about.manifest(prepared.auditor, prepared.config.audit.keep),
        "guarantee": [asdict(promise) for promise in prepared.promises],
        "start": digest(prepared.task.initial(prepared.config.federation.seed)),
    }
    with TraceWriter.start(out, manifest, force) as recording:
        tracking = tracked(prepared.config.track, out)
        with closed_as_it_ends(tracking):
            yield Session(
                prepared.auditor,
                recording,
                about,
                strict=True,
                listen=listen,
                snapshot=prepared.snapshot,
                tracking=tracking,
            )


def ended(prepared: Prepared, session: Session, out: Path, progress: Progress) -> Document:
    """After the last round: what the engine could not do, what is done after the training, and the results."""
    for gap in prepared.gaps:
        session.gap(gap)
    planned = prepared.config.federation.rounds
    if prepared.isolation and prepared.auditor.last_round == planned:
        steps = len(prepared.parties) * planned
        with progress("Isolating each party (agg-mal)", steps) as step, suppress(KeyboardInterrupt):
            prepared.isolation.run(step)
    with progress("Computing statistics", 0):
        cut = prepared.isolation and not prepared.isolation.complete
        document = session.finish(out, "interrupted before every party was isolated" if cut else None)
    assert document is not None
    return document


def references_at_risk(prepared: Prepared) -> str:
    """Attacks that could not continue after a kill, because the rounds that trained their references are not stored."""
    using = [attack.name for attack in prepared.settings.attacks if set(attack.signals) & set(OF_REFERENCES)]
    return ", ".join(using) if prepared.config.audit.keep == "signals" else ""


# ------------------------------------------------------------------ the local engine


def rounds(
    prepared: Prepared, after: Moment = START, model: State | None = None, until: int | None = None
) -> Iterator[Round]:
    """The plain loop, in this process; if told so, only up to a round, with the probes after it."""
    from fedaudit.federation.simulate import federate

    federation = prepared.config.federation
    plans = prepared.plans if until is None else up_to(prepared.plans, until)
    made = federate(
        prepared.task, prepared.parties, plans, federation.seed, after, model, prepared.defence, federation.step
    )
    return (as_sent(prepared, round) for round in made)


def as_sent(prepared: Prepared, round: Round) -> Round:
    """A round as it was trained, in the form in which it is sent: masked, if updates are."""
    if not prepared.config.federation.secagg:
        return round
    return masked(round, prepared.settings.shadow.party if prepared.settings.shadow else None)


def masked(round: Round, own: str | None = None) -> Round:
    """The round under secure aggregation, as the server sees it: who took part, but none of their models. A party still
    sees its `own`.

    Masks cancel in the sum, so training is the same; what a server is left with is the aggregate. The number of
    examples stays readable, as in Flower's SecAgg+.
    """
    sent = {
        name: trained if name == own else Trained({}, trained.examples, trained.epoch_seconds)
        for name, trained in round.sent.items()
    }
    return replace(round, sent=sent)
