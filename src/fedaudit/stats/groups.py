"""Is one group of candidates more exposed than all others? Like is compared with like: a group's members with outsiders
of the same group, because a group whose outsiders score as high gives nobody away.

Two figures are compared, and share the error. The AUC is the one within the group. The share that is picked out is that
above the one threshold which all calibration records set, as an adversary would set it; what counts of it is by how
much it exceeds the share of the group's own outsiders above that threshold. Given the threshold, these are shares of
independent records or people, so their intervals need not know how it was set. Intervals of differences are combined as
those of independent estimates (Zou and Donner's MOVER). People who have records on both sides only make them wider than
necessary, because their scores move both sides in the same direction.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fedaudit.stats.blocks import Block, Groups, calibrated, ranked
from fedaudit.stats.intervals import proportion
from fedaudit.stats.ranking import auc
from fedaudit.types import Bools, Estimate, Floats

_THRESHOLD = "above the threshold of all calibration records"


@dataclass(frozen=True)
class Contrast:
    """A group, all others, and the first minus the second: estimates by name. `certain`: the figure by which the group
    is more exposed than the others, and exposed at all; of two, the share that is picked out. Empty: none."""

    inside: dict[str, Estimate]
    outside: dict[str, Estimate]
    beyond: dict[str, Estimate]
    certain: str = ""


def contrast(blocks: Sequence[Block], among: Bools, fpr: float | None, confidence: float) -> Contrast:
    """`among`: which candidates are in the group, by the number that the blocks' ids give them. Without an `fpr`, the
    AUCs alone are compared; so they are where a party is too small to accuse anybody for certain, because shares would
    then tell how small the parties of a group are."""
    sides = [[_part(block, among == inside) for block in blocks] for inside in (True, False)]
    aucs = [auc(side, confidence) for side in sides]
    found = [{"auc": one} for one in aucs]
    beyond = {"auc": _apart("auc", [(aucs[0], 1), (aucs[1], -1)], confidence, "AUC in the group minus AUC elsewhere")}
    certain = "auc" if _above(beyond["auc"], 0.0) and _above(aucs[0], 0.5) else ""
    if fpr is not None and all(ranked(block, fpr).certain for block in calibrated(blocks)):
        name = f"tpr@{fpr:g}"
        shares = [_shares(blocks, among == inside, fpr, confidence) for inside in (True, False)]
        (hit, accused), (elsewhere, wrongly) = shares
        told = "what the share picked out exceeds the share of the group's own outsiders by, minus the same elsewhere"
        beyond[name] = _apart(name, [(hit, 1), (accused, -1), (elsewhere, -1), (wrongly, 1)], confidence, told)
        own = _apart(name, [(hit, 1), (accused, -1)], confidence, told)
        if _above(beyond[name], 0.0) and _above(own, 0.0):
            certain = name
        for side, (share, wrong) in zip(found, shares, strict=True):
            side[name] = _at_threshold(name, share, wrong, blocks)
    return Contrast(found[0], found[1], beyond, certain)


def _part(block: Block, among: Bools) -> Block:
    members, evaluation, calibration = (among[own] for own in _ids(block))
    names = None
    if block.subjects is not None:
        names = block.subjects[0][members], block.subjects[1][evaluation], block.subjects[2][calibration]
    return Block(block.members[members], block.evaluation[evaluation], block.calibration[calibration], names)


def _ids(block: Block) -> tuple[Groups, Groups, Groups]:
    assert block.ids is not None, "candidates are in a group by their number"
    return block.ids


def _shares(blocks: Sequence[Block], among: Bools, fpr: float, confidence: float) -> tuple[Estimate, Estimate]:
    """The members, and the evaluation non-members, of one side that the threshold of their block accuses."""
    found = []
    for place in (0, 1):
        hits: list[Floats] = []
        whose: list[Groups | None] = []
        for block in calibrated(blocks):
            mine = among[_ids(block)[place]]
            scores = (block.members, block.evaluation)[place][mine]
            hits.append(ranked(block, fpr).accused(scores))
            whose.append(None if block.subjects is None else block.subjects[place][mine])
        found.append(proportion(hits, whose, confidence, f"tpr@{fpr:g}", _THRESHOLD))
    return found[0], found[1]


def _at_threshold(name: str, share: Estimate, wrong: Estimate, blocks: Sequence[Block]) -> Estimate:
    """A TPR: its realised FPR is that of the outsiders on the same side."""
    wrongly = None if wrong.low is None or wrong.high is None else (wrong.low, wrong.high)
    return replace(
        share,
        name=name,
        n_pos=share.n_pos + share.n_neg,
        n_neg=wrong.n_pos + wrong.n_neg,
        n_cal=sum(len(block.calibration) for block in blocks),
        realised_fpr=wrong.value,
        realised_fpr_interval=wrongly,
    )


def _apart(name: str, terms: Sequence[tuple[Estimate, int]], confidence: float, told: str) -> Estimate:
    """The sum of independent estimates with these signs."""
    method = f"{told}; the intervals combined (MOVER) of: {terms[0][0].method}"
    n_pos, n_neg = (min(getattr(one, count) for one, _ in terms) for count in ("n_pos", "n_neg"))
    reason = next((one.reason for one, _ in terms if one.low is None or one.high is None), None)
    ends = [(one.value, one.low, one.high, sign) for one, sign in terms]
    if any(None in end for end in ends):
        return Estimate(name, None, None, None, confidence, method, "measured", n_pos, n_neg, reason=reason)
    known = [(float(v or 0), float(low or 0), float(high or 0), sign) for v, low, high, sign in ends]
    value = sum(sign * v for v, _, _, sign in known)
    below = math.hypot(*(v - low if sign > 0 else high - v for v, low, high, sign in known))
    above = math.hypot(*(high - v if sign > 0 else v - low for v, low, high, sign in known))
    return Estimate(name, value, value - below, value + above, confidence, method, "measured", n_pos, n_neg)


def _above(estimate: Estimate, chance: float) -> bool:
    return estimate.low is not None and estimate.low > chance
