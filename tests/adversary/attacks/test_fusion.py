"""Layer choice, means over rounds, and fusion, against the same done in one go."""

import numpy as np
import pytest

from fedaudit.adversary.attacks import choose
from fedaudit.adversary.attacks.base import Evidence
from fedaudit.adversary.attacks.fusion import Fusion
from fedaudit.adversary.attacks.gradients import LayerAttack
from fedaudit.adversary.attacks.reference import KTA
from fedaudit.adversary.reductions import Mean
from fedaudit.config.schema import AuditSection, parse
from fedaudit.errors import FedauditError
from fedaudit.session import assemble
from fedaudit.session.prepare import prepare
from fedaudit.types import Floats, Grant, Moment
from tests.worlds import config, watch


def fuse(*names: str, weights: tuple[float, ...] | None = None) -> Fusion:
    return Fusion(names or None, weights).configured(AuditSection())


def series(rounds: int = 8, n: int = 40, columns: int = 4) -> Floats:
    spread = np.array([0.3, 0.1, 0.2, 0.05])[:columns]
    return np.random.default_rng(0).normal(0, spread, size=(rounds, n, columns))


def test_the_mean_is_kept_as_sums() -> None:
    values = series()
    reduction = Mean("gradient-cosine", 40)
    assert np.isnan(reduction.features()).all()
    for index, now in enumerate(values):
        reduction.observe(Moment(3 * index), {"gradient-cosine": now})
    assert reduction.features() == pytest.approx(values.mean(axis=0), abs=1e-15)


def test_the_least_varying_layer_is_chosen_and_never_the_sum_of_layers() -> None:
    features = series().mean(axis=0)
    fitted = LayerAttack().fit(Evidence(features))
    assert fitted.layer == 1
    assert np.array_equal(fitted.score(features), features[:, 1])
    still = features.copy()
    still[:, 1] = 0.0  # a layer that does not move
    assert LayerAttack().fit(Evidence(still)).layer == 2


def test_fusion_is_the_sum_of_standardised_parts() -> None:
    cosine, rng = series(), np.random.default_rng(1)
    confidence = rng.random((8, 40)).cumsum(axis=0)
    attack = fuse("gradient-cosine", "fta-confidence", weights=(2.0, 1.0))
    reduction = attack.reduce(40)
    for index in range(8):
        reduction.observe(Moment(index + 1), {"gradient-cosine": cosine[index], "confidence": confidence[index]})
    reference = np.arange(40) < 15
    features = reduction.features()
    found = attack.fit(Evidence(features[reference])).score(features)
    slope = np.array([np.polyfit(np.arange(8), confidence[:, i], 1)[0] for i in range(40)])
    parts = (cosine.mean(axis=0)[:, 1], slope)
    expected = sum(w * (p - p[reference].mean()) / p[reference].std() for w, p in zip((2, 1), parts, strict=True))
    assert found == pytest.approx(expected, abs=1e-10)


def test_fusion_is_undefined_as_long_as_a_part_is() -> None:
    attack = fuse()
    reduction = attack.reduce(6)
    reduction.observe(Moment(1), {"gradient-cosine": series(1, 6)[0], "confidence": np.linspace(0, 1, 6)})
    features = reduction.features()
    assert np.isnan(attack.fit(Evidence(features[:3])).score(features)).all()


def test_fusion_by_configuration() -> None:
    audit = parse({"audit": {"fusion": {"attacks": ["fta-logit", "loss"], "weights": [1, 3]}}}).audit
    (attack,) = choose(["fusion"], audit)
    assert isinstance(attack, Fusion)
    assert (attack.name, attack.signals) == ("fusion", ("logit", "loss"))
    same = fuse("fta-logit", "loss", weights=(1.0, 3.0))
    assert (attack.parts, attack.shares) == (same.parts, same.shares)
    for wrong in ({"attacks": ["loss"]}, {"attacks": ["loss", "loss"]}, {"weights": [1]}, {"weights": [1, -1]}):
        with pytest.raises(FedauditError, match="bad-value"):
            parse({"audit": {"fusion": wrong}})
    for name in ("fusion", "fta-confidense"):
        with pytest.raises(FedauditError, match="unknown-attack"):
            fuse(name, "loss")


def test_fusion_looks_where_all_of_its_parts_can() -> None:
    assert Grant.UPDATE not in fuse("gradient-cosine", "loss").needs
    assert Grant.UPDATE in fuse("gradient-cosine", "fedmia").needs
    assert Grant.EVERY_ROUND not in fuse("loss", "modified-entropy").needs


def test_fusion_beside_a_lone_server_with_a_part_that_sees_local_models_only() -> None:
    asked = {"vantages": ["server"], "attacks": ["fusion"], "fusion": {"attacks": ["gradient-cosine", "fedmia"]}}
    audit = watch(prepare(config(federation={"rounds": 2, "parties": 3}, audit=asked)))
    assert audit.failed == {}
    assert {r.model for r in audit.results if r.attack == "fusion"} == {"local"}


def test_the_spread_of_references_reaches_the_parts() -> None:
    fusion = {"attacks": ["kta-confidence", "loss"]}
    audit = parse({"audit": {"attacks": ["fusion"], "reference": {"variance": "record"}, "fusion": fusion}}).audit
    (attack,) = assemble.choose(audit, audit.attacks)
    assert isinstance(attack, Fusion)
    assert attack.parts[0] == KTA(spread="record")


@pytest.mark.parametrize(("name", "why"), [("merlin", "only at the last model"), ("cs-mia", "a shadow")])
def test_what_fusion_cannot_use_is_told_why(name: str, why: str) -> None:
    with pytest.raises(FedauditError, match=why):
        fuse(name, "loss")


def test_a_nan_among_the_known_non_members_spoils_nothing() -> None:
    features = series().mean(axis=0)
    features[3] = np.nan
    assert LayerAttack().fit(Evidence(features)).layer == 1
    attack = fuse("gradient-cosine", "loss")
    reduction = attack.reduce(40)
    for index in range(2):
        reduction.observe(Moment(index + 1), {"gradient-cosine": features, "loss": np.linspace(0, 1, 40)})
    whole = reduction.features()
    found = attack.fit(Evidence(whole[:15])).score(whole)
    assert np.flatnonzero(np.isnan(found)).tolist() == [3]
