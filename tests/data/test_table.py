"""Tables as people have them: what is read, what is said, and what is refused by column and row."""

import sqlite3
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedaudit.config.schema import load_config, parse
from fedaudit.data import load
from fedaudit.data.cells import read_columns, refuse_swollen
from fedaudit.errors import FedauditError
from fedaudit.types import Dataset, Notice
from fedaudit.words import all_words

WARDS = """age,sex,pulse,ward,who,outcome
61,f,72,north,a,well
58,m,80,south,b,ill
44,f,66,north,a,well
70,m,75,east,c,ill
"""


def read(path: Path, **options: Any) -> Dataset:
    return load(parse({"data": {"name": "table", "path": str(path), "label": "outcome"} | options}).data)


def written(folder: Path, text: str, name: str = "wards.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def by_id(found: Dataset) -> dict[str, list[float]]:
    return {str(i): row for i, row in zip(found.records.id, found.records.x.tolist(), strict=True)}


def test_numbers_and_words_become_features(tmp_path: Path) -> None:
    text = WARDS.replace("age,", "nr,age,", 1)
    lines = text.splitlines()
    numbered = "\n".join([lines[0], *(f"r{i},{line}" for i, line in enumerate(lines[1:]))])
    found = read(written(tmp_path, numbered), id="nr", subject="who", scale=False)
    # age, sex (two values: one feature), pulse, ward (three values: three features)
    assert by_id(found) == {
        "r0": [61, 0, 72, 0, 1, 0],
        "r1": [58, 1, 80, 0, 0, 1],
        "r2": [44, 0, 66, 0, 1, 0],
        "r3": [70, 1, 75, 1, 0, 0],
    }
    assert (found.name, found.classes) == ("wards", 2)
    assert found.records.subject is not None
    assert found.records.subject.tolist() == ["a", "b", "a", "c"]
    assert found.records.y.tolist() == [1, 0, 1, 0]  # ill, well: by alphabet


def test_scaled_numbers_are_the_plain_formula_and_words_stay(tmp_path: Path) -> None:
    found = read(written(tmp_path, WARDS), drop=["who"])
    ages = np.array([61, 58, 44, 70.0])
    expected = (ages - ages.mean()) / np.sqrt(np.mean((ages - ages.mean()) ** 2))
    assert sorted(found.records.x[:, 0].tolist()) == pytest.approx(sorted(expected), rel=1e-6)
    assert set(found.records.x[:, 1].tolist()) == {0.0, 1.0}


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_the_separator_is_found(tmp_path: Path, separator: str) -> None:
    first = read(written(tmp_path, WARDS), subject="who")
    again = read(written(tmp_path, WARDS.replace(",", separator)), subject="who")
    assert np.array_equal(first.records.x, again.records.x)
    assert first.records.id.tolist() == again.records.id.tolist()


def test_quotes_a_mark_at_the_start_and_spaces_do_not_matter(tmp_path: Path) -> None:
    quoted = WARDS.replace("north", '"north, upper\nfloor"').replace("61,", " 61 ,")
    (tmp_path / "wards.csv").write_bytes(b"\xef\xbb\xbf" + quoted.replace("\n", "\r\n").encode())
    found, plain = read(tmp_path / "wards.csv", subject="who"), read(written(tmp_path, WARDS, "p.csv"), subject="who")
    assert sorted(map(tuple, found.records.x.tolist())) == sorted(map(tuple, plain.records.x.tolist()))


def test_rows_in_which_nothing_stands_do_not_count(tmp_path: Path) -> None:
    """They may have any number of cells, and may stand above the header."""
    lines = WARDS.splitlines()
    gaps = "\n".join([",,", *lines[:2], "", ",,,,,", *lines[2:4], '""', ",", *lines[4:]])
    found, plain = (read(written(tmp_path, text), subject="who") for text in (gaps, WARDS))
    assert found.records.id.tolist() == plain.records.id.tolist()
    with pytest.raises(FedauditError, match=r"another number in row 4 and 1 more\."):
        read(written(tmp_path, gaps.replace("70,m", "70") + "\n  \n"), subject="who")


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends_inside_cells_are_one_kind(tmp_path: Path, end: str) -> None:
    (tmp_path / "wards.csv").write_bytes(WARDS.replace("north", '"up\nper"').replace("\n", end).encode())
    found = read(tmp_path / "wards.csv", attributes=["ward"], subject="who")
    assert found.values["ward"] == ("east", "south", "up\nper")


def test_a_quote_that_is_not_closed_does_not_swallow_the_rest(tmp_path: Path) -> None:
    text = WARDS + '60,f,70,north,d,"well\n' + "60,f,70,north,d,well\n" * 10_000
    with pytest.raises(FedauditError, match=r"a cell does not end, or is longer than 131,072 characters"):
        read(written(tmp_path, text), subject="who")


def test_one_long_cell_does_not_make_all_cells_long(tmp_path: Path) -> None:
    path = written(tmp_path, "note,a,outcome\n" + "x" * 100_000 + ",1,x\n" + "y,2,z\n" * 5_000)
    note = read_columns(path)["note"]
    assert (note.different, len(note)) == (2, 5_001)
    assert note.text.nbytes < 1_000_000


def test_what_arrow_cannot_read_as_a_number_and_python_can_is_one(tmp_path: Path) -> None:
    found = read(written(tmp_path, "a,outcome\n+1,x\n\u0664,y\n1.,x\n.5e1,y\n"), scale=False)
    assert sorted(found.records.x.tolist()) == [[1], [1], [4], [5]]
    words = read(written(tmp_path, "a,outcome\n1_000,x\n0x1,y\n1_000,y\n"), scale=False)
    assert sorted(words.records.x.tolist()) == [[0], [1], [1]]


def test_decimal_commas_are_read_where_the_separator_is_another_and_said(tmp_path: Path) -> None:
    text = "a;b;outcome\n1,5;3;x\n2,25;4;y\n3;5;x\n"
    found = read(written(tmp_path, text), scale=False)
    assert sorted(found.records.x.tolist()) == [[1.5, 3], [2.25, 4], [3, 5]]
    assert all_words(found.notices) == ["Commas were read as decimal points in wards.csv: 'a'."]


def test_decimal_commas_in_quotes_are_read_where_the_separator_is_a_comma(tmp_path: Path) -> None:
    """They used to be words."""
    found = read(written(tmp_path, 'a,b,outcome\n"1,5",3,x\n"2,125",4,y\n3,"5,25",x\n'), scale=False)
    assert sorted(found.records.x.tolist()) == [[1.5, 3], [2.125, 4], [3, 5.25]]
    assert all_words(found.notices) == ["Commas were read as decimal points in wards.csv: 'a', 'b'."]
    columns = {"a": ["0,125", "3"], "outcome": ["x", "y"]}
    pq.write_table(pa.table(columns), tmp_path / "wards.parquet")
    assert sorted(read(tmp_path / "wards.parquet", scale=False).records.x.tolist()) == [[0.125], [3]]


def test_a_comma_before_three_digits_may_mean_two_things_and_is_refused(tmp_path: Path) -> None:
    for cells in (['"1,234"', '"12,500"', "7"], ['"1,234,567"', '"2,000"', '"3,000"']):
        text = "\n".join(["a,outcome", *(f"{cell},{'xy'[i % 2]}" for i, cell in enumerate(cells))])
        with pytest.raises(FedauditError, match=r"column 'a' holds commas that may separate thousands or decimals"):
            read(written(tmp_path, text))
    words = read(written(tmp_path, 'a,outcome\n"1,234",x\ndog,y\ncat,x\n'), scale=False)
    assert words.records.x.shape == (3, 3)  # words, among which one has a comma
    where_it_is_decimal = read(written(tmp_path, "a;outcome\n1,234;x\n2,500;y\n"), scale=False)
    assert sorted(where_it_is_decimal.records.x.tolist()) == [[pytest.approx(1.234)], [2.5]]


def test_a_mistake_among_decimal_commas_is_told_as_one(tmp_path: Path) -> None:
    lines = [f"{i},5;{'xy'[i % 2]}" for i in range(200)]
    missing = read(written(tmp_path, "\n".join(["crp;outcome", *lines, "n.a.;x"])), impute="median", scale=False)
    assert (len(missing.records), missing.records.x.max()) == (201, 199.5)
    with pytest.raises(FedauditError, match=r"'crp' holds numbers, but not in row 201"):
        read(written(tmp_path, "\n".join(["crp;outcome", *lines, "1.234,5;x"])))  # 1234.5, or something else?


def test_a_parquet_file_has_a_limit_of_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten megabytes of nothing may claim a billion, each of which takes more than a byte here."""
    columns = {"age": np.arange(400) % 90, "pulse": np.arange(400) % 7, "outcome": np.arange(400) % 2}
    pq.write_table(pa.table(columns), tmp_path / "wards.parquet")
    monkeypatch.setattr("fedaudit.data.cells.MAX_CELLS", 1200)
    assert len(read(tmp_path / "wards.parquet").records) == 400
    monkeypatch.setattr("fedaudit.data.cells.MAX_CELLS", 1199)
    with pytest.raises(FedauditError, match=r"400 rows of 3 columns: more than 1,199 cells\. Save a part") as caught:
        read(tmp_path / "wards.parquet")
    assert caught.value.exit_code == 5
    monkeypatch.undo()
    with pytest.raises(FedauditError, match=r"more than 399 rows"):
        refuse_swollen(tmp_path / "wards.parquet", 399)


def test_parquet_gives_the_same_records_as_csv(tmp_path: Path) -> None:
    header, *rows = (line.split(",") for line in WARDS.splitlines())
    columns: dict[str, Any] = dict(zip(header, map(list, zip(*rows, strict=True)), strict=True))
    columns["age"] = pa.array([int(v) for v in columns["age"]], pa.int16())
    columns["pulse"] = [float(v) for v in columns["pulse"]]
    columns["ward"] = pa.array(columns["ward"]).dictionary_encode()
    pq.write_table(pa.table(columns), tmp_path / "wards.dat")  # by its content, whatever its name
    csv, parquet = read(written(tmp_path, WARDS), subject="who"), read(tmp_path / "wards.dat", subject="who")
    assert np.array_equal(csv.records.x, parquet.records.x)
    assert csv.records.id.tolist() == parquet.records.id.tolist()
    pq.write_table(pa.table(columns | {"day": pa.array([0, 1, 2, 3], pa.date32())}), tmp_path / "days.parquet")
    with pytest.raises(FedauditError, match=r"'day' holds date32.*data.drop"):
        read(tmp_path / "days.parquet", subject="who")
    dropped = read(tmp_path / "days.parquet", subject="who", drop=["day"])
    assert np.array_equal(dropped.records.x, csv.records.x)


def test_attributes_are_numbered_by_name_and_are_no_features(tmp_path: Path) -> None:
    found = read(written(tmp_path, WARDS.replace("70,m", "70,")), drop=["who", "ward"], attributes=["sex"], scale=False)
    codes = {tuple(x): int(a) for x, a in zip(found.records.x, found.records.attributes["sex"], strict=True)}
    assert codes == {(61, 72): 0, (58, 80): 1, (44, 66): 0, (70, 75): -1}


def test_a_regression_predicts_the_number(tmp_path: Path) -> None:
    text = WARDS.replace("well", "1.5").replace("ill", "-2")
    found = read(written(tmp_path, text), drop=["who"], task="regression", scale=False)
    assert (found.classes, sorted(found.records.y.tolist())) == (0, [-2, -2, 1.5, 1.5])
    with pytest.raises(FedauditError, match="a regression predicts numbers"):
        read(written(tmp_path, WARDS), task="regression")
    with pytest.raises(FedauditError, match=r'data\.task = "regression"'):
        read(written(tmp_path, text), drop=["who"])


# ------------------------------------------------------------------ what is missing


def test_rows_without_a_label_are_refused_or_counted_and_left_out(tmp_path: Path) -> None:
    path = written(tmp_path, WARDS + "33,f,70,north,d,\n35,f,71,north,d,NA\n")
    with pytest.raises(FedauditError, match=r"no label in row 5 and 1 more, of 6 rows.*leave-out"):
        read(path)
    found = read(path, unlabelled="leave-out", subject="who")
    assert len(found.records) == 4
    assert all_words(found.notices) == ["2 of 6 rows of wards.csv have no label: left out."]


def test_an_empty_cell_is_refused_by_column_and_row_or_imputed(tmp_path: Path) -> None:
    path = written(tmp_path, WARDS.replace("44,f", ",f").replace("east", "NA"))
    says = (
        r"'age' is empty in row 3; 'ward' has empty cells as well\. Under \[data\] write impute = \"median\", or fill"
    )
    with pytest.raises(FedauditError, match=says):
        read(path)
    options: dict[str, Any] = {"drop": ["who"], "scale": False}
    for how, filled in (("median", 61.0), ("mean", 63.0)):
        found = read(path, impute=how, **options)
        assert sorted(found.records.x[:, 0].tolist()) == sorted([61.0, 58.0, 70.0, filled])
    assert found.records.x.shape[1] == 6  # an empty ward is a ward of its own
    assert all_words(found.notices) == ["2 empty cells of wards.csv were filled in: 'age' (1), 'ward' (1)."]


@pytest.mark.parametrize(
    ("change", "options", "says"),
    [
        (("61,", "<61,"), {}, None),  # one in four is no mistake among numbers: these are words
        (("61,f,72", "inf,f,72"), {}, "'age' is infinite, or too large to learn from, in row 1"),
        (("61,f,72", "-1e300,f,72"), {}, "'age' is infinite, or too large to learn from, in row 1"),
        (("pulse", "age"), {}, "columns 1 and 3 have the same name"),
        (("pulse", ""), {}, r"column 3 has no name.*index=False"),
        (("58,m,80,", "58,m,80,8,"), {}, "6 columns, separated by commas, and another number in row 2"),
        (("c,ill", ",ill"), {"subject": "who"}, r"'who'.* is empty in row 4"),
        (("", ""), {"subject": "whose"}, r"no column 'whose' \(data.subject\).*Did you mean 'who'"),
        (("", ""), {"drop": ["wards"]}, r"no column 'wards' \(data.drop\).*Did you mean 'ward'"),
        (("", ""), {"subject": "who", "attributes": ["who"]}, "as data.subject and as data.attributes"),
        (("", ""), {"drop": ["age", "sex", "pulse", "ward", "who"]}, "no column left to learn from"),
        (("north", ""), {"attributes": ["ward"], "drop": ["sex"]}, None),
    ],
)
def test_what_cannot_be_read_says_where(
    tmp_path: Path, change: tuple[str, str], options: dict[str, Any], says: str | None
) -> None:
    path = written(tmp_path, WARDS.replace(*change, 1) if change[0] else WARDS)
    if says is None:
        assert len(read(path, **options).records) == 4
        return
    with pytest.raises(FedauditError, match=says):
        read(path, **options)


def many(cell: str, odd: str, rows: int = 200) -> str:
    lines = [f"{odd if i == 17 else cell.format(i=i)},{i % 7},{'xy'[i % 2]}" for i in range(rows)]
    return "\n".join(["crp,b,outcome", *lines])


def test_a_few_words_among_numbers_are_a_mistake_and_are_not_quoted(tmp_path: Path) -> None:
    with pytest.raises(FedauditError, match=r"'crp' holds numbers, but not in row 18\.") as caught:
        read(written(tmp_path, many("{i}.5", "<secret>")))
    assert "secret" not in str(caught.value)


def test_a_record_in_place_of_a_header_is_not_quoted(tmp_path: Path) -> None:
    for first, says in (
        ("61.25,0,9174,a", "no column 'outcome'.*write data.header = false"),
        ("9174,1,9174,a", "1 and 3"),
    ):
        with pytest.raises(FedauditError, match=says) as caught:
            read(written(tmp_path, f"{first}\n58,1,4,b\n59,0,3,a\n"))
        assert "9174" not in str(caught.value)


def test_names_and_free_text_are_not_coded(tmp_path: Path) -> None:
    with pytest.raises(FedauditError, match=r"200 different ones: that looks like names.*drop = \[\"crp\"\]") as caught:
        read(written(tmp_path, many("person{i}", "somebody")))
    assert "person" not in str(caught.value)


def test_all_columns_that_cannot_be_used_are_named_at_once(tmp_path: Path) -> None:
    lines = [f"person{i},2024-{i},{i % 9},{'xy'[i % 2]}" for i in range(200)]
    path = written(tmp_path, "\n".join(["name,day,b,outcome", *lines]))
    with pytest.raises(FedauditError, match=r"column 'name' holds words.*'day' holds words like names as well"):
        read(path)
    assert len(read(path, drop=["name", "day"]).records) == 200


def test_every_column_is_told_with_its_own_remedy(tmp_path: Path) -> None:
    """Columns with empty cells used to be listed under the advice for columns of words: to drop them."""
    lines = [
        f"person{i},2024-{i},{'' if i == 3 else i % 9},,{'x' if i == 5 else i}.5,{'xy'[i % 2]}" for i in range(200)
    ]
    path = written(tmp_path, "\n".join(["name,day,age,rest,crp,outcome", *lines]))
    with pytest.raises(FedauditError) as caught:
        read(path)
    assert caught.value.what.partition("free text; ")[2] == (
        "'day' holds words like names as well; 'rest' is empty; 'age' has empty cells; 'crp' has cells that are wrong"
    )
    assert caught.value.todo == (
        'Under [data] write drop = ["name", "day", "rest"] and impute = "median", or name a column of words as id or '
        "subject, or fill in what is empty. Correct these cells, or empty them and set data.impute."
    )
    with pytest.raises(FedauditError, match=r"drop = \[\"day\", \"rest\", \"name\"\]"):
        read(path, drop=["day", "rest"])  # the whole line, with what it held before


def test_B22_a_number_that_every_row_has_alone_is_no_feature(tmp_path: Path) -> None:
    """It was learnt from, with a word of advice: a model knows patients by such a number."""
    path = written(tmp_path, many("{i}", "17"))
    with pytest.raises(FedauditError, match=r"'crp' has another whole number in every row.*id = \"crp\"") as caught:
        read(path)
    assert caught.value.code == "table-id"
    assert len(read(path, id="crp").columns) == len(read(path, keep_ids=True).columns) - 1 == 1
    assert len(read(written(tmp_path, many("{i}.5", "17.5"))).columns) == 2  # a measurement has fractions,
    assert len(read(written(tmp_path, many("{i}", "16"))).columns) == 2  # or repeats
    with pytest.raises(FedauditError, match=r"'mrn' is named like an id.*subject = \"mrn\""):
        read(written(tmp_path, "mrn,b,outcome\n" + "\n".join(f"{i // 2},{i % 7},{'xy'[i % 2]}" for i in range(20))))


@pytest.mark.parametrize("far", ["1e30", "-250000"])
def test_a_number_that_flattens_its_column_is_said_with_its_row(far: str, tmp_path: Path) -> None:
    found = read(written(tmp_path, many("{i}.5", far)))
    (said,) = [told for told in found.notices if isinstance(told, Notice) and told.code == "cell-flattens"]
    assert said.data["rows"] == {"crp": 18}
    assert "'crp' in row 18" in all_words(found.notices)[0]
    assert not read(written(tmp_path, many("{i}.5", "2500"))).notices, "ten times the range is nothing to speak of"


# ------------------------------------------------------------------ files of another kind


def workbook(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("xl/workbook.xml", "<workbook/>")


def arrays(path: Path) -> None:
    with path.open("wb") as file:
        np.savez(file, x=np.ones(3))


def database(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("create table t (a)")
    connection.close()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (workbook, "is an Excel workbook.*Save As, CSV UTF-8"),
        (database, "is an SQLite database.*sqlite3 -header -csv"),
        (arrays, 'Write name = "npz"'),
        (lambda p: p.write_bytes(b"\x93NUMPY\x01"), "numpy.savez"),
        (lambda p: p.mkdir(), 'write name = "images"'),
        (lambda p: p.write_bytes(b"\x89PNG\r\n"), 'Write name = "images"'),
        (lambda p: p.write_bytes(b"\x80\x04K\x01."), "may hold code and is not read"),
        (lambda p: p.write_bytes(b"\x1f\x8b\x08"), "gunzip"),
        (lambda p: p.write_text('[{"a": 1}]'), "is JSON"),
        (lambda p: p.write_text("a,b\n1,2", encoding="utf-16"), "Save it in UTF-8"),
        (lambda p: p.write_bytes("a,outcome\nä,ö".encode("cp1252")), "iconv -f WINDOWS-1252"),
        (lambda p: p.write_text("just words"), "not a header of several columns"),
        (lambda p: p.write_text("a,outcome\n"), "no rows below its header"),
        (lambda p: p.write_text(" \n"), "is empty"),
        (lambda p: p.write_bytes(b"PAR1 torn"), "parquet file that cannot be read"),
    ],
)
def test_a_file_of_the_wrong_kind_is_told_what_to_write(tmp_path: Path, make: Any, says: str) -> None:
    make(tmp_path / "given")
    with pytest.raises(FedauditError, match=says) as caught:
        read(tmp_path / "given")
    assert caught.value.exit_code == 2  # the user's own file, and found before training


def test_a_table_where_arrays_or_a_configuration_belong(tmp_path: Path) -> None:
    path = written(tmp_path, WARDS)
    with pytest.raises(FedauditError, match='name = "table" and label'):
        load(parse({"data": {"name": "npz", "path": str(path)}}).data)
    with pytest.raises(FedauditError, match=r'These are data.*name = "table"'):
        load_config(path)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(FedauditError, match="there is no file"):
        read(tmp_path / "none.csv")
