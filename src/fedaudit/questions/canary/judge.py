"""Does the noisy sum tell whether a canary took part? Scores with it and without it, and what epsilon they show.

Four figures stand side by side at one delta: the largest plug-in epsilon over all thresholds, as papers quote it, with
its Clopper-Pearson interval; two proved bounds (union bound over ranks, threshold chosen on a split); and a Gaussian
fit. They are about one round in which the canary is known to take part or not, and are compared with the accountant's
epsilon of one such round. The composed figures are about the whole training, and never more than heuristic.

Several canaries at a probe share its noise. AUC and accuracy are judged by whole probes; the proved figures, the spread
and the Gaussian fit count one canary for each probe, chosen in advance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from fedaudit.audit.case import Case
from fedaudit.errors import FedauditError
from fedaudit.privacy.accounting import Inversion
from fedaudit.questions import Verdict
from fedaudit.questions.canary.claims import epsilons, remarks, whole_run_refuted
from fedaudit.questions.canary.watch import (
    CRAFTED,
    HEALTH,
    MEASURES,
    NORM,
    RANDOM,
    SCORE,
    SPREAD,
    CanaryScores,
    CanaryWatch,
    CraftedCanaries,
    Mechanism,
)
from fedaudit.stats import Block, Bonferroni, Split, auc, gdp_epsilon, maximised_epsilon, proportion, proved_epsilon
from fedaudit.stats.canary import (
    Probes,
    anytime_curve,
    anytime_epsilon,
    histogram,
    one_shot_bound,
    one_shot_epsilon,
    score_sd,
)
from fedaudit.stats.epsilon import one_run_epsilon
from fedaudit.stats.gaussian import gaussian_epsilon
from fedaudit.types import (
    AuditResult,
    Bools,
    Cost,
    Curve,
    Estimate,
    Floats,
    Ints,
    Kind,
    ModelKind,
    Notice,
    Vantage,
    notice,
    warning,
)
from fedaudit.words import with_warnings

Estimates = dict[str, Estimate]

FIGURES: dict[str, Callable[[Floats, Floats, float, float], Estimate]] = {
    "epsilon-maximised": maximised_epsilon,
    "epsilon-bonferroni": lambda w, o, delta, confidence: proved_epsilon(w, o, delta, Bonferroni(), confidence),
    "epsilon-split": lambda w, o, delta, confidence: proved_epsilon(w, o, delta, Split(), confidence),
    "epsilon-gdp": gdp_epsilon,
}
PROVED = ("epsilon-bonferroni", "epsilon-split")
OF_ONE = (*PROVED, "epsilon-gdp")  # figures that count one canary for each probe
ENDS = ("value", "low", "high")
INVERSIONS: tuple[tuple[str, Inversion, str], ...] = (
    ("epsilon-composed", "exact", "exact Gaussian inversion"),
    ("epsilon-composed-paper", "renyi", "inversion by Renyi accounting, as CANIFE does"),
)
MIDDLE = 0.5  # a score above it is taken for "present": fixed before any was seen


# ------------------------------------------------------------------ crafted canaries


@dataclass(frozen=True)
class Trials:
    """Scores with the bit that says whether the canary was present; `counted`: one of each probe, chosen in advance."""

    score: Floats
    present: Bools
    counted: Bools
    probe: Ints
    round: Ints
    norm: Floats
    spread: Floats
    health: Floats

    def with_and_without(self, all_of_them: bool = True) -> tuple[Floats, Floats]:
        chosen = np.isfinite(self.score) & (True if all_of_them else self.counted)
        return self.score[chosen & self.present], self.score[chosen & ~self.present]

    def probes(self) -> tuple[Ints, Ints] | None:
        """At which probe each score with and without was taken; None where no probe has two of them."""
        alive = np.isfinite(self.score)
        if len(np.unique(self.probe[alive])) == np.count_nonzero(alive):
            return None
        return self.probe[alive & self.present], self.probe[alive & ~self.present]

    def at(self, mask: Bools) -> Trials:
        return Trials(*(getattr(self, name)[mask] for name in self.__dataclass_fields__))


def trials(watch: CanaryScores, game: CraftedCanaries) -> Trials:
    moments = watch.moments()
    k = len(game.names)
    present = np.array([game.present[moment] for moment in moments], bool).reshape(len(moments), k)
    # One canary for each model that is probed, so that every model is seen as often with it as without.
    stop = np.unique([moment.round for moment in moments], return_inverse=True)[1]
    counted = (np.arange(len(moments)) if game.fair else stop)[:, None] % k == np.arange(k)
    column = {name: watch.values[:, :, place].ravel() for place, name in enumerate(MEASURES[CRAFTED])}
    # The canary of a running round is seen just before the round that it belongs to.
    round = np.repeat([m.round + (1 if game.fair else 0) for m in moments], k).astype(np.int64)
    probe = np.repeat(np.arange(len(moments)), k)
    told = present.ravel(), counted.ravel(), probe, round
    return Trials(column[SCORE], *told, column[NORM], column[SPREAD], column[HEALTH])


def crafted(case: Case, seen_of: CanaryWatch, vantage: Vantage, model: ModelKind) -> Verdict:
    """The result of `canife`."""
    game, watch = seen_of.game, seen_of.kept[CRAFTED]
    crafted = game.crafted
    if crafted is None or game.claim is None or not len(watch.round):
        raise FedauditError(
            "canary-none", "no canary was measured", "Let the training reach audit.canary.every rounds."
        )
    seen, confidence, claim = trials(watch, crafted), case.settings.confidence, game.claim
    if not np.isfinite(seen.score).any():
        what = f"every canary is dead: {seen.norm.max():.2g} of the clip norm at most, health {seen.health.max():.4f}"
        raise FedauditError(
            "canary-dead", what, "Craft with more audit.canary.steps, another target or a smaller clip."
        )
    found = figures(seen, claim.delta, confidence)
    found["canary-norm"] = norm_of(seen, confidence)
    curves = over_rounds(seen, claim, confidence, stops=not crafted.fair)
    if crafted.fair:
        for name in ("epsilon-bonferroni", "epsilon-split"):  # proved for trials of one model only
            found[name] = replace(found[name], kind="heuristic")
        alive = seen.at(np.isfinite(seen.score))
        probes = Probes(alive.score, alive.present, alive.round)
        found["epsilon-anytime"] = anytime_epsilon(probes, claim.delta, confidence)
        curves["epsilon-anytime"] = anytime_curve(probes, claim.delta, confidence)
    found |= composed_estimates(seen, claim, case.round, confidence, stops=not crafted.fair)
    found |= accountant(claim, case.round, confidence)
    curves |= claimed_curves(claim, [int(r) for r in np.unique(seen.round)])
    curves |= histograms(seen)
    noise = claim.process.noise if claim.process else None
    warnings = remarks(found, noise, seen.norm)
    result = AuditResult(
        "canife", vantage.value, model, "user", None, case.round, found, _cost(case, watch), curves=curves,
        canary=seen_of.exhibit, question="canary",
    )  # fmt: skip
    told = notice("canife", **_quality(seen, crafted.parties), epsilons=epsilons(found))
    return Verdict([with_warnings(result, warnings)], [told])


def _quality(seen: Trials, parties: float) -> dict[str, float]:
    health, norm, spread = (float(np.median(each)) for each in (seen.health, seen.norm, seen.spread))
    of_a_round = spread * float(np.sqrt(max(parties, 1.0)))
    return {"health": health, "norm": norm, "spread": spread, "of_a_round": of_a_round}


def figures(seen: Trials, delta: float, confidence: float) -> Estimates:
    """AUC, accuracy, spread, and the four epsilons side by side."""
    inside, outside = seen.with_and_without()
    alone, probes = seen.with_and_without(all_of_them=False), seen.probes()
    subjects = (*probes, probes[0][:0]) if probes else None
    found = {"auc": auc([Block(inside, outside, outside[:0], subjects)], confidence)}
    right = [np.concatenate([inside > MIDDLE, outside <= MIDDLE])]
    whose = [np.concatenate(probes) if probes else None]
    counted = f"share of probes told rightly by the threshold {MIDDLE:g}, fixed in advance"
    told = proportion(right, whose, confidence, "accuracy", counted, by="probe")
    found["accuracy"] = replace(told, n_pos=len(inside), n_neg=len(outside))  # with and without, as the others count
    found["score-sd"] = score_sd(*alone, confidence)
    for name, figure in FIGURES.items():
        pair = alone if name in OF_ONE else (inside, outside)
        found[name] = _attempt(name, figure, pair, delta, confidence)
    return found


def _attempt(
    name: str, figure: Callable[[Floats, Floats, float, float], Estimate], pair: tuple[Floats, Floats], delta: float,
    confidence: float,
) -> Estimate:  # fmt: skip
    """A figure, or why there is none: too few probes are no reason to fail."""
    try:
        return figure(*pair, delta, confidence)
    except FedauditError as error:
        kind: Kind = "proved" if name in PROVED else "heuristic"
        n = len(pair[0]), len(pair[1])
        return Estimate(name, None, None, None, confidence, "not computed", kind, *n, reason=error.what)


def norm_of(seen: Trials, confidence: float) -> Estimate:
    """|u_c| / C of every canary at every stop: the median, and between which it lies."""
    norms = seen.norm[np.isfinite(seen.norm)]
    method = "median of |u_c| / C; the ends are the smallest and the largest"
    n = len(np.unique(seen.round))
    ends = float(norms.min()), float(norms.max())
    return Estimate("canary-norm", float(np.median(norms)), *ends, confidence, method, "measured", n, 0)


def over_rounds(seen: Trials, claim: Mechanism, confidence: float, stops: bool) -> dict[str, Curve]:
    """Each figure at each stop. An interval holds for its own stop."""
    if not stops:
        return {}
    rounds = np.unique(seen.round)
    each = [figures(seen.at(seen.round == r), claim.delta, confidence) for r in rounds]
    curves = {}
    for name in FIGURES:
        some = [found[name] for found in each]
        value, low, high = ([getattr(e, end) for e in some] for end in ENDS)
        curves[name] = Curve(
            rounds.astype(float).tolist(),
            value,
            low,
            high,
            "one round in which the canary is known to take part or not",
        )
    return curves


def composed_estimates(seen: Trials, claim: Mechanism, rounds: int, confidence: float, stops: bool) -> Estimates:
    """The whole training, from the Gaussian fit of each stop where there is one, else from the maximised figure."""
    at = [int(r) for r in np.unique(seen.round)] if stops else [rounds]
    parts = [seen.at(seen.round == r) for r in at] if stops else [seen]
    used = [_of_stop(part, claim.delta, confidence) for part in parts]
    held = np.diff([0, *at[:-1], max(rounds, at[-1])]).tolist()
    rate = claim.process.rate if claim.process else 1.0
    sizes = int(np.count_nonzero(seen.present)), int(np.count_nonzero(~seen.present))
    source = "Gaussian fit" if all(one.name == "epsilon-gdp" for one in used) else "maximised figure where no fit holds"
    found = {}
    for name, how, words in INVERSIONS:
        of = {end: [getattr(one, end) for one in used] for end in ENDS}
        value, low, high = (_composed(of[end], held, rate, claim.delta, how) for end in ENDS)
        method = f"{source} of {len(at)} stops; {words}; Renyi composition over {rounds} rounds, rate {rate:g}"
        found[name] = Estimate(
            name, value, low, high, confidence, f"{method}, delta {claim.delta:g}", "heuristic", *sizes
        )
    return found


def _composed(
    epsilons: Sequence[float | None], rounds: Sequence[int], rate: float, delta: float, how: Inversion
) -> float | None:
    from fedaudit.privacy.accounting import composed

    known = [epsilon for epsilon in epsilons if epsilon is not None]
    return composed(known, rounds, rate, delta, how) if len(known) == len(epsilons) else None


def _of_stop(part: Trials, delta: float, confidence: float) -> Estimate:
    found = figures(part, delta, confidence)
    fit = found["epsilon-gdp"]
    return fit if fit.value is not None else found["epsilon-maximised"]


def accountant(claim: Mechanism, rounds: int, confidence: float) -> Estimates:
    """What the defence claims: of the whole training, and of one round in which the party is known to be."""
    if claim.process is None or rounds < 1:
        return {}
    from fedaudit.privacy.accounting import epsilon, rdp_epsilon

    whole, one = epsilon(claim.process, rounds, claim.delta), gaussian_epsilon(1 / claim.process.noise, claim.delta)
    after = f"at delta {claim.delta:g}; a claim, not a measurement"
    loose = f"the same by Renyi accounting, as epsilon-composed is computed: compare these two {after}"
    said = {
        "epsilon-accountant": (whole, f"the accountant's epsilon of {rounds} rounds {after}"),
        "epsilon-accountant-renyi": (rdp_epsilon(claim.process, rounds, claim.delta), loose),
        "epsilon-accountant-round": (one, f"the exact epsilon of one round in which the party takes part {after}"),
    }
    return {
        name: Estimate(name, value, None, value, confidence, method, "claimed", 0, 0)
        for name, (value, method) in said.items()
    }


def claimed_curves(claim: Mechanism, rounds: list[int]) -> dict[str, Curve]:
    if claim.process is None or not rounds:
        return {}
    from fedaudit.privacy.accounting import curve

    spent = curve(claim.process, rounds, claim.delta)
    one = [gaussian_epsilon(1 / claim.process.noise, claim.delta)] * len(rounds)
    none: list[float | None] = [None] * len(rounds)
    x = [float(r) for r in rounds]
    return {
        "epsilon-accountant": Curve(x, spent, none, spent, "claimed for all rounds so far"),
        "epsilon-accountant-round": Curve(x, one, none, one, "claimed for one round"),
    }


def histograms(seen: Trials) -> dict[str, Curve]:
    inside, outside = seen.with_and_without()
    x, with_it, without = histogram(inside, outside)
    none: list[float | None] = [None] * len(x)
    told = "number of scores in each bin"
    return {
        "scores-with": Curve(x, with_it.tolist(), none, none, told),
        "scores-without": Curve(x, without.tolist(), none, none, told),
    }


# ------------------------------------------------------------------ random canaries


def random(case: Case, seen_of: CanaryWatch, vantage: Vantage, model: ModelKind) -> Verdict:
    """The result of `one-shot`."""
    game, watch = seen_of.game, seen_of.kept[RANDOM]
    random, claim, confidence = game.random, game.claim, case.settings.confidence
    if random is None or claim is None or not len(watch.round):
        raise FedauditError("canary-none", "no random canary was measured", "Let the training go on for a round.")
    inside = random.included
    largest, final = watch.values[:, :, 0].max(axis=0), watch.values[-1, :, 1]
    rounds = len(watch.round)
    found: Estimates = {}
    if inside.any() and not inside.all():
        found["auc"] = auc([Block(final[inside], final[~inside], final[:0])], confidence)
    found["epsilon-one-shot"] = one_shot_epsilon(final[inside], random.size, claim.delta, confidence)
    found["epsilon-one-shot-bound"] = one_shot_bound(final[inside], random.size, claim.delta, confidence)
    every = one_shot_bound(largest[inside], random.size, claim.delta, confidence, looks=rounds)
    found["epsilon-one-shot-rounds"] = replace(
        every, name="epsilon-one-shot-rounds", method=f"{every.method}; the largest cosine of {rounds} rounds"
    )
    found["epsilon-one-run"] = one_run_epsilon(final, inside, claim.delta, confidence)
    found |= accountant(claim, case.round, confidence)
    warnings = [*whole_run_refuted(found), *null_remarks(final[~inside], random.size)]
    curves = {}
    if inside.any() and not inside.all():
        x, with_it, without = histogram(final[inside], final[~inside])
        none: list[float | None] = [None] * len(x)
        curves = {
            name: Curve(x, counts.tolist(), none, none, "number of cosines in each bin")
            for name, counts in (("scores-with", with_it), ("scores-without", without))
        }
    result = AuditResult(
        "one-shot", vantage.value, model, "user", None, case.round, found, _cost(case, watch), curves=curves,
        question="canary",
    )  # fmt: skip
    told = notice("one-shot", sent=int(inside.sum()), of=len(inside), epsilons=epsilons(found))
    return Verdict([with_warnings(result, warnings)], [told])


def null_remarks(never_sent: Floats, size: int) -> list[Notice]:
    """Directions that were never sent must look like random ones."""
    if len(never_sent) < 8:
        return []
    p = float(stats.kstest(never_sent * np.sqrt(size), "norm").pvalue)
    if p >= 1e-3:
        return []
    return [warning("canaries-not-random", p=p)]


def _cost(case: Case, watch: CanaryScores) -> Cost:
    return Cost(watch.seconds / case.outlooks.unit())
