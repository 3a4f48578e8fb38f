"""NVIDIA FLARE, both sides: a filter for what leaves a site, and a recorder for the server.

`PartyFilter` is what a Flower mod is there: the model that is about to leave is audited as the server could attack it,
and so is the global model as it arrived. It belongs into *both* chains of a site, because the model that arrived comes
through the chain of task data. Owned by the site (`local/privacy.json`) it runs before the filters of any job, and no
job can opt out of it; in a job (`config_fed_client.json`) it is the researcher's.

`ServerRecorder` is a component of a job's server. It listens to events, and changes nothing.

Rounds are counted from 0 in NVIDIA FLARE and from 1 here. A site that withholds its update answers with no arrays at
all: an exception in a filter would end the job for everybody. Arguments are plain values, as they stand in JSON:

    {"path": "fedaudit.integrations.nvflare.PartyFilter",
     "args": {"model": "ward.model:net", "game": "game.npz", "halt_if": "tpr@0.01 > 0.05", "out": "/var/audits"}}
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
from nvflare.apis.dxo import DXO, DataKind, MetaKey, from_shareable
from nvflare.apis.dxo_filter import DXOFilter
from nvflare.apis.event_type import EventType
from nvflare.apis.filter import FilterChainType, FilterContextKey
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import ReservedHeaderKey, Shareable, make_reply
from nvflare.app_common.abstract.model import ModelLearnableKey
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.app_event_type import AppEventType

from fedaudit.config.code import found_in, imported
from fedaudit.data.game_file import load_game
from fedaudit.errors import FedauditError
from fedaudit.integrations.claims import ledger_of_svt, of_svt, write_claim
from fedaudit.integrations.options import AuditOptions, PartyOptions, audited, open_session
from fedaudit.integrations.outgoing import Sends
from fedaudit.integrations.party import OwnShelf, Reaction, Refused, Seat, SelfAudit, Watch
from fedaudit.integrations.plain import numpy_state
from fedaudit.integrations.recorder import Recorder, Reply
from fedaudit.session.session import Session
from fedaudit.types import Game, State, Vantage, gap, notice

log = logging.getLogger("fedaudit.nvflare")

WEIGHTS = (DataKind.WEIGHTS, DataKind.WEIGHT_DIFF)
HARMLESS = (DataKind.METRICS, DataKind.ANALYTIC, DataKind.STATISTICS, DataKind.PSI)  # results that are no model
CODES = {value for name, value in vars(ReturnCode).items() if not name.startswith("_")}
RECEIVED = "fedaudit.received"  # in the context of a task: the model that came with it


@dataclass(frozen=True)
class Arrived:
    """What a task brought. `round`: from 1 on; 0 if the task does not say."""

    round: int
    rounds: int | None
    model: Mapping[str, Any] | None
    clock: float


# ------------------------------------------------------------------ a site


class PartyFilter(DXOFilter):  # type: ignore[misc]
    """`model`: "package.module:factory". `game`: a file (`fedaudit.data.game_file.save_game`), or
    "package.module:function" of the site's name; `{site}` in it stands for that name. Relative paths, and modules, are
    looked for in the site's folder `local`. Without `out` the audit only logs, and keeps its memory in the site's
    workspace. `incoming`: what is done about a model that looks prepared to give single records away: ignore, warn or
    refuse (what was trained from it is then not sent). `beside`: how many bytes may leave with a model, or in a result
    that is none, if `strict`. The other arguments are those of `PartyOptions`."""

    def __init__(
        self,
        model: str,
        game: str,
        *,
        rounds: int | None = None,
        halt_if: str | None = None,
        warn_if: str | None = None,
        incoming: Reaction = "warn",
        out: str | None = None,
        attacks: list[Any] | None = None,
        fpr: list[float] | None = None,
        confidence: float = 0.95,
        seed: int = 0,
        local_epochs: int = 1,
        max_cost: float | None = None,
        strict: bool = False,
        beside: int = 1024,
    ):
        super().__init__(supported_data_kinds=None, data_kinds_to_filter=None)
        # NVIDIA FLARE writes a job from the attributes that are named like arguments.
        self.model, self.game, self.out, self.rounds = model, game, out, rounds
        self.halt_if, self.warn_if, self.incoming = halt_if, warn_if, incoming
        self.strict, self.beside = strict, beside
        self.attacks, self.fpr, self.confidence, self.seed = attacks, fpr, confidence, seed
        self.local_epochs, self.max_cost = local_epochs, max_cost
        self._audit: SelfAudit | None = None
        self._shelf = OwnShelf()
        self._game: Game | None = None  # read once in a job

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """Never raises: that would end the job for everybody."""
        if self.get_prop(FilterContextKey.CHAIN_TYPE) == FilterChainType.TASK_DATA_CHAIN:
            fl_ctx.set_prop(RECEIVED, arrived(shareable), private=True, sticky=False)
            return shareable
        try:
            return self._leaving(shareable, fl_ctx)
        except Exception as error:
            log.error("fedaudit: a result could not be looked at", exc_info=error)
        return nothing(DataKind.WEIGHTS) if self._protects else shareable

    @property
    def _protects(self) -> bool:
        """Did the site ask that something does not leave? Then a fault of the filter sends nothing."""
        return self.strict or self.halt_if is not None or self.incoming == "refuse"

    def _leaving(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        code = shareable.get_return_code()
        if code != ReturnCode.OK:  # the base class would not look at what comes with it
            return make_reply(code if code in CODES else ReturnCode.ERROR) if self._protects else shareable
        if self.strict and (why := _unauditable(shareable, self.beside)):
            log.error("fedaudit: a result with %s cannot be audited: it is withheld", why)
            return nothing(DataKind.WEIGHTS)
        found = _leaves(from_shareable(shareable)) if _is_dxo(shareable) else []
        return super().process(shareable, fl_ctx) if any(one.data_kind in WEIGHTS for one in found) else shareable

    def process_dxo(self, dxo: DXO, shareable: Shareable, fl_ctx: FLContext) -> DXO | None:
        if dxo.data_kind not in WEIGHTS:
            return None
        refused = self._refusal(dxo, fl_ctx)
        return None if refused is None else DXO(dxo.data_kind, data={})

    def _refusal(self, dxo: DXO, fl_ctx: FLContext) -> Refused | None:
        came: Arrived = fl_ctx.get_prop(RECEIVED) or Arrived(0, None, None, time.perf_counter())
        local = Path(fl_ctx.get_engine().get_workspace().get_site_config_dir())
        found_in(str(local))
        if self._audit is None:
            options = PartyOptions(
                attacks=self.attacks,
                fpr=self.fpr,
                confidence=self.confidence,
                seed=self.seed,
                local_epochs=self.local_epochs,
                max_cost=self.max_cost,
                strict=self.strict,
            )
            limits = {"halt_if": self.halt_if, "warn_if": self.warn_if}
            self._audit = SelfAudit(self.model, log, rounds=self.rounds, incoming=self.incoming, **limits, **options)
        site = str(fl_ctx.get_identity_name())
        seat = Seat(
            run=str(fl_ctx.get_job_id()),
            node=site,
            shelf=self._shelf,
            game=partial(self._own_game, site, local),
            home=Path(fl_ctx.get_engine().get_workspace().get_root_dir()) / "fedaudit",
            folder=None if self.out is None else local / self.out,
            rounds=came.rounds,
        )
        admitted = self._audit.admit(seat, Vantage.SERVER, came.round, lambda watch: _received(came, watch))
        if admitted is None or isinstance(admitted, Refused):
            return admitted
        index = came.round or admitted.watch.session.last + 1

        def leaves(watch: Watch) -> State:
            return watch.matched(numpy_state(dxo.data), f"round {index}")

        sends: Sends = "changes" if dxo.data_kind == DataKind.WEIGHT_DIFF else "weights"
        elapsed = time.perf_counter() - came.clock
        return self._audit.release(seat, admitted, index, leaves, sends=sends, elapsed=elapsed)

    def _own_game(self, site: str, local: Path) -> Game:
        if self._game is None:
            self._game = game_of(self.game, site, local)
        return self._game


def game_of(name: str, site: str, local: Path) -> Game:
    """By a file, or by a function of the site's name."""
    name = name.replace("{site}", site)
    if ":" in name and not (local / name).exists():
        return cast(Game, imported(name, "game-import")(site))
    return load_game(local / name)


