"""One threshold on a score: where it lies best to tell known members from known non-members."""

import numpy as np

from fedaudit.types import Floats

_TIED = 1e-12  # shares that differ by less are the same


def cuts(members: Floats, nonmembers: Floats) -> tuple[Floats, Floats, Floats]:
    """Every threshold that makes a difference: halfway between two scores, or beyond all. For each, the share of
    members and the share of non-members above it. A score of NaN is above none."""
    mine, others = (np.sort(np.where(np.isnan(side), -np.inf, side)) for side in (members, nonmembers))
    values = np.unique(np.concatenate([mine, others]))
    values = values[np.isfinite(values)]
    places = np.concatenate([[-np.inf], (values[1:] + values[:-1]) / 2, [np.inf]])
    hits, alarms = ((len(side) - np.searchsorted(side, places, "right")) / len(side) for side in (mine, others))
    return places, hits, alarms


def best_cut(members: Floats, nonmembers: Floats) -> float:
    """The threshold with the best balanced accuracy; of several equally good ones the middle one. If none is better
    than chance, the lowest: everybody is called a member."""
    places, hits, alarms = cuts(members, nonmembers)
    gain = hits - alarms
    best = np.flatnonzero(gain >= gain.max() - _TIED)
    return float(places[best[0] if gain.max() <= _TIED else best[len(best) // 2]])


def balanced_accuracy(members: Floats, nonmembers: Floats) -> float:
    """The most that one threshold on the scores can reach."""
    _, hits, alarms = cuts(members, nonmembers)
    return float(((1 + hits - alarms) / 2).max())
