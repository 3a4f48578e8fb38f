"""study.json, study.parquet and advice.json are vouched for like the files of a run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedaudit.config.schema import parse
from fedaudit.errors import REFUSED, FedauditError
from fedaudit.results import advice, study
from fedaudit.results.scores import estimate
from fedaudit.session.run import run
from tests.worlds import silent

CELL = study.ListedCell("abc", {"federation.parties": 2})
STUDY = study.StudyFile(schema=1, base={}, grid={"federation.parties": (2,)}, cells=(CELL,), groups=(("abc",),))
ADVICE = advice.Advice(
    schema=1,
    limit="auc < 0.6",
    confidence=0.95,
    rungs=(10,),
    tried=(),
    confirmed=(),
    recommended=None,
    nearest=None,
    sentences=("Nothing is advised.",),
    cost=None,
)


def table(folder: Path) -> Any:
    return estimate(folder / study.TABLE, (0.5,), 0.95)


READERS: list[tuple[str, Callable[[Path], Any]]] = [
    (study.STUDY, study.load_file),
    (study.TABLE, table),
    (advice.ADVICE, advice.load),
]


@pytest.mark.parametrize(("name", "read"), READERS)
def test_F12_no_flipped_bit_of_a_study_or_an_advice_is_believed(
    tmp_path: Path, name: str, read: Callable[[Path], Any]
) -> None:
    study.save_file(STUDY, tmp_path)
    study.save_table([study.Outcome("abc", {}, None, "not run")], tmp_path)
    advice.save(ADVICE, tmp_path)
    assert (study.load_file(tmp_path), advice.load(tmp_path)) == (STUDY, ADVICE)
    whole = (tmp_path / name).read_bytes()
    for place in range(0, len(whole), max(1, len(whole) // 40)):
        blob = bytearray(whole)
        blob[place] ^= 1
        (tmp_path / name).write_bytes(blob)
        with pytest.raises(FedauditError) as raised:
            read(tmp_path)
        assert (raised.value.code, raised.value.exit_code) == ("file-changed", REFUSED), place


def test_a_study_of_a_former_version_is_read_without_checksums(tmp_path: Path) -> None:
    study.save_file(STUDY, tmp_path)
    advice.save(ADVICE, tmp_path)
    (tmp_path / "journal.jsonl").unlink()
    assert (study.load_file(tmp_path), advice.load(tmp_path)) == (STUDY, ADVICE)


def test_no_run_is_begun_in_the_folder_of_a_study(tmp_path: Path) -> None:
    study.save_file(STUDY, tmp_path)
    small = {"data": {"name": "breast-cancer"}, "federation": {"parties": 2, "rounds": 2}}
    with pytest.raises(FedauditError, match=r"holds study\.json"):
        run(parse(small), tmp_path, silent)
