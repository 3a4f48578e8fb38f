"""Settings of a whole process that trains. Only processes of our own are changed, and never by an import."""

import contextlib
import ctypes
import os
import sys


def tune_process() -> None:
    """Made before torch is loaded. Waiting threads do not use the processor, and freed memory is kept, which makes
    training of small models about twice as fast on Linux."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            libc = ctypes.CDLL("libc.so.6")
            libc.mallopt(-4, 0)  # M_MMAP_MAX
            libc.mallopt(-1, 2**30)  # M_TRIM_THRESHOLD
