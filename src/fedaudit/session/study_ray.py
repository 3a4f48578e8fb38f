"""The cells of a study on Ray, beyond one machine.

A piece of work runs in a temporary folder on whatever node has a free core, and its results come back as bytes: the
nodes share no file system, only an installed fedaudit and the data that the configurations name. Where a node is lost,
Ray gives its pieces to another, which begins them again; they end in the same results.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Generator, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedaudit.config import code
from fedaudit.config.schema import Config
from fedaudit.errors import FedauditError
from fedaudit.files import write_atomically
from fedaudit.results.document import REDACTED, REPORT, RESULTS, SCORES
from fedaudit.results.exposure import SALT
from fedaudit.results.study import CELLS
from fedaudit.session.workers import News, reason
from fedaudit.trace import journal
from fedaudit.trace.segments import checksum
from fedaudit.trace.store import RUN, clear

if TYPE_CHECKING:
    from fedaudit.session.study import Piece

KEPT = (RUN, SCORES, RESULTS)  # of each cell; the results come last, because a cell that has them is finished
Files = dict[str, dict[str, bytes]]  # by cell and by name


def on_ray(pieces: Sequence[Piece], address: str | None) -> Generator[News, None, None]:
    """Like `workers.work`, but on a Ray cluster; without an address, on one that is started here and now."""
    if find_spec("ray") is None:
        what = 'engine = "ray" needs Ray, which is not installed'
        raise FedauditError("no-ray", what, 'Install fedaudit with its extra: "fedaudit[flower]".')
    import ray

    with _connected(address):
        # A piece is begun again as often as nodes are lost; an error of its own ends it.
        remote: Any = ray.remote(num_cpus=1, max_retries=-1)(audit_remotely)
        waiting: dict[Any, int] = {
            remote.remote(list(piece.cells), piece.done, code.folders()): i for i, piece in enumerate(pieces)
        }
        while waiting:
            ready, _ = ray.wait(list(waiting), num_returns=1)
            number = waiting.pop(ready[0])
            try:
                files, failed = ray.get(ready[0])
            except ray.exceptions.RayError as error:
                yield News(number, "failed", "", reason(error))
                continue
            for cell, parts in files.items():
                keep(pieces[number].out / CELLS / cell, parts)
            for cell, why in failed.items():
                yield News(number, "failed", cell, why)
            yield News(number, "done")


def keep(folder: Path, parts: dict[str, bytes]) -> None:
    """Writes what came back, with its checksums in a journal. The journal of the run stayed on the node, with the
    rounds that it lists; one that an earlier attempt left here would not vouch for these files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in (RESULTS, SCORES, REPORT, REDACTED, SALT):
        (folder / name).unlink(missing_ok=True)
    clear(folder)
    journal.append(folder, {name: checksum(content) for name, content in parts.items()})
    for name, content in parts.items():
        write_atomically(folder / name, content)


@contextlib.contextmanager
def _connected(address: str | None) -> Iterator[None]:
    import ray

    if ray.is_initialized():  # by whoever called us, who also ends it
        yield
        return
    try:
        if address is None:
            ray.init(include_dashboard=False, log_to_driver=False)
        else:
            ray.init(address=address, log_to_driver=False)
    except (ConnectionError, ValueError) as error:
        what = f"there is no Ray cluster at {address!r}: {str(error).splitlines()[0]}"
        raise FedauditError("ray-address", what, "Start one with `ray start --head`, or correct address.") from None
    try:
        yield
    finally:
        ray.shutdown()


def audit_remotely(
    cells: Sequence[tuple[str, Config]], done: frozenset[str] = frozenset(), folders: Sequence[str] = ()
) -> tuple[Files, dict[str, str]]:
    """On a node: the files of every cell that was audited, and why the others were not. Those that are done already
    are not on the node, and do not come back."""
    import torch

    from fedaudit.session.study import Piece, audit_piece

    torch.set_num_threads(1)
    code.found_in(*folders)  # where this node has them
    failed: dict[str, str] = {}

    def tell(kind: str, what: str, why: str) -> None:
        if kind == "failed":
            failed[what] = why

    with tempfile.TemporaryDirectory(prefix="fedaudit-") as folder:
        try:
            audit_piece(Piece(cells, Path(folder), done), tell)
        except Exception as error:  # a piece of one cell raises what went wrong
            failed |= {name: reason(error) for name, _ in cells}
        found: Files = {}
        for name, _ in cells:
            own = Path(folder) / CELLS / name
            if name not in failed and (own / RESULTS).is_file():
                found[name] = {part: (own / part).read_bytes() for part in KEPT}
    return found, failed
