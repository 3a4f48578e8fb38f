"""Risk minus risk of two runs, on the records that both were measured on.

Two intervals that overlap do not say that two runs are equally safe: both err on the same records, and mostly together.
What is compared is the headline of each vantage that both runs have. All differences hold together: they share the
error, and so do the kinds of models that a headline was chosen from.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedaudit.results.document import Document
from fedaudit.results.scores import Scores, blocks_of, load_scores
from fedaudit.stats import Block, pooled_tpr, tpr_difference
from fedaudit.stats.pooled import able
from fedaudit.types import Headline


@dataclass(frozen=True)
class Difference:
    """The first run's risk minus the second's; `safer` is None where the interval holds 0."""

    first: str
    second: str
    vantage: str
    value: float
    low: float
    high: float
    confidence: float
    method: str
    safer: str | None


def differences(documents: Mapping[str, Document], folders: Mapping[str, Path], metric: str) -> list[Difference]:
    """Between every two runs, at every vantage that both have. Pairs whose scores are missing are left out."""
    names = list(documents)
    scores = {name: load_scores(folders[name]) for name in names}
    pairs = [
        (one, two, *both)
        for i, one in enumerate(names)
        for two in names[i + 1 :]
        for both in _same_vantage(documents[one].headlines, documents[two].headlines, metric)
    ]
    chosen = max((max(a.compared, b.compared) for _, _, a, b in pairs), default=1)
    found = []
    for one, two, a, b in pairs:
        confidence = 1 - 0.05 / len(pairs) / chosen
        blocks = _blocks(scores[one], a, metric), _blocks(scores[two], b, metric)
        if blocks[0] and blocks[1]:
            gap = tpr_difference(blocks[0], blocks[1], float(metric.removeprefix("tpr@")), confidence)
            if gap.value is not None and gap.low is not None and gap.high is not None:
                safer = two if gap.low > 0 else one if gap.high < 0 else None
                told = gap.value, gap.low, gap.high, confidence, gap.method
                found.append(Difference(one, two, a.vantage, *told, safer))
    return found


def _same_vantage(ours: Sequence[Headline], theirs: Sequence[Headline], metric: str) -> list[tuple[Headline, Headline]]:
    by_vantage = {headline.vantage: headline for headline in theirs if metric in headline.estimates}
    return [(own, by_vantage[own.vantage]) for own in ours if metric in own.estimates and own.vantage in by_vantage]


def _blocks(scores: Scores | None, headline: Headline, metric: str) -> list[Block]:
    """The scores behind a headline; none where the file does not have them (a defence that changes the answers for
    outsiders is not in it)."""
    if scores is None:
        return []
    blocks = blocks_of(scores, headline.attack, headline.model)
    if not blocks:
        return []
    fpr, stored = float(metric.removeprefix("tpr@")), headline.estimates[metric].value
    again = pooled_tpr(blocks, fpr).value
    same = again is not None and stored is not None and math.isclose(again, stored, rel_tol=0, abs_tol=1e-9)
    return able(blocks, fpr) if same else []
