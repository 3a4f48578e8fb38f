"""What each adversary sees of a round. The vantage makes the view, and the view answers.

What one adversary can see is decided here and nowhere else: `GRANTS` says it, `look` makes views that hold nothing
more. A label-only view has the model inside a function that returns labels; neither the weights nor the outputs can be
reached from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.errors import NotGrantedError
from fedaudit.types import Floats, Grant, ModelKind, Moment, Round, State, Task, Vantage

Serve = Callable[[Any, State, Floats], Floats]  # (task, state, outputs) -> outputs as they are served

_EVERYTHING = frozenset({Grant.LABELS, Grant.OUTPUTS, Grant.WEIGHTS, Grant.EVERY_ROUND})

GRANTS: dict[tuple[Vantage, ModelKind], frozenset[Grant]] = {
    (Vantage.OUTSIDER, "global"): frozenset({Grant.LABELS, Grant.OUTPUTS}),
    (Vantage.CLIENT, "global"): _EVERYTHING,
    (Vantage.LABEL_ONLY_CLIENT, "global"): frozenset({Grant.LABELS, Grant.EVERY_ROUND}),
    (Vantage.SECAGG_SERVER, "global"): _EVERYTHING,
    (Vantage.SERVER, "global"): _EVERYTHING,
    (Vantage.SERVER, "local"): _EVERYTHING | {Grant.UPDATE},
}

# The models by which a vantage is told from the others. A server receives the global ones as well.
MODELS: dict[Vantage, ModelKind] = {v: "local" if v is Vantage.SERVER else "global" for v in Vantage}


@dataclass
class Queries:
    """How many records were asked about."""

    count: int = 0

    def add(self, records: int) -> None:
        self.count += records


@dataclass(frozen=True)
class View:
    """One model at one moment as one adversary has it: `ask` it, and take from it what is granted.

    What is granted but was not observed (`received`, `update`, a peer that took no part) is None.
    """

    moment: Moment
    vantage: Vantage
    model: ModelKind
    party: str | None  # whose local model; None for the global one
    grants: frozenset[Grant]
    classes: int  # 0: the model answers with a value
    queries: Queries = field(default_factory=Queries)
    _answer: Callable[[NDArray[Any]], NDArray[Any]] = field(kw_only=True, repr=False)
    _held: Mapping[str, Any] = field(kw_only=True, repr=False)  # nothing but what is granted

    @property
    def round(self) -> int:
        return self.moment.round

    def ask(self, x: NDArray[Any]) -> NDArray[Any]:
        """The model's outputs for these records, or (label-only) the labels that it predicts."""
        self.queries.add(len(x))
        return self._answer(x)

    @property
    def task(self) -> Any:
        """The model's architecture and loss; whoever holds the weights has it."""
        return self._granted("task", "the architecture")

    @property
    def weights(self) -> State:
        state: State = self._granted("weights", "the model's weights")
        return state

    @property
    def received(self) -> State | None:
        """What the round started from. Of a global model: the one before it."""
        state: State | None = self._granted("received", "the model that the round started from")
        return state

    @property
    def update(self) -> State | None:
        """received - sent: the update as a descent direction. None where the start was not observed."""
        before = self.received
        return None if before is None else {name: before[name] - self.weights[name] for name in before}

    @property
    def peers(self) -> Mapping[str, State | None]:
        """What the other parties sent in the same round; None: took no part."""
        states: Mapping[str, State | None] = self._granted("peers", "the other parties' updates")
        return states

    def alone(self) -> View:
        """The same model without what came with it in its round: nothing else is kept in memory."""
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
) -> Iterator[View]:
    """The views of a round: one of the global model, or one of each party's local model that arrived.

    `serve` bends the answers for whoever has no weights. `parties`: whoever may ever take part, so that peers keep
    their places from round to round. A party that took no part, or whose update is masked, has no view.
    """
    if model == "global":
        # Whoever did not see the result (a party in its own round) has the model that it was sent, and no more.
        weights = round.aggregate or round.broadcast
        received = round.broadcast or None if round.aggregate else None
        if weights:
            yield view(vantage, model, round.moment, task, weights, received, serve=serve)
        return
    everybody = {
        name: (round.sent[name].state or None) if name in round.sent else None
        for name in sorted({*parties, *round.sent})
    }
    for party in sorted(round.sent):
        peers = {name: state for name, state in everybody.items() if name != party}
        if sent := everybody[party]:
            yield view(vantage, model, round.moment, task, sent, round.broadcast or None, party=party, peers=peers)


def view(
    vantage: Vantage,
    model: ModelKind,
    moment: Moment,
    task: Task,
    weights: State,
    received: State | None = None,
    **more: Any,
) -> View:
    """A view of one model, with `party`, `peers` and `serve` where there are any."""
    grants = GRANTS[vantage, model]
    party, serve = more.get("party"), more.get("serve")
    held: dict[str, Any] = {}
    if Grant.WEIGHTS in grants:
        held = {"task": task, "weights": weights}
        if Grant.EVERY_ROUND in grants:
            held["received"] = received
    if Grant.UPDATE in grants:
        held["peers"] = more.get("peers", {})

    def outputs(x: NDArray[Any]) -> Floats:
        answers = task.outputs(weights, x)
        return serve(task, weights, answers) if serve is not None and Grant.WEIGHTS not in grants else answers

    def labels(x: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(outputs(x).argmax(axis=-1))

    answer = outputs if Grant.OUTPUTS in grants else labels
    return View(moment, vantage, model, party, grants, task.classes, _answer=answer, _held=held)
