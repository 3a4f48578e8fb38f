"""A coverage-guided search for bytes that a reader neither reads nor refuses: `python -m tests.fuzz.campaign NAME`.

Needs atheris (`pip install atheris`). It begins with the files of `readers` and with the corpus. What a reader answers
with an exception of another kind is kept in the folder of --found, one file for each line that raised; the search goes
on, and ends with exit code 1 if there is any. Small files that reach new lines are left in `new`, for the corpus.
"""

import argparse
import hashlib
import os
import resource
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["fedaudit", "tomllib"]):
    from tests.fuzz.readers import CORPUS, READERS, is_read

LARGEST = 4096  # bytes of a file that is kept
MEMORY = 6 * 2**30


class Campaign:
    def __init__(self, name: str, folder: Path, kept: Path):
        self.name, self.folder, self.kept = name, folder, kept
        self.tried = self.read = 0
        self.found: dict[str, str] = {}

    def one(self, blob: bytes) -> None:
        self.tried += 1
        try:
            self.read += is_read(self.name, blob, self.folder)
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            key = f"{type(error).__name__} in {Path(place.filename).name}:{place.lineno}"
            if key not in self.found:
                self.found[key] = self._keep(blob)
                traceback.print_exception(error, limit=-6)
                print(f"FOUND {self.name}: {key}: {self.found[key]}", flush=True)

    def _keep(self, blob: bytes) -> str:
        self.kept.mkdir(parents=True, exist_ok=True)
        path = self.kept / f"{self.name}-{hashlib.sha256(blob).hexdigest()[:12]}"
        path.write_bytes(blob)
        return str(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=[*READERS])
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--found", type=Path, default=Path("found"))
    asked = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    with tempfile.TemporaryDirectory(prefix="fedaudit-fuzz-") as place:
        begin, folder = Path(place) / "begin", Path(place) / "folder"
        for each in (begin, folder):
            each.mkdir()
        for number, blob in enumerate(READERS[asked.name].whole()):
            (begin / f"whole-{number}").write_bytes(blob)
        for path in (CORPUS / asked.name).glob("*"):
            shutil.copy(path, begin)
        campaign = Campaign(asked.name, folder, asked.found)
        known = {path.name for path in begin.iterdir()}
        child = os.fork()
        if not child:
            _search(campaign, begin, asked.seconds)
        _, status = os.waitpid(child, 0)
        new = [path for path in begin.iterdir() if path.name not in known and path.stat().st_size <= LARGEST]
        kept = asked.found / "new" / asked.name
        kept.mkdir(parents=True, exist_ok=True)
        for path in new:
            shutil.copy(path, kept)
    sys.exit(os.waitstatus_to_exitcode(status))


def _search(campaign: Campaign, begin: Path, seconds: int) -> None:
    """Ends the process: libFuzzer does not return, so the count is told from inside, after the last second."""
    start = time.monotonic()

    def one(blob: bytes) -> None:
        campaign.one(blob)
        if time.monotonic() - start > seconds:
            print(f"{campaign.name}: {campaign.tried} tried, {campaign.read} read, {len(campaign.found)} faults")
            sys.stdout.flush()
            os._exit(1 if campaign.found else 0)

    atheris.Setup(["fuzz", str(begin), "-max_len=65536", "-timeout=30", "-rss_limit_mb=6000", "-verbosity=0"], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
