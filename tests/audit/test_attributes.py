"""Attributes: a leak is what beats both a blind guess and the same guess about non-members."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from scipy.stats import binomtest

from fedaudit.adversary.signals.outputs import Probe
from fedaudit.config.schema import Config
from fedaudit.errors import FedauditError
from fedaudit.questions.attribute.judge import Guesses, balanced, called, conclusion, difference, one_hot, told_apart
from fedaudit.report.html import render
from fedaudit.results import document as results
from fedaudit.session.prepare import prepare
from fedaudit.session.recording import About
from fedaudit.types import Audit, Estimate, Records
from fedaudit.words import all_words, words
from tests.worlds import config, null_world, watch


def world(folder: Path, x: Any, y: Any, z: Any, values: dict[str, Any], **arrays: Any) -> Config:
    np.savez(folder / "world.npz", x=x, y=y, attribute=z, **arrays)
    return config(
        data={"name": "npz", "path": str(folder / "world.npz")},
        federation={"parties": 3, "rounds": 6, "local_epochs": 10, "members": 0.4, "nonmembers": 0.3, "lr": 1e-2},
        audit={"adversary": "agg-sh", "attacks": ["loss"], "attribute": {"name": "attribute"}} | values,
    )


def found(audit: Audit) -> dict[str, Estimate]:
    (entry,) = [r for r in audit.results if r.attack == "attribute" and r.party is None]
    assert entry.unit == "attribute"
    return dict(entry.estimates)


def covers(estimate: Estimate, value: float) -> bool:
    assert estimate.low is not None
    assert estimate.high is not None
    return estimate.low <= value <= estimate.high


def test_a_memorised_attribute_is_shown_as_a_leak(tmp_path: Path) -> None:
    """The label is a coin; the attribute is another. Only a model that memorised both can link them."""
    rng = np.random.default_rng(0)
    x, z = rng.normal(size=(800, 4)), rng.integers(0, 2, 800)
    settings = world(tmp_path, x, rng.integers(0, 2, 800), z, {})
    longer = settings.federation.model_copy(update={"rounds": 4, "local_epochs": 40})
    audit = watch(prepare(settings.model_copy(update={"federation": longer})))
    estimates = found(audit)
    assert covers(estimates["blind-auc"], 0.5)
    assert covers(estimates["nonmembers-auc"], 0.5)
    excess, gap = estimates["excess-over-blind"], estimates["members-minus-nonmembers"]
    assert excess.low is not None
    assert gap.low is not None
    assert excess.low > 0, estimates
    assert gap.low > 0, estimates
    assert any("training reveals it" in notice for notice in all_words(audit.notices))


@pytest.mark.parametrize("values", [2, 3])
@pytest.mark.parametrize("adversary", ["agg-sh", "do-sh"])
def test_K22_an_independent_attribute_comes_out_at_the_base_rate(values: int, adversary: str, tmp_path: Path) -> None:
    """The attribute says nothing of record or label, and none of those asked about was trained on."""
    rng = np.random.default_rng(values)
    x = rng.normal(size=(1500, 4))
    z = rng.choice(values, 1500, p=[0.7, 0.3] if values == 2 else [0.6, 0.3, 0.1])
    settings = world(tmp_path, x, (x[:, 0] > 0).astype(int), z, {"adversary": adversary, "confidence": 0.99})
    estimates = found(watch(null_world(settings)))
    for name in ("members-auc", "nonmembers-auc", "blind-auc"):
        assert covers(estimates[name], 0.5), (name, estimates[name])
    for name in ("excess-over-blind", "members-minus-nonmembers"):
        assert covers(estimates[name], 0.0), (name, estimates[name])


def test_K23_what_the_blind_guess_knows_is_no_leak(tmp_path: Path) -> None:
    """The attribute is written in the rest of the record: the attack succeeds, and shows nothing."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(1500, 4))
    z = (x[:, 0] + 0.1 * rng.normal(size=1500) > 0).astype(int)
    y = (x[:, 0] + 0.3 * rng.normal(size=1500) > 0).astype(int)
    audit = watch(prepare(world(tmp_path, x, y, z, {})))
    estimates = found(audit)
    attack, excess = estimates["members-auc"], estimates["excess-over-blind"]
    assert attack.low is not None
    assert attack.low > 0.6
    assert excess.low is not None
    assert excess.low <= 0
    assert "training reveals it" not in " ".join(all_words(audit.notices))
    assert "classifier that never sees a model" in " ".join(all_words(audit.notices))


