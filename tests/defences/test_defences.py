"""Defences: against slow twins, what they refuse, and what they leave alone."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedaudit.config.registry import DEFENCES, Options
from fedaudit.config.schema import FederationSection, parse
from fedaudit.data.records import dataset
from fedaudit.defences import NONE, Defence, DefenceOptions, Setting, build
from fedaudit.defences.dp_fedavg import Clip, NoisySum, difference, norm
from fedaudit.defences.dp_sgd import DPSGD, poisson_batches
from fedaudit.defences.higradavg import HiGradAvg
from fedaudit.defences.shared import SLOTS, NoisyOptions
from fedaudit.errors import FedauditError
from fedaudit.federation import plans as sampled
from fedaudit.federation.simulate import Trainer, federate
from fedaudit.learn.tasks import TorchTask, Training, build_task
from fedaudit.privacy.accounting import epsilon
from fedaudit.types import Records, State, Trained, notice

SGD = Training("sgd", 0.5, 1, 8)


def task() -> TorchTask:
    return build_task("mlp", (5,), 3, {"hidden": (8,)})


def records(seed: int = 0, n: int = 40) -> Records:
    rng = np.random.default_rng(seed)
    subject = np.array([f"s{i // 4}" for i in range(n)])
    return dataset("a", rng.normal(size=(n, 5)), rng.integers(0, 3, n), id=np.arange(n), subject=subject).records


def setting(build_model: Any = None, **federation: Any) -> Setting:
    used = TorchTask(build_model, 3) if build_model else task()
    sources = {"a": lambda: records(0), "b": lambda: records(1, 50)}
    return Setting(used, used.initial(0), sources, SGD, FederationSection(**{"rounds": 4} | federation))


def ask(**keys: Any) -> Options:
    """As a configuration asks for a defence."""
    (asked,) = parse({"defences": [keys]}).defences
    return asked


def same(a: State, b: State) -> bool:
    return all(np.array_equal(a[key], b[key]) for key in a)


# ------------------------------------------------------------------ slots


def test_a_slot_can_be_filled_once() -> None:
    sgd, l2 = Defence("dp-sgd", gradient=DPSGD(1, 1)), Defence("l2", gradient=DPSGD(1, 0))
    guard = Defence("memguard", serve=lambda task, state, z: z)
    both = sgd | guard
    assert (both.gradient, both.serve, both.name) == (sgd.gradient, guard.serve, "dp-sgd | memguard")
    assert (NONE | sgd).name == "dp-sgd"
    with pytest.raises(FedauditError, match=r"defence-conflict.*'dp-sgd' and 'l2' both fill the slot 'gradient'"):
        sgd | l2


WORKING: dict[str, dict[str, Any]] = {
    "clip-only": {"clip": 1.0},
    "dp-fedavg": {"clip": 1.0, "noise": 1.0},
    "dp-sgd": {"clip": 1.0, "noise": 1.0},
    "dropout": {"strength": 0.5},
    "higradavg": {"clip": 1.0, "noise": 1.0},
    "l2": {"strength": 0.5},
    "memguard": {"strength": 0.5},
    "update-noise": {"strength": 5.0},
    "update-rank": {"rank": 2},
    "update-sparse": {"share": 0.1},
}


@pytest.mark.parametrize("name", [name for name in DEFENCES.entries if ":" not in name])  # your own says it itself
def test_a_defence_fills_the_slots_that_its_options_name(name: str) -> None:
    """What replays a run or checks its claim asks the options, without building the defence."""
    variants = [WORKING[name], WORKING[name] | {"local": True}] if name == "dp-fedavg" else [WORKING[name]]
    for keys in variants:
        asked = ask(name=name, **keys)
        assert isinstance(asked, DefenceOptions)
        built = build([asked], setting())
        assert asked.slots == tuple(slot for slot in SLOTS if getattr(built, slot) is not None)
        assert bool(built.promises) == isinstance(asked, NoisyOptions)


# ------------------------------------------------------------------ inside the party: slow twins


def one_by_one(
    state: State, rows: Records, training: Training, rng: np.random.Generator, clip: float, by: Any, used: Any = None
) -> State:
    """DP-SGD without its noise the obvious way: one backward pass a record, averaged by `by`, clipped, summed."""
    rng.integers(2**63), rng.integers(2**63)  # the streams of noise and dropout
    module = (used or task()).fresh(state)
    x, y = torch.from_numpy(rows.x), torch.from_numpy(rows.y)
    for batch in poisson_batches(len(rows), training, rng):
        grads: dict[Any, list[torch.Tensor]] = {}
        for i in batch:
            module.zero_grad()
            z = module(x[i : i + 1])
            summed = nn.functional.cross_entropy(z.reshape(-1, z.shape[-1]), y[i : i + 1].reshape(-1), reduction="sum")
            torch.autograd.backward(summed)
            flat = torch.cat([p.grad.flatten() for p in module.parameters() if p.grad is not None])
            grads.setdefault(by[i], []).append(flat)
        total = torch.zeros(sum(p.numel() for p in module.parameters()))
        for group in grads.values():
            mean = torch.stack(group).mean(0)
            total += mean * min(1.0, clip / (float(mean.norm()) + 1e-6))
        step = total * training.lr / training.batch_size
        with torch.no_grad():
            for p, part in zip(
                module.parameters(), torch.split(step, [q.numel() for q in module.parameters()]), strict=True
            ):
                p.sub_(part.view_as(p))
    return task().state_of(module)


@pytest.mark.parametrize("subjects", [False, True])
def test_clipping_against_one_backward_pass_a_record(subjects: bool) -> None:
    state, rows = task().initial(0), records()
    kind = HiGradAvg if subjects else DPSGD
    fast = kind(0.3, 0.0)(task(), state, rows, SGD, np.random.default_rng(3))
    slow = one_by_one(state, rows, SGD, np.random.default_rng(3), 0.3, rows.subject if subjects else rows.id)
    for key in state:
        assert fast.state[key] == pytest.approx(slow[key], abs=2e-6)
    assert not same(state, fast.state)


class Characters(nn.Module):
    """The next token from this one."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.last = nn.Embedding(5, 4), nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.last(torch.tanh(self.embedding(x)))
        return out


