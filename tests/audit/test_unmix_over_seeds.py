"""Unmix over seeds: an adapter, worlds in which nothing was trained on, and the rule by which it leads. The figures are
printed (`-s`); docs/unmix.md has them."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from sklearn.datasets import load_digits

from fedaudit.config.schema import Config, parse
from fedaudit.session.prepare import prepare
from fedaudit.types import Vantage
from tests.adversary.attacks.test_matched import pooled
from tests.worlds import null_world, watch

EXAMPLE = Path(__file__).parents[2] / "examples/flower-lora"


@pytest.fixture(scope="module")
def notes(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Of the example: made-up notes, and a language model that has learnt from others, with a LoRA adapter."""
    pytest.importorskip("peft")
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLWR_HOME", str(home))
        patch.syspath_prepend(EXAMPLE)
        from notes import task  # type: ignore[import-not-found]

        rng = np.random.default_rng(7)
        x, y = task.tokens([task.note(rng) for _ in range(1600)])
        np.savez(home / "notes.npz", x=x, y=y)
        yield home / "notes.npz"
    for name in [name for name in sys.modules if name.partition(".")[0] == "notes"]:
        del sys.modules[name]


def adapted(notes: Path, seed: int, limit: int, rounds: int) -> Config:
    return parse({
        "data": {"name": "npz", "path": str(notes), "tokens": True, "limit": limit},
        "model": {"name": "notes.task:adapted", "forward": "notes.task:ask"},
        "federation": {"parties": 2, "rounds": rounds, "members": 0.2, "nonmembers": 0.2, "batch_size": 16, "lr": 2e-3,
                       "seed": seed},
        "audit": {"attacks": ["unmix", "matched-filter+layer=all", "round-gain", "loss"], "vantages": ["server"],
                  "fpr": [0.01]},
    })  # fmt: skip


@pytest.mark.evidence
@pytest.mark.filterwarnings("ignore::FutureWarning")  # between PEFT and transformers
def test_from_an_adapter_unmix_finds_more_than_all_others(notes: Path) -> None:
    audit = watch(prepare(adapted(notes, 0, 1600, 3)))
    assert audit.failed == {}
    found = {name: result.estimates["auc"] for (name, model), result in pooled(audit).items() if model == "local"}
    others = [of.high for name, of in found.items() if name != "unmix"]
    assert len(others) == 4  # the blind guess among them
    assert found["unmix"].low > max(others), found


def digits(folder: Path) -> dict[str, Any]:
    x, y = load_digits(return_X_y=True)
    np.savez(folder / "digits.npz", x=x.reshape(-1, 1, 8, 8).astype(np.float32) / 16, y=y)
    return {"name": "npz", "path": str(folder / "digits.npz")}


def world(name: str, seed: int, notes: Path) -> Config:
    if name == "adapter":
        return adapted(notes, seed, 1000, 2)
    small = {"name": "cnn"} if name == "cnn" else {"name": "mlp", "hidden": [16]}
    return parse({
        "data": digits(notes.parent),
        "model": small,
        "federation": {"parties": 2, "rounds": 2, "members": 0.3, "nonmembers": 0.35, "seed": seed},
        "audit": {"attacks": ["unmix"], "fpr": [0.01]},
        "defences": [{"name": "update-noise", "strength": 3.0}] if name == "noise" else [],
    })  # fmt: skip


