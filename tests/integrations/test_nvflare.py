"""NVIDIA FLARE: a filter at a site and a recorder at the server say what a Flower party and server are told."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("nvflare")

from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.event_type import EventType
from nvflare.apis.filter import FilterChainType, FilterContextKey
from nvflare.apis.fl_constant import FLContextKey, ReservedKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.workspace import Workspace
from nvflare.app_common.abstract.model import make_model_learnable
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.app_event_type import AppEventType

from fedaudit.integrations.nvflare import PartyFilter, ServerRecorder
from fedaudit.integrations.party import Admitted, OwnShelf, Seat, SelfAudit
from fedaudit.results import document as results
from fedaudit.trace.store import Store
from fedaudit.types import State, Vantage
from fedaudit.words import all_words
from tests.integrations.flare_world import write_job
from tests.integrations.worlds import equal, net, part, train

ROUNDS = 3
MODEL, GAME = "tests.integrations.worlds:net", "tests.integrations.flare_world:game"


def state(module: torch.nn.Module) -> dict[str, Any]:
    return {name: value.numpy().copy() for name, value in module.state_dict().items()}


def trained(before: State, party: str, seed: int) -> dict[str, Any]:
    module = net()
    module.load_state_dict({name: torch.from_numpy(value) for name, value in before.items()})
    train(module, part(party)[0], seed=seed)
    return state(module)


class Site:
    """One site, or the server, as NVIDIA FLARE's runner treats it: contexts, chains and events are its own."""

    def __init__(self, root: Path, name: str = "north", rounds: int = ROUNDS):
        for folder in ("startup", "local"):
            (root / folder).mkdir(parents=True, exist_ok=True)
        self.root, self.name, self.rounds = root, name, rounds
        self.engine = SimpleNamespace(get_workspace=lambda: Workspace(str(root), name))

    def context(self, **props: Any) -> FLContext:
        made = FLContext()
        made.put(ReservedKey.ENGINE, self.engine, private=True, sticky=False)
        for key, value in {ReservedKey.IDENTITY_NAME: self.name, ReservedKey.RUN_NUM: "job-1"}.items():
            made.put(key, value, private=False, sticky=False)
        for key, value in props.items():
            made.put(key, value, private=True, sticky=False)
        return made

    def task(self, index: int, model: State) -> Shareable:
        """NVIDIA FLARE counts from 0."""
        made = DXO(DataKind.WEIGHTS, data=dict(model)).to_shareable()
        made.set_header(AppConstants.CURRENT_ROUND, index - 1)
        made.set_header(AppConstants.NUM_ROUNDS, self.rounds)
        return made

    def pass_through(self, filters: list[PartyFilter], index: int, before: State, result: Shareable) -> Shareable:
        """A task comes in by one instance of the filter and its result leaves by another, as in privacy.json."""
        context = self.context()
        for one, chain in zip(
            filters, (FilterChainType.TASK_DATA_CHAIN, FilterChainType.TASK_RESULT_CHAIN), strict=True
        ):
            one.set_prop(FilterContextKey.CHAIN_TYPE, chain)
        filters[0].process(self.task(index, before), context)
        return filters[1].process(result, context)


def pair(**arguments: Any) -> list[PartyFilter]:
    given = {"model": MODEL, "game": GAME, "attacks": ["loss", "gradient-cosine"], **arguments}
    return [PartyFilter(**given), PartyFilter(**given)]


def rounds_of(party: str) -> list[tuple[State, State]]:
    """What arrives and what leaves, in each round of a training alone."""
    torch.manual_seed(0)
    made: list[tuple[State, State]] = []
    model = state(net())
    for index in range(1, ROUNDS + 1):
        after = trained(model, party, index)
        made.append((model, after))
        model = after
    return made


def as_dxo(kind: str, before: State, after: State) -> Shareable:
    data = dict(after) if kind == DataKind.WEIGHTS else {name: value - before[name] for name, value in after.items()}
    return DXO(kind, data=data).to_shareable()


def figures(folder: Path) -> dict[tuple[str, str, str | None], dict[str, float | None]]:
    found = results.load(folder).results
    return {(one.attack, one.model, one.party): {k: e.value for k, e in one.estimates.items()} for one in found}


def expected(folder: Path, exchanged: list[tuple[State, State]]) -> Any:
    """The same rounds by the audit that all hosts share, with nothing of NVIDIA FLARE around it."""
    import logging

    audit = SelfAudit(net, logging.getLogger("tests"), rounds=ROUNDS, attacks=["loss", "gradient-cosine"])
    shelf = OwnShelf()
    for index, (before, after) in enumerate(exchanged, start=1):
        seat = Seat(
            run="run", node="1", shelf=shelf, game=lambda: part("north")[1], home=folder / "home", folder=folder
        )
        admitted = audit.admit(seat, Vantage.SERVER, index, lambda watch, before=before: before)  # type: ignore[misc]
        assert isinstance(admitted, Admitted)
        assert audit.release(seat, admitted, index, lambda watch, after=after: after, elapsed=1.0) is None  # type: ignore[misc]
    return figures(folder / "north")


