"""A party's look at the model that it is asked to train: prepared models are seen, honest ones are left alone."""

from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits, load_wine

from fedaudit.config.schema import load_config
from fedaudit.defences.shared import Defence
from fedaudit.errors import FedauditError
from fedaudit.learn.tasks import TorchTask, Training
from fedaudit.questions import Ground
from fedaudit.questions.update import QUESTION, UpdateSection, incoming
from fedaudit.questions.update.incoming import Incoming, SeenLayer, figures_of, layers_of, secret_of, suspicious
from fedaudit.questions.update.judge import _said
from fedaudit.questions.update.parts import BesideTruth, Known, Table
from fedaudit.questions.update.tampering import Trick, tampered
from fedaudit.questions.update.watch import AskedOfUpdates
from fedaudit.results.document import load
from fedaudit.session.prepare import prepare
from fedaudit.types import Plan, Records, State, once
from fedaudit.words import suspected
from tests.command import fedaudit
from tests.questions.test_update_inputs import mlp, records, rows
from tests.worlds import config


def honest(task: TorchTask, rounds: int) -> list[State]:
    """The models of a training, as a party receives them."""
    state, own = task.initial(0), records(rows(200, 3, "numbers"))
    found = [state]
    for round in range(rounds):
        state = task.train(state, own, Training("sgd", 0.1, 1, 50), np.random.default_rng(round)).state
        found.append(state)
    return found


def look_at(task: TorchTask, state: State) -> list[SeenLayer]:
    return layers_of(task, state, rows(150, 4, "numbers").astype(np.float32))


TRICKS: dict[Trick, str] = {"imprint": "partners", "trap": "rare", "fishing": "outsized"}


@pytest.mark.parametrize(("trick", "figure"), TRICKS.items())
@pytest.mark.parametrize("rounds", [0, 3])
def test_a_published_trick_is_seen_and_the_honest_model_is_not(trick: Trick, figure: str, rounds: int) -> None:
    task = mlp()
    state = honest(task, rounds)[-1]
    assert suspicious(look_at(task, state)) == []
    own = layers_of(task, state, rows(300, 5, "numbers").astype(np.float32))
    prepared = tampered(trick, state, own, np.random.default_rng(0))
    found = suspicious(look_at(task, prepared))
    assert figure in {alarm.figure for alarm in found}
    assert "(limit" in suspected([alarm.plain() for alarm in found])
    assert {name: value.shape for name, value in prepared.items()} == {n: v.shape for n, v in state.items()}


def test_an_imprint_behind_noise_is_seen_by_the_layer_behind_it() -> None:
    task, rng = mlp(), np.random.default_rng(0)
    state = task.initial(0)
    own = layers_of(task, state, rows(300, 5, "numbers").astype(np.float32))
    prepared = tampered("imprint", state, own, rng, noise=1.0)
    first = look_at(task, prepared)[0]
    assert figures_of(first)["partners"] == 1
    assert figures_of(SeenLayer("", first.weight, first.bias))["partners"] < 0.05


def test_an_imprint_gives_single_records_away() -> None:
    """What the check is for: between two neighbouring cuts lies one record, and the difference of two units is it."""
    task = mlp()
    state = task.initial(0)
    own = layers_of(task, state, np.abs(rows(300, 5, "numbers")).astype(np.float32))
    prepared = tampered("imprint", state, own, np.random.default_rng(0))
    x = np.abs(rows(8, 6, "numbers"))
    sent = task.train(prepared, records(x), Training("sgd", 0.1, 1, 8), np.random.default_rng(0)).state
    dw, db = (np.asarray(sent[n], float) - prepared[n] for n in ("0.weight", "0.bias"))
    step, bias = np.diff(dw, axis=0), np.diff(db)
    ratios = step[np.abs(bias) > 1e-6] / bias[np.abs(bias) > 1e-6, None]
    found = {int(np.abs(x - row).max(axis=1).argmin()) for row in ratios if np.abs(x - row).max(axis=1).min() < 0.01}
    assert len(found) >= 5


# ------------------------------------------------------------------ the obvious way


