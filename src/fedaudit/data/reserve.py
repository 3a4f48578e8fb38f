"""Data for an adversary from outside the federation: of the same kind, but from other people."""

import numpy as np

from fedaudit.types import Records


def reserve(records: Records, parts: int, rng: np.random.Generator) -> tuple[Records, Records]:
    """What is left for the federation, and about one part in `parts` for the adversary; subjects are not split."""
    names = records.id if records.subject is None else records.subject
    unique, sizes = np.unique(names, return_counts=True)
    order = rng.permutation(len(unique))
    count = int(np.searchsorted(np.cumsum(sizes[order]), len(records) / parts)) + 1
    own = np.isin(names, unique[order[:count]])
    return records.take(~own), records.take(own)
