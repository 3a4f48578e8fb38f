"""What an audit is asked to do, and what is refused before training because it cannot be done."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fedaudit.adversary.attacks.base import BaseAttack
from fedaudit.adversary.signals import slow, why_not
from fedaudit.adversary.vantage import GRANTS, MODELS
from fedaudit.audit.panel import reference_half
from fedaudit.config.schema import DEFAULT_FPR
from fedaudit.errors import FedauditError
from fedaudit.stats import needed_for_value
from fedaudit.types import Game, Ints, ModelKind, Records, Role, State, Task, Vantage

if TYPE_CHECKING:  # reference models need torch; an audit without them does not
    from fedaudit.adversary.shadow import References
    from fedaudit.audit.attributes import Probe
    from fedaudit.audit.shadows import Shadow

HEADLINE_FPR = 0.01
# Fixed before looking. A vantage without its primary attack takes the first attack listed.
PRIMARY = dict.fromkeys(Vantage, "fta-confidence") | {Vantage.SERVER: "fusion"}


@dataclass(frozen=True)
class Settings:
    vantages: tuple[Vantage, ...]
    attacks: Sequence[BaseAttack]
    rounds: int  # planned: the band over rounds shares its error among them
    fpr: tuple[float, ...] | None = None
    confidence: float = 0.95
    seed: int = 0
    notices: tuple[str, ...] = ()  # what was left out because nobody insisted on it
    references: "References | None" = None
    shadow: "Shadow | None" = None
    attribute: "Probe | None" = None

    def check(self) -> None:
        """Refuse an attack that a vantage cannot feed, and a vantage without an attack."""
        for attack in self.attacks:
            if not any(MODELS[vantage] in attack.models for vantage in self.vantages):
                raise FedauditError(
                    "vantage",
                    f"attack {attack.name!r} looks at {attack.models[0]} models, which no vantage of this audit sees",
                    "Take the attack out of [audit], or add the vantage 'server'.",
                )
        for vantage in self.vantages:
            usable = self.on(MODELS[vantage])
            if not usable:
                raise FedauditError(
                    "vantage",
                    f"none of the attacks looks at the {MODELS[vantage]} models that {vantage.value!r} sees",
                    "Take the vantage out of [audit], or add an attack.",
                )
            for attack in usable:
                missing = sorted(attack.needs - GRANTS[vantage])
                if missing:
                    raise FedauditError(
                        "vantage",
                        f"attack {attack.name!r} needs {' and '.join(missing)}, which {vantage.value!r} does not see",
                        "Take the attack or the vantage out of [audit].",
                    )

    def without_idle_vantages(self) -> "Settings":
        """For a trace, whose vantages were chosen for other attacks: only those from which these can look."""
        idle = [vantage for vantage in self.vantages if not self.on(MODELS[vantage])]
        if not idle or len(idle) == len(self.vantages):
            return self
        notice = f"Left out (none of the attacks looks from there): {', '.join(idle)}."
        kept = tuple(vantage for vantage in self.vantages if vantage not in idle)
        return replace(self, vantages=kept, notices=(*self.notices, notice))

    def suited_to(self, task: Task, state: State, rows: Records, asked: bool) -> "Settings":
        """Without the attacks whose signals this task cannot give, or gives only slowly; if they were asked for, the
        first is an error, and the second is done and said."""
        unfit: dict[str, str] = {}
        dear: str | None = None
        for attack in self.attacks:
            reason = why_not(attack.signals, state, rows, task)
            cost = None if reason else slow(attack.signals, state, rows, task)
            dear = dear or cost
            if reason or (cost and not asked):
                unfit[attack.name] = str(reason or cost)
        fit = [attack for attack in self.attacks if attack.name not in unfit]
        if unfit and (asked or not fit):
            name, why = next(iter(unfit.items()))
            raise FedauditError("attack-task", f"attack {name!r} cannot be run: {why}", "Take it out of [audit].")
        by_reason: dict[str, list[str]] = {}
        for name, reason in unfit.items():
            by_reason.setdefault(reason, []).append(name)
        notices = tuple(f"Left out ({reason}): {', '.join(names)}." for reason, names in by_reason.items())
        notices += (f"{dear}.",) if dear and asked else ()
        said_once = tuple(dict.fromkeys(self.notices + notices))  # a trace brings its own along
        return replace(self, attacks=fit, notices=said_once)

    def on(self, model: ModelKind) -> list[BaseAttack]:
        """The attacks on one kind of model: an adversary with a shadow looks at one kind alone."""
        shadows = self.shadow.model if self.shadow else None
        usable = [attack for attack in self.attacks if model in attack.models]
        return [attack for attack in usable if not attack.learns or model == shadows]

    def primary(self, vantage: Vantage) -> BaseAttack | None:
        named = [attack for attack in self.attacks if attack.name == PRIMARY[vantage]]
        return next(iter(named or self.attacks), None)

    def watched(self) -> list[tuple[Vantage, ModelKind]]:
        """Who sees which models. A lone server gets the global models under its own name: it sees them, too."""
        pairs = [(vantage, MODELS[vantage]) for vantage in self.vantages]
        if Vantage.SERVER in self.vantages and all(model == "local" for _, model in pairs):
            pairs.append((Vantage.SERVER, "global"))
        return pairs

    def reachable_fprs(self, game: Game) -> tuple[tuple[float, ...], list[str]]:
        """The false-positive rates that this game can calibrate; an explicit one out of reach is an error."""
        parties = [game.candidates.of_party(party) for party in game.parties]
        everyone = [np.arange(len(game.candidates))]
        only_local = all(MODELS[vantage] == "local" for vantage in self.vantages)
        available = calibrating(game, parties if only_local else everyone)
        fitted = {}
        if self.fpr:  # nobody insists on the default rates: where they are missing, the result says why
            for attack in (attack for attack in self.attacks if attack.fits):
                local = only_local or "global" not in attack.models
                fitted[attack.name] = calibrating(game, parties if local else everyone, fitted=True)
        fprs, notices = [], []
        for fpr in self.fpr or DEFAULT_FPR:
            needed = needed_for_value(fpr)
            message = f"FPR {fpr:g} needs {needed} calibration non-members and there are {available}"
            short = next((name for name, count in fitted.items() if count < needed), None)
            if available >= needed and short is None:
                fprs.append(fpr)
                continue
            if available >= needed and short is not None:
                message += f", of which {short} leaves {fitted[short]}: it is fitted on the others"
            if self.fpr:
                without = "" if short is None else f", or leave out {short}"
                raise FedauditError("fpr", message, f"Ask for a larger FPR, give more records{without}.")
            notices.append(f"{message}: it is left out.")
        return tuple(fprs), notices


def calibrating(game: Game, panels: Sequence[Ints], fitted: bool = False) -> int:
    """How many records set a threshold where they are fewest; without those that an attack is fitted on."""
    role = game.truth.role
    sizes = [int((role[index] == Role.CALIBRATION.value).sum()) for index in panels]
    taken = [int(reference_half(game, index).sum()) if fitted else 0 for index in panels]
    return min(size - used for size, used in zip(sizes, taken, strict=True))
