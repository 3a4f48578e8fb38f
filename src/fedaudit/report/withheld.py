"""What a party that audits itself did not send, in sentences: they stand before everything else."""

from collections.abc import Sequence

from fedaudit.results.document import Withheld
from fedaudit.stats.wording import confidence, fpr_of, interval_text, number_text, rate, value_text
from fedaudit.types import Estimate


def sentences(withheld: Sequence[Withheld]) -> list[str]:
    """One for each rule that stopped this party, and one for all updates that could not be audited."""
    told = [_stopped(update) for update in withheld if update.because != "not audited"]
    alone = sorted({update.round for update in withheld if update.because == "not audited"})
    if alone:
        told.append(f"This party withheld its {_updates(alone)}, which could not be audited; the warnings say why.")
    return told


def _stopped(update: Withheld) -> str:
    since = f"This party has sent nothing from round {update.round} on"
    if update.because == "limit undecidable":
        return f"{since}: no attack can decide its limit {update.rule}. {_sentence(update.reason)}"
    figures = "; ".join(_figure(name, found) for name, found in update.estimates.items())
    return (
        f"{since}: what was about to leave then crosses its limit {update.rule} (found by {update.attack}: {figures})."
    )


def _figure(name: str, found: Estimate) -> str:
    fpr = fpr_of(name)
    what = f"TPR {value_text(name, found)} at {rate(fpr)} FPR" if fpr else f"AUC {value_text(name, found)}"
    proved = f", at least {number_text(name, found.guaranteed[0])} guaranteed" if found.guaranteed and fpr else ""
    return f"{what}, {confidence(found)} interval {interval_text(name, found)}{proved}"


def _updates(rounds: Sequence[int]) -> str:
    """`update of round 3`, or `updates of rounds 1 to 4, 7 and 8`"""
    runs: list[list[int]] = []
    for number in rounds:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    parts = [part for run in runs for part in ([f"{run[0]} to {run[-1]}"] if len(run) > 2 else map(str, run))]
    told = parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
    return f"update of round {told}" if len(rounds) == 1 else f"updates of rounds {told}"


def _sentence(reason: str) -> str:
    return reason[:1].upper() + reason[1:].rstrip(".") + "."