def test_a_filter_finds_in_weights_and_in_changes_what_the_shared_audit_finds(tmp_path: Path) -> None:
    exchanged = rounds_of("north")
    plain = expected(tmp_path / "plain", exchanged)
    for kind in (DataKind.WEIGHTS, DataKind.WEIGHT_DIFF):
        site = Site(tmp_path / kind)
        filters = pair(out=str(tmp_path / kind / "audit"))
        for index, (before, after) in enumerate(exchanged, start=1):
            sent = as_dxo(kind, before, after)
            left = from_shareable(site.pass_through(filters, index, before, sent))
            assert left.data_kind == kind
            assert equal(left.data, from_shareable(as_dxo(kind, before, after)).data)
        found = figures(tmp_path / kind / "audit" / "north")
        # before + (after - before) is not after, to the last bit
        close = 0.0 if kind == DataKind.WEIGHTS else 2e-3
        assert found.keys() == plain.keys()
        for key, values in found.items():
            assert values == pytest.approx(plain[key], abs=close, nan_ok=True), key
        assert results.load(tmp_path / kind / "audit" / "north").run.rounds == ROUNDS


def test_a_site_that_halts_sends_no_array_ever_again_and_raises_nothing(tmp_path: Path) -> None:
    exchanged, site = rounds_of("north"), Site(tmp_path)
    filters = pair(halt_if="auc > 0.2", out=str(tmp_path / "audit"))
    left = []
    for index, (before, after) in enumerate(exchanged, start=1):
        if index == ROUNDS:  # the process of the job was restarted
            filters = pair(halt_if="auc > 0.2", out=str(tmp_path / "audit"))
        left.append(site.pass_through(filters, index, before, as_dxo(DataKind.WEIGHTS, before, after)))
    assert [from_shareable(one).data for one in left] == [{}, {}, {}]
    assert {one.get_return_code() for one in left} == {ReturnCode.OK}
    (withheld,) = results.load(tmp_path / "audit" / "north").run.withheld
    assert (withheld.round, withheld.onwards, withheld.rule) == (1, True, "auc > 0.2")


@pytest.mark.parametrize("strict", [False, True])
def test_what_cannot_be_audited_leaves_unless_the_site_is_strict(tmp_path: Path, strict: bool) -> None:
    (before, after), site = rounds_of("north")[0], Site(tmp_path)
    weights = as_dxo(DataKind.WEIGHTS, before, after)

    def left(result: Shareable, filters: list[PartyFilter] | None = None) -> Any:
        return site.pass_through(filters or pair(strict=strict), 1, before, result)

    other = DXO(DataKind.WEIGHTS, data={"other": np.zeros(3)}).to_shareable()
    assert bool(from_shareable(left(other)).data) is not strict
    nobody = pair(strict=strict, game="nowhere.npz")
    assert bool(from_shareable(left(weights, nobody)).data) is not strict
    hidden = DXO(DataKind.APP_DEFINED, data={"weights": after}).to_shareable()
    assert bool(from_shareable(left(hidden)).data) is not strict
    raw = make_reply(ReturnCode.OK)
    raw["weights"] = after
    assert ("weights" in left(raw)) is not strict
    alone = pair(strict=strict)[1]  # not in the chain of task data
    alone.set_prop(FilterContextKey.CHAIN_TYPE, FilterChainType.TASK_RESULT_CHAIN)
    assert bool(from_shareable(alone.process(weights, site.context())).data) is not strict
    metrics = DXO(DataKind.METRICS, data={"accuracy": 0.5}).to_shareable()
    assert from_shareable(left(metrics)).data == {"accuracy": 0.5}
    failed = make_reply(ReturnCode.EXECUTION_EXCEPTION)
    assert left(failed).get_return_code() == ReturnCode.EXECUTION_EXCEPTION


def beside_weights(after: State) -> Shareable:
    made = DXO(DataKind.WEIGHTS, data=dict(after)).to_shareable()
    made["__records__"] = np.ones(100)
    return made


def in_header(after: State) -> Shareable:
    made = DXO(DataKind.METRICS, data={"accuracy": 0.5}).to_shareable()
    made.set_header("records", [np.ones(100)])
    return made


def inside_dxo(after: State) -> Shareable:
    made = DXO(DataKind.WEIGHTS, data=dict(after)).to_shareable()
    made["DXO"]["records"] = np.ones(100)
    return made


@dataclass
class Note:
    """A type of somebody's own, which NVIDIA FLARE passes on if it is registered."""

    text: str


class Named(str):
    """Text that carries more than its characters."""


