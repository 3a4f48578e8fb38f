"""Label-only attacks out of the ordinary: models that give no numbers, rounds that nobody planned."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedaudit.adversary.attacks.base import Evidence, Own
from fedaudit.adversary.attacks.tear import Boundary, Tear
from fedaudit.adversary.signals.searching import DISTANCE, QUERIES, RIGHT
from fedaudit.adversary.vantage import view
from fedaudit.session.prepare import Prepared, prepare
from fedaudit.session.run import rounds
from fedaudit.types import Moment, Vantage
from tests.audit.test_tear import LABEL_ONLY, asking, pooled


def diverged(state: Any) -> Any:
    return {name: np.full_like(of, np.nan) for name, of in state.items()}


def sight(prepared: Prepared) -> Any:
    return prepared.auditor.outlooks.sights["(label-only-client)"]


@pytest.mark.parametrize("since", [1, 2])
def test_a_model_that_diverged_is_told_and_not_reported_as_nothing_found(since: int) -> None:
    attacks = [*LABEL_ONLY, "tear-deepfool"]
    prepared = prepare(asking(attacks, {"queries": 60}, federation={"rounds": 3, "local_epochs": 1}))
    for round in rounds(prepared):
        bad = diverged(round.aggregate) if round.index >= since else round.aggregate
        prepared.auditor.observe(replace(round, aggregate=bad))
    audit = prepared.auditor.snapshot()
    assert set(audit.failed) == set(attacks)
    assert all("scores are NaN since round" in why for why in audit.failed.values())
    assert "no record has a finite label-right" in audit.failed["gap"]
    assert set(pooled(audit)) == {"blind"}


def test_records_that_a_model_has_no_label_for_are_the_least_suspicious() -> None:
    """NaN for a few inputs only: these have neither a right label nor a distance, and are no start for others."""
    prepared = prepare(asking(["boundary", "gap", "tear"], federation={"rounds": 2, "local_epochs": 1}))
    round = next(iter(rounds(prepared)))
    rows, task = prepared.game.candidates.rows, prepared.task
    odd = np.isin(np.arange(len(rows)), np.flatnonzero(sight(prepared).own(None))[:30:10]) | (np.arange(len(rows)) == 3)
    marks = rows.x[odd]

    class Odd:
        classes = task.classes

        def asking(self, state: Any) -> Any:
            return self.outputs

        def outputs(self, x: Any) -> Any:
            out = np.array(task.outputs(round.aggregate, x))
            out[(x[:, None] == marks[None]).all(axis=2).any(axis=1), 0] = np.nan
            return out

    seen = view(Vantage.LABEL_ONLY_CLIENT, "global", Moment(1), Odd(), round.aggregate)  # type: ignore[arg-type]
    assert np.array_equal(seen.ask(rows.x) == -1, odd)
    found = (
        sight(prepared)
        .searches[""]
        .measure([RIGHT, DISTANCE, QUERIES], seen, rows, np.zeros(len(rows), bool), np.random.default_rng(0))
    )
    assert np.array_equal(np.isnan(found[RIGHT]), odd)
    assert np.isneginf(found[DISTANCE][odd]).all()
    assert (found[QUERIES][odd] == 1).all()
    own = sight(prepared).own(None)
    searched = sight(prepared).searches[""].asked & ~odd
    assert np.isfinite(found[DISTANCE][searched, 0]).all()
    scores = Boundary().score(found[DISTANCE])
    assert np.isneginf(scores[odd]).all()  # counted and told as scores that are no numbers
    taught = Tear().fit(Evidence(own=Own(found[DISTANCE][own], sight(prepared).role[own] == "member")))
    assert taught.score(found[DISTANCE])[odd].max() <= np.median(taught.score(found[DISTANCE])[searched])
