"""Limits as people write them: "tpr@0.01 > 0.05". Crossed only when the interval's lower end lies above the limit."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from fedaudit.errors import FedauditError
from fedaudit.stats import needed_for_lower_end
from fedaudit.types import Estimate, Game, Role

_FORM = re.compile(r"\s*(auc|tpr@(?P<fpr>[0-9.eE+-]+))\s*>\s*(?P<above>[0-9.eE+-]+)\s*")


@dataclass(frozen=True)
class Limit:
    name: str  # of the estimate
    above: float
    fpr: float | None

    def crossed(self, found: Mapping[str, Estimate]) -> bool:
        estimate = found.get(self.name)
        return estimate is not None and estimate.low is not None and estimate.low > self.above

    def check(self, game: Game, confidence: float) -> None:
        """Refuse a limit that no outcome could ever cross, because too few records calibrate it."""
        available = int(game.truth.mask(Role.CALIBRATION).sum())
        needed = 0 if self.fpr is None else needed_for_lower_end(self.fpr, confidence)
        if available < needed:
            raise FedauditError(
                "limit-unreachable",
                f"{self.name} > {self.above:g} could never be found crossed: {available} calibration records are set "
                f"aside, {needed} are needed",
                "Set more records aside, plan fewer rounds, or limit the AUC or a larger FPR.",
            )


def parse_limit(text: str) -> Limit:
    form = _FORM.fullmatch(text)
    try:
        if form is None:
            raise ValueError
        fpr = None if form["fpr"] is None else float(form["fpr"])
        above = float(form["above"])
    except ValueError:
        raise FedauditError(
            "limit-syntax", f"{text!r} is not a limit", 'Write "tpr@0.01 > 0.05" or "auc > 0.6".'
        ) from None
    if not (0 <= above < 1 and (fpr is None or 0 < fpr < 1)):
        raise FedauditError("limit-range", f"{text!r}: rates lie between 0 and 1", 'Write "tpr@0.01 > 0.05".')
    return Limit("auc" if fpr is None else f"tpr@{fpr:g}", above, fpr)
