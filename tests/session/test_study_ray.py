"""A study on two Ray nodes, one of which is killed while it works, ends in the table of an undisturbed one."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fedaudit.config.study import load_study
from fedaudit.errors import FedauditError
from fedaudit.session.study import run_study
from tests.session.test_study import audited, table, write

pytest.importorskip("ray")

# Each cell is a piece of its own: federations with a defence are not trained together.
GRID = '"federation.seed" = [0, 1, 2, 3]\ndefences = [[{ name = "l2", strength = 1e-3 }]]'


@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_a_lost_node_changes_nothing(tmp_path: Path) -> None:
    import ray
    from ray.cluster_utils import Cluster

    path = write(tmp_path, GRID)
    audited(path, tmp_path / "here")
    cluster: Any = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    second = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    lost: list[int] = []

    @contextlib.contextmanager
    def progress(_: str, steps: int) -> Iterator[Callable[[], None]]:
        """The first cell is done, and the other node is in the middle of its own: now it dies."""

        def step() -> None:
            if not lost:
                lost.append(steps)
                cluster.remove_node(second, allow_graceful=False)

        yield step

    study = load_study(write(tmp_path, GRID, head=f'engine = "ray"\naddress = "{cluster.address}"'))
    try:
        found = run_study(study, tmp_path / "there", 1, progress, lambda _: None)
        assert lost == [16]
    finally:
        ray.shutdown()
        cluster.shutdown()
    assert [outcome.status for outcome in found] == ["complete"] * 4
    assert table(tmp_path / "there") == table(tmp_path / "here")


def test_an_address_needs_the_engine(tmp_path: Path) -> None:
    with pytest.raises(FedauditError, match="address has no effect"):
        load_study(write(tmp_path, head='address = "10.0.0.1:6379"'))
