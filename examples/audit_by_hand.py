"""An audit by hand: what a federation gives away, from the data to the error bars, in plain numpy and torch.

Two parties train a network on handwritten digits together. Each keeps its digits and sends only models. How many of
the digits that were trained on can be told from those models? Nothing here is imported from fedaudit. Still, the
numbers are those of `fedaudit run` with the configuration below; `tests/test_audit_by_hand.py` compares them.

    [data]
    name = "digits"
    [federation]
    parties = 2
    members = 0.1
    nonmembers = 0.3
    rounds = 20
    batch_size = 32
    [model]
    hidden = [256]
    [audit]
    attacks = ["fta-confidence", "matched-filter"]
    fpr = [0.01]

Run it with `python examples/audit_by_hand.py`. It takes a few seconds.
"""

import math
import zlib
from hashlib import sha256

import numpy as np
import torch
from scipy.optimize import brentq
from scipy.special import betainc, ndtri
from scipy.stats import binom
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional

SEED, PARTIES, MEMBERS, NONMEMBERS = 0, 2, 0.1, 0.3
ROUNDS, BATCH, RATE, HIDDEN = 20, 32, 1e-3, 256
FPR, ALPHA = 0.01, 0.05  # wrongly accuse 1 % of outsiders; 95 % intervals


# ------------------------------------------------------------------ 1. the game: who trains on what
#
# An attack can only be judged on records whose answer is known. So before the training, the auditor draws at random
# which of a party's records are trained on: the members. The rest are outsiders, and they do two jobs. Calibration
# records show how high outsiders score, which sets the threshold. Evaluation records then check that threshold: on the
# records that it was set on, it would look better than it is.


def deal():
    """Every record with its party and its role."""
    x, y = load_digits(return_X_y=True)
    x, y = (x / 16).astype(np.float32), y.astype(np.int64)
    # Records are sorted by a hash of their content, so the order of rows in a file changes nothing.
    order = np.argsort([sha256(a.tobytes() + b.tobytes() + b"|").hexdigest()[:20] for a, b in zip(x, y, strict=True)])
    x, y = x[order], y[order]
    rng = np.random.default_rng([SEED, 0])
    party, role = np.empty(len(x), np.int64), np.empty(len(x), "U11")
    for k, part in enumerate(np.array_split(rng.permutation(len(x)), PARTIES)):
        party[part] = k
    for k in range(PARTIES):
        drawn = rng.permutation(np.flatnonzero(party == k))
        first, second = round(MEMBERS * len(drawn)), round((MEMBERS + NONMEMBERS) * len(drawn))
        role[drawn[:first]], role[drawn[first:second]], role[drawn[second:]] = "member", "evaluation", "calibration"
    return torch.from_numpy(x), torch.from_numpy(y), party, role


# ------------------------------------------------------------------ 2. the federation: what is exchanged
#
# Federated averaging. In every round, each party gets the global model, trains it on its members for one epoch, and
# sends back the result. The server takes the mean, weighted by the number of members.


def network(weights=None):
    model = nn.Sequential(nn.Linear(64, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 10))
    if weights is not None:
        model.load_state_dict(weights)
    return model


def train(weights, x, y, rng):
    """What a party sends: the model after one epoch of Adam on its members."""
    model = network(weights)
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    rng.integers(2**63)  # fedaudit seeds dropout with this number; here it only keeps the two in step
    for batch in torch.from_numpy(rng.permutation(len(x))).split(BATCH):
        optimizer.zero_grad()
        functional.cross_entropy(model(x[batch]), y[batch]).backward()
        optimizer.step()
    return model.state_dict()


def federate(x, y, party, role):
    """For every round: the model that was sent out, the models that came back, and their mean."""
    mine = [(role == "member") & (party == k) for k in range(PARTIES)]
    shares = [rows.sum() / np.sum(mine) for rows in mine]
    torch.manual_seed(SEED)
    model, rounds = network().state_dict(), []
    for u in range(1, ROUNDS + 1):
        # A party has random numbers of its own in every round, so they do not depend on who else takes part.
        rngs = [np.random.default_rng([SEED, u, zlib.crc32(f"party-{k}".encode())]) for k in range(PARTIES)]
        sent = [train(model, x[rows], y[rows], rng) for rows, rng in zip(mine, rngs, strict=True)]
        mean = {
            name: sum(share * one[name].double() for share, one in zip(shares, sent, strict=True)).float()
            for name in model
        }
        rounds.append((model, sent, mean))
        model = mean
    return rounds


