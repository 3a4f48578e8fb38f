"""Trials of a search: runs up to a round, what they cost, and what stops them."""

import errno
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedaudit.errors import REFUSED, FedauditError
from fedaudit.federation import START
from fedaudit.files import writing
from fedaudit.report.pages import advice_page
from fedaudit.results import advice as results
from fedaudit.results.document import load
from fedaudit.results.gate import parse_limit
from fedaudit.session import trials
from fedaudit.session.levers import NO_CHANGE
from fedaudit.session.run import run
from fedaudit.session.search import Contender, LeverSearch
from fedaudit.session.trials import (
    FAILED,
    NOT_INSTALLED,
    UNFIT,
    Bench,
    Trial,
    kept,
    kept_in,
    seconds,
    train_until,
)
from fedaudit.trace.journal import JOURNAL
from fedaudit.trace.store import Store
from fedaudit.types import Moment
from tests.session.advising import leaking
from tests.worlds import config, in_turn, silent


def test_what_a_search_cost_is_known_although_it_was_stopped(tmp_path: Path) -> None:
    one = leaking(tmp_path)
    other = one.model_copy(update={"federation": one.federation.model_copy(update={"seed": 1})})
    bench = Bench(tmp_path, 1, lambda: None, lambda _: None)
    first, second = bench.folder(one), bench.folder(other)
    spent = []
    for until in (2, 4):
        train_until(Trial(first, one, until), lambda *_: None)
        spent.append(seconds(first))
    assert 0 < spent[0] < spent[1]
    train_until(Trial(first, one, 4), lambda *_: None)  # it has come this far
    assert seconds(first) == spent[1]
    bench.needed.add(first)
    assert bench.cost(first) == 1
    bench.needed.add(second)  # somebody's, without its time
    assert bench.cost(first) is None


MODES: dict[str, dict[str, Any]] = {
    "probes": {"mode": "probes", "probes": 16, "every": 2},
    "running": {"mode": "running"},
}


@pytest.mark.parametrize("mode", MODES)
def test_a_trial_ends_with_its_round_although_probes_come_between(tmp_path: Path, mode: str) -> None:
    """Canaries are looked for in probes; those are no rounds. In two parts it finds what it finds at once."""
    asked = {"attacks": ["loss", "canife"], "canary": MODES[mode] | {"steps": 5, "pool": 4}}
    given = config(federation={"parties": 4, "rounds": 4}, model={"hidden": [8]}, audit=asked)
    run(given, tmp_path / "whole", silent, tell=lambda _: None)
    for until in (2, 4):
        train_until(Trial(tmp_path / "trial", given, until), lambda *_: None)
        assert load(tmp_path / "trial").run.rounds == until
        probes = until // 2 * 16 if mode == "probes" else until
        assert len(moments(tmp_path / "trial")) == until + probes
    assert moments(tmp_path / "trial") == moments(tmp_path / "whole")
    whole, trial = load(tmp_path / "whole"), load(tmp_path / "trial")
    assert [(r.attack, r.estimates) for r in trial.results] == [(r.attack, r.estimates) for r in whole.results]
    assert trial.failed == whole.failed  # so few steps make a canary that cannot be heard; the same one


def moments(folder: Path) -> list[Moment]:
    return [entry.moment for entry in Store.read(folder).entries()]


def test_a_folder_that_cannot_be_written_is_no_change_that_does_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials, "work", in_turn)
    given, bench = leaking(tmp_path), Bench(tmp_path, 1, lambda: None, lambda _: None)
    (tmp_path / "trial").mkdir()
    (tmp_path / "trial" / "notes.txt").write_text("somebody's")
    with pytest.raises(FedauditError, match="not empty") as error:
        bench.run([Trial(tmp_path / "trial", given, 2)])
    assert error.value.code == "trial-unusable"


