"""Whole audits of small real federations: what must be found, what must not, and what must not matter."""

from pathlib import Path

import numpy as np
import pytest
from torch import nn

from fedaudit.adversary.attacks import DEFAULTS, choose
from fedaudit.audit import Auditor, Settings
from fedaudit.audit.case import below_chance
from fedaudit.audit.controls import blind_block, blind_scores
from fedaudit.config.schema import Config
from fedaudit.data.partition import game, iid
from fedaudit.data.records import dataset
from fedaudit.errors import FedauditError
from fedaudit.session.prepare import prepare
from fedaudit.session.run import rounds
from fedaudit.stats import Block, auc
from fedaudit.types import Audit, AuditResult, Estimate, Round, Trained, Vantage
from fedaudit.words import all_words, words
from tests.worlds import config, half_digits, null_world, of_records, plain, watch


def pooled(audit: Audit) -> list[AuditResult]:
    return [result for result in audit.results if result.party is None]


def find(audit: Audit, attack: str, model: str) -> dict[str, Estimate]:
    (found,) = [dict(r.estimates) for r in pooled(audit) if (r.attack, r.model) == (attack, model)]
    return found


# ------------------------------------------------------------------ null worlds

FINDINGS = ("found", "weak")


def assert_null(settings: Config, seed: int) -> None:
    """Nothing in the game was trained on: all intervals together cover 0.5, nothing raises an alarm, and the verdict
    speaks of no leak."""
    prepared = null_world(settings)
    audit = watch(prepared)
    assert [(r.attack, r.model, r.party) for r in audit.results if r.warnings] == []
    assert [headline.sentence for headline in audit.headlines if headline.tone in FINDINGS] == []
    entries = [entry for entry in pooled(audit) if entry.question != "update"]
    for entry in (
        entry for entry in pooled(audit) if entry.question == "update"
    ):  # which says nothing of these records
        lists = [name.removesuffix("-blind") for name in entry.estimates if name.endswith("-blind")]
        for read, guessed in ((entry.estimates[name], entry.estimates[f"{name}-blind"]) for name in lists):
            assert (read.low or 0.0) <= (guessed.high or 0.0), (entry.vantage, read)
    confidence = 1 - 0.05 / len(entries)
    for entry in entries:
        if entry.attack == "blind":
            found = auc([blind_block(prepared.game, *blind_scores(prepared.game, seed))], confidence)
        else:
            (attack,) = choose([entry.attack])
            case = prepared.auditor.case()
            sights = prepared.auditor.outlooks.of(Vantage(entry.vantage), entry.model)
            found = auc([case.scores.block(sight, attack) for sight in sights], confidence)
        assert found.low is not None
        assert found.high is not None
        assert found.low <= 0.5 <= found.high, (entry.attack, entry.model, found)


@pytest.mark.parametrize("seed", range(2))
def test_K8_a_null_world_comes_out_null(seed: int) -> None:
    assert_null(config(federation={"seed": seed, "rounds": 4}), seed)


@pytest.mark.usefixtures("few_trees")
def test_K8_a_null_world_comes_out_null_for_attacks_on_request(tmp_path: Path) -> None:
    on_request = [name for name in of_records() if name not in DEFAULTS["record"]]
    asked = {"attacks": on_request, "vantages": ["client", "server", "label-only-client"], "tear": {"queries": 80}}
    assert_null(config(data=half_digits(tmp_path), federation={"rounds": 3}, audit=asked), 0)


def test_an_overfitted_federation_is_found_out() -> None:
    audit = watch(prepare(config(federation={"rounds": 8, "local_epochs": 6, "members": 0.1, "nonmembers": 0.4})))
    found = find(audit, "loss", "local")["auc"]
    assert found.low is not None
    assert found.low > 0.5
    assert audit.warnings == []


