"""Where a threshold lies: by rank among the calibration scores, and how sure that rank is."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedaudit.stats.blocks import Block, design_effect
from fedaudit.types import Floats, Ints


def judged(numbers: Ints) -> int:
    """Scores beyond a threshold from which on their clustering can be judged: forty, and those of two whole subjects.

    Found by simulation, with correlations of 0 to .9 within subjects of 9 or 30 records or of heavy-tailed sizes.
    """
    own = np.bincount(numbers)
    return max(40, math.ceil(2 * float(np.sum(own**2)) / max(len(numbers), 1)))


def needed_for_value(fpr: float) -> int:
    """Calibration non-members below which no threshold has an expected FPR of at most `fpr`."""
    return math.ceil(1 / fpr - 1e-9)


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
        """As many independent scores would be worth as much."""
        return int(self.size / self.spread)

    def at_least(self, ahead: Ints) -> Floats:
        """Members above the true quantile, at least, if so many effective calibration scores lie above it."""
        return self.block.hits(np.floor(ahead * self.spread).astype(np.int64))

    def at_most(self, ahead: Ints) -> Floats:
        """The same from above: the next calibration score lies below the quantile."""
        beyond = np.ceil((ahead + 1) * self.spread).astype(np.int64)
        return self.block.hits(np.minimum(beyond, self.size + 1))


def threshold_rank(n: int, fpr: float, spread: float = 1.0) -> int:
    """Fewer than so many of n calibration scores may be ahead of an accused one: the expected FPR is at most `fpr`.

    Of n / spread effective scores floor(fpr (n / spread + 1)) - 1 may be, and each of them stands for `spread`. 0 or
    less where there are not 1 / fpr effective ones.
    """
    return math.floor(fpr * (n + spread) - (spread - 1) + 1e-9)


def ranked(block: Block, fpr: float) -> Ranked:
    """So few scores lie beyond a small FPR that their clustering is also judged where there are more."""
    n, spread = len(block.calibration), 1.0
    if n and block.calibration_numbers is not None:
        rank = threshold_rank(n, fpr)
        ranks = rank, max(rank, min(judged(block.calibration_numbers), n // 2))
        accused = (block.accused(block.calibration, rank) for rank in ranks)
        spread = max(design_effect([weights], [block.calibration_numbers]) for weights in accused)
    return Ranked(block, fpr, max(threshold_rank(n, fpr, spread), 0), spread)


def tied_share(blocks: Sequence[Block], fpr: float) -> float:
    """The share of members and calibration scores that equal their threshold, so that coins decide about them.

    More than a few per cent tell of a score that saturates or takes few values.
    """
    tied = of = 0
    for block in blocks:
        threshold = block.descending[ranked(block, fpr).rank]
        tied += sum(int(np.count_nonzero(scores == threshold)) for scores in (block.members, block.calibration))
        of += len(block.members) + len(block.calibration)
    return tied / of if of else 0.0
