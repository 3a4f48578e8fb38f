"""What every attack must do: one row here for each. A new attack is added to `ROWS`."""

import dataclasses

import numpy as np
import pytest

from fedaudit.adversary.attacks import DEFAULTS, choose, every, made
from fedaudit.adversary.attacks.base import Evidence, Own
from fedaudit.adversary.attacks.trajectory import FTA
from fedaudit.adversary.shadow import INSIDE
from fedaudit.adversary.shadow import SIGNALS as OF_REFERENCES
from fedaudit.adversary.signals import NEEDS
from fedaudit.adversary.signals.outputs import SIGNALS, from_outputs
from fedaudit.config.attack_registry import BLIND
from fedaudit.config.schema import parse
from fedaudit.errors import FedauditError
from fedaudit.session.assemble import choose as of_trace
from fedaudit.types import Floats, Moment

# attack -> the signals it reads
ROWS = {
    "matched-filter": ("matched-filter", "matched-strength"),
    "matched-filter-peer": ("matched-filter-peer", "matched-strength-peer"),
    "unmix": ("unmix", "unmix-fit"),
    "round-gain": ("loss-before", "loss"),
    "projres": ("projres",),
    "inverse-hessian": ("inverse-hessian",),
    "fta-confidence": ("confidence",),
    "fta-loss": ("loss",),
    "fta-logit": ("logit",),
    "loss": ("loss",),
    "modified-entropy": ("modified-entropy",),
    "fed-loss": ("loss",),
    "back-front-diff": ("loss",),
    "back-front-ratio": ("loss",),
    "delta-diff": ("loss",),
    "delta-ratio": ("loss",),
    "gradient-norm": ("gradient-norm",),
    "min-k": ("min-k",),
    "zlib-ratio": ("zlib-ratio",),
    "base-gain": ("base-loss", "loss"),
    "token-presence": ("token-presence",),
    "merlin": ("merlin",),
    **{
        f"fta-{metric}-{option}": (metric,)
        for metric in ("confidence", "loss", "logit")
        for option in ("printed", "degree2", "degree3", "degree4")
    },
    "kta-confidence": ("confidence", "reference-confidence", INSIDE),
    "kta-loss": ("loss", "reference-loss", INSIDE),
    "kta-logit": ("logit", "reference-logit", INSIDE),
    "lira": ("logit", "plain-reference-logit", INSIDE),
    "rmia": ("logit", "plain-reference-logit", INSIDE),
    "rmia-slope": ("logit", "reference-logit", INSIDE),
    "distillation": ("logit", "distilled-reference-logit", INSIDE),
    "distillation-fraction": ("logit", "distilled-reference-logit", INSIDE),
    "outside-kta-confidence": ("confidence", "outside-reference-confidence"),
    "outside-lira": ("logit", "outside-plain-reference-logit"),
    "outside-rmia": ("logit", "outside-plain-reference-logit"),
    "gap": ("label-right",),
    "gap-rounds": ("label-right",),
    "boundary": ("boundary", "boundary-queries"),
    "tear": ("boundary", "boundary-queries"),
    "tear-last": ("boundary", "boundary-queries"),
    "tear-deepfool": ("deepfool",),
    "gradient-cosine": ("gradient-cosine",),
    "gradient-diff": ("gradient-diff",),
    "gradient-norm-all": ("gradient-norm-all",),
    "fusion": ("gradient-cosine", "confidence"),
    "fedmia": ("gradient-cosine", "peer-cosine"),
    "source": ("gradient-cosine", "peer-cosine"),
}


def test_every_attack_has_a_row() -> None:
    of_records = {name: made(name) for name in every("record", "source")}
    assert set(ROWS) == {name for name, attack in of_records.items() if "shadow" not in attack.fitted_on}


@pytest.mark.parametrize("name", ROWS)
def test_attack_contract(name: str) -> None:
    attack = made(name)
    assert attack.name == name
    assert attack.signals == ROWS[name]
    assert set(attack.signals) <= set(NEEDS)
    assert dataclasses.is_dataclass(attack)
    assert attack == made(name)  # nothing but hyperparameters