def test_the_figures_are_what_counting_gives() -> None:
    rng = np.random.default_rng(1)
    weight, bias, x = rng.normal(size=(30, 8)), rng.normal(size=30), rng.normal(size=(120, 8))
    weight[3], weight[9] = 2 * weight[0], -weight[5]
    bias[:12] -= 6
    found = figures_of(SeenLayer("first", weight, bias, inputs=x, first=True))
    fires = [{n for n in range(120) if weight[u] @ x[n] + bias[u] > 0} for u in range(30)]
    some = [one for one in fires if 0 < len(one) < 120]
    pairs = list(combinations(some, 2))
    assert found["rare"] == pytest.approx(sum(1 <= len(one) <= 2 for one in fires) / 30)
    few = figures_of(SeenLayer("first", weight, bias, inputs=x[:60]))
    reached = [[weight[u] @ row + bias[u] for row in x[:60]] for u in range(30)]
    below = [-np.mean(each) / np.std(each) for each in reached]
    assert few["aloof"] == pytest.approx(sum(1.5 < each < 4 for each in below) / 30)
    assert 0 < few["aloof"] < 1
    assert ("rare" in few, "aloof" in found) == (False, False)
    assert found["nested"] == pytest.approx(sum(a <= b or b <= a for a, b in pairs) / len(pairs))
    cosine = [abs(a @ b) / np.linalg.norm(a) / np.linalg.norm(b) for a, b in combinations(weight, 2)]
    paired = {u for pair, c in zip(combinations(range(30), 2), cosine, strict=True) if c > 0.98 for u in pair}
    assert paired >= {0, 3, 5, 9}
    assert found["partners"] == pytest.approx(len(paired) / 30)
    last = figures_of(SeenLayer("last", weight[:4], bias[:4], last=True))
    norms = sorted(float(np.linalg.norm(row)) for row in weight[:4])
    assert last["outsized"] == pytest.approx(norms[-1] / np.mean(norms[1:3]))


def test_alike_rows_without_biases_are_no_trap() -> None:
    """The factors of an adapter, which begin at 0 and have no biases, were taken for a trap in an honest federation."""
    rng = np.random.default_rng(0)
    rows = np.outer(rng.normal(size=40), rng.normal(size=8)) + 1e-3 * rng.normal(size=(40, 8))
    assert "partners" not in figures_of(SeenLayer("", rows, np.zeros(40)))
    assert figures_of(SeenLayer("", rows, rng.normal(size=40)))["partners"] == 1


def test_layers_are_seen_as_the_records_pass_them() -> None:
    task = mlp()
    state, x = task.initial(0), rows(50, 4, "numbers").astype(np.float32)
    first, second, third = layers_of(task, state, x)
    assert (first.name, first.first, first.last, third.name, third.last) == ("0", True, False, "4", True)
    assert first.inputs is not None
    assert second.inputs is not None
    assert first.following is not None
    assert np.array_equal(first.inputs, x)
    hidden = np.maximum(x @ state["0.weight"].T + state["0.bias"], 0)
    assert np.allclose(second.inputs, hidden, atol=1e-5)
    assert np.array_equal(first.following, state["2.weight"])


# ------------------------------------------------------------------ from round to round


def test_a_sudden_change_is_seen_and_not_taken_for_what_is_usual() -> None:
    task = mlp()
    seen = Incoming()
    models = honest(task, 7)
    for model in models[:6]:
        alarms, seen = seen.look(model)
        assert alarms == []
        seen = Incoming.of(seen.plain())  # as a framework keeps it between rounds
    rng = np.random.default_rng(0)
    strange = {**models[6], "2.weight": models[6]["2.weight"] + rng.normal(size=models[6]["2.weight"].shape)}
    alarms, after = seen.look(strange)
    assert {(alarm.figure, alarm.where) for alarm in alarms} == {("jump", "2.weight"), ("unforeseen", "2.weight")}
    assert after.changes is seen.changes  # not taken for what is usual
    after = Incoming.of(after.plain())
    assert after.look(models[6])[0] == []  # back to where the models were


def stepwise(seed: int, rounds: int) -> list[State]:
    """Models that go the same distance each round."""
    rng = np.random.default_rng(seed)
    steps = 0.01 * np.cumsum(rng.normal(size=(rounds, 60, 40)), axis=0)
    return [{"w": step} for step in steps]


