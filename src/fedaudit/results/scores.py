"""Scores on disk: the scores.parquet of a run, written and read, and the statistics alone for any file of scores."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.config.schema import DEFAULT_FPR
from fedaudit.data.cells import INSTEAD, Column, not_a_table, read_columns, refuse_swollen
from fedaudit.errors import REFUSED, FedauditError, suggest
from fedaudit.files import TEXT, atomic, kind_of
from fedaudit.results.document import SCORES
from fedaudit.stats import (
    Block,
    Ranks,
    auc,
    gdp_epsilon,
    maximised_epsilon,
    needed_for_value,
    one_run_epsilon,
    proved_epsilon,
    random_half,
)
from fedaudit.stats.epsilon import by_unit
from fedaudit.stats.intervals import check_levels
from fedaudit.stats.roc import Absent, tpr_at_fpr
from fedaudit.trace.journal import Seal, checksum_of, unchecked, verify
from fedaudit.trace.journal import seal as seal_in
from fedaudit.types import Bools, ByName, Estimate, Floats, Notice, Role, Strings, notice, warning
from fedaudit.types.stored import Many, Whole, if_any
from fedaudit.words import all_words, needed_in_file

if TYPE_CHECKING:
    import pyarrow as pa

MAX_BYTES = 4 * 2**30
Scores = Mapping[str, NDArray[Any]]  # by column
COINS = b"fedaudit.coins"  # key in the metadata of scores.parquet: the unit about which fair coins were flipped, or
COINS_TOLD = "told"  # that the attacks were told some of the coins


def score_columns() -> "pa.Schema":
    """The columns of scores.parquet."""
    import pyarrow as pa

    text, words = pa.string(), pa.dictionary(pa.int32(), pa.string())
    kinds = {"id": text, "subject": text, "party": words, "role": words, "attack": words, "model": words}
    return pa.schema([*kinds.items(), ("score", pa.float64()), ("reference", pa.bool_())])


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
        (seal or partial(seal_in, directory))({SCORES: checksum_of(path)})


def load_scores(run: Path) -> Scores | None:
    """scores.parquet, or None where there is none."""
    path = (run if run.is_dir() else run.parent) / SCORES
    return read_scores(path) if path.is_file() else None


def read_scores(path: Path) -> Scores:
    """What `save_scores` wrote, under whatever name it lies now."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if path.stat().st_size > MAX_BYTES:
            raise ValueError("larger than 4 GiB")
        verify(path, checksum_of(path))
        refuse_swollen(path, MAX_BYTES)  # columns stay arrays: the size of the file is limit enough
        wanted = score_columns()
        table = pq.read_table(path, columns=[column.name for column in wanted])
        table.validate(full=True)  # text may be no UTF-8
        table = table.cast(pa.schema([wanted.field(name) for name in table.column_names]))
        if table["subject"].null_count:
            table = table.drop_columns("subject")
        if any(column.null_count for column in table.columns):
            raise ValueError("a role, a party or a score is missing")
        return {name: table[name].to_numpy() for name in table.column_names}
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise FedauditError(
            "scores-unreadable",
            f"{path} cannot be read: {error}",
            "Run `fedaudit run` or `fedaudit audit` again.",
            exit_code=REFUSED,
        ) from None


def blocks_of(scores: Scores, attack: str, model: str, party: str | None = None) -> list[Block]:
    """As the auditor makes them: local models have one block for each party, global models one for all."""
    mine = np.asarray((scores["attack"] == attack) & (scores["model"] == model))
    parties = scores["party"]
    if party is None and model == "global":
        wanted = [mine]
    else:
        wanted = [mine & (parties == p) for p in sorted({*parties[mine].tolist()} if party is None else {party})]
    local = party is not None or model == LOCAL
    # A party that took part too seldom has no scores at all: `absent_of` names it.
    return [
        _block(index, scores, str(parties[index][0]) if local else "")
        for index in wanted
        if np.isfinite(scores["score"][index]).any()
    ]


