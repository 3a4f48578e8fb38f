"""The configuration file: what a user may ask for, checked before anything heavy is imported."""

import hashlib
import json
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fedaudit.errors import FedauditError, suggest
from fedaudit.types import Vantage

DEFAULT_FPR = (0.001, 0.01)

Fraction = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Data(_Section):
    """[data] what is trained on. `npz` reads your own file: keys x, y, optional id, subject, attribute."""

    name: str = "baskets"
    path: Path | None = None
    x_key: str = "x"
    y_key: str = "y"
    id_key: str = "id"
    subject_key: str = "subject"
    attribute_key: str = "attribute"


class Federation(_Section):
    """[federation] who trains, and how. Fractions apply to each party's part; the rest calibrates thresholds."""

    parties: Count = 4
    partition: Literal["iid"] = "iid"
    members: Fraction = 0.3
    nonmembers: Fraction = 0.3
    rounds: Annotated[int, Field(ge=2)] = 40
    local_epochs: Count = 1
    batch_size: Count = 64
    algorithm: Literal["fedavg"] = "fedavg"
    optimizer: Literal["adam", "sgd"] = "adam"
    lr: Positive = 1e-3
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0

    @model_validator(mode="after")
    def _calibration_is_left(self) -> "Federation":
        if self.members + self.nonmembers >= 1:
            raise ValueError("members + nonmembers must leave a part for calibration (their sum below 1)")
        return self


class Model(_Section):
    """[model] `mlp`, or your own as `package.module:factory`, called with (input_shape, classes, **options)."""

    name: str = "mlp"
    hidden: tuple[Count, ...] = (512, 256, 128)
    options: dict[str, Any] = {}


class Fusion(_Section):
    """[audit.fusion] the attacks that `fusion` adds up, and their weights (equal unless given)."""

    attacks: Annotated[tuple[str, ...], Field(min_length=2)] = ("gradient-cosine", "fta-confidence")
    weights: tuple[Positive, ...] | None = None

    @model_validator(mode="after")
    def _one_weight_each(self) -> "Fusion":
        if len(set(self.attacks)) < len(self.attacks):
            raise ValueError("an attack is named twice")
        if self.weights is not None and len(self.weights) != len(self.attacks):
            raise ValueError(f"{len(self.weights)} weights for {len(self.attacks)} attacks")
        return self


class Audit(_Section):
    """[audit] who looks, with which attacks, at which false-positive rates."""

    vantages: tuple[Vantage, ...] = (Vantage.CLIENT, Vantage.SERVER)
    attacks: tuple[str, ...] | None = None
    fpr: tuple[Fraction, ...] | None = None
    confidence: Fraction = 0.95
    fusion: Fusion = Fusion()


class Config(_Section):
    data: Data = Data()
    federation: Federation = Federation()
    model: Model = Model()
    audit: Audit = Audit()

    def as_dict(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude_none=True)

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
    for part in path:
        annotation = section.model_fields[str(part)].annotation
        candidates = [annotation, *get_args(annotation)]
        section = next(c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel))
    return list(section.model_fields)
