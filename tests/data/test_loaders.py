"""Data sets by name: what comes out of bundled and of original files, and what is refused unread."""

import io
import os
import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedaudit.config.registry import Options
from fedaudit.data import load, papers
from fedaudit.data.npz import NpzOptions
from fedaudit.data.papers import CifarOptions
from fedaudit.errors import FedauditError
from fedaudit.session.prepare import prepare
from fedaudit.words import all_words
from tests.worlds import config, watch

SHARED = Path(os.environ.get("FEDAUDIT_SHARED", Path(__file__).resolve().parents[3] / "shared/data"))


def shared(file: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(not (SHARED / file).is_file(), reason=f"{file} is not on this machine")


# ------------------------------------------------------------------ bundled


def test_breast_cancer() -> None:
    found = load(Options(name="breast-cancer"))
    records = found.records
    assert (records.x.shape, found.classes) == ((569, 30), 2)
    assert records.x.mean(axis=0) == pytest.approx(np.zeros(30), abs=1e-5)
    assert records.x.std(axis=0) == pytest.approx(np.ones(30), abs=1e-4)
    area, large = records.x[:, 3], records.attributes["area"] == 1
    assert area[large].min() > area[~large].max()
    # k-means: the border lies half-way between the two means
    border = (area[large].mean() + area[~large].mean()) / 2
    assert area[~large].max() <= border <= area[large].min()


def test_diabetes_is_a_regression() -> None:
    found = load(Options(name="diabetes"))
    assert (found.records.x.shape, found.classes) == ((442, 10), 0)
    assert found.records.y.dtype == np.float32
    assert found.records.y.std() == pytest.approx(1, abs=1e-5)
    assert np.bincount(found.records.attributes["sex"]).tolist() == [235, 207]


def test_a_regression_is_audited_by_loss_and_gradients_alone() -> None:
    keys: dict[str, Any] = {"data": {"name": "diabetes"}, "federation": {"rounds": 3, "lr": 1e-2}}
    prepared = prepare(config(**keys))
    audit = watch(prepared)
    run = {result.attack for result in audit.results}
    assert {"loss", "fta-loss", "fed-loss", "gradient-norm", "back-front-ratio"} <= run
    assert not run & {"fta-confidence", "fta-logit", "modified-entropy"}
    (notice,) = [notice for notice in all_words(audit.notices) if "regression" in notice]
    assert "fta-confidence, fta-logit, modified-entropy" in notice
    assert audit.accuracy == {}
    with pytest.raises(FedauditError, match=r"'fta-logit' cannot be run.*regression"):
        prepare(config(**keys, audit={"attacks": ["loss", "fta-logit"]}))


def test_a_regression_of_ones_own_is_audited(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(600, 6))
    np.savez(tmp_path / "mine.npz", x=x, y=2 * x[:, 0] + x[:, 1] ** 2)
    keys = {"name": "npz", "path": tmp_path / "mine.npz", "task": "regression"}
    audit = watch(prepare(config(data=keys, federation={"rounds": 3, "lr": 1e-2})))
    assert {"loss", "fta-loss", "gradient-norm"} <= {result.attack for result in audit.results}
    assert audit.failed == {}


# ------------------------------------------------------------------ CIFAR


def binary(labels: int, n: int, seed: int) -> tuple[bytes, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    marks = rng.integers(0, 5, (n, labels), dtype=np.uint8)
    pixels = rng.integers(0, 256, (n, 3 * 32 * 32), dtype=np.uint8)
    return np.concatenate([marks, pixels], axis=1).tobytes(), pixels.reshape(n, 3, 32, 32), marks[:, -1]


def archive(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(f"cifar/{name}")
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return path


@pytest.mark.parametrize(
    ("name", "labels", "files"),
    [
        ("cifar10", 1, [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]),
        ("cifar100", 2, ["train.bin", "test.bin"]),
    ],
)
def test_cifar_from_archive_folder_and_npz_is_the_same(
    name: str, labels: int, files: list[str], tmp_path: Path
) -> None:
    made = [binary(labels, 12, seed) for seed in range(len(files))]
    contents = {file: content for file, (content, _, _) in zip(files, made, strict=True)}
    packed = load(CifarOptions(name=name, path=archive(tmp_path / "a.tar.gz", contents | {"batches.meta.txt": b"cat"})))
    for file, content in contents.items():
        (tmp_path / file).write_bytes(content)
    unpacked = load(CifarOptions(name=name, path=tmp_path))
    x, y = np.concatenate([x for _, x, _ in made]).transpose(0, 2, 3, 1), np.concatenate([y for _, _, y in made])
    np.savez(tmp_path / "c.npz", x_train=x[:20], y_train=y[:20], x_test=x[20:], y_test=y[20:])
    stored = load(CifarOptions(name=name, path=tmp_path / "c.npz"))
    for found in (packed, unpacked, stored):
        assert found.input_shape == (3, 32, 32)
        assert np.array_equal(found.records.x, packed.records.x)
        assert np.array_equal(found.records.y, packed.records.y)
        assert len(found.records) == 12 * len(files)
    assert packed.records.x.min() == 0.0
    assert packed.records.x.max() == 1.0


class Bomb:
    def __reduce__(self) -> Any:
        return exec, ("raise SystemExit('unpickled')",)


def test_B17_nothing_in_the_pickled_version_of_cifar_is_run(tmp_path: Path) -> None:
    files = {"meta": b"", "train": pickle.dumps(Bomb()), "test": pickle.dumps(Bomb())}
    path = archive(tmp_path / "cifar-100-python.tar.gz", files)
    with pytest.raises(FedauditError, match="the instruction STACK_GLOBAL") as caught:
        load(CifarOptions(name="cifar100", path=path))
    assert (caught.value.code, caught.value.exit_code) == ("cifar-pickled", 5)


@pytest.mark.parametrize(
    ("files", "code"),
    [
        ({"train.bin": b"x" * 3074}, "cifar-files"),
        ({"train.bin": b"x" * 3000, "test.bin": b"x" * 3074}, "cifar-size"),
        ({f"{i}.txt": b"" for i in range(1001)}, "cifar-archive"),
        ({"huge.bin": b"0" * 21 * 3200}, "cifar-archive"),
    ],
)
def test_B17_other_archives_are_refused(
    files: dict[str, bytes], code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(papers, "MAX_RECORDS", 20)
    with pytest.raises(FedauditError) as caught:
        load(CifarOptions(name="cifar100", path=archive(tmp_path / "a.tar.gz", files)))
    assert caught.value.code == code


def test_cifar_needs_a_path_and_an_archive(tmp_path: Path) -> None:
    with pytest.raises(FedauditError, match=r"needs data\.path"):
        load(CifarOptions(name="cifar10"))
    (tmp_path / "a.tar.gz").write_bytes(b"no archive")
    with pytest.raises(FedauditError, match="cannot be read as a tar archive"):
        load(CifarOptions(name="cifar10", path=tmp_path / "a.tar.gz"))


# ------------------------------------------------------------------ one's own file


def test_npz_packed_bits_become_features(tmp_path: Path) -> None:
    bits = np.random.default_rng(0).integers(0, 2, (40, 13), dtype=np.uint8)
    path = tmp_path / "bits.npz"
    np.savez(path, bits=np.packbits(bits, axis=1), n_features=13, y=np.arange(40) % 3, id=np.arange(40))
    found = load(NpzOptions(name="npz", path=path, x_key="bits")).records
    assert np.array_equal(found.x[np.argsort(found.id.astype(int))], bits)


@pytest.mark.parametrize("shape", [(9, 8, 3), (8, 9), (3, 8, 9)])
def test_npz_pictures_become_channels_first_from_0_to_1(shape: tuple[int, ...], tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(0, 256, (20, *shape), dtype=np.uint8)
    np.savez(tmp_path / "a.npz", x_train=x, y_train=np.arange(20) % 2)
    records = load(NpzOptions(name="npz", path=tmp_path / "a.npz", x_key="x_train", y_key="y_train")).records
    assert records.x.shape[1:] == {(9, 8, 3): (3, 9, 8), (8, 9): (1, 8, 9), (3, 8, 9): (3, 8, 9)}[shape]
    assert np.sort(records.x.ravel()) == pytest.approx(np.sort(x.ravel()) / 255, abs=1e-6)


def test_npz_several_attributes(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.eye(9), y=np.arange(9) % 2, people=np.arange(18).reshape(9, 2), id=np.arange(9))
    found = load(NpzOptions(name="npz", path=tmp_path / "a.npz", attribute_key="people")).records.attributes
    assert {name: values.tolist() for name, values in found.items()} == {
        "people.0": list(range(0, 18, 2)),
        "people.1": list(range(1, 18, 2)),
    }


def test_npz_a_renamed_key_that_is_missing_is_an_error(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.eye(9), y=np.arange(9) % 2, writer=np.arange(9))
    with pytest.raises(FedauditError, match="Did you mean 'writer'"):
        load(NpzOptions(name="npz", path=tmp_path / "a.npz", subject_key="writr"))


@shared("basket100.npz")
def test_shared_baskets() -> None:
    keys = {"x_key": "bits", "subject_key": "household", "attribute_key": "demographics"}
    found = load(NpzOptions(name="npz", path=SHARED / "basket100.npz", **keys))
    assert (found.records.x.shape, found.classes, len(found.records.attributes)) == ((20504, 600), 100, 7)
    assert found.records.x.sum(axis=1).min() == 10
