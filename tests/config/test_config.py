"""The configuration: defaults, overrides, and errors that teach."""

import tomllib
from pathlib import Path

import pytest

from fedaudit.config.schema import Config, load_config, parse
from fedaudit.errors import FedauditError
from fedaudit.toml import written


def test_defaults_are_the_documented_ones() -> None:
    config = parse({})
    assert config == Config()
    assert (config.data.name, config.federation.parties, config.federation.rounds) == ("baskets", 4, 40)
    assert (config.model.name, config.model.arguments()) == ("mlp", {})  # whose own default is 512, 256, 128


@pytest.mark.parametrize(
    ("raw", "code", "hint"),
    [
        ({"federation": {"ronds": 3}}, "unknown-key", "'rounds'"),
        ({"federations": {}}, "unknown-key", "'federation'"),
        ({"model": {"hiden": [3]}}, "unknown-key", "'hidden'"),
        ({"federation": {"rounds": 1}}, "bad-value", "federation.rounds"),
        ({"federation": {"lr": float("nan")}}, "bad-value", "federation.lr"),
        ({"federation": {"members": 0.7, "nonmembers": 0.3}}, "bad-value", "calibration"),
        ({"audit": {"fpr": [1.5]}}, "bad-value", "audit.fpr"),
        ({"audit": {"vantages": ["god"]}}, "bad-value", "audit.vantages"),
        ({"federation": {"algorithm": "magic"}}, "bad-value", "federation.algorithm"),
        ({"audit": {"fpr": 0.01}}, "bad-value", "audit.fpr: a list is needed, in brackets, got 0.01"),
        ({"audit": {"canary": 3}}, "bad-value", "audit.canary: a section with keys of its own is needed"),
        ({"data": "digits"}, "bad-value", "data: a section"),
        ({"audit": {"vantages": []}}, "bad-value", "audit.vantages: it has too few entries"),
        ({"federation": {"lr": 1e38}}, "bad-value", "federation.lr"),
        ({"audit": {"tear": {"targets": "some"}}}, "bad-value", "audit.tear.targets: Input should be 'all'"),
    ],
)
def test_B2_B16_wrong_configurations(raw: dict[str, object], code: str, hint: str) -> None:
    with pytest.raises(FedauditError) as caught:
        parse(raw)
    assert (caught.value.code, caught.value.exit_code) == (code, 2)
    assert hint in str(caught.value)


def test_overrides() -> None:
    config = parse({"federation": {"rounds": 9}}, ["federation.rounds=3", "data.name=digits", 'audit.attacks=["loss"]'])
    assert (config.federation.rounds, config.data.name, config.audit.attacks) == (3, "digits", ("loss",))
    with pytest.raises(FedauditError, match="set-syntax"):
        parse({}, ["rounds"])
    with pytest.raises(FedauditError, match="Did you mean 'rounds'"):
        parse({}, ["federation.round=3"])


def test_a_relative_data_path_lies_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('[data]\nname = "npz"\npath = "mine.npz"\n')
    assert load_config(tmp_path / "a.toml").data.arguments()["path"] == tmp_path / "mine.npz"


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(FedauditError, match="config-missing"):
        load_config(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("[data\n")
    with pytest.raises(FedauditError, match="config-syntax"):
        load_config(tmp_path / "bad.toml")


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text("\ufeff[federation]\nrounds = 7\n", encoding="utf-8")
    assert load_config(tmp_path / "my.toml").federation.rounds == 7


def test_the_hash_follows_the_meaning() -> None:
    assert parse({}).hash() == parse({"federation": {"rounds": 40}}).hash()
    assert parse({}).hash() != parse({"federation": {"rounds": 41}}).hash()


SYNTHETIC = {"name": "synthetic", "sampling": "dirichlet", "alpha": 2.0, "users": 3}


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {"audit": {"attacks": ["canife"], "canary": {"mode": "running"}}},
        {"audit": {"attacks": ["canife", "one-shot", "loss"], "canary": {"probes": 20, "every": 3, "target": 1}}},
        {
            "audit": {
                "attacks": ["tear"],
                "vantages": ["label-only-client"],
                "tear": {"targets": "all", "bounds": [0, 1]},
            }
        },
        {"federation": {"coins": True, "secagg": True, "participation": 0.5, "sampling": "poisson"}},
        {"federation": {"partition": "subjects", "fresh": 0.0, "parties": 3}, "data": SYNTHETIC},
        {"federation": {"partition": "subjects"}, "audit": {"unit": "record"}},
        {"federation": {"algorithm": "fedsgd", "freeze": 1, "partition": "dirichlet", "beta": 0.5}},
        {"audit": {"attribute": {"name": "sex"}, "matched": {"layer": "0"}, "fusion": {"weights": [1.0, 2.0]}}},
        {
            "defences": [
                {"name": "dp-fedavg", "noise": 1.0, "clip": 1.0, "delta": 1e-5},
                {"name": "l2", "strength": 0.1},
            ]
        },
    ],
)
def test_F8_what_is_written_down_can_be_read_again(raw: dict[str, object]) -> None:
    """A run stores its configuration so, and goes on only if it is the same; an advice writes it to a file."""
    for config in (parse(raw), parse(raw).decided()):
        assert parse(config.as_dict()) == config
        again = parse(tomllib.loads(written(config.as_dict())))
        assert (again, again.hash()) == (config, config.hash())
