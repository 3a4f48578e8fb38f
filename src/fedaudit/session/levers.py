"""What a federation could change about itself, for `fedaudit advise`: each lever with its positions, in words and as
keys of the configuration.

| lever | why it may help |
|---|---|
| `model` | A smaller one often learns more, and hides from the filter; unmix finds about as much in it. |
| `update` | Noise on every update, or less of it sent. Noise spreads over all weights, learning needs few directions. |
| `training` | Noise inside the parties, which differential privacy is proved for; clipping, weight decay, dropout. |
| `rate` | Under noise, plain SGD in place of Adam; by itself it gives away no less. Other learning rates. |
| `epochs` | More learning in each round, and fewer rounds. |
| `batches` | Larger batches. |
| `frozen` | Layers that are not trained are not exchanged. |
| `parties` | More records in every sum. |
| `masking` | Secure aggregation: the server sees what any party sees, and the model stays as it is. |

Rounds are no lever of their own: every run is looked at after a quarter, a half and all of its rounds, and each look is
a federation that stops there.

Whether a position fits (can the model be trained with DP-SGD?) is decided where any configuration is checked, and one
that does not fit is listed with the reason. Subject-level DP is not tried where the data do not say whose a record is.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from fedaudit.config.schema import Config, parse, put
from fedaudit.defences import DefenceOptions
from fedaudit.errors import FedauditError, suggest
from fedaudit.results.advice import NO_CHANGE as AS_IT_IS
from fedaudit.types import Vantage

WIDTHS = (128, 64, 256, 32)  # of the one hidden layer of a smaller `mlp`
FACTOR, SUMS = 32, 128  # the rank of an `mlp`'s largest layer, and how many random sums of its inputs it sees
UPDATE_NOISES = (5.0, 10.0, 3.0)  # in norms of the update
RANK, SHARE = 4, 0.1  # of updates that are cut: directions of a matrix that are kept, entries that are
DP_SGD = ((0.3, 1.0), (1.0, 1.0), (0.3, 0.1), (3.0, 1.0))  # noise in units of the clip, and the clip
CLIP, SUBJECT_NOISE, USER_NOISE = 1.0, 1.0, 0.3
WEIGHT_DECAY, DROPOUT = 1e-2, 0.5
RATES, EPOCHS, BATCHES = (3.0, 10.0, 1 / 3), (2, 4), (4,)  # times what they are
SGD_RATES = (0.3, 1.0, 0.1)  # of plain SGD, where Adam was used: its rate says nothing about them
MASKING, OF_PEOPLE = "masking", "higradavg"


@dataclass(frozen=True)
class Change:
    """A change, in words that follow "we advise to", and as keys of the configuration. Without keys: no change.

    `defence`: one that is added, in place of any that fills one of its slots."""

    name: str
    words: str
    overrides: Mapping[str, Any]
    _: KW_ONLY
    defence: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Lever:
    name: str
    positions: Sequence[Change]


NO_CHANGE = Change(AS_IT_IS, "change nothing", {})


def levers(config: Config, wanted: Sequence[str] | None = None, keep: Sequence[str] = ()) -> list[Lever]:
    """Those that this federation has, but for positions that change a key that is to be kept. `wanted`: none but these,
    in any order."""
    for name in wanted or ():
        if name not in LEVERS:
            raise FedauditError("unknown-lever", f"advise.levers: there is no lever {name!r}", suggest(name, LEVERS))
    _known(config, keep)
    found = []
    for name, positions in LEVERS.items():
        if wanted is None or name in wanted:
            left = [change for change in positions(config) if not touches(change, keep)]
            found += [Lever(name, left)] if left else []
    if not found:
        todo = "Name other levers in advise.levers, or keep less in advise.keep."
        raise FedauditError("nothing-to-try", "none of the levers can change anything of this federation", todo)
    return found


def _known(config: Config, keep: Sequence[str]) -> None:
    """A word that names nothing would keep nothing, without a word."""
    sections = {name: type(getattr(config, name)) for name in ("data", "federation", "model", "audit")}
    keys = {f"{name}.{key}" for name, kind in sections.items() for key in kind.model_fields}
    for word in keep:
        if word not in {*sections, *keys, "defences"}:
            what = f"advise.keep: {word!r} is no section and no key of this configuration"
            raise FedauditError("unknown-key", what, suggest(word, {*sections, *keys, "defences"}))


def without_people(levers: Sequence[Lever]) -> list[Lever]:
    """Without what needs to know whose a record is."""
    fitting = [[change for change in one.positions if change.defence.get("name") != OF_PEOPLE] for one in levers]
    return [Lever(one.name, left) for one, left in zip(levers, fitting, strict=True) if left]


def touches(change: Change, keep: Sequence[str]) -> bool:
    keys = [*change.overrides, *(["defences"] if change.defence else [])]
    return any(key == kept or key.startswith(f"{kept}.") for key in keys for kept in keep)


def together(config: Config, changes: Sequence[Change]) -> Change:
    """Several changes as one."""
    if not changes:
        return NO_CHANGE
    overrides: dict[str, Any] = {}
    for change in changes:
        overrides |= change.overrides
    added = [dict(change.defence) for change in changes if change.defence]
    if added:
        new = [parse({"defences": [d]}).defences[0] for d in added]
        kept = [d for d in config.defences if not any(_shares_slot(d, one) for one in new)]
        overrides["defences"] = [*(d.model_dump(mode="json", exclude_none=True) for d in kept), *added]
    names, words = ", ".join(c.name for c in changes), ", and ".join(c.words + _instead(config, c) for c in changes)
    return Change(names, words, overrides)


def _instead(config: Config, change: Change) -> str:
    """Which of the federation's own defences it replaces, in words."""
    new = parse({"defences": [dict(change.defence)]}).defences if change.defence else ()
    own = [d.name for d in config.defences if any(_shares_slot(d, one) for one in new)]
    return f" in place of your {' and '.join(own)}" if own else ""


