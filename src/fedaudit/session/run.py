"""From a configuration to a finished run directory. The one place where all layers meet."""

import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedaudit import __version__, data
from fedaudit.adversary.shadow import References
from fedaudit.adversary.signals.references import SIGNALS as OF_REFERENCES
from fedaudit.audit import Auditor, Settings
from fedaudit.config.schema import Config
from fedaudit.data import partition
from fedaudit.data.twins import twins
from fedaudit.federation.sampling import START
from fedaudit.federation.sampling import plans as sampled
from fedaudit.federation.secagg import masked
from fedaudit.privacy import accounting
from fedaudit.privacy.statement import Promise
from fedaudit.results import document as results
from fedaudit.results.document import DataInfo, Document, PartyInfo, RunInfo
from fedaudit.results.exposure import most_exposed
from fedaudit.session import adversaries as adversary
from fedaudit.session import attributes
from fedaudit.session.recording import Recording, Tell, check_config, fingerprint, unbroken
from fedaudit.trace.segments import digest
from fedaudit.types import Audit, Dataset, Game, Moment, Party, Plan, Role, Round, State

if TYPE_CHECKING:  # torch is needed to train, not to look again at what was recorded
    from fedaudit.defences.slots import Defence
    from fedaudit.learn.tasks import TorchTask
    from fedaudit.session.isolation import Isolation

# (what is being done, how many steps) -> a context that gives a function to call after each step
Progress = Callable[[str, int], AbstractContextManager[Callable[[], None]]]


@dataclass(frozen=True)
class Staged:
    """The game as the configuration describes it, without a model."""

    config: Config
    dataset: Dataset
    game: Game
    settings: Settings
    promises: tuple[Promise, ...] = ()  # of its defences, where these are known


@dataclass(frozen=True)
class Prepared:
    """Everything that can be refused has been refused; training may start."""

    config: Config
    dataset: Dataset
    game: Game
    task: "TorchTask"
    parties: list[Party]
    settings: Settings
    auditor: Auditor
    defence: "Defence"
    isolation: "Isolation | None" = None  # what a malicious aggregator does instead
    gaps: list[str] = field(default_factory=list)  # what an engine was planned to do and could not

    @property
    def promises(self) -> tuple[Promise, ...]:
        return self.defence.promises


# The rounds after a given one, from its model on: as they happen, whoever makes them
Engine = Callable[[Prepared, Moment, State | None], Iterator[Round]]


def stage(config: Config) -> Staged:
    federation, audit = config.federation, config.audit
    chosen = adversary.chosen(config)
    settings = Settings(audit.vantages, chosen, federation.rounds, audit.fpr, audit.confidence, federation.seed)
    dataset, asked = data.load(config.data), audit.attribute
    if asked:
        dataset = attributes.with_attribute(dataset, asked.name, asked.column)
    dataset, own = adversary.reserved(dataset, chosen, config)
    rng = np.random.default_rng([federation.seed, 0])
    game = partition.build(dataset, federation, rng)
    how = training(config, len(dataset.records))
    references = References(**audit.reference.bank(), training=how, seed=federation.seed, own=own)
    shadow = adversary.shadow(config, game, own, how)
    settings = replace(settings, references=references, shadow=shadow)
    if asked and shadow:
        settings = replace(settings, attribute=attributes.probe(dataset, shadow.game, asked.name, asked.column))
    return Staged(config, dataset, game, settings)


def training(config: Config, records: int) -> dict[str, Any]:
    """How a party trains: the fields of `tasks.Training`."""
    federation = config.federation
    if federation.algorithm == "fedsgd":  # one step on all records of a party
        return {"optimizer": "sgd", "lr": federation.lr, "epochs": 1, "batch_size": records}
    return {
        "optimizer": federation.optimizer,
        "lr": federation.lr,
        "epochs": federation.local_epochs,
        "batch_size": federation.batch_size,
    }


def build(staged: Staged) -> "TorchTask":
    from fedaudit.learn.tasks import build_task

    model, dataset = staged.config.model, staged.dataset
    return build_task(model.name, dataset.input_shape, dataset.classes, model.arguments())


