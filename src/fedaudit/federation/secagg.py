"""Secure aggregation: what leaves a party is masked, and only the sum of all can be read.

Masks cancel in the sum, so training is the same; what a server is left with is the aggregate. The number of examples
stays readable, as in Flower's SecAgg+.
"""

from dataclasses import replace

from fedaudit.types import Round, Trained


def masked(round: Round, own: str | None = None) -> Round:
    """The round as the server sees it: who took part, but none of their models. A party still sees its `own`."""
    sent = {
        name: trained if name == own else Trained({}, trained.examples, trained.epoch_seconds)
        for name, trained in round.sent.items()
    }
    return replace(round, sent=sent)