def test_people_whose_other_records_were_trained_on_are_no_control(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    person = np.repeat(np.arange(300), 5)
    x, z = rng.normal(size=(1500, 4)), rng.integers(0, 2, 300)[person]
    settings = world(tmp_path, x, rng.integers(0, 2, 1500), z, {}, subject=person)
    prepared = prepare(settings)
    watched = found(watch(prepared))
    members = prepared.game.truth.role == "member"
    subject = prepared.game.candidates.subject
    assert subject is not None
    free = ~np.isin(subject, subject[members])
    assert watched["nonmembers-auc"].n_pos + watched["nonmembers-auc"].n_neg == free.sum()
    own = prepared.settings.shadow
    assert own is not None
    assert not set(own.game.candidates.rows.subject.tolist()) & set(subject.tolist())  # type: ignore[union-attr]


def test_results_with_an_attribute_are_valid_and_can_be_shown(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    x = rng.normal(size=(600, 4))
    prepared = prepare(world(tmp_path, x, rng.integers(0, 2, 600), (x[:, 0] > 0).astype(int), {}))
    document = results.Document.of(
        watch(prepared), About.foreign("a", prepared.auditor).info(prepared.auditor, "complete", 1.0)
    )
    jsonschema.validate(document.to_json(), json.loads(results.SCHEMA_FILE.read_text()))
    assert "AUC over the blind guess" in render(document)


def test_a_column_is_set_to_the_mean_of_each_value() -> None:
    settings = config(
        data={"name": "breast-cancer"}, federation={"parties": 2, "rounds": 3},
        audit={"adversary": "agg-sh", "attacks": ["loss"], "attribute": {"name": "area", "column": 3}},
    )  # fmt: skip
    prepared = prepare(settings)
    probe, shadow = prepared.settings.asked["attribute"], prepared.settings.shadow
    assert probe is not None
    assert shadow is not None
    own = shadow.game.candidates.rows
    assert prepared.dataset.input_shape == (30,)
    for value in (0, 1):
        assert probe.settings[value, 0] == pytest.approx(own.x[own.attributes["area"] == value, 3].mean(), rel=1e-5)
    assert probe.rest(own, 2).shape == (len(own), 29 + 2)
    found(watch(prepared))


def test_an_attribute_that_is_no_input_becomes_one() -> None:
    rows = Records(
        np.zeros((3, 2), np.float32), np.zeros(3, int), np.arange(3).astype(str), None, {"a": np.array([1, -1, 0])}
    )
    assert one_hot(rows.attributes["a"], 2).tolist() == [[0, 1], [0, 0], [1, 0]]


def test_each_of_several_values_is_told_from_the_others() -> None:
    said = np.array([[2.0, 0.0, -1.0], [0.0, 1.0, 0.5], [0.3, 0.2, 0.1], [1.0, 0.9, 0.0]])
    group = Guesses(said, np.array([0, 1, 2, 0]), np.arange(4))
    found = told_apart("x", [group], 0.95)
    wins, pairs = 0.0, 0
    for value, block in enumerate(group.blocks()):
        margin = said[:, value] - np.delete(said, value, axis=1).max(axis=1)
        assert sorted(block.members.tolist()) == sorted(margin[group.true == value].tolist())
        wins += sum((m > e) + (m == e) / 2 for m in block.members for e in block.evaluation)
        pairs += len(block.members) * len(block.evaluation)
    assert found.value == pytest.approx(wins / pairs)
    assert len(Guesses(said[:, :2], np.array([0, 1, 1, 0]), group.subject).blocks()) == 1


def test_precision_recall_and_f1_are_counted_at_the_numbers_that_there_are() -> None:
    """Two groups, 90 with the value 1 and 310 without: nothing is balanced, and both groups count together."""
    rng = np.random.default_rng(7)
    true = (np.arange(400) < 90).astype(int)
    said = rng.normal(size=(400, 2))
    said[:, 1] += 1.5 * true - 0.5
    parts = [np.arange(400) % 3 == 0, np.arange(400) % 3 != 0]
    found = called("members", [Guesses(said[part], true[part], None) for part in parts], 0.95)
    hit = wrong = missed = 0
    for (zero, one), is_one in zip(said.tolist(), true.tolist(), strict=True):
        hit += one > zero and is_one == 1
        wrong += one > zero and is_one == 0
        missed += one <= zero and is_one == 1
    assert hit / (hit + wrong) < 0.7 < hit / (hit + missed)  # balanced, or one in the other's place, would be seen
    counted = {
        "precision": (hit / (hit + wrong), hit + wrong),
        "recall": (hit / (hit + missed), hit + missed),
        "f1": (2 * hit / (2 * hit + wrong + missed), hit + wrong + missed),
    }
    for which, (value, people) in counted.items():
        estimate = found[which]
        assert (estimate.name, estimate.n_pos, estimate.n_neg) == (f"members-{which}", people, 0)
        assert estimate.value == pytest.approx(value)
        ends = binomtest(round(value * people), people).proportion_ci(0.95)
        if which != "f1":
            assert (estimate.low, estimate.high) == pytest.approx((ends.low, ends.high))
        assert covers(estimate, value)
    ends = binomtest(hit, hit + wrong + missed).proportion_ci(0.95)
    expected = [2 * end / (1 + end) for end in (ends.low, ends.high)]
    assert [found["f1"].low, found["f1"].high] == pytest.approx(expected)


def test_every_value_counts_alike_in_balanced_accuracy() -> None:
    """300, 80 and 20 people: who always names the commonest value is right on 75 % of them, and on a third."""
    true = np.repeat([0, 1, 2], [300, 80, 20])
    always = np.tile([1.0, 0.0, 0.0], (400, 1))
    parts = [np.arange(400) % 3 == 0, np.arange(400) % 3 != 0]
    found = balanced("x", [Guesses(always[part], true[part], None) for part in parts], 0.95)
    assert found.value == pytest.approx(1 / 3)
    assert (found.n_pos, found.n_neg) == (400, 0)
    said = np.random.default_rng(3).normal(size=(400, 3)) + 1.5 * np.eye(3)[true]
    found = balanced("x", [Guesses(said[part], true[part], None) for part in parts], 0.95)
    right = [int((said[true == value].argmax(axis=1) == value).sum()) for value in range(3)]
    ends = [binomtest(k, n).proportion_ci(0.95) for k, n in zip(right, (300, 80, 20), strict=True)]
    shares = np.array(right) / [300, 80, 20]
    assert found.value == pytest.approx(shares.mean())
    assert found.low == pytest.approx(shares.mean() - np.linalg.norm(shares - [e.low for e in ends]) / 3)
    assert found.high == pytest.approx(shares.mean() + np.linalg.norm([e.high for e in ends] - shares) / 3)
    nobody = balanced("x", [Guesses(np.zeros((0, 2)), np.zeros(0, int), None)], 0.95)
    assert (nobody.value, nobody.reason) == (None, "nobody's attribute is known")


def test_intervals_of_balanced_accuracy_cover() -> None:
    """One in ten has it, 70 % of them and 20 % of the others are called so."""
    rng, missed = np.random.default_rng(8), 0
    for _ in range(500):
        true = (rng.random(200) < 0.1).astype(int)
        says = rng.random(200) < np.where(true, 0.7, 0.2)
        found = balanced("x", [Guesses(np.column_stack([~says, says]).astype(float), true, None)], 0.95)
        missed += not covers(found, 0.75)
    assert missed <= 40  # of 500; 5 % and 3 errors


def test_intervals_of_precision_recall_and_f1_cover() -> None:
    """40 % have it, 70 % of them and 30 % of the others are called so: 41 of 500 misses would be 5 % and 3 errors."""
    rng, missed = np.random.default_rng(8), dict.fromkeys(("precision", "recall", "f1"), 0)
    truth = {"precision": 0.28 / 0.46, "recall": 0.7, "f1": 2 * 0.28 / (0.46 + 0.4)}
    for _ in range(500):
        true = (rng.random(150) < 0.4).astype(int)
        says = rng.random(150) < np.where(true, 0.7, 0.3)
        found = called("blind", [Guesses(np.column_stack([~says, says]).astype(float), true, None)], 0.95)
        for which in missed:
            missed[which] += not covers(found[which], truth[which])
    assert max(missed.values()) <= 40


def test_where_nobody_is_called_so_there_is_no_precision() -> None:
    none = np.column_stack([np.ones(6), np.zeros(6)])
    found = called("members", [Guesses(none, np.array([1, 1, 0, 0, 0, 0]), None)], 0.95)
    assert (found["precision"].value, found["precision"].reason) == (None, "nobody's attribute is called 1")
    assert (found["recall"].value, found["f1"].value) == (0.0, 0.0)
    nobody = called("members", [Guesses(none, np.zeros(6, int), None)], 0.95)
    assert nobody["recall"].reason == "nobody's attribute is 1"
    assert nobody["f1"].low is None


def test_people_with_several_records_widen_precision_recall_and_f1() -> None:
    rng = np.random.default_rng(9)
    person = np.repeat(np.arange(40), 10)
    true, says = rng.integers(0, 2, 40)[person], rng.integers(0, 2, 40)[person]
    said = np.column_stack([1 - says, says]).astype(float)
    alone, clustered = (called("members", [Guesses(said, true, whose)], 0.95) for whose in (None, person))
    for which, estimate in clustered.items():
        assert estimate.method.endswith("clustered by subject")
        assert estimate.value == alone[which].value
        assert (estimate.high or 0) - (estimate.low or 0) > 2 * ((alone[which].high or 0) - (alone[which].low or 0))


def test_the_difference_is_as_wide_as_both_together() -> None:
    def estimate(value: float, low: float, high: float) -> Estimate:
        return Estimate("auc", value, low, high, 0.95, "m", "measured", 10, 20)

    found = difference("d", estimate(0.8, 0.7, 0.85), estimate(0.6, 0.5, 0.72))
    assert found.value == pytest.approx(0.2)
    assert found.low == pytest.approx(0.2 - np.hypot(0.1, 0.12))
    assert found.high == pytest.approx(0.2 + np.hypot(0.05, 0.1))
    better = {
        "members-auc": estimate(0.9, 0.88, 0.92), "blind-auc": estimate(0.99, 0.98, 0.995),
        "nonmembers-auc": estimate(0.9, 0.87, 0.92),
    }  # fmt: skip
    better["excess-over-blind"] = difference("e", better["members-auc"], better["blind-auc"])
    better["members-minus-nonmembers"] = difference("g", better["members-auc"], better["nonmembers-auc"])
    assert conclusion("area", better).data["finding"] == "blind-is-better"


def test_a_verdict_needs_members_above_chance() -> None:
    """A guess of .5 "beat" a blind guess of .3, and non-members of .3, and was called a leak."""

    def estimate(value: float) -> Estimate:
        return Estimate("auc", value, value - 0.02, value + 0.02, 0.95, "m", "measured", 10, 20)

    for value, verdict in ((0.5, "not above chance: no leak is shown"), (0.7, "training reveals it")):
        found = {"members-auc": estimate(value), "blind-auc": estimate(0.3), "nonmembers-auc": estimate(0.3)}
        found["excess-over-blind"] = difference("e", found["members-auc"], found["blind-auc"])
        found["members-minus-nonmembers"] = difference("g", found["members-auc"], found["nonmembers-auc"])
        assert verdict in words(conclusion("area", found))


def test_wrong_use_is_refused_before_training() -> None:
    def asked(**audit: Any) -> None:
        prepare(config(data={"name": "breast-cancer"}, audit={"attacks": ["loss"]} | audit))

    with pytest.raises(FedauditError, match="needs a semi-honest adversary"):
        asked(attribute={"name": "area"})
    with pytest.raises(FedauditError, match="has no attribute 'size'"):
        asked(attribute={"name": "size"}, adversary="agg-sh")
    with pytest.raises(FedauditError, match="there is no column 30 among 30"):
        asked(attribute={"name": "area", "column": 30}, adversary="agg-sh")
    assert Probe("a", np.array([0]), np.eye(2, dtype=np.float32)).values == 2


def test_an_attribute_that_hardly_varies_is_refused_before_training(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    rare = np.arange(300) < 2
    with pytest.raises(FedauditError, match="have a single value of 'attribute'"):
        prepare(world(tmp_path, rng.normal(size=(300, 4)), rng.integers(0, 2, 300), rare.astype(int), {}))


@pytest.mark.parametrize("values", [2, 3])
def test_counts_are_of_people_and_clusters_are_named_only_where_there_are_some(values: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    x, z = rng.normal(size=(600, 4)), rng.integers(0, values, 600)
    prepared = prepare(world(tmp_path, x, rng.integers(0, 2, 600), z, {}))
    audit = watch(prepared)
    estimates = found(audit)
    members = int((prepared.game.truth.role == "member").sum())
    others = len(prepared.game.truth.role) - members
    assert (estimates["excess-over-blind"].n_pos, estimates["excess-over-blind"].n_neg) == (members, members)
    assert estimates["members-minus-nonmembers"].n_neg == others
    assert not any("clustered" in estimate.method for estimate in estimates.values())
    about = {
        f"{whom}-{which}" for whom in ("members", "nonmembers", "blind") for which in ("precision", "recall", "f1")
    }
    assert about & set(estimates) == (about if values == 2 else set())  # which of three values would be called so?
    for name in ("excess-over-blind", "members-minus-nonmembers"):
        gap = estimates[name]
        assert f"{gap.value:+.3f} ({gap.low:+.3f} to {gap.high:+.3f})" in " ".join(all_words(audit.notices))
