"""Gradient signals on real federations, against gradients formed one by one; and known answers for their products."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from fedaudit.adversary.signals import SignalTrial, ghost
from fedaudit.adversary.signals.updates import Coverage, statistics
from fedaudit.adversary.vantage import GRANTS
from fedaudit.errors import FedauditError, NotGrantedError
from fedaudit.learn.tasks import TorchTask, Training, build_task
from fedaudit.session.prepare import prepare
from fedaudit.session.run import rounds
from fedaudit.stats import auc
from fedaudit.stats.blocks import Block
from fedaudit.types import Floats, Grant, Records, Vantage
from tests.views import global_view, local_views, one_model, signals
from tests.worlds import config

SIGNALS = ("gradient-cosine", "gradient-diff", "gradient-norm-all")


def test_cosine_diff_and_norm_are_those_of_the_whole_gradients() -> None:
    prepared = prepare(config())
    round = next(rounds(prepared))
    rows = prepared.game.candidates.rows.take(np.arange(0, 300, 29))
    for view in [*local_views(round, prepared.task), global_view(round, prepared.task)]:
        found = signals(SIGNALS, view, rows)
        assert found["gradient-cosine"].shape == (len(rows), 3)  # two layers, and both together
        assert view.received is round.broadcast
        module = prepared.task.fresh(round.broadcast).eval()
        names = [name for name, _ in module.named_parameters()]
        update = [torch.from_numpy(round.broadcast[name] - view.weights[name]) for name in names]
        for i in range(len(rows)):
            out = module(torch.from_numpy(rows.x[i : i + 1]))
            loss = nn.functional.cross_entropy(out, torch.from_numpy(rows.y[i : i + 1]))
            gradient = torch.autograd.grad(loss, list(module.parameters()))
            for column, of_layer in enumerate([slice(0, 2), slice(2, 4), slice(0, 4)]):
                g = torch.cat([part.flatten() for part in gradient[of_layer]]).double()
                u = torch.cat([part.flatten() for part in update[of_layer]]).double()
                assert found["gradient-cosine"][i, column] == pytest.approx(
                    float(g @ u / (g.norm() * u.norm())), abs=1e-5
                )
                assert found["gradient-diff"][i, column] == pytest.approx(float(u.norm() - (u - g).norm()), abs=1e-5)
            assert found["gradient-norm-all"][i] == pytest.approx(float(g.norm()), rel=1e-5)


def test_an_update_made_of_one_record_points_where_its_gradient_points() -> None:
    """One SGD step on one record: cosine 1 with itself, whatever the step size; so members are positive."""
    prepared = prepare(config())
    rows, task = prepared.game.candidates.rows, prepared.task
    received = task.initial(0)
    one = rows.take(np.array([5]))
    sent = task.train(received, one, Training("sgd", 0.01), np.random.default_rng(0)).state
    view = one_model(task, sent, received)
    found = signals(["gradient-cosine"], view, rows.take(np.arange(10)))["gradient-cosine"][:, -1]
    assert found[5] == pytest.approx(1.0, abs=1e-4)
    assert np.delete(found, 5).max() < 0.999


def test_nothing_learnt_is_no_evidence() -> None:
    prepared = prepare(config())
    state = prepared.task.initial(0)
    view = one_model(prepared.task, state, state)
    found = signals(["gradient-cosine"], view, prepared.game.candidates.rows)
    assert not found["gradient-cosine"].any()


def test_order_and_company_do_not_matter() -> None:
    prepared = prepare(config())
    view = next(local_views(next(rounds(prepared)), prepared.task))
    rows = prepared.game.candidates.rows.take(np.arange(200))
    order = np.random.default_rng(0).permutation(200)
    straight = signals(SIGNALS, view, rows)
    shuffled = signals(SIGNALS, view, rows.take(order))
    for name in SIGNALS:
        assert straight[name][order] == pytest.approx(shuffled[name], rel=1e-4, abs=1e-6)


def test_who_sees_consecutive_models() -> None:
    prepared = prepare(config())
    round = next(rounds(prepared))
    for vantage in Vantage:
        seen = global_view(round, prepared.task, vantage)
        if {Grant.WEIGHTS, Grant.EVERY_ROUND} <= GRANTS[vantage, "global"]:
            assert seen.received is round.broadcast
        else:
            with pytest.raises(NotGrantedError, match=vantage.value):
                _ = seen.received


def test_what_nobody_saw_is_not_observed() -> None:
    """Without the start of a round there is no update: no signal, rather than a zero that looks like one."""
    prepared = prepare(config())
    state = prepared.task.initial(0)
    found = signals([*SIGNALS, "loss"], one_model(prepared.task, state), prepared.game.candidates.rows)
    assert set(found) == {"loss"}


@pytest.mark.parametrize("vantage", ["outsider", "label-only-client"])
def test_gradient_attacks_need_weights(vantage: str) -> None:
    with pytest.raises(FedauditError, match=r"'gradient-cosine' needs .*weights"):
        prepare(config(audit={"vantages": [vantage], "attacks": ["gradient-cosine"]}))


# ------------------------------------------------------------------ refused or announced before training


def flat_records(n: int = 30) -> Records:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(n, 6)).astype(np.float32), rng.integers(0, 3, n)
    return Records(x, y, np.arange(n).astype(np.str_))


def test_models_without_gradients_of_their_own_are_refused() -> None:
    def mixing() -> nn.Module:
        return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8, track_running_stats=False), nn.Linear(8, 3))

    task = TorchTask(mixing, 3)
    trial = SignalTrial(task, task.initial(0), flat_records())
    assert trial.why_not(["loss"]) is None
    assert "depends on the other records of its batch" in str(trial.why_not(["gradient-cosine"]))


def test_gradients_are_checked_once_for_all_attacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check compares with a backward pass for each record; it must not be paid once for each attack."""
    checked: list[int] = []

    def verify(*given: Any) -> ghost.LayerPlan:
        checked.append(len(given))
        return verified(*given)

    verified = ghost.verify
    monkeypatch.setattr(ghost, "verify", verify)
    task = build_task("mlp", (6,), 3, {})
    trial = SignalTrial(task, task.initial(0), flat_records())
    for names in (["gradient-cosine"], ["gradient-diff", "gradient-norm-all"], ["gradient-cosine"]):
        assert trial.why_not(names) is None
    assert len(checked) == 1


