"""Was this candidate trained on? Pooled results with curves, beside the primary attack, and a result for each party."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from fedaudit.adversary.attacks.base import BaseAttack
from fedaudit.adversary.reductions import Regression
from fedaudit.audit.case import AUC, TPR, Case, Estimates, OverRounds, below_chance, fpr_missed
from fedaudit.audit.collect import Sight
from fedaudit.audit.score import NO_SCORES, Scores, why_undefined
from fedaudit.audit.settings import HEADLINE_FPR
from fedaudit.questions import MINUS, Verdict, behind
from fedaudit.stats import Block, auc_difference, needed_for_value, roc_curve, tied_share, tpr_difference
from fedaudit.stats.blocks import calibrated
from fedaudit.stats.paired import alike
from fedaudit.stats.roc import estimates
from fedaudit.types import AuditResult, Cost, Curve, Floats, ModelKind, Notice, Role, Vantage, notice, warning
from fedaudit.words import with_warnings

SIDES = {"distance-members": (Role.MEMBER,), "distance-nonmembers": (Role.EVALUATION, Role.CALIBRATION)}
MANY_TIES = 0.03  # of members and calibration records
FEW_VALUES = 0.1  # of as many scores: these are counts or answers, and no numbers that ran into a limit


def judge(case: Case, attack: BaseAttack, vantage: Vantage, model: ModelKind) -> Verdict:
    sights, scores = case.outlooks.of(vantage, model), case.scores
    blocks = scores.blocks(sights, attack)
    curves = {"roc": roc_curve(blocks, confidence=case.settings.confidence)}
    banded = attack is case.primary(vantage)
    curves |= _over_rounds(case, attack, vantage, model) if banded else _thinned(case, attack, vantage, model)
    curves |= _distances(case, attack, sights)
    unmixed = _regressions(attack, sights)
    curves |= _explained(unmixed)
    pooled = _entry(case, attack, vantage, model, None, blocks)
    found = {**pooled.estimates, **case.beside(attack, sights)}
    pooled = replace(pooled, estimates=found, beside=_minus_primary(case, attack, vantage, model, blocks))
    results = [with_warnings(replace(pooled, curves=curves), _unscored(attack, sights, scores))]
    attacker = case.game.first if attack.by_first_party else scores.barred if "shadow" in attack.fitted_on else None
    for party in case.parties(model):
        if party == attacker:
            continue
        sight = case.outlooks.sight(vantage, model, party)
        mine = scores.blocks([sight], attack, party)
        of_party = _entry(case, attack, vantage, model, party, mine)
        if not mine:
            why = why_undefined(sight, attack)
            without = {name: replace(e, reason=why) for name, e in of_party.estimates.items() if e.value is None}
            of_party = replace(of_party, estimates={**of_party.estimates, **without})
        results.append(of_party)
    told = tied(attack.name, blocks, case.fprs, vantage, model)
    told += _covered(case, attack, vantage, model, unmixed)
    if attack is case.primary(vantage):
        told += _changed(attack.name, vantage, model, case.bands.get((vantage.value, attack.name, model)))
    return Verdict(results, told, behind(attack.name, model, case.decided_errors(attack, sights)))


def _entry(
    case: Case, attack: BaseAttack, vantage: Vantage, model: ModelKind, party: str | None, blocks: Sequence[Block]
) -> AuditResult:
    settings, unit = case.settings, case.game.candidates.unit
    sights = case.outlooks.of(vantage, model) if party is None else [case.outlooks.sight(vantage, model, party)]
    absent = case.scores.absent(sights, attack) if party is None else ()
    found = estimates(blocks, case.fprs, settings.confidence, absent)
    if not blocks:
        found = {name: replace(e, reason=NO_SCORES) for name, e in found.items()}
    looked_at = sum(len(settings.on(who, kind)) for who, kind in settings.watched())
    looked_at *= 1 if party is None else len(case.game.parties)
    found |= case.decided(attack, sights, settings.confidence, party)
    labels = case.scores.queries(sights, attack, party) or (None, None)
    cost = Cost(case.scores.epochs(sights, attack), *labels)
    warnings = below_chance(attack.name, blocks, found["auc"], looked_at)
    warnings += fpr_missed(attack.name, found)
    layer = next((sight.layers[s] for sight in sights for s in attack.signals if s in sight.layers), None)
    found_there = AuditResult(
        attack.name, vantage.value, model, unit, party, round=case.round, estimates=found, cost=cost
    )
    return with_warnings(replace(found_there, layer=layer, question=attack.question), warnings)


def _unscored(attack: BaseAttack, sights: Sequence[Sight], scores: Scores) -> list[Notice]:
    """A warning if some scores are NaN or infinite. They count against the attack."""
    seen = [sight for sight in sights if scores.defined(sight, attack)]
    count = sum(scores.unscored(sight, attack) for sight in seen)
    of = sum(int(scores.judged(sight, attack).sum()) for sight in seen)
    return [warning("unscored", attack=attack.name, count=int(count), of=of)] if count else []


def tied(
    attack: str, blocks: Sequence[Block], fprs: Sequence[float], vantage: Vantage, model: ModelKind
) -> list[Notice]:
    """Many scores that equal their threshold: coins decide about them. The figure is right all the same; its interval
    may be too narrow where the ROC curve has a corner at this rate."""
    for fpr in fprs if blocks else ():
        calibrates = sum(len(block.calibration) for block in blocks) >= needed_for_value(fpr)
        if calibrates and (share := tied_share(blocks, fpr)) > MANY_TIES:
            scores = np.concatenate([np.concatenate([block.members, block.calibration]) for block in blocks])
            values = len(np.unique(scores))
            told = {"share": float(share), "fpr": fpr, "values": values if values <= FEW_VALUES * len(scores) else None}
            return [notice("ties", vantage=vantage.value, model=model, attack=attack, **told)]
    return []


def _over_rounds(case: Case, attack: BaseAttack, vantage: Vantage, model: ModelKind) -> dict[str, Curve]:
    seen = case.bands.get((vantage.value, attack.name, model))
    if seen is None:  # a deferred attack is scored only now
        seen = case.new_band()
        blocks = case.scores.blocks(case.outlooks.of(vantage, model), attack)
        if blocks:
            seen.add(case.round, blocks, estimates(blocks, case.fprs, case.settings.confidence))
    return seen.curves() | _accuracy_over_rounds(case, attack, vantage, model)


def _thinned(case: Case, attack: BaseAttack, vantage: Vantage, model: ModelKind) -> dict[str, Curve]:
    """An attack that is not primary, after some of the rounds."""
    history = case.history.get((vantage.value, attack.name, model), {})
    how = f"after some of {case.settings.rounds} planned rounds; the error is shared among these and all attacks"
    return {name: _curve(history, name, how) for name in (AUC, TPR) if _has(history, name)}


def _has(history: Mapping[int, Estimates], name: str) -> bool:
    return any(name in found for found in history.values())


def _curve(history: Mapping[int, Estimates], name: str, method: str, simultaneous: bool = False) -> Curve:
    found = {round: of[name] for round, of in sorted(history.items()) if name in of}
    value, low, high = ([getattr(estimate, end) for estimate in found.values()] for end in ("value", "low", "high"))
    return Curve([float(round) for round in found], value, low, high, method, simultaneous=simultaneous)


def _changed(attack: str, vantage: Vantage, model: ModelKind, seen: OverRounds | None) -> list[Notice]:
    """Round against round, where the interval of the difference does not hold 0."""
    found = {name: change for name in (TPR, AUC) if seen and (change := seen.change(name))}
    for name, change in found.items():
        if change.low > 0 or change.high < 0:
            place = {"vantage": vantage.value, "model": model, "attack": attack}
            by = {"value": change.value, "low": change.low, "high": change.high}
            return [notice("changed", **place, name=name, rounds=[change.first, change.last], change=by)]
    return []


def _accuracy_over_rounds(case: Case, attack: BaseAttack, vantage: Vantage, model: ModelKind) -> dict[str, Curve]:
    """For attacks with a threshold of their own: the accuracy after each round."""
    history = case.history.get((vantage.value, attack.name, model), {})
    how = f"simultaneous over {case.settings.rounds} planned rounds: error shared among them (Bonferroni)"
    return {"accuracy": _curve(history, "accuracy", how, simultaneous=True)} if _has(history, "accuracy") else {}


# ------------------------------------------------------------------ beside the primary attack


def _minus_primary(
    case: Case, attack: BaseAttack, vantage: Vantage, model: ModelKind, blocks: Sequence[Block]
) -> Estimates:
    """An attack's AUC and TPR minus those of the vantage's primary attack on the same kind of models. The error is
    shared among all attacks that are so compared."""
    primary, alive = case.primary(vantage), case.alive(vantage, model)
    if primary is None or attack is primary or primary not in alive or attack.question != primary.question:
        return {}
    others = [other for other in alive if other is not primary and other.question == primary.question]
    confidence = 1 - (1 - case.settings.confidence) / len(others)
    blocks, theirs = alike(blocks, case.scores.blocks(case.outlooks.of(vantage, model), primary))
    if not blocks:
        return {}
    found = {"auc": auc_difference(blocks, theirs, confidence)}
    if HEADLINE_FPR in case.fprs:
        pair = alike(calibrated(blocks), calibrated(theirs))
        found[f"tpr@{HEADLINE_FPR:g}"] = tpr_difference(*pair, HEADLINE_FPR, confidence)
    return {
        name + MINUS: replace(e, name=name + MINUS, method=f"minus {primary.name}; {e.method}")
        for name, e in found.items()
    }


# ------------------------------------------------------------------ distances to the decision boundary


def _distances(case: Case, attack: BaseAttack, sights: Sequence[Sight]) -> dict[str, Curve]:
    """Medians of the judged candidates, and the labels they cost so far; nothing for attacks without distances."""
    kept = sights[0].reductions.get(attack.name) if len(sights) == 1 else None
    if kept is None or (of_rounds := kept.distances()) is None or len(of_rounds[0]) < 2:
        return {}
    sight, found = sights[0], dict[str, Curve]()
    judged = case.scores.judged(sight, attack)
    seen, nearest, cost = of_rounds
    rounds = [float(round) for round in seen]
    confidence = case.settings.confidence
    method = f"median; order statistics, {confidence:.0%} in each round"
    for name, roles in SIDES.items():
        mine = judged & np.isin(sight.role, [role.value for role in roles])
        ends = [median(row[mine], confidence) for row in nearest]
        value, low, high = ([end[i] for end in ends] for i in range(3))
        found[name] = Curve(rounds, value, low, high, method)
    if kept.queries() is not None:
        spent = np.cumsum([float(np.mean(asked[judged])) for asked in cost])
        found["queries"] = Curve(rounds, spent.tolist(), spent.tolist(), spent.tolist(), "counted: mean of a candidate")
    return found


# ------------------------------------------------------------------ updates that are explained by candidates


def _regressions(attack: BaseAttack, sights: Sequence[Sight]) -> dict[int, Regression]:
    """By place among the sights."""
    kept = {place: sight.reductions.get(attack.name) for place, sight in enumerate(sights)}
    found = {place: reduction.regression() for place, reduction in kept.items() if reduction}
    return {place: of for place, of in found.items() if of is not None and of.rounds}


def _explained(unmixed: Mapping[int, Regression]) -> dict[str, Curve]:
    by_round: dict[int, list[float]] = {}
    for of in unmixed.values():
        for round, value in zip(of.rounds, of.explained, strict=True):
            by_round.setdefault(round, []).append(value)
    if not by_round:
        return {}
    rounds = sorted(by_round)
    mean = [float(np.mean(by_round[round])) for round in rounds]
    unknown = [None] * len(rounds)  # models are few: there is no interval
    how = "share of the update that the candidates' gradients make (R^2), mean over the models; no labels"
    return {"explained": Curve([float(round) for round in rounds], mean, unknown, unknown, how)}


def _covered(
    case: Case, attack: BaseAttack, vantage: Vantage, model: ModelKind, unmixed: Mapping[int, Regression]
) -> list[Notice]:
    """How many of the records that were trained on the attack had before it at a time: what an outsider lacks."""
    if not unmixed:
        return []
    sights, game = case.outlooks.of(vantage, model), case.game
    held = trained = 0.0
    for place, of in unmixed.items():
        sight = sights[place]
        parties = game.parties if model == "global" else sorted(set(sight.party.tolist()))
        trained += sum(game.size(party) for party in parties)
        held += of.share * int((sight.role == Role.MEMBER.value).sum())
    explained = [value for of in unmixed.values() for value in of.explained]
    known = {"coverage": min(held / max(trained, 1.0), 1.0), "explained": float(np.mean(explained))}
    error = float(np.max([of.error for of in unmixed.values()]))  # NaN if a solution failed
    return [notice("unmixed", vantage=vantage.value, model=model, attack=attack.name, error=error, **known)]


def median(values: Floats, confidence: float) -> tuple[float | None, float | None, float | None]:
    """With the order statistics that enclose it: how many values lie below it is binomial."""
    from scipy import stats

    kept = np.sort(values[np.isfinite(values)])
    n = len(kept)
    if n == 0:
        return None, None, None
    below = int(stats.binom.ppf((1 - confidence) / 2, n, 0.5))  # ranks `below` and n + 1 - below, counted from 1
    if below < 1:
        return float(np.median(kept)), None, None
    return float(np.median(kept)), float(kept[below - 1]), float(kept[n - below])
