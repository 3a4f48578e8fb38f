"""Is a claim of differential privacy refuted? From results alone: the page asks it, too, and imports no scipy."""

from collections.abc import Mapping

from fedaudit.questions.coins import ONE_RUN
from fedaudit.types import Estimate

ROUND, WHOLE = "epsilon-accountant-round", "epsilon-accountant"


def refuted(found: Mapping[str, Estimate], whole: float | None = None) -> Estimate | None:
    """The proved figure whose lower end is above what is claimed, if there is one: of a round, or of the whole training
    (`whole`: what is claimed of it, if not what the accountant says).

    Running canaries meet another model in every round, and only the e-process is proved there; with probes of one
    model, the bound over ranks decides.
    """
    of_a_round = found.get("epsilon-anytime", found.get("epsilon-ranks"))
    of_all = _value(found, WHOLE) if whole is None else whole
    for bound, claimed in ((of_a_round, _value(found, ROUND)), (found.get(ONE_RUN), of_all)):
        if bound is not None and bound.low is not None and claimed is not None and bound.low > claimed:
            return bound
    return None


def _value(found: Mapping[str, Estimate], name: str) -> float | None:
    return found[name].value if name in found else None