def test_slow_layers_are_known() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale, self.head = nn.Parameter(torch.ones(6)), nn.Linear(6, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.head(x * self.scale)
            return out

    task = TorchTask(Scaled, 3)
    known = SignalTrial(task, task.initial(0), flat_records()).gradients
    assert isinstance(known, Coverage)
    assert known.slow == {"": ("scale",)}
    assert known.share(frozenset({"scale"})) == 6 / 27
    task = build_task("mlp", (6,), 3, {})
    known = SignalTrial(task, task.initial(0), flat_records()).gradients
    assert isinstance(known, Coverage)
    assert not known.slow


def test_what_an_attack_throws_when_it_is_tried_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the memory does not suffice: the others are not affected."""

    def full(*_: object, **__: object) -> None:
        raise RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(ghost, "statistics", full)
    task = build_task("mlp", (6,), 3, {})
    trial = SignalTrial(task, task.initial(0), flat_records())
    assert trial.why_not(["loss"]) is None
    assert "RuntimeError" in str(trial.why_not(["gradient-cosine"]))


# ------------------------------------------------------------------ known answers


class Mean(nn.Module):
    """loss = -<w, x>: every record's gradient is -x, and one full step of SGD moves w by the mean of the records."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.layer = nn.Linear(d, 1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layer(x)
        return out


class MeanTask(TorchTask):
    def losses(self, outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return -outputs[:, 0]


def products(parts: Floats, record: Floats, task: MeanTask) -> Floats:
    """<g, u> of the record with the update of each redraw: parts is redraws x n x d."""
    received = task.initial(0)
    sent = [
        {"layer.weight": received["layer.weight"] + part.mean(axis=0, keepdims=True).astype(np.float32)}
        for part in parts
    ]
    rows = Records(record[None].astype(np.float32), np.zeros(1, np.int64), np.array(["z"]))
    inner: Floats = statistics(task, received, sent, rows).inner[0, 0].numpy()
    return inner


@pytest.mark.parametrize(("n", "s"), [(8, 1), (20, 1), (8, 3)])
def test_K13_K14_mean_updates(n: int, s: int) -> None:
    """Replace s of n records by a subject's: AUC of <z, update> over redraws is Phi(|S| / sqrt(2n - s)).

    For one record (s = 1, K13) S = z and the score is <g, u>; for a subject (K14) it is the sum over its records.
    """
    d, redraws = 5, 4000
    rng = np.random.default_rng(n + s)
    task = MeanTask(lambda: Mean(d), 1)
    subject = rng.normal(size=(s, d))
    total = subject.sum(axis=0)
    outside = rng.normal(size=(redraws, n, d))
    inside = rng.normal(size=(redraws, n, d))
    inside[:, :s] = subject
    scores = [products(world, total, task) for world in (inside, outside)]
    found = auc([Block(scores[0], scores[1], scores[1])], 0.999)
    expected = stats.norm.cdf(np.linalg.norm(total) / np.sqrt(2 * n - s))
    assert found.low is not None
    assert found.high is not None
    assert found.low <= expected <= found.high
    assert found.value == pytest.approx(expected, abs=0.02)