def text() -> Records:
    windows = np.random.default_rng(0).integers(0, 5, (40, 7))
    subject = np.array([f"s{i // 4}" for i in range(40)])
    return dataset("text", windows[:, :-1], windows[:, 1:], subject=subject, tokens=True).records


@pytest.mark.parametrize("subjects", [False, True])
def test_a_text_is_clipped_as_a_whole(subjects: bool) -> None:
    used, rows = TorchTask(Characters, 5), text()
    state = used.initial(0)
    fast = (HiGradAvg if subjects else DPSGD)(0.3, 0.0)(used, state, rows, SGD, np.random.default_rng(3))
    by = rows.subject if subjects else rows.id
    slow = one_by_one(state, rows, SGD, np.random.default_rng(3), 0.3, by, used)
    for key in state:
        assert fast.state[key] == pytest.approx(slow[key], abs=2e-6)
    assert not same(state, fast.state)


def test_what_a_model_for_text_cannot_be_defended_with_is_refused() -> None:
    used, sources = build_task("lstm", (6,), 5, {"units": 4}), {"a": text}
    about_text = Setting(used, used.initial(0), sources, SGD, FederationSection(rounds=4))
    for name, code in (("dp-sgd", "dp-model"), ("higradavg", "dp-model"), ("clip-only", "dp-model")):
        with pytest.raises(FedauditError, match=r"nn\.LSTM") as caught:
            build([ask(name=name, **WORKING[name])], about_text)
        assert caught.value.code == code
    for name, says in (("memguard", "at every position"), ("dropout", "activation layers")):
        with pytest.raises(FedauditError, match=says):
            build([ask(name=name, **WORKING[name])], about_text)
    build([ask(name="dp-fedavg", **WORKING["dp-fedavg"]), ask(name="l2", **WORKING["l2"])], about_text)


