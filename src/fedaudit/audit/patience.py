"""A time limit: an attack that hangs is stopped, so that the others can finish."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from fedaudit.errors import FedauditError

SECONDS = 3600.0  # limit for one step of one attack: measuring a round, or scoring


class TooLongError(FedauditError):
    def __init__(self) -> None:
        super().__init__("hangs", f"it took longer than {SECONDS:g} s", "The other attacks are not affected.")


@contextmanager
def patience() -> Iterator[None]:
    """Raises `TooLongError` inside the block after the time limit. This works only in the main thread on POSIX systems;
    elsewhere there is no limit. May be nested."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def give_up(number: int, frame: FrameType | None) -> None:
        raise TooLongError

    started, before = time.monotonic(), signal.signal(signal.SIGALRM, give_up)
    left, _ = signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        rest = max(left - (time.monotonic() - started), 1e-3) if left else 0.0
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, rest)
