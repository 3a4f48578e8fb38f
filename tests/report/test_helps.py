"""What would help: each rule speaks where its figures say so, with these figures, and is silent elsewhere."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fedaudit.report import helps, render, words
from fedaudit.report.helps import Help
from fedaudit.report.panels import guarantee
from fedaudit.results.advice import ADVICE, OF_RUN, Confirmed, Risk, federation_of, named, save, sentences
from fedaudit.results.gate import parse_limit
from fedaudit.stats.strongest import allowed, epsilon_for
from fedaudit.types import Estimate
from tests.command import fedaudit
from tests.report import builder
from tests.report.builder import Json, quotable
from tests.report.test_paper import tried


def found(results: Json) -> dict[str, Help]:
    read = quotable(results)
    told = helps.helps(read, words.findings(read), words.main_tpr(read))
    return {one.title: one for one in told}


def test_secure_aggregation_helps_as_much_as_this_run_measured() -> None:
    results = builder.results()
    results["run"]["guarantee"] = None
    told = found(results)["Secure aggregation"]
    assert told.basis == "measured"
    assert "7.7 %" in told.text  # what any party sees
    assert "12.4 %" in told.text  # what the server sees now
    client = [r for r in results["results"] if r["vantage"] == "client"]
    for entry in [*client, *(h for h in results["headlines"] if h["vantage"] == "client")]:
        entry["estimates"] = builder.estimates(0.13, 0.8)  # the global models give away as much
    assert "Secure aggregation" not in found(results)
    assert "give away about as much" in found(results)["Secure aggregation alone would not help"].text


@pytest.mark.parametrize("missing", [(), ("high",), ("value", "low", "high")])
def test_secure_aggregation_must_help_against_every_attack_on_the_global_models(missing: tuple[str, ...]) -> None:
    """The interval of another attack than the one with the largest lower end may reach to what the server sees now."""
    results = builder.results()
    results["run"]["guarantee"] = None
    pooled = [r for r in results["results"] if r["party"] is None and r["model"] == "global"]
    (other,) = [r for r in pooled if r["attack"] == "fta-loss"]
    wide = builder.tpr(0.08) | {"low": 0.01, "high": 0.9, "guaranteed": None} | dict.fromkeys(missing)
    wide |= {"doubt": "more"} if "value" in missing else {}
    other["estimates"] = {**other["estimates"], "tpr@0.01": wide}
    told = found(results)["Secure aggregation may help"]
    assert "which this run does not settle" in told.text
    other["estimates"]["tpr@0.01"] = wide | {"value": None, "low": None, "high": None, "doubt": None}
    assert "Secure aggregation" in found(results)  # there is nothing to be said of it


@pytest.mark.parametrize(
    ("fpr", "target"), [(0.01, 0.1), (0.1, 0.2), (0.3, 0.6), (0.5, 0.75), (0.8, 0.9), (0.99, 0.995)]
)
def test_what_is_to_be_ruled_out_lies_between_guessing_and_everybody(fpr: float, target: float) -> None:
    """At 60 % FPR an epsilon of 50 was advised, at which at most 120 % are picked out."""
    assert helps.ruled_out(fpr) == pytest.approx(target)
    assert epsilon_for(helps.ruled_out(fpr), 1e-5, fpr) < 5


def test_where_something_leaks_a_search_is_proposed_and_no_smaller_model() -> None:
    told = found(builder.minimal(0.077, 0.712))["A search for what keeps the model"]
    assert told.basis == "rule"
    assert "hardly from unmix" in told.text
    assert "A search for what keeps the model" not in found(builder.minimal(0.009, 0.503))


def test_differential_privacy_is_proposed_where_something_leaks_and_nothing_is_claimed() -> None:
    leaky = found(builder.minimal(0.077, 0.712))["Differential privacy"]
    assert leaky.basis == "rule"
    assert "2.7 % at epsilon 1" in leaky.text
    assert "Differential privacy" not in found(builder.minimal(0.009, 0.503))


@pytest.mark.parametrize(("epsilon", "says"), [(0.5, None), (4.0, "54 %"), (20.0, "100 %")])
def test_a_claim_that_allows_much_is_told_which_epsilon_would_not(epsilon: float, says: str | None) -> None:
    results = builder.results()
    results["run"]["guarantee"] = builder.guarantee(epsilon)
    told = found(results).get("A smaller epsilon")
    assert (told is None) == (says is None)
    if told is not None and says is not None:
        assert says.split()[0].rstrip("%") in told.text
        needed = epsilon_for(0.1, 1e-5, 0.01)
        assert f"{needed:.2g} or less" in told.text
        assert allowed(needed, 1e-5, 0.01) == pytest.approx(0.1)


def test_at_a_large_fpr_the_epsilon_that_is_advised_can_be_had() -> None:
    """Guessing alone picks out a tenth at 10 % FPR; no epsilon would keep that from anybody."""
    results = builder.results()
    results["run"]["guarantee"] = builder.guarantee(20.0)
    advised = helps._differential_privacy(quotable(results), [], "tpr@0.1")
    panel = guarantee(quotable(results), "tpr@0.1")
    assert advised is not None
    assert panel is not None
    needed = f"{epsilon_for(0.2, 1e-5, 0.1):.2g}"
    assert f"more than 20.0 %, it would have to be {needed} or" in advised.text
    assert f"At most 20.0 % is allowed from an epsilon of {needed} downwards" in panel.lead
    assert float(needed) > 0.3


def test_the_guarantee_explains_what_it_allows() -> None:
    for epsilon, says in ((20.0, "protects nobody"), (0.5, "nobody picks out more")):
        results = builder.results()
        results["run"]["guarantee"] = builder.guarantee(epsilon)
        panel = guarantee(quotable(results), "tpr@0.01")
        assert panel is not None
        assert says in panel.lead
        assert "from an epsilon of 2.3 downwards" in panel.lead
        most = "100.0 %" if epsilon > 1 else "1.6 %"
        assert ("Most it allows at 1 % FPR", f"{most} picked out") in panel.facts


def test_overfitting_needs_intervals_that_part() -> None:
    results = builder.results()
    assert "83.0 % (81.0–85.0)" in found(results)["Less overfitting"].text
    results["run"]["accuracy"] = {"members": builder.estimate(0.62, 0.02), "evaluation": builder.estimate(0.61, 0.023)}
    assert "Less overfitting" not in found(results)


def test_fewer_rounds_only_where_the_curve_rises() -> None:
    for power, told in ((1.0, True), (0.0, False)):
        results = builder.results()
        for entry in results["results"]:
            for name, curve in entry.get("curves", {}).items():
                if name != "roc":
                    curve["value"] = [curve["value"][-1] * (x / 40) ** power for x in curve["x"]]
                    curve["high"] = [value + 0.01 for value in curve["value"]]
        assert ("Fewer rounds" in found(results)) == told
        if told:
            assert found(results)["Fewer rounds"].basis == "measured"
            assert "and 12.4 % after round 40" in found(results)["Fewer rounds"].text


def test_fewer_rounds_not_by_a_round_whose_threshold_is_far_too_high() -> None:
    results = builder.results()
    for entry in results["results"]:
        for name, curve in entry.get("curves", {}).items():
            if name != "roc":
                curve["value"] = [curve["value"][-1] * x / 40 for x in curve["x"]]
                curve["high"] = [1.0 for _ in curve["x"]]
    assert "Fewer rounds" not in found(results)


def test_first_things_first() -> None:
    results = builder.results()
    results["results"] = [*(r for r in results["results"] if r["attack"] != "blind"), builder.blind(0.7)]
    results["degraded"] = ["Round 2 is missing."]
    titles = list(found(results))
    assert titles[:2] == ["Draw members and outsiders alike", "Complete the audit"]


def test_where_nothing_was_found_a_larger_audit_is_all_there_is_to_say() -> None:
    told = found(builder.minimal(0.009, 0.503))
    assert list(told) == ["A larger audit"]
    assert "remains possible" in told["A larger audit"].text


@pytest.mark.parametrize("doubt", ["more", "fewer"])
def test_no_larger_audit_mends_thresholds_from_records_of_another_kind(doubt: str) -> None:
    results = builder.minimal(0.009, 0.503)
    results["results"][0]["estimates"]["tpr@0.001"]["doubt"] = doubt
    (told,) = found(results).values()
    assert told.title == "Thresholds from records like those that are reported on"
    assert "fedaudit plan" not in told.text


def test_thresholds_from_records_of_another_kind_are_told_beside_a_finding() -> None:
    results = builder.results()
    title = "Thresholds from records like those that are reported on"
    assert title not in found(results)
    pooled = next(entry for entry in results["results"] if entry["party"] is None)
    next(own for name, own in pooled["estimates"].items() if name.startswith("tpr@"))["doubt"] = "fewer"
    assert title in found(results)


def test_what_was_tried_comes_first_and_is_called_that() -> None:
    """Advice that lies in the run's own folder; the redacted page is written without it, because it names parties."""
    page = render(builder.read(builder.results()), advice=tried())
    first = page.split('id="helps"')[1].split("</dd>")[0]
    assert "To keep tpr@0.05 &lt; 0.08" in first
    assert '<span class="basis">tried</span>' in first
    assert "None was confirmed." in first
    assert "To keep" not in render(builder.read(builder.results()))


