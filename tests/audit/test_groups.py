"""Groups of candidates: how they are fixed, and whether a leaking one is named and others are not."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from docs.make_groups import planted
from fedaudit.audit.groups import LEAST, partition
from fedaudit.audit.settings import Legend
from fedaudit.report import html
from fedaudit.results.document import Document
from fedaudit.results.redaction import redacted
from fedaudit.session.prepare import prepare
from fedaudit.stats import Block
from fedaudit.stats.groups import contrast
from fedaudit.types import (
    Bools,
    Candidates,
    Estimate,
    Floats,
    Game,
    GroupResult,
    Headline,
    ModelKind,
    Records,
    Role,
    Subgroup,
    Truth,
)
from fedaudit.words.headlines import Scene, worded
from tests import worlds


def game(y: Any, *, attributes: dict[str, Any] | None = None, subject: Any = None, x: Any = None) -> Game:
    """Every third candidate is a member, every third reported on."""
    n = len(y)
    x = np.zeros((n, 1), np.float32) if x is None else x
    ids = np.array([f"{i:05d}" for i in range(n)])
    names = None if subject is None else np.asarray(subject).astype(str)
    rows = Records(x, np.asarray(y), ids, names, {k: np.asarray(v) for k, v in (attributes or {}).items()})
    roles = np.array([list(Role)[i % 3].value for i in range(n)])
    return Game(Candidates("record", ids, np.full(n, "A"), rows, np.arange(n), subject=names), Truth(ids, roles))


def test_groups_are_classes_declared_values_rare_values_and_numbers_of_records() -> None:
    n = 600
    code = np.zeros(n, int)
    code[:30], code[30:60], code[60:63], code[63:90] = 1, 2, 3, -1
    x = np.zeros((n, 2), np.float32)
    x[300:305, 1] = 1.0  # a code that 5 of 600 have
    subject = [f"p{i // 2}" if i < 200 else f"q{i}" for i in range(n)]
    found = partition(
        game(np.arange(n) % 2, attributes={"code": code, "session": np.arange(n)}, subject=subject, x=x),
        Legend({"code": ("none", "flu", "gout", "scurvy")}, frozenset({"session"})),
    )
    by_kind: dict[str, list[str]] = {}
    for group in found.groups:
        by_kind.setdefault(group.kind, []).append(group.value)
    assert by_kind == {
        "class": ["0", "1"],
        "attribute": ["none", "flu", "gout"],
        "rare-value": ["0.05"],  # at most 1 %: 3 + 5 candidates, which is too few
        "records": ["1", "2-3"],
    }
    assert set(found.too_small) == {Subgroup("attribute", "scurvy", "code"), Subgroup("rare-value", "0.01")}
    rare = found.groups[Subgroup("rare-value", "0.05")]
    assert np.flatnonzero(rare).tolist() == [*range(63), *range(300, 305)]  # of -1 nobody knows the code
    assert np.array_equal(found.groups[Subgroup("records", "2-3")], np.arange(n) < 200)


def test_a_column_with_very_many_values_is_told_and_not_looked_at_one_by_one() -> None:
    y = np.where(np.arange(3000) < 1800, 0, np.arange(3000) % 150)
    found = partition(game(y), Legend())
    assert found.too_many == (Subgroup("class"),)
    assert [group.kind for group in found.groups] == ["rare-value"]


def test_a_group_needs_members_and_outsiders_and_so_do_all_others() -> None:
    code = np.zeros(300, int)
    code[: 3 * LEAST - 2] = 1  # one outsider short
    small = partition(game(np.zeros(300, int), attributes={"code": code}), Legend())
    assert Subgroup("attribute", "1", "code") in small.too_small
    assert not any(group.kind == "attribute" for group in small.groups)  # nor their complement
    code[: 3 * LEAST] = 1
    large = partition(game(np.zeros(300, int), attributes={"code": code}), Legend())
    assert {Subgroup("attribute", "0", "code"), Subgroup("attribute", "1", "code")} <= set(large.groups)


# ------------------------------------------------------------------ the statistics


def scores(n: int, shift: float, in_group: float, among: Bools, seed: int) -> Block:
    """Members of the group are shifted by `in_group`, its members and outsiders alike by `shift`."""
    rng = np.random.default_rng(seed)
    parts = np.split(rng.permutation(n), 3)
    values = [rng.normal(size=len(part)) + shift * among[part] for part in parts]
    values[0] += in_group * among[parts[0]]
    return Block(values[0], values[1], values[2], ids=(parts[0], parts[1], parts[2]))


def test_a_contrast_is_the_difference_of_what_the_obvious_way_counts() -> None:
    among = np.arange(900) < 90
    block = scores(900, 1.0, 2.0, among, 0)
    found = contrast([block], among, 0.01, 0.99)

    def accused(side: Floats) -> Floats:
        """Among 300 records of calibration: those with three at most ahead, the last with a chance of .01."""
        return np.asarray(np.clip(3.01 - np.sum(block.calibration > side[:, None], axis=1), 0, 1))

    assert block.ids is not None
    for inside, side in ((True, found.inside), (False, found.outside)):
        members = block.members[among[block.ids[0]] == inside]
        outsiders = block.evaluation[among[block.ids[1]] == inside]
        assert side["tpr@0.01"].value == pytest.approx(np.mean(accused(members)))
        assert side["tpr@0.01"].realised_fpr == pytest.approx(np.mean(accused(outsiders)))
        assert side["auc"].value == pytest.approx(np.mean(members[:, None] > outsiders))
    by = {name: lambda one: one.value or 0.0 for name in ("auc",)}
    assert found.beyond["auc"].value == pytest.approx(by["auc"](found.inside["auc"]) - by["auc"](found.outside["auc"]))
    assert found.beyond["tpr@0.01"].value == pytest.approx(_excess(found.inside) - _excess(found.outside))


def _excess(side: dict[str, Estimate]) -> float:
    found = side["tpr@0.01"]
    return (found.value or 0.0) - (found.realised_fpr or 0.0)


def test_a_group_whose_outsiders_score_as_high_does_not_stand_out() -> None:
    among = np.arange(9000) < 180
    odd = contrast([scores(9000, 3.0, 0.0, among, 1)], among, 0.01, 0.999)
    assert (odd.inside["tpr@0.01"].value or 0) > 0.3, "the threshold accuses many of its members"
    assert not odd.certain
    assert contrast([scores(9000, 0.0, 3.0, among, 1)], among, 0.01, 0.999).certain == "tpr@0.01"


def test_where_no_rate_can_be_calibrated_the_aucs_are_compared() -> None:
    among = np.arange(240) < 60
    found = contrast([scores(240, 0.0, 3.0, among, 2)], among, None, 0.99)
    assert (found.certain, list(found.beyond)) == ("auc", ["auc"])


# ------------------------------------------------------------------ whole audits


@pytest.fixture(scope="module")
def leaking(tmp_path_factory: pytest.TempPathFactory) -> Document:
    return planted(0, tmp_path_factory.mktemp("planted"))


def test_T30_the_memorised_group_is_named_in_the_verdict(leaking: Document) -> None:
    assert leaking.groups is not None
    said = leaking.headlines[0].most_exposed
    assert said.startswith("Records with code = gout stand out: ")
    assert f"the most exposed of {len(leaking.groups.looked_at)} groups" in said
    page = html.render(leaking)
    assert "Who is more exposed than others" in page
    assert "records with code = gout" in page
    assert Document.from_json(json.loads(json.dumps(leaking.to_json()))).to_json() == leaking.to_json()


def test_beside_figures_of_local_models_no_group_of_global_ones_is_named(leaking: Document) -> None:
    """Of a server that finds everybody by local models, it was said that a group stands out by global ones."""
    assert leaking.groups is not None
    headline = leaking.headlines[0]
    (named,) = {one.model for one in leaking.groups.results if one.stands_out}
    scene = Scene(leaking.results, 1, "tpr@0.01", groups=leaking.groups)
    for model in ("local", "global"):
        (said,) = worded([replace(headline, vantage="server", model=model)], scene)
        assert bool(said.most_exposed) == (model == named == "global")


def test_a_group_is_named_with_the_models_the_attack_and_the_rate_of_its_figure(leaking: Document) -> None:
    """Beside 32 % by global models at 1 % stood 75 % by local ones at 5 %, and nothing told them apart."""
    assert leaking.groups is not None
    headline = replace(leaking.headlines[0], vantage="server", model="global")
    (out,) = (one for one in leaking.groups.results if one.stands_out)
    kinds: dict[ModelKind, str] = {"global": "the global models", "local": "the parties' own models"}
    for model, words in kinds.items():
        one = replace(out, vantage="server", model=model, attack="loss")
        for at, share_at in ((_at(one, "tpr@0.01"), "1 %"), (_at(one, "tpr@0.05"), "5 %")):
            assert f" are picked out by loss in {words} at {share_at} false accusations (" in _said(
                headline, leaking, at
            )
        told = _said(headline, leaking, _at(one, "auc"))
        assert "loss tells which is which" in told
        assert f" of the time in {words} (" in told


def _said(headline: Headline, found: Document, group: GroupResult) -> str:
    assert found.groups is not None
    scene = Scene([], 1, "tpr@0.01", groups=replace(found.groups, results=[group]))
    return worded([headline], scene)[0].most_exposed


def _at(one: GroupResult, name: str) -> GroupResult:
    """The same, as if measured by another figure."""
    inside, outside, beyond = (
        {name: replace(side[one.stands_out], name=name)} for side in (one.inside, one.outside, one.beyond)
    )
    return replace(one, inside=inside, outside=outside, beyond=beyond, stands_out=name)


def test_to_pass_it_on_groups_are_numbered(leaking: Document) -> None:
    hidden = redacted(leaking)
    text = json.dumps(hidden.to_json())
    assert "gout" not in text
    assert '"attribute": "code"' not in text
    assert hidden.headlines[0].most_exposed.startswith("Records with attribute 1 = value ")
    assert hidden.groups is not None
    assert leaking.groups is not None
    assert [one.beyond for one in hidden.groups.results] == [one.beyond for one in leaking.groups.results]
    assert "gout" not in html.render(hidden)


def test_a_hostile_name_of_a_value_does_no_harm(leaking: Document) -> None:
    assert leaking.groups is not None
    evil = Subgroup("attribute", "<script>alert(1)</script>", "\x1b[31mcode")
    results = [replace(one, group=evil) for one in leaking.groups.results]
    page = html.render(replace(leaking, groups=replace(leaking.groups, results=results)))
    assert "<script>alert" not in page
    assert "\x1b" not in page


def test_T30_without_a_leak_no_group_stands_out() -> None:
    found = worlds.watch(worlds.null_world(worlds.config()))
    assert found.groups is not None
    assert len(found.groups.looked_at) >= 10, "one for each digit"
    assert not [one for one in found.groups.results if one.stands_out]


@pytest.mark.evidence
def test_T30_over_ten_seeds_the_planted_group_is_named_and_no_other(tmp_path: Path) -> None:
    named = 0
    for seed in range(10):
        (folder := tmp_path / str(seed)).mkdir()
        named += "code = gout" in planted(seed, folder).headlines[0].most_exposed
    assert named >= 9


def test_people_are_in_a_group_if_one_of_their_records_is(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    subject = np.repeat(np.arange(240), rng.integers(2, 9, 240))
    y = (rng.random(len(subject)) < 0.2).astype(int)
    np.savez(tmp_path / "d.npz", x=rng.normal(size=(len(subject), 4)), y=y, subject=subject.astype(str))
    config = worlds.config(
        data={"name": "npz", "path": str(tmp_path / "d.npz"), "subject_key": "subject"},
        federation={"partition": "subjects", "members": None, "nonmembers": None, "rounds": 2},
        audit={"attacks": ["subject-loss"], "vantages": ["client"]},
    )
    found = worlds.watch(prepared := prepare(config))
    candidates = prepared.game.candidates
    has = dict(zip(*np.unique(subject.astype(str), return_counts=True), strict=True))
    assert found.groups is not None
    for group, among in prepared.auditor.groups.groups.items():
        mine = [np.flatnonzero(candidates.owner == i) for i in range(len(candidates))]
        if group.kind == "class":
            assert among.tolist() == [bool((candidates.rows.y[rows] == int(group.value)).any()) for rows in mine]
        if group.kind == "records":
            low, high = (int(end) for end in f"{group.value}-{group.value}".split("-")[:2])
            assert among.tolist() == [low <= has[name] <= high for name in candidates.id.tolist()]
    assert {"class", "records"} <= {group.kind for group in found.groups.looked_at}


def test_people_are_named_by_the_records_that_they_have_not_by_those_that_the_adversary_has(tmp_path: Path) -> None:
    """People with four or five records were learnt by heart, and the verdict named those with two or three: the half
    that the adversary has."""
    rng = np.random.default_rng(0)
    has = np.repeat([2, 3, 4, 5, 8, 10], 200)
    subject = np.repeat(np.arange(len(has)), has)
    marked = np.isin(has, (4, 5))[subject]
    x = rng.normal(size=(len(subject), 40)) + 4 * rng.normal(size=(len(has), 40))[subject] * marked[:, None]
    y = np.where(marked, rng.integers(0, 2, len(has))[subject], x[:, 0] > 0)
    np.savez(tmp_path / "d.npz", x=x, y=y, subject=subject.astype(str))
    config = worlds.config(
        data={"name": "npz", "path": str(tmp_path / "d.npz"), "subject_key": "subject"},
        federation={"partition": "subjects", "members": None, "nonmembers": None, "lr": 1e-2, "local_epochs": 5},
        model={"hidden": [128]},
        audit={"attacks": ["subject-loss"], "vantages": ["client"]},
    )
    found = worlds.watch(prepare(config))
    assert found.groups is not None
    out = {one.group for one in found.groups.results if one.stands_out}
    assert out == {Subgroup("records", "4-7")}
    assert found.headlines[0].most_exposed.startswith("People with 4 to 7 records stand out")


def test_a_party_that_is_a_group_as_well_is_judged_alike_as_both(tmp_path: Path) -> None:
    """It was more exposed than the others, and none of eight groups stood out, the same party among them."""
    exposed = 0
    for seed in range(2):
        rng = np.random.default_rng(seed)
        site = np.repeat(np.arange(3), [500, 500, 400])
        x = rng.normal(size=(len(site), 12))
        y = np.where(site == 2, rng.integers(0, 2, len(site)), x[:, 0] > 0).astype(int)
        np.savez(tmp_path / "d.npz", x=x, y=y, attribute=site)
        config = worlds.config(
            data={"name": "npz", "path": str(tmp_path / "d.npz")},
            federation={
                "partition": "column",
                "column": "attribute",
                "parties": 3,
                "rounds": 6,
                "local_epochs": 10,
                "lr": 0.01,
                "seed": seed,
            },
            audit={"attacks": ["loss"]},
        )
        found = worlds.watch(prepare(config))
        assert found.groups is not None
        by_party = {(one.party[-1], one.vantage, one.model) for one in found.more_exposed}
        by_group = {
            (one.group.value, one.vantage, one.model)
            for one in found.groups.results
            if one.group.kind == "attribute"
            and (one.beyond["auc"].low or 0.0) > 0
            and (one.inside["auc"].low or 0.0) > 0.5
        }
        assert by_party == by_group
        exposed += len(by_party)
    assert exposed
