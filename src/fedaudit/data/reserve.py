"""Data for an adversary from outside the federation: of the same kind, but from other people."""

import numpy as np

from fedaudit.types import Records


def reserve(records: Records, share: float, rng: np.random.Generator) -> tuple[Records, Records]:
    """What is left for the federation, and about this share for the adversary; subjects are not split."""
    names = records.id if records.subject is None else records.subject
    unique, sizes = np.unique(names, return_counts=True)
    order = rng.permutation(len(unique))
    count = int(np.searchsorted(np.cumsum(sizes[order]), share * len(records))) + 1
    own = np.isin(names, unique[order[:count]])
    return records.take(~own), records.take(own)
