"""An attack that hangs is given up, so that the others finish."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from fedaudit.errors import FedauditError

SECONDS = 3600.0  # for one step of one attack: measuring a round, or scoring


class TooLongError(FedauditError):
    def __init__(self) -> None:
        super().__init__("hangs", f"it took longer than {SECONDS:g} s", "The other attacks are not affected.")


@contextmanager
def patience() -> Iterator[None]:
    """Raises inside the block when it takes too long. Only a main thread on POSIX can be interrupted: elsewhere it
    waits. May be nested."""
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
