"""Architectures of transformers, with random weights: opened, and audited for two rounds on forty records."""

from typing import Any

import pytest
import torch

from fedaudit.adversary.signals.updates import coverage
from fedaudit.learn.tasks import TorchTask
from fedaudit.types import Records
from tests.learn.architectures import ALL, CLASSES, TIMM, inputs, look_at

# The share of the weights that no gradient attack looks at, at most: parameters outside of layers, and modules that are
# asked in a way of their own. Most of XLNet is such, and half of so small an OPT: its table of positions. BiT divides
# its weights by their spread.
UNSEEN = {"XLNet": 0.97, "BiT": 0.995, "CvT": 0.85, "OPT": 0.5, "Swin v2": 0.15, "LeViT": 0.1}
ENOUGH = 0.05


def check(name: str, row: dict[str, Any]) -> None:
    assert "refused" not in row, row
    assert row["failed"] == {}
    assert {"matched-filter", "gradient-cosine", "loss"} <= set(row["ran"])
    assert row["unseen"] <= UNSEEN.get(name, ENOUGH)


@pytest.mark.parametrize("name", ["DistilBERT"])
def test_an_architecture_is_audited(name: str) -> None:
    check(name, look_at(name))


@pytest.mark.evidence
@pytest.mark.parametrize("name", [name for name in ALL if name.removeprefix("timm ") not in TIMM])
def test_forty_architectures_are_audited(name: str) -> None:
    check(name, look_at(name))


@pytest.mark.parametrize("name", ["ViT", "BEiT", "ConvNeXT", "ELECTRA", "GPT-2", "Llama"])
def test_most_layers_are_recognised_by_what_they_compute(name: str) -> None:
    torch.manual_seed(0)
    module, forward = ALL[name]()
    task = TorchTask(lambda: module, CLASSES, forward)
    x, y = inputs(name)
    known = coverage(task, task.initial(0), Records(x, y, y.astype(str)))
    assert not known.odd
    assert known.share(frozenset(name for names in known.slow.values() for name in names)) <= ENOUGH
