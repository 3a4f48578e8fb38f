"""The recording strategy around Flower's own: training ends as without it, and what went wrong is told."""

import copy
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flwr.app import ArrayRecord, ConfigRecord, Error, Message
from flwr.serverapp.strategy import (
    DifferentialPrivacyServerSideFixedClipping,
    FedAdam,
    FedAvg,
    FedMedian,
    Result,
    Strategy,
)

from fedaudit.integrations.flower.server import RecordedStrategy, record_strategy, trace_strategy
from fedaudit.trace.store import Store
from fedaudit.types import Round
from fedaudit.words import all_words
from tests.integrations.flower_world import LocalGrid, arrays, as_state, client_app, initial, party_of
from tests.integrations.worlds import equal, full_disk, games, net

QUICK = ("fta-confidence", "loss")
Change = Callable[[list[Message]], list[Message]]


def run(
    strategy: Strategy,
    rounds: int = 3,
    change: Change | None = None,
    start: ArrayRecord | None = None,
    seeds_from: int = 0,
) -> Result:
    grid = LocalGrid(client_app(seeds_from=seeds_from), change)
    return strategy.start(grid=grid, initial_arrays=start or initial(), num_rounds=rounds)


def scores(strategy: RecordedStrategy) -> list[object]:
    assert strategy.session.auditor is not None
    return strategy.session.auditor.score_table()["score"]


def recorded(strategy: Strategy, out: Path, **options: Any) -> RecordedStrategy:
    return record_strategy(
        strategy, out=out, rounds=3, model=net, game=games(), party=party_of, attacks=QUICK, **options
    )


def text(strategy: RecordedStrategy) -> str:
    document = strategy.session.document
    assert document is not None
    return " ".join([document.run.status, *document.warnings, *document.notices])


def training_only(change: Change) -> Change:
    """Changes the replies of training, not those of evaluation."""

    def changed(replies: list[Message]) -> list[Message]:
        return change(replies) if replies[0].metadata.message_type == "train" else replies

    return changed


def rounds_of(strategy: RecordedStrategy, monkeypatch: pytest.MonkeyPatch) -> list[Round]:
    seen: list[Round] = []
    real = strategy.session.observe

    def both(round: Round) -> None:
        seen.append(round)
        real(round)

    monkeypatch.setattr(strategy.session, "observe", both)
    return seen


@pytest.mark.parametrize("make", [FedAvg, FedAdam, FedMedian])
def test_training_is_the_same_and_the_audit_whole(
    tmp_path: Path, make: Callable[[], Strategy], monkeypatch: pytest.MonkeyPatch
) -> None:
    """FedMedian empties the replies that it is given: they are copied before."""
    plain = run(make())
    strategy = recorded(make(), tmp_path)
    seen = rounds_of(strategy, monkeypatch)
    result = run(strategy)
    assert result.arrays is not None
    assert plain.arrays is not None
    assert equal(as_state(plain.arrays), as_state(result.arrays))
    assert [round.index for round in seen] == [1, 2, 3]
    assert all(set(round.sent) == {"north", "south"} for round in seen)
    assert all(len(trained.state) == 4 for round in seen for trained in round.sent.values())
    loaded = {name: value.astype("float32") for name, value in as_state(result.arrays).items()}  # FedAdam: float64
    assert equal(seen[-1].aggregate, loaded)
    assert equal(seen[1].broadcast, seen[0].aggregate)
    assert text(strategy).startswith("complete")
    assert (tmp_path / "report.html").is_file()


