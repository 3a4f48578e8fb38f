"""Who trains the federation that a configuration describes. Engines make the same rounds; a test compares them."""

from importlib import import_module
from importlib.util import find_spec

from fedaudit.errors import FedauditError, suggest
from fedaudit.session.run import Engine, rounds

ENGINES = ("local", "flower-simulation")


def engine_named(name: str) -> Engine:
    if name not in ENGINES:
        raise FedauditError("unknown-engine", f"unknown engine {name!r}", suggest(name, ENGINES))
    if name == "local":
        return rounds
    if find_spec("flwr") is None or find_spec("ray") is None:
        what = "the engine flower-simulation needs Flower and Ray, which are not installed"
        raise FedauditError("no-flower", what, 'Install fedaudit with its extra: "fedaudit[flower]".')
    # By name: the session's room lies above the integrations'.
    engine: Engine = import_module("fedaudit.integrations.flower.engine").rounds
    return engine
