"""What an audit is between two rounds: it goes on in another process, and a snapshot changes nothing."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedaudit.adversary.attacks import every
from fedaudit.adversary.reductions import flatten, unflatten
from fedaudit.audit import Auditor
from fedaudit.config.schema import Config
from fedaudit.session.assemble import SERIES
from fedaudit.session.prepare import Prepared, prepare
from fedaudit.session.run import rounds
from fedaudit.types import Audit, Floats
from tests.audit.test_attributes import world
from tests.audit.test_people import people
from tests.worlds import config, half_digits, of_records

pytestmark = pytest.mark.usefixtures("few_trees")


def every_attack() -> dict[str, Any]:
    """But for the variants of a slope that another signal or degree has, too."""
    attacks = [name for name in of_records() if not re.match("fta-(loss|logit)-|fta-confidence-degree[23]", name)]
    vantages = ["client", "server", "label-only-client"]
    tear = {"queries": 80, "own": 80}
    options = [{"name": "tear", "targets": 1}, {"name": "matched-filter", "damping": 5}, {"name": "fta", "degree": 5}]
    return {"attacks": [*attacks, *options], "vantages": vantages, "reference": {"models": 4}, "tear": tear}


def scores(audit: Auditor) -> Floats:
    return np.array(audit.score_table()["score"], np.float64)


def told(audit: Audit) -> list[Any]:
    """All that an audit says but for times."""
    results = [(r.attack, r.model, r.party, r.estimates, r.curves, r.cost.queries) for r in audit.results]
    return [*results, audit.headlines, audit.accuracy, audit.failed]


def anew(prepared: Prepared) -> Auditor:
    return Auditor(prepared.task, prepared.game, prepared.settings)


def thawed(audit: Auditor, prepared: Prepared) -> Auditor:
    """The same audit in another process."""
    arrays, rest = flatten(audit.state())
    assert all(array.dtype != object for array in arrays.values())
    other = anew(prepared)
    other.restore(unflatten(arrays, json.loads(json.dumps(rest))))
    return other


def gone_on(prepared: Prepared) -> Auditor:
    """An audit that is frozen and thawed after every round, the last one too."""
    audit = anew(prepared)
    for round in rounds(prepared):
        audit.observe(round)
        audit = thawed(audit, prepared)
    return audit


def same_state(one: Any, other: Any) -> bool:
    (arrays, rest), (others, its_rest) = one, other
    same = (np.array_equal(array, others[name], equal_nan=array.dtype.kind == "f") for name, array in arrays.items())
    return arrays.keys() == others.keys() and all(same) and json.dumps(rest) == json.dumps(its_rest)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """Every attack on half of the digits, in one process and undisturbed."""
    data = half_digits(tmp_path_factory.mktemp("data"))
    prepared = prepare(config(data=data, federation={"rounds": 3}, audit=every_attack()))
    for round in rounds(prepared):
        prepared.auditor.observe(round)
    return prepared


@pytest.fixture(scope="module")
def found(whole: Prepared) -> tuple[Audit, Floats]:
    return whole.auditor.snapshot(), scores(whole.auditor)


def test_every_attack_goes_on_in_another_process_after_every_round(
    whole: Prepared, found: tuple[Audit, Floats]
) -> None:
    parts = gone_on(whole)
    assert parts.failed == whole.auditor.failed == {}
    assert told(parts.snapshot()) == told(found[0])
    assert np.array_equal(scores(parts), found[1], equal_nan=True)


def of_a_shadow(folder: Path) -> Config:
    return config(federation={"rounds": 3}, audit={"attacks": ["loss", *SERIES], "adversary": "agg-sh"})


def of_subjects(folder: Path) -> Config:
    options = {"vantages": ["client", "server"], "reference": {"models": 4}}
    return people(folder, every("subject"), options, rounds=3, local_epochs=2)


def of_an_attribute(folder: Path) -> Config:
    rng = np.random.default_rng(0)
    x, y, z = rng.normal(size=(600, 4)), rng.integers(0, 2, 600), rng.integers(0, 2, 600)
    settings = world(folder, x, y, z, {})
    return settings.model_copy(
        update={"federation": settings.federation.model_copy(update={"rounds": 3, "local_epochs": 3})}
    )


@pytest.mark.parametrize(
    ("settings", "attacks"),
    [(of_a_shadow, {*SERIES}), (of_subjects, {*every("subject")}), (of_an_attribute, {"attribute"})],
)
def test_attacks_that_are_not_on_records_alone_go_on_too(settings: Any, attacks: set[str], tmp_path: Path) -> None:
    prepared = prepare(settings(tmp_path))
    for round in rounds(prepared):
        prepared.auditor.observe(round)
    undisturbed, parts = prepared.auditor.snapshot(), gone_on(prepared).snapshot()
    assert attacks <= {result.attack for result in undisturbed.results}
    assert told(parts) == told(undisturbed)


def test_what_a_thawed_audit_lacks_until_the_next_round_is_said() -> None:
    """The last model itself is not kept: attacks that have not looked at it yet go without a result, and before the
    last planned round nobody knows how often it is right."""
    prepared = prepare(config(federation={"rounds": 3}, audit={"attacks": ["loss", "merlin"], "vantages": ["client"]}))
    made = list(rounds(prepared))
    audit = prepared.auditor
    for round in made[:2]:
        audit.observe(round)
    live, other = audit.snapshot(), thawed(audit, prepared)
    lacking = other.snapshot()
    assert lacking.accuracy == {} != live.accuracy
    assert lacking.failed == {"merlin": "merlin needs the last model, and neither that model nor its signals were kept"}
    # The error is shared among the attacks that have a result, so that a verdict may be worded differently.
    assert [h.estimates for h in lacking.headlines] == [h.estimates for h in live.headlines]
    others = [result for result in live.results if result.attack != "merlin"]
    rest = replace(live, results=others, failed=lacking.failed, accuracy={}, headlines=lacking.headlines)
    assert told(lacking) == told(rest)
    audit.observe(made[2])
    other.observe(made[2])
    assert told(other.snapshot()) == told(audit.snapshot())
    assert other.failed == {}


def test_a_snapshot_in_the_middle_changes_no_later_result(whole: Prepared, found: tuple[Audit, Floats]) -> None:
    watched = anew(whole)
    for round in rounds(whole):
        watched.observe(round)
        if round.index == 2:
            before = flatten(watched.state())
            assert all(result.cost.epochs is not None for result in watched.snapshot().results)
            watched.score_table()
            assert same_state(flatten(watched.state()), before)
    assert told(watched.snapshot()) == told(found[0])
    assert np.array_equal(scores(watched), found[1], equal_nan=True)
