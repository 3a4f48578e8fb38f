"""Models that answer NaN or infinity: to all records (training diverged) or to a few."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from fedaudit.audit.score import finite
from fedaudit.errors import FedauditError
from fedaudit.session.prepare import prepare
from fedaudit.session.run import run
from tests.worlds import config, silent, watch


def test_B1_a_model_that_diverged_has_no_result_and_no_accuracy(tmp_path: Path) -> None:
    settings = config(federation={"optimizer": "sgd", "rounds": 3})
    endless = settings.federation.model_copy(update={"lr": 1e30})  # more than a configuration may ask for
    settings = settings.model_copy(update={"federation": endless})
    document = run(settings, tmp_path / "run", silent)
    assert {entry.attack for entry in document.results} == {"blind"}
    reasons = [entry.reason for entry in document.failed]
    assert len(reasons) > 10
    assert all(reason.startswith("scores are NaN since round ") for reason in reasons)
    assert len(document.degraded) == len(reasons)  # the command ends with exit code 4
    assert not document.headlines
    assert document.run.accuracy == {}


class Odd(nn.Module):
    """Answers a few records with something that is no number, once it is trained."""

    def __init__(self, classes: int, answer: float):
        super().__init__()
        self.layer, self.answer = nn.Linear(64, classes), answer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layer(x)
        if not self.training:
            out = out.clone()
            out[(x.sum(1) * 16).round() == 260, 0] = self.answer
        return out


def sometimes_nan(shape: tuple[int, ...], classes: int) -> nn.Module:
    return Odd(classes, float("nan"))


def sometimes_infinite(shape: tuple[int, ...], classes: int) -> nn.Module:
    return Odd(classes, float("inf"))


@pytest.mark.parametrize("factory", ["sometimes_nan", "sometimes_infinite"])
def test_B1_a_few_scores_that_are_no_numbers_are_counted_and_told(factory: str) -> None:
    model = {"name": f"{__name__}:{factory}", "hidden": None}
    prepared = prepare(config(model=model, audit={"attacks": ["loss"]}))
    rows = prepared.game.candidates.rows
    answered = (rows.x.sum(axis=1) * 16).round() == 260
    if factory == "sometimes_infinite":
        answered &= rows.y != 0  # certainty of the right label is a loss of 0
    odd = int(answered.sum())
    assert odd in (8, 9)
    audit = watch(prepared)
    assert audit.failed == {}
    for model_kind in ("global", "local"):
        (told,) = [r.warnings for r in audit.results if (r.attack, r.model, r.party) == ("loss", model_kind, None)]
        assert list(told) == [
            f"loss: {odd} of {len(rows)} scores are NaN or infinite and were counted as the least suspicious."
        ]


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_B1_what_is_no_number_is_never_the_most_suspicious(odd: float) -> None:
    scores = np.arange(300.0)
    scores[7] = odd
    assert np.flatnonzero(np.isneginf(finite(scores, "loss"))).tolist() == [7]
    scores[:9] = odd
    with pytest.raises(FedauditError, match="9 of 300 scores are NaN or infinite"):
        finite(scores, "loss")