@pytest.mark.evidence
@pytest.mark.parametrize("name", ["mlp", "noise", "cnn", "adapter"])
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_nothing_is_found_where_nothing_was_trained_on(notes: Path, name: str) -> None:
    """Twenty seeds: AUC and TPR at chance on average, and the false positive rate where it was asked for."""
    areas: dict[str, list[float]] = {}
    rates: dict[str, list[tuple[float, float]]] = {}
    for seed in range(20):
        for (attack, model), result in pooled(watch(null_world(world(name, seed, notes)))).items():
            if attack == "unmix":
                rate = result.estimates["tpr@0.01"]
                areas.setdefault(model, []).append(result.estimates["auc"].value)
                rates.setdefault(model, []).append((rate.value, rate.realised_fpr))
    for model, found in areas.items():
        low, high = stats.t.interval(0.999, len(found) - 1, np.mean(found), stats.sem(found))
        tpr, fpr = np.transpose(rates[model])
        shown = ", ".join(f"{100 * np.mean(of):.2f} ± {196 * stats.sem(of):.2f} %" for of in (tpr, fpr))
        print(f"null, {name}, {model}: AUC {np.mean(found):.4f} ({low:.4f} to {high:.4f}); TPR, FPR {shown}")
        assert low <= 0.5 <= high
        assert abs(np.mean(tpr) - np.mean(fpr)) < 4 * np.hypot(stats.sem(tpr), stats.sem(fpr))
        assert np.mean(fpr) < 0.01 + 4 * stats.sem(fpr)


CASES: dict[str, dict[str, Any]] = {
    **{f"baskets, {hidden}": {"data": {"name": "baskets"}, "model": {"name": "mlp", "hidden": hidden}}
       for hidden in ([1], [8], [64], [256, 128])},
    "digits, cnn": {"model": {"name": "cnn"}},
    "digits, resnet8": {"model": {"name": "resnet8"}},
    "baskets, noise": {"data": {"name": "baskets"}, "model": {"name": "mlp", "hidden": [64]},
                       "defences": [{"name": "update-noise", "strength": 3.0}]},
    "baskets, DP-SGD": {"data": {"name": "baskets"}, "model": {"name": "mlp", "hidden": [64]},
                        "defences": [{"name": "dp-sgd", "noise": 0.3, "clip": 1.0}]},
}  # fmt: skip


@pytest.mark.evidence
@pytest.mark.parametrize("name", CASES)
def test_what_leads_is_not_behind(name: str, tmp_path: Path) -> None:
    """Unmix and filter on the same records: the one that the rule puts first, before anything is seen, is not the one
    that finds less."""
    case = CASES[name]
    prepared = prepare(parse({
        "data": {"limit": 1000, **(case["data"] if "data" in case else digits(tmp_path))},
        "model": case["model"],
        "federation": {"parties": 2, "rounds": 3, "members": 0.35, "nonmembers": 0.25, "seed": 6},
        "audit": {"attacks": ["unmix", "unmix+coverage=0.2", "matched-filter"]},
        "defences": case.get("defences", []),
    }))  # fmt: skip
    audit = watch(prepared)
    assert audit.failed == {}
    for model, vantage in (("local", Vantage.SERVER), ("global", Vantage.CLIENT)):
        first = prepared.settings.primary(vantage)
        assert first is not None
        of = {attack: result.estimates["auc"] for (attack, kind), result in pooled(audit).items() if kind == model}
        shown = ", ".join(f"{attack} {one.value:.3f} ({one.low:.3f} to {one.high:.3f})" for attack, one in of.items())
        print(f"{name}, {model}: {first.name} leads; {shown}")
        assert first.name == "unmix"
        assert of["unmix"].high >= of["matched-filter"].low


@pytest.mark.evidence
@pytest.mark.parametrize("fresh", [0.0, 0.5])
def test_for_people_it_is_not_behind_either(fresh: float) -> None:
    prepared = prepare(parse({
        "data": {"name": "baskets", "limit": 2000},
        "model": {"name": "mlp", "hidden": [16]},
        "federation": {"parties": 2, "rounds": 3, "partition": "subjects", "member_subjects": 0.4,
                       "nonmember_subjects": 0.25, "fresh": fresh, "seed": 6},
        "audit": {"attacks": ["subject-unmix", "subject-matched", "subject-loss"]},
    }))  # fmt: skip
    audit = watch(prepared)
    assert audit.failed == {}
    found = {key: result.estimates["auc"] for key, result in pooled(audit).items()}
    for (attack, model), of in found.items():
        print(f"people, fresh {fresh}, {model}: {attack} {of.value:.3f} ({of.low:.3f} to {of.high:.3f})")
    for model in ("local", "global"):
        assert found["subject-unmix", model].high >= found["subject-matched", model].low
