"""What may be said of a whole audit: which attack is quoted, what the others found, and what the model is worth."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedaudit.adversary import attacks
from fedaudit.adversary.reductions import Last
from fedaudit.audit import Settings
from fedaudit.audit.case import fpr_missed
from fedaudit.audit.controls import accuracy, sets_differ, useless
from fedaudit.audit.score import Scores
from fedaudit.config.attack_registry import ATTACKS
from fedaudit.config.schema import parse
from fedaudit.data.partition import game as split
from fedaudit.data.partition import game_of_people, iid
from fedaudit.data.records import dataset
from fedaudit.questions.record.judge import tied
from fedaudit.report import verdict
from fedaudit.report.evidence import annex
from fedaudit.report.values import cleaned
from fedaudit.session.prepare import prepare
from fedaudit.session.run import run
from fedaudit.stats import Block, auc
from fedaudit.stats.wording import share
from fedaudit.types import Estimate, Role, Vantage, once
from fedaudit.words import all_words, words
from tests.worlds import config, null_world, silent, watch


@pytest.mark.parametrize(
    ("names", "failed", "expected"),
    [
        (["loss", "fusion", "matched-filter"], (), "matched-filter"),
        (["loss", "fusion", "matched-filter"], ("matched-filter",), "fusion"),
        (["loss", "fta-logit", "gradient-cosine", "fta-confidence"], (), "gradient-cosine"),
        (["loss", "fta-logit", "fta-confidence"], (), "fta-confidence"),
        (["modified-entropy", "fta-loss", "loss"], (), "fta-loss"),
        (["fta-logit", "fusion", "loss"], ("fusion",), "loss"),
        (["fta-logit", "modified-entropy"], (), "fta-logit"),
        (["loss", "matched-filter+damping=5"], (), "matched-filter+damping=5"),
        (["matched-filter+damping=5", "matched-filter"], (), "matched-filter"),
        (["fta+degree=5", "loss"], (), "loss"),
    ],
)
@pytest.mark.parametrize("vantage", [Vantage.CLIENT, Vantage.SERVER])
def test_the_strongest_kind_that_can_be_fed_is_quoted(
    vantage: Vantage, names: list[str], failed: tuple[str, ...], expected: str
) -> None:
    """A primary attack that dropped out was replaced by whichever was listed first."""
    chosen = Settings((vantage,), attacks.choose(names), 5).primary(vantage, failed)
    assert chosen is not None
    assert chosen.name == expected


@pytest.mark.parametrize(
    ("share", "weights", "expected"),
    [
        (0.05, 2.0, "fusion"),
        (0.05, 6.0, "matched-filter"),
        (0.5, 0.1, "matched-filter"),
    ],
)
def test_the_filter_leads_unless_its_layer_is_a_small_head(share: float, weights: float, expected: str) -> None:
    asked = attacks.choose(["loss", "fusion", "matched-filter"])
    of = {"local": weights, "global": 9.0}
    settings = Settings((Vantage.SERVER,), asked, 5, weights_per_member=of, filter_share=share)
    chosen = settings.primary(Vantage.SERVER)
    assert chosen is not None
    assert chosen.name == expected


@pytest.mark.parametrize("share", [0.5, 0.05])
@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (["loss", "unmix", "matched-filter", "fusion"], "unmix"),
        (["subject-loss", "subject-unmix", "subject-matched"], "subject-unmix"),
    ],
)
def test_unmix_leads_wherever_it_runs(share: float, asked: list[str], expected: str) -> None:
    chosen = Settings((Vantage.SERVER,), attacks.choose(asked), 5, filter_share=share).primary(Vantage.SERVER)
    assert chosen is not None
    assert chosen.name == expected


@pytest.mark.parametrize(
    ("defence", "expected", "dampings"),
    [
        (None, "matched-filter", (0.1, None)),
        ({"name": "update-noise", "strength": 2.0}, "unmix", (1.0, 10.0)),
        ({"name": "update-sparse", "share": 0.1}, "unmix", (1.0, 10.0)),
        ({"name": "update-rank", "rank": 2}, "unmix", (0.1, 0.1)),
    ],
)
def test_what_leads_is_run_although_nobody_named_it(
    defence: dict[str, Any] | None, expected: str, dampings: tuple[float, float | None]
) -> None:
    given = {**config(federation={"rounds": 2}).as_dict(), "defences": [defence] if defence else []}
    prepared = prepare(parse(given))
    assert prepared.settings.primary(Vantage.CLIENT) == attacks.made(expected)
    assert ("unmix" in [attack.name for attack in prepared.settings.attacks]) is bool(defence)
    unmixing = prepared.settings.unmixings.get("")
    assert (prepared.settings.filter.damping, unmixing and unmixing.damping) == dampings


def test_a_regression_without_fusion_has_the_filter_as_its_primary_attack() -> None:
    keys = {"rounds": 2, "parties": 2, "members": 0.4, "nonmembers": 0.3}
    audit = watch(prepare(config(data={"name": "diabetes"}, federation=keys)))
    assert {headline.fixed for headline in audit.headlines} == {"matched-filter"}


def test_every_headline_has_its_sentence_with_attack_and_counts() -> None:
    audit = watch(prepare(config(audit={"attacks": ["loss", "fta-confidence"]})))
    assert [headline.vantage for headline in audit.headlines] == ["client", "server"]
    for headline in audit.headlines:
        members = headline.estimates["auc"].n_pos
        assert f"after 5 rounds, by {headline.attack}: {ATTACKS.brief(headline.attack)}" in headline.sentence
        assert headline.fixed == "fta-confidence"
        told = " ".join([headline.sentence, *headline.details])
        assert f"of {members:,})" in told or "could not be measured" in told


def test_warnings_of_results_are_among_the_warnings_of_the_audit() -> None:
    """They stood beside their results alone."""
    prepared = prepare(config(audit={"attacks": ["loss"], "vantages": ["client"]}))
    watch(prepared)
    for sight in prepared.auditor.outlooks.sights.values():
        kept, member = sight.reductions["loss"], sight.role == Role.MEMBER.value
        assert isinstance(kept, Last)
        kept.values = kept.values - 100.0 * member
    audit = prepared.auditor.snapshot()
    (said,) = {warning for result in audit.results for warning in result.warnings}
    assert "ranks outsiders above members" in said
    assert said in all_words(audit.warnings)


def test_the_strongest_finding_is_quoted_with_its_correction() -> None:
    """The attack that was fixed before looking alone was asked; another one beside it could have an AUC of 1."""
    prepared = prepare(config(audit={"attacks": ["loss", "fta-confidence"], "vantages": ["client"]}))
    watch(prepared)
    for sight in prepared.auditor.outlooks.sights.values():
        kept, member = sight.reductions["loss"], sight.role == Role.MEMBER.value
        assert isinstance(kept, Last)
        kept.values = kept.values + 100.0 * member
    (headline,) = prepared.auditor.snapshot().headlines
    assert (headline.attack, headline.fixed, headline.compared) == ("loss", "fta-confidence", 2)
    # Half of the error is the primary attack's; AUC and TPR of the other share the rest.
    assert headline.estimates["auc"].confidence == pytest.approx(1 - 0.05 / 2 / 2)
    assert "98.75 % interval" in headline.sentence
    assert any("fixed before looking, fta-confidence, has" in line for line in headline.details)


def test_curves_over_rounds_are_kept_of_every_attack() -> None:
    audit = watch(prepare(config(audit={"attacks": ["matched-filter", "fta-loss", "fed-loss"]})))
    for result in audit.results:
        if result.party is None and result.attack != "blind":
            assert set(result.curves) >= {"roc", "auc"}
            assert list(result.curves["auc"].x)[-1] == 5
            assert result.curves["auc"].simultaneous == (result.attack == "matched-filter")


def test_a_null_world_says_nothing_was_found() -> None:
    audit = watch(null_world(config(audit={"attacks": ["loss", "fta-confidence"]})))
    assert not {headline.tone for headline in audit.headlines} & {"found", "weak"}
    assert {headline.grade for headline in audit.headlines} <= {"nothing found", "not known"}


@pytest.mark.parametrize(
    ("share_right", "code"), [(0.05, "model-not-learnt"), (0.1, "model-not-learnt"), (0.13, None), (0.9, None)]
)
def test_a_model_that_has_not_learnt_is_called_so(share_right: float, code: str | None) -> None:
    """Ten even classes: one in ten is a guess. It was said below that alone."""
    rng = np.random.default_rng(0)
    records = dataset("a", np.zeros((2000, 1)), np.arange(2000) % 10, id=np.arange(2000)).records
    game = split(records, {"party-0": np.arange(2000)}, 0.3, 0.3, rng)
    right = rng.random(2000) < share_right
    said = useless(game, right, accuracy(game, right, 0.95))
    assert (said.code if said else None) == code
    assert said is None or "Nothing here speaks for a trained model" in words(said)


@pytest.mark.parametrize(
    ("of_common", "of_rare", "code"),
    [
        (1.0, 0.0, "model-not-learnt"),  # always the commonest label
        (0.9, 0.1, "model-not-learnt"),  # the rare one in a tenth of all cases, whatever the record
        (0.8, 0.7, "model-useless"),  # right less often than the commonest label, and yet it tells both apart
    ],
)
def test_uneven_labels_do_not_hide_whether_a_model_has_learnt(of_common: float, of_rare: float, code: str) -> None:
    rng = np.random.default_rng(0)
    labels = (np.arange(2000) % 10 == 0).astype(int)
    records = dataset("a", np.zeros((2000, 1)), labels, id=np.arange(2000)).records
    game = split(records, {"party-0": np.arange(2000)}, 0.3, 0.3, rng)
    right = rng.random(2000) < np.where(game.candidates.rows.y == 1, of_rare, of_common)
    said = useless(game, right, accuracy(game, right, 0.95))
    assert said is not None
    assert said.code == code
    assert said.data["commonest"] == pytest.approx(0.9, abs=0.03)


def test_a_federation_that_guesses_says_so_first_and_beside_the_commonest_label(tmp_path: Path) -> None:
    settings = config(federation={"rounds": 2, "lr": 1e-9}, audit={"attacks": ["loss"]})
    document = run(settings, tmp_path / "run", silent, tell=lambda line: None)
    assert "has not learnt" in document.useless
    assert document.run.commonest is not None
    first, *_, last = verdict(cleaned(document))
    assert first == document.useless
    assert f"commonest label is right on {share(document.run.commonest)}" in last
    annexed = annex(cleaned(document))
    assert "has not learnt" in annexed
    assert "always naming the commonest label" in annexed


def test_accuracy_counts_people() -> None:
    """The interval took every record for independent: ten records of a person that are all right, or all wrong."""
    rng, people = np.random.default_rng(1), np.repeat(np.arange(200), 10)
    records = dataset("a", np.zeros((2000, 1)), np.arange(2000) % 2, id=np.arange(2000), subject=people).records
    game = game_of_people(records, iid(records, 1, rng), (0.3, 0.3), rng)
    subject = game.candidates.subject
    assert subject is not None
    right = rng.random(200)[subject.astype(int)] < 0.5
    whole = accuracy(game, right, 0.95)["evaluation"]
    alone = accuracy(replace(game, candidates=replace(game.candidates, subject=None)), right, 0.95)["evaluation"]
    assert whole.low is not None
    assert whole.high is not None
    assert alone.low is not None
    assert alone.high is not None
    assert whole.value == alone.value
    assert (whole.high - whole.low) / (alone.high - alone.low) == pytest.approx(np.sqrt(10), rel=0.1)
    assert "clustered by subject" in whole.method


def test_a_blind_guess_below_chance_is_told_and_not_turned_round() -> None:
    """It was taken for a difference between the sets, as if guessing the other way round had been fitted."""
    rng = np.random.default_rng(0)
    below = auc([Block(rng.normal(0, 1, 300), rng.normal(1, 1, 300), np.empty(0))])
    (said,) = all_words(sets_differ(below))
    assert "not turned round" in said
    assert "only what attacks find beyond" not in said


@pytest.mark.parametrize("values", [2, 1000])
def test_many_ties_at_the_threshold_are_told(values: int) -> None:
    """A score that takes two values had TPR 0, and nobody was told why; now it is exact, and told."""
    rng = np.random.default_rng(0)
    members, others = (np.floor(values * rng.random(2000) ** power) for power in (0.5, 1.0))
    told = all_words(tied("loss", [Block(members, others[:1000], others[1000:])], (0.01,), Vantage.CLIENT, "global"))
    assert len(told) == (values == 2)
    assert all("equal the threshold at 0.01 FPR" in line for line in told)
    assert all("takes only 2 values" in line and "scaled" not in line for line in told)


def test_only_a_score_that_saturates_asks_for_scaled_features() -> None:
    """It was asked of scores that are counts by design, too."""
    rng = np.random.default_rng(0)
    members, others = (np.minimum(rng.random(2000) + shift, 1.0) for shift in (0.2, 0.1))
    (said,) = all_words(tied("loss", [Block(members, others[:1000], others[1000:])], (0.05,), Vantage.CLIENT, "global"))
    assert "are the features scaled?" in said


@pytest.mark.parametrize(("by", "told"), [(0.0, set()), (-99.0, {"fpr-missed"}), (99.0, {"fpr-undershot"})])
def test_thresholds_from_records_of_another_kind_are_told(
    by: float, told: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A figure that is missing, or has no upper end, was explained in its own row alone."""
    as_scored = Scores.block

    def moved(*given: Any, **named: Any) -> Block:
        found = as_scored(*given, **named)
        return replace(found, calibration=found.calibration + by)

    monkeypatch.setattr(Scores, "block", moved)
    audit = watch(prepare(config(federation={"rounds": 2}, audit={"attacks": ["loss"], "fpr": [0.1]})))
    said = [one for one in audit.warnings if one.code.startswith("fpr-")]
    assert {one.code for one in said} == told
    for line in all_words(said):
        how = "more" if by < 0 else "fewer"
        assert line.startswith(f"loss: far {how} than 10 % of outsiders were accused where that was asked: the records")
    pooled = next(one for one in audit.results if one.party is None and one.attack == "loss")
    assert pooled.estimates["tpr@0.1"].doubt == {0.0: None, -99.0: "more", 99.0: "fewer"}[by]


def test_of_many_parties_whose_thresholds_are_doubted_there_is_one_warning() -> None:
    """Their shares differ, so that they were as many warnings."""
    shares = {
        name: Estimate(name, None, None, None, 0.95, "exact", "measured", 9, 9, realised_fpr=0.5, doubt="more")
        for name in ("tpr@0.01", "tpr@0.1")
    }
    other = {name: replace(one, realised_fpr=0.6) for name, one in shares.items()}
    assert len(once([*fpr_missed("loss", shares), *fpr_missed("loss", other)])) == 2  # one for each rate
    assert fpr_missed("loss", {"tpr@0.1": replace(shares["tpr@0.1"], doubt=None)}) == []