# ------------------------------------------------------------------ 3. the first attack: a trajectory's slope
#
# The model learns from members, so it becomes sure of their labels sooner than of outsiders' labels. FTA (Chang,
# Edwards, Paul, Shokri, USENIX Security 2024) follows a record through the rounds and takes the slope of its
# confidence. It costs one forward pass a round. `seen` is what the adversary holds: for every round, the model before
# it and the model after it.


def fta(seen, x, y):
    """The least-squares slope, over the rounds, of the probability that the model gives to the record's own label."""
    with torch.no_grad():
        sure = [network(after)(x).double().softmax(1)[torch.arange(len(y)), y].numpy() for _, after in seen]
    return np.polyfit(np.arange(1, len(seen) + 1), np.array(sure), 1)[0]


# ------------------------------------------------------------------ 4. the second attack: the matched filter
#
# Training subtracts gradients. So the update of a layer, U = before - after, is roughly the sum of the gradients of the
# records that were trained on. Anybody can compute the gradient of a suspected record and ask: is it in that sum?
#
# In a linear layer, the gradient is the outer product delta h': h is what went in (with a 1 for the bias), and delta is
# the loss's derivative at what came out. All the other gradients in the sum are noise. But they resemble each other, so
# the noise is strong in some directions and weak in others: its covariance is about B (x) A, with A = E[h h'] and
# B = E[delta delta'], as in K-FAC. The best linear detector divides by that covariance first (a matched filter):
#
#     score = <B^-1 delta h' A^-1, U> / strength        strength^2 = <B^-1 delta h' A^-1, delta h'>


def whitened(v, damping=0.1):
    """Each vector times the inverse of E[v v']. That matrix is an estimate, and its smallest eigenvalues are the least
    certain, so a tenth of the mean eigenvalue is added to all of them."""
    moment = v.T @ v / len(v)
    moment += damping * moment.trace() / len(moment) * torch.eye(len(moment))
    return torch.linalg.solve(moment, v.T).T


def one_round(before, after, x, y):
    """The score of every record in one round, and how strong its signal would be if it had been trained on."""
    # The record was met somewhere on the way from one model to the other. Halfway is never far from there.
    model = network({name: (before[name] + after[name]) / 2 for name in before})
    out = model[0](x).detach().requires_grad_()
    loss = functional.cross_entropy(model[1:](out), y, reduction="sum")
    delta, h = torch.autograd.grad(loss, out)[0].double(), functional.pad(x.double(), (0, 1), value=1.0)

    weight, bias = (before[name] - after[name] for name in ("0.weight", "0.bias"))
    update = torch.cat([weight, bias[:, None]], dim=1).double()
    # Adam divides each coordinate by about the root mean square of its gradients. Multiply, and it is a sum again.
    update = update * torch.outer(delta.square().mean(0).sqrt(), h.square().mean(0).sqrt())

    # The moments are those of all candidates, members and outsiders alike: no answer is needed to compute them.
    white_delta, white_h = whitened(delta), whitened(h)
    strength = ((white_delta * delta).sum(1) * (white_h * h).sum(1)).sqrt()
    score = ((white_delta @ update) * white_h).sum(1) / strength
    return ((score - score.mean()) / score.std()).numpy(), strength.numpy()


def matched_filter(seen, x, y):
    """The scores of the rounds, added up with their strengths as weights: a record that the model already knows has a
    tiny gradient, and a round in which it could hardly leave a trace says little about it."""
    scores, strengths = zip(*(one_round(before, after, x, y) for before, after in seen), strict=True)
    return np.sum(np.multiply(scores, strengths), axis=0) / np.sqrt(np.sum(np.square(strengths), axis=0))


# ------------------------------------------------------------------ 5. the statistics: what scores are worth
#
# No number without an interval. These intervals hold for small counts, and treat the records as independent.


def mixed_interval(few, many, chance, n):
    """An interval for a share of which n draws were seen, `few` to `many` of them hits. Where that is uncertain, these
    are arrays, with the chance of each entry. For one certain count it is the interval of Clopper and Pearson."""
    few, many, chance = np.atleast_1d(few), np.atleast_1d(many), np.atleast_1d(chance)
    low = brentq(lambda p: chance @ betainc(few, n - few + 1, p) - ALPHA / 2, 0, 1)
    high = brentq(lambda p: chance @ betainc(many + 1, n - many, p) - (1 - ALPHA / 2), 0, 1)
    return low, high


