"""What a federation could change: the levers as configurations and in words."""

from typing import Any

import pytest

from fedaudit.config.schema import parse
from fedaudit.errors import FedauditError
from fedaudit.session.levers import NO_CHANGE, changed, levers, together, without_people
from tests.worlds import config


def test_changes_are_configurations_that_differ_in_what_they_say() -> None:
    base = config(federation={"parties": 4, "rounds": 8, "local_epochs": 2})
    found = {
        change.name: changed(base, together(base, [change])) for lever in levers(base) for change in lever.positions
    }
    assert len(found) >= 18
    assert len({new.hash() for new in found.values()} | {base.hash()}) == len(found) + 1
    assert found["one local epoch"].federation.local_epochs == 1
    assert found["frozen first layer"].federation.freeze == 1
    assert found["2 larger parties"].federation.parties == 2
    assert [v.value for v in found["secure aggregation"].audit.vantages] == ["client", "secagg-server"]
    noises = [
        (d.arguments()["noise"], d.arguments()["clip"])
        for name, new in found.items()
        if name.startswith("DP-SGD")
        for d in new.defences
    ]
    assert noises == [(0.3, 1.0), (1.0, 1.0), (0.3, 0.1), (3.0, 1.0)]


@pytest.mark.parametrize(
    ("model", "smaller"),
    [
        ({"name": "mlp"}, [[128], [64], [256], [32], [], 32, 128]),
        ({"name": "mlp", "hidden": [64], "rank": 8}, [[32], [], 128]),
        ({"name": "mlp", "hidden": [32, 16], "projection": 8}, [[32], [], 32]),
        ({"name": "mlp", "hidden": []}, [128, 32]),  # a product of two is seldom smaller than its only layer
        ({"name": "linear"}, []),
        ({"name": "cnn"}, [16]),
        ({"name": "resnet20"}, ["resnet8"]),
        ({"name": "lstm", "units": 64}, [32, 16]),
    ],
)
def test_smaller_models(model: dict[str, Any], smaller: list[Any]) -> None:
    base = parse({"model": model, "federation": {"rounds": 30, "lr": 1e-3}})
    found = [change for lever in levers(base) if lever.name == "model" for change in lever.positions]
    assert [next(iter(change.overrides.values())) for change in found] == smaller
    for change in found:
        assert changed(base, change).model != base.model


def test_what_must_stay_is_not_moved() -> None:
    base = parse({"federation": {"parties": 4}})
    kept = {lever.name for lever in levers(base, keep=["model", "federation.lr", "defences"])}
    assert kept.isdisjoint({"model", "rate", "update", "training"})
    assert "epochs" in kept
    assert [lever.name for lever in levers(base, ["rate"])] == ["rate"]
    with pytest.raises(FedauditError, match="there is no lever 'modle'") as error:
        levers(base, ["modle"])
    assert "'model'" in error.value.todo
    with pytest.raises(FedauditError, match="none of the levers"):
        levers(base, ["rate"], ["federation"])
    with pytest.raises(FedauditError, match=r"'federation\.secag' is no section and no key") as error:
        levers(base, keep=["federation.secag"])
    assert "'federation.secagg'" in error.value.todo


def test_subject_level_privacy_needs_to_know_whose_a_record_is() -> None:
    found = levers(parse({}), ["training", "rate"])
    left = without_people(found)
    names, fewer = ([c.name for lever in some for c in lever.positions] for some in (found, left))
    assert [name for name in names if name not in fewer] == ["subject-level DP"]


def test_several_changes_become_one_configuration() -> None:
    base = parse({"federation": {"parties": 4}})
    by_name = {change.name: change for lever in levers(base) for change in lever.positions}
    both = together(base, [by_name["one hidden layer of 64"], by_name["update noise 5"], by_name["DP-SGD, noise 1"]])
    new = changed(base, both)
    assert both.name == "one hidden layer of 64, update noise 5, DP-SGD, noise 1"
    assert [d.name for d in new.defences] == ["update-noise", "dp-sgd"]
    assert new.model.arguments() == {"hidden": (64,)} or new.model.arguments() == {"hidden": [64]}
    assert together(base, []) is NO_CHANGE


def test_noise_that_promises_nothing_replaces_no_promise() -> None:
    promised = {"name": "dp-fedavg", "noise": 1.0, "clip": 1.0}
    base = parse({"defences": [promised], "federation": {"parties": 20}})
    found = [change.name for lever in levers(base) for change in lever.positions]
    assert not [name for name in found if "update" in name or "user-level" in name]
    base = parse({"defences": [{"name": "dp-sgd", "noise": 3.0, "clip": 1.0}]})
    found = [change.name for lever in levers(base) for change in lever.positions]
    assert not [name for name in found if "DP-SGD" in name or "subject-level" in name or "clipping" in name]


def test_a_stronger_defence_replaces_one_in_its_slot_and_a_milder_one_is_not_tried() -> None:
    base = config().model_copy(update={"defences": parse({"defences": [{"name": "l2", "strength": 1e-3}]}).defences})
    found = {
        change.name: changed(base, together(base, [change])) for lever in levers(base) for change in lever.positions
    }
    assert [d.name for d in found["DP-SGD, noise 1"].defences] == ["dp-sgd"]
    assert [d.name for d in found["user-level DP"].defences] == ["l2", "dp-fedavg"]
    assert "clipping" not in found
    by_name = {change.name: change for lever in levers(base) for change in lever.positions}
    both = together(base, [by_name["DP-SGD, noise 1"], by_name["user-level DP"]])
    assert both.words == (
        "train with DP-SGD (clip 1, noise 1) in place of your l2, and let every party clip its update and add noise "
        "(user-level DP, noise 0.3)"
    )
