"""What does the noisy sum tell about one party? Asked by planting canaries: parties of the auditor's own.

`canife` and `one-shot` in `audit.attacks` ask it, and `[audit.canary]` sets it. The room, in the order of an audit:
`options` (TOML), `plan` (which canaries, when), `parties` and `crafting` (what they send), `watch` (what is kept of the
rounds), `judge`, `claims`, `panel`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fedaudit.questions.question import Against, Form, Metric, Question
from fedaudit.types import Grant, Kind

if TYPE_CHECKING:
    from fedaudit.audit.observer import Asked, Observer
    from fedaudit.privacy.statement import Statement
    from fedaudit.report.shapes import PageSection
    from fedaudit.results.document import Document

INFINITE = float("inf")
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
    how = "Name canife or one-shot in audit.attacks; [audit.canary] sets them."
    main = ("epsilon-anytime", "epsilon-bonferroni", "epsilon-one-run")
    metrics = (
        _epsilon("maximised", "largest over all thresholds, one round", "heuristic"),
        _epsilon("bonferroni", "proved by a union bound, one round", "proved"),
        _epsilon("split", "proved with a threshold chosen on a split, one round", "proved"),
        _epsilon("gdp", "Gaussian fit, one round", "model-based"),
        _epsilon("anytime", "proved at all rounds at once", "proved"),
        _epsilon("composed", "composed over the training", "heuristic"),
        _epsilon("composed-paper", "composed as CANIFE does", "heuristic"),
        _epsilon("accountant", "claimed for the whole training", "claimed"),
        _epsilon("accountant-renyi", "claimed, by Renyi accounting", "claimed"),
        _epsilon("accountant-round", "claimed for one round", "claimed"),
        _epsilon("one-shot", "estimated from one run", "model-based"),
        _epsilon("one-shot-bound", "bounded from one run", "model-based"),
        _epsilon("one-shot-rounds", "bounded by the largest cosine of all rounds", "model-based"),
        Metric("score-sd", "standard deviation of the scores", worse="lower", gated=False, most=INFINITE),
        Metric("canary-norm", "length of the canary's update, of the clip norm", gated=False, most=INFINITE),
    )

    def ask(self, names: Sequence[str], given: Mapping[str, Any]) -> Asked:
        from fedaudit.questions.canary.watch import CanaryGame

        needs = frozenset({Grant.WEIGHTS, Grant.EVERY_ROUND, Grant.SUM})
        return CanaryGame(names={name: NAMES[name] for name in names}, needs=needs)

    def observer(self, asked: Any) -> Observer:
        from fedaudit.questions.canary.watch import CanaryWatch

        return CanaryWatch(asked)

    def against(self, claim: Statement, document: Document) -> Sequence[Against]:
        from fedaudit.questions.canary.claims import against

        return against(claim, document)

    def sections(self, results: Any) -> Sequence[PageSection]:
        from fedaudit.questions.canary.panel import sections

        return sections(results)


QUESTION = Canary()
