"""Was this candidate trained on? Pooled results with curves, and a result for each party."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fedaudit.adversary.attacks.base import BaseAttack
from fedaudit.audit.judge import distances
from fedaudit.audit.judge.case import Case, Verdict, estimates
from fedaudit.audit.notices import below_chance, tied, unscored
from fedaudit.audit.score import why_undefined
from fedaudit.audit.settings import HEADLINE_FPR
from fedaudit.stats import Block, roc_curve
from fedaudit.types import AuditResult, Cost, Curve, ModelKind, Vantage


def judge(case: Case, attack: BaseAttack, vantage: Vantage, model: ModelKind) -> Verdict:
    sights, scores = case.panels.of(vantage, model), case.scores
    blocks = scores.blocks(sights, attack)
    curves = {"roc": roc_curve(blocks, confidence=case.settings.confidence)}
    if attack is case.primary(vantage):
        curves |= over_rounds(case, attack, vantage, model)
    curves |= distances.curves(case, attack, sights)
    pooled = entry(case, attack, vantage, model, None, blocks)
    results = [replace(pooled, curves=curves, warnings=[*pooled.warnings, *unscored(attack, sights, scores)])]
    for party in case.game.parties:
        if (attack.learns and party == scores.barred) or (attack.by_first_party and party == case.game.parties[0]):
            continue  # the adversary itself
        sight = case.panels.sight(vantage, model, party)
        mine = scores.blocks([sight], attack, party)
        found = entry(case, attack, vantage, model, party, mine)
        if not mine:
            why = why_undefined(sight, attack)
            without = {name: replace(e, reason=why) for name, e in found.estimates.items() if e.value is None}
            found = replace(found, estimates={**found.estimates, **without})
        results.append(found)
    told = [f"{vantage.value}, {model} models: {line}" for line in tied(attack.name, blocks, case.fprs)]
    return Verdict(results, told)


def entry(
    case: Case, attack: BaseAttack, vantage: Vantage, model: ModelKind, party: str | None, blocks: Sequence[Block]
) -> AuditResult:
    settings, unit = case.settings, case.game.candidates.unit
    found = estimates(blocks, case.fprs, settings.confidence)
    if not blocks:
        found = {name: replace(e, reason="took part in too few rounds") for name, e in found.items()}
    looked_at = sum(len(settings.on(who, kind)) for who, kind in settings.watched())
    looked_at *= 1 if party is None else len(case.game.parties)
    sights = case.panels.of(vantage, model) if party is None else [case.panels.sight(vantage, model, party)]
    found |= case.decided(attack, sights, settings.confidence, party)
    cost = Cost(case.scores.epochs(sights, attack), case.scores.queries(sights, attack))
    warnings = below_chance(attack.name, blocks, found["auc"], looked_at)
    layer = next((sight.layers[s] for sight in sights for s in attack.signals if s in sight.layers), None)
    found_there = AuditResult(attack.name, vantage.value, model, unit, party, case.round, found, cost, warnings)
    return replace(found_there, layer=layer)


def over_rounds(case: Case, attack: BaseAttack, vantage: Vantage, model: ModelKind) -> dict[str, Curve]:
    seen = dict(case.history.get((vantage.value, attack.name, model), {}))
    if case.round not in seen:  # a deferred attack is scored only now
        sights = case.panels.of(vantage, model)
        if any(case.scores.defined(sight, attack) for sight in sights):
            shared = 1 - (1 - case.settings.confidence) / case.settings.rounds
            seen[case.round] = case.pooled(attack, sights, shared) | case.decided(attack, sights, shared)
    method = f"simultaneous over {case.settings.rounds} planned rounds: error shared equally (Bonferroni)"
    curves = {}
    for name in ("auc", f"tpr@{HEADLINE_FPR:g}", "accuracy"):
        found = [e[name] for e in seen.values() if name in e]
        if found:
            values, lows, highs = [e.value for e in found], [e.low for e in found], [e.high for e in found]
            curves[name] = Curve([float(r) for r in seen], values, lows, highs, method)
    return curves
