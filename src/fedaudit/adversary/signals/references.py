"""Names of the signals that a bank of reference models yields. Each signal is records x models.

They are not measured on the view's model, but on models that an adversary trains beside it, one epoch a round
(`adversary.shadow`). The banks differ in how much their models are taught to imitate the target. An outside adversary
has its own banks, trained on its own data, which contains no candidate.
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
INSIDE = "reference-inside"  # which of a party's references trained on the record; drawn at random, no ground truth

SIGNALS: dict[str, tuple[str, str]] = {f"{bank}-{metric}": (bank, metric) for bank in BANKS for metric in METRICS}


# Imitating the target needs its answers in every round; references that do not imitate can be trained at any time.
NEEDS: dict[str, frozenset[Grant]] = {
    name: frozenset({Grant.OUTPUTS}) if BANKS[bank] == 0.0 else frozenset({Grant.OUTPUTS, Grant.EVERY_ROUND})
    for name, (bank, _) in SIGNALS.items()
} | {INSIDE: frozenset()}


def is_outside(bank: str) -> bool:
    return bank.startswith("outside-")
