"""Makes the figures of docs/what-helps.md.

    python -m docs.make_what_helps demo --out FOLDER [--limit "tpr@0.01 < 0.15"] [--budget 12] [--workers 2]
    python -m docs.make_what_helps held-out --out FOLDER [--data FOLDER] [--workers 2]
    python -m docs.make_what_helps adaptive --out FOLDER
    python -m docs.make_what_helps promises --out FOLDER [--data FOLDER]

`demo` asks `fedaudit advise` about the demo's federation: an hour or two of two cores. `held-out` compares the search
with a list of single changes, those that advice tried before there was a search, on five federations that it was not
built on, with as many rounds: some twenty minutes. Both go on where they stopped. `adaptive` attacks three defended
federations with the usual settings and with those that follow from the defence: some ten minutes. `promises` tunes
DP-SGD on 60,000 digits, and tells what a promise costs there: some twenty minutes.
"""

import argparse
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from fedaudit.cli.auditing import write_advice
from fedaudit.config.schema import Config, parse
from fedaudit.results.advice import Advice, Risk, Tried, frontier, right
from fedaudit.results.document import Document, load
from fedaudit.results.gate import parse_limit
from fedaudit.session.advise import ASKED, advise, looking_at
from fedaudit.session.levers import Change, levers
from fedaudit.session.run import run
from fedaudit.session.search import Contender, LeverSearch, most_rounds, rungs
from fedaudit.session.trials import Bench
from fedaudit.stats.wording import NONE, full_text, point_text

# ------------------------------------------------------------------ the demo's federation


def demo(out: Path, text: str, budget: float, workers: int) -> None:
    limit = parse_limit(text)
    out.mkdir(parents=True, exist_ok=True)

    def progress(what: str, steps: int) -> Any:
        done = iter(range(1, 10**9))
        return nullcontext(lambda: print(f"{what}: {next(done)} of at most {steps} rounds", flush=True))

    advice, advised = advise(parse({"advise": {"budget": budget}}), limit, out, workers, progress, print)
    write_advice(advice, advised, out)
    say(advice, limit.metric)


def say(advice: Advice, metric: str) -> None:
    print("| change | rounds | risk | by | accuracy | |\n|---|---|---|---|---|---|")
    best = frontier(advice.tried)
    for one in advice.tried:
        correct, mark = full_text("accuracy", one.accuracy), "on the frontier" if one.name in best else ""
        by = one.risk.attack if one.risk else one.status
        print(f"| {one.name} | {one.rounds} | {span(one.risk, metric)} | {by} | {correct} | {mark} |")
    for again in advice.confirmed:
        print(f"\n{again.name} ({', '.join(again.points)}), seed {again.seed}: {again.verdict}")
        told = {
            "largest": again.risk,
            "same attack before": again.risk_before,
            "largest before": again.largest_before,
            "by any attack": again.strongest,
            "without secure aggregation": again.unmasked,
        }
        for what, risk in told.items():
            print(f"- {what}: {span(risk, metric)}{f', {risk.whose}' if risk else ''}")
        for what, estimate in again.estimates.items():
            print(f"- {what}: {full_text('accuracy', estimate)}")
    print("\n" + "\n".join(advice.sentences))
    print(f"\ncost: {advice.cost} audits of the federation as it is")


def span(risk: Risk | None, metric: str) -> str:
    return NONE if risk is None else point_text(metric, risk.value, risk.low, risk.high)


# ------------------------------------------------------------------ other federations, search and list

LISTED = (
    "DP-SGD, noise 0.3", "DP-SGD, noise 1", "DP-SGD, noise 3", "subject-level DP", "user-level DP", "clipping",
    "weight decay", "dropout", "one local epoch", "frozen first layer", "2 larger parties",
)  # fmt: skip
SMALL: dict[str, Any] = {
    "parties": 4,
    "rounds": 12,
    "local_epochs": 2,
    "batch_size": 16,
    "members": 0.3,
    "nonmembers": 0.3,
}


def federations(data: Path) -> dict[str, Callable[[], Config]]:
    def of(given: dict[str, Any], **model: Any) -> Callable[[], Config]:
        return lambda: looking_at(
            parse({"data": given, "federation": SMALL, "model": model, "audit": {"fpr": [0.1]}}), ASKED, None
        )

    return {
        "digits": of({"name": "digits"}, hidden=[128, 64]),
        "Adult, 2,000 people": of({"name": "adult", "path": str(data / "adult.npz"), "limit": 2000}, hidden=[64]),
        "breast cancer": of({"name": "breast-cancer"}, hidden=[64, 32]),
        "MNIST, 2,000 pictures": of({"name": "mnist", "path": str(data / "mnist.npz"), "limit": 2000}, hidden=[64]),
        "HAPT, 2,000 windows": of({"name": "hapt", "path": str(data / "hapt_windows.npz"), "limit": 2000}, hidden=[64]),
    }


def held_out(out: Path, data: Path, workers: int) -> None:
    limit = parse_limit("auc < 0.6")
    print("| federation | rounds | area, search | area, list | as it is: AUC, accuracy |\n|---|---|---|---|---|")
    for name, made in federations(data).items():
        config = made()
        found = levers(config)
        masking = [change for lever in found if lever.name == "masking" for change in lever.positions]
        others = [lever for lever in found if lever.name != "masking"]
        bench = Bench(out / name.partition(",")[0].replace(" ", "-"), workers, lambda: None, lambda _: None)
        single = {change.name: (lever.name, change) for lever in others for change in lever.positions}
        wanted: list[dict[str, Change]] = [{}, *({single[n][0]: single[n][1]} for n in LISTED if n in single)]
        listed = LeverSearch(config, others, limit, always=masking, places=len(wanted))
        search = LeverSearch(config, others, limit, always=masking, places=len(wanted))
        first = rungs(config)[0]
        by_list = listed.promoted(bench, listed.trained(bench, [listed.contender(bench, m) for m in wanted], first))
        by_search = search.run(bench)
        areas = [area(points(field, config)) for field in (by_search, by_list)]
        base = by_list[0].last
        told = f"{base.risk.value if base.risk else float('nan'):.3f}, {right(base):.3f}"
        spent = most_rounds(len(wanted), rungs(config))
        print(f"| {name} | {spent} | {areas[0]:.3f} | {areas[1]:.3f} | {told} |", flush=True)


