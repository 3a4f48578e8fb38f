"""Makes docs/comparison.md: fedaudit beside the libraries that do part of its work, on the same work.

    make compare                                            # installs what is missing into build/peers, and runs this
    python -m docs.make_comparison [PART ...]               # some parts; the others stay as the page has them

Each part runs in the environment as it is. A peer that is not installed is named as missing. Times are taken in turn
(benchmarks/measuring.py), so that other work on the machine falls on both. About ten minutes on two quiet cores.
"""

import argparse
import json
import logging
import os
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import boundary, ghost
from benchmarks.measuring import Case, interleaved
from fedaudit.adversary.signals.updates import statistics
from fedaudit.config.schema import parse
from fedaudit.defences.dp_sgd import DPSGD
from fedaudit.federation.simulate import Trainer, federate
from fedaudit.files import write_atomically
from fedaudit.learn.tasks import TorchTask, Training, build_task
from fedaudit.privacy.accounting import epsilon
from fedaudit.privacy.statement import Process
from fedaudit.results.scores import blocks_of
from fedaudit.session.prepare import prepare
from fedaudit.session.run import rounds
from fedaudit.stats import Block, auc, hash_order, over_runs, tpr_at_fpr
from fedaudit.stats.epsilon import Ranks, gdp_epsilon, one_run_epsilon, proved_epsilon
from fedaudit.stats.gaussian import gaussian_epsilon
from fedaudit.types import Estimate, Plan, Records, Role

HERE = Path(__file__).parent
PAGE, KEPT = HERE / "comparison.md", HERE / "comparison.json"
Row = Sequence[str]  # who, settings, then what the part measures


def installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def in_turn(case: Case) -> Row:
    """A peer's time, how many times ours that is, and ours in turn with this peer: other work on the machine makes ours
    another one beside every peer."""
    ours, theirs = case.seconds
    return milliseconds(theirs), f"{theirs / ours:.3g}", milliseconds(ours)


# ------------------------------------------------------------------ gradients of single records


def gradients() -> list[Row]:
    """Norm of every record's gradient and its product with an update, MLP with 1.3 million parameters, 256 records."""
    task, state, rows = ghost.world("MLP 1.3M")
    rows = rows.take(np.arange(ghost.PEER_ROWS))
    sent = ghost.updates(task, state, rows, 1)
    ours = partial(statistics, task, state, sent, rows)
    found: list[Row] = []
    for name, (way, _) in ghost.PEERS.items():
        if name == "Opacus" and not installed("opacus"):
            continue
        case = interleaved(ours, ghost.tuned(partial(way, task, state, sent[0], rows)), 1.0, times=3)
        sizes = "as it is" if way is ghost.loop else "batches of 16, 32, 64 or 128: the fastest"
        found.append((name, sizes, *in_turn(case)))
    return [("fedaudit", "no gradient is formed", "", "1", ""), *found]


def dp_sgd() -> list[Row]:
    """One epoch of DP-SGD over 2,048 records, Poisson batches of 256, MLP with 1.3 million parameters."""
    from opacus import PrivacyEngine
    from torch.utils.data import DataLoader, TensorDataset

    task, state, rows = ghost.world("MLP 1.3M")
    training = Training("sgd", 0.05, 1, 256)
    tensors = TensorDataset(torch.from_numpy(rows.x), torch.from_numpy(rows.y))

    def opacus(mode: str) -> None:
        module = task.fresh(state).train()
        options = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "grad_sample_mode": mode}
        loss = torch.nn.CrossEntropyLoss()
        made = PrivacyEngine().make_private(
            module=module, optimizer=torch.optim.SGD(module.parameters(), lr=0.05),
            data_loader=DataLoader(tensors, batch_size=256), criterion=loss, **options,
        )  # fmt: skip
        private, optimizer, *criterion, batches = made
        of_batch = criterion[0] if criterion else loss
        for x, y in batches:
            optimizer.zero_grad()
            of_batch(private(x), y).backward()
            optimizer.step()

    def ours() -> None:
        DPSGD(1.0, 1.0)(task, state, rows, training, np.random.default_rng(0))

    found: list[Row] = []
    for mode in ("hooks", "ghost"):
        case = interleaved(ours, partial(opacus, mode), 1.0, times=3)
        found.append(("Opacus", f"make_private, {mode}", *in_turn(case)))
    return [("fedaudit", "the ghost clipping of Opacus, its own batches", "", "1", ""), *found]


