"""Work on several cores: processes that take one piece after another, each with one thread. (Left alone, libraries
start a thread for each core; two processes with two threads each on two cores mostly wait for each other.)

If a process dies (out of memory, killed), only the piece it was working on is lost, and another process takes its
place. If the parent dies, all of them end at once, and let go of the folders that they were writing to.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, Literal

from fedaudit.config import code
from fedaudit.errors import FedauditError, say
from fedaudit.learn import tune_process

# Python does not import from the current folder; scikit-learn, numpy and scipy, each with a pool of its own, take one
# thread. They read it when they are loaded, so it cannot be said later.
ENVIRONMENT = {"PYTHONSAFEPATH": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
Kind = Literal["step", "failed", "done"]
Tell = Callable[[Kind, str, str], None]  # what happened, to which part of the piece, and why
Work = Callable[[Any, Tell], None]  # a function of a module, which other processes can import


@dataclass(frozen=True)
class News:
    """What a process tells about the piece that it works on. `what` names a part of the piece."""

    piece: int
    kind: Kind
    what: str = ""
    why: str = ""


@dataclass(frozen=True)
class Worker:
    process: multiprocessing.process.BaseProcess
    pipe: Connection


def work(pieces: Sequence[Any], do: Work, workers: int) -> Generator[News, None, None]:
    """Does all pieces, and yields the news as it comes. A piece ends with `done`, or with `failed` without a part."""
    workers = max(workers, 1)
    waiting = list(range(len(pieces)))[::-1]
    busy: dict[Worker, int] = {}  # what each works on
    try:
        while waiting or busy:
            while waiting and len(busy) < workers:
                worker = _started(do)
                busy[worker] = waiting.pop()
                _sent(worker, pieces[busy[worker]])  # one that dies at its start has failed, or it would start for ever
            for ready in wait([worker.pipe for worker in busy]):
                worker = next(worker for worker in busy if worker.pipe is ready)
                try:
                    news = News(busy[worker], *worker.pipe.recv())
                except (EOFError, OSError):
                    worker.process.join()
                    yield News(busy.pop(worker), "failed", "", _died(worker.process.exitcode))
                    continue
                yield news
                if news.kind == "done" or (news.kind == "failed" and not news.what):
                    if waiting and _sent(worker, pieces[waiting[-1]]):
                        busy[worker] = waiting.pop()
                    else:  # nothing is left to do, or it died after its last piece: another takes its place
                        del busy[worker]
                        _end(worker)
    finally:
        for worker in busy:
            worker.process.terminate()
            _end(worker)


def reason(error: Exception) -> str:
    """Why a piece failed, and what to do about it."""
    return f"[{error.code}] {error.what}. {error.todo}" if isinstance(error, FedauditError) else say(error)


def _started(do: Work) -> Worker:
    spawn = multiprocessing.get_context("spawn")  # torch's threads do not survive a fork
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=_serve, args=(theirs, do, code.folders()), daemon=True)
    with _environment():
        process.start()
    theirs.close()  # so that the end of the process is the end of the pipe
    return Worker(process, ours)


def _sent(worker: Worker, piece: Any) -> bool:
    """False if nobody is there any more to take it."""
    try:
        worker.pipe.send(piece)
    except OSError:
        return False
    return True


def _end(worker: Worker) -> None:
    worker.pipe.close()
    worker.process.join()


def _died(code: int | None) -> str:
    if code is not None and code < 0:
        return f"its process was ended by {signal.Signals(-code).name} (out of memory?)"
    return f"its process ended with code {code}"


@contextmanager
def _environment() -> Iterator[None]:
    """What a new process begins with: it imports before it can be told anything."""
    former = {name: os.environ.get(name) for name in ENVIRONMENT}
    os.environ.update(ENVIRONMENT)
    try:
        yield
    finally:
        for name, value in former.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _serve(pipe: Connection, do: Work, folders: Sequence[str]) -> None:
    """The loop of a worker process. It ignores Ctrl-C, which its parent handles."""
    code.found_in(*folders)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    tune_process()
    import torch

    torch.set_num_threads(1)

    def tell(kind: Kind, what: str, why: str) -> None:
        pipe.send((kind, what, why))

    while True:
        try:
            piece = pipe.recv()
        except EOFError:  # there is nothing left to do
            return
        try:
            do(piece, tell)
        except Exception as error:
            tell("failed", "", reason(error))
        else:
            tell("done", "", "")


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)