def test_nothing_of_what_was_confirmed_is_cut_off() -> None:
    attack = "fta+signal=loss+degree=2"
    risk = Risk(attack=attack, vantage="server", model="local", party=None, value=0.55, low=0.52, high=0.58)
    before = replace(risk, value=0.7, low=0.68, high=0.72)
    one = Confirmed(
        name="fewer epochs",
        points=["limit"],
        words="train for one epoch instead of five",
        overrides={"federation.local_epochs": 1},
        seed=1,
        verdict="below the limit",
        meets=True,
        why_not="",
        risk=risk,
        risk_before=before,
        largest_before=replace(before, vantage="agg-mal", value=0.8),
        strongest=replace(risk, attack="unmix"),
        guarantee=None,
        estimates=named(
            accuracy=Estimate("accuracy", 0.8, 0.78, 0.82, 0.95, "exact", "measured", 1, 1),
            accuracy_before=Estimate("accuracy", 0.82, 0.8, 0.84, 0.95, "exact", "measured", 1, 1),
        ),
    )
    advice = replace(tried(), confirmed=[one], recommended=one.name, sentences=())
    told = sentences(advice, parse_limit("auc < 0.6"))
    (help,) = helps.tried(replace(advice, sentences=told))
    assert help.text == " ".join(told)
    assert help.text.endswith("is not proof that nobody can do better.")


