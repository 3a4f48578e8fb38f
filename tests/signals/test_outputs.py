"""Signals from outputs, against their definitions."""

import numpy as np
import pytest
from scipy.special import log_softmax, softmax

from fedaudit.signals.outputs import from_outputs


def test_signals_equal_their_definitions() -> None:
    rng = np.random.default_rng(0)
    z, y = rng.normal(0, 3, (50, 7)), rng.integers(0, 7, 50)
    found = from_outputs(z, y, ["logit", "loss", "confidence"])
    p = softmax(z, axis=1)[np.arange(50), y]
    assert found["confidence"] == pytest.approx(p, abs=1e-12)
    assert found["loss"] == pytest.approx(-log_softmax(z, axis=1)[np.arange(50), y], abs=1e-12)
    assert found["logit"] == pytest.approx(np.log(p / (1 - p)), abs=1e-9)


def test_T23_confident_records_do_not_tie() -> None:
    """In float32 these five losses are all exactly 0; here they keep their order."""
    z = np.zeros((5, 10), np.float32)
    z[:, 3] = [20, 30, 40, 50, 60]
    loss = from_outputs(z.astype(np.float64), np.full(5, 3), ["loss"])["loss"]
    assert np.all(np.diff(loss) < 0)
    assert np.all(loss > 0)
