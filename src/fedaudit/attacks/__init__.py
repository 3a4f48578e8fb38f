"""The attacks by name. A new attack is one module, one line here and one row in the attack test table."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from fedaudit.attacks.base import BaseAttack
from fedaudit.attacks.fusion import Fusion
from fedaudit.attacks.gradients import GradientNorm, LayerAttack
from fedaudit.attacks.trajectory import FTA, LastLoss
from fedaudit.errors import FedauditError, suggest


@dataclass(frozen=True)
class Entry:
    about: str
    make: Callable[[], BaseAttack]
    default: bool = True  # costs at most one local epoch a round


REGISTRY: dict[str, Entry] = {
    "fta-confidence": Entry("slope of the confidence in the record's label over the rounds", lambda: FTA("confidence")),
    "fta-loss": Entry("slope of the record's loss over the rounds", lambda: FTA("loss")),
    "fta-logit": Entry("slope of the rescaled logit over the rounds", lambda: FTA("logit")),
    "loss": Entry("the record's loss under the last model alone", LastLoss),
    "gradient-cosine": Entry("angle between the record's gradient and the update, one layer", LayerAttack),
    "gradient-diff": Entry("how much nearer the update lies to the record's gradient", lambda: LayerAttack("diff")),
    "gradient-norm-all": Entry("norm of the record's gradient over all layers, small for members", GradientNorm),
    "fusion": Entry("sum of standardised attacks: gradient-cosine and fta-confidence", lambda: fuse()),
}

FUSED = ("gradient-cosine", "fta-confidence")

# Fitted by the auditor itself, because it must never see a model; named here so that it can be asked for.
BLIND = "blind"
BLIND_ABOUT = (
    "a classifier that sees the records but no model: whatever it finds is not leaked by training (always run)"
)


def fuse(parts: Sequence[str] = FUSED, weights: Sequence[float] | None = None) -> Fusion:
    """`fusion` of other attacks, equally weighted unless told otherwise."""
    for name in parts:
        if name not in REGISTRY or name == "fusion":
            known = [known for known in REGISTRY if known != "fusion"]
            raise FedauditError("unknown-attack", f"audit.fusion cannot use {name!r}", suggest(name, known))
    return Fusion(tuple(REGISTRY[name].make() for name in parts), tuple(weights or [1.0] * len(parts)))


def choose(names: Iterable[str] | None, fusion: Fusion | None = None) -> list[BaseAttack]:
    """The attacks asked for, or the default ones; blind is the auditor's and is left out."""
    wanted = (
        [name for name, entry in REGISTRY.items() if entry.default] if names is None else list(dict.fromkeys(names))
    )
    for name in wanted:
        if name not in REGISTRY and name != BLIND:
            raise FedauditError("unknown-attack", f"unknown attack {name!r}", suggest(name, [*REGISTRY, BLIND]))
    made = [REGISTRY[name].make() for name in wanted if name != BLIND]
    return [fusion if fusion is not None and attack.name == fusion.name else attack for attack in made]
