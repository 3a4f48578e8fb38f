"""Results on disk: `results.json`, with a published schema. It needs no torch to be read.

`Document` is results.json as a tree of frozen dataclasses. Each key of the file is a field here, or in
`fedaudit.types` or `fedaudit.privacy.statement`. The schema is generated from these types (`fedaudit.results.schema`).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field

from fedaudit.errors import REFUSED, FedauditError
from fedaudit.privacy.statement import Statement
from fedaudit.questions import every
from fedaudit.results.schema import MAX_BYTES, SCHEMA, UnreadableError, plain, read, read_file, save_as
from fedaudit.results.schema import SCHEMA_FILE as SCHEMA_FILE
from fedaudit.results.selftest import SelfTest
from fedaudit.trace import journal
from fedaudit.trace.journal import Seal
from fedaudit.types import (
    Audit,
    AuditResult,
    ByName,
    Ending,
    Estimate,
    Estimates,
    GroupFindings,
    Headline,
    ModelKind,
    MoreExposed,
    Notice,
    Trajectory,
    VantageName,
    former,
    once,
)
from fedaudit.types.stored import (
    Count,
    Flag,
    Many,
    Number,
    OrNull,
    Positive,
    Whole,
    if_any,
    if_known,
    sometimes,
)
from fedaudit.words import all_words, words

if TYPE_CHECKING:
    pass

RESULTS, SCORES, REPORT = "results.json", "scores.parquet", "report.html"
ERRORS = "errors.parquet"
PARTLY = ("question-failed-at", "update-part-failed")  # questions that have results, but not all of them
REDACTED = "report-redacted.html"  # for passing on


# ------------------------------------------------------------------ the tree


@dataclass(frozen=True)
class DataInfo:
    name: str
    records: Count
    classes: Annotated[Count, Field(description="0 for regression")]
    subjects: Annotated[Count | None, Field(description="null where records belong to nobody")]
    input_shape: Many[Whole]


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

    seed: Whole
    headlines: Many[Headline]


@dataclass(frozen=True)
class OverRuns:
    """The mean over all repeated runs of a vantage's headline; the intervals include how much the runs differ."""

    vantage: VantageName
    estimates: Estimates


@dataclass(frozen=True)
class Withheld:
    """The update of a round that did not leave this party; `onwards`: nor did any later one."""

    round: Count
    because: Literal["limit crossed", "limit undecidable", "not audited", "model refused"]
    _: KW_ONLY
    onwards: Annotated[Flag, if_any()] = False
    rule: Annotated[str | None, if_known("the party's limit")] = None
    attack: Annotated[str | None, if_known("which crossed the limit")] = None
    estimates: Annotated[
        ByName, if_any("of this attack after this round, the error shared among all planned rounds and attacks")
    ] = field(default_factory=dict)
    reason: Annotated[str, if_any("why it was not audited, or why no attack can decide the limit, and what to do")] = ""


@dataclass(frozen=True)
class AttackOverRuns:
    """The mean over all repeated runs of one attack, pooled over the parties, with the smallest and the largest value;
    the intervals include how much the runs differ."""

    attack: str
    vantage: VantageName
    model: ModelKind
    _: KW_ONLY
    runs: Annotated[Positive, Field(description="that have a result of it")]
    estimates: Estimates
    smallest: Mapping[str, Number]
    largest: Mapping[str, Number]


NotHandedOver = Literal["settings", "guarantee", "groups", "cells", "blind", "accuracy", "costs", "duration"]


