"""Attacks a recorded federation again, from its signals (without torch), or from its models if they were kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedaudit.adversary.shadow import is_outside
from fedaudit.audit import Auditor, Settings
from fedaudit.config.attack_registry import plain
from fedaudit.config.code import received
from fedaudit.config.schema import Config
from fedaudit.defences import DefenceOptions
from fedaudit.errors import FedauditError
from fedaudit.privacy.accounting import promise_from
from fedaudit.questions import every
from fedaudit.results.document import Document
from fedaudit.session.assemble import SEARCH_TIME, Recorded, Request, assemble, check, choose
from fedaudit.session.prepare import Staged, build, defend, planted, stage
from fedaudit.session.recording import About, base_hash, check_same, config_of, fingerprint
from fedaudit.session.run import Progress
from fedaudit.session.session import Session
from fedaudit.trace.lineage import RecordedRound
from fedaudit.trace.segments import DamagedError
from fedaudit.trace.store import Manifest, Store
from fedaudit.types import Notice, Vantage, as_notices, former, notice, warning
from fedaudit.words import WORDS

if TYPE_CHECKING:
    from fedaudit.learn.tasks import TorchTask


def replay(directory: Path, names: list[str], out: Path, progress: Progress, trust_code: bool = False) -> Document:
    """Audit the trace in `directory` with the named attacks (none: those of its configuration).

    `trust_code`: whether what its configuration names as "package.module:name" may be imported."""
    with received(directory, trust_code, [plain(name) for name in names]):
        return _replayed(Store.read(directory), names, out, progress)


def _replayed(store: Store, names: list[str], out: Path, progress: Progress) -> Document:
    directory = store.directory
    if not store.manifest.get("config"):
        raise FedauditError(
            "not-ours",
            f"{directory} was recorded beside a training of somebody's own: its records and its model are in that "
            "program, not in this folder",
            "Open it again there: `with fedaudit.record(model, games, out=..., rounds=..., attacks=[...]): pass`. Or "
            "give the records to `fedaudit import` with --game.",
        )
    recorded = config_of(store.manifest, directory)
    with progress("Reading the data", 0):
        # The recorded attacks decide which data were set aside before the rest was dealt out.
        staged = stage(recorded)
        staged = replace(staged, request=asked_again(staged, recorded, names, store))
        settings = staged.request.checked()
        todo = "Put the data that it was trained on back to where its configuration names them."
        check_same(directory, store.manifest, {"data": fingerprint(staged.game)}, todo)
        task = build(staged) if must_measure(store, settings) else None
        if task is not None:
            check_same(directory, store.manifest, {"base": base_hash(task.base)})
        auditor = assemble(measuring(staged, task) if task else staged.request, task)
    with progress("Replaying the rounds", len(store.entries())) as step:
        about = About.configured(directory.resolve().name, staged.config, staged.dataset, staged.request.promises)
        session = Session(auditor, None, about, strict=True)
        session.replay(store, step)
        session.odd.extend(released(store, staged, auditor))
    with progress("Computing statistics", 0):
        document = session.finish(out)
    assert document is not None
    return document


def asked_again(staged: Staged, recorded: Config, names: list[str], store: Store) -> Request:
    """The attacks, their vantages, and what the trace says. Refuses what it cannot show."""
    manifest, config = store.manifest, recorded
    if names:
        config = config.model_copy(update={"audit": config.audit.model_copy(update={"attacks": tuple(names)})})
    own = names or manifest.get("attacks")
    attacks = choose(config.audit, None if own is None else [str(name) for name in own])
    check(config.audit, attacks)
    told = tuple(as_notices(staged.dataset.notices) if names else recorded_notices(manifest))
    if config.audit.adversary == "agg-mal":
        if any("shadow" in attack.fitted_on for attack in attacks) or not own:
            what = "agg-mal trains a federation of its own, which is not in a trace"
            raise FedauditError("not-kept", what, "Use `fedaudit run` instead.")
        told += (notice("agg-mal-not-recorded"),)
    for attack in attacks:
        if any(map(is_outside, attack.signals)) and staged.own is None:
            raise FedauditError(
                "not-kept",
                f"{attack.name!r} needs data that was set aside for an outside adversary, and this run set none aside",
                "Run again with this attack in audit.attacks.",
            )
    vantages, left = with_recorded_answers(config)
    return replace(
        staged.request,
        config=config,
        attacks=attacks,
        vantages=vantages,
        notices=(*told, *left),
        asked={**staged.request.asked, **planted_again(staged, recorded, config)},
        recorded=Recorded(
            promises=tuple(promise_from(plain) for plain in manifest.get("guarantee") or ()),
            weights_per_member=manifest.get("weights_per_member", {}),
            filter_share=float(manifest.get("filter_share", 1.0)),
            repeated=not names,
        ),
    )


def recorded_notices(manifest: Manifest) -> Sequence[Notice]:
    """What was told when the run began."""
    sentences = [str(line) for line in manifest.get("notices", ())]
    if "told" not in manifest:
        return [former.notice(sentence, "notice") for sentence in sentences]
    told = zip(as_notices(manifest["told"]), sentences, strict=True)
    # Of what only a later version tells, the sentence is known.
    return [one if one.code in WORDS else replace(one, data={"text": sentence}) for one, sentence in told]


def measuring(staged: Staged, task: TorchTask) -> Request:
    """The request of an audit that asks the stored models again, through the defence that served them. The time that
    the run was told for its search says nothing about this one."""
    told = tuple(told for told in staged.request.notices if told.code != SEARCH_TIME)
    return replace(staged.request, notices=told).under(defend(staged, task))


def planted_again(staged: Staged, recorded: Config, config: Config) -> dict[str, Any]:
    """What questions planted in this run, for those that are asked again: it follows from the configuration."""
    planting = [question for question in every().values() if question.plants]
    wanted = {question.name: question.asked_in(config.audit.attacks) for question in planting}
    for question in planting:
        had = question.asked_in(recorded.audit.attacks)
        if missing := [name for name in wanted[question.name] if name not in had]:
            what = f"{missing[0]} adds parties to the federation, and this run was trained without them"
            raise FedauditError("not-kept", what, "Run again with it in audit.attacks.")
    if not any(wanted.values()):
        return {}
    task = build(staged)
    _, found = planted(replace(staged.ground, config=recorded), task, defend(staged, task))
    return {
        name: replace(found[name].asked, names={each: found[name].asked.names[each] for each in names})
        for name, names in wanted.items()
        if names
    }


def with_recorded_answers(config: Config) -> tuple[tuple[Vantage, ...], tuple[Notice, ...]]:
    """The vantages without those whose answers a defence changed, which were not recorded; and a notice about it."""
    vantages = config.audit.vantages
    bending = [each for each in config.defences if isinstance(each, DefenceOptions) and "serve" in each.slots]
    if Vantage.OUTSIDER not in vantages or not bending:
        return vantages, ()
    holders = tuple(vantage for vantage in vantages if vantage is not Vantage.OUTSIDER)
    if not holders:
        what = f"the answers that {bending[0].name!r} gave an outsider were not recorded"
        raise FedauditError("not-kept", what, "Use `fedaudit run` instead.")
    return holders, (notice("answers-not-recorded", defence=bending[0].name),)


def must_measure(store: Store, settings: Settings) -> bool:
    """Do the attacks need signals that were not stored? Refused if the models were not stored either."""
    rounds = [entry for entry in store.entries() if entry.commit]
    # What a deferred attack needs was measured in the last planned round alone, which is too little for all others.
    earlier = [entry for entry in rounds if entry.round < settings.rounds] or rounds
    again = False
    for attack in settings.attacks:
        there = stored(rounds if attack.deferred else earlier)
        lacking = [signal for signal in attack.signals if signal not in there]
        if lacking and not any(entry.kept for entry in rounds):
            when = "" if attack.deferred else " of every round"
            raise FedauditError(
                "not-kept",
                f"attack {attack.name!r} needs the signal {lacking[0]!r}{when}, but this run stored only: "
                + (", ".join(sorted(there)) or "none"),
                'Run again with that attack in audit.attacks, or with audit.keep = "snapshots".',
            )
        again |= bool(lacking)
    return again


def stored(rounds: Sequence[RecordedRound]) -> set[str]:
    """The signals that were measured in any of these rounds, or could not be observed in one."""
    there = {name for entry in rounds for name in entry.names}
    return there.union(*(names for entry in rounds for names in entry.unobserved.values()))


def released(store: Store, staged: Staged, auditor: Auditor) -> list[Notice]:
    """Sets which records the released model classifies correctly: as recorded, or computed if the run was cut short."""
    right = store.right(staged.game.candidates.rows.y.shape)
    if right is not None or not staged.dataset.classes:
        auditor.release(None, right)
        return []
    try:
        auditor.release(store.released(), task=auditor.task or build(staged))
    except DamagedError as error:
        return [warning("accuracy-missing", why=str(error))]
    return []