@pytest.mark.parametrize("kind", [DPSGD, HiGradAvg])
def test_noise_has_the_stated_size_and_leaves_the_batches_alone(kind: Any) -> None:
    """One step: noisy minus noiseless is N(0, (noise C lr / B)^2), every time anew."""
    training = replace(SGD, batch_size=40)
    state, rows = task().initial(0), records()
    plain = kind(0.3, 0.0)(task(), state, rows, training, np.random.default_rng(5))
    gaps = []
    for seed in range(30):
        rng = np.random.default_rng(5)
        if seed:  # another noise, the same batches
            generator = np.random.default_rng(seed)
            rng = _FirstDraw(rng, int(generator.integers(2**63)))  # type: ignore[assignment]
        noisy = kind(0.3, 2.0)(task(), state, rows, training, rng)
        gaps.append(np.concatenate([(noisy.state[k] - plain.state[k]).ravel() for k in state]))
    expected = 2.0 * 0.3 * 0.5 / 40
    assert np.std(gaps) == pytest.approx(expected, rel=0.05)
    assert abs(np.mean(gaps)) < 4 * expected / math.sqrt(np.size(gaps))


class _FirstDraw:
    """A generator whose first draw (the noise's seed) is given, and whose others are as they were."""

    def __init__(self, rng: np.random.Generator, first: int):
        self.rng, self.first = rng, first

    def integers(self, high: int) -> int:
        drawn = int(self.rng.integers(high))
        first, self.first = self.first, -1
        return first if first >= 0 else drawn

    def random(self, n: int) -> Any:
        return self.rng.random(n)


def test_clip_only_is_dp_sgd_without_noise_on_the_same_batches() -> None:
    used = setting()
    only = build([ask(name="clip-only", clip=0.3)], used)
    assert only.gradient == DPSGD(0.3, 0.0)
    assert only.promises == ()
    assert only.notices == (notice("clip-only"),)


def test_poisson_batches_are_what_the_accountant_is_told() -> None:
    sizes = np.concatenate([[len(b) for b in poisson_batches(100, SGD, np.random.default_rng(s))] for s in range(100)])
    assert len(sizes) == 100 * 13
    assert sizes.mean() == pytest.approx(8, rel=0.05)
    assert sizes.var() == pytest.approx(100 * 0.08 * 0.92, rel=0.15)  # shuffled batches would have none
    process = build([ask(name="dp-sgd", noise=1.0, clip=1.0)], setting()).promises[0].process
    assert (process.rate, process.releases, process.sampler, process.unit) == (8 / 40, 5, "poisson", "record")


def test_an_empty_batch_is_a_step_of_noise_alone() -> None:
    training = replace(SGD, batch_size=1, epochs=2)
    rows = records().take(np.arange(2))
    assert any(len(b) == 0 for b in poisson_batches(2, training, np.random.default_rng(0)))
    noisy = DPSGD(1.0, 1.0)(task(), task().initial(0), rows, training, np.random.default_rng(0))
    assert all(np.isfinite(value).all() for value in noisy.state.values())