HIDDEN: dict[str, Callable[[State], Shareable]] = {
    "metrics": lambda after: DXO(DataKind.METRICS, data={"x": {"y": [dict(after)]}}).to_shareable(),
    "tensors": lambda after: DXO(DataKind.ANALYTIC, data={"x": torch.ones(100)}).to_shareable(),
    "bytes": lambda after: DXO(DataKind.STATISTICS, data={"x": np.ones(100).tobytes()}).to_shareable(),
    "meta": lambda after: DXO(DataKind.METRICS, data={"x": 0.5}, meta={"y": np.ones(100)}).to_shareable(),
    "list": lambda after: DXO(DataKind.METRICS, data={"x": np.ones(200).tolist()}).to_shareable(),
    "text": lambda after: DXO(DataKind.WEIGHTS, data=dict(after), meta={"x": "r" * 2000}).to_shareable(),
    "whole number": lambda after: DXO(DataKind.PSI, data={"x": 2**20_000}).to_shareable(),
    "an object": lambda after: DXO(DataKind.METRICS, data={"x": Note("r" * 2000)}).to_shareable(),
    "an object in meta": lambda after: DXO(DataKind.WEIGHTS, data=dict(after), meta={"x": [Note("r")]}).to_shareable(),
    "raw numpy": lambda after: DXO(DataKind.METRICS, data={"x": np.void(b"r" * 2000)}).to_shareable(),
    "a subclass": lambda after: DXO(DataKind.METRICS, data={Named("x"): 1.0}).to_shareable(),
    "beside": beside_weights,
    "inside": inside_dxo,
    "header": in_header,
    "collection": lambda after: DXO(
        DataKind.COLLECTION,
        data={
            "model": DXO(DataKind.WEIGHTS, data=dict(after)),
            "records": DXO(DataKind.APP_DEFINED, data={"x": np.ones(100)}),
        },
    ).to_shareable(),
    "no dxo": lambda after: DXO(
        DataKind.COLLECTION, data={"model": DXO(DataKind.WEIGHTS, data=dict(after)), "records": np.ones(100)}
    ).to_shareable(),
}


@pytest.mark.parametrize("where", HIDDEN)
def test_a_strict_site_sends_known_kinds_alone_and_nothing_beside_them(tmp_path: Path, where: str) -> None:
    (before, after), site = rounds_of("north")[0], Site(tmp_path)
    left = site.pass_through(pair(strict=True), 1, before, HIDDEN[where](after))
    assert from_shareable(left).data == {}
    assert set(left) == {"__headers__", "DXO"}
    assert "records" not in left["__headers__"]
    numbers = DXO(DataKind.METRICS, data={"accuracy": np.float32(0.5), "losses": [1.0, 0.5]}).to_shareable()
    assert from_shareable(site.pass_through(pair(strict=True), 1, before, numbers)).data["losses"] == [1.0, 0.5]


@pytest.mark.parametrize("asked", [{"strict": True}, {"halt_if": "auc > 0.2"}, {"incoming": "refuse"}])
def test_a_reply_that_failed_carries_no_weights(tmp_path: Path, asked: dict[str, Any]) -> None:
    (before, after), site = rounds_of("north")[0], Site(tmp_path)
    for code, told in ((ReturnCode.EXECUTION_EXCEPTION,) * 2, ("record 17", ReturnCode.ERROR)):
        failed = as_dxo(DataKind.WEIGHTS, before, after)
        failed.set_return_code(code)
        left = site.pass_through(pair(**asked), 1, before, failed)
        assert (left.get_return_code(), set(left)) == (told, {"__headers__"})


@pytest.mark.parametrize("asked", [{"halt_if": "auc > 0.2"}, {"incoming": "refuse"}, {}])
def test_a_site_that_asked_for_protection_sends_nothing_if_its_filter_fails(
    tmp_path: Path, asked: dict[str, Any]
) -> None:
    (before, after), site = rounds_of("north")[0], Site(tmp_path)
    site.engine = SimpleNamespace(get_workspace=None)
    left = site.pass_through(pair(**asked), 1, before, as_dxo(DataKind.WEIGHTS, before, after))
    assert bool(from_shareable(left).data) is not bool(asked)


# ------------------------------------------------------------------ the server


def recorder_and_fire(root: Path, **arguments: Any) -> tuple[ServerRecorder, Callable[..., None]]:
    site = Site(root, "server")
    recorder = ServerRecorder(out=str(root / "run"), **arguments)

    def fire(event: str, peer: str = "", **props: Any) -> None:
        context = site.context(**props)
        if peer:
            context.set_peer_context(Site(root, peer).context())
        recorder.handle_event(event, context)

    fire(EventType.START_RUN)
    return recorder, fire


def answered(result: Shareable, index: int) -> Shareable:
    result.add_cookie(AppConstants.CONTRIBUTION_ROUND, index - 1)
    return result


