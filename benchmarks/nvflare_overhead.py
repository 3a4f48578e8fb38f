"""What an audit costs in NVIDIA FLARE, on the records, model and parties of `flower-overhead`.

The site: its filter in both chains, from the task that comes in to the result that leaves, for each audited record;
against one local epoch for each trained record. The server: recording a round from events against the round, in
processor time. In bytes: by how much a result grows on the wire, the memory that a site keeps on disk, and what the
server stores of a round, against the models in it.
"""

import copy
import itertools
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

from nvflare.apis.dxo import DXO, DataKind
from nvflare.apis.event_type import EventType
from nvflare.apis.filter import FilterChainType, FilterContextKey
from nvflare.apis.fl_constant import FLContextKey, ReservedKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.apis.workspace import Workspace
from nvflare.app_common.abstract.model import make_model_learnable
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.app_event_type import AppEventType
from nvflare.fuel.utils import fobs
from torch import nn

from benchmarks.flower_overhead import PARTIES, PARTY_GOAL, SERVER_GOAL, TIMES, Ward, moved
from benchmarks.measuring import Case, interleaved, verdict
from fedaudit.data.game_file import save_game
from fedaudit.federation.simulate import average
from fedaudit.integrations.nvflare import PartyFilter, ServerRecorder
from fedaudit.integrations.party import UNAUDITED
from fedaudit.types import State, Trained

NAME = "benchmarks.nvflare_overhead:model"
ward: Ward


def model() -> nn.Module:
    """As the filter's arguments name it."""
    return copy.deepcopy(ward.task._module)


def context(folder: Path, **props: Any) -> FLContext:
    made = FLContext()
    engine = SimpleNamespace(get_workspace=lambda: Workspace(str(folder), "site-1"))
    own = {ReservedKey.ENGINE: engine, ReservedKey.IDENTITY_NAME: "site-1", ReservedKey.RUN_NUM: "job"}
    for key, value in {**own, **props}.items():
        made.put(key, value, private=key not in own, sticky=False)
    return made


def shareable(state: State, step: int) -> Shareable:
    made = DXO(DataKind.WEIGHTS, data=dict(state)).to_shareable()
    made.set_header(AppConstants.CURRENT_ROUND, step - 1)
    made.set_header(AppConstants.NUM_ROUNDS, 1000)
    return made


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def run() -> dict[str, Any]:
    global ward
    ward = Ward()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for each in ("local", "startup"):
            (folder / each).mkdir()
        save_game(ward.game, folder / "local" / "game.npz")
        party, grown = _party(folder)
        kept = size(folder / "fedaudit")
        server, stored = _server(folder)
    whole = sum(value.nbytes for value in ward.start.values())
    detail = {
        "audited": len(ward.game.candidates),
        "trained": len(ward.members),
        "bytes more on the wire": grown,
        "bytes kept by a site": kept,
        "bytes stored for a round": stored,
        "of which are models": whole * (PARTIES + 2),
    }
    return verdict("nvflare-overhead", "lower", {"party": party, **server}, **detail)


def _around(result: Shareable) -> int:
    """What travels beside the arrays, in bytes. These are the same before and after."""
    return len(fobs.dumps({**result, "DXO": {**result["DXO"], "data": sorted(result["DXO"]["data"])}}))


def _party(folder: Path) -> tuple[Case, int]:
    filters = [PartyFilter(NAME, "game.npz"), PartyFilter(NAME, "game.npz")]
    for one, chain in zip(filters, (FilterChainType.TASK_DATA_CHAIN, FilterChainType.TASK_RESULT_CHAIN), strict=True):
        one.set_prop(FilterContextKey.CHAIN_TYPE, chain)
    numbers, grown = itertools.count(1), []

    def audit() -> None:
        step = next(numbers)
        fl_ctx = context(folder)
        filters[0].process(shareable(moved(ward.start, step), step), fl_ctx)
        result = shareable(moved(ward.trained, step), step)
        left = filters[1].process(result, fl_ctx)
        assert filters[1]._shelf.values(UNAUDITED) is None, filters[1]._shelf.values(UNAUDITED)
        if step == 1:
            grown.append(_around(left) - _around(shareable(moved(ward.trained, step), step)))

    case = interleaved(audit, ward.epoch, PARTY_GOAL)
    return replace(case, ratio=case.ratio * len(ward.members) / len(ward.game.candidates)), grown[0]


def _server(folder: Path) -> tuple[dict[str, Case], int]:
    recorder, pairs = ServerRecorder(str(folder / "run")), []
    recorder.handle_event(EventType.START_RUN, context(folder))
    sites = [f"site-{number}" for number in range(PARTIES)]

    def fire(event: str, site: str = "", **props: Any) -> None:
        fl_ctx = context(folder, **props)
        if site:
            fl_ctx.set_peer_context(context(folder, **{ReservedKey.IDENTITY_NAME: site}))
        recorder.handle_event(event, fl_ctx)

    for step in range(1, TIMES + 2):
        before, made = moved(ward.start, step - 1), moved(ward.start, step)
        results = {site: shareable(moved(ward.trained, step), step) for site in sites}
        begin = time.process_time()
        named = {FLContextKey.TASK_NAME: "train"}
        for site in sites:
            data = {FLContextKey.TASK_DATA: shareable(before, step)}
            fire(EventType.AFTER_TASK_DATA_FILTER, site, **named, **data)
        for site, result in results.items():
            result.add_cookie(AppConstants.CONTRIBUTION_ROUND, step - 1)
            fire(EventType.BEFORE_TASK_RESULT_FILTER, site, **named, **{FLContextKey.TASK_RESULT: result})
        learnt = make_model_learnable(dict(made), {})
        fire(AppEventType.AFTER_SHAREABLE_TO_LEARNABLE, **{AppConstants.GLOBAL_MODEL: learnt})
        assert recorder._recorder is not None
        recorder._recorder.settle()
        middle = time.process_time()
        for _ in range(PARTIES):
            ward.epoch()
        average({site: Trained(moved(ward.trained, step), len(ward.members), 1.0) for site in sites})
        pairs.append((middle - begin, time.process_time() - middle))
    pairs = pairs[1:]
    assert recorder.session.gaps == []
    seconds = median(a for a, _ in pairs), median(b for _, b in pairs)
    case = Case(median(a / b for a, b in pairs), SERVER_GOAL, seconds)
    return {"server, processor": case}, size(folder / "run" / "rounds") // (TIMES + 1)
