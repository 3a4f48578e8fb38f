"""What is wrong with the input, the output or the machine is told as that, and never as a fault of fedaudit."""

import errno
import json
import os
import resource
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer

from fedaudit.cli import commands
from fedaudit.cli.terminal import UNREAD
from fedaudit.config.schema import load_config, parse, read_toml
from fedaudit.data.cells import read_columns
from fedaudit.data.game_file import load_game
from fedaudit.data.npz import read
from fedaudit.errors import DEGRADED, FAULT, FedauditError
from fedaudit.session.prepare import prepare
from fedaudit.trace.segments import DamagedError, read_bytes

SCORES = "id,member,score\n" + "".join(f"{i},{i % 2},{i * 7 % 10}\n" for i in range(40))


def fedaudit(*arguments: str, cwd: Path, **options: Any) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"COLUMNS": "200", "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(
        [sys.executable, "-m", "fedaudit", *arguments],
        cwd=cwd, env=environment, stderr=subprocess.PIPE, text=True, check=False, **options,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["x", "id"])
def test_members_of_an_npz_that_are_no_arrays_are_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "plain.npz"
    arrays: dict[str, Any] = {"y": np.zeros(3, int)} | ({"x": np.zeros((3, 2))} if name != "x" else {})
    np.savez(path, **arrays)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(name, "no array")
        archive.writestr("party", "no array")
        archive.writestr("role", "no array")
    with pytest.raises(FedauditError, match=f"'{name}' is not stored as an array"):
        read(path, ["x", "y"], ["x", "y", "id"])
    with pytest.raises(FedauditError, match="not an npz of plain arrays"):
        load_game(path)


@pytest.mark.parametrize("text", ["[" * 5000 + "]" * 5000, "{a = " * 5000 + "1" + "}" * 5000])
def test_B17_toml_that_is_nested_thousands_deep_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "deep.toml").write_text(f"a = {text}\n")
    with pytest.raises(FedauditError, match="inside one another"):
        load_config(tmp_path / "deep.toml")
    with pytest.raises(FedauditError):
        parse({}, [f"federation.rounds={text}"])


def test_B23_S5_a_device_is_no_input() -> None:
    zero = Path("/dev/zero")
    for what in ("config", "claim", "study"):
        with pytest.raises(FedauditError, match="larger than 16 MiB"):
            read_toml(zero, what)
    with pytest.raises(FedauditError, match="a device or a pipe"):
        read_columns(zero)
    with pytest.raises(DamagedError, match="is no file"):
        read_bytes(zero)


@pytest.mark.parametrize("parties", [10**9, 2**63 - 1, 2**70])
def test_more_parties_than_records_are_refused(parties: int) -> None:
    with pytest.raises(FedauditError, match=r"cannot be split among|less than or equal to 1000000000"):
        prepare(parse({"data": {"name": "breast-cancer"}, "federation": {"parties": parties}}))


@pytest.mark.parametrize("options", [[], ["--json"]], ids=["for people", "as JSON"])
def test_E4_an_output_that_is_full_or_that_nobody_reads_is_no_fault_and_no_failed_gate(
    tmp_path: Path, options: list[str]
) -> None:
    (tmp_path / "scores.csv").write_text(SCORES)
    command = ["score", "scores.csv", "--fpr", "0.5", *options]
    with open("/dev/full", "w") as full:
        done = fedaudit(*command, cwd=tmp_path, stdout=full)
    assert (done.returncode, "could not be written: No space" in done.stderr) == (DEGRADED, True), done.stderr
    assert unread(*command, cwd=tmp_path) == (UNREAD, "")


@pytest.mark.parametrize("command", [["--help"], ["score", "--help"], ["list", "attacks"], ["version"]])
def test_a_command_whose_output_nobody_reads_ends_without_a_word(tmp_path: Path, command: list[str]) -> None:
    assert unread(*command, cwd=tmp_path) == (UNREAD, "")


def test_an_error_that_nobody_reads_is_no_failed_gate(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fedaudit", "run", "missing.toml"]
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(command, cwd=tmp_path, stdout=writing, stderr=writing, check=False)
    os.close(writing)
    assert done.returncode == UNREAD


def test_a_pipe_that_broke_elsewhere_is_a_fault(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    broken = typer.Typer()

    @broken.command()
    def command() -> None:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr(commands, "app", broken)
    monkeypatch.setattr("sys.argv", ["fedaudit"])
    for stream in ("stdout", "stderr"):
        monkeypatch.setattr(sys, stream, getattr(sys, stream))  # typer puts others in their place
    with pytest.raises(SystemExit) as end:
        commands.main()
    assert (end.value.code, "[fault] BrokenPipeError" in capfd.readouterr().err) == (FAULT, True)


def unread(*command: str, cwd: Path) -> tuple[int, str]:
    """The exit code and what it says of an output that is closed, as by `| head`."""
    reading, writing = os.pipe()
    os.close(reading)
    done = fedaudit(*command, cwd=cwd, stdout=writing)
    os.close(writing)
    return done.returncode, done.stderr


def test_too_little_memory_is_said(tmp_path: Path) -> None:
    (tmp_path / "big.toml").write_text('[data]\nname = "synthetic"\nusers = 100000000\n[federation]\nparties = 2\n')

    def little() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))

    done = fedaudit("plan", "big.toml", cwd=tmp_path, stdout=subprocess.PIPE, preexec_fn=little)
    assert (done.returncode, "[memory]" in done.stderr) == (2, True), done.stderr


def test_the_limit_of_a_step_can_be_set_and_is_not_stored_unless_it_is() -> None:
    from fedaudit.audit import patience

    assert "patience" not in json.dumps(parse({}).as_dict())
    prepare(parse({"data": {"name": "breast-cancer"}, "federation": {"parties": 2}, "audit": {"patience": 5}}))
    assert (patience.limit(), patience.limit(10)) == (5, 20)
    prepare(parse({"data": {"name": "breast-cancer"}, "federation": {"parties": 2}}))
    assert patience.limit() == patience.SECONDS
