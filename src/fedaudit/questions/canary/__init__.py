"""What does the noisy sum tell about one party? Asked by planting canaries: parties of the auditor's own.

`canife` and `one-shot` in `audit.attacks` ask it, and `[audit.canary]` sets it. The room, in the order of an audit:
`plan` (which canaries, when), `parties` and `crafting` (what they send), `watch` (what is kept of the rounds), `judge`,
`panel`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from fedaudit.config.section import Count, Section
from fedaudit.questions import Against, Form, Ground, Metric, Planting, Question
from fedaudit.types import AuditResult, Grant, Kind, Plan, Vantage

if TYPE_CHECKING:
    from fedaudit.audit.observer import Asked, Observer
    from fedaudit.config.schema import Config
    from fedaudit.defences.shared import Defence
    from fedaudit.learn.tasks import TorchTask
    from fedaudit.privacy.statement import Statement
    from fedaudit.report.shapes import PageSection
    from fedaudit.results.document import Document

INFINITE = float("inf")
LARGEST_POOL = 0.2  # of the data
NAMES = {
    "canife": "a crafted canary party: whether the noisy sum tells that it took part",
    "one-shot": "random canary parties in one training run: how far the model moves their way",
}


def _epsilon(name: str, title: str, kind: Kind) -> Metric:
    form: Form = "epsilon"
    return Metric(f"epsilon-{name}", f"epsilon, {title}", form, chance=0.0, kind=kind, most=INFINITE)


class Canary(Question):
    name = "canary"
    about = "does the sum tell whether a party took part, and what epsilon does that show?"
    unit = "user"
    asked_by = NAMES
    plants = True
    how = "Name canife or one-shot in audit.attacks; [audit.canary] sets them."
    main = ("epsilon-anytime", "epsilon-ranks", "epsilon-one-run")
    metrics = (
        _epsilon("maximised", "largest over all thresholds, one round", "heuristic"),
        _epsilon("ranks", "proved over ranks, one round", "proved"),
        _epsilon("bonferroni", "proved by a union bound, one round", "proved"),  # in runs of the former version
        _epsilon("split", "proved with a threshold chosen on a split, one round", "proved"),
        _epsilon("gdp", "Gaussian fit, one round", "model-based"),
        _epsilon("anytime", "proved at all rounds at once", "proved"),
        _epsilon("composed", "composed over the training", "heuristic"),
        _epsilon("composed-paper", "composed as CANIFE does", "heuristic"),
        _epsilon("canife-round", "as CANIFE reports it (delta 1/n), one round", "heuristic"),
        _epsilon("canife", "as CANIFE reports it, whole training", "heuristic"),
        _epsilon("accountant", "claimed for the whole training", "claimed"),
        _epsilon("accountant-renyi", "claimed, by Renyi accounting", "claimed"),
        _epsilon("accountant-round", "claimed for one round", "claimed"),
        _epsilon("one-shot", "estimated from one run", "model-based"),
        _epsilon("one-shot-bound", "bounded from one run", "model-based"),
        _epsilon("one-shot-rounds", "bounded by the largest cosine of all rounds", "model-based"),
        Metric("score-sd", "standard deviation of the scores", worse="lower", gated=False, most=INFINITE),
        Metric(
            "canary-health", "health of the canary: how much of its loss crafting removed", worse="lower", gated=False
        ),
        Metric("canary-norm", "length of the canary's update, of the clip norm", gated=False, most=INFINITE),
    )

    def ask(self, names: Sequence[str], given: Mapping[str, Any]) -> Asked:
        from fedaudit.questions.canary.watch import CanaryGame

        needs = frozenset({Grant.WEIGHTS, Grant.START, Grant.SUM})
        return CanaryGame(names={name: NAMES[name] for name in names}, needs=needs)

    def set_aside(self, config: Config) -> float:
        """A pool to craft with: so much that mock parties are as large as the real ones, without using a record twice.
        Where that is too much, mock parties have records in common."""
        if "canife" not in self.asked_in(config.audit.attacks):
            return 0.0
        from fedaudit.questions.canary.parties import OUTSIDE  # which imports torch

        federation, asked = config.federation, config.audit.canary or CanarySection()
        mine = (federation.member_subjects or federation.shares[0]) / (federation.parties + 1)
        return min((asked.pool + OUTSIDE) * mine, LARGEST_POOL)

    def plant(self, ground: Ground, task: TorchTask, defence: Defence, plans: Sequence[Plan]) -> Planting | None:
        from fedaudit.questions.canary.plan import plan

        names = self.asked_in(ground.config.audit.attacks)
        return plan(names, ground, task, defence, plans) if names else None

    def foreseen(self, ground: Ground, defence: Callable[[], Defence]) -> list[str]:
        from fedaudit.questions.canary.plan import probes_that_refute

        asked = "canife" in self.asked_in(ground.config.audit.attacks)
        return probes_that_refute(ground.config, ground.game, defence()) if asked else []

    def observer(self, asked: Any) -> Observer:
        from fedaudit.questions.canary.watch import CanaryWatch

        return CanaryWatch(asked)

    def against(self, claim: Statement, document: Document) -> Sequence[Against]:
        from fedaudit.questions.canary.judge import against

        return against(claim, document)

    def sections(self, results: Any) -> Sequence[PageSection]:
        from fedaudit.questions.canary.panel import sections

        return sections(results)

    def claim_in_words(self, entry: AuditResult, name: str) -> str:
        """Whether the claim stands."""
        from fedaudit.questions.canary.claims import ROUND, WHOLE, refuted

        whole = name == "epsilon-one-run"
        claim = entry.estimates.get(WHOLE if whole else ROUND)
        if claim is None or claim.value is None or entry.estimates[name].low is None:
            return ""
        told = f"{claim.value:.3g} is claimed for {'the whole training' if whole else 'one round'}"
        if refuted(entry.estimates):
            return f"{told}, and refuted"
        if any(one.code == "noise-missing" for one in entry.told):
            return f"{told}, and contradicted: the sum has less noise than is claimed"
        return f"{told}, and not refuted"


QUESTION = Canary()


OF_FROZEN_ROUNDS = ("probes", "every")  # keys that have no effect when mode is "running"


class CanarySection(Section):
    """[audit.canary] the parties that canife and one-shot add to the federation.

    mode = "probes": after every so many rounds the model is frozen for so many probes, half of them with the canary.
    mode = "running": in every round a coin decides whether it takes part; it is taken out of what is kept.
    """

    probes: Annotated[int, Field(ge=16, multiple_of=2)] = Field(100, description="probes of a frozen model")
    every: Count | None = Field(
        None, description="rounds between two such measurements; not set: a fifth of all rounds"
    )
    canaries: Count | None = Field(
        None, description="how many; not set: 1 for canife, as many as there are parties for one-shot"
    )
    steps: Count = Field(1000, description="steps of crafting")
    pool: Annotated[int, Field(ge=4)] = Field(64, description="mock parties, made of data that is set aside")
    target: Annotated[int, Field(ge=0)] | None = Field(None, description="the canary's class; not set: one at random")
    initial: Literal["random", "data"] = Field(
        "random", description="what crafting starts from: noise, or a record (the canary is then not shown)"
    )
    mode: Literal["probes", "running"] = Field("probes", description="a frozen model, or every round as it comes")
    objective: Literal["normalised", "printed"] | None = Field(
        None, description="what crafting minimises: not set, normalised; or as the paper prints it, which can fail"
    )
    starts: Count | None = Field(None, description="how many begin, of which the best go on; not set: 16, for text 1")
    batch: Count | None = Field(None, description="mock updates that a step of crafting looks at; not set: 16")
    reach: Annotated[float, Field(ge=1e-6, le=1e6)] | None = Field(
        None, description="how long the canary's gradient must be (R); not set: long enough to be clipped"
    )

    @model_validator(mode="before")
    @classmethod
    def _probes_belong_to_frozen_rounds(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("mode") == "running":
            for name in OF_FROZEN_ROUNDS:
                if name in given:
                    raise ValueError(f"{name} has no effect when mode is 'running': remove it")
        return given

    @model_serializer(mode="wrap")
    def _without_what_has_no_effect(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """What is written down must be readable again, so the default of a key without effect is not."""
        plain: dict[str, Any] = serialise(self)
        idle = OF_FROZEN_ROUNDS if self.mode == "running" else ()
        return {name: value for name, value in plain.items() if name not in idle}


def looking_at_the_sum(given: Any) -> Any:
    """A configuration that asks for canaries and names no vantage: the one that sees the sum, and a party if others
    are asked for."""
    audit = given.get("audit", {}) if isinstance(given, dict) else {}
    asked = audit.get("attacks") if isinstance(audit, dict) else None
    listed = asked if isinstance(asked, list | tuple) else ()
    names = {str(each.get("name") if isinstance(each, dict) else each) for each in listed}
    if set(NAMES) & names and "vantages" not in audit:
        beside = [] if names <= {*NAMES, "blind"} else [Vantage.CLIENT.value]
        return {**given, "audit": {"vantages": [*beside, Vantage.SECAGG_SERVER.value], **audit}}
    return given
