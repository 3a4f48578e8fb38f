"""Synthetic federations: people who are distributions, and users of a federation who hold samples of them.

Suri, Kanani, Marathe, Peterson: "Subject Membership Inference Attacks in Federated Learning", 2022/23, section VI-A.

1. A subject is a Gaussian with a mean and a covariance of its own. No two means are nearer than `separation`.
2. Half of the subjects may take part. Every user draws `subjects_per_user` of these, with replacement, so that users
   share subjects. Who is drawn by nobody is a non-member, like the other half.
3. Every user holds `items_per_user` records, the same number of each subject that it drew (of one drawn twice, twice as
   many). A subject's records are drawn from its Gaussian (`sampling = "normal"`: no two are alike), or from one
   realisation of a Dirichlet process with that Gaussian as its base (`"dirichlet"`: a few rows, repeated).
4. The label is the XOR of the signs of all features.
5. Whoever attacks has `attack_items` other records of each subject, which no user holds. Under Dirichlet sampling they
   repeat the rows that users hold (`atoms = "shared"`), or come from another realisation of the subject's process
   (`atoms = "new"`). Little is left of the risk in the second case, so the choice is named.

What the paper leaves open: means are uniform in a box that is just large enough for their separation; a covariance is a
random diagonal plus a random matrix of rank 8 at most, so that a thousand dimensions need no thousand squares; how many
subjects there are in all (`subjects`).
"""

from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from fedaudit.config.registry import DATA, DataOptions
from fedaudit.config.section import Count, Positive
from fedaudit.data.records import dataset
from fedaudit.errors import FedauditError
from fedaudit.types import Dataset, Floats, Ints

USER = "user"  # the attribute that says which user holds a record
NOBODY = -1
RANK = 8
FILLED = 0.2  # how much of the box the balls around the means may fill: random placement jams at a half in the plane
TRIES = 1000
FIRST = 8  # features by which neighbours are looked for: who is near in all is near in these


class SyntheticOptions(DataOptions):
    sampling: Literal["normal", "dirichlet"] = Field(
        "normal", description="a subject's records: all different, or a few rows repeated (a Dirichlet process)"
    )
    dimensions: Count = Field(50, description="features of a record")
    users: Count = Field(10, description="users of the federation; federation.parties must be the same")
    subjects_per_user: Count = Field(10, description="how many times a user draws a subject, with replacement")
    items_per_user: Count = Field(500, description="records that a user holds")
    subjects: Annotated[int, Field(ge=4)] | None = Field(
        None, description="how many subjects there are; half of them may be drawn; not set: four for each draw"
    )
    separation: Positive = Field(0.35, description="the least distance between the means of two subjects")
    alpha: Positive | None = Field(None, description="dirichlet: how readily a new row is drawn; not set: 1")
    atoms: Literal["shared", "new"] | None = Field(
        None, description="dirichlet: the attacker's rows repeat those of the users (not set), or are drawn anew"
    )
    attack_items: Count = Field(100, description="records of each subject that the attacker has")
    data_seed: Annotated[int, Field(ge=0, lt=2**63)] = Field(0, description="determines the data")

    @model_validator(mode="after")
    def _fits_together(self) -> "SyntheticOptions":
        if self.sampling == "normal" and (self.alpha or self.atoms):
            raise ValueError("alpha and atoms belong to sampling = 'dirichlet': set that, or remove them")
        if self.items_per_user < self.subjects_per_user:
            raise ValueError("items_per_user must be at least subjects_per_user: one record for each draw")
        return self

    @property
    def total(self) -> int:
        return self.subjects or 4 * self.users * self.subjects_per_user


@DATA.register(
    "synthetic",
    "a synthetic federation: users hold samples of subjects, who are Gaussians (sampling, dimensions, users, ...)",
    SyntheticOptions,
)
def load(options: SyntheticOptions) -> Dataset:
    rng = np.random.default_rng([options.data_seed, 0])
    means = separated(options.total, options.dimensions, options.separation, rng)
    held = dealt(options, rng)
    digits = len(str(options.total - 1))
    x, subject, user = [], [], []
    for number, mean in enumerate(means):
        own = np.random.default_rng([options.data_seed, 1, number])  # a subject is the same whatever the others are
        whole, attacked = _sources(Gaussian.around(mean, own), options, own)
        users = np.repeat(np.arange(options.users), held[:, number])
        x += [whole.draw(len(users), own), attacked.draw(options.attack_items, own)]
        user += [users, np.full(options.attack_items, NOBODY)]
        subject += [f"subject-{number:0{digits}d}"] * (len(users) + options.attack_items)
    rows = np.concatenate(x).astype(np.float32)
    ids = [f"{name}/{place}" for place, name in enumerate(subject)]
    holder = {USER: np.concatenate(user).astype(np.int64)}
    names = np.array(subject)
    found = dataset(options.name, rows, xor_of_signs(rows), id=np.array(ids), subject=names, attributes=holder)
    return replace(found, holder=USER)


