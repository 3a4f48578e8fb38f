"""A run and its trace: start or resume it, and record while training. A full disk does not stop the training."""

from __future__ import annotations

import hashlib
import json
import platform
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

import numpy as np

from fedaudit import __version__
from fedaudit.audit import Auditor
from fedaudit.config.schema import Config, decisive, parse
from fedaudit.errors import REFUSED, FedauditError, say
from fedaudit.federation import START
from fedaudit.privacy import accounting
from fedaudit.privacy.statement import Promise
from fedaudit.results import document as results
from fedaudit.results.advice import ADVICE
from fedaudit.results.document import DataInfo, PartyInfo, RunInfo
from fedaudit.results.exposure import SALT
from fedaudit.results.study import STUDY
from fedaudit.trace import journal
from fedaudit.trace.journal import JOURNAL
from fedaudit.trace.segments import DamagedError, digest
from fedaudit.trace.store import RUN, Store
from fedaudit.types import Bools, Dataset, Game, Moment, Notice, Observation, Role, Round, RoundRisk, State, gap, notice
from fedaudit.words import all_words

# What to do about a folder that is taken. It is intact, so this is wrong use and no stored file that was refused.
ELSEWHERE = "Choose another folder with --out, or replace that run with --force."


def fingerprint(game: Game) -> str:
    """A hash of the records and their roles, to check that a trace belongs to this game."""
    found = hashlib.sha256()
    candidates = game.candidates
    for names in (candidates.id, candidates.party, game.truth.role, candidates.rows.id):
        found.update(json.dumps(names.tolist()).encode())
    for array in (candidates.rows.x, candidates.rows.y):
        found.update(f"{array.dtype.str} {array.shape}".encode())
        for part in range(0, len(array), 4096):  # in pieces: never a second copy of the data
            found.update(array[part : part + 4096].tobytes())
    if game.training is not None:
        found.update(json.dumps([game.training.rows.id.tolist(), game.training.party.tolist()]).encode())
    return found.hexdigest()


def base_hash(base: State) -> str | None:
    """What is known of a model's frozen part where only the rest is exchanged: no round stores it."""
    return digest(base) if base else None


MISSING = ("unknown-question", "unknown-attack")  # errors of a configuration that names what is not installed here


def config_of(manifest: Mapping[str, Any], directory: Path) -> Config:
    """As it was recorded."""
    try:
        return parse(dict(manifest["config"]))
    except (FedauditError, KeyError, TypeError) as error:
        todo = "Run again with --force, which replaces that run."
        if isinstance(error, FedauditError) and error.code in MISSING:
            todo = "The run is whole: install the package that it was made with."
        raise FedauditError(
            "run-config",
            f"the configuration in {directory / RUN} cannot be read: {str(error).rstrip('.')}",
            todo,
            exit_code=REFUSED,
        ) from None  # fmt: skip


def continued(directory: Path, manifest: Mapping[str, Any], config: Config) -> Config:
    """A run continues as it began: if the configuration does not say whether people are split, what is trained on, or
    what the game is about, what was decided then still holds; and where records are nobody's, nobody is split, whatever
    it says. Another configuration is refused, before any data is read."""
    begun = config_of(manifest, directory)
    if None in (config.federation.split_subjects, begun.federation.split_subjects):
        config = config.splitting(begun.federation.split_subjects)
    config = config.sharing(begun.federation.members, begun.federation.nonmembers)
    if config.audit.unit is None:
        fresh = config.federation.fresh
        config = config.asking(begun.audit.unit, begun.federation.fresh if fresh is None else fresh)
    others = sorted(
        differing(begun.as_dict(), config.as_dict()), key=lambda one: one[0] not in ("data.name", "data.path")
    )
    if others:
        key, there, here = others[0]
        more = f" (and {len(others) - 1} more)" if len(others) > 1 else ""
        what = f"{directory} holds a run with another configuration: {key} was {there!r} and is now {here!r}{more}"
        raise FedauditError("other-run", what, ELSEWHERE)
    return config