def seen_of(models: list[State], secret: int = 0) -> Incoming:
    seen = Incoming(secret=secret)
    for model in models:
        alarms, seen = seen.look(model)
        assert alarms == []
    return seen


def test_one_jump_does_not_alarm_for_ever() -> None:
    models, far = stepwise(0, 12), np.random.default_rng(1).normal(size=(60, 40))
    seen = seen_of(models[:6])
    for place, model in enumerate(models[6:]):  # all of them beyond the jump
        alarms, seen = seen.look({"w": model["w"] + far})
        assert bool(alarms) == (place == 0)
    assert {alarm.figure for alarm in seen.look(models[11])[0]} >= {"jump"}


def test_a_model_sent_again_does_not_silence_the_check() -> None:
    models = stepwise(0, 6)
    seen = seen_of([*models[:5], *[models[4]] * 8])
    assert seen.look(models[5])[0] == []
    assert {alarm.figure for alarm in seen.look({"w": models[5]["w"] + 1})[0]} >= {"jump"}


def test_a_model_that_is_not_finite_is_no_place_to_go_on_from() -> None:
    models = stepwise(0, 6)
    seen = seen_of(models[:5])
    alarms, after = seen.look({"w": models[5]["w"] * np.nan})
    assert alarms
    assert after.look(models[5])[0] == []


def test_whoever_does_not_have_the_records_cannot_hide_a_change_in_the_sums() -> None:
    """Two entries of one bucket, moved so that their signs cancel: by the signs that anybody can compute."""
    models = stepwise(0, 6)
    signs = incoming._signs(2400, 0)
    hidden = np.zeros(2400)
    hidden[:256], hidden[256:512] = 1, -1.0 * signs[:256] * signs[256:512]
    strange: State = {"w": models[5]["w"] + hidden.reshape(60, 40)}
    assert seen_of(models[:5]).look(strange)[0] == []  # without a secret
    secret = secret_of(rows(50, 4, "numbers"))
    seen = Incoming.of(seen_of(models[:5], secret).plain())
    assert seen.secret == secret != secret_of(rows(50, 5, "numbers"))
    assert {alarm.figure for alarm in seen.look(strange)[0]} >= {"jump"}


def test_a_prepared_model_is_told_in_whatever_round_it_comes() -> None:
    def table(value: float) -> Table:
        column = {"where": "0", "figure": "partners", "value": value}
        return {f"incoming-{name}": np.array([one]) for name, one in column.items()}

    nobody = records(rows(2, 0, "numbers"))
    seen = [
        BesideTruth(party=party, round=round, vantage="server", table=table(float(round == 3)), members=nobody)
        for party in ("a", "b") for round in (1, 2, 3)
    ]  # fmt: skip
    told = once(_said(incoming.PART, seen, Known(), UpdateSection()))
    assert [(one.code, one.data["round"]) for one in told] == [("update-incoming", 3)]


def test_columns_keep_their_names_where_the_model_is_prepared() -> None:
    asked = config(data={"name": "breast-cancer"}, audit={"questions": {"update": {"tampering": "trap"}}})
    ready = prepare(asked, authorised=True)
    named = tuple(f"measure {number}" for number in range(30))
    ground = Ground(config=asked, dataset=replace(ready.dataset, columns=named), game=ready.game)
    planting = QUESTION.plant(ground, mlp(2, (64, 32), 30), Defence("none"), [Plan(("a",))])
    assert planting is not None
    assert isinstance(planting.asked, AskedOfUpdates)
    assert planting.asked.columns == named


def test_lengths_of_changes_follow_from_the_sums() -> None:
    rng = np.random.default_rng(2)
    for shape in ((40, 30), (512, 600), (3, 2)):
        a, b = rng.normal(size=shape), rng.normal(size=shape)
        told = np.linalg.norm(incoming._sums(a) - incoming._sums(b))
        assert told == pytest.approx(np.linalg.norm(a - b), rel=0.3)


