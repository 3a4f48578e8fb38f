"""Where a threshold lies: by rank among the calibration scores, and how sure that rank is."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedaudit.stats.blocks import Block, design_effect
from fedaudit.types import Floats, Ints


def judged(numbers: Ints) -> int:
    """How many scores must lie beyond a threshold before their clustering can be judged: at least forty, and as many as
    two whole subjects have.

    Found by simulation, with correlations of 0 to .9 within subjects of 9 or 30 records or of heavy-tailed sizes.
    """
    own = np.bincount(numbers)
    return max(40, math.ceil(2 * float(np.sum(own**2)) / max(len(numbers), 1)))


def needed_for_value(fpr: float) -> int:
    """With fewer calibration non-members than this, no threshold has an expected FPR of at most `fpr`."""
    return math.ceil(1 / fpr - 1e-9)


def needed_for_lower_end(fpr: float, confidence: float = 0.95, blocks: int = 1, guaranteed: bool = False) -> int:
    """How many independent calibration non-members each of `blocks` equal blocks must have before the lower end of a
    TPR, or its guaranteed one, can be above 0. With that many in all, it is very unlikely that none of them lies above
    the true threshold of its block."""
    alpha = (1 - confidence) / (4 if guaranteed else 2)
    together = math.ceil(math.log(alpha) / math.log1p(-fpr) - 1e-9)
    return max(math.ceil(together / blocks), needed_for_value(fpr))


@dataclass(frozen=True)
class Ranked:
    """One block at one FPR: the rank of the threshold in use, and what its calibration scores are worth."""

    block: Block
    fpr: float
    rank: int
    spread: float  # design effect of the calibration scores

    @property
    def size(self) -> int:
        return len(self.block.calibration)

    @property
    def effective(self) -> int:
        """How many independent scores would tell as much as these."""
        return int(self.size / self.spread)

    def first_hit(self) -> int:
        """The smallest rank at which a member is accused."""
        best = self.block.rising[-1] if len(self.block.rising) else -math.inf
        return 1 + int(np.count_nonzero(self.block.calibration > best))

    def at_least(self, ahead: Ints) -> Floats:
        """The least number of members above the true quantile if `ahead` effective calibration scores lie above it."""
        return self.block.hits(np.floor(ahead * self.spread).astype(np.int64))

    def at_most(self, ahead: Ints) -> Floats:
        """The largest number of them: the next calibration score already lies below the quantile."""
        beyond = np.ceil((ahead + 1) * self.spread).astype(np.int64)
        return self.block.hits(np.minimum(beyond, self.size + 1))


def threshold_rank(n: int, fpr: float, spread: float = 1.0) -> int:
    """A score is accused if fewer than this many of the n calibration scores are ahead of it. The expected FPR is then
    at most `fpr`.

    Of the n / spread effective scores, floor(fpr (n / spread + 1)) - 1 may be ahead, and each of them stands for
    `spread`. The rank is 0 or less where there are fewer than 1 / fpr effective scores.
    """
    return math.floor(fpr * (n + spread) - (spread - 1) + 1e-9)


def ranked(block: Block, fpr: float) -> Ranked:
    """The threshold of one block. Few scores lie beyond the threshold of a small FPR, so their clustering is also
    judged at a lower threshold, and the larger design effect counts."""
    n, spread = len(block.calibration), 1.0
    if n and block.calibration_numbers is not None:
        rank = threshold_rank(n, fpr)
        ranks = rank, max(rank, min(judged(block.calibration_numbers), n // 2))
        accused = (block.accused(block.calibration, rank) for rank in ranks)
        spread = max(design_effect([weights], [block.calibration_numbers]) for weights in accused)
    return Ranked(block, fpr, max(threshold_rank(n, fpr, spread), 0), spread)


def tied_share(blocks: Sequence[Block], fpr: float) -> float:
    """The share of members and calibration scores that equal their threshold, so that coins decide about them.

    If it is more than a few per cent, the score saturates or takes few values.
    """
    tied = of = 0
    for block in blocks:
        threshold = block.descending[ranked(block, fpr).rank]
        tied += sum(int(np.count_nonzero(scores == threshold)) for scores in (block.members, block.calibration))
        of += len(block.members) + len(block.calibration)
    return tied / of if of else 0.0
