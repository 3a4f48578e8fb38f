"""Models and signals as bytes: safetensors and parquet, with checksums, and nothing executable."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.types import Measured, State

MAX_BYTES = 16 * 2**30  # of one file; larger ones are not read
EXPANDS_AT_MOST = 50  # a parquet file that claims to expand by more than this is refused
MAX_SMALL = 64 * 2**20  # below this, how much a file expands does not matter

Key = str | None  # a party, or None for the global model


@dataclass(frozen=True)
class Part:
    """The rows of one model in a round's signals, in the order in which they were written, and what they cost."""

    party: Key
    rows: int
    seconds: float
    epoch_seconds: float


class DamagedError(Exception):
    """A stored file is not what was written. The message says what is wrong; the caller adds the name of the file."""


# ------------------------------------------------------------------ models


UNSEEN_DIGEST = ""


def digest(state: State) -> str:
    """A model's identity: names, types, shapes and bits, in name order."""
    found = hashlib.sha256()
    for name in sorted(state):
        array = _plain(state[name])
        found.update(json.dumps([name, array.dtype.str, array.shape]).encode())
        found.update(array.data if array.ndim and array.size else array.tobytes())
    return found.hexdigest()


def digest_of_seen(state: State) -> str:
    """The same, and an empty text for a model that was not observed."""
    return digest(state) if state else UNSEEN_DIGEST


def pack_state(state: State) -> bytes:
    from safetensors.numpy import save

    arrays = {name: _plain(value) for name, value in state.items()}
    return bytes(save(arrays, {"order": json.dumps(list(state))}))


def unpack_state(blob: bytes, expected: str) -> State:
    """The model in `blob`, in the order in which its parameters were given; refused unless it is the expected one."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        arrays = load(blob)
        header = json.loads(blob[8 : 8 + int.from_bytes(blob[:8], "little")])
        state = {name: arrays[name] for name in json.loads(header["__metadata__"]["order"])}
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise DamagedError(f"is not a safetensors file ({type(error).__name__})") from None
    if len(state) != len(arrays) or digest(state) != expected:
        raise DamagedError("has another checksum than the journal")
    return state


def _plain(array: NDArray[Any]) -> NDArray[Any]:
    """Contiguous and little-endian, with its shape (which `ascontiguousarray` would change for a scalar)."""
    array = np.asarray(array, order="C")
    return array.astype(array.dtype.newbyteorder("<"), copy=False)


# ------------------------------------------------------------------ signals


def pack_signals(round: int, measured: Mapping[Key, Measured]) -> bytes:
    """One row for each record and model: id, round, party (null: the global model), one column for each signal."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    parts = []
    for party, of in measured.items():
        columns = {"id": pa.array(of.id, pa.string())}
        columns["round"] = pa.repeat(pa.scalar(round, pa.int32()), len(of.id))
        columns["party"] = pa.repeat(pa.scalar(_text(party), pa.string()), len(of.id))
        parts.append(pa.table(columns | {f"signal:{name}": _column(values) for name, values in of.values.items()}))
    table = pa.concat_tables(parts, promote_options="default")
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", use_dictionary=["id", "round", "party"])
    return bytes(sink.getvalue())


def unpack_signals(blob: bytes, expected: str, parts: Sequence[Part]) -> dict[Key, Measured]:
    """What `pack_signals` was given, bit for bit, and what the journal knows about each part of it."""
    if checksum(blob) != expected:
        raise DamagedError("has another checksum than the journal")
    table, start = _read_parquet(blob), 0
    if sum(part.rows for part in parts) != len(table):
        raise DamagedError("has another number of rows than the journal")
    if "id" not in table.column_names:
        raise DamagedError("has no ids")
    measured: dict[Key, Measured] = {}
    for part in parts:
        mine = table.slice(start, part.rows)
        start += part.rows
        given = [n for n in mine.column_names if n.startswith("signal:") and not mine[n].null_count]
        values = {name.removeprefix("signal:"): _values(mine[name].combine_chunks()) for name in given}
        ids = np.array(mine["id"].to_pylist(), dtype=np.str_)
        measured[part.party] = Measured(ids, values, part.seconds, part.epoch_seconds)
    return measured


def _read_parquet(blob: bytes) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(pa.BufferReader(blob))
        groups = (file.metadata.row_group(i).total_byte_size for i in range(file.metadata.num_row_groups))
        if sum(groups) > max(EXPANDS_AT_MOST * len(blob), MAX_SMALL):
            raise DamagedError("claims to be far larger when unpacked")
        table = file.read()
        table.validate(full=True)  # text may be no UTF-8
        return table
    except (pa.ArrowException, OSError, ValueError) as error:  # the last: a name that is no UTF-8
        raise DamagedError(f"is not a parquet file ({type(error).__name__})") from None


def _text(name: Key) -> Key:
    """The name for people who open the file. The journal has the exact name, which may not be valid Unicode."""
    return None if name is None else name.encode(errors="replace").decode()


def _column(values: NDArray[Any]) -> Any:
    """One number for each record, or a few."""
    import pyarrow as pa

    if values.ndim == 1:
        return pa.array(values)
    return pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(values).ravel()), values.shape[1])


def _values(column: Any) -> NDArray[Any]:
    import pyarrow as pa

    if pa.types.is_fixed_size_list(column.type):
        flat = column.flatten().to_numpy(zero_copy_only=False)
        return np.asarray(flat).reshape(len(column), column.type.list_size)
    return np.asarray(column.to_numpy(zero_copy_only=False))


# ------------------------------------------------------------------ bytes


def checksum(blob: bytes) -> str:
    return hashlib.sha256(blob).hexdigest()


def read_bytes(path: Path) -> bytes:
    """Reads a stored file, after checking its size."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise DamagedError(f"is larger than {MAX_BYTES // 2**30} GiB")
        if not path.is_file():  # a device would have no end
            raise DamagedError("is no file")
        return path.read_bytes()
    except FileNotFoundError:
        raise DamagedError("is missing") from None
    except OSError as error:
        raise DamagedError(f"cannot be read ({error.strerror})") from None