def test_noise_on_an_update_is_as_long_as_it_is_said_to_be() -> None:
    used = setting(lambda: nn.Sequential(nn.Linear(5, 600), nn.BatchNorm1d(600), nn.Linear(600, 3)))
    broadcast = used.initial
    rng = np.random.default_rng(0)
    moved = {k: v + rng.normal(0, 0.01, v.shape).astype(v.dtype) if v.dtype.kind == "f" else v + 7
             for k, v in broadcast.items()}  # fmt: skip
    defence = build([ask(name="update-noise", strength=5.0)], used)
    assert defence.update is not None
    assert defence.promises == ()
    sent = defence.update(broadcast, Trained(moved, 1, 0.0), rng).state
    ratio = norm(difference(moved, sent)) / norm(difference(broadcast, moved))
    assert ratio == pytest.approx(5.0, rel=0.05)
    assert same({"1.num_batches_tracked": sent["1.num_batches_tracked"]}, moved)  # a counter
    shares = [np.std(difference(moved, sent)[key]) for key in ("0.weight", "2.weight")]
    assert shares[0] == pytest.approx(shares[1], rel=0.1)  # the same on every weight


def moved(build_model: Any) -> tuple[Setting, State, State]:
    """A model with a convolution and a counter, before and after some training."""
    used = setting(build_model)
    rng = np.random.default_rng(1)
    after = {k: (v + rng.standard_t(3, v.shape)).astype(v.dtype) if v.dtype.kind == "f" else v + 7
             for k, v in used.initial.items()}  # fmt: skip
    return used, used.initial, after


def with_convolution() -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 6, 3), nn.BatchNorm2d(6), nn.Flatten(), nn.Linear(24, 10), nn.Linear(10, 3))


def sent_by(asked: dict[str, Any], used: Setting, broadcast: State, after: State) -> State:
    defence = build([ask(**asked)], used)
    assert defence.update is not None
    assert defence.promises == ()
    sent = defence.update(broadcast, Trained(after, 1, 0.0), np.random.default_rng(0)).state
    assert list(sent) == list(after)
    assert all(sent[key].dtype == after[key].dtype for key in after)
    assert np.array_equal(sent["1.num_batches_tracked"], after["1.num_batches_tracked"])  # a counter
    return sent


def approximation(matrix: np.ndarray, rank: int) -> np.ndarray:
    """The best one of this rank the obvious way: one direction after the other, each by many multiplications."""
    found = np.zeros_like(matrix)
    for _ in range(rank):
        rest = matrix - found
        v = np.ones(matrix.shape[1])
        for _ in range(5000):
            v = rest.T @ (rest @ v)
            v /= np.linalg.norm(v)
        found = found + np.outer(rest @ v, v)
    return found


def test_an_update_is_cut_to_a_rank() -> None:
    used, broadcast, after = moved(with_convolution)
    sent = sent_by({"name": "update-rank", "rank": 4}, used, broadcast, after)
    trained, changed = difference(broadcast, after), difference(broadcast, sent)
    for key in ("0.weight", "3.weight"):
        matrix = changed[key].reshape(len(changed[key]), -1)
        slow = approximation(trained[key].reshape(matrix.shape), 4)
        assert np.allclose(matrix, slow, atol=1e-4)
        assert np.linalg.matrix_rank(matrix, tol=1e-4) == 4
    for key in ("4.weight", "0.bias", "1.running_mean"):  # 3 x 10 has no rank above 4, and vectors have none
        assert np.array_equal(sent[key], after[key])


def test_the_largest_entries_of_an_update_are_sent() -> None:
    used, broadcast, after = moved(with_convolution)
    sent = sent_by({"name": "update-sparse", "share": 0.1}, used, broadcast, after)
    trained = difference(broadcast, after)
    entries = sorted((abs(change), key, at) for key in trained for at, change in np.ndenumerate(trained[key]))
    kept = {(key, at) for _, key, at in entries[-math.ceil(0.1 * len(entries)) :]}
    for key in trained:
        for at in np.ndindex(trained[key].shape):
            assert sent[key][at] == (after if (key, at) in kept else broadcast)[key][at]


@pytest.mark.parametrize("asked", [{"name": "update-rank", "rank": 4}, {"name": "update-sparse", "share": 0.1}])
def test_training_that_diverged_is_not_hidden_by_cutting(asked: dict[str, Any]) -> None:
    used, broadcast, after = moved(with_convolution)
    after["3.weight"][2, 3] = np.nan
    assert np.isnan(sent_by(asked, used, broadcast, after)["3.weight"][2, 3])


