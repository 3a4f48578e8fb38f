"""Flower's server-side wrapper clips what has arrived, and so what was recorded, whole."""

import math
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")

from flwr.app import Context, Message
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg
from flwr.supercore.privacy_accounting import NeighboringRelation, PrivacyConfig, PrivacySpent, SamplingMethod
from flwr.supercore.privacy_accounting.rdp_accountant import RdpAccountant

from fedaudit.integrations.flower.server import record_strategy, trace_strategy
from fedaudit.results import document as results
from fedaudit.session.verify import Check, verify
from fedaudit.stats.gaussian import gaussian_epsilon
from tests.integrations.flower_world import LocalGrid, client_app, initial, party_of
from tests.integrations.worlds import games, net

NOISE, ROUNDS = 1.0, 3


def alike(message: Message, context: Context, call_next: Any) -> Message:
    """Both parties report the same number of records, so that the weighted mean is the uniform one."""
    reply: Message = call_next(message, context)
    for metrics in reply.content.metric_records.values():
        metrics["num-examples"] = 100
    return reply


def checked(folder: Path, noise: float, clip: float, clipped: str) -> dict[str, Check]:
    strategy = DifferentialPrivacyServerSideFixedClipping(FedAvg(), noise, clip, 2)
    recorded = trace_strategy(strategy, out=folder / "run", party=party_of)
    recorded.start(grid=LocalGrid(client_app([alike])), initial_arrays=initial(), num_rounds=ROUNDS)
    one, whole = (gaussian_epsilon(math.sqrt(r) / NOISE, 1e-5) * 1.001 for r in (1, ROUNDS))
    claim = folder / "claim.toml"
    claim.write_text(
        f'[claim]\nepsilon = {whole}\nepsilon_one_round = {one}\ndelta = 1e-5\nclip = {clip}\nnoise = {NOISE}\n'
        f'where = "aggregate"\nunit = "user"\nadjacency = "add-remove"\nparties = 2\ndenominator = 2.0\n'
        f'clipped = "{clipped}"\n'
    )  # fmt: skip
    return {one.id: one for one in verify(folder / "run", claim)}


def test_an_honest_wrapper_fails_nothing(tmp_path: Path) -> None:
    found = checked(tmp_path, NOISE, 0.05, "server")
    assert not [one for one in found.values() if one.outcome == "FAIL"], found
    assert found["D3"].outcome == found["D4"].outcome == "PASS"
    assert found["D6"].outcome == "PASS"
    assert "clipped before they were added up" in found["D6"].evidence


def test_a_wrapper_without_noise_is_caught_by_D3_whoever_is_said_to_clip(tmp_path: Path) -> None:
    for clipped in ("server", "party"):
        (tmp_path / clipped).mkdir()
        assert checked(tmp_path / clipped, 1e-9, 0.02, clipped)["D3"].outcome == "FAIL"


def test_D6_says_how_to_declare_that_the_server_clips(tmp_path: Path) -> None:
    found = checked(tmp_path, NOISE, 0.05, "party")["D6"]
    assert found.outcome == "FAIL"
    assert 'clipped = "server"' in found.evidence


# ------------------------------------------------------------------ claims read from the wrapper's own accountant


DELTA = 1e-5


class Generous(RdpAccountant):
    """Counts a third of what is spent."""

    def get_privacy_spent(self, delta: float | None = None) -> PrivacySpent:
        spent = super().get_privacy_spent(delta)
        return replace(spent, epsilon=spent.epsilon / 3)


def run_with(accountant: RdpAccountant, folder: Path) -> DifferentialPrivacyServerSideFixedClipping:
    strategy = DifferentialPrivacyServerSideFixedClipping(FedAvg(), NOISE, 0.05, 2, accountant=accountant)
    recorded = record_strategy(
        strategy, out=folder, rounds=ROUNDS, model=net, game=games(), party=party_of, attacks=["loss"], keep="snapshots"
    )
    recorded.start(grid=LocalGrid(client_app([alike])), initial_arrays=initial(), num_rounds=ROUNDS)
    return strategy


def accounted(kind: type[RdpAccountant]) -> RdpAccountant:
    relation, sampling = NeighboringRelation.ADD_OR_REMOVE_ONE, SamplingMethod.NO_AMPLIFICATION
    return kind(PrivacyConfig(DELTA, 2, relation, sampling))


def test_what_the_wrapper_spent_is_read_from_it_and_stands_beside_what_was_measured(tmp_path: Path) -> None:
    strategy = run_with(accounted(RdpAccountant), tmp_path / "run")
    claim = tomllib.loads((tmp_path / "run" / "claim.toml").read_text())
    spent = strategy.privacy_spent()
    assert spent is not None
    assert [each["round"] for each in claim["spent"]] == [1, 2, 3]
    epsilons = [each["epsilon"] for each in claim["spent"]]
    assert epsilons == sorted(epsilons)
    assert epsilons[-1] == claim["claim"]["epsilon"] == spent.epsilon
    found = {one.id: one for one in verify(tmp_path / "run", None)}
    assert {one.outcome for one in found.values()} == {"PASS"}, found
    stated = results.load(tmp_path / "run").run.guarantee
    assert stated is not None
    exact = [gaussian_epsilon(math.sqrt(r) / NOISE, DELTA) for r in (1, 2, 3)]
    assert list(stated.curve.epsilon) == pytest.approx(exact, rel=0.01)
    assert all(ours <= theirs for ours, theirs in zip(exact, epsilons, strict=True))  # RDP is an upper bound


def test_an_accountant_that_counts_too_little_is_caught(tmp_path: Path) -> None:
    run_with(accounted(Generous), tmp_path / "run")
    failed = {one.id for one in verify(tmp_path / "run", None) if one.outcome == "FAIL"}
    assert failed == {"D2", "D8"}  # of one round, and of all
