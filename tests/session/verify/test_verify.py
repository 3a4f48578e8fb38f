"""The claim checker: honest trainings pass, and each mutant of K30 is caught by the check that is meant for it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedaudit.config.schema import parse
from fedaudit.data.records import dataset
from fedaudit.defences.dp_fedavg import Clip, NoisySum, added, clipped, difference
from fedaudit.defences.dp_sgd import DPSGD
from fedaudit.defences.shared import Defence
from fedaudit.errors import FedauditError
from fedaudit.federation import plans as sampled
from fedaudit.federation.simulate import Trainer, average, federate
from fedaudit.learn.tasks import TorchTask, Training, build_task
from fedaudit.session.run import run
from fedaudit.session.verify import Check, Claim, CountingTask, Declared, check, from_trace, verify, verify_rounds
from fedaudit.session.verify.evidence import Observations, from_probe
from fedaudit.stats.gaussian import gaussian_epsilon
from fedaudit.types import Records, Round, State, Trained

NAMES = [f"p{i}" for i in range(6)]
NOISE, CLIP, DELTA, ROUNDS = 0.3, 0.4, 1e-5, 5


def task() -> TorchTask:
    return build_task("mlp", (5,), 3, {"hidden": (64,)})


def records(seed: int, n: int) -> Records:
    rng = np.random.default_rng(seed)
    return dataset("a", rng.normal(size=(n, 5)), rng.integers(0, 3, n), id=np.arange(n)).records


def parties() -> list[Trainer]:
    return [Trainer(n, records(i, 30 + 20 * i), Training("sgd", 0.5, 2, 16)) for i, n in enumerate(NAMES)]


def trained(defence: Defence, rounds: int = ROUNDS, rate: float = 1.0, sampling: Any = "poisson") -> list[Round]:
    return list(federate(task(), parties(), sampled(NAMES, rounds, rate, sampling, 3), 3, defence=defence))


def central(**change: Any) -> Declared:
    one, run_ = (gaussian_epsilon(math.sqrt(r) / NOISE, DELTA) for r in (1, ROUNDS))
    said: dict[str, Any] = {
        "epsilon": run_, "epsilon_one_round": one, "delta": DELTA, "clip": CLIP, "noise": NOISE, "where": "aggregate",
        "unit": "user", "adjacency": "add-remove", "parties": 6, "denominator": 6.0, "rounds": ROUNDS,
    }  # fmt: skip
    return Declared(**said | change)


def outcomes(checks: list[Check]) -> dict[str, str]:
    return {one.id: one.outcome for one in checks}


def failed(checks: list[Check]) -> set[str]:
    return {one.id for one in checks if one.outcome == "FAIL"}


HONEST = Defence("dp-fedavg", update=Clip(CLIP), aggregate=NoisySum(CLIP, NOISE, 6.0))


def test_an_honest_training_passes_every_check() -> None:
    found = verify_rounds(central(), trained(HONEST))
    assert outcomes(found) == {f"D{i}": "PASS" for i in range(1, 11)}, found


def test_an_honest_local_training_passes() -> None:
    said = central(where="update", denominator=None)
    found = verify_rounds(said, trained(Defence("local", update=Clip(CLIP, NOISE))))
    assert failed(found) == set(), found
    assert outcomes(found)["D3"] == outcomes(found)["D4"] == "PASS"


# ------------------------------------------------------------------ K30


@dataclass(frozen=True)
class OnlyOneLayer:
    def __call__(self, broadcast: State, sent: Mapping[str, Trained], rng: np.random.Generator) -> State:
        noisy, bare = (NoisySum(CLIP, noise, 6.0)(broadcast, sent, rng) for noise in (NOISE, 0.0))
        return {key: noisy[key] if key == "1.weight" else bare[key] for key in bare}


@dataclass(frozen=True)
class SameNoise:
    def __call__(self, broadcast: State, sent: Mapping[str, Trained], rng: np.random.Generator) -> State:
        return NoisySum(CLIP, NOISE, 6.0)(broadcast, sent, np.random.default_rng(0))


@dataclass(frozen=True)
class SameNoiseInLayers:
    def __call__(self, broadcast: State, sent: Mapping[str, Trained], rng: np.random.Generator) -> State:
        bare = NoisySum(CLIP, 0.0, 6.0)(broadcast, sent, rng)
        one = rng.normal(0, NOISE * CLIP / 6.0, 1_000)
        return {key: (v + one[: v.size].reshape(v.shape)).astype(v.dtype) for key, v in bare.items()}


@dataclass(frozen=True)
class SameNoiseAtParties:
    def __call__(self, broadcast: State, one: Trained, rng: np.random.Generator) -> Trained:
        return Clip(CLIP, NOISE)(broadcast, one, np.random.default_rng(len(broadcast)))


@dataclass(frozen=True)
class Weighted:
    def __call__(self, broadcast: State, sent: Mapping[str, Trained], rng: np.random.Generator) -> State:
        noise = {k: rng.normal(0, NOISE * CLIP / 6.0, v.shape) for k, v in broadcast.items()}
        return added(average(sent), noise)


def test_K30_B20_noise_divided_once_more_is_caught_by_D3() -> None:
    mutant = replace(HONEST, aggregate=NoisySum(CLIP, NOISE / 6.0, 6.0))
    assert "D3" in failed(verify_rounds(central(), trained(mutant)))
    local = Defence("local", update=Clip(CLIP, NOISE / 64))
    assert "D3" in failed(verify_rounds(central(where="update", denominator=None), trained(local)))


def test_K19_no_noise_at_all_is_caught_by_D3() -> None:
    mutant = replace(HONEST, aggregate=NoisySum(CLIP, 0.0, 6.0))
    assert "D3" in failed(verify_rounds(central(), trained(mutant)))
    assert {"D3", "D8"} <= failed(verify_rounds(central(noise=0.0), trained(mutant)))


def test_K30_noise_reused_is_caught_by_D4() -> None:
    assert failed(verify_rounds(central(), trained(replace(HONEST, aggregate=SameNoise())))) == {"D4"}
    assert failed(verify_rounds(central(), trained(replace(HONEST, aggregate=SameNoiseInLayers())))) == {"D4"}
    local = Defence("local", update=SameNoiseAtParties())
    assert failed(verify_rounds(central(where="update", denominator=None), trained(local))) == {"D4"}


def test_K30_noise_on_one_layer_only_is_caught_by_D5() -> None:
    assert "D5" in failed(verify_rounds(central(), trained(replace(HONEST, aggregate=OnlyOneLayer()))))


def test_D5_counters_are_released_without_noise() -> None:
    rounds = trained(HONEST)
    counted = []
    for r in rounds:
        before, after = {"steps": np.array(r.index)}, {"steps": np.array(r.index + 1)}
        sent = {n: replace(t, state={**t.state, **after}) for n, t in r.sent.items()}
        counted.append(Round(r.index, {**r.broadcast, **before}, sent, {**r.aggregate, **after}))
    found = {one.id: one for one in verify_rounds(central(), counted)}
    assert found["D5"].outcome == "FAIL"
    assert "steps" in found["D5"].evidence


def per_batch(task: TorchTask, state: State, rows: Records, training: Training, rng: np.random.Generator) -> Trained:
    """The mutant: the mean gradient of the batch is clipped instead of each record's."""
    generator = np.random.default_rng(int(rng.integers(2**63)))
    module = task.fresh(state)
    loss = torch.nn.functional.cross_entropy(module(torch.from_numpy(rows.x)), torch.from_numpy(rows.y))
    torch.autograd.backward(loss)
    change = {n: -p.grad.numpy().astype(np.float64) for n, p in module.named_parameters() if p.grad is not None}
    change = clipped(change, CLIP)
    noise = {n: generator.normal(0, NOISE * CLIP / len(rows), v.shape) for n, v in change.items()}
    return Trained(added(state, {n: training.lr * (change[n] + noise[n]) for n in change}), len(rows), 0.0)