def points(field: Sequence[Contender], config: Config) -> list[Tried]:
    return [look for one in field for look in one.told(config.federation.rounds) if look.risk]


def area(looks: Sequence[Tried]) -> float:
    """Between accuracy 0 and AUC 1, the area that is beaten by somebody: the larger, the better the frontier."""
    corners = sorted(((right(look), min(1.0, look.risk.value)) for look in looks if look.risk), reverse=True)
    total, lowest = 0.0, 1.0
    for accuracy, risk in corners:
        total += accuracy * max(0.0, lowest - max(0.5, risk))
        lowest = min(lowest, max(0.5, risk))
    return total


# ------------------------------------------------------------------ adversaries that know of the defence

USUAL = ("matched-filter+damping=0.1", "unmix+damping=1+ridge=0.1")
KNOWING = ("matched-filter", "matched-filter+layer=all", "unmix")
DEFENDED: dict[str, dict[str, Any]] = {
    "128, SGD 0.3, noise of 5 norms": {
        "model": {"hidden": [128]},
        "federation": {"optimizer": "sgd", "lr": 0.3},
        "defences": [{"name": "update-noise", "strength": 5.0}],
    },
    "64": {"model": {"hidden": [64]}},
    "128, updates of rank 4": {"model": {"hidden": [128]}, "defences": [{"name": "update-rank", "rank": 4}]},
}


def adaptive(out: Path) -> None:
    """Ten rounds of the demo's federation with the seed of the confirming runs; what global models give away."""
    print("| federation | accuracy | attack | found at 1 % FPR |\n|---|---|---|---|")
    for place, (name, raw) in enumerate(DEFENDED.items()):
        federation = raw.get("federation", {}) | {"rounds": 10, "seed": 1}
        asked = {"attacks": [*USUAL, *KNOWING], "vantages": ["client"], "fpr": [0.01]}
        document = audited(raw | {"federation": federation, "audit": asked}, out / f"adaptive-{place}")
        told = full_text("accuracy", document.accuracy)
        for result in document.results:
            if result.party is None and result.attack != "blind":
                found = full_text("tpr@0.01", result.estimates["tpr@0.01"])
                print(f"| {name} | {told} | {result.attack} | {found} |", flush=True)


def audited(raw: dict[str, Any], folder: Path) -> Document:
    run(parse(raw), folder, lambda *_: nullcontext(lambda: None), tell=lambda _: None)
    return load(folder)


# ------------------------------------------------------------------ a federation in which a promise is affordable

EPSILONS, DP_RATES, TUNED_WITH, SEEDS = (None, 1000.0, 50.0, 8.0), (0.3, 1.0, 3.0), 100, (0, 1, 2)


def promises(out: Path, data: Path) -> None:
    """MNIST of 60,000: ten parties, a linear model, 20 rounds. Rates are tuned by accuracy, with another seed."""
    print("| epsilon | rate | seed | accuracy | strongest, any party | strongest, server |\n|---|---|---|---|---|---|")
    for epsilon in EPSILONS:
        tuned = {}
        for rate in DP_RATES:
            known = audited(digits(data, epsilon, rate, TUNED_WITH, ["loss"]), out / f"tune-{epsilon}-{rate}").accuracy
            tuned[rate] = known.value or 0.0 if known else 0.0
        best = max(tuned, key=lambda rate: tuned[rate])
        for seed in SEEDS:
            document = audited(
                digits(data, epsilon, best, seed, ["loss", "matched-filter"]), out / f"dp-{epsilon}-{seed}"
            )
            found = [
                max((r.estimates["tpr@0.01"] for r in document.results if r.party is None and r.model == model),
                    key=lambda e: e.value or 0.0)
                for model in ("global", "local")
            ]  # fmt: skip
            told = [full_text("accuracy", document.accuracy), *(full_text("tpr@0.01", e) for e in found)]
            print(f"| {epsilon or 'none'} | {best:g} | {seed} | {' | '.join(told)} |", flush=True)


def digits(data: Path, epsilon: float | None, rate: float, seed: int, attacks: list[str]) -> dict[str, Any]:
    private = {"name": "dp-sgd", "epsilon": epsilon, "delta": 1e-5, "clip": 1.0}
    return {
        "data": {"name": "mnist", "path": str(data / "mnist.npz")},
        "federation": {
            "parties": 10, "members": 0.8, "nonmembers": 0.1, "rounds": 20, "batch_size": 512,
            "optimizer": "sgd", "lr": rate, "seed": seed,
        },
        "model": {"name": "linear"},
        "defences": [private] if epsilon else [],
        "audit": {"attacks": attacks, "fpr": [0.01]},
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["demo", "held-out", "adaptive", "promises"])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--limit", default="tpr@0.01 < 0.15")
    parser.add_argument("--budget", type=float, default=12.0)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    if asked.what == "demo":
        demo(asked.out, asked.limit, asked.budget, asked.workers)
    elif asked.what == "held-out":
        held_out(asked.out, asked.data, asked.workers)
    elif asked.what == "adaptive":
        adaptive(asked.out)
    else:
        promises(asked.out, asked.data)


if __name__ == "__main__":
    main()
