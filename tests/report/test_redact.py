"""A report that is passed on: no exposed record, no name, no path; every number as it was."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedaudit import report
from fedaudit.cli.terminal import write_report
from fedaudit.results.document import REDACTED, Document
from fedaudit.results.redaction import redacted
from fedaudit.stats import Block, tpr_at_fpr
from fedaudit.types import notice, warning
from fedaudit.words import words
from tests.report import builder
from tests.report.builder import read

SECRETS = ("st-mary", "ward-7", "patients", "/srv/", "diagnosis", "p-00417", "C:\\", "oncology")


def telling() -> Document:
    """Results that say more than they should, in every place where a name can stand."""
    results = builder.results()
    text = json.dumps(results).replace('"party-0"', '"st-mary"').replace('"party-1"', '"ward-7"')
    results = json.loads(text)
    run = results["run"]
    run |= {"name": "oncology", "status": "recorded with gaps"}
    run["data"]["name"] = "patients-2024"
    run["config"]["data"] = {"name": "npz", "path": "/srv/data/patients-2024.npz", "subject_key": "patients"}
    run["config"]["audit"]["attribute"] = {"name": "diagnosis"}
    run["config"]["model"] = {"name": "oncology.models:Net", "hidden": [512]}
    results["warnings"] = [
        "st-mary is more exposed than the others: AUC 0.712.",
        "/srv/data/patients-2024.npz: 3 scores are not finite, the first is 'p-00417'.",
        "Reading C:\\data\\patients.npz took long.",
    ]
    run["withheld"] = [{"round": 3, "because": "not audited", "reason": "ward-7: '/srv/game.npz' is gone"}]
    results["degraded"] = ["Round 3: party 'ward-7' came late."]
    results["results"][0]["warnings"] = ["twice in ward-7"]
    results["results"][0]["estimates"]["auc"]["reason"] = "ward-7 has too few"
    return read(results)


def test_S8_names_paths_and_records_are_left_out_and_numbers_stay() -> None:
    before = telling()
    page = report.render(redacted(before))
    for secret in SECRETS:
        assert secret in report.render(before)
        assert secret not in page, re.findall(rf".{{60}}{re.escape(secret)}.{{20}}", page)
    assert 'id="exposed"' not in page
    assert not any(unit.id_hash in page for unit in (before.exposed.records if before.exposed else ()))
    assert "party 1" in page
    assert "fta-confidence" in page
    assert "7.7" in page
    kept = [[e.estimates.get("tpr@0.01") for e in found.results] for found in (before, redacted(before))]
    assert kept[0] == kept[1]
    assert "were left out of this report" in page


@pytest.mark.parametrize("by", [-3.0, 3.0])
def test_why_a_figure_is_doubted_stays(by: float) -> None:
    rng = np.random.default_rng(0)
    members, outsiders, calibration = (rng.normal(around, 1, 2000) for around in (1.0, 0.0, by))
    doubted = tpr_at_fpr([Block(members, outsiders, calibration)], 0.01)
    assert doubted.doubt
    before = read(builder.results())
    (first, *others) = before.results
    first = replace(first, estimates={**first.estimates, "tpr@0.01": doubted})
    (after, *_) = redacted(replace(before, results=[first, *others])).results
    assert after.estimates["tpr@0.01"] == doubted


NAMES = ["o'Brien's \"ward\"", "x" * 200, "outsiders", "n@n 7, a/b.csv", "Left out", "models"]


@pytest.mark.parametrize("name", NAMES)
def test_names_are_replaced_in_data_and_never_in_words(name: str) -> None:
    """What stood in quotation marks, what looked like a path and whatever equalled a name used to be patched."""
    results = json.loads(json.dumps(builder.results()).replace('"party-0"', json.dumps(name)))
    exposed = {"attack": "loss", "model": "local", "own": 0.7, "others": 0.5, "value": 0.2, "low": 0.1, "high": 0.3}
    warnings = [
        warning("more-exposed", party=name, confidence=0.95, **exposed),
        warning("below-chance", attack="loss"),
        warning("below-chance", attack=name),
        warning("cells-filled", file=name, cells={name: 3, f"{name}.": 4}),
        warning("attack-failed", attack="loss", why=f"{name} is broken"),
        warning("attribute-of-tomorrow", name=name),
    ]
    about = [warning("unscored", attack="loss", count=1, of=2), warning("section-unread", section=name)]
    for place, told in ((results, warnings), (results["results"][0], about)):
        place["warnings"] = [f"{name} {one.code}" for one in told]
        place["told"] = [one.stored() for one in told]
    results["notices"] = [f"A sentence about {name}.", f"Another about {name}."]
    results["told"] += [notice("text", text=results["notices"][0]).stored()]
    results["told"] += [notice("search-time", text=results["notices"][1]).stored()]  # as former versions are read
    results["degraded"] = [results["warnings"][0], f"{name} is late"]
    results["headlines"][0] |= {"sentence": f"Whoever knows {name}", "tone": "found", "details": [name]}
    results["useless"] = f"It is of no use to {name}"
    found = redacted(read(results))
    assert list(found.warnings) == [
        "party 1 is more exposed than the others: loss on local models has AUC 0.700 there and 0.500 elsewhere "
        "(difference 0.200, 0.100-0.300; 95% for all parties and groups together).",
        "loss ranks outsiders above members (AUC wholly below 0.5); the score is not flipped.",
        "attack 1 ranks outsiders above members (AUC wholly below 0.5); the score is not flipped.",
        "7 empty cells of (left out) were filled in: '(left out, 1)' (3), '(left out, 2)' (4).",
        "loss failed and has no result: (left out)",
    ]
    assert found.degraded == [found.warnings[0], "(left out)"]
    assert found.useless == "(left out)"
    assert found.results[0].warnings == [words(about[0])]
    assert found.notices[0].startswith("4 remarks of an earlier version, or of other people's code, were left out")
    assert found.headlines[0].sentence.startswith("Any party that sees the global models can pick out")
    text = json.dumps(found.to_json())
    assert name in ("outsiders", "models") or json.dumps(name)[1:-1] not in text


def test_what_is_fedaudits_own_stays() -> None:
    results = builder.results()
    results["results"][0]["estimates"]["auc"]["reason"] = "needs at least 8 trials on either side"
    short = "the lower end is 0 until there are 78 more calibration non-members in every party, at 97.5 % confidence"
    results["results"][0]["estimates"]["tpr@0.01"]["reason"] = short
    results["run"]["config"]["defences"] = [{"name": "dp-sgd", "noise": 1.5}, {"name": "dpsgd.mine:make", "to": "x"}]
    found = redacted(read(results))
    assert found.results[0].estimates["auc"].reason == "needs at least 8 trials on either side"
    assert found.results[0].estimates["tpr@0.01"].reason == short
    assert found.run.config["defences"] == [{"name": "dp-sgd", "noise": 1.5}, {"name": "(left out)"}]
    assert found.run.config["audit"] == builder.CONFIG["audit"]
    assert found.run.data.name == "baskets"
    assert found.run.config_hash == ""


def test_an_attack_of_somebody_elses_is_numbered_and_so_are_names_in_options() -> None:
    text = json.dumps(builder.results(attacks=2)).replace('"fta-confidence"', '"st-mary"')
    found = redacted(read(json.loads(text.replace('"fta-logit"', '"matched-filter+layer=ward"'))))
    assert list(dict.fromkeys(e.attack for e in found.results)) == ["attack 1", "attack 2", "blind"]
    assert "by attack 1)" in found.headlines[0].sentence


def test_a_question_of_somebody_elses_is_numbered_with_its_figures() -> None:
    results = builder.results()
    asked = {"question": "mary", "unit": "mary-unit", "attack": "of-mary", "party": None}
    figures = {"mary-share": builder.estimate(0.5, method="as Mary counts", reason="Mary is few")}
    results["results"].append(results["results"][0] | asked | {"estimates": figures})
    entry = redacted(read(results)).results[-1]
    assert (entry.question, entry.unit, entry.attack) == ("question-1", "unit-1", "attack 1")
    (estimate,) = entry.estimates.values()
    assert (estimate.name, estimate.value) == ("figure-1", 0.5)
    assert (estimate.method, estimate.reason) == ("(left out)", "(left out)")


def test_a_limit_keeps_its_figures_and_loses_its_names() -> None:
    results = builder.results()
    crossed = {"round": 3, "because": "limit crossed", "onwards": True, "attack": "loss"}
    rules = ["auc[party=party-1, attack=loss] > 0.6 and tpr@0.01 > 0.1", "st-mary > 3", "whatever st-mary says"]
    results["run"]["withheld"] = [crossed | {"rule": rule} for rule in rules]
    kept = [update.rule for update in redacted(read(results)).run.withheld]
    assert kept == ["auc[attack=loss, party=party 2] > 0.6 and tpr@0.01 > 0.1", "figure-1 > 3", "(left out)"]


def test_what_a_headline_owes_to_another_vantage_is_not_taken_for_its_own() -> None:
    """The server was lent what any party can do: by its own figures it could not be said to pick out anybody."""
    results = builder.results()
    lent = {"estimates": builder.estimates(0.011, 0.505), "tone": "found", "sentence": "As stored."}
    results["headlines"][1] |= lent
    results["headlines"][0] |= {"tone": "found", "sentence": "As stored."}
    client, server = redacted(read(results)).headlines
    assert client.sentence.startswith("Any party that sees the global models can pick out")
    assert server.sentence.startswith("Whoever runs the server sees all that is seen by any party")
    assert server.details[0].startswith("Nothing beyond chance was found for whoever runs the server")


def test_a_lent_tone_is_not_taken_back_to_nothing_found_beside_a_figure_that_is_doubted() -> None:
    results = builder.results()
    results["headlines"][1] |= {"estimates": builder.estimates(0.011, 0.505), "tone": "found"}
    assert redacted(read(results)).headlines[1].tone != "unknown"
    pooled = next(entry for entry in results["results"] if entry["party"] is None and entry["vantage"] == "client")
    pooled["estimates"]["auc"]["doubt"] = "fewer"
    server = redacted(read(results)).headlines[1]
    assert "Nothing beyond chance" not in " ".join([server.sentence, *server.details])


def test_what_is_found_by_a_threshold_far_too_high_says_so() -> None:
    """More may be picked out: the interval alone, which ends at 100 %, does not say why."""
    results, why = (
        builder.results(),
        "0.001 of the outsiders are accused where 0.01 was asked: the records that set the",
    )
    why += " threshold are not like those that are reported on, and more may be picked out at the rate that was asked"
    results["headlines"][0]["tone"] = "found"
    results["headlines"][0]["estimates"]["tpr@0.01"] |= {"doubt": "fewer", "high": 1.0, "reason": why}
    assert redacted(read(results)).headlines[0].sentence.endswith(f"; {why}.")


@pytest.mark.parametrize("name", ["loss", "client", "auc"])
def test_a_party_that_is_called_like_an_attack_changes_no_attack(name: str) -> None:
    results = json.loads(json.dumps(builder.results()).replace('"party-0"', json.dumps(name)))
    found = redacted(read(results))
    assert [e.attack for e in found.results] == [e["attack"] for e in results["results"]]
    assert [e.vantage for e in found.results] == [e["vantage"] for e in results["results"]]
    assert {e.party for e in found.results} == {None, "party 1", "party 2", "party 3", "party 4"}


def test_it_is_a_file_of_its_own(tmp_path: Path) -> None:
    """So that the whole report is not mistaken for it."""
    assert write_report(redacted(telling()), tmp_path, REDACTED) == tmp_path / "report-redacted.html"
    assert not (tmp_path / "report.html").exists()


def test_the_exposed_table_is_sorted_and_says_what_it_is() -> None:
    results = builder.results()
    for kind in ("records", "subjects"):
        results["exposed"][kind] = results["exposed"][kind][::-1]
    section = report.render(read(results)).split('id="exposed"')[1].split("</section>")[0]
    section = re.sub("</?span.*?>", "", section)
    assert "itself membership data" in section
    assert "--redact" in section
    for table in re.findall(r"<tbody>(.*?)</tbody>", section, re.DOTALL):
        shares = [float(cells.split(" ")[0]) for cells in re.findall(r"<td>([\d.]+) %</td>", table)]
        assert len(shares) >= 4
        assert shares == sorted(shares)
        ranks = re.findall(r'<th scope="row">(\d+)</th>', table)
        assert ranks == [str(i) for i in range(1, len(ranks) + 1)]


def test_everything_that_may_be_wider_than_a_phone_says_so() -> None:
    page = report.render(read(builder.results()))
    wide = page.count('class="scroll"')
    assert wide >= 10
    assert page.count('<div class="holds"><p class="sideways">') == wide
