"""The page that compares fedaudit with other libraries, from what was measured."""

from benchmarks.measuring import Case
from docs.make_comparison import in_turn, page


def test_a_ratio_is_the_quotient_of_the_times_beside_it() -> None:
    """Not of a time that was taken beside another peer; and the median of single ratios would be another number."""
    assert in_turn(Case(0.2, 1.0, (2.0, 16.0))) == ("16 s", "8", "2 s")
    assert in_turn(Case(0.2, 1.0, (0.5, 0.25))) == ("250 ms", "0.5", "500 ms")


def test_rows_that_were_kept_with_fewer_columns_are_shown() -> None:
    told = {"versions": "opacus 1.6.0", "missing": [], "threads": 2, "load": 1.0}
    rows = [["fedaudit", "its own batches", "1.36 s", "1"], ["Opacus", "hooks", "17.1 s", "8.26", "2.07 s"]]
    lines = page({"dp-sgd": {"rows": rows, **told}}).splitlines()
    head = lines.index("| | settings | time | times ours | ours, in turn with it |")
    assert lines[head + 2 : head + 4] == [
        "| fedaudit | its own batches | 1.36 s | 1 |  |",
        "| Opacus | hooks | 17.1 s | 8.26 | 2.07 s |",
    ]
