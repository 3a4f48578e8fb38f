"""The configuration file: what a user may ask for, checked before anything heavy is imported."""

import hashlib
import json
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from fedaudit.errors import FedauditError, suggest
from fedaudit.types import Vantage

DEFAULT_FPR = (0.001, 0.01)

Fraction = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]


def twice(values: Iterable[Any]) -> str | None:
    """The first that is there for the second time, as text."""
    seen: list[Any] = []
    for value in values:
        if value in seen:
            return str(value)
        seen.append(value)
    return None


def _once(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if named := twice(values):
        raise ValueError(f"{named} is named twice")
    return values


Once = AfterValidator(_once)


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Data(_Section):
    """[data] what is trained on. `npz` reads your own file: keys x, y, optional id, subject, attribute."""

    name: str = "baskets"
    path: Path | None = None
    task: Literal["classification", "regression"] = "classification"
    x_key: str = "x"
    y_key: str = "y"
    id_key: str = "id"
    subject_key: str = "subject"
    attribute_key: str = "attribute"

    @model_validator(mode="after")
    def _only_a_file_must_be_told(self) -> "Data":
        if self.task == "regression" and self.name != "npz":
            raise ValueError(f"task belongs to name = 'npz', {self.name!r} knows its own: remove it")
        return self


# What says nothing under a choice: an error when given, and left out of what is written down.
IDLE_KEYS = {
    ("partition", "subjects"): ("members", "nonmembers"),
    ("algorithm", "fedsgd"): ("local_epochs", "batch_size", "optimizer"),
}
# What says something under one choice only.
KEYS_OF = {
    "beta": ("partition", "dirichlet"),
    "column": ("partition", "column"),
    "member_subjects": ("partition", "subjects"),
    "held_out": ("partition", "subjects"),
}


class Federation(_Section):
    """[federation] who trains, and how. Fractions apply to each party's part; the rest calibrates thresholds.

    partition = "iid" | "dirichlet" (with beta) | "column" (with column = "label", "subject" or an attribute) |
    "subjects" (whole people are members or not: member_subjects and held_out are fractions of the subjects).
    secagg = true: the updates are masked, and the server sees only their sum.
    """

    parties: Count = 4
    partition: Literal["iid", "dirichlet", "column", "subjects"] = "iid"
    beta: Positive | None = None
    column: str | None = None
    members: Fraction = 0.3
    nonmembers: Fraction = 0.3
    member_subjects: Fraction | None = None
    held_out: Fraction | None = None
    participation: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = 1.0
    sampling: Literal["uniform", "poisson"] | None = None
    rounds: Annotated[int, Field(ge=2)] = 40
    local_epochs: Count = 1
    batch_size: Count = 64
    algorithm: Literal["fedavg", "fedsgd"] = "fedavg"
    secagg: bool = False
    optimizer: Literal["adam", "sgd"] = "adam"
    lr: Positive = 1e-3
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0

    @model_validator(mode="before")
    @classmethod
    def _keys_go_together(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        for (key, choice), idle in IDLE_KEYS.items():
            for name in idle:
                if given.get(key) == choice and name in given:
                    raise ValueError(f"{name} says nothing when {key} is {choice!r}: remove it")
        for name, (key, choice) in KEYS_OF.items():
            if name in given and given.get(key) != choice:
                raise ValueError(f"{name} belongs to {key} = {choice!r}: set that, or remove {name}")
        if "sampling" in given and given.get("participation", 1) == 1:
            raise ValueError("sampling says who takes part: set participation below 1, or remove sampling")
        for name, example in (("beta", "0.5"), ("column", '"label"')):
            key, choice = KEYS_OF[name]
            if given.get(key) == choice and name not in given:
                raise ValueError(f"{key} = {choice!r} needs {name}, for example {name} = {example}")
        implied: dict[str, Any] = (
            {"member_subjects": 0.3, "held_out": 0.3} if given.get("partition") == "subjects" else {}
        )
        if given.get("participation", 1) != 1:
            implied["sampling"] = "uniform"
        return implied | given

    @model_validator(mode="after")
    def _calibration_is_left(self) -> "Federation":
        if self.members + self.nonmembers >= 1:
            raise ValueError("members + nonmembers must leave a part for calibration (their sum below 1)")
        if (self.member_subjects or 0) + (self.held_out or 0) >= 1:
            raise ValueError("member_subjects + held_out must leave subjects for calibration (their sum below 1)")
        return self


OUR_MODELS = ("linear", "mlp", "cnn", "leaf-cnn", "resnet8", "resnet20", "resnet56")
MODEL_KEYS = {"hidden": ("mlp",), "filters": ("cnn",), "norm": ("resnet8", "resnet20", "resnet56")}


class Model(_Section):
    """[model] one of ours, or your own as `package.module:factory`, called with (input_shape, classes, **options)."""

    name: str = "mlp"
    hidden: tuple[Count, ...] | None = None
    filters: Literal[16, 32, 64] | None = None
    norm: Literal["group", "batch"] | None = None
    options: dict[str, Any] = {}

    @model_validator(mode="after")
    def _keys_fit_the_model(self) -> "Model":
        if ":" not in self.name and self.name not in OUR_MODELS:
            raise ValueError(f"unknown model. {suggest(self.name, [*OUR_MODELS, 'package.module:factory'])}")
        for key, models in MODEL_KEYS.items():
            if getattr(self, key) is not None and self.name not in models:
                raise ValueError(f"{key} belongs to {', '.join(models)}, not to {self.name}: remove it")
        if self.options and ":" not in self.name:
            raise ValueError("options are for your own model (package.module:factory): remove them")
        return self

    def arguments(self) -> dict[str, Any]:
        """What the model's factory is called with, beside the shape and the classes."""
        given = {key: getattr(self, key) for key in MODEL_KEYS if getattr(self, key) is not None}
        return given | self.options


class Reference(_Section):
    """[audit.reference] the bank behind kta-*, lira, distillation and rmia."""

    models: Annotated[int, Field(ge=4, multiple_of=2)] = 16
    alpha: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 0.8
    variance: Literal["shared", "record"] | None = None
    defended: bool = False

    def bank(self) -> dict[str, Any]:
        return {"models": self.models, "alpha": self.alpha}

    @property
    def spread(self) -> Literal["shared", "record"]:
        return self.variance or ("shared" if self.models <= 16 else "record")


class Fusion(_Section):
    """[audit.fusion] the attacks that `fusion` adds up, and their weights (equal unless given)."""

    attacks: Annotated[tuple[str, ...], Field(min_length=2), Once] = ("gradient-cosine", "fta-confidence")
    weights: tuple[Positive, ...] | None = None

    @model_validator(mode="after")
    def _one_weight_each(self) -> "Fusion":
        if self.weights is not None and len(self.weights) != len(self.attacks):
            raise ValueError(f"{len(self.weights)} weights for {len(self.attacks)} attacks")
        return self


class Attribute(_Section):
    """[audit.attribute] what an adversary guesses of members: an attribute of the data set, by name.

    `column`: where it stands among the inputs, if it does; else it is put there for training, as a one-hot code.
    """

    name: str
    column: Annotated[int, Field(ge=0)] | None = None


class Audit(_Section):
    """[audit] who looks, with which attacks, at which false-positive rates; and what is kept of each round:

    the `signals` that the attacks read, or `snapshots`: every model that was exchanged, for attacks of tomorrow.
    """

    vantages: Annotated[tuple[Vantage, ...], Once] = (Vantage.CLIENT, Vantage.SERVER)
    attacks: Annotated[tuple[str, ...], Once] | None = None
    fpr: Annotated[tuple[Fraction, ...], Once] | None = None
    confidence: Fraction = 0.95
    fusion: Fusion = Fusion()
    keep: Literal["signals", "snapshots"] = "signals"
    reference: Reference = Reference()
    adversary: Literal["agg-sh", "agg-mal", "do-sh"] | None = None
    attribute: Attribute | None = None


class Defence(_Section):
    """[[defences]] what is done against it. DP: either epsilon (and delta) or noise, and clip; the rest: strength.

    Numbers are checked where the noise is found, so that every refusal has its own name.
    """

    name: Literal["dp-sgd", "higradavg", "dp-fedavg", "clip-only", "memguard", "l2", "dropout"]
    epsilon: float | None = None
    delta: float | None = None
    noise: float | None = None
    clip: float | None = None
    local: bool | None = None
    strength: float | None = None


class Config(_Section):
    data: Data = Data()
    federation: Federation = Federation()
    model: Model = Model()
    audit: Audit = Audit()
    defences: tuple[Defence, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _a_server_under_secagg(cls, given: Any) -> Any:
        """Whoever does not say from where to look gets the server as secure aggregation leaves it."""
        federation, audit = (given.get(k, {}) if isinstance(given, dict) else {} for k in ("federation", "audit"))
        if isinstance(federation, dict) and federation.get("secagg") is True and isinstance(audit, dict):
            seen = {"vantages": [Vantage.CLIENT.value, Vantage.SECAGG_SERVER.value]}
            return {**given, "audit": seen | audit}
        return given

    @model_validator(mode="after")
    def _masked_updates_are_not_seen(self) -> "Config":
        if self.federation.secagg and Vantage.SERVER in self.audit.vantages:
            raise ValueError(
                "with federation.secagg the server sees only the sum of the updates, no party's own: "
                "take 'secagg-server' in place of 'server' in audit.vantages"
            )
        return self

    def as_dict(self) -> dict[str, Any]:
        plain = self.model_dump(mode="json", exclude_none=True)
        for (key, choice), idle in IDLE_KEYS.items():
            if plain["federation"][key] == choice:
                plain["federation"] = {k: v for k, v in plain["federation"].items() if k not in idle}
        return plain

    def hash(self) -> str:
        return hashlib.sha256(json.dumps(self.as_dict(), sort_keys=True).encode()).hexdigest()[:16]


def load_config(path: Path, overrides: Iterable[str] = ()) -> Config:
    """Read a TOML file and apply `--set section.key=value` (value in TOML; a bare word is taken as text)."""
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FedauditError("config-missing", f"cannot read {path}: {error.strerror}", "Check the path.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FedauditError("config-syntax", f"{path} is not valid TOML: {error}", "Mend that line.") from None
    return parse(raw, overrides, where=str(path))


def parse(raw: dict[str, Any], overrides: Iterable[str] = (), where: str = "configuration") -> Config:
    for override in overrides:
        _apply(raw, override)
    try:
        config = Config.model_validate(raw)
    except ValidationError as error:
        raise _explain(error, where) from None
    if config.data.path and not config.data.path.is_absolute() and where != "configuration":
        # A relative path means: beside the configuration file, wherever the command is run from.
        beside = (Path(where).parent / config.data.path).resolve()
        config = config.model_copy(update={"data": config.data.model_copy(update={"path": beside})})
    return config


def _apply(raw: dict[str, Any], override: str) -> None:
    key, separator, text = override.partition("=")
    parts = key.strip().split(".")
    if not separator or not all(parts):
        raise FedauditError("set-syntax", f"--set {override!r} is not of the form section.key=value", "Write it so.")
    try:
        value = tomllib.loads(f"v = {text}")["v"]
    except tomllib.TOMLDecodeError:
        value = text
    for part in parts[:-1]:
        raw = raw.setdefault(part, {})
        if not isinstance(raw, dict):
            raise FedauditError("set-syntax", f"--set {override!r}: {part!r} is not a section", "Name section.key.")
    raw[parts[-1]] = value


def _explain(error: ValidationError, where: str) -> FedauditError:
    first = error.errors()[0]
    spot = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        known = _known_keys(first["loc"][:-1])
        return FedauditError("unknown-key", f"unknown key {spot!r}", suggest(str(first["loc"][-1]), known), where=where)
    message = first["msg"].removeprefix("Value error, ")
    # Never echo long or nested values: a configuration may hold what should not reach a log.
    given = first["input"]
    shown = f", got {given!r}" if isinstance(given, int | float | str) and len(str(given)) < 60 else ""
    return FedauditError("bad-value", f"{spot}: {message}{shown}", "Change it in the configuration.", where=where)


def _known_keys(path: tuple[int | str, ...]) -> list[str]:
    section: Any = Config
    for part in (part for part in path if isinstance(part, str)):  # a number counts [[defences]]
        annotation = section.model_fields[part].annotation
        candidates = [annotation, *get_args(annotation)]
        section = next(c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel))
    return list(section.model_fields)
