"""A study on two Ray nodes, one of which is killed while it works, ends in the table of an undisturbed one."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fedaudit.config.study import load_study
from fedaudit.errors import FedauditError
from fedaudit.results.document import RESULTS, load
from fedaudit.results.study import CELLS
from fedaudit.session.run import run
from fedaudit.session.study import KEPT, keep, run_study
from fedaudit.trace.journal import unchecked
from tests.session.test_study import BASE, audited, table, write
from tests.worlds import silent

pytest.importorskip("ray")

# Each cell is a piece of its own: federations whose model is somebody's own are not trained together.
GRID = '"federation.seed" = [0, 1, 2, 3, 4, 5]'
NODE = "NODE_OF_THE_TEST"
MODEL = f"""
import os
import ray
from fedaudit.learn.models.mlp import mlp

def noted(shape, classes):
    node = ray.get_runtime_context().get_node_id() if ray.is_initialized() else "none"
    with open(os.environ["{NODE}"], "a") as file:
        print(node, os.getpid(), file=file, flush=True)
    return mlp(shape, classes, (16,))
"""


@pytest.mark.evidence
@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_a_lost_node_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import ray
    from ray.cluster_utils import Cluster

    (tmp_path / "noted.py").write_text(MODEL)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]))
    monkeypatch.setenv(NODE, str(tmp_path / "nodes"))
    base = BASE.replace("hidden = [32]", 'name = "noted:noted"').replace("rounds = 4", "rounds = 20")
    audited(write(tmp_path, GRID, base), tmp_path / "here")
    (tmp_path / "nodes").unlink()
    cluster: Any = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    second = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    lost: list[int] = []

    @contextlib.contextmanager
    def progress(_: str, steps: int) -> Iterator[Callable[[], None]]:
        """The first cell is done. As soon as the other node begins one more, it dies."""

        def step() -> None:
            if not lost:
                lost.append(steps)
                before = begun(tmp_path / "nodes", second.node_id)
                for _ in range(1200):
                    if begun(tmp_path / "nodes", second.node_id) > before:
                        break
                    time.sleep(0.05)
                lost.append(begun(tmp_path / "nodes", second.node_id) - before)
                cluster.remove_node(second, allow_graceful=False)

        yield step

    study = load_study(write(tmp_path, GRID, base, head=f'engine = "ray"\naddress = "{cluster.address}"'))
    try:
        found = run_study(study, tmp_path / "there", 1, progress, lambda _: None)
    finally:
        ray.shutdown()
        cluster.shutdown()
    assert lost[0] == 6 * 20
    assert lost[1] > 0, "the second node had nothing to do when it was killed"
    assert [outcome.status for outcome in found] == ["complete"] * 6
    assert table(tmp_path / "there") == table(tmp_path / "here")
    for outcome in found:  # a flipped bit would be found
        assert [unchecked(tmp_path / "there" / CELLS / outcome.cell / name) for name in KEPT] == [[], [], []]


def begun(nodes: Path, node: str) -> int:
    """How many models were made on a node."""
    return sum(line.startswith(node) for line in nodes.read_text().splitlines()) if nodes.exists() else 0


def test_what_comes_back_replaces_an_earlier_attempt_and_has_checksums(tmp_path: Path) -> None:
    """The earlier attempt was made here and left a journal, whose checksums are not those of the new files."""
    cell = load_study(write(tmp_path, GRID)).cells[0]
    run(cell.config, tmp_path / "cell", silent, tell=lambda _: None)
    run(cell.config, tmp_path / "node", silent, tell=lambda _: None)
    parts = {name: own.read_bytes() for name in KEPT if (own := tmp_path / "node" / name).is_file()}
    assert parts[RESULTS] != (tmp_path / "cell" / RESULTS).read_bytes()  # it holds times
    keep(tmp_path / "cell", parts)
    assert load(tmp_path / "cell") == load(tmp_path / "node")
    assert sorted(path.name for path in (tmp_path / "cell").iterdir()) == sorted([*parts, "journal.jsonl", "lock"])
    blob = bytearray(parts[RESULTS])
    blob[len(blob) // 2] ^= 1
    (tmp_path / "cell" / RESULTS).write_bytes(blob)
    with pytest.raises(FedauditError, match="is not as it was written"):
        load(tmp_path / "cell")


def test_an_address_needs_the_engine(tmp_path: Path) -> None:
    with pytest.raises(FedauditError, match="address has no effect"):
        load_study(write(tmp_path, head='address = "10.0.0.1:6379"'))
