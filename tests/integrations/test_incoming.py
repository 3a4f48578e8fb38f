"""A party in Flower looks at the model that comes in, and warns of one that was prepared, or does not train it."""

import json
import logging
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from flwr.app import Context, Message
from flwr.clientapp.typing import ClientAppCallable

from fedaudit.errors import FedauditError
from fedaudit.integrations.flower.client import PartyAudit
from fedaudit.integrations.options import as_task
from fedaudit.integrations.party import INCOMING, Reaction
from fedaudit.questions.update.incoming import Incoming, layers_of
from fedaudit.questions.update.tampering import tampered
from fedaudit.report.words import withheld_updates
from fedaudit.results.document import SCHEMA_FILE, load
from tests.integrations.flower_world import arrays, as_state, client_app
from tests.integrations.test_flower_client import QUICK, federation, game_of
from tests.integrations.test_flower_trouble import deliver, restarted
from tests.integrations.worlds import net, part

trained: list[int] = []


def prepared(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Stands for the server: in round 2 it sends one party a model with trap weights."""
    here = message.metadata.message_type == "train" and context.node_id == 101
    if here and message.content.config_records["config"]["server-round"] == 2:
        task, records = as_task(net, part("south")[1]), part("south")[0]
        state = as_state(next(iter(message.content.array_records.values())))
        own = layers_of(task, state, records.x)
        message.content["arrays"] = arrays(tampered("trap", state, own, np.random.default_rng(0)))
    return call_next(message, context)


def counting(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    if message.metadata.message_type == "train" and context.node_id == 101:
        trained.append(int(str(message.content.config_records["config"]["server-round"])))
    return call_next(message, context)


@pytest.mark.parametrize("incoming", ["ignore", "warn", "refuse"])
def test_a_prepared_model_is_told_or_not_trained(
    incoming: Reaction, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="flwr")
    trained.clear()
    audit = PartyAudit(net, game_of, rounds=3, attacks=QUICK, out=tmp_path, incoming=incoming)
    _, grid = federation(client_app([prepared, audit, counting]), 3)
    assert trained == ([1, 3] if incoming == "refuse" else [1, 2, 3])
    found = load(tmp_path / "north")
    jsonschema.validate(json.loads((tmp_path / "north/results.json").read_text()), json.loads(SCHEMA_FILE.read_text()))
    assert ("prepared to give single records away" in caplog.text) == (incoming != "ignore")
    codes = {one.code for one in found.told}
    assert ("update-incoming" in codes) == (incoming == "warn")
    refused = [(one.round, one.because) for one in found.run.withheld]
    assert refused == ([(2, "model refused")] if incoming == "refuse" else [])
    if incoming == "refuse":
        assert "sent no update of round 2" in " ".join(withheld_updates(found.run.withheld))
    assert not load(tmp_path / "south").run.withheld
    assert (INCOMING in grid.contexts[101].state) == (incoming != "ignore")


def test_a_restarted_node_still_knows_what_models_came_in(tmp_path: Path) -> None:
    audit = PartyAudit(net, game_of, rounds=4, attacks=QUICK, out=tmp_path)
    _, grid = federation(client_app([audit]), 3)
    (file,) = (tmp_path / "north").glob("incoming-*")
    kept = Incoming.of(json.loads(file.read_text()))
    assert kept.plain() == Incoming.of(grid.contexts[101].state[INCOMING]).plain()
    assert kept.secret > 0
    assert {len(lengths) for lengths in kept.changes.values()} == {2}  # three models
    restarted(grid)
    assert deliver(grid, 4).has_content()
    again = Incoming.of(json.loads(file.read_text()))
    assert {len(lengths) for lengths in again.changes.values()} == {3}


def test_another_reaction_is_refused() -> None:
    with pytest.raises(FedauditError, match="ignore, warn, refuse"):
        PartyAudit(net, game_of, rounds=3, incoming="panic", strict=True)  # type: ignore[arg-type]
