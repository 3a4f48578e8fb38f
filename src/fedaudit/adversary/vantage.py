"""What each adversary sees of a round.

This is the only place that decides what an adversary can see: `GRANTS` lists it, and `look` makes views that hold
nothing more. A label-only view keeps the model inside a function that returns labels, so that an attack can reach
neither the weights nor the outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.errors import NotGrantedError
from fedaudit.types import Floats, Grant, Ints, ModelKind, Moment, Round, ServerStep, State, Task, Vantage

Serve = Callable[[Any, State, Floats], Floats]  # (task, state, outputs) -> outputs as they are served

_EVERYTHING = frozenset({Grant.LABELS, Grant.OUTPUTS, Grant.WEIGHTS, Grant.EVERY_ROUND, Grant.START})

GRANTS: dict[tuple[Vantage, ModelKind], frozenset[Grant]] = {
    (Vantage.OUTSIDER, "global"): frozenset({Grant.LABELS, Grant.OUTPUTS}),
    (Vantage.CLIENT, "global"): _EVERYTHING | {Grant.OWN},
    (Vantage.LABEL_ONLY_CLIENT, "global"): frozenset({Grant.LABELS, Grant.EVERY_ROUND}),
    (Vantage.SECAGG_SERVER, "global"): _EVERYTHING | {Grant.SUM},
    (Vantage.SERVER, "global"): _EVERYTHING,
    (Vantage.SERVER, "local"): _EVERYTHING | {Grant.UPDATE},
}

# The models that set a vantage apart. A server receives the global ones as well.
MODELS: dict[Vantage, ModelKind] = {v: "local" if v is Vantage.SERVER else "global" for v in Vantage}


@dataclass
class Queries:
    """Counts the records that a model was asked about."""

    count: int = 0

    def add(self, records: int) -> None:
        self.count += records


@dataclass(frozen=True)
class OwnUpdate:
    """The model that the adversary itself sent, and its share of the weighted mean."""

    state: State
    share: float


@dataclass(frozen=True, kw_only=True)
class View:
    """One model at one moment, as one adversary sees it. It answers (`ask`), and gives access to what is granted.

    Something that is granted but was not observed (`received`, `update`, a peer that took no part) is None.
    """

    moment: Moment
    vantage: Vantage
    model: ModelKind
    party: str | None  # whose local model; None for the global one
    classes: int  # 0 for regression
    queries: Queries = field(default_factory=Queries)
    _answer: Callable[[NDArray[Any]], NDArray[Any]] = field(kw_only=True, repr=False)
    _held: Mapping[str, Any] = field(kw_only=True, repr=False)  # holds only what is granted

    @property
    def round(self) -> int:
        return self.moment.round

    def ask(self, x: NDArray[Any]) -> NDArray[Any]:
        """The model's outputs for these records, or, for a label-only view, the predicted labels."""
        self.queries.add(len(x))
        return self._answer(x)

    @property
    def task(self) -> Any:
        """The model's architecture and loss. Everybody who holds the weights has it."""
        return self._granted("task", "the architecture")

    @property
    def weights(self) -> State:
        state: State = self._granted("weights", "the model's weights")
        return state

    @property
    def received(self) -> State | None:
        """The model that the round started from. For a global model, this is the previous global model."""
        state: State | None = self._granted("received", "the model that the round started from")
        return state

    @property
    def sent(self) -> State:
        """The model that a party sent; for a global one, the mean of those that were sent. These are its weights,
        unless the server is known to take steps of another length."""
        state: State = self._held.get("sent") or self.weights
        return state

    @property
    def update(self) -> State | None:
        """received - sent: the update as a descent direction. None if the start was not observed."""
        before = self.received
        return None if before is None else {name: before[name] - self.sent[name] for name in before}

    @property
    def own(self) -> OwnUpdate | None:
        """What this party itself sent, and how much it counted in the mean; None where it took no part."""
        sent: OwnUpdate | None = self._granted("own", "a party's own update")
        return sent

    @property
    def peers(self) -> Mapping[str, State | None]:
        """What the other parties sent in the same round; None for a party that took no part."""
        states: Mapping[str, State | None] = self._granted("peers", "the other parties' updates")
        return states

    def alone(self) -> View:
        """The same model without the other models of its round, to save memory."""
        return replace(self, _held={name: self._held[name] for name in ("task", "weights") if name in self._held})

    def _granted(self, name: str, what: str) -> Any:
        if name not in self._held:
            raise NotGrantedError(what, self.vantage.value)
        return self._held[name]


