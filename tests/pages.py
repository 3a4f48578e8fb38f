"""Follows a page of the documentation as a reader would: saves its files, and runs its commands in order."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

from tests.command import fedaudit

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
EXITS = re.compile(r"\s+# exits (\d(?: or \d)*)$")


def follow(page: Path, folder: Path) -> list[str]:
    """Blocks that begin with `# NAME` are files; lines of `sh` are commands, which exit 0 unless the line says how.
    Returns what each command printed."""
    said = []
    for language, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        if language == "sh":
            said += [command(line, folder) for line in text.splitlines() if line.strip()]
        elif named := re.match(r"# ([\w.-]+)\n", text):
            (folder / named[1]).write_text(text, encoding="utf-8")
    return said


def command(line: str, folder: Path) -> str:
    exits = EXITS.search(line)
    allowed = {int(code) for code in exits[1].split(" or ")} if exits else {0}
    program, *arguments = shlex.split(EXITS.sub("", line), comments=True)
    if program == "fedaudit":
        done = fedaudit(*arguments, cwd=folder, columns=80)
    else:
        assert program == "python", line
        done = subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode in allowed, f"{line}\n{done.stdout}\n{done.stderr}"
    return done.stdout
