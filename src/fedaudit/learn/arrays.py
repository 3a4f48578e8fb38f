"""From numpy to torch: everything outside of training and signals is numpy."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedaudit.types import State


def tensor(array: NDArray[Any]) -> torch.Tensor:
    """The same values. They may share memory, so nobody writes into it."""
    return torch.from_numpy(np.ascontiguousarray(array))


def tensors(state: State) -> dict[str, torch.Tensor]:
    """A copy: a stored state may be read-only, and scalars must keep their shape."""
    return {name: torch.from_numpy(np.array(value)) for name, value in state.items()}
