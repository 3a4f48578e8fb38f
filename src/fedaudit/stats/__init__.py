"""Statistics of two-sample games. They take arrays of scores and know nothing of models or attacks.

The names below are looked up when first used: `wording` and `blocks` need no scipy, and neither
does whoever renders a report or checks a configuration.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedaudit.stats.bands import Band, band_confidences
    from fedaudit.stats.blocks import (
        Block,
        balanced_accuracy,
        best_cut,
        design_effect,
        hash_order,
        needed_for_lower_end,
        needed_for_value,
        random_half,
        tied_share,
    )
    from fedaudit.stats.canary import Probes, anytime_curve, anytime_epsilon
    from fedaudit.stats.epsilon import (
        Explicit,
        Ranks,
        Split,
        gdp_epsilon,
        maximised_epsilon,
        one_run_epsilon,
        proved_epsilon,
    )
    from fedaudit.stats.intervals import clopper_pearson, over_runs, proportion
    from fedaudit.stats.paired import accuracy_difference, auc_difference, decisions, party_differences, tpr_difference
    from fedaudit.stats.ranking import auc
    from fedaudit.stats.roc import roc_curve, tpr_at_fpr

_MODULES = ("blocks", "intervals", "ranking", "roc", "paired", "bands", "epsilon", "canary")  # lightest first

__all__ = [
    "Band",
    "Block",
    "Explicit",
    "Probes",
    "Ranks",
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
    "proportion",
    "proved_epsilon",
    "random_half",
    "roc_curve",
    "tied_share",
    "tpr_at_fpr",
    "tpr_difference",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        for module in _MODULES:
            home = import_module(f"fedaudit.stats.{module}")
            if hasattr(home, name):
                return getattr(home, name)
    raise AttributeError(f"module 'fedaudit.stats' has no attribute {name!r}")
