"""The settings of docs/make_matched.py: a federation, its data, and the ways of scoring that are compared on it."""

from dataclasses import dataclass, field, replace
from typing import Any

from fedaudit.learn.tasks import Training


@dataclass(frozen=True)
class Way:
    """One way of scoring."""

    fit: str = "all"  # or "nonmembers"
    damping: float = 0.1
    at: str = "halfway"  # or "received"
    adaptive: bool = True  # undo Adam, where it is in use
    layer: str = "largest"  # or "all"
    known: int | None = None  # so many of a party's fitting records; None: all of them

    @property
    def name(self) -> str:
        adam = "adaptive" if self.adaptive else "plain"
        fit = self.fit if self.known is None else f"{self.known} {self.fit}"
        return f"{self.at}, {fit}, {self.damping:g}, {adam}, {self.layer}"


OURS = Way()
ONE_EPOCH = Training("adam", 1e-3, 1, 64)
AS_FIRST_DRAWN = Way("nonmembers", 0.1, "received", adaptive=False)


@dataclass(frozen=True)
class Cell:
    data: str
    sizes: tuple[int, int, int, int]  # of a party: members, fitting, calibration, evaluation
    model: str = "mlp"
    options: dict[str, Any] = field(default_factory=dict)
    parties: int = 4
    rounds: int = 40
    training: Training = ONE_EPOCH
    seed: int = 0
    ways: tuple[Way, ...] = (OURS,)
    shown: tuple[int, ...] = (1, 5, 10, 20, 40)
    rivals: bool = False  # fusion, its parts, and the relatives
    standard: bool = False  # every channel of the pictures with mean 0 and standard deviation 1; else from 0 to 1
    frozen: bool = False  # the first layer stays as it began
    noise: float = 0.0  # per-record DP-SGD, clip 1
    update_noise: float = 0.0  # on the update, in units of its norm
    skew: float = 0.0  # labels of a party by Dirichlet(skew); 0: all parties alike
    null: bool = False  # the parties train on other records, and none of the candidates is in an update
    looked_at: int = 4  # parties whose local models are scored, and whose candidates global models are scored for


BASKETS = Cell("baskets", (1538, 1025, 1025, 1538))
MLP = Cell("cifar100", (1000, 1000, 1000, 1000), "mlp", {"hidden": (256, 128)}, rounds=10,
           training=Training("adam", 1e-3, 1, 32), shown=(1, 5, 10))  # fmt: skip
CNN = Cell("cifar100", (500, 500, 500, 500), "small-cnn", rounds=5, training=Training("adam", 1e-3, 4, 32),
           shown=(1, 3, 5))  # fmt: skip
SMALL = replace(BASKETS, sizes=(450, 1025, 1025, 1025), rounds=10, shown=(1, 5, 10), looked_at=2)


def cells() -> dict[str, Cell]:
    """Group-what-seed -> cell."""
    found: dict[str, Cell] = {}
    for seed in range(5):
        others = (replace(OURS, fit="nonmembers"), replace(OURS, at="received")) if seed == 0 else ()
        found[f"baskets-{seed}"] = replace(BASKETS, seed=seed, ways=(OURS, *others), looked_at=2 if seed else 4)
        found[f"baskets10-{seed}"] = replace(BASKETS, seed=seed, rounds=10, shown=(1, 5, 10), looked_at=2)
        found[f"cifar100-cnn-{seed}"] = replace(CNN, seed=seed)
    for seed in range(3):
        found[f"cifar100-mlp-{seed}"] = replace(MLP, seed=seed, standard=True)
        found[f"cifar100-raw-mlp-{seed}"] = replace(MLP, seed=seed)
        for members in (450, 1800, 3600):
            for width in (8, 32, 128, 512):
                hidden = (width, 64) if width > 8 else (width,)  # the first layer is the largest
                found[f"map-{members}x{width}-{seed}"] = replace(
                    SMALL, sizes=(members, 600, 600, 600), options={"hidden": hidden}, seed=seed, rivals=True,
                    rounds=8, shown=(8,), parties=2,
                )  # fmt: skip
    for members, width in ((1800, 32), (3600, 8)):
        late = replace(found[f"map-{members}x{width}-0"], rounds=40, shown=(8, 20, 40))
        found[f"late-{members}x{width}-0"] = late
    return found | with_few_known() | varied() | skewed() | chosen_by()


