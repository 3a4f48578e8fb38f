"""Makes the table of docs/fusion.md: which signals of a server add what, on one data set and seed.

    python docs/make_fusion.py baskets --seed 1
    python docs/make_fusion.py cifar10 --path PATH/TO/cifar10.npz

Local models of four parties; every score is made without a look at members: what it needs to know is taken from one
half of the calibration non-members, the other half sets the thresholds. Where there are people, single records are
dealt out (`split_subjects = true`). The last column is each candidate minus fusion on the same records. Two to ten
minutes on one core.
"""

import argparse
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import special

from fedaudit.adversary.signals import measure
from fedaudit.adversary.signals.outputs import rescaled_logit
from fedaudit.adversary.vantage import look
from fedaudit.audit.settings import reference_half
from fedaudit.config.schema import parse
from fedaudit.session.prepare import prepare
from fedaudit.session.run import rounds
from fedaudit.stats import Block, auc, random_half, tpr_at_fpr, tpr_difference
from fedaudit.types import Bools, Estimate, Floats, Role, Vantage

IMAGES = {"federation": {"rounds": 30, "local_epochs": 3}, "model": {"name": "cnn", "filters": 16}}
SETTINGS: dict[str, dict[str, Any]] = {
    "baskets": {},
    "digits": {"federation": {"parties": 2, "rounds": 30, "local_epochs": 3, "batch_size": 32}},
    "cifar10": IMAGES,
    "cifar100": IMAGES,
}
FPR = 0.01
FUSION = "**fusion: cosine + fta-confidence**"
Signals = dict[str, Floats]  # rounds x records, and for the cosine x (layers, all of them together)


def collected(name: str, seed: int, path: str | None) -> tuple[dict[str, Signals], dict[str, Any]]:
    """For each party the signals of its local models, and what is known of its records."""
    settings = SETTINGS[name]
    federation = settings.get("federation", {}) | {"seed": seed, "split_subjects": True}
    source = {"name": name} | ({"path": path} if path else {})
    prepared = prepare(parse(settings | {"data": source, "federation": federation, "audit": {"attacks": ["loss"]}}))
    game, task = prepared.game, prepared.task
    index = {party: game.candidates.of_party(party) for party in game.parties}
    known_outside = {party: reference_half(game, at) for party, at in index.items()}
    rows = {party: game.candidates.rows.take(index[party]) for party in game.parties}
    found: dict[str, dict[str, list[Floats]]] = {party: {} for party in game.parties}
    for round in rounds(prepared):
        for view in look(Vantage.SERVER, "local", round, task, parties=game.parties):
            assert view.party is not None
            own, mine = rows[view.party], found[view.party]
            seen = measure(["gradient-cosine", "gradient-norm-all", "logit"], view, own, known_outside[view.party])
            seen["received"] = rescaled_logit(task.outputs(round.broadcast, own.x), own.y)
            for signal, values in seen.items():
                mine.setdefault(signal, []).append(values)
    subject = game.candidates.subject
    known = {
        party: (game.truth.role[at], game.candidates.id[at], None if subject is None else subject[at])
        for party, at in index.items()
    }
    return {p: {signal: np.stack(values) for signal, values in s.items()} for p, s in found.items()}, known