def absent_of(scores: Scores, attack: str, model: str) -> list[Absent]:
    """The parties that have no block of their own, because none of their scores is a number."""
    mine = np.asarray((scores["attack"] == attack) & (scores["model"] == model))
    if model != LOCAL:
        return []
    fitted, found = bool(scores["reference"][mine].any()), list[Absent]()
    for party in sorted({*scores["party"][mine].tolist()}):
        own = mine & (scores["party"] == party)
        if not np.isfinite(scores["score"][own]).any():
            unfit = fitted and int(scores["reference"][own].sum()) < 2
            members = int((scores["role"][own] == Role.MEMBER.value).sum())
            found.append(Absent(party, "unfit" if unfit else "unseen", members))
    return found


def _block(mine: Bools, scores: Scores, party: str = "") -> Block:
    role, mine = scores["role"], mine & ~scores["reference"]
    members, evaluation, calibration = (
        mine & (role == each.value) for each in (Role.MEMBER, Role.EVALUATION, Role.CALIBRATION)
    )
    values = np.where(np.isfinite(scores["score"]), scores["score"], -np.inf)
    subject = scores.get("subject")
    names = None if subject is None else (subject[members], subject[evaluation], subject[calibration])
    ids = scores["id"][members], scores["id"][evaluation], scores["id"][calibration]
    return Block(values[members], values[evaluation], values[calibration], names, ids, party=party)


# ------------------------------------------------------------------ the statistics of a file of scores

YES, NO = {"1", "1.0", "true", "yes"}, {"0", "0.0", "false", "no"}
COLUMNS = ("id", "member", "score", "subject")
OF_A_RUN = {"role", "attack", "model", "reference"}  # columns that the scores of a run have beside these
GLOBAL, LOCAL = "global", "local"
SAVED_AS: Mapping[str, str] = {kind: INSTEAD[kind] for kind in ("xlsx", "xls", "utf-16", "gzip", "zip")}


@dataclass(frozen=True, kw_only=True)
class Scored:
    """The estimates for a file of scores; `epsilons` only if asked for."""

    schema: Whole
    file: str
    estimates: ByName
    epsilons: ByName
    warnings: Many[str]
    notices: Many[str]
    told: Annotated[Many[Notice], if_any("the warnings and then the notices, each as its code with its data")] = ()


@dataclass(frozen=True, kw_only=True)
class Rows:
    """The scores of a file: in blocks, for AUC and TPR; and row by row, sorted by id, for epsilon. `areas`: blocks for
    the AUC alone, which needs no threshold, so that no non-members have to be set aside for one."""

    blocks: Sequence[Block]
    scores: Floats
    member: Bools
    subject: Strings | None
    notices: Sequence[Notice]
    areas: Sequence[Block] = ()
    run: "OfRun | None" = None


@dataclass(frozen=True)
class OfRun:
    """What a run stored about its scores: about which rows fair coins were flipped, and for which unit, if any were."""

    tossed: Bools
    coins: str | None