@dataclass(frozen=True, kw_only=True)
class RunInfo:
    """What is needed to assess an audit and to repeat it."""

    name: str
    fedaudit: str
    created: str
    status: Annotated[str, Field(description="for people; `ended` is for programs")]
    config: Mapping[str, Any]
    config_hash: str
    seed: Whole
    versions: Mapping[str, str]
    rounds: Count
    seconds: Annotated[Number | None, Field(description="null where it was not handed over")]
    data: DataInfo
    parties: Many[PartyInfo]
    guarantee: Statement | None
    accuracy: ByName = field(default_factory=dict)
    commonest: Annotated[
        OrNull[Number], if_known("of evaluation non-members, what always naming their commonest label is right on")
    ] = None
    repeats: Annotated[Many[Repeat], if_any()] = ()
    over_runs: Annotated[Many[OverRuns], if_any("beside the headlines, which quote the first run alone")] = ()
    attacks_over_runs: Annotated[
        Many[AttackOverRuns], if_any("every attack; the results are those of the first run")
    ] = ()
    weights_per_member: Annotated[
        Mapping[str, Number], if_any("by model: of the layer that matched-filter looks at, for each member in the sum")
    ] = field(default_factory=dict)
    filter_share: Annotated[
        Number,
        Field(exclude_if=lambda share: share == 1, description="of all weights of the model, those of that layer"),
    ] = 1.0
    withheld: Annotated[Many[Withheld], if_any("what a party that audits itself did not send")] = ()
    ended: Annotated[Ending | None, if_known("how it ended; recorded: seen in part")] = None
    selftest: Annotated[SelfTest | None, if_known("of these versions, where the run was made")] = None

    not_handed_over: Annotated[
        Many[NotHandedOver],
        if_any(
            "what the sites of a merged run kept; guarantee: they promise different things, or some promise nothing"
        ),
    ] = ()

    @property
    def ending(self) -> Ending:
        return self.ended or former.ending(self.status)


@dataclass(frozen=True)
class ExposedUnit:
    """A record, or a subject, which is as exposed as its most exposed record. The score is as in scores.parquet."""

    id_hash: str
    party: str
    score: OrNull[Number]
    share_of_calibration_above: Number
    text: Annotated[str, if_any("its beginning, where it is text; words that few others have are left out")] = ""


@dataclass(frozen=True)
class Exposed:
    """Those that the strongest quoted attack would pick out first."""

    attack: str
    vantage: VantageName
    records: Many[ExposedUnit]
    subjects: Annotated[Many[ExposedUnit] | None, if_known()] = None


@dataclass(frozen=True)
class Failure:
    attack: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Document:
    """All results of a run, except the scores."""

    schema: Annotated[Whole, Field(json_schema_extra={"const": SCHEMA})] = SCHEMA
    run: RunInfo
    headlines: Many[Headline]
    results: Many[AuditResult]
    warnings: Annotated[Many[str], Field(description="sentences; `told` has their codes")] = ()
    notices: Annotated[Many[str], Field(description="sentences; `told` has their codes")] = ()
    failed: Annotated[
        Many[Failure], sometimes("attacks that raised and have no result; the others are not affected")
    ] = ()
    exposed: Annotated[Exposed | None, sometimes("membership data: the hashed ids of the most exposed")] = None
    degraded: Annotated[
        Many[str],
        sometimes("what is missing, the failed attacks first; not empty = exit code 4"),
    ] = ()
    understates: Annotated[Many[str], if_any("why the risk may exceed what was found: nothing is safe beside it")] = ()
    useless: Annotated[str, if_any("why the model itself is worth nothing; empty if it is worth something")] = ""
    more_exposed: Annotated[Many[MoreExposed], if_any("parties that are more exposed than the others")] = ()
    groups: Annotated[GroupFindings | None, if_known("candidates that have something in common")] = None
    trajectories: Annotated[Many[Trajectory], if_any("members and others over the rounds, by kind of models")] = ()
    glossary: Annotated[Mapping[str, str], if_any("what each attack does, in a line")] = field(default_factory=dict)
    told: Annotated[
        Many[Notice], if_any("the warnings and then the notices, each as its code with its data, in the same order")
    ] = ()

    @classmethod
    def of(
        cls,
        audit: Audit,
        run: RunInfo,
        missing: Sequence[Notice] = (),
        exposed: Exposed | None = None,
        understates: Sequence[Notice] = (),
    ) -> Self:
        """What an audit found. `missing`: what it could not look at, beside the attacks that failed."""
        accuracy = {name: replace(estimate, name=name) for name, estimate in audit.accuracy.items()}
        partly = once(told for told in (*audit.warnings, *audit.notices) if told.code in PARTLY)
        return cls(
            run=replace(run, accuracy=accuracy, commonest=audit.commonest),
            headlines=audit.headlines,
            results=audit.results,
            warnings=all_words(audit.warnings),
            notices=all_words(audit.notices),
            failed=[Failure(attack, reason) for attack, reason in audit.failed.items()],
            exposed=exposed,
            degraded=[*map(_named, audit.failed), *all_words([*partly, *missing])],
            understates=all_words(understates),
            useless=words(audit.useless) if audit.useless else "",
            more_exposed=audit.more_exposed,
            groups=audit.groups,
            trajectories=audit.trajectories,
            glossary=audit.glossary,
            told=(*audit.warnings, *audit.notices),
        )

    def lacking(self, *missing: Notice) -> Self:
        """The same with parts that are missing."""
        told, cut, said = self.all_told(), len(self.warnings), all_words(missing)
        return replace(
            self,
            warnings=[*self.warnings, *said],
            degraded=[*self.degraded, *said],
            told=(*told[:cut], *missing, *told[cut:]),
        )

    def noting(self, *notices: Notice) -> Self:
        """The same with further notices."""
        return replace(self, notices=[*self.notices, *all_words(notices)], told=(*self.all_told(), *notices))

    def without(self, codes: Collection[str]) -> Self:
        """The same without what was told under these codes."""
        told, cut = self.all_told(), len(self.warnings)
        sentences = list(zip(told, [*self.warnings, *self.notices], strict=True))
        gone = {sentence for notice, sentence in sentences if notice.code in codes}
        return replace(
            self,
            warnings=[sentence for notice, sentence in sentences[:cut] if notice.code not in codes],
            notices=[sentence for notice, sentence in sentences[cut:] if notice.code not in codes],
            degraded=[sentence for sentence in self.degraded if sentence not in gone],
            told=tuple(notice for notice in told if notice.code not in codes),
        )

    def all_told(self) -> Sequence[Notice]:
        """One for each of `warnings` and `notices`, also of the former version, which had their sentences alone."""
        if len(self.told) == len(self.warnings) + len(self.notices):
            return self.told
        warnings = [former.notice(sentence, "warning") for sentence in self.warnings]
        return [*warnings, *(former.notice(sentence, "notice") for sentence in self.notices)]

    def said(self) -> list[tuple[Notice, str]]:
        """Each of `notices`: its code with its data, and its sentence."""
        return list(zip(self.all_told()[len(self.warnings) :], self.notices, strict=True))

    def to_json(self) -> dict[str, Any]:
        """What results.json holds: JSON values only, without NaN or infinity."""
        return plain(self)

    @classmethod
    def from_json(cls, values: Any) -> Self:
        """The inverse of `to_json`. `UnreadableError` says what is wrong."""
        return read(cls, values)

    @property
    def accuracy(self) -> Estimate | None:
        """Of the released model, on records that it was not trained on."""
        return self.run.accuracy.get("evaluation")

    @property
    def complete(self) -> bool:
        """Was everything audited that was asked for?"""
        return self.run.ending == "complete" and not self.degraded


