"""Text of one's own: the same documents from every kind of file, cut into windows, and never on both sides."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedaudit.config.schema import parse
from fedaudit.data import load
from fedaudit.data.partition import build
from fedaudit.errors import FedauditError
from fedaudit.types import IGNORED, Dataset, Role

TEXTS = ["to be or not", "to be", "that is the question", "x", "whether tis nobler"]
AUTHORS = ["ann", "ann", "bob", "bob", "cid"]


def loaded(path: Path, **options: Any) -> Dataset:
    return load(parse({"data": {"name": "text", "path": str(path), "length": 6, **options}}).data)


def as_text(data: Dataset) -> list[str]:
    """Every record as it reads, with what follows its last character."""
    found = []
    for x, y in zip(data.records.x, data.records.y, strict=True):
        counted = y[y != IGNORED]
        found.append("".join(data.vocabulary[token] for token in (x[0], *counted)))
        assert np.array_equal(x[1 : len(counted)], counted[:-1])
    return sorted(found)


WINDOWS = sorted(
    text[start : start + 7] for text in TEXTS for start in range(0, len(text), 7) if len(text[start : start + 7]) > 1
)


def test_every_kind_of_file_gives_the_same_records(tmp_path: Path) -> None:
    table = pa.table({"text": TEXTS, "who": AUTHORS})
    (tmp_path / "a.txt").write_text("\n\n".join(TEXTS))
    (tmp_path / "b.jsonl").write_text("\n".join(json.dumps({"text": t}) for t in TEXTS))
    pq.write_table(table, tmp_path / "c.parquet")
    for name, writer in (("d.arrow", pa.ipc.new_stream), ("e.arrow", pa.ipc.new_file)):
        with pa.OSFile(str(tmp_path / name), "wb") as sink, writer(sink, table.schema) as out:
            out.write_table(table)
    folder = tmp_path / "f"
    folder.mkdir()
    for number, text in enumerate(TEXTS):
        (folder / f"{number}.txt").write_text(text)
    hugging = tmp_path / "g"
    hugging.mkdir()
    (hugging / "dataset_info.json").write_text("{}")
    file = str(hugging / "data-00000-of-00001.arrow")
    with pa.OSFile(file, "wb") as sink, pa.ipc.new_stream(sink, table.schema) as out:
        out.write_table(table)
    for path in ("a.txt", "b.jsonl", "c.parquet", "d.arrow", "e.arrow", "f", "g"):
        found = loaded(tmp_path / path)
        assert as_text(found) == WINDOWS
        assert (found.classes, found.session, found.input_shape) == (len(set("".join(TEXTS))), "document", (6,))
        assert found.records.subject is not None
        assert len(set(found.records.subject)) == 4  # a document of one character says nothing
    by_author = loaded(tmp_path / "c.parquet", author="who").records
    assert by_author.subject is not None
    assert set(by_author.subject) == {"ann", "bob", "cid"}
    assert len(loaded(tmp_path / "c.parquet", windows=1).records) == 4


def test_tokens_of_a_tokenizer(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(TEXTS, trainers.BpeTrainer(vocab_size=270, initial_alphabet=alphabet))
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "a.txt").write_text("\n\n".join(TEXTS))
    found = loaded(tmp_path / "a.txt", tokenizer=str(tmp_path / "tokenizer.json"))
    assert found.classes == tokenizer.get_vocab_size() == len(found.vocabulary)
    ids = tokenizer.encode(TEXTS[0]).ids
    first = [list(x) for x, y in zip(found.records.x, found.records.y, strict=True) if x[0] == ids[0]]
    assert any(row[: min(6, len(ids) - 1)] == ids[:-1][:6] for row in first)
    (tmp_path / "broken.json").write_text("{}")
    with pytest.raises(FedauditError, match="is no tokenizer"):
        loaded(tmp_path / "a.txt", tokenizer=str(tmp_path / "broken.json"))


@pytest.mark.parametrize("split", [None, True])
def test_a_document_is_never_on_both_sides(split: bool | None, tmp_path: Path) -> None:
    rows = [{"text": f"{number:03d} {'abc' * 12}", "who": f"author-{number % 20}"} for number in range(120)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    found = loaded(tmp_path / "a.jsonl", author="who")
    federation = parse({"federation": {"parties": 2, "split_subjects": split}}).federation
    game = build(found, federation, np.random.default_rng(0))
    document = game.candidates.rows.attributes["document"]
    member = game.truth.mask(Role.MEMBER)
    assert not set(document[member]) & set(document[~member])
    authors = game.candidates.rows.subject
    assert authors is not None
    assert game.candidates.subject is not None
    assert set(authors) == {f"author-{number}" for number in range(20)}
    assert bool(set(authors[member]) & set(authors[~member])) == bool(split)


def test_too_few_documents_are_not_told_to_split_people_who_may_be_split_already(tmp_path: Path) -> None:
    rows = [{"text": f"{number:03d} {'abc' * 30}", "who": "author"} for number in range(2)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    federation = parse({"federation": {"parties": 3, "split_subjects": True}}).federation
    with pytest.raises(FedauditError, match=r"a document has one role") as caught:
        build(loaded(tmp_path / "a.jsonl", author="who"), federation, np.random.default_rng(0))
    assert "split_subjects" not in str(caught.value)


@pytest.mark.parametrize(("name", "content", "message"), [
    ("a.jsonl", '{"txt": "x"}', "has no 'text'.*Did you mean 'txt'"), ("a.jsonl", "[1]", "line 1 of .* is no JSON"),
    ("a.jsonl", '{"text": 3}', "'text' in line 1 .* is no text"), ("a.csv", "x", "is none of .txt, .jsonl"),
    ("a.txt", "", "no document has 2 tokens"), ("a.parquet", "x", "cannot be read"), ("a.arrow", "x", "cannot be read"),
])  # fmt: skip
def test_wrong_files_are_told(name: str, content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(FedauditError, match=message):
        loaded(tmp_path / name)


def test_what_is_missing_is_told(tmp_path: Path) -> None:
    with pytest.raises(FedauditError, match="there is no file or folder"):
        loaded(tmp_path / "nowhere")
    (tmp_path / "set" / "train").mkdir(parents=True)
    (tmp_path / "set/train/dataset_info.json").write_text("{}")
    with pytest.raises(FedauditError, match=r"holds no text.*Name one of its parts: train"):
        loaded(tmp_path / "set")
    pq.write_table(pa.table({"body": ["x"]}), tmp_path / "a.parquet")
    with pytest.raises(FedauditError, match="has no column 'text'"):
        loaded(tmp_path / "a.parquet")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    with pytest.raises(FedauditError, match="is not UTF-8"):
        loaded(tmp_path / "latin.txt")


def test_a_few_bytes_that_claim_millions_of_texts_are_refused(tmp_path: Path) -> None:
    texts = pa.DictionaryArray.from_arrays(pa.array(np.zeros(6_000_000, np.int32)), pa.array(["to be"]))
    pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet", compression="zstd")
    with pytest.raises(FedauditError, match="claims 6,000,000 rows"):
        loaded(tmp_path / "a.parquet", windows=1)
