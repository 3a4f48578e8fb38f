"""What a party's audit remembers from round to round: in Flower's context, and on disk.

Flower keeps a node's context in the memory of its SuperNode. One that is restarted has forgotten it: a party that had
halted would send again, and its audit would start over and end as if it were whole. So both also go to disk, in a
folder of the party and under the number of the run:

    memory-RUN     arrays and JSON, with a checksum; nothing executable
    halted-RUN     the round in which the party halted; nothing is sent from then on
"""

import hashlib
import io
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context
from flwr.supercore.utils import get_flwr_home
from numpy.typing import NDArray

from fedaudit.files import write_atomically
from fedaudit.trace.segments import DamagedError, read_bytes
from fedaudit.types import Notice, gap

CHECK = 64  # characters of the checksum before the rest


@dataclass(frozen=True)
class Remembered:
    arrays: Mapping[str, NDArray[Any]]
    text: str  # the rest, as JSON
    written: int  # the round after which results were last written


def node_folder() -> Path:
    """Where a party without `out=` keeps its memory: beside what Flower itself keeps of this node."""
    return get_flwr_home() / "fedaudit"


class Memory:
    """Of one audit (`key`) of one party in one run."""

    def __init__(self, context: Context, key: str, folder: Path):
        self.context, self.key = context, key
        self.file, self.halt = folder / f"memory-{context.run_id}", folder / f"halted-{context.run_id}"

    # ------------------------------------------------------------------ in the context

    def recall(self) -> Remembered | None:
        """From the context; None in the first round, and after a restart."""
        state = self.context.state
        if f"{self.key}.json" not in state:
            return None
        kept = state.config_records[f"{self.key}.json"]
        arrays = {name: array.numpy() for name, array in state.array_records[f"{self.key}.arrays"].items()}
        return Remembered(arrays, str(kept["json"]), int(str(kept["written"])))

    def keep(self, what: Remembered) -> Notice | None:
        """In the context and on disk. Says what could not be written."""
        arrays = ArrayRecord({name: Array(value) for name, value in what.arrays.items()})
        self.context.state[f"{self.key}.arrays"] = arrays
        self.context.state[f"{self.key}.json"] = ConfigRecord({"json": what.text, "written": what.written})
        try:
            write_atomically(self.file, packed(what))
            return None
        except OSError as error:
            return gap("memory-unwritten", folder=str(self.file.parent), why=error.strerror)

    # ------------------------------------------------------------------ on disk

    def read(self) -> Remembered | None:
        """What is on disk; DamagedError if that is not what was written."""
        return unpacked(read_bytes(self.file)) if self.file.exists() else None

    @property
    def halted(self) -> int:
        """The round in which this party halted; 0 if it did not."""
        with suppress(FileNotFoundError, NotADirectoryError):
            text = self.halt.read_text(encoding="ascii", errors="replace").strip()
            return int(text) if text.isdecimal() else 1  # whatever it says, somebody halted
        return 0

    def stop(self, round: int) -> None:
        write_atomically(self.halt, f"{round}\n")


def packed(what: Remembered) -> bytes:
    about = json.dumps({"names": list(what.arrays), "json": what.text, "written": what.written})
    buffer = io.BytesIO()
    numbered = {f"{place}": value for place, value in enumerate(what.arrays.values())}
    np.savez(buffer, allow_pickle=False, about=np.frombuffer(about.encode(), np.uint8), **numbered)
    blob = buffer.getvalue()
    return hashlib.sha256(blob).hexdigest().encode() + blob


def unpacked(blob: bytes) -> Remembered:
    check, rest = blob[:CHECK], blob[CHECK:]
    if hashlib.sha256(rest).hexdigest().encode() != check:
        raise DamagedError("has another checksum than its content")
    with np.load(io.BytesIO(rest), allow_pickle=False) as found:
        about = json.loads(found["about"].tobytes())
        arrays = {name: found[f"{place}"] for place, name in enumerate(about["names"])}
    return Remembered(arrays, about["json"], about["written"])
