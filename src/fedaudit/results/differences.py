"""Risk minus risk of two runs, on the records that both were measured on.

Two intervals that overlap do not say that two runs are equally safe: both err on the same records, and mostly together.
What is compared is like with like (`alike`): what either run quotes in a headline, and both have. All differences hold
together: they share the error, and so do the kinds of models that a headline was chosen from.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedaudit.results.alike import Like
from fedaudit.results.between import blocks_behind
from fedaudit.results.document import Document
from fedaudit.results.scores import load_scores
from fedaudit.stats import Block, auc_difference, tpr_difference
from fedaudit.stats.wording import fpr_of
from fedaudit.types import Estimate
from fedaudit.types.stored import Number, Whole


@dataclass(frozen=True)
class Difference:
    """The first run's risk minus the second's; `safer` is None where the interval holds 0."""

    first: str
    second: str
    vantage: str
    attack: str
    model: str
    value: Number
    low: Number
    high: Number
    confidence: Number
    method: str
    safer: str | None
    shared: Whole  # records that both runs have scores of
    records: Whole  # that either has
    metric: str


def differences(
    documents: Mapping[str, Document], folders: Mapping[str, Path], found_alike: Sequence[Like]
) -> list[Difference]:
    """Between every two runs, in everything alike. Pairs whose scores are missing are left out."""
    names = list(documents)
    scores = {name: load_scores(folders[name]) for name in names}
    pairs = [
        (one, two, like)
        for i, one in enumerate(names)
        for two in names[i + 1 :]
        for like in found_alike
        if one in like.risks and two in like.risks
    ]
    error = max((1 - e.confidence for like in found_alike for e in like.risks.values()), default=0.05)
    chosen = max((h.compared for document in documents.values() for h in document.headlines), default=1)
    found = []
    for one, two, like in pairs:
        confidence = 1 - error / len(pairs) / chosen
        blocks = [blocks_behind(scores[name], (like.attack, like.model, None), like.risks[name]) for name in (one, two)]
        if blocks[0] and blocks[1]:
            gap = _difference(blocks[0], blocks[1], like.metric, confidence)
            if gap.value is None or gap.low is None or gap.high is None:
                continue
            ours, theirs = (_ids(side) for side in blocks)
            found.append(
                Difference(
                    first=one,
                    second=two,
                    vantage=like.vantage,
                    attack=like.attack,
                    model=like.model,
                    value=gap.value,
                    low=gap.low,
                    high=gap.high,
                    confidence=confidence,
                    method=gap.method,
                    safer=two if gap.low > 0 else one if gap.high < 0 else None,
                    shared=len(ours & theirs),
                    records=len(ours | theirs),
                    metric=like.metric,
                )
            )
    return found


def _difference(ours: Sequence[Block], theirs: Sequence[Block], metric: str, confidence: float) -> Estimate:
    fpr = fpr_of(metric)
    return auc_difference(ours, theirs, confidence) if fpr is None else tpr_difference(ours, theirs, fpr, confidence)


def _ids(blocks: Sequence[Block]) -> set[str]:
    return {str(name) for block in blocks for names in block.ids or () for name in names.tolist()}
