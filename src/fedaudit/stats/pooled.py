"""The TPR over parties, some with too few records for a threshold: they are left out, and the method says so."""

from collections.abc import Sequence
from dataclasses import replace

from fedaudit.stats.blocks import Block
from fedaudit.stats.calibration import needed_for_value
from fedaudit.stats.roc import tpr_at_fpr
from fedaudit.types import Estimate


def able(blocks: Sequence[Block], fpr: float) -> list[Block]:
    """The parties that can calibrate this rate; if none can, all of them, so that the estimate says what is missing."""
    enough = [block for block in blocks if len(block.calibration) >= needed_for_value(fpr)]
    return enough or list(blocks)


def pooled_tpr(blocks: Sequence[Block], fpr: float, confidence: float = 0.95, prove: bool = True) -> Estimate:
    """`tpr_at_fpr` over the parties that can calibrate the rate."""
    kept = able(blocks, fpr)
    found = tpr_at_fpr(kept, fpr, confidence, prove)
    if len(kept) == len(blocks):
        return found
    left_out = f"{len(blocks) - len(kept)} of {len(blocks)} parties left out: too few records to calibrate this rate"
    return replace(found, method=f"{found.method}; {left_out}")