def xor_of_signs(x: NDArray[Any]) -> Ints:
    """1 where an odd number of features is not negative."""
    return np.asarray(np.count_nonzero(x >= 0, axis=1) % 2, np.int64)


def dealt(options: SyntheticOptions, rng: np.random.Generator) -> Ints:
    """users x subjects: how many records of a subject a user holds."""
    may_take_part = rng.permutation(options.total)[: options.total // 2]
    held = np.zeros((options.users, options.total), np.int64)
    for user in range(options.users):
        drawn = rng.choice(may_take_part, options.subjects_per_user)
        share, rest = divmod(options.items_per_user, options.subjects_per_user)
        np.add.at(held[user], drawn, share + (np.arange(len(drawn)) < rest))
    return held


# ------------------------------------------------------------------ where a subject's records come from


class Distribution(Protocol):
    def draw(self, n: int, rng: np.random.Generator) -> Floats: ...


@dataclass(frozen=True)
class Gaussian:
    """mean + scale * z + factor @ w with z, w standard normal: covariance diag(scale^2) + factor factor'."""

    mean: Floats
    scale: Floats
    factor: Floats

    @classmethod
    def around(cls, mean: Floats, rng: np.random.Generator) -> "Gaussian":
        rank = min(RANK, len(mean))
        scale = np.sqrt(rng.uniform(0.1, 0.5, len(mean)))
        return cls(mean, scale, rng.normal(0, np.sqrt(0.25 / rank), (len(mean), rank)))

    def draw(self, n: int, rng: np.random.Generator) -> Floats:
        alone = self.scale * rng.standard_normal((n, len(self.mean)))
        return self.mean + alone + rng.standard_normal((n, self.factor.shape[1])) @ self.factor.T


@dataclass(frozen=True)
class Atoms:
    """One realisation of a Dirichlet process: rows, and how probable each is."""

    rows: Floats
    share: Floats

    @classmethod
    def of(cls, base: Distribution, alpha: float, rng: np.random.Generator) -> "Atoms":
        """By stick-breaking, until what is left of the stick is too little for a sample to notice."""
        sticks = int(np.ceil(alpha * np.log(1e12))) + 10
        broken = rng.beta(1.0, alpha, sticks)
        share = broken * np.concatenate([[1.0], np.cumprod(1 - broken)[:-1]])
        return cls(base.draw(sticks, rng), share / share.sum())

    def draw(self, n: int, rng: np.random.Generator) -> Floats:
        return self.rows[rng.choice(len(self.rows), n, p=self.share)]


def _sources(base: Gaussian, options: SyntheticOptions, rng: np.random.Generator) -> tuple[Distribution, Distribution]:
    """Where the users' records of a subject come from, and where the attacker's do."""
    if options.sampling == "normal":
        return base, base
    realised = Atoms.of(base, options.alpha or 1.0, rng)
    return realised, Atoms.of(base, options.alpha or 1.0, rng) if options.atoms == "new" else realised


def separated(count: int, dimensions: int, distance: float, rng: np.random.Generator) -> Floats:
    """Means that are at least `distance` apart, drawn again where they are not."""
    from scipy import special

    half = dimensions / 2
    ball = half * np.log(np.pi) - special.gammaln(half + 1) + dimensions * np.log(distance / 2)
    side = np.exp((np.log(count) + ball - np.log(FILLED)) / dimensions)
    width = max(1.0, float(side) / 2)
    found = np.empty((0, dimensions))
    for _ in range(TRIES):
        together = np.concatenate([found, rng.uniform(-width, width, (count - len(found), dimensions))])
        # Of two that are too near, the later one goes: those that were kept before stay.
        later = near(together, distance).max(axis=1, initial=NOBODY)
        found = together[np.setdiff1d(np.arange(len(together)), later)]
        if len(found) == count:
            return np.asarray(found)
    raise FedauditError(
        "synthetic-means",
        f"{count} means {distance:g} apart were not found in {dimensions} dimensions after {TRIES} draws",
        "Use fewer subjects, more dimensions, or a smaller data.separation.",
    )


def near(points: Floats, distance: float) -> Ints:
    """pairs x 2: the pairs of points that are nearer than `distance`."""
    from scipy.spatial import cKDTree

    pairs = cKDTree(points[:, :FIRST]).query_pairs(distance, output_type="ndarray").reshape(-1, 2)
    apart = np.linalg.norm(points[pairs[:, 0]] - points[pairs[:, 1]], axis=1)
    return np.asarray(pairs[apart < distance], np.int64)