def defend(staged: Staged, task: "TorchTask") -> "Defence":
    """The configured defences, in their slots."""
    from fedaudit import defences
    from fedaudit.learn.tasks import Training

    config, game = staged.config, staged.game
    sources = {name: partial(game.members, name) for name in game.parties}
    how = Training(**training(config, len(staged.dataset.records)))
    initial = task.initial(config.federation.seed)
    return defences.build(config.defences, defences.Setting(task, initial, sources, how, config.federation))


def prepare(config: Config) -> Prepared:
    from fedaudit import defences
    from fedaudit.federation.simulate import Trainer
    from fedaudit.learn.tasks import Training
    from fedaudit.session.isolation import Isolation

    staged = stage(config)
    federation, dataset, game = config.federation, staged.dataset, staged.game
    asked = config.audit.attacks is not None
    staged.settings.checked(asked)
    task = build(staged)
    initial = task.initial(federation.seed)
    task.check(initial, dataset.records)
    how = Training(**training(config, len(dataset.records)))
    sources = {name: partial(game.members, name) for name in game.parties}
    defence = defend(staged, task)
    settings = replace(staged.settings, serve=defence.serve).checked(asked)
    settings = settings.suited_to(task, initial, dataset.records, asked)
    settings = replace(adversary.defended(settings, config, defence), notices=settings.notices + defence.notices)
    parties: list[Party] = [
        defences.Guarded(name, source, how, defence.gradient) if defence.gradient else Trainer(name, source, how)
        for name, source in sources.items()
    ]
    isolation = None
    if config.audit.adversary == "agg-mal":
        learning = [attack for attack in settings.attacks if attack.learns]
        isolation = Isolation(task, game, parties, replace(settings, attacks=learning), defence, how)
        settings = replace(settings, attacks=[a for a in settings.attacks if not a.learns], shadow=None)
    return Prepared(config, dataset, game, task, parties, settings, Auditor(task, game, settings), defence, isolation)


def planned(prepared: Prepared) -> list[Plan]:
    federation = prepared.config.federation
    names = [party.name for party in prepared.parties]
    sampling = federation.sampling or "uniform"
    return sampled(names, federation.rounds, federation.participation, sampling, federation.seed)


def rounds(prepared: Prepared, after: Moment = START, model: State | None = None) -> Iterator[Round]:
    """The local engine: the plain loop, in this process."""
    from fedaudit.federation.simulate import federate

    federation = prepared.config.federation
    made = federate(prepared.task, prepared.parties, planned(prepared), federation.seed, after, model, prepared.defence)
    own = prepared.settings.shadow.party if prepared.settings.shadow else None
    return (masked(round, own) for round in made) if federation.secagg else made


def run(
    config: Config, out: Path, progress: Progress, force: bool = False, tell: Tell = print, engine: Engine | None = None
) -> Document:
    """Train, audit and record; leave results.json and scores.parquet in `out`. An unfinished run is resumed."""
    started = time.perf_counter()
    if not force:
        check_config(out, config)
    with progress("Reading the data", 0):
        prepared = prepare(config)
    auditor = prepared.auditor
    with Recording.start(out, manifest(prepared), force) as recording:
        finished = recording.finished()
        if finished:
            tell(f"{out} holds this run, finished: nothing is trained again. --force would do so.")
            return finished
        if using := references_at_risk(prepared):
            tell(
                f'{using}: the reference models are lost if the run is killed; audit.keep = "snapshots" prevents that.'
            )
        after, model = recording.resume(auditor, tell)
        with progress("Training and auditing", config.federation.rounds - after.round) as step:
            try:
                for round in (engine or rounds)(prepared, after, model):
                    seen = auditor.measure(round)
                    with unbroken():
                        recording.append(round, auditor.absorb(seen, round))
                    step()
            except KeyboardInterrupt:
                if auditor.last_round < 2:
                    raise  # nothing to report yet
        if prepared.isolation and auditor.last_round == config.federation.rounds:
            steps = len(prepared.parties) * config.federation.rounds
            with progress("Isolating each party (agg-mal)", steps) as step, suppress(KeyboardInterrupt):
                prepared.isolation.run(step)
        with progress("Computing statistics", 0):
            seconds = time.perf_counter() - started
            odd, lost = recording.warnings, recording.trouble
            document = conclude(prepared, auditor, out, out.name, seconds, odd, lost)
            recording.end(document.run.status, auditor.right_answers())
    return document


