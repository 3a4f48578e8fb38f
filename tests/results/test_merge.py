"""Four sites hand over what they found, without names; what comes of it is the pooled audit, to the last digit."""

import json
import math
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from fedaudit.errors import FedauditError
from fedaudit.privacy.statement import PerPerson, Process, Spent, Statement
from fedaudit.report.answers import answers
from fedaudit.report.charts import cost
from fedaudit.report.evidence import annex, sources
from fedaudit.report.panels import costs
from fedaudit.report.sections import KEPT, facts, limits, recipe
from fedaudit.report.values import cleaned
from fedaudit.report.words import findings, headline_rows
from fedaudit.results import merge as merging
from fedaudit.results.compare import row_of
from fedaudit.results.document import Document, load, save
from fedaudit.results.gate import judge, parse_rules
from fedaudit.results.merge import ABSENT, MANIFEST, Manifest, RunAttack, hand_over, merge, parts, read_site
from fedaudit.results.redaction import redacted
from fedaudit.results.schema import as_text, plain, read_file
from fedaudit.results.scores import blocks_of, load_scores, save_scores
from fedaudit.stats import Block
from fedaudit.stats.wording import NONE
from fedaudit.types import AuditResult, Estimate, warning
from fedaudit.words import all_words, words
from tests.command import fedaudit

ATTACKS = '["loss", "fta-confidence", "matched-filter", "gradient-cosine"]'


def ran(*arguments: str, cwd: Path) -> str:
    ended = fedaudit(*arguments, cwd=cwd)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def pooled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four parties, records of people, both vantages."""
    folder = tmp_path_factory.mktemp("merge")
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(3, 8))
    y = rng.integers(0, 3, 900)
    x = centres[y] + rng.normal(size=(900, 8))
    person = np.arange(900) // 2
    people = np.array([f"person-{each:04d}" for each in person])
    np.savez(folder / "data.npz", x=x, y=y, subject=people, attribute=person % 4)
    (folder / "my.toml").write_text(f"""
