"""What an audit is asked to do, and what is refused before training because it cannot be done."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fedaudit.attacks.base import BaseAttack
from fedaudit.config import DEFAULT_FPR
from fedaudit.errors import FedauditError
from fedaudit.signals import GRADIENTS
from fedaudit.signals import check as check_signals
from fedaudit.stats import needed_for_value
from fedaudit.types import Game, ModelKind, Role, Task, Vantage
from fedaudit.vantage import GRANTS, MODELS

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
    by_default: bool = False  # nobody named the attacks: those that the model cannot feed, or feeds slowly, drop out

    def feasible(self, task: Task, game: Game) -> tuple["Settings", list[str]]:
        """Without what this model cannot do, and notices; what was asked for by name and cannot be done is an error."""
        wanted = [signal for attack in self.attacks for signal in attack.signals]
        try:
            slow = check_signals(wanted, task, task.initial(self.seed), game.candidates.rows)
        except FedauditError as error:
            if not self.by_default:
                raise
            slow = error.what
        if slow is None or not self.by_default:
            return self, [f"{slow}."] if slow else []
        dropped = [attack for attack in self.attacks if GRADIENTS & set(attack.signals)]
        kept = [attack for attack in self.attacks if attack not in dropped]
        names = ", ".join(attack.name for attack in dropped)
        return replace(self, attacks=kept), [f"Left out by default: {names}, because {slow}."]

    def check(self) -> None:
        """Refuse an attack that a vantage cannot feed."""
        for vantage in self.vantages:
            for attack in self.attacks:
                missing = sorted(attack.needs - GRANTS[vantage])
                if missing:
                    raise FedauditError(
                        "vantage",
                        f"attack {attack.name!r} needs {' and '.join(missing)}, which {vantage.value!r} does not see",
                        "Take the attack or the vantage out of [audit].",
                    )

    def primary(self, vantage: Vantage) -> BaseAttack:
        named = [attack for attack in self.attacks if attack.name == PRIMARY[vantage]]
        return (named or list(self.attacks))[0]

    def watched(self) -> list[tuple[Vantage, ModelKind]]:
        """Who sees which models. A lone server gets the global models under its own name: it sees them, too."""
        pairs = [(vantage, MODELS[vantage]) for vantage in self.vantages]
        if Vantage.SERVER in self.vantages and all(model == "local" for _, model in pairs):
            pairs.append((Vantage.SERVER, "global"))
        return pairs

    def reachable_fprs(self, game: Game) -> tuple[tuple[float, ...], list[str]]:
        """The false-positive rates that this game can calibrate; an explicit one out of reach is an error."""
        calibration = game.truth.mask(Role.CALIBRATION)
        sizes = [int(calibration[game.candidates.of_party(party)].sum()) for party in game.parties]
        only_local = all(MODELS[vantage] == "local" for vantage in self.vantages)
        available = min(sizes) if only_local else sum(sizes)
        fprs, notices = [], []
        for fpr in self.fpr or DEFAULT_FPR:
            needed = needed_for_value(fpr)
            if available >= needed:
                fprs.append(fpr)
                continue
            message = f"FPR {fpr:g} needs {needed} calibration non-members and there are {available}"
            if self.fpr:
                raise FedauditError("fpr", message, "Ask for a larger FPR, or give more records.")
            notices.append(f"{message}: it is left out.")
        return tuple(fprs), notices