def test_a_model_without_matrices_has_no_rank_to_cut() -> None:
    with pytest.raises(FedauditError, match=r"defence-rank.*no weight matrix"):
        build([ask(name="update-rank", rank=1)], setting(lambda: nn.LayerNorm(5)))


@pytest.mark.parametrize("asked", [{"name": "update-rank", "rank": 1}, {"name": "update-sparse", "share": 0.2}])
def test_parties_of_a_federation_send_updates_that_are_cut(asked: dict[str, Any]) -> None:
    parties = [Trainer(name, records(i), SGD) for i, name in enumerate("ab")]
    defence = build([ask(**asked)], setting())
    for round in federate(task(), parties, sampled("ab", 2, 1.0, "uniform", 7), 7, defence=defence):
        for one in round.sent.values():
            changed = difference(round.broadcast, one.state)
            if asked["name"] == "update-rank":
                matrices = [change for change in changed.values() if change.ndim == 2]
                assert [np.linalg.matrix_rank(matrix, tol=1e-5) for matrix in matrices] == [1, 1]
            else:
                sizes = sum(change.size for change in changed.values())
                assert sum(np.count_nonzero(change) for change in changed.values()) <= math.ceil(0.2 * sizes)


def test_dropout_and_l2_act_and_are_not_left_behind() -> None:
    state, rows = task().initial(0), records()
    plain = task().train(state, rows, SGD, np.random.default_rng(0)).state
    for name in ("l2", "dropout"):
        used = setting()
        gradient = build([ask(name=name, strength=0.5)], used).gradient
        assert gradient is not None
        assert not same(gradient(used.task, state, rows, SGD, np.random.default_rng(0)).state, plain)
        assert same(used.task.train(state, rows, SGD, np.random.default_rng(0)).state, plain)


# ------------------------------------------------------------------ between party and server


def test_dp_fedavg_by_hand() -> None:
    broadcast: State = {"w": np.zeros(3, np.float32), "b": np.ones(1, np.float32)}
    far = Trained({"w": np.array([3, 0, 4], np.float32), "b": np.ones(1, np.float32)}, 10, 0.0)
    near = Trained({"w": np.array([0, 0.6, 0], np.float32), "b": np.ones(1, np.float32)}, 990, 0.0)
    clip, rng = Clip(1.0), np.random.default_rng(0)
    sent = {"far": clip(broadcast, far, rng), "near": clip(broadcast, near, rng)}
    assert sent["far"].state["w"] == pytest.approx([0.6, 0, 0.8])
    assert sent["near"].state["w"] == pytest.approx([0, 0.6, 0])
    # A sum over a constant, whatever the number of examples behind it
    assert NoisySum(1.0, 0.0, 4.0)(broadcast, sent, rng)["w"] == pytest.approx([0.15, 0.15, 0.2])
    assert same(clip(broadcast, Trained(broadcast, 1, 0.0), rng).state, broadcast)  # a zero update divides nothing
    noise = np.concatenate([NoisySum(2.0, 3.0, 4.0)(broadcast, {}, rng)["w"] for _ in range(2000)])
    assert noise.std() == pytest.approx(2 * 3 / 4, rel=0.05)
    local = np.concatenate([Clip(2.0, 3.0)(broadcast, far, rng).state["w"][1:2] for _ in range(2000)])
    assert local.std() == pytest.approx(6, rel=0.05)


