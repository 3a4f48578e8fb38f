"""The statistics alone, on a file of scores."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedaudit.config.schema import DEFAULT_FPR
from fedaudit.data.records import missing
from fedaudit.errors import FedauditError, suggest
from fedaudit.results.document import COINS, TOLD
from fedaudit.stats import (
    Block,
    Bonferroni,
    auc,
    gdp_epsilon,
    maximised_epsilon,
    needed_for_value,
    one_run_epsilon,
    proved_epsilon,
    random_half,
    tpr_at_fpr,
)
from fedaudit.stats.levels import check_levels
from fedaudit.stats.onerun import by_unit
from fedaudit.trace.checksums import checksum_of, unchecked, verify
from fedaudit.types import Bools, Estimate, Floats, Role

MAX_BYTES = 4 * 2**30
YES, NO = {"1", "1.0", "true", "yes"}, {"0", "0.0", "false", "no"}


@dataclass(frozen=True)
class Scored:
    """The estimates for a file of scores; `epsilons` only if asked for."""

    schema: int
    file: str
    estimates: Mapping[str, Estimate]
    epsilons: Mapping[str, Estimate]
    warnings: Sequence[str]
    notices: Sequence[str]


def estimate(
    path: Path,
    fprs: tuple[float, ...] | None,
    confidence: float,
    delta: float | None = None,
    attack: str | None = None,
) -> Scored:
    """AUC and TPRs of the scores in a CSV or parquet file with columns id, member, score[, subject].

    From a run's own scores.parquet, it uses those of one attack on the global model. With a delta, it also gives the
    four figures of epsilon, each under its own name.
    """
    check_levels(confidence, fprs or ())
    columns, of_a_run, coins = _read(path, attack)
    _refuse_missing(columns, path)
    # Sorted by id, so that the order of rows cannot change a bit.
    order = np.argsort(np.array(columns["id"], dtype=np.str_), kind="stable")
    ids = np.array(columns["id"], dtype=np.str_)[order]
    member = _members(columns["member"], path)[order]
    scores, dropped = _scores([columns["score"][i] for i in order], ids, path)
    both = np.intersect1d(ids[member], ids[~member])
    if len(both):
        raise FedauditError(
            "shared-id",
            f"{path}: {len(both)} ids are both member and non-member, the first is {str(both[0])!r}",
            "Give every record one row, with member either 1 or 0.",
        )
    if len(np.unique(ids)) < len(ids):
        raise FedauditError("duplicate-id", f"{path}: ids occur more than once", "Give every record one row.")
    if not member.any() or member.all():
        raise FedauditError("empty-set", f"{path}: there are no members, or no non-members", "Give rows of both.")
    subject = np.array(columns["subject"], dtype=np.str_)[order] if "subject" in columns else None
    calibration = np.zeros(len(ids), bool)
    calibration[~member] = random_half((ids if subject is None else subject)[~member], "score-calibration")
    sets = (member, ~member & ~calibration, calibration)
    names = None if subject is None else (subject[sets[0]], subject[sets[1]], subject[sets[2]])
    block = Block(scores[sets[0]], scores[sets[1]], scores[sets[2]], names)
    kept, notices = _reachable(fprs, len(block.calibration), int((~member).sum()))
    found = [auc([block], confidence), *(tpr_at_fpr([block], fpr, confidence) for fpr in kept)]
    if of_a_run and (said := unchecked(path)):
        notices.append(said)
    warnings = [f"{dropped} scores are not finite and were counted as the least suspicious."] if dropped else []
    if found[0].high is not None and found[0].high < 0.5:
        warnings.append("AUC is below 0.5: higher scores must mean 'member'; nothing was flipped.")
    claimed: list[Estimate] = []
    if delta is not None:
        claimed = [unproved(one) if of_a_run else one for one in epsilons(scores, member, delta, confidence)]
        if coins == TOLD:
            claimed = claimed[:-1]
        elif coins:
            tossed = np.array(columns["role"])[order] != Role.CALIBRATION.value
            units = scores[tossed], member[tossed]
            if coins == "subject" and subject is not None:
                units = by_unit(np.unique(subject[tossed], return_inverse=True)[1], *units)
            claimed[-1] = one_run_epsilon(*units, delta, confidence)
        told = {None: ONE_RUN, TOLD: TUNED}.get(coins, BY_COINS)
        notices += [ASSUMPTIONS, told] if of_a_run else [ASSUMPTIONS]
        if delta > 1 / len(ids):
            warnings.append(f"delta {delta:g} is above 1/{len(ids)}: publishing one record at random would satisfy it.")
    return Scored(1, path.name, {e.name: e for e in found}, {e.name: e for e in claimed}, warnings, notices)


def _refuse_missing(columns: dict[str, list[Any]], path: Path) -> None:
    for column in ("id", "subject"):
        if column in columns and len(rows := missing(np.array(columns[column], dtype=np.str_))):
            raise FedauditError(
                f"missing-{column}",
                f"{path}: {column} is missing in {len(rows)} of {len(columns[column])} rows, the first is row "
                f"{rows[0] + 1}",
                f"Fill it in{', or remove the column' if column == 'subject' else ''}.",
            )


def _reachable(fprs: tuple[float, ...] | None, calibration: int, nonmembers: int) -> tuple[list[float], list[str]]:
    """The rates that so many records can calibrate, and what is left out; one that was asked for is an error."""
    kept: list[float] = []
    notices: list[str] = []
    for fpr in fprs or DEFAULT_FPR:
        if calibration >= needed_for_value(fpr):
            kept.append(fpr)
            continue
        message = f"FPR {fpr:g} needs {2 * needed_for_value(fpr)} non-members, half of them to set the threshold; "
        message += f"there are {nonmembers}, of which {calibration} set it"
        if fprs:
            raise FedauditError("fpr", message, "Ask for a larger FPR, or give more non-members.")
        notices.append(f"{message}: it is left out.")
    return kept, notices


ASSUMPTIONS = (
    "Epsilon: epsilon-bonferroni, -gdp and -maximised assume that every row is an independent run of the mechanism, "
    "with the unit (member 1) or without it; epsilon-one-run assumes that the rows are units of one run, each included "
    "by a fair coin. A figure whose assumption does not hold here means nothing. Only kind 'proved' is a bound."
)


ONE_RUN = (
    "These rows are units of one run, included in fixed shares and not by fair coins: epsilon-one-run (with "
    "federation.members = 0.5) comes closest, and none of the figures is a proof."
)


TUNED = (
    "A fair coin decided about each of these, but the attack was tuned on some whose coins it was told: the bound is "
    "in results.json, and cannot be computed from scores."
)


BY_COINS = (
    "These rows are units of one run, and a fair coin decided about each of them, calibration records excepted: "
    "epsilon-one-run is a proof, about one unit of the coins, and none of the other figures is."
)


def epsilons(scores: Floats, member: Bools, delta: float, confidence: float) -> list[Estimate]:
    """What was proved, what a Gaussian fit says, what the papers quote, and the one-run bound, at one delta."""
    inside, outside = scores[member], scores[~member]
    return [
        proved_epsilon(inside, outside, delta, Bonferroni(), confidence),
        gdp_epsilon(inside, outside, delta, confidence),
        maximised_epsilon(inside, outside, delta, confidence),
        one_run_epsilon(scores, member, delta, confidence),
    ]


def unproved(found: Estimate) -> Estimate:
    """Rows of one run are no independent runs, and no coins decided about them unless it is known that they did."""
    return replace(found, kind="heuristic") if found.kind == "proved" else found


def _read(path: Path, attack: str | None) -> tuple[dict[str, list[Any]], bool, str | None]:
    """The columns, whether they are those of a run, and about which unit that run flipped fair coins."""
    if not path.is_file():
        raise FedauditError("data-missing", f"there is no file {path}", "Check the path.")
    if path.stat().st_size > MAX_BYTES:
        raise FedauditError("data-size", f"{path} is larger than 4 GiB", "Score a part of it.")
    verify(path, checksum_of(path))
    columns, coins = _read_parquet(path) if path.suffix == ".parquet" else (_read_csv(path), None)
    of_a_run = {"role", "attack", "model", "reference"} <= columns.keys()
    if of_a_run:
        columns = _of_attack(columns, attack, path)
    elif attack:
        raise FedauditError(
            "attack", f"--attack is for the scores.parquet of a run, which {path} is not", "Leave it out."
        )
    for wanted in ("id", "member", "score"):
        if wanted not in columns:
            raise FedauditError(
                "column",
                f"{path} has no column {wanted!r}",
                f"Rename the column that holds it. {suggest(wanted, columns)}",
            )
    if not columns["id"]:
        raise FedauditError("no-records", f"{path} has a header and no rows", "Give a file with scores in it.")
    return columns, of_a_run, coins


def _of_attack(columns: dict[str, list[Any]], attack: str | None, path: Path) -> dict[str, list[Any]]:
    """The rows of one attack on the global model. Local models are left out, because each party has its own threshold,
    and so are rows that the attack was fitted on."""
    known = sorted({name for name, model in zip(columns["attack"], columns["model"], strict=True) if model == "global"})
    chosen = attack or (known[0] if len(known) == 1 else None)
    if chosen not in known:
        what = f"{path} has no scores of {attack!r} on the global model" if attack else f"{path} holds several attacks"
        raise FedauditError("attack", what, f"Name one with --attack: {', '.join(known)}.")
    rows = zip(columns["attack"], columns["model"], columns["reference"], strict=True)
    kept = [row for row, about in enumerate(rows) if about == (chosen, "global", False)]
    found = {name: [columns[name][row] for row in kept] for name in ("id", "score", "role", "subject")}
    if None in found["subject"]:
        del found["subject"]
    return found | {"member": [int(role == "member") for role in found["role"]]}


def _read_parquet(path: Path) -> tuple[dict[str, list[Any]], str | None]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
        columns: dict[str, list[Any]] = table.to_pydict()
    except (pa.ArrowException, OSError) as error:
        raise FedauditError(
            "unreadable",
            f"{path} is not a parquet file: {error}",
            "Save it as parquet, or as CSV under a name that ends in .csv.",
        ) from None
    coins = (table.schema.metadata or {}).get(COINS)
    return columns, coins.decode() if coins else None


def _read_csv(path: Path) -> dict[str, list[Any]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, restval="")
            rows = list(reader)
    except (csv.Error, UnicodeDecodeError) as error:
        raise FedauditError(
            "unreadable", f"{path} is not a CSV file in UTF-8: {error}", "Save it as UTF-8, or as parquet."
        ) from None
    return {name: [row[name] for row in rows] for name in reader.fieldnames or () if name}


def _members(values: list[Any], path: Path) -> Bools:
    words = [str(value).strip().lower() for value in values]
    for row, word in enumerate(words):
        if word not in YES | NO:
            raise FedauditError("member", f"{path}: member in row {row + 1} is neither 0 nor 1", "Write 0 or 1.")
    return np.array([word in YES for word in words])


def _scores(values: list[Any], ids: Any, path: Path) -> tuple[Any, int]:
    """Finite scores; a few missing ones count as the least suspicious, many are an error."""

    def number(value: Any) -> float:
        try:
            return float(value)
        except (TypeError, ValueError):
            return float("nan")

    scores = np.array([number(value) for value in values])
    bad = ~np.isfinite(scores)
    if bad.mean() > 0.01:
        first = str(ids[np.flatnonzero(bad)[0]])
        raise FedauditError(
            "nan-scores",
            f"{path}: {int(bad.sum())} of {len(bad)} scores are not finite, the first is {first!r}",
            "Replace them by numbers, or remove these rows.",
        )
    return np.where(bad, -np.inf, scores), int(bad.sum())