@pytest.mark.parametrize("name", ROWS)
def test_higher_means_member(name: str) -> None:
    """Candidate 0 is learnt fast and made the update, the others neither; all level off. Every attack ranks 0 first."""
    attack = made(name)
    rng = np.random.default_rng(0)
    reduction = attack.reduce(20)
    for round in range(1, 11):
        logit = np.array([6, *rng.normal(2, 0.1, 19)]) * (1 - np.exp(-0.5 * (round - 1))) - 2
        values = from_outputs(np.column_stack([logit, np.zeros(20)]), np.zeros(20, int), SIGNALS, np.ones((20, 1)))
        values["merlin"] = np.array([0.9] + [0.6] * 19)
        of_updates = ("matched-filter", "matched-filter-peer", "projres", "inverse-hessian", "unmix")
        values |= dict.fromkeys(of_updates, np.array([3.0, *np.linspace(-1, 1, 19)]))
        values |= dict.fromkeys(("matched-strength", "matched-strength-peer"), rng.uniform(1, 2, 20))
        values["unmix-fit"] = np.tile([0.5, 0.0, 1.0], (20, 1))
        values["loss-before"] = values["loss"] + np.array([2.0, *rng.normal(0.5, 0.1, 19)])
        agreement = np.column_stack([np.array([0.8, *rng.normal(0, 0.1, 19)])] * 2)  # one layer, and all layers
        values |= {"gradient-cosine": agreement, "gradient-diff": agreement - 1, "gradient-norm-all": np.exp(-logit)}
        values |= {"min-k": values["loss"], "zlib-ratio": values["loss"], "base-loss": np.full(20, 3.0)}
        learnt = np.array([1.0] + [0.0] * 19)
        values["token-presence"] = learnt - 1
        values |= {"label-right": learnt, "boundary": learnt[:, None] * [1.0, 2.0], "boundary-queries": np.ones(20)}
        values["deepfool"] = values["boundary"]
        values["peer-cosine"] = rng.normal(0, 0.1, (20, 3 * 2))  # three other parties, who did not have it
        reduction.observe(Moment(round), values | references(round))
    features = reduction.features()
    fitted = attack.fit(Evidence(features[1:], own=own_records(features)))
    scores = fitted.score(features)
    assert scores[0] > scores[1:].max()


def own_records(features: Floats) -> Own:
    """Fifty records that were learnt, as the first candidate was, and fifty that were not."""
    return Own(np.repeat(features[:2], 50, axis=0), np.repeat([True, False], 50))


def references(round: int) -> dict[str, np.ndarray]:
    """Four models with the record, which learn it fast, and four without it; the same for all candidates."""
    inside = np.arange(8) < 4
    height = np.where(inside, 6, 2) + 0.1 * np.arange(8)
    logit = np.tile(height * (1 - np.exp(-0.5 * (round - 1))) - 2, (20, 1))
    metrics = {"logit": logit, "loss": np.logaddexp(0, -logit), "confidence": 1 / (1 + np.exp(-logit))}
    return {INSIDE: np.tile(inside, (20, 1))} | {name: metrics[metric] for name, (_, metric) in OF_REFERENCES.items()}


@dataclasses.dataclass(frozen=True)
class Called(FTA):
    name = "my-slope"


@dataclasses.dataclass(frozen=True)
class Answers(FTA):
    @property
    def name(self) -> str:
        return "my-slope"


@pytest.mark.parametrize("kind", ["Called", "Answers"])
def test_an_attack_with_a_name_of_its_own_keeps_its_options_in_it(kind: str) -> None:
    """Two that differ in an option alone are told apart, and a trace finds them again."""
    asked = [f"{__name__}:{kind}{options}" for options in ("", "+degree=2", "+signal=loss+degree=3")]
    audit = parse({"audit": {"attacks": asked}}).audit
    called = [attack.name for attack in choose(asked, audit)]
    assert called == ["my-slope", "my-slope+degree=2", "my-slope+signal=loss+degree=3"]
    assert [attack.name for attack in of_trace(audit, called)] == called


def test_unknown_attack_suggests() -> None:
    with pytest.raises(FedauditError, match="Did you mean 'fta-loss'"):
        choose(["fta-los"])


def test_default_and_blind() -> None:
    assert [a.name for a in choose(None)] == list(DEFAULTS["record"])
    assert [a.name for a in choose([BLIND, "loss", "loss"])] == ["loss"]
