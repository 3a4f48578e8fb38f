"""`examples/audit_by_hand.py` computes an audit in the obvious way and without fedaudit. Whatever fedaudit says about
that federation must be the same: the split, the training, the scores, the thresholds and the intervals."""

import ast
import json
import runpy
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import fedaudit
from fedaudit.adversary.signals import matched
from fedaudit.config.schema import load_config
from fedaudit.learn.tasks import loss_of_records
from fedaudit.session.run import run
from fedaudit.types import Floats, Strings
from tests.worlds import silent

SCRIPT = Path(__file__).parent.parent / "examples" / "audit_by_hand.py"
# Who looks, in the words of the script, and the same as model and party of results.json.
SIGHTS = {
    "any party": ("global", None),
    "the server, of party-0": ("local", "party-0"),
    "the server, of party-1": ("local", "party-1"),
}
each_entry = pytest.mark.parametrize(
    ("who", "attack"), [(who, attack) for who in SIGHTS for attack in ("fta-confidence", "matched-filter")]
)


ByHand = dict[tuple[str, str], tuple[Floats, dict[str, Any]]]  # the scores, and what they are worth


@dataclass(frozen=True)
class Run:
    """What `fedaudit run` wrote."""

    folder: Path

    def scores(self, who: str, attack: str) -> tuple[Floats, Strings]:
        """The candidates' scores and roles, sorted by id."""
        columns = pq.read_table(self.folder / "scores.parquet").to_pydict()
        rows = zip(*(columns[name] for name in ("model", "party", "attack", "id", "score", "role")), strict=True)
        model, party = SIGHTS[who]
        mine = sorted(row[3:] for row in rows if row[0] == model and row[2] == attack and party in (row[1], None))
        return np.array([score for _, score, _ in mine]), np.array([role for *_, role in mine])

    def estimates(self, who: str, attack: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """The AUC and the TPR at 1 %."""
        entries = json.loads((self.folder / "results.json").read_text())["results"]
        (found,) = (e for e in entries if (e["model"], e["party"], e["attack"]) == (*SIGHTS[who], attack))
        return found["estimates"]["auc"], found["estimates"]["tpr@0.01"]


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


@pytest.fixture(scope="module")
def by_hand(script: dict[str, Any]) -> ByHand:
    found: ByHand = script["audit"]()
    return found


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The run of the configuration at the top of the script."""
    folder = tmp_path_factory.mktemp("by-hand")
    page = ast.get_docstring(ast.parse(SCRIPT.read_text())) or ""
    lines = [line for line in page.splitlines() if line.startswith("    ")]
    (folder / "digits.toml").write_text(textwrap.dedent("\n".join(lines)))
    run(load_config(folder / "digits.toml"), folder / "run", silent)
    return Run(folder / "run")


@pytest.fixture
def in_float64() -> Iterator[None]:
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(usual)


def test_it_imports_nothing_of_fedaudit() -> None:
    nodes = list(ast.walk(ast.parse(SCRIPT.read_text())))
    imported = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
    assert {"numpy", "torch"} <= imported
    assert not any(name.startswith("fedaudit") for name in imported)


def assert_near(ours: tuple[float, float], theirs: tuple[float, float]) -> None:
    """The lesson's interval of an AUC is Newcombe's with DeLong's variance. fedaudit's is a little wider where few
    records carry the error, and never narrower by more than rounding."""
    assert theirs[0] - 1e-9 <= ours[0] <= theirs[0] + 0.02
    assert ours[1] == pytest.approx(theirs[1], abs=2e-3)


@each_entry
def test_every_record_has_the_same_score(by_hand: ByHand, product: Run, who: str, attack: str) -> None:
    """Slopes agree to the last digits. The script whitens in float64, fedaudit partly in float32."""
    theirs, _ = product.scores(who, attack)
    ours, _ = by_hand[who, attack]
    assert len(ours) == {None: 1797, "party-0": 899, "party-1": 898}[SIGHTS[who][1]]
    within = 1e-12 if attack == "fta-confidence" else 2e-5
    assert ours == pytest.approx(theirs, rel=0, abs=within * theirs.std())


@each_entry
def test_the_same_scores_are_worth_the_same(script: dict[str, Any], product: Run, who: str, attack: str) -> None:
    """The interval of the TPR is less exact: fedaudit joins counts that hardly differ (`stats.roc`)."""
    worth, (auc, tpr) = script["judge"](*product.scores(who, attack)), product.estimates(who, attack)
    assert worth["counts"] == (tpr["n_pos"], tpr["n_neg"], tpr["n_cal"])
    assert worth["counts"][:2] == (auc["n_pos"], auc["n_neg"])
    assert worth["threshold"] == tpr["threshold"]
    (area, around_area), (share, around_share), (fpr, around_fpr) = (worth[name] for name in ("auc", "tpr", "fpr"))
    assert area == pytest.approx(auc["value"], abs=1e-10)
    assert_near(around_area, (auc["low"], auc["high"]))
    assert (fpr, *around_fpr) == pytest.approx((tpr["realised_fpr"], *tpr["realised_fpr_interval"]), abs=1e-10)
    assert share == pytest.approx(tpr["value"], abs=1e-10)
    assert around_share == pytest.approx((tpr["low"], tpr["high"]), abs=3e-5)


@each_entry
def test_its_own_scores_are_worth_the_same(by_hand: ByHand, product: Run, who: str, attack: str) -> None:
    """Up to a rounding error, which may swap two scores that are next to each other."""
    (_, worth), (auc, tpr) = by_hand[who, attack], product.estimates(who, attack)
    assert worth["threshold"] == pytest.approx(tpr["threshold"], rel=1e-4)
    for name, value, around in (
        ("tpr", tpr["value"], (tpr["low"], tpr["high"])),
        ("fpr", tpr["realised_fpr"], tpr["realised_fpr_interval"]),
    ):
        assert (worth[name][0], *worth[name][1]) == pytest.approx((value, *around), abs=1e-4)
    assert worth["auc"][0] == pytest.approx(auc["value"], abs=1e-4)
    assert_near(worth["auc"][1], (auc["low"], auc["high"]))


@pytest.mark.parametrize("seed", range(5))
def test_scores_of_two_kinds_of_members_are_worth_the_same(script: dict[str, Any], seed: int) -> None:
    """Some members are given away and the others look like outsiders. The variance of the AUC is then DeLong's, and
    many counts hardly differ, so that joining them moves an end of the interval of the TPR by up to 0.0003."""
    rng = np.random.default_rng(seed)
    members, outsiders, calibration = rng.normal(size=150), rng.normal(size=260), rng.normal(size=410)
    members[:50] += 6
    roles = np.repeat(["member", "evaluation", "calibration"], [150, 260, 410])
    worth = script["judge"](np.concatenate([members, outsiders, calibration]), roles)
    block = [fedaudit.Block(members, outsiders, calibration)]
    auc, tpr = fedaudit.auc(block), fedaudit.tpr_at_fpr(block, 0.01)
    assert worth["auc"][0] == pytest.approx(auc.value, abs=1e-10)
    assert auc.low is not None
    assert auc.high is not None
    assert_near(worth["auc"][1], (auc.low, auc.high))
    assert worth["threshold"] == tpr.threshold
    assert worth["tpr"][0] == pytest.approx(tpr.value, abs=1e-10)
    assert worth["tpr"][1] == pytest.approx((tpr.low, tpr.high), abs=5e-4)


def test_it_prints_what_fedaudit_says(
    script: dict[str, Any], by_hand: ByHand, product: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    script["show"](by_hand)
    _, *lines = capsys.readouterr().out.splitlines()
    for (who, attack), line in zip(by_hand, lines, strict=True):
        auc, tpr = product.estimates(who, attack)
        assert line.startswith(f"{who:23}{attack:16}{tpr['n_pos']} ")
        assert f" {auc['value']:.3f} (" in line
        assert f" {100 * tpr['value']:.1f} ({100 * tpr['low']:.1f} to {100 * tpr['high']:.1f}) " in line


@pytest.mark.usefixtures("in_float64")
def test_one_round_of_the_filter_is_the_same_in_float64(script: dict[str, Any]) -> None:
    """So that nothing but rounding is between the two."""
    x, y, _, _ = script["deal"]()
    x = x.double()
    torch.manual_seed(0)
    before = script["network"]().state_dict()
    after = {name: value + 0.01 * torch.randn(value.shape) for name, value in before.items()}
    ours, strength = script["one_round"](before, after, x, y)

    halfway = matched.halfway(*({name: value.numpy() for name, value in state.items()} for state in (before, after)))
    module = script["network"]({name: torch.from_numpy(value) for name, value in halfway.items()})
    everybody = torch.arange(len(x))
    prepared = matched.prepare(
        module, lambda z, y: loss_of_records(z, y, 10), x, y, everybody, 0.1, matched.largest_linear(module), True
    )
    found = matched.statistics(prepared, module, {name: (before[name] - after[name])[None] for name in before})
    theirs = matched.standardised(matched.scores(found)[:, 0, 0], everybody)
    assert ours == pytest.approx(theirs.numpy(), rel=0, abs=1e-10)
    assert strength == pytest.approx(found.norm2[:, 0].sqrt().numpy(), rel=1e-10)
