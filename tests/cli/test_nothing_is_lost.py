"""What a command must not destroy or lie about: folders without run.json, disks that are full, seeds without end."""

import errno
import shutil
from pathlib import Path
from typing import Any

import pytest
import typer

from fedaudit.cli import auditing
from fedaudit.errors import DEGRADED, REFUSED, FedauditError
from fedaudit.results import document as results
from fedaudit.results.document import load
from fedaudit.session.replay import replay
from fedaudit.session.run import run
from fedaudit.trace.store import load_manifest
from tests.worlds import config, silent

SMALL = config(federation={"rounds": 2}, audit={"attacks": ["loss"]})


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run. Nobody writes here."""
    out = tmp_path_factory.mktemp("finished") / "run"
    run(SMALL, out, silent, tell=lambda line: None)
    return out


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_rounds_without_their_run_json_are_not_removed(finished: Path, tmp_path: Path) -> None:
    """A run in that folder began anew, and what had been recorded was gone."""
    folder = Path(shutil.copytree(finished, tmp_path / "run"))
    (folder / "run.json").unlink()
    before = contents(folder)
    with pytest.raises(FedauditError, match=r"orphaned.*recorded rounds, but no run.json") as raised:
        run(SMALL, folder, silent)
    assert raised.value.exit_code == REFUSED
    assert contents(folder).keys() == before.keys()
    assert all(contents(folder)[name] == held for name, held in before.items() if name != "lock")
    assert run(SMALL, folder, silent, force=True).complete


def test_an_audit_of_another_run_is_not_overwritten(finished: Path, tmp_path: Path) -> None:
    replay(finished, [], tmp_path / "audit", silent)
    with pytest.raises(FedauditError, match=r"orphaned.*results.json, but no run.json"):
        run(SMALL, tmp_path / "audit", silent)
    assert load(tmp_path / "audit").complete


def test_what_helps_where_run_json_is_damaged(finished: Path, tmp_path: Path) -> None:
    """It said that the damaged file should be deleted, which would have been the end of the rounds."""
    folder = Path(shutil.copytree(finished, tmp_path / "run"))
    (folder / "run.json").write_bytes((folder / "run.json").read_bytes()[:-9])
    with pytest.raises(FedauditError, match="file-changed") as raised:
        load_manifest(folder)
    assert "--force" in raised.value.todo
    assert "deleted" not in raised.value.todo


def test_F2_a_disk_that_is_full_after_the_repeats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was a fault of fedaudit, exit code 6, and no result was shown."""
    written = results.save

    def full(document: Any, folder: Path, seal: Any = None) -> Path:
        if document.run.repeats:
            raise OSError(errno.ENOSPC, "No space left on device")
        return written(document, folder, seal)

    monkeypatch.setattr(results, "save", full)
    with pytest.raises(typer.Exit) as ended:
        auditing._run(SMALL, tmp_path / "run", 2, False)
    assert ended.value.exit_code == DEGRADED
    assert load(tmp_path / "run").run.repeats == ()
    assert (tmp_path / "run/seed-1/results.json").is_file()


def test_B2_there_is_no_seed_after_the_last(tmp_path: Path) -> None:
    last = config(federation={"rounds": 2, "seed": 2**63 - 1}, audit={"attacks": ["loss"]})
    with pytest.raises(FedauditError, match=r"a seed that is too large.*Set a smaller federation.seed"):
        auditing._run(last, tmp_path / "run", 2, False)
    assert not (tmp_path / "run").exists()
