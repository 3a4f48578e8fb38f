"""The same configuration, trained by the plain loop and by Flower: the same rounds to 1e-6."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Error, Message, RecordDict

from fedaudit.adversary.attacks import made
from fedaudit.cli.auditing import engine_named
from fedaudit.config.schema import Config, parse
from fedaudit.errors import FedauditError
from fedaudit.federation import START, plans
from fedaudit.integrations.flower.engine import Funnel, client_app, serve
from fedaudit.results import document as results
from fedaudit.session.prepare import Prepared, prepare
from fedaudit.session.run import rounds, run
from fedaudit.trace.store import Store
from fedaudit.types import Moment, Plan, Round, State, Vantage
from fedaudit.words import all_words
from tests.audit.test_seams import auditor
from tests.integrations.flower_world import LocalGrid

CONFIG = """
[data]
name = "digits"
[federation]
parties = 3
participation = 0.67
rounds = 3
batch_size = 32
[model]
name = "mlp"
hidden = [24]
[audit]
attacks = ["fta-confidence", "loss"]
keep = "snapshots"
"""


def config(**federation: Any) -> Config:
    base = {"parties": 3, "participation": 0.67, "rounds": 3, "batch_size": 32}
    audit = {"attacks": ["fta-confidence", "loss"], "keep": "snapshots"}
    model = {"name": "mlp", "hidden": [24]}
    return parse({"data": {"name": "digits"}, "federation": base | federation, "model": model, "audit": audit})


def close(one: State, other: State, within: float) -> bool:
    return list(one) == list(other) and all(np.abs(one[k] - other[k]).max() <= within for k in one)


def assert_same(ours: list[Round], flowers: list[Round], within: float = 1e-6) -> None:
    assert [round.index for round in ours] == [round.index for round in flowers]
    for one, other in zip(ours, flowers, strict=True):
        assert close(one.broadcast, other.broadcast, within)
        assert close(one.aggregate, other.aggregate, within)
        assert list(one.sent) == list(other.sent)
        for party, trained in one.sent.items():
            assert close(trained.state, other.sent[party].state, within)
            assert trained.examples == other.sent[party].examples


def in_process(settings: Config, after: int = 0, model: State | None = None) -> list[Round]:
    return flowers(prepare(settings), Moment(after), model)


def flowers(
    prepared: Prepared, after: Moment, model: State | None, change: Callable[[LocalGrid], None] = lambda _: None
) -> list[Round]:
    """Flower's strategies and messages without Ray: everything but the worker processes."""
    grid = LocalGrid(client_app(prepared))
    grid.contexts = {node: Context(1, node, {"partition-id": node - 11}, RecordDict(), {}) for node in (11, 12, 13)}
    change(grid)
    funnel = Funnel(after)

    def server() -> None:
        try:
            serve(grid, Context(1, 0, {}, RecordDict(), {}), prepared, funnel, model)
            funnel.done.put(None)
        except BaseException as error:
            funnel.done.put(error)

    thread = threading.Thread(target=server)
    thread.start()
    made = list(funnel.rounds())
    thread.join()
    return made


def test_flower_and_the_plain_loop_make_the_same_rounds() -> None:
    assert_same(list(rounds(prepare(config()))), in_process(config()))


def failing(of: LocalGrid, node: int, server_round: int) -> None:
    """The worker of one party dies in one round."""
    real = of.deliver

    def deliver(message: Message) -> Message:
        told = message.content.config_records.get("config", ConfigRecord())
        if message.metadata.dst_node_id == node and told.get("server-round") == server_round:
            return Message(Error(code=2, reason="worker died"), reply_to=message)
        return real(message)

    of.deliver = deliver  # type: ignore[method-assign]


@pytest.mark.parametrize("defences", [[], [{"name": "dp-fedavg", "noise": 0.5, "clip": 1.0, "delta": 1e-5}]])
def test_a_party_that_fails_is_missing_from_the_round_and_told(tmp_path: Path, defences: list[dict[str, Any]]) -> None:
    settings = parse({**config(participation=1.0).as_dict(), "defences": defences})
    sent: list[int] = []

    def engine(prepared: Prepared, after: Moment, model: State | None) -> Iterator[Round]:
        made = flowers(prepared, after, model, lambda grid: failing(grid, 12, 2))
        sent.extend(len(round.sent) for round in made)
        yield from made

    document = run(settings, tmp_path, lambda *_: nullcontext(lambda: None), engine=engine)
    assert sent == [3, 2, 3]
    assert "Round 2: 1 of 3 parties failed." in document.warnings
    assert document.degraded == ["Round 2: 1 of 3 parties failed."]


def test_a_resumed_run_counts_its_gaps_on() -> None:
    ours = list(rounds(prepare(config(participation=1.0))))
    prepared = prepare(config(participation=1.0))
    flowers(prepared, Moment(2), ours[1].aggregate, lambda grid: failing(grid, 12, 1))
    assert all_words(prepared.gaps) == ["Round 3: 1 of 3 parties failed."]


def test_poisson_sampling_leaves_rounds_empty_in_both() -> None:
    settings = config(sampling="poisson", participation=0.2, rounds=6, seed=3)
    ours = list(rounds(prepare(settings)))
    assert any(not round.commit for round in ours)
    prepared = prepare(settings)
    theirs = flowers(prepared, START, None)
    assert [round.commit for round in theirs] == [round.commit for round in ours]
    assert_same(ours, theirs)
    assert prepared.gaps == []  # that nobody comes is part of the plan