# ------------------------------------------------------------------ files


def _named(failed: str) -> str:
    return f"question {failed}" if failed in every() else f"attack {failed}"


def save(document: Document, directory: Path, seal: Seal | None = None) -> Path:
    """Writes results.json. `seal` keeps its checksum (default: in the folder's journal, which nobody may hold)."""
    return save_as(document, directory / RESULTS, seal or partial(journal.seal, directory))


def load(directory: Path) -> Document:
    """Reads results.json of a run, if it is as it was written. A newer schema is refused, an older one is read."""
    path = results_file(directory)
    if not path.is_file():
        todo = "Give a folder that `fedaudit run` or `fedaudit audit` wrote."
        raise FedauditError("no-results", f"there is no {RESULTS} in {directory}", todo)
    again = "Run `fedaudit run` or `fedaudit audit` again."
    if path.stat().st_size > MAX_BYTES:
        raise FedauditError("results-size", f"{path} is larger than 512 MiB", again, exit_code=REFUSED)
    try:
        return brought_up(read_file(Document, path))
    except UnreadableError as error:
        why = f" ({error})"
    except (ValueError, RecursionError):
        why = ""
    what = f"{path} is not a fedaudit result{why}"
    raise FedauditError("results-unreadable", what, again, exit_code=REFUSED) from None


def results_file(run: Path) -> Path:
    """A run is named by its folder, or by its results.json."""
    return run / RESULTS if run.is_dir() else run


def brought_up(document: Document) -> Document:
    """Results of the former version with what it said in words alone: how the run ended, what was told, and which bands
    hold for all rounds at once."""
    if document.run.ended is not None:
        return document
    run = replace(document.run, ended=document.run.ending)
    entries = []
    for entry in document.results:
        curves = {
            name: replace(one, simultaneous=former.simultaneous(one.method)) for name, one in entry.curves.items()
        }
        entries.append(replace(entry, curves=curves))
    return replace(document, run=run, results=entries, told=document.all_told())
