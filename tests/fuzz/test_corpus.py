"""What campaigns found, replayed: files that reach far into a reader, and files that once were a fault of fedaudit."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedaudit import data
from fedaudit.adversary.attacks import made
from fedaudit.config.attack_registry import read_word, written
from fedaudit.config.registry import DATA
from fedaudit.config.schema import parse
from fedaudit.data.cells import read_columns
from fedaudit.data.game_file import load_game
from fedaudit.errors import REFUSED, FedauditError
from fedaudit.files import kind_of
from fedaudit.results.scores import estimate
from fedaudit.trace.segments import DamagedError, Part, checksum, unpack_signals
from tests.fuzz.readers import CORPUS, READERS, attempted, is_read


@pytest.mark.parametrize("name", [*READERS])
def test_B17_F12_the_corpus_is_read_or_refused(name: str, tmp_path: Path) -> None:
    read = [is_read(name, blob, tmp_path) for blob in READERS[name].whole()]
    assert any(read) or name == "model"  # whose checksum is known to its journal alone
    for path in sorted((CORPUS / name).glob("*")):
        is_read(name, path.read_bytes(), tmp_path)


def test_the_corpus_is_small_and_has_no_file_that_nobody_reads() -> None:
    assert {path.name for path in CORPUS.iterdir()} <= {*READERS}
    assert sum(path.stat().st_size for path in CORPUS.rglob("*") if path.is_file()) < 200_000


@pytest.mark.parametrize("text", ['"",""\n', "\n,,\n", '""\n'])
def test_B21_a_table_of_empty_cells_has_no_records(tmp_path: Path, text: str) -> None:
    (tmp_path / "empty.csv").write_text(text)
    with pytest.raises(FedauditError) as raised:
        read_columns(tmp_path / "empty.csv")
    assert raised.value.code in ("no-records", "table-separator")


@pytest.mark.parametrize(
    ("name", "values"), [("y", np.array(1.0)), ("role", np.zeros((3, 2))), ("party", np.array([["a"]] * 3))]
)
def test_B17_a_game_whose_arrays_have_other_shapes_is_refused(tmp_path: Path, name: str, values: Any) -> None:
    roles = np.array(["member", "evaluation", "calibration"])
    arrays = {"x": np.eye(3), "y": np.arange(3), "party": np.array(["a"] * 3), "role": roles}
    np.savez(tmp_path / "g.npz", allow_pickle=False, **(arrays | {name: values}))
    with pytest.raises(FedauditError, match=r"lengths|has shape"):
        load_game(tmp_path / "g.npz")


@pytest.mark.parametrize("place", [6, 8], ids=["encrypted", "packed in another way"])
def test_B17_archives_that_python_cannot_open_are_refused(tmp_path: Path, place: int) -> None:
    """By the flags and by the method of each member, in its own header and in the list at the end."""
    (blob,) = [*READERS["game"].whole()][:1]
    changed = bytearray(blob)
    for mark, offset in ((b"PK\x03\x04", 0), (b"PK\x01\x02", 2)):
        start = -1
        while (start := changed.find(mark, start + 1)) >= 0:
            changed[start + place + offset] |= 1 if place == 6 else 99
    (tmp_path / "g.npz").write_bytes(changed)
    for name in ("game", "npz"):
        error = attempted(lambda name=name: READERS[name].read(bytes(changed), tmp_path))  # type: ignore[misc]
        assert isinstance(error, FedauditError)
        assert error.exit_code == REFUSED
    assert kind_of(tmp_path / "g.npz") == "npz"


@pytest.mark.parametrize("attacks", [1, 2.5, True, "loss"])
def test_B16_attacks_that_are_no_list_are_refused(attacks: Any) -> None:
    with pytest.raises(FedauditError, match="a list is needed"):
        parse({"audit": {"attacks": attacks}})


@pytest.mark.parametrize("values", [[], [""], ["", ""], ["a", ""], ["", "a"], ["%"], ["~", "+"]])
def test_lists_of_empty_texts_survive_being_one_word(values: list[str]) -> None:
    assert read_word(written("own:Attack", {"names": values})) == ("own:Attack", {"names": values})


@pytest.mark.parametrize("value", ["1E400", "-inf", "1e39"])
def test_B1_values_that_are_too_large_to_predict_are_refused(tmp_path: Path, value: str) -> None:
    (tmp_path / "t.csv").write_text(f"a,y\n1,{value}\n2,3\n3,4\n")
    asked = {"name": "table", "path": tmp_path / "t.csv", "label": "y", "task": "regression"}
    with pytest.raises(FedauditError, match="too large to learn from, in row 1"):
        data.load(DATA.read(asked))


def test_attacks_that_are_no_text_are_refused() -> None:
    for call in (lambda: made("fusion+attacks=loss~\udc80"), lambda: written("own:Attack", {"name": "\udc80"})):
        with pytest.raises(FedauditError, match="not valid text"):
            call()


def test_B17_text_that_is_no_utf_8_inside_parquet_is_refused(tmp_path: Path) -> None:
    wrong = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.py_buffer(np.array([0, 1, 2], np.int32)), pa.py_buffer(b"\x80a")]
    )
    pq.write_table(pa.table({"id": wrong, "member": [0, 1], "score": [0.1, 0.2]}), tmp_path / "t.parquet")
    for read in (read_columns, lambda path: estimate(path, (0.5,), 0.95)):
        with pytest.raises(FedauditError, match="cannot be read"):
            read(tmp_path / "t.parquet")
    blob = (tmp_path / "t.parquet").read_bytes()
    with pytest.raises(DamagedError, match="not a parquet file"):
        unpack_signals(blob, checksum(blob), [Part("a", 2, 0.0, 0.0)])