[data]
name = "npz"
path = "data.npz"
[federation]
parties = 4
rounds = 3
partition = "column"
column = "attribute"
[model]
hidden = [32]
[audit]
attacks = {ATTACKS}
fpr = [0.1, 0.01]
""")
    ran("run", "my.toml", "--out", "run", cwd=folder)
    return folder / "run"


def sites(pooled: Path, out: Path, ranks: bool = False) -> list[Path]:
    folders = []
    for party in load(pooled).run.parties:
        hand_over(pooled, out / party.name, party.name, ranks)
        folders.append(out / party.name)
    return folders


def figures(entries: list[AuditResult]) -> dict[tuple[str, ...], tuple[Mapping[str, Estimate], Mapping[str, Estimate]]]:
    return {
        (e.attack, e.vantage, e.model, str(e.party)): (e.estimates, e.beside) for e in entries if e.attack in ATTACKS
    }


def assert_same(own: Mapping[str, Estimate], theirs: Mapping[str, Estimate], but: tuple[str, ...] = ()) -> None:
    """To the last digit but one or two of sixteen: sums are taken in the order of other numbers."""
    assert own.keys() == theirs.keys()
    for name, one in own.items():
        for field, value in vars(one).items():
            if field in but:
                continue
            other = getattr(theirs[name], field)
            if isinstance(value, float | tuple) and other is not None:
                assert value == pytest.approx(other, rel=1e-12, abs=1e-14), (name, field)
            else:
                assert value == other, (name, field)


def test_four_sites_are_the_pooled_audit_in_every_estimate(pooled: Path, tmp_path: Path) -> None:
    merged, _ = merge(sites(pooled, tmp_path), "all")
    whole = load(pooled)
    own, theirs = figures(list(merged.results)), figures(list(whole.results))
    assert own.keys() == theirs.keys()
    assert len(own) > 20
    for key, (estimates, beside) in own.items():
        assert_same(estimates, theirs[key][0])
        assert_same(beside, theirs[key][1])
    for one, other in zip(merged.headlines, whole.headlines, strict=True):
        for field in ("vantage", "attack", "model", "tone", "grade", "compared", "primary"):
            assert getattr(one, field) == getattr(other, field)
        assert_same(one.estimates, other.estimates)


def test_ranks_are_enough_for_local_models(pooled: Path, tmp_path: Path) -> None:
    merged, scores = merge(sites(pooled, tmp_path, ranks=True), "all")
    whole = {key: found for key, found in figures(list(load(pooled).results)).items() if key[2] == "local"}
    assert set(scores["model"].tolist()) == {"local"}
    mine = figures(list(merged.results))
    assert mine.keys() == whole.keys()
    for key, (estimates, beside) in whole.items():  # a threshold is a score, and here it is a rank
        assert_same(mine[key][0], estimates, but=("threshold",))
        assert_same(mine[key][1], beside, but=("threshold",))


def test_thresholds_from_records_of_another_kind_are_told_as_in_a_run(
    pooled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def moved(*given: Any) -> list[Block]:
        return [replace(block, calibration=block.calibration - 99) for block in blocks_of(*given)]

    folders = sites(pooled, tmp_path)
    assert merge(folders, "all")[0].warnings == []
    monkeypatch.setattr(merging, "blocks_of", moved)
    merged, _ = merge(folders, "all")
    told = [one for one in merged.all_told() if one.level == "warning"]
    assert merged.warnings == all_words(told)
    assert "loss: far more than 10 % of outsiders were accused where that was asked: the" in " ".join(merged.warnings)
    assert {one.data["attack"] for one in told} == set(json.loads(ATTACKS))
    assert all(entry.told for entry in merged.results if entry.estimates["tpr@0.1"].doubt)
    assert {entry.party for entry in merged.results if entry.told} == {None, *(p.name for p in merged.run.parties)}


@pytest.mark.parametrize("gone", ["loss", "fta-confidence"])
def test_a_site_without_a_finite_score_of_an_attack_hands_over_the_others(
    gone: str, pooled: Path, tmp_path: Path
) -> None:
    """It took part too seldom, say: what `hand_over` writes, `merge` reads."""
    run = tmp_path / "run"
    shutil.copytree(pooled, run)
    stored = load_scores(run)
    assert stored is not None
    first = load(run).run.parties[0].name
    nothing = (stored["party"] == first) & (stored["attack"] == gone) & (stored["model"] == "local")
    save_scores(parts({**stored, "score": np.where(nothing, np.nan, stored["score"])}), run)
    folders = sites(run, tmp_path / "out")
    assert (gone, "local") not in {(one.attack, one.model) for one in read_site(folders[0]).manifest.asked}
    merged, _ = merge(folders, "x")
    assert [told.data["attacks"] for told in merged.told if told.code == "merged-without"] == [[f"{gone} (local)"]]
    assert merged.headlines


def test_each_site_counts_its_own_records_and_people(pooled: Path, tmp_path: Path) -> None:
    """A person has two records here, and each party a quarter of all people."""
    folders, whole = sites(pooled, tmp_path), load(pooled).run.data
    handed = [read_site(folder).manifest.data for folder in folders]
    merged, _ = merge(folders, "x")
    assert whole.subjects is not None
    assert merged.run.data.subjects == sum(each.subjects or 0 for each in handed) <= whole.subjects
    assert merged.run.data.records == sum(each.records for each in handed) <= whole.records
    assert merged.run.data.records / (merged.run.data.subjects or 1) == pytest.approx(2, abs=0.5)


def claimed(epsilon: float | None, **changes: Any) -> Statement:
    process = Process("record", 1.0, 1, "poisson", 0.1)
    found = Statement(
        unit="record",
        epsilon=epsilon,
        delta=1e-5,
        adjacency="add-remove",
        accountant="prv",
        scope="all rounds",
        epsilon_one_round=None,
        epsilon_rdp=None,
        defence="dp-sgd",
        against="everybody",
        process=process,
        curve=Spent([], []),
    )
    return replace(found, **changes)


def test_the_weakest_promise_of_the_sites_is_that_of_the_consortium(pooled: Path, tmp_path: Path) -> None:
    """It is in the annex, the gate and the comparison; where sites promise different things, or some nothing, none of
    these says that there is no promise."""

    def merged(*claims: Statement | None) -> Path:
        out = tmp_path / str(len(list(tmp_path.iterdir())))
        for claim, party in zip(claims, load(pooled).run.parties, strict=False):
            run = out / f"run-{party.name}"
            shutil.copytree(pooled, run)
            found = load(run)
            save(replace(found, run=replace(found.run, guarantee=claim)), run)
            hand_over(run, out / party.name, party.name)
        document, scores = merge([out / party.name for party in load(pooled).run.parties[: len(claims)]], "all")
        (out / "all").mkdir()
        save_scores(parts(scores), out / "all")
        save(document, out / "all")
        return out / "all"

    def verdict(run: Path) -> str:
        return judge(run, parse_rules("epsilon > 4")).verdict.value

    person = PerPerson(k=2, counted="records", epsilon=9.0, delta=1e-5, method="group privacy")
    weak = merged(claimed(3.0, per_person=person), claimed(5.0, delta=1e-6, per_person=person))
    claim = load(weak).run.guarantee
    assert claim is not None
    assert (claim.epsilon, claim.delta, claim.binding) == (5.0, 1e-5, math.inf)
    assert "guarantee" not in load(weak).run.not_handed_over
    assert verdict(weak) == "violated"
    assert "epsilon 5 at delta 1e-05" in annex(cleaned(load(weak)))
    row = row_of(load(weak), "weak")
    assert (row.epsilon, row.defences) == (5.0, "not handed over (dp-sgd is promised)")
    assert verdict(merged(claimed(3.0), claimed(2.0))) == "safe"
    endless = load(merged(claimed(3.0), claimed(None))).run.guarantee
    assert endless is not None
    assert endless.epsilon is None
    for other in (None, claimed(3.0, unit="user"), claimed(3.0, against="clients")):
        unlike = merged(claimed(3.0), other)
        run = load(unlike).run
        assert (run.guarantee, "guarantee" in run.not_handed_over) == (None, True)
        assert verdict(unlike) == "undecided"
        shown = annex(cleaned(load(unlike)))
        assert "is claimed for this training" not in shown
        assert "has no defence" not in shown
    none = merged(None, None)
    assert "guarantee" not in load(none).run.not_handed_over
    assert verdict(none) == "violated"
    assert "is claimed for this training" in annex(cleaned(load(none)))
    assert row_of(load(none), "none").defences == "not handed over"
    assert "has no defence" not in annex(cleaned(load(none)))


def test_a_model_that_has_not_learnt_is_told_by_the_consortium_too(pooled: Path, tmp_path: Path) -> None:
    found = load(pooled)
    said = [words(warning("model-not-learnt", right=right, commonest=0.5)) for right in (0.4, 0.4, 0.45)]
    folders = []
    for party, why in zip(found.run.parties, [*said, ""], strict=True):
        shutil.copytree(pooled, run := tmp_path / f"run-{party.name}")
        save(replace(found, useless=why), run)
        hand_over(run, folder := tmp_path / party.name, party.name)
        folders.append(folder)
    merged, _ = merge(folders, "x")
    assert merged.useless == f"{said[0]} {said[2]}"
    assert redacted(merged).useless == merged.useless
    assert merge(folders[3:], "x")[0].useless == ""


def test_what_was_not_handed_over_is_no_fact(pooled: Path, tmp_path: Path) -> None:
    """Cells, groups, costs and tests of the sites: nothing is said of them but that they were not handed over."""
    merged, _ = merge(sites(pooled, tmp_path), "x")
    assert {e.cost.epochs for e in merged.results} == {merged.run.seconds} == {None}
    assert set(merged.run.not_handed_over) == {*ABSENT}
    results = cleaned(Document.from_json(merged.to_json()))
    found = findings(results)
    assert "Took" not in dict(facts(results))
    assert {row.cost for row in headline_rows(results)} == {NONE}
    assert (costs(results), cost(results)) == (None, None)
    told = dict(answers(results, found))
    assert "were not compared" in told["Which site is concerned most?"]
    assert "of groups was not handed over" in told["What does it mean for one person?"]
    assert told["What was not tested?"].startswith(KEPT)
    assert not {"No blind check", "Not tested", "Vantages not tested"} & dict(limits(results, found)).keys()
    told_how = recipe(results)
    assert told_how is not None
    assert told_how.command == ""  # there is no configuration that `run` takes
    shown = annex(results)
    for fact in ("no cell that was filled in", "no group was looked at", "No site stands out"):
        assert fact not in shown
    demands = [each for text in sources(results) for each in text.demands]
    assert {each.status for each in demands if each.answer == KEPT} == {"not handed over"}
    assert "resistance to attribute inference" in {each.asked for each in demands if each.answer == KEPT}
    assert not [each for each in demands if "was looked at" in each.answer or "did not try" in each.answer]


def test_no_name_is_handed_over(pooled: Path, tmp_path: Path) -> None:
    (first, *_) = sites(pooled, tmp_path)
    stored = load_scores(pooled)
    assert stored is not None
    names = {*stored["id"].tolist(), "person-"}
    content = b"".join(path.read_bytes() for path in first.iterdir())
    assert sorted(path.name for path in first.iterdir()) == ["manifest.json", "scores.parquet"]
    assert not [name for name in names if str(name).encode() in content]
    table = pq.read_table(first / "scores.parquet")
    handed = set(table["id"].to_pylist())
    assert len(handed) == len(set(stored["id"][stored["party"] == first.name].tolist()))
    again = tmp_path / "again"
    hand_over(pooled, again, first.name)
    # The numbers are drawn anew: sorted by them, the scores come in another order.
    assert pq.read_table(again / "scores.parquet")["score"].to_pylist() != table["score"].to_pylist()


def test_what_does_not_fit_together_is_refused(pooled: Path, tmp_path: Path) -> None:
    first, second, *_ = sites(pooled, tmp_path)
    with pytest.raises(FedauditError, match="hold the same scores"):
        merge([first, first], "x")
    manifest = read_file(Manifest, second / MANIFEST)
    (second / MANIFEST).write_text(as_text(replace(manifest, rounds=99)))
    with pytest.raises(FedauditError, match="differ in the number of rounds"):
        merge([first, second], "x")
    (second / MANIFEST).write_text("{}")
    with pytest.raises(FedauditError, match="no manifest"):
        read_site(second)
    content = bytearray((first / "scores.parquet").read_bytes())
    content[100] ^= 1
    (first / "scores.parquet").write_bytes(content)
    with pytest.raises(FedauditError, match="not what its manifest names"):
        read_site(first)
    with pytest.raises(FedauditError, match="no such party"):
        hand_over(pooled, tmp_path / "new", "nobody")
    with pytest.raises(FedauditError, match="not empty"):
        hand_over(pooled, first, None)


def test_attacks_that_one_site_lacks_are_left_out(pooled: Path, tmp_path: Path) -> None:
    folders = sites(pooled, tmp_path)
    manifest = read_file(Manifest, folders[1] / MANIFEST)
    fewer = [one for one in manifest.asked if one.attack != "loss"]
    (folders[1] / MANIFEST).write_text(as_text(replace(manifest, asked=fewer)))
    merged, _ = merge(folders, "x")
    assert "loss" not in {entry.attack for entry in merged.results}
    assert [told.data["attacks"] for told in merged.told if told.code == "merged-without"] == [
        ["loss (global)", "loss (local)"]
    ]


def test_the_commands(pooled: Path, tmp_path: Path) -> None:
    names = [party.name for party in load(pooled).run.parties]
    for name in names:
        assert "Kept back: records" in ran("hand-over", str(pooled), "--party", name, "--out", name, cwd=tmp_path)
    ran("merge", *names, "--out", "all", cwd=tmp_path)
    assert (tmp_path / "all" / "report.html").is_file()
    assert fedaudit("gate", "all", "--fail-if", "auc > 0.999999", cwd=tmp_path).returncode in (0, 3)
    ran("report", "all", cwd=tmp_path)
    assert fedaudit("merge", *names, "--out", "all", cwd=tmp_path).returncode == 2  # it is not empty


def test_what_a_site_doubts_the_consortium_doubts(pooled: Path, tmp_path: Path) -> None:
    """A run that was interrupted, or that understates, is never safe; neither is what is merged from it."""
    folders = sites(pooled, tmp_path)
    manifest = read_file(Manifest, folders[1] / MANIFEST)
    assert (manifest.ending, len(manifest.doubts)) == ("complete", len(load(pooled).understates))
    (folders[1] / MANIFEST).write_text(as_text(replace(manifest, ending="interrupted", doubts=["few records"])))
    merged, _ = merge(folders, "x")
    assert merged.run.ended == "interrupted"
    assert f"{folders[1].name}: few records" in merged.understates
    (folders[1] / MANIFEST).write_text(as_text(replace(manifest, fprs=[0.2])))  # scores give every rate
    assert {"tpr@0.01", "tpr@0.1", "tpr@0.2"} <= set(merge(folders, "x")[0].headlines[0].estimates)


@pytest.mark.parametrize("code", ["fpr-missed", "fpr-undershot"])
def test_a_site_hands_on_that_its_thresholds_are_doubted(code: str, pooled: Path, tmp_path: Path) -> None:
    run, out = tmp_path / "run", tmp_path / "out"
    shutil.copytree(pooled, run)
    found, doubted = load(run), warning(code, attack="loss", fpr=1.0)
    save(replace(found, results=[replace(entry, told=(doubted,)) for entry in found.results]), run)
    assert hand_over(run, out).doubts.count(words(doubted)) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"candidates": 99_999},
        {"parties": []},
        {"primary": {}},
        {"asked": [RunAttack("merlin", "client", "global")]},
        {"fprs": [5.0]},
        {"confidence": 1.5},
        {"unit": "><script>"},
    ],
    ids=str,
)
def test_a_manifest_that_its_scores_contradict_is_refused(
    changes: dict[str, object], pooled: Path, tmp_path: Path
) -> None:
    """Also one that names another party: the same site would count twice."""
    first, *_ = sites(pooled, tmp_path)
    values = plain(read_file(Manifest, first / MANIFEST))
    given = {name: [vars(one) for one in value] if name == "asked" else value for name, value in changes.items()}  # type: ignore[attr-defined]
    (first / MANIFEST).write_text(json.dumps(values | given))
    with pytest.raises(FedauditError) as refused:
        read_site(first)
    assert refused.value.exit_code == 5
    (first / "scores.parquet").unlink()
    with pytest.raises(FedauditError):
        read_site(first)
