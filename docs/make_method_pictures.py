"""Draws the picture at the head of each method's page, from one small federation: digits, two parties, twelve rounds.

    python docs/make_method_pictures.py

What a picture shows is computed here in plain numpy and torch, as the method's page defines it, and not by fedaudit's
own code. They explain the methods and measure nothing: one run, one party, no interval. Those of people and of canaries
are simulated, and that of reference models is drawn from its definition.
"""

import argparse
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from fedaudit.config.schema import parse
from fedaudit.files import write_atomically
from fedaudit.session.prepare import prepare
from fedaudit.session.run import rounds
from fedaudit.types import Bools, Floats, Role, State

HERE = Path(__file__).parent
PANEL, HIGH, GAP, BASE = 300, 230, 40, 180
STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#6b7480}.t{font-weight:600}.m{fill:#c2410c;fill-opacity:.5}"
    ".o{fill:#2563eb;fill-opacity:.42}.ml{stroke:#c2410c}.ol{stroke:#2563eb}.l{fill:none;stroke-width:2}"
    ".axis{stroke:#8b949e;stroke-width:1;fill:none}.mt{fill:#c2410c}.ot{fill:#2563eb}.dash{stroke-dasharray:5 4}"
)
SETTINGS = {
    "data": {"name": "digits"},
    "federation": {
        "parties": 2, "rounds": 12, "local_epochs": 4, "members": 0.12, "nonmembers": 0.4, "batch_size": 16,
        "optimizer": "sgd", "lr": 0.1,
    },
    "model": {"hidden": [48]},
}  # fmt: skip


