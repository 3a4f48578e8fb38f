"""Statistics of two-sample games. They take arrays of scores and know nothing of models or attacks.

The names below are imported when first used: `wording` needs no scipy, and a report renders without it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedaudit.stats.blocks import Block, design_effect
    from fedaudit.stats.calibration import needed_for_value, tied_share
    from fedaudit.stats.compare import party_differences
    from fedaudit.stats.epsilon import Bonferroni, Explicit, Split, gdp_epsilon, maximised_epsilon, proved_epsilon
    from fedaudit.stats.halves import random_half
    from fedaudit.stats.intervals import clopper_pearson
    from fedaudit.stats.onerun import one_run_epsilon
    from fedaudit.stats.proportions import proportion
    from fedaudit.stats.ranking import auc
    from fedaudit.stats.roc import needed_for_lower_end, roc_curve, tpr_at_fpr

_HOME = {
    "Block": "blocks",
    "Bonferroni": "epsilon",
    "Explicit": "epsilon",
    "Split": "epsilon",
    "auc": "ranking",
    "clopper_pearson": "intervals",
    "design_effect": "blocks",
    "gdp_epsilon": "epsilon",
    "maximised_epsilon": "epsilon",
    "needed_for_lower_end": "roc",
    "needed_for_value": "calibration",
    "one_run_epsilon": "onerun",
    "party_differences": "compare",
    "proportion": "proportions",
    "proved_epsilon": "epsilon",
    "random_half": "halves",
    "roc_curve": "roc",
    "tied_share": "calibration",
    "tpr_at_fpr": "roc",
}

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
    "proportion",
    "proved_epsilon",
    "random_half",
    "roc_curve",
    "tied_share",
    "tpr_at_fpr",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'fedaudit.stats' has no attribute {name!r}")
    return getattr(import_module(f"fedaudit.stats.{_HOME[name]}"), name)
