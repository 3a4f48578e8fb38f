"""What a federation could change about itself, for `fedaudit advise`: each change in words and as keys of its
configuration.

1. A smaller model. What a sum of updates gives away of each record grows with the weights for each member in the sum;
   most models are larger than their task needs.
2. Noise: on every update, measured and not promised, or as a mechanism of differential privacy.
3. Changes of the training that promise nothing: clipping, weight decay, dropout, fewer rounds, fewer epochs.
4. Changes of who sees what: masked updates, larger parties.
5. Pairs of a smaller model with noise on the updates, and with fewer rounds at a higher learning rate: noise spreads
   over all weights, while learning needs few directions.

Whether a change fits (are subjects known? can the model be trained with DP-SGD?) is decided where any configuration is
checked, and one that does not fit is listed with the reason.
"""

from collections.abc import Iterator, Mapping
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
UPDATE_NOISES = (5.0, 10.0)  # in norms of the update
WEIGHT_DECAY, DROPOUT = 1e-2, 0.5
WIDTHS = (128, 64, 32)  # of the one hidden layer of a smaller `mlp`
FASTER = 3.0  # times the learning rate, where there are fewer rounds


@dataclass(frozen=True)
class Change:
    """A change, in words that follow "we advise to", and as keys of the configuration. Without keys: no change."""

    name: str
    words: str
    overrides: Mapping[str, Any]


NO_CHANGE = Change(AS_IT_IS, "change nothing", {})


def changes(config: Config) -> list[Change]:
    """Those that this federation could make. The order does not matter."""
    alone = [*_smaller(config), *_noise(config), *_milder(config), *_other_federations(config)]
    return [*alone, *_pairs(config)]


def changed(config: Config, change: Change) -> Config:
    """The configuration after a change. Impossible values are refused, as in any configuration."""
    raw = config.as_dict()
    for key, value in change.overrides.items():
        put(raw, key.split("."), value, FedauditError("bad-value", f"{key} cannot be set", "Set it by hand."))
    return parse(raw)


# ------------------------------------------------------------------ a smaller model


def _smaller(config: Config) -> Iterator[Change]:
    """Models of ours that have a smaller sister. A model from elsewhere is its owner's to change."""
    name, given = config.model.name, config.model.arguments()
    if name == "mlp":
        from fedaudit.learn.models.mlp import HIDDEN

        hidden = tuple(given.get("hidden", HIDDEN))
        for width in WIDTHS:
            if hidden and width < (hidden[0] if len(hidden) == 1 else hidden[0] + 1):
                words = f"use a model with one hidden layer of {width} units"
                yield Change(f"one hidden layer of {width}", words, {"model.hidden": [width]})
    elif name == "cnn" and given.get("filters", 32) > 16:
        yield Change("16 filters", "use a model with 16 filters", {"model.filters": 16})
    elif name in ("resnet20", "resnet56", "resnet18"):
        yield Change("resnet8", "use the residual network of 8 layers", {"model.name": "resnet8"})
    else:
        for key, told in (("units", "units"), ("width", "as its width")):
            if (wide := given.get(key)) and wide >= 16:
                words = f"use a model with {wide // 2} {told}"
                yield Change(f"{key} {wide // 2}", words, {f"model.{key}": wide // 2})


# ------------------------------------------------------------------ noise


def _noise(config: Config) -> Iterator[Change]:
    yield from _update_noise(config)
    for noise in NOISES:
        told = f"train with DP-SGD (clip {CLIP:g}, noise {noise:g})"
        yield _defended(config, f"DP-SGD, noise {noise:g}", told, {"name": "dp-sgd", "clip": CLIP, "noise": noise})
    subject = {"name": "higradavg", "clip": CLIP, "noise": SUBJECT_NOISE}
    yield _defended(config, "subject-level DP", f"train with subject-level DP (noise {SUBJECT_NOISE:g})", subject)
    user = {"name": "dp-fedavg", "clip": CLIP, "noise": USER_NOISE, "local": True}
    yield _defended(config, "user-level DP", f"let every party add noise to its update (noise {USER_NOISE:g})", user)


def _update_noise(config: Config) -> Iterator[Change]:
    """Not where a defence of the updates is in place: it would be replaced by one that promises nothing."""
    for strength in UPDATE_NOISES:
        told = f"let every party add noise of {strength:g} times its norm to its update (it promises nothing)"
        added = _defended(config, f"update noise {strength:g}", told, {"name": "update-noise", "strength": strength})
        if len(added.overrides["defences"]) > len(config.defences):
            yield added


# ------------------------------------------------------------------ training


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
    yield from _faster(config)
    if config.federation.local_epochs > 1 and config.federation.algorithm == "fedavg":
        yield Change("one local epoch", "train one local epoch a round", {"federation.local_epochs": 1})
    frozen = (config.federation.freeze or 0) + 1
    layers = "first layer" if frozen == 1 else f"first {frozen} layers"
    yield Change(f"frozen {layers}", f"leave the model's {layers} untrained", {"federation.freeze": frozen})


def _faster(config: Config) -> Iterator[Change]:
    """Fewer looks at each record, for as much learning."""
    rounds, rate = config.federation.rounds, FASTER * config.federation.lr
    if (fewer := max(2, round(rounds / FASTER))) < rounds:
        told = f"stop after {fewer} rounds, with the learning rate at {rate:g}"
        keys = {"federation.rounds": fewer, "federation.lr": rate}
        yield Change(f"{fewer} rounds at rate {rate:g}", told, keys)


# ------------------------------------------------------------------ who sees what


def _other_federations(config: Config) -> Iterator[Change]:
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


# ------------------------------------------------------------------ pairs


def _pairs(config: Config) -> Iterator[Change]:
    for smaller in _smaller(config):
        try:
            after = changed(config, smaller)
        except FedauditError:  # listed as the change alone, which does not fit
            continue
        for second in (*_update_noise(after), *_faster(after)):
            told = f"{smaller.words}, and {second.words}"
            yield Change(f"{smaller.name}, {second.name}", told, {**smaller.overrides, **second.overrides})


def _defended(config: Config, name: str, words: str, defence: Mapping[str, Any]) -> Change:
    """Adds a defence, in place of any that fills one of its slots."""
    new = parse({"defences": [dict(defence)]}).defences[0]
    assert isinstance(new, DefenceOptions)
    kept = [d.model_dump(mode="json", exclude_none=True) for d in config.defences if not _shares_slot(d, new)]
    return Change(name, words, {"defences": [*kept, dict(defence)]})


def _shares_slot(one: Any, other: DefenceOptions) -> bool:
    return isinstance(one, DefenceOptions) and bool(set(one.slots) & set(other.slots))