def test_a_defended_federation_shows_what_was_sent() -> None:
    parties = [Trainer(n, records(i, 40), replace(SGD, epochs=5)) for i, n in enumerate("abc")]
    defence = build([ask(name="dp-fedavg", noise=0.5, clip=0.1)], setting(participation=0.5, sampling="poisson"))
    plans = sampled("abc", 9, 0.5, "poisson", 7)
    seen = list(federate(task(), parties, plans, 7, defence=defence))
    empty = [round for round in seen if not round.sent]
    assert empty
    assert all(round.commit and not same(round.aggregate, round.broadcast) for round in empty)  # noise whoever comes
    for round in seen:
        for trained in round.sent.values():
            assert norm(difference(round.broadcast, trained.state)) <= 0.1 * (1 + 1e-5)
    assert not same(seen[0].aggregate, seen[0].broadcast)
    again = list(federate(task(), parties, plans, 7, defence=defence))
    assert same(seen[-1].aggregate, again[-1].aggregate)


# ------------------------------------------------------------------ promises


def test_given_epsilon_the_noise_keeps_it_for_the_worst_off_party() -> None:
    sampled_parties = setting(participation=0.5, sampling="poisson")
    for asked, where in (
        (ask(name="dp-sgd", epsilon=6.0, clip=1.0), setting()),
        (ask(name="dp-fedavg", epsilon=6.0, clip=1.0, delta=1e-3), sampled_parties),
        (ask(name="dp-fedavg", epsilon=6.0, clip=1.0, local=True), sampled_parties),
    ):
        promise = build([asked], where).promises[0]
        assert epsilon(promise.process, 4, promise.delta) == pytest.approx(6.0, rel=5e-3)
        assert epsilon(promise.process, 4, promise.delta) <= 6.0


def test_T26_parties_that_are_not_drawn_by_coins_are_not_amplified() -> None:
    uniform = build([ask(name="dp-fedavg", noise=1.0, clip=1.0)], setting(participation=0.5, sampling="uniform"))
    assert (uniform.promises[0].process.rate, uniform.promises[0].process.sampler) == (1.0, "full")
    assert uniform.notices[0] == notice("not-amplified")
    coins = build([ask(name="dp-fedavg", noise=1.0, clip=1.0)], setting(participation=0.5, sampling="poisson"))
    assert (coins.promises[0].process.rate, coins.notices) == (0.5, ())
    assert coins.aggregate == NoisySum(1.0, 1.0, 0.5 * 2)


def test_a_subject_is_charged_for_all_its_records_and_parties() -> None:
    process = build([ask(name="higradavg", noise=1.0, clip=1.0)], setting()).promises[0].process
    assert process.unit == "subject"
    assert process.rate == pytest.approx(1 - (1 - 8 / 40) ** 4)  # four records a subject
    assert process.releases == 2 * 7  # both parties hold subjects of the same names


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"name": "dp-sgd", "epsilon": math.nan, "clip": 1.0}, "dp-epsilon"),
        ({"name": "dp-sgd", "epsilon": -1.0, "clip": 1.0}, "dp-epsilon"),
        ({"name": "dp-sgd", "epsilon": 1.0, "delta": 1.0, "clip": 1.0}, "delta"),
        ({"name": "dp-sgd", "epsilon": 1.0, "delta": math.nan, "clip": 1.0}, "delta"),
        ({"name": "dp-sgd", "noise": 0.0, "clip": 1.0}, "dp-noise-zero"),
        ({"name": "dp-sgd", "noise": math.nan, "clip": 1.0}, "dp-noise"),
        ({"name": "dp-sgd", "noise": -1.0, "clip": 1.0}, "dp-noise"),
        ({"name": "dp-sgd", "noise": 1.0, "clip": 0.0}, "dp-clip"),
        ({"name": "dp-sgd", "noise": 1.0, "clip": math.inf}, "dp-clip"),
        ({"name": "dp-sgd", "noise": 1.0}, "defence-key"),
        ({"name": "dp-sgd", "clip": 1.0}, "dp-claim"),
        ({"name": "dp-sgd", "noise": 1.0, "epsilon": 1.0, "clip": 1.0}, "dp-claim"),
        ({"name": "clip-only", "noise": 1.0, "clip": 1.0}, "defence-key"),
        ({"name": "dropout", "strength": 1.5}, "defence-strength"),
        ({"name": "update-noise", "strength": 0.0}, "defence-strength"),
        ({"name": "update-rank", "rank": 0}, "defence-rank"),
        ({"name": "update-rank", "rank": 5}, "defence-rank"),  # an MLP 5-8-3
        ({"name": "update-rank", "rank": 2.5}, "bad-value"),
        ({"name": "update-rank"}, "defence-key"),
        ({"name": "update-sparse", "share": 0.0}, "defence-share"),
        ({"name": "update-sparse", "share": 1.0}, "defence-share"),
        ({"name": "update-sparse", "share": math.nan}, "defence-share"),
        ({"name": "update-sparse", "share": 0.013}, "defence-share"),  # one of 75 entries
    ],
)  # fmt: skip
def test_B2_refused_by_name(asked: dict[str, Any], code: str) -> None:
    with pytest.raises(FedauditError) as caught:
        build([ask(**asked)], setting())
    assert caught.value.code == code


