"""One verdict for a consortium whose sites audit themselves: what a site hands over, and what all of it comes to.

A site keeps its records, their ids and its models. `hand_over` writes a folder with two files:

- `scores.parquet`: for each candidate its role and, for each attack, its score. Candidates and people are numbered
  anew, in random order, and which number stands for whom is written down nowhere. With `ranks`, scores are replaced by
  their ranks within the party. That is all that attacks on local models need; those on global models, which share one
  threshold among all sites, are left out.
- `manifest.json`: what was asked, what is handed over and what is not, with the checksum of the other file. Sign it.

`merge` puts the scores of several sites together and judges them as one audit of all parties would: the same blocks,
the same estimators, the same correction. Somebody with records at two sites counts as two people.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from fedaudit import __version__
from fedaudit.audit.case import fpr_missed
from fedaudit.config.attack_registry import ATTACKS
from fedaudit.config.schema import DEFAULT_FPR
from fedaudit.errors import REFUSED, FedauditError
from fedaudit.files import write_atomically
from fedaudit.privacy.statement import Statement, weakest
from fedaudit.questions import MINUS, of_membership
from fedaudit.results.document import SCORES, DataInfo, Document, NotHandedOver, PartyInfo, RunInfo, load
from fedaudit.results.schema import UnreadableError, as_text, read_file
from fedaudit.results.scores import Scores, absent_of, blocks_of, load_scores, read_scores, save_scores
from fedaudit.stats import Block, auc_difference, needed_for_value, roc_curve, tpr_difference
from fedaudit.stats.blocks import calibrated
from fedaudit.stats.paired import alike
from fedaudit.stats.roc import estimates
from fedaudit.stats.strongest import Speaker, chosen, listen, models_of
from fedaudit.stats.wording import fpr_of
from fedaudit.trace.journal import checksum_of
from fedaudit.types import AuditResult, Cost, Ending, Estimate, ModelKind, Vantage, VantageName, notice, once
from fedaudit.types.stored import Count, Many, Number, Whole
from fedaudit.words import all_words, with_warnings
from fedaudit.words.headlines import Scene, worded

MANIFEST = "manifest.json"
HEADLINE_FPR = 0.01
Kind = Literal["scores", "ranks"]
Rate = Annotated[Number, Field(gt=0, lt=1)]
KEPT_BACK = (
    "records", "ids of records and of people", "models and updates", "signals of single rounds", "exposed records",
)  # fmt: skip
ABSENT: Sequence[NotHandedOver] = ("settings", "groups", "cells", "blind", "accuracy", "costs", "duration")


@dataclass(frozen=True)
class RunAttack:
    """One attack on one kind of models from one vantage."""

    attack: str
    vantage: VantageName
    model: ModelKind


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a site hands over."""

    schema: Annotated[Whole, Field(json_schema_extra={"const": 1})] = 1
    kind: Kind
    fedaudit: str
    created: str
    unit: Annotated[str, Field(pattern="^(record|subject)$")]
    confidence: Rate
    fprs: Many[Rate]
    rounds: Count
    data: Annotated[DataInfo, Field(description="what is handed over; of people, how many records is not")]
    parties: Many[PartyInfo]
    asked: Many[RunAttack]
    primary: Mapping[VantageName, str]
    ending: Ending
    doubts: Annotated[Many[str], Field(description="why the site's risk may exceed what was found there")] = ()
    useless: Annotated[str, Field(description="why the site's model itself is worth nothing; empty if it is not")] = ""
    guarantee: Annotated[Statement | None, Field(description="what the site's training promises")] = None
    candidates: Count
    kept_back: Many[str] = KEPT_BACK
    files: Mapping[str, str] = field(default_factory=dict)  # checksums


# ------------------------------------------------------------------ at a site