def test_around_a_dp_wrapper_what_arrives_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server clips and adds noise after it has seen the updates: the wrapper sees them as it does."""
    dp = DifferentialPrivacyServerSideFixedClipping(FedAvg(), 0.1, 0.01, 2)
    strategy = recorded(dp, tmp_path)
    seen = rounds_of(strategy, monkeypatch)
    run(strategy, 2)
    first = seen[0]
    moved = sum(float(((first.sent["north"].state[k] - v) ** 2).sum()) for k, v in first.broadcast.items())
    assert moved > 0.01**2 * 10  # not yet clipped
    assert strategy.clipping_norm == 0.01  # whatever else the strategy has is still there


def test_F5_drop_outs_duplicates_and_failures_are_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def change(replies: list[Message]) -> list[Message]:
        calls.append(1)
        if len(calls) == 1:
            return replies[:1]
        if len(calls) == 2:
            return [replies[0], copy.deepcopy(replies[0]), replies[1]]
        spoilt = Message(Error(code=2, reason="patient 17 was missing"), reply_to=replies[1])
        spoilt.metadata.__dict__["_src_node_id"] = replies[1].metadata.src_node_id
        return [replies[0], spoilt]

    strategy = recorded(FedAvg(), tmp_path)
    seen = rounds_of(strategy, monkeypatch)
    run(strategy, change=training_only(change))
    assert [len(round.sent) for round in seen] == [1, 2, 1]
    said = text(strategy)
    assert "Round 1: 1 of 2 parties did not answer" in said
    assert "answered twice, the same both times" in said
    assert "Round 3: 1 of 2 parties failed" in said
    assert "patient 17" not in said


def test_F6_an_empty_round_is_a_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def change(replies: list[Message]) -> list[Message]:
        calls.append(1)
        return [] if len(calls) == 2 else replies

    strategy = recorded(FedAvg(), tmp_path)
    seen = rounds_of(strategy, monkeypatch)
    result = run(strategy, change=training_only(change))
    assert result.arrays is not None
    assert [(round.index, round.commit) for round in seen] == [(1, True), (2, False), (3, True)]
    assert "Round 2 is empty: nobody sent a model" in text(strategy)
    document = strategy.session.document
    assert document is not None
    curves = [e.curves["auc"].x for e in document.results if "auc" in e.curves]
    assert curves
    assert all(2.0 not in x for x in curves)


def test_F4_a_hook_that_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = run(FedAvg())
    strategy = recorded(FedAvg(), tmp_path)
    real = strategy.recorder._state

    def broken(arrays: Any, where: str) -> Any:
        if where == "round 2, south":
            raise ZeroDivisionError
        return real(arrays, where)

    monkeypatch.setattr(strategy.recorder, "_state", broken)
    result = run(strategy)
    assert plain.arrays is not None
    assert result.arrays is not None
    assert equal(as_state(plain.arrays), as_state(result.arrays))
    assert "recorded with gaps" in text(strategy)
    assert "Round 2 is missing: ZeroDivisionError" in text(strategy)
    strict = recorded(FedAvg(), tmp_path, strict=True)
    monkeypatch.setattr(strict, "_party", lambda message: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run(strict)


def test_F2_a_full_disk(tmp_path: Path) -> None:
    """Training ends as ever, nothing half-written is left, and the audit knows what is not on disk."""
    plain = run(FedAvg(), 2)
    strategy = recorded(FedAvg(), tmp_path / "run")
    with full_disk():
        result = run(strategy, 2)
    assert plain.arrays is not None
    assert result.arrays is not None
    assert equal(as_state(plain.arrays), as_state(result.arrays))
    assert "Recording stopped at round 1 (File too large). Training and audit went on" in text(strategy)
    assert any("could not be written" in gap and "File too large" in gap for gap in all_words(strategy.session.gaps))
    assert not (tmp_path / "run/results.json").exists()
    assert Store.read(tmp_path / "run").entries() == []


def test_F7_a_restarted_server_goes_on_counting(tmp_path: Path) -> None:
    """Another process, the same folder: the audit is that of an undisturbed run."""
    whole = recorded(FedAvg(), tmp_path / "whole")
    run(whole, 3)
    first = run(recorded(FedAvg(), tmp_path / "run"), 2)
    again = recorded(FedAvg(), tmp_path / "run")
    run(again, 1, start=first.arrays, seeds_from=2)
    assert "server restarted from the model of round 2" in text(again)
    assert [entry.round for entry in Store.read(tmp_path / "run").entries()] == [1, 2, 3]
    assert scores(again) == scores(whole)
    run(again, 2)  # the same object, from the very first model: what came after it is left out
    assert [entry.round for entry in Store.read(tmp_path / "run").entries()] == [1, 2, 3]
    assert "Round 1 arrived twice, with the same content" in text(again)
    start = initial()
    run(again, 2, start=arrays({name: array.numpy() * 1.5 for name, array in start.items()}))
    assert "Round 1 started from an unknown model, not from the last one: the server went back" in text(again)
    assert len(Store.read(tmp_path / "run").entries()) == 2


def test_a_server_without_records_only_records(tmp_path: Path) -> None:
    strategy = trace_strategy(FedAvg(), out=tmp_path, party=party_of)
    result = run(strategy)
    assert result.arrays is not None
    rounds = list(Store.read(tmp_path).rounds())
    assert [round.index for round in rounds] == [1, 2, 3]
    assert equal(rounds[-1].aggregate, as_state(result.arrays))
    assert set(rounds[0].sent) == {"north", "south"}


def test_F5_a_round_that_is_sent_again(tmp_path: Path) -> None:
    strategy = recorded(FedAvg(), tmp_path)
    grid = LocalGrid(client_app())
    start = initial()
    for number in (1, 1, 2):
        replies = grid.send_and_receive(strategy.configure_train(number, start, ConfigRecord(), grid))
        made, _ = strategy.aggregate_train(number, replies)
        strategy.recorder.settle()
        if strategy.session.notes and made is not None:
            start = made
    assert strategy.session.last == 2
    strategy.session.finish(tmp_path)
    assert any(note.code == "round-twice" for note in strategy.session.notes)


def test_a_training_that_fails_still_leaves_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = FedAvg()
    real = inner.aggregate_train

    def failing(server_round: int, replies: Any) -> Any:
        if server_round == 3:
            raise RuntimeError("strategy broke")
        return real(server_round, replies)

    monkeypatch.setattr(inner, "aggregate_train", failing)
    strategy = recorded(inner, tmp_path)
    observe = strategy.session.observe

    def slowly(round: Round) -> None:  # round 2 is still being recorded when round 3 fails
        time.sleep(0.5)
        observe(round)

    monkeypatch.setattr(strategy.session, "observe", slowly)
    with pytest.raises(RuntimeError, match="strategy broke"):
        run(strategy)
    assert "The training ended with RuntimeError after round 2" in text(strategy)
    assert (tmp_path / "results.json").is_file()