def differing(there: Mapping[str, Any], here: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """The keys in which two configurations differ, with both values, where results depend on them."""
    one, two = _flat(decisive(there)), _flat(decisive(here))
    for key in sorted(one.keys() | two.keys()):
        if one.get(key) != two.get(key):
            yield key, one.get(key, "not set"), two.get(key, "not set")


def check_same(directory: Path, there: Mapping[str, Any], here: Mapping[str, Any], todo: str = ELSEWHERE) -> None:
    """Refuses to continue a run with other records or another initial model, or to look at it with these."""
    if "base" in here and (there.get("base") or None) != (here["base"] or None):
        before, now = (str(side.get("base") or "none")[:12] for side in (there, here))
        what = f"{directory} was recorded with another frozen part of the model: its hash was {before} and is now {now}"
        raise FedauditError("other-base", what, "Use the base that the parties trained on.", exit_code=REFUSED)
    for key, what in (("data", "the records"), ("start", "the model to start from")):
        if key in here and there.get(key) != here[key]:
            before, now = str(there.get(key))[:12], str(here[key])[:12]
            told = f"{directory} holds a run with other data: the hash of {what} was {before} and is now {now}"
            raise FedauditError("other-run", told, todo)


def refuse_orphans(directory: Path) -> None:
    """A folder without run.json may hold recorded rounds, or an audit of another run: a new run would remove both."""
    recorded = any(event["event"] == "round" for event in journal.read(directory / JOURNAL).events)
    files = [name for name in (results.RESULTS, STUDY, ADVICE) if (directory / name).exists()]
    if recorded or files:
        there = "recorded rounds" if recorded else files[0]
        what = f"{directory} holds {there}, but no {RUN}: it cannot be resumed"
        raise FedauditError(
            "orphaned", what, "Choose another folder with --out; --force replaces what is there.", exit_code=REFUSED
        )


def _flat(section: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in section.items():
        found |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return found


class TraceWriter:
    """The trace of a run in progress. If it can no longer be written, `trouble` says why, and the run continues."""

    def __init__(self, store: Store, begun: bool):
        self.store, self.begun = store, begun
        self.trouble: Notice | None = None
        self.damaged: list[Notice] = []  # rounds that are not as they were written

    @classmethod
    def start(cls, directory: Path, manifest: Mapping[str, Any], force: bool) -> Self:
        try:
            if not force and (directory / RUN).exists():
                store = Store.resume(directory)
                try:
                    known = {"base": None} if "data" in manifest else {}  # who knows the records knows the model
                    check_same(directory, store.manifest, {**known, **manifest})
                except FedauditError:
                    store.close()
                    raise
                if store.lineage.ended and not store.finished:
                    with suppress(OSError):
                        store.resuming()
                return cls(store, begun=True)
            if not force:
                refuse_orphans(directory)
            store = Store.create(directory, manifest)
            # These belong to the run that is being replaced.
            for name in (results.RESULTS, results.SCORES, results.ERRORS, results.REPORT, results.REDACTED, SALT):
                (directory / name).unlink(missing_ok=True)
            return cls(store, begun=False)
        except OSError as error:
            raise FedauditError(
                "not-writable", f"cannot write to {directory}: {error.strerror}", "Choose another folder with --out."
            ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.store.close()

    def finished(self) -> results.Document | None:
        """The results, if the run is already finished."""
        directory = self.store.directory
        return results.load(directory) if self.store.finished and (directory / results.RESULTS).is_file() else None

    def resume(self, auditor: Auditor, tell: Callable[[Notice], None]) -> tuple[Moment, State | None]:
        """Brings the auditor to where the run stopped. Returns the moment and the model from which it continues."""
        store = self.store
        if not self.begun or store.lineage.now == START:
            return START, None
        tell(notice("resuming", round=store.lineage.newest, torn=bool(store.torn)))
        try:
            model = store.released()
        except DamagedError as error:
            raise FedauditError(
                "model-damaged", f"cannot resume: {error}",
                f"`fedaudit audit {store.directory}` can still read what was recorded; --force starts a new run.",
                exit_code=REFUSED,
            ) from None  # fmt: skip
        self.damaged += feed(store, auditor)
        auditor.release(model)
        self._safely(store.resumed)
        return store.lineage.now, model

    def append(self, round: Round, seen: Observation | None, found: Sequence[RoundRisk] = ()) -> None:
        self._safely(lambda: self.store.append(round, seen, found), round.index)

    def end(self, status: str, right: Bools | None) -> None:
        self._safely(lambda: self.store.end(status, right))

    def _safely(self, act: Callable[[], object], round: int | None = None) -> None:
        if self.trouble:
            return
        try:
            act()
        except Exception as error:
            reason = getattr(error, "strerror", None) or say(error)
            folder, last = str(self.store.directory), self.store.lineage.newest
            self.trouble = gap("recording-stopped", round=round, why=reason, folder=folder, last=last)


def feed(store: Store, auditor: Auditor, step: Callable[[], None] = lambda: None) -> list[Notice]:
    """Hands all stored rounds to an auditor. Returns which rounds were damaged and left out.

    After a round that is measured again, the later ones are, too: a search goes on from what the last one found."""
    told, again = [], False
    for entry in store.entries():
        try:
            shown = entry.commit or entry.probe
            lacking = again or not auditor.wants(entry.moment) <= set(entry.names)
            if auditor.task and entry.kept and shown and lacking:
                again |= entry.commit
                auditor.observe(store.round(entry))
            elif seen := store.observation(entry):
                auditor.absorb(seen)
            elif not shown:
                auditor.passed(entry.round)  # nothing was measured in it
        except DamagedError as error:
            told.append(gap("round-damaged", round=entry.round, why=str(error)))
        step()
    for entry in reversed(store.entries()):  # for deferred attacks, which look only at the last models
        if entry.kept and entry.commit and auditor.wants_models():
            with suppress(DamagedError):
                auditor.expect(store.round(entry))
    return told


@contextmanager
def unbroken() -> Iterator[None]:
    """Delays Ctrl-C and SIGTERM until the end of the block, so that what was observed is also recorded. Then they do
    what they would have done. Signals that are ignored, or that another language handles, are left alone."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    caught: list[int] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    former = {number: handler for number, handler in before.items() if handler not in (None, signal.SIG_IGN)}
    for number in former:
        signal.signal(number, lambda got, _: caught.append(got))
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
        for number, handler in former.items():
            if number in caught:
                handler(number, None) if callable(handler) else signal.raise_signal(number)


# ------------------------------------------------------------------ what results.json and run.json say of a run


# The keys of run.json that are also in results.json.
SHARED_KEYS = ("fedaudit", "created", "config", "config_hash", "seed", "versions")


def installed() -> dict[str, str]:
    return {"python": platform.python_version(), **{p: version(p) for p in ("torch", "numpy", "scipy")}}


@dataclass(frozen=True, kw_only=True)
class About:
    """What is known about the audited federation: its configuration if fedaudit trains it, otherwise little."""

    name: str
    dataset: Dataset
    seed: int
    config: Mapping[str, Any] = field(default_factory=dict)
    config_hash: str = ""
    promises: tuple[Promise, ...] = ()

    @classmethod
    def configured(cls, name: str, config: Config, dataset: Dataset, promises: tuple[Promise, ...]) -> About:
        return cls(
            name=name,
            dataset=dataset,
            seed=config.federation.seed,
            config=config.as_dict(),
            config_hash=config.hash(),
            promises=promises,
        )

    @classmethod
    def foreign(cls, name: str, auditor: Auditor, vocabulary: Sequence[str] = ()) -> About:
        """A training that no fedaudit configuration describes."""
        classes = auditor.task.classes if auditor.task else 0
        dataset = Dataset(name, auditor.game.candidates.rows, classes, vocabulary=tuple(vocabulary))
        return cls(name=name, dataset=dataset, seed=auditor.settings.seed)

    @property
    def is_ours(self) -> bool:
        return bool(self.config)

    def info(self, auditor: Auditor, status: str, seconds: float) -> RunInfo:
        dataset, game = self.dataset, auditor.game
        subjects = dataset.records.subject
        return RunInfo(
            name=self.name,
            fedaudit=__version__,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            status=status,
            config=self.config,
            config_hash=self.config_hash,
            seed=self.seed,
            versions=installed(),
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
            guarantee=accounting.stated(self.promises, auditor.last_round),
            weights_per_member=dict(auditor.settings.weights_per_member),
            filter_share=auditor.settings.filter_share,
        )

    def manifest(self, auditor: Auditor, keep: str) -> dict[str, Any]:
        """run.json: what is needed to resume a trace or to attack it again."""
        info = self.info(auditor, "", 0.0)
        return {
            **{key: getattr(info, key) for key in SHARED_KEYS},
            "keep": keep,
            "attacks": [attack.name for attack in auditor.settings.attacks],
            "notices": all_words(auditor.settings.notices),
            "told": [notice.stored() for notice in auditor.settings.notices],
            "data": fingerprint(auditor.game),
            **({"base": found} if (found := base_hash(auditor.task.base if auditor.task else {})) else {}),
            "parties": auditor.game.parties,
            "rounds": auditor.settings.rounds,
            "confidence": auditor.settings.confidence,
            "weights_per_member": info.weights_per_member,
            "filter_share": info.filter_share,
        }


def party_info(game: Game, party: str) -> PartyInfo:
    own = game.truth.role[game.candidates.of_party(party)]
    members, evaluation, calibration = (
        int((own == role.value).sum()) for role in (Role.MEMBER, Role.EVALUATION, Role.CALIBRATION)
    )
    return PartyInfo(party, members, evaluation, calibration)
