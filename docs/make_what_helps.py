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
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedaudit.cli.auditing import write_advice
from fedaudit.config.schema import Config, parse
from fedaudit.results.advice import Advice, Risk, Tried, frontier, right
from fedaudit.results.compare import risk_difference
from fedaudit.results.document import Document, load
from fedaudit.results.gate import judge, parse_limit
from fedaudit.session.advise import ASKED, advise, looking_at
from fedaudit.session.levers import MASKING, Change, levers
from fedaudit.session.run import run
from fedaudit.session.search import Contender, LeverSearch, rungs, worst
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
    print(
        "| federation | rounds: search, list | area: search | list | unchanged: AUC, accuracy |\n|---|---|---|---|---|"
    )
    for name, made in federations(data).items():
        config = made()
        found = levers(config)
        masking = [change for lever in found if lever.name == MASKING for change in lever.positions]
        others = [lever for lever in found if lever.name != MASKING]
        bench = Bench(out / name.partition(",")[0].replace(" ", "-"), workers, lambda: None, lambda _: None)
        single = {change.name: (lever.name, change) for lever in others for change in lever.positions}
        wanted: list[dict[str, Change]] = [{}, *({single[n][0]: single[n][1]} for n in LISTED if n in single)]
        listed = LeverSearch(config, others, limit, always=masking, places=len(wanted))
        begun = listed.trained(bench, [listed.contender(bench, moved) for moved in wanted], rungs(config)[0])
        fitting = [one for one in begun if not one.unfit]  # as many as the search may begin
        by_list = replace(listed, places=len(fitting)).promoted(bench, fitting)
        by_search = replace(listed, places=len(fitting)).run(bench)
        fields = (by_search, by_list)
        areas = " | ".join(f"{area(points(field, config)):.3f}" for field in fields)
        spent = " / ".join(str(sum(one.last.rounds for one in field if one.looks)) for field in fields)
        base = by_list[0].last
        told = f"{base.risk.value if base.risk else float('nan'):.3f}, {right(base):.3f}"
        print(f"| {name} | {spent} | {areas} | {told} |", flush=True)


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

UNKNOWING = {"matched-filter": "matched-filter+damping=0.1", "unmix": "unmix+damping=1+ridge=0.1"}
DEFENDED: dict[str, dict[str, Any]] = {
    "128, SGD 0.3, noise of 5 norms": {
        "model": {"hidden": [128]},
        "federation": {"optimizer": "sgd", "lr": 0.3},
        "defences": [{"name": "update-noise", "strength": 5.0}],
    },
    "128, updates of rank 4": {"model": {"hidden": [128]}, "defences": [{"name": "update-rank", "rank": 4}]},
}


def adaptive(out: Path) -> None:
    """Ten rounds of the demo's federation with the seed of the confirming runs; what global models give away."""
    print("| federation | attack | as usual | set for the defence | gain, paired |\n|---|---|---|---|---|")
    for place, (name, raw) in enumerate(DEFENDED.items()):
        federation = raw.get("federation", {}) | {"rounds": 10, "seed": 1}
        asked = {"attacks": [*UNKNOWING, *UNKNOWING.values()], "vantages": ["client"], "fpr": [0.01]}
        folder = out / f"adaptive-{place}"
        found = audited(raw | {"federation": federation, "audit": asked}, folder).results
        pooled = {result.attack: result for result in found if result.party is None}
        for attack, unknowing in UNKNOWING.items():
            before, after = pooled[unknowing], pooled[attack]
            told = [full_text("tpr@0.01", one.estimates["tpr@0.01"]) for one in (before, after)]
            gain = risk_difference((folder, after), (folder, before), "tpr@0.01")
            shown = full_text("tpr@0.01", gain) if gain else NONE
            print(f"| {name} | {attack} | {' | '.join(told)} | {shown} |", flush=True)


def audited(raw: dict[str, Any], folder: Path) -> Document:
    run(parse(raw), folder, lambda *_: nullcontext(lambda: None), tell=lambda _: None)
    return load(folder)


# ------------------------------------------------------------------ a federation in which a promise is affordable

EPSILONS, DP_RATES, TUNED_WITH, SEEDS = (None, 100.0, 50.0, 8.0), (0.3, 1.0, 3.0), 100, (0, 1, 2)


def promises(out: Path, data: Path) -> None:
    """MNIST of 60,000: ten parties, a linear model, 10 rounds. Rates are tuned by accuracy, with another seed."""
    print("| epsilon | rate | seed | accuracy | strongest, any party | strongest, server |\n|---|---|---|---|---|---|")
    for epsilon in EPSILONS:
        tuned = {}
        for rate in DP_RATES:
            known = audited(digits(data, epsilon, rate, TUNED_WITH, ["loss"]), out / f"tune-{epsilon}-{rate}").accuracy
            tuned[rate] = known.value or 0.0 if known else 0.0
        best = max(tuned, key=lambda rate: tuned[rate])
        for seed in SEEDS:
            folder = out / f"dp-{epsilon}-{seed}"
            document = audited(digits(data, epsilon, best, seed, ["loss", "matched-filter"]), folder)
            gate = judge(folder, [parse_limit("tpr@0.01 < 0.02")])
            found = [
                worst(replace(gate, findings=[f for f in gate.findings if f.model == model]))
                for model in ("global", "local")
            ]
            told = [full_text("accuracy", document.accuracy), *(span(risk, "tpr@0.01") for risk in found)]
            print(f"| {epsilon or 'none'} | {best:g} | {seed} | {' | '.join(told)} |", flush=True)


def digits(data: Path, epsilon: float | None, rate: float, seed: int, attacks: list[str]) -> dict[str, Any]:
    private = {"name": "dp-sgd", "epsilon": epsilon, "delta": 1e-5, "clip": 1.0}
    return {
        "data": {"name": "mnist", "path": str(data / "mnist.npz")},
        "federation": {
            "parties": 10, "members": 0.8, "nonmembers": 0.1, "rounds": 10, "batch_size": 512,
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