def estimate(
    path: Path,
    fprs: tuple[float, ...] | None,
    confidence: float,
    delta: float | None = None,
    attack: str | None = None,
    model: str | None = None,
) -> Scored:
    """AUC and TPRs of the scores in a CSV or parquet file with columns member, score[, id, subject].

    From a run's own scores.parquet, it uses those of one attack on one kind of model, with the roles that the run gave
    them: what comes out is what results.json says. With a delta, it also gives the four figures of epsilon, each under
    its own name.
    """
    check_levels(confidence, fprs or ())
    if not path.is_file():
        raise FedauditError("data-missing", f"there is no file {path}", "Check the path.")
    if path.stat().st_size > MAX_BYTES:
        raise FedauditError("data-size", f"{path} is larger than 4 GiB", "Score a part of it.")
    verify(path, checksum_of(path))
    rows = _of_a_run(path, attack, model) if _is_of_a_run(path) else _own(path, attack or model)
    kept, left_out = _reachable(fprs, rows)
    notices = [*rows.notices, *left_out]
    found = [auc(rows.areas or rows.blocks, confidence), *(tpr_at_fpr(rows.blocks, fpr, confidence) for fpr in kept)]
    if rows.run:
        notices += unchecked(path)
    dropped = int(np.isneginf(rows.scores).sum())
    warnings = [warning("scores-not-finite", scores=dropped)] if dropped else []
    if found[0].high is not None and found[0].high < 0.5:
        warnings.append(warning("scores-below-chance"))
    claimed: list[Estimate] = []
    if delta is not None:
        claimed = _claimed(rows, delta, confidence)
        notices.append(notice("epsilon-assumptions"))
        if rows.run:
            of_coins = {None: "rows-of-one-run", COINS_TOLD: "rows-tuned-on"}.get(rows.run.coins, "rows-by-coins")
            notices.append(notice(of_coins))
        if delta > 1 / len(rows.scores):
            warnings.append(warning("delta-large", delta=delta, records=len(rows.scores)))
    return Scored(
        schema=1,
        file=path.name,
        estimates={e.name: e for e in found},
        epsilons={e.name: e for e in claimed},
        warnings=all_words(warnings),
        notices=all_words(notices),
        told=(*warnings, *notices),
    )


def _reachable(fprs: tuple[float, ...] | None, rows: Rows) -> tuple[list[float], list[Notice]]:
    """The rates that so many records can calibrate, and what is left out; one that was asked for is an error."""
    kept: list[float] = []
    notices: list[Notice] = []
    calibration = sum(len(block.calibration) for block in rows.blocks)
    for fpr in fprs or DEFAULT_FPR:
        needed = needed_for_value(fpr)
        if calibration >= needed:
            kept.append(fpr)
            continue
        data: dict[str, Any] = {"fpr": fpr, "needed": needed, "calibration": calibration}
        if rows.run:
            data["parties"] = len(rows.blocks)
        else:
            data["nonmembers"] = int((~rows.member).sum())
        if fprs:
            raise FedauditError("fpr", needed_in_file(**data), "Ask for a larger FPR, or give more non-members.")
        notices.append(notice("fpr-left-out-of-file", **data))
    return kept, notices


# ------------------------------------------------------------------ scores of one's own


def _own(path: Path, of_a_run: str | None) -> Rows:
    """Half of the non-members, chosen by a hash of their ids, set the thresholds."""
    if of_a_run:
        what = f"--attack and --model are for the scores.parquet of a run, which {path} is not"
        raise FedauditError("attack", what, "Leave it out.")
    columns = _columns(path)
    given, notices = "id" in columns, list[Notice]()
    subject = columns["subject"].cells if "subject" in columns else None
    member, scores = _members(columns["member"], path), _finite(columns["score"].read, path)
    ids = columns["id"].cells if given else _by_content(member, scores, subject)
    if not given:
        notices.append(notice("no-id"))
    _refuse_twice(ids, member, path)
    if not member.any() or member.all():
        raise FedauditError("empty-set", f"{path}: there are no members, or no non-members", "Give rows of both.")
    order = np.argsort(ids, kind="stable")  # so that the order of rows cannot change a bit
    ids, member, scores = ids[order], member[order], scores[order]
    subject = None if subject is None else subject[order]
    calibration = np.zeros(len(ids), bool)
    calibration[~member] = random_half((ids if subject is None else subject)[~member], "score-calibration")
    sets = (member, ~member & ~calibration, calibration)
    names = None if subject is None else (subject[sets[0]], subject[sets[1]], subject[sets[2]])
    block = Block(scores[sets[0]], scores[sets[1]], scores[sets[2]], names)
    everybody = np.concatenate([block.evaluation, block.calibration])
    whose = None if names is None else (names[0], np.concatenate(names[1:]), names[2][:0])
    area = Block(block.members, everybody, block.calibration[:0], whose)
    return Rows(blocks=[block], scores=scores, member=member, subject=subject, notices=notices, areas=[area])


