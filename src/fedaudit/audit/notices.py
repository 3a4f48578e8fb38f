"""Sentences that must accompany a number: alarms, and what the adversary is assumed to know."""

from collections.abc import Sequence

from fedaudit.adversary.attacks.base import BaseAttack
from fedaudit.adversary.signals.references import SIGNALS as OF_REFERENCES
from fedaudit.adversary.signals.references import is_outside
from fedaudit.audit.collect import Sight
from fedaudit.audit.score import Scores
from fedaudit.stats import Block, auc, needed_for_value, tied_share
from fedaudit.types import Estimate

MANY_TIES = 0.03  # of members and calibration records


def below_chance(attack: str, blocks: Sequence[Block], found: Estimate, looked_at: int) -> list[str]:
    """A warning if a score is worse than guessing. The score is never flipped.

    The error is shared among all results: of forty results at chance, one interval lies below 0.5 at 95 %.
    """
    if found.high is None or found.high >= 0.5:
        return []
    high = auc(blocks, 1 - (1 - found.confidence) / looked_at).high
    if high is None or high >= 0.5:
        return []
    # Without the number, which is shown anyway, so that the report can merge the alarms of many parties.
    return [f"{attack} ranks outsiders above members (AUC wholly below 0.5); the score is not flipped."]


def seconds_for_epochs(sights: Sequence[Sight]) -> list[str]:
    """A loop without updates, or checkpoints: costs have another unit."""
    if any(sight.epoch_seconds > 0 for sight in sights):
        return []
    return ["Costs are in seconds a round, not in epochs, because nobody said how long a local epoch took."]


def unscored(attack: BaseAttack, sights: Sequence[Sight], scores: Scores) -> list[str]:
    """A warning if some scores are NaN or infinite. They count against the attack."""
    seen = [sight for sight in sights if scores.defined(sight, attack)]
    count = sum(scores.unscored(sight, attack) for sight in seen)
    of = sum(int(scores.judged(sight, attack).sum()) for sight in seen)
    told = f"{attack.name}: {count} of {of} scores are NaN or infinite and were counted as the least suspicious."
    return [told] if count else []


def tied(attack: str, blocks: Sequence[Block], fprs: Sequence[float]) -> list[str]:
    """Many scores that equal their threshold: coins decide about them. The figure is right all the same; its interval
    may be too narrow where the ROC curve has a corner at this rate."""
    able = [(fpr, tied_share(blocks, fpr)) for fpr in fprs if blocks and _calibrates(blocks, fpr)]
    return [
        f"{attack}: {share:.0%} of the scores equal the threshold at {fpr:.4g} FPR, and are accused in part. The score "
        "saturates or takes few values: are the features scaled? If the score changes its value at just this rate, "
        "the quoted interval may be too narrow (it misses in 9 %, not in 5 %); the guaranteed ends hold."
        for fpr, share in able
        if share > MANY_TIES
    ][:1]


def _calibrates(blocks: Sequence[Block], fpr: float) -> bool:
    return all(len(block.calibration) >= needed_for_value(fpr) for block in blocks)


def sets_differ(blind: Estimate) -> list[str]:
    """A blind baseline that succeeds: members and non-members were drawn differently.

    One below chance is told and not turned round: it was fitted with the truth, so that the other way is no better.
    """
    if blind.low is None or blind.high is None or blind.low <= 0.5 <= blind.high:
        return []
    if blind.high < 0.5:
        return [
            f"The blind baseline ranks outsiders above members (AUC {blind.value:.3f}, {blind.low:.3f}-{blind.high:.3f}"
            "): the half that it was fitted on is unlike the other. It is not turned round."
        ]
    return [
        f"Members and non-members differ without any model (blind AUC {blind.value:.3f}, "
        f"{blind.low:.3f}-{blind.high:.3f}): only what attacks find beyond that can come from training."
    ]


def counts_differ(counted: Estimate | None) -> list[str]:
    """People whose membership shows in how many records of theirs there are."""
    if counted is None or counted.low is None or counted.high is None or counted.low <= 0.5 <= counted.high:
        return []
    more = "more" if counted.low > 0.5 else "fewer"
    return [
        f"There are {more} records of a member than of a non-member (AUC of their number alone {counted.value:.3f}, "
        f"{counted.low:.3f}-{counted.high:.3f}): an attack may see that instead of the training."
    ]


def references_notices(attacks: Sequence[BaseAttack]) -> list[str]:
    """What the attacks with reference models assume that the adversary knows. It goes with every figure of theirs."""
    using = [attack.name for attack in attacks if set(attack.signals) & set(OF_REFERENCES)]
    outside = [attack.name for attack in attacks if any(is_outside(signal) for signal in attack.signals)]
    informed = [name for name in using if name not in outside]
    said = []
    if informed:
        said.append(
            f"{', '.join(informed)}: the reference models were trained on each party's own records. This is a party's "
            "audit of itself, and an upper estimate for anybody who does not hold these records."
        )
    if outside:
        said.append(f"{', '.join(outside)}: the reference models were trained on data of the adversary's own alone.")
    return said
