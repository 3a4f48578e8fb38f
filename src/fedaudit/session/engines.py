"""The engines that can train a configured federation. All produce the same rounds; a test compares them."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec

from fedaudit.errors import FedauditError, suggest
from fedaudit.federation import START, up_to
from fedaudit.session.prepare import Prepared, planned
from fedaudit.types import Moment, Round, State, Trained

# (prepared, moment, model) -> the rounds after that moment, starting from that model
Engine = Callable[[Prepared, Moment, State | None], Iterator[Round]]

ENGINES = ("local", "flower-simulation")


def engine_named(name: str) -> Engine:
    if name not in ENGINES:
        raise FedauditError("unknown-engine", f"unknown engine {name!r}", suggest(name, ENGINES))
    if name == "local":
        return rounds
    if find_spec("flwr") is None or find_spec("ray") is None:
        what = "the engine flower-simulation needs Flower and Ray, which are not installed"
        raise FedauditError("no-flower", what, 'Install fedaudit with its extra: "fedaudit[flower]".')
    # Imported by name, because session may not import from integrations.
    engine: Engine = import_module("fedaudit.integrations.flower.engine").rounds
    return engine


def rounds(
    prepared: Prepared, after: Moment = START, model: State | None = None, until: int | None = None
) -> Iterator[Round]:
    """The local engine: the plain loop, in this process; if told so, only up to a round, with the probes after it."""
    from fedaudit.federation.simulate import federate

    federation = prepared.config.federation
    plans = planned(prepared) if until is None else up_to(planned(prepared), until)
    made = federate(prepared.task, prepared.parties, plans, federation.seed, after, model, prepared.defence)
    return (as_sent(prepared, round) for round in made)


def as_sent(prepared: Prepared, round: Round) -> Round:
    """A round as it was trained, in the form in which it is sent: masked, if updates are."""
    if not prepared.config.federation.secagg:
        return round
    return masked(round, prepared.settings.shadow.party if prepared.settings.shadow else None)


def masked(round: Round, own: str | None = None) -> Round:
    """The round under secure aggregation, as the server sees it: who took part, but none of their models. A party still
    sees its `own`.

    Masks cancel in the sum, so training is the same; what a server is left with is the aggregate. The number of
    examples stays readable, as in Flower's SecAgg+.
    """
    sent = {
        name: trained if name == own else Trained({}, trained.examples, trained.epoch_seconds)
        for name, trained in round.sent.items()
    }
    return replace(round, sent=sent)
