"""`fedaudit score`: the statistics alone."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedaudit.errors import FedauditError
from fedaudit.results.score_file import Scored, estimate


def rows(mu: float = 2.0, members: int = 500, others: int = 2000) -> list[tuple[str, int, float]]:
    rng = np.random.default_rng(0)
    inside = [(f"m{i}", 1, float(s)) for i, s in enumerate(rng.normal(mu, 1, members))]
    return inside + [(f"n{i}", 0, float(s)) for i, s in enumerate(rng.normal(0, 1, others))]


def write(path: Path, lines: list[tuple[str, int, float]], header: str = "id,member,score") -> Path:
    path.write_text("\n".join([header, *(f"{a},{b},{c}" for a, b, c in lines)]) + "\n")
    return path


def interval(found: Scored, name: str) -> tuple[float, float]:
    low, high = found.estimates[name].low, found.estimates[name].high
    assert low is not None
    assert high is not None
    return low, high


def test_known_answer_in_any_order_and_format(tmp_path: Path) -> None:
    found = estimate(write(tmp_path / "a.csv", rows()), None, 0.95)
    low, high = interval(found, "auc")
    assert low <= 0.9214 <= high
    low, high = interval(found, "tpr@0.01")
    assert low <= 0.3721 <= high
    assert (found.estimates["tpr@0.01"].n_pos, found.estimates["tpr@0.01"].n_cal) == (500, 1000)
    shuffled = estimate(write(tmp_path / "b.csv", rows()[::-1]), None, 0.95)
    assert shuffled.estimates == found.estimates
    ids, member, score = zip(*rows(), strict=True)
    pq.write_table(pa.table({"id": ids, "member": [bool(m) for m in member], "score": score}), tmp_path / "c.parquet")
    assert estimate(tmp_path / "c.parquet", None, 0.95).estimates == found.estimates


def test_subjects_widen_the_interval(tmp_path: Path) -> None:
    plain = estimate(write(tmp_path / "a.csv", rows()), None, 0.95)
    lines = [
        f"{name},{member},{score},s{i // 25}"
        for i, (name, member, score) in enumerate(sorted(rows(), key=lambda r: r[2]))
    ]
    (tmp_path / "b.csv").write_text("\n".join(["id,member,score,subject", *lines]))
    clustered = estimate(tmp_path / "b.csv", None, 0.95)
    assert interval(clustered, "auc")[0] < interval(plain, "auc")[0]
    assert "subject" in clustered.estimates["auc"].method


@pytest.mark.parametrize(
    ("lines", "header", "code"),
    [
        ([("a", 1, 1.0), ("a", 0, 0.0)], "id,member,score", "shared-id"),
        ([("a", 0, 1.0), ("a", 0, 0.0), ("b", 1, 0.0)], "id,member,score", "duplicate-id"),
        ([("a", 1, 1.0), ("b", 1, 0.0)], "id,member,score", "empty-set"),
        ([("a", 7, 1.0), ("b", 0, 0.0)], "id,member,score", "member"),
        ([("a", 1, float("nan")), ("b", 0, 0.0)], "id,member,score", "nan-scores"),
        ([("a", 1, 1.0)], "id,member,scores", "column"),
        ([], "id,member,score", "no-records"),
        ([("", 1, 1.0), ("b", 0, 0.0)], "id,member,score", "missing-id"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, lines: list[tuple[str, int, float]], header: str, code: str) -> None:
    with pytest.raises(FedauditError) as caught:
        estimate(write(tmp_path / "a.csv", lines, header), None, 0.95)
    assert (caught.value.code, caught.value.exit_code) == (code, 2)
    assert "np.str_" not in str(caught.value)


@pytest.mark.parametrize("nothing", ["", "nan", None])
def test_a_missing_subject_is_refused_with_its_row(tmp_path: Path, nothing: str | None) -> None:
    ids, member, score = zip(*rows(members=3, others=3), strict=True)
    subject = ["s", "s", "s", "t", nothing, nothing]
    lines = zip(ids, member, score, ("" if s is None else s for s in subject), strict=True)
    (tmp_path / "a.csv").write_text("\n".join(["id,member,score,subject", *(",".join(map(str, row)) for row in lines)]))
    columns = {"id": ids, "member": member, "score": score, "subject": subject}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    for name in ("a.csv", "a.parquet"):
        with pytest.raises(FedauditError, match="subject is missing in 2 of 6 rows, the first is row 5"):
            estimate(tmp_path / name, None, 0.95)


def test_an_explicit_fpr_out_of_reach_is_an_error_a_default_one_a_notice(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", rows(others=400))
    assert any("0.001" in notice for notice in estimate(path, None, 0.95).notices)
    with pytest.raises(FedauditError, match="needs 2000 non-members"):
        estimate(path, (0.001,), 0.95)
    with pytest.raises(FedauditError, match="between 0 and 1"):
        estimate(path, (0.0,), 0.95)


def test_a_few_missing_scores_are_counted(tmp_path: Path) -> None:
    lines = [*rows(), ("x", 1, float("nan"))]
    assert "1 scores" in estimate(write(tmp_path / "a.csv", lines), None, 0.95).warnings[0]
