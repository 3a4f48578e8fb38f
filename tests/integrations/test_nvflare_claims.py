"""What NVIDIA FLARE's own filter of differential privacy counts is read from its updates, and checked."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("nvflare")

from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.app_common.abstract.model import make_model_learnable
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.app_event_type import AppEventType
from nvflare.app_common.filters.svt_privacy import SVTPrivacy

from fedaudit.config.schema import read_toml
from fedaudit.results import document as results
from fedaudit.session.verify import Check, verify
from fedaudit.toml import written
from fedaudit.trace.store import HOST_CLAIM
from tests.integrations.test_nvflare import Site, answered, as_dxo, recorder_and_fire, state, trained
from tests.integrations.worlds import net

ROUNDS, PARTIES = 2, ("north", "south")
SPEND: dict[str, float] = {"fraction": 0.2, "epsilon": 0.4, "epsilon_release": 60.0, "gamma": 1e-3}

Change = Callable[[DXO, int], None]


def recorded(folder: Path, change: Change | None = None, restart: bool = False, counter: bool = False) -> Path:
    """Two rounds of two sites whose updates go through the filter. `change`: what leaves after it. `counter`: the model
    has one, as batch normalization does, and is recorded without an audit."""
    np.random.seed(1)  # noqa: NPY002 - the filter draws from there
    audit: dict[str, Any] = {
        "model": "tests.integrations.worlds:net",
        "games": ["tests.integrations.worlds:games"],
        "options": {"attacks": ["loss"], "keep": "snapshots"},
    }
    _, fire = recorder_and_fire(folder, rounds=ROUNDS, **({} if counter else audit))
    filters = {party: SVTPrivacy(**SPEND) for party in PARTIES}
    torch.manual_seed(0)
    steps = {"steps": np.array(0)} if counter else {}
    model: Any = state(net()) | steps
    for index in range(1, ROUNDS + 1):
        changes = []
        for party in PARTIES:
            task = {FLContextKey.TASK_NAME: "train", FLContextKey.TASK_DATA: Site(folder).task(index, model)}
            fire(EventType.AFTER_TASK_DATA_FILTER, party, **task)
            if restart and index == 2:
                filters[party].handle_event(EventType.START_RUN, FLContext())
            after = trained({name: model[name] for name in model if name not in steps}, party, index)
            sent = as_dxo(DataKind.WEIGHT_DIFF, model, after | {name: model[name] + 1 for name in steps})
            sent = filters[party].process(sent, Site(folder, party).context())
            dxo = from_shareable(sent)
            if change is not None:
                change(dxo, index)
            changes.append(dxo.data)
            result = answered(dxo.to_shareable(), index)
            fire(
                EventType.BEFORE_TASK_RESULT_FILTER,
                party,
                **{FLContextKey.TASK_NAME: "train", FLContextKey.TASK_RESULT: result},
            )
        model = {name: model[name] + (changes[0][name] + changes[1][name]) / 2 for name in model}
        learnt = make_model_learnable(model, {})
        fire(AppEventType.AFTER_SHAREABLE_TO_LEARNABLE, **{AppConstants.GLOBAL_MODEL: learnt})
    fire(EventType.END_RUN)
    return folder / "run"


def outcomes(found: list[Check]) -> dict[str, str]:
    return {one.id: one.outcome for one in found}


def test_what_the_filter_counted_stands_beside_what_was_measured_and_is_checked(tmp_path: Path) -> None:
    run = recorded(tmp_path)
    claim = read_toml(run / HOST_CLAIM, "claim")
    one_round = SPEND["epsilon"] + SPEND["epsilon_release"]
    assert [one["epsilon"] for one in claim["spent"]] == pytest.approx([one_round, 2 * one_round])
    said = [one for one in results.load(run).told if one.code == "svt-claimed"]
    assert [(one.data["party"], one.data["rounds"]) for one in said] == [("north", 2), ("south", 2)]
    assert [one.data["epsilon"] for one in said] == pytest.approx([2 * one_round] * 2)
    found = verify(run, None)
    passes = dict.fromkeys(("V1", "V2", "V3", "V4", "V5"), "PASS")
    assert outcomes(found) == passes | {"V6": "CANNOT TELL"}, found
    for change, fails in (({"unit": None}, "V1"), ({"epsilon": 0.001}, "V2"), ({"epsilon_one_round": 0.001}, "V2")):
        stated = {key: value for key, value in (claim["claim"] | change).items() if value is not None}
        (tmp_path / "stated.toml").write_text(written({"claim": stated}))
        assert outcomes(verify(run, tmp_path / "stated.toml"))[fails] == "FAIL"


def quiet(dxo: DXO, index: int) -> None:
    """Clipped, and no noise."""
    gamma = SPEND["gamma"]
    dxo.data = {name: np.clip(value, -gamma, gamma) for name, value in dxo.data.items()}


def whole(dxo: DXO, index: int) -> None:
    rng = np.random.default_rng(index)
    dxo.data = {name: value + rng.laplace(size=value.shape).astype(value.dtype) for name, value in dxo.data.items()}


def counts(dxo: DXO, index: int) -> None:
    if index == 2:
        del dxo.meta["svt_privacy_budget"]


@pytest.mark.parametrize(
    ("world", "fails"),
    [
        ({"change": quiet}, "V5"),
        ({"change": whole}, "V3"),
        ({"restart": True}, "V2"),
        ({"change": counts}, "V2"),
        ({"counter": True}, "V4"),
    ],
    ids=["no noise", "more coordinates", "started anew", "a round without an account", "a counter left as it was"],
)
def test_a_filter_that_does_not_keep_its_claim_is_found(tmp_path: Path, world: dict[str, Any], fails: str) -> None:
    found = outcomes(verify(recorded(tmp_path, **world), None))
    assert [id for id, outcome in found.items() if outcome == "FAIL"] == [fails]
