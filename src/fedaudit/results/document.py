"""Results on disk: `results.json` (published schema) and `scores.parquet`. Neither needs torch to be read.

`Document` is results.json as a tree of frozen dataclasses. Each key of the file is a field here, or in
`fedaudit.types` or `fedaudit.privacy.statement`. The schema is generated from these types (`fedaudit.results.schema`).
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from fedaudit.errors import REFUSED, FedauditError
from fedaudit.files import atomic
from fedaudit.files import write_atomically as write_atomically
from fedaudit.privacy.statement import Statement
from fedaudit.results.plain import UnreadableError, plain, read
from fedaudit.stats.strongest import grade
from fedaudit.stats.wording import main_tpr
from fedaudit.trace import checksums
from fedaudit.trace.checksums import Seal
from fedaudit.trace.segments import checksum
from fedaudit.types import (
    ALWAYS,
    Audit,
    AuditResult,
    Count,
    Estimate,
    Estimates,
    Headline,
    ModelKind,
    MoreExposed,
    Rule,
    VantageName,
)

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA = 1
SCHEMA_FILE = Path(__file__).with_name("results.schema.json")
RESULTS, SCORES, REPORT = "results.json", "scores.parquet", "report.html"
REDACTED = "report-redacted.html"  # for passing on
MAX_BYTES = 512 * 2**20
LATER = {**ALWAYS, "later": True}  # always written now, but not by the first versions, so the schema cannot require it


# ------------------------------------------------------------------ the tree


@dataclass(frozen=True)
class DataInfo:
    name: str
    records: Count
    classes: Annotated[int, Rule("minimum", 0), "0 for regression"]
    subjects: Annotated[int | None, Rule("minimum", 0), "null where records belong to nobody"]
    input_shape: Sequence[int]


@dataclass(frozen=True)
class PartyInfo:
    """A party, and how many of its records play which role."""

    name: str
    members: Count
    evaluation: Count
    calibration: Count


@dataclass(frozen=True)
class Repeat:
    """The headlines of another training run, which differs in its seed alone."""

    seed: int
    headlines: Sequence[Headline]


@dataclass(frozen=True)
class OverRuns:
    """The mean over all repeated runs of a vantage's headline; the intervals include how much the runs differ."""

    vantage: VantageName
    estimates: Estimates


@dataclass(frozen=True)
class Withheld:
    """The update of a round that did not leave this party; `onwards`: nor did any later one."""

    round: Count
    because: Literal["limit crossed", "limit undecidable", "not audited"]
    onwards: bool = False
    rule: Annotated[str | None, "the party's limit"] = None
    attack: Annotated[str | None, "which crossed the limit"] = None
    estimates: Annotated[
        Mapping[str, Estimate], "of this attack after this round, the error shared among all planned rounds and attacks"
    ] = field(default_factory=dict)
    reason: Annotated[str, "why it was not audited, or why no attack can decide the limit, and what to do"] = ""


@dataclass(frozen=True)
class AttackOverRuns:
    """The mean over all repeated runs of one attack, pooled over the parties, with the smallest and the largest value;
    the intervals include how much the runs differ."""

    attack: str
    vantage: VantageName
    model: ModelKind
    runs: Annotated[int, Rule("minimum", 1), "that have a result of it"]
    estimates: Estimates
    smallest: Mapping[str, float]
    largest: Mapping[str, float]


@dataclass(frozen=True)
class RunInfo:
    """What is needed to assess an audit and to repeat it."""

    name: str
    fedaudit: str
    created: str
    status: str
    config: Mapping[str, Any]
    config_hash: str
    seed: int
    versions: Mapping[str, str]
    rounds: Count
    seconds: float
    data: DataInfo
    parties: Sequence[PartyInfo]
    guarantee: Statement | None
    accuracy: Mapping[str, Estimate] = field(default_factory=dict, metadata=ALWAYS)
    repeats: Sequence[Repeat] = ()
    over_runs: Annotated[Sequence[OverRuns], "beside the headlines, which quote the first run alone"] = ()
    attacks_over_runs: Annotated[Sequence[AttackOverRuns], "every attack; the results are those of the first run"] = ()
    weights_per_member: Annotated[
        Mapping[str, float], "by model: of the layer that matched-filter looks at, for each member in the sum"
    ] = field(default_factory=dict)
    filter_share: Annotated[float, "of all weights of the model, those of that layer"] = 1.0
    withheld: Annotated[Sequence[Withheld], "what a party that audits itself did not send"] = ()


