"""What docs/make_canaries.py runs: the configurations, and one function for each case."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from fedaudit.config.schema import parse
from fedaudit.defences.dp_fedavg import NoisySum
from fedaudit.defences.shared import Defence
from fedaudit.questions.canary.parties import Canaries, Design
from fedaudit.questions.canary.watch import CRAFTED, CanaryGame, CanaryWatch
from fedaudit.session.prepare import Prepared, prepare
from fedaudit.session.run import rounds
from fedaudit.stats.canary import one_shot_bound, one_shot_epsilon, probes_needed
from fedaudit.stats.gaussian import gaussian_mu
from fedaudit.types import Audit, Floats

Case = Callable[[Path], dict[str, Any]]

WRITERS = 806  # of MNIST's 836, when those of the design pool are set aside: asserted below
SEEDS = 10


def cnn26k(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """Three convolutions and a linear layer: 26,650 parameters for CIFAR-10."""
    layers: list[nn.Module] = []
    for before, after in ((input_shape[0], 16), (16, 32), (32, 48)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(48 * (input_shape[1] // 8) ** 2, classes))


# ------------------------------------------------------------------ configurations


def cifar(data: Path, canary: dict[str, Any] | None = None, clip: float = 0.1, **federation: Any) -> dict[str, Any]:
    """640 parties with one picture each; a coin for each decides who takes part, so that 64 do on average.

    Were it the same 64 at every probe, all sums without the canary would be one sum, and nothing would spread.
    The clip norm is a gradient of norm 1, as in the paper: every party is clipped.
    """
    asked = {"probes": 400, "steps": 1500, **(canary or {})}
    of = {
        "parties": 640, "participation": 0.1, "sampling": "poisson", "members": 0.033, "nonmembers": 0.3,
        "rounds": 2, "algorithm": "fedsgd", "lr": 0.1, **federation,
    }  # fmt: skip
    return {
        "data": {"name": "cifar10", "path": str(data / "cifar10.npz")},
        "federation": of,
        "model": {"name": "docs.canary_cases:cnn26k"},
        "audit": {"attacks": ["canife"], "canary": {"every": of["rounds"], **asked}},
        "defences": [{"name": "dp-fedavg", "noise": 0.423, "clip": clip, "delta": 1e-5}],
    }


def writers(data: Path, epsilon: float) -> dict[str, Any]:
    """MNIST, one party a writer, of whom one in forty takes part in a round."""
    return {
        "data": {"name": "mnist", "path": str(data / "mnist.npz")},
        "federation": {
            "parties": WRITERS, "partition": "column", "column": "subject", "split_subjects": True, "rounds": 20,
            "participation": 0.025, "sampling": "poisson", "algorithm": "fedsgd", "lr": 0.5,
        },
        "model": {"name": "cnn", "filters": 16},
        "audit": {"attacks": ["canife"], "canary": {"probes": 60, "every": 10, "steps": 400}},
        "defences": [{"name": "dp-fedavg", "epsilon": epsilon, "clip": 0.5, "delta": 1e-4}],
    }  # fmt: skip


def households(_: Path) -> dict[str, Any]:
    """A canary household among parties of supermarket baskets."""
    return {
        "data": {"name": "baskets"},
        "federation": {
            "parties": 100, "participation": 0.4, "sampling": "poisson", "rounds": 4, "algorithm": "fedsgd", "lr": 0.5
        },
        "model": {"hidden": [64]},
        "audit": {"attacks": ["canife"], "canary": {"probes": 100, "every": 4, "steps": 600}},
        "defences": [{"name": "dp-fedavg", "noise": 0.5, "clip": 0.5, "delta": 1e-3}],
    }  # fmt: skip


def plays(data: Path) -> dict[str, Any]:
    return {
        "data": {"name": "shakespeare", "path": str(data / "shakespeare_roles.json.gz"), "length": 40},
        "federation": {
            "parties": 64, "participation": 0.25, "sampling": "poisson", "rounds": 2, "algorithm": "fedsgd",
            "lr": 0.05, "members": 0.02,
        },
        "model": {"name": "lstm", "units": 64, "layers": 1},
        "audit": {"attacks": ["canife"], "canary": {"probes": 60, "every": 2, "steps": 300, "pool": 32}},
        "defences": [{"name": "dp-fedavg", "noise": 0.3, "clip": 0.5, "delta": 1e-3}],
    }  # fmt: skip


# ------------------------------------------------------------------ crafted canaries


def audited(config: dict[str, Any], silent: bool = False) -> dict[str, Any]:
    """An audit's figures. `silent`: the noise is left out of the sum."""
    return watched(prepare(parse(config)), silent)


def by_writer(data: Path, epsilon: float) -> dict[str, Any]:
    prepared = prepare(parse(writers(data, epsilon)))
    people = [prepared.game.members(party).subject for party in prepared.game.parties]
    assert all(whose is not None and len(set(whose.tolist())) == 1 for whose in people)
    return watched(prepared)


def watched(prepared: Prepared, silent: bool = False) -> dict[str, Any]:
    if silent:
        prepared = replace(prepared, defence=with_noise(prepared.defence, 0.0))
    for round in rounds(prepared):
        prepared.auditor.observe(round)
    return summary(prepared, prepared.auditor.snapshot())


def with_noise(defence: Defence, share: float) -> Defence:
    """The defence that adds this share of the noise that it claims."""
    assert isinstance(defence.aggregate, NoisySum)
    return replace(defence, aggregate=replace(defence.aggregate, noise=share * defence.aggregate.noise))


