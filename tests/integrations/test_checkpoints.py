"""Checkpoints from elsewhere: names decide, parameters match by name, nothing runs, and a mix-up is refused."""

import copy
import json
import pickle
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.serverapp.strategy import FedAvg
from safetensors.torch import save_file

from fedaudit.config.schema import Config, parse
from fedaudit.data.game_file import load_game, save_game
from fedaudit.data.set_aside import joined, set_aside
from fedaudit.errors import FedauditError
from fedaudit.integrations.checkpoints import import_checkpoints, rounds
from fedaudit.integrations.flower.server import trace_strategy
from fedaudit.integrations.options import checked, make_auditor
from fedaudit.trace.store import Store
from fedaudit.types import Round
from tests.command import fedaudit
from tests.integrations.flower_world import LocalGrid, client_app, initial, party_of
from tests.integrations.worlds import PARTIES, equal, games, mean, net, part, train
from tests.worlds import silent

State = dict[str, torch.Tensor]


def trained(count: int = 3) -> tuple[list[State], list[dict[str, State]]]:
    """Global models 0..count, and the parties' models of each round."""
    torch.manual_seed(0)
    model = net()
    made, sent = [copy.deepcopy(model.state_dict())], []
    for round in range(1, count + 1):
        updates = {}
        for party in PARTIES:
            local = copy.deepcopy(model)
            train(local, part(party)[0], seed=round)
            updates[party] = local.state_dict()
        model.load_state_dict(mean(updates))
        made.append(copy.deepcopy(model.state_dict()))
        sent.append(updates)
    return made, sent


def saved(folder: Path, *, kind: str = "safetensors", deltas: bool = False, with_zero: bool = True) -> Path:
    made, sent = trained()
    write = save_file if kind == "safetensors" else torch.save
    for index, state in enumerate(made):
        place = folder / f"round-{index}"
        place.mkdir(parents=True)
        write(state, place / f"global.{kind}")
        for party, update in (sent[index - 1] if index else {}).items():
            change = {k: v - made[index - 1][k] for k, v in update.items()}
            write(change if deltas else update, place / f"{party}.{kind}")
    if not with_zero:
        (folder / f"round-0/global.{kind}").unlink()
        (folder / "round-0").rmdir()
    return folder


def settings(**audit: Any) -> Config:
    model = {"name": "mlp", "hidden": [48]}
    return parse({"model": model, "audit": {"attacks": ["fta-confidence", "loss"]} | audit})


def as_mlp(folder: Path) -> Path:
    """The same parameters under the names of our own MLP, whose first layer flattens."""
    from safetensors.torch import load_file

    for path in sorted(folder.rglob("*.safetensors")):
        state = load_file(path)
        save_file({f"{int(k[0]) + 1}{k[1:]}": v for k, v in state.items()}, path)
    return folder


def by_name(state: State) -> dict[str, Any]:
    """As safetensors keeps it."""
    return {name: state[name].numpy() for name in sorted(state)}


def everything(directory: Path, **options: Any) -> list[Round]:
    return list(rounds(directory, **options))


def test_folders_of_parties_become_rounds(tmp_path: Path) -> None:
    made, sent = trained()
    found = everything(saved(tmp_path))
    assert [round.index for round in found] == [1, 2, 3]
    for index, round in enumerate(found, start=1):
        assert equal(round.broadcast, by_name(made[index - 1]))
        assert equal(round.aggregate, by_name(made[index]))
        assert equal(round.sent["south"].state, by_name(sent[index - 1]["south"]))


def test_plain_files_are_global_models(tmp_path: Path) -> None:
    for index, state in enumerate(trained()[0]):
        save_file(state, tmp_path / f"ckpt_{index:04d}.safetensors")
    found = everything(tmp_path)
    assert [(round.index, dict(round.sent)) for round in found] == [(1, {}), (2, {}), (3, {})]


def test_B7_changes_and_weights_are_told_apart(tmp_path: Path) -> None:
    weights, changes = saved(tmp_path / "weights"), saved(tmp_path / "changes", deltas=True)
    for one, other in zip(everything(weights), everything(changes, deltas=True), strict=True):
        for party in PARTIES:
            for name, value in one.sent[party].state.items():
                assert other.sent[party].state[name] == pytest.approx(value, abs=1e-6)
    with pytest.raises(FedauditError, match="holds weights, but --deltas"):
        everything(weights, deltas=True)
    with pytest.raises(FedauditError, match="holds a change of the weights"):
        everything(changes)


