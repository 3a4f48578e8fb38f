"""Four unequal hospitals from the command line: every count and figure that is stated is counted again here."""

import csv
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from fedaudit.config.schema import load_config
from fedaudit.session.selftest import null_world, watch
from tests import sites
from tests.command import fedaudit

ATTACKS = '["loss","matched-filter","unmix"]'
RATES = (0.01, 0.05)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("sites")
    sites.config(folder, rounds=6)
    done = fedaudit(
        "run", "sites.toml", "--set", f"audit.attacks={ATTACKS}", "--set", "audit.fpr=[0.01,0.05]", cwd=folder
    )
    assert done.returncode == 0, done.stderr
    out = folder / "runs" / "sites"
    return out, done.stdout + done.stderr, json.loads((out / "results.json").read_text())


def scores(out: Path) -> list[dict[str, Any]]:
    return [row for row in pq.read_table(out / "scores.parquet").to_pylist() if row["attack"] != "blind"]


def naive_auc(members: list[float], others: list[float]) -> float:
    a, b = np.array(members)[:, None], np.array(others)
    return float(np.mean((a > b) + 0.5 * (a == b)))


def test_every_party_is_counted_as_the_table_has_it(ran: tuple[Path, str, dict[str, Any]]) -> None:
    out, told, results = ran
    with (out.parents[1] / "patients.csv").open() as file:
        held = Counter(row["hospital"] for row in csv.DictReader(file))
    assert held == sites.SITES
    parties = results["run"]["parties"]
    assert {p["name"]: p["members"] + p["evaluation"] + p["calibration"] for p in parties} == held
    whole = {role: sum(p[role] for p in parties) for role in ("members", "evaluation", "calibration")}
    for result in results["results"]:
        if result["attack"] == "blind":
            continue
        counts = whole if result["party"] is None else next(p for p in parties if p["name"] == result["party"])
        for name, estimate in result["estimates"].items():
            assert (estimate["n_pos"], estimate["n_neg"]) == (counts["members"], counts["evaluation"]), result["party"]
            assert not name.startswith("tpr@") or estimate["n_cal"] == counts["calibration"]
            assert not estimate.get("missing")  # nobody is left out, and nobody is said to be
    assert f"{whole['members']} of {sum(held.values())} people at 4 parties are trained on (60 %)" in " ".join(
        told.split()
    )
    # Shares of the members are told of all 520 of them, whichever models they are from.
    for trained in re.findall(r"\(about [\d,]+ of ([\d,]+)\)", told):
        assert int(trained.replace(",", "")) == whole["members"]


def test_figures_are_those_that_the_scores_give(ran: tuple[Path, str, dict[str, Any]]) -> None:
    out, _, results = ran
    rows = scores(out)
    for result in results["results"]:
        if result["attack"] == "blind" or (result["model"] == "global" and result["party"] is not None):
            continue
        mine = [row for row in rows if (row["attack"], row["model"]) == (result["attack"], result["model"])]
        parties = sorted({row["party"] for row in mine}) if result["party"] is None else [result["party"]]
        blocks = [parties] if result["model"] == "global" else [[party] for party in parties]
        sides = [
            {role: [row["score"] for row in mine if row["role"] == role and row["party"] in block]
             for role in ("member", "evaluation", "calibration")}
            for block in blocks
        ]  # fmt: skip
        pairs = np.array([len(side["member"]) * len(side["evaluation"]) for side in sides], float)
        areas = np.array([naive_auc(side["member"], side["evaluation"]) for side in sides])
        auc = result["estimates"]["auc"]
        assert auc["value"] == pytest.approx(float(pairs @ areas / pairs.sum()), abs=1e-6)
        assert auc["low"] <= auc["value"] <= auc["high"]
        for rate in RATES:
            told = result["estimates"][f"tpr@{rate:g}"]
            if told["value"] is None:
                assert sum(len(side["calibration"]) for side in sides) < 1 / rate
                continue
            # At a threshold of their own, about as many outsiders are accused as were asked for.
            accused = sum(_above(side["evaluation"], side["calibration"], rate) for side in sides)
            assert told["realised_fpr"] == pytest.approx(accused / told["n_neg"], abs=1e-6)
            found = sum(_above(side["member"], side["calibration"], rate) for side in sides)
            assert told["value"] == pytest.approx(found / told["n_pos"], abs=1e-6)
            assert told["low"] <= told["value"] <= told["high"]


def _above(scored: list[float], calibration: list[float], rate: float) -> float:
    """How many are accused where fewer than rate (n + 1) calibration scores may be ahead; a coin decides the rest."""
    ahead = rate * (len(calibration) + 1)
    known = np.array(calibration)
    above = np.array([np.count_nonzero(known > score) for score in scored])
    tied = np.array([np.count_nonzero(known == score) for score in scored])
    return float(np.clip((ahead - above) / (tied + 1), 0, 1).sum())


def test_groups_name_the_parties_and_the_classes_of_the_table(ran: tuple[Path, str, dict[str, Any]]) -> None:
    found = ran[2]["groups"]
    named = {(g["kind"], g.get("attribute", ""), g["value"]) for g in found["looked_at"]}
    named |= {(g["kind"], g.get("attribute", ""), g["value"]) for g in found.get("too_small", [])}
    assert {value for kind, _, value in named if kind == "class"} <= {"healthy", "I", "II", "III", "IV"}
    assert {value for kind, name, value in named if name == "hospital"} <= set(sites.SITES)


def test_who_was_not_trained_on_is_found_by_chance(tmp_path: Path) -> None:
    """The same federation, trained on other people: of all intervals hardly one may miss."""
    settings = load_config(
        sites.config(tmp_path, rounds=4), (f"audit.attacks={ATTACKS}", "audit.fpr=[0.05]", "federation.members=0.3")
    )
    missed = total = 0
    for seed in range(2):
        federation = settings.federation.model_copy(update={"seed": seed})
        found = watch(null_world(settings.model_copy(update={"federation": federation})))
        for result in found.results:
            for name, chance in (("auc", 0.5), ("tpr@0.05", 0.05)):
                estimate = result.estimates.get(name)
                if estimate is not None and estimate.low is not None and estimate.high is not None:
                    total += 1
                    missed += not estimate.low <= chance <= estimate.high
    assert total > 40
    assert missed <= 0.1 * total
