"""The options of all Python entry points, checked by the same rules as a configuration file."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fedaudit import __version__
from fedaudit.audit import Auditor
from fedaudit.config.schema import AuditSection, Config, TrackSection, parse
from fedaudit.data.records import classes_of
from fedaudit.data.set_aside import joined
from fedaudit.errors import FedauditError, suggest
from fedaudit.files import refuse_foreign, refuse_links
from fedaudit.integrations.outgoing import Sends, checked_sends
from fedaudit.integrations.plain import OFFERED, PlainTask, is_plain
from fedaudit.learn.models.own import factory_of
from fedaudit.learn.tasks import Exchanged, Forward, TorchTask, answer, module_of, with_forward
from fedaudit.privacy.statement import Promise
from fedaudit.questions import every
from fedaudit.results.document import REPORT, RESULTS, DataInfo, Document, RunInfo, Withheld, load
from fedaudit.session.assemble import Request, assemble
from fedaudit.session.recording import About, TraceWriter
from fedaudit.session.session import Event, Finished, Listener, Session, in_words, nobody, some
from fedaudit.session.tracking import refuse_missing, tracked
from fedaudit.trace.journal import JOURNAL
from fedaudit.trace.store import RUN, load_manifest
from fedaudit.types import IGNORED, Game, Notice, PlainModel

# A module, a class or a factory (of nothing, or of input_shape and classes), or "package.module:name" of one of these.
# Or a model of another framework, in plain arrays, and its class.
Model = TorchTask | nn.Module | Callable[..., nn.Module] | PlainModel | type[PlainModel] | str
Keep = Literal["signals", "snapshots"]


class PartyOptions(TypedDict, total=False):
    """Of a party that audits itself.

    attacks: by name, or with options, as {"name": "fta", "degree": 2} (default: all that cost at most one local epoch
    a round); max_cost: local epochs a round that the audit may take, with the strongest attacks that fit; local_epochs:
    how many a party makes in a round, the unit of all costs (default: what a Flower app says in its configuration as
    `local-epochs`, else 1); fpr: false-positive rates; confidence: of every interval; seed: everything random follows
    from it; strict: a fault of the audit stops the training; forward: `forward(model, x)` says how a model is asked
    that takes several inputs, or answers with a tuple or a dict; exchanged: what is exchanged, where that is a part of
    the model: names of parameters or modules, or "trainable" (of a model of PEFT, its adapter unless told otherwise);
    sends: "weights", or "changes" where parties send their weights minus those that arrived; vocabulary: of text, what
    each token stands for, so that the report shows how the most exposed records begin.
    """

    attacks: Iterable[str | Mapping[str, Any]] | None
    max_cost: float | None
    fpr: Sequence[float] | None
    confidence: float
    seed: int
    local_epochs: int
    strict: bool
    forward: Forward | None
    exchanged: Exchanged | None
    sends: Sends
    vocabulary: Sequence[str]


class AuditOptions(PartyOptions, total=False):
    """Of an audit of a whole federation. vantages: who looks; keep: what is stored of each round; tear, matched,
    fusion, questions: these sections of [audit], such as tear={"queries": 2000}; track: the section [track]."""

    vantages: Iterable[str]
    track: Mapping[str, str]
    keep: Keep
    tear: Mapping[str, Any]
    matched: Mapping[str, Any]
    fusion: Mapping[str, Any]
    questions: Mapping[str, Mapping[str, Any]]


OF_THE_CALLER = ("strict", "forward", "exchanged", "sends", "vocabulary")  # what no configuration has in this form
OF_ITS_OWN = ("track",)  # a section, not a part of [audit]
FEDERATION = ("rounds", "seed", "local_epochs")  # in a configuration these stand there, the rest in [audit]
WITHOUT_TORCH = (
    f"A model without torch (scikit-learn, xgboost, JAX) is given as an object with {', '.join(OFFERED.values())}, "
    "or as its class."
)
OURS_ALONE = "Use `fedaudit run`, or leave it out."


def checked(rounds: int | None, **options: Unpack[AuditOptions]) -> Config:
    """The arguments as a configuration, or an error that names the wrong one."""
    checked_sends(options.get("sends", "weights"))
    given: dict[str, Any] = {"rounds": rounds, **options}
    given = {name: value for name, value in given.items() if name not in OF_THE_CALLER}
    plain = {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in given.items()}
    for name in plain.keys() - AuditSection.model_fields.keys() - {*FEDERATION, *OF_ITS_OWN}:
        what = f"there is no argument {name!r}"
        raise FedauditError("unknown-key", what, suggest(name, {*AuditOptions.__optional_keys__, *FEDERATION}))
    federation = {name: plain.pop(name) for name in FEDERATION if name in plain}
    sections = {name: plain.pop(name) for name in OF_ITS_OWN if name in plain}
    with in_python():
        asked = parse({"federation": federation, "audit": plain, **sections})
        refuse_ours(asked.audit)
    return asked


def refuse_ours(audit: AuditSection) -> None:
    """Refuses what needs to know how the parties train: it would have no effect."""
    for name in sorted(set(audit.model_dump(exclude_defaults=True)) - AuditOptions.__optional_keys__):
        what = f"audit.{name} needs a federation that fedaudit trains itself"
        raise FedauditError("not-ours", what, OURS_ALONE)
    planting = [question for question in every().values() if question.plants]
    if names := [name for question in planting for name in question.asked_in(audit.attacks)]:
        what = f"{', '.join(names)} in audit.attacks: its parties cannot be added to a federation that trains elsewhere"
        raise FedauditError("not-ours", what, OURS_ALONE)


def make_auditor(
    model: Model, game: Game, asked: Config, forward: Forward | None = None, exchanged: Exchanged | None = None
) -> Auditor:
    """Everything that can be refused is refused here."""
    with in_python():
        task = as_task(model, game, forward, exchanged)
        return assemble(Request.beside(asked, game), task)


def audited(
    model: Model,
    game: Game | Iterable[Game],
    *,
    out: str | Path,
    rounds: int,
    promises: tuple[Promise, ...] = (),
    **options: Unpack[AuditOptions],
) -> Session:
    """A session that audits a whole federation, of which these are the parties' games, and records it in `out`.
    `promises`: what the host claims about its noise."""
    with in_python():
        games: Any = game if isinstance(game, Iterable) else [game]
        whole = game if isinstance(game, Game) else joined(*games)
        asked = checked(rounds, **options)
        auditor = make_auditor(model, whole, asked, options.get("forward"), options.get("exchanged"))
        strict, vocabulary = options.get("strict", False), options.get("vocabulary", ())
        kept, track = asked.audit.keep, asked.track
        more: dict[str, Any] = {"vocabulary": vocabulary, "promises": promises, "track": track}
        return open_session(Path(out), auditor, kept, strict=strict, **more)


def open_session(
    out: Path,
    auditor: Auditor | None,
    keep: str = "snapshots",
    strict: bool = False,
    vocabulary: Sequence[str] = (),
    promises: tuple[Promise, ...] = (),
    track: TrackSection | None = None,
) -> Session:
    """A session with a trace in `out`, new or the one that is there, if it is of the same records: a restarted
    training goes on. Results and report are written there, or where `_looked_at_again` says."""
    refuse_missing(track)
    _make_room(out)
    refuse_foreign(out, [RUN, JOURNAL])
    about = replace(About.foreign(out.name, auditor, vocabulary), promises=promises) if auditor else None
    known = about.manifest(auditor, keep) if about and auditor else {"keep": keep, "config": {}}
    asked = {"vantages": [vantage.value for vantage in auditor.settings.vantages]} if auditor else {}
    again = _looked_at_again(out, {"attacks": known["attacks"], **asked}) if auditor else None
    trace = TraceWriter.start(out, {**known, **asked, "guarantee": None}, force=False)
    session = Session(
        auditor,
        trace,
        about,
        strict=strict,
        listen=report_into(again or out),
        results_in=again,
        tracking=tracked(track, out),
    )
    session.resume()
    return session


def _looked_at_again(out: Path, asked: Mapping[str, Any]) -> Path | None:
    """Where results go if the folder has those of other attacks, or from other vantages. These stay; the new ones go to
    the folder `audit` in it, as those of `fedaudit audit` do."""
    if not (out / RUN).exists() or not (out / RESULTS).is_file():
        return None
    begun, again = load_manifest(out), out / "audit"
    if all(begun.get(key, value) == value for key, value in asked.items()):
        return None
    refuse_links(out, again)
    refuse_foreign(again, [RESULTS])
    return again


def not_audited(name: str, told: Sequence[Notice], rounds: int, withheld: Sequence[Withheld] = ()) -> Document:
    """Results that only say why there are none."""
    nothing = DataInfo("", 0, 0, None, ())
    now = datetime.now(UTC).isoformat(timespec="seconds")
    run = RunInfo(
        name=name,
        fedaudit=__version__,
        created=now,
        status="not audited",
        ended="not-audited",
        config={},
        config_hash="",
        seed=0,
        versions={},
        rounds=rounds,
        seconds=0.0,
        data=nothing,
        parties=(),
        guarantee=None,
        withheld=withheld,
    )
    return Document(run=run, headlines=(), results=()).lacking(*some(told))


def _make_room(out: Path) -> None:
    """Results that only say that nothing was audited are no reason to refuse the folder once the mistake is mended."""
    if not (out / RESULTS).is_file() or (out / RUN).exists() or load(out).run.ending != "not-audited":
        return
    for name in (RESULTS, REPORT, JOURNAL):
        (out / name).unlink(missing_ok=True)


def report_into(out: Path | None) -> Listener:
    """Whoever waits for the results and makes a page of them."""

    def listen(event: Event) -> None:
        from fedaudit.report.html import write

        if isinstance(event, Finished) and out is not None:
            write(event.document, out / REPORT)

    return listen if out is not None else nobody


def as_task(
    model: Model, game: Game, forward: Forward | None = None, exchanged: Exchanged | None = None
) -> TorchTask | PlainTask:
    """The model as a task. A module is copied, so that the audit never changes the one being trained."""
    if isinstance(model, TorchTask):
        return model
    given: Any = factory_of(model) if isinstance(model, str) else model
    name = model if isinstance(model, str) else "model"
    rows = game.candidates.rows
    labels = 0 if rows.y.dtype.kind == "f" else classes_of(rows)
    if is_plain(given):
        if forward is not None:
            what = "forward=... says how a torch module is asked, and this model answers by outputs(state, x)"
            raise FedauditError("bad-value", what, "Leave it out.")
        if exchanged is not None:
            what = "exchanged=... names parts of a torch module, and this model is exchanged as initial(seed) gives it"
            raise FedauditError("bad-value", what, "Leave it out.")
        task = PlainTask(given() if isinstance(given, type) else given, labels)
        if labels:
            _check_labels(rows.y, task.classes)
        return task
    if not callable(given):
        what = f"{name} is a {type(given).__name__}, which is no torch.nn.Module and cannot make one"
        raise FedauditError("no-model", what, WITHOUT_TORCH)
    try:
        with torch.random.fork_rng(devices=[]):  # building a model must not move the training's random numbers
            own = with_forward(module_of(given, name, rows.x.shape[1:], labels, {}, forward).cpu(), forward)
    except FedauditError as error:
        if error.code == "model-factory":  # the class of an estimator, or what makes one
            raise FedauditError(error.code, error.what, f"{error.todo} {WITHOUT_TORCH}") from error.__cause__
        raise
    if not labels:
        return TorchTask(lambda: copy.deepcopy(own), 0, exchanged=exchanged)
    try:
        with torch.inference_mode():
            width = answer(own.eval()(torch.from_numpy(np.ascontiguousarray(rows.x[:1])))).shape[-1]
    except FedauditError:
        raise
    except Exception as error:
        what = f"the model cannot be asked about a record of the game: {in_words(error)}"
        raise FedauditError("model-forward", what, "Let it take a batch of one record, in eval mode.") from error
    _check_labels(rows.y, width)
    return TorchTask(lambda: copy.deepcopy(own), int(width), exchanged=exchanged)


def _check_labels(y: NDArray[Any], outputs: int) -> None:
    known = y[y != IGNORED] if y.ndim > 1 else y
    if int(known.max()) >= outputs or int(known.min()) < 0:
        what = f"the model has {outputs} outputs, labels run from {int(known.min())} to {int(known.max())}"
        raise FedauditError("model-outputs", what, "Number the labels from 0, with one output for each.")


# ------------------------------------------------------------------ errors in the words of whoever calls from Python


LISTS, SECTIONS = ("attacks", "fpr", "vantages"), ("tear", "matched", "fusion")
NAMES = "|".join((*LISTS, *SECTIONS, "confidence", "keep", "local_epochs", "max_cost", "rounds", "seed"))
VALUE = r"""(\[[^\]]*\]|"[^"]*"|'[^']*'|-?\d[\d.e-]*|true|false)"""
# What only `fedaudit run` has.
OURS = r"fedaudit run|federation\.coins|audit\.(adversary|attribute|unit|reference|canary)"

