"""The defences by name: `[[defences]] name = "dp-sgd"`. What can be refused is refused here, before training.

Given `epsilon` and `delta` they find their noise for the planned rounds; given `noise` they state their epsilon.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_

import numpy as np

from fedaudit.config.schema import Defence as Asked
from fedaudit.config.schema import Federation
from fedaudit.defences import dp_fedavg, dp_sgd
from fedaudit.defences.dp_fedavg import Clip, NoisySum
from fedaudit.defences.dp_sgd import DPSGD
from fedaudit.defences.higradavg import HiGradAvg
from fedaudit.defences.memguard import MemGuard
from fedaudit.defences.plain import L2, Dropout
from fedaudit.defences.slots import NONE, Defence, Guarded, Served
from fedaudit.errors import FedauditError
from fedaudit.learn.tasks import TorchTask, Training
from fedaudit.privacy.accounting import check_clip, check_target, epsilon, noise_for
from fedaudit.privacy.statement import Process, Promise, check_noise
from fedaudit.stats.gaussian import check_delta
from fedaudit.types import Records, State

__all__ = ["NONE", "REGISTRY", "Defence", "Guarded", "Served", "Setting", "build"]


@dataclass(frozen=True)
class Setting:
    """What a defence must know of the federation to find its noise and to refuse what it cannot protect."""

    task: TorchTask
    initial: State
    sources: Mapping[str, Callable[[], Records]]  # what each party trains on
    training: Training
    federation: Federation  # how many rounds are planned, and who takes part in them

    @property
    def rounds(self) -> int:
        return self.federation.rounds

    @property
    def few(self) -> Records:
        """Records to try a model on."""
        records = next(iter(self.sources.values()))()
        return records.take(np.arange(min(4, len(records))))


@dataclass(frozen=True)
class Entry:
    keys: frozenset[str]  # that it may be given; `clip` and `strength` must be
    make: Callable[[Asked, Setting], Defence]


def build(asked: Iterable[Asked], setting: Setting) -> Defence:
    return reduce(or_, (_one(each, setting) for each in asked), NONE)


def _one(asked: Asked, setting: Setting) -> Defence:
    entry = REGISTRY[asked.name]
    given = asked.model_dump(exclude_none=True).keys() - {"name"}
    for key in sorted(given - entry.keys):
        keys = ", ".join(sorted(entry.keys))
        raise FedauditError("defence-key", f"{asked.name!r} does not take {key!r}", f"It takes: {keys}.")
    for key in sorted((entry.keys & {"clip", "strength"}) - given):
        raise FedauditError("defence-key", f"{asked.name!r} needs {key!r}", f"Write {key} = ... below its name.")
    if asked.clip is not None:
        check_clip(asked.clip)
    return entry.make(asked, setting)


# ------------------------------------------------------------------ noise and promise


def _noise(asked: Asked, processes: Iterable[Process], rounds: int) -> float:
    """As given, or the least that keeps the asked epsilon for every unit over the planned rounds."""
    if (asked.epsilon is None) == (asked.noise is None):
        raise FedauditError(
            "dp-claim", f"{asked.name!r} needs either epsilon or noise", "Give one; the other follows from it."
        )
    if asked.noise is not None:
        check_noise(asked.noise)
        check_delta(_delta(asked), zero=False)
        return asked.noise
    assert asked.epsilon is not None
    check_target(asked.epsilon, _delta(asked))
    # The most often drawn first: its noise nearly always does for the others, which saves searching again.
    noise = 0.0
    for process in sorted(processes, key=lambda p: -p.rate * p.releases):
        if not noise or epsilon(replace(process, noise=noise), rounds, _delta(asked)) > asked.epsilon:
            noise = noise_for(asked.epsilon, _delta(asked), process, rounds)
    return noise


def _delta(asked: Asked) -> float:
    return 1e-5 if asked.delta is None else asked.delta


def _promise(
    asked: Asked, processes: Iterable[Process], noise: float, rounds: int, units: int, against: str
) -> tuple[Promise, ...]:
    """Of the unit that is worst off."""
    noisy = [replace(process, noise=noise) for process in processes]
    worst = max(noisy, key=lambda p: epsilon(p, rounds, _delta(asked))) if len(noisy) > 1 else noisy[0]
    return (Promise(asked.name, worst, _delta(asked), units, against),)


COUNTS = "The number of records behind each party's update is taken as public: the weighted mean uses it without noise."


# ------------------------------------------------------------------ the defences


def _dp_sgd(asked: Asked, setting: Setting) -> Defence:
    assert asked.clip is not None
    dp_sgd.refuse_unfit(setting.task, setting.initial, setting.few)
    sizes = {len(source()) for source in setting.sources.values()}
    drawn = {dp_sgd.sampling(n, setting.training) for n in sizes}
    processes = [Process("record", 1.0, steps, "poisson", rate) for rate, steps in sorted(drawn)]
    noise = _noise(asked, processes, setting.rounds)
    against = "everybody outside the party that holds the record"
    promise = _promise(asked, processes, noise, setting.rounds, min(sizes), against)
    return Defence(asked.name, gradient=DPSGD(asked.clip, noise), promises=promise, notices=(COUNTS,))


def _clip_only(asked: Asked, setting: Setting) -> Defence:
    assert asked.clip is not None
    dp_sgd.refuse_unfit(setting.task, setting.initial, setting.few)
    notice = "clip-only clips and adds no noise: it promises nothing, and is there to compare dp-sgd with."
    return Defence(asked.name, gradient=DPSGD(asked.clip, 0.0), notices=(notice,))


def _higradavg(asked: Asked, setting: Setting) -> Defence:
    assert asked.clip is not None
    dp_sgd.refuse_unfit(setting.task, setting.initial, setting.few)
    held: list[str] = []  # each subject once for every party that holds records of it
    rates, releases = [], []
    for name, source in setting.sources.items():
        records = source()
        if records.subject is None:
            raise FedauditError("no-subjects", f"{name} has records without subjects", "Use dp-sgd, or name subjects.")
        subjects, counts = np.unique(records.subject, return_counts=True)
        held += subjects.tolist()
        rate, steps = dp_sgd.sampling(len(records), setting.training)
        rates.append(1 - (1 - rate) ** int(counts.max()))
        releases.append(steps)
    _, parties = np.unique(held, return_counts=True)
    processes = [Process("subject", 1.0, max(releases) * int(parties.max()), "poisson", max(rates))]
    noise = _noise(asked, processes, setting.rounds)
    against = "everybody outside the parties that hold the subject's records"
    promise = _promise(asked, processes, noise, setting.rounds, len(parties), against)
    return Defence(asked.name, gradient=HiGradAvg(asked.clip, noise), promises=promise, notices=(COUNTS,))


def _dp_fedavg(asked: Asked, setting: Setting) -> Defence:
    assert asked.clip is not None
    dp_fedavg.refuse_unfit(setting.initial)
    local, parties, rate = bool(asked.local), len(setting.sources), setting.federation.participation
    amplified = rate < 1 and setting.federation.sampling == "poisson" and not local
    processes = [Process("user", 1.0, 1, "poisson" if amplified else "full", rate if amplified else 1.0)]
    noise = _noise(asked, processes, setting.rounds)
    against = "everybody, the server included" if local else "whoever sees the noisy sum; not the server that adds it"
    promise = _promise(asked, processes, noise, setting.rounds, parties, against)
    notices = (NOT_AMPLIFIED,) if rate < 1 and not amplified else ()
    if local:
        return Defence(asked.name, update=Clip(asked.clip, noise), promises=promise, notices=(*notices, COUNTS))
    total = NoisySum(asked.clip, noise, rate * parties)
    return Defence(asked.name, update=Clip(asked.clip), aggregate=total, promises=promise, notices=notices)


NOT_AMPLIFIED = (
    "Not every party takes part in every round, but that is not counted in favour of privacy: only parties drawn by "
    'independent coins (sampling = "poisson"), hidden from whoever looks, are amplified.'
)


def _memguard(asked: Asked, setting: Setting) -> Defence:
    if not setting.task.classes:
        raise FedauditError("memguard", "MemGuard bends class probabilities", "Use it for classification only.")
    parts = [setting.sources[name]() for name in sorted(setting.sources)]
    x, y, id = (np.concatenate([getattr(part, field) for part in parts]) for field in ("x", "y", "id"))
    members = Records(x, y, id)
    notice = (
        "MemGuard changes the answers of the released model and nothing else: whoever holds the weights (client, "
        "server) scores every record exactly as without it, and so does whoever uses labels only."
    )
    return Defence(asked.name, serve=MemGuard(members, _strength(asked, 0, 2)), notices=(notice,))


def _strength(asked: Asked, low: float, high: float) -> float:
    assert asked.strength is not None
    if not low < asked.strength < high:
        raise FedauditError(
            "defence-strength", f"{asked.name!r}: strength must lie between {low:g} and {high:g}", "Change it."
        )
    return asked.strength


def _l2(asked: Asked, setting: Setting) -> Defence:
    return Defence(asked.name, gradient=L2(_strength(asked, 0, float("inf"))))


def _dropout(asked: Asked, setting: Setting) -> Defence:
    return Defence(asked.name, gradient=Dropout(_strength(asked, 0, 1)))


_NOISY = frozenset({"epsilon", "delta", "noise", "clip"})

REGISTRY: dict[str, Entry] = {
    "dp-sgd": Entry(_NOISY, _dp_sgd),
    "higradavg": Entry(_NOISY, _higradavg),
    "dp-fedavg": Entry(_NOISY | {"local"}, _dp_fedavg),
    "clip-only": Entry(frozenset({"clip"}), _clip_only),
    "memguard": Entry(frozenset({"strength"}), _memguard),
    "l2": Entry(frozenset({"strength"}), _l2),
    "dropout": Entry(frozenset({"strength"}), _dropout),
}
