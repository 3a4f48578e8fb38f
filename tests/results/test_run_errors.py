"""What each record, or person, adds to the error of a figure is kept with a run, and says what runs have in common."""

from pathlib import Path

import numpy as np
import pytest

from fedaudit.config.schema import Config, parse
from fedaudit.errors import FedauditError
from fedaudit.questions.attribute.judge import Guesses, person_errors
from fedaudit.results.document import ERRORS, Document
from fedaudit.results.repeats import every_attack
from fedaudit.results.run_errors import errors_of_run, load_errors
from fedaudit.results.scores import load_scores
from fedaudit.session.prepare import prepare
from fedaudit.session.run import run
from fedaudit.stats.intervals import in_common, of_share
from fedaudit.types import Estimate
from tests.audit.test_canaries import asking, watched
from tests.audit.test_people import people
from tests.worlds import silent


def cells(seed: int) -> Config:
    return parse({
        "data": {"name": "breast-cancer"},
        "federation": {"parties": 3, "members": 0.6, "nonmembers": 0.2, "rounds": 2, "seed": seed},
        "audit": {"adversary": "agg-sh", "attacks": ["loss"], "attribute": {"name": "area", "column": 3}},
    })  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, Document]]:
    folders = [tmp_path_factory.mktemp("cells") / str(seed) for seed in range(3)]
    return [(out, run(cells(seed), out, silent, tell=lambda _: None)) for seed, out in enumerate(folders)]


def about_half_the_width(found: Estimate, errors: float) -> bool:
    """1.96 times the standard error that the units give is about half of the interval."""
    assert found.low is not None
    assert found.high is not None
    return 0.5 < 1.96 * errors / ((found.high - found.low) / 2) < 1.2


def test_of_an_attribute_all_differences_are_kept(runs: list[tuple[Path, Document]]) -> None:
    for out, document in runs:
        known = errors_of_run(out, document.results)
        (entry,) = [one for one in document.results if one.attack == "attribute" and one.party is None]
        for name in ("members-auc", "nonmembers-auc", "members-accuracy"):  # an AUC near 1 is wider
            errors = known.of("attribute", "local", entry.estimates[name])
            assert errors is not None
            assert about_half_the_width(entry.estimates[name], float(np.sqrt(np.sum(errors.values**2)))), name
        assert known.of("attribute", "local", entry.estimates["excess-over-blind"]) is not None
        assert known.of("attribute", "global", entry.estimates["members-auc"]) is None


def test_a_mean_over_runs_asks_for_them(runs: list[tuple[Path, Document]]) -> None:
    """A part of the measuring error is in common, where all of it was assumed to be."""
    results = [document.results for _, document in runs]
    errors = [errors_of_run(out, document.results) for out, document in runs]
    known, unknown = ({one.attack: one for one in every_attack(results, own)} for own in (errors, ()))
    for name in ("excess-over-blind", "members-minus-nonmembers", "members-auc"):
        one, other = known["attribute"].estimates[name], unknown["attribute"].estimates[name]
        assert one.value == other.value
        assert "the share that the runs have in common" in one.method
        assert (one.high or 0) - (one.low or 0) < (other.high or 0) - (other.low or 0)


def test_files_that_were_changed_are_refused(runs: list[tuple[Path, Document]]) -> None:
    out, document = runs[0]
    whole = (out / ERRORS).read_bytes()
    try:
        (out / ERRORS).write_bytes(whole[:-9] + b"x" + whole[-8:])
        with pytest.raises(FedauditError, match=r"changed|not as it was"):
            load_errors(out)
        (out / ERRORS).unlink()
        known = errors_of_run(out, document.results)
        assert {figure for _, _, figure in known.known} >= {"auc"}
        assert "excess-over-blind" not in {figure for _, _, figure in known.known}
    finally:
        (out / ERRORS).write_bytes(whole)


