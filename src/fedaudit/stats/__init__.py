"""Statistics of two-sample games. They take arrays of scores and know nothing of models or attacks."""

from fedaudit.stats.halves import random_half
from fedaudit.stats.intervals import clopper_pearson
from fedaudit.stats.roc import Block, auc, needed_for_lower_end, needed_for_value, roc_curve, tpr_at_fpr

__all__ = [
    "Block",
    "auc",
    "clopper_pearson",
    "needed_for_lower_end",
    "needed_for_value",
    "random_half",
    "roc_curve",
    "tpr_at_fpr",
]
