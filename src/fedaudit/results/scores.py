"""scores.parquet read back: the scores of an attack, sorted into blocks as the auditor has them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.data.cells import refuse_swollen
from fedaudit.errors import REFUSED, FedauditError
from fedaudit.results import document as results
from fedaudit.stats import Block
from fedaudit.trace.journal import checksum_of, verify
from fedaudit.types import Bools, Role

MAX_SCORE_BYTES = 4 * 2**30
Scores = Mapping[str, NDArray[Any]]  # by column


def load_scores(run: Path) -> Scores | None:
    """scores.parquet, or None where there is none."""
    path = (run if run.is_dir() else run.parent) / results.SCORES
    return read_scores(path) if path.is_file() else None


def read_scores(path: Path) -> Scores:
    """What `save_scores` wrote, under whatever name it lies now."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if path.stat().st_size > MAX_SCORE_BYTES:
            raise ValueError("larger than 4 GiB")
        verify(path, checksum_of(path))
        refuse_swollen(path)
        wanted = results.score_columns()
        table = pq.read_table(path, columns=[column.name for column in wanted])
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
    # A party that took part too seldom has no scores at all and is left out.
    return [_block(index, scores) for index in wanted if np.isfinite(scores["score"][index]).any()]


def _block(mine: Bools, scores: Scores) -> Block:
    role, mine = scores["role"], mine & ~scores["reference"]
    members, evaluation = mine & (role == Role.MEMBER.value), mine & (role == Role.EVALUATION.value)
    calibration = mine & (role == Role.CALIBRATION.value)
    values = np.where(np.isfinite(scores["score"]), scores["score"], -np.inf)
    subject = scores.get("subject")
    names = None if subject is None else (subject[members], subject[evaluation], subject[calibration])
    ids = scores["id"][members], scores["id"][evaluation], scores["id"][calibration]
    return Block(values[members], values[evaluation], values[calibration], names, ids)
