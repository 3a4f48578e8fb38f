"""Models of other frameworks: plain arrays instead of a torch module.

What a torch twin finds is found, what needs torch is left out and said so, and wrong use is refused in words that help.
"""

import ast
import copy
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline
from torch import nn

import fedaudit
from fedaudit.data.set_aside import joined
from fedaudit.errors import FedauditError
from fedaudit.integrations.loop import Recording, record
from fedaudit.integrations.options import as_task
from fedaudit.integrations.plain import PlainTask
from fedaudit.results.document import Document
from fedaudit.types import Game, Records, State
from tests.command import fedaudit as command
from tests.integrations.worlds import PARTIES, games, part

QUICK = ("loss", "round-gain")
EXAMPLE = Path(__file__).parents[2] / "examples" / "numpy_loop.py"


class Logistic:
    """Logistic regression on the digits of `worlds`: what must be there, and nothing else."""

    classes = 10

    def initial(self, seed: int) -> dict[str, Any]:
        return {"w": np.zeros((64, 10)), "b": np.zeros(10)}

    def outputs(self, state: State, x: NDArray[Any]) -> Any:
        return x @ state["w"] + state["b"]


def trained(state: Mapping[str, Any], records: Records, steps: int = 20) -> dict[str, Any]:
    """Gradient descent on all of a party's records."""
    w, b = state["w"].copy(), state["b"].copy()
    for _ in range(steps):
        p = np.exp(records.x @ w + b)
        error = p / p.sum(axis=1, keepdims=True) - np.eye(10)[records.y]
        w -= records.x.T @ error / len(records)
        b -= error.mean(axis=0)
    return {"w": w, "b": b}


