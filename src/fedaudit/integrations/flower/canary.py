"""A crafted canary in a real Flower federation: a client mod for a node of the auditor's own.

    audit = CanaryMod(task, lambda context: public_records, clip=1.0, denominator=100, training=Training("sgd", 0.1))
    app = ClientApp(mods=[audit])     # and: flwr run . --run-config "i-am-authorised=true"

It sends a crafted update to a federation of other people, so it does nothing unless the run's configuration says
`i-am-authorised = true`, and it marks what it sends and what it writes with a banner.

1. In every round a fair coin decides whether the node takes part as a canary or sends back the model unchanged.
2. The record is crafted for the model that arrived, against mock parties made of public data.
3. What the server made of the round arrives with the next one: the score is the inner product of that change and the
   canary's update. Rounds are not frozen, and the canary is not taken out of what is kept: that takes the server.
4. The scores and the coins give the bound that may be looked at in every round (`stats.canary`).

Between rounds everything is kept in the Flower context, as arrays and plain values.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp.typing import ClientAppCallable

from fedaudit.defences.dp_fedavg import difference
from fedaudit.errors import FedauditError
from fedaudit.integrations.flower.server import BANNER as MARK
from fedaudit.integrations.flower.server import EXAMPLES
from fedaudit.integrations.plain import matched
from fedaudit.learn.tasks import TorchTask, Training
from fedaudit.questions.canary.crafting import CraftingRecipe, flat
from fedaudit.questions.canary.parties import Canaries, CanaryParty, Design
from fedaudit.questions.canary.watch import ALIVE
from fedaudit.stats.canary import Probes, anytime_epsilon
from fedaudit.types import Estimate, Records, State

log = logging.getLogger("flwr")

AUTHORISED = "i-am-authorised"
BANNER = "fedaudit canary: this node sends crafted updates, by authority of whoever started the run"
KEPT, SCORES = "fedaudit.canary.arrays", "fedaudit.canary.scores"


@dataclass(frozen=True, kw_only=True)
class CanaryMod:
    """`pool(context)`: public records of the same kind. `denominator`: by what the server divides the sum.

    `training`: how an ordinary party trains, since the canary trains on its record in the same way.
    """

    task: TorchTask
    pool: Callable[[Context], Records]
    clip: float
    denominator: float
    training: Training
    delta: float = 1e-5
    mocks: int = 64
    size: int = 1  # records of a mock party
    recipe: CraftingRecipe = field(default_factory=CraftingRecipe)
    seed: int = 0

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        if not message.metadata.message_type.startswith("train"):
            return call_next(message, context)
        if context.run_config.get(AUTHORISED) is not True:
            raise FedauditError(
                "not-authorised",
                "a canary sends crafted updates to a federation, and nobody has said that it may",
                f'If you are authorised, start the run with --run-config "{AUTHORISED}=true".',
            )
        log.warning(BANNER)
        received = self._received(message)
        self._score(context, received)
        return self._reply(message, context, received)

    def estimate(self, context: Context, confidence: float = 0.95) -> Estimate | None:
        """The bound so far; None before the first score."""
        if SCORES not in context.state:
            return None
        kept = context.state.config_records[SCORES]
        score, present = np.array(kept["score"], np.float64), np.array(kept["present"], bool)
        return anytime_epsilon(Probes(score, present, np.arange(len(score))), self.delta, confidence)

    # ------------------------------------------------------------------ one round

    def _received(self, message: Message) -> State:
        (record,) = message.content.array_records.values()
        like = self.task.initial(0)
        return matched({name: array.numpy() for name, array in record.items()}, like, "the message", self.task.base)

    def _reply(self, message: Message, context: Context, received: State) -> Message:
        rounds = len(self._scores(context)["score"]) + (KEPT in context.state)
        present = bool(np.random.default_rng([self.seed, context.node_id % 2**63, rounds]).random() < 0.5)
        design = Design(
            pool=self.pool(context),
            mocks=self.mocks,
            size=self.size,
            training=self.training,
            clip=self.clip,
            recipe=self.recipe,
            seed=self.seed,
        )
        canaries = Canaries(design)
        planted = canaries.at(self.task, received)
        sent = received
        if present:
            rng = np.random.default_rng(self.seed)
            sent = CanaryParty("canary-0", 0, canaries).update(self.task, received, rng).state
        context.state[KEPT] = ArrayRecord({
            "update": Array(planted.updates[0]), "norm": Array(planted.norm), "present": Array(np.array([present])),
            **{f"model.{name}": Array(value) for name, value in received.items()},
        })  # fmt: skip
        content = RecordDict({
            "arrays": ArrayRecord({name: Array(value) for name, value in sent.items()}),
            "metrics": MetricRecord({EXAMPLES: 1}),
            MARK: ConfigRecord({"banner": BANNER}),
        })  # fmt: skip
        return Message(content, reply_to=message)

    def _score(self, context: Context, received: State) -> None:
        """What the last round came to, now that its result has arrived."""
        if KEPT not in context.state:
            return
        kept = {name: array.numpy() for name, array in context.state.array_records[KEPT].items()}
        before = {name.removeprefix("model."): value for name, value in kept.items() if name.startswith("model.")}
        total = -self.denominator * flat(difference(before, received), self.task.architecture)
        scores = self._scores(context)
        alive = kept["norm"][0] >= ALIVE  # of a dead canary the sum tells nothing, and its coin is not guessed
        scores["score"].append(float(kept["update"] @ total / self.clip**2) if alive else math.nan)
        scores["present"].append(bool(kept["present"][0]))
        context.state[SCORES] = ConfigRecord({**scores, "banner": BANNER})
        if (found := self.estimate(context)) is not None:
            told = found.value or 0.0, len(scores["score"])
            log.info("fedaudit: the epsilon of a round is at least %.3g after %d rounds", *told)

    def _scores(self, context: Context) -> dict[str, Any]:
        if SCORES not in context.state:
            return {"score": [], "present": []}
        kept: Any = context.state.config_records[SCORES]
        return {"score": list(kept["score"]), "present": list(kept["present"])}
