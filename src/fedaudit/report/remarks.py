"""What must be said beside the figures, in the order of what a reader has to do about it.

1. Why the figures may be too small (people on both sides, twins), and what is missing from the audit.
2. The other warnings.
3. What could not be measured, and what it would take.
4. The rest.

What cannot be told from an update answers a question that nobody asked: it has its place on the page alone.
"""

from collections.abc import Sequence

from fedaudit.report import words
from fedaudit.report.values import Results

AT_ONCE = 3  # lines in a terminal
UNVOUCHED = ("no-checksum",)  # about the file itself
NEEDS_MORE = ("few-to-calibrate", "fpr-left-out", "no-estimate")
ON_THE_PAGE = ("update-cannot-tell", "update-leaves", "update-none-absent")


def ranked(results: Results) -> list[tuple[str, bool]]:
    """Every warning and notice, once, and whether it has its place on the page alone."""
    notices = [(one.code, said) for one, said in results.said()]

    def of(codes: Sequence[str]) -> list[str]:
        return [said for code in codes for one, said in notices if one == code]

    warned = words.warnings(results)
    first = [said for said in warned if said.startswith((*results.understates, *results.degraded))]
    page = of(ON_THE_PAGE)
    rest = [said for code, said in notices if said not in page and code not in words.NOT_ASKED_ABOUT]
    rest += of(words.NOT_ASKED_ABOUT)  # said before the findings
    shown = dict.fromkeys([*first, *of(UNVOUCHED), *warned, *of(NEEDS_MORE), *rest])
    return [*((said, False) for said in shown), *((said, True) for said in dict.fromkeys(page))]


def at_once(results: Results) -> tuple[Sequence[str], int]:
    """What a terminal shows, and how many more there are."""
    every = ranked(results)
    shown = [said for said, on_the_page in every if not on_the_page][:AT_ONCE]
    return shown, len(every) - len(shown)
