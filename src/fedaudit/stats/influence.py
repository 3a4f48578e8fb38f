"""What each record adds to the error of an estimate; from this follows how two estimates on the same records err
together.

An influence has the shape of its blocks: for each of them one array for members, evaluation and calibration in turn.
Added up by subject (or record), the sum of squares is the estimate's variance, and the sum of products with another
estimate's is their covariance.
"""

import math
from collections.abc import Sequence

import numpy as np

from fedaudit.errors import FedauditError
from fedaudit.stats.blocks import Block, Groups, numbered
from fedaudit.stats.calibration import ranked
from fedaudit.stats.ranking import parts_of
from fedaudit.types import Floats

Influence = list[tuple[Floats, Floats, Floats]]


def auc_influence(blocks: Sequence[Block]) -> Influence:
    """Blocks are weighted by their pairs; one without members or without evaluation records adds nothing."""
    usable = [block for block in blocks if len(block.members) and len(block.evaluation)]
    parts = dict(zip(map(id, usable), parts_of(usable), strict=True))
    pairs = sum(len(block.members) * len(block.evaluation) for block in usable)
    found: Influence = []
    for block in blocks:
        m, n = len(block.members), len(block.evaluation)
        own = parts[id(block)].influence * (m * n / pairs) if id(block) in parts else np.zeros(m + n)
        found.append((own[:m], own[m:], np.zeros(len(block.calibration))))
    return found


def tpr_influence(blocks: Sequence[Block], fpr: float) -> Influence:
    """A member adds whether it is hit; a calibration score above the threshold pushes it up, which costs hits."""
    total = sum(len(block.members) for block in blocks)
    found: Influence = []
    for block in blocks:
        part = ranked(block, fpr)
        hit, ahead = block.accused(block.members, part.rank), block.accused(block.calibration, part.rank)
        step = max(round(math.sqrt(part.size * fpr * part.spread)), 1)  # the rank's own standard deviation
        low, high = max(part.rank - step, 0), min(part.rank + step, part.size + 1)
        below, above = block.hits(np.array([low, high]))
        slope = (above - below) / (high - low)
        found.append((
            (hit - (hit.mean() if len(hit) else 0.0)) / max(total, 1),
            np.zeros(len(block.evaluation)),
            -slope * (ahead - (ahead.mean() if len(ahead) else 0.0)) / max(total, 1),
        ))  # fmt: skip
    return found


def by_unit(estimates: Sequence[tuple[Influence, Sequence[Block]]]) -> Floats:
    """Estimates x units: the influence of each subject, or of each record where subjects are not known, joined by
    name over all estimates. A unit that is not in an estimate adds 0 to it."""
    found = numbered([name for _, blocks in estimates for block in blocks for name in _names(block)])
    size = 1 + max((int(own.max()) for own in found if own is not None and len(own)), default=-1)
    numbers = iter(found)
    rows = []
    for influence, _ in estimates:
        row = np.zeros(size)
        for values in (part for block in influence for part in block):
            own = next(numbers)
            assert own is not None
            row += np.bincount(own, values, size)
        rows.append(row)
    return np.array(rows)


def on_units(influence: Influence, blocks: Sequence[Block], size: int) -> Floats:
    """The influence of each of `size` units on one estimate; the units' names are their numbers."""
    row = np.zeros(size)
    for values, block in zip(influence, blocks, strict=True):
        for part, numbers in zip(values, _names(block), strict=True):
            row += np.bincount(numbers, part, size)
    return row


def _names(block: Block) -> tuple[Groups, Groups, Groups]:
    names = block.ids if block.subjects is None else block.subjects
    if names is None:
        what = "the scores do not say which record each of them belongs to, so that they cannot be paired"
        raise FedauditError("no-ids", what, "Give the blocks ids, or subjects.")
    return names
