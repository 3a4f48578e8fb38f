"""Privacy accounting: epsilon from noise, sampling and rounds (with dp-accounting), and noise from epsilon.

A `Process` describes how one unit (record, subject or user) takes part in training: how many noisy releases of a round
it can influence, the probability that it is drawn into each, and the noise. Everything here depends only on the process
and on the number of rounds done, not on the state of a running program, so a resumed run is charged for every round.

Amplification is by the sampler that was *used*. Poisson sampling is amplified. Shuffled batches are not: a unit is in
one batch of each epoch, so each epoch counts as one Gaussian without amplification.

The adjacency is add-remove: a unit is there, or its place contributes nothing.

A person may have several units. What the promise means for a person is group privacy, computed for this mechanism: of
k records, a random number is drawn into a batch, and the sum moves by that many clip norms at most. That is a mixture
of Gaussians, which dp-accounting composes (Choquette-Choo et al., "Privacy amplification for matrix mechanisms", ICLR
2024, corollary 4.7; Ganesh, "Tight group-level DP guarantees for DP-SGD with sampling", 2024). At the same delta it
promises more than the formula for any mechanism, (k epsilon, k e^((k-1) epsilon) delta), whose delta soon exceeds 1.
"""

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from scipy import optimize, stats

from fedaudit.errors import REFUSED, FedauditError
from fedaudit.privacy.statement import Group, PerPerson, Process, Promise, Spent, Statement
from fedaudit.stats.gaussian import check_delta, check_epsilon, gaussian_epsilon, gaussian_mu
from fedaudit.types import Guarantee

INTERVAL = 1e-3  # discretisation of privacy losses; within 2e-4 of an interval ten times finer
FINENESS = 20  # intervals in the typical privacy loss of one release, where that is small
CELLS, GROUP_CELLS = 50_000, 5_000  # at most, for one release; those of a group are slower to find
LEAST_PLD_NOISE = 0.2  # below it losses are too wide to discretise, and epsilon is in the hundreds: Renyi accounting
LEFT_OUT = 1e-30  # probability mass of a group's losses
LARGEST_GROUP = 100  # in units of the noise: as wide for a group
MOST_EPSILON = 100.0  # a test may then be wrong only once in 10^43 times: no guarantee at all
NOISE_PRECISION = 1e-3


def check_clip(clip: float) -> None:
    if not (math.isfinite(clip) and clip > 0):
        raise FedauditError(
            "dp-clip", f"clip must be a finite number above 0, got {clip}", "Set, for example, clip = 1.0."
        )


def check_target(epsilon: float, delta: float) -> None:
    """Refuses an epsilon and delta that no noise can guarantee."""
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise FedauditError(
            "dp-epsilon", f"epsilon must be a finite number above 0, got {epsilon}", "Set, for example, epsilon = 4.0."
        )
    if epsilon > MOST_EPSILON:
        raise FedauditError(
            "dp-epsilon-large",
            f"an epsilon of {epsilon:g} guarantees nothing: the largest allowed is {MOST_EPSILON:g}",
            "Set a smaller epsilon, or set noise, whose epsilon is then stated. Without noise, use clip-only.",
        )
    check_delta(delta, zero=False)


# ------------------------------------------------------------------ epsilon


def epsilon(process: Process, rounds: int, delta: float) -> float:
    """The epsilon that `rounds` rounds spend, by privacy loss distributions; exact if nothing is sampled."""
    process.check()
    check_delta(delta, zero=False)
    if process.rate == 1:
        return gaussian_epsilon(math.sqrt(process.releases * rounds) / process.noise, delta)
    if process.noise < LEAST_PLD_NOISE:
        return rdp_epsilon(process, rounds, delta)
    return float(_losses(process).self_compose(process.releases * rounds).get_epsilon_for_delta(delta))


def rdp_epsilon(process: Process, rounds: int, delta: float) -> float:
    """The same by Renyi divergences: never smaller, and what many tools report."""
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    process.check()
    check_delta(delta, zero=False)
    event: Any = dp_accounting.GaussianDpEvent(process.noise)
    if process.rate < 1:
        event = dp_accounting.PoissonSampledDpEvent(process.rate, event)
    with quiet():
        return float(RdpAccountant().compose(event, process.releases * rounds).get_epsilon(delta))


