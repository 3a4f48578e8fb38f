"""Random halves that do not depend on the order of rows."""

import hashlib

import numpy as np

from fedaudit.types import Bools, Ints, Strings


def random_half(names: Strings, salt: str) -> Bools:
    """Half of the names, by hash: the same whatever the order, and all rows of a name together."""
    unique, inverse = np.unique(names, return_inverse=True)
    chosen = np.zeros(len(unique), bool)
    chosen[in_hash_order(unique, salt)[: len(unique) // 2]] = True
    return np.asarray(chosen[inverse])


def in_hash_order(names: Strings, salt: str) -> Ints:
    """The places of the names in an order that looks random and depends on nothing but the names and the salt."""
    return np.argsort([hashlib.sha256(f"{salt}|{name}".encode()).hexdigest() for name in names], kind="stable")
