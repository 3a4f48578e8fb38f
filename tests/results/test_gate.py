"""Verdicts follow from intervals: on a real run that leaks, and on that run changed in one thing."""

import json
import shutil
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

import numpy as np
import pyarrow.parquet as pq
import pytest

from fedaudit.errors import REFUSED, WRONG_USE, FedauditError
from fedaudit.results.gate import FAILED, PASSED, UNDECIDED, Decision, Gate, Rule, judge, parse_rule, parse_rules
from fedaudit.results.scores import load_scores, save_scores
from fedaudit.session.run import run
from fedaudit.stats import Block, auc, tpr_at_fpr
from fedaudit.stats.strongest import proved_ends
from fedaudit.types import warning
from fedaudit.words import words
from tests import sealed
from tests.command import fedaudit
from tests.report.builder import guarantee
from tests.worlds import config


@pytest.fixture(scope="module")
def leaky(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "leaky"
    settings = config(
        federation={"rounds": 12, "local_epochs": 6, "members": 0.1, "nonmembers": 0.4},
        audit={"attacks": ["fta-confidence", "loss"], "fpr": [0.01, 0.1]},
    )
    run(settings, out, lambda _what, _steps: nullcontext(lambda: None))
    return out


def check(path: Path, *texts: str) -> Gate:
    return judge(path, [rule for text in texts for rule in parse_rules(text)])


def changed(leaky: Path, tmp_path: Path, change: Any) -> Path:
    shutil.copytree(leaky, tmp_path / "run")
    path = tmp_path / "run/results.json"
    document = json.loads(path.read_text())
    change(document)
    sealed.write(path, json.dumps(document))
    return tmp_path / "run"


# ------------------------------------------------------------------ what is the run's own


@pytest.mark.parametrize(
    ("rule", "verdict"),
    [
        ("epsilon > 8", PASSED),
        ("epsilon > 4", PASSED),  # exactly 4 is not above it
        ("epsilon >= 4", FAILED),
        ("epsilon > 2", FAILED),
        ("epsilon > 2 and accuracy > 0.999", PASSED),
    ],
)
def test_a_claimed_epsilon_is_compared_as_it_is(leaky: Path, tmp_path: Path, rule: str, verdict: int) -> None:
    path = changed(leaky, tmp_path, lambda document: document["run"].update(guarantee=guarantee(4.0)))
    assert check(path, rule).exit_code == verdict


def test_a_claim_with_problems_is_undecided_and_none_is_violated(leaky: Path, tmp_path: Path) -> None:
    claim = guarantee(4.0) | {"problems": ["the sampler is not the one that is accounted for"]}
    path = changed(leaky, tmp_path, lambda document: document["run"].update(guarantee=claim))
    found = check(path, "epsilon > 8")
    assert (found.exit_code, found.findings[0].note) == (UNDECIDED, claim["problems"][0])
    assert check(leaky, "epsilon > 1e9").exit_code == FAILED


def test_accuracy_is_judged_by_its_interval(leaky: Path) -> None:
    stored = json.loads((leaky / "results.json").read_text())["run"]["accuracy"]["evaluation"]
    low, value, high = stored["low"], stored["value"], stored["high"]
    assert low < value < high
    assert check(leaky, f"accuracy < {low}").exit_code == PASSED
    assert check(leaky, f"accuracy <= {low}").exit_code == UNDECIDED
    assert check(leaky, f"accuracy < {value}").exit_code == UNDECIDED
    assert check(leaky, f"accuracy < {high + 1e-9}").exit_code == FAILED


def test_an_interrupted_run_is_safe_in_nothing(leaky: Path, tmp_path: Path) -> None:
    path = changed(leaky, tmp_path, lambda document: document["run"].update(ended="interrupted"))
    for rule in ("auc > 0.9999", "accuracy < 0.0001"):
        assert check(path, rule).exit_code == UNDECIDED


# ------------------------------------------------------------------ rules


def test_rules_are_read() -> None:
    assert parse_rule("tpr@0.01 > 0.05") == Rule("tpr@0.01 > 0.05", "tpr@0.01", 0.05)
    text = "tpr@1e-2[attack=loss, vantage = client,party=*]>.05"
    assert parse_rule(text) == Rule(text, "tpr@0.01", 0.05, attack="loss", vantage="client", party="*")
    assert parse_rule("auc > 0.6 [party=party-1]").party == "party-1"


@pytest.mark.parametrize(
    "text",
    ["", "auc", "auc < 0.6", "auc => 0.6", "auc > nan", "auc > x", "tpr@x > 0.1", "auc[colour=red] > 0.6",
     "auc[attack] > 0.6", "auc[attack=a, attack=b] > 0.6", "auc > 0.6 > 0.7", "> 0.5", "tpr > 0.1"],
)  # fmt: skip
def test_wrong_rules_are_refused(text: str) -> None:
    with pytest.raises(FedauditError, match="gate-rule") as raised:
        parse_rule(text)
    assert raised.value.exit_code == WRONG_USE


@pytest.mark.parametrize(
    ("text", "code", "hint"),
    [
        ("auc[attack=los] > 0.6", "gate-selector", "'loss'"),
        ("auc[vantage=outsider] > 0.6", "gate-selector", "client"),
        ("auc[party=nobody] > 0.6", "gate-selector", "Known"),
        ("auc[model=locl] > 0.6", "gate-selector", "'local'"),
        ("tpr@0.3 > 0.6", "gate-metric", "tpr@0.01"),
    ],
)
def test_what_the_run_does_not_have(leaky: Path, text: str, code: str, hint: str) -> None:
    with pytest.raises(FedauditError, match=hint) as raised:
        check(leaky, text)
    assert (raised.value.code, raised.value.exit_code) == (code, WRONG_USE)


# ------------------------------------------------------------------ verdicts


def stored(path: Path, attack: str, model: str, party: str | None = None, metric: str = "auc") -> dict[str, Any]:
    (found,) = [
        r["estimates"][metric]
        for r in json.loads((path / "results.json").read_text())["results"]
        if (r["attack"], r["model"], r["party"]) == (attack, model, party)
    ]
    return dict(found)


def test_E0_E1_E3_one_result_is_judged_by_its_stored_interval(leaky: Path) -> None:
    e = stored(leaky, "loss", "global")
    (low, high), where = e["guaranteed"], "[attack=loss, vantage=client]"
    assert low < e["low"] < e["high"] < high
    for limit, code in (
        (low - 1e-6, FAILED),
        (low + 1e-6, UNDECIDED),
        (e["value"], UNDECIDED),
        (high - 1e-6, UNDECIDED),
        (high + 1e-6, PASSED),
    ):
        gate = check(leaky, f"auc{where} > {limit:.9f}")
        assert (gate.exit_code, gate.looked_at) == (code, 1)


def test_by_default_every_attack_from_every_vantage(leaky: Path) -> None:
    gate = check(leaky, "auc > 0.999")
    assert [(f.attack, f.vantage, f.model, f.party, f.named) for f in gate.findings] == [
        ("fta-confidence", "client", "global", None, True),
        ("loss", "client", "global", None, False),
        ("fta-confidence", "server", "local", None, True),
        ("loss", "server", "local", None, False),
    ]
    assert gate.primary == {"client": "fta-confidence", "server": "fta-confidence"}
    assert gate.exit_code == PASSED


def test_the_attacks_beside_the_primary_ones_share_half_of_the_error(leaky: Path) -> None:
    """Independent recomputation: two of four results stand beside the others, at 1 - 0.05 / 2 / 2."""
    gate = check(leaky, "auc > 0.5")
    scores = load_scores(leaky)
    assert scores is not None
    mine = (scores["attack"] == "loss") & (scores["model"] == "global")
    sets = [scores["score"][mine & (scores["role"] == role)] for role in ("member", "evaluation", "calibration")]
    (finding,) = [f for f in gate.findings if (f.attack, f.model) == ("loss", "global")]
    assert finding.low == proved_ends(auc([Block(*sets)], 1 - 0.05 / 4))[0]


def test_no_gate_passes_where_an_attack_violates_the_limit(leaky: Path) -> None:
    """By whichever attack, after its correction over all that were run."""
    for limit in np.linspace(0.5, 0.99, 20):
        for metric in ("auc", "tpr@0.1"):
            every = check(leaky, f"{metric}[attack=*] > {limit:.3f}").verdict
            default = check(leaky, f"{metric} > {limit:.3f}").verdict
            assert not (every is Decision.VIOLATED and default is Decision.SAFE)
            assert (every is Decision.SAFE) == (default is Decision.SAFE)


def test_a_server_sees_the_global_models_too(leaky: Path) -> None:
    gate = check(leaky, "auc[vantage=server, attack=loss] > 0.999")
    assert {f.model for f in gate.findings} == {"local", "global"}
    assert {f.model for f in check(leaky, "auc[vantage=client] > 0.999").findings} == {"global"}


def test_T4_several_results_share_the_error_of_their_lower_ends(leaky: Path) -> None:
    """Independent recomputation: one block of loss scores on global models, at 1 - 0.05 / 4."""
    gate = check(leaky, "auc[attack=*] > 0.5", "auc[attack=loss, vantage=client] > 0.501")
    assert gate.looked_at == 4  # the second rule looks at nothing new
    scores = load_scores(leaky)
    assert scores is not None
    mine = (scores["attack"] == "loss") & (scores["model"] == "global")
    sets = [scores["score"][mine & (scores["role"] == role)] for role in ("member", "evaluation", "calibration")]
    (finding,) = [f for f in gate.findings if f.rule.limit == 0.501]
    assert finding.low == proved_ends(auc([Block(*sets)], 1 - 0.05 / 4))[0]
    assert finding.low is not None
    assert finding.low < stored(leaky, "loss", "global")["guaranteed"][0]
    assert finding.high == stored(leaky, "loss", "global")["guaranteed"][1]
    assert gate.exit_code == FAILED


def test_a_lower_end_that_correction_moves_below_the_limit_decides_nothing(leaky: Path) -> None:
    uncorrected = stored(leaky, "loss", "global")["guaranteed"][0]
    limit = uncorrected - 1e-4
    assert check(leaky, f"auc[attack=loss, vantage=client] > {limit}").exit_code == FAILED
    both = check(leaky, f"auc[attack=loss, vantage=client] > {limit}", "auc[attack=loss, vantage=server] > 0.9999")
    assert next(f.verdict for f in both.findings if f.model == "global") is Decision.UNDECIDED


def test_every_party_and_every_metric(leaky: Path) -> None:
    gate = check(leaky, "auc[party=*] > 0.9999", "tpr@0.01[party=*] > 0.9999")
    assert {f.party for f in gate.findings} == {"party-0", "party-1"}
    assert gate.looked_at == 8 + sum(not f.named for f in gate.findings)
    none = [f for f in gate.findings if f.value is None]
    assert all(f.verdict is Decision.UNDECIDED and "more calibration" in f.note for f in none)


def test_pooled_local_intervals_are_recomputed_with_a_threshold_for_each_party(leaky: Path) -> None:
    assert stored(leaky, "loss", "local", metric="tpr@0.1")["guaranteed"][0] > 0.02
    gate = check(leaky, "tpr@0.1[attack=loss] > 0.02")
    (local,) = [f for f in gate.findings if f.model == "local"]
    scores = load_scores(leaky)
    assert scores is not None
    blocks = []
    for party in ("party-0", "party-1"):
        mine = (scores["attack"] == "loss") & (scores["model"] == "local") & (scores["party"] == party)
        sets = [scores["score"][mine & (scores["role"] == role)] for role in ("member", "evaluation", "calibration")]
        blocks.append(Block(*sets))
    corrected = tpr_at_fpr(blocks, 0.1, 1 - 0.05 / 2)
    assert corrected.guaranteed is not None
    assert local.low == corrected.guaranteed[0]
    assert local.high == stored(leaky, "loss", "local", metric="tpr@0.1")["guaranteed"][1]


# ------------------------------------------------------------------ what is not safe, and what is refused


def test_T12_below_chance_is_not_safe(leaky: Path, tmp_path: Path) -> None:
    def invert(document: dict[str, Any]) -> None:
        for result in document["results"]:
            result["estimates"]["auc"] |= {"value": 0.3, "low": 0.2, "high": 0.4, "guaranteed": [0.1, 0.5]}

    path = changed(leaky, tmp_path, invert)
    (path / "scores.parquet").unlink()
    gate = check(path, "auc[vantage=client] > 0.6")
    assert gate.exit_code == UNDECIDED
    assert "wrong sign" in gate.findings[0].note


def test_F14_an_interrupted_run_can_fail_but_not_pass(leaky: Path, tmp_path: Path) -> None:
    run = changed(leaky, tmp_path, lambda d: d["run"].update(ended="interrupted"))
    assert check(run, "auc[attack=loss, vantage=client] > 0.9999").exit_code == UNDECIDED
    assert check(run, "auc[attack=loss, vantage=client] > 0.0001").exit_code == FAILED


def test_without_scores_nothing_is_corrected_and_so_nothing_fails(leaky: Path, tmp_path: Path) -> None:
    run = changed(leaky, tmp_path, lambda _: None)
    (run / "scores.parquet").unlink()
    gate = check(run, "auc > 0.0001")
    assert gate.exit_code == UNDECIDED
    assert "scores.parquet" in gate.findings[0].note
    assert check(run, "auc > 0.9999").exit_code == PASSED  # passing needs no correction
    assert check(run, "auc[vantage=client, attack=loss] > 0.0001").exit_code == FAILED  # one result needs none


def refused(path: Path, text: str) -> str:
    with pytest.raises(FedauditError) as raised:
        check(path, text)
    assert raised.value.exit_code == REFUSED
    return raised.value.code


def test_scores_of_another_run_are_refused(leaky: Path, tmp_path: Path) -> None:
    run = changed(leaky, tmp_path, lambda _: None)
    columns = pq.read_table(run / "scores.parquet").to_pydict()
    columns["score"] = np.random.default_rng(0).permutation(columns["score"]).tolist()
    save_scores([columns], run)
    assert refused(run, "auc > 0.0001") == "scores-differ"
    sealed.write(run / "scores.parquet", b"not parquet")
    assert refused(run, "auc > 0.0001") == "scores-unreadable"


@pytest.mark.parametrize("part", ["headlines", "results"])
def test_a_document_without_its_parts_is_refused(leaky: Path, tmp_path: Path, part: str) -> None:
    run = changed(leaky, tmp_path, lambda d: d.update({part: [{"vantage": "client"}]}))
    assert refused(run, "auc > 0.5") == "results-unreadable"


def test_F16_a_newer_schema_is_refused(leaky: Path, tmp_path: Path) -> None:
    run = changed(leaky, tmp_path, lambda d: d.update(schema=99))
    assert refused(run, "auc > 0.5") == "schema-newer"


@pytest.mark.parametrize(("rule", "code"), [("auc > 0.0001", 1), ("auc > 0.9999", 0), ("auc > x", 2)])
def test_E0_E1_E2_the_command_says_it_by_its_exit_code(leaky: Path, rule: str, code: int) -> None:
    done = fedaudit("gate", str(leaky), "--fail-if", rule, cwd=leaky)
    assert done.returncode == code, done.stdout + done.stderr
    assert json.dumps(rule)[1:-1].split(" >")[0] in done.stdout + done.stderr


def test_the_command_needs_no_torch(leaky: Path) -> None:
    program = "import sys; from fedaudit.cli import main\ntry: main()\nfinally: assert 'torch' not in sys.modules"
    command = [sys.executable, "-c", program, "gate", str(leaky), "--fail-if", "auc > 0.0001"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("code", ["model-not-learnt", "model-useless"])
def test_a_gate_says_that_the_model_has_not_learnt_and_decides_as_before(
    leaky: Path, tmp_path: Path, code: str
) -> None:
    """A run of a model that had learnt nothing was safe without a word, in the terminal, as JSON and as JUnit."""
    said = words(warning(code, right=0.5, commonest=0.6))
    run = changed(leaky, tmp_path, lambda d: d.update(useless=said))
    for rule, exit_code in (("auc > 0.9999", PASSED), ("auc > 0.0001", FAILED)):
        options = ("gate", str(run), "--fail-if", rule, "--junit", str(tmp_path / "gate.xml"))
        done = fedaudit(*options, cwd=tmp_path)
        assert done.returncode == exit_code
        assert said in " ".join(done.stdout.split())
        (case,) = Xml.parse(tmp_path / "gate.xml").getroot()
        assert (case.findtext("system-out") or "").startswith(said)
        found = json.loads(fedaudit(*options, "--json", cwd=tmp_path).stdout)
        assert (found["exit_code"], found["useless"]) == (exit_code, said)


# ------------------------------------------------------------------ what the audit says against its own figures


def under(document: dict[str, Any]) -> None:
    document["understates"] = ["5,753 of 6,152 non-members belong to people who were trained on: ..."]


def above_chance(document: dict[str, Any]) -> None:
    (blind,) = [r for r in document["results"] if r["attack"] == "blind"]
    blind["estimates"]["auc"] |= {"value": 0.7, "low": 0.6, "high": 0.8}


@pytest.mark.parametrize(
    ("change", "rule", "before", "after", "why"),
    [
        (under, "auc > 0.9999", PASSED, UNDECIDED, "5,753 of 6,152 non-members"),
        (under, "auc > 0.0001", FAILED, FAILED, ""),
        (above_chance, "auc > 0.0001", FAILED, UNDECIDED, "a blind guess"),
        (above_chance, "auc > 0.9999", PASSED, PASSED, ""),
    ],
)
def test_the_gate_listens_to_the_audit(
    leaky: Path, tmp_path: Path, change: Any, rule: str, before: int, after: int, why: str
) -> None:
    """It said "safe" beside the audit's own warning that the risk is understated, and "violated" beside "the sets
    differ without any model"."""
    assert check(leaky, rule).exit_code == before
    gate = check(changed(leaky, tmp_path, change), rule)
    assert gate.exit_code == after
    assert all(why in finding.note for finding in gate.findings)


@pytest.mark.parametrize(
    ("attack", "rule", "code"),
    [
        ("merlin", "auc > 0.9999", UNDECIDED),  # the rule is about every attack
        ("merlin", "auc[attack=loss] > 0.9999", PASSED),
        ("merlin", "auc[attack=*] > 0.9999", UNDECIDED),
        ("merlin", "auc[attack=merlin] > 0.9999", UNDECIDED),
        ("canife", "epsilon-ranks > 3", UNDECIDED),  # a figure of the question that failed
        ("fusion", "auc > 0.9999", UNDECIDED),
        ("fusion", "auc > 0.0001", FAILED),
    ],
)
def test_a_failed_attack_matters_where_the_rule_looks_at_it(
    leaky: Path, tmp_path: Path, attack: str, rule: str, code: int
) -> None:
    def failed(document: dict[str, Any]) -> None:
        document["failed"] = [{"attack": attack, "reason": "out of memory"}]
        document["degraded"] = [f"attack {attack}"]

    gate = check(changed(leaky, tmp_path, failed), rule)
    assert gate.exit_code == code
    if code == UNDECIDED:
        assert any(attack in finding.note for finding in gate.findings)


def test_a_rate_that_the_run_was_too_small_for_is_undecided(leaky: Path, tmp_path: Path) -> None:
    """It was wrong use, exit code 2: a pipeline that asks small and large runs alike could not tell."""

    def too_small(document: dict[str, Any]) -> None:
        document["run"]["config"]["audit"]["fpr"] = [0.001, 0.01, 0.1]

    gate = check(changed(leaky, tmp_path, too_small), "tpr@0.001 > 0.05")
    assert gate.exit_code == UNDECIDED
    assert {finding.note for finding in gate.findings} == {"this run was too small to measure tpr@0.001"}


def test_the_gate_says_that_it_looks_at_the_primary_attacks(leaky: Path) -> None:
    assert check(leaky, "auc > 0.999").primary == {"client": "fta-confidence", "server": "fta-confidence"}
    assert check(leaky, "auc[attack=loss] > 0.999").primary == {}
