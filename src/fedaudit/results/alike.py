"""Like beside like: the same attack, from the same vantage, on the same kind of model, in several runs.

A difference between two runs is taken on the records that both have scores of, joined by id (`stats.paired`). Runs with
no record in common are independent, and so is their difference.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fedaudit.results.document import Document
from fedaudit.results.gate import Scores, blocks_of, close, estimate_of, load_scores, sees
from fedaudit.stats import Block
from fedaudit.stats.paired import tpr_difference
from fedaudit.types import AuditResult, Estimate

FPR = 0.01
RISK = f"tpr@{FPR:g}"


@dataclass(frozen=True)
class Difference:
    """The risk of a run minus that of the first run that has one; `reason` where there is no number."""

    run: str
    minus: str
    estimate: Estimate | None
    shared: int  # records that both runs have scores of
    of: int  # records that either has
    reason: str = ""


@dataclass(frozen=True)
class Like:
    """One attack from one vantage on one kind of model, in every run that has it."""

    vantage: str
    attack: str
    model: str
    risks: Mapping[str, Estimate]  # by run
    differences: Sequence[Difference]


def alike(documents: Sequence[Document], directories: Sequence[Path], names: Sequence[str]) -> list[Like]:
    """For everything that some run quotes in a headline, what all runs found of it."""
    quoted = dict.fromkeys(
        (headline.vantage, headline.attack, headline.model) for document in documents for headline in document.headlines
    )
    scores = cache(lambda place: load_scores(directories[place], with_ids=True))
    found, told_of = [], []
    for vantage, attack, model in quoted:
        entries = {
            place: entry
            for place, document in enumerate(documents)
            for entry in _pooled(document, vantage, attack, model)
            if RISK in entry.estimates
        }
        if len(entries) < 2 or list(entries.values()) in told_of:  # a server sees what a client sees
            continue
        told_of.append(list(entries.values()))
        first, *others = entries
        told = [
            _difference(names, (place, entries[place], scores(place)), (first, entries[first], scores(first)))
            for place in others
        ]
        risks = {names[place]: entry.estimates[RISK] for place, entry in entries.items()}
        found.append(Like(vantage, attack, model, risks, told))
    return found


def _pooled(document: Document, vantage: str, attack: str, model: str) -> Iterator[AuditResult]:
    for entry in document.results:
        if entry.party is None and (entry.attack, entry.model) == (attack, model) and sees(vantage, entry):
            yield entry


def _difference(
    names: Sequence[str],
    one: tuple[int, AuditResult, Scores | None],
    two: tuple[int, AuditResult, Scores | None],
) -> Difference:
    sides = []
    for place, entry, scores in (one, two):
        if scores is None:
            reason = f"{names[place]} has no scores.parquet"
            return Difference(names[one[0]], names[two[0]], None, 0, 0, reason)
        blocks = blocks_of(entry, scores)
        stored = entry.estimates[RISK]
        again = estimate_of(blocks, RISK, stored.confidence)
        if not close(again.value, stored.value):
            reason = f"scores.parquet of {names[place]} does not have the scores behind its risk"
            return Difference(names[one[0]], names[two[0]], None, 0, 0, reason)
        sides.append(blocks)
    ours, theirs = _ids(sides[0]), _ids(sides[1])
    estimate = tpr_difference(sides[0], sides[1], FPR, one[1].estimates[RISK].confidence)
    shared, of = len(ours & theirs), len(ours | theirs)
    return Difference(names[one[0]], names[two[0]], estimate, shared, of, estimate.reason or "")


def _ids(blocks: Sequence[Block]) -> set[str]:
    return {str(name) for block in blocks for names in block.ids or () for name in names.tolist()}
