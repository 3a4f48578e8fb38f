"""Interpreters and versions beside those that `make test` runs on. `make matrix` runs every cell that can be run here,
and says of each other one why not:

    python -m tests.matrix [CELLS]

A `base` cell installs the wheel without extras and runs tests/base_install.py. A `full` cell installs all that tests
need, with the versions in its name, and runs TESTS. Environments are kept in build/matrix.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
HERE = ROOT / "build" / "matrix"
# Whatever other versions of Python, torch, Flower and NVIDIA FLARE could break first.
TESTS = [
    "tests/integrations",
    "tests/learn",
    "tests/session/verify",
    "tests/session/test_tracking.py",
    "tests/cli",
    "tests/results",
    "tests/test_audit_by_hand.py",
]
# flwr 1.42 asks for uv >= 0.13.5, and for certifi >= 2026.10.19, which no registry had when this was written: it is put
# over 1.41 without asking for what it wants.
OVER = ["flwr==1.42.0", "uv==0.13.8"]
OLDEST = ["torch==2.8.0"]  # with what it is linked to: from PyPI, that is CUDA's libraries, some gigabytes
CELLS: dict[str, tuple[str, list[str]]] = {
    "base-3.11": ("3.11", []),
    "base-3.12": ("3.12", []),
    "base-3.13": ("3.13", []),
    "full-3.11-flwr-1.42": ("3.11", OVER),
    "full-3.11-torch-2.8": ("3.11", OLDEST),
    "full-3.12": ("3.12", []),
    "full-3.13-flwr-1.42": ("3.13", OVER),
}


def interpreter(version: str) -> str | None:
    """One that starts: a shim may stand for nothing."""
    for found in (
        shutil.which(f"python{version}"),
        *map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin/python")),
    ):
        asked = [str(found), "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
        if found and subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip() == version:
            return str(found)
    return None


def run(cell: str) -> str:
    """What came of a cell, in one line. Tests that fail are the only failure; the rest was not tried."""
    python, over = CELLS[cell]
    found, place = interpreter(python), HERE / cell
    if found is None:
        return "not tried: no such interpreter here"
    own = place / "bin" / "python"
    HERE.mkdir(parents=True, exist_ok=True)
    if not own.exists():
        subprocess.run([found, "-m", "venv", str(place)], check=True)
    pip = [str(own), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    pins, full = ROOT / "constraints.txt", cell.startswith("full")
    torch = next(line for line in pins.read_text().splitlines() if line.startswith("torch=="))
    wanted = (
        [[torch, "-c", str(pins)], ["-e", f"{ROOT}[dev]", "-c", str(pins)]] if full else [[str(ROOT), "-c", str(pins)]]
    )
    wanted += [over if over == OLDEST else ["--no-deps", *over]] if over else []
    for what in wanted:  # torch goes first, as in the Makefile
        done = subprocess.run([*pip, *what], capture_output=True, text=True, check=False)
        if done.returncode:
            return f"not tried: it cannot be installed: {done.stderr.strip().splitlines()[-1]}"
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    if full:
        command = [str(own), "-m", "pytest", "-n", "2", "-p", "no:cacheprovider", *TESTS]
    else:
        shutil.rmtree(place / "tried", ignore_errors=True)
        command = [str(own), "tests/base_install.py", str(place / "tried")]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    (HERE / f"{cell}.log").write_text(done.stdout + done.stderr)
    last = (done.stdout.strip().splitlines() or ["nothing was said"])[-1]
    return f"{'passed' if done.returncode == 0 else 'FAILED'}: {last} ({HERE / cell}.log)"


def main(asked: list[str]) -> int:
    failed = False
    for cell in asked or CELLS:
        found = run(cell)
        print(f"{cell}: {found}", flush=True)
        failed |= found.startswith("FAILED")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
