"""Flower's server-side wrapper clips what has arrived, and so what was recorded, whole."""

import math
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")

from flwr.app import Context, Message
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg

from fedaudit.integrations.flower.server import trace_strategy
from fedaudit.session.verify import Check, verify
from fedaudit.stats.gaussian import gaussian_epsilon
from tests.integrations.flower_world import LocalGrid, client_app, initial, party_of

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
