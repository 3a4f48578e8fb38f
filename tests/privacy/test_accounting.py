"""Accounting: against exact answers, against itself done slowly, and what it refuses."""

import json
import math
from dataclasses import asdict, replace
from typing import Any

import pytest

from fedaudit.errors import FedauditError
from fedaudit.privacy import accounting
from fedaudit.privacy.accounting import curve, epsilon, noise_for, rdp_epsilon, statement
from fedaudit.privacy.statement import LEAST_NOISE, Process, Promise
from fedaudit.stats.gaussian import gaussian_epsilon, gaussian_mu

RECORD = Process("record", 0.8, 100, "poisson", 0.01)


def test_interval_is_fine_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """sigma .8, q .01, T 1000: within 2e-4 of an interval ten times finer."""
    found = epsilon(RECORD, 10, 1e-5)
    monkeypatch.setattr(accounting, "INTERVAL", 1e-4)
    assert found == pytest.approx(epsilon(RECORD, 10, 1e-5), rel=2e-4)
    assert found == pytest.approx(3.141, abs=1e-3)


@pytest.mark.parametrize("target", [1e-3, 1e-2])
def test_a_small_epsilon_is_met_without_waste(target: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the limit of much noise Poisson sampling divides it by the rate: the central limit theorem of Gaussian DP."""
    process = Process("record", 1.0, 10, "poisson", 0.1)
    noise = noise_for(target, 1e-5, process, 40)
    unamplified = math.sqrt(400) / gaussian_mu(target, 1e-5)
    assert noise == pytest.approx(0.1 * unamplified, rel=0.01)
    found = epsilon(replace(process, noise=noise), 40, 1e-5)
    monkeypatch.setattr(accounting, "FINENESS", 100)
    assert found == pytest.approx(epsilon(replace(process, noise=noise), 40, 1e-5), rel=2e-3)


def test_little_noise_is_accounted_soundly_and_at_once() -> None:
    """Losses too wide for a grid: Renyi accounting, which never promises more."""
    little = replace(RECORD, noise=0.05)
    assert epsilon(little, 10, 1e-5) == curve(little, [5, 10], 1e-5)[-1] == rdp_epsilon(little, 10, 1e-5)
    assert accounting.guarantee(little, 1, 1e-5).accountant == "Renyi divergences"
    assert epsilon(little, 10, 1e-5) > epsilon(replace(little, noise=accounting.LEAST_PLD_NOISE), 10, 1e-5)
    for process in (little, Process("user", 1.0, 1, "full")):
        least = replace(process, noise=LEAST_NOISE)
        spent = statement(Promise(defence="d", process=least, delta=1e-5, units=9, against="all"), 10)
        json.dumps(asdict(spent), allow_nan=False)


def test_a_delta_that_no_accountant_resolves_is_refused() -> None:
    with pytest.raises(FedauditError, match="dp-delta"):
        noise_for(1.0, 1e-30, RECORD, 1)


def test_K6_full_batches_are_the_exact_gaussian() -> None:
    process = Process("user", 2.0, 1, "full")
    assert epsilon(process, 16, 1e-5) == pytest.approx(gaussian_epsilon(2.0, 1e-5))
    nearly = replace(process, sampler="poisson", rate=1 - 1e-9)
    assert epsilon(nearly, 16, 1e-5) == pytest.approx(gaussian_epsilon(2.0, 1e-5), rel=1e-3)


def test_rdp_never_promises_more_than_pld() -> None:
    for process in (RECORD, replace(RECORD, noise=2.0), Process("user", 3.0, 1, "full")):
        assert rdp_epsilon(process, 5, 1e-5) > epsilon(process, 5, 1e-5)


def test_the_curve_is_one_accountant_for_each_point() -> None:
    at = [1, 2, 3, 7, 12]
    assert curve(RECORD, at, 1e-5) == pytest.approx([epsilon(RECORD, r, 1e-5) for r in at], rel=1e-6)


def test_T26_shuffled_batches_are_not_amplified() -> None:
    poisson = epsilon(Process("record", 1.0, 50, "poisson", 1 / 50), 4, 1e-5)
    shuffled = epsilon(Process("record", 1.0, 1, "shuffled"), 4, 1e-5)  # once an epoch, unamplified
    assert shuffled > 2 * poisson
    with pytest.raises(FedauditError, match="dp-sampler"):
        epsilon(Process("record", 1.0, 50, "shuffled", 1 / 50), 4, 1e-5)


@pytest.mark.parametrize(
    "process", [RECORD, Process("user", 1.0, 1, "full"), Process("subject", 1.0, 3, "poisson", 0.3)]
)
def test_noise_for_an_epsilon_keeps_it_and_wastes_little(process: Process) -> None:
    noise = noise_for(4.0, 1e-5, process, 5)
    kept = epsilon(replace(process, noise=noise), 5, 1e-5)
    assert kept <= 4.0
    assert epsilon(replace(process, noise=noise * 0.998), 5, 1e-5) > 4.0


def test_T20_statement_tells_rounds_from_the_run() -> None:
    found = statement(Promise(defence="dp-sgd", process=RECORD, delta=1e-5, units=1_000, against="all"), 3)
    assert found.epsilon == pytest.approx(epsilon(RECORD, 3, 1e-5), rel=1e-6)
    assert found.epsilon_one_round == pytest.approx(epsilon(RECORD, 1, 1e-5))
    assert found.epsilon is not None
    assert found.epsilon_rdp is not None
    assert found.epsilon_one_round is not None
    assert found.epsilon_rdp > found.epsilon > found.epsilon_one_round
    assert found.curve.round == [1, 2, 3]
    assert (found.unit, found.adjacency, found.problems) == ("record", "add-remove", [])
    long = statement(
        Promise(defence="dp-fedavg", process=Process("user", 50.0, 1, "full"), delta=1e-2, units=10, against="all"),
        1_000,
    )
    assert (len(long.curve.round), long.curve.round[-1]) == (200, 1_000)


def test_T18_delta_above_one_in_n() -> None:
    assert (
        "above 1/50"
        in statement(Promise(defence="dp-sgd", process=RECORD, delta=0.03, units=50, against="all"), 1).problems[0]
    )


def test_D8_accounting_is_a_function_of_the_rounds_done() -> None:
    """Five rounds after a resume are rounds 6 to 10: the charge is that of ten."""
    assert curve(RECORD, [5, 10], 1e-5)[-1] == pytest.approx(epsilon(RECORD, 10, 1e-5), rel=1e-6)
    assert epsilon(RECORD, 10, 1e-5) > epsilon(RECORD, 5, 1e-5)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"noise": math.nan}, "dp-noise"),
        ({"noise": -1.0}, "dp-noise"),
        ({"noise": math.inf}, "dp-noise"),
        ({"noise": 0.0}, "dp-noise-zero"),
        ({"noise": 1e-160}, "dp-noise-small"),
        ({"rate": math.nan}, "dp-rate"),
        ({"rate": 1.5}, "dp-rate"),
        ({"rate": 0.0}, "dp-rate"),
        ({"releases": 0}, "dp-releases"),
    ],
)
def test_B2_processes_that_are_refused(change: dict[str, Any], code: str) -> None:
    with pytest.raises(FedauditError) as caught:
        epsilon(replace(RECORD, **change), 1, 1e-5)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("target", "delta", "code"),
    [
        (math.nan, 1e-5, "dp-epsilon"),
        (-1.0, 1e-5, "dp-epsilon"),
        (0.0, 1e-5, "dp-epsilon"),
        (1000.0, 1e-5, "dp-epsilon-large"),
        (1.0, math.nan, "delta"),
        (1.0, 1.0, "delta"),
        (1.0, 0.0, "delta"),
        (1.0, -0.1, "delta"),
    ],
)
def test_B2_targets_that_are_refused(target: float, delta: float, code: str) -> None:
    with pytest.raises(FedauditError) as caught:
        noise_for(target, delta, RECORD, 1)
    assert caught.value.code == code
    for clip in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(FedauditError, match="dp-clip"):
            accounting.check_clip(clip)
