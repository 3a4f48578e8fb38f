"""What the tests of `fedaudit advise` share: looks that were not trained for, and a small federation that leaks."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedaudit.config.schema import Config, parse
from fedaudit.results import advice as results
from fedaudit.results.advice import Risk, Tried
from fedaudit.session.levers import Change
from fedaudit.session.search import tried
from fedaudit.types import Estimate


def look(name: str, risk: float, accuracy: float, upper: float | None = None) -> Tried:
    right = Estimate("accuracy", accuracy, accuracy, accuracy, 0.95, "exact", "measured", 1, 1)
    at = Risk(attack="loss", vantage="client", model="global", party=None, value=risk, low=risk, high=risk)
    return replace(
        tried(Change(name, name, {}), 10, 10),
        risk=at,
        upper=risk if upper is None else upper,
        estimates=results.named(accuracy=right),
    )


FIELD = [
    look("undefended", 0.9, 0.8),
    look("best", 0.04, 0.75),
    look("beaten", 0.05, 0.7),
    look("strong", 0.02, 0.5),
    look("useless", 0.001, 0.1),
    look("hopeless", 0.95, 0.79),
]


LEAKING: dict[str, Any] = {
    "data": {"name": "npz"},
    "federation": {"parties": 4, "rounds": 8, "local_epochs": 4, "batch_size": 16, "lr": 3e-3},
    "model": {"hidden": [64]},
    "audit": {"attacks": ["loss", "fta-confidence"], "vantages": ["client"], "fpr": [0.1]},
}


def leaking(folder: Path) -> Config:
    """Labels are drawn by lot: they can only be learnt by heart, so training longer leaks more."""
    rng = np.random.default_rng(0)
    np.savez(folder / "lots.npz", x=rng.normal(size=(2400, 20)).astype(np.float32), y=rng.integers(0, 4, 2400))
    return parse({**LEAKING, "data": {"name": "npz", "path": str(folder / "lots.npz")}})


def advice_of(found: results.Confirmed) -> results.Advice:
    return results.Advice(
        schema=1,
        limit="auc < 0.6",
        confidence=0.975,
        rungs=[],
        tried=[],
        confirmed=[found],
        recommended=None,
        nearest=found.name,
        sentences=(),
        cost=None,
    )
