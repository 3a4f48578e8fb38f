"""Synthetic federations: each property that the paper names, on small ones."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedaudit.config.schema import load_config, parse
from fedaudit.data import load
from fedaudit.data.synthetic import NOBODY, USER, Atoms, Gaussian, dealt, near, separated, xor_of_signs
from fedaudit.errors import FedauditError
from fedaudit.types import Dataset

EXAMPLES = Path(__file__).parents[2] / "examples"


def made(**keys: Any) -> Dataset:
    small = {"name": "synthetic", "dimensions": 3, "users": 4, "subjects_per_user": 3, "items_per_user": 61}
    return load(parse({"data": small | keys}).data)


def test_the_label_is_the_xor_of_the_signs() -> None:
    x = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 0.0], [-1.0, -1.0]])
    assert xor_of_signs(x).tolist() == [0, 1, 1, 0]
    found = made(dimensions=5).records
    slow = [int(np.logical_xor.reduce(row >= 0)) for row in found.x]
    assert found.y.tolist() == slow


@pytest.mark.parametrize(("count", "dimensions"), [(300, 2), (40, 1), (200, 12), (60, 1000)])
def test_means_are_apart(count: int, dimensions: int) -> None:
    means = separated(count, dimensions, 0.35, np.random.default_rng(0))
    distance = np.linalg.norm(means[:, None] - means[None], axis=2) + 9 * np.eye(count)
    assert means.shape == (count, dimensions)
    assert distance.min() >= 0.35


def test_neighbours_are_those_of_all_features() -> None:
    rng = np.random.default_rng(1)
    points = rng.uniform(-0.3, 0.3, (60, 12))
    distance = np.linalg.norm(points[:, None] - points[None], axis=2)
    slow = {(i, j) for i in range(60) for j in range(i + 1, 60) if distance[i, j] < 0.7}
    assert {tuple(sorted(pair)) for pair in near(points, 0.7).tolist()} == slow
    assert slow


def test_every_parameter_of_the_federation_is_met() -> None:
    found = made(users=6, subjects_per_user=4, items_per_user=50, subjects=30, attack_items=7).records
    assert found.subject is not None
    held = found.attributes[USER]
    assert [int((held == user).sum()) for user in range(6)] == [50] * 6
    assert len(np.unique(found.subject)) == 30
    own = found.subject[held == NOBODY]
    assert set(np.unique(own, return_counts=True)[1].tolist()) == {7}  # members and non-members alike
    drawn = [set(found.subject[held == user].tolist()) for user in range(6)]
    assert all(1 <= len(names) <= 4 for names in drawn)
    assert len(set.union(*drawn)) <= 15  # half of the subjects may take part
    assert sum(map(len, drawn)) > len(set.union(*drawn))  # with replacement: users share subjects


def test_draws_are_with_replacement_and_dealt_evenly() -> None:
    options: Any = parse({
        "data": {"name": "synthetic", "users": 50, "subjects_per_user": 3, "items_per_user": 62, "subjects": 8}
    }).data  # fmt: skip
    held = dealt(options, np.random.default_rng(0))
    assert (held.sum(axis=1) == 62).all()
    assert {21, 20, 41, 42, 62} >= set(held[held > 0].tolist()) >= {20, 41}


def test_a_subject_is_a_gaussian_of_its_own() -> None:
    rng = np.random.default_rng(0)
    one = Gaussian.around(np.array([1.0, -2.0, 0.5]), rng)
    drawn = one.draw(200_000, rng)
    assert drawn.mean(axis=0) == pytest.approx([1.0, -2.0, 0.5], abs=0.02)
    expected = np.diag(one.scale**2) + one.factor @ one.factor.T
    assert np.cov(drawn.T) == pytest.approx(expected, abs=0.02)
    assert not np.allclose(one.factor, Gaussian.around(one.mean, rng).factor)


def test_a_dirichlet_process_has_the_moments_that_it_must() -> None:
    """Two draws from one realisation are the same row with probability 1 / (1 + alpha)."""
    rng = np.random.default_rng(0)
    base = Gaussian.around(np.zeros(1), rng)
    for alpha in (0.5, 1.0, 4.0):
        same = [len(np.unique(Atoms.of(base, alpha, rng).draw(2, rng))) == 1 for _ in range(6000)]
        assert np.mean(same) == pytest.approx(1 / (1 + alpha), abs=0.025)


@pytest.mark.parametrize(("sampling", "atoms", "repeated"), [
    ("normal", None, 0.0), ("dirichlet", "shared", 1.0), ("dirichlet", "new", 0.0)
])  # fmt: skip
def test_whether_the_attacker_has_the_rows_that_were_held(sampling: str, atoms: str | None, repeated: float) -> None:
    keys = {"atoms": atoms} if atoms else {}
    found = made(sampling=sampling, items_per_user=900, **keys).records
    assert found.subject is not None
    held = found.attributes[USER] != NOBODY
    rows = {row.tobytes() for row in found.x[held]}
    member = np.isin(found.subject, found.subject[held])
    again = [row.tobytes() in rows for row in found.x[~held & member]]
    assert np.mean(again) == pytest.approx(repeated, abs=0.02)
    distinct = len(rows) / int(held.sum())
    assert (distinct == 1.0) == (sampling == "normal")
    assert distinct == 1.0 or distinct < 0.1


def test_a_subject_does_not_depend_on_how_many_users_there_are() -> None:
    few, many = (made(subjects=40, users=users).records for users in (2, 9))
    assert few.subject is not None
    assert many.subject is not None
    for name in np.unique(few.subject)[:5]:
        centres = [
            found.x[(found.subject == name) & (found.attributes[USER] == NOBODY)].mean(axis=0) for found in (few, many)
        ]
        assert centres[0] == pytest.approx(centres[1], abs=0.6)


def test_the_seed_decides() -> None:
    assert np.array_equal(made().records.x, made().records.x)
    assert not np.array_equal(made().records.x, made(data_seed=1).records.x)


@pytest.mark.parametrize(("keys", "message"), [
    ({"atoms": "new"}, "belong to sampling = 'dirichlet'"),
    ({"items_per_user": 2}, "at least subjects_per_user"),
    ({"dimension": 2}, "Did you mean 'dimensions'"),
    ({"separation": float("nan")}, "separation"),
])  # fmt: skip
def test_wrong_parameters_are_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(FedauditError, match=message):
        made(**keys)


@pytest.mark.parametrize("which", list("ABCDEF"))
def test_the_configurations_of_the_paper_are_read(which: str) -> None:
    """Table IV: dimensions, sampling, subjects a user, users; 10,000 items each. The data are not made: D and E hold a
    million records."""
    config = load_config(EXAMPLES / f"subjects-{which}.toml").decided()
    options: Any = config.data
    table = {
        "A": (1000, "dirichlet", (256, 64, 16, 4), 10, 10),
        "B": (1000, "dirichlet", (128, 32, 8), 10, 10),
        "C": (1000, "normal", (8,), 10, 10),
        "D": (1000, "normal", (2,), 500, 100),
        "E": (2, "normal", (128, 32, 8), 100, 100),
        "F": (2, "normal", (2,), 10, 10),
    }
    hidden = config.model.arguments()["hidden"]
    found = options.dimensions, options.sampling, hidden, options.subjects_per_user, options.users
    assert found == table[which]
    assert options.items_per_user == 10_000
    assert config.federation.parties == options.users
    assert config.audit.unit == "subject"