def hand_over(run: Path, out: Path, party: str | None = None, ranks: bool = False) -> Manifest:
    """Writes the two files into a new folder. `party`: that one alone, of a run with several."""
    document, stored = load(run), load_scores(run)
    if stored is None:
        what = f"{run} has no {SCORES}"
        raise FedauditError("no-scores", what, "Give a folder that `fedaudit run` or a recording wrote.")
    names = [each.name for each in document.run.parties]
    if party is not None and party not in names:
        raise FedauditError("unknown-party", f"{run} has no such party", f"Name one of {', '.join(names)}.")
    kept = np.ones(len(stored["score"]), bool) if party is None else stored["party"] == party
    if ranks:
        kept &= stored["model"] == "local"
    entries = [entry for entry in document.results if entry.party is None and of_membership(entry)]
    told = kept & np.isfinite(stored["score"])  # a party may have taken part too seldom for an attack
    asked = [
        RunAttack(entry.attack, entry.vantage, entry.model)
        for entry in entries
        if ((stored["attack"] == entry.attack) & (stored["model"] == entry.model) & told).any()
    ]
    if not asked:
        what = f"{run} has no score that could be handed over" + " as a rank: ranks are of local models" * ranks
        raise FedauditError("nothing-to-hand-over", what, "Audit the server's view of this party's updates.")
    first = entries[0].estimates["auc"]
    rates = {rate for entry in entries for name in entry.estimates if (rate := fpr_of(name)) is not None}
    out.mkdir(parents=True, exist_ok=True)
    if any(out.iterdir()):
        raise FedauditError("not-empty", f"{out} is not empty", "Give a new folder with --out.")
    pairs = zip(stored["attack"].tolist(), stored["model"].tolist(), strict=True)
    wanted = {(one.attack, one.model) for one in asked}
    kept &= np.fromiter((pair in wanted for pair in pairs), bool, len(kept))
    handed = _without_names({name: values[kept] for name, values in stored.items()}, ranks)
    save_scores(parts(handed), out, seal=lambda _: None)
    candidates, unit = len(np.unique(handed["id"])), entries[0].unit
    whose = handed.get("id" if unit == "subject" else "subject")
    people = None if whose is None else len(np.unique(whose))
    data = replace(document.run.data, records=0 if unit == "subject" else candidates, subjects=people)
    manifest = Manifest(
        kind="ranks" if ranks else "scores",
        fedaudit=__version__,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        unit=unit,
        confidence=first.confidence,
        fprs=sorted(rates),
        rounds=document.run.rounds,
        data=data,
        parties=[each for each in document.run.parties if party in (None, each.name)],
        asked=asked,
        primary={headline.vantage: headline.fixed for headline in document.headlines},
        ending=document.run.ending,
        doubts=_doubts(document),
        useless=document.useless,
        guarantee=document.run.guarantee,
        candidates=candidates,
        files={SCORES: checksum_of(out / SCORES)},
    )
    write_atomically(out / MANIFEST, as_text(manifest))
    return manifest


def _doubts(document: Document) -> list[str]:
    """What keeps a gate from calling the site safe: it holds for the consortium, too."""
    all_told = [*document.all_told(), *(told for entry in document.results for told in entry.told)]
    unlike = [told for told in all_told if told.code in ("sets-differ", "fpr-missed", "fpr-undershot")]
    return [*document.degraded, *document.understates, *all_words(once(unlike))]


def _without_names(scores: Scores, ranks: bool) -> Scores:
    """The same candidates under new numbers, drawn at random from the system, in the order of these numbers."""
    rng = np.random.default_rng()
    found = dict(scores)
    for column in ("id", "subject"):
        if column in scores:
            names, place = np.unique(scores[column].astype(np.str_), return_inverse=True)
            found[column] = np.char.zfill(rng.permutation(len(names)).astype(np.str_), 9)[place]
    order = np.lexsort((found["id"], found["model"].astype(np.str_), found["attack"].astype(np.str_)))
    found = {name: values[order] for name, values in found.items()}
    return {**found, "score": _ranked(found)} if ranks else found


