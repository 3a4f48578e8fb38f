"""The gate beside what the audit of the same run says about a claim, and about canaries alone."""

import json
from pathlib import Path
from typing import Any

import pytest

from fedaudit.config.schema import parse
from fedaudit.errors import FedauditError
from fedaudit.results.document import load
from fedaudit.results.gate import FAILED, PASSED, UNDECIDED, Gate, judge, parse_limit, parse_rules
from fedaudit.session.run import run
from tests import sealed
from tests.worlds import silent


@pytest.fixture(scope="module")
def canaries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with canaries alone: no attack on records, so that no vantage has a headline."""
    out = tmp_path_factory.mktemp("runs") / "canaries"
    asked = parse({
        "data": {"name": "digits"},
        "federation": {"parties": 8, "rounds": 2, "lr": 0.1, "algorithm": "fedsgd"},
        "model": {"hidden": [16]},
        "audit": {"attacks": ["canife", "one-shot"], "canary": {"steps": 40, "pool": 8, "probes": 40, "every": 1}},
        "defences": [{"name": "dp-fedavg", "noise": 1.0, "clip": 0.2, "delta": 0.05}],
    })  # fmt: skip
    run(asked, out, silent)
    return out


def check(path: Path, text: str) -> Gate:
    return judge(path, parse_rules(text))


def edited(run_dir: Path, tmp_path: Path, change: Any) -> Path:
    document = json.loads((run_dir / "results.json").read_text())
    change(document)
    tmp_path.mkdir(exist_ok=True)
    sealed.write(tmp_path / "results.json", json.dumps(document))
    return tmp_path


def of(document: dict[str, Any], attack: str) -> dict[str, Any]:
    (found,) = [entry["estimates"] for entry in document["results"] if entry["attack"] == attack]
    return dict(found)


def proves(attack: str, name: str, epsilon: float) -> Any:
    return lambda document: of(document, attack)[name].update(value=epsilon, low=epsilon)


def quiet(document: dict[str, Any]) -> None:
    of(document, "canife")["score-sd"] |= {"value": 0.001, "low": 0.0009, "high": 0.0011}


def coined(document: dict[str, Any]) -> None:
    """A record-level claim that the coins of the same run refute."""
    document["run"]["config"]["federation"]["coins"] = True
    document["run"]["guarantee"] |= {"unit": "record", "epsilon": 4.0, "adjacency": "add-remove"}
    bound = of(document, "one-shot")["epsilon-one-run"] | {"value": 9.0, "low": 9.0}
    headline = {"vantage": "client", "attack": "loss", "model": "global", "compared": 1, "sentence": "Said."}
    document["headlines"] = [headline | {"estimates": {"epsilon-one-run": bound}}]


@pytest.mark.parametrize(
    ("change", "rule", "code", "why"),
    [
        (lambda _: None, "epsilon > 1000", PASSED, ""),
        (proves("canife", "epsilon-ranks", 900.0), "epsilon > 1000", UNDECIDED, "canife proves"),
        (quiet, "epsilon > 1000", UNDECIDED, "less noise"),
        (proves("one-shot", "epsilon-one-run", 900.0), "epsilon > 1000", UNDECIDED, "one-shot proves"),
        (proves("one-shot", "epsilon-one-run", 1001.0), "epsilon > 1000", FAILED, "one-shot proves"),
        (coined, "epsilon > 10", UNDECIDED, "loss proves"),
        (coined, "epsilon > 8", FAILED, "loss proves"),
    ],
)
def test_a_claim_that_the_audit_refutes_is_not_safe(
    canaries: Path, tmp_path: Path, change: Any, rule: str, code: int, why: str
) -> None:
    """It was safe: the gate took the accountant's word beside the audit's warning that the claim does not hold."""
    gate = check(edited(canaries, tmp_path, change), rule)
    assert gate.exit_code == code
    assert why in gate.findings[0].note


def test_the_stored_run_is_what_the_changes_above_start_from(canaries: Path) -> None:
    found = {entry.attack: entry for entry in load(canaries).results}
    assert {"epsilon-ranks", "score-sd", "epsilon-accountant-round"} <= set(found["canife"].estimates)
    assert {"epsilon-one-run", "epsilon-accountant"} <= set(found["one-shot"].estimates)


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        ("auc[attack=canife] > 0.0001", FAILED),
        ("auc[attack=canife, vantage=secagg-server] >= 1", PASSED),
        ("auc[attack=*] > 0.0001", UNDECIDED),  # two results, whose lower ends cannot be corrected: no scores
        ("epsilon-ranks[attack=canife] > 1000", UNDECIDED),  # a bound from below is never safe
        ("auc > 0.6", UNDECIDED),  # no primary attack
        ("tpr@0.01 > 0.5", UNDECIDED),
    ],
)
def test_canaries_are_judged_where_they_are_named(canaries: Path, rule: str, code: int) -> None:
    """All of these were wrong use: "not measured"."""
    assert check(canaries, rule).exit_code == code


def test_what_no_run_measures_is_still_wrong_use(canaries: Path) -> None:
    with pytest.raises(FedauditError, match="gate-metric"):
        check(canaries, "aux > 0.6")


@pytest.mark.parametrize(
    "text", ["tpr@0.01 > 5", "auc > 60", "auc > -1", "accuracy < 80", "auc > 1", "tpr@0.01 > 1", "accuracy < 0"]
)
def test_a_limit_in_percent_is_refused(text: str) -> None:
    """`tpr@0.01 > 5` passed whatever a run gave away."""
    with pytest.raises(FedauditError, match=r"gate-rule.*(between 0 and 1|never fail)"):
        parse_rules(text)


def test_a_wanted_limit_in_percent_is_refused() -> None:
    with pytest.raises(FedauditError, match="between 0 and 1"):
        parse_limit("tpr@0.01 < 5")
    assert parse_limit("tpr@0.01 < 0.05").limit == 0.05
