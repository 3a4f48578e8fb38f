"""The configuration: defaults, overrides, and errors that teach."""

from pathlib import Path

import pytest

from fedaudit.config.schema import Config, load_config, parse
from fedaudit.errors import FedauditError


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


def test_the_hash_follows_the_meaning() -> None:
    assert parse({}).hash() == parse({"federation": {"rounds": 40}}).hash()
    assert parse({}).hash() != parse({"federation": {"rounds": 41}}).hash()
