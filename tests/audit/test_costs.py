"""What attacks cost: each what it would cost alone, and together what the audit took. No test looks at a real clock."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from fedaudit.adversary.attacks import made
from fedaudit.adversary.shadow import Banks
from fedaudit.adversary.signals import measure
from fedaudit.audit import Auditor, collect, costs
from fedaudit.audit.outlooks import SHADOW, Shadow
from fedaudit.config.schema import Config
from fedaudit.federation.simulate import federate
from fedaudit.questions.canary.parties import Canaries
from fedaudit.session import isolation
from fedaudit.session.prepare import Prepared, prepare
from fedaudit.session.run import rounds
from fedaudit.types import AuditResult, Measured, Round
from tests.audit.test_canaries import asking as crafted
from tests.audit.test_states import thawed
from tests.worlds import config

# Seconds of a family of signals in one round, of a bank, and of what is trained.
PRICE = {"logit": 1.0, "merlin": 1000.0, "gradient-cosine": 30.0, "matched-filter": 7.0, "loss-before": 2.0}
PRICE |= {"label-right": 0.25, "boundary": 400.0, "plain-reference": 90.0, "inverse-hessian": 5.0}
TRAINED, FEDERATED, FITTED = 20.0, 45.0, 11.0
ROUNDS, PARTIES = 3, 2


@dataclass
class Clock:
    """Stands still, except for what has a price."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now

    def pay(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Everything is measured, trained and fitted as ever; the time that it takes is the price."""
    made = Clock()
    answers, trained = Banks.answers, Shadow._trained

    def measuring(names: Any, view: Any, rows: Any, known: Any, families: Any) -> Any:
        made.pay(sum(PRICE[family.name.partition("+")[0]] for family in families))
        return measure(names, view, rows, known, families)

    def answering(banks: Banks, name: str, *given: Any) -> Any:
        made.pay(PRICE[name])
        return answers(banks, name, *given)

    def training(shadow: Shadow, *given: Any) -> Any:
        made.pay(TRAINED)
        return trained(shadow, *given)

    def federating(*given: Any, **more: Any) -> Iterator[Round]:
        for round in federate(*given, **more):
            made.pay(FEDERATED)
            yield of_one_second(round)

    monkeypatch.setattr(costs, "clock", made)
    monkeypatch.setattr(collect, "measure", measuring)
    monkeypatch.setattr(Banks, "answers", answering)
    monkeypatch.setattr(Shadow, "_trained", training)
    monkeypatch.setattr(isolation, "federate", federating)
    return made


def of_one_second(round: Round) -> Round:
    """One local epoch takes a second; a canary has none."""
    seconds = {name: 1.0 if sent.epoch_seconds else 0.0 for name, sent in round.sent.items()}
    return replace(round, sent={name: replace(sent, epoch_seconds=seconds[name]) for name, sent in round.sent.items()})


def asking(attacks: Sequence[Any], **audit: Any) -> Config:
    asked = {"attacks": attacks, "reference": {"models": 4}, **audit}
    return config(data={"name": "breast-cancer"}, federation={"rounds": ROUNDS}, audit=asked)


def watched(settings: Config, until: int = ROUNDS) -> tuple[Prepared, list[Measured]]:
    """The audit after some rounds, and what was measured in them."""
    prepared, seen = prepare(settings), list[Measured]()
    for round in rounds(prepared):
        if round.index <= until:
            observed = prepared.auditor.observe(of_one_second(round))
            assert observed is not None
            seen += observed.of.values()
    return prepared, seen


def found(auditor: Auditor) -> dict[tuple[str, str], AuditResult]:
    results = auditor.snapshot().results
    return {(r.attack, r.model): r for r in results if r.party is None and r.attack != "blind"}


def paid(settings: Config, until: int = ROUNDS) -> dict[tuple[str, str], float]:
    return {of: result.cost.epochs or 0.0 for of, result in found(watched(settings, until)[0].auditor).items()}


DEAR = ["merlin", "gradient-cosine", "matched-filter", "lira", "inverse-hessian"]


@pytest.mark.parametrize("until", [ROUNDS, 2])
def test_an_attack_costs_beside_others_what_it_costs_alone(until: int) -> None:
    """Also after Ctrl-C, when attacks on the last model look at the one that is there."""
    together = paid(asking(["loss", *DEAR, "round-gain"]), until)
    for attack in ("loss", *DEAR, "round-gain"):
        for of, cost in paid(asking([attack]), until).items():
            assert together[of] == cost, (of, until)
    one_pass = 1 / PARTIES  # for all parties' records, in units of all parties' epochs
    assert together["loss", "global"] == PRICE["logit"] * one_pass
    assert together["loss", "local"] == PRICE["logit"]
    assert together["round-gain", "local"] == PRICE["logit"] + PRICE["loss-before"]
    assert together["merlin", "local"] == PRICE["merlin"] / until  # once, and a round has that share of it
    asked = until if until == ROUNDS else until + 1  # the references of an interrupted run are asked once more
    assert together["lira", "local"] == (PRICE["plain-reference"] * asked + PRICE["logit"]) / until


@pytest.mark.parametrize("attacks", [["loss", *DEAR[:3]], [*DEAR]])
def test_what_attacks_with_nothing_in_common_cost_adds_up_to_the_audit(attacks: list[str]) -> None:
    prepared, seen = watched(asking(attacks))
    auditor = prepared.auditor
    scores = auditor.case().scores
    charged = 0.0
    for vantage, model in auditor.settings.watched():
        for attack in auditor.settings.on(vantage, model):
            charged += scores.seconds(auditor.outlooks.of(vantage, model), attack)
    assert charged == sum(one.seconds for one in seen) == sum(sum(one.spent.values()) for one in seen) > 0


def test_what_is_kept_of_the_rounds_and_what_is_fitted_is_charged(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    cosine, loss = (type(made(name)) for name in ("gradient-cosine", "loss"))
    fit, reduce = cosine.fit, collect.Sight.reduce

    def fitting(*given: Any) -> Any:
        clock.pay(FITTED)
        return fit(*given)

    def reducing(sight: Any, attack: Any, *given: Any) -> Any:
        clock.pay(3.0 if isinstance(attack, loss) else 0.0)
        return reduce(sight, attack, *given)

    monkeypatch.setattr(cosine, "fit", fitting)
    monkeypatch.setattr(collect.Sight, "reduce", reducing)
    together = paid(asking(["loss", "gradient-cosine"]))
    assert together["loss", "local"] == PRICE["logit"] + 3
    assert together["gradient-cosine", "local"] == PRICE["gradient-cosine"] + FITTED / ROUNDS


def test_a_shadow_model_is_charged_to_those_who_learn_from_it() -> None:
    prepared, _ = watched(asking(["loss", "gradient-series", "logit-series"], adversary="agg-sh"))
    together = found(prepared.auditor)
    assert together["loss", "local"].cost.epochs == PRICE["logit"]
    own = TRAINED + PRICE["logit"]  # one shadow, and one pass over the adversary's records, for all parties
    for attack in ("gradient-series", "logit-series"):
        assert together[attack, "local"].cost.epochs == PRICE["logit"] + own / PARTIES
        alone, _ = watched(asking([attack], adversary="agg-sh", vantages=["server"]))
        assert found(alone.auditor)[attack, "local"].cost == together[attack, "local"].cost


def test_a_malicious_aggregator_is_charged_the_federations_that_it_trains() -> None:
    prepared, _ = watched(asking(["loss", "gradient-series"], adversary="agg-mal"))
    assert prepared.isolation is not None
    prepared.isolation.run(lambda: None)
    costs_of = {(r.attack, r.party): r.cost.epochs for r in prepared.snapshot().results if r.model == "local"}
    assert costs_of["loss", None] == PRICE["logit"]
    for party in (None, *prepared.game.parties):
        # A federation, a pass over the party's records and one over the aggregator's own, in every round.
        assert costs_of["gradient-series", party] == FEDERATED + 2 * PRICE["logit"]
    assert SHADOW not in prepared.game.parties


def test_with_options_of_its_own_an_attack_is_charged_its_own_pass() -> None:
    boundary, tear = ({"name": name, "targets": 1} for name in ("boundary", "tear"))
    asked = {"vantages": ["client", "label-only-client"], "tear": {"queries": 200, "own": 120}}
    own = paid(asking([boundary, tear, "boundary", "matched-filter", "matched-filter+damping=5"], **asked))
    for name in ("boundary+targets=1", "tear+targets=1"):  # the search of a round goes on from the last one's
        assert own[name, "global"] == PRICE["boundary"] / PARTIES
    assert own["boundary", "global"] == PRICE["boundary"] / ROUNDS / PARTIES  # nobody searches so in every round
    for name in ("matched-filter", "matched-filter+damping=5"):
        assert own[name, "global"] == PRICE["matched-filter"] / PARTIES


def test_whoever_asks_for_labels_once_is_not_charged_every_round() -> None:
    tear = {"queries": 200, "own": 120}
    asked = {"vantages": ["label-only-client"], "tear": tear}
    together = paid(asking(["gap", "gap-rounds", "boundary", "tear"], **asked))
    assert together["gap", "global"] == PRICE["label-right"] / ROUNDS / PARTIES
    assert together["gap-rounds", "global"] == PRICE["label-right"] / PARTIES
    # The search of a round goes on from the last one's, and its labels are shared among the rounds.
    assert together["boundary", "global"] == together["tear", "global"] == PRICE["boundary"] / PARTIES


def test_an_outsider_to_whom_a_defence_answers_has_the_same_unit() -> None:
    """It asks the last model alone: one pass, in units of the epochs of all rounds."""
    settings = Config.model_validate(
        asking(["loss"], vantages=["client", "outsider"]).as_dict()
        | {"defences": [{"name": "memguard", "strength": 1.0}]}
    )
    for until in (ROUNDS, 2):
        results = watched(settings, until)[0].auditor.snapshot().results
        by_vantage = {r.vantage: r.cost.epochs for r in results if r.party is None and r.attack == "loss"}
        assert by_vantage["client"] == PRICE["logit"] / PARTIES
        assert by_vantage["outsider"] == PRICE["logit"] / PARTIES / until


def test_a_crafted_canary_is_charged_its_making_and_the_probes_that_are_thrown_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant, crafting = Canaries._plant, 70.0
    monkeypatch.setattr(Canaries, "_plant", lambda *given: replace(plant(*given), seconds=crafting))
    probing, running = crafted({"probes": 16, "every": 1}), crafted({"mode": "running"}, federation={"rounds": 6})
    (separate,) = (r.cost for r in watched(probing, 2)[0].auditor.snapshot().results if r.attack == "canife")
    (along,) = (r.cost for r in watched(running, 6)[0].auditor.snapshot().results if r.attack == "canife")
    assert separate.epochs == (2 * crafting + 2 * 16 * 8) / (2 * 8)  # two rounds of eight parties
    assert along.epochs == 6 * crafting / (6 * 8)


# ------------------------------------------------------------------ between two rounds


def test_costs_are_the_same_in_another_process_and_from_what_was_stored() -> None:
    settings = asking(["loss", *DEAR, "gradient-series"], adversary="agg-sh")
    prepared, _ = watched(settings)
    parts, again = (Auditor(prepared.task, prepared.game, prepared.settings) for _ in range(2))
    for round in rounds(prepared):
        seen = parts.observe(of_one_second(round))
        again.absorb(seen)
        parts = thawed(parts, prepared)
    whole = {of: result.cost for of, result in found(prepared.auditor).items()}
    for other in (parts, again):
        assert {of: result.cost for of, result in found(other).items()} == whole


@pytest.mark.parametrize("told", [None, 0, -1.0, True, float("nan"), float("inf"), "3"])
def test_what_is_no_time_was_not_told(told: object) -> None:
    """An epoch of next to no time would make every attack look dear."""
    assert costs.an_epoch(10.0, 5, told) == 2.0
    assert costs.an_epoch(10.0, 5, 3) == 3.0