def _ranked(scores: Scores) -> np.ndarray:
    """The rank of each score among those of the same attack and party; equal scores have equal ranks."""
    found = np.full(len(scores["score"]), np.nan)
    keys = np.stack([scores[name].astype(np.str_) for name in ("attack", "model", "party")], axis=1)
    for key in np.unique(keys, axis=0):
        mine = (keys == key).all(axis=1) & np.isfinite(scores["score"])
        found[mine] = np.unique(scores["score"][mine], return_inverse=True)[1]
    return found


def parts(scores: Scores) -> Iterator[dict[str, Any]]:
    """One for each attack and model, as they are stored."""
    pairs = zip(scores["attack"].tolist(), scores["model"].tolist(), strict=True)
    for attack, model in dict.fromkeys(pairs):
        mine = (scores["attack"] == attack) & (scores["model"] == model)
        rows = {name: values[mine] for name, values in scores.items()}
        yield {"subject": None, **rows, "attack": attack, "model": model}


# ------------------------------------------------------------------ for the consortium


@dataclass(frozen=True)
class Site:
    folder: Path
    manifest: Manifest
    scores: Scores


def read_site(folder: Path) -> Site:
    """What a site handed over, if it is as it was written."""
    path = folder / MANIFEST
    if not path.is_file():
        what = f"there is no {MANIFEST} in {folder}"
        raise FedauditError("no-manifest", what, "Give a folder that `fedaudit hand-over` wrote.")
    try:
        manifest = read_file(Manifest, path)
    except (UnreadableError, ValueError, RecursionError):
        what = f"{path} is no manifest"
        raise FedauditError("no-manifest", what, "Ask the site for it again.", exit_code=REFUSED) from None
    stored = folder / SCORES
    if not stored.is_file() or manifest.files.get(SCORES) != checksum_of(stored):
        raise _changed(folder, f"{SCORES} is not what its manifest names")
    try:
        scores = read_scores(stored)
    except FedauditError:
        raise _changed(folder, f"{SCORES} cannot be read") from None
    if why := _contradiction(manifest, scores):
        raise _changed(folder, f"{SCORES} and the manifest contradict each other: {why}")
    return Site(folder, manifest, scores)


def _changed(folder: Path, what: str) -> FedauditError:
    return FedauditError("handed-over-changed", f"{folder}: {what}", "Ask the site for it again.", exit_code=REFUSED)


def _contradiction(manifest: Manifest, scores: Scores) -> str:
    """What the manifest says and the scores do not hold; empty if they fit."""
    if set(scores["party"].tolist()) != {party.name for party in manifest.parties}:
        return "the parties"
    if len(np.unique(scores["id"].astype(np.str_))) != manifest.candidates:
        return "the number of candidates"
    for one in manifest.asked:
        mine = (scores["attack"] == one.attack) & (scores["model"] == one.model)
        if not np.isfinite(scores["score"][mine]).any():
            return "an attack without scores"
    lead = {(one.vantage, one.attack) for one in manifest.asked}
    return "" if manifest.primary.keys() & {vantage for vantage, _ in lead} else "no primary attack"


