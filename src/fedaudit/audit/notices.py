"""What must accompany a number: alarms, and what the adversary is assumed to know. `fedaudit.words` words it."""

from collections.abc import Sequence

from fedaudit.adversary.attacks.base import BaseAttack
from fedaudit.adversary.shadow import SIGNALS as OF_REFERENCES
from fedaudit.adversary.shadow import is_outside
from fedaudit.audit.collect import Sight
from fedaudit.audit.score import Scores
from fedaudit.stats import Block, auc, needed_for_value, tied_share
from fedaudit.types import Estimate, ModelKind, Notice, Vantage, notice, warning

MANY_TIES = 0.03  # of members and calibration records


def below_chance(attack: str, blocks: Sequence[Block], found: Estimate, looked_at: int) -> list[Notice]:
    """A warning if a score is worse than guessing. The score is never flipped.

    The error is shared among all results: of forty results at chance, one interval lies below 0.5 at 95 %.
    """
    if found.high is None or found.high >= 0.5:
        return []
    high = auc(blocks, 1 - (1 - found.confidence) / looked_at).high
    if high is None or high >= 0.5:
        return []
    # Without the number, which is shown anyway, so that the report can merge the alarms of many parties.
    return [warning("below-chance", attack=attack)]


def seconds_for_epochs(sights: Sequence[Sight]) -> list[Notice]:
    """A loop without updates, or checkpoints: costs have another unit."""
    if any(sight.epoch_seconds > 0 for sight in sights):
        return []
    return [notice("seconds-for-epochs")]


def unscored(attack: BaseAttack, sights: Sequence[Sight], scores: Scores) -> list[Notice]:
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
    able = [(fpr, tied_share(blocks, fpr)) for fpr in fprs if blocks and _calibrates(blocks, fpr)]
    return [
        notice("ties", vantage=vantage.value, model=model, attack=attack, share=float(share), fpr=fpr)
        for fpr, share in able
        if share > MANY_TIES
    ][:1]


def _calibrates(blocks: Sequence[Block], fpr: float) -> bool:
    return all(len(block.calibration) >= needed_for_value(fpr) for block in blocks)


def sets_differ(blind: Estimate) -> list[Notice]:
    """A blind baseline that succeeds: members and non-members were drawn differently.

    One below chance is told and not turned round: it was fitted with the truth, so that the other way is no better.
    """
    if blind.low is None or blind.high is None or blind.low <= 0.5 <= blind.high:
        return []
    return [warning("blind-below-chance" if blind.high < 0.5 else "sets-differ", **figure(blind))]


def counts_differ(counted: Estimate | None) -> list[Notice]:
    """People whose membership shows in how many records of theirs there are."""
    if counted is None or counted.low is None or counted.high is None or counted.low <= 0.5 <= counted.high:
        return []
    return [warning("counts-differ", **figure(counted))]


def references_notices(attacks: Sequence[BaseAttack]) -> list[Notice]:
    """What the attacks with reference models assume that the adversary knows. It goes with every figure of theirs."""
    using = [attack.name for attack in attacks if set(attack.signals) & set(OF_REFERENCES)]
    outside = [attack.name for attack in attacks if any(is_outside(signal) for signal in attack.signals)]
    informed = [name for name in using if name not in outside]
    said = [notice("references-own", attacks=informed)] if informed else []
    return [*said, *([notice("references-outside", attacks=outside)] if outside else [])]


def figure(estimate: Estimate) -> dict[str, float | None]:
    """An estimate as the data of a notice."""
    return {"value": estimate.value, "low": estimate.low, "high": estimate.high}
