"""The attacks, each in the module of its paper, where it registers itself with its options. Here they are chosen by
name."""

from collections.abc import Iterable

from fedaudit.adversary.attacks.base import BaseAttack
from fedaudit.adversary.attacks.making import made
from fedaudit.config.attack_registry import ATTACKS, BLIND
from fedaudit.config.schema import AuditSection
from fedaudit.errors import FedauditError
from fedaudit.types import Unit

__all__ = ["ATTACKS", "DEFAULTS", "choose", "every", "made"]

# What is run where no attack is named, in this order: everything that costs at most one local epoch a round.
DEFAULTS: dict[Unit, tuple[str, ...]] = {
    "record": (
        *("matched-filter", "round-gain", "fta-confidence", "fta-loss", "fta-logit", "loss", "modified-entropy"),
        *("fed-loss", "back-front-diff", "back-front-ratio", "delta-diff", "delta-ratio", "gradient-norm"),
        *("gradient-cosine", "gradient-diff", "gradient-norm-all", "fusion"),
        *("gap", "gap-rounds"),
    ),
    "subject": ("subject-loss", "subject-rounds", "subject-fta", "subject-cosine", "subject-matched"),
}


def choose(names: Iterable[str] | None, audit: AuditSection | None = None) -> list[BaseAttack]:
    """The named attacks, or the default ones, with what [audit] says of them. `blind` is left out, because the auditor
    runs it itself."""
    audit = audit or AuditSection()
    wanted = DEFAULTS[audit.unit or "record"] if names is None else tuple(dict.fromkeys(names))
    chosen = [made(name, audit) for name in wanted if name != BLIND]
    called = [attack.name for attack in chosen]
    if twice := next((name for name in called if called.count(name) > 1), None):
        what = f"two attacks are called {twice!r}"
        raise FedauditError("attack-name", what, "Leave one of them out, rename it, or give it other options.")
    return chosen


def every(*questions: str) -> list[str]:
    """All short forms of attacks on these questions."""
    mine = {name: getattr(entry.make, "question", None) for name, (entry, _) in ATTACKS.short_forms.items()}
    return [name for name, question in mine.items() if question in questions]