@pytest.mark.parametrize(("gradient", "fails"), [(DPSGD(CLIP, NOISE), set()), (per_batch, {"D6"})])
def test_K30_clipping_whole_batches_is_caught_by_D6(gradient: Any, fails: set[str]) -> None:
    claim = Claim(central(where="gradient", unit="record", denominator=None), ROUNDS)
    state, rows, step = task().initial(0), records(0, 32), Training("sgd", 1.0, 1, 32)
    seen = from_probe(claim, state, rows, lambda r, rng: gradient(task(), state, r, step, rng), rows.id, 1.0)
    assert failed(check(claim, seen)) == fails


def test_D6_clipping_records_does_not_protect_a_subject() -> None:
    claim = Claim(central(where="gradient", unit="subject", denominator=None), ROUNDS)
    state, rows, step = task().initial(0), records(0, 32), Training("sgd", 1.0, 1, 32)
    subjects = np.array([f"s{i // 8}" for i in range(32)])
    train = DPSGD(CLIP / 10, NOISE * 10)
    narrow = Claim(central(where="gradient", unit="subject", clip=CLIP / 10, denominator=None), ROUNDS)
    seen = from_probe(narrow, state, rows, lambda r, rng: train(task(), state, r, step, rng), subjects, 1.0)
    assert "D6" in failed(check(narrow, seen))
    assert seen.moved is not None
    assert 1 < seen.moved <= 8
    assert claim.said.unit == "subject"


