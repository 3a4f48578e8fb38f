"""Sentences that must accompany a number: alarms, and what the adversary is assumed to know."""

from collections.abc import Sequence

from fedaudit.adversary.attacks.base import BaseAttack
from fedaudit.adversary.signals.references import SIGNALS as OF_REFERENCES
from fedaudit.audit.collect import Sight
from fedaudit.audit.score import Scores
from fedaudit.stats import Block, auc
from fedaudit.types import Estimate


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


def unscored(attack: BaseAttack, sights: Sequence[Sight], scores: Scores) -> list[str]:
    """A warning if some scores are NaN or infinite. They count against the attack."""
    seen = [sight for sight in sights if scores.defined(sight, attack)]
    count = sum(scores.unscored(sight, attack) for sight in seen)
    of = sum(int(scores.judged(sight, attack).sum()) for sight in seen)
    told = f"{attack.name}: {count} of {of} scores are NaN or infinite and were counted as the least suspicious."
    return [told] if count else []


def sets_differ(blind: Estimate) -> list[str]:
    """A warning if the blind baseline succeeds: members and non-members were then drawn differently."""
    if blind.low is None or blind.high is None or blind.low <= 0.5 <= blind.high:
        return []
    return [
        f"Members and non-members differ without any model (blind AUC {blind.value:.3f}, "
        f"{blind.low:.3f}-{blind.high:.3f}): only what attacks find beyond that can come from training."
    ]


def references_notices(attacks: Sequence[BaseAttack]) -> list[str]:
    """What the attacks with reference models assume that the adversary knows. It goes with every figure of theirs."""
    using = [attack.name for attack in attacks if set(attack.signals) & set(OF_REFERENCES)]
    outside = [name for name in using if name.startswith("outside-")]
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