def test_data_that_cannot_be_read_end_the_search_with_the_words_of_their_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything was trained, and after: no folder is to blame, and no change."""
    monkeypatch.setattr(trials, "work", in_turn)
    given, bench = leaking(tmp_path), Bench(tmp_path, 1, lambda: None, lambda _: None)
    file, folder = tmp_path / "lots.npz", bench.folder(given)
    whole = file.read_bytes()
    for until in (2, 4):
        file.write_text("x,y\n1,2\n")
        with pytest.raises(FedauditError, match="is not an npz") as error:
            bench.run([Trial(folder, given, until)])
        assert (error.value.exit_code, str(folder) in str(error.value)) == (REFUSED, False)
        file.unlink()
        with pytest.raises(FedauditError) as error:
            bench.run([Trial(folder, given, until)])
        assert (error.value.code, error.value.todo) == ("data-missing", "Check data.path.")
        file.write_bytes(whole)
        assert bench.run([Trial(folder, given, until)]) == {}
    with np.load(file) as before:
        other = {"x": before["x"] + 1, "y": before["y"]}
    np.savez(file, **other)
    with pytest.raises(FedauditError, match="holds a run with other data") as error:
        bench.run([Trial(folder, given, 8)])
    assert error.value.todo == "Advise in another folder."


def test_a_folder_that_another_process_writes_to_is_not_to_be_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials, "work", in_turn)
    given, bench = leaking(tmp_path), Bench(tmp_path, 1, lambda: None, lambda _: None)
    with writing(tmp_path / "trial"), pytest.raises(FedauditError) as error:
        bench.run([Trial(tmp_path / "trial", given, 2)])
    assert (error.value.code, "delete" in error.value.todo) == ("locked", False)


CONFIGURED = FedauditError("freeze", "nothing is left to train", "Freeze less.")
NO_OPACUS = ModuleNotFoundError("No module named 'opacus'", name="opacus")


@pytest.mark.parametrize(
    ("error", "begun", "said"),
    [
        (CONFIGURED, False, UNFIT),
        (CONFIGURED, True, FAILED),
        (ValueError("of the model"), True, FAILED),
        (ValueError("who knows"), False, ""),
        (NO_OPACUS, False, NOT_INSTALLED),
        (OSError(errno.ENOSPC, "No space left on device"), True, ""),
        (MemoryError(), True, ""),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), True, ""),
    ],
)
def test_only_what_a_configuration_caused_lasts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, begun: bool, said: str
) -> None:
    def failing(*_: Any, engine: Any, **__: Any) -> None:
        if begun:
            engine(None, START, None)
        raise error

    monkeypatch.setattr(trials, "work", in_turn)
    monkeypatch.setattr(trials, "run", failing)
    monkeypatch.setattr(trials, "rounds", lambda *_: iter(()))
    given, bench = config(), Bench(tmp_path, 1, lambda: None, lambda _: None)
    bench.folder(given).parent.mkdir()
    told = bench.run([Trial(bench.folder(given), given, 2)])[bench.folder(given)]
    assert told.what == said
    assert ("pip install 'fedaudit[dp]'" in told.why) == (error is NO_OPACUS)


def test_what_is_damaged_ends_the_search_which_says_what_to_delete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials, "work", in_turn)
    given, bench = leaking(tmp_path), Bench(tmp_path, 1, lambda: None, lambda _: None)
    folder, limit = bench.folder(given), parse_limit("auc < 0.501")  # which it breaks: its scores are read
    one, search = Contender(NO_CHANGE, given, folder), LeverSearch(given, [], limit)
    train_until(Trial(folder, given, 2), lambda *_: None)
    (folder / JOURNAL).rename(tmp_path / JOURNAL)  # which would say that they were changed
    for name, rung in (("run.json", 4), ("scores.parquet", 2)):
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(whole[:-20])
        with pytest.raises(FedauditError, match="cannot be used") as error:
            search.trained(bench, [one], rung)
        assert f"delete {folder}: it is then trained anew" in error.value.todo
        (folder / name).write_bytes(whole)
    (tmp_path / JOURNAL).rename(folder / JOURNAL)
    assert kept(folder, 2, limit) is None  # no failure of the change
    (folder / "results.json").write_text("{")  # they are made again
    assert search.trained(bench, [one], 2)[0].looks
    file = kept_in(folder, 2, limit)
    file.write_text(file.read_text()[:-20])
    assert search.trained(bench, [one], 2)[0].looks  # the run has not gone on, and is looked at again


def test_the_cost_is_unknown_where_the_unchanged_federation_was_not_trained_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path, 1, lambda: None, lambda _: None)
    (tmp_path / "one.seconds").write_text("2.0\n")
    bench.needed.add(tmp_path / "one")
    assert bench.cost(tmp_path / "one") == 1
    assert bench.cost(tmp_path / "never") is None
    advice = results.Advice(
        schema=1,
        limit="auc < 0.6",
        confidence=0.975,
        rungs=[],
        tried=[],
        confirmed=[],
        recommended=None,
        nearest=None,
        sentences=(),
        cost=bench.cost(tmp_path / "never"),
    )
    results.save(advice, tmp_path)
    assert "nan" not in (tmp_path / results.ADVICE).read_text().lower()
    assert "audits of the federation as it is" not in advice_page(advice, "advice")
