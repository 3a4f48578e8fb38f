"""Does the noisy sum tell whether a canary took part? Scores with it and without it, and what epsilon they show.

Four figures stand side by side at one delta: the largest plug-in epsilon over all thresholds, as papers quote it, with
its Clopper-Pearson interval; two proved bounds (over ranks, and with a threshold chosen on a split); and a Gaussian
fit. They are about one round in which the canary is known to take part or not, and are compared with the accountant's
epsilon of one such round. The composed figures are about the whole training, and never more than heuristic.

Several canaries at a probe share its noise. AUC and accuracy are judged by whole probes; the proved figures, the spread
and the Gaussian fit count one canary for each probe, chosen in advance.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from fedaudit.audit.case import Case, Estimates, figure
from fedaudit.errors import FedauditError
from fedaudit.privacy.accounting import Inversion, composed
from fedaudit.questions import Against, Verdict, behind, metric
from fedaudit.questions.canary import QUESTION
from fedaudit.questions.canary.claims import ROUND, WHOLE, refuted
from fedaudit.questions.canary.watch import (
    ALIVE,
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
from fedaudit.questions.coins import ONE_RUN, refutation
from fedaudit.stats import Block, Ranks, Split, auc, gdp_epsilon, maximised_epsilon, proportion, proved_epsilon
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
    Bools,
    Curve,
    Estimate,
    Floats,
    Ints,
    Kind,
    ModelKind,
    Notice,
    UnitErrors,
    Vantage,
    notice,
    warning,
)

if TYPE_CHECKING:
    from fedaudit.privacy.statement import Statement
    from fedaudit.results.document import Document

# CANIFE's own recipe, at a delta of one in the number of trials: of one round, and of the whole training.
PAPERS, HEADLINE = "epsilon-canife-round", "epsilon-canife"
FIGURES: dict[str, Callable[[Floats, Floats, float, float], Estimate]] = {
    "epsilon-maximised": maximised_epsilon,
    PAPERS: lambda w, o, delta, confidence: replace(
        maximised_epsilon(w, o, 1 / max(len(w) + len(o), 2), confidence), name=PAPERS
    ),
    "epsilon-ranks": lambda w, o, delta, confidence: proved_epsilon(w, o, delta, Ranks(), confidence),
    "epsilon-split": lambda w, o, delta, confidence: proved_epsilon(w, o, delta, Split(), confidence),
    "epsilon-gdp": gdp_epsilon,
}
PROVED = ("epsilon-ranks", "epsilon-split")
OF_ONE = (*PROVED, "epsilon-gdp")  # figures that count one canary for each probe
ENDS = ("value", "low", "high")
INVERSIONS: tuple[tuple[str, Inversion, str], ...] = (
    ("epsilon-composed", "exact", "exact Gaussian inversion"),
    ("epsilon-composed-paper", "renyi", "inversion by Renyi accounting, as CANIFE does"),
    (HEADLINE, "renyi", "inversion by Renyi accounting: the whole recipe of CANIFE"),
)
MIDDLE = 0.5  # a score above it is taken for "present": fixed before any was seen
WEAK = 0.99  # of the clip norm: a shorter canary meets less than all of the noise
HEALTHY = 0.5  # crafting that brings the loss down by less has failed, by the paper's experience
RARE = 1e-3


# ------------------------------------------------------------------ crafted canaries


@dataclass(frozen=True, kw_only=True)
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
        return Trials(**{name: getattr(self, name)[mask] for name in self.__dataclass_fields__})


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
    return Trials(
        score=column[SCORE], present=present.ravel(), counted=counted.ravel(), probe=probe, round=round,
        norm=column[NORM], spread=column[SPREAD], health=column[HEALTH],
    )  # fmt: skip


def crafted(case: Case, seen_of: CanaryWatch, vantage: Vantage, model: ModelKind) -> Verdict:
    """The result of `canife`."""
    game, watch = seen_of.game, seen_of.kept[CRAFTED]
    crafted, claim, confidence = game.crafted, game.claim, case.settings.confidence
    if crafted is None or claim is None or not len(watch.round):
        raise FedauditError(
            "canary-none", "no canary was measured", "Let the training reach audit.canary.every rounds."
        )
    seen = trials(watch, crafted)
    if not np.isfinite(seen.score).any():
        what = f"every canary is dead: {seen.norm.max():.2g} of the clip norm at most, health {seen.health.max():.4f}"
        todo = "Set a smaller clip, or craft with more audit.canary.steps or another target."
        if claim.clip is not None and seen.norm.max() > 0:
            half = f"{seen.norm.max() * claim.clip / 2:.1g}"  # rounding does not lead beyond the whole
            todo = f'Set a clip of {half} or less in [[defences]]; with federation.optimizer = "sgd" more steps help.'
        raise FedauditError("canary-dead", what, todo)
    found = figures(seen, claim.delta, confidence)
    errors = behind("canife", model, dict.fromkeys(found, of_its_own(seen)))
    found[NORM] = range_of(seen.norm, seen, NORM, "|u_c| / C", confidence)
    found[HEALTH] = range_of(seen.health, seen, HEALTH, "health (1 - loss after / before)", confidence)
    rounds = [int(r) for r in np.unique(seen.round)]
    curves: dict[str, Curve] = {}
    if crafted.fair:
        by_stop = {case.round: found}
        for name in PROVED:  # for trials of one model only
            found[name] = replace(found[name], kind="heuristic")
        alive = seen.at(np.isfinite(seen.score))
        probes = Probes(alive.score, alive.present, alive.round)
        found["epsilon-anytime"] = anytime_epsilon(probes, claim.delta, confidence)
        curves["epsilon-anytime"] = anytime_curve(probes, claim.delta, confidence)
    else:
        by_stop = {r: figures(seen.at(seen.round == r), claim.delta, confidence) for r in rounds}
        curves = _over_stops(by_stop)
    counts = int(np.count_nonzero(seen.present)), int(np.count_nonzero(~seen.present))
    found |= _composed_estimates(by_stop, claim, case.round, confidence, counts)
    found |= _accountant(claim, case.round, confidence)
    curves |= _claimed_curves(claim, rounds) | {HEALTH: _health_curve(seen, rounds)}
    curves |= _histograms(*seen.with_and_without(), "number of scores in each bin")
    warnings = remarks(found, claim.process.noise if claim.process else None, seen.norm)
    health = found[HEALTH].value
    if health is not None and health < HEALTHY:
        warnings.append(warning("canary-unhealthy", health=health))
    result = case.result(
        "canife", vantage, model, found,
        question=QUESTION, seconds=watch.seconds, curves=curves, warnings=warnings,
    )  # fmt: skip
    told = notice("canife", **_quality(seen, crafted.parties), epsilons=_epsilons(found))
    return Verdict([replace(result, canary=seen_of.exhibit)], [told], errors)


def of_its_own(seen: Trials) -> UnitErrors:
    """Noise is drawn anew for every probe, and who takes part in it: two runs have no error in common. Their probes are
    told apart by the scores."""
    run = hashlib.sha256(np.ascontiguousarray(seen.score).tobytes()).hexdigest()[:20]
    names = np.array([f"probe {number} of {run}" for number in np.unique(seen.probe).tolist()])
    return UnitErrors(names, np.full(len(names), 1 / len(names)))


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
    for name, estimated in FIGURES.items():
        pair = alone if name in OF_ONE else (inside, outside)
        try:
            found[name] = estimated(*pair, delta, confidence)
        except FedauditError as error:  # too few probes are no reason to fail
            kind: Kind = "proved" if name in PROVED else "heuristic"
            n = len(pair[0]), len(pair[1])
            found[name] = Estimate(name, None, None, None, confidence, "not computed", kind, *n, reason=error.what)
    return found


def range_of(values: Floats, seen: Trials, name: str, what: str, confidence: float) -> Estimate:
    """Of every canary at every stop: the median, and between which it lies."""
    known = values[np.isfinite(values)]
    method = f"median of {what}; the ends are the smallest and the largest"
    n = len(np.unique(seen.round))
    ends = float(known.min()), float(known.max())
    return Estimate(name, float(np.median(known)), *ends, confidence, method, "measured", n, 0)


def _health_curve(seen: Trials, rounds: list[int]) -> Curve:
    """The median of the canaries at each stop, and between which they lie."""
    at = [seen.health[seen.round == round] for round in rounds]
    value, low, high = ([float(of(own)) for own in at] for of in (np.median, np.min, np.max))
    return Curve([float(r) for r in rounds], value, low, high, "median of the canaries, smallest and largest")


def _over_stops(by_stop: Mapping[int, Estimates]) -> dict[str, Curve]:
    """Each figure at each stop. An interval holds for its own stop."""
    curves = {}
    for name in FIGURES:
        value, low, high = ([getattr(found[name], end) for found in by_stop.values()] for end in ENDS)
        told = "one round in which the canary is known to take part or not"
        curves[name] = Curve([float(stop) for stop in by_stop], value, low, high, told)
    return curves


def _composed_estimates(
    by_stop: Mapping[int, Estimates], claim: Mechanism, rounds: int, confidence: float, counts: tuple[int, int]
) -> Estimates:
    """The whole training, from the Gaussian fit of each stop where there is one, else from the maximised figure; and as
    CANIFE reports it, from the maximised figure at a delta of one in the number of trials."""
    fits = [(found["epsilon-gdp"], found["epsilon-maximised"]) for found in by_stop.values()]
    used = [maximised if fit.value is None else fit for fit, maximised in fits]
    stops = list(by_stop)
    # What is measured at a stop holds until the next one; before the first, as at the first.
    held = np.diff([0, *stops[1:], max(rounds, stops[-1])]).tolist()
    rate = claim.process.rate if claim.process else 1.0
    source = "Gaussian fit" if all(one.name == "epsilon-gdp" for one in used) else "maximised figure where no fit holds"
    papers = [found[PAPERS] for found in by_stop.values()]
    at_one_in_n = [1 / max(one.n_pos + one.n_neg, 2) for one in papers]  # of a dead canary no trial counts
    from_papers = "maximised figure at delta 1/n"

    def whole(end: str, how: Inversion, of: Sequence[Estimate], found_at: list[float] | None) -> float | None:
        known = [epsilon for one in of if (epsilon := getattr(one, end)) is not None]
        return composed(known, held, rate, claim.delta, how, found_at=found_at) if len(known) == len(of) else None

    found = {}
    for name, how, words in INVERSIONS:
        of, at, told = (papers, at_one_in_n, from_papers) if name == HEADLINE else (used, None, source)
        value, low, high = (whole(end, how, of, at) for end in ENDS)
        method = f"{told} of {len(stops)} stops; {words}; Renyi composition over {rounds} rounds, rate {rate:g}"
        found[name] = Estimate(
            name, value, low, high, confidence, f"{method}, delta {claim.delta:g}", "heuristic", *counts
        )
    return found


def _accountant(claim: Mechanism, rounds: int, confidence: float) -> Estimates:
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


def _claimed_curves(claim: Mechanism, rounds: list[int]) -> dict[str, Curve]:
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


def _histograms(inside: Floats, outside: Floats, told: str) -> dict[str, Curve]:
    x, with_it, without = histogram(inside, outside)
    none: list[float | None] = [None] * len(x)
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
    found[ONE_RUN] = one_run_epsilon(final, inside, claim.delta, confidence)
    found |= _accountant(claim, case.round, confidence)
    curves: dict[str, Curve] = {}
    if inside.any() and not inside.all():
        curves = _histograms(final[inside], final[~inside], "number of cosines in each bin")
    warnings = [*_whole_run_refuted(found), *_not_random(final[~inside], random.size)]
    result = case.result(
        "one-shot", vantage, model, found,
        question=QUESTION, seconds=watch.seconds, curves=curves, warnings=warnings,
    )  # fmt: skip
    told = notice("one-shot", sent=int(inside.sum()), of=len(inside), epsilons=_epsilons(found))
    return Verdict([result], [told])


def _not_random(never_sent: Floats, size: int) -> list[Notice]:
    """A warning unless directions that were never sent look like random ones."""
    if len(never_sent) < 8:
        return []
    p = float(stats.kstest(never_sent * np.sqrt(size), "norm").pvalue)
    return [warning("canaries-not-random", p=p)] if p < RARE else []


# ------------------------------------------------------------------ held against a claim


def _whole_run_refuted(found: Mapping[str, Estimate]) -> list[Notice]:
    """A warning if the coins of random canaries prove more than is claimed for the whole training."""
    bound = refuted(found)
    if bound is None:
        return []
    return [warning("run-refuted", epsilon=bound.value, confidence=bound.confidence, claimed=found[WHOLE].value)]


def _too_quiet(spread: Estimate, noise: float) -> bool:
    """Would the claimed noise alone give so small a spread less than once in a thousand audits?"""
    freedom = spread.n_pos + spread.n_neg - 2
    squares = freedom * ((spread.value or 0.0) / noise) ** 2
    return freedom > 0 and bool(stats.chi2.cdf(squares, freedom) < RARE)


def too_little_noise(found: Mapping[str, Estimate], noise: float) -> bool:
    """The same of stored figures. A canary meets as much of the noise as it has of the clip norm; the shortest that is
    alive has at least ALIVE of it."""
    spread, norm = found.get("score-sd"), found.get("canary-norm")
    if spread is None or spread.value is None:
        return False
    least = 1.0 if norm is None or norm.low is None else max(norm.low, ALIVE)
    return _too_quiet(spread, noise * least)


def remarks(found: Mapping[str, Estimate], noise: float | None, norms: Floats) -> list[Notice]:
    """Warnings: a refuted claim, noise that is not there, canaries that are dead or weak. A canary meets as much of the
    noise as it has of the clip norm."""
    told, spread = list[Notice](), found["score-sd"]
    if bound := refuted(found):
        told.append(
            warning(
                "round-refuted",
                epsilon=bound.value,
                figure=bound.name,
                confidence=bound.confidence,
                present=bound.n_pos,
                absent=bound.n_neg,
                claimed=found[ROUND].value,
            )
        )
    dead = ~(norms >= ALIVE)
    expected = 0.0 if noise is None or dead.all() else noise * float(norms[~dead].min())
    if expected and spread.value is not None and _too_quiet(spread, expected):
        much_less = spread.value < expected / 10
        told.append(warning("noise-missing", sd=spread.value, most=spread.high, expected=expected, none=much_less))
    elif noise is None and found["auc"].value == 1:
        told.append(warning("no-noise"))
    if dead.any():
        told.append(warning("canaries-dead", dead=int(dead.sum()), of=len(norms)))
    elif (norm := float(np.median(norms))) < WEAK:
        told.append(warning("canary-weak", norm=norm))
    return told


def _epsilons(found: Mapping[str, Estimate]) -> dict[str, dict[str, float | None]]:
    """What is proved, what is estimated, what is claimed."""
    of_epsilon = [one for name, one in found.items() if metric(name).form == "epsilon" and one.value is not None]
    return {one.name: figure(one) for one in of_epsilon}


def against(claim: Statement, document: Document) -> list[Against]:
    """What the canaries of this run found against a claim about whole parties."""
    found: list[Against] = []
    for entry in document.results if claim.unit == "user" else ():
        if entry.attack == "one-shot":
            bound = None if claim.epsilon is None else refuted(entry.estimates, claim.epsilon)
            if bound is not None and bound.low is not None:
                found.append(refutation(entry.attack, bound.low))
        elif entry.attack == "canife":
            if of_a_round := refuted(entry.estimates):
                least = f"canife proves an epsilon of {of_a_round.value:.3g} at least for one round"
                found.append(Against(f"the audit refutes this claim: {least}, and less is claimed"))
            if too_little_noise(entry.estimates, claim.process.noise):
                why = "the audit contradicts this claim: canife finds less noise in the sum than is claimed"
                found.append(Against(why))
    return found
