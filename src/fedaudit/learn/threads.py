"""Work on several cores. For small models, one worker per core is faster than one product on several cores."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import torch


@contextmanager
def one_core_each(workers: int) -> Iterator[ThreadPoolExecutor]:
    """Threads whose matrix products do not start threads of their own."""
    before = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield pool
    finally:
        torch.set_num_threads(before)