def mean(states: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {name: np.mean([state[name] for state in states.values()], axis=0) for name in ("w", "b")}


def rounds(count: int = 3) -> list[tuple[dict[str, Any], dict[str, dict[str, Any]]]]:
    """The global model after each round, and what the parties sent. Round 0 comes first."""
    made: list[tuple[dict[str, Any], dict[str, dict[str, Any]]]] = [(Logistic().initial(0), {})]
    for _ in range(count):
        updates = {party: trained(made[-1][0], part(party)[0]) for party in PARTIES}
        made.append((mean(updates), updates))
    return made


def told(audit: Recording, told: list[tuple[dict[str, Any], dict[str, dict[str, Any]]]]) -> Document:
    with audit:
        for round, (state, updates) in enumerate(told):
            audit.observe(round, state, updates=updates)
    return audit.document


def scores(out: Path) -> dict[tuple[str, str, str], float]:
    table = pq.read_table(out / "scores.parquet").to_pydict()
    return dict(zip(zip(table["attack"], table["model"], table["id"], strict=True), table["score"], strict=True))


# ------------------------------------------------------------------ the example, and its twin in torch


@cache
def example() -> dict[str, Any]:
    """With fewer rounds, which are enough to compare."""
    space: dict[str, Any] = {"__name__": "numpy_loop"}
    exec(compile(EXAMPLE.read_text(), EXAMPLE, "exec"), space)
    space["ROUNDS"] = 3
    return space


def test_the_example_imports_no_torch() -> None:
    names = [node for node in ast.walk(ast.parse(EXAMPLE.read_text())) if isinstance(node, ast.Import | ast.ImportFrom)]
    modules = {alias.name for node in names if isinstance(node, ast.Import) for alias in node.names}
    modules |= {node.module or "" for node in names if isinstance(node, ast.ImportFrom)}
    assert modules == {"sys", "fedaudit", "numpy", "sklearn.datasets"}


def test_a_torch_twin_of_the_example_finds_the_same(tmp_path: Path) -> None:
    """The same training, shown to the audit as a torch module of the same weights."""
    numpy_loop = example()
    document, one = numpy_loop["main"](tmp_path / "numpy"), scores(tmp_path / "numpy")
    attacks = {key[0] for key in one}
    assert {"loss", "fta-confidence", "round-gain", "gradient-norm"} <= attacks
    assert document.degraded == []
    (left,) = [notice for notice in document.notices if "without torch" in notice]
    assert left.endswith(": matched-filter, gradient-cosine, gradient-diff, gradient-norm-all, fusion.")

    x, y = load_digits(return_X_y=True)
    parts = {
        name: fedaudit.set_aside((x[i::3] / 16).astype("float32"), y[i::3], party=name, seed=0)
        for i, name in enumerate(numpy_loop["PARTIES"])
    }
    model, rng, twin = numpy_loop["Logistic"](), np.random.default_rng(0), nn.Sequential(nn.Linear(64, 10)).double()
    state = model.initial(0)
    planned, own = numpy_loop["ROUNDS"], [game for _, game in parts.values()]
    options: Any = {"out": tmp_path / "torch", "attacks": attacks, "forward": lambda module, x: module(x.double())}
    with record(twin, own, rounds=planned, **options) as beside:
        beside.observe(0, in_torch(state))
        for round in range(1, planned + 1):
            sent = {name: numpy_loop["train"](model, state, records, rng) for name, (records, _) in parts.items()}
            sizes = [len(records) for records, _ in parts.values()]
            state = {key: np.average([s[key] for s in sent.values()], axis=0, weights=sizes) for key in state}
            beside.observe(round, in_torch(state), {name: in_torch(update) for name, update in sent.items()})

    assert one == pytest.approx(scores(tmp_path / "torch"), rel=0, abs=1e-6)
    assert document.run.accuracy == beside.document.run.accuracy


def in_torch(state: State) -> dict[str, Any]:
    return {"0.weight": torch.from_numpy(state["weights"].T), "0.bias": torch.from_numpy(state["bias"])}


# ------------------------------------------------------------------ the smallest model, and what can be done with it


def test_three_names_are_enough(tmp_path: Path) -> None:
    """Accuracy, blind, report and gate as for every run; no last layer is told, so that its norm is left out."""
    document = told(record(Logistic(), games(), out=tmp_path / "run", rounds=3, strict=True), rounds())
    assert (document.run.status, document.degraded) == ("complete", [])
    assert {(r.vantage, r.model) for r in document.results} >= {("client", "global"), ("server", "local")}
    attacks = {result.attack for result in document.results}
    assert {"blind", "loss", "round-gain", "fta-confidence"} <= attacks
    assert "gradient-norm" not in attacks
    assert "this model does not say what goes into its last layer): gradient-norm." in " ".join(document.notices)
    assert (document.run.accuracy["evaluation"].value or 0) > 0.8
    assert (tmp_path / "run/report.html").read_text().count("without torch") >= 1
    assert command("gate", "run", "--fail-if", "auc > 0.99", cwd=tmp_path).returncode == 0
    assert command("report", "run", cwd=tmp_path).returncode == 0


def test_the_folder_is_looked_at_again_in_the_program_that_has_the_model(tmp_path: Path) -> None:
    """From the stored models, a new attack; `fedaudit audit` has neither records nor model, and says so."""
    loop = rounds()
    first = told(record(Logistic(), games(), out=tmp_path / "run", rounds=3, keep="snapshots", attacks=["loss"]), loop)
    assert {result.attack for result in first.results} == {"blind", "loss"}
    refused = command("audit", "run", cwd=tmp_path)
    assert refused.returncode == 2
    says = " ".join(refused.stderr.split())
    assert "its records and its model are in that program" in says
    assert "fedaudit.record(model, games, out=" in says
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").glob("[rs]*.*") if path.name != "run.json"}
    assert {"results.json", "scores.parquet", "report.html"} <= before.keys()
    again = told(record(Logistic(), games(), out=tmp_path / "run", rounds=3, attacks=["fta-loss", "merlin"]), [])
    assert {name: (tmp_path / "run" / name).read_bytes() for name in before} == before  # those of the first time stay
    assert "merlin" in (tmp_path / "run/audit/report.html").read_text()
    told(record(Logistic(), games(), out=tmp_path / "run", rounds=3, vantages=["client"], attacks=["loss"]), [])
    assert {name: (tmp_path / "run" / name).read_bytes() for name in before} == before
    told(record(Logistic(), games(), out=tmp_path / "run", rounds=3, attacks=["fta-loss", "merlin"]), [])
    told(record(Logistic(), games(), out=tmp_path / "new", rounds=3, attacks=["fta-loss", "merlin"]), loop)
    assert again.degraded == []
    assert scores(tmp_path / "run/audit") == scores(tmp_path / "new")


def test_a_restarted_loop_goes_on(tmp_path: Path) -> None:
    loop = rounds(4)
    told(record(Logistic(), games(), out=tmp_path / "whole", rounds=4, attacks=QUICK), loop)
    told(record(Logistic(), games(), out=tmp_path / "twice", rounds=4, attacks=QUICK), loop[:3])
    with record(Logistic(), games(), out=tmp_path / "twice", rounds=4, attacks=QUICK, strict=True) as audit:
        audit.observe(0, loop[2][0])  # where it left off
        for round in (3, 4):
            audit.observe(round, *loop[round])
    assert scores(tmp_path / "twice") == scores(tmp_path / "whole")


class Network:
    """A scikit-learn network: `coefs_` and `intercepts_` by name. The last layer's inputs are the hidden units."""

    classes = 10

    def __init__(self) -> None:
        self.network = MLPClassifier((24,), solver="sgd", learning_rate_init=0.1, batch_size=10, random_state=0)
        self.network.partial_fit(*self.few(), classes=np.arange(10))

    def few(self) -> tuple[NDArray[Any], NDArray[Any]]:
        records = part("north")[0]
        return records.x[:10], records.y[:10]

    def initial(self, seed: int) -> dict[str, Any]:
        arrays = [*self.network.coefs_, *self.network.intercepts_]
        return dict(zip(("w0", "w1", "b0", "b1"), (array.copy() for array in arrays), strict=True))

    def train(self, state: State, records: Records) -> dict[str, Any]:
        self.network.coefs_ = [state["w0"].copy(), state["w1"].copy()]
        self.network.intercepts_ = [state["b0"].copy(), state["b1"].copy()]
        for _ in range(5):
            self.network.partial_fit(records.x, records.y)
        return self.initial(0)

    def last_layer(self, state: State, x: NDArray[Any]) -> tuple[Any, Any]:
        hidden = np.maximum(x @ state["w0"] + state["b0"], 0)
        return hidden @ state["w1"] + state["b1"], np.column_stack([hidden, np.ones(len(x))])

    def outputs(self, state: State, x: NDArray[Any]) -> Any:
        return self.last_layer(state, x)[0]


def test_a_network_of_scikit_learn(tmp_path: Path) -> None:
    model = Network()
    state: Mapping[str, Any] = model.initial(0)
    with record(model, games(), out=tmp_path, rounds=4, attacks=["loss", "gradient-norm"], strict=True) as audit:
        audit.observe(0, state)
        for round in range(1, 5):
            updates = {party: model.train(state, part(party)[0]) for party in PARTIES}
            state = {name: np.mean([update[name] for update in updates.values()], axis=0) for name in state}
            audit.observe(round, state, updates=updates)
    document = audit.document
    assert document.degraded == []
    assert (document.run.accuracy["members"].value or 0) > 0.8
    rows = joined(*games()).candidates.rows
    norms = last_gradients(state, rows)
    found = {key[2]: score for key, score in scores(tmp_path).items() if key[:2] == ("gradient-norm", "global")}
    assert found == pytest.approx(
        dict(zip(rows.id.tolist(), (-norms).tolist(), strict=True)), rel=1e-4, abs=1e-5
    )  # float32


def last_gradients(state: Mapping[str, Any], rows: Records) -> NDArray[Any]:
    """The norm of every record's gradient with respect to the last layer, by backward passes."""
    w, b = (torch.tensor(state[name], dtype=torch.float64, requires_grad=True) for name in ("w1", "b1"))
    hidden = torch.from_numpy(np.maximum(rows.x @ state["w0"] + state["b0"], 0)).double()
    found = []
    for h, label in zip(hidden, torch.from_numpy(rows.y), strict=True):
        grads = torch.autograd.grad(nn.functional.cross_entropy((h @ w + b)[None], label[None]), [w, b])
        found.append(torch.cat([g.flatten() for g in grads]).norm().item())
    return np.array(found)


def test_a_regression(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 5)).astype(np.float32)
    records, game = fedaudit.set_aside(x, (x.sum(axis=1) + rng.normal(size=400)).astype(np.float32), party="north")

    class Linear:
        classes = 0

        def initial(self, seed: int) -> dict[str, Any]:
            return {"w": np.zeros(5)}

        def outputs(self, state: State, x: NDArray[Any]) -> Any:
            return x @ state["w"]

    fit = {"w": np.linalg.lstsq(records.x, records.y)[0].astype(np.float64)}
    with record(Linear(), game, out=tmp_path, rounds=2, strict=True) as audit:
        audit.observe(0, {"w": np.zeros(5)})
        for round in (1, 2):
            audit.observe(round, fit, updates={"north": fit})
    rows = game.candidates.rows
    losses = dict(zip(rows.id.tolist(), (-((rows.x @ fit["w"] - rows.y) ** 2)).tolist(), strict=True))
    found = {key[2]: score for key, score in scores(tmp_path).items() if key[:2] == ("loss", "global")}
    assert found == pytest.approx(losses, rel=1e-9)


