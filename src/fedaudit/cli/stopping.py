"""Ctrl-C and SIGTERM are answered at once, however long it takes until what is at work has ended."""

import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rich.markup import escape

from fedaudit.cli.terminal import errors

AGAIN = "Stopping without waiting for the work in progress."


@contextmanager
def heard(first: str) -> Iterator[None]:
    """Says `first` when the user first asks for the end. What the signal itself does is not changed.

    Python calls a signal's handler only when the main thread comes back from whatever it computes. The wake-up socket
    is written to at once, and a thread listens to it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ears, mouth = socket.socketpair()
    mouth.setblocking(False)
    listener = threading.Thread(target=_answer, args=(ears, first), name="fedaudit-stopping", daemon=True)
    listener.start()
    before = signal.set_wakeup_fd(mouth.fileno(), warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        mouth.close()
        listener.join()
        ears.close()


def _answer(ears: socket.socket, first: str) -> None:
    said = first
    while received := ears.recv(1):
        if received[0] in (signal.SIGINT, signal.SIGTERM):
            errors.print(escape(said))
            said = AGAIN
