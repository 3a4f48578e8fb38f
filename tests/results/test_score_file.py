"""`fedaudit score`: the statistics alone."""

from datetime import date
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
import pytest

from fedaudit.errors import FedauditError
from fedaudit.results.document import SCORES, load
from fedaudit.results.schema import plain
from fedaudit.results.scores import Scored, estimate
from fedaudit.session.run import run
from fedaudit.types import Estimate
from tests.worlds import config, silent


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


def test_the_auc_takes_all_non_members(tmp_path: Path) -> None:
    lines = rows(1.0, 300, 400)
    found = estimate(write(tmp_path / "a.csv", lines), (0.05,), 0.95).estimates
    members, others = (np.array([score for _, member, score in lines if member == of]) for of in (1, 0))
    assert found["auc"].n_neg == 400
    assert found["auc"].value == pytest.approx(np.mean(members[:, None] > others))
    assert (found["tpr@0.05"].n_neg, found["tpr@0.05"].n_cal) == (200, 200)


def test_an_id_is_not_needed_and_the_order_of_rows_is_still_nothing(tmp_path: Path) -> None:
    lines = [f"{member},{score}" for _, member, score in rows()]
    (tmp_path / "a.csv").write_text("\n".join(["member,score", *lines, *lines[:3]]))  # rows may be alike
    (tmp_path / "b.csv").write_text("\n".join(["member,score", *lines[:3], *lines[::-1]]))
    found, again = (estimate(tmp_path / name, None, 0.95) for name in ("a.csv", "b.csv"))
    assert found.estimates == again.estimates
    assert (found.estimates["auc"].n_pos, found.estimates["tpr@0.01"].n_cal) == (503, 1000)
    assert any("There is no id" in line for line in found.notices)


def test_semicolons_decimal_commas_and_columns_of_others_are_read(tmp_path: Path) -> None:
    plain = estimate(write(tmp_path / "a.csv", rows()), None, 0.95)
    lines = [f"{i};{name};{member};{str(score).replace('.', ',')};x" for i, (name, member, score) in enumerate(rows())]
    (tmp_path / "b.csv").write_text("\n".join([";id;member;score;note", *lines]))  # as pandas writes an index
    assert estimate(tmp_path / "b.csv", None, 0.95).estimates == plain.estimates
    ids, member, score = zip(*rows(), strict=True)
    table = {"id": ids, "member": member, "score": score, "day": [date(2026, 1, 1)] * len(ids)}
    pq.write_table(pa.table(table), tmp_path / "c.parquet")
    assert estimate(tmp_path / "c.parquet", None, 0.95).estimates == plain.estimates


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        ("id,member,score\nä,1,2".encode("cp1252"), "iconv -f WINDOWS-1252"),
        (b"member,score\n1,2,3\n", "another number in row 1"),
        (b"scores", "not a header of several columns"),
        (b'{"member": 1}', "is JSON, not a table. Give a CSV or a parquet file"),
        (b"\xd0\xcf\x11\xe0", "is an Excel workbook.*Save As, CSV UTF-8"),
        (b"PAR1 torn", "parquet file that cannot be read"),
    ],
)
def test_what_is_no_file_of_scores_is_refused_in_words(tmp_path: Path, content: bytes, says: str) -> None:
    """An empty file was a fault of fedaudit, exit 6."""
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(FedauditError, match=says) as caught:
        estimate(tmp_path / "a.csv", None, 0.95)
    assert caught.value.exit_code == 2


