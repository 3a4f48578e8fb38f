"""What was read off the updates, against the records that were trained on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedaudit.errors import FedauditError
from fedaudit.questions import Verdict
from fedaudit.questions.update import QUESTION, UpdateSection
from fedaudit.questions.update.parts import BesideTruth, Known, UpdatePart, parts
from fedaudit.questions.update.watch import CANNOT, WHO, SeenFrom, UpdateWatch
from fedaudit.types import Curve, Estimate, Game, ModelKind, Notice, Records, Vantage, gap, notice, once, warning

if TYPE_CHECKING:
    from fedaudit.audit.case import Case

SAID = 10  # updates that a sentence each is said of; the figures are about all


def judge(case: Case, watch: UpdateWatch, vantage: Vantage, model: ModelKind) -> Verdict:
    """A result for all parties together and one for each. What nothing can be told of is said."""
    known = Known(
        outsiders=case.game.outsiders,
        columns=watch.asked.columns,
        seed=case.settings.seed,
        training=case.settings.training,
    )
    options, confidence = watch.asked.options, case.settings.confidence
    everybody: Sequence[str | None] = case.game.parties if model == "local" else [None]
    found: dict[str | None, dict[str, Estimate]] = {party: {} for party in (None, *everybody)}
    curves: dict[str, Curve] = {}
    told: list[Notice] = [gap("update-part-failed", part=name, why=why) for name, why in watch.failed.items()]
    looked = False
    for name, part in parts().items():
        seen = [one for party in everybody for one in tables(case.game, watch, vantage, name, party)]
        looked = looked or bool(seen)
        told += _unable([one for one in seen if CANNOT in one.table])
        able = [one for one in seen if CANNOT not in one.table]
        if not able:
            continue
        found[None] |= part.judge(able, known, confidence)
        for party in everybody if model == "local" else ():
            own = [one for one in able if one.party == party]
            if own and party is not None:
                found[party] |= part.judge(own, known, confidence)
        by_round = {r: [one for one in able if one.round == r] for r in sorted({one.round for one in able})}
        curves |= _over_rounds({r: part.judge(some, known, confidence) for r, some in by_round.items()})
        told += _said(part, able, known, options)
    if watch.failed and not looked:
        name, why = next(iter(watch.failed.items()))
        raise FedauditError("update-part", f"{name}: {why}", "The other questions are not affected.")
    if not looked:
        return Verdict(notices=[notice("update-unseen", vantage=vantage.value)])
    seconds = sum(spent for key, spent in watch.seconds.items() if SeenFrom.of(key).vantage == vantage.value)
    results = [
        case.result(
            QUESTION.name, vantage, model, figures,
            question=QUESTION, party=party, seconds=seconds, curves=curves if party is None else None,
        )
        for party, figures in found.items() if figures
    ]  # fmt: skip
    if trick := options.tampering:
        told.insert(0, warning("update-tampered", trick=trick))
    return Verdict(results, once(told) or [notice("update-nothing", vantage=vantage.value)])


def _said(part: UpdatePart, seen: Sequence[BesideTruth], known: Known, options: UpdateSection) -> Iterator[Notice]:
    """Of some updates of the first round; and every warning, of whatever round."""
    first = 0
    for one in seen:
        first += one.round == seen[0].round
        said = part.say(one, known, options)
        if said and (said.level == "warning" or (one.round == seen[0].round and first <= SAID)):
            yield said


def tables(game: Game, watch: UpdateWatch, vantage: Vantage, part: str, party: str | None) -> Iterator[BesideTruth]:
    """What a part saw of a party's updates, or of the sums, beside the records behind them."""
    key, who = SeenFrom(vantage.value, part, party).key, SeenFrom(vantage.value, WHO, party).key
    for (place, moment), table in watch.tables.items():
        if place == key and (who, moment) in watch.tables:
            whose = [str(name) for name in watch.tables[who, moment]["update-party"]]
            members, where = _together(game, whose), vantage.value
            yield BesideTruth(party=party, round=moment.round, vantage=where, table=table, members=members)


def _together(game: Game, parties: Sequence[str]) -> Records:
    each = [game.members(party) for party in parties]
    if len(each) == 1:
        return each[0]
    x, y, name = (np.concatenate([getattr(one, part) for one in each]) for part in ("x", "y", "id"))
    return Records(x, y, name)


def _unable(seen: Sequence[BesideTruth]) -> list[Notice]:
    """Once for each reason."""
    whys = dict.fromkeys(str(one.table[CANNOT][0]) for one in seen)
    return [
        notice("update-cannot-tell", why=why, updates=sum(str(o.table[CANNOT][0]) == why for o in seen)) for why in whys
    ]


def _over_rounds(found: Mapping[int, Mapping[str, Estimate]]) -> dict[str, Curve]:
    names = dict.fromkeys(name for figures in found.values() for name in figures)
    curves = {}
    for name in names:
        at = {round: figures[name] for round, figures in found.items() if name in figures}
        value, low, high = ([getattr(one, end) for one in at.values()] for end in ("value", "low", "high"))
        curves[name] = Curve([float(r) for r in at], value, low, high, "one round; each interval holds for its own")
    return curves
