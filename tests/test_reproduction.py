"""The papers' claims: every one can be tested as it is written down, and is decided as it says."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from docs import make_reproduction
from docs.make_reproduction import Seen, apart, asked, configured, figure_of, holds, looked_at, names, table
from docs.reproduction_claims import (
    CLAIMS,
    CONFIRMED,
    CONTRADICTED,
    COST,
    NOT_RUN,
    TASK,
    UNDECIDED,
    Above,
    Claim,
    Of,
    Within,
    below,
)
from docs.reproduction_settings import FILTER, FILTER_OF_PEOPLE, LEAST, SETTINGS
from docs.reproduction_settings import TestedIn as Setting
from fedaudit.errors import FedauditError
from fedaudit.questions import metric
from fedaudit.results.document import save
from fedaudit.types import Estimate
from tests.worlds import in_turn

SEEDS = range(LEAST)
TESTED = [claim for claim in CLAIMS if isinstance(claim, Claim)]


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_is_a_configuration_and_asks_for_all_that_is_looked_at(name: str) -> None:
    config = configured(name, 2, Path("nowhere"))
    assert config.federation.seed == 2
    assert getattr(config.data, "data_seed", 2) == 2  # people who are made up are others with another seed
    known = {str(name) for name in config.audit.attacks or ()} | ({"attribute"} if config.audit.attribute else set())
    wanted = [of for claim in TESTED for of in looked_at(claim) if of.setting == name]
    assert wanted
    assert {of.attack for of in wanted if of.metric != TASK} <= known
    named = {of.metric for of in wanted} - {COST, TASK}
    assert all(metric(one).least > -inf for one in named)  # a figure that nothing has would be "not run" for ever
    assert {one.removeprefix("tpr@") for one in named if one.startswith("tpr@")} <= set(
        map(str, config.audit.fpr or ())
    )
    assert known & {FILTER, FILTER_OF_PEOPLE} or config.defences or name in ("roles", "few-outsiders")


def test_a_run_that_fails_is_told_and_the_page_is_written_after_each_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = [name for name, setting in SETTINGS.items() if not setting.data and setting.seeds == LEAST][:2]
    trained, pages = list[str](), list[int]()

    def run(_: Any, out: Path, *__: Any, **___: Any) -> None:
        trained.append(out.name)
        if out.name == f"{first}-{SEEDS[0]}":
            raise MemoryError

    monkeypatch.setattr(make_reproduction, "RUNS", tmp_path)
    monkeypatch.setattr(make_reproduction, "run", run)
    monkeypatch.setattr(make_reproduction, "work", in_turn)
    monkeypatch.setattr(make_reproduction, "write_page", lambda: pages.append(len(trained)))
    make_reproduction.train_all([first, second], tmp_path / "data", 1)
    assert trained == [f"{name}-{seed}" for seed in SEEDS for name in (first, second)]
    assert pages == [2 * place for place in range(1, len(SEEDS) + 1)]
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith(f"{first}, seed {SEEDS[0]}: MemoryError")
    assert told[1] == f"{second}, seed {SEEDS[0]}: done; 2 of {len(trained)} after 0 minutes, about 0 left"


def test_a_setting_has_as_many_seeds_as_it_asks_for_or_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = list[str]()
    monkeypatch.setattr(make_reproduction, "RUNS", tmp_path)
    monkeypatch.setattr(make_reproduction, "run", lambda _, out, *__, **___: trained.append(out.name))
    monkeypatch.setattr(make_reproduction, "work", in_turn)
    monkeypatch.setattr(make_reproduction, "write_page", lambda: None)
    many = SETTINGS["cells"].seeds
    assert many > LEAST
    for seeds, cells, baskets in ((LEAST, many, LEAST), (many + 1, many + 1, many + 1)):
        trained.clear()
        make_reproduction.train_all(["cells", "baskets"], tmp_path / "data", 1, seeds)
        assert sorted(trained) == sorted(
            [*(f"cells-{seed}" for seed in range(cells)), *(f"baskets-{seed}" for seed in range(baskets))]
        )


def test_a_run_of_a_setting_that_has_changed_is_trained_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of the setting as it is now is left as it was, and a damaged one is not thrown away unseen."""

    def setting(rounds: int) -> Setting:
        raw = {"data": {"name": "breast-cancer"}, "federation": {"rounds": rounds}, "audit": {"attacks": ["loss"]}}
        return Setting("small", lambda _: raw)

    monkeypatch.chdir(tmp_path)
    folder = make_reproduction.RUNS / "small-0"
    seen = []
    for rounds in (2, 2, 3):
        monkeypatch.setattr(make_reproduction, "SETTINGS", {"small": setting(rounds)})
        make_reproduction.read.cache_clear()
        before = make_reproduction.ended("small")
        make_reproduction.train(("small", 0, make_reproduction.RUNS / "data"), lambda *_: None)
        (_, document) = make_reproduction.ended("small")[0]
        seen.append((len(before), document.run.rounds, (folder / "run.json").stat().st_mtime_ns))
    assert [(ended, rounds) for ended, rounds, _ in seen] == [(0, 2), (1, 2), (0, 3)]
    assert seen[0][2] == seen[1][2]
    (folder / "run.json").write_bytes(b"{")
    with pytest.raises(FedauditError, match=r"changed|not as it was"):
        make_reproduction.train(("small", 0, make_reproduction.RUNS / "data"), lambda *_: None)
    assert (folder / "results.json").is_file()