@contextmanager
def quiet() -> Iterator[None]:
    """Orders whose series does not converge are left out, which is sound and needs no warning each."""
    logger = logging.getLogger("absl")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def curve(process: Process, rounds: list[int], delta: float) -> list[float]:
    """Epsilon after each of the given rounds, in rising order: each point extends the one before."""
    process.check()
    check_delta(delta, zero=False)
    if process.rate == 1 or process.noise < LEAST_PLD_NOISE:
        return [epsilon(process, done, delta) for done in rounds]
    return [float(losses.get_epsilon_for_delta(delta)) for losses in _extended(process, rounds)]


def _extended(process: Process, rounds: list[int]) -> Iterator[Any]:
    one, steps = _losses(process), {}
    losses = one.self_compose(process.releases * rounds[0])
    yield losses
    for before, after in pairwise(rounds):
        gap = after - before
        if gap not in steps:
            steps[gap] = one.self_compose(process.releases * gap)
        losses = losses.compose(steps[gap])
        yield losses


def _losses(process: Process) -> Any:
    from dp_accounting.pld import privacy_loss_distribution

    return privacy_loss_distribution.from_gaussian_mechanism(
        process.noise, sampling_prob=process.rate, value_discretization_interval=_interval(process)
    )


def _interval(process: Process) -> float:
    """Fine enough for one release, whose losses shrink with rate / noise, and not finer than can be computed."""
    typical = process.rate * math.sqrt(math.expm1(process.noise**-2))  # root of the chi-square divergence
    widest = math.log1p(process.rate * math.expm1(10 / process.noise + process.noise**-2 / 2))  # ten deviations out
    return max(min(INTERVAL, typical / FINENESS), widest / CELLS)


# ------------------------------------------------------------------ a person who has several units


def per_person(people: Sequence[Group], rounds: int, delta: float) -> PerPerson:
    """What everybody is promised: the largest epsilon of all."""
    found = [(group_epsilon(group, rounds, delta), group) for group in people]
    worst, group = max(found, key=lambda one: one[0])
    reason = None
    if worst > MOST_EPSILON:
        reason = f"group privacy gives an epsilon above {MOST_EPSILON:g}, which guarantees nothing"
    return PerPerson(
        k=max(group.size for group in people),
        counted="parties" if group.process.unit == "user" else "records",
        epsilon=None if reason else worst,
        delta=delta,
        method=_method(group),
        reason=reason,
    )


@lru_cache
def group_epsilon(group: Group, rounds: int, delta: float) -> float:
    """Epsilon for all units of one person together."""
    process, releases = group.process, group.process.releases * rounds
    if group.size == 1 and not group.replaced:
        return epsilon(process, rounds, delta)
    process.check()
    check_delta(delta, zero=False)
    moved = group.size * (2 if group.replaced else 1)
    always = gaussian_epsilon(moved * math.sqrt(releases) / process.noise, delta)
    if not _is_mixture(group):
        return always
    losses = _group_losses(group).self_compose(releases, tail_mass_truncation=LEFT_OUT)
    found = 2 * _there_and_back(losses, delta) if group.replaced else float(losses.get_epsilon_for_delta(delta))
    return min(found, always)


def _there_and_back(losses: Any, delta: float) -> float:
    """Epsilon of each of two steps, one that takes the parties out and one that puts them in with other content."""

    def holds(each: float) -> bool:
        return float(losses.get_delta_for_epsilon(each)) * (1 + math.exp(each)) <= delta

    low, high = 0.0, 0.5
    while not holds(high):  # in small steps: at large epsilons the mass that is left out weighs too much
        low, high = high, high + 0.5
        if 2 * high > MOST_EPSILON:
            return math.inf
    while high - low > 1e-4 * high:
        low, high = (low, middle) if holds(middle := (low + high) / 2) else (middle, high)
    return high


