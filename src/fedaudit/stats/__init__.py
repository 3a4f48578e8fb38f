"""Statistics of two-sample games. They take arrays of scores and know nothing of models or attacks."""

from fedaudit.stats.bands import Band, band_confidences
from fedaudit.stats.blocks import Block, design_effect
from fedaudit.stats.calibration import needed_for_lower_end, needed_for_value, tied_share
from fedaudit.stats.compare import party_differences
from fedaudit.stats.epsilon import Bonferroni, Explicit, Split, gdp_epsilon, maximised_epsilon, proved_epsilon
from fedaudit.stats.halves import random_half
from fedaudit.stats.intervals import clopper_pearson
from fedaudit.stats.onerun import one_run_epsilon
from fedaudit.stats.paired import auc_difference, tpr_difference
from fedaudit.stats.proportions import proportion
from fedaudit.stats.ranking import auc
from fedaudit.stats.repeats import over_runs
from fedaudit.stats.roc import roc_curve, tpr_at_fpr

__all__ = [
    "Band",
    "Block",
    "Bonferroni",
    "Explicit",
    "Split",
    "auc",
    "auc_difference",
    "band_confidences",
    "clopper_pearson",
    "design_effect",
    "gdp_epsilon",
    "maximised_epsilon",
    "needed_for_lower_end",
    "needed_for_value",
    "one_run_epsilon",
    "over_runs",
    "party_differences",
    "proportion",
    "proved_epsilon",
    "random_half",
    "roc_curve",
    "tied_share",
    "tpr_at_fpr",
    "tpr_difference",
]