def design_of(prepared: Prepared) -> Design:
    game = prepared.settings.asked["canary"]
    assert isinstance(game, CanaryGame)
    crafted = game.crafted
    assert crafted is not None
    assert isinstance(crafted.canaries, Canaries)
    return crafted.canaries.design


def summary(prepared: Prepared, audit: Audit) -> dict[str, Any]:
    if audit.failed:
        return {"failed": dict(audit.failed)}
    (result,) = [r for r in audit.results if r.attack == "canife"]
    watch = prepared.auditor.observers["canary"]
    assert isinstance(watch, CanaryWatch)
    values = watch.kept[CRAFTED].values
    accuracy = audit.accuracy.get("evaluation")
    return {
        "seed": prepared.config.federation.seed,
        "estimates": {n: [e.value, e.low, e.high, e.kind, e.n_pos, e.n_neg] for n, e in result.estimates.items()},
        "reasons": {n: e.reason for n, e in result.estimates.items() if e.reason},
        "methods": {n: e.method for n, e in result.estimates.items()},
        "curves": {
            n: [list(c.x), list(c.value), list(c.low), list(c.high)]
            for n, c in result.curves.items()
            if n.startswith("epsilon")
        },
        "health": float(np.median(values[:, :, 2])),
        "spread": float(np.median(values[:, :, 3])),
        "model": None if accuracy is None else accuracy.value,
        "warnings": list(result.warnings),
        "text": result.canary.text if result.canary else "",
    }


# ------------------------------------------------------------------ wrong mechanisms, random canaries


def mechanisms(_: Path) -> dict[str, Any]:
    """Ten seeds each of a right mechanism and of two wrong ones, at a small claim."""
    noise, delta = 1.0, 0.05
    found: dict[str, list[dict[str, Any]]] = {"right": [], "a third of the noise": [], "not clipped": []}
    for seed in range(SEEDS):
        config = parse({
            "data": {"name": "digits"},
            "federation": {"parties": 8, "rounds": 2, "lr": 0.1, "algorithm": "fedsgd", "seed": seed},
            "model": {"hidden": [16]},
            "audit": {"attacks": ["canife"], "canary": {"steps": 20, "pool": 4, "probes": 240, "every": 2}},
            "defences": [{"name": "dp-fedavg", "noise": noise, "clip": 0.2, "delta": delta}],
        })  # fmt: skip
        for name, lines in found.items():
            prepared = prepare(config)
            wrong = with_noise(prepared.defence, 1 / 3) if name == "a third of the noise" else prepared.defence
            wrong = replace(wrong, update=None) if name == "not clipped" else wrong
            prepared = replace(prepared, defence=wrong)
            for round in rounds(prepared):
                prepared.auditor.observe(round)
            (result,) = [r for r in prepared.auditor.snapshot().results if r.attack == "canife"]
            bound, claim = result.estimates["epsilon-ranks"], result.estimates["epsilon-accountant-round"]
            said = any(told.code in ("round-refuted", "run-refuted") for told in result.told)
            lines.append({"seed": seed, "proved": bound.value, "claimed": claim.value, "refuted": said})
    return {"found": found, "probes": 240, "needed": probes_needed(noise, noise / 3, delta)}


def one_shot(_: Path, k: int = 500, size: int = 30_000, delta: float = 1e-5) -> dict[str, Any]:
    """Random canaries and a Gaussian mechanism whose epsilon is known exactly."""
    found: dict[str, list[dict[str, Any]]] = {}
    for epsilon in (3.0, 10.0):
        for seed in range(SEEDS):
            cosines = of_a_noisy_sum(1 / gaussian_mu(epsilon, delta), k, size, np.random.default_rng(seed))
            value, bound = one_shot_epsilon(cosines, size, delta), one_shot_bound(cosines, size, delta)
            line = {"seed": seed, "estimate": [value.value, value.low, value.high], "bound": bound.value}
            found.setdefault(f"{epsilon:g}", []).append(line)
    return {"found": found, "k": k, "size": size, "delta": delta}


def of_a_noisy_sum(noise: float, k: int, size: int, rng: np.random.Generator) -> Floats:
    units = rng.standard_normal((k, size)).astype(np.float32)
    units /= np.linalg.norm(units, axis=1, keepdims=True)
    total = units.sum(axis=0) + rng.normal(0, noise, size)
    return np.asarray(units @ total / np.linalg.norm(total), np.float64)


CASES: dict[str, Case] = {
    "cifar-noise": lambda data: audited(cifar(data)),
    "cifar-noise-1": lambda data: audited(cifar(data, seed=1)),
    "cifar-noise-2": lambda data: audited(cifar(data, seed=2)),
    "cifar-silent": lambda data: audited(cifar(data), silent=True),
    "cifar-silent-1": lambda data: audited(cifar(data, seed=1), silent=True),
    "cifar-silent-2": lambda data: audited(cifar(data, seed=2), silent=True),
    "mnist-50": lambda data: by_writer(data, 50.0),
    "mnist-10": lambda data: by_writer(data, 10.0),
    "baskets-noise": lambda data: audited(households(data)),
    "baskets-silent": lambda data: audited(households(data), silent=True),
    "shakespeare-noise": lambda data: audited(plays(data)),
    "shakespeare-silent": lambda data: audited(plays(data), silent=True),
}
OTHERS: dict[str, Case] = {"mechanisms": mechanisms, "one-shot": one_shot}