def varied() -> dict[str, Cell]:
    """One thing changed at a time: parties, local epochs, the optimiser, frozen layers and noise."""
    found: dict[str, Cell] = {}
    for seed in range(3):
        for parties in (4, 10, 30, 100):
            found[f"parties-{parties}-{seed}"] = replace(
                SMALL, sizes=(80, 0, 100, 20), parties=parties, looked_at=parties, seed=seed, rounds=5, shown=(1, 5)
            )
        for epochs in (1, 2, 5, 10):
            ways = (OURS, replace(OURS, at="received"))
            found[f"epochs-{epochs}-{seed}"] = replace(
                SMALL, training=Training("adam", 1e-3, epochs, 64), ways=ways, rounds=5, shown=(1, 5), seed=seed
            )
        found[f"sgd-{seed}"] = replace(SMALL, training=Training("sgd", 0.1, 1, 64), seed=seed)
        found[f"frozen-{seed}"] = replace(SMALL, frozen=True, seed=seed)
        dampings = tuple(replace(OURS, damping=damping, adaptive=False) for damping in (0.1, 1, 10))
        for noise in (0.0, 0.1, 0.3, 0.5, 1.0):
            found[f"dp-{noise}-{seed}"] = replace(SMALL, noise=noise or 1e-9, ways=dampings, seed=seed)
        for noise in (0.3, 1.0, 2.0, 4.0):
            found[f"noise-{noise}-{seed}"] = replace(
                SMALL, update_noise=noise, ways=(*dampings, replace(OURS, damping=1.0)), seed=seed
            )
    return found


def skewed() -> dict[str, Cell]:
    """Parties with few classes each, and parties that train on nobody who is looked for."""
    found: dict[str, Cell] = {}
    short = replace(SMALL, options={"hidden": (64,)}, rounds=3, shown=(3,))
    for seed in range(6):
        found[f"skew-baskets-{seed}"] = replace(short, sizes=(300, 0, 500, 500), looked_at=4, skew=0.1, seed=seed)
    for seed in range(2):
        found[f"skew-cifar100-{seed}"] = replace(
            CNN, sizes=(250, 0, 400, 400), training=Training("adam", 1e-3, 1, 32), rounds=2, shown=(2,), skew=0.1,
            seed=seed,
        )  # fmt: skip
    for seed in range(20):
        ways = (OURS, *(replace(OURS, fit="nonmembers", known=known) for known in (50, 200, 1000)))
        found[f"null-{seed}"] = replace(
            short, sizes=(300, 1000, 400, 400), parties=2, looked_at=2, rounds=2, shown=(2,), ways=ways, null=True,
            seed=seed,
        )  # fmt: skip
    return found


def chosen_by() -> dict[str, Cell]:
    """What the way of scoring was chosen by: a seed and data that are not reported."""
    found: dict[str, Cell] = {}
    steps = (
        AS_FIRST_DRAWN,
        replace(AS_FIRST_DRAWN, fit="all"),
        replace(AS_FIRST_DRAWN, fit="all", at="halfway"),
        OURS,
        replace(OURS, fit="nonmembers"),
        *(replace(OURS, damping=damping) for damping in (0.03, 0.3, 1.0)),
    )
    chosen = (*steps, replace(OURS, layer="all"))
    found["choose-baskets-10"] = replace(BASKETS, seed=10, rounds=5, ways=chosen, shown=(1, 5), looked_at=2)
    found["choose-cnn-10"] = replace(CNN, data="cifar10", seed=10, ways=chosen, looked_at=2)
    smaller = tuple(replace(OURS, damping=damping) for damping in (0.1, 0.01, 0.001))
    found["raw-mlp-10"] = replace(
        MLP, data="cifar10", sizes=(500, 0, 400, 400), seed=10, rounds=5, shown=(5,), ways=smaller, looked_at=1
    )
    found["choose-mlp-10"] = replace(MLP, data="cifar10", seed=10, rounds=5, ways=chosen, looked_at=2)
    return found


def with_few_known() -> dict[str, Cell]:
    """Few known non-members to fit on, with several dampings: seed 11 to choose by, the others to judge."""
    found = {}
    fewer = (50, 200, 1000)
    pairs = [(known, damping) for known in fewer for damping in (0.1, 1, 10)]
    ways = tuple(replace(OURS, fit="nonmembers", known=known, damping=damping) for known, damping in pairs)
    base = replace(SMALL, sizes=(1000, 1000, 600, 600), parties=2, looked_at=1, rounds=3, shown=(1, 3))
    found["fit-baskets-11"] = replace(base, ways=(OURS, *ways), seed=11)
    return found