def scores(seen: Signals, reference: Bools) -> Iterator[tuple[str, Floats]]:
    """Each candidate for an attack: parts first, then sums of standardised parts."""

    def z(values: Floats) -> Floats:
        return np.asarray((values - values[reference].mean()) / (values[reference].std() or 1.0))

    cosine, norm = seen["gradient-cosine"], np.log(seen["gradient-norm-all"] + 1e-12)
    confidence, received = special.expit(seen["logit"]), special.expit(seen["received"])
    mean = cosine.mean(axis=0)
    layer = int(mean[reference, :-1].var(axis=0).argmin())
    one, every = mean[:, layer], mean[:, -1]
    layers = np.stack([z(column) for column in mean[:, :-1].T])
    whitened = np.linalg.solve(np.cov(layers[:, reference]) + 1e-3 * np.eye(len(layers)), layers).sum(axis=0)
    given_norm = np.mean([unexplained(c, n, reference) for c, n in zip(cosine[..., layer], norm, strict=True)], axis=0)
    by_round = np.stack([z(values) for values in cosine[:, :, layer]])
    late = (np.arange(1, len(by_round) + 1)[:, None] * by_round).mean(axis=0)
    fta, fta_logit = slope(confidence), slope(seen["logit"])
    gain = (confidence - received).mean(axis=0)

    yield "gradient-cosine (least varying layer)", one
    yield "cosine of all layers together", every
    yield "cosine, layers standardised and added", layers.sum(axis=0)
    yield "cosine, layers whitened and added", whitened
    yield "cosine, what the norm explains taken out", given_norm
    yield "fta-confidence", fta
    yield "fta-logit", fta_logit
    yield "gain: confidence sent - received", gain
    yield "loss", seen["logit"][-1]
    yield FUSION, z(one) + z(fta)
    yield "2 cosine + fta-confidence", 2 * z(one) + z(fta)
    yield "cosine + 2 fta-confidence", z(one) + 2 * z(fta)
    yield "cosine + fta-logit", z(one) + z(fta_logit)
    yield "cosine + gain", z(one) + z(gain)
    yield "cosine + fta-confidence + gain", z(one) + z(fta) + z(gain)
    yield "fta-confidence + gain", z(fta) + z(gain)
    yield "all layers + fta-confidence", z(every) + z(fta)
    yield "cosine + all layers + fta-confidence", z(one) + z(every) + z(fta)
    yield "whitened layers + fta-confidence", z(whitened) + z(fta)
    yield "cosine without norm + fta-confidence", z(given_norm) + z(fta)
    yield "late rounds' cosine + fta-confidence", z(late) + z(fta)
    yield "smaller of cosine and fta-confidence", np.minimum(z(one), z(fta))


def slope(series: Floats) -> Floats:
    weights = np.arange(len(series)) - (len(series) - 1) / 2
    return np.asarray(weights @ series / (weights**2).sum())


def unexplained(values: Floats, norm: Floats, reference: Bools) -> Floats:
    """What is left of the values after a parabola of the norm, in units of how far non-members of that norm scatter."""
    basis = np.vander((norm - norm[reference].mean()) / norm[reference].std(), 3)
    left = values - basis @ np.linalg.lstsq(basis[reference], values[reference], rcond=None)[0]
    scatter = basis @ np.linalg.lstsq(basis[reference], np.abs(left[reference]), rcond=None)[0]
    return np.asarray(left / np.maximum(scatter, np.quantile(np.abs(left[reference]), 0.2)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", choices=SETTINGS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--path")
    given = parser.parse_args()
    parties, known = collected(given.data, given.seed, given.path)
    blocks: dict[str, list[Block]] = {}
    for party, seen in parties.items():
        role, id, subject = known[party]
        reference = random_half(id, "reference") & (role == Role.CALIBRATION.value)
        sets = [role == Role.MEMBER.value, role == Role.EVALUATION.value, (role == Role.CALIBRATION.value) & ~reference]
        for name, values in scores(seen, reference):
            whose = None if subject is None else (subject[sets[0]], subject[sets[1]], subject[sets[2]])
            ids = id[sets[0]], id[sets[1]], id[sets[2]]
            blocks.setdefault(name, []).append(Block(values[sets[0]], values[sets[1]], values[sets[2]], whose, ids))
    for name, found in blocks.items():
        rate, area = tpr_at_fpr(found, FPR), auc(found)
        gap = tpr_difference(found, blocks[FUSION], FPR, 1 - 0.05 / (len(blocks) - 1))
        print(f"| {name} | {area.value:.3f} | {points(rate)} | {'' if name == FUSION else points(gap)} |")


def points(found: Estimate) -> str:
    """In percentage points, with its interval."""
    value, low, high = (100 * (end or 0.0) for end in (found.value, found.low, found.high))
    return f"{value:.1f} ({low:.1f} to {high:.1f})"


if __name__ == "__main__":
    main()