class World:
    """The first party's candidates under its own models, round by round."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        prepared = prepare(parse(SETTINGS))
        self.rounds = list(rounds(prepared))
        game, self.task = prepared.game, prepared.task
        self.parties = game.parties
        of = [game.candidates.of_party(name) for name in self.parties]
        self.rows = [game.candidates.rows.take(index) for index in of]
        self.member: list[Bools] = [game.truth.mask(Role.MEMBER)[index] for index in of]

    def sent(self, round: int, party: int = 0) -> State:
        return self.rounds[round].sent[self.parties[party]].state

    def weights(self, state: State) -> list[torch.Tensor]:
        """Of the two layers: weight, bias, weight, bias."""
        return [torch.from_numpy(np.asarray(value)).double() for value in state.values()]

    def through(self, state: State, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits, and what goes into the last layer."""
        first, bias, last, offset = self.weights(state)
        hidden = torch.relu(x.reshape(len(x), -1) @ first.T + bias)
        return hidden @ last.T + offset, hidden

    def inputs(self, party: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.from_numpy(self.rows[party].x).double(), torch.from_numpy(self.rows[party].y)

    def confidence(self, round: int, party: int = 0) -> Floats:
        x, y = self.inputs(party)
        sure = torch.softmax(self.through(self.sent(round, party), x)[0], 1)
        return np.asarray(sure[torch.arange(len(y)), y])

    def gradient_norm(self, round: int, party: int = 0) -> Floats:
        """Of the last layer, without a backward pass: |p - onehot| sqrt(|h|^2 + 1)."""
        x, y = self.inputs(party)
        logits, hidden = self.through(self.sent(round, party), x)
        error = torch.softmax(logits, 1) - torch.eye(logits.shape[1])[y].double()
        return np.asarray(error.norm(dim=1) * (hidden.norm(dim=1) ** 2 + 1).sqrt())

    def distance(self, round: int) -> Floats:
        """To the nearest other label, by a linear step; 0 where the label is wrong already."""
        x, y = self.inputs()
        found = []
        for row, label in zip(x, y, strict=True):
            here = row.reshape(1, -1).clone().requires_grad_()
            logits = self.through(self.sent(round), here)[0][0]
            steps = []
            for other in range(len(logits)):
                if other != label:
                    (slope,) = torch.autograd.grad(logits[label] - logits[other], here, retain_graph=True)
                    steps.append(float((logits[label] - logits[other]).detach() / slope.norm()))
            found.append(max(min(steps), 0.0))
        return np.array(found)

    @cached_property
    def slopes(self) -> Floats:
        """Of the confidence over the rounds."""
        series = np.array([self.confidence(round) for round in range(len(self.rounds))])
        at = np.arange(len(series)) - (len(series) - 1) / 2
        return np.asarray(at @ series / (at @ at))

    def gradients(self, round: int) -> Floats:
        """Of every candidate, all layers, at the model halfway between received and sent."""
        before, after = self.weights(self.rounds[round].broadcast), self.weights(self.sent(round))
        halfway = [((a + b) / 2).requires_grad_() for a, b in zip(before, after, strict=True)]
        x, y = self.inputs()
        found = []
        for row, label in zip(x, y, strict=True):
            first, bias, last, offset = halfway
            logits = torch.relu(row.reshape(1, -1) @ first.T + bias) @ last.T + offset
            parts = torch.autograd.grad(cross_entropy(logits, label[None]), halfway)
            found.append(np.concatenate([np.asarray(part).ravel() for part in parts]))
        return np.array(found)

    def cosine(self, round: int, weights: int | None = None) -> Floats:
        """Of each candidate's gradient with the update; `weights`: of the first so many alone."""
        templates, update = self.gradients(round)[:, :weights], self.update(round)[:weights]
        return np.asarray(templates @ update / (np.linalg.norm(templates, axis=1) * np.linalg.norm(update)))

    def coefficients(self, round: int) -> Floats:
        """Which combination of all gradients makes the update: ridge regression."""
        templates, update = self.gradients(round), self.update(round)
        gram = templates @ templates.T
        ridge = 1e-3 * np.trace(gram) / len(gram)
        return np.asarray(np.linalg.solve(gram + ridge * np.eye(len(gram)), templates @ update))

    def update(self, round: int) -> Floats:
        """Received minus sent: where the gradients of what was trained on point."""
        before, after = self.weights(self.rounds[round].broadcast), self.weights(self.sent(round))
        return np.concatenate([np.asarray(a - b).ravel() for a, b in zip(before, after, strict=True)])


# ------------------------------------------------------------------ parts of a picture


def standard(values: Floats, others: Bools) -> Floats:
    return np.asarray((values - values[others].mean()) / values[others].std())


def left_of(place: int) -> int:
    return 10 + place * (PANEL + GAP)


def label(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{text}</text>'


def frame(place: int, title: str, below: str) -> str:
    left = left_of(place)
    axis = f'<path class="axis" d="M{left} {BASE}h{PANEL}"/>'
    return label(left, 16, title, "t") + axis + label(left + PANEL / 2, BASE + 38, below, anchor="middle")


def whose(place: int, members: str = "members", others: str = "others") -> str:
    """The legend, in the upper right corner."""
    right = left_of(place) + PANEL
    return label(right, 40, members, "mt", "end") + label(right, 58, others, "ot", "end")


def histogram(place: int, title: str, below: str, members: Floats, others: Floats, ticks: Sequence[float]) -> str:
    edges = np.linspace(ticks[0], ticks[-1], 41)
    shares = [np.histogram(np.clip(v, ticks[0], ticks[-1]), edges)[0] / len(v) for v in (others, members)]
    scale, step = (BASE - 30) / max(float(s.max()) for s in shares), PANEL / 40
    drawn = frame(place, title, below) + whose(place)
    for kind, share in zip("om", shares, strict=True):
        bars = "".join(f"V{BASE - scale * s:.1f}h{step:.2f}" for s in share)
        drawn += f'<path class="{kind}" d="M{left_of(place)} {BASE}{bars}V{BASE}z"/>'
    return drawn + across(place, ticks)


def across(place: int, ticks: Sequence[float]) -> str:
    wide = ticks[-1] - ticks[0]
    return "".join(
        label(left_of(place) + (t - ticks[0]) / wide * PANEL, BASE + 18, f"{t:g}", anchor="middle") for t in ticks
    )


def over_rounds(place: int, title: str, series: Sequence[Floats], member: Bools, most: float | None = None) -> str:
    """Medians, and the middle half, of members and of others."""
    top = most or max(float(np.quantile(values[side], 0.75)) for values in series for side in (member, ~member))
    drawn = frame(place, title, "round") + whose(place)
    xs = [left_of(place) + i * PANEL / (len(series) - 1) for i in range(len(series))]
    for kind, side in (("o", ~member), ("m", member)):
        low, middle, high = (
            [BASE - (BASE - 66) * min(float(np.quantile(v[side], q)) / top, 1.0) for v in series]
            for q in (0.25, 0.5, 0.75)
        )
        points = [f"{x:.1f} {y:.1f}" for x, y in zip([*xs, *reversed(xs)], [*high, *reversed(low)], strict=True)]
        line = "L".join(f"{x:.1f} {y:.1f}" for x, y in zip(xs, middle, strict=True))
        drawn += (
            f'<path class="{kind}" fill-opacity=".2" d="M{"L".join(points)}z"/><path class="l {kind}l" d="M{line}"/>'
        )
    last = len(series)
    marks = [(0, 1), (last // 2 - 1, last // 2), (last - 1, last)]
    return drawn + "".join(label(xs[i], BASE + 18, f"{name}", anchor="middle") for i, name in marks)


def picture(title: str, *panels: str, wide: float | None = None, high: int = HIGH) -> str:
    width = wide or 10 + len(panels) * (PANEL + GAP)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {high}" role="img">'
    return f"{head}<title>{title}</title><style>{STYLE}</style>{''.join(panels)}</svg>\n"


def image(x: float, y: float, values: Floats, size: int, caption: str, crossed: Bools | None = None) -> str:
    """A picture of 8 x 8 fields, dark where the value is large; some of them crossed out."""
    shade = np.clip((values - values.min()) / max(float(np.ptp(values)), 1e-12), 0, 1).reshape(8, 8)
    drawn = ""
    for (row, column), dark in np.ndenumerate(shade):
        at = f'x="{x + column * size:.0f}" y="{y + row * size:.0f}" width="{size}" height="{size}"'
        drawn += f'<rect {at} fill="#c2410c" fill-opacity="{dark:.2f}" stroke="#8b949e" stroke-width=".4"/>'
        if crossed is not None and crossed.reshape(8, 8)[row, column]:
            corner = f"{x + column * size:.0f} {y + row * size:.0f}"
            drawn += f'<path class="axis" d="M{corner}l{size} {size}m-{size} 0l{size} -{size}"/>'
    return drawn + label(x + 4 * size, y + 8 * size + 20, caption, anchor="middle")


# ------------------------------------------------------------------ the pictures


def trajectories(world: World) -> str:
    """The slope of the confidence over the rounds."""
    member = world.member[0]
    series = [world.confidence(round) for round in range(len(world.rounds))]
    slopes = 100 * world.slopes
    return picture(
        "Confidence over the rounds, and its slope, of members and of others",
        over_rounds(0, "confidence in the right label", series, member, most=1.0),
        histogram(
            1, "its slope, the score of FTA", "hundredths a round", slopes[member], slopes[~member], range(-2, 11, 2)
        ),
    )


def references(_: World) -> str:
    """From the definition: what the score of one record compares."""
    x = np.linspace(-3, 3, 121)

    def bell(middle: float, kind: str) -> str:
        height = np.exp(-((x - middle) ** 2) / 0.6)
        line = "L".join(f"{10 + (a + 3) / 6 * 620:.1f} {BASE - 120 * b:.1f}" for a, b in zip(x, height, strict=True))
        return f'<path class="{kind}" d="M10 {BASE}L{line}L630 {BASE}z"/>'

    target = 10 + (0.75 + 3) / 6 * 620
    return picture(
        "One record under models that had it and models that had not, and under the target",
        label(10, 16, "one record: the slope of its confidence under reference models, and under the target", "t"),
        bell(-0.9, "o"), bell(0.9, "m"), f'<path class="axis" d="M10 {BASE}h620"/>',
        label(10 + 2.1 / 6 * 620, 45, "models that did not have it", "ot", "middle"),
        label(10 + 3.9 / 6 * 620, 45, "models that had it", "mt", "middle"),
        f'<path class="axis dash" d="M{target:.0f} 60V{BASE}"/>',
        label(target, BASE + 18, "the target", "t", "middle"),
        label(320, BASE + 38, "score: how much likelier the target is under the right-hand bell", anchor="middle"),
        wide=640,
    )  # fmt: skip


def series(world: World) -> str:
    """Norms of the last layer's gradient. What a member's look like is learnt from the other party's records."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    both = [[world.gradient_norm(round, party) for round in range(len(world.rounds))] for party in (0, 1)]
    scaler = StandardScaler().fit(np.array(both[1]).T)
    learnt = LogisticRegression(max_iter=1000).fit(scaler.transform(np.array(both[1]).T), world.member[1])
    score = learnt.decision_function(scaler.transform(np.array(both[0]).T))
    member = world.member[0]
    return picture(
        "Gradient norms over the rounds, and what a classifier makes of them",
        over_rounds(0, "norm of the last layer's gradient", both[0], member),
        histogram(1, "a classifier's answer to the series", "log odds", score[member], score[~member], range(-5, 1)),
    )


def boundary(world: World) -> str:
    """How far a record must be moved before its label changes."""
    member = world.member[0]
    found = [world.distance(round) for round in range(len(world.rounds))]
    ticks = [0, 0.5, 1, 1.5]
    return picture(
        "Distance to the decision boundary over the rounds",
        over_rounds(0, "distance to the nearest other label", found, member),
        histogram(1, "after the last round", "distance", found[-1][member], found[-1][~member], ticks),
    )


def unmixing(world: World) -> str:
    """One gradient at a time, and all together."""
    member = world.member[0]
    panels = []
    for place, (title, values) in enumerate(
        (("each by itself: cosine", world.cosine(0)), ("all together: coefficients", world.coefficients(0)))
    ):
        z = standard(values, ~member)
        panels.append(histogram(place, title, "standard deviations of others", z[member], z[~member], range(-4, 9, 2)))
    return picture("Scores of members and of others, one candidate at a time and all together", *panels)


def fused(world: World) -> str:
    """Two answers whose errors are nearly independent."""
    member = world.member[0]
    first = int(np.prod(world.weights(world.sent(0))[0].shape))  # the first layer, as gradient-cosine would choose
    cosines = [world.cosine(round, first) for round in range(len(world.rounds))]
    one, two = standard(np.mean(cosines, axis=0), ~member), standard(world.slopes, ~member)
    drawn, left, high = label(10, 16, "each dot a record: what two attacks say of it", "t"), 60, HIGH - 40
    for kind, side in (("o", ~member), ("m", member)):
        for a, b in zip(one[side], two[side], strict=True):
            x, y = left + 400 * (np.clip(a, -3, 5) + 3) / 8, high - (high - 30) * (np.clip(b, -3, 5) + 3) / 8
            drawn += f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>'
    cut = float(np.quantile((one + two)[~member], 0.99))
    ends = [(left + 400 * (a + 3) / 8, high - (high - 30) * (cut - a + 3) / 8) for a in (cut - 5, 5.0)]
    (ax, ay), (bx, by) = ends
    drawn += f'<path class="axis dash" d="M{ax:.0f} {ay:.0f}L{bx:.0f} {by:.0f}"/>'
    drawn += f'<path class="axis" d="M{left} 30V{high}h400"/>'
    drawn += label(left + 200, high + 22, "gradient-cosine, standardised", anchor="middle")
    drawn += (
        f'<text transform="rotate(-90 40 {high / 2:.0f})" x="40" y="{high / 2:.0f}" text-anchor="middle">slope</text>'
    )
    drawn += (
        label(480, 50, "members", "mt") + label(480, 68, "others", "ot") + label(480, 104, "dashed: the sum that 1 %")
    )
    return picture("Two scores of each record, and their sum", drawn, label(480, 122, "of the others exceed"), wide=660)


def people(world: World) -> str:
    """Simulated: thirty records of each of many people, of some of whom the model has seen others."""
    rng = np.random.default_rng(0)
    known = rng.random(400) < 0.5
    own = rng.normal(0, 0.35, 400) - 0.5 * known
    losses = own[:, None] + rng.normal(0, 1.2, (400, 30))
    one, mean = losses[:, 0], losses.mean(axis=1)
    return picture(
        "The loss of one record of a person, and the mean over thirty",
        histogram(0, "one record of a person", "loss, relative", one[known], one[~known], range(-4, 5, 2)),
        histogram(1, "the mean over thirty records", "loss, relative", mean[known], mean[~known], range(-2, 3, 1)),
    )


def coins(world: World) -> str:
    """The scores in order: the first are guessed in, the last out, and about the middle nothing is said."""
    member = world.member[0]
    rng = np.random.default_rng(0)
    few = np.concatenate([rng.permutation(np.flatnonzero(side))[:30] for side in (member, ~member)])
    order = few[np.argsort(-world.coefficients(0)[few])]
    drawn = label(10, 16, "sixty coins in the order of their scores", "t") + label(560, 16, "heads: in", "mt")
    drawn += label(640, 16, "tails: out", "ot")
    for place, which in enumerate(order):
        x, kind = 20 + place * 11.2, "m" if member[which] else "o"
        drawn += f'<circle class="{kind}" cx="{x:.1f}" cy="70" r="4.6"/>'
    right = int(member[order[:15]].sum()), int((~member[order[-15:]]).sum())
    for first, last, text in ((0, 14, "guessed in"), (15, 44, "no guess"), (45, 59, "guessed out")):
        a, b = 15 + first * 11.2, 25 + last * 11.2
        drawn += f'<path class="axis" d="M{a:.0f} 92v8H{b:.0f}v-8"/>' + label((a + b) / 2, 120, text, anchor="middle")
    drawn += label(20 + 7 * 11.2, 142, f"{right[0]} of 15 are right", "t", "middle")
    drawn += label(20 + 52 * 11.2, 142, f"{right[1]} of 15 are right", "t", "middle")
    told = f"{sum(right)} of 30 guesses are right. At epsilon 0 about 15 are; so many more refute every small epsilon."
    drawn += label(355, 180, told, anchor="middle")
    return picture("Guesses about fair coins", drawn, wide=720, high=196)


def canary(world: World) -> str:
    """Simulated: what 64 parties' updates of norm 1 sum up to along the canary's, with and without it."""
    rng, size, probes = np.random.default_rng(0), 20_000, 400
    inside = np.arange(probes) % 2 == 0
    alone = np.array([rng.normal(0, np.sqrt(64 / size)) for _ in range(probes)]) + inside
    noisy = alone + rng.normal(0, 0.5, probes)
    panels = []
    for place, (title, values) in enumerate((("the sum, along the canary", alone), ("the same with noise 0.5", noisy))):
        drawn = histogram(place, title, "1: the canary's own update", values[inside], values[~inside], range(-2, 4))
        panels.append(drawn.replace(">members<", ">with the canary<").replace(">others<", ">without<"))
    return picture("The sum of all updates along a canary's direction, with and without the canary", *panels)


def one_update(world: World) -> str:
    """The first layer's update, column by column: what nobody has, does not move."""
    x, _ = world.inputs()
    mine = np.asarray(x.reshape(len(x), -1))[world.member[0]]
    change = np.asarray(world.weights(world.rounds[0].broadcast)[0] - world.weights(world.sent(0))[0])
    moved, nobody = np.linalg.norm(change, axis=0), ~(mine > 0).any(axis=0)
    assert (moved[nobody] < 1e-9).all()
    drawn = label(10, 16, f"which pixels has nobody? {int(nobody.sum())} of 64 can be read off one update", "t")
    drawn += image(30, 32, np.log10(moved + 1e-3), 20, "how far its weights moved", nobody * (moved < 1e-9))
    drawn += image(290, 32, (mine > 0).mean(axis=0), 20, "how many digits of the party use it", nobody)
    return picture("Pixels that no digit of a party uses do not move", drawn, wide=520)


def whole_record(world: World) -> str:
    """The gradient of a layer's weights is the record times a number, and the gradient of its bias is that number."""
    x, y = world.inputs()
    which = int(np.flatnonzero(world.member[0])[3])
    layers = [w.clone().requires_grad_() for w in world.weights(world.rounds[0].broadcast)]
    first, bias, last, offset = layers
    logits = torch.relu(x[which].reshape(1, -1) @ first.T + bias) @ last.T + offset
    gradient, of_bias, *_ = torch.autograd.grad(cross_entropy(logits, y[which][None]), layers)
    unit = int(of_bias.abs().argmax())
    read = np.asarray(gradient[unit] / of_bias[unit])
    assert np.allclose(read, x[which].reshape(-1))
    drawn = label(10, 16, "a record that moved a unit alone: its weights' change over its bias's change", "t")
    drawn += image(30, 32, np.asarray(x[which].reshape(-1)), 20, "the record")
    drawn += image(230, 32, np.asarray(gradient[unit]), 20, "change of the unit's weights")
    drawn += image(430, 32, read, 20, "divided by that of its bias")
    return picture("A record read off the update of one unit", drawn, wide=620)


def trap(world: World) -> str:
    """A prepared layer sorts a batch by one number into bins; whoever is alone in a bin can be read off."""
    x, _ = world.inputs()
    batch = np.asarray(x.reshape(len(x), -1))[world.member[0]][:16].mean(axis=1)
    everybody = np.asarray(x.reshape(len(x), -1)).mean(axis=1)
    edges = np.quantile(everybody, np.linspace(0, 1, 33))
    bins = np.clip(np.searchsorted(edges, batch, side="right") - 1, 0, 31)
    alone = np.bincount(bins, minlength=32)[bins] == 1
    drawn = label(
        10, 16, f"a layer that was prepared: 32 bins, a batch of 16; {int(alone.sum())} are alone in theirs", "t"
    )
    heights = np.zeros(32, int)
    for place in range(32):
        drawn += f'<rect x="{20 + place * 20}" y="150" width="20" height="10" class="axis" fill="none"/>'
    for where, single in zip(bins, alone, strict=True):
        kind = "m" if single else "o"
        drawn += f'<circle class="{kind}" cx="{30 + where * 20}" cy="{138 - 18 * heights[where]}" r="7"/>'
        heights[where] += 1
    drawn += label(20, 186, "brightness of the digit, in equal shares: one unit of the layer for each bin")
    return picture(
        "Records that are alone in a bin of a trap layer",
        drawn,
        label(20, 206, "alone: read off as a whole", "mt"),
        label(260, 206, "together: a mixture", "ot"),
        wide=680,
    )


PICTURES: dict[str, Callable[[World], str]] = {
    "method-trajectories": trajectories,
    "method-references": references,
    "method-series": series,
    "method-boundary": boundary,
    "method-unmixing": unmixing,
    "method-fusion": fused,
    "method-people": people,
    "method-coins": coins,
    "method-canary": canary,
    "method-one-update": one_update,
    "method-whole-record": whole_record,
    "method-trap": trap,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=HERE)
    out = parser.parse_args().out
    torch.set_num_threads(1)
    world = World()
    for name, draw in PICTURES.items():
        write_atomically(out / f"{name}.svg", draw(world))


if __name__ == "__main__":
    main()