def test_D6_an_update_that_is_too_long() -> None:
    assert "D6" in failed(verify_rounds(central(), trained(replace(HONEST, update=Clip(3 * CLIP)))))


def test_K30_an_accountant_that_was_reset_is_caught_by_D8() -> None:
    """The server was restarted after round 3, and states what the last two rounds cost."""
    lately = gaussian_epsilon(math.sqrt(2) / NOISE, DELTA)
    assert failed(verify_rounds(central(epsilon=lately, rounds=2), trained(HONEST))) == {"D8"}
    found = {one.id: one for one in verify_rounds(central(epsilon=lately, rounds=None), trained(HONEST))}
    assert found["D8"].outcome == "FAIL"
    assert "covers 2 rounds" in found["D8"].evidence


def test_K30_a_sensitivity_of_1e_4_is_caught_by_D1() -> None:
    mutant = replace(HONEST, aggregate=NoisySum(1e-4, NOISE, 6.0))
    assert "D1" in failed(verify_rounds(central(sensitivity=1e-4), trained(mutant)))


# ------------------------------------------------------------------ the others


def test_D2_the_classic_formula_above_epsilon_one() -> None:
    noise = math.sqrt(2 * math.log(1.25 / DELTA)) / 16.0
    said = central(noise=noise, epsilon_one_round=16.0, epsilon=1e6)
    mutant = replace(HONEST, aggregate=NoisySum(CLIP, noise, 6.0))
    found = {one.id: one for one in verify_rounds(said, trained(mutant))}
    assert found["D2"].outcome == "FAIL"
    assert "classic formula" in found["D2"].evidence


def test_D7_T26_a_fixed_number_of_parties_is_not_poisson() -> None:
    half = replace(HONEST, aggregate=NoisySum(CLIP, 1.0, 3.0))
    said = central(
        noise=1.0, sampler="poisson", rate=0.5, denominator=3.0, epsilon=1e3, epsilon_one_round=1e3, rounds=None
    )
    assert failed(verify_rounds(said, trained(half, 24, 0.5, "poisson"))) == set()
    assert "D7" in failed(verify_rounds(said, trained(half, 24, 0.5, "uniform")))
    declared = said.model_copy(update={"sampler": "shuffled", "accounted_as": "poisson"})
    assert "D7" in failed(verify_rounds(declared, []))


def test_D7_T26_batches_inside_a_party_are_watched() -> None:
    state, rows, quarter = task().initial(0), records(0, 64), Training("sgd", 1e-6, 10, 16)
    claim = Claim(central(where="gradient", unit="record", sampler="poisson", rate=0.25, denominator=None), ROUNDS)
    coins, shuffled = CountingTask(task()), CountingTask(task())
    DPSGD(CLIP, NOISE)(coins, state, rows, quarter, np.random.default_rng(0))  # type: ignore[arg-type]
    shuffled.fit(shuffled.fresh(state), rows, quarter, np.random.default_rng(0))
    for watched, fails in ((coins, False), (shuffled, True)):
        assert len(watched.sizes) == 40
        seen = Observations(batches=watched.sizes, drawn_from=(64, 0.25))
        assert ("D7" in failed(check(claim, seen))) is fails


def test_D9_unit_and_adjacency_must_be_stated() -> None:
    assert "D9" in failed(verify_rounds(central(unit=None), trained(HONEST)))
    assert "D9" in failed(verify_rounds(central(adjacency=None), trained(HONEST)))


def test_T19_replace_needs_twice_the_noise() -> None:
    assert {"D1", "D2", "D8"} <= failed(verify_rounds(central(adjacency="replace"), trained(HONEST)))


def test_D10_noise_for_a_uniform_mean_around_a_weighted_one() -> None:
    assert failed(verify_rounds(central(), trained(replace(HONEST, aggregate=Weighted())))) == {"D10"}
    said = central(sampler="poisson", rate=0.5, denominator=3.0, epsilon=1e3, epsilon_one_round=1e3, rounds=None)
    rounds = trained(replace(HONEST, aggregate=None), 12, 0.5)
    by_count = []
    for seed, r in enumerate(r for r in rounds if r.sent):
        total = NoisySum(CLIP, NOISE, float(len(r.sent)))
        by_count.append(replace(r, aggregate=total(r.broadcast, r.sent, np.random.default_rng(seed))))
    assert "D10" in failed(verify_rounds(said, by_count))


