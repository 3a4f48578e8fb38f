"""Makes docs/coverage.md: how often every interval that the tool prints misses the truth, in simulated audits.

    python -m docs.make_coverage                 # all cases, about fifteen minutes on one core; also `make coverage`
    python -m docs.make_coverage --only bands    # the cases whose heading or name contains this; the others stay
    python -m docs.make_coverage --page          # only write the page again

The counts are kept in docs/coverage.json, and the page is made from them. Each case has its own seed, so that it comes
out the same whichever others are made with it.
"""

import argparse
import json
import math
import time
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import special

from docs.coverage_cases import CASES, Case

HERE = Path(__file__).parent
COUNTS, PAGE = HERE / "coverage.json", HERE / "coverage.md"
ERROR = 0.05  # of the whole page: shared equally among all intervals that promise something

HEAD = """# Do the intervals hold?

Every interval that fedaudit prints, in simulated audits whose true values are known: how often it misses, and how wide
it is. The simulations call the functions that the tool itself calls. Made by `make coverage` (`docs/make_coverage.py`;
the worlds are in `docs/coverage_worlds.py`, the cases in `docs/coverage_cases.py`). `tests/stats/test_coverage.py`
repeats a part of it with fewer worlds.

- **nominal**: how often the interval may miss. **misses**: how often it did, in per cent of the worlds in which there
  was a value; *low* and *high* are the worlds in which the interval lies below and above the truth.
- **width**: the mean over worlds. Lower bounds have none; their mean is given in place of it.
- **verdict**: *holds*, or *fails* where so many misses have a chance of less than {share:.2g} if the interval keeps
  its promise: 5 %, shared among the {promised} intervals of this page that promise something. *No promise*: shown to
  say what the interval is not for.
- **no value**: worlds in which the function refused to give one, because there were too few independent records.
"""