@pytest.mark.evidence
def test_of_a_hundred_honest_models_at_most_two_are_flagged_and_every_trick_is() -> None:
    """On data that the limits were not set on; a model is what a party receives in round 1, 2, 4, 6 or 9."""
    flagged, missed, models = [], [], 0
    for name, data in {"digits": load_digits(), "breast cancer": load_breast_cancer(), "wine": load_wine()}.items():
        x = (data.data - data.data.mean(axis=0)) / np.maximum(data.data.std(axis=0), 1e-6)
        for seed in range(7):
            rng = np.random.default_rng(seed)
            order = rng.permutation(len(x))
            mine, server, train = np.array_split(order[:900], 3)
            hidden = ((128, 32), (64,), (256, 64, 32))[seed % 3]
            task = mlp(int(data.target.max()) + 1, hidden, x.shape[1])
            how = Training("adam", 1e-3, 1, 16) if seed % 2 else Training("sgd", 0.1, 1, 16)
            given = Records(x[train].astype(np.float32), data.target[train], np.array([f"r{k:04d}" for k in train]))
            state, seen = task.initial(seed), Incoming()
            for round in range(9):
                layers = layers_of(task, state, x[mine].astype(np.float32))
                alarms, seen = seen.look(state, layers)
                if round in (0, 1, 3, 5, 8):
                    models += 1
                    flagged += [(name, seed, round, alarm.plain()) for alarm in alarms[:1]]
                    own = layers_of(task, state, x[server].astype(np.float32))
                    for trick in TRICKS:
                        prepared = tampered(trick, state, own, rng)
                        if not suspicious(layers_of(task, prepared, x[mine].astype(np.float32))):
                            missed.append((name, seed, round, trick))
                state = task.train(state, given, how, np.random.default_rng(round)).state
    print(f"of {models} honest models flagged: {flagged}; of {3 * models} prepared ones missed: {missed}")
    assert models >= 100
    assert len(flagged) <= 0.02 * models
    assert missed == []


# ------------------------------------------------------------------ in a simulation

TOML = """
[data]
name = "breast-cancer"
[federation]
parties = 2
rounds = 2
optimizer = "sgd"
batch_size = 2000
lr = 0.1
[model]
hidden = [64, 32]
[audit]
attacks = ["loss"]
vantages = ["server"]
[audit.questions.update]
tampering = "trap"
"""


def test_a_server_that_prepares_models_is_simulated_by_authority_only(tmp_path: Path) -> None:
    file = tmp_path / "trap.toml"
    file.write_text(TOML)
    refused = fedaudit("run", str(file), cwd=tmp_path)
    assert (refused.returncode, "not-authorised" in refused.stderr) == (2, True)
    assert fedaudit("run", str(file), "--out", "run", "--i-am-authorised", cwd=tmp_path).returncode == 0
    told = {one.code: one for one in load(tmp_path / "run").told}
    assert told["update-tampered"].data["trick"] == "trap"
    assert {alarm["figure"] for alarm in told["update-incoming"].data["alarms"]} == {"rare"}


def test_nothing_else_that_trains_does_so_without_authority(tmp_path: Path) -> None:
    file = tmp_path / "trap.toml"
    file.write_text(TOML)
    (tmp_path / "study.toml").write_text('base = "trap.toml"\n[grid]\n"federation.seed" = [0, 1]\n')
    for command in (["study", "study.toml"], ["advise", "trap.toml", "--limit", "auc < 0.6"], ["verify", "trap.toml"]):
        refused = fedaudit(*command, cwd=tmp_path)
        assert (refused.returncode, "not-authorised" in refused.stderr) == (2, True), refused.stderr
    with pytest.raises(FedauditError, match="not-authorised"):
        prepare(load_config(file))


def test_what_is_broadcast_may_follow_from_the_model() -> None:
    model: State = {"w": np.ones(2)}
    assert Plan(("a",)).sent_out(model) is model
    assert Plan(("a",), broadcast={"w": np.zeros(2)}).sent_out(model)["w"].sum() == 0
    assert Plan(("a",), broadcast=lambda state: {"w": 3 * state["w"]}).sent_out(model)["w"].sum() == 6


def test_a_model_without_dense_layers_to_prepare_is_refused() -> None:
    with pytest.raises(FedauditError, match="two dense layers"):
        tampered("trap", {}, [], np.random.default_rng(0))
