"""What reference models say about a record: the names of signals that a bank of models yields, records x models.

These are not measured on the view's model but on models that an adversary trains beside it, a step a round
(`adversary.shadow`). Three banks differ in how much the references are taught to imitate the target, and an outside
adversary has its own, trained on data of its own in which no candidate occurs.
"""

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


def is_outside(bank: str) -> bool:
    return bank.startswith("outside-")
