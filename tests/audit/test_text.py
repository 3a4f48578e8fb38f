"""Text from end to end: token sequences with a class at every position, through every seam and a whole audit."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedaudit.adversary.shadow import INSIDE, References
from fedaudit.adversary.signals import updates
from fedaudit.audit.controls import blind_block, blind_scores, of_text, share_right, texts_differ
from fedaudit.data.partition import game, iid
from fedaudit.data.records import dataset
from fedaudit.errors import FedauditError
from fedaudit.learn.tasks import TorchTask, Training, build_task
from fedaudit.results.document import Document
from fedaudit.session.prepare import prepare
from fedaudit.session.recording import fingerprint
from fedaudit.session.replay import replay
from fedaudit.session.run import run
from fedaudit.stats import auc
from fedaudit.types import IGNORED, Dataset, Estimates
from fedaudit.words import words
from tests.audit.test_audit import assert_null
from tests.views import banks, one_model
from tests.worlds import plays, silent, text_config, watch

TOKENS, POSITIONS = 5, 6


def text(n: int = 40, seed: int = 0) -> Dataset:
    windows = np.random.default_rng(seed).integers(0, TOKENS, (n, POSITIONS + 1))
    return dataset("text", windows[:, :-1], windows[:, 1:], tokens=True)


def summed(module: nn.Module, x: Any, y: Any) -> torch.Tensor:
    """The loss of one text, by hand: over its positions, one after the other."""
    z = module(torch.from_numpy(x[None]))[0]
    each = [nn.functional.cross_entropy(z[s : s + 1], torch.from_numpy(y[s : s + 1])) for s in range(len(y))]
    return torch.stack(each).sum()


def test_token_sequences_through_records_task_reference_bank_and_ghost() -> None:
    given = text()
    rows = given.records
    assert (str(rows.x.dtype), rows.y.shape, given.classes) == ("int64", (40, POSITIONS), TOKENS)
    options = {"embedding": 3, "units": 4, "layers": 2}
    task = TorchTask(lambda: build_task("lstm", given.input_shape, TOKENS, options).architecture.double(), TOKENS)
    state = task.initial(0)
    task.check(state, rows)

    # the task: one step of SGD on all records goes along the mean of the texts' summed losses
    module = task.fresh(state)
    total = torch.stack([summed(module, x, y) for x, y in zip(rows.x, rows.y, strict=True)]).mean()
    torch.autograd.backward(total)
    trained = task.train(state, rows, Training("sgd", 0.1, 1, len(rows)), np.random.default_rng(0)).state
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None
        assert trained[name] == pytest.approx(state[name] - 0.1 * parameter.grad.numpy(), abs=1e-12)

    # ghost statistics: the gradient of every text, one backward pass each, in float64
    found = updates.statistics(task, state, [trained], rows)
    assert found.layers == ("embedding", "lstm", "head")
    names = [name for name, _ in module.named_parameters()]
    for i in range(len(rows)):
        module.zero_grad()
        torch.autograd.backward(summed(module.eval(), rows.x[i], rows.y[i]))
        grads = {name: p.grad.numpy() for name, p in module.named_parameters() if p.grad is not None}
        for column, layer in enumerate(found.layers):
            own = [name for name in names if name.startswith(layer)]
            norm2 = sum(float((grads[name] ** 2).sum()) for name in own)
            inner = sum(float((grads[name] * (state[name] - trained[name])).sum()) for name in own)
            assert float(found.norm2[i, column]) == pytest.approx(norm2, rel=1e-9, abs=1e-15)
            assert float(found.inner[i, column, 0]) == pytest.approx(inner, rel=1e-9, abs=1e-15)
    assert not updates.coverage(task, state, rows).slow

    # references: two had each text, two had not, and it shows
    party = np.full(len(rows), "party-0")
    training = {"lr": 5e-2, "batch_size": 8}
    (bank,) = banks(References(models=4, training=training), task, ["plain-reference-loss"], rows, party)
    for round in range(1, 16):
        answers = bank.answers(["plain-reference-loss"], one_model(task, trained, round=round), round - 1)
    inside, loss = answers[INSIDE] > 0, answers["plain-reference-loss"]
    assert loss.shape == (40, 4)
    assert loss[inside].mean() < loss[~inside].mean() - 0.5
    module.load_state_dict(bank.groups[0].models.modules[2].state_dict())
    with torch.no_grad():
        expected = [float(summed(module, x, y)) for x, y in zip(rows.x, rows.y, strict=True)]
    assert loss[:, 2] == pytest.approx(expected, rel=1e-9)


# ------------------------------------------------------------------ whole audits


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Document]:
    folder = tmp_path_factory.mktemp("text")
    settings = text_config(plays(folder / "plays.json"))
    return folder / "run", run(settings, folder / "run", silent, tell=lambda line: None)


def pooled(document: Document, attack: str, model: str) -> Estimates:
    (found,) = [r.estimates for r in document.results if (r.attack, r.model, r.party) == (attack, model, None)]
    return found


def test_an_audit_of_text_finds_what_was_learnt_by_heart(audited: tuple[Path, Document]) -> None:
    _, document = audited
    assert (document.run.data.classes, document.run.data.input_shape, document.run.data.subjects) == (13, (12,), 96)
    assert all("of no use" in line or "trained on" in line for line in document.warnings)
    assert {r.attack for r in document.results} == {
        "fta-confidence", "fta-loss", "fta-logit", "loss", "modified-entropy", "fed-loss", "back-front-diff",
        "back-front-ratio", "delta-diff", "delta-ratio", "gradient-norm", "round-gain", "blind", "gradient-cosine",
        "gradient-diff", "gradient-norm-all", "fusion", "matched-filter", "unmix",
    }  # fmt: skip
    for model in ("global", "local"):
        for attack in ("loss", "fta-confidence", "modified-entropy", "fed-loss"):
            assert pooled(document, attack, model)["auc"].low > 0.5  # type: ignore[operator]
    blind = pooled(document, "blind", "global")["auc"]
    assert blind.low <= 0.5 <= blind.high  # type: ignore[operator]
    assert not [line for line in document.notices if "no fast rule covers" in line]


def test_accuracy_is_over_positions_and_clustered(audited: tuple[Path, Document]) -> None:
    _, document = audited
    members, evaluation = (document.run.accuracy[name] for name in ("members", "evaluation"))
    (count,) = {sum(p.members for p in document.run.parties) * 12}
    assert members.n_pos + members.n_neg == count
    assert members.method == "share of 12 positions a record; Clopper-Pearson; clustered by subject"
    assert members.low > evaluation.high  # type: ignore[operator]

    right = np.repeat([[True], [False]], 50, axis=0) & np.ones((100, 12), bool)  # all or nothing
    found = share_right(right, np.arange(100), "record", 0.95)
    once = share_right(right[:, 0], np.arange(100), "record", 0.95)
    assert (found.value, found.n_pos, found.n_neg) == (once.value, 600, 600)
    # Twelve that say the same are one; that there are only a hundred records to judge it by widens it a little.
    assert (found.low, found.high) == pytest.approx((once.low, once.high), abs=2e-3)


def test_a_recorded_audit_of_text_is_judged_again_alike(audited: tuple[Path, Document], tmp_path: Path) -> None:
    directory, document = audited
    again = replay(directory, ["loss", "fta-loss"], tmp_path / "again", silent)
    assert again.run.accuracy == document.run.accuracy  # as recorded: nobody asked the model again
    for attack in ("loss", "fta-loss"):
        for model in ("global", "local"):
            assert pooled(again, attack, model) == pooled(document, attack, model)


def test_K8_a_null_world_of_text_comes_out_null(tmp_path: Path) -> None:
    assert_null(text_config(plays(tmp_path / "plays.json")), 0)


def test_attacks_that_text_cannot_feed_are_refused_by_name(tmp_path: Path) -> None:
    path = plays(tmp_path / "plays.json", roles=4)
    with pytest.raises(FedauditError, match=r"'merlin' cannot be run.*tokens"):
        prepare(text_config(path, audit={"attacks": ["loss", "merlin"]}))
    hidden = {"adversary": "agg-sh", "attribute": {"name": "age"}}
    with pytest.raises(FedauditError, match="no attribute 'age'"):
        prepare(text_config(path, audit=hidden))


def test_slow_and_reference_attacks_on_text_work_where_they_are_asked_for(tmp_path: Path) -> None:
    asked = ["gradient-cosine", "fusion", "lira", "rmia", "kta-confidence", "matched-filter", "round-gain", "projres",
             "unmix"]  # fmt: skip
    audit = {"attacks": asked, "reference": {"models": 4}}
    settings = text_config(plays(tmp_path / "plays.json", 24, 2), federation={"rounds": 2}, audit=audit)
    document = run(settings, tmp_path / "run", silent, tell=lambda line: None)
    for attack in asked:
        assert pooled(document, attack, "local")["auc"].value is not None


@pytest.mark.parametrize("adversary", ["agg-sh", "agg-mal", "do-sh"])
def test_adversaries_with_shadows_take_text(adversary: str, tmp_path: Path) -> None:
    audit = {"attacks": ["loss", "gradient-series", "logit-series"], "adversary": adversary}
    settings = text_config(plays(tmp_path / "plays.json", 60, 2), federation={"rounds": 2}, audit=audit)
    document = run(settings, tmp_path / "run", silent, tell=lambda line: None)
    model = "global" if adversary == "do-sh" else "local"
    for attack in ("gradient-series", "logit-series"):
        assert pooled(document, attack, model)["auc"].value is not None
    if adversary == "agg-mal":
        assert document.run.accuracy["evaluation under agg-mal"].method.endswith("clustered by subject")


def test_T10_texts_drawn_differently_are_found_without_a_model() -> None:
    """Members hold a token twice as often: blind counts tokens, whose numbers have no order."""
    rng = np.random.default_rng(0)
    chance = np.array([0.2, 0.2, 0.2, 0.2, 0.2]), np.array([0.15, 0.15, 0.4, 0.15, 0.15])
    windows = np.concatenate([rng.choice(5, (400, 13), p=p) for p in chance])
    rows = dataset("text", windows[:, :-1], windows[:, 1:], id=np.arange(10_000, 10_800), tokens=True).records
    split = game(rows, iid(rows, 1, rng), 0.4, 0.4, rng)
    member = np.arange(800) >= 400
    split.truth.role[:] = np.where(rng.random(800) < 0.2, "calibration", np.where(member, "member", "evaluation"))
    found = auc([blind_block(split, *blind_scores(split, 0))])
    assert found.low is not None
    assert found.low > 0.7


def test_the_fingerprint_tells_tokens_from_numbers() -> None:
    rows, rng = text().records, np.random.default_rng(0)
    first = game(rows, iid(rows, 2, np.random.default_rng(0)), 0.3, 0.3, rng)
    as_numbers = dataset("text", rows.x.astype(np.float32), rows.y, id=rows.id).records
    second = game(as_numbers, iid(rows, 2, np.random.default_rng(0)), 0.3, 0.3, np.random.default_rng(0))
    assert np.array_equal(first.truth.role, second.truth.role)
    assert fingerprint(first) != fingerprint(second)


def test_a_party_without_a_token_shares_the_vocabulary(tmp_path: Path) -> None:
    """Roles that never say a letter are dealt to one party: its model has that letter all the same."""
    speeches = {f"play|{name}": ["".join(np.random.default_rng(i).choice(list(name * 3), 300))] * 2
                for i, name in enumerate(("abc", "abd", "bcd", "acd"))}  # fmt: skip
    (tmp_path / "plays.json").write_text(json.dumps(speeches))
    federation = {"partition": "column", "column": "subject", "rounds": 2, "parties": 4, "members": 0.3}
    prepared = prepare(text_config(tmp_path / "plays.json", federation=federation))
    assert prepared.dataset.classes == 5  # and the end of a speech
    for party in prepared.game.parties:
        assert prepared.task.outputs(prepared.task.initial(0), prepared.game.members(party).x).shape[1:] == (12, 5)


def test_length_and_pairs_of_tokens_are_baselines_of_their_own() -> None:
    """Members are longer, and say two tokens in the other order; nobody counts tokens to see that."""
    rng = np.random.default_rng(0)
    windows = np.where(rng.random((600, 1)) < 0.5, [[0, 1, 2, 3] * 3], [[1, 0, 3, 2] * 3]).astype(np.int64)
    noisy = rng.random(windows.shape) < 0.3
    windows[noisy] = rng.integers(0, 4, noisy.sum())
    y = windows[:, 1:].copy()
    y[np.arange(11) >= rng.integers(4, 12, 600)[:, None]] = IGNORED
    rows = dataset("text", windows[:, :-1], y, id=np.arange(10_000, 10_600), tokens=True).records
    split = game(rows, iid(rows, 1, rng), 0.4, 0.4, rng)
    reported = np.arange(600) % 2 == 0
    at_chance = of_text(split, reported, 0.95)
    for found in at_chance.values():
        assert found.low <= 0.5 <= found.high  # type: ignore[operator]
    first = windows[:, 0] < windows[:, 1]
    split.truth.role[:] = np.where(rng.random(600) < 0.2, "calibration", np.where(first, "member", "evaluation"))
    by_pairs = of_text(split, reported, 0.95)
    assert by_pairs["ngram-auc"].low > 0.7  # type: ignore[operator]
    assert "pairs-differ" in [one.code for one in texts_differ(by_pairs)]
    long = (rows.y != IGNORED).sum(axis=1) > 7
    split.truth.role[:] = np.where(rng.random(600) < 0.2, "calibration", np.where(long, "member", "evaluation"))
    by_length = of_text(split, reported, 0.95)
    assert by_length["length-auc"].value == 1.0
    (told,) = [one for one in texts_differ(by_length) if one.code == "lengths-differ"]
    assert "longer than those of non-members" in words(told)
    assert texts_differ(at_chance) == []
    full = dataset("text", windows[:, :-1], windows[:, 1:], id=np.arange(10_000, 10_600), tokens=True).records
    assert "length-auc" not in of_text(game(full, iid(full, 1, rng), 0.4, 0.4, rng), reported, 0.95)


def test_an_audit_warns_of_texts_that_differ_and_three_baselines_share_the_error(tmp_path: Path) -> None:
    asked = {"attacks": ["loss"], "vantages": ["client"]}
    prepared = prepare(text_config(plays(tmp_path / "plays.json"), federation={"rounds": 2}, audit=asked))
    truth = prepared.game.truth
    said = prepared.game.candidates.rows
    pairs = (said.x * 7 + said.y).sum(axis=1)  # membership is a matter of the text alone
    inside = truth.role != "calibration"
    truth.role[inside] = np.where(pairs[inside] > np.median(pairs), "member", "evaluation")
    audit = watch(prepared)
    (blind,) = [one for one in audit.results if one.attack == "blind"]
    for name in ("auc", "ngram-auc"):
        assert blind.estimates[name].confidence == pytest.approx(1 - 0.05 / 3)
    assert "pairs-differ" in [one.code for one in audit.warnings]
