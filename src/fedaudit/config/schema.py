"""The configuration file: what a user may ask for, checked before anything heavy is imported."""

import hashlib
import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, SerializeAsAny, ValidationError, model_validator

from fedaudit import questions
from fedaudit.config.attack_registry import ATTACKS
from fedaudit.config.attacks import MatchedSection, ReferenceSection, TearSection
from fedaudit.config.code import found_in
from fedaudit.config.registry import DATA, DEFENCES, MODELS, Options
from fedaudit.config.section import UNKNOWN_KEY, WORDS, Count, Fraction, Positive, Section, refused
from fedaudit.errors import FedauditError
from fedaudit.questions.attribute import AttributeSection
from fedaudit.questions.canary import CanarySection, looking_at_the_sum
from fedaudit.types import Vantage

DEFAULT_FPR = (0.001, 0.01)
FRESH = 0.5  # of a person's records, as in the paper on subject membership
_SET = "Write, for example, --set federation.rounds=10."


def twice(values: Iterable[Any]) -> str | None:
    """The first value that occurs a second time, as text; None if there is none."""
    seen: list[Any] = []
    for value in values:
        if value in seen:
            return str(value)
        seen.append(value)
    return None


def _once(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if named := twice(values):
        raise ValueError(f"{named} is listed twice: list it once")
    return values


Once = AfterValidator(_once)
Attack = Annotated[str, BeforeValidator(ATTACKS.named)]  # a name, or a table with a name and options


def _askable(asked: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Each section is read by the question that it names."""
    for name, options in asked.items():
        try:
            question = questions.named(name)
        except FedauditError as error:
            raise refused("unknown-question", name, error.what, error.todo) from error
        try:
            question.options(options)
        except FedauditError as error:
            raise refused("bad-value", name, error.what, error.todo) from error
        except (OSError, ArithmeticError, LookupError, TypeError, AttributeError, RuntimeError) as error:
            what = f"the options of {name} cannot be read: {type(error).__name__}"
            raise refused("bad-value", name, what, "Let its options() raise ValueError with what is wrong.") from error
        except ValidationError as error:
            first = error.errors()[0]
            told, key = first.get("ctx", {}), ".".join(map(str, (name, *first["loc"])))
            raise refused("bad-value", key, told.get("what", first["msg"]), told.get("todo", "Correct it.")) from error
        except ValueError as error:
            raise refused("bad-value", name, str(error), "Correct it.") from error
    return asked


# Keys that have no effect under a choice: giving one is an error, and they are not stored.
IDLE_KEYS = {
    ("partition", "subjects"): ("members", "nonmembers"),
    ("algorithm", "fedsgd"): ("local_epochs", "batch_size", "optimizer", "server_lr"),
}
UNWRITTEN = {"coins": False, "server_lr": 1.0}  # defaults, which are not written down
# Keys that have an effect under one choice only. (`fresh` has one wherever the game is about people: see `Config`.)
KEYS_OF = {
    "beta": ("partition", "dirichlet"),
    "column": ("partition", "column"),
    "member_subjects": ("partition", "subjects"),
    "nonmember_subjects": ("partition", "subjects"),
    "held_out": ("partition", "subjects"),
}


def _unwritten(name: str, value: Any) -> bool:
    """Is it the default? True is no 1, and is left to be refused, as for every number."""
    default = UNWRITTEN.get(name)
    same_kind = isinstance(default, bool) or not isinstance(value, bool)
    return name in UNWRITTEN and value == default and same_kind


NOTHING_LEFT = "members + nonmembers must leave a part for calibration (their sum below 1)"


class FederationSection(Section):
    """[federation] who trains, and how. Fractions are of each party's records; the rest is used to calibrate
    thresholds.

    partition = "iid" | "dirichlet" (with beta) | "column" (with column = "label", "subject" or an attribute) |
    "subjects" (a game about people, each of whom lies in one party: member_subjects and nonmember_subjects are
    fractions of the people, fresh the share of a person's records that the adversary has and nobody trains on).
    With partition = "column" and audit.unit = "subject" the game is about people, too: each stays where the column
    says, members and nonmembers are fractions of a party's people, and fresh may be set.
    Where the data say whose a record is, fractions are of people, and a person has one role in all parties: no record
    of somebody who was trained on counts as an outsider's. split_subjects = true deals records out one by one.
    With partition = "subjects", it scatters a person's records over the parties, none in two.
    secagg = true: the updates are masked, and the server sees only their sum.
    coins = true: what the fractions leave is set aside first, and a fair coin decides about each other record (with
    partition = "subjects", about each person) whether it is trained on. A run then proves a lower bound of epsilon.
    """

    parties: Count = Field(4, description="how many parties share the records")
    partition: Literal["iid", "dirichlet", "column", "subjects"] = Field(
        "iid", description="how the records are split among the parties"
    )
    beta: Positive | None = Field(None, description='partition "dirichlet": how even the labels are, small is uneven')
    column: str | None = Field(
        None,
        description='partition "column": label, subject or an attribute; parties are named after its values',
    )
    members: Fraction | None = Field(
        None,
        description="the fraction of its records (people) that a party trains on; not set: 0.3, or 0.6 where there are "
        "fewer than 1,000 in all",
    )
    nonmembers: Fraction | None = Field(
        None,
        description="the fraction that is held out and reported on; the rest sets thresholds; not set: 0.3, or 0.15 "
        "where there are fewer than 1,000 in all",
    )
    member_subjects: Fraction | None = Field(
        None, description='partition "subjects": the fraction of subjects that are trained on'
    )
    nonmember_subjects: Fraction | None = Field(
        None, description='partition "subjects": the fraction that is reported on as outsiders; the rest set thresholds'
    )
    held_out: Fraction | None = Field(None, description='partition "subjects": another name for nonmember_subjects')
    fresh: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)] | None = Field(
        None,
        description="the share of a person's records that the adversary has, untrained; 0: it has the trained ones",
    )
    split_subjects: bool | None = Field(
        None, description="may one person have records that are trained on and others that are not? not set: false"
    )
    coins: bool | None = Field(
        None, description="does a fair coin decide about each record or person? gives epsilon-one-run; not set: false"
    )
    participation: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = Field(
        1.0, description="the fraction of parties that take part in a round"
    )
    sampling: Literal["uniform", "poisson"] | None = Field(
        None, description="who takes part: a fixed number of parties, or each party by a coin of its own"
    )
    rounds: Annotated[int, Field(ge=2, le=10**9)] = Field(40, description="how many times models are exchanged")
    local_epochs: Count = Field(1, description="passes over its records that a party makes in a round")
    batch_size: Count = Field(64, description="records in one step of training")
    algorithm: Literal["fedavg", "fedsgd"] = Field("fedavg", description="what the server does with what it receives")
    secagg: bool = Field(False, description="updates are masked, and the server sees only their sum")
    optimizer: Literal["adam", "sgd"] = Field("adam", description="the parties' optimiser, fresh in every round")
    lr: Annotated[Positive, Field(le=1e6)] = Field(1e-3, description="learning rate of the parties")
    weight_decay: Annotated[Positive, Field(le=1e3)] | None = Field(
        None, description="weight decay of the parties' optimiser, as by the defence l2; not set: none"
    )
    server_lr: Annotated[Positive, Field(le=100)] | None = Field(
        None, description="how much of the mean update the server adds to the model; not set: 1, all of it"
    )
    freeze: Count | None = Field(
        None, description="how many of the model's first layers keep the weights they begin with; not set: none"
    )
    seed: Annotated[int, Field(ge=0, lt=2**63)] = Field(0, description="determines everything random")

    @model_validator(mode="before")
    @classmethod
    def _keys_go_together(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        for (key, choice), idle in IDLE_KEYS.items():
            for name in idle:
                if given.get(key) == choice and name in given:
                    raise ValueError(f"{name} has no effect when {key} is {choice!r}: remove it")
        for name, (key, choice) in KEYS_OF.items():
            if name in given and given.get(key) != choice:
                raise ValueError(f"{name} belongs to {key} = {choice!r}: set that, or remove {name}")
        if "sampling" in given and given.get("participation", 1) == 1:
            raise ValueError("sampling has no effect when all take part: set participation below 1, or remove it")
        for name, example in (("beta", "0.5"), ("column", '"label"')):
            key, choice = KEYS_OF[name]
            if given.get(key) == choice and name not in given:
                raise ValueError(f"{key} = {choice!r} needs {name}, for example {name} = {example}")
        implied: dict[str, Any] = {}
        if given.get("partition") == "subjects":
            if "held_out" in given and "nonmember_subjects" in given:
                raise ValueError("held_out and nonmember_subjects are two names of one thing: remove held_out")
            implied = {"member_subjects": 0.3} | ({} if "nonmember_subjects" in given else {"held_out": 0.3})
        if given.get("participation", 1) != 1:
            implied["sampling"] = "uniform"
        # The default is not written down, whether it was asked for or not.
        return implied | {name: value for name, value in given.items() if not _unwritten(name, value)}

    @model_validator(mode="after")
    def _calibration_is_left(self) -> "FederationSection":
        if (self.members or 0.0) + (self.nonmembers or 0.0) >= 1:
            raise ValueError(NOTHING_LEFT)
        if (self.member_subjects or 0) + self.outsiders >= 1:
            second = "held_out" if self.nonmember_subjects is None else "nonmember_subjects"
            raise ValueError(f"member_subjects + {second} must leave subjects for calibration (their sum below 1)")
        if self.coins and self.split_subjects is False and self.partition != "subjects":
            raise ValueError(
                "coins = true flips a coin for each record, which splits people: remove split_subjects = false, or set "
                "partition = 'subjects' for one coin a person"
            )
        return self

    @property
    def shares(self) -> tuple[float, float]:
        """The fractions that are trained on and reported on, once the data have decided what is not set."""
        assert self.members is not None
        assert self.nonmembers is not None
        return self.members, self.nonmembers

    @property
    def step(self) -> float:
        """How much of the mean update the server adds to the model."""
        return 1.0 if self.server_lr is None else self.server_lr

    @property
    def outsiders(self) -> float:
        """Partition "subjects": the fraction of subjects that is reported on as outsiders, by either of its names."""
        return self.nonmember_subjects or self.held_out or 0.0


class FusionSection(Section):
    """[audit.fusion] the attacks whose scores `fusion` adds up, and their weights."""

    attacks: Annotated[tuple[Attack, ...], Field(min_length=2), Once] = Field(
        ("gradient-cosine", "fta-confidence"), description="whose scores are added up"
    )
    weights: tuple[Positive, ...] | None = Field(None, description="one for each attack; not set: all equal")

    @model_validator(mode="after")
    def _one_weight_each(self) -> "FusionSection":
        if self.weights is not None and len(self.weights) != len(self.attacks):
            raise ValueError(f"{len(self.weights)} weights for {len(self.attacks)} attacks: give one for each")
        return self


class CalibrationSection(Section):
    """[audit.calibration] the non-members that set thresholds: how many, and where they come from.

    path: their file, read as [data] says. What `members` and `nonmembers` leave is then not used.
    """

    records: Count | None = Field(
        None, description="so many of them, records or people, the same in every run; not set: all"
    )
    path: Path | None = Field(
        None, description="their file, of the same kind as data.path; not set: the rest of [data]"
    )


class OwnSection(Section):
    """[audit.own] the data of an adversary who takes no part in training: agg-sh, agg-mal, and whoever trains reference
    models on data of its own."""

    share: Fraction | None = Field(
        None, description="of all records, set aside for it; not set: as many as a party gets"
    )
    path: Path | None = Field(
        None, description="its own file, of the same kind as data.path, 20 records or more; nothing is set aside then"
    )

    @model_validator(mode="after")
    def _one_of_two(self) -> "OwnSection":
        if (self.share is None) == (self.path is None):
            raise ValueError("set share or path, one of the two")
        return self


class AuditSection(Section):
    """[audit] the vantages, the attacks, the false-positive rates, and what is stored of each round:

    the `signals` that the attacks need, or `snapshots`: every model that was exchanged, for other attacks later.
    """

    unit: Literal["record", "subject"] | None = Field(
        None, description='whom the game is about; not set: people with partition "subjects", records otherwise'
    )
    vantages: Annotated[tuple[Vantage, ...], Field(min_length=1), Once] = Field(
        (Vantage.CLIENT, Vantage.SERVER), description="where adversaries stand: a party (client), the server, ..."
    )
    attacks: Annotated[tuple[Attack, ...], Once] | None = Field(
        None,
        description='see `fedaudit list attacks`; options: { name = "fta", degree = 2 } or [[audit.attacks]]; '
        "not set: all that cost at most one local epoch a round",
    )
    max_cost: Positive | None = Field(
        None,
        description="local epochs a round that the audit may take: the strongest attacks stay that fit; not set: one "
        "for each attack that nobody asked for by name",
    )
    fpr: Annotated[tuple[Fraction, ...], Once] | None = Field(
        None, description="false-positive rates; not set: 0.001 and 0.01, if there are enough records to calibrate them"
    )
    confidence: Fraction = Field(0.95, description="confidence of every interval")
    fusion: FusionSection = FusionSection()
    keep: Literal["signals", "snapshots"] = Field(
        "signals", description="what is stored of each round: what the attacks need, or every model that was exchanged"
    )
    reference: ReferenceSection = ReferenceSection()
    adversary: Literal["agg-sh", "agg-mal", "do-sh"] | None = Field(
        None, description="an adversary with its own data and shadow model: an honest or malicious server, or a party"
    )
    calibration: CalibrationSection | None = None
    own: OwnSection | None = None
    patience: Positive | None = Field(
        None, description="seconds that one step of one attack may take before it is given up; not set: 3600"
    )
    attribute: AttributeSection | None = None
    matched: MatchedSection | None = None
    tear: TearSection | None = None
    canary: CanarySection | None = None
    questions: Annotated[dict[str, dict[str, Any]], AfterValidator(_askable)] | None = Field(
        None, description="questions from other packages, each with its options: [audit.questions.NAME]"
    )


class ReportSection(Section):
    """[report] what is said of the audit itself. It changes no result, nor the hash of a configuration."""

    auditor: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        None, description="who runs this audit, and answers for it: a name, an office"
    )


class TrackSection(Section):
    """[track] where the risk and the epsilon of each round are copied to. It changes no result, nor the hash of a
    configuration."""

    tensorboard: Annotated[str, Field(min_length=1)] | None = Field(None, description="a folder of TensorBoard")
    mlflow: Annotated[str, Field(min_length=1)] | None = Field(
        None, description="where MLflow keeps its runs: a folder, or a tracking URI such as http://localhost:5000"
    )
    wandb: Annotated[str, Field(min_length=1)] | None = Field(
        None, description="a project of Weights & Biases; with WANDB_MODE=offline nothing leaves this machine"
    )

    @model_validator(mode="before")
    @classmethod
    def _has_no_password(cls, given: Any) -> Any:
        """The configuration is in run.json, in the results and in the report, which are passed on."""
        where = given.get("mlflow") if isinstance(given, Mapping) else None
        if isinstance(where, str) and "@" in where.partition("://")[2].partition("/")[0]:
            todo = "Set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD instead."
            raise refused("track-password", "mlflow", "a user or a password in it would be stored with the run", todo)
        return given


class AdviseSection(Section):
    """[advise] what `fedaudit advise` may try. It changes no result, nor the hash of a configuration."""

    levers: Annotated[tuple[str, ...], Field(min_length=1), Once] | None = Field(
        None, description="which levers may be moved; not set: all (docs/what-helps.md)"
    )
    keep: Annotated[tuple[str, ...], Once] = Field(
        (), description='sections and keys that must stay as they are, such as "model" or "federation.rounds"'
    )
    budget: Positive = Field(
        12.0, description="how much may be trained, in runs of the federation as it is, counted in rounds"
    )


def decisive(written: Mapping[str, Any]) -> dict[str, Any]:
    """The sections of a configuration on which results depend."""
    return {name: section for name, section in written.items() if name not in ("report", "track", "advise")}


class Config(Section):
    """A configuration, section by section, as its TOML file has it. `fedaudit init` explains every key."""

    data: Annotated[SerializeAsAny[Options], BeforeValidator(DATA.read)] = Field(default_factory=lambda: DATA.read({}))
    federation: FederationSection = FederationSection()
    model: Annotated[SerializeAsAny[Options], BeforeValidator(MODELS.read)] = Field(
        default_factory=lambda: MODELS.read({})
    )
    audit: AuditSection = AuditSection()
    defences: tuple[Annotated[SerializeAsAny[Options], BeforeValidator(DEFENCES.read)], ...] = ()
    report: ReportSection | None = None
    track: TrackSection | None = None
    advise: AdviseSection | None = None

    @model_validator(mode="before")
    @classmethod
    def _a_server_under_secagg(cls, given: Any) -> Any:
        """With secure aggregation, the default vantages include the server that sees only the sum."""
        federation, audit = (given.get(k, {}) if isinstance(given, dict) else {} for k in ("federation", "audit"))
        if isinstance(federation, dict) and federation.get("secagg") is True and isinstance(audit, dict):
            seen = {"vantages": [Vantage.CLIENT.value, Vantage.SECAGG_SERVER.value]}
            return {**given, "audit": seen | audit}
        return given

    @model_validator(mode="before")
    @classmethod
    def _canaries_are_looked_for_in_the_sum(cls, given: Any) -> Any:
        """With canaries, the default vantages include the one that they need."""
        return looking_at_the_sum(given)

    @model_validator(mode="after")
    def _people_need_their_partition(self) -> "Config":
        federation, people = self.federation, self.decided().audit.unit == "subject"
        if federation.fresh is not None and not people:
            unit = "'record': remove it" if self.audit.unit else "not 'subject': set that, or remove fresh"
            raise ValueError(f"federation.fresh has no effect when audit.unit is {unit}")
        if not people or federation.partition == "subjects":
            return self
        if federation.partition != "column":
            raise ValueError(
                "audit.unit = 'subject' needs federation.partition = 'subjects' (people are dealt out to the parties) "
                "or 'column' (the data say in which party they are)"
            )
        if federation.split_subjects or federation.coins:
            key = "split_subjects" if federation.split_subjects else "coins"
            raise ValueError(f"federation.{key} and audit.unit = 'subject' need federation.partition = 'subjects'")
        return self

    @model_validator(mode="after")
    def _masked_updates_are_not_seen(self) -> "Config":
        if self.federation.secagg and Vantage.SERVER in self.audit.vantages:
            raise ValueError(
                "with federation.secagg the server sees only the sum of the updates, no party's own: "
                "write 'secagg-server' instead of 'server' in audit.vantages"
            )
        return self

    def as_dict(self) -> dict[str, Any]:
        plain = self.model_dump(mode="json", exclude_none=True)
        plain |= {registry.section: registry.written(plain[registry.section]) for registry in (DATA, MODELS)}
        for (key, choice), idle in IDLE_KEYS.items():
            if plain["federation"][key] == choice:
                plain["federation"] = {k: v for k, v in plain["federation"].items() if k not in idle}
        return plain

    def hash(self) -> str:
        """Of what is written down, but for who answers for it and where it is copied to."""
        return hashlib.sha256(json.dumps(decisive(self.as_dict()), sort_keys=True).encode()).hexdigest()[:16]

    def splitting(self, people: bool | None) -> "Config":
        """The same with `split_subjects` decided, or, where records are nobody's, without it."""
        return self.model_copy(update={"federation": self.federation.model_copy(update={"split_subjects": people})})

    def sharing(self, members: float | None, nonmembers: float | None) -> "Config":
        """The same with these shares where none are set."""
        usual, federation = {"members": members, "nonmembers": nonmembers}, self.federation
        unset = {name: share for name, share in usual.items() if getattr(federation, name) is None}
        return self.model_copy(update={"federation": federation.model_copy(update=unset)})

    def asking(self, unit: Literal["record", "subject"] | None, fresh: float | None) -> "Config":
        """The same with the unit of the game decided, and which records of people the adversary has."""
        audit = self.audit.model_copy(update={"unit": unit})
        return self.model_copy(
            update={"audit": audit, "federation": self.federation.model_copy(update={"fresh": fresh})}
        )

    def decided(self) -> "Config":
        """With partition "subjects", the game is about people, and the adversary has half of their records, unless it
        is said otherwise. Without it the unit is not written down."""
        unit = self.audit.unit or ("subject" if self.federation.partition == "subjects" else None)
        fresh = FRESH if unit == "subject" and self.federation.fresh is None else self.federation.fresh
        return self.asking(unit, fresh)


def load_config(path: Path, overrides: Iterable[str] = ()) -> Config:
    """Reads a TOML file and applies `--set section.key=value` (the value in TOML; a bare word is text)."""
    raw = read_toml(path, "config")
    found_in(str(path.parent.resolve()))  # what it names as "package.module:name" may lie beside it
    return parse(raw, overrides, where=str(path))


def parse(raw: dict[str, Any], overrides: Iterable[str] = (), where: str = "configuration") -> Config:
    for override in overrides:
        _apply(raw, override)
    try:
        config = Config.model_validate(raw)
    except ValidationError as error:
        raise explain(error, where) from None
    if where == "configuration":
        return config
    # A relative path is relative to the configuration file, wherever the command is run.
    folder = Path(where).parent
    beside = {key: _resolved(section, folder) for key, section in config.audit if isinstance(section, BESIDE)}
    audit = config.audit.model_copy(update=beside)
    return config.model_copy(update={"data": _resolved(config.data, folder), "audit": audit})


BESIDE = (CalibrationSection, OwnSection)  # sections with files beside that of [data]


def _resolved(section: Section, folder: Path) -> Section:
    paths = {key: path for key, path in section if isinstance(path, Path)}
    return section.model_copy(
        update={key: (folder / path).resolve() for key, path in paths.items() if not path.is_absolute()}
    )


def _apply(raw: dict[str, Any], override: str) -> None:
    key, separator, text = override.partition("=")
    parts = key.strip().split(".")
    if not separator or not all(parts):
        raise FedauditError("set-syntax", f"--set {override!r} is not of the form section.key=value", _SET)
    try:
        value = tomllib.loads(f"v = {text}")["v"]
    except (tomllib.TOMLDecodeError, RecursionError):
        value = text
    put(raw, parts, value, FedauditError("set-syntax", f"--set {override!r} sets a key inside a key", _SET))


def put(raw: dict[str, Any], path: Sequence[str], value: Any, not_a_section: FedauditError) -> None:
    """Sets one key of a configuration that has been read, in the section that the path names."""
    for part in path[:-1]:
        raw = raw.setdefault(part, {})
        if not isinstance(raw, dict):
            raise not_a_section
    raw[path[-1]] = value


def explain(error: ValidationError, where: str) -> FedauditError:
    first = error.errors()[0]
    # Of a key that may hold this or that, pydantic's place goes on with a name of its own for "this".
    spot = ".".join(str(part) for part in first["loc"] if not (isinstance(part, str) and "[" in part))
    message = first["msg"].removeprefix("Value error, ")
    message = WORDS.get(first["type"], message)
    if todo := first.get("ctx", {}).get("todo"):  # see `section.refused`
        what = f"{message} {spot!r}" if first["type"] == UNKNOWN_KEY else f"{spot}: {message}"
        return FedauditError(first["type"], what, todo, where=where)
    # Long or nested values are not quoted: a configuration may hold something that should not reach a log.
    given = first["input"]
    shown = f", got {given!r}" if isinstance(given, int | float | str) and len(str(given)) < 60 else ""
    return FedauditError("bad-value", f"{spot}: {message}{shown}", f"Correct {spot} in the configuration.", where=where)


# ------------------------------------------------------------------ files of TOML

MAX_BYTES = 16 * 2**20  # of a file that somebody wrote by hand; a device would have no end
# Who gives data where a configuration is expected is told what to write into one.
_OF_DATA = 'These are data. Write a configuration (`fedaudit init my.toml`) with [data] name = "{}" and path = "...".'
DATA_INSTEAD = {
    **dict.fromkeys((".csv", ".tsv", ".parquet"), _OF_DATA.format("table")),
    ".npz": _OF_DATA.format("npz"),
}


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """The whole file. `what` it is begins the code of an error."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise FedauditError(f"{what}-size", f"{path} is larger than 16 MiB", "Give a file of TOML.")
        text = content.decode("utf-8-sig")  # some editors begin a file with a mark
        return tomllib.loads(text.replace("\r\n", "\n"))
    except OSError as error:
        raise FedauditError(f"{what}-missing", f"cannot read {path}: {error.strerror}", "Check the path.") from None
    except UnicodeDecodeError:
        todo = DATA_INSTEAD.get(path.suffix.lower(), "Save it as UTF-8.")
        raise FedauditError(f"{what}-syntax", f"{path} is not text in UTF-8", todo) from None
    except RecursionError:
        what_is = f"{path} holds lists or tables inside one another, many hundreds deep"
        raise FedauditError(f"{what}-syntax", what_is, "Write it flat.") from None
    except tomllib.TOMLDecodeError as error:
        todo = DATA_INSTEAD.get(path.suffix.lower(), "Correct that line.")
        raise FedauditError(f"{what}-syntax", f"{path} is not valid TOML: {error}", todo) from None