# ------------------------------------------------------------------ of a run


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With an attack that is fitted on half of the calibration records, and one that is not."""
    folder = tmp_path_factory.mktemp("run")
    settings = config(federation={"rounds": 3}, audit={"attacks": ["loss", "fusion"], "fpr": [0.05]})
    run(settings, folder, silent, tell=lambda _: None)
    return folder


@pytest.mark.parametrize("attack", ["loss", "fusion"])
@pytest.mark.parametrize("model", ["global", "local"])
def test_the_scores_of_a_run_have_the_roles_that_it_stored(finished: Path, attack: str, model: str) -> None:
    """Its calibration and evaluation records used to be dealt out anew, and local models could not be asked about."""
    found = estimate(finished / SCORES, (0.05,), 0.95, attack=attack, model=model)
    (entry,) = [e for e in load(finished).results if (e.attack, e.model, e.party) == (attack, model, None)]
    for name in ("auc", "tpr@0.05"):
        assert plain_of(found.estimates[name]) == plain_of(entry.estimates[name])
    assert any(f"Scores of {attack} on" in line for line in found.notices)


def test_what_is_asked_of_a_run_is_one_attack(finished: Path, tmp_path: Path) -> None:
    path = finished / SCORES
    with pytest.raises(FedauditError, match=r"2 attacks on global models. Name one with --attack .*: fusion, loss"):
        estimate(path, None, 0.95)
    with pytest.raises(FedauditError, match="neither global nor local"):
        estimate(path, None, 0.95, attack="loss", model="both")
    with pytest.raises(FedauditError, match="every local model has its own"):
        estimate(path, None, 0.95, 1e-5, attack="loss", model="local")
    with pytest.raises(FedauditError, match="needs 100000 calibration non-members"):
        estimate(path, (0.00001,), 0.95, attack="loss")
    table = pq.read_table(path)
    local = table.filter(pa.compute.equal(table["model"].cast("string"), "local"))
    pq.write_table(local.filter(pa.compute.equal(local["attack"].cast("string"), "loss")), tmp_path / "a.parquet")
    alone = estimate(tmp_path / "a.parquet", (0.05,), 0.95)  # what leaves no choice need not be named
    assert alone.estimates == estimate(path, (0.05,), 0.95, attack="loss", model="local").estimates
    with pytest.raises(FedauditError, match="no scores on global models"):
        estimate(tmp_path / "a.parquet", (0.05,), 0.95, model="global")


def plain_of(found: Estimate) -> dict[str, object]:
    return {name: pytest.approx(value) if isinstance(value, float) else value for name, value in plain(found).items()}


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


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_B21_a_column_that_is_there_twice_is_refused_whichever_it_is(tmp_path: Path, kind: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    for twice in ("score", "ward"):
        path = tmp_path / f"{twice}.{kind}"
        if kind == "csv":
            path.write_text(f"id,member,score,ward,{twice}\n" + "".join(f"{i},{i % 2},{i},1,2\n" for i in range(40)))
        else:
            columns = [pa.array(range(40)), pa.array([0, 1] * 20), *[pa.array(range(40))] * 3]
            pq.write_table(pa.table(columns, names=["id", "member", "score", "ward", twice]), path)
        with pytest.raises(FedauditError, match="have the same name"):
            estimate(path, (0.5,), 0.95)


def test_B21_decimal_commas_without_quotes_are_refused_and_not_cut(tmp_path: Path) -> None:
    """They turned an AUC of .997 into .500."""
    path = tmp_path / "scores.csv"
    path.write_text("id,member,score\n" + "".join(f"{i},{i % 2},0,{500 + 400 * (i % 2) + i}\n" for i in range(40)))
    with pytest.raises(FedauditError, match="has 3 columns, separated by commas, and another number in row 1"):
        estimate(path, (0.5,), 0.95)


def test_B24_a_few_bytes_that_claim_millions_of_rows_are_refused(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path, n = tmp_path / "bomb.parquet", 3_000_000
    ids = pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, np.int32)), pa.array(["x"]))
    columns = {"id": ids, "member": np.zeros(n, np.int8), "score": np.zeros(n)}
    pq.write_table(pa.table(columns), path, compression="zstd")
    assert path.stat().st_size < 60_000
    with pytest.raises(FedauditError, match="claims 3,000,000 rows"):
        estimate(path, (0.5,), 0.95)
    honest = {"id": [str(i) for i in range(1000)], "member": [0, 1] * 500, "score": list(range(1000))}
    pq.write_table(pa.table(honest), path)
    assert estimate(path, (0.5,), 0.95).estimates["auc"].value is not None
