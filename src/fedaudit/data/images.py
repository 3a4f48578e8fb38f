"""Stored pictures become what convolutions take: (records, channels, height, width), values from 0 to 1."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

CHANNELS = (1, 3, 4)


def as_images(x: NDArray[Any]) -> NDArray[Any]:
    """Bytes in three or four dimensions are pictures, grey or in colour; everything else is left as it is."""
    if x.dtype != np.uint8 or x.ndim not in (3, 4):
        return x
    if x.ndim == 3:
        x = x[:, None]
    elif x.shape[3] in CHANNELS:
        x = x.transpose(0, 3, 1, 2)
    scaled = np.ascontiguousarray(x, dtype=np.float32)
    scaled /= np.float32(255)
    return scaled
