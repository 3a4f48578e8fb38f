"""A time limit: an attack that hangs is stopped, so that the others can finish."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from fedaudit.errors import FedauditError, say
from fedaudit.types import Notice, gap

SECONDS = 3600.0  # limit for one step: measuring a family of signals in a round, or scoring an attack
_asked: list[float] = []  # the limit that the configuration sets, if it does
HANGS = "hangs"  # the code of the error


class TooLongError(FedauditError):
    def __init__(self, seconds: float) -> None:
        super().__init__(HANGS, f"it took longer than {seconds:g} s", "The other attacks are not affected.")


def failure(error: BaseException) -> Notice:
    """Why something could not be measured: the code of the error, and its text."""
    return gap(error.code if isinstance(error, FedauditError) else "fault", text=say(error))


def limit(expected: float = 0.0) -> float:
    """What was expected to take long may take twice as long as that, and anything may take an hour, or what was set."""
    return max(_asked[-1] if _asked else SECONDS, round(2 * expected))


def allow(seconds: float | None) -> None:
    """Sets the limit of one step. None: the usual one."""
    _asked[:] = [] if seconds is None else [seconds]


@contextmanager
def patience(expected: float = 0.0) -> Iterator[None]:
    """Raises `TooLongError` inside the block after the time limit. This works only in the main thread on POSIX systems;
    elsewhere there is no limit, nor where another language than Python handles alarms. May be nested: while an inner
    block runs, the outer clock stands still. A clock of somebody else's goes on; if it runs out meanwhile, it rings at
    the end of the block.

    `expected`: how many seconds the block was said to take."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return
    before, began = signal.getsignal(signal.SIGALRM), time.monotonic()
    if before is None:
        yield
        return
    clock = _Clock(limit(expected))
    signal.signal(signal.SIGALRM, clock)
    left, interval = signal.setitimer(signal.ITIMER_REAL, clock.seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        passed = 0.0 if isinstance(before, _Clock) else time.monotonic() - began
        signal.setitimer(signal.ITIMER_REAL, max(left - passed, SOON) if left else 0.0, interval)


SOON = 1e-6  # seconds; 0 would switch a clock off


class _Clock:
    """What happens when the time is over."""

    def __init__(self, seconds: float):
        self.seconds = seconds

    def __call__(self, number: int, frame: FrameType | None) -> None:
        raise TooLongError(self.seconds)
