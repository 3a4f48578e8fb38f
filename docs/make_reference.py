"""Makes the figures of docs/reference.md, all on `baskets`.

python -m docs.make_reference plots
    KTA against alpha, and against the number of reference models: one party audits the global models with its own
    bank. About fifteen minutes on one core.
python -m docs.make_reference seeds --out FOLDER [--models 16] [--seeds 3]
    Four parties do, and their results are pooled. Finished runs in FOLDER are read, others go on.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from docs.make_reproduction import silent
from fedaudit.adversary.attacks.reference import KTA
from fedaudit.adversary.shadow import References
from fedaudit.adversary.vantage import look
from fedaudit.audit.collect import Sight
from fedaudit.config.schema import parse
from fedaudit.files import write_atomically
from fedaudit.session.prepare import prepare
from fedaudit.session.run import rounds, run
from fedaudit.stats import Block, tpr_at_fpr
from fedaudit.types import Estimate, Role, Vantage

ALPHAS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
COUNTS = (4, 8, 12, 16)
COMPARED = ["kta-confidence", "kta-logit", "kta-loss", "rmia", "rmia-slope", "lira", "fta-confidence", "loss"]
ATTACKS = {"kta-confidence": KTA(), "kta-logit": KTA(signal="logit")}
FPR = 0.01
HERE = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["plots", "seeds"])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--out", type=Path, default=Path("runs/reference"))
    parser.add_argument("--models", type=int, default=16)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    federation = {"rounds": given.rounds, "split_subjects": True}
    if given.what == "plots":
        plots(federation)
    else:
        seeds(federation, given.out, given.models, given.seeds)


def seeds(federation: dict[str, Any], out: Path, models: int, count: int) -> None:
    """A line for each attack: TPR with its guaranteed ends for each seed, the mean, and the AUC of each."""
    asked = {"vantages": ["client"], "attacks": COMPARED, "reference": {"models": models}, "fpr": [FPR]}
    found: dict[str, list[Mapping[str, Estimate]]] = {}
    for seed in range(count):
        config = parse({"federation": federation | {"seed": seed}, "audit": asked})
        for result in run(config, out / f"{models}-{seed}", silent, tell=print).results:
            if result.party is None and result.attack in COMPARED:
                found.setdefault(result.attack, []).append(result.estimates)
    for attack, each in found.items():
        rates = [estimates[f"tpr@{FPR}"] for estimates in each]
        told = [f"{100 * (rate.value or 0):.1f} ({ends(rate)})" for rate in rates]
        mean = np.mean([100 * (rate.value or 0) for rate in rates])
        aucs = [f"{estimates['auc'].value:.3f}" for estimates in each]
        print(f"| {attack} | {' | '.join(told)} | {mean:.1f} | AUC {', '.join(aucs)} |")


def ends(rate: Estimate) -> str:
    low, high = rate.guaranteed or (rate.low, rate.high)
    return f"{100 * (low or 0):.1f}–{100 * (high or 0):.1f}"


def plots(federation: dict[str, Any]) -> None:
    prepared = prepare(parse({"federation": federation}))
    task = prepared.task
    views = [view for round in rounds(prepared) for view in look(Vantage.CLIENT, "global", round, task)]
    index = prepared.game.candidates.of_party(prepared.game.parties[0])

    def watched(alpha: float, models: int) -> Sight:
        references = prepared.settings.references
        assert references is not None
        bank = References(models=models, alpha=alpha, training=references.training, seed=references.seed)
        settings = replace(prepared.settings, references=bank)
        sight = Sight(
            model="global",
            index=index,
            game=prepared.game,
            attacks=list(ATTACKS.values()),
            settings=settings,
            task=task,
        )
        for view in views:
            sight.absorb(view.moment, sight.measure(view, 0.0, last=False), stored=False)
        return sight

    by_alpha: dict[str, list[Estimate]] = {name: [] for name in ATTACKS}
    by_count: dict[str, list[Estimate]] = {name: [] for name in ATTACKS}
    for alpha in ALPHAS:
        sight = watched(alpha, 16 if alpha == 0.8 else 8)
        for name in ATTACKS:
            by_alpha[name].append(estimate(sight, name, 8))
            if alpha == 0.8:
                by_count[name] = [estimate(sight, name, count) for count in COUNTS]
        print(alpha, {name: found[-1].value for name, found in by_alpha.items()}, flush=True)
    draw("reference-alpha.svg", "alpha: how much of the target's answer is in the labels", ALPHAS, by_alpha)
    draw("reference-models.svg", "reference models", COUNTS, by_count)


def estimate(sight: Sight, name: str, count: int) -> Estimate:
    """With the first `count` models of the bank only: whole pairs, so that every record is still in half of them."""
    features = sight.reductions[name].features()
    models = (features.shape[1] - 1) // 2
    chosen = np.r_[0, 1 : 1 + count, 1 + models : 1 + models + count]
    scores = ATTACKS[name].score(features[:, chosen])
    sets = [scores[sight.role == role.value] for role in (Role.MEMBER, Role.EVALUATION, Role.CALIBRATION)]
    assert sight.subject is not None
    whose = [sight.subject[sight.role == role.value] for role in (Role.MEMBER, Role.EVALUATION, Role.CALIBRATION)]
    return tpr_at_fpr([Block(*sets, (whose[0], whose[1], whose[2]))], FPR)


def draw(name: str, label: str, xs: Sequence[float], found: dict[str, list[Estimate]]) -> None:
    """Lines with their intervals, as an SVG that stands alone; beneath it the figures, for the page."""
    width, height, left, bottom, top = 640, 320, 60, 50, 20
    most = 1.1 * max(e.high or 0 for es in found.values() for e in es)

    def at(x: float, y: float) -> tuple[float, float]:
        share = (x - xs[0]) / (xs[-1] - xs[0])
        return left + 20 + share * (width - left - 40), height - bottom - y / most * (height - bottom - top)

    marks = [f'<text x="{left}" y="14" class="t">TPR at 1 % FPR, baskets, one party, global models</text>']
    for tick in np.arange(0, most, 0.1):
        y = at(xs[0], tick)[1]
        marks.append(f'<path d="M{left} {y:.1f}H{width - 10}" class="grid"/>')
        marks.append(f'<text x="{left - 8}" y="{y + 4:.1f}" class="y">{tick:.0%}</text>')
    for x in xs:
        marks.append(f'<text x="{at(x, 0)[0]:.1f}" y="{height - bottom + 18}" class="x">{x:g}</text>')
    marks.append(f'<text x="{width / 2}" y="{height - 10}" class="x">{label}</text>')
    for number, (attack, estimates) in enumerate(found.items()):
        aside = 6 * number - 3  # so that no interval hides another
        points = [(x + aside, y) for x, y in (at(x, e.value or 0) for x, e in zip(xs, estimates, strict=True))]
        line = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        marks.append(f'<path d="M{line}" class="line c{number}"/>')
        for (x, y), value, e in zip(points, xs, estimates, strict=True):
            low, high = at(value, e.low or 0)[1], at(value, e.high or 0)[1]
            title = f"{attack}, {value:g}: {e.value:.1%} ({e.low:.1%}-{e.high:.1%})"
            marks.append(f'<path d="M{x:.1f} {low:.1f}V{high:.1f}" class="bar c{number}"/>')
            marks.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" class="d{number}"><title>{title}</title></circle>')
        marks.append(f'<text x="{width - 230 + 120 * number}" y="14" class="n{number}">{attack}</text>')
    style = (
        "text{font:13px sans-serif;fill:#555}.x{text-anchor:middle}.y{text-anchor:end}.grid{stroke:#ddd}"
        ".line{fill:none;stroke-width:2}.bar{stroke-width:1.5;opacity:.5}.c0{stroke:#c2410c}.c1{stroke:#1d4ed8}"
        ".d0,.n0{fill:#c2410c}.d1,.n1{fill:#1d4ed8}"
    )
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">'
    body = f"<title>{label}</title><style>{style}</style>{''.join(marks)}</svg>"
    write_atomically(HERE / name, head + body + "\n")
    for attack, estimates in found.items():
        for x, e in zip(xs, estimates, strict=True):
            print(f"| {attack} | {x:g} | {e.value:.1%} ({e.low:.1%}-{e.high:.1%}) | {e.realised_fpr:.2%} |")


if __name__ == "__main__":
    main()