def look(
    vantage: Vantage,
    model: ModelKind,
    round: Round,
    task: Task,
    serve: Serve | None = None,
    parties: Sequence[str] = (),
    server_lr: float = 1.0,
) -> Iterator[View]:
    """The views of a round: one of the global model, or one of each party's local model that arrived.

    `serve` changes the answers for adversaries without weights. `parties` lists everybody who may ever take part, so
    that peers have the same order in every round. A party that took no part, or whose update is masked or
    no model, has no view.
    `server_lr`: how much of the mean update the server added. Everybody knows it, and takes it back.
    """
    if model == "global":
        # An observer that did not see the result (a party in its own round) has only the model that it was sent.
        weights = round.aggregate or round.broadcast
        received = round.broadcast or None if round.aggregate else None
        if weights:
            own = own_update(round, parties) if vantage is Vantage.CLIENT else None
            sent = ServerStep(server_lr, getattr(task, "exchanged", ())).back(weights, received) if received else None
            yield view(vantage, model, round.moment, task, weights, received, serve=serve, own=own, sent=sent)
        return
    everybody = {
        name: (round.sent[name].state or None) if name in round.sent and round.sent[name].is_model else None
        for name in sorted({*parties, *round.sent})
    }
    for party in sorted(round.sent):
        peers = {name: state for name, state in everybody.items() if name != party}
        if sent := everybody[party]:
            yield view(vantage, model, round.moment, task, sent, round.broadcast or None, party=party, peers=peers)


def own_update(round: Round, parties: Sequence[str]) -> OwnUpdate | None:
    """A participant is the first party: it knows what it sent, and how many records stand behind each model."""
    own = round.sent.get(min(parties)) if parties else None
    total = sum(trained.examples for trained in round.sent.values())
    return OwnUpdate(own.state, own.examples / total) if own is not None and own.state and total else None


def view(
    vantage: Vantage,
    model: ModelKind,
    moment: Moment,
    task: Task,
    weights: State,
    received: State | None = None,
    **more: Any,
) -> View:
    """A view of one model. `more` may give `party`, `peers`, `serve`, `own` and `sent`."""
    grants = GRANTS[vantage, model]
    party, serve = more.get("party"), more.get("serve")
    held: dict[str, Any] = {}
    if Grant.WEIGHTS in grants:
        held = {"task": task, "weights": weights}
        if Grant.START in grants:
            held["received"] = received
            held["sent"] = more.get("sent")
    if Grant.OWN in grants:
        held["own"] = more.get("own")
    if Grant.UPDATE in grants:
        held["peers"] = more.get("peers", {})

    @cache
    def loaded() -> Callable[[NDArray[Any]], Floats]:
        return task.asking(weights)

    def served(answers: Floats) -> Floats:
        return serve(task, weights, answers) if serve is not None and Grant.WEIGHTS not in grants else answers

    def outputs(x: NDArray[Any]) -> Floats:
        return served(task.outputs(weights, x))

    def labels(x: NDArray[Any]) -> NDArray[Any]:
        answers = loaded()(x)
        return largest(answers if getattr(serve, "keeps_labels", False) else served(answers))

    answer = outputs if Grant.OUTPUTS in grants else labels
    return View(
        moment=moment, vantage=vantage, model=model, party=party, classes=task.classes, _answer=answer, _held=held
    )


def largest(outputs: Floats) -> Ints:
    """The labels with the largest outputs; -1 where one is NaN, as after training that diverged: it is no label."""
    return np.where(np.isnan(outputs).any(axis=-1), -1, outputs.argmax(axis=-1))
