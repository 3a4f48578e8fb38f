"""Files changed by a test as fedaudit would have written them: with their checksum in the journal."""

from pathlib import Path

from fedaudit.trace import checksums


def write(path: Path, content: str | bytes) -> None:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    checksums.seal(path.parent, {path.name: checksums.checksum_of(path)})
