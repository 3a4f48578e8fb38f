"""One question, whoever asks it: run, replay, loop and Flower come to the same settings and the same refusals."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flwr.serverapp.strategy import FedAvg

import fedaudit
from fedaudit.audit import Auditor, Settings, patience
from fedaudit.audit.settings import Legend, Most
from fedaudit.config.schema import Config, parse
from fedaudit.errors import FedauditError
from fedaudit.integrations.flower import PartyAudit, record_strategy
from fedaudit.session import assemble
from fedaudit.session.prepare import Prepared, prepare
from fedaudit.session.replay import replay
from fedaudit.session.run import run
from fedaudit.session.session import Session
from fedaudit.types import Game
from fedaudit.words import all_words
from tests.integrations.flower_world import LocalGrid, client_app, initial
from tests.integrations.worlds import PARTIES, net, part
from tests.worlds import config, silent

ROUNDS, SEED = 3, 4
# Beside another training it is not known whether parties use Adam.
FEDERATION: dict[str, Any] = {"parties": 4, "rounds": ROUNDS, "seed": SEED, "optimizer": "sgd"}
FEW = FEDERATION | {"members": 0.48, "nonmembers": 0.48}  # so few calibrate that no whitening can be fitted
# Every step leaves its mark in the settings.
NAMED: dict[str, Any] = {
    "vantages": ["client", "server", "label-only-client"],
    "attacks": ["loss", "matched-filter", "fusion", "tear"],
    "matched": {"fit": "nonmembers", "damping": 0.5},
    "fusion": {"weights": [2, 1]},
    "tear": {"queries": 300, "own": 60},
    "fpr": [0.2],
    "confidence": 0.9,
}
MARKS = ("Left out at label-only-client", "The search for decision boundaries", "matched-filter is the plain cosine")
DEFAULT: dict[str, Any] = {"confidence": 0.9}  # on a regression, for which many of the default attacks are unfit

Made = list[tuple[Game, Settings]]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Made:
    """The games and settings of all audits that are begun, in order."""
    found: Made = []
    begin = Auditor.__init__

    def begun(auditor: Auditor, task: Any, game: Game, settings: Settings) -> None:
        begin(auditor, task, game, settings)
        found.append((game, settings))

    monkeypatch.setattr(Auditor, "__init__", begun)
    monkeypatch.setattr(assemble, "speed", lambda *_: 1e4)
    return found


def comparable(settings: Settings) -> Settings:
    """Only whoever trains the parties can train references like them, asks about updates unasked, and waits for the
    audit; only whoever reads the data set knows what its classes are called."""
    asked = {name: one for name, one in settings.asked.items() if name != "update"}
    return replace(settings, references=None, asked=asked, legend=Legend(), most=Most())


def close(session: Session) -> None:
    assert session.trace is not None
    session.trace.store.close()


def by_loop(prepared: Prepared, out: Path, asked: dict[str, Any]) -> None:
    close(fedaudit.record(prepared.task, prepared.game, out=out, rounds=ROUNDS, seed=SEED, **asked).session)


def by_flower(prepared: Prepared, out: Path, asked: dict[str, Any]) -> None:
    given = asked | {"seed": SEED, "strict": True}
    close(record_strategy(FedAvg(), out=out, rounds=ROUNDS, model=prepared.task, game=prepared.game, **given).session)


BESIDE = pytest.mark.parametrize("ask", [by_loop, by_flower])
Ask = Callable[[Prepared, Path, dict[str, Any]], None]


@BESIDE
@pytest.mark.parametrize(
    ("data", "federation", "asked", "marks"),
    [
        ("digits", FEW, NAMED, MARKS),
        ("diabetes", FEDERATION, DEFAULT, ("Left out (the task is a regression",)),
    ],
)
def test_beside_another_training_settings_are_those_of_a_run(
    ask: Ask,
    data: str,
    federation: dict[str, Any],
    asked: dict[str, Any],
    marks: tuple[str, ...],
    made: Made,
    tmp_path: Path,
) -> None:
    prepared = prepare(config(data={"name": data}, federation=federation, audit=asked))
    for mark in marks:
        assert any(line.startswith(mark) for line in all_words(prepared.settings.notices)), all_words(
            prepared.settings.notices
        )
    ask(prepared, tmp_path, asked)
    (_, ours), (_, others) = made
    assert comparable(others) == comparable(ours)


def test_what_was_recorded_is_asked_again_with_the_settings_of_a_run(made: Made, tmp_path: Path) -> None:
    settings = config(federation=FEW, audit=NAMED)
    few = config(federation=FEW, audit=NAMED | {"attacks": ["gap", "loss"], "keep": "snapshots"})
    run(few, tmp_path / "run", silent, tell=lambda _: None)
    ours = prepare(settings).settings
    replay(tmp_path / "run", NAMED["attacks"], tmp_path / "again", silent)
    assert comparable(made[-1][1]) == comparable(ours)


def test_a_party_asks_as_a_loop_about_its_own_records_does(made: Made, tmp_path: Path) -> None:
    asked: dict[str, Any] = {"attacks": ["loss", "matched-filter", "fusion"], "fpr": [0.05], "seed": SEED}
    close(fedaudit.record(net, part("north")[1], out=tmp_path, rounds=ROUNDS, vantages=["server"], **asked).session)
    audit = PartyAudit(
        net, lambda context: part(PARTIES[int(context.node_config["partition-id"])])[1], rounds=ROUNDS, **asked
    )
    grid = LocalGrid(client_app([audit]))
    FedAvg(fraction_evaluate=0.0, min_available_nodes=2).start(grid=grid, initial_arrays=initial(), num_rounds=1)
    of_loop, of_party = (settings for game, settings in made if game.parties == ["north"])
    assert of_party == replace(of_loop, told_outcome=False)  # the one thing that a party never sees


@BESIDE
@pytest.mark.parametrize(
    ("asked", "code"), [("subject-loss", "attack-unit"), ("gap", "vantage"), ("losss", "unknown-attack")]
)
def test_what_a_run_refuses_is_refused_everywhere(ask: Ask, asked: str, code: str, tmp_path: Path) -> None:
    few = config(federation={"rounds": 2}, audit={"attacks": ["loss"], "keep": "snapshots"})
    run(few, tmp_path / "run", silent, tell=lambda _: None)
    prepared = prepare(few)
    ways: list[Callable[[], Any]] = [
        lambda: prepare(config(audit={"attacks": [asked]})),
        lambda: replay(tmp_path / "run", [asked], tmp_path / "again", silent),
        lambda: ask(prepared, tmp_path / "beside", {"attacks": [asked]}),
    ]
    for way in ways:
        with pytest.raises(FedauditError) as refused:
            way()
        assert refused.value.code == code


CLIPPED: dict[str, Any] = {"defences": [{"name": "dp-fedavg", "clip": 0.1, "noise": 0.1}]}


def clipped(*attacks: str) -> Config:
    audit: dict[str, Any] = {"attacks": [*attacks], "vantages": ["secagg-server"]}
    if "canife" in attacks:
        audit["canary"] = {"pool": 8, "steps": 5, "probes": 16, "every": 2}
    return parse(config(federation={"rounds": 2}, audit=audit).as_dict() | CLIPPED)


@pytest.mark.parametrize("name", ["canife", "one-shot"])
def test_a_run_without_canaries_is_not_asked_about_them(name: str, tmp_path: Path) -> None:
    run(clipped("loss"), tmp_path / "run", silent, tell=lambda _: None)
    with pytest.raises(FedauditError, match=rf"{name} adds parties .* trained without them") as refused:
        replay(tmp_path / "run", [name], tmp_path / "again", silent)
    assert refused.value.code == "not-kept"


def test_a_run_with_canaries_is_asked_about_them_or_about_records(tmp_path: Path) -> None:
    run(clipped("one-shot"), tmp_path / "run", silent, tell=lambda _: None)
    run(clipped("one-shot", "canife", "loss"), tmp_path / "both", silent, tell=lambda _: None)
    for folder, names, found in (
        ("run", [], "one-shot"),
        ("both", ["one-shot"], "one-shot"),
        ("both", ["loss"], "loss"),
    ):
        again = replay(tmp_path / folder, names, tmp_path / f"{folder}-{found}", silent)
        told = [*(result.attack for result in again.results), *(failure.attack for failure in again.failed)]
        assert set(told) - {"blind"} == {found}


def test_the_patience_of_one_audit_is_not_that_of_the_next(tmp_path: Path) -> None:
    prepared = prepare(config(audit={"attacks": ["loss"], "patience": 5.0}))
    assert patience.limit() == 5.0
    by_loop(prepared, tmp_path, {"attacks": ["loss"]})
    assert patience.limit() == patience.SECONDS