# ------------------------------------------------------------------ wrong use


def without(name: str) -> Any:
    return type("Partly", (), {key: value for key, value in vars(Logistic).items() if key != name})()


def with_(**changed: Any) -> Any:
    return type("Changed", (Logistic,), changed)()


def softmax(self: Any, state: State, x: NDArray[Any]) -> Any:
    return np.full((len(x), 10), 0.1)


def noisy(self: Any, state: State, x: NDArray[Any]) -> Any:
    return np.random.default_rng().normal(size=(len(x), 10))


def in_place(self: Any, state: State, x: NDArray[Any]) -> Any:
    x -= 1
    return x[:, :10]


WRONG: dict[str, tuple[Any, str]] = {
    "no classes": (without("classes"), r"lacks `classes`\. Give it .*classes = 10 suits these records"),
    "no initial": (without("initial"), r"lacks `initial\(seed\)`"),
    "no outputs": (without("outputs"), r"lacks `outputs\(state, x\)`"),
    "outputs that are an array": (with_(outputs=np.zeros(3)), r"lacks `outputs\(state, x\)`"),
    "classes as text": (with_(classes="10"), r"classes = '10', and the labels need 10 of them"),
    "a regression by mistake": (with_(classes=0), r"classes = 0, and the labels need 10 of them"),
    "too few classes": (with_(classes=9), r"9 outputs, labels run from 0 to 9"),
    "the class of an estimator": (MLPClassifier, r"model returned MLPClassifier.*outputs\(state, x\)"),
    "what makes an estimator": (lambda: MLPClassifier(), r"model returned MLPClassifier.*outputs\(state, x\)"),
    "a class that needs more": (Pipeline, r"cannot be called with.*outputs\(state, x\)"),
    "an estimator": (MLPClassifier(), r"is a MLPClassifier, which is no torch.nn.Module.*outputs\(state, x\)"),
    "a list as state": (with_(initial=lambda self, seed: [np.zeros(3)]), r"initial\(seed\): .*mapping.*this is a list"),
    "no arrays": (with_(initial=lambda self, seed: {}), r"returns no arrays"),
    "numbers as names": (with_(initial=lambda self, seed: {0: np.zeros(3)}), r"names an array 0, which is no text"),
    "whole numbers": (with_(initial=lambda self, seed: {"b": [0, 0]}), r"gives 'b' as int64, and weights are .*floats"),
    "nested": (with_(initial=lambda self, seed: {"layer": {"w": np.zeros(2)}}), r"'layer' as object.*Flatten"),
    "labels as outputs": (
        with_(outputs=lambda self, state, x: np.zeros(len(x))),
        r"answers with shape \(\) where 10 classes are needed",
    ),
    "one row": (with_(outputs=lambda self, state, x: np.zeros(10)), r"shape \(10,\) for 8 records.*one row for each"),
    "no numbers": (with_(outputs=lambda self, state, x: None), r"answers with shape \(\) for 8 records"),
    "a tuple": (with_(outputs=lambda self, state, x: (x, x[:, :3])), r"answers with a tuple that is no array"),
    "probabilities": (with_(outputs=softmax), r"probabilities, and logits are needed.*logarithm"),
    "randomness": (with_(outputs=noisy), r"differently twice.*dropout"),
    "its inputs changed": (with_(outputs=in_place), r"differently twice.*change neither state nor x"),
    "an error of its own": (
        with_(outputs=lambda self, state, x: x @ state["v"]),
        r"fails on records .*KeyError in test",
    ),
    "NaN": (with_(outputs=lambda self, state, x: np.full((len(x), 10), np.nan)), r"NaN before any training"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_use_is_refused_before_training(kind: str, tmp_path: Path) -> None:
    model, says = WRONG[kind]
    with pytest.raises(FedauditError, match=says):
        record(model, copied_games(), out=tmp_path, rounds=3)


def copied_games() -> list[Game]:
    return copy.deepcopy(games())


def test_a_hook_is_for_modules(tmp_path: Path) -> None:
    with pytest.raises(FedauditError, match=r"forward=\.\.\. says how a torch module is asked"):
        record(Logistic(), games(), out=tmp_path, rounds=3, forward=lambda model, x: x)


@pytest.mark.parametrize("attack", ["matched-filter", "gradient-cosine", "tear-deepfool"])
def test_an_attack_that_needs_torch_is_refused_if_it_is_named(attack: str, tmp_path: Path) -> None:
    with pytest.raises(FedauditError, match=f"{attack!r} cannot be run: a model that is given without torch"):
        record(Logistic(), games(), out=tmp_path, rounds=3, vantages=["client"], attacks=[attack])


def test_a_last_layer_in_another_form_is_not_believed(tmp_path: Path) -> None:
    for made, says in ((np.zeros(3), "returns a ndarray, and two arrays"), ((np.zeros((1, 10)), 0), "shape")):
        model = with_(last_layer=lambda self, state, x, made=made: made)
        with pytest.raises(FedauditError, match=says):
            record(model, games(), out=tmp_path, rounds=3, attacks=["gradient-norm"])


BAD_ROUND: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "other names": (lambda state: {"weights": state["w"], "b": state["b"]}, "missing: w; unknown: weights"),
    "a list": (lambda state: list(state.values()), "mapping of names to arrays, and this is a list"),
    "another shape": (lambda state: {**state, "w": state["w"].T}, "'w' has shape (10, 64), the model's has (64, 10)"),
}


@pytest.mark.parametrize("kind", BAD_ROUND)
def test_a_later_round_in_another_form_is_missing_and_said_so(kind: str, tmp_path: Path) -> None:
    spoil, says = BAD_ROUND[kind]
    loop: list[Any] = rounds(4)
    loop[2] = (spoil(loop[2][0]), loop[2][1])
    document = told(record(Logistic(), games(), out=tmp_path, rounds=4, attacks=QUICK), loop)
    warned = " ".join(document.warnings)
    assert "Round 2 is missing" in warned
    assert says in warned
    # Nobody saw what the third round started from; it is not taken for a round that began where the first one ended.
    assert "Round 3: what the parties started from is not known, so their models are left out." in warned
    assert "Round 4" not in warned


def test_a_round_that_is_told_again_rightly_is_no_gap(tmp_path: Path) -> None:
    loop = rounds(3)
    with record(Logistic(), games(), out=tmp_path / "again", rounds=3, attacks=QUICK) as audit:
        for round, (state, updates) in enumerate(loop):
            if round == 2:
                audit.observe(round, list(state.values()), updates)  # type: ignore[arg-type]
            audit.observe(round, state, updates)
    told(record(Logistic(), games(), out=tmp_path / "once", rounds=3, attacks=QUICK), loop)
    assert scores(tmp_path / "again") == scores(tmp_path / "once")


def test_where_the_first_round_started_has_to_be_told(tmp_path: Path) -> None:
    with record(Logistic(), games(), out=tmp_path, rounds=2, attacks=QUICK) as audit:
        for round, (state, updates) in enumerate(rounds(2)[1:], start=1):
            audit.observe(round, state, updates)
    assert "their models are left out (observe(0, model) tells it)." in " ".join(audit.document.warnings)


def test_a_class_or_its_name_is_as_good_as_an_object() -> None:
    for given in (Logistic, Logistic(), f"{__name__}:Logistic"):
        task = as_task(given, joined(*games()))
        assert isinstance(task, PlainTask)
        assert (task.classes, list(task.initial(0))) == (10, ["w", "b"])


def test_a_model_that_asks_faster_is_asked_that_way() -> None:
    asked = []

    class Faster(Logistic):
        def asking(self, state: State) -> Callable[[NDArray[Any]], Any]:
            asked.append(state)
            return lambda x: self.outputs(state, x)

    x, state = part("north")[0].x, rounds(1)[1][0]
    plain, faster = (as_task(model, joined(*games())) for model in (Logistic(), Faster()))
    assert np.array_equal(faster.asking(state)(x), plain.asking(state)(x))
    assert np.array_equal(plain.asking(state)(x), plain.outputs(state, x))
    assert len(asked) == 1
