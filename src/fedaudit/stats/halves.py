"""Random halves that do not depend on the order of rows."""

import hashlib

import numpy as np

from fedaudit.types import Bools, Strings


def random_half(names: Strings, salt: str) -> Bools:
    """Half of the names, by hash: the same whatever the order, and all rows of a name together."""
    unique, inverse = np.unique(names, return_inverse=True)
    digests = [hashlib.sha256(f"{salt}|{name}".encode()).hexdigest() for name in unique]
    chosen = np.zeros(len(unique), bool)
    chosen[np.argsort(digests, kind="stable")[: len(unique) // 2]] = True
    return np.asarray(chosen[inverse])
