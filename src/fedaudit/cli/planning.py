"""The tables of `fedaudit plan`: for each false-positive rate, how many records are needed and what can be seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedaudit.audit.score import usual_of
from fedaudit.audit.settings import reference_half
from fedaudit.errors import FedauditError
from fedaudit.results.expected import DATA, FederationShape, expected
from fedaudit.stats import needed_for_lower_end, needed_for_value
from fedaudit.stats.blocks import FEW
from fedaudit.stats.intervals import check_levels
from fedaudit.stats.plan import Sizes, smallest_visible_auc, smallest_visible_tpr
from fedaudit.types import Game, Ints, Role

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


def plan(
    members: int,
    calibration: int,
    evaluation: int,
    fprs: Sequence[float] | None = None,
    rounds: int = 1,
    parties: int = 1,
    confidence: float = 0.95,
) -> list[tuple[str, Rows]]:
    """Tables with a title each: pooled, in the band over the rounds (only pooled results have one), one party."""
    check_levels(confidence, fprs or ())
    if min(members, evaluation, calibration) < parties:
        raise FedauditError(
            "bad-value", f"{parties} parties need at least {parties} records of each kind", "Give larger numbers."
        )
    pooled = {"Global models, one threshold for all": Sizes(members, evaluation, calibration)}
    if parties > 1:
        pooled[f"Local models, {parties} parties with a threshold each"] = Sizes(
            members, evaluation, calibration, parties
        )
    tables = [(where, _rows(sizes, fprs or FPRS, confidence)) for where, sizes in pooled.items()]
    if rounds > 1:
        shared = 1 - (1 - confidence) / rounds
        band = f"in a band over {rounds} rounds"
        tables += [(f"{where}, {band}", _rows(sizes, fprs or FPRS, shared)) for where, sizes in pooled.items()]
    if parties > 1:
        alone = Sizes(members, evaluation, calibration, parties).of_each()
        tables.append(("One party alone", _rows(alone, fprs or FPRS, confidence)))
    return tables


def _rows(sizes: Sizes, fprs: Sequence[float], confidence: float, lacking: str = "") -> Rows:
    """`lacking`: why nothing can be seen, whatever the sizes."""
    k = sizes.thresholds
    rows: Rows = []
    for fpr in fprs:
        needed = k * needed_for_lower_end(fpr, confidence, k)
        seen = None if lacking else smallest_visible_tpr(sizes, fpr, confidence)
        missing = needed - sizes.calibration
        reason = f"{missing:,} too few" if missing > 0 else "too few members"
        rows.append(
            PlannedRisk(
                risk=f"tpr@{fpr:.4g}",
                needed_for_a_value=needed_for_value(fpr),
                needed_for_a_lower_end=needed,
                needed_to_cross_a_limit=k * needed_for_lower_end(fpr, confidence, k, guaranteed=True),
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


# ------------------------------------------------------------------ of a configuration


def plan_of(staged: Staged) -> list[tuple[str, Rows]]:
    """The tables for the game that a configuration describes: with its own sizes, counted in people where it knows
    them, and with what is left of the calibration records if attacks are fitted on half of them."""
    game, request = staged.game, staged.request
    fprs, confidence = staged.config.audit.fpr or FPRS, staged.config.audit.confidence
    fitted = ", ".join(attack.name for attack in request.attacks if attack.calibrates_less)
    people = game.candidates.unit == "subject" or game.candidates.subject is not None
    who = "people" if people else "records"
    lacking = _lacking(game)
    parties = [game.candidates.of_party(party) for party in game.parties]
    tables = []
    for where, panels, compared in (
        ("Global models, one threshold for all", [np.arange(len(game.candidates))], 1),
        (f"Local models, {len(parties)} parties with a threshold each", parties, 2),
    ):
        for spent, of in ((False, ""), (True, f"; {fitted}: fitted on half of the calibration records")):
            if spent and not fitted:
                continue
            sizes = _sizes(game, panels, spent)
            counts = f"{sizes.members:,} members, {sizes.evaluation:,} and {sizes.calibration:,} outsiders, in {who}"
            title = f"{where} ({counts}{of})"
            tables.append((title, _rows(sizes, fprs, confidence, lacking)))
            if compared > 1:
                shared = 1 - (1 - confidence) / compared
                quoted = f"The same as the server's headline, the stronger of {compared} kinds of models{of}"
                tables.append((quoted, _rows(sizes, fprs, shared, lacking)))
    return tables


def _lacking(game: Game) -> str:
    """Records of a few people have no interval."""
    whose = game.candidates.subject
    if whose is None or game.candidates.unit == "subject":
        return ""
    sides = [len(np.unique(whose[game.truth.mask(role)])) for role in (Role.MEMBER, Role.EVALUATION)]
    return f"it takes {FEW} people a side" if min(sides) < FEW else ""


def _sizes(game: Game, panels: Sequence[Ints], fitted: bool) -> Sizes:
    """The sizes of the smallest panel, times the number of panels: thresholds are set where records are fewest."""
    role, whose = game.truth.role, game.candidates.subject
    each: dict[Role, list[int]] = {wanted: [] for wanted in Role}
    for index in panels:
        free = ~reference_half(game, index) if fitted else np.ones(len(index), bool)
        for wanted, counts in each.items():
            mine = index[(role[index] == wanted.value) & free]
            counts.append(len(mine) if whose is None else len(np.unique(whose[mine])))
    k = len(panels)
    if fitted and game.candidates.unit == "subject":  # known members are not reported on
        known = min(int(reference_half(game, index).sum()) for index in panels)
        each[Role.MEMBER] = [count - usual_of(count, known) for count in each[Role.MEMBER]]
    return Sizes(k * min(each[Role.MEMBER]), k * min(each[Role.EVALUATION]), k * min(each[Role.CALIBRATION]), k)


# ------------------------------------------------------------------ what is expected, before anything is trained


SEEN = {"global": "from the global models (any party)", "local": "from a party's own models (the server)"}
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