def references_at_risk(prepared: Prepared) -> str:
    """Attacks that could not go on after a kill: their reference models follow rounds that are not kept."""
    using = [attack.name for attack in prepared.settings.attacks if set(attack.signals) & set(OF_REFERENCES)]
    return ", ".join(using) if prepared.config.audit.keep == "signals" else ""


def conclude(
    about: Prepared | Staged,
    auditor: Auditor,
    out: Path,
    name: str,
    seconds: float,
    odd: Sequence[str],
    lost: str | None,
) -> Document:
    """Statistics into files. `odd`: what was odd about the rounds; `lost`: why the trace is not whole.

    What cannot be written is still returned, and what is missing is listed under `degraded`.
    """
    found = finish(about, auditor)
    mine = [headline for headline in found.headlines if headline.vantage in auditor.settings.vantages]
    exposed = most_exposed(auditor, mine, fingerprint(auditor.game))
    missing = [*(about.gaps if isinstance(about, Prepared) else []), *([lost] if lost else [])]
    found = replace(found, warnings=[*found.warnings, *twins(auditor.game), *odd, *missing])
    document = Document.of(found, describe(about, auditor, name, seconds), missing, exposed)
    try:
        results.save_scores(auditor.score_parts(), out)
        results.save(document, out)
    except OSError as error:
        unsaved = f"The results could not be written to {out} ({error.strerror}): what is shown here is all there is."
        document = replace(document, warnings=[*document.warnings, unsaved], degraded=[*document.degraded, unsaved])
    return document


def finish(about: Prepared | Staged, auditor: Auditor) -> Audit:
    """What was found, in the federation and, where parties were isolated, in those federations of two."""
    found = auditor.snapshot()
    if isinstance(about, Prepared) and about.isolation:
        found = about.isolation.add_to(found)
    return found


def manifest(prepared: Prepared) -> dict[str, Any]:
    """run.json: what a trace must say about itself to be resumed or attacked again."""
    return {
        **origin(describe(prepared, prepared.auditor, "", 0.0)),
        "guarantee": [asdict(promise) for promise in prepared.promises],
        "keep": prepared.config.audit.keep,
        "attacks": [attack.name for attack in prepared.settings.attacks],
        "notices": list(prepared.settings.notices),
        "data": fingerprint(prepared.game),
        "start": digest(prepared.task.initial(prepared.config.federation.seed)),
    }


def origin(about: RunInfo) -> dict[str, Any]:
    """The part of run.json that results.json says as well."""
    kept = ("fedaudit", "created", "config", "config_hash", "seed", "versions")
    return {key: getattr(about, key) for key in kept}


def _status(about: Prepared | Staged, auditor: Auditor) -> str:
    if auditor.last_round < about.config.federation.rounds:
        return f"interrupted at round {auditor.last_round}"
    if isinstance(about, Prepared) and about.isolation and not about.isolation.complete:
        return "interrupted before every party was isolated"
    return "complete"


def describe(about: Prepared | Staged, auditor: Auditor, name: str, seconds: float) -> RunInfo:
    """The `run` part of results.json: what anybody needs to judge and to repeat this audit."""
    config, dataset, game = about.config, about.dataset, about.game
    subjects = dataset.records.subject
    return RunInfo(
        name=name,
        fedaudit=__version__,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        status=_status(about, auditor),
        config=config.as_dict(),
        config_hash=config.hash(),
        seed=config.federation.seed,
        versions={"python": platform.python_version(), **{p: version(p) for p in ("torch", "numpy", "scipy")}},
        rounds=auditor.last_round,
        seconds=float(f"{seconds:.3g}"),
        data=DataInfo(
            dataset.name,
            len(dataset.records),
            dataset.classes,
            None if subjects is None else len(np.unique(subjects)),
            dataset.input_shape,
        ),
        parties=[party_info(game, party) for party in game.parties],
        guarantee=accounting.stated(about.promises, auditor.last_round),
    )


def party_info(game: Game, party: str) -> PartyInfo:
    own = game.candidates.party == party
    members, evaluation, calibration = (
        int((game.truth.mask(role) & own).sum()) for role in (Role.MEMBER, Role.EVALUATION, Role.CALIBRATION)
    )
    return PartyInfo(party, members, evaluation, calibration)