@pytest.mark.parametrize("entries", [2, 75, 90, 100, 101, 4999])
def test_the_smallest_share_that_is_named_is_accepted(entries: int) -> None:
    one_row = setting(lambda: nn.Linear(entries, 1, bias=False))
    with pytest.raises(FedauditError) as caught:
        build([ask(name="update-sparse", share=1 / entries)], one_row)
    named = float(caught.value.todo.removeprefix("Give at least ").rstrip("."))
    assert 1 / entries < named < 1.2 / entries
    build([ask(name="update-sparse", share=named)], one_row)


def test_batchnorm_is_refused_with_the_remedy() -> None:
    def normed() -> nn.Module:
        return nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))

    for name, code in (("dp-sgd", "dp-batchnorm"), ("higradavg", "dp-batchnorm"), ("dp-fedavg", "dp-buffers")):
        with pytest.raises(FedauditError, match="GroupNorm") as caught:
            build([ask(name=name, noise=1.0, clip=1.0)], setting(normed))
        assert caught.value.code == code


@pytest.mark.parametrize("persistent", [True, False])
def test_D5_a_model_that_remembers_records_is_refused(persistent: bool) -> None:
    class Remembering(nn.Module):
        seen: torch.Tensor

        def __init__(self, remembers: bool = True) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(5), persistent=persistent)
            self.last, self.remembers = nn.Linear(5, 3), remembers

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.training and self.remembers:
                self.seen = 0.9 * self.seen + 0.1 * x.detach().mean(0)
            return self.last(x)  # type: ignore[no-any-return]

    for name in ("dp-sgd", "higradavg", "clip-only"):
        asked = ask(name=name, clip=1.0, **({} if name == "clip-only" else {"noise": 1.0}))
        with pytest.raises(FedauditError, match="seen") as caught:
            build([asked], setting(Remembering))
        assert caught.value.code == "dp-buffers"
        build([asked], setting(lambda: Remembering(False)))  # a buffer that stays as it is does no harm


def test_subjects_are_needed_for_subject_level() -> None:
    used = setting()
    bare = {"a": lambda: replace(records(), subject=None)}
    with pytest.raises(FedauditError, match="no-subjects"):
        build([ask(name="higradavg", noise=1.0, clip=1.0)], replace(used, sources=bare))


def test_B16_unknown_defence_keys_teach() -> None:
    with pytest.raises(FedauditError, match=r"unknown-key.*'noise'"):
        parse({"defences": [{"name": "dp-sgd", "noize": 1.0}]})
    with pytest.raises(FedauditError, match=r"bad-value.*defences\.0\.name.*Did you mean 'dp-sgd'"):
        parse({"defences": [{"name": "dp-sdg"}]})
    with pytest.raises(FedauditError, match=r"defence-key.*noise belongs to .*dp-sgd.*clip-only takes clip"):
        parse({"defences": [{"name": "clip-only", "noise": 1.0, "clip": 1.0}]})