def test_T10_sets_drawn_differently_are_warned_about(tmp_path: Path) -> None:
    """Members are the bright images: the blind baseline finds it, and the audit says so."""
    prepared = prepare(config(federation={"rounds": 2}, audit={"attacks": ["loss"]}))
    role = np.where(prepared.game.candidates.rows.x.mean(axis=1) > 0.32, "member", "evaluation")
    calibration = prepared.game.truth.role == "calibration"
    prepared.game.truth.role[~calibration] = role[~calibration]
    auditor = Auditor(prepared.task, prepared.game, prepared.settings)
    for round in rounds(prepared):
        auditor.observe(round)
    audit = auditor.snapshot()
    (blind,) = [r.estimates["auc"] for r in audit.results if r.attack == "blind"]
    assert blind.low is not None
    assert blind.low > 0.8
    assert audit.warnings[0].code == "sets-differ"


# ------------------------------------------------------------------ what must not matter


def scores_and_estimates(path: Path, x: np.ndarray, y: np.ndarray) -> tuple[object, object]:
    np.savez(path, x=x, y=y)
    prepared = prepare(config(data={"name": "npz", "path": str(path)}, federation={"rounds": 3}))
    audit = watch(prepared)
    told = [(r.attack, r.party, r.estimates, r.curves) for r in audit.results]
    return prepared.auditor.score_table(), [*told, *audit.headlines]


def test_T1_K28_permuting_the_input_changes_no_bit(tmp_path: Path) -> None:
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(5).permutation(len(x))
    first = scores_and_estimates(tmp_path / "same.npz", x / 16, y)
    second = scores_and_estimates(tmp_path / "same.npz", x[order] / 16, y[order])
    assert first == second


# ------------------------------------------------------------------ known answers


FORWARD = ("loss", "fta-confidence", "fta-loss", "fta-logit")