@dataclass(frozen=True)
class ExposedUnit:
    """A record, or a subject, which is as exposed as its most exposed record. The score is as in scores.parquet."""

    id_hash: str
    party: str
    score: float | None
    share_of_calibration_above: float


@dataclass(frozen=True)
class Exposed:
    """Those that the strongest quoted attack would pick out first."""

    attack: str
    vantage: VantageName
    records: Sequence[ExposedUnit]
    subjects: Sequence[ExposedUnit] | None = None


@dataclass(frozen=True)
class Failure:
    attack: str
    reason: str


@dataclass(frozen=True)
class Document:
    """All results of a run, except the scores."""

    schema: Annotated[int, Rule("const", SCHEMA)] = field(default=SCHEMA, metadata=ALWAYS, kw_only=True)
    run: RunInfo
    headlines: Sequence[Headline]
    results: Sequence[AuditResult]
    warnings: Sequence[str] = field(default=(), metadata=ALWAYS)
    notices: Sequence[str] = field(default=(), metadata=ALWAYS)
    failed: Annotated[Sequence[Failure], "attacks that raised and have no result; the others are not affected"] = field(
        default=(), metadata=LATER
    )
    exposed: Annotated[Exposed | None, "membership data: the hashed ids of the most exposed"] = field(
        default=None, metadata=LATER
    )
    degraded: Annotated[Sequence[str], "what is missing; not empty = exit code 4"] = field(default=(), metadata=LATER)
    understates: Annotated[Sequence[str], "why the risk may exceed what was found: nothing is safe beside it"] = ()
    useless: Annotated[str, "why the model itself is worth nothing; empty if it is worth something"] = ""
    more_exposed: Annotated[Sequence[MoreExposed], "parties that are more exposed than the others"] = ()
    glossary: Annotated[Mapping[str, str], "what each attack does, in a line"] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        audit: Audit,
        run: RunInfo,
        missing: Sequence[str] = (),
        exposed: Exposed | None = None,
        understates: Sequence[str] = (),
    ) -> Self:
        """What an audit found. `missing`: what it could not look at, beside the attacks that failed."""
        accuracy = {name: replace(estimate, name=name) for name, estimate in audit.accuracy.items()}
        return cls(
            run=replace(run, accuracy=accuracy),
            headlines=audit.headlines,
            results=audit.results,
            warnings=audit.warnings,
            notices=audit.notices,
            failed=[Failure(attack, reason) for attack, reason in audit.failed.items()],
            exposed=exposed,
            degraded=[*(f"attack {attack}" for attack in audit.failed), *missing],
            understates=understates,
            useless=audit.useless,
            more_exposed=audit.more_exposed,
            glossary=audit.glossary,
        )

    def to_json(self) -> dict[str, Any]:
        """What results.json holds: JSON values only, without NaN or infinity."""
        return plain(self)

    @classmethod
    def from_json(cls, values: Any) -> Self:
        """The inverse of `to_json`. `UnreadableError` says what is wrong."""
        return read(cls, values)

    @property
    def complete(self) -> bool:
        """Was everything audited that was asked for?"""
        return self.run.status == "complete" and not self.degraded


# ------------------------------------------------------------------ files


def save(document: Document, directory: Path, seal: Seal | None = None) -> Path:
    """Writes results.json. `seal` keeps its checksum (default: in the folder's journal, which nobody may hold)."""
    path = directory / RESULTS
    blob = (json.dumps(document.to_json(), indent=1, allow_nan=False) + "\n").encode()
    (seal or partial(checksums.seal, directory))({RESULTS: checksum(blob)})
    write_atomically(path, blob)
    return path


