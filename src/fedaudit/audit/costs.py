"""What an attack costs: the one definition of `cost.epochs`, and the ledger that follows it.

An attack is charged what it would have taken to run it alone:

1. Every pass over the records that gives one of its signals. Signals that come out of one pass are a *family*. In every
   round that the attack looks at; one that looks only at the last model is charged that one look.
2. Every model that is trained for it: reference models, the adversary's shadow, a federation that a malicious
   aggregator trains, the probes of a crafted canary.
3. What it keeps of the rounds, and what it fits in order to score.

What several attacks use is measured once and charged to each of them in full. So the costs of attacks that have nothing
in common add up to the time of the audit, and those of others to more than that. (All have in common that the rows of a
sight are picked out before the first pass.) Nobody is charged for statistics.

The unit is E: the seconds of one local epoch of the parties that the result is about, over the same rounds. Somebody
else's training is timed by the round, so that it has to say how many local epochs a round has (`an_epoch`). Where
nobody says how long anything took, the unit is a round, and the cost is in seconds.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

from fedaudit.adversary.attacks.base import BaseAttack
from fedaudit.adversary.shadow import BANKS, SIGNALS
from fedaudit.adversary.signals import Family, searching
from fedaudit.config.attack_registry import plain
from fedaudit.types import Stored

ROWS, SHADOW_MODEL = "rows", "shadow model"
# The last round goes on from the work of the earlier ones, so that whoever looks at the last round alone needs it all.
CARRIED = frozenset({*BANKS, searching.DISTANCE, SHADOW_MODEL})

clock = time.perf_counter

Item = TypeVar("Item", bound=Hashable)
Made = TypeVar("Made")


@contextmanager
def timed(spent: dict[Item, float], item: Item) -> Iterator[None]:
    """Adds the time of the block, to the microsecond."""
    started = clock()
    try:
        yield
    finally:
        spent[item] = spent.get(item, 0.0) + max(0.0, round(clock() - started, 6))


def each(made: Iterable[Made], spent: dict[Item, float], item: Item) -> Iterator[Made]:
    """The same things, with the time that it takes to make them; not what is done with them."""
    source = iter(made)
    while True:
        with timed(spent, item):
            try:
                found = next(source)
            except StopIteration:
                return
        yield found


def an_epoch(elapsed: float, local_epochs: int, told: object = None) -> float:
    """The seconds of one local epoch of somebody else's training: as a party told it, or the time of a round, shared
    among its epochs. What is no time, as 0 or NaN, was not told."""
    if isinstance(told, int | float) and not isinstance(told, bool) and 0 < told < math.inf:
        return float(told)
    return elapsed / local_epochs


def load_learners() -> None:
    """To be called before what fits a classifier is timed: loading takes a second, once, which is nobody's cost."""
    import sklearn.ensemble
    import sklearn.neural_network  # noqa: F401


def keeping(attack: BaseAttack) -> str:
    """The item of what an attack itself does in a round. Signals may have the same names."""
    return f"attack {attack.name}"


def items(attack: BaseAttack, families: Iterable[Family]) -> frozenset[str]:
    """What an attack is charged for: each family is called after its first signal, a bank of references as it is."""
    used = set(attack.signals)
    found = {family.name for family in families if not used.isdisjoint(family.needs)}
    found |= {SIGNALS[signal][0] for signal in used & SIGNALS.keys()}
    found |= {keeping(attack), ROWS}
    return frozenset(found | {SHADOW_MODEL} if "shadow" in attack.fitted_on else found)


def dearest(
    prices: Mapping[str, float], shares: Mapping[str, Mapping[Item, float]], together: float | None, each: float | None
) -> list[str]:
    """Which attacks cost too much. `prices`: what each costs in one place, the strongest first. `shares`: what each
    uses anywhere, and what that costs; two may use the same. The cheapest that has cost something always stays."""
    cheapest = min(filter(prices.get, prices), key=lambda name: prices[name], default=None)
    if cheapest is None:
        return []
    kept, used, spent = {cheapest}, dict(shares[cheapest]), math.fsum(shares[cheapest].values())
    if together is not None:  # what comes out of the same pass as the cheapest costs next to nothing more
        together = max(together, 1.02 * spent)
    for name in prices:
        more = math.fsum(cost for item, cost in shares[name].items() if item not in used)
        if (each is None or prices[name] <= each) and (together is None or spent + more <= together):
            kept.add(name)
            used |= shares[name]
            spent += more
    return [name for name in prices if name not in kept]


class Ledger:
    """What each attack of one sight was charged, by item. `later`: those that look only at the last model."""

    def __init__(self, attacks: Sequence[BaseAttack], families: Sequence[Family], later: set[str]):
        self.items = {attack.name: items(attack, families) for attack in attacks}
        self.later = later
        self.charged: dict[str, dict[str, float]] = {attack.name: {} for attack in attacks}

    def charge(self, attack: str, spent: Mapping[str, float]) -> None:
        """One round, or one probe. Whoever looks only at the last model would not have looked at those before."""
        before = self.charged[attack]
        if attack in self.later:
            before = {item: seconds for item, seconds in before.items() if plain(item) in CARRIED}
        mine = {item: before.get(item, 0.0) + seconds for item, seconds in self._of(attack, spent).items()}
        self.charged[attack] = before | mine

    def cost(self, attack: str, look: Mapping[str, float] | None = None) -> float:
        """Seconds. `look`: what it took to look at the last model after the rounds, for an attack that did so."""
        before = self.charged[attack]
        if look is None:
            return math.fsum(before.values())  # the same in whatever order they were stored
        carried = [seconds for item, seconds in before.items() if plain(item) in CARRIED]
        return math.fsum([*carried, *self._of(attack, look).values()])

    def _of(self, attack: str, spent: Mapping[str, float]) -> dict[str, float]:
        return {item: seconds for item, seconds in spent.items() if item in self.items[attack]}

    def leave_out(self, names: Collection[str]) -> None:
        self.charged = {attack: spent for attack, spent in self.charged.items() if attack not in names}

    def state(self) -> Stored:
        return {attack: dict(charged) for attack, charged in self.charged.items()}

    def restore(self, state: Stored) -> None:
        self.charged = {attack: dict(state[attack]) for attack in self.charged}
