"""Text of the user's own: files, JSON lines, parquet, or a Hugging Face dataset on disk; one row is one document.

1. A document becomes tokens: by a tokenizer of the `tokenizers` library, from a local file, or one for each character.
2. The tokens are cut into windows that share none of them. A record is a window without its last token; its label at
   every position is the token that follows there.
3. The last window of a document may be shorter. It is filled up, and the labels of what was filled in are `IGNORED`: no
   loss and no gradient comes from there.

A document is a session: its windows are never trained on and held by an outsider at the same time. Subjects are the
authors, where a column names them; otherwise the documents.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from fedaudit.config.registry import DATA, DataOptions
from fedaudit.config.section import Count
from fedaudit.data.cells import refuse_swollen
from fedaudit.data.partition import DOCUMENT
from fedaudit.data.records import dataset
from fedaudit.errors import REFUSED, FedauditError, suggest
from fedaudit.types import IGNORED, Dataset

LENGTH, COLUMN = 64, "text"
SHORTEST = 2  # tokens of a window: one to start from, and one to predict
MAX_TEXT = 2**30  # bytes of all files together
OF_HUGGING_FACE = "dataset_info.json", "state.json"


class TextOptions(DataOptions):
    path: Path = Field(
        description="relative to this file: .txt (documents are separated by empty lines), .jsonl, .parquet, .arrow, a "
        "folder of these, or a Hugging Face dataset that was saved to disk"
    )
    text: str | None = Field(None, description=f"the key or column of the text; not set: {COLUMN}")
    author: str | None = Field(None, description="the key or column of who wrote it; not set: a document is a subject")
    tokenizer: Path | None = Field(
        None, description="a tokenizer.json of the `tokenizers` library, relative to this file; not set: characters"
    )
    length: Annotated[int, Field(ge=SHORTEST)] | None = Field(
        None, description=f"tokens of a record; not set: {LENGTH}"
    )
    windows: Count | None = Field(None, description="of a document at most; not set: all")


@dataclass(frozen=True)
class Writing:
    """One document."""

    text: str
    author: str | None


@DATA.register(
    "text",
    f"your own text, next token: path = .txt, .jsonl, .parquet, .arrow or a folder; length = {LENGTH} unless set",
    TextOptions,
)
def load(options: TextOptions) -> Dataset:
    documents = list(_documents(options))
    length, most = options.length or LENGTH, options.windows
    encode, vocabulary = _tokenizer(options.tokenizer, documents)
    x, y, number = [], [], []
    for place, document in enumerate(documents):
        tokens = np.asarray(encode(document.text), np.int64)
        starts = range(0, len(tokens) - SHORTEST + 1, length + 1)
        for start in starts[:most]:
            window = tokens[start : start + length + 1]
            filled = np.zeros(length, np.int64)
            labels = np.full(length, IGNORED)
            filled[: len(window) - 1], labels[: len(window) - 1] = window[:-1], window[1:]
            x.append(filled)
            y.append(labels)
            number.append(place)
    if not x:
        what = f"{options.path}: no document has {SHORTEST} tokens"
        raise FedauditError("no-records", what, "Give a file with text in it.")
    whose = np.array(number)
    names = [f"document-{place}" if one.author is None else one.author for place, one in enumerate(documents)]
    found = dataset(
        options.path.stem,
        np.stack(x),
        np.stack(y),
        subject=np.array(names)[whose],
        attributes={DOCUMENT: whose},
        tokens=True,
    )
    return replace(found, classes=len(vocabulary), session=DOCUMENT, vocabulary=vocabulary)


# ------------------------------------------------------------------ tokens

Encode = Callable[[str], Sequence[int]]


def _tokenizer(path: Path | None, documents: Sequence[Writing]) -> tuple[Encode, tuple[str, ...]]:
    """How a text becomes numbers, and what each of them stands for."""
    if path is None:
        characters = tuple(sorted(set().union(*(set(document.text) for document in documents))))
        place = {character: number for number, character in enumerate(characters)}
        return lambda text: [place[character] for character in text], characters
    try:
        from tokenizers import Tokenizer
    except ImportError:
        what = "data.tokenizer needs the package `tokenizers`, which is not installed"
        raise FedauditError("no-tokenizers", what, "Install it: pip install 'fedaudit[text]'.") from None
    if not path.is_file():
        raise FedauditError("data-missing", f"there is no file {path}", "Check data.tokenizer.")
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # whatever the library's parser says
        what = f"{path} is no tokenizer of the `tokenizers` library ({type(error).__name__})"
        raise FedauditError("tokenizer", what, "Give its tokenizer.json.", exit_code=REFUSED) from None
    tokenizer.no_padding()
    tokenizer.no_truncation()
    words = tuple(tokenizer.decode([number], skip_special_tokens=False) for number in range(tokenizer.get_vocab_size()))

    def encode(text: str) -> Sequence[int]:
        found: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
        return found

    return encode, words


# ------------------------------------------------------------------ documents


def _documents(options: TextOptions) -> Iterator[Writing]:
    files = _files(options.path)
    if (size := sum(file.stat().st_size for file in files)) > MAX_TEXT:
        what = f"{options.path} holds {size / 2**30:.1f} GiB, and at most {MAX_TEXT >> 30} are read"
        raise FedauditError("text-size", what, "Give a part of it.")
    for file in files:
        for document in READERS[file.suffix](file, options):
            if document.text.strip():
                yield document


def _files(path: Path) -> list[Path]:
    if path.is_file():
        if path.suffix not in READERS:
            what = f"{path} is none of {', '.join(READERS)}"
            raise FedauditError("text-kind", what, "Save it as one of these.")
        return [path]
    if not path.is_dir():
        raise FedauditError("data-missing", f"there is no file or folder {path}", "Check data.path.")
    found = sorted(file for file in path.iterdir() if file.is_file() and file.suffix in READERS)
    if not found:
        parts = [part.name for part in sorted(path.iterdir()) if (part / OF_HUGGING_FACE[0]).is_file()]
        todo = f"Name one of its parts: {', '.join(parts)}." if parts else f"It takes {', '.join(READERS)}."
        raise FedauditError("data-missing", f"{path} holds no text", todo)
    return found


def _plain(file: Path, options: TextOptions) -> Iterator[Writing]:
    """A file in a folder is a document of its own; of a single file, what stands between empty lines is one."""
    text = _utf8(file)
    whole = options.path.is_dir()
    for part in [text] if whole else text.split("\n\n"):
        yield Writing(part.strip(), file.stem if whole and options.author is not None else None)


def _utf8(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise FedauditError("text-encoding", f"{file} is not UTF-8", "Save it in UTF-8.") from None


def _json_lines(file: Path, options: TextOptions) -> Iterator[Writing]:
    for number, line in enumerate(_utf8(file).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict):
            raise FedauditError("text-row", f"line {number} of {file} is no JSON object", "Write one on every line.")
        yield _row(row, f"line {number} of {file}", options)


def _table(file: Path, options: TextOptions) -> Iterator[Writing]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if file.suffix == ".parquet":
            refuse_swollen(file)
            table = pq.read_table(file)
        else:
            with pa.memory_map(str(file)) as source:
                table = _arrow(source).read_all()
    except (pa.ArrowException, OSError) as error:
        what = f"{file} cannot be read ({type(error).__name__})"
        raise FedauditError("text-row", what, "Save it anew.", exit_code=REFUSED) from None
    wanted = [name for name in (options.text or COLUMN, options.author) if name]
    for name in wanted:
        if name not in table.column_names:
            raise FedauditError("unknown-key", f"{file} has no column {name!r}", suggest(name, table.column_names))
    for number, row in enumerate(table.select(list(dict.fromkeys(wanted))).to_pylist(), start=1):
        yield _row(row, f"row {number} of {file}", options)


def _arrow(source: Any) -> Any:
    """Hugging Face writes streams; others write files."""
    import pyarrow as pa

    try:
        return pa.ipc.open_stream(source)
    except pa.ArrowInvalid:
        source.seek(0)
        return pa.ipc.open_file(source)


def _row(row: dict[str, Any], where: str, options: TextOptions) -> Writing:
    text = _text(row, options.text or COLUMN, where)
    return Writing(text, None if options.author is None else _text(row, options.author, where, names=True))


def _text(row: dict[str, Any], key: str, where: str, names: bool = False) -> str:
    if key not in row:
        raise FedauditError("unknown-key", f"{where} has no {key!r}", suggest(key, row))
    found = str(row[key]) if names and isinstance(row[key], int) else row[key]
    if not isinstance(found, str) or (names and not found.strip()):
        raise FedauditError("text-row", f"{key!r} in {where} is no text", "Give text in every row.")
    return found


READERS: dict[str, Callable[[Path, TextOptions], Iterator[Writing]]] = {
    ".txt": _plain,
    ".jsonl": _json_lines,
    ".parquet": _table,
    ".arrow": _table,
}