def tpr(members, calibration):
    """The threshold, the chance with which it accuses a score, and an interval for the share of members that are
    accused (TPR) at a true FPR of 1 %.

    A score has each place among n calibration scores with the same chance, if nobody was trained on it. So it is
    accused if fewer than r = FPR (n + 1) of them are above it, where a coin decides about the fraction of r, and the
    expected FPR is exactly `FPR`. Where the threshold with a true FPR of 1 % lies, nobody knows, but K ~ Binomial(n,
    FPR) calibration scores lie above it. So it lies between the K-th highest and the next, and the members above it are
    counted at both. This is a generalised interval: it misses about as often as it should, but that is measured
    (docs/coverage.md), not proved.
    """
    n = len(calibration)
    highest = np.concatenate([[np.inf], np.sort(calibration)[::-1], [-np.inf]])  # highest[r] is the r-th
    rank = round(FPR * (n + 1), 9)
    hits = (members > highest[:, None]).sum(1)
    around = mixed_interval(hits[:-1], hits[1:], binom.pmf(np.arange(n + 1), n, FPR), len(members))
    threshold = highest[max(math.floor(rank - 0.5) + 1, 1)]  # from here on accused more likely than not

    def accused(scores):
        above, tied = (calibration > scores[:, None]).sum(1), (calibration == scores[:, None]).sum(1)
        return np.clip((rank - above) / (tied + 1), 0, 1)

    return threshold, accused, around


def auc(members, outsiders):
    """The chance that a member scores higher than an outsider, with Newcombe's interval: all values from which the
    measured one is at most 1.96 standard errors away. These are Hanley and McNeil's, or DeLong's where that is more."""
    m, n = len(members), len(outsiders)
    wins = (members[:, None] > outsiders) + 0.5 * (members[:, None] == outsiders)
    value, delong = wins.mean(), wins.mean(1).var(ddof=1) / m + wins.mean(0).var(ddof=1) / n

    def variance(a):
        two_members, two_outsiders = a / (2 - a) - a**2, 2 * a**2 / (1 + a) - a**2
        return (a * (1 - a) + (m - 1) * two_members + (n - 1) * two_outsiders) / (m * n)

    def outside(a):
        return (value - a) ** 2 - ndtri(1 - ALPHA / 2) ** 2 * max(1, delong / variance(value)) * variance(a)

    return value, (brentq(outside, 0, value), brentq(outside, value, 1))


# ------------------------------------------------------------------ 6. the audit
#
# Two adversaries. Any party sees the global models, and with them all parties' records at once. The server also sees
# what each party sent. The noise in that update is one party's alone, so more of its members are found.


def judge(scores, role):
    """What the scores are worth. Only here do the roles come in: no attack is told who is a member."""
    members, outsiders, calibration = (scores[role == name] for name in ("member", "evaluation", "calibration"))
    threshold, accused, around = tpr(members, calibration)
    wrongly = accused(outsiders).sum()
    realised = wrongly / len(outsiders), mixed_interval(wrongly, wrongly, 1.0, len(outsiders))
    return {
        "counts": (len(members), len(outsiders), len(calibration)),
        "threshold": threshold,
        "auc": auc(members, outsiders),
        "tpr": (accused(members).mean(), around),
        "fpr": realised,
    }


def audit():
    """For every adversary and attack, the scores of its candidates and what they are worth."""
    x, y, party, role = deal()
    rounds = federate(x, y, party, role)
    sights = {"any party": (np.ones(len(x), bool), [(before, mean) for before, _, mean in rounds])}
    for k in range(PARTIES):
        sights[f"the server, of party-{k}"] = party == k, [(before, sent[k]) for before, sent, _ in rounds]
    found = {}
    for who, (rows, seen) in sights.items():
        for name, attack in (("fta-confidence", fta), ("matched-filter", matched_filter)):
            scores = attack(seen, x[rows], y[rows])
            found[who, name] = scores, judge(scores, role[rows])
    return found


def show(found):
    def told(value, around, unit=1, digits=1):
        return f"{value / unit:.{digits}f} ({around[0] / unit:.{digits}f} to {around[1] / unit:.{digits}f})"

    print(f"{'who looks':23}{'with':16}{'members':9}{'AUC':24}{'% of them found':21}% of outsiders accused")
    for (who, attack), (_, worth) in found.items():
        area, share, wrong = told(*worth["auc"], digits=3), told(*worth["tpr"], 0.01), told(*worth["fpr"], 0.01)
        members, outsiders, _ = worth["counts"]
        print(f"{who:23}{attack:16}{members:<9}{area:24}{share:21}{wrong} of {outsiders}")


# What the numbers say: FTA has an AUC well above 0.5, and yet at an FPR of 1 % it finds about 1 % of the members, as
# guessing would. Slopes differ on average, but hardly any is so steep that it gives its record away. The filter finds
# many members in the same models. That one attack finds nothing does not mean that nothing is there.
if __name__ == "__main__":
    show(audit())
