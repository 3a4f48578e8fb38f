"""An audit beside somebody's training, in the same process: it leaves everything as it found it.

- Random numbers (Python's, numpy's, torch's) go on as if nothing had been drawn, and torch has as many threads.
- Warnings, floating-point settings and modes of torch are the audit's own: a training that turns warnings into errors,
  or calls the audit where gradients are switched off, neither breaks it nor hears of it.
- Signals belong to the training. Its handlers are called, and what they raise leaves the block, even if somebody in the
  audit caught it.
"""

import random
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import numpy as np
import torch

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def apart() -> Iterator[None]:
    with _randomness(), _signals(), _modes():
        yield


@contextmanager
def _randomness() -> Iterator[None]:
    plain, tensors, threads = random.getstate(), torch.get_rng_state(), torch.get_num_threads()
    arrays = np.random.get_state()  # noqa: NPY002 (the training's generator, not ours)
    try:
        yield
    finally:
        random.setstate(plain)
        np.random.set_state(arrays)  # noqa: NPY002
        torch.set_rng_state(tensors)
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)


@contextmanager
def _modes() -> Iterator[None]:
    usual = np.errstate(divide="warn", over="warn", under="ignore", invalid="warn")
    with warnings.catch_warnings(), usual, torch.inference_mode(False), torch.enable_grad():
        warnings.simplefilter("ignore")
        with torch.autocast("cpu", enabled=False):
            yield


@contextmanager
def _signals() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    raised: list[BaseException] = []
    former = {number: signal.getsignal(number) for number in SIGNALS}
    heard = {number: _noted(handler, raised) for number, handler in former.items() if callable(handler)}
    for number, handler in heard.items():
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number in heard:
            signal.signal(number, former[number])
    if raised:  # somebody caught it on its way out
        raise raised[0]


def _noted(handler: Callable[[int, FrameType | None], Any], raised: list[BaseException]) -> Callable[..., None]:
    def noting(number: int, frame: FrameType | None) -> None:
        try:
            handler(number, frame)
        except BaseException as error:
            raised.append(error)
            raise

    return noting