NEEDS_OURS = "needs a federation that fedaudit trains itself"
ANOTHER_FOLDER = "Give another folder (out=...), or remove this one if it is not needed."

KEYS: tuple[tuple[str, str], ...] = (
    (r"Correct \S+ in the configuration", "Correct this argument"),
    (r"unknown key 'audit\.(\w+)\.(\w+)'", r"\1={...} has no key '\2'"),
    (r"unknown key 'audit\.attacks\.(\d+)\.(\w+)'", r"attacks[\1] has no key '\2'"),
    (r"\baudit\.attacks\.(\d+)\.(\w+)", r'attacks[\1]["\2"]'),
    (r"\baudit\.questions\.([\w-]+)\.(\w+)", r'questions["\1"]["\2"]'),
    (r"\baudit\.questions\.([^\s.]+?)(?=:? |$)", r'questions["\1"]'),
    (r"\[audit\.questions(\.NAME)?\]|\baudit\.questions\b", "questions={...}"),
    (rf"audit\.({'|'.join(SECTIONS)})\.(\w+) = {VALUE}", r'\1={"\2": \3}'),
    (rf"audit\.({'|'.join(SECTIONS)})\.(\w+)", r'\1={"\2": ...}'),
    (r"the (attack|vantage) out of \[audit\]", r"the \1 out of \1s=[...]"),
    (rf"\b(?:audit|federation)\.({NAMES})\.(\d+)", r"\1[\2]"),
    (rf"\b(?:audit|federation)\.({NAMES}) = {VALUE}", r"\1=\2"),
    (rf"\b(?:audit|federation)\.({'|'.join(LISTS)})\b", r"\1=[...]"),
    (rf"\[audit\.({NAMES})\]|\baudit\.({'|'.join(SECTIONS)})\b", r"\1\2={...}"),
    (rf"\b(?:audit|federation)\.({NAMES})\b", r"\1=..."),
    (r"raise federation\.members", "set aside less (evaluation=..., calibration=... of fedaudit.set_aside)"),
    (r"\baudit\.(\w+)\b", r"\1=..."),
    (r"add a vantage that (can run|sees) it:", r"add a vantage that \1 it to vantages=[...]:"),
    (r"with --out( \(out= in Python\))?", "(out=...)"),
    (r'then \[model\] forward = "[^"]*", or forward= in Python', "then give it as an argument (forward=...)"),
    (r"; options come from \[model\.options\]", ""),
    (r"run the command in a folder", "start Python in a folder"),
    (r", but the configuration names none", ""),
)


def worded(text: str) -> str:
    """The same with arguments of Python instead of keys and options."""
    for key, argument in KEYS:
        text = re.sub(key, argument, text)
    return text


def translated(error: FedauditError) -> FedauditError:
    what, todo, where = worded(error.what), worded(error.todo), error.where
    if "--force" in error.todo:
        todo = ANOTHER_FOLDER
    elif re.search(OURS, error.todo):
        todo = "Leave it out." if NEEDS_OURS in what else f"Leave it out: it {NEEDS_OURS}."
    where = "" if where == "configuration" else where
    return FedauditError(error.code, what, todo, where=where, exit_code=error.exit_code)


@contextmanager
def in_python() -> Iterator[None]:
    """Errors that leave the block speak of Python's arguments."""
    try:
        yield
    except FedauditError as error:
        raise translated(error) from error.__cause__