def merge(folders: Sequence[Path], name: str) -> tuple[Document, Scores]:
    """One audit of all these sites, and the scores that it rests on."""
    sites = [read_site(folder) for folder in folders]
    _check_alike(sites)
    first = sites[0].manifest
    everywhere = set.intersection(*({*site.manifest.asked} for site in sites))
    asked = [one for one in first.asked if one in everywhere]
    if not asked:
        what = "no attack was run at all of these sites"
        raise FedauditError("nothing-in-common", what, "Let them run the same attacks, and hand over again.")
    left_out = sorted({f"{one.attack} ({one.model})" for site in sites for one in site.manifest.asked} - {
        f"{one.attack} ({one.model})" for one in asked
    })  # fmt: skip
    scores = _together(sites)
    first = replace(first, fprs=_rates(sites, asked, scores))
    results = [entry for one in asked for entry in _judged(scores, one, first, asked)]
    vantages = [Vantage(vantage) for vantage in first.primary]
    places = [
        Speaker(
            vantage.value,
            one.attack,
            one.model,
            seen=one.model,
            primary=first.primary[vantage.value] == one.attack,
            pooled=partial(_pooled, scores, one, first.fprs),
        )
        for vantage in vantages
        for model in models_of(vantage)
        for one in dict.fromkeys(replace(one, vantage=vantage.value) for one in asked if one.model == model)
    ]
    heard, looked_at = listen(places, first.confidence, 1 + len(first.fprs))
    quoted = chosen(heard, looked_at.all)
    about = {one.attack: ATTACKS.brief(one.attack) for one in asked}
    scene = Scene(
        results, first.rounds, quoted.name, primary=quoted.primary, average=quoted.average, about=about
    )  # fmt: skip
    warned = once(warned for entry in results for warned in entry.told)
    told = [notice("merged", sites=len(sites), ranks=first.kind == "ranks")]
    told += [notice("merged-without", attacks=left_out)] if left_out else []
    document = Document(
        run=_info(sites, name),
        headlines=worded(quoted.headlines, scene),
        results=results,
        warnings=all_words(warned),
        notices=all_words(told),
        told=(*warned, *told),
        glossary={one.attack: ATTACKS.explained(one.attack) for one in asked},
        useless=" ".join(dict.fromkeys(site.manifest.useless for site in sites if site.manifest.useless)),
        understates=[f"{site.folder.name}: {doubt}" for site in sites for doubt in site.manifest.doubts]
        + all_words(told[1:]),
    )
    return document, scores


def _check_alike(sites: Sequence[Site]) -> None:
    """What must be the same at all sites, so that one verdict is possible."""
    for what, of in (
        ("the unit", lambda m: m.unit),
        ("scores or ranks", lambda m: m.kind),
        ("the confidence", lambda m: m.confidence),
        ("whether it is known whose the records are", lambda m: m.data.subjects is None),
        ("the number of rounds", lambda m: m.rounds),
        ("the primary attacks", lambda m: dict(m.primary)),
    ):
        odd = [site for site in sites if of(site.manifest) != of(sites[0].manifest)]
        if odd:
            text = f"{odd[0].folder} and {sites[0].folder} differ in {what}"
            raise FedauditError("sites-differ", text, "Audit them alike, and hand over again.")
    for one, other in combinations(sites, 2):
        if one.manifest.files[SCORES] == other.manifest.files[SCORES]:
            raise FedauditError("same-site", f"{one.folder} and {other.folder} hold the same scores", "Give each once.")
        shared = {p.name for p in one.manifest.parties} & {p.name for p in other.manifest.parties}
        if shared:
            text = f"{one.folder} and {other.folder} both hand over a party of the same name"
            raise FedauditError("same-party", text, "Hand over each party once, under a name of its own.")


def _rates(sites: Sequence[Site], asked: Sequence[RunAttack], scores: Scores) -> list[float]:
    """The false-positive rates of all sites. Where none asked for others than the default ones, those of them that all
    sites calibrate together, although each may be too small for them."""
    rates = {rate for site in sites for rate in site.manifest.fprs}
    if rates <= {*DEFAULT_FPR}:
        sets = [calibrated(blocks_of(scores, one.attack, one.model)) for one in asked]
        together = min(sum(len(block.calibration) for block in blocks) for blocks in sets)
        rates |= {rate for rate in DEFAULT_FPR if together >= needed_for_value(rate)}
    return sorted(rates)


def _together(sites: Sequence[Site]) -> Scores:
    """All rows; a number of one site is no number of another."""
    columns = set.intersection(*({*site.scores} for site in sites))
    found = {}
    for column in columns:
        parts = [site.scores[column] for site in sites]
        if column in ("id", "subject"):
            parts = [np.char.add(f"{number}/", part.astype(np.str_)) for number, part in enumerate(parts)]
        found[column] = np.concatenate(parts)
    return found


