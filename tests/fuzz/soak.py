"""Long campaigns: `python -m tests.fuzz.soak`, or `make soak`. Prints a line for each, which docs/make_trust.py reads.

- thousands of new examples of every property of `test_properties`,
- runs that are killed, at random moments and at their first writes, and resumed (`tests.trace.killing`),
- a coverage-guided search for each reader, where atheris is installed (`campaign`).
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[2]


def python(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    own = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])} | environment
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, env=own, text=True, capture_output=True, check=False)


def properties(folder: Path, examples: int) -> None:
    report = folder / "properties.xml"
    options = ["-q", "-n", "0", "-p", "no:cacheprovider", "-o", "faulthandler_timeout=36000", f"--junitxml={report}"]
    done = python("-m", "pytest", *options, "tests/fuzz/test_properties.py", FEDAUDIT_EXAMPLES=str(examples))
    cases = [*ElementTree.parse(report).iter("testcase")]
    failed = sum(case.find("failure") is not None for case in cases)
    if failed:
        print(done.stdout)
    print(f"examples of {len(cases)} properties: {examples * len(cases)} tried, {failed} faults", flush=True)


def kills(folder: Path, many: int) -> None:
    done = python("-m", "tests.trace.killing", str(folder / "killed"), str(many), *map(str, range(1, many + 1)))
    ended = [json.loads(line) for line in done.stdout.splitlines()]
    wrong = [run for run in ended if run["resumed"] != 0 or run["differs"]]
    for run in wrong or ([done.stderr] if done.returncode else []):
        print(run)
    print(f"runs killed and resumed: {len(ended)} tried, {len(wrong)} faults", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=2000)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--found", type=Path, default=Path("build/found"))
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        if asked.examples:
            properties(Path(place), asked.examples)
        if asked.kills:
            kills(Path(place), asked.kills)
    if find_spec("atheris") is None:
        print("No fuzz: atheris is not installed (pip install atheris).")
        return
    from tests.fuzz.readers import READERS

    for name in READERS if asked.seconds else ():
        arguments = [name, "--seconds", str(asked.seconds), "--found", str(asked.found.absolute())]
        print(python("-m", "tests.fuzz.campaign", *arguments).stdout, end="", flush=True)


if __name__ == "__main__":
    main()