def test_B6_renamed_and_missing_parameters_are_listed_both_ways(tmp_path: Path) -> None:
    folder = saved(tmp_path)
    state = trained()[0][2]
    save_file({f"net.{k}" if "0" in k else k: v for k, v in state.items()}, folder / "round-2/global.safetensors")
    with pytest.raises(
        FedauditError, match=r"missing: 0\.bias, 0\.weight; unknown: net\.0\.bias, net\.0\.weight \(round 2"
    ):
        everything(folder)


def test_B8_half_precision_and_counters(tmp_path: Path) -> None:
    for index, state in enumerate(trained()[0]):
        half = {k: v.to(torch.bfloat16 if index % 2 else torch.float16) for k, v in state.items()}
        save_file(half | {"seen": torch.tensor(index), "none": torch.zeros(0)}, tmp_path / f"{index}.safetensors")
    like = {k: v.numpy() for k, v in trained()[0][0].items()} | {"seen": np.array(0), "none": np.zeros(0, np.float32)}
    found = everything(tmp_path, like=like)
    assert found[0].aggregate["0.weight"].dtype == np.float32
    assert found[-1].aggregate["seen"] == 3


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return (print, ("code ran",))


def test_B17_torch_files_on_request_only_and_never_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = saved(tmp_path, kind="pt")
    with pytest.raises(FedauditError, match="which may hold code") as refused:
        everything(folder)
    assert refused.value.exit_code == 5
    assert len(everything(folder, torch=True)) == 3
    torch.save({"model_state_dict": trained()[0][3], "epoch": 3}, folder / "round-3/global.pt")
    assert len(everything(folder, torch=True)) == 3
    for hostile in (pickle.dumps({"0.weight": Evil()}), b"\x80\x04garbage", b""):
        (folder / "round-3/global.pt").write_bytes(hostile)
        with pytest.raises(FedauditError, match="something other than named tensors"):
            everything(folder, torch=True)
    torch.save({"0.weight": Evil()}, folder / "round-3/global.pt")
    with pytest.raises(FedauditError, match="something other than named tensors"):
        everything(folder, torch=True)
    assert "code ran" not in capsys.readouterr().out


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FedauditError, match="started from is missing"):
        everything(saved(tmp_path / "a", with_zero=False))
    folder = saved(tmp_path / "b")
    (folder / "round-2/global.safetensors").unlink()
    with pytest.raises(FedauditError, match="round 2 has no global model"):
        everything(folder)
    (tmp_path / "c").mkdir()
    with pytest.raises(FedauditError, match="holds 0 rounds"):
        everything(tmp_path / "c")
    with pytest.raises(FedauditError, match="cannot read"):
        everything(tmp_path / "nowhere")
    (saved(tmp_path / "d") / "round-1.safetensors").write_bytes(b"x")
    with pytest.raises(FedauditError, match="are both round 1"):
        everything(tmp_path / "d")


def test_an_import_is_audited_like_the_loop_itself(tmp_path: Path) -> None:
    """The obvious twin: the same rounds, shown to an auditor directly."""
    whole = joined(*games())
    save_game(whole, tmp_path / "game.npz")
    folder = as_mlp(saved(tmp_path / "checkpoints"))
    document = import_checkpoints(
        folder, tmp_path / "run", silent, game=tmp_path / "game.npz", config=settings(), torch=False, deltas=False
    )
    assert document is not None
    twin = make_auditor(net, whole, checked(3, attacks=["fta-confidence", "loss"]))
    for round in everything(saved(tmp_path / "again")):
        twin.observe(round)
    by_hand = {(r.attack, r.model, r.party): r.estimates["auc"].value for r in twin.snapshot().results}
    for entry in document.results:
        assert entry.estimates["auc"].value == by_hand[entry.attack, entry.model, entry.party]
    assert any("costs are in seconds" in notice.lower() for notice in document.notices)
    assert len(Store.read(tmp_path / "run").entries()) == 3
    with pytest.raises(FedauditError, match="already holds a trace"):
        import_checkpoints(
            folder, tmp_path / "run", silent, game=tmp_path / "game.npz", config=settings(), torch=False, deltas=False
        )


