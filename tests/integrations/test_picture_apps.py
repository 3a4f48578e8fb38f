"""Apps as people start from them, on pictures with three channels: every round of every party is audited."""

import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from flwr.app import Context, Message, RecordDict
from flwr.clientapp.typing import Mod
from flwr.serverapp.strategy import Strategy

from fedaudit.integrations.flower import PartyAudit, record_strategy
from fedaudit.results import document as results
from fedaudit.results.document import Document
from tests.integrations import picture_apps
from tests.integrations.flower_world import LocalGrid
from tests.integrations.picture_apps import RUN, Net, client_app, game_of, load_data, metrics_mod, server_app

PARTIES = ("party-0", "party-1")


def reported_by(message: Message) -> str:
    return f"party-{(101, 202).index(message.metadata.src_node_id)}"


def wrapped(out: Path, strategy: Strategy) -> Strategy:
    games = [load_data(party)[1] for party in PARTIES]
    return record_strategy(
        strategy, out=out, rounds=2, model=Net, game=games, party=reported_by, attacks=["loss", "gradient-cosine"]
    )


def federation(out: Path, kind: str) -> Path:
    """A whole app: its server, its clients, and both audits."""
    audit = PartyAudit(Net, game_of, out=out / "parties", attacks=["loss", "gradient-cosine", "matched-filter"])
    mods: list[Mod] = [audit, metrics_mod(out / "metrics")] if kind == "custom mods" else [audit]
    grid = LocalGrid(client_app(mods, private=kind == "opacus"))
    for context in grid.contexts.values():
        context.run_config = {**RUN}
        context.node_config["num-partitions"] = 2
    server = server_app(functools.partial(wrapped, out / "server"))
    server(grid, Context(1, 0, {}, RecordDict(), {**RUN}))
    return out


def auc(document: Document, attack: str, model: str = "local") -> float:
    found = next(one for one in document.results if (one.attack, one.model) == (attack, model))
    assert found.estimates["auc"].value is not None
    return found.estimates["auc"].value


@pytest.mark.parametrize("kind", ["quickstart", "custom mods", "opacus"])
@pytest.mark.filterwarnings("ignore::UserWarning")  # of Opacus, that its randomness is not secure
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_whole_app_on_pictures_is_audited(tmp_path: Path, kind: str) -> None:
    federation(tmp_path, kind)
    for party in PARTIES:
        document = results.load(tmp_path / "parties" / party)
        assert (document.run.status, document.run.rounds, document.degraded) == ("complete", 2, ())
        assert not document.failed
        assert 0 < auc(document, "matched-filter") < 1
    server = results.load(tmp_path / "server")
    assert (server.run.status, server.degraded) == ("complete", ())
    assert 0 < auc(server, "gradient-cosine") < 1
    assert len(list((tmp_path / "metrics").glob("*"))) == (4 if kind == "custom mods" else 0)


JOB = """
import sys
from nvflare.app_opt.pt.recipes.fedavg import FedAvgRecipe
from nvflare.recipe import SimEnv
from fedaudit.integrations.nvflare import PartyFilter
from tests.integrations.picture_apps import Net

out, client = sys.argv[1:]
recipe = FedAvgRecipe(name="pictures", min_clients=2, num_rounds=2, model=Net(), train_script=client)
for add in (recipe.add_client_input_filter, recipe.add_client_output_filter):
    game = "tests.integrations.picture_client:game"
    add(PartyFilter("tests.integrations.picture_apps:Net", game, out=f"{out}/parties"), tasks=["train"])
print(recipe.execute(SimEnv(num_clients=2, workspace_root=f"{out}/work")).get_status())
"""


def test_a_script_of_nvidia_flares_client_api_on_pictures_is_audited(tmp_path: Path) -> None:
    pytest.importorskip("nvflare")
    script = Path(picture_apps.__file__).with_name("picture_client.py")
    (tmp_path / "job.py").write_text(JOB)
    command = [sys.executable, "job.py", str(tmp_path), str(script)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    for site in ("site-1", "site-2"):
        document = results.load(tmp_path / "parties" / site)
        assert (document.run.status, document.run.rounds, document.degraded) == ("complete", 2, ()), done.stdout[-3000:]
        assert 0 < auc(document, "matched-filter") < 1
