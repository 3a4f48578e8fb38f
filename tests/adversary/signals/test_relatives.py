"""The relatives of the matched filter against what they are defined as, written out for one record at a time."""

import numpy as np
import pytest
import torch
from torch import nn

from fedaudit.adversary.signals import ghost, matched
from fedaudit.adversary.signals.updates import Losses
from fedaudit.learn.tasks import Training, build_task
from fedaudit.session.prepare import prepare
from fedaudit.session.run import rounds
from fedaudit.types import Floats, Records, State, Task
from tests.adversary.signals.test_ghost import Then, losses
from tests.adversary.signals.test_matched import DAMPING, slow_inverse
from tests.worlds import config


def test_the_loss_under_a_model_received_is_that_of_the_model() -> None:
    rng = np.random.default_rng(0)
    rows = Records(rng.random((37, 5), np.float32), rng.integers(0, 3, 37), np.arange(37).astype(np.str_))
    task = build_task("mlp", (5,), 3, {"hidden": (8,)})
    received = task.initial(0)
    sent = task.train(received, rows, Training("sgd", 0.5, 5, 37), rng).state

    def loss(state: dict[str, np.ndarray]) -> np.ndarray:
        with torch.no_grad():
            out = task.fresh(state)(torch.from_numpy(rows.x)).double()
        return nn.functional.cross_entropy(out, torch.from_numpy(rows.y), reduction="none").numpy()

    before, after = (matched.loss(task, state, rows) for state in (received, sent))
    assert before == pytest.approx(loss(dict(received)), abs=1e-6)
    assert after == pytest.approx(loss(dict(sent)), abs=1e-6)
    assert before.mean() > after.mean()


@pytest.mark.parametrize("shape", [(6,), (5, 6)])
def test_projection_is_zero_in_the_row_space_and_one_outside(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    module = Then(nn.Linear(6, 4)).double()
    x = torch.randn(13, *shape).double()
    module(x)
    update = torch.zeros(4, 6).double()
    update[0, :2] = torch.tensor([1.0, 1.0])
    update[1, :2] = torch.tensor([1.0, -1.0])  # the row space: the first two coordinates
    found = matched.projection(module, x, update, "layer")
    h = x.reshape(13, -1, 6)
    expected = -(h[..., 2:].norm(dim=2) / h.norm(dim=2)).mean(1)
    assert torch.allclose(found, expected, rtol=1e-9)
    weak = update.clone()
    weak[2, 2] = 1e-6  # below the cut
    assert torch.allclose(matched.projection(module, x, weak, "layer"), expected, rtol=1e-6)


def test_inverse_hessian_adds_loss_and_curvature_weighted_gradient() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(6, 3)).double()
    x, y = torch.randn(31, 6).double(), torch.randint(0, 3, (31,))
    fitting = torch.arange(10, 31)
    prepared = matched.prepare(module, losses, x, y, fitting, DAMPING)
    h = torch.cat([x, torch.ones(31, 1)], dim=1)
    delta = torch.softmax(module(x), 1).detach() - nn.functional.one_hot(y, 3)
    right = slow_inverse(h[fitting].T @ h[fitting] / 21, DAMPING)
    left = slow_inverse(delta[fitting].T @ delta[fitting] / 21, DAMPING)
    gradients = [torch.cat([g["0.weight"], g["0.bias"][:, None]], dim=1) for g in ghost.naive(module, losses, x, y, ["0.weight", "0.bias"])]  # fmt: skip  # noqa: E501
    size = torch.stack([(left @ g @ right * g).sum() for g in gradients])
    loss = losses(module(x), y).detach()

    def z(values: torch.Tensor) -> torch.Tensor:
        return (values - values[fitting].mean()) / values[fitting].std()

    assert torch.allclose(matched.inverse_hessian(prepared, module), -(z(loss) + z(size)), rtol=1e-8)


def test_what_a_round_starts_from_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The global model was asked about all records in the round before: the same bits as if it were asked again."""
    prepared, asked, loss = prepare(config(audit={"attacks": ["round-gain"]})), list[int](), matched.loss

    def counted(task: Task, state: State, rows: Records) -> Floats:
        asked.append(len(rows))
        return loss(task, state, rows)

    monkeypatch.setattr(matched, "loss", counted)
    sights = prepared.auditor.outlooks.sights
    for round in rounds(prepared):
        seen = prepared.auditor.observe(round)
        assert seen is not None
        for key, measured in seen.of.items():
            again = loss(prepared.task, round.broadcast, sights[key].rows)
            assert np.array_equal(measured.values["loss-before"], again), (round.index, key)
    everybody = len(prepared.game.candidates)
    assert [many for many in asked if many == everybody] == [everybody]  # in the first round
    assert len(asked) == 1 + 2 * 5  # and every party's own records


def test_a_model_that_was_changed_in_place_is_another() -> None:
    rows = prepare(config()).game.candidates.rows
    state, losses = {"w": np.ones(3)}, Losses()
    assert losses.of(state, rows) is None
    losses.tell(state, rows, np.arange(2.0))
    assert losses.of({"w": np.ones(3)}, rows) is not None
    assert losses.of(state, rows.take(np.arange(2))) is None
    state["w"][1] = 2.0
    assert losses.of(state, rows) is None
