"""A report that is passed on: no exposed record, no name, no path; every number as it was."""

import json
import re
from pathlib import Path

import pytest

from fedaudit import report
from fedaudit.cli.terminal import write_report
from fedaudit.report.values import redacted
from fedaudit.results.document import REDACTED, Document
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


def test_names_paths_and_records_are_left_out_and_numbers_stay() -> None:
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