def test_decisions_about_people_are_kept(tmp_path: Path) -> None:
    """Each person once, by name."""
    document = run(people(tmp_path, ["subject-loss"], fresh=0.0), tmp_path / "run", silent)
    known = errors_of_run(tmp_path / "run", document.results)
    (entry,) = [one for one in document.results if one.attack == "subject-loss" and one.party is None]
    for name in ("auc", "balanced-accuracy@10"):
        errors = known.of("subject-loss", "global", entry.estimates[name])
        assert errors is not None
        assert set(errors.names.tolist()) <= set(map(str, range(300)))
        assert about_half_the_width(entry.estimates[name], float(np.sqrt(np.sum(errors.values**2)))), name


def test_an_accuracy_by_a_threshold_of_ones_own_is_kept(tmp_path: Path) -> None:
    config = parse({
        "data": {"name": "breast-cancer"}, "federation": {"parties": 2, "rounds": 2},
        "audit": {"vantages": ["label-only-client"], "attacks": ["gap", "tear"], "tear": {"queries": 50, "own": 40}},
    })  # fmt: skip
    document = run(config, tmp_path / "run", silent, tell=lambda _: None)
    known = errors_of_run(tmp_path / "run", document.results)
    (entry,) = [one for one in document.results if one.attack == "tear" and one.party is None]
    found = entry.estimates["accuracy"]
    errors = known.of("tear", "global", found)
    assert errors is not None
    scores = load_scores(tmp_path / "run")
    assert scores is not None
    judged = np.isin(scores["role"], ["member", "evaluation"]) & (scores["attack"] == "tear") & ~scores["reference"]
    assert {name for name, error in zip(errors.names, errors.values, strict=True) if error} <= {*scores["id"][judged]}
    assert judged.sum() == found.n_pos + found.n_neg


# ------------------------------------------------------------------ slow twins


def test_errors_of_guesses_are_what_leaving_one_person_out_shows() -> None:
    """The jackknife, person by person, three values, two parties."""
    rng = np.random.default_rng(1)

    def group(n: int, name: str) -> Guesses:
        true = rng.integers(0, 3, n)
        said = rng.normal(size=(n, 3)) + (true[:, None] == np.arange(3))
        return Guesses(said, true, None, np.array([f"{name}{i}" for i in range(n)]))

    def mean(groups: list[Guesses]) -> float:
        wins = pairs = 0.0
        for g in groups:
            for value in range(3):
                score = g.said[:, value] - np.delete(g.said, value, axis=1).max(axis=1)
                has = g.true == value
                wins += float(np.sum(score[has][:, None] > score[~has][None]))
                pairs += has.sum() * (~has).sum()
        return wins / pairs

    groups = [group(60, "a"), group(40, "b")]
    errors = person_errors({"members": groups, "nonmembers": [], "blind": []})["members-auc"]
    found = dict(zip(errors.names.tolist(), errors.values.tolist(), strict=True))
    whole, slow = mean(groups), {}
    for i, g in enumerate(groups):
        assert g.who is not None
        for j, name in enumerate(g.who.tolist()):
            rest = np.arange(len(g.true)) != j
            less = Guesses(g.said[rest], g.true[rest], None, g.who[rest])
            slow[name] = whole - mean([*groups[:i], less, *groups[i + 1 :]])
    assert found.keys() == slow.keys()
    names = list(found)
    assert np.corrcoef([found[n] for n in names], [slow[n] for n in names])[0, 1] > 0.9
    ratio = np.linalg.norm([found[n] for n in names]) / np.linalg.norm([slow[n] for n in names])
    assert 0.8 < ratio < 1.25


def test_errors_of_a_share_add_up_by_person() -> None:
    errors = of_share([np.array([True, False]), np.array([True, True])], [np.array(["a", "b"]), np.array(["a", "c"])])
    assert dict(zip(errors.names.tolist(), errors.values.tolist(), strict=True)) == {
        "a": 0.125,
        "b": -0.1875,
        "c": 0.0625,
    }


def test_probes_of_two_runs_have_no_error_in_common(tmp_path: Path) -> None:
    audits = [(watched(prepare(asking({"probes": 20, "every": 1}, seed=seed)))) for seed in (0, 1)]
    own = [audit.errors["canife", "global", "score-sd"] for audit in audits]
    assert in_common(own) == 0.0
    assert in_common([own[0], own[0]]) == pytest.approx(1.0)