def score_columns() -> "pa.Schema":
    """The columns of scores.parquet."""
    import pyarrow as pa

    text, words = pa.string(), pa.dictionary(pa.int32(), pa.string())
    kinds = {"id": text, "subject": text, "party": words, "role": words, "attack": words, "model": words}
    return pa.schema([*kinds.items(), ("score", pa.float64()), ("reference", pa.bool_())])


COINS = b"fedaudit.coins"  # key in the metadata of scores.parquet: the unit about which fair coins were flipped, or
TOLD = "told"  # that the attacks were told some of the coins


def save_scores(
    parts: Iterable[Mapping[str, Any]], directory: Path, coins: str | None = None, seal: Seal | None = None
) -> None:
    """Writes one row group for each attack and model. A text or None stands for a whole column of that value."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = score_columns().with_metadata({COINS: coins} if coins else None)
    with atomic(directory / SCORES) as path:
        with pq.ParquetWriter(path, schema) as writer:
            for part in parts:
                columns = []
                for column_of in schema:
                    value, size = part[column_of.name], len(part["id"])
                    constant = value is None or isinstance(value, str)
                    column = pa.repeat(pa.scalar(value), size) if constant else pa.array(value)
                    columns.append(column.cast(column_of.type))
                writer.write_table(pa.table(columns, schema=schema))
        (seal or partial(checksums.seal, directory))({SCORES: checksums.checksum_of(path)})


def load(directory: Path) -> Document:
    """Reads results.json of a run, if it is as it was written. A newer schema is refused, an older one is read."""
    path = results_file(directory)
    if not path.is_file():
        raise FedauditError(
            "no-results",
            f"there is no {RESULTS} in {directory}",
            "Give a folder that `fedaudit run` or `fedaudit audit` wrote.",
        )
    if path.stat().st_size > MAX_BYTES:
        raise FedauditError(
            "results-size",
            f"{path} is larger than 512 MiB",
            "Run `fedaudit run` or `fedaudit audit` again.",
            exit_code=REFUSED,
        )
    blob = path.read_bytes()
    checksums.verify(path, checksum(blob))
    try:
        values = json.loads(blob)
        if (schema := read(Version, values).schema) > SCHEMA:
            raise _newer(path, schema)
        return with_sentences(Document.from_json(values))
    except UnreadableError as error:
        why = f" ({error})"
    except (ValueError, RecursionError):
        why = ""
    raise FedauditError(
        "results-unreadable",
        f"{path} is not a fedaudit result{why}",
        "Run `fedaudit run` or `fedaudit audit` again.",
        exit_code=REFUSED,
    ) from None


def results_file(run: Path) -> Path:
    """A run is named by its folder, or by its results.json."""
    return run / RESULTS if run.is_dir() else run


def with_sentences(document: Document) -> Document:
    """Results of former versions get the sentences and grades that they lack. Of other attacks than the quoted they
    cannot speak."""
    if all(headline.sentence for headline in document.headlines):
        name = main_tpr([headline.estimates for headline in document.headlines])
        graded = [
            h if h.grade else replace(h, grade=grade(h.tone, h.estimates.get(name or ""))) for h in document.headlines
        ]
        return replace(document, headlines=graded)
    from fedaudit.audit.sentences import of_former_version

    return replace(document, headlines=of_former_version(document.headlines, document.results, document.run.rounds))


@dataclass(frozen=True)
class Version:
    """The only key that every version has."""

    schema: Annotated[int, Rule("minimum", 1)]


def _newer(path: Path, schema: int) -> FedauditError:
    what = f"{path} has schema {schema}, this fedaudit reads up to {SCHEMA}"
    return FedauditError("schema-newer", what, "Install a newer fedaudit.", exit_code=REFUSED)
