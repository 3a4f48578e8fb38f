"""Attacking a stored trace again: what a run would refuse is refused here, and what a trace lacks is named."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from fedaudit.config.schema import Config
from fedaudit.errors import FedauditError
from fedaudit.session.replay import replay
from fedaudit.session.run import run
from tests.worlds import config, silent


def small(**sections: Any) -> Config:
    audit = {"attacks": ["loss"], "keep": "snapshots", "fpr": [0.1]} | sections.pop("audit", {})
    return config(federation={"rounds": 2}, audit=audit, **sections)


def train(settings: Config, out: Path) -> Path:
    run(settings, out, silent, tell=lambda line: None)
    return out


class UsedOutside(nn.Module):
    """The last layer's weight also works outside of that layer's own forward pass."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(inputs, 8), nn.Linear(8, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.first(x.flatten(1)))
        out: torch.Tensor = self.last(hidden + torch.tanh(hidden @ self.last.weight.T @ self.last.weight))
        return out


def used_outside(shape: tuple[int, ...], classes: int) -> nn.Module:
    return UsedOutside(64, classes)


def test_layers_whose_gradients_would_come_out_wrong_are_not_looked_at(tmp_path: Path) -> None:
    settings = small().model_copy(
        update={
            "model": small().model.model_copy(update={"name": "tests.session.test_replay:used_outside", "hidden": None})
        }
    )
    trace = train(settings, tmp_path / "run")
    document = replay(trace, ["gradient-cosine"], tmp_path / "again", silent, trust_code=True)
    (told,) = [one for one in document.told if one.code == "layers-unseen"]
    assert told.data["layers"] == ["last"]
    assert told.data["share"] < 0.5


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(small(), tmp_path_factory.mktemp("plain"))


@pytest.mark.parametrize("attack", ["fedmia", "source"])
def test_a_vantage_without_an_attack_is_left_out(attack: str, plain: Path, tmp_path: Path) -> None:
    document = replay(plain, [attack], tmp_path, silent)
    assert {h.vantage for h in document.headlines} == {"server"}
    assert any("Left out" in notice and "client" in notice for notice in document.notices)


def test_data_that_were_never_set_aside_are_missed(plain: Path, tmp_path: Path) -> None:
    with pytest.raises(FedauditError, match=r"Run again with this attack in audit\.attacks"):
        replay(plain, ["outside-lira"], tmp_path, silent)


def test_data_that_were_set_aside_stay_so(tmp_path: Path) -> None:
    reference = {"attacks": ["loss", "outside-lira"], "reference": {"models": 4}}
    trace = train(small(audit=reference), tmp_path / "run")
    document = replay(trace, ["loss"], tmp_path / "again", silent)
    assert {r.attack for r in document.results} == {"loss", "blind"}


def test_a_run_with_an_attribute_is_audited_again(tmp_path: Path) -> None:
    asked = {"adversary": "agg-sh", "attribute": {"name": "area"}}
    trace = train(small(data={"name": "breast-cancer"}, audit=asked), tmp_path / "run")
    again = replay(trace, [], tmp_path / "again", silent)
    assert {r.attack for r in again.results} == {"loss", "attribute", "blind"}
    alone = replay(trace, ["attribute"], tmp_path / "alone", silent)
    assert {r.attack for r in alone.results} == {"attribute", "blind"}


def test_a_series_attack_alone(tmp_path: Path) -> None:
    trace = train(small(audit={"adversary": "agg-sh"}), tmp_path / "run")
    document = replay(trace, ["gradient-series"], tmp_path / "again", silent)
    assert not document.degraded
    assert [(h.attack, h.model) for h in document.headlines] == [("gradient-series", "local")]


def test_a_malicious_aggregator_is_not_in_a_trace(tmp_path: Path) -> None:
    trace = train(small(audit={"adversary": "agg-mal", "attacks": ["loss", "gradient-series"]}), tmp_path / "run")
    with pytest.raises(FedauditError, match="agg-mal trains a federation of its own"):
        replay(trace, ["gradient-series"], tmp_path / "refused", silent)
    document = replay(trace, [], tmp_path / "again", silent)
    assert any("agg-mal" in notice and "left out" in notice for notice in document.notices)
