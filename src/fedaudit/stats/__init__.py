"""Statistics of two-sample games. They take arrays of scores and know nothing of models or attacks.

The names below are imported when first used: `wording` needs no scipy, and a report renders without it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedaudit.stats.anytime import Probes, RoundClaim, anytime_curve, anytime_epsilon
    from fedaudit.stats.bands import Band, band_confidences
    from fedaudit.stats.blocks import Block, design_effect
    from fedaudit.stats.calibration import needed_for_lower_end, needed_for_value, tied_share
    from fedaudit.stats.called import accuracy_difference, decisions
    from fedaudit.stats.compare import party_differences
    from fedaudit.stats.cuts import balanced_accuracy, best_cut
    from fedaudit.stats.epsilon import Bonferroni, Explicit, Split, gdp_epsilon, maximised_epsilon, proved_epsilon
    from fedaudit.stats.halves import hash_order, random_half
    from fedaudit.stats.intervals import clopper_pearson
    from fedaudit.stats.onerun import one_run_epsilon
    from fedaudit.stats.paired import auc_difference, tpr_difference
    from fedaudit.stats.pooled import pooled_tpr
    from fedaudit.stats.proportions import proportion
    from fedaudit.stats.ranking import auc
    from fedaudit.stats.repeats import over_runs
    from fedaudit.stats.roc import roc_curve, tpr_at_fpr

_HOME = {
    "Band": "bands",
    "Block": "blocks",
    "Bonferroni": "epsilon",
    "Explicit": "epsilon",
    "Probes": "anytime",
    "RoundClaim": "anytime",
    "Split": "epsilon",
    "accuracy_difference": "called",
    "anytime_curve": "anytime",
    "anytime_epsilon": "anytime",
    "auc": "ranking",
    "auc_difference": "paired",
    "balanced_accuracy": "cuts",
    "band_confidences": "bands",
    "best_cut": "cuts",
    "clopper_pearson": "intervals",
    "decisions": "called",
    "design_effect": "blocks",
    "gdp_epsilon": "epsilon",
    "hash_order": "halves",
    "maximised_epsilon": "epsilon",
    "needed_for_lower_end": "calibration",
    "needed_for_value": "calibration",
    "one_run_epsilon": "onerun",
    "over_runs": "repeats",
    "party_differences": "compare",
    "pooled_tpr": "pooled",
    "proportion": "proportions",
    "proved_epsilon": "epsilon",
    "random_half": "halves",
    "roc_curve": "roc",
    "tied_share": "calibration",
    "tpr_at_fpr": "roc",
    "tpr_difference": "paired",
}

__all__ = [
    "Band",
    "Block",
    "Bonferroni",
    "Explicit",
    "Probes",
    "RoundClaim",
    "Split",
    "accuracy_difference",
    "anytime_curve",
    "anytime_epsilon",
    "auc",
    "auc_difference",
    "balanced_accuracy",
    "band_confidences",
    "best_cut",
    "clopper_pearson",
    "decisions",
    "design_effect",
    "gdp_epsilon",
    "hash_order",
    "maximised_epsilon",
    "needed_for_lower_end",
    "needed_for_value",
    "one_run_epsilon",
    "over_runs",
    "party_differences",
    "pooled_tpr",
    "proportion",
    "proved_epsilon",
    "random_half",
    "roc_curve",
    "tied_share",
    "tpr_at_fpr",
    "tpr_difference",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'fedaudit.stats' has no attribute {name!r}")
    return getattr(import_module(f"fedaudit.stats.{_HOME[name]}"), name)