def test_advice_that_is_damaged_or_about_another_run_is_left_out_and_said(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text(json.dumps(builder.results()))
    (tmp_path / OF_RUN).mkdir()
    save(replace(tried(), about="another"), tmp_path / OF_RUN)
    done = fedaudit("report", ".", cwd=tmp_path)
    assert done.returncode == 0
    assert "another federation" in " ".join(done.stderr.split())
    assert "None was confirmed." not in (tmp_path / "report.html").read_text()
    (tmp_path / OF_RUN / ADVICE).write_text("{")
    done = fedaudit("report", ".", cwd=tmp_path)
    assert done.returncode == 0
    assert "is not as it was written" in " ".join(done.stderr.split())
    assert "None was confirmed." not in (tmp_path / "report.html").read_text()


def test_the_command_finds_advice_in_the_folder_of_the_run(tmp_path: Path) -> None:
    of_run = builder.results()
    (tmp_path / "results.json").write_text(json.dumps(of_run))
    (tmp_path / OF_RUN).mkdir()
    save(replace(tried(), about=federation_of(of_run["run"]["config"])), tmp_path / OF_RUN)
    assert fedaudit("report", ".", cwd=tmp_path).returncode == 0
    assert fedaudit("report", ".", "--redact", cwd=tmp_path).returncode == 0
    assert "None was confirmed." in (tmp_path / "report.html").read_text()
    assert "None was confirmed." not in (tmp_path / "report-redacted.html").read_text()