def _columns(path: Path) -> dict[str, Column]:
    """Of the columns that count, those that are there; without id and subject they can do."""
    if (kind := kind_of(path)) not in (TEXT, "parquet"):
        raise not_a_table(path, kind, SAVED_AS)
    columns = read_columns(path, only=COLUMNS)
    for wanted in ("member", "score"):
        if wanted not in columns:
            todo = f"Rename the column that holds it. {suggest(wanted, filter(None, columns))}"
            raise FedauditError("column", f"{path} has no column {wanted!r}", todo)
    for name in ("id", "subject"):
        if name in columns and len(rows := np.flatnonzero(columns[name].missing)):
            raise FedauditError(
                f"missing-{name}",
                f"{path}: {name} is missing in {len(rows)} of {len(columns[name].cells)} rows, the first is row "
                f"{rows[0] + 1}",
                "Fill it in, or remove the column.",
            )
    return {name: columns[name] for name in COLUMNS if name in columns}


def _by_content(member: Bools, scores: Floats, subject: Strings | None) -> Strings:
    """What a row holds, and how many like it came before: the same names in whatever order the rows stand."""
    seen: Counter[str] = Counter()
    names = []
    for row in zip(member.tolist(), scores.tolist(), member if subject is None else subject.tolist(), strict=True):
        names.append(f"{row}#{seen[str(row)]}")
        seen[str(row)] += 1
    return np.array(names)


def _refuse_twice(ids: Strings, member: Bools, path: Path) -> None:
    both = np.intersect1d(ids[member], ids[~member])
    if len(both):
        raise FedauditError(
            "shared-id",
            f"{path}: {len(both)} ids are both member and non-member, the first in row "
            f"{int(np.flatnonzero(np.isin(ids, both))[0]) + 1}",
            "Give every record one row, with member either 1 or 0.",
        )
    if len(np.unique(ids)) < len(ids):
        raise FedauditError("duplicate-id", f"{path}: ids occur more than once", "Give every record one row.")


def _members(column: Column, path: Path) -> Bools:
    words = np.char.lower(column.cells)
    unknown = np.flatnonzero(~np.isin(words, [*YES, *NO]))
    if len(unknown):
        what = f"{path}: member in row {unknown[0] + 1} is neither 0 nor 1"
        raise FedauditError("member", what, "Write 0 or 1.")
    return np.isin(words, [*YES])


def _finite(scores: Floats, path: Path) -> Floats:
    """Finite scores; a few missing ones count as the least suspicious, many are an error."""
    bad = ~np.isfinite(scores)
    if bad.mean() > 0.01:
        raise FedauditError(
            "nan-scores",
            f"{path}: {int(bad.sum())} of {len(bad)} scores are not finite, the first is in row "
            f"{int(np.flatnonzero(bad)[0]) + 1}",
            "Replace them by numbers, or remove these rows.",
        )
    return np.where(bad, -np.inf, scores)


# ------------------------------------------------------------------ scores of a run


def _is_of_a_run(path: Path) -> bool:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return kind_of(path) == "parquet" and set(pq.read_schema(path).names) >= OF_A_RUN
    except (pa.ArrowException, OSError, ValueError):
        return False  # whoever reads all of it says what is wrong