def test_the_sections_of_audit_reach_an_import_or_are_refused(tmp_path: Path) -> None:
    save_game(joined(*games()), tmp_path / "game.npz")
    folder = as_mlp(saved(tmp_path / "checkpoints"))

    def imported(name: str, **audit: object) -> list[str]:
        config = settings().model_copy(update={"audit": parse({"audit": {"attacks": ["loss"], **audit}}).audit})
        game = tmp_path / "game.npz"
        document = import_checkpoints(
            folder, tmp_path / name, silent, game=game, config=config, torch=False, deltas=False
        )
        assert document is not None
        return list(document.notices)

    assert any("[audit.tear] has no effect" in line for line in imported("told", tear={"queries": 240}))
    told = imported("few", attacks=None, fpr=[0.004])
    assert any(line.startswith("Left out (fitted on half of the calibration records") for line in told)
    with pytest.raises(FedauditError, match=r"audit\.adversary .*fedaudit run"):
        imported("refused", adversary="agg-sh")


def test_a_game_without_the_top_class_is_audited(tmp_path: Path) -> None:
    x, y = (np.concatenate([getattr(game.candidates.rows, name) for game in games()]) for name in "xy")
    save_game(set_aside(x[y < 9], y[y < 9], party="north")[1], tmp_path / "game.npz")
    document = import_checkpoints(
        as_mlp(saved(tmp_path / "checkpoints")), tmp_path / "run", silent, game=tmp_path / "game.npz",
        config=settings(), torch=False, deltas=False,
    )  # fmt: skip
    assert document is not None
    assert document.run.data.classes == 10


def test_a_recorded_trace_is_attacked_elsewhere(tmp_path: Path) -> None:
    """A server without records records; whoever has the game audits, on another day."""
    strategy = trace_strategy(FedAvg(fraction_evaluate=0.0), out=tmp_path / "trace", party=party_of)
    strategy.start(grid=LocalGrid(client_app()), initial_arrays=initial(), num_rounds=3)
    save_game(joined(*games()), tmp_path / "game.npz")
    config = settings().model_copy(
        update={"model": parse({"model": {"name": "tests.integrations.worlds:shaped_net"}}).model}
    )
    document = import_checkpoints(
        tmp_path / "trace",
        tmp_path / "run",
        silent,
        game=tmp_path / "game.npz",
        config=config,
        torch=False,
        deltas=False,
    )
    assert document is not None
    assert {entry.model for entry in document.results} == {"local", "global"}


def test_games_travel_as_files(tmp_path: Path) -> None:
    game = games()[0]
    save_game(game, tmp_path / "game.npz")
    back = load_game(tmp_path / "game.npz")
    assert np.array_equal(back.candidates.rows.x, game.candidates.rows.x)
    assert np.array_equal(back.truth.role, game.truth.role)
    assert back.candidates.rows.y.dtype == np.int64
    rows, order = game.candidates.rows, np.random.default_rng(0).permutation(len(game.candidates))
    columns = {"x": rows.x, "y": rows.y, "party": game.candidates.party, "role": game.truth.role}
    np.savez(tmp_path / "bare.npz", allow_pickle=False, **{k: v[order] for k, v in columns.items()})
    bare = load_game(tmp_path / "bare.npz")
    assert len(bare.members("north")) == len(game.members("north"))
    bad: list[tuple[dict[str, Any], str]] = [
        ({"role": np.full(len(rows), "member")}, "no record has the role"),
        ({"role": np.full(len(rows), "<script>")}, "records is unknown, the first is record 1"),
        ({"y": rows.y[:-1]}, "different lengths"),
    ]
    for change, says in bad:
        np.savez(tmp_path / "bad.npz", allow_pickle=False, **(columns | change))
        with pytest.raises(FedauditError, match=says):
            load_game(tmp_path / "bad.npz")
    (tmp_path / "bad.npz").write_bytes(pickle.dumps({"x": 1}))
    with pytest.raises(FedauditError, match="not an npz"):
        load_game(tmp_path / "bad.npz")


def test_from_the_command_line(tmp_path: Path) -> None:
    as_mlp(saved(tmp_path / "checkpoints"))
    save_game(joined(*games()), tmp_path / "game.npz")

    run = partial(fedaudit, "import", "checkpoints", cwd=tmp_path)
    done = run("--out", "traced")
    assert (done.returncode, "Trace: traced" in done.stdout) == (0, True), done.stderr
    done = run(
        "--out", "audited", "--game", "game.npz", "--set", "model.hidden=[48]", "--set", 'audit.attacks=["loss"]'
    )
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "audited/results.json").read_text())["run"]["status"] == "complete"
    done = run("--out", "wrong", "--game", "game.npz", "--set", "model.hidden=[47]")
    assert done.returncode == 2
    assert "shape" in done.stderr
    assert not (tmp_path / "wrong").exists()
