"""Runs jobs one after another in a background thread, so that the training does not wait for them."""

import threading
from collections.abc import Callable
from queue import Queue

Job = Callable[[], None]


class Behind:
    """At most one job waits while another runs; adding a third blocks, so that memory stays bounded.

    An exception in a job is raised at the next call, in the caller's thread.
    """

    def __init__(self) -> None:
        self._jobs: Queue[Job] = Queue(maxsize=1)
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def do(self, job: Job) -> None:
        self._raise()
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="fedaudit-recording", daemon=True)
            self._thread.start()
        self._jobs.put(job)

    def wait(self) -> None:
        """Waits until all jobs are done."""
        self._jobs.join()
        self._raise()

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            try:
                if self._error is None:
                    job()
            except BaseException as error:
                self._error = error
            finally:
                self._jobs.task_done()

    def _raise(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error
