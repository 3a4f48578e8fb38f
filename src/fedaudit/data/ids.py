"""Columns of a table that name people or records, and that nobody declared.

As features they let a model know people by their number; and if no column says whom a record belongs to, one person's
records are trained on and held out. A column is taken for an id by its name or by how it repeats.

By its name: it says whose the record is (patient, person, user, subject, household, mrn, ssn or id; also patient_id,
PatientID, user-no) and has more than two values; or it ends in `id` (visit_id) and has more than 100 values, or another
in every row. Names such as patient_age or household_income say something else.

By how it repeats: whole numbers of which every row has another, in more than 100 rows; or whole numbers, or words, of
which all this is true:
- There are more than 100 different ones, each in 2 to 20 rows on average, and none in very many: the commonest tenth
  has a third of the rows at most. Ages and years have fewer values, codes and postcodes have common ones.
- What stands beside it goes with the value and not with its size: in some other column, rows of one value are clearly
  more alike than any two rows, and rows of neighbouring values are not. That is so for people, and not for what is
  measured or counted. Where people are known, one row of each is looked at.
"""

import re
from collections.abc import Mapping

import numpy as np

from fedaudit.data.cells import Column
from fedaudit.errors import FedauditError
from fedaudit.types import Floats, Ints

WHOSE = {"patient", "person", "user", "subject", "household"}
ALONE = WHOSE | {"id", "mrn", "ssn"}  # alone a column's name; the last two: of medical records, social security
NUMBER = {"id", "no", "nr", "nbr", "num", "number", "key", "code"}  # what follows them where the column holds ids
MANY = 100  # values: more are names, not kinds
ROWS = (2, 20)  # of one value, on average
COMMONEST = 0.1, 1 / 3  # this share of the values has at most this share of the rows
ALIKE = 0.75  # of the distance between any two rows: closer than that is alike
SURE = 4.0  # standard errors


def found(columns: Mapping[str, Column], beside: Mapping[str, Column], subject: str | None) -> list[str]:
    """The names of the columns that look like ids. `beside`: all that the file holds; `subject`: the column that says
    whose each record is.

    What is a person's own, such as a date of birth, repeats as often as the person's id. So where people are known, by
    declaration or because a column with more values has been taken for an id, one row of each is looked at.
    """
    by_name = [name for name, column in columns.items() if named_like_an_id(name, column) or in_every_row(column)]
    known = [*filter(None, [subject]), *by_name]
    for name in known:
        beside = _one_row_each(name, beside)
    by_repeating = []
    others = [name for name in columns if name not in by_name]
    for name in sorted(others, key=lambda name: -columns[name].different):
        if _repeats(name, beside):
            by_repeating.append(name)
            beside = _one_row_each(name, beside)
    return [name for name in columns if name in (*by_name, *by_repeating)]


def _one_row_each(name: str, columns: Mapping[str, Column]) -> dict[str, Column]:
    _, codes = columns[name].coded
    first = np.zeros(len(codes), bool)
    first[np.unique(codes, return_index=True)[1]] = True
    return dict(columns) if first.all() else {key: column.take(first) for key, column in columns.items()}


def named_like_an_id(name: str, column: Column) -> bool:
    if not (whose := says_whose(name)) and _words(name)[-1:] != ["id"]:
        return False
    values = column.different - bool(column.missing.any())
    return values > 2 if whose else values > MANY or values == len(column)


def says_whose(name: str) -> bool:
    words = _words(name)
    alone = len(words) == 1 and words[0] in ALONE
    return alone or (len(words) > 1 and words[-1] in NUMBER and not WHOSE.isdisjoint(words))


def _words(name: str) -> list[str]:
    """PatientID, patient_id and patientid are two words."""
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)
    apart = re.sub(rf"(?i)\b({'|'.join(sorted(WHOSE))})id\b", r"\1 id", apart.replace("_", " "))
    return [word.lower() for word in re.split(r"[\W\d]+", apart) if word]


# ------------------------------------------------------------------ by how it repeats


def in_every_row(column: Column) -> bool:
    """Does every row have another whole number? What is measured repeats, or has fractions."""
    try:
        numbers = column.numbers
    except FedauditError:  # told of elsewhere
        return False
    if numbers is None:
        return False
    present = numbers[~column.missing]
    return (
        len(present) > MANY and len(np.unique(present)) == len(present) and bool((present == np.floor(present)).all())
    )


def _repeats(name: str, columns: Mapping[str, Column]) -> bool:
    own = columns[name]
    codes = _repeating(own)
    if codes is None:
        return False
    others = (column for key, column in columns.items() if key != name)
    return any(_goes_with(codes, column.take(~own.missing) if own.missing.any() else column) for column in others)


def _repeating(column: Column) -> Ints | None:
    """The place of each row's value among all values, in order, if they occur as often as ids do; empty cells aside."""
    try:
        numbers = column.numbers
    except FedauditError:  # told of elsewhere
        return None
    cells = (column.coded[1] if numbers is None else numbers)[~column.missing]
    if numbers is not None and not (cells == np.floor(cells)).all():
        return None
    values, codes, counts = np.unique(cells, return_inverse=True, return_counts=True)
    few, most = ROWS
    if len(values) <= MANY or not few * len(values) <= len(codes) <= most * len(values):
        return None
    share, at_most = COMMONEST
    commonest = np.sort(counts)[-int(share * len(values)) :]
    return codes if commonest.sum() <= at_most * len(codes) else None


def _goes_with(codes: Ints, other: Column) -> bool:
    """Are rows of one value alike in the other column, and rows of neighbouring values not?

    Rows are laid out by value. The distance of two that lie side by side is compared with that of any two rows.
    """
    rng = np.random.default_rng(0)
    shuffled = rng.permutation(len(codes))
    by_value = shuffled[np.argsort(codes[shuffled], kind="stable")]
    one_value = np.diff(codes[by_value]) == 0
    steps, any_two = _distances(other, by_value), _distances(other, rng.permutation(len(codes)))
    usual = float(any_two.mean())
    error = float(any_two.std()) / np.sqrt(np.count_nonzero(one_value))
    inside, between = float(steps[one_value].mean()), float(steps[~one_value].mean())
    return inside < ALIKE * usual - SURE * error and between > ALIKE * usual


def _distances(column: Column, order: Ints) -> Floats:
    """Of rows that follow one another: by rank, where the column holds numbers; 0 or 1, where it holds words."""
    try:
        numbers = column.numbers
    except FedauditError:
        numbers = None
    cells = column.coded[1] if numbers is None else numbers
    _, codes, counts = np.unique(cells, return_inverse=True, return_counts=True)
    if numbers is None:
        return np.asarray(np.diff(codes[order]) != 0, np.float64)
    rank = ((np.cumsum(counts) - counts / 2) / len(codes))[codes]
    return np.asarray(np.abs(np.diff(rank[order])))
