"""What an installation without extras must do: read, judge and say what else is needed. It imports nothing but Python's
own, so that any interpreter runs it:

    build/base/bin/python tests/base_install.py FOLDER
"""

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

STORED = Path(__file__).parent / "results" / "stored"

# Exit code and a word that is said.
CASES: list[tuple[list[str], int, str]] = [
    (["--version"], 0, "fedaudit"),
    (["score", "scores.csv"], 0, "auc"),
    (["report", "run"], 0, "report.html"),
    (["report", "run", "--format", "md", "--redact"], 0, "report-redacted.md"),
    (["gate", "run", "--fail-if", "auc > 0.999"], 3, "undecided"),  # that run was not seen to its end
    (["compare", "run", "other"], 0, "other"),
    (["table", "run", "other"], 0, "run"),
    (["evidence", "run", "--out", "evidence"], 0, "SHA256SUMS"),
    (["watch", "run"], 0, "ended"),
    (["watch", "private"], 0, "Epsilon is not shown: to count it, pip install 'fedaudit[dp]'."),
    (["list", "attacks"], 0, "loss"),
    (["init", "my.toml"], 0, "my.toml"),
    (["demo"], 2, "pip install 'fedaudit[demo]'"),
    (["run", "my.toml"], 2, "pip install 'fedaudit["),
    (["guard", "site.toml", "--", "flower-supernode"], 2, "pip install 'fedaudit["),
]


def prepare(folder: Path) -> None:
    rng = random.Random(0)
    rows = [f"r{i},{int(i < 300)},{rng.gauss(i < 300, 1)}" for i in range(1200)]
    (folder / "scores.csv").write_text("\n".join(["id,member,score", *rows]) + "\n")
    for name in ("run", "other"):
        (folder / name).mkdir()
        shutil.copy(STORED / "recorded.json", folder / name / "results.json")
    (folder / "private").mkdir()
    shutil.copy(STORED / "recorded.json", folder / "private" / "results.json")
    process = {"unit": "record", "noise": 1.0, "releases": 5, "sampler": "poisson", "rate": 0.1}
    promise = {"defence": "dp-sgd", "process": process, "delta": 1e-5, "units": 1000, "against": "everybody"}
    (folder / "private" / "run.json").write_text(json.dumps({"schema": 1, "rounds": 9, "guarantee": [promise]}))
    (folder / "site.toml").write_text('game = "game.npz"\nmodel = "ours:net"\nrounds = 2\n')


def judged(arguments: list[str], code: int, said: str) -> str:
    """What is not as it must be."""
    wanted, word = next((wanted, word) for given, wanted, word in CASES if given == arguments)
    plain = " ".join(said.split())
    return "" if code == wanted and word in plain else f"{' '.join(arguments)}: exit code {code}, {plain[-400:]}"


def main(folder: Path) -> int:
    folder.mkdir(parents=True)
    prepare(folder)
    wrong = []
    for arguments, *_ in CASES:
        command = [sys.executable, "-m", "fedaudit", *arguments]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        wrong.append(judged(arguments, done.returncode, done.stdout + done.stderr))
    found = list(filter(None, wrong))
    print("\n".join(found) or f"{len(CASES)} commands of an installation without extras are as they must be.")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
