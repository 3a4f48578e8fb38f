"""Random halves and orders that do not depend on the order of rows."""

import hashlib

import numpy as np

from fedaudit.types import Bools, Ints, Strings


def random_half(names: Strings, salt: str) -> Bools:
    """Half of the names, by hash: the same whatever the order, and all rows of a name together."""
    unique, inverse = np.unique(names, return_inverse=True)
    chosen = np.zeros(len(unique), bool)
    chosen[hash_order(unique, salt)[: len(unique) // 2]] = True
    return np.asarray(chosen[inverse])


def hash_order(names: Strings, salt: str) -> Ints:
    """A random order of the names, whatever order they come in."""
    digests = [hashlib.sha256(f"{salt}|{name}".encode()).digest() for name in names.tolist()]
    return np.array(sorted(range(len(digests)), key=digests.__getitem__), np.int64)