NOTES = {
    "TPR at 1 % FPR: the sizes of a common audit": (
        "`interval` is what reports quote (`low`, `high`); `guaranteed` is what `gate` and every proved claim use. "
        '"4 x 1025" means four parties with a threshold each, set on 1025 calibration records.'
    ),
    "TPR at 1 % FPR: small and unequal parties": (
        "Parties with so many calibration records, most of them fewer than the 99 that a threshold needs at 1 %. "
        "None is left out: a coin decides about the fraction of a rank that they have, so that they accuse 1 % of "
        "the non-members as all others do. The value is then too low, the more so the smaller the parties are, "
        "and the interval is wide. Leaving them out would put the upper end below the truth in "
        "89 % of the first of these worlds."
    ),
    "TPR at 1 % FPR: a few people who are extreme": (
        "A share of all people, members or not, has all records above all others. If none of them is among those who "
        "calibrate, no clustering can be measured. The guaranteed ends count people and not records, and hold; the "
        "quoted interval, which counts records by the clustering that is measured, does not."
    ),
    "TPR: all members at the threshold, or a corner of the ROC curve there": (
        "The quoted interval counts on the errors of several thresholds to average out. Where all members of every "
        "party lie just beside the threshold they do not, and the interval is wrong nearly always. The guaranteed ends "
        "hold. With one party the quoted interval is not exact either: at a corner of the ROC curve, which scores of "
        "two values also have, it misses more often than it may, up to 9 %. Where a verdict depends on "
        "it, use the guaranteed ends."
    ),
    "TPR at 1 % FPR: several records of one subject": (
        "The share is that of a score's variance which belongs to the subject (intra-subject correlation). The "
        "guaranteed ends count people: 2,000 records, nine a person, are 222 people, and a lower end above 0 takes 437."
    ),
    "AUC: a few records carry the error": (
        "Nearly all members lie above nearly all outsiders, and the few that do not may be missing from the sample. "
        "Where people have several records, the guaranteed ends count people, in proportion to what they tell."
    ),
    "Bands over rounds (a miss is one round or more outside)": (
        '`band` is what reports draw, and what "since round r" rests on. `equal shares` gives each round an equal part '
        "of the error, which holds without a look at how rounds err together; limits that stop a party use it."
    ),
    "Mean over training runs": (
        "Runs on records of their own, on one and the same set, or on one set whose roles are dealt again in each run, "
        "as `--repeats` and seeds of a study do. `over runs` is what is printed: the spread over runs, and that part "
        "of the measuring error which the runs have in common, by what each record or person adds to it. "
        "`not known whose` is printed where the scores are not at hand: all of the error counts as common. Beside them "
        "stands how often the spread alone (`Student's t`), and a single run's interval, which is about that run, "
        "would miss the mean."
    ),
    "Epsilon: lower bounds and model-based intervals": (
        "`proved` bounds are one-sided: they miss when they lie above the true epsilon. The maximised figure is a "
        "heuristic, and is labelled so wherever it is printed."
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Count:
    """One interval in all worlds of a case."""

    group: str
    case: str
    interval: str
    worlds: int
    valued: int
    above: int  # the interval lies above the truth
    below: int
    width: float
    low: float
    nominal: float
    promised: bool

    @property
    def misses(self) -> int:
        """Bands may lie above the truth in one round and below it in another; both are counted here."""
        return self.above + self.below

    @property
    def chance(self) -> float:
        """Of at least so many misses, if the interval misses as often as it may."""
        return float(special.bdtrc(self.misses - 1, self.valued, self.nominal)) if self.misses else 1.0


def simulate(case: Case, worlds: int | None = None) -> list[Count]:
    """All intervals of a case, each counted over the same worlds."""
    rng = np.random.default_rng(zlib.crc32(f"{case.group}|{case.name}".encode()))
    total = worlds or case.worlds
    found: dict[str, list[tuple[bool, bool, float, float]]] = {}
    for _ in range(total):
        for name, shot in case.world(rng).items():
            found.setdefault(name, []).append((*shot.missed, shot.width, float(np.mean(shot.low))))
    counts = []
    for name, seen in found.items():
        above, below, width, low = (float(part) for part in np.array(seen, float).mean(axis=0))
        n = len(seen)
        counts.append(
            Count(case.group, case.name, name, total, n, round(above * n), round(below * n), width, low,
                  case.nominal, name in case.promised)
        )  # fmt: skip
    return counts


def stored() -> list[Count]:
    """The counts of docs/coverage.json. A width that is not finite, that of a lower bound, is null there. What an
    interval promises is said by its case, not by the file."""
    entries: list[dict[str, Any]] = json.loads(COUNTS.read_text()) if COUNTS.is_file() else []
    promised = {(case.group, case.name): case.promised for case in CASES}
    found = []
    for entry in entries:
        values: dict[str, Any] = {key: math.inf if value is None else value for key, value in entry.items()}
        values["promised"] = entry["interval"] in promised.get((entry["group"], entry["case"]), ())
        found.append(Count(**values))
    return found


def level(counts: Sequence[Count]) -> float:
    return ERROR / max(sum(count.promised for count in counts), 1)


def page(counts: Sequence[Count]) -> str:
    share = level(counts)
    failing = [count for count in counts if count.promised and count.chance < share]
    promised = sum(count.promised for count in counts)
    parts = [HEAD.format(share=share, promised=promised), _summary(counts, failing), *_absent(counts)]
    for group in dict.fromkeys(count.group for count in counts):
        parts += [f"## {group}\n", *([NOTES[group] + "\n"] if group in NOTES else []), _table(group, counts, share)]
    return "\n".join(parts)


def _absent(counts: Sequence[Count]) -> list[str]:
    """Cases that have no counts, by their headings: nothing is said of them."""
    made = {(count.group, count.case) for count in counts}
    absent = [case for case in CASES if (case.group, case.name) not in made]
    told = [
        f"- {group}: {'; '.join(case.name for case in absent if case.group == group)}."
        for group in dict.fromkeys(case.group for case in absent)
    ]
    return (
        ["\n".join(["**Cases that are not simulated on this page yet** (`make coverage`):\n", *told, ""])]
        if told
        else []
    )


def _summary(counts: Sequence[Count], failing: Sequence[Count]) -> str:
    if not failing:
        return f"Every one of the {sum(c.promised for c in counts)} intervals that promise something holds.\n"
    told = [f"- {c.group}: {c.case}, {c.interval}: {_per_cent(c.misses, c.valued)} misses." for c in failing]
    return "\n".join(["**Where a promise is not kept:**\n", *told, ""])


def _table(group: str, counts: Sequence[Count], share: float) -> str:
    lines = ["| case | interval | worlds | no value | nominal | misses | low | high | width | verdict |",
             "|---|---|---:|---:|---:|---:|---:|---:|---:|---|"]  # fmt: skip
    for count in (count for count in counts if count.group == group):
        verdict = "no promise" if not count.promised else "**fails**" if count.chance < share else "holds"
        width = f"{count.width:.3f}" if np.isfinite(count.width) else f"from {count.low:.2f}"
        cells = (
            count.case, count.interval, f"{count.worlds:,}", f"{count.worlds - count.valued:,}",
            f"{100 * count.nominal:g} %", _per_cent(count.misses, count.valued), _per_cent(count.below, count.valued),
            _per_cent(count.above, count.valued), width, verdict,
        )  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _per_cent(part: int, whole: int) -> str:
    return f"{100 * part / max(whole, 1):.1f} %"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Makes docs/coverage.md.")
    parser.add_argument("--only", default="", help="make only the cases whose heading or name contains this")
    parser.add_argument("--page", action="store_true", help="simulate nothing, write the page from coverage.json")
    parser.add_argument("--worlds", type=int, help="so many in every case, instead of 1000 or 2000")
    asked = parser.parse_args(arguments)
    known = stored()
    by_case = {case: [c for c in known if (c.group, c.case) == (case.group, case.name)] for case in CASES}
    wanted = [] if asked.page else [c for c in CASES if asked.only.lower() in f"{c.group}: {c.name}".lower()]
    for case in wanted:
        start = time.perf_counter()
        by_case[case] = simulate(case, asked.worlds)
        for count in by_case[case]:
            told = (
                f"{count.interval}: {_per_cent(count.misses, count.valued)} of {count.valued}, width {count.width:.3f}"
            )
            print(f"{case.group}: {case.name}: {told}  ({time.perf_counter() - start:.1f} s)", flush=True)
        counts = [count for found in by_case.values() for count in found]
        plain = [{k: None if v == np.inf else v for k, v in asdict(count).items()} for count in counts]
        COUNTS.write_text(json.dumps(plain, indent=1, allow_nan=False) + "\n")
    PAGE.write_text(page([count for found in by_case.values() for count in found]))


if __name__ == "__main__":
    main()
