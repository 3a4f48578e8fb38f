"""Where fair coins decided who was trained on: the lower bound of epsilon that the scores of one run prove.

Steinke, Nasr, Jagielski 2023, as in `stats.epsilon`. What the proof asks for, and why it holds here:

1. Every unit's coin is fair and independent of all others and of the training (`data.partition`).
2. The guesses follow from what the mechanism put out and from the units themselves: a score is computed from the models
   and from all candidates without their roles. The only roles that an attack learns are those of calibration units,
   about which no coin was flipped. (A party that attacks others knows its own coins, too, and is not judged on its own
   units: given these coins, the others are as fair as before. An attack that is tuned on people of known membership is
   told coins one after another, in an order that follows from the names, until so many members are known as were
   settled before; the coins that it was not told are as fair as before, and guesses are made about these alone.)
3. How many guesses are made is fixed before looking, and the few numbers that are tried share the error.
4. Which attack is quoted is fixed before looking, too, and the quoted bounds of all vantages and models share the
   error.

The blind guess learns coins of one half of the units and is therefore not an attack; it gets no bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.stats import rankdata

from fedaudit.adversary.attacks.base import BaseAttack
from fedaudit.audit.case import Case, Estimates
from fedaudit.audit.collect import Sight
from fedaudit.audit.score import KNOWN_ORDER, finite, known, usual_of
from fedaudit.questions.coins import ONE_RUN
from fedaudit.stats import hash_order
from fedaudit.stats.epsilon import by_unit, one_run_epsilon
from fedaudit.types import Bools, Floats, Headline, Ints, Notice, Role, notice

NOUNS = {"record": ("record", "records"), "subject": ("person", "people")}


def one_run(case: Case, attack: BaseAttack, sights: Sequence[Sight], confidence: float | None) -> Estimates:
    """The bound for one attack on one kind of model, by its name; nothing without coins. The confidence is that of
    the audit unless it is given."""
    coins = case.settings.asked.get("coins")
    if coins is None or not any(case.scores.defined(sight, attack) for sight in sights):
        return {}
    parts = [_played(case, attack, sight) for sight in sights]
    index, scores, told = (np.concatenate(column) for column in zip(*parts, strict=True))
    own = np.concatenate([sight.index[~case.scores.judged(sight, attack)] for sight in sights])
    unit = index
    if coins.unit == "subject" and case.game.candidates.unit == "record":
        number = case.game.candidates.subject_number
        assert number is not None
        unit, own = number[index], number[own]  # people with records at the adversary's: it knows their coin
    fair = ~np.isin(unit, np.concatenate([unit[told], own]))
    if not fair.any():
        return {}
    member = case.game.truth.mask(Role.MEMBER)[index]
    scores, member = by_unit(unit[fair], scores[fair], member[fair])
    found = one_run_epsilon(scores, member, coins.delta, confidence or case.settings.confidence)
    one, many = NOUNS[coins.unit]
    return {ONE_RUN: replace(found, method=f"{found.method}; one coin for each {one}, {len(scores)} {many}")}


def _played(case: Case, attack: BaseAttack, sight: Sight) -> tuple[Ints, Floats, Bools]:
    """The candidates of a sight about which a coin was flipped, their scores, and whose coin the attack was told.

    Scores under different parties' models cannot be compared, so a candidate takes its rank among its party's. A party
    of which too little was seen is in the middle: about its candidates guesses are made last.
    """
    mine = case.scores.judged(sight, attack) & (sight.role != Role.CALIBRATION.value)
    index, told = sight.index[mine], np.zeros(int(mine.sum()), bool)
    if not case.scores.defined(sight, attack):
        return index, np.full(len(index), 0.5), told
    k = None
    if "known" in attack.fitted_on:
        k = usual_of(len(index) // 2, int(sight.reference.sum()))  # not by how the coins fell
        told = _told(sight, mine, k)
    scores = finite(case.scores.of(sight, attack, k), attack.name)[mine]
    if sight.model == "local":
        scores = (rankdata(scores) - 0.5) / max(len(scores), 1)
    return index, scores, told


def _told(sight: Sight, mine: Bools, k: int) -> Bools:
    """The coins that come before the k-th known member's in the order in which they are told, and its own."""
    order, members = hash_order(sight.id[mine], KNOWN_ORDER), known(sight, k)[0][mine]
    found = np.zeros(len(order), bool)
    if members.any():
        found[order[: np.flatnonzero(members[order])[-1] + 1]] = True
    return found


def quoted(headlines: Sequence[Headline], unit: str) -> list[Notice]:
    """The bounds of the headlines, for the report and the terminal."""
    return [
        notice(
            "coins",
            attack=headline.attack,
            vantage=headline.vantage,
            model=headline.model,
            unit=unit,
            value=found.value,
            why=found.reason,
            coins=found.n_pos + found.n_neg,
            ceiling=found.ceiling,
            confidence=found.confidence,
        )
        for headline in headlines
        if (found := headline.estimates.get(ONE_RUN)) is not None
    ]
