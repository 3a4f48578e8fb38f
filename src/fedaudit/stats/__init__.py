"""Statistics of two-sample games. They take arrays of scores and know nothing of models or attacks."""

from fedaudit.stats.blocks import Block, design_effect
from fedaudit.stats.calibration import needed_for_value, tied_share
from fedaudit.stats.compare import party_differences
from fedaudit.stats.epsilon import Bonferroni, Explicit, Split, gdp_epsilon, maximised_epsilon, proved_epsilon
from fedaudit.stats.halves import random_half
from fedaudit.stats.intervals import clopper_pearson
from fedaudit.stats.onerun import one_run_epsilon
from fedaudit.stats.ranking import auc
from fedaudit.stats.roc import needed_for_lower_end, roc_curve, tpr_at_fpr

__all__ = [
    "Block",
    "Bonferroni",
    "Explicit",
    "Split",
    "auc",
    "clopper_pearson",
    "design_effect",
    "gdp_epsilon",
    "maximised_epsilon",
    "needed_for_lower_end",
    "needed_for_value",
    "one_run_epsilon",
    "party_differences",
    "proved_epsilon",
    "random_half",
    "roc_curve",
    "tied_share",
    "tpr_at_fpr",
]
