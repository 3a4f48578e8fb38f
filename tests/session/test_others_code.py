"""Attacks, models and defences of others that misbehave: they cost themselves, never the results of the rest."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from fedaudit.adversary.attacks.base import BaseAttack
from fedaudit.adversary.reductions import Kept
from fedaudit.config.schema import Config, parse
from fedaudit.defences.shared import Defence
from fedaudit.errors import DEGRADED, FedauditError
from fedaudit.results.document import load
from fedaudit.session.prepare import prepare
from fedaudit.session.run import run
from fedaudit.types import Floats, Moment
from tests.worlds import silent

HERE = __name__


class Last(Kept):
    def __init__(self, n: int):
        self.loss: Floats = np.full(n, np.nan)

    def observe(self, moment: Moment, values: Any) -> None:
        self.loss = values["loss"]

    def features(self) -> Floats:
        return -self.loss[:, None]


@dataclass(frozen=True)
class Mine(BaseAttack):
    @property
    def name(self) -> str:
        return f"mine-{type(self).__name__.lower()}"

    @property
    def signals(self) -> tuple[str, ...]:
        return ("loss",)

    def reduce(self, n: int) -> Kept:
        return Last(n)


class Table(Mine):
    def score(self, features: Floats) -> Floats:
        return np.zeros((len(features), 2))


class Words(Mine):
    def score(self, features: Floats) -> NDArray[Any]:
        return np.array(["high"] * len(features))


class Leaves(Mine):
    def score(self, features: Floats) -> Floats:
        sys.exit(0)


class Whole(Mine):
    """Whole numbers are scores, too."""

    def score(self, features: Floats) -> NDArray[Any]:
        return np.arange(len(features))


class KeepsNothing(Mine):
    def reduce(self, n: int) -> Kept:
        raise ValueError(n)


class Fixed(nn.Module):
    """Nothing in it can be trained."""

    def __init__(self, classes: int):
        super().__init__()
        self.classes = classes

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, : self.classes]


def detached(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    answer: torch.Tensor = model(x)
    return answer.detach()


def linear(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Linear(input_shape[0], classes)


def leaving(setting: Any) -> Defence:
    sys.exit(0)


def asked(attacks: list[str], **more: Any) -> Config:
    base: dict[str, Any] = {
        "data": {"name": "breast-cancer"},
        "federation": {"parties": 2, "rounds": 2},
        "model": {"name": "linear"},
        "audit": {"attacks": attacks},
    }
    return parse(base | more)


@pytest.mark.parametrize(("kind", "reason"), [("Table", "of shape"), ("Words", "of shape"), ("Leaves", "SystemExit")])
def test_F3_what_is_no_score_costs_its_attack_alone(tmp_path: Path, kind: str, reason: str) -> None:
    """The first two ended in a fault without results; the third in exit code 0 without results."""
    document = run(asked([f"{HERE}:{kind}", "loss"]), tmp_path / "run", silent)
    assert [failure.attack for failure in document.failed] == [f"mine-{kind.lower()}"]
    assert reason in document.failed[0].reason
    assert {headline.attack for headline in load(tmp_path / "run").headlines} == {"loss"}


def test_whole_numbers_are_scores(tmp_path: Path) -> None:
    document = run(asked([f"{HERE}:Whole", "loss"]), tmp_path / "run", silent)
    assert document.complete
    assert {"mine-whole", "loss"} <= {entry.attack for entry in document.results}


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"audit": {"attacks": [f"{HERE}:KeepsNothing"]}}, "attack-factory"),
        ({"model": {"name": f"{HERE}:Fixed", "options": {}}}, "model-untrained"),
        ({"model": {"name": f"{HERE}:linear", "forward": f"{HERE}:detached"}}, "model-untrained"),
        ({"defences": [{"name": f"{HERE}:leaving", "fills": ["update"]}]}, "defence-function"),
        ({"defences": [{"name": "dp-fedavg", "noise": 1e200, "clip": 1.0, "delta": 1e-5}]}, "dp-noise"),
    ],
)
def test_B2_what_cannot_work_is_found_before_training(more: dict[str, Any], code: str) -> None:
    with pytest.raises(FedauditError, match=code):
        prepare(asked(["loss"], **more))


class Nothing(Mine):
    def score(self, features: Floats) -> Floats:
        return np.full(len(features), np.nan)


class Hangs(Mine):
    def score(self, features: Floats) -> Floats:
        while True:
            pass


@pytest.mark.parametrize(("kind", "reason"), [("Nothing", "no score is a number"), ("Hangs", "took longer than 1 s")])
def test_F3_an_attack_that_gives_nothing_or_hangs_has_failed(tmp_path: Path, kind: str, reason: str) -> None:
    """NaN alone counted as "too few rounds", and the audit as complete."""
    settings = asked([f"{HERE}:{kind}", "loss"], audit={"attacks": [f"{HERE}:{kind}", "loss"], "patience": 1})
    document = run(settings, tmp_path / "run", silent)
    assert [failure.attack for failure in document.failed] == [f"mine-{kind.lower()}"]
    assert reason in document.failed[0].reason
    assert not document.complete
    assert {headline.attack for headline in load(tmp_path / "run").headlines} == {"loss"}


class Ends(nn.Module):
    """Ends the process in its second round of training."""

    def __init__(self, input_shape: tuple[int, ...], classes: int):
        super().__init__()
        self.layer = nn.Linear(input_shape[0], classes)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.steps: torch.Tensor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.steps += 1
            if self.steps > 12:
                sys.exit(0)
        answer: torch.Tensor = self.layer(x)
        return answer


def test_F3_a_model_that_ends_the_process_does_not_end_it_with_success(tmp_path: Path) -> None:
    """Exit code 0 said that all was done."""
    with pytest.raises(FedauditError, match="training-exited") as raised:
        run(asked(["loss"], model={"name": f"{HERE}:Ends"}, federation={"parties": 2, "rounds": 9}), tmp_path, silent)
    assert raised.value.exit_code == DEGRADED


@pytest.mark.parametrize("text", ["import sys\nsys.exit(0)\n", "1 / 0\n"])
def test_a_module_that_fails_while_it_is_imported_is_named(
    tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fails_at_once.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FedauditError, match=r"\[model-import\] cannot import 'fails_at_once:net': the module raised"):
        prepare(asked(["loss"], model={"name": "fails_at_once:net"}))