def test_statistics_are_computed_again_without_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Results of former statistics are replaced, scores and all; they are the same if nothing has changed."""
    raw = {"data": {"name": "breast-cancer"}, "federation": {"rounds": 2}, "audit": {"attacks": ["loss"]}}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(make_reproduction, "SETTINGS", {"small": Setting("small", lambda _: raw)})
    monkeypatch.setattr(make_reproduction, "work", in_turn)
    make_reproduction.read.cache_clear()
    make_reproduction.train(("small", 0, make_reproduction.RUNS / "data"), lambda *_: None)
    folder, before = make_reproduction.ended("small")[0]
    save(replace(before, results=[replace(one, estimates={}) for one in before.results]), folder)
    assert make_reproduction.ended("small")[0][1] != before
    monkeypatch.setattr(make_reproduction, "run", None)
    make_reproduction.judge_again(1)
    assert capsys.readouterr().out == "small-0: judged again\n"
    _, after = make_reproduction.ended("small")[0]
    assert [one.estimates for one in after.results] == [one.estimates for one in before.results]


@pytest.mark.parametrize("made_up", [False, True])
def test_means_and_differences_ask_whose_the_scores_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made_up: bool
) -> None:
    """Three seeds deal out one set. People who are made up are others with each, whatever they are called."""
    raw: dict[str, Any] = {
        "data": {"name": "breast-cancer"},
        "federation": {"rounds": 2, "parties": 2},
        "audit": {"vantages": ["client"], "attacks": ["loss", "modified-entropy"]},
    }
    of, other = Of("small", "loss", "global", "auc"), Of("small", "modified-entropy", "global", "auc")
    claim = Claim("a", "b", "c", "d", (Above(of, other), Within(of, 0.0, 1.0)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(make_reproduction, "SETTINGS", {"small": Setting("small", lambda _: raw)})
    monkeypatch.setattr(make_reproduction, "CLAIMS", [claim])
    for kept in (make_reproduction.read, make_reproduction.errors_in, make_reproduction.difference_of_seed):
        kept.cache_clear()
    for seed in SEEDS:
        make_reproduction.train(("small", seed, make_reproduction.RUNS / "data"), lambda *_: None)
    found = [make_reproduction.mean(of), make_reproduction.difference(Above(of, other))]
    assert all(one is not None and "the share that the runs have in common" in one.method for one in found)
    assert holds(claim) != NOT_RUN
    if made_up:
        runs = [one.folder for one in make_reproduction.seen(of).values()]
        monkeypatch.setattr(make_reproduction, "SETTINGS", {
            "small": Setting("small", lambda _: raw | {"data": {"name": "synthetic"}})
        })  # fmt: skip
        make_reproduction.errors_in.cache_clear()
        own = [make_reproduction.errors_in(folder).known["loss", "global", "auc"][1] for folder in runs]
        assert not set.intersection(*({*errors.names.tolist()} for errors in own))
    for kept in (make_reproduction.read, make_reproduction.errors_in, make_reproduction.difference_of_seed):
        kept.cache_clear()


def test_a_run_that_lost_its_reference_models_is_trained_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are in memory alone: a run that was killed goes on without them."""
    raw = {
        "data": {"name": "breast-cancer"},
        "federation": {"rounds": 3, "parties": 2},
        "audit": {"attacks": ["loss", "lira"], "reference": {"models": 4}},
    }
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(make_reproduction, "SETTINGS", {"small": Setting("small", lambda _: raw)})
    job = ("small", 0, make_reproduction.RUNS / "data")

    @contextmanager
    def interrupted(_: str, steps: int) -> Iterator[Callable[[], None]]:
        def stop() -> None:
            raise KeyboardInterrupt

        yield stop

    with monkeypatch.context() as now, suppress(KeyboardInterrupt):
        now.setattr(make_reproduction, "silent", interrupted)
        make_reproduction.train(job, lambda *_: None)
    assert not make_reproduction.ended("small")
    make_reproduction.train(job, lambda *_: None)
    (_, document) = make_reproduction.ended("small")[0]
    assert {"loss", "lira"} <= {result.attack for result in document.results}