def games_of(names: list[str], local: Path) -> list[Game]:
    """Of all parties: by files, or by functions that return one or several."""
    found: list[Game] = []
    for name in names:
        is_code = ":" in name and not (local / name).exists()
        made = imported(name, "game-import")() if is_code else load_game(local / name)
        found += [made] if isinstance(made, Game) else made
    return found


def arrived(shareable: Shareable) -> Arrived:
    """Of a task, as it came to a site or leaves the server."""
    round, rounds = (shareable.get_header(key) for key in (AppConstants.CURRENT_ROUND, AppConstants.NUM_ROUNDS))
    found = _leaves(from_shareable(shareable)) if _is_dxo(shareable) else []
    models = [dict(one.data) for one in found if one.data_kind == DataKind.WEIGHTS and one.data]
    return Arrived(0 if round is None else round + 1, rounds, models[0] if models else None, time.perf_counter())


def nothing(kind: str) -> Shareable:
    """In place of an update: FedAvg and the aggregators skip it."""
    return DXO(kind, data={}).update_shareable(make_reply(ReturnCode.OK))


def _received(came: Arrived, watch: Watch) -> State:
    if came.model is None:
        what = "the model that this round started from was not seen"
        raise FedauditError("no-broadcast", what, "Put the filter into the chain of task data, too.")
    return watch.matched(numpy_state(came.model), f"round {came.round}, the task")


