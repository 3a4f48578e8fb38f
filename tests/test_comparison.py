"""The page that compares fedaudit with other libraries, from what was measured."""

from benchmarks.measuring import Case
from docs.make_comparison import in_turn


def test_a_ratio_is_the_quotient_of_the_times_beside_it() -> None:
    """Not of a time that was taken beside another peer; and the median of single ratios would be another number."""
    assert in_turn(Case(0.2, 1.0, (2.0, 16.0))) == ("16 s", "8", "2 s")
    assert in_turn(Case(0.2, 1.0, (0.5, 0.25))) == ("250 ms", "0.5", "500 ms")