def test_flower_wrappers_on_a_trace() -> None:
    """Flower's own arithmetic: its server wrapper meets a weighted mean, its local mod takes any sensitivity."""
    flower = pytest.importorskip("flwr.supercore.differential_privacy")
    np.random.seed(0)  # noqa: NPY002
    bare = trained(Defence("clip", update=Clip(CLIP)))
    rounds = []
    for round in bare:
        arrays = list(round.aggregate.values())
        noisy = [np.array(a) for a in arrays]
        flower.add_gaussian_noise_inplace(noisy, NOISE * CLIP / 6)
        aggregate = {k: v.astype(np.float32) for k, v in zip(round.aggregate, noisy, strict=True)}
        rounds.append(replace(round, aggregate=aggregate))
    assert failed(verify_rounds(central(), rounds)) == {"D10"}
    local = []
    for round in trained(Defence("none")):
        sent = {}
        for name, one in round.sent.items():
            arrays = [np.array(v, np.float64) for v in one.state.values()]
            flower.compute_clip_model_update(arrays, [np.array(v, np.float64) for v in round.broadcast.values()], CLIP)
            flower.add_gaussian_noise_inplace(arrays, 1e-4 * math.sqrt(2 * math.log(1.25 / DELTA)) / 1.0)
            sent[name] = replace(one, state=dict(zip(one.state, arrays, strict=True)))
        local.append(replace(round, sent=sent))
    said = central(where="update", denominator=None, noise=math.sqrt(2 * math.log(1.25 / DELTA)), sensitivity=1e-4,
                   epsilon_one_round=1.0, epsilon=5.0)  # fmt: skip
    assert {"D1", "D2", "D8"} <= failed(verify_rounds(said, local))


def test_what_cannot_be_told_is_not_passed() -> None:
    found = outcomes(verify_rounds(central(), []))
    assert [found[f"D{i}"] for i in (3, 4, 5, 6, 10)] == ["CANNOT TELL"] * 5
    inside = outcomes(
        verify_rounds(central(where="gradient", unit="record", denominator=None), trained(Defence("none")))
    )
    assert [inside[f"D{i}"] for i in (3, 4, 5, 6)] == ["CANNOT TELL"] * 4


# ------------------------------------------------------------------ files


CONFIG = """
[data]
name = "digits"
[federation]
parties = 3
rounds = 3
[model]
hidden = [32]
[audit]
attacks = ["loss"]
keep = "snapshots"
[[defences]]
name = "NAME"
noise = 1.0
clip = 0.5
"""


@pytest.mark.parametrize("name", ["dp-sgd", "dp-fedavg"])
def test_verify_configuration_and_run(tmp_path: Path, name: str) -> None:
    path = tmp_path / "c.toml"
    path.write_text(CONFIG.replace("NAME", name))
    found = verify(path, None)
    assert failed(found) == set(), found
    assert {outcomes(found)[f"D{i}"] for i in (1, 2, 3, 4, 6, 7, 8, 9, 10)} == {"PASS"}
    if name == "dp-fedavg":
        from contextlib import nullcontext

        run(parse({"data": {"name": "digits"}, "federation": {"parties": 3, "rounds": 3}, "model": {"hidden": [32]},
                   "audit": {"attacks": ["loss"], "keep": "snapshots"},
                   "defences": [{"name": name, "noise": 1.0, "clip": 0.5}]}),
            tmp_path / "run", lambda what, steps: nullcontext(lambda: None))  # fmt: skip
        assert failed(verify(tmp_path / "run", None)) == set()
        claim = tmp_path / "claim.toml"
        claim.write_text(
            '[claim]\nepsilon = 0.1\ndelta = 1e-5\nclip = 0.5\nnoise = 9.0\nwhere = "aggregate"\nparties = 3\n'
        )
        assert {"D3", "D8", "D9"} <= failed(verify(tmp_path / "run", claim))
        claim.write_text("[claim]\nepsilon = nan\n")
        with pytest.raises(FedauditError, match="claim"):
            verify(tmp_path / "run", claim)


def test_a_configuration_without_a_promise_has_no_claim(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text('[data]\nname = "digits"\n[federation]\nrounds = 2\n')
    with pytest.raises(FedauditError, match="no-claim"):
        verify(path, None)


def test_evidence_of_a_trace_is_taken_in_one_pass() -> None:
    rounds = iter(trained(HONEST))
    assert from_trace(Claim(central(), ROUNDS), rounds).rounds == ROUNDS
    assert difference({"w": np.zeros(2)}, {"w": np.ones(2)})["w"].tolist() == [1, 1]