def _is_dxo(shareable: Shareable) -> bool:
    with suppress(ValueError):
        from_shareable(shareable)
        return True
    return False


def _unauditable(shareable: Shareable, beside: int) -> str:
    """What a result holds that no audit sees; "" if there is nothing."""
    if any(value is not None for key, value in shareable.items() if key not in (ReservedHeaderKey.HEADERS, "DXO")):
        return "content beside its DXO"
    headers = shareable.get(ReservedHeaderKey.HEADERS) or {}
    if kind := _stranger(headers):
        return f"{kind} in its headers"
    size = _size(headers)
    if _is_dxo(shareable):
        dxo = from_shareable(shareable)
        if shareable["DXO"].keys() - dxo.to_dict().keys():
            return "content in its DXO that NVIDIA FLARE does not read"
        if why := _unknown(dxo):
            return why
        size += sum(_size(one.meta) + (0 if one.data_kind in WEIGHTS else _size(one.data)) for one in _leaves(dxo))
    elif shareable.get("DXO"):
        return "content that is no DXO"
    return f"{size} bytes beside a model, of which {beside} may leave," if size > beside else ""


def _size(value: Any) -> int:
    """In bytes: names and text, and eight for every number, however deep. Of what `_stranger` knows."""
    if isinstance(value, dict):
        return sum(_size(one) for pair in value.items() for one in pair)
    if isinstance(value, list | tuple | set | frozenset):
        return sum(map(_size, value))
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, bytes | bytearray):
        return len(value)
    if isinstance(value, int):  # of any length
        return max(8, value.bit_length() // 8)
    return 0 if value is None else 8


def _unknown(dxo: Any) -> str:
    if not isinstance(dxo, DXO):
        return "a collection that holds more than DXOs"
    if kind := _stranger(dxo.meta):
        return f"{kind} in its meta"
    if dxo.data_kind == DataKind.COLLECTION:
        return next(filter(None, map(_unknown, dxo.data.values())), "")
    if dxo.data_kind in WEIGHTS:
        return ""
    if dxo.data_kind not in HARMLESS:
        return f"data of kind {dxo.data_kind}"
    # The messages of a private set intersection are bytes.
    kind = _stranger(dxo.data, (bytes, bytearray) if dxo.data_kind == DataKind.PSI else ())
    return f"{kind} in {dxo.data_kind}" if kind else ""


PLAIN = (type(None), bool, int, float, str)


def _stranger(value: Any, also: tuple[type, ...] = ()) -> str:
    """The type of something that is neither number nor text, if there is one, however deep. Types are named one by one,
    without their subclasses, and what nobody thought of is a stranger: nobody could say how much it carries."""
    kind = type(value)
    if kind in (dict, list, tuple, set, frozenset):
        inner = [one for pair in value.items() for one in pair] if kind is dict else value
        return next(filter(None, (_stranger(one, also) for one in inner)), "")
    known = kind in (*PLAIN, *also) or isinstance(value, np.number | np.bool_)
    return "" if known else kind.__name__


def _leaves(dxo: DXO) -> list[DXO]:
    """All of a collection, however deep; or the one that it is."""
    if dxo.data_kind != DataKind.COLLECTION:
        return [dxo]
    inner = dxo.data.values() if isinstance(dxo.data, dict) else dxo.data
    return [leaf for one in inner if isinstance(one, DXO) for leaf in _leaves(one)]


# ------------------------------------------------------------------ the server


@dataclass
class Underway:
    """A round that has begun."""

    index: int
    broadcast: Mapping[str, Any]
    clock: float
    asked: set[str] = field(default_factory=set)
    replies: list[Reply] = field(default_factory=list)


class ServerRecorder(FLComponent):  # type: ignore[misc]
    """Records every round into `out`; with `model` and `games` it is audited, too.

    `games`: files, or "package.module:function" that returns the games of all parties. `parties` maps names of sites to
    those that the parties have in their games, where they differ. `task`: by which name sites are asked to train.
    `options`: those of `AuditOptions`.
    """

    def __init__(
        self,
        out: str,
        *,
        model: str | None = None,
        games: list[str] | None = None,
        rounds: int | None = None,
        parties: dict[str, str] | None = None,
        task: str = AppConstants.TASK_TRAIN,
        options: dict[str, Any] | None = None,
    ):
        super().__init__()
        self.out, self.model, self.games, self.rounds = out, model, games, rounds
        self.parties, self.task, self.options = parties, task, options
        self._recorder: Recorder | None = None
        self._now: Underway | None = None
        self._ledgers: dict[str, dict[str, Any]] = {}  # by party, what its filter of DP has counted
        self._thinned: str = DataKind.WEIGHT_DIFF
        self._lock = threading.RLock()  # events come from the threads of several sites
        self._hears: dict[str, Callable[[FLContext], None]] = {
            EventType.START_RUN: self._begin,
            EventType.AFTER_TASK_DATA_FILTER: self._ask,
            EventType.CLIENT_DISCONNECTED: self._lose,
            EventType.BEFORE_TASK_RESULT_FILTER: self._take,
            AppEventType.AFTER_SHAREABLE_TO_LEARNABLE: self._made,
            EventType.FATAL_SYSTEM_ERROR: self._fail,
            EventType.END_RUN: self._end,
        }

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        hear = self._hears.get(event_type)
        if hear is None or (self._recorder is None and event_type != EventType.START_RUN):
            return
        with self._lock:
            try:
                hear(fl_ctx)
            except Exception as error:
                if (self.options or {}).get("strict"):
                    self.system_panic(f"fedaudit: {error}", fl_ctx)
                elif self._recorder is not None:
                    round = self._now.index if self._now else self._recorder.session.last
                    with self._recorder.session.guard("round-missing", round=round):
                        raise

    @property
    def session(self) -> Session:
        assert self._recorder is not None
        return self._recorder.session

    def _begin(self, fl_ctx: FLContext) -> None:
        local = Path(fl_ctx.get_engine().get_workspace().get_site_config_dir())
        found_in(str(local))
        options, out = AuditOptions(**(self.options or {})), local / self.out  # type: ignore[typeddict-item]

        def opened() -> Session:
            if self.model is None:
                return open_session(out, None, strict=options.get("strict", False))
            if self.rounds is None:
                what = "how many rounds are planned is not given"
                raise FedauditError("rounds", what, 'Give "rounds": the intervals share their error among them.')
            return audited(self.model, games_of(self.games or [], local), out=out, rounds=self.rounds, **options)

        self._recorder = Recorder(opened, log, out=out, strict=options.get("strict", False))

    # ------------------------------------------------------------------ one round

    def _ask(self, fl_ctx: FLContext) -> None:
        """A site fetches its task. Whoever does so first brings the next round."""
        assert self._recorder is not None
        if fl_ctx.get_prop(FLContextKey.TASK_NAME) != self.task:
            return
        came = arrived(fl_ctx.get_prop(FLContextKey.TASK_DATA))
        if came.model is None:
            raise FedauditError("no-broadcast", "the task brings no weights", "Send the model as a DXO of weights.")
        if self._now is None or self._now.index != came.round:
            if self._now is not None:
                self._close(came.model)  # a workflow that does not tell what it made: the next round shows it
            self._now = Underway(came.round, came.model, time.perf_counter())
            self._recorder.warn(came.round)
            if came.round == 1:
                self._recorder.begin(came.model)
        self._now.asked.add(_peer(fl_ctx))

    def _lose(self, fl_ctx: FLContext) -> None:
        if self._now is not None:
            self._now.asked.add(str(fl_ctx.get_prop(FLContextKey.DISCONNECTED_CLIENT_NAME)))

    def _take(self, fl_ctx: FLContext) -> None:
        result = fl_ctx.get_prop(FLContextKey.TASK_RESULT)
        round = result.get_cookie(AppConstants.CONTRIBUTION_ROUND)
        if fl_ctx.get_prop(FLContextKey.TASK_NAME) != self.task or self._now is None:
            return
        if round is not None and round + 1 != self._now.index:
            self.session.gap(gap("late-reply", round=round + 1, party=self._party(fl_ctx), now=self._now.index))
            return
        self._now.replies.append(self._reply(result, fl_ctx))

    def _reply(self, result: Shareable, fl_ctx: FLContext) -> Reply:
        """An empty update is what a site sends that withholds its own."""
        site = _peer(fl_ctx)
        found = _leaves(from_shareable(result)) if _is_dxo(result) else []
        models = [one for one in found if one.data_kind in WEIGHTS and one.data]
        if result.get_return_code() != ReturnCode.OK or not models:
            return Reply(site, failed=True)
        party = self._party(fl_ctx)
        if ledger := ledger_of_svt(party, models[0].meta):
            self._ledgers[party] = ledger
            self._thinned = models[0].data_kind
        return Reply(
            site,
            party,
            models=tuple(numpy_state(one.data) for one in models),
            is_change=models[0].data_kind == DataKind.WEIGHT_DIFF or (self.options or {}).get("sends") == "changes",
            examples=models[0].get_meta_prop(MetaKey.NUM_STEPS_CURRENT_ROUND),
        )

    def _made(self, fl_ctx: FLContext) -> None:
        if self._now is not None:
            model = fl_ctx.get_prop(AppConstants.GLOBAL_MODEL)
            self._close(None if not model else dict(model[ModelLearnableKey.WEIGHTS]))

    def _close(self, made: Mapping[str, Any] | None) -> None:
        assert self._recorder is not None
        now, self._now = self._now, None
        assert now is not None
        elapsed = time.perf_counter() - now.clock
        when = self._recorder.when(now.index)
        if self._ledgers and self._recorder.out is not None:
            with self.session.guard("claim-unwritten", round=when.round):
                write_claim(self._recorder.out, of_svt(self._ledgers.values(), self._thinned), when.round)
        self._recorder.record(when, now.broadcast, frozenset(now.asked), now.replies, made, elapsed)

    def _party(self, fl_ctx: FLContext) -> str:
        site = _peer(fl_ctx)
        return (self.parties or {}).get(site, site)

    # ------------------------------------------------------------------ the end

    def _fail(self, fl_ctx: FLContext) -> None:
        self.session.gap(gap("training-failed", error="FATAL_SYSTEM_ERROR", round=self.session.last))

    def _end(self, fl_ctx: FLContext) -> None:
        assert self._recorder is not None
        self._recorder.settle()
        if self._now is not None:
            self.session.gap(gap("round-unfinished", round=self._now.index))
        for party, ledger in sorted(self._ledgers.items()):
            one_call = ledger["threshold"] + ledger["query"] + ledger["release"]
            told = {"epsilon": ledger["epsilon"], "rounds": ledger["calls"], "one_round": one_call}
            self.session.note(notice("svt-claimed", party=party, **told))
        self.session.finish(self._recorder.out)


def _peer(fl_ctx: FLContext) -> str:
    return str(fl_ctx.get_peer_context().get_identity_name())