# ------------------------------------------------------------------ accounting

NOISE, RATE, STEPS, DELTA = 0.8, 0.01, 1000, 1e-5


def accounting() -> list[Row]:
    """Epsilon of 1,000 Poisson-sampled Gaussian releases (noise 0.8, rate 0.01) at delta 1e-5."""

    def ours() -> float:
        return float(epsilon(Process("record", NOISE, 5, "poisson", RATE), STEPS // 5, DELTA))

    def dp_accounting(kind: str, **options: Any) -> float:
        import dp_accounting as dp

        event = dp.PoissonSampledDpEvent(RATE, dp.GaussianDpEvent(NOISE))
        accountant: Any = dp.rdp.RdpAccountant() if kind == "RDP" else dp.pld.PLDAccountant(**options)
        return float(accountant.compose(event, STEPS).get_epsilon(DELTA))

    def opacus(kind: str) -> float:
        from opacus.accountants import PRVAccountant, RDPAccountant

        accountant: Any = RDPAccountant() if kind == "RDP" else PRVAccountant()
        accountant.history = [(NOISE, RATE, STEPS)]
        return float(accountant.get_epsilon(DELTA))

    ways: dict[tuple[str, str], Callable[[], float]] = {
        ("fedaudit", "privacy-loss distribution, cells of 1e-3"): ours,
        ("dp-accounting", "PLDAccountant, as it comes"): partial(dp_accounting, "PLD"),
        ("dp-accounting", "PLDAccountant, cells of 1e-3"): partial(
            dp_accounting, "PLD", value_discretization_interval=1e-3
        ),
        ("dp-accounting", "RdpAccountant, as it comes"): partial(dp_accounting, "RDP"),
        ("Opacus", "PRVAccountant, as it comes"): partial(opacus, "PRV"),
        ("Opacus", "RDPAccountant, as it comes"): partial(opacus, "RDP"),
    }
    found: list[Row] = []
    for who, way in ways.items():
        way()
        started = time.perf_counter()
        value = way()
        found.append((*who, f"{value:.4f}", milliseconds(time.perf_counter() - started)))
    return found


# ------------------------------------------------------------------ bounds of epsilon from scores

WORLDS, TRIALS, SHIFT = 100, 500, 2.0


def bounds() -> list[Row]:
    """A Gaussian mechanism with mu = 2 (epsilon 10.0 at delta 1e-5), 500 scores on either side, 95 %, 100 worlds."""
    truth = gaussian_epsilon(SHIFT, DELTA)
    rng = np.random.default_rng(0)
    worlds = [(rng.normal(SHIFT, 1, TRIALS), rng.normal(0, 1, TRIALS)) for _ in range(WORLDS)]

    def one_run(inside: Any, outside: Any) -> float:
        included = np.arange(2 * TRIALS) < TRIALS
        return one_run_epsilon(np.concatenate([inside, outside]), included, DELTA).value or 0.0

    ways: dict[tuple[str, str], Callable[[Any, Any], float]] = {
        ("fedaudit", "proved, any mechanism: ranks fixed in advance"): lambda i, o: (
            proved_epsilon(i, o, DELTA, Ranks()).value or 0.0
        ),
        ("fedaudit", "proved, one run of fair coins"): one_run,
        ("fedaudit", "lower end of the Gaussian fit"): lambda i, o: gdp_epsilon(i, o, DELTA).low or 0.0,
    }
    if installed("jax-privacy"):
        from jax_privacy.auditing import CanaryScoreAuditor as Auditor  # type: ignore[import-not-found, unused-ignore]
        from jax_privacy.auditing import Split

        halves = {"threshold_strategy": Split(seed=0)}
        ways |= {
            ("jax-privacy", "proved: Clopper-Pearson, Bonferroni over thresholds"): lambda i, o: Auditor(
                i, o
            ).epsilon_clopper_pearson(0.05, DELTA),
            ("jax-privacy", "proved: Clopper-Pearson, half to choose, half to test"): lambda i, o: Auditor(
                i, o
            ).epsilon_clopper_pearson(0.05, DELTA, **halves),
            ("jax-privacy", "proved: one run, Bonferroni"): lambda i, o: Auditor(i, o).epsilon_one_run(0.05, DELTA),
            ("jax-privacy", "proved: one run, half to choose"): lambda i, o: Auditor(i, o).epsilon_one_run(
                0.05, DELTA, **halves
            ),
            ("jax-privacy", "if it is Gaussian: epsilon_from_gdp"): lambda i, o: Auditor(i, o).epsilon_from_gdp(
                0.05, DELTA
            ),
        }
    found: list[Row] = []
    for who, way in ways.items():
        started = time.perf_counter()
        values = np.array([way(*world) for world in worlds])
        each = (time.perf_counter() - started) / WORLDS
        above = f"{int((values > truth).sum())} of {WORLDS}"
        found.append((*who, f"{values.mean():.2f}", above, milliseconds(each)))
    return found


def curves() -> list[Row]:
    """AUC of 50,000 scores on either side, some of them equal; and its 95 % interval, where there is one."""
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng(0)
    inside, outside = (np.round(rng.normal(shift, 1, 50_000), 2) for shift in (0.5, 0.0))
    label, scores = np.repeat([1, 0], 50_000), np.concatenate([inside, outside])
    block = Block(inside, outside, outside)
    case = interleaved(lambda: auc([block]), lambda: roc_auc_score(label, scores), 1.0)
    ours = auc([block])
    return [
        (
            "fedaudit",
            "with an interval",
            f"{ours.value:.6f} ({ours.low:.4f} to {ours.high:.4f})",
            milliseconds(case.seconds[0]),
        ),
        ("scikit-learn", "roc_auc_score", f"{roc_auc_score(label, scores):.6f}", milliseconds(case.seconds[1])),
    ]


# ------------------------------------------------------------------ membership

SEEDS = (0, 1, 2)
OURS = ("loss", "fta-confidence", "gradient-cosine", "matched-filter")
KINDS, SEEN = ("rf", "gb", "lr", "knn", "nn"), ("prediction", "loss")  # models of ART's, and what they see


def membership() -> list[Row]:
    """Baskets, four parties that train on 600 records each, 20 rounds of 2 epochs, three seeds; the global models."""
    found: dict[tuple[str, str], list[tuple[Estimate, Estimate]]] = {}
    for seed in SEEDS:
        federation = {"rounds": 20, "local_epochs": 2, "split_subjects": True, "seed": seed}
        audit = {"vantages": ["client"], "attacks": list(OURS), "fpr": [0.01]}
        prepared = prepare(parse({"data": {"limit": 8000}, "federation": federation, "audit": audit}))
        for last in rounds(prepared):
            prepared.auditor.observe(last)
        known = {name: column for name, column in prepared.auditor.score_table().items() if None not in column}
        table = {name: np.array(column) for name, column in known.items()}
        for name in OURS:
            blocks = blocks_of(table, name, "global")
            found.setdefault(("fedaudit", name), []).append((auc(blocks), tpr_at_fpr(blocks, 0.01)))
        rows, role = prepared.game.candidates.rows, prepared.game.truth.role
        for kind, seen in product(KINDS, SEEN) if installed("adversarial-robustness-toolbox") else ():
            who = "ART", f"MembershipInferenceBlackBox, {kind} on the {seen}, knows half of the members"
            found.setdefault(who, []).append(_art(prepared.task, last.aggregate, rows, role, kind, seen))
    return [(*who, _mean([area for area, _ in runs]), _mean([tpr for _, tpr in runs])) for who, runs in found.items()]


def _art(task: TorchTask, state: Any, rows: Records, role: Any, kind: str, seen: str) -> tuple[Estimate, Estimate]:
    """It is taught with half of the members and half of the evaluation non-members, and asked about the others."""
    from art.attacks.inference.membership_inference import MembershipInferenceBlackBox
    from art.estimators.classification import PyTorchClassifier

    module = boundary.Counting(task.fresh(state)).eval()
    shape, classes = rows.x.shape[1:], int(rows.y.max()) + 1
    target = PyTorchClassifier(module, torch.nn.CrossEntropyLoss(), shape, classes, device_type="cpu")
    order = hash_order(rows.id, "art")
    known, asked = {}, {}
    for each in Role:
        mine = order[role[order] == each.value]
        known[each], asked[each] = mine[: len(mine) // 2], mine[len(mine) // 2 :]
    attack = MembershipInferenceBlackBox(target, attack_model_type=kind, input_type=seen)
    ins, outs = known[Role.MEMBER], known[Role.EVALUATION]
    attack.fit(rows.x[ins], rows.y[ins], rows.x[outs], rows.y[outs])
    scores = {
        each: np.asarray(attack.infer(rows.x[i], rows.y[i], probabilities=True))[:, -1].astype(float)
        for each, i in asked.items()
    }
    block = Block(scores[Role.MEMBER], scores[Role.EVALUATION], scores[Role.CALIBRATION])
    return auc([block]), tpr_at_fpr([block], 0.01)


def _mean(estimates: list[Estimate]) -> str:
    mean = over_runs(estimates)
    return f"{mean.value:.3f} ({mean.low:.3f} to {mean.high:.3f})"


HOPS = (3, 10, 30)  # of HopSkipJump, whose distance falls with them


def labels() -> list[Row]:
    """Distance of 192 records to the decision boundary by labels alone, MLP with 600 inputs."""
    task, state, x, pool = boundary.world()
    ours = {budget: boundary.mine(task, state, x, pool, budget) for budget in boundary.BUDGETS}
    found: list[Row] = [
        ("fedaudit", f"{budget} labels a record at most", f"{np.median(distance):.3f}", "", "")
        for budget, (distance, _, _) in ours.items()
    ]
    for name, way in boundary.PEERS.items():
        for steps in HOPS if boundary.installed(name) else ():
            theirs = way(task, state, x, steps)
            ratios = (case.ratio for case in boundary.compared(name, ours, theirs).values())
            speed, soon = (f"{ratio:.1f}" if ratio else "not reached" for ratio in ratios)
            asked = f"HopSkipJump, {steps} steps: {theirs[1] / len(x):.0f} labels a record"
            found.append((name, asked, f"{np.median(theirs[0]):.3f}", speed, soon))
    return found


# ------------------------------------------------------------------ simulation

PARTIES, ROUNDS = 10, 6


def simulation() -> list[Row]:
    """A round of 10 parties, 200 records each, batches of 10, MLP with 7,000 parameters; start-up is not counted."""
    widths = (32, 64, 64, 10)
    rng = np.random.default_rng(0)
    task = build_task("mlp", widths[:1], widths[-1], {"hidden": widths[1:-1]})
    data = [(rng.random((200, 32), np.float32), rng.integers(0, 10, 200)) for _ in range(PARTIES)]
    trainers = [
        Trainer(f"party-{i}", Records(x, y, np.arange(200).astype(np.str_)), Training("sgd", 0.05, 1, 10))
        for i, (x, y) in enumerate(data)
    ]
    plan = Plan(tuple(trainer.name for trainer in trainers))
    made = federate(task, trainers, [plan] * (ROUNDS + 1), 0)
    next(made)
    started = time.perf_counter()
    for _ in made:
        pass
    ours = (time.perf_counter() - started) / ROUNDS
    found: list[Row] = [("fedaudit", "all parties stacked, one process", milliseconds(ours), "1")]
    for cpus in (1, 2) if installed("flwr") else ():
        theirs = _flower(task, data, cpus)
        found.append(
            (
                "Flower",
                f"run_simulation, Ray, num_cpus = {cpus} for a client",
                milliseconds(theirs),
                f"{theirs / ours:.0f}",
            )
        )
    return found


def _flower(task: TorchTask, data: Any, cpus: int) -> float:
    """Seconds a round, after the first two, in which actors start."""
    from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    client, server = ClientApp(), ServerApp()
    ended: list[float] = []
    net = task.architecture

    @client.train()  # type: ignore[untyped-decorator, unused-ignore]
    def train(message: Message, context: Context) -> Message:
        torch.set_num_threads(1)
        x, y = map(torch.from_numpy, data[int(context.node_config["partition-id"])])
        net.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
        optimizer, loss = torch.optim.SGD(net.parameters(), lr=0.05), torch.nn.CrossEntropyLoss()
        for batch in torch.split(torch.randperm(len(x)), 10):
            optimizer.zero_grad()
            loss(net(x[batch]), y[batch]).backward()
            optimizer.step()
        metrics = MetricRecord({"num-examples": len(x)})
        return Message(RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics}), reply_to=message)

    class Timed(FedAvg):
        def aggregate_train(self, server_round: int, replies: Any) -> Any:
            told = super().aggregate_train(server_round, replies)
            ended.append(time.perf_counter())
            return told

    @server.main()  # type: ignore[untyped-decorator, unused-ignore]
    def main(grid: Grid, context: Context) -> None:
        Timed(fraction_evaluate=0.0).start(
            grid=grid, initial_arrays=ArrayRecord(net.state_dict()), num_rounds=ROUNDS + 2
        )

    run_simulation(server, client, PARTIES, backend_config={"client_resources": {"num_cpus": cpus, "num_gpus": 0.0}})
    return float(np.mean(np.diff(ended[1:])))


# ------------------------------------------------------------------ the page

# Each part: its function, what the columns after settings are called, and what the figures say.
PARTS: dict[str, tuple[Callable[[], list[Row]], tuple[str, ...], str]] = {
    "gradients": (gradients, ("time", "times ours", "ours, in turn with it"), "Gradients of single records"),
    "dp-sgd": (dp_sgd, ("time", "times ours", "ours, in turn with it"), "DP-SGD"),
    "accounting": (accounting, ("epsilon", "time"), "Accounting"),
    "bounds": (bounds, ("mean bound", "above the truth", "time"), "Bounds of epsilon from scores"),
    "curves": (curves, ("AUC", "time"), "ROC curves"),
    "membership": (membership, ("AUC", "TPR at 1 % FPR"), "Membership"),
    "labels": (
        labels,
        ("median distance", "ours: labels a second, times", "ours: time to that distance, times"),
        "Labels alone",
    ),
    "simulation": (simulation, ("a round", "times ours"), "Simulated federations"),
}
READ = {
    "gradients": "The peers form every record's gradient; what an audit needs of it are two numbers, which the layers' "
    "inputs and output gradients give without forming it.",
    "dp-sgd": "fedaudit itself uses Opacus here, and only draws its own batches.",
    "accounting": "Built on dp-accounting, whose default grid is finer and slower, with the same digits. RDP is an "
    "upper bound.",
    "bounds": "A bound that is proved may lie above the truth in 5 of 100 worlds. The larger the mean, the more is "
    "proved by the same scores. The two Gaussian rows hold only if the mechanism is Gaussian.",
    "curves": "The same number; the time of ours includes the interval.",
    "membership": "ART is told half of the members; compare with its best model. Ours know no member. "
    "The first row of ours looks at the same answers as ART. The others see all rounds, or gradients.",
    "labels": "A smaller distance is a better search: the true one is smaller than all of them.",
    "simulation": "Flower simulates a deployment, with messages and processes of its own; a study of many small "
    "federations needs neither.",
}


def page(kept: dict[str, Any]) -> str:
    lines = [
        "# Beside other libraries",
        "",
        "What fedaudit computes, and what a library made for it computes on the same work, by",
        "`make compare` (`docs/make_comparison.py`). Settings of peers are tuned where there is something",
        "to tune. Times alone mean little. Ratios are of runs that alternate; in the simulation one run follows the",
        "other.",
    ]
    for name, (part, columns, title) in PARTS.items():
        lines += ["", f"## {title}", "", str(part.__doc__).split("\n")[0], ""]
        if name not in kept:
            lines += ["Not run."]
            continue
        told = kept[name]
        lines += [f"| | settings | {' | '.join(columns)} |", "|" + "---|" * (2 + len(columns))]
        lines += [f"| {' | '.join(row)} |" for row in told["rows"]]
        lines += ["", READ[name], "", f"{told['versions']}. {told['threads']} threads, load {told['load']}."]
        if told["missing"]:
            lines += ["", f"Not installed, and so not compared: {', '.join(told['missing'])}."]
    return "\n".join(lines) + "\n"


NEEDED = {
    "gradients": ("opacus",), "dp-sgd": ("opacus",), "accounting": ("dp-accounting", "opacus"),
    "bounds": ("jax-privacy",), "curves": ("scikit-learn",), "membership": ("adversarial-robustness-toolbox",),
    "labels": ("adversarial-robustness-toolbox", "foolbox"), "simulation": ("flwr",),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], metavar="PART")
    parser.add_argument("--page", action="store_true", help="run nothing, write the page")
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    kept = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.is_file() else {}
    for name in () if given.page else given.parts or PARTS:
        began = time.perf_counter()
        found = {peer: installed(peer) for peer in NEEDED[name]}
        kept[name] = {
            "rows": PARTS[name][0]() if any(found.values()) else [],
            "versions": ", ".join(f"{peer} {found[peer] or 'none'}" for peer in found),
            "missing": [peer for peer, there in found.items() if there is None],
            "threads": torch.get_num_threads(),
            "load": round(os.getloadavg()[0], 1),
        }
        print(f"{name}: {time.perf_counter() - began:.0f} s", flush=True)
        write_atomically(KEPT, json.dumps(kept, indent=1).encode())
    PAGE.write_text(page(kept), encoding="utf-8")


if __name__ == "__main__":
    main()
