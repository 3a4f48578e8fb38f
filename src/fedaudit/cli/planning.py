"""What `fedaudit plan` says: what an audit of this size can show, in a sentence, in counts, and for every rate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedaudit.audit.score import usual_of
from fedaudit.audit.settings import HEADLINE_FPR, reference_half
from fedaudit.errors import FedauditError
from fedaudit.report.words import NOT_ASKED_ABOUT
from fedaudit.results.expected import DATA, FederationShape, expected
from fedaudit.stats import needed_for_lower_end, needed_for_value
from fedaudit.stats.blocks import FEW
from fedaudit.stats.intervals import check_levels
from fedaudit.stats.plan import Sizes, smallest_visible_auc, smallest_visible_tpr
from fedaudit.stats.wording import rate, share
from fedaudit.types import Game, Ints, Role
from fedaudit.words import words

if TYPE_CHECKING:
    from fedaudit.learn.tasks import TorchTask
    from fedaudit.session.prepare import Staged

FPRS = (0.01, 0.001, 0.0001)


@dataclass(frozen=True, kw_only=True)
class PlannedRisk:
    """One risk: how many calibration records it needs, and the smallest that is seen four times in five."""

    risk: str  # as results name it: auc, tpr@0.01
    needed_for_a_value: int | None
    needed_for_a_lower_end: int | None
    needed_to_cross_a_limit: int | None  # by the end that is guaranteed
    smallest_visible: float | None
    reason: str = ""  # why nothing is visible

    def cells(self) -> tuple[str, str, str, str, str]:
        counts = (self.needed_for_a_value, self.needed_for_a_lower_end, self.needed_to_cross_a_limit)
        value, end, limit = (f"{n:,}" if n else "–" for n in counts)
        seen = self.smallest_visible
        if self.risk == "auc":
            return "AUC", value, end, limit, f"AUC {seen:.3f}" if seen is not None else f"none: {self.reason}"
        shown = f"TPR {seen:.2%}" if seen is not None else f"none: {self.reason}"
        return f"TPR at FPR {self.risk.removeprefix('tpr@')}", value, end, limit, shown


Rows = list[PlannedRisk]


@dataclass(frozen=True, kw_only=True)
class PlannedCounts:
    """How many candidates a party has in each role, as the run will count them. Of records whose people are known, the
    people as well: these are what intervals rest on."""

    party: str | None  # None: all together
    members: int
    evaluation: int
    calibration: int
    people: tuple[int, int, int] | None = None

    def cells(self) -> tuple[str, ...]:
        counts = (self.members, self.evaluation, self.calibration)
        shown = [f"{n:,}" for n in counts]
        if self.people not in (None, counts):
            assert self.people is not None
            shown = [f"{text} of {n:,} people" for text, n in zip(shown, self.people, strict=True)]
        return (self.party or "all together", *shown)


@dataclass(frozen=True)
class QuotedAt:
    """Models that somebody sees: how many candidates are looked for there, and at which confidence that is quoted."""

    model: str
    sizes: Sizes
    confidence: float


@dataclass(frozen=True, kw_only=True)
class AuditPlan:
    """The sentence that comes first, how many candidates there are, and the tables, each with its title."""

    first: str
    counts: Sequence[PlannedCounts] = ()
    tables: Sequence[tuple[str, Rows]]


def plan(
    members: int,
    calibration: int,
    evaluation: int,
    fprs: Sequence[float] | None = None,
    rounds: int = 1,
    parties: int = 1,
    confidence: float = 0.95,
) -> AuditPlan:
    """Tables: pooled, in the band over the rounds (only pooled results have one), one party."""
    check_levels(confidence, fprs or ())
    if min(members, evaluation, calibration) < parties:
        raise FedauditError(
            "bad-value", f"{parties} parties need at least {parties} records of each kind", "Give larger numbers."
        )
    pooled = {
        "Global models, one threshold for all": QuotedAt("global", Sizes(members, evaluation, calibration), confidence)
    }
    if parties > 1:
        local = QuotedAt("local", Sizes(members, evaluation, calibration, parties), confidence)
        pooled[f"Local models, {parties} parties with a threshold each"] = local
    rates = _rates(list(pooled.values()), fprs or FPRS)
    tables = [(where, _rows(place.sizes, rates, confidence)) for where, place in pooled.items()]
    if rounds > 1:
        shared = 1 - (1 - confidence) / rounds
        band = f"in a band over {rounds} rounds"
        tables += [(f"{where}, {band}", _rows(place.sizes, rates, shared)) for where, place in pooled.items()]
    if parties > 1:
        tables.append(("One party alone", _rows(local.sizes.each[0], rates, confidence)))
    counts = (members, evaluation, calibration)
    return AuditPlan(
        first=_first(sum(counts), "records", parties, counts, list(pooled.values()), fprs or FPRS), tables=tables
    )


def _rows(sizes: Sizes, fprs: Sequence[float], confidence: float, lacking: str = "") -> Rows:
    """`lacking`: why nothing can be seen, whatever the sizes."""
    rows: Rows = []
    for fpr in fprs:
        needed = _needed(sizes, fpr, confidence)
        seen = None if lacking else smallest_visible_tpr(sizes, fpr, confidence)
        missing = needed - sizes.calibration
        reason = f"{missing:,} too few" if missing > 0 else "too few members"
        rows.append(
            PlannedRisk(
                risk=f"tpr@{fpr:.4g}",
                needed_for_a_value=needed_for_value(fpr),
                needed_for_a_lower_end=needed,
                needed_to_cross_a_limit=_needed(sizes, fpr, confidence, guaranteed=True),
                smallest_visible=seen,
                reason="" if seen is not None else lacking or reason,
            )
        )
    value = None if lacking else smallest_visible_auc(sizes, confidence)
    return [
        *rows,
        PlannedRisk(
            risk="auc",
            needed_for_a_value=None,
            needed_for_a_lower_end=None,
            needed_to_cross_a_limit=None,
            smallest_visible=value,
            reason="" if value is not None else lacking or "too few",
        ),
    ]


# ------------------------------------------------------------------ the sentence that comes first

OTHERS = (0.02, 0.05, 0.1, 0.2)  # rates that are advised where nothing is visible at the one that was asked for
SEEN = {"global": "from the global models (any party)", "local": "from a party's own models (the server)"}


def _first(
    many: int,
    who: str,
    parties: int,
    counts: tuple[int, int, int],
    places: Sequence[QuotedAt],
    fprs: Sequence[float],
    lacking: str = "",
) -> str:
    """What an audit of this size can show at 1 %, or else at the largest rate asked for; if nothing, what to do."""
    trained, reported, known = (f"{n:,}" for n in counts)
    start = (
        f"With {many:,} {who} at {parties:,} part{'y' if parties == 1 else 'ies'} ({trained} trained on, {reported} to "
        f"report on, {known} to set thresholds) this audit can show"
    )
    if lacking:
        return f"{start} nothing: {lacking}."
    asked, found, seen = _asked(fprs), list[str](), list[float | None]()
    for place in places:
        tpr = smallest_visible_tpr(place.sizes, asked, place.confidence)
        area = smallest_visible_auc(place.sizes, place.confidence)
        shares = (
            f"no TPR at {rate(asked)} FPR" if tpr is None else f"a TPR of {share(tpr)} or more at {rate(asked)} FPR"
        )
        areas = "no AUC" if area is None else f"an AUC of {area:.2f} or more"
        found.append(f"{shares} and {areas} {SEEN[place.model]}")
        seen.append(tpr)
    advice = "" if None not in seen else f" {_instead(places, asked, counts[2])}"
    return f"{start} {', '.join(found)}.{advice}"


def _instead(places: Sequence[QuotedAt], asked: float, calibration: int) -> str:
    """Another rate, and how many more records the rate asked for takes."""
    ways = []
    if (other := _other_rate(places, asked)) is not None:
        most = max(smallest_visible_tpr(place.sizes, other, place.confidence) or 0.0 for place in places)
        ways.append(f"set audit.fpr = [{other:g}]: at {rate(other)} it can show a TPR of {share(most)} or more")
    # Where attacks are fitted on half of them, only the other half sets thresholds.
    left = [calibration / max(place.sizes.calibration, 1) for place in places]
    wanted = [
        math.ceil(_needed(place.sizes, asked, place.confidence) * part)
        for place, part in zip(places, left, strict=True)
    ]
    missing = max(wanted) - calibration
    ways.append(f"let {missing:,} more set thresholds" if missing > 0 else "train on more")
    told = "; or ".join(ways)
    return f"{told[0].upper()}{told[1:]}."


def _other_rate(places: Sequence[QuotedAt], asked: float) -> float | None:
    """The smallest rate at which something is visible at every place."""
    for other in (each for each in OTHERS if each > asked):
        if all(smallest_visible_tpr(place.sizes, other, place.confidence) is not None for place in places):
            return other
    return None


def _rates(places: Sequence[QuotedAt], fprs: Sequence[float]) -> tuple[float, ...]:
    """The rates that were asked for, and the one that is advised."""
    asked = _asked(fprs)
    if all(smallest_visible_tpr(place.sizes, asked, place.confidence) is not None for place in places):
        return tuple(fprs)
    other = _other_rate(places, asked)
    return tuple(fprs) if other is None or other in fprs else (*fprs, other)


def _asked(fprs: Sequence[float]) -> float:
    return HEADLINE_FPR if HEADLINE_FPR in fprs else max(fprs)


def _needed(sizes: Sizes, fpr: float, confidence: float, guaranteed: bool = False) -> int:
    """Of all parties together; equal parties need whole numbers each."""
    k = 1 if sizes.parties else sizes.thresholds
    return k * needed_for_lower_end(fpr, confidence, k, guaranteed=guaranteed)


# ------------------------------------------------------------------ of a configuration


def plan_of(staged: Staged) -> AuditPlan:
    """For the game that a configuration describes: with its own sizes, of which intervals count the people where they
    are known, and with what is left of the calibration records if attacks are fitted on half of them."""
    game, settings = staged.game, staged.request.settings()
    fprs, confidence = staged.config.audit.fpr or FPRS, staged.config.audit.confidence
    fitted = [attack.name for attack in settings.attacks if attack.calibrates_less]
    who = "people" if game.candidates.unit == "subject" or game.candidates.subject is not None else "records"
    lacking, parties = _lacking(game), {party: game.candidates.of_party(party) for party in game.parties}
    everybody = np.arange(len(game.candidates))
    places, panels = list[QuotedAt](), list[list[Ints]]()
    for model, vantage in {model: vantage for vantage, model in settings.watched()}.items():
        panels.append(list(parties.values()) if model == "local" else [everybody])
        # What the server's headline quotes is the stronger of two kinds of models.
        quoted = 1 - (1 - confidence) / 2 if model == "local" else confidence
        primary = settings.primary(vantage)
        places.append(QuotedAt(model, _sizes(game, panels[-1], bool(primary and primary.calibrates_less)), quoted))
    rates, tables = _rates(places, fprs), list[tuple[str, Rows]]()
    for place, of in zip(places, panels, strict=True):
        title = "Global models, one threshold for all"
        if place.model == "local":
            title = (
                f"Local models, {len(of)} parties with a threshold each; the stronger of 2 kinds of models is quoted"
            )
        tables.append((title, _rows(_sizes(game, of, False), rates, place.confidence, lacking)))
        if fitted:
            left = _sizes(game, of, True)
            title += f"; {', '.join(fitted)}: fitted on half, {left.calibration:,} {who} left to set thresholds"
            tables.append((title, _rows(left, rates, place.confidence, lacking)))
    counts = [_counts(game, everybody, None), *(_counts(game, mine, party) for party, mine in parties.items())]
    whole = counts[0].people or (counts[0].members, counts[0].evaluation, counts[0].calibration)
    left_out = [words(one) for one in staged.request.notices if one.code in NOT_ASKED_ABOUT]
    first = " ".join([*left_out, _first(sum(whole), who, len(parties), whole, places, fprs, lacking)])
    return AuditPlan(first=first, counts=counts, tables=tables)


def _lacking(game: Game) -> str:
    """Records of a few people have no interval."""
    whose = game.candidates.subject
    if whose is None or game.candidates.unit == "subject":
        return ""
    sides = [len(np.unique(whose[game.truth.mask(role)])) for role in (Role.MEMBER, Role.EVALUATION)]
    return f"it takes {FEW} people a side" if min(sides) < FEW else ""


def _counts(game: Game, index: Ints, party: str | None) -> PlannedCounts:
    sides = [index[game.truth.role[index] == role.value] for role in Role]
    whose = game.candidates.subject
    people = None if whose is None else [len(np.unique(whose[side])) for side in sides]
    members, evaluation, calibration = map(len, sides)
    return PlannedCounts(
        party=party,
        members=members,
        evaluation=evaluation,
        calibration=calibration,
        people=(people[0], people[1], people[2]) if people else None,
    )


def _sizes(game: Game, panels: Sequence[Ints], fitted: bool) -> Sizes:
    """Of each panel: people where they are known. `fitted`: without those that attacks are fitted on."""
    whose, each = game.candidates.subject, []
    for index in panels:
        free = ~reference_half(game, index) if fitted else np.ones(len(index), bool)
        sides = [index[(game.truth.role[index] == role.value) & free] for role in Role]
        members, evaluation, calibration = (len(own) if whose is None else len(np.unique(whose[own])) for own in sides)
        if fitted and game.candidates.unit == "subject":  # known members are not reported on
            members -= usual_of(members, int((~free).sum()))
        each.append(Sizes(members, evaluation, calibration))
    return Sizes.of(each) if len(each) > 1 else each[0]


# ------------------------------------------------------------------ what is expected, before anything is trained


MOST_OF_IT = 0.5  # of the model's weights lie in the filter's layer, wherever the map was measured


def expected_of(staged: Staged, task: TorchTask) -> list[str]:
    """What the matched filter found in federations of this shape; or why that is not known."""
    from fedaudit.session.assemble import filter_options, filtered_weights, weights_per_member

    config, federation = staged.config, staged.config.federation
    layer = filter_options(config, None).layer
    weights = weights_per_member(task, staged.game, layer, bool(federation.coins))
    if not weights or staged.game.candidates.unit == "subject":
        return []
    seen = {model: weights[model] for model in SEEN if model == "global" or not federation.secagg}
    counts = [f"{each:,.3g} {'in the sum' if model == 'global' else 'in a party'}" for model, each in seen.items()]
    lines = [f"Weights in the layer that the matched filter looks at, for each member: {' and '.join(counts)}."]
    noise = max((getattr(asked, "strength", 0.0) for asked in config.defences), default=0.0)
    total = filtered_weights(task, layer)
    shapes = {
        model: FederationShape(weights=each, members=total / each, rounds=federation.rounds, noise=noise)
        for model, each in seen.items()
    }
    reason = _unlike(staged, task, layer) or next((why for one in shapes.values() if (why := one.outside())), None)
    if reason:
        return [*lines, f"What it finds in such federations is not known: {reason} (docs/matched-filter.md)."]
    data = config.data.name if config.data.name in DATA else None
    found = " and ".join(f"{expected(shape, data).text} {SEEN[model]}" for model, shape in shapes.items())
    where = f"In federations of this shape with {data}" if data else "In federations of this shape, whatever the data,"
    told = f"{where} it is expected to find, of the members at 1 % FPR, {found}"
    known = "fitted to 14 runs of one federation" if noise else "nine of ten that were measured lie in such ranges"
    return [*lines, f"{told}: {known} (docs/matched-filter.md). In narrow models unmix finds more."]


def _unlike(staged: Staged, task: TorchTask, layer: str | None) -> str | None:
    """In which respect this federation is unlike those that were measured."""
    from fedaudit.adversary.signals.matched import largest_linear, rules
    from fedaudit.defences.update_noise import UPDATE_NOISE
    from fedaudit.session.assemble import filter_share

    names = [name for name in (asked.name for asked in staged.config.defences) if name != UPDATE_NOISE]
    if names:
        return f"with {names[0]} nothing was measured"
    changed = [key for key in ("rank", "projection") if key in staged.config.model.arguments()]
    if changed:
        return f"with model.{changed[0]} nothing was measured"
    if staged.config.federation.participation < 1:
        return "federations were measured in which all parties take part in every round"
    first = next(iter(rules(task.architecture)))
    if layer not in (None, first) or largest_linear(task.architecture) != first:
        return "models were measured whose first layer is the largest"
    if filter_share(task, layer) < MOST_OF_IT:
        return "models were measured that have most of their weights in this layer"
    return None
