"""Files that cannot lie: a flipped bit is found, damage is told by exit code and gate, and what is private stays so."""

import fcntl
import hashlib
import io
import json
import shutil
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedaudit.data.game_file import load_game
from fedaudit.errors import REFUSED, FedauditError
from fedaudit.files import Lock
from fedaudit.results.document import load, save
from fedaudit.results.scores import estimate, load_scores
from fedaudit.session.prepare import prepare
from fedaudit.session.replay import replay
from fedaudit.session.run import run
from fedaudit.trace.store import load_manifest
from tests import sealed
from tests.command import fedaudit
from tests.worlds import config, silent

SMALL = config(federation={"rounds": 4}, audit={"attacks": ["fta-confidence", "loss"]})
FLIPS = 250


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run. Nobody writes here."""
    out = tmp_path_factory.mktemp("finished") / "run"
    run(SMALL, out, silent, tell=lambda line: None)
    return out


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def flips(path: Path) -> Iterator[int]:
    """Flips every k-th bit of a file, one at a time."""
    whole = path.read_bytes()
    bits = 8 * len(whole)
    for bit in range(0, bits, max(1, bits // FLIPS)):
        blob = bytearray(whole)
        blob[bit // 8] ^= 1 << bit % 8
        path.write_bytes(blob)
        yield bit
    path.write_bytes(whole)


# ------------------------------------------------------------------ a flipped bit


READERS: list[tuple[str, Callable[[Path], Any]]] = [
    ("results.json", load),
    ("run.json", load_manifest),
    ("scores.parquet", load_scores),
    ("scores.parquet", lambda run: estimate(run / "scores.parquet", None, 0.95, attack="loss")),
]


@pytest.mark.parametrize(("name", "read"), READERS, ids=["results", "run", "scores of a gate", "scores"])
def test_F12_no_flipped_bit_is_believed(copied: Path, name: str, read: Callable[[Path], Any]) -> None:
    read(copied)  # as it is, it is read
    seen = 0
    for bit in flips(copied / name):
        with pytest.raises(FedauditError) as raised:
            read(copied)
        assert (raised.value.code, raised.value.exit_code) == ("file-changed", REFUSED), bit
        seen += 1
    assert seen >= FLIPS
    read(copied)


def test_F12_a_flipped_bit_in_the_journal_changes_no_number(copied: Path) -> None:
    """It costs at most the proof that a file is as it was written, and that is said."""
    from fedaudit.trace.journal import unchecked

    document, told = load(copied), 0
    for _ in flips(copied / "journal.jsonl"):
        assert load(copied) == document
        told += bool(unchecked(copied / "results.json"))
    assert told > 0


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("results.json", ["report", "run"]),
        ("results.json", ["gate", "run", "--fail-if", "auc > 0.99"]),
        ("results.json", ["compare", "run", "run"]),
        ("scores.parquet", ["score", "run/scores.parquet", "--attack", "loss"]),
        ("scores.parquet", ["gate", "run", "--fail-if", "auc[attack=*] > 0.01"]),
        ("run.json", ["audit", "run"]),
    ],
)
def test_F12_E5_the_commands_refuse_what_was_changed(copied: Path, name: str, command: list[str]) -> None:
    next(flips(copied / name))
    done = fedaudit(*command, cwd=copied.parent)
    assert done.returncode == REFUSED, done.stdout + done.stderr
    assert f"{name} is not as it was written" in " ".join(done.stderr.split())


def test_a_file_from_elsewhere_says_that_it_has_no_checksum(finished: Path, tmp_path: Path) -> None:
    for name in ("results.json", "scores.parquet"):
        shutil.copy(finished / name, tmp_path / name)
    for command in (
        ["gate", ".", "--fail-if", "auc > 0.99"],
        ["compare", ".", str(finished)],
        ["score", "scores.parquet", "--attack", "loss"],
    ):
        assert "has no checksum" in " ".join(fedaudit(*command, cwd=tmp_path).stdout.split()), command
    assert "has no checksum" not in " ".join(
        fedaudit("compare", str(finished), str(finished), cwd=tmp_path).stdout.split()
    )


def test_results_written_again_are_vouched_for(copied: Path) -> None:
    """Whoever saves them keeps the checksum, also where the trace is closed."""
    document = load(copied)
    save(document, copied)
    assert load(copied) == document
    (copied / "journal.jsonl").unlink()
    save(document, copied)
    load(copied)
    next(flips(copied / "results.json"))
    with pytest.raises(FedauditError, match="not as it was written"):
        load(copied)


# ------------------------------------------------------------------ a damaged trace


def test_F12_E3_E4_damaged_rounds_are_degraded_and_no_gate_passes(copied: Path) -> None:
    assert fedaudit("gate", "run", "--fail-if", "auc > 0.9999", cwd=copied.parent).returncode == 0
    for number in (2, 3):
        next(flips(copied / f"signals/{number:05d}.parquet"))
    done = fedaudit("audit", "run", cwd=copied.parent)
    assert done.returncode == 4, done.stdout + done.stderr
    assert "Part of the record of this run is damaged" in " ".join(done.stdout.split())
    document = json.loads((copied / "audit/results.json").read_text())
    assert document["run"]["status"] == "degraded"
    assert [line[:8] for line in document["degraded"]] == ["Round 2:", "Round 3:"]
    assert "Part of the record of this run is damaged" in (copied / "audit/report.html").read_text()
    assert fedaudit("gate", "run/audit", "--fail-if", "auc > 0.9999", cwd=copied.parent).returncode == 3


def test_F12_a_damaged_line_of_the_journal_degrades_too(copied: Path, tmp_path: Path) -> None:
    lines = (copied / "journal.jsonl").read_bytes().splitlines(keepends=True)
    lines[2] = lines[2].replace(b'"commit": true', b'"commit": trXe')
    (copied / "journal.jsonl").write_bytes(b"".join(lines))
    document = replay(copied, [], tmp_path / "again", silent)
    assert document.run.status == "degraded"
    assert list(document.degraded) == ["Line 3 of journal.jsonl is damaged and was skipped."]
    assert not document.complete


# ------------------------------------------------------------------ private


def test_S4_what_names_members_is_for_its_owner_alone(copied: Path) -> None:
    fedaudit("report", "run", cwd=copied.parent)
    fedaudit("report", "run", "--redact", cwd=copied.parent)
    names = (
        "report.html",
        "report-redacted.html",
        "results.json",
        "scores.parquet",
        "run.json",
        "salt",
        "journal.jsonl",
    )
    assert {name: oct((copied / name).stat().st_mode & 0o777) for name in names} == dict.fromkeys(names, "0o600")


def test_S4_ids_are_hashed_with_a_salt_that_stays_beside_the_run(finished: Path, tmp_path: Path) -> None:
    document = load(finished)
    assert document.exposed is not None
    shown = {unit.id_hash for unit in document.exposed.records}
    ids = prepare(SMALL).game.candidates.id.tolist()
    manifest = json.loads((finished / "run.json").read_text())
    known = ["", manifest["data"], manifest["config_hash"], str(manifest["seed"])]  # all that is passed on with it
    guessed = {hashlib.sha256(f"{key}|{name}".encode()).hexdigest()[:12] for key in known for name in ids}
    assert not shown & guessed
    salt = (finished / "salt").read_text().strip()
    assert salt not in (finished / "results.json").read_text() + (finished / "run.json").read_text()
    owner = {hashlib.sha256(f"{salt}|{name}".encode()).hexdigest()[:12] for name in ids}
    assert shown <= owner  # whoever has the run finds them again
    again = replay(finished, [], tmp_path / "again", silent)
    assert again.exposed is not None
    assert [unit.id_hash for unit in again.exposed.records] == [unit.id_hash for unit in document.exposed.records]
    run(SMALL, tmp_path / "other", silent, tell=lambda line: None)
    other = load(tmp_path / "other").exposed
    assert other is not None
    assert not shown & {unit.id_hash for unit in other.records}


# ------------------------------------------------------------------ hostile files


ESCAPE = "\x1b[2J\x1b]0;title\x07\x9b31m\u202e"


def test_B18_what_is_read_from_a_file_does_not_reach_the_terminal_with_its_escapes(copied: Path) -> None:
    text = (copied / "results.json").read_text().replace('"party-0"', json.dumps(f"party{ESCAPE}0"))
    text = text.replace('"fta-confidence"', json.dumps(f"fta{ESCAPE}"))
    sealed.write(copied / "results.json", text)
    for command in (
        ["report", "run"],
        ["gate", "run", "--fail-if", "auc[party=*] > 0.99"],
        ["compare", "run", "run"],
        ["gate", "run", "--fail-if", f"auc[party={ESCAPE}] > 0.9"],
    ):
        done = fedaudit(*command, cwd=copied.parent)
        said = done.stdout + done.stderr
        assert not set("\x1b\x07\x9b\u202e") & set(said), command
        assert len(said) > 50


def test_B18_F10_a_lock_does_not_speak(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text(ESCAPE)
    with (tmp_path / "lock").open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(FedauditError, match=r"process unknown\) is writing") as raised:
            Lock(tmp_path)
    assert "\x1b" not in str(raised.value)


@pytest.mark.parametrize("schema", [0, -5])
def test_F16_a_schema_that_never_was_is_refused(copied: Path, schema: int) -> None:
    for name, read in (("results.json", load), ("run.json", load_manifest)):
        values = json.loads((copied / name).read_text())
        sealed.write(copied / name, json.dumps({**values, "schema": schema}))
        with pytest.raises(FedauditError, match="at least 1") as raised:
            read(copied)
        assert raised.value.exit_code == REFUSED


def test_B17_notices_that_are_numbers_are_refused(copied: Path) -> None:
    for name, command in (("run.json", ["audit", "run"]), ("results.json", ["report", "run"])):
        values = json.loads((copied / name).read_text())
        sealed.write(copied / name, json.dumps({**values, "notices": 7}))
        done = fedaudit(*command, cwd=copied.parent)
        assert done.returncode == REFUSED, done.stderr
        assert "notices" in done.stderr


def claiming(path: Path, shape: str) -> None:
    """An npz of a few bytes, whose array says that it is far larger."""
    buffer = io.BytesIO()
    np.save(buffer, np.zeros(3, np.float32))
    blob = buffer.getvalue().replace(b"(3,)", shape.encode())
    length = len(blob) - 10 - 12
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", blob[:8] + length.to_bytes(2, "little") + blob[10:])


@pytest.mark.parametrize("shape", ["(300000000,)", "(99999999999999,)"])
def test_B17_S5_an_npz_that_claims_a_gigabyte_is_refused_before_anything_is_allocated(
    tmp_path: Path, shape: str
) -> None:
    claiming(tmp_path / "game.npz", shape)
    with pytest.raises(FedauditError, match=r"claims [\d,]+ bytes and has") as raised:
        load_game(tmp_path / "game.npz")
    assert raised.value.exit_code == REFUSED
    (tmp_path / "my.toml").write_text('[data]\nname = "npz"\npath = "game.npz"\n')
    done = fedaudit("run", "my.toml", cwd=tmp_path)
    assert done.returncode == REFUSED, done.stderr


def test_a_name_too_long_for_the_disk_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text('[data]\nname = "digits"\n[federation]\nrounds = 2\n')
    name = "n" * 300
    for command in (["run", "my.toml", "--out", name], ["report", name], ["gate", name, "--fail-if", "auc > 0.5"]):
        done = fedaudit(*command, cwd=tmp_path)
        assert done.returncode == 2, (command, done.stderr)
        assert "File name too long" in " ".join(done.stderr.split())
        assert "traceback" not in done.stderr
