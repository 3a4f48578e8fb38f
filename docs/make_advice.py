"""Makes the figures of docs/studies.md: what `fedaudit advise` says about the demo's federation.

    python docs/make_advice.py --out FOLDER [--limit "tpr@0.01 < 0.05"] [--workers 2]

Leaves advice.json, advice.html and advised.toml in the folder and prints the tables of the page. Started again, it goes
on where it stopped. With another limit and the same folder, runs that were made before are not made again; what the
search cost counts them.
"""

import argparse
from pathlib import Path

from fedaudit.cli.auditing import write_advice
from fedaudit.config.schema import parse
from fedaudit.results.advice import Advice, Risk, frontier
from fedaudit.results.gate import parse_limit
from fedaudit.session.advise import advise
from fedaudit.stats.wording import NONE, full_text, point_text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--limit", default="tpr@0.01 < 0.05")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--set", action="append", default=[], help="as for `fedaudit advise`")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    limit = parse_limit(given.limit)

    def progress(what: str, steps: int) -> "Counted":
        return Counted(what, steps)

    advice, advised = advise(parse({}, given.set), limit, given.out, given.workers, progress, print)
    write_advice(advice, advised, given.out)
    say(advice, limit.metric)


class Counted:
    """Progress in lines, for a log."""

    def __init__(self, what: str, steps: int):
        self.what, self.steps, self.done = what, steps, 0

    def __enter__(self) -> "Counted":
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def __call__(self) -> None:
        self.done += 1
        if self.done % 20 == 0:
            print(f"{self.what}: {self.done} of at most {self.steps} rounds", flush=True)


def say(advice: Advice, metric: str) -> None:
    print("| change | rounds | risk so far | accuracy so far | what became of it |\n|---|---|---|---|---|")
    best = frontier(advice.tried)
    for one in advice.tried:
        right, mark = full_text("accuracy", one.accuracy), ", on the frontier" if one.name in best else ""
        print(f"| {one.name} | {one.rounds} of {one.of} | {span(one.risk, metric)} | {right} | {one.status}{mark} |")
    for again in advice.confirmed:
        print(f"\n{again.name}, seed {again.seed}; verdict of the gate: {again.verdict}")
        told = {
            "largest": again.risk,
            "same attack before": again.risk_before,
            "largest before": again.largest_before,
            "by any attack": again.strongest,
        }
        for what, risk in told.items():
            print(f"- {what}: {span(risk, metric)}{f', {risk.whose}' if risk else ''}")
    print("\n" + "\n".join(advice.sentences))
    print(f"\ncost: {advice.cost} audits of the federation as it is")


def span(risk: Risk | None, metric: str) -> str:
    return NONE if risk is None else point_text(metric, risk.value, risk.low, risk.high)


if __name__ == "__main__":
    main()
