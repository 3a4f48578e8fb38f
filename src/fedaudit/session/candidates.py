"""What could be changed in a federation so that it gives away less. Each is one change of its configuration.

Every change is a configuration of its own. Whether it fits (are subjects known? can the model be trained with DP-SGD?)
is decided where any configuration is checked, and one that does not fit is listed with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedaudit.config.schema import Config, parse, put
from fedaudit.defences import DefenceOptions
from fedaudit.errors import FedauditError
from fedaudit.results.advice import NO_CHANGE as AS_IT_IS
from fedaudit.types import Vantage

CLIP = 1.0
NOISES = (0.3, 1.0, 3.0)  # of DP-SGD, in units of the clip
SUBJECT_NOISE, USER_NOISE = 1.0, 0.3
WEIGHT_DECAY, DROPOUT = 1e-2, 0.5


@dataclass(frozen=True)
class Change:
    """A change, in words that follow "we advise to", and as keys of the configuration. Without keys: no change."""

    name: str
    words: str
    overrides: Mapping[str, Any]


NO_CHANGE = Change(AS_IT_IS, "change nothing", {})


def changes(config: Config) -> list[Change]:
    """Those that this federation could make. The order does not matter."""
    return [*_noise(config), *_milder(config), *_other_federations(config)]


def changed(config: Config, change: Change) -> Config:
    """The configuration after a change. Impossible values are refused, as in any configuration."""
    raw = config.as_dict()
    for key, value in change.overrides.items():
        put(raw, key.split("."), value, FedauditError("bad-value", f"{key} cannot be set", "Set it by hand."))
    return parse(raw)


def _noise(config: Config) -> Iterator[Change]:
    for noise in NOISES:
        told = f"train with DP-SGD (clip {CLIP:g}, noise {noise:g})"
        yield _defended(config, f"DP-SGD, noise {noise:g}", told, {"name": "dp-sgd", "clip": CLIP, "noise": noise})
    subject = {"name": "higradavg", "clip": CLIP, "noise": SUBJECT_NOISE}
    yield _defended(config, "subject-level DP", f"train with subject-level DP (noise {SUBJECT_NOISE:g})", subject)
    user = {"name": "dp-fedavg", "clip": CLIP, "noise": USER_NOISE, "local": True}
    yield _defended(config, "user-level DP", f"let every party add noise to its update (noise {USER_NOISE:g})", user)


def _milder(config: Config) -> Iterator[Change]:
    """Changes of the training that promise nothing."""
    for name, words, defence in (
        ("clipping", f"clip every record's gradient to {CLIP:g}", {"name": "clip-only", "clip": CLIP}),
        ("weight decay", f"train with weight decay {WEIGHT_DECAY:g}", {"name": "l2", "strength": WEIGHT_DECAY}),
        ("dropout", f"drop {100 * DROPOUT:g} % of the activations", {"name": "dropout", "strength": DROPOUT}),
    ):
        added = _defended(config, name, words, defence)
        if len(added.overrides["defences"]) > len(config.defences):  # none of these should replace a stronger one
            yield added
    rounds = config.federation.rounds
    for fewer in sorted({max(2, rounds // 2), max(2, rounds // 4)} - {rounds}, reverse=True):
        yield Change(f"{fewer} rounds", f"stop after {fewer} rounds", {"federation.rounds": fewer})
    if config.federation.local_epochs > 1 and config.federation.algorithm == "fedavg":
        yield Change("one local epoch", "train one local epoch a round", {"federation.local_epochs": 1})
    frozen = (config.federation.freeze or 0) + 1
    layers = "first layer" if frozen == 1 else f"first {frozen} layers"
    yield Change(f"frozen {layers}", f"leave the model's {layers} untrained", {"federation.freeze": frozen})


def _other_federations(config: Config) -> Iterator[Change]:
    """Changes of who sees what."""
    federation, vantages = config.federation, config.audit.vantages
    if not federation.secagg:
        hidden = [Vantage.SECAGG_SERVER if v is Vantage.SERVER else v for v in vantages]
        seen = list(dict.fromkeys(vantage.value for vantage in hidden))
        yield Change(
            "secure aggregation",
            "mask the updates, so that the server sees only their sum",
            {"federation.secagg": True, "audit.vantages": seen},
        )
    if federation.parties >= 4 and federation.partition != "column":
        half = federation.parties // 2
        told = f"join the parties into {half}, so that every update is of more records"
        yield Change(f"{half} larger parties", told, {"federation.parties": half})


def _defended(config: Config, name: str, words: str, defence: Mapping[str, Any]) -> Change:
    """Adds a defence, in place of any that fills one of its slots."""
    new = parse({"defences": [dict(defence)]}).defences[0]
    assert isinstance(new, DefenceOptions)
    kept = [d.model_dump(mode="json", exclude_none=True) for d in config.defences if not _shares_slot(d, new)]
    return Change(name, words, {"defences": [*kept, dict(defence)]})


def _shares_slot(one: Any, other: DefenceOptions) -> bool:
    return isinstance(one, DefenceOptions) and bool(set(one.slots) & set(other.slots))


def looking_at(config: Config, attacks: Sequence[str] | None, rate: float | None) -> Config:
    """The same federation, audited with these attacks (None: its own), and at this false-positive rate."""
    audit: dict[str, Any] = {}
    if attacks is not None:
        audit["attacks"] = tuple(attacks)
    if rate is not None and (config.audit.fpr is None or rate not in config.audit.fpr):
        audit["fpr"] = (*(config.audit.fpr or ()), rate)
    return config.model_copy(update={"audit": config.audit.model_copy(update=audit)})
