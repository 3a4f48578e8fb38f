"""References of an adversary who knows the parties' defence, and trains under it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedaudit.adversary.shadow import INSIDE
from fedaudit.config.schema import Config, parse
from fedaudit.errors import FedauditError
from fedaudit.results.document import Document
from fedaudit.session.prepare import prepare
from fedaudit.session.replay import replay
from fedaudit.session.run import rounds, run
from tests.views import banks as made_banks
from tests.views import global_view
from tests.worlds import config, silent

LOGIT = "plain-reference-logit"


def under(noise: float, defended: bool, rounds: int = 8, **audit: Any) -> Config:
    reference = {"models": 4, "defended": defended}
    defence = {"name": "dp-sgd", "noise": noise, "clip": 1.0}
    asked = {"attacks": ["lira"], "reference": reference} | audit
    plain = config(audit=asked, federation={"rounds": rounds}).as_dict()
    return parse(plain | {"defences": [defence]})


def gap(settings: Config) -> float:
    """How much surer the references are of what they were trained on."""
    prepared = prepare(settings)
    candidates, references = prepared.game.candidates, prepared.settings.references
    assert references is not None
    banks = made_banks(references, prepared.task, [LOGIT], candidates.rows, candidates.party)
    values: dict[str, Any] = {}
    for round in rounds(prepared):
        for bank in banks:
            values |= bank.answers([LOGIT], global_view(round, prepared.task), round.index - 1)
    inside = values[INSIDE] > 0
    return float(values[LOGIT][inside].mean() - values[LOGIT][~inside].mean())


def test_noise_keeps_references_from_remembering() -> None:
    plain, private = gap(under(4.0, defended=False)), gap(under(4.0, defended=True))
    assert plain > 0.05
    assert abs(private) < plain / 3


def test_a_reference_trains_as_a_party_does() -> None:
    """With hard labels, the first reference is what the parties' own defence makes of the same records."""
    prepared = prepare(under(1.0, defended=True))
    references, candidates = prepared.settings.references, prepared.game.candidates
    assert references is not None
    assert prepared.defence.gradient is not None
    (bank,) = made_banks(references, prepared.task, [LOGIT], candidates.rows, candidates.party)
    group = bank.groups[0]
    round = next(rounds(prepared))
    view = global_view(round, prepared.task)
    group.learn(view, alpha=0.0)

    start, rng = prepared.task.initial(references.seed), group._rng(view.round)
    mine = group.data.take(group.sets[0])
    expected = prepared.defence.gradient(prepared.task, start, mine, group.training, rng)
    assert group.defended is not None
    found = prepared.task.state_of(group.defended.modules[0])
    for name, value in expected.state.items():
        assert found[name] == pytest.approx(value, abs=1e-6)


def test_a_stored_trace_is_attacked_by_the_same_references(tmp_path: Path) -> None:
    settings = under(1.0, defended=True, rounds=2, keep="snapshots")
    live = run(settings, tmp_path / "run", silent, tell=lambda line: None)
    again = replay(tmp_path / "run", ["loss", "lira"], tmp_path / "again", silent)

    def lira(document: Document) -> list[Any]:
        return [result.estimates for result in document.results if result.attack == "lira"]

    assert lira(live) == lira(again)
    assert all(np.isfinite(estimates["auc"].value) for estimates in lira(live))


def test_without_a_defence_inside_the_parties_it_is_refused() -> None:
    with pytest.raises(FedauditError, match="no defence changes how the parties train"):
        prepare(config(audit={"attacks": ["lira"], "reference": {"defended": True}}))