def _is_mixture(group: Group) -> bool:
    """Does sampling count? If not, all units of the person are taken to be in every release, which is never less."""
    process = group.process
    return process.rate < 1 and process.noise >= LEAST_PLD_NOISE and group.size <= LARGEST_GROUP * process.noise


def _group_losses(group: Group) -> Any:
    from dp_accounting.pld import privacy_loss_distribution

    process, drawn = group.process, np.arange(group.size + 1)
    return privacy_loss_distribution.from_mixture_gaussian_mechanism(
        process.noise,
        drawn.astype(float).tolist(),
        stats.binom.pmf(drawn, group.size, process.rate).tolist(),
        value_discretization_interval=_group_interval(group),
    )


def _group_interval(group: Group) -> float:
    apart = group.size / group.process.noise
    widest = 10 * apart + apart**2 / 2  # ten deviations out, with every unit drawn
    return max(group.size * _interval(group.process), widest / GROUP_CELLS)


def _method(group: Group) -> str:
    process, size = group.process, group.size
    what = "parties" if process.unit == "user" else "records"
    if size == 1 and not group.replaced:
        return f"as for {'a party' if process.unit == 'user' else 'a record'}"
    if _is_mixture(group):
        how = f"PLD of a mixture of Gaussians: the number of the {size:,} {what} that are drawn, interval "
        how += f"{_group_interval(group):.3g}"
    else:
        how = f"exact Gaussian composition, with all {size:,} {what} in every release"
    twice = "; a party stays when a person leaves, so that its contribution changes by twice the clip norm"
    return f"group privacy, {how}{twice if group.replaced else ''}"


# ------------------------------------------------------------------ noise


def noise_for(target: float, delta: float, process: Process, rounds: int) -> float:
    """The least noise (to a thousandth) for which a whole run keeps (target, delta); `process.noise` is ignored."""
    check_target(target, delta)
    high = math.sqrt(process.releases * rounds) / gaussian_mu(target, delta)  # enough without any amplification
    if process.rate == 1:
        return high * (1 + 1e-9)

    def spent(noise: float) -> float:
        return epsilon(replace(process, noise=noise), rounds, delta)

    while (least := spent(high)) > target:  # rounding upwards, where hardly anything is amplified
        if math.isinf(least):
            raise FedauditError(
                "dp-delta", f"delta {delta:g} is too small to be accounted for", "Set, for example, delta = 1e-5."
            )
        high *= 1 + NOISE_PRECISION
    low = high / 2
    while spent(low) <= target:
        low, high = low / 2, low
    # Nearly a straight line on logarithmic axes, so that few of the slow evaluations are needed.
    excess = lru_cache(lambda log: math.log(max(spent(math.exp(log)) / target, 1e-3)))
    found = math.exp(optimize.brentq(excess, math.log(low), math.log(high), xtol=NOISE_PRECISION / 4))
    while spent(found) > target:
        found *= 1 + NOISE_PRECISION / 4
    return float(found)


# ------------------------------------------------------------------ what is stated


def guarantee(process: Process, rounds: int, delta: float) -> Guarantee:
    """The guarantee of the whole run."""
    accountant = "exact Gaussian composition"
    if process.rate < 1:
        small = process.noise < LEAST_PLD_NOISE
        accountant = "Renyi divergences" if small else f"PLD, interval {_interval(process):.3g}"
    return Guarantee(process.unit, epsilon(process, rounds, delta), delta, "add-remove", accountant)


def stated(promises: Sequence[Promise], rounds: int) -> Statement | None:
    """`run.guarantee` of results.json after so many rounds. Promises for other units are in `further`."""
    if not promises or rounds < 1:
        return None
    first, *others = (statement(promise, rounds) for promise in promises)
    return replace(first, further=tuple(others))


