"""Files changed by a test as fedaudit would have written them: with their checksum in the journal."""

from pathlib import Path

from fedaudit.trace import journal


def write(path: Path, content: str | bytes) -> None:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    journal.seal(path.parent, {path.name: journal.checksum_of(path)})