def changed(config: Config, change: Change) -> Config:
    """The configuration after a change. Impossible values are refused, as in any configuration."""
    raw = config.as_dict()
    for key, value in change.overrides.items():
        put(raw, key.split("."), value, FedauditError("bad-value", f"{key} cannot be set", "Set it by hand."))
    return parse(raw)


def _shares_slot(one: Any, other: Any) -> bool:
    both = isinstance(one, DefenceOptions) and isinstance(other, DefenceOptions)
    return both and bool(set(one.slots) & set(other.slots))


# ------------------------------------------------------------------ the levers


def _model(config: Config) -> Iterator[Change]:
    """Models of ours that have a smaller sister. A model from elsewhere is its owner's to change."""
    name, given = config.model.name, config.model.arguments()
    if name == "mlp":
        from fedaudit.learn.models.mlp import HIDDEN

        hidden = tuple(given.get("hidden", HIDDEN))
        for width in WIDTHS:
            if hidden and width < (hidden[0] if len(hidden) == 1 else hidden[0] + 1):
                words = f"use a model with one hidden layer of {width} units"
                yield Change(f"one hidden layer of {width}", words, {"model.hidden": [width]})
        if hidden:
            yield Change("no hidden layer", "use a model without hidden layers", {"model.hidden": []})
        told = f"split the model's largest layer into two smaller ones, the first with {FACTOR} outputs"
        product = Change(f"largest layer of rank {FACTOR}", told, {"model.rank": FACTOR})
        told = f"show the model {SUMS} fixed random sums of its inputs"
        projection = Change(f"{SUMS} random sums", told, {"model.projection": SUMS})
        narrower = {"rank": product, "projection": projection}
        order = ("rank", "projection") if hidden else ("projection", "rank")  # a last layer is seldom split with a gain
        yield from (narrower[key] for key in order if key not in given)
    elif name == "cnn":
        for filters in (32, 16):
            if given.get("filters", 32) > filters:
                yield Change(f"{filters} filters", f"use a model with {filters} filters", {"model.filters": filters})
    elif name in ("resnet20", "resnet56", "resnet18"):
        yield Change("resnet8", "use the residual network of 8 layers", {"model.name": "resnet8"})
    else:
        for key, told in (("units", "units"), ("width", "as its width")):
            for part in (2, 4):
                if (wide := given.get(key)) and wide >= 8 * part:
                    words = f"use a model with {wide // part} {told}"
                    yield Change(f"{key} {wide // part}", words, {f"model.{key}": wide // part})


def _update(config: Config) -> Iterator[Change]:
    """Where a defence of the updates is in place, only one with a promise may replace it."""
    for strength in UPDATE_NOISES:
        told = f"let every party add noise of {strength:g} times its norm to its update (it promises nothing)"
        yield from _unless_filled(
            config,
            Change(f"update noise {strength:g}", told, {}, defence={"name": "update-noise", "strength": strength}),
        )
    for name, told, cut in (
        (f"updates of rank {RANK}", f"send updates of rank {RANK} alone", {"name": "update-rank", "rank": RANK}),
        ("sparse updates", f"send the largest {SHARE:.0%} of each update", {"name": "update-sparse", "share": SHARE}),
    ):
        yield from _unless_filled(
            config, Change(name, f"let every party {told} (it promises nothing)", {}, defence=cut)
        )
    told = f"let every party clip its update and add noise (user-level DP, noise {USER_NOISE:g})"
    user = {"name": "dp-fedavg", "clip": CLIP, "noise": USER_NOISE, "local": True}
    yield from _unless_promised(config, Change("user-level DP", told, {}, defence=user))


def _training(config: Config) -> Iterator[Change]:
    for noise, clip in DP_SGD:
        told = f"train with DP-SGD (clip {clip:g}, noise {noise:g})"
        clipped = "" if clip == CLIP else f", clip {clip:g}"
        sgd = {"name": "dp-sgd", "clip": clip, "noise": noise}
        yield from _unless_promised(config, Change(f"DP-SGD, noise {noise:g}{clipped}", told, {}, defence=sgd))
    subject = {"name": OF_PEOPLE, "clip": CLIP, "noise": SUBJECT_NOISE}
    told = f"train with subject-level DP (noise {SUBJECT_NOISE:g})"
    yield from _unless_promised(config, Change("subject-level DP", told, {}, defence=subject))
    told = f"clip every record's gradient to {CLIP:g}"
    yield from _unless_filled(config, Change("clipping", told, {}, defence={"name": "clip-only", "clip": CLIP}))
    told = f"train with weight decay {WEIGHT_DECAY:g}"
    decay = Change("weight decay", told, {}, defence={"name": "l2", "strength": WEIGHT_DECAY})
    told = f"drop {100 * DROPOUT:g} % of the activations"
    dropout = Change("dropout", told, {}, defence={"name": "dropout", "strength": DROPOUT})
    for change in (decay, dropout):
        yield from _unless_filled(config, change)


def _unless_filled(config: Config, change: Change) -> Iterator[Change]:
    """Not where a defence of the federation's own would be replaced by one that promises nothing."""
    new = parse({"defences": [dict(change.defence)]}).defences[0]
    if not any(_shares_slot(own, new) for own in config.defences):
        yield change


PROMISING = ("dp-sgd", OF_PEOPLE, "dp-fedavg")


def _unless_promised(config: Config, change: Change) -> Iterator[Change]:
    """Not where a promise of the federation's own would be replaced by another, perhaps a weaker one."""
    new = parse({"defences": [dict(change.defence)]}).defences[0]
    if not any(own.name in PROMISING and _shares_slot(own, new) for own in config.defences):
        yield change


def _rate(config: Config) -> Iterator[Change]:
    """Adam divides each weight's gradient by its own size, so that what few records have moves the model as far as what
    all have. Plain SGD learns as much with a shorter update, and noise is measured by the update's length."""
    if config.federation.algorithm == "fedavg" and config.federation.optimizer == "adam":
        for rate in SGD_RATES:
            told = f"train with plain SGD at a learning rate of {rate:g} instead of Adam"
            yield Change(f"SGD, rate {rate:g}", told, {"federation.optimizer": "sgd", "federation.lr": rate})
    for times in RATES:
        rate = float(f"{times * config.federation.lr:.2g}")
        yield Change(f"learning rate {rate:g}", f"set the learning rate to {rate:g}", {"federation.lr": rate})


def _epochs(config: Config) -> Iterator[Change]:
    if config.federation.algorithm != "fedavg":
        return
    own = config.federation.local_epochs
    for epochs in sorted({1, *(times * own for times in EPOCHS)} - {own}):
        counted = "one local epoch" if epochs == 1 else f"{epochs} local epochs"
        yield Change(counted, f"train {counted} a round", {"federation.local_epochs": epochs})


def _batches(config: Config) -> Iterator[Change]:
    if config.federation.algorithm == "fedavg":
        for times in BATCHES:
            size = times * config.federation.batch_size
            yield Change(f"batches of {size}", f"train on batches of {size} records", {"federation.batch_size": size})


def _frozen(config: Config) -> Iterator[Change]:
    frozen = (config.federation.freeze or 0) + 1
    layers = "first layer" if frozen == 1 else f"first {frozen} layers"
    yield Change(f"frozen {layers}", f"leave the model's {layers} untrained", {"federation.freeze": frozen})


def _parties(config: Config) -> Iterator[Change]:
    federation = config.federation
    if federation.parties >= 4 and federation.partition != "column":
        half = federation.parties // 2
        told = f"join the parties into {half}, so that every update is of more records"
        yield Change(f"{half} larger parties", told, {"federation.parties": half})


def _masking(config: Config) -> Iterator[Change]:
    if not config.federation.secagg:
        hidden = [Vantage.SECAGG_SERVER if v is Vantage.SERVER else v for v in config.audit.vantages]
        seen = list(dict.fromkeys(vantage.value for vantage in hidden))
        told = "mask the updates (secure aggregation), so that the server sees only their sum"
        yield Change("secure aggregation", told, {"federation.secagg": True, "audit.vantages": seen})


LEVERS: Mapping[str, Callable[[Config], Iterator[Change]]] = {
    "model": _model,
    "update": _update,
    "rate": _rate,
    "training": _training,
    "epochs": _epochs,
    "batches": _batches,
    "frozen": _frozen,
    "parties": _parties,
    MASKING: _masking,
}