def _of_a_run(path: Path, attack: str | None, model: str | None) -> Rows:
    """One attack on one kind of model. Roles are those of the run, and rows that the attack was fitted on are left out;
    local models have a threshold each."""
    import pyarrow.parquet as pq

    stored = read_scores(path)
    attack, model = _chosen(stored, attack, model, path)
    blocks = blocks_of(stored, attack, model)
    if not blocks:
        what = f"{path} has no score of {attack} on {model} models that is a number: too few rounds were seen"
        raise FedauditError("no-scores", what, "Name another attack with --attack.")
    own, party = (stored["attack"] == attack) & (stored["model"] == model), stored["party"]
    if model == LOCAL:  # parties that took part too seldom are left out
        own &= np.isin(party, np.unique(party[own & np.isfinite(stored["score"])]))
    mine = np.flatnonzero(own & ~stored["reference"])
    mine = mine[np.argsort(stored["id"][mine].astype(np.str_), kind="stable")]
    scores, role = _finite(stored["score"][mine], path), stored["role"][mine]
    metadata = pq.read_schema(path).metadata or {}
    coins = metadata[COINS].decode() if COINS in metadata else None
    subject = stored["subject"][mine].astype(np.str_) if "subject" in stored else None
    told = notice("scores-of", attack=attack, model=model)
    of_run = OfRun(role != Role.CALIBRATION.value, coins)
    return Rows(
        blocks=blocks, scores=scores, member=role == Role.MEMBER.value, subject=subject, notices=[told], run=of_run
    )


def _chosen(stored: Scores, attack: str | None, model: str | None, path: Path) -> tuple[str, str]:
    """The attack and the kind of model: what was asked for, or what leaves no choice; global models come first."""
    pairs = set(zip(stored["attack"].tolist(), stored["model"].tolist(), strict=True))
    if model not in (None, GLOBAL, LOCAL):
        raise FedauditError("model", f"--model {model} is neither {GLOBAL} nor {LOCAL}", "Write one of the two.")
    model = model or (GLOBAL if any(kind == GLOBAL for _, kind in pairs) else LOCAL)
    known = sorted(name for name, kind in pairs if kind == model)
    if not known:
        raise FedauditError("model", f"{path} has no scores on {model} models", "Leave out --model.")
    chosen = attack or (known[0] if len(known) == 1 else "")
    if chosen in known:
        return chosen, model
    what = f"{path} holds scores of {len(known)} attacks on {model} models"
    if attack:
        what = f"{path} has no scores of {attack!r} on {model} models"
    more = " (and --model local for those on the parties' own models)" if (known[0], LOCAL) in pairs else ""
    raise FedauditError("attack", what, f"Name one with --attack{more}: {', '.join(known)}.")


# ------------------------------------------------------------------ epsilon


def _claimed(rows: Rows, delta: float, confidence: float) -> list[Estimate]:
    if len(rows.blocks) > 1:
        what = "epsilon is computed from scores that can be compared, and every local model has its own"
        raise FedauditError("model", what, "Leave out --epsilon, or --model local.")
    found = epsilons(rows.scores, rows.member, delta, confidence)
    if rows.run is None:
        return found
    # Rows of one run are no independent runs, and no coins decided about them unless it is known that they did.
    found = [replace(one, kind="heuristic") if one.kind == "proved" else one for one in found]
    if rows.run.coins == COINS_TOLD:
        return found[:-1]
    if rows.run.coins:
        tossed = rows.run.tossed
        units = rows.scores[tossed], rows.member[tossed]
        if rows.run.coins == "subject" and rows.subject is not None:
            units = by_unit(np.unique(rows.subject[tossed], return_inverse=True)[1], *units)
        found[-1] = one_run_epsilon(*units, delta, confidence)
    return found


def epsilons(scores: Floats, member: Bools, delta: float, confidence: float) -> list[Estimate]:
    """What was proved, what a Gaussian fit says, what the papers quote, and the one-run bound, at one delta."""
    inside, outside = scores[member], scores[~member]
    return [
        proved_epsilon(inside, outside, delta, Ranks(), confidence),
        gdp_epsilon(inside, outside, delta, confidence),
        maximised_epsilon(inside, outside, delta, confidence),
        one_run_epsilon(scores, member, delta, confidence),
    ]
