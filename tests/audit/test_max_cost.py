"""What the audit may cost: measured in the first round, and what costs more is left out and named with its price."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import fedaudit
from fedaudit.audit import Auditor
from fedaudit.audit.costs import dearest
from fedaudit.integrations.options import checked, make_auditor
from fedaudit.results.document import Document, load
from fedaudit.types import Observation, Round, State, Trained


def test_the_strongest_that_fit_stay_and_what_is_shared_is_paid_once() -> None:
    prices = {"unmix": 9.0, "filter": 3.0, "cosine": 2.5, "loss": 0.5}
    shares = {
        "unmix": {"u": 9.0},
        "filter": {"f": 2.0, "rows": 1.0},
        "cosine": {"g": 1.5, "rows": 1.0},
        "loss": {"l": 0.5},
    }
    assert dearest(prices, shares, 5.0, None) == ["unmix"]  # 0.5 + 3 + 1.5
    assert dearest(prices, shares, 4.9, None) == ["unmix", "cosine"]
    assert dearest(prices, shares, 0.1, None) == ["unmix", "filter", "cosine"]  # the cheapest stays
    assert dearest(prices, shares, None, 2.9) == ["unmix", "filter"]
    assert dearest(prices, shares, None, None) == []


def world() -> tuple[nn.Module, fedaudit.Game, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 6)).astype(np.float32)
    members, game = fedaudit.set_aside(x, np.arange(400) % 3)
    module = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3))
    return module, game, torch.from_numpy(members.x), torch.from_numpy(np.asarray(members.y))


def trained(module: nn.Module, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    optimizer.zero_grad()
    torch.autograd.backward(F.cross_entropy(module(x), y))
    optimizer.step()
    return {name: value.clone() for name, value in module.state_dict().items()}


def recorded(out: Path, max_cost: float | None = None) -> Document:
    module, game, x, y = world()
    with fedaudit.record(module, game, out=out, rounds=3, max_cost=max_cost) as audit:
        audit.observe(0, {name: value.clone() for name, value in module.state_dict().items()})
        for number in (1, 2, 3):
            state = trained(module, x, y)
            audit.observe(number, state, updates={"party": state})
    return load(out / "results.json")


def told(document: Document, code: str) -> list[dict[str, object]]:
    return [dict(one.data) for one in document.told if one.code == code]


def test_a_budget_chooses_the_attacks(tmp_path: Path) -> None:
    dear = recorded(tmp_path / "dear", max_cost=1e-9)
    assert {result.attack for result in dear.results} - {"blind"}  # what comes out of the cheapest pass stays
    (left,) = told(dear, "attacks-dear")
    assert {"matched-filter", "fusion"} <= set(left["epochs"])  # type: ignore[call-overload]
    assert all(price > 0 for price in left["epochs"].values())  # type: ignore[attr-defined]
    assert not dear.failed
    rich = recorded(tmp_path / "rich", max_cost=1e9)
    plain = recorded(tmp_path / "plain")
    assert {result.attack for result in rich.results} == {result.attack for result in plain.results}
    assert not told(rich, "attacks-dear")
    assert not told(plain, "attacks-dear")  # what takes no three seconds keeps nobody waiting


def test_what_has_cost_nothing_yet_is_not_all_that_stays() -> None:
    """An attack on the last model alone has cost nothing in the first round."""
    shares: dict[str, dict[str, float]] = {"strong": {"pass": 5.0}, "cheap": {"look": 2.0}, "last": {}}
    prices = {name: sum(own.values()) for name, own in shares.items()}
    assert dearest(prices, shares, 1.0, None) == ["strong"]
    assert dearest({"last": 0.0}, {"last": {}}, 1.0, None) == dearest({}, {}, 1.0, None) == []


def test_an_attack_that_failed_is_told_as_failed_and_not_as_dear() -> None:
    module, game, x, y = world()
    state = {name: value.numpy() for name, value in trained(module, x, y).items()}
    auditor = make_auditor(module, game, checked(4))
    auditor.failed["gradient-diff"] = "it broke"
    observed(auditor, 1, state, {"gradient-cosine": 11.0})
    assert set(auditor.dropped or ()) == {"gradient-cosine", "gradient-norm-all", "fusion"}
    assert auditor.snapshot().failed == {"gradient-diff": "it broke"}


def observed(auditor: Auditor, number: int, state: State, seconds: dict[str, float]) -> Observation:
    """A round in which these families of signals took so many seconds, and an epoch took ten."""
    round = Round(number, auditor.task.initial(0), {"party": Trained(state, 240, 10.0)}, state)  # type: ignore[union-attr]
    seen = auditor.measure(round)
    assert seen is not None
    of = {key: replace(one, spent={**one.spent, **seconds}) for key, one in seen.of.items()}
    auditor.absorb(Observation(seen.round, of))
    return seen


def test_what_nobody_asked_for_takes_no_longer_than_an_epoch() -> None:
    module, game, x, y = world()
    state = {name: value.numpy() for name, value in trained(module, x, y).items()}
    auditor = make_auditor(module, game, checked(4))
    dear = {"gradient-cosine": 11.0}
    observed(auditor, 1, state, dear)
    alike = {"gradient-cosine", "gradient-diff", "gradient-norm-all", "fusion"}
    assert set(auditor.dropped or ()) == alike
    assert min((auditor.dropped or {}).values()) == pytest.approx(1.1, abs=0.1)
    found = auditor.snapshot()
    assert alike.isdisjoint(result.attack for result in found.results)
    assert not found.failed
    (notice,) = [one for one in found.notices if one.code == "attacks-dear"]
    assert set(notice.data["epochs"]) == alike

    # another process goes on without them, and measures nothing for them
    other = make_auditor(module, game, checked(4))
    other.restore(auditor.state())
    seen = observed(other, 2, state, {})
    assert not {name for one in seen.of.values() for name in one.values if name.startswith("gradient-cosine")}
    assert [one.code for one in other.snapshot().notices].count("attacks-dear") == 1

    # what was asked for by name runs, whatever it takes
    asked = make_auditor(module, game, checked(4, attacks=["gradient-cosine", "loss"]))
    observed(asked, 1, state, dear)
    assert not asked.dropped
