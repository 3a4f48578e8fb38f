"""Makes the differences that docs quote where one attack is said to find more than another: on the same records, with
intervals of the difference, from the stored scores of runs.

    python docs/make_differences.py FOLDER... --attack fusion --against gradient-cosine fta-confidence loss
"""

import argparse
from pathlib import Path

from fedaudit.results.scores import blocks_of, load_scores
from fedaudit.stats import tpr_difference

FPR = 0.01


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="+", help="folders written by fedaudit run or demo")
    parser.add_argument("--attack", required=True)
    parser.add_argument("--against", nargs="+", required=True, help="the others; they share the error")
    parser.add_argument("--model", choices=["local", "global"], default="local")
    given = parser.parse_args()
    print(f"| {given.attack} minus | " + " | ".join(run.name for run in given.runs) + " |")
    print("|---" * (1 + len(given.runs)) + "|")
    rows: dict[str, list[str]] = {other: [] for other in given.against}
    for run in given.runs:
        scores = load_scores(run)
        if scores is None:
            parser.error(f"{run} has no scores.parquet")
        own = blocks_of(scores, given.attack, given.model)
        for other, cells in rows.items():
            theirs = blocks_of(scores, other, given.model)
            gap = tpr_difference(own, theirs, FPR, 1 - 0.05 / len(rows))
            value, low, high = (100 * (end or 0.0) for end in (gap.value, gap.low, gap.high))
            cells.append(f"{value:+.1f} ({low:+.1f} to {high:+.1f})")
    for other, cells in rows.items():
        print(f"| {other} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
