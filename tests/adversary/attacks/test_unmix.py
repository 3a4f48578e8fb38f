"""Unmix as an attack: what it finds, from where, and what it says beside its figures."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedaudit.adversary.attacks.unmix import Fitted
from fedaudit.adversary.reductions import flatten, unflatten
from fedaudit.adversary.signals import unmix
from fedaudit.adversary.signals.updates import UnmixOptions
from fedaudit.adversary.vantage import view
from fedaudit.audit import Auditor
from fedaudit.privacy.statement import Process, Promise
from fedaudit.session.assemble import unmix_options
from fedaudit.session.prepare import prepare
from fedaudit.session.run import rounds
from fedaudit.types import Moment, Notice, Vantage, notice
from fedaudit.words import words
from tests.adversary.attacks.test_matched import pooled
from tests.worlds import config, null_world, watch

FEDERATION = {"parties": 3, "rounds": 2, "members": 0.15, "nonmembers": 0.3}


def said(notices: Any) -> dict[tuple[str, str], Notice]:
    return {(one.data["attack"], one.data["model"]): one for one in notices if one.code == "unmixed"}


def test_it_finds_what_was_trained_on_and_says_how_much_it_knew() -> None:
    asked = {"attacks": ["unmix", "unmix+coverage=0.25", "matched-filter", "matched-filter+layer=all"]}
    audit = watch(prepare(config(federation=FEDERATION, model={"hidden": [32]}, audit=asked)))
    assert audit.failed == {}
    found = pooled(audit)
    whole, part, filtered = (
        found[name, "local"].estimates["auc"] for name in ("unmix", "unmix+coverage=0.25", "matched-filter")
    )
    assert whole.low > 0.75
    assert whole.value > max(part.value, filtered.value)
    assert part.low > 0.6
    assert found["unmix", "global"].estimates["auc"].low > 0.6
    assert found["matched-filter+layer=all", "local"].layer == "all"
    assert found["matched-filter+layer=all", "local"].estimates["auc"].low > 0.6
    explained = found["unmix", "local"].curves["explained"]
    assert explained.x == [1.0, 2.0]
    assert all(0 < value < 1 for value in explained.value)
    assert explained.low == explained.high == [None, None]  # no interval is claimed
    told = said(audit.notices)
    assert told["unmix", "local"].data["coverage"] == told["unmix", "global"].data["coverage"] == 1.0
    assert told["unmix+coverage=0.25", "local"].data["coverage"] == pytest.approx(0.25, abs=0.01)


@pytest.mark.filterwarnings("ignore:Mean of empty slice")
def test_a_regression_that_was_not_solved_is_told() -> None:
    kept = Fitted("unmix", "fit", 2)
    values = {"unmix": np.zeros(2), "fit": np.array([[0.5, 1e-9, 1.0]] * 2)}
    failed = {**values, "fit": np.array([[0.5, np.nan, 1.0]] * 2)}
    for round, seen in enumerate((values, failed, values), start=1):
        kept.observe(SimpleNamespace(round=round), seen)  # type: ignore[arg-type]
    assert np.isnan(kept.regression().error)
    for error in (None, float("nan")):
        told = {"vantage": "server", "model": "local", "attack": "unmix", "coverage": 1.0, "explained": error}
        assert "was not solved" in words(notice("unmixed", **told, error=error))


def test_a_filter_over_all_layers_may_be_asked_for_by_the_section_too() -> None:
    asked = {"attacks": ["matched-filter", "projres", "inverse-hessian"], "matched": {"layer": "all"}}
    prepared = prepare(config(federation=FEDERATION, model={"hidden": [8]}, audit=asked))
    assert prepared.settings.filter_share > 0.9  # all but the biases
    audit = watch(prepared)
    assert audit.failed == {}
    assert pooled(audit)["matched-filter", "local"].layer == "all"


def test_nothing_is_found_where_nothing_was_trained_on() -> None:
    asked = {"attacks": ["unmix", "unmix+coverage=0.5", "matched-filter+layer=all"]}
    audit = watch(null_world(config(federation={"rounds": 3}, audit=asked)))
    assert audit.failed == {}
    for (attack, model), result in pooled(audit).items():
        found = result.estimates["auc"]
        assert found.low <= 0.5 <= found.high, (attack, model, found)


def test_groups_do_not_depend_on_the_order_of_the_candidates() -> None:
    prepared = prepare(config(federation=FEDERATION, audit={"vantages": ["client"], "attacks": ["unmix+coverage=0.5"]}))
    sight = prepared.auditor.outlooks.everyone
    (unmixing,) = prepared.settings.unmixing(prepared.settings.signals).values()
    (again,) = prepared.settings.unmixing(prepared.settings.signals).values()
    first = next(rounds(prepared))
    seen = prepared.auditor.observe(first)
    assert seen is not None
    looked = view(Vantage.CLIENT, "global", Moment(1), prepared.task, first.aggregate, first.broadcast)
    order = np.random.default_rng(0).permutation(len(sight.rows))
    known, rng = np.zeros(len(order), bool), np.random.default_rng(0)
    plain = unmixing.measure(["unmix"], looked, sight.rows, known, rng)["unmix"]
    mixed = again.measure(["unmix"], looked, sight.rows.take(order), known, rng)["unmix"]
    assert np.allclose(plain[order], mixed, atol=1e-4)
    assert np.allclose(plain, seen.of[None].values["unmix+coverage=0.5"], atol=1e-4)


def test_what_the_first_update_said_of_the_optimiser_is_known_in_another_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A party's audit is restored in every round, and decided anew each time."""
    prepared = prepare(config(federation=FEDERATION, audit={"vantages": ["client"], "attacks": ["unmix"]}))
    settings = replace(prepared.settings, unmixings={"": UnmixOptions(adaptive=None)})
    audit, again = (Auditor(prepared.task, prepared.game, settings) for _ in range(2))
    made = rounds(prepared)
    audit.observe(next(made))
    assert audit.outlooks.everyone.unmixings[""].adaptive is True
    again.restore(unflatten(*flatten(audit.state())))
    monkeypatch.setattr(unmix, "uses_adam", lambda *_: pytest.fail("asked again"))
    again.observe(next(made))
    assert again.outlooks.everyone.unmixings[""].adaptive is True


def test_how_it_is_set_follows_from_the_configuration() -> None:
    """No defence is known where somebody else trains, nor is it known whether they use Adam."""
    plain, sgd = config(), config(federation={"optimizer": "sgd"})
    noise = Promise(
        defence="dp-sgd", process=Process("record", 1.0, 10, "full"), delta=1e-5, units=100, against="the server"
    )
    assert unmix_options(plain, ()) == UnmixOptions(adaptive=True)
    assert unmix_options(sgd, ()) == UnmixOptions()
    assert unmix_options(plain, None) == UnmixOptions(adaptive=None)  # the first update says it
    assert unmix_options(plain, (noise,)) == UnmixOptions(damping=10.0, ridge=1.0, adaptive=True)
    asked = "+damping=3+ridge=0.5+layer=1+sketch=16+coverage=0.2"
    assert unmix_options(plain, (noise,), asked) == UnmixOptions(
        damping=3.0, ridge=0.5, layer="1", sketch=16, coverage=0.2, adaptive=True
    )
