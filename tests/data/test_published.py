"""Benchmarks as they are published: small files of each format, made here, and what is wrong with some of them."""

import contextlib
import gzip
import io
import json
import os
import pickle
import struct
import tarfile
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from fedaudit.config.registry import DATA
from fedaudit.config.schema import parse
from fedaudit.data import load, papers, published
from fedaudit.data.pickled import PickleRefused, plain_values
from fedaudit.data.published import ALIKE
from fedaudit.data.records import dataset
from fedaudit.errors import FedauditError
from fedaudit.learn.tasks import build_task
from fedaudit.session.prepare import build, stage
from fedaudit.types import Dataset
from tests.worlds import plays


def loaded(**data: Any) -> Dataset:
    return load(parse({"data": data}).data)


def archive(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as made:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            made.addfile(entry, io.BytesIO(content))
    return path


# ------------------------------------------------------------------ LEAF


def leaf(path: Path, users: dict[str, tuple[list[Any], list[Any]]]) -> Path:
    of = {user: {"x": x, "y": y} for user, (x, y) in users.items()}
    path.write_text(
        json.dumps({"users": list(of), "num_samples": [len(x) for x, _ in users.values()], "user_data": of})
    )
    return path


def test_femnist_is_pictures_of_writers(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    pixels = rng.random((5, 784)).round(3)
    (tmp_path / "train").mkdir()
    leaf(tmp_path / "train" / "a.json", {"f01": (pixels[:2].tolist(), [3, 7]), "f02": (pixels[2:4].tolist(), [7, 3])})
    leaf(tmp_path / "train" / "b.json", {"f03": (pixels[4:].tolist(), [3])})
    (tmp_path / "all_data").mkdir()
    leaf(tmp_path / "all_data" / "all.json", {"f01": (pixels[:2].tolist(), [3, 7])})  # the same records once more
    assert len(loaded(name="leaf", path=str(tmp_path)).records) == 5
    found = loaded(name="leaf", path=str(tmp_path / "train"))
    assert found.records.x.shape == (5, 1, 28, 28)
    assert sorted(map(str, found.records.subject)) == ["f01", "f01", "f02", "f02", "f03"]  # type: ignore[arg-type]
    assert found.values["label"] == ("3", "7")
    row = next(i for i in range(5) if np.allclose(found.records.x[i].ravel(), pixels[4], atol=1e-6))
    assert found.records.subject is not None
    assert found.records.subject[row] == "f03"


def test_shakespeare_of_leaf_keeps_windows_that_share_no_text(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    text = "".join(rng.choice(list("abcdefghijklmnopqrstuvw"), 120))

    def kept(path: Path, **said: list[int]) -> list[int]:
        """Where the windows of 30 characters start that are kept of these."""
        users = {
            who: ([text[i : i + 30] for i in starts], [text[i + 30] for i in starts]) for who, starts in said.items()
        }
        found = loaded(name="leaf", path=str(leaf(path, users)))
        assert np.array_equal(found.records.x[:, 1:], found.records.y[:, :-1])
        return sorted(text.index("".join(found.vocabulary[t] for t in row)) for row in found.records.x)

    path = tmp_path / "s.json"
    assert kept(path, ROMEO=[*range(90)]) == [0, 31, 62]
    assert kept(path, ROMEO=[0, 2, 3, 31, 33, 64]) == [0, 31, 64]  # as LEAF's sampling leaves them
    # Juliet's last window ends with character 61, and up to 15 may be shared with somebody else.
    assert kept(path, JULIET=[*range(40)], ROMEO=[*range(90)]) == [0, 31, 47, 78]


def test_windows_of_a_user_share_no_text_wherever_they_stand(tmp_path: Path) -> None:
    """In `train` and in `test`, with other users between them: fewer characters than two users may share."""
    rng = np.random.default_rng(0)
    text, other = ("".join(rng.choice(list("abcdefghijklmnopqrstuvw"), 120)) for _ in range(2))

    def windows(of: str, *starts: int) -> tuple[list[str], list[str]]:
        return [of[i : i + 30] for i in starts], [of[i + 30] for i in starts]

    for part, users in (
        ("train", {"ROMEO": windows(text, 0), "ZOE": windows(other, 0)}),
        # Abe's window is left out; that Romeo's goes on where it began says nothing of what Romeo's own share.
        ("test", {"ABE": windows(text, 15), "ROMEO": windows(text, 16, 21, 31, 53, 62), "ZOE": windows(other, 31)}),
    ):
        (tmp_path / part).mkdir()
        leaf(tmp_path / part / "a.json", users)
    found = loaded(name="leaf", path=str(tmp_path))
    said = ["".join(found.vocabulary[t] for t in row) for row in found.records.x]
    assert sorted(text.index(each) for each in said if each in text) == [0, 31, 62]
    assert sorted(other.index(each) for each in said if each in other) == [0, 31]


def test_windows_that_leaf_has_dealt_to_other_users_share_no_text(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    text = "".join(rng.choice(list("abcdefghij "), 2000))
    users: dict[str, tuple[list[Any], list[Any]]] = {f"{number:02}": ([], []) for number in range(20)}
    for start in rng.permutation(1900):
        x, y = users[f"{rng.integers(20):02}"]
        x.append(text[start : start + 80])
        y.append(text[start + 80])
    found = loaded(name="leaf", path=str(leaf(tmp_path / "s.json", users)))
    windows = ["".join(found.vocabulary[t] for t in row) for row in found.records.x]
    starts = sorted(text.index(window) for window in windows)
    assert len(windows) > 12
    assert min(np.diff(starts)) > 81 - ALIKE


def tweets(count: int) -> list[list[str]]:
    return [["1", "Mon", "NO_QUERY", "ann", f"word {i}", "training"] for i in range(count)]


@pytest.mark.parametrize(
    ("labels", "name"), [([0, 0.0, "0", "0.0"], "0"), ([-0.0, False, "-0", "00"], "0"), ([0.5, "0.50"] * 2, "0.5")]
)
def test_a_label_is_one_class_however_it_is_written(tmp_path: Path, labels: list[Any], name: str) -> None:
    found = loaded(name="leaf", path=str(leaf(tmp_path / "t.json", {"ann": (tweets(5), [*labels, 4])})))
    assert found.values["label"] == (name, "4")


@pytest.mark.parametrize(
    "labels",
    [
        [1000001, 1000002, 1.5, 1.50000001, "1_0", "10"],
        [2**60, 2**60 + 1, str(2**60 + 2), 10**400, 10**400 + 1, "1" + "0" * 399],
        ["1" * 5000, "1" * 5001, float("inf"), 1, 2, 3],
    ],
)
def test_labels_that_differ_are_different_classes(tmp_path: Path, labels: list[Any]) -> None:
    found = loaded(name="leaf", path=str(leaf(tmp_path / "t.json", {"ann": (tweets(6), labels)})))
    assert len(found.values["label"]) == 6


@pytest.mark.parametrize("where", ["user", "label", "text", "pixels"])
def test_half_a_character_is_refused(tmp_path: Path, where: str) -> None:
    half = "\ud800"
    user, label = half if where in ("user", "pixels") else "ann", half if where == "label" else 1
    x: list[Any] = [[0.5, 1.0]] * 2 if where == "pixels" else tweets(2)
    if where == "text":
        x[1][4] += half
    with pytest.raises(FedauditError, match="some of it is not valid text"):
        loaded(name="leaf", path=str(leaf(tmp_path / "a.json", {user: (x, [label, 0])})))


def test_labels_that_are_lists_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FedauditError, match="a label is a list"):
        loaded(name="leaf", path=str(leaf(tmp_path / "a.json", {"a": ([[0.5]] * 2, [[1], [2, 3]])})))


def test_records_of_different_length_are_refused(tmp_path: Path) -> None:
    for users in ({"a": ([[1.0], [1.0, 2.0]], [0, 1])}, {"a": ([[1.0]], [0]), "b": ([[1.0, 2.0]], [1])}):
        with pytest.raises(FedauditError, match="neither numbers of one length nor text"):
            loaded(name="leaf", path=str(leaf(tmp_path / "a.json", users)))


def test_a_folder_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [leaf(tmp_path / f"{n}.json", {f"u{n}": ([[1.0 * n]], [n])}).stat().st_size for n in range(2)]
    monkeypatch.setattr(published, "MAX_LEAF", sum(sizes))
    assert len(loaded(name="leaf", path=str(tmp_path)).records) == 2
    monkeypatch.setattr(published, "MAX_LEAF", sum(sizes) - 1)
    with pytest.raises(FedauditError, match=r"GiB, and at most .* are read\. Give some of its files"):
        loaded(name="leaf", path=str(tmp_path))


def test_femnist_as_published_is_within_the_limits() -> None:
    """805,263 pictures in 36 files. The longest number that JSON writes of a pixel is 0.00392156862745098."""
    picture = 784 * len("0.00392156862745098, ")
    assert 805_263 * picture < published.MAX_LEAF
    assert 805_263 * picture / 36 < published.MAX_JSON


class Watched(list[Any]):
    """A list that can be referred to weakly."""


def test_what_was_read_of_a_file_is_let_go_before_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's numbers take eight times what their array takes; and of the arrays there is one in the end."""
    for n in range(3):
        leaf(tmp_path / f"{n}.json", {f"u{n}{i}": ([[float(n), i], [i, -n]], [0, 1]) for i in range(4)})
    lists: list[weakref.ref[Any]] = []
    arrays: list[weakref.ref[Any]] = []
    alive = []

    def parsed(text: str) -> Any:
        alive.append(sum(each() is not None for each in lists))
        found = json.loads(text)
        for of in found["user_data"].values():
            of["x"] = Watched(of["x"])
            lists.append(weakref.ref(of["x"]))
        return found

    def compact(inputs: list[Any]) -> Any:
        made = np.array(inputs, np.float32)
        arrays.append(weakref.ref(made))
        return made

    def whole(*given: Any, **more: Any) -> Dataset:
        alive.append(sum(each() is not None for each in arrays))
        return dataset(*given, **more)

    monkeypatch.setattr(published, "json", SimpleNamespace(loads=parsed, dumps=json.dumps))
    monkeypatch.setattr(published, "_compact", compact)
    monkeypatch.setattr(published, "dataset", whole)
    assert len(loaded(name="leaf", path=str(tmp_path)).records) == 24
    assert len(lists) == len(arrays) == 12
    assert alive[:3] == [0, 0, 0]
    assert alive[3] <= 1  # the last


def test_tweets_become_words(tmp_path: Path) -> None:
    told = [["1", "Mon", "NO_QUERY", "ann", "Good good day", "training"], ["2", "Tue", "NO_QUERY", "ann", "Bad day!"]]
    path = leaf(tmp_path / "t.json", {"ann": (told, [1, 0]), "bob": ([told[0]], [1])})
    found = loaded(name="leaf", path=str(path))
    texts = {" ".join(found.vocabulary[t] for t in row if t) for row in found.records.x}
    assert texts == {"good good day", "bad day !"}
    assert found.records.y.shape == (3,)
    rare = loaded(name="leaf", path=str(path), words=2)
    assert {" ".join(rare.vocabulary[t] for t in row if t) for row in rare.records.x} == {"good good day", "? day ?"}


def test_a_model_of_labelled_texts_has_as_many_words_as_the_data(tmp_path: Path) -> None:
    told = [["1", "Mon", "q", "x", f"word{i % 7} and {i % 3}", "t"] for i in range(40)]
    path = leaf(tmp_path / "t.json", {f"u{i}": (told[4 * i : 4 * i + 4], [0, 1, 0, 1]) for i in range(10)})
    config = {"data": {"name": "leaf", "path": str(path)}, "model": {"name": "lstm-label", "units": 4}}
    staged = stage(parse(config | {"federation": {"parties": 2, "rounds": 2}}))
    embedding = build(staged).architecture.get_submodule("embedding")
    assert embedding.num_embeddings == len(staged.dataset.vocabulary) == 13


def test_celeba_finds_its_pictures(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    (tmp_path / "faces").mkdir()
    for i in range(4):
        image.new("RGB", (20, 24), (60 * i, 0, 0)).save(tmp_path / "faces" / f"{i}.jpg")
    path = leaf(tmp_path / "c.json", {"7": (["0.jpg", "1.jpg"], [0, 1]), "8": (["2.jpg", "3.jpg"], [1, 0])})
    found = loaded(name="leaf", path=str(path), images=str(tmp_path / "faces"), size=8)
    assert found.records.x.shape == (4, 3, 8, 8)
    assert found.records.subject is not None
    assert dict(zip(found.records.id, found.records.subject, strict=True)) == {
        "0.jpg": "7", "1.jpg": "7", "2.jpg": "8", "3.jpg": "8",
    }  # fmt: skip
    with pytest.raises(FedauditError, match="not where they are"):
        loaded(name="leaf", path=str(path))
    outside = leaf(tmp_path / "d.json", {"7": (["../0.jpg", "1.jpg"], [0, 1])})
    with pytest.raises(FedauditError, match="named with a folder"):
        loaded(name="leaf", path=str(outside), images=str(tmp_path / "faces"))


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[1]",
        '{"user_data": [1]}',
        '{"user_data": {"a": {"x": [1], "y": []}}}',
        '{"user_data": {"a": {"x": 1}}}',
        '{"user_data": "abc"}',
        '{"user_data": [["a", 1], [2, 3]]}',
    ],
)
def test_what_is_no_leaf_file_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(content)
    with pytest.raises(FedauditError, match=r"user_data|x than of y"):
        loaded(name="leaf", path=str(path))


# ------------------------------------------------------------------ Purchase100 and Texas100


def table() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    return rng.integers(0, 2, (12, 6)), np.arange(12) % 3


def test_npz_with_one_hot_labels(tmp_path: Path) -> None:
    x, y = table()
    np.savez(tmp_path / "p.npz", features=x, labels=np.eye(3)[y])
    found = loaded(name="purchase100", path=str(tmp_path / "p.npz"))
    assert (found.classes, found.records.x.shape) == (3, (12, 6))
    np.savez(tmp_path / "q.npz", features=x, labels=np.zeros((12, 3)))
    with pytest.raises(FedauditError, match="exactly one class"):
        loaded(name="purchase100", path=str(tmp_path / "q.npz"))


def test_the_original_archives(tmp_path: Path) -> None:
    x, y = table()
    rows = "\n".join(",".join(map(str, [label + 1, *row])) for label, row in zip(y, x, strict=True)) + "\n"
    purchase = archive(tmp_path / "dataset_purchase.tgz", {"dataset_purchase": rows.encode()})
    found = loaded(name="purchase100", path=str(purchase))
    assert found.values["label"] == ("1", "2", "3")
    assert sorted(map(tuple, found.records.x.astype(int).tolist())) == sorted(map(tuple, x.tolist()))
    feats = "\n".join(",".join(map(str, row)) for row in x) + "\n"
    labels = "\n".join(str(label + 1) for label in y) + "\n"
    files = {"texas/100/feats": feats.encode(), "texas/100/labels": labels.encode(), "texas/20/feats": b"x"}
    assert loaded(name="texas100", path=str(archive(tmp_path / "t.tgz", files))).classes == 3
    short = archive(tmp_path / "u.tgz", {**files, "texas/100/labels": b"1\n2\n"})
    with pytest.raises(FedauditError, match="more features than labels"):
        loaded(name="texas100", path=str(short))
    for name, content in (("v.tgz", {"other": b""}), ("w.tgz", {"dataset_purchase": b"1,2\n1,a\n"})):
        with pytest.raises(FedauditError, match=r"not in it|other cells"):
            loaded(name="purchase100", path=str(archive(tmp_path / name, content)))
    damaged = tmp_path / "x.tgz"
    damaged.write_bytes(gzip.compress(b"no archive"))
    with pytest.raises(FedauditError, match="cannot be read as a tar"):
        loaded(name="purchase100", path=str(damaged))


@pytest.mark.parametrize(
    "content",
    [  # protocol 2, without its head
        b"}(N" + b"\x85" * 100_000 + b"NtN.",  # a key that is tuples within tuples: to hash it would end the process
        b"}N" + b"\x85" * 100_000 + b"Ns.",
        b"N" + b"2\x86" * 60 + b"2\x93.",  # a name of doubled tuples, which nothing could write down
        b"}(X\x04\x00\x00\x00data](" + b"N" + b"2\x86" * 40 + b"eu.",  # data that are no array
    ],
)
def test_pickles_that_would_take_all_memory_are_refused(content: bytes) -> None:
    with pytest.raises(FedauditError, match="is no batch of the Python version"):
        papers._from_pickle("cifar10", "data_batch_1", b"\x80\x02" + content)


@pytest.mark.parametrize(
    ("name", "file"), [("purchase100", "dataset_purchase"), ("cifar10", "cifar-10-batches-bin/data_batch_1.bin")]
)
def test_an_archive_with_a_byte_changed_is_read_or_refused(name: str, file: str, tmp_path: Path) -> None:
    content = np.random.default_rng(0).integers(48, 58, 4 * 3073, dtype=np.uint8).tobytes()
    whole = archive(tmp_path / "whole.tgz", {file: content}).read_bytes()
    damaged = tmp_path / "damaged.tgz"
    for place in range(0, len(whole), max(1, len(whole) // 60)):
        damaged.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        with contextlib.suppress(FedauditError):
            loaded(name=name, path=str(damaged))


# ------------------------------------------------------------------ CIFAR in its Python version


def batch_of_python_2(x: np.ndarray, labels: list[int], key: bytes) -> bytes:
    """The instructions that Python 2 wrote, with texts as bytes."""

    def text(value: bytes) -> bytes:
        return b"T" + struct.pack("<i", len(value)) + value

    shape = b"J" + struct.pack("<i", x.shape[0]) + b"J" + struct.pack("<i", x.shape[1]) + b"\x86"
    kind = b"cnumpy\ndtype\n" + text(b"u1") + b"K\x00K\x01\x87R"
    kind += b"(K\x03" + text(b"|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\n" + b"cnumpy\nndarray\n" + b"K\x00\x85" + text(b"b") + b"\x87R"
    array += b"(K\x01" + shape + kind + b"\x89" + text(x.tobytes()) + b"tb"
    numbers = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    return b"\x80\x02}(" + text(b"data") + array + text(key) + numbers + b"u."


def cifar_batches(names: list[str], key: bytes) -> dict[str, bytes]:
    rng = np.random.default_rng(2)
    batches = {}
    for name in names:
        x = rng.integers(0, 256, (4, 3072)).astype(np.uint8)
        batches[f"cifar-python/{name}"] = batch_of_python_2(x, [0, 1, 2, 3], key)
    return batches


def test_the_python_version_of_cifar_is_read_and_not_run(tmp_path: Path) -> None:
    ten = cifar_batches([*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"], b"labels")
    found = loaded(name="cifar10", path=str(archive(tmp_path / "ten.tar.gz", ten)))
    assert (found.records.x.shape, found.classes) == ((24, 3, 32, 32), 4)
    first = np.frombuffer(ten["cifar-python/test_batch"], np.uint8)  # the pixels stand in it as they are
    assert any(one.tobytes() in first.tobytes() for one in (found.records.x * 255).round().astype(np.uint8))
    hundred = cifar_batches(["train", "test"], b"fine_labels")
    assert len(loaded(name="cifar100", path=str(archive(tmp_path / "hundred.tar.gz", hundred))).records) == 8
    (tmp_path / "folder").mkdir()
    for name, content in hundred.items():
        (tmp_path / "folder" / Path(name).name).write_bytes(content)
    assert len(loaded(name="cifar100", path=str(tmp_path / "folder")).records) == 8
    coarse = cifar_batches(["train", "test"], b"coarse_labels")
    with pytest.raises(FedauditError, match="missing"):
        loaded(name="cifar100", path=str(archive(tmp_path / "coarse.tar.gz", coarse)))


class Evil:
    def __init__(self, marker: Path):
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.marker}",)


@pytest.mark.parametrize("protocol", range(6))
def test_nothing_in_a_pickle_is_run(tmp_path: Path, protocol: int) -> None:
    marker = tmp_path / "run"
    for value in (Evil(marker), {"data": Evil(marker)}, np.array([Evil(marker)], dtype=object)):
        with pytest.raises(PickleRefused):
            plain_values(pickle.dumps(value, protocol=protocol))
    assert not marker.exists()


def test_plain_values_come_back_as_they_were() -> None:
    rng = np.random.default_rng(0)
    value: dict[str, Any] = {"a": [1, -2.5, None, True, "text"], "b": (rng.random((3, 4)), b"bytes"), "c": {"d": []}}
    value["e"] = np.asfortranarray(rng.integers(0, 9, (2, 5))).astype(">i4")
    for protocol in (3, 4):
        found = plain_values(pickle.dumps(value, protocol=protocol))
        assert found["a"] == value["a"]
        assert found["c"] == value["c"]
        assert np.array_equal(found["b"][0], value["b"][0])
        assert found["b"][1] == b"bytes"
        assert np.array_equal(found["e"], value["e"])


def test_a_pickle_that_unfolds_without_end_is_small_or_refused() -> None:
    """Thirty lists, each of which holds the one before it twice; and one that holds itself."""
    lists: Any = []
    for _ in range(60):
        lists = [lists, lists]
    assert len(plain_values(pickle.dumps(lists, protocol=4))) == 2
    itself: list[Any] = []
    itself.append(itself)
    assert plain_values(pickle.dumps(itself, protocol=4)) == [None]
    huge = pickle.dumps(np.ones(3), protocol=3).replace(b"K\x03\x85", b"\x8a\x0a" + b"\xff" * 9 + b"\x7f\x85")
    for cut in (b"", huge, b"\x80\x04", pickle.dumps({"a": np.ones(9)}, protocol=3)[:-7], b"\x80\x04]r.", b"e."):
        with pytest.raises(PickleRefused):
            plain_values(cut)


# ------------------------------------------------------------------ what every data set takes


def test_a_limit_draws_the_same_records_every_time() -> None:
    whole, some = loaded(name="breast-cancer"), loaded(name="breast-cancer", limit=100)
    assert len(some.records) == 100
    assert set(some.records.id) < set(whole.records.id)
    assert np.array_equal(some.records.id, loaded(name="breast-cancer", limit=100).records.id)
    assert len(loaded(name="breast-cancer", limit=10_000).records) == 569


def test_classes_are_balanced() -> None:
    whole, even = loaded(name="breast-cancer"), loaded(name="breast-cancer", balance=True)
    fewest = int(np.bincount(whole.records.y).min())
    assert np.bincount(even.records.y).tolist() == [fewest, fewest]
    with pytest.raises(FedauditError, match="no class each"):
        loaded(name="diabetes", balance=True)


@pytest.mark.parametrize(("limit", "each"), [(100, 50), (101, 50), (1000, 212)])
def test_classes_are_balanced_below_a_limit(limit: int, each: int) -> None:
    """212 of the 569 samples are malignant."""
    found = loaded(name="breast-cancer", balance=True, limit=limit)
    assert np.bincount(found.records.y).tolist() == [each, each]


def test_a_limit_below_the_number_of_classes_is_refused() -> None:
    with pytest.raises(FedauditError, match="each of 10 classes"):
        loaded(name="digits", balance=True, limit=9)


def test_features_are_standardised(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "a.npz", x=rng.normal(5, 3, (40, 2)), y=np.arange(40) % 2)
    found = loaded(name="npz", path=str(tmp_path / "a.npz"), standardise=True).records.x
    assert found.mean(axis=0) == pytest.approx([0, 0], abs=1e-6)
    assert found.std(axis=0) == pytest.approx([1, 1], abs=1e-6)
    np.savez(tmp_path / "t.npz", x=rng.integers(0, 4, (40, 2)), y=rng.integers(0, 4, (40, 2)))
    with pytest.raises(FedauditError, match="characters or words"):
        loaded(name="npz", path=str(tmp_path / "t.npz"), tokens=True, standardise=True)


NEEDED = {"path": "a.file", "label": "y"}  # what some cannot do without; nothing is read here


@pytest.mark.parametrize("name", [name for name in DATA.entries if name != DATA.stand_in])
@pytest.mark.parametrize("key", [{"limit": 10}, {"balance": True}, {"standardise": True}])
def test_every_data_set_takes_the_keys_of_all(name: str, key: dict[str, Any]) -> None:
    needs = {each: NEEDED[each] for each, info in DATA.entries[name].keys.items() if info.is_required()}
    assert key.items() <= parse({"data": {"name": name, **needs, **key}}).data.arguments().items()


def with_tokens(name: str, folder: Path) -> dict[str, Any]:
    """[data] of a small file that holds characters or words."""
    if name == "npz":
        tokens = np.random.default_rng(0).integers(0, 4, (40, 2))
        np.savez(folder / "a.npz", x=tokens, y=tokens)
        return {"path": str(folder / "a.npz"), "tokens": True}
    if name == "text":
        (folder / "a.txt").write_text("\n\n".join(f"what person {n} says, at length" for n in range(40)))
        return {"path": str(folder / "a.txt"), "length": 8}
    if name == "shakespeare":
        return {"path": str(plays(folder / "a.json")), "length": 8}
    users = {f"u{n}": ([["1", "Mon", "q", "me", f"good day {n}", "t"]], [n % 2]) for n in range(40)}
    return {"path": str(leaf(folder / "a.json", users))}


@pytest.mark.parametrize(("name", "classes"), [("text", False), ("shakespeare", False), ("npz", False), ("leaf", True)])
def test_records_of_tokens_are_limited_and_not_standardised(name: str, classes: bool, tmp_path: Path) -> None:
    given = {"name": name, **with_tokens(name, tmp_path)}
    whole, some = loaded(**given), loaded(**given, limit=7)
    assert len(some.records) == 7
    assert set(some.records.id) < set(whole.records.id)
    assert some.vocabulary == whole.vocabulary
    with pytest.raises(FedauditError, match="standardise is set, and the records hold characters or words by number"):
        loaded(**given, standardise=True)
    if classes:
        assert np.bincount(loaded(**given, limit=12, balance=True).records.y).tolist() == [6, 6]
    else:
        with pytest.raises(FedauditError, match="no class each"):
            loaded(**given, balance=True)


def test_a_table_without_a_header(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [f"{a:.3f},{b:.3f},{i % 2}" for i, (a, b) in enumerate(rng.random((30, 2)))]
    (tmp_path / "a.csv").write_text("\n".join(rows) + "\n")
    found = loaded(name="table", path=str(tmp_path / "a.csv"), label="column-3", header=False)
    assert found.records.x.shape == (30, 2)
    assert np.bincount(found.records.y).tolist() == [15, 15]
    with pytest.raises(FedauditError, match=r"write data\.header = false"):
        loaded(name="table", path=str(tmp_path / "a.csv"), label="column-3")


def test_digits_are_pictures_for_a_cnn_if_asked() -> None:
    pictures, rows = loaded(name="digits", pictures=True).records.x, loaded(name="digits").records.x
    assert (pictures.shape, rows.shape) == ((1797, 1, 8, 8), (1797, 64))
    task = build_task("cnn", pictures.shape[1:], 10, {})
    assert task.fresh(task.initial(0))(torch.from_numpy(pictures[:2])).shape == (2, 10)
    with pytest.raises(FedauditError, match=r"data\.pictures = true"):
        build_task("cnn", rows.shape[1:], 10, {})