def test_a_damaged_run_is_told_and_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(make_reproduction, "RUNS", tmp_path)
    folder = tmp_path / "baskets-0"
    folder.mkdir()
    (folder / "results.json").write_text("{}")
    assert make_reproduction.ended("baskets") == {}
    assert f"{folder} is left out" in capsys.readouterr().out


def test_a_page_that_is_cut_off_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(make_reproduction, "RUNS", tmp_path)
    monkeypatch.setattr(make_reproduction, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(make_reproduction, "train_all", interrupted)
    monkeypatch.setattr("sys.argv", ["make_reproduction"])
    with pytest.raises(KeyboardInterrupt):
        make_reproduction.main()
    assert "## Settings" in (tmp_path / "page.md").read_text()


def estimate(value: float, half: float) -> Estimate:
    return Estimate("auc", value, value - half, value + half, 0.95, "", "measured", 100, 100)


@pytest.mark.parametrize(
    ("values", "verdict"),
    [((0.2, 0.05), CONFIRMED), ((0.2, 0.3), UNDECIDED), ((-0.2, 0.1), CONTRADICTED), (None, NOT_RUN)],
)
def test_a_claim_holds_only_with_the_whole_interval(
    values: tuple[float, float] | None, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = estimate(*values) if values else None
    monkeypatch.setattr(make_reproduction, "difference", lambda _: found)
    monkeypatch.setattr(make_reproduction, "mean", lambda _: found)
    monkeypatch.setattr(make_reproduction, "seeds", lambda _: LEAST)
    above, within = Above(Of("a", "b"), Of("a", "c")), Within(Of("a", "b"), 0.1, 0.3)
    for test in (above, within):
        claim = replace(TESTED[0], tests=(test,))
        assert holds(claim) == verdict
    if values:
        assert holds(replace(TESTED[0], tests=(above, Within(Of("a", "b"), 0.9, 1.0)))) == CONTRADICTED


def test_a_claim_that_is_contradicted_is_so_whatever_was_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    there, lacking = Above(Of("a", "b"), Of("a", "c")), Above(Of("z", "b"), Of("z", "c"))
    monkeypatch.setattr(make_reproduction, "difference", lambda test: estimate(-0.2, 0.1) if test is there else None)
    monkeypatch.setattr(make_reproduction, "seeds", lambda test: LEAST if test is there else 0)
    assert holds(replace(TESTED[0], tests=(lacking, there))) == CONTRADICTED


def test_two_federations_err_apart() -> None:
    found = apart(estimate(0.7, 0.03), estimate(0.5, 0.04))
    assert found is not None
    assert (found.value, found.low, found.high) == pytest.approx((0.2, 0.15, 0.25))


def test_two_seeds_are_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    above, of = Above(Of("a", "b"), Of("a", "c")), Of("a", "b")
    monkeypatch.setattr(make_reproduction, "difference", lambda _: estimate(0.2, 0.05))
    for ended, verdict in ((2, NOT_RUN), (3, CONFIRMED)):
        monkeypatch.setattr(
            make_reproduction, "seen", lambda asked, n=ended: dict.fromkeys(range(n if asked == of else 9))
        )
        assert holds(replace(TESTED[0], tests=(above,))) == verdict


def test_what_has_to_be_known_is_said_whatever_the_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make_reproduction, "figures", lambda _: iter(["a figure"]))
    claim = replace(TESTED[0], why_not="It is level.", known="Nothing was learnt.")
    *_, held, failed = table([(claim, CONFIRMED), (claim, UNDECIDED)])
    assert held.endswith(f"| a figure<br>`python -m docs.make_reproduction {looked_at(claim)[0].setting}` |")
    assert held.startswith(f"| **{CONFIRMED}**. Nothing was learnt. |")
    assert failed.startswith(f"| **{UNDECIDED}**. It is level. Nothing was learnt. |")


def test_costs_are_compared_run_by_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds of an audit are no scores: their differences come from the runs, and may lie outside of -1 and 1."""
    spent = {"a": (5.0, 6.0, 7.0), "b": (2.0, 3.0, 4.0)}

    def seen(of: Of) -> dict[int, Seen]:
        found = {}
        for seed, epochs in enumerate(spent[of.attack]):
            result: Any = SimpleNamespace(cost=SimpleNamespace(epochs=epochs))
            figure = figure_of(cast(Any, None), result, COST)
            assert figure is not None
            found[seed] = Seen(Path(), result, figure)
        return found

    monkeypatch.setattr(make_reproduction, "seen", seen)
    make_reproduction.difference_of_seed.cache_clear()
    found = make_reproduction.difference(Above(Of("x", "a", metric=COST), Of("x", "b", metric=COST)))
    make_reproduction.difference_of_seed.cache_clear()
    assert found is not None
    assert (found.value, found.low, found.high) == pytest.approx((3.0, 3.0, 3.0))


def test_a_row_says_what_is_compared_and_what_was_asked() -> None:
    assert names(Above(Of("x", "a"), Of("x", "b"))) == ("In *x*, a", "b")
    assert names(Above(Of("x", "a"), Of("y", "a"))) == ("a in *x*", "in *y*")
    assert names(Above(Of("x", "a", metric="recall"), Of("x", "a", metric="precision"))) == (
        "In *x*, recall of a",
        "precision",
    )
    assert names(Above(Of("x", "a", "global"), Of("x", "a"))) == ("In *x*, a on global models", "on local ones")
    assert asked(Within(Of("x", "a", metric="score-sd"), 0.4, 0.53)) == "0.4 to 0.53"
    assert asked(Within(Of("x", "a", metric="auc"), 0.7, 1.0)) == "above 0.7"
    assert asked(below(Of("x", "a", metric=COST), 1.0)) == "at most 1"
    assert asked(Within(Of("x", "a", metric=COST), 100.0, float("inf"))) == "above 100"