def test_a_run_goes_on_from_its_last_round() -> None:
    ours = list(rounds(prepare(config())))
    assert_same(ours[2:], in_process(config(), 2, ours[1].aggregate))


def test_under_secagg_the_sum_is_the_same_up_to_quantisation() -> None:
    """SecAgg+ rounds at random to 4e-6 of its range, and later rounds train on from there."""
    settings = config(secagg=True)
    ours, theirs = list(rounds(prepare(settings))), in_process(settings)
    assert_same(ours[:1], theirs[:1], within=5e-5)
    assert [(round.index, list(round.sent)) for round in ours] == [(r.index, list(r.sent)) for r in theirs]


@pytest.mark.parametrize(
    "defence",
    [
        {"name": "dp-fedavg", "noise": 0.5, "clip": 1.0, "delta": 1e-5},
        {"name": "dp-fedavg", "noise": 0.5, "clip": 1.0, "delta": 1e-5, "local": True},
    ],
)
def test_defences_stand_in_the_same_slots(defence: dict[str, Any]) -> None:
    settings = parse({**config(participation=1.0).as_dict(), "defences": [defence]})
    assert_same(list(rounds(prepare(settings))), in_process(settings))


@pytest.mark.evidence
def test_with_ray_from_the_command_line(tmp_path: Path) -> None:
    """The one test that starts Flower's simulation: two runs of one configuration, one trace."""
    (tmp_path / "small.toml").write_text(CONFIG)
    for engine in ("local", "flower-simulation"):
        done = subprocess.run(
            [sys.executable, "-m", "fedaudit", "run", "small.toml", "--engine", engine, "--out", engine],
            cwd=tmp_path, capture_output=True, text=True, check=False,
            env=os.environ | {"FLWR_HOME": str(tmp_path / "flwr"), "COLUMNS": "200"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert "fta-confidence" in done.stdout
    stores = [Store.read(tmp_path / engine) for engine in ("local", "flower-simulation")]
    assert_same(list(stores[0].rounds()), list(stores[1].rounds()))
    ours, theirs = (results.load(tmp_path / engine) for engine in ("local", "flower-simulation"))
    assert ours.run.config_hash == theirs.run.config_hash
    for one, other in zip(ours.results, theirs.results, strict=True):
        assert one.estimates["auc"].value == pytest.approx(other.estimates["auc"].value, abs=5e-3)


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(FedauditError, match="flower-simulation"):
        engine_named("flower")


def with_probes(*asked: Any) -> list[Plan]:
    """Probes of one party and of everybody, and after the second a round in which nobody trains."""
    first, second, *others = plans(*asked)
    probe = Plan(second.parties, commit=False)
    return [first, Plan(("party-1",), commit=False), second, probe, Plan(()), *others]


@pytest.fixture
def probed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedaudit.session.prepare.sampled", with_probes)


def test_a_probe_is_made_and_thrown_away_by_flower_too(probed: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same plan with probes in it: both engines make the same rounds and the same probes, and keep the rounds."""
    settings = config(participation=1.0)
    ours, theirs = list(rounds(prepare(settings))), in_process(settings)
    moments = [(1, 0), (1, 1), (2, 0), (2, 1), (3, 0), (4, 0)]
    assert [(round.index, round.probe) for round in ours] == moments
    assert [(round.index, round.probe) for round in theirs] == moments
    commits = [True, False, True, False, False, True]
    assert [round.commit for round in theirs] == [round.commit for round in ours] == commits
    assert_same(ours, theirs, within=1e-5)
    monkeypatch.undo()
    assert_same(list(rounds(prepare(settings)))[:2], [theirs[0], theirs[2]], within=1e-5)
    for round in theirs[4:]:  # both start from the last round that was kept, not from what the probe came to
        assert close(round.broadcast, theirs[2].aggregate, 0)


def test_a_round_whose_workers_all_fail_after_a_probe_keeps_the_model(probed: None) -> None:
    def dying(grid: LocalGrid) -> None:
        for node in (11, 12, 13):
            failing(grid, node, 6)

    made = flowers(prepare(config(participation=1.0)), START, None, dying)
    assert [len(round.sent) for round in made] == [3, 1, 3, 3, 0, 0]
    assert close(made[5].broadcast, made[2].aggregate, 0)
    assert close(made[5].aggregate, made[2].aggregate, 0)


def test_a_probe_by_flower_moves_no_series_and_no_round_number(probed: None) -> None:
    """FTA scores as if only the kept rounds had been made."""
    prepared = prepare(config(participation=1.0, rounds=4))
    fta = made("fta-confidence")
    quiet, watched = (auditor(prepared, fta, vantages=(Vantage.CLIENT,)) for _ in range(2))
    for round in in_process(config(participation=1.0)):
        watched.observe(round)
        if not round.probe:
            quiet.observe(round)
        assert watched.last_round == round.index
    scores = [audit.case().scores.of(audit.outlooks.everyone, fta) for audit in (quiet, watched)]
    assert np.isfinite(scores[0]).all()
    assert np.array_equal(scores[0], scores[1])
