"""The confidence and the false-positive rates that are asked for on the command line."""

from collections.abc import Iterable

from fedaudit.errors import FedauditError


def check_levels(confidence: float, fprs: Iterable[float]) -> None:
    """Refuse whatever does not lie between 0 and 1."""
    for name, value in [("confidence", confidence), *(("fpr", fpr) for fpr in fprs)]:
        if not 0 < value < 1:
            raise FedauditError("bad-value", f"--{name} must lie between 0 and 1, got {value}", "Change that option.")