class Lookup:
    """A task whose model is a table: it answers right with certainty exactly for the records it was trained on."""

    classes = 2

    def __init__(self, sign: float):
        self.sign = sign

    def initial(self, seed: int) -> dict[str, np.ndarray]:
        return {"known": np.zeros(1)}

    def outputs(self, state: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
        known = np.isin(x[:, 0], state["known"])
        margin = self.sign * float(state["round"][0]) * (2 * known - 1.0)
        return np.column_stack([margin, -margin])

    def last_layer(self, state: dict[str, np.ndarray], x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.outputs(state, x), np.ones((len(x), 1))


def lookup_audit(sign: float) -> Audit:
    rng = np.random.default_rng(0)
    data = dataset("lookup", np.arange(3000.0)[:, None], np.arange(3000) % 2)
    records = data.records
    object.__setattr__(records, "y", np.zeros(3000, np.int64))  # every label 0: the margin is the answer
    split = game(records, iid(records, 2, rng), 0.3, 0.3, rng)
    settings = Settings((Vantage.CLIENT,), choose(FORWARD), rounds=4)
    auditor = Auditor(Lookup(sign), split, settings)  # type: ignore[arg-type]
    known = np.concatenate([split.members(party).x[:, 0] for party in split.parties])
    for index in range(1, 5):
        state = {"known": known, "round": np.array([float(index)])}
        sent = {party: Trained(state, 1, 0.01) for party in split.parties}
        auditor.observe(Round(index, state, sent, state))
    return auditor.snapshot()


def test_K10_a_lookup_table_is_found_out_completely() -> None:
    audit = lookup_audit(1.0)
    for attack in FORWARD:
        found = find(audit, attack, "global")
        assert found["auc"].value == 1.0
        assert found["tpr@0.01"].value == 1.0


def test_K11_T12_the_same_inverted_raises_the_alarm() -> None:
    audit = lookup_audit(-1.0)
    assert find(audit, "loss", "global")["auc"].value == 0.0
    (warning,) = [r.warnings for r in pooled(audit) if r.attack == "loss"]
    assert "below 0.5" in warning[0]


def test_T4_T12_an_alarm_pays_for_all_that_was_looked_at() -> None:
    outsiders = np.linspace(0, 1, 80)
    block = Block(outsiders - 0.11, outsiders, np.empty(0))
    found = auc([block])
    assert found.high is not None
    assert 0.47 < found.high < 0.5
    assert below_chance("loss", [block], found, 1)
    assert not below_chance("loss", [block], found, 40)


# ------------------------------------------------------------------ what is quoted


def test_T4_the_best_of_two_is_quoted_with_a_wider_interval() -> None:
    audit = plain()
    client, server = audit.headlines
    assert (client.attack, client.model, client.compared) == ("matched-filter", "global", 1)
    assert (server.attack, server.compared) == ("matched-filter", 2)
    alone = find(audit, "matched-filter", server.model)["auc"]
    quoted = server.estimates["auc"]
    assert quoted.value == alone.value
    assert quoted.confidence == pytest.approx(0.975)
    assert quoted.low is not None
    assert alone.low is not None
    assert quoted.low < alone.low


FEW_TO_CALIBRATE = {"parties": 3, "members": 0.3, "nonmembers": 0.565}  # 81 in each party, of which fusion leaves half


def test_T4_a_model_whose_tpr_is_not_settled_is_not_the_weaker_for_that() -> None:
    overfitted = FEW_TO_CALIBRATE | {"rounds": 3, "local_epochs": 8}
    audit = watch(prepare(config(federation=overfitted, audit={"attacks": ["fta-confidence", "fusion"]})))
    local, together = find(audit, "fusion", "local"), find(audit, "fusion", "global")
    assert local["tpr@0.01"].low == 0.0  # its parties have too few records for more
    assert together["tpr@0.01"].value is not None
    assert (local["auc"].value or 0) > (together["auc"].value or 0)
    (server,) = [h for h in audit.headlines if h.vantage == "server"]
    assert (server.attack, server.model) == ("fusion", "local")


def test_an_attack_that_is_fitted_leaves_fewer_records_to_calibrate() -> None:
    """Asked for by name, an FPR must be within reach of every attack; by default the result says what is missing."""
    alone = {"vantages": ["server"], "fpr": [0.007]}
    prepare(config(federation=FEW_TO_CALIBRATE, audit=alone | {"attacks": ["loss"]}))
    with pytest.raises(FedauditError, match=r"of which fusion leaves \d+: it is fitted on the others"):
        prepare(config(federation=FEW_TO_CALIBRATE, audit=alone | {"attacks": ["loss", "fusion"]}))
    prepare(config(federation=FEW_TO_CALIBRATE, audit={"vantages": ["server"], "attacks": ["loss", "fusion"]}))


def test_every_party_is_reported_and_a_lone_server_sees_global_models() -> None:
    audit = watch(prepare(config(audit={"vantages": ["server"], "attacks": ["loss"]})))
    named = {(r.vantage, r.model, r.party) for r in audit.results if r.attack == "loss"}
    assert named == {
        ("server", model, party) for model in ("local", "global") for party in (None, "party-0", "party-1")
    }


def test_fprs_out_of_reach() -> None:
    audit = plain()
    assert "tpr@0.01" in find(audit, "loss", "global")
    assert "tpr@0.001" not in find(audit, "loss", "global")
    assert any("0.001" in notice for notice in all_words(audit.notices))
    with pytest.raises(FedauditError, match="needs 1000 calibration"):
        prepare(config(audit={"fpr": [0.001]}))


def mixes_records(shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(nn.Linear(64, 16), nn.BatchNorm1d(16, track_running_stats=False), nn.Linear(16, classes))


def test_gradient_attacks_on_a_model_without_gradients_of_its_own() -> None:
    """By default they drop out with a notice; asked for by name they are an error, before training."""
    model = {"name": f"{__name__}:mixes_records", "hidden": None}
    audit = watch(prepare(config(model=model)))
    assert not {r.attack for r in audit.results} & {"gradient-cosine", "gradient-diff", "gradient-norm-all", "fusion"}
    assert {r.attack for r in audit.results} >= {*FORWARD, "blind"}
    assert any("a record's loss depends on the other records" in words(told) for told in audit.notices)
    with pytest.raises(FedauditError, match="a record's loss depends on the other records"):
        prepare(config(model=model, audit={"attacks": ["gradient-cosine"]}))


def test_a_vantage_that_cannot_see_enough_is_refused() -> None:
    with pytest.raises(FedauditError, match="'fta-loss' needs every-round"):
        prepare(config(audit={"vantages": ["outsider"], "attacks": ["loss", "fta-loss"]}))
    prepare(config(audit={"vantages": ["outsider"], "attacks": ["loss"]}))
