"""Synthetic results: the report sees nothing but these, so invented numbers test all of it."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fedaudit.report.values import Results, cleaned
from fedaudit.results.document import Document, brought_up
from fedaudit.stats.strongest import Heard
from fedaudit.stats.wording import main_tpr
from fedaudit.types import AuditResult, Headline
from fedaudit.words.headlines import Scene, worded

Json = dict[str, Any]


def read(results: Json) -> Document:
    document = brought_up(Document.from_json(results))
    if all(headline.sentence for headline in document.headlines):
        return document
    return replace(document, headlines=told(document.headlines, document.results, document.run.rounds))


def told(headlines: Sequence[Headline], results: Sequence[AuditResult], rounds: int) -> list[Headline]:
    """Headlines with the words for what their own intervals say."""
    name = main_tpr([headline.estimates for headline in headlines])
    found = [(h, Heard(h.attack, h.model, h.estimates, h.estimates, True)) for h in headlines if h.attack != "blind"]
    decided = [replace(h, tone=own.tone(name), figure=own.figure(name)) for h, own in found]
    return worded(decided, Scene(results, rounds, name))


def quotable(results: Json) -> Results:
    return cleaned(read(results))


def estimate(value: float | None, half: float = 0.012, **extra: Any) -> Json:
    low, high = (None, None) if value is None else (max(0.0, value - half), min(1.0, value + half))
    base: Json = {"value": value, "low": low, "high": high, "confidence": 0.95, "kind": "measured"}
    base |= {"method": "order statistic + Clopper-Pearson", "n_pos": 1800, "n_neg": 1750, "reason": None}
    return base | extra


def tpr(value: float | None, half: float = 0.014, **extra: Any) -> Json:
    base: Json = {"n_cal": 2400, "threshold": 0.4, "realised_fpr": None if value is None else 0.0112}
    return estimate(value, half, **(base | extra))


def estimates(share: float | None, area: float | None) -> Json:
    strict = None if share is None else share / 6
    return {"auc": estimate(area), "tpr@0.001": tpr(strict, 0.006), "tpr@0.01": tpr(share)}


def over_rounds(last: float, chance: float, rounds: int, half: float) -> Json:
    x = list(range(2, rounds + 1))
    value = [chance + (last - chance) * (1 - math.exp(-r / 12)) / (1 - math.exp(-rounds / 12)) for r in x]
    low, high = [max(0.0, v - half) for v in value], [min(1.0, v + half) for v in value]
    return {"x": x, "value": value, "low": low, "high": high, "method": f"simultaneous over {rounds} rounds, alpha/R"}


def roc(share: float) -> Json:
    x = [10 ** (-3.4 + 3.4 * i / 59) for i in range(60)]
    power = math.log(share) / math.log(0.01)
    value = [v**power for v in x]
    low, high = [max(0.0, v - 0.006 - 0.1 * v) for v in value], [min(1.0, v + 0.008 + 0.1 * v) for v in value]
    return {"x": x, "value": value, "low": low, "high": high, "method": "pointwise 95 %: order statistic"}


def entry(attack: str, vantage: str, share: float | None, area: float | None, **extra: Any) -> Json:
    base: Json = {"attack": attack, "vantage": vantage, "model": "local" if vantage == "server" else "global"}
    base |= {"unit": "record", "party": None, "round": 40, "estimates": estimates(share, area)}
    return base | {"cost": {"epochs": 0.05 + 0.02 * len(attack)}, "warnings": []} | extra


def blind(area: float | None = 0.503) -> Json:
    return entry("blind", "client", None, area, estimates={"auc": estimate(area, 0.019)}, cost={"epochs": 0.0})


ATTACKS = ("fta-confidence", "fta-logit", "fta-loss", "loss", "modified-entropy", "fed-loss", "back-front-diff")
CONFIG: Json = {
    "data": {"name": "baskets"},
    "federation": {"parties": 4, "partition": "iid", "members": 0.3, "nonmembers": 0.3, "rounds": 40, "lr": 1e-3},
    "model": {"name": "mlp", "hidden": [512, 256, 128]},
    "audit": {"vantages": ["client", "server"], "attacks": ["fta-confidence", "loss"], "fpr": [0.001, 0.01]},
}


def minimal(share: float | None = 0.077, area: float | None = 0.712) -> Json:
    """One attack from one vantage, and nothing else."""
    one = entry("fta-confidence", "client", share, area)
    headline = {k: one[k] for k in ("vantage", "attack", "model", "estimates")} | {"compared": 1}
    return {"schema": 1, "run": bare_run(), "headlines": [headline], "results": [one]}


def bare_run() -> Json:
    """As little as a run can say about itself."""
    data = {"name": "", "records": 0, "classes": 0, "subjects": None, "input_shape": []}
    words = {"name": "baskets", "fedaudit": "", "created": "", "status": "complete", "config_hash": ""}
    numbers = {"seed": 0, "rounds": 40, "seconds": 1.0}
    return words | numbers | {"config": {}, "versions": {}, "data": data, "parties": [], "guarantee": None}


def _wobble(i: int) -> float:
    return math.sin(12.9898 * (i + 1)) / 2


def results(parties: int = 4, attacks: int = 4, strong: float = 0.077) -> Json:
    """A whole audit: two vantages, parties, curves, exposed records, a guarantee, repeats."""
    names = [ATTACKS[i] if i < len(ATTACKS) else f"attack-number-{i}" for i in range(attacks)]
    rows: list[Json] = []
    for vantage, gain in (("client", 1.0), ("server", 1.7)):
        for i, name in enumerate(names):
            share = 0.01 + (strong - 0.01) * gain / (1 + 0.8 * i)
            area = 0.5 + 2.6 * (share - 0.01)
            for p in range(parties):
                own = max(0.0, share * (1 + 0.7 * _wobble(p + 3 * i)))
                found = entry(name, vantage, own, 0.5 + 2.6 * (own - 0.01), party=f"party-{p}")
                found["estimates"]["tpr@0.001"] = tpr(None, reason="needs 400 more calibration non-members")
                rows.append(found)
            whole = entry(name, vantage, share, area, cost={"epochs": 0.04 * (1 + i) ** 1.5 * gain})
            if i == 0:
                bands = {"auc": over_rounds(area, 0.5, 40, 0.03), "tpr@0.01": over_rounds(share, 0.01, 40, 0.022)}
                whole["curves"] = {"roc": roc(share), **bands}
            rows.append(whole)
    primary = [r for r in rows if r["attack"] == names[0] and r["party"] is None]
    keys = ("vantage", "attack", "model", "estimates")
    headlines = [{k: r[k] for k in keys} | {"compared": 1 + (r["vantage"] == "server")} for r in primary]
    return {
        "schema": 1,
        "run": run(parties) | {"repeats": [{"seed": s, "headlines": _seed(headlines, s)} for s in range(4)]},
        "headlines": headlines,
        "results": [*rows, blind()],
        "trajectories": [trajectory("global", 0.05), trajectory("local", 0.12)],
        "exposed": exposed(parties),
        "warnings": ["12 records occur among members and among outsiders with the same content."],
        "notices": ["FPR 0.0001 was left out: it needs 10,000 calibration non-members."],
    }


def trajectory(model: str, apart: float, rounds: int = 40) -> Json:
    """Both sides grow surer, members sooner."""

    def curve(last: float, half: float, method: str) -> Json:
        value = [last * (1 - math.exp(-r / 12)) for r in range(1, rounds + 1)]
        ends = {"low": [v - half for v in value], "high": [v + half for v in value]}
        return {"x": list(range(1, rounds + 1)), "value": value, **ends, "method": method}

    return {
        "model": model, "signal": "confidence", "members": curve(0.8, 0.1, "quartiles"),
        "others": curve(0.8 - apart, 0.1, "quartiles"), "apart": curve(apart, 0.02, "simultaneous"),
        "confidence": 0.95, "fewest_members": 1800, "fewest_others": 4100,
    }  # fmt: skip


def _seed(headlines: list[Json], seed: int) -> list[Json]:
    shift = 1 + 0.4 * _wobble(seed)
    return [h | {"estimates": {"tpr@0.01": tpr(h["estimates"]["tpr@0.01"]["value"] * shift)}} for h in headlines]


def exposed(parties: int) -> Json:
    rows = [
        {
            "id_hash": f"{(i + 1) * 0x9E3779B97F4A7C15 % 2**64:016x}",
            "party": f"party-{i % parties}",
            "score": 0.9 - 0.02 * i,
            "share_of_calibration_above": 0.0004 * i,
        }
        for i in range(12)
    ]
    return {"attack": "fta-confidence", "vantage": "client", "records": rows, "subjects": rows[:4]}


def run(parties: int) -> Json:
    sizes = {"members": 450, "evaluation": 440, "calibration": 600}
    return {
        "name": "baskets", "fedaudit": "0.1.0", "created": "2025-11-15T21:30:00+00:00", "config": CONFIG,
        "config_hash": "9f2c61d0a7b4", "seed": 0, "versions": {"python": "3.11.7", "numpy": "2.4.6", "torch": "2.13.0"},
        "status": "complete", "rounds": 40, "seconds": 94.2,
        "data": {"name": "baskets", "records": 6000, "classes": 8, "subjects": 801, "input_shape": [300]},
        "parties": [{"name": f"party-{i}"} | sizes for i in range(parties)],
        "accuracy": {"members": estimate(0.83, 0.02), "evaluation": estimate(0.61, 0.023)},
        "guarantee": guarantee(4.0),
    }  # fmt: skip


def guarantee(epsilon: float) -> Json:
    process = {"unit": "record", "noise": 1.1, "releases": 4, "sampler": "poisson", "rate": 0.1}
    spent = {"epsilon": epsilon, "epsilon_one_round": epsilon / 9, "epsilon_rdp": 1.1 * epsilon, "delta": 1e-5}
    words = {"unit": "record", "adjacency": "add-remove", "accountant": "PLD", "scope": "whole run of 40 rounds"}
    curve = {"round": [1, 40], "epsilon": [epsilon / 9, epsilon]}
    return words | spent | {"defence": "dp-sgd", "against": "everybody", "process": process, "curve": curve}