def statement(promise: Promise, rounds: int) -> Statement:
    """Epsilon of the whole run and of one round, by both accountants, and the curve over rounds."""
    process, delta = promise.process, promise.delta
    spent = over_rounds(promise, rounds)
    problems = []
    if delta > 1 / promise.units:
        problems.append(
            f"delta {delta:g} is above 1/{promise.units}: publishing one {process.unit} at random would satisfy it."
        )
    claim = guarantee(process, 1, delta)
    return Statement(
        unit=claim.unit,
        epsilon=spent.epsilon[-1],
        delta=delta,
        adjacency=claim.adjacency,
        accountant=claim.accountant,
        scope=f"whole run of {rounds} rounds",
        epsilon_one_round=spent.epsilon[0],
        epsilon_rdp=rdp_epsilon(process, rounds, delta),
        defence=promise.defence,
        against=promise.against,
        process=process,
        curve=spent,
        problems=problems,
        per_person=per_person(promise.people, rounds, delta) if promise.people else None,
    )


def over_rounds(promise: Promise, rounds: int) -> Spent:
    """Epsilon after each round, the first and the last among them; of more than 200, after 200 of them."""
    at = list(range(1, rounds + 1))
    if rounds > 200:
        at = sorted({1 + round(i * (rounds - 1) / 199) for i in range(200)})
    return Spent(at, curve(promise.process, at, promise.delta))


def promise_from(plain: Mapping[str, Any]) -> Promise:
    """Reads a promise that `asdict` wrote into a run's manifest."""
    try:
        process = _process_from(plain["process"])
        people = tuple(Group(**{**one, "process": _process_from(one["process"])}) for one in plain.get("people", ()))
        return Promise(**{**plain, "process": process, "people": people})
    except (TypeError, KeyError) as error:
        raise FedauditError(
            "run-guarantee", f"the guarantee of this run cannot be read: {error}", "Run it again.", exit_code=REFUSED
        ) from None


def _process_from(plain: Mapping[str, Any]) -> Process:
    process = Process(**plain)
    process.check()
    return process


# ------------------------------------------------------------------ composition

# From an empirical epsilon of single rounds to one of the whole training. A heuristic, whatever goes in.
#
# 1. The epsilon measured at a round is turned into the noise of a Gaussian mechanism that has it: one step, nobody
#    sampled, the same delta. `exact`: the exact Gaussian mechanism; `renyi`: as CANIFE does, by Renyi accounting, whose
#    slack makes the noise larger, so that the composed epsilon is smaller.
# 2. That noise stands for the rounds since the last measurement; the last one also for the rounds after it.
# 3. All rounds are composed by Renyi accounting, with the true sampling rate.


Inversion = Literal["exact", "renyi"]

LEAST, MOST = 0.01, 1e4  # noise: below, epsilon is in the thousands; above, it is nothing


def noise_of(epsilon: float, delta: float, how: Inversion = "exact") -> float:
    """The noise multiplier of a one-step Gaussian mechanism with this epsilon; infinite for an epsilon of 0."""
    check_epsilon(epsilon)
    check_delta(delta, zero=False)
    if epsilon == 0:
        return float("inf")
    if how == "exact":
        return 1 / gaussian_mu(epsilon, delta)
    one = Process("user", 1.0, 1, "full")

    def excess(noise: float) -> float:
        return rdp_epsilon(replace(one, noise=noise), 1, delta) - epsilon

    if excess(MOST) > 0:
        return float("inf")
    return float(optimize.brentq(excess, LEAST, MOST, rtol=1e-6)) if excess(LEAST) > 0 else LEAST


def composed(
    epsilons: Sequence[float],
    rounds: Sequence[int],
    rate: float,
    delta: float,
    how: Inversion = "exact",
    *,
    found_at: Sequence[float] | None = None,
) -> float:
    """`rounds[i]` rounds with the epsilon `epsilons[i]` each, every unit being drawn with chance `rate`. `found_at`:
    the deltas that these epsilons are for, if not the one of the whole."""
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant()
    with quiet():
        for epsilon, count, own in zip(epsilons, rounds, found_at or [delta] * len(rounds), strict=True):
            noise = noise_of(epsilon, own, how)
            if count < 1 or noise == float("inf"):
                continue
            event: Any = dp_accounting.GaussianDpEvent(max(noise, LEAST))
            if rate < 1:
                event = dp_accounting.PoissonSampledDpEvent(rate, event)
            accountant.compose(event, count)
        return float(accountant.get_epsilon(delta))
