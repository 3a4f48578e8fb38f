"""What the roles of Shakespeare's plays say, from the user's own copy: predict the next character.

It reads a JSON file, plain or gzipped, {"play|ROLE": [speech, ...], ...}. The speeches of a role, one a line, are cut
into windows that share no character; what is left at the end is dropped. A record is a window without its last
character, its label at every position the character that follows there. Roles are the subjects; the classes are the
characters that occur, in the order of their code points.
"""

import gzip
import json
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from fedaudit.config.registry import DATA, Options
from fedaudit.data.records import dataset
from fedaudit.errors import REFUSED, FedauditError
from fedaudit.types import Dataset

LENGTH = 80  # as in LEAF
MAX_BYTES = 2**30  # unpacked; no more than that is read


class ShakespeareOptions(Options):
    path: Path = Field(
        description='your copy, relative to this file: JSON (.json, .json.gz) {"play|ROLE": [speech, ...]}'
    )
    length: Annotated[int, Field(ge=2)] | None = Field(None, description=f"characters of a record; not set: {LENGTH}")


@DATA.register(
    "shakespeare",
    f'your copy of the plays, next character: path = JSON {{"play|ROLE": [speech, ...]}}; length = {LENGTH} unless set',
    ShakespeareOptions,
)
def load(options: ShakespeareOptions) -> Dataset:
    length = options.length or LENGTH
    windows: list[str] = []
    roles: list[str] = []
    for role, speeches in sorted(_read(options.path).items()):
        text = "\n".join(speeches)
        own = [text[i : i + length + 1] for i in range(0, len(text) - length, length + 1)]
        windows += own
        roles += [role] * len(own)
    if not windows:
        what = f"{options.path}: no role says more than {length} characters"
        raise FedauditError("no-records", what, "Set a smaller data.length.")
    points = np.frombuffer("".join(windows).encode("utf-32-le"), np.uint32).reshape(len(windows), length + 1)
    known, inverse = np.unique(points, return_inverse=True)
    tokens = inverse.reshape(points.shape)
    found = dataset(options.name, tokens[:, :-1], tokens[:, 1:], subject=np.array(roles), tokens=True)
    return replace(found, vocabulary=tuple(map(chr, known.tolist())))


def _read(path: Path) -> dict[str, list[str]]:
    if not path.is_file():
        raise FedauditError("data-missing", f"there is no file {path}", "Check data.path.")
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise _wrong(path, "it unpacks to more than 1 GiB")
        plays = json.loads(content)
    except (OSError, EOFError, zlib.error, ValueError, RecursionError) as error:
        raise _wrong(path, f"it is not such a file ({type(error).__name__})") from None
    if not isinstance(plays, dict) or not all(map(_are_speeches, plays.values())):
        raise _wrong(path, "it does not hold a list of speeches for each role")
    try:
        "".join([*plays, *(speech for speeches in plays.values() for speech in speeches)]).encode()
    except UnicodeEncodeError:
        raise _wrong(path, "some of it is not valid text") from None
    return plays


def _are_speeches(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(speech, str) for speech in value)


def _wrong(path: Path, what: str) -> FedauditError:
    todo = 'Give a JSON file {"play|ROLE": [speech, ...], ...}, plain or gzipped.'
    return FedauditError("shakespeare-file", f"{path}: {what}", todo, exit_code=REFUSED)
