"""What browser tests need and Python does not bring: `python -m tests.browser.setup`, which `make test` runs.

- Chromium from the system's packages: `apt-get install chromium`, where that can be done (Debian, as root).
- axe-core, which looks for barriers in pages, from npm by its version and checksum. It is not in this repository: it is
  the work of others under another licence (MPL-2.0), half a megabyte in one line, and of no use to anybody who installs
  fedaudit.

Where one of them cannot be had, the tests that need it are skipped, and the summary of the test run says so. With `CI`
set in the environment they fail instead: nobody reads the summary there.
"""

import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
AXE = "axe-core@4.14.0"
CHECKSUM = "f564d9c448ec67b6f5dd31fc24f99b576cfc0876e5f34ff6866dd73c41b826035d40b2bcd480515e64b11df3003a44aa41e4714ffd1dc0d0f3d863a6df3ce971"  # noqa: E501
PLACE = Path(sys.prefix) / "share" / "fedaudit-tests" / f"{AXE}.js"  # in the environment: `make clean` removes it


def browser() -> str | None:
    return next((found for name in BROWSERS if (found := shutil.which(name))), None)


def axe() -> Path | None:
    return PLACE if PLACE.is_file() else None


def missing() -> list[str]:
    """What is not there, in words."""
    found = {"Chromium (apt-get install chromium)": browser(), f"{AXE} (python -m tests.browser.setup)": axe()}
    return [name for name, path in found.items() if path is None]


def install_browser() -> None:
    if browser() or not shutil.which("apt-get") or os.geteuid() != 0:
        return
    quietly = {"env": {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}, "check": True, "stdout": subprocess.DEVNULL}
    for asked in (["update"], ["install", "--yes", "--no-install-recommends", "chromium", "fonts-dejavu-core"]):
        subprocess.run(["apt-get", "-q", *asked], **quietly)  # type: ignore[call-overload]


def install_axe() -> None:
    if axe() or not shutil.which("npm"):
        return
    with tempfile.TemporaryDirectory() as folder:
        asked = ["npm", "pack", AXE, "--silent", "--pack-destination", folder]
        subprocess.run(asked, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=300)
        (packed,) = Path(folder).glob("*.tgz")
        content = packed.read_bytes()
    if hashlib.sha512(content).hexdigest() != CHECKSUM:
        sys.exit(f"{AXE} is not what it was when these tests were written: its checksum differs")
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        script = archive.extractfile("package/axe.min.js")
        assert script
        PLACE.parent.mkdir(parents=True, exist_ok=True)
        unfinished = PLACE.with_suffix(f".{os.getpid()}")
        unfinished.write_bytes(script.read())
        os.replace(unfinished, PLACE)


def main() -> None:
    for install in (install_browser, install_axe):
        try:
            install()
        except (subprocess.SubprocessError, OSError) as error:
            print(f"tests.browser.setup: {error}", file=sys.stderr)
    for name in missing():
        print(f"Not installed: {name}. Browser tests that need it are skipped; with CI set they fail.", file=sys.stderr)


if __name__ == "__main__":
    main()
