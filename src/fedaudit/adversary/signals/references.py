"""What reference models say about a record: the names of signals that a bank of models yields, records x models.

These are not measured on the view's model but on models that an adversary trains beside it, a step a round
(`adversary.shadow`). Three banks differ in how much the references are taught to imitate the target, and an outside
adversary has its own, trained on data of its own in which no candidate occurs.
"""

from fedaudit.types import Grant

METRICS = ("logit", "loss", "confidence")

# bank -> how much of the target's answer goes into the soft labels; None: as configured (`audit.reference.alpha`)
BANKS: dict[str, float | None] = {
    "reference": None,
    "plain-reference": 0.0,
    "distilled-reference": 1.0,
    "outside-reference": None,
    "outside-plain-reference": 0.0,
}
INSIDE = "reference-inside"  # which of a party's references had the record; drawn by the auditor, so no ground truth

SIGNALS: dict[str, tuple[str, str]] = {f"{bank}-{metric}": (bank, metric) for bank in BANKS for metric in METRICS}


# Imitating the target takes its answers in every round; references that do not imitate can be trained at any time.
NEEDS: dict[str, frozenset[Grant]] = {
    name: frozenset({Grant.OUTPUTS}) if BANKS[bank] == 0.0 else frozenset({Grant.OUTPUTS, Grant.EVERY_ROUND})
    for name, (bank, _) in SIGNALS.items()
} | {INSIDE: frozenset()}


def is_outside(bank: str) -> bool:
    return bank.startswith("outside-")
