"""What each adversary sees of a round. What is not granted is absent from the view, not merely discouraged."""

from collections.abc import Iterator, Sequence

from fedaudit.types import Grant, ModelKind, Round, Vantage, View

_EVERYTHING = frozenset({Grant.LABELS, Grant.OUTPUTS, Grant.WEIGHTS, Grant.EVERY_ROUND})

GRANTS: dict[Vantage, frozenset[Grant]] = {
    Vantage.OUTSIDER: frozenset({Grant.LABELS, Grant.OUTPUTS}),
    Vantage.CLIENT: _EVERYTHING,
    Vantage.LABEL_ONLY_CLIENT: frozenset({Grant.LABELS, Grant.EVERY_ROUND}),
    Vantage.SECAGG_SERVER: _EVERYTHING,
    Vantage.SERVER: _EVERYTHING | {Grant.UPDATE},
}

MODELS: dict[Vantage, ModelKind] = {v: "local" if v is Vantage.SERVER else "global" for v in Vantage}


def global_view(round: Round, vantage: Vantage) -> View:
    """The model after the round, as everybody receives it; who keeps every round's weights has its predecessor, too.

    The difference of the two is no party's update (that is `Grant.UPDATE`) but the federation's.
    """
    grants = GRANTS[vantage]
    consecutive = {Grant.WEIGHTS, Grant.EVERY_ROUND} <= grants
    return View(round.index, vantage, "global", None, grants, round.aggregate, round.broadcast if consecutive else None)


def local_views(round: Round, parties: Sequence[str] = ()) -> Iterator[View]:
    """What the server receives: each party's own model, and so its update. An absent party has no view.

    `parties`: whoever may ever take part, so that peers keep their places from round to round.
    """
    everybody = {
        name: round.sent[name].state if name in round.sent else None for name in sorted({*parties, *round.sent})
    }
    grants = GRANTS[Vantage.SERVER]
    for party in sorted(round.sent):
        peers = {name: state for name, state in everybody.items() if name != party}
        yield View(round.index, Vantage.SERVER, "local", party, grants, round.sent[party].state, round.broadcast, peers)