def _pooled(scores: Scores, one: RunAttack, fprs: Sequence[float], confidence: float) -> dict[str, Estimate]:
    blocks, absent = blocks_of(scores, one.attack, one.model), absent_of(scores, one.attack, one.model)
    return estimates(blocks, fprs, confidence, absent)


def _judged(scores: Scores, one: RunAttack, manifest: Manifest, asked: Sequence[RunAttack]) -> list[AuditResult]:
    """Pooled with its curve and beside the primary attack, and of each party, as the question of records does."""
    entry = partial(
        AuditResult, one.attack, one.vantage, one.model, manifest.unit, round=manifest.rounds, cost=Cost(None)
    )
    question = "subject" if manifest.unit == "subject" else "record"
    blocks = blocks_of(scores, one.attack, one.model)
    pooled = _pooled(scores, one, manifest.fprs, manifest.confidence)
    found = entry(
        None,
        estimates=pooled,
        curves={"roc": roc_curve(blocks, confidence=manifest.confidence)},
        beside=_beside(scores, one, manifest, asked, blocks),
        question=question,
    )
    results = [with_warnings(found, fpr_missed(one.attack, pooled))]
    for party in sorted({*scores["party"].tolist()}):
        own = estimates(blocks_of(scores, one.attack, one.model, party), manifest.fprs, manifest.confidence)
        results.append(with_warnings(entry(party, estimates=own, question=question), fpr_missed(one.attack, own)))
    return results


def _beside(
    scores: Scores, one: RunAttack, manifest: Manifest, asked: Sequence[RunAttack], blocks: Sequence[Block]
) -> dict[str, Estimate]:
    """Its figures minus those of the primary attack, the error shared among all that are so compared."""
    primary = manifest.primary.get(one.vantage)
    there = [each.attack for each in asked if (each.vantage, each.model) == (one.vantage, one.model)]
    if primary is None or one.attack == primary or primary not in there:
        return {}
    others = [attack for attack in there if attack != primary]
    confidence = 1 - (1 - manifest.confidence) / len(others)
    blocks, theirs = alike(blocks, blocks_of(scores, primary, one.model))
    if not blocks:
        return {}
    found = {"auc": auc_difference(blocks, theirs, confidence)}
    if HEADLINE_FPR in manifest.fprs:
        pair = alike(calibrated(blocks), calibrated(theirs))
        found[f"tpr@{HEADLINE_FPR:g}"] = tpr_difference(*pair, HEADLINE_FPR, confidence)
    return {
        name + MINUS: replace(e, name=name + MINUS, method=f"minus {primary}; {e.method}") for name, e in found.items()
    }


def _info(sites: Sequence[Site], name: str) -> RunInfo:
    manifests = [site.manifest for site in sites]
    people, claims = [m.data.subjects for m in manifests], [m.guarantee for m in manifests]
    claim = weakest(claims)
    absent: Sequence[NotHandedOver] = [*ABSENT, "guarantee"] if claim is None and any(claims) else ABSENT
    data = replace(
        manifests[0].data,
        name=" + ".join(dict.fromkeys(m.data.name for m in manifests)),
        records=sum(m.data.records for m in manifests),
        subjects=None if None in people else sum(each or 0 for each in people),
    )
    sums = [m.files[SCORES] for m in manifests]
    ending: Ending = next((m.ending for m in manifests if m.ending != "complete"), "complete")
    return RunInfo(
        name=name,
        fedaudit=__version__,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        status="complete" if ending == "complete" else f"{ending} at one site at least",
        ended=ending,
        config={"sites": [site.folder.name for site in sites]},
        config_hash=hashlib.sha256("".join(sorted(sums)).encode()).hexdigest()[:16],
        seed=0,
        versions={},
        rounds=manifests[0].rounds,
        seconds=None,
        data=data,
        parties=[party for m in manifests for party in m.parties],
        guarantee=claim,
        not_handed_over=absent,
    )