def test_events_become_rounds_and_what_is_missing_is_said(tmp_path: Path) -> None:
    recorder, fire = recorder_and_fire(tmp_path, parties={"site-2": "south"})
    torch.manual_seed(0)
    model = state(net())
    seen = []
    for index in range(1, ROUNDS + 1):
        updates = {"north": trained(model, "north", index), "south": trained(model, "south", index)}
        for site in ("north", "site-2"):
            task = Site(tmp_path).task(index, model)
            fire(
                EventType.AFTER_TASK_DATA_FILTER,
                site,
                **{FLContextKey.TASK_NAME: "train", FLContextKey.TASK_DATA: task},
            )
        for site, party in (("site-2", "south"), ("north", "north")):
            if (index, site) == (2, "site-2"):  # withholds its update
                result = DXO(DataKind.WEIGHT_DIFF, data={}).to_shareable()
            elif (index, site) == (3, "north"):  # is lost
                fire(EventType.CLIENT_DISCONNECTED, **{FLContextKey.DISCONNECTED_CLIENT_NAME: "north"})
                continue
            else:
                result = as_dxo(DataKind.WEIGHT_DIFF, model, updates[party])
            props = {FLContextKey.TASK_NAME: "train", FLContextKey.TASK_RESULT: answered(result, index)}
            fire(EventType.BEFORE_TASK_RESULT_FILTER, site, **props)
        seen.append((model, updates))
        model = {name: (updates["north"][name] + updates["south"][name]) / 2 for name in model}
        learnt = make_model_learnable(model, {})
        fire(AppEventType.AFTER_SHAREABLE_TO_LEARNABLE, **{AppConstants.GLOBAL_MODEL: learnt})
    late = answered(as_dxo(DataKind.WEIGHT_DIFF, *([seen[2][0]] * 2)), 1)
    task = Site(tmp_path).task(ROUNDS + 1, model)
    fire(EventType.AFTER_TASK_DATA_FILTER, "north", **{FLContextKey.TASK_NAME: "train", FLContextKey.TASK_DATA: task})
    fire(
        EventType.BEFORE_TASK_RESULT_FILTER,
        "north",
        **{FLContextKey.TASK_NAME: "train", FLContextKey.TASK_RESULT: late},
    )
    fire(EventType.END_RUN)
    said = ["late-reply", "parties-failed", "parties-silent", "round-unfinished"]
    assert sorted(one.code for one in recorder.session.gaps) == said
    store = Store.read(tmp_path / "run")
    recorded = [store.round(entry) for entry in store.entries()]
    assert [sorted(one.sent) for one in recorded] == [["north", "south"], ["north"], ["south"]]
    for one, (before, updates) in zip(recorded, seen, strict=True):
        assert equal(one.broadcast, before)
        for party, sent in one.sent.items():
            assert all(np.allclose(sent.state[k], v, atol=1e-6) for k, v in updates[party].items())
    assert equal(recorded[-1].aggregate, model)


def test_wrong_use_is_said_in_log_and_report_and_nothing_stops(tmp_path: Path) -> None:
    _, fire = recorder_and_fire(tmp_path, model="nowhere:net", games=["game.npz"], rounds=2)
    task = Site(tmp_path).task(1, state(net()))
    fire(EventType.AFTER_TASK_DATA_FILTER, "north", **{FLContextKey.TASK_NAME: "train", FLContextKey.TASK_DATA: task})
    fire(EventType.END_RUN)
    assert results.load(tmp_path / "run").run.ending == "not-audited"


# ------------------------------------------------------------------ a whole job


def test_the_simulator_runs_the_example_and_both_sides_find_the_same(tmp_path: Path) -> None:
    out, attacks = tmp_path / "out", ["loss", "gradient-cosine"]
    recorder = {
        "out": str(out / "server"),
        "model": "digits:net",
        "games": ["digits:games"],
        "rounds": ROUNDS,
        "options": {"attacks": attacks},
    }
    job = write_job(tmp_path / "job", recorder, {"out": str(out), "attacks": attacks, "strict": True})
    command = ["-m", "nvflare.cli", "simulator", str(job), "-w", str(tmp_path / "work"), "-c", "site-1,site-2", "-t2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *command], env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    server = results.load(out / "server")
    assert (server.run.ending, server.run.rounds) == ("complete", ROUNDS), all_words(server.warnings)
    ours = figures(out / "server")
    for party in ("site-1", "site-2"):
        assert results.load(out / party).run.rounds == ROUNDS
        mine = {key: values for key, values in figures(out / party).items() if key[1:] == ("local", party)}
        assert {key[0] for key in mine} == {*attacks}
        for key, values in mine.items():
            assert values["auc"] == pytest.approx(ours[key]["auc"], abs=2e-3)
