"""The seams of the audit, each with a toy that uses nothing else: views that answer and withhold, rows with one owner,
moments, failures that are told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest

from fedaudit.adversary import signals
from fedaudit.adversary.attacks import choose, made
from fedaudit.adversary.attacks.base import BaseAttack, Gather
from fedaudit.adversary.reductions import Kept, Last, WholeSeries
from fedaudit.adversary.signals import Family
from fedaudit.adversary.vantage import View
from fedaudit.audit import Auditor, Settings
from fedaudit.errors import NotGrantedError
from fedaudit.federation import START
from fedaudit.federation.simulate import federate
from fedaudit.session.prepare import Prepared, prepare
from fedaudit.session.run import rounds
from fedaudit.types import (
    Bools,
    Candidates,
    Floats,
    Game,
    Grant,
    Moment,
    Plan,
    Records,
    Role,
    Round,
    Trained,
    Truth,
    Vantage,
)
from fedaudit.words import all_words
from tests.worlds import config


@pytest.fixture
def toy_signals(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[View]]:
    """Two signals of one family: is the predicted label right, and what the first input is. Gives the views asked."""
    asked: list[View] = []

    def measure(
        names: Iterable[str], view: View, rows: Records, known: Bools, rng: np.random.Generator
    ) -> dict[str, Floats]:
        asked.append(view)
        values = {"first-input": rows.x.reshape(len(rows), -1)[:, 0].astype(np.float64)}
        if "right-label" in names:
            answers = view.ask(rows.x)
            values["right-label"] = np.asarray(answers == rows.y, np.float64)
        return {name: values[name] for name in names}

    monkeypatch.setattr(signals, "FAMILIES", list(signals.FAMILIES))
    monkeypatch.setattr("fedaudit.audit.settings.FAMILIES", signals.FAMILIES)
    before = dict(signals.NEEDS)
    signals.register(Family({"right-label": frozenset({Grant.LABELS}), "first-input": frozenset()}, measure))
    yield asked
    signals.NEEDS.clear()
    signals.NEEDS.update(before)


@dataclass(frozen=True)
class Toy(BaseAttack):
    """The last value of one signal."""

    signal: str = "right-label"
    every_round: ClassVar[bool] = False

    @property
    def name(self) -> str:
        return f"toy-{self.signal}"

    @property
    def signals(self) -> tuple[str, ...]:
        return (self.signal,)

    def reduce(self, n: int) -> Kept:
        return Last(self.signal, 1.0, n)


def auditor(prepared: Prepared, *attacks: BaseAttack, vantages: tuple[Vantage, ...], **more: Any) -> Auditor:
    settings = Settings(vantages, attacks, prepared.settings.rounds, **more)
    return Auditor(prepared.task, prepared.game, settings.checked(asked=True))


# ------------------------------------------------------------------ views that answer and withhold


def test_a_label_only_signal_asks_and_cannot_reach_anything_else(toy_signals: list[View]) -> None:
    prepared = prepare(config(federation={"rounds": 3}))
    audit = auditor(prepared, Toy(), vantages=(Vantage.LABEL_ONLY_CLIENT,))
    for round in rounds(prepared):
        audit.observe(round)
    found = [r for r in audit.snapshot().results if r.attack == "toy-right-label"]
    assert {(r.vantage, r.model) for r in found} == {("label-only-client", "global")}
    view = toy_signals[-1]
    labels = view.ask(prepared.game.candidates.rows.x[:50])
    assert labels.shape == (50,)
    assert labels.dtype.kind == "i"
    for name in ("weights", "received", "update", "peers", "task"):
        with pytest.raises(NotGrantedError, match="label-only-client"):
            getattr(view, name)
    held = [value for name, value in vars(view).items() if name not in ("_answer",)]
    assert not any(isinstance(value, np.ndarray | dict) and len(value) for value in held)
    asked = audit.outlooks.sights["(label-only-client)"].queries
    assert asked == 3 * len(prepared.game.candidates)  # every answer was counted


def test_vantages_are_fed_each_with_what_it_can_run() -> None:
    """Beside a client, an outsider runs what the last model alone tells, and the audit says what it goes without."""
    prepared = prepare(config(federation={"rounds": 3}, audit={"vantages": ["client", "outsider", "server"]}))
    for round in rounds(prepared):
        prepared.auditor.observe(round)
    audit = prepared.auditor.snapshot()
    by_vantage = {v: {r.attack for r in audit.results if r.vantage == v} - {"blind"} for v in ("client", "outsider")}
    assert by_vantage["outsider"] == {"loss", "modified-entropy"}
    assert "fta-confidence" in by_vantage["client"]
    assert any(
        line.startswith("Left out at outsider (needs every-round): fta-confidence") for line in all_words(audit.notices)
    )
    values = {(r.vantage, r.attack): r.estimates for r in audit.results if r.party is None and r.model == "global"}
    assert values["outsider", "loss"] == values["client", "loss"]


@dataclass(frozen=True)
class LastToy(Toy):
    """The same of the last model, which is known to be the last only then."""

    deferred: ClassVar[bool] = True


def test_a_deferred_attack_is_measured_in_the_last_round_and_in_no_other(toy_signals: list[View]) -> None:
    prepared = prepare(config(federation={"rounds": 3}))
    audit = auditor(prepared, LastToy(), vantages=(Vantage.CLIENT,))
    for round in rounds(prepared):
        audit.observe(round)
    assert {view.moment.round for view in toy_signals} == {3}


def test_whoever_is_answered_alike_shares_the_measurement(toy_signals: list[View]) -> None:
    prepared = prepare(config(federation={"rounds": 2}))
    vantages = (Vantage.CLIENT, Vantage.SECAGG_SERVER, Vantage.OUTSIDER)
    audit = auditor(prepared, Toy("first-input"), vantages=vantages)
    audit.observe(next(rounds(prepared)))
    assert len(toy_signals) == 1


# ------------------------------------------------------------------ three subjects of two rows each


class Known:
    """A task whose model answers with what it was given: the score of a row is chosen by the test."""

    classes = 2

    def initial(self, seed: int) -> dict[str, np.ndarray]:
        return {"w": np.zeros(1)}

    def outputs(self, state: Any, x: np.ndarray) -> np.ndarray:
        return np.column_stack([x[:, 0], -x[:, 0]])


def three_subjects() -> Game:
    x = np.array([[1.0], [5.0], [2.0], [2.0], [0.0], [9.0]])
    rows = Records(x, np.zeros(6, np.int64), np.array(list("abcdef")), np.array(["s0", "s0", "s1", "s1", "s2", "s2"]))
    names = np.array(["s0", "s1", "s2"])
    candidates = Candidates("subject", names, np.full(3, "one"), rows, np.array([0, 0, 1, 1, 2, 2]))
    return Game(candidates, Truth(names, np.array(["member", "evaluation", "calibration"])))


@pytest.mark.parametrize(
    ("gather", "expected"),
    [("mean", [[3.0], [2.0], [4.5]]), ("sorted", [[1, 5], [2, 2], [0, 9]])],
)
def test_rows_with_one_owner_are_brought_together(
    toy_signals: list[View], gather: Gather, expected: list[list[float]]
) -> None:
    @dataclass(frozen=True)
    class Gathered(Toy):
        signal: str = "first-input"

        def reduce(self, n: int) -> Kept:
            return WholeSeries(self.signal, n)

    attack = type("So", (Gathered,), {"gather": gather})()
    game = three_subjects()
    settings = Settings((Vantage.CLIENT,), [attack], 2)
    audit = Auditor(Known(), game, settings)  # type: ignore[arg-type]
    state = {"w": np.zeros(1)}
    audit.observe(Round(1, state, {"one": Trained(state, 1, 0.1)}, state))
    assert audit.outlooks.everyone.reductions[attack.name].features().tolist() == expected
    scores = audit.case().scores.of(audit.outlooks.everyone, attack)
    assert scores.shape == (3,)
    assert audit.case().scores.block(audit.outlooks.everyone, attack).members.tolist() == [expected[0][0]]


# ------------------------------------------------------------------ time is (round, probe)


def with_probes(prepared: Prepared) -> list[Plan]:
    """A probe of the first party alone before the second round, and two of everybody before the last."""
    names = tuple(sorted(party.name for party in prepared.parties))
    first, second, third = prepared.plans
    return [first, Plan(names[:1], commit=False), second, Plan(names, commit=False), Plan(names, commit=False), third]


def test_a_probe_moves_nothing() -> None:
    prepared = prepare(config(federation={"rounds": 3}))
    plain = list(rounds(prepared))
    seen = list(federate(prepared.task, prepared.parties, with_probes(prepared), 0, START))
    assert [(r.index, r.probe, r.commit) for r in seen] == [
        (1, 0, True), (1, 1, False), (2, 0, True), (2, 1, False), (2, 2, False), (3, 0, True),
    ]  # fmt: skip
    kept = [round for round in seen if not round.probe]
    for one, other in zip(plain, kept, strict=True):
        assert all(np.array_equal(one.aggregate[name], other.aggregate[name]) for name in one.aggregate)
    assert list(seen[1].sent) == ["party-0"]
    fta = made("fta-confidence")
    quiet, probed = (auditor(prepared, fta, vantages=(Vantage.CLIENT,)) for _ in range(2))
    for round in plain:
        quiet.observe(round)
    for round in seen:
        probed.observe(round)
    assert probed.last_round == quiet.last_round == 3
    probed.observe(replace(seen[-2], index=3, probe=1))
    assert probed.accuracy() == quiet.accuracy() != {}
    assert probed.last_round == 3
    slopes = [a.case().scores.of(a.outlooks.everyone, fta) for a in (quiet, probed)]
    assert np.array_equal(slopes[0], slopes[1])
    assert probed.outlooks.everyone.rounds == quiet.outlooks.everyone.rounds == 3
    assert {k: v.estimates for k, v in _pooled(quiet).items()} == {k: v.estimates for k, v in _pooled(probed).items()}


def _pooled(audit: Auditor) -> dict[str, Any]:
    return {r.attack: r for r in audit.snapshot().results if r.party is None}


def test_candidates_and_truth_at_moments() -> None:
    """A candidate that does not exist at a moment has no value there; what is true may change from probe to probe."""
    moments = [Moment(1, 1), Moment(1, 2)]
    names = np.array(["canary-0", "canary-1"])
    rows = Records(np.zeros((2, 1)), np.zeros(2, np.int64), names)
    there = {moments[0]: np.array([True, False])}
    candidates = Candidates("user", names, np.full(2, "one"), rows, np.arange(2), at=there)
    roles = {moments[1]: np.array(["evaluation", "member"])}
    truth = Truth(names, np.array(["member", "evaluation"]), at=roles)
    assert candidates.present(moments[0]).tolist() == [True, False]
    assert candidates.present(moments[1]).tolist() == [True, True]
    assert truth.mask(Role.MEMBER).tolist() == truth.mask(Role.MEMBER, moments[0]).tolist() == [True, False]
    assert truth.mask(Role.MEMBER, moments[1]).tolist() == [False, True]


# ------------------------------------------------------------------ what fails is told


def test_an_estimate_that_fails_in_a_round_is_told() -> None:
    """A gap in the curve over the rounds has its reason in the notices."""
    prepared = prepare(config(federation={"rounds": 3}, audit={"vantages": ["client"], "attacks": ["loss"]}))
    audit = prepared.auditor
    for round in rounds(prepared):
        seen = audit.measure(round)
        assert seen is not None
        if round.index == 2:  # a tenth of the records without a number: no estimate of this round
            values = dict(seen.of[None].values)
            values["loss"] = np.where(np.arange(len(values["loss"])) % 10 == 0, np.nan, values["loss"])
            seen = replace(seen, of={None: replace(seen.of[None], values=values)})
        audit.absorb(seen, round)
    found = audit.snapshot()
    (entry,) = [r for r in found.results if r.attack == "loss" and r.party is None]
    assert list(entry.curves["auc"].x) == [1.0, 3.0]
    assert any(
        line.startswith("Round 2, loss on global models has no estimate: loss: ") for line in all_words(found.notices)
    )


def test_signals_that_fail_only_together_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = prepare(
        config(federation={"rounds": 2}, audit={"vantages": ["client"], "attacks": ["loss", "fta-confidence"]})
    )
    real = signals.measure

    def measure(names: Iterable[str], *arguments: Any) -> dict[str, Floats]:
        if len(list(names)) > 1:
            raise MemoryError
        return real(names, *arguments)

    monkeypatch.setattr("fedaudit.audit.collect.measure", measure)
    for round in rounds(prepared):
        prepared.auditor.observe(round)
    found = prepared.auditor.snapshot()
    assert found.failed == {}
    assert any(
        "Round 2: signals were measured one by one" in line and "MemoryError" in line
        for line in all_words(found.notices)
    )


def test_one_record_without_a_number_rescales_nobody() -> None:
    """fedmia's shared spread is that of the records that have one; it is not 1, which stands for no spread at all."""
    rng = np.random.default_rng(0)
    own, peers = rng.normal(scale=0.1, size=(30, 2)), rng.normal(scale=0.1, size=(30, 6))

    def distances(own: Floats, peers: Floats) -> Floats:
        (attack,) = choose(["fedmia"])
        kept = attack.reduce(30)
        kept.observe(Moment(1), {"gradient-cosine": own, "peer-cosine": peers})
        return kept.features()[:, 2]

    whole = distances(own, peers)
    odd, odd_peers = own.copy(), peers.copy()
    odd[7], odd_peers[7] = np.nan, np.nan
    found = distances(odd, odd_peers)
    assert np.isnan(found[7])
    ratio = np.delete(found, 7) / np.delete(whole, 7)
    assert np.ptp(ratio) < 1e-9
    assert 0.8 < ratio[0] < 1.2


def test_T33_a_tiny_party_is_part_of_the_pooled_rate() -> None:
    from fedaudit.stats import Block, tpr_at_fpr
    from fedaudit.stats.roc import estimates as judged

    rng = np.random.default_rng(0)
    large = [Block(rng.normal(1, 1, 300), rng.normal(size=300), rng.normal(size=600)) for _ in range(3)]
    tiny = Block(rng.normal(1, 1, 20), rng.normal(size=20), rng.normal(size=20))
    found = judged([*large, tiny], [0.01], 0.95)["tpr@0.01"]
    assert found == tpr_at_fpr([*large, tiny], 0.01)
    assert (found.n_pos, found.n_cal) == (920, 1820)
    assert (found.reason or "").startswith("1 of 4 parties have too few calibration non-members")
    assert judged([tiny, tiny], [0.01], 0.95)["tpr@0.01"].value is None
