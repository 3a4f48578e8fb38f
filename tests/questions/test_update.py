"""What one update says by itself: against the truth, in every way of training, and never a false list."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.numpy import save_file
from torch import nn

from fedaudit.config.schema import parse
from fedaudit.errors import FedauditError
from fedaudit.learn.tasks import Adam, TorchTask, Training, tensor
from fedaudit.questions import every
from fedaudit.questions.update import QUESTION, UpdateSection, labels, leaves, presence
from fedaudit.questions.update.parts import BesideTruth, CannotTell, Known, OneUpdate, Table, parts, seen_by
from fedaudit.questions.update.presence import PART, InputLayer, Ruled, _without_data
from fedaudit.report.html import render
from fedaudit.results.document import load
from fedaudit.results.gate import UNDECIDED, judge, parse_rules
from fedaudit.results.redaction import redacted
from fedaudit.session.replay import replay
from fedaudit.session.run import run
from fedaudit.types import Records, State, notice
from fedaudit.words import words
from tests.command import fedaudit
from tests.worlds import config, silent

WIDE, CLASSES = 120, 5
Change = Callable[[State, State], State]


def people(n: int, seed: int) -> Records:
    """Bits, most of them rare."""
    rng = np.random.default_rng(seed)
    often = 0.01 + np.random.default_rng(0).beta(0.4, 4, WIDE)
    x = (rng.random((n, WIDE)) < often).astype(np.float32)
    y = (x @ np.random.default_rng(1).normal(size=(WIDE, CLASSES))).argmax(axis=1)
    return Records(x, y, np.array([f"{seed}-{i}" for i in range(n)]))


def net(*first: nn.Module, activation: type[nn.Module] = nn.ReLU) -> nn.Module:
    return nn.Sequential(
        *first, nn.Linear(WIDE, 128), activation(), nn.Linear(128, 32), nn.ReLU(), nn.Linear(32, CLASSES)
    )


def two_layers(classes: int, dropped: float = 0.0) -> nn.Module:
    return nn.Sequential(nn.Linear(WIDE, 128), nn.ReLU(), nn.Dropout(dropped), nn.Linear(128, classes))


@cache
def task(*kinds: str) -> TorchTask:
    made: dict[str, Callable[[], nn.Module]] = {
        "dropout": lambda: nn.Dropout(0.2),
        "layer-norm": lambda: nn.LayerNorm(WIDE),
    }
    return TorchTask(lambda: net(*(made[kind]() for kind in kinds)), CLASSES)


def trained(records: Records, how: Training, start: State, of: TorchTask) -> State:
    return of.train(start, records, how, np.random.default_rng(3)).state


def looked(
    sent: State, records: Records, how: Training, start: State, of: TorchTask | None = None, **more: Any
) -> Table:
    update = OneUpdate(received=start, sent=sent, task=of or task(), examples=len(records), **more)
    known = Known(outsiders=people(600, 9), classes=CLASSES, training=how.__dict__)
    return PART.look(update, known, UpdateSection())


def judged(table: Table, records: Records) -> dict[str, Any]:
    seen = [BesideTruth(party="a", round=1, vantage="server", table=table, members=records)]
    return dict(PART.judge(seen, Known(outsiders=people(600, 9)), 0.95))


def truly_absent(records: Records) -> NDArray[Any]:
    return np.asarray(~records.x.any(axis=0))


@cache
def later() -> State:
    """A model that has learnt from others for a while."""
    return trained(people(400, 5), Training(epochs=5, batch_size=32, lr=3e-3), task().initial(0), task())


WAYS = {
    "adam": Training(batch_size=16),
    "sgd": Training("sgd", 0.1, batch_size=16),
    "three epochs": Training(batch_size=16, epochs=3),
    "adam with L2": Training(batch_size=16, weight_decay=1e-2),
    "sgd with L2": Training("sgd", 0.1, batch_size=16, weight_decay=1e-2),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("begun", [False, True])
def test_every_value_that_nobody_has_is_read_off(way: str, begun: bool) -> None:
    mine, how = people(40, 2), WAYS[way]
    start = later() if begun else task().initial(0)
    table = looked(trained(mine, how, start, task()), mine, how, start)
    assert table["update-absent"].any()
    assert np.array_equal(table["update-absent"], truly_absent(mine))
    found = judged(table, mine)
    assert found["presence"].value == 1
    assert found["presence-blind"].value < 0.9
    assert found["presence"].low > found["presence-blind"].value


def test_what_has_one_bearer_and_what_shares_its_bearers_are_read_off_at_the_start() -> None:
    mine, how = people(40, 2), WAYS["adam"]
    start = task().initial(0)
    found = judged(looked(trained(mine, how, start, task()), mine, how, start), mine)
    assert found["singletons-precision"].value >= 0.85
    assert found["singletons-recall"].value >= 0.85
    assert found["singletons"].low > found["singletons-blind"].value
    assert found["twins-precision"].value >= 0.9


def test_a_mean_of_parties_tells_what_none_of_them_has() -> None:
    parts = [people(12, seed) for seed in (2, 3, 4)]
    start, how = later(), WAYS["adam"]
    sent = [trained(part, how, start, task()) for part in parts]
    mean = {name: np.asarray(np.mean([one[name] for one in sent], axis=0, dtype=np.float32)) for name in start}
    x, y, name = (np.concatenate([getattr(part, each) for part in parts]) for each in ("x", "y", "id"))
    everybody = Records(x, y, name)
    table = looked(mean, everybody, how, start, parties=("a", "b", "c"))
    assert np.array_equal(table["update-absent"], truly_absent(everybody))


def test_steps_of_two_parties_that_cancel_are_not_taken_for_one_record() -> None:
    """Adam's steps are of one size: where two bearers pull a weight apart, their mean stands still."""
    parts = [people(20, seed) for seed in range(20, 26)]
    start, how = later(), Training(batch_size=16)
    sent = [trained(part, how, start, task()) for part in parts]
    mean = {name: np.asarray(np.mean([one[name] for one in sent], axis=0, dtype=np.float32)) for name in start}
    x, y, name = (np.concatenate([getattr(part, each) for part in parts]) for each in ("x", "y", "id"))
    table = looked(mean, Records(x, y, name), how, start, parties=tuple("abcdef"))
    bearers = (x != 0).sum(axis=0)
    listed = table["update-single"] > 0.5
    assert listed.sum() >= 8
    assert (bearers[listed] == 1).mean() >= 0.85


def test_values_of_the_same_records_are_those_of_every_pair() -> None:
    mine, how, start = people(40, 2), WAYS["adam"], task().initial(0)
    sent = trained(mine, how, start, task())
    update = OneUpdate(received=start, sent=sent, task=task(), examples=len(mine))
    entry = presence.entry_of(update, Known(outsiders=people(600, 9)))
    ruled = Ruled("unmoved", (entry.after == entry.before).all(axis=0), still=entry.after == entry.before,
                  moved=entry.after - entry.before)  # fmt: skip
    group = presence.twins(entry, ruled, 3)
    columns = np.flatnonzero(~ruled.columns)
    noise = 2.5 * np.sqrt((entry.ulp**2).sum(axis=0) * 3)
    pairs = set()
    for place, a in enumerate(columns):
        for b in columns[place + 1 :]:
            one, other = (entry.after - entry.before)[:, [a, b]].T
            limit = min(presence.ALIKE * max(np.linalg.norm(one), np.linalg.norm(other)), noise[a] + noise[b])
            if np.linalg.norm(one - other) <= limit:
                pairs.add((int(a), int(b)))
    grouped = {(int(a), int(b)) for a in columns for b in columns if a < b and group[a] == group[b] >= 0}
    assert len(pairs) >= 5
    assert grouped == pairs


def test_small_steps_are_not_taken_for_an_update_with_entries_left_out() -> None:
    mine, how, start = people(800, 2), Training("sgd", 0.02, batch_size=800), task().initial(0)
    table = looked(trained(mine, how, start, task()), mine, how, start)
    assert not truly_absent(mine).any()
    assert table["update-rule"][0] == "none"


class Paired(nn.Module):
    """Five records are compared with each other at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(WIDE, 64), nn.Linear(64, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.first(x).relu().reshape(len(x) // 5, 5, -1)
        found: torch.Tensor = self.last((hidden - hidden.mean(dim=1, keepdim=True)).reshape(len(x), -1))
        return found


def test_of_a_model_that_cannot_answer_a_few_records_nothing_is_told() -> None:
    mine, how, of = people(40, 2), WAYS["adam"], TorchTask(Paired, CLASSES)
    start = of.initial(0)
    sent = {name: value + 0.1 for name, value in start.items()}
    with pytest.raises(CannotTell) as told:
        looked(sent, mine, how, start, of)
    assert told.value.code == "model-unknown"


def test_half_precision_tells_as_much() -> None:
    mine, how, start = people(40, 2), WAYS["adam"], task().initial(0)
    sent = {name: value.astype(np.float16) for name, value in trained(mine, how, start, task()).items()}
    assert np.array_equal(looked(sent, mine, how, start)["update-absent"], truly_absent(mine))


def largest(share: float) -> Change:
    def thin(start: State, sent: State) -> State:
        every_change = np.concatenate([np.abs(sent[name] - start[name]).ravel() for name in start])
        cut = np.quantile(every_change, 1 - share)
        return {name: np.where(np.abs(sent[name] - start[name]) > cut, sent[name], start[name]) for name in start}

    return thin


def noisy(start: State, sent: State) -> State:
    rng = np.random.default_rng(0)
    return {name: (value + 1e-3 * rng.normal(size=value.shape)).astype(value.dtype) for name, value in sent.items()}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (largest(0.5), "thinned"),
        (largest(0.1), "thinned"),
        (largest(0.01), "thinned"),
        (noisy, "nothing-stands-still"),
    ],
)
def test_no_list_from_updates_that_were_thinned_or_noised(change: Change, why: str) -> None:
    mine, how, start = people(40, 2), WAYS["adam"], task().initial(0)
    with pytest.raises(CannotTell, match=why):
        looked(change(start, trained(mine, how, start, task())), mine, how, start)


@pytest.mark.parametrize("kind", ["dropout", "layer-norm"])
def test_no_list_where_the_input_is_changed_before_the_layer(kind: str) -> None:
    mine, how, of = people(40, 2), WAYS["adam"], task(kind)
    start = of.initial(0)
    with pytest.raises(CannotTell, match="input-changed"):
        looked(trained(mine, how, start, of), mine, how, start, of)


def test_no_list_from_one_layer_whose_update_was_thinned() -> None:
    of = TorchTask(lambda: nn.Linear(WIDE, CLASSES), CLASSES)
    mine, how, start = people(40, 2), WAYS["sgd"], of.initial(0)
    sent = trained(mine, how, start, of)
    assert np.array_equal(looked(sent, mine, how, start, of)["update-absent"], truly_absent(mine))
    for share in (0.5, 0.1, 0.01):
        with pytest.raises(CannotTell, match="thinned"):
            looked(largest(share)(start, sent), mine, how, start, of)


def test_dropout_behind_the_layer_leaves_what_nobody_has_and_not_what_one_has() -> None:
    mine, how = people(40, 2), WAYS["adam"]
    for share, told in ((0.5, False), (0.0, True)):
        of = TorchTask(partial(two_layers, CLASSES, share), CLASSES)
        start = of.initial(0)
        table = looked(trained(mine, how, start, of), mine, how, start, of)
        assert np.array_equal(table["update-absent"], truly_absent(mine))
        assert np.isfinite(table["update-single"]).any() == told


def test_an_update_of_other_records_says_no_more_than_a_guess() -> None:
    """Null world: what is read off is true of others."""
    how, start = WAYS["adam"], task().initial(0)
    for seed in range(20, 24):
        others, mine = people(40, seed), people(40, seed + 100)
        found = judged(looked(trained(others, how, start, task()), others, how, start), mine)
        for name in ("presence", "singletons", "twins"):
            if name in found:
                assert found[name].low <= found[f"{name}-blind"].high


def test_no_figure_where_nothing_is_absent() -> None:
    mine, how, start = people(40, 2), WAYS["adam"], task().initial(0)
    everything = replace(mine, x=np.maximum(mine.x, np.eye(WIDE, dtype=np.float32)[np.arange(40)]))
    filled = replace(everything, x=np.where(np.arange(40)[:, None] == 0, np.float32(1), everything.x))
    with pytest.raises(CannotTell, match="nothing-stands-still"):
        looked(trained(filled, how, start, task()), filled, how, start)
    many = people(4000, 2)
    many = replace(many, x=np.where(np.arange(4000)[:, None] < 3, np.float32(1), many.x))
    table = looked(trained(many, how, start, task()), many, how, start)
    assert not table["update-absent"].any()
    assert "presence" not in judged(table, many)


def test_words_are_rows_of_an_embedding() -> None:
    class Text(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.head = nn.Embedding(50, 8), nn.Linear(8, 50)

        def forward(self, x: torch.Tensor) -> Any:
            return self.head(self.embedding(x))

    rng = np.random.default_rng(0)
    of = TorchTask(Text, 50)
    x = rng.integers(0, 30, (20, 6))
    mine = Records(x, np.roll(x, -1, axis=1), np.arange(20).astype(str))
    outside = rng.integers(0, 50, (200, 6))
    start = of.initial(0)
    sent = of.train(start, mine, Training(batch_size=8), rng).state
    known = Known(outsiders=Records(outside, outside, np.arange(200).astype(str)), classes=50)
    update = OneUpdate(received=start, sent=sent, task=of, examples=20)
    table = PART.look(update, known, UpdateSection())
    assert np.array_equal(np.flatnonzero(~table["update-absent"]), np.unique(x))


def test_batch_norm_on_the_input_forgets_what_nobody_has() -> None:
    of = TorchTask(lambda: net(nn.BatchNorm1d(WIDE)), CLASSES)
    mine, how, start = people(40, 2), WAYS["adam"], of.initial(0)
    for _ in range(2):
        sent = trained(mine, how, start, of)
        table = looked(sent, mine, how, start, of)
        assert np.array_equal(table["update-absent"], truly_absent(mine))
        start = trained(people(400, 5), how, start, of)


def test_a_word_for_padding_is_not_called_absent_and_a_model_that_stands_still_says_nothing() -> None:
    class Padded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.head = nn.Embedding(20, 8, padding_idx=0), nn.Linear(8, 20)

        def forward(self, x: torch.Tensor) -> Any:
            return self.head(self.embedding(x))

    x = np.random.default_rng(0).integers(0, 12, (20, 6))
    mine, of = Records(x, x, np.arange(20).astype(str)), TorchTask(Padded, 20)
    start = of.initial(0)
    sent = of.train(start, mine, Training(batch_size=8), np.random.default_rng(0)).state
    known = Known(outsiders=mine, classes=20)
    table = PART.look(OneUpdate(received=start, sent=sent, task=of, examples=20), known, UpdateSection())
    assert np.array_equal(np.flatnonzero(table["update-absent"]), np.arange(12, 20))
    with pytest.raises(CannotTell, match="nothing-moved"):
        PART.look(OneUpdate(received=start, sent=start, task=of, examples=20), known, UpdateSection())


def test_a_narrow_layer_that_some_records_do_not_reach_gives_no_exact_list() -> None:
    def narrow() -> nn.Module:
        return nn.Sequential(nn.Linear(WIDE, 3), nn.ReLU(), nn.Linear(3, CLASSES))

    of, mine, how = TorchTask(narrow, CLASSES), people(40, 2), WAYS["adam"]
    start = of.initial(0)
    assert looked(trained(mine, how, start, of), mine, how, start, of)["update-at-most"].all()


def test_the_optimiser_without_data_is_torchs_own() -> None:
    start = np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32)
    weight = nn.Parameter(tensor(start.copy()))
    optimizer = Adam([weight], lr=1e-2, weight_decay=0.05)
    for _ in range(7):
        weight.grad = torch.zeros_like(weight)
        optimizer.step()
    ((_, end),) = _without_data(start.astype(np.float64), 1e-2, 0.05, (7,))
    assert np.allclose(end, weight.detach().numpy(), atol=1e-6)


def test_who_has_a_value_is_counted_as_the_slow_way_counts() -> None:
    rng = np.random.default_rng(0)
    x, none = rng.integers(0, 9, (7, 4)), np.zeros((1, 9))
    entry = InputLayer(words=True, before=none, after=none, bias=None, last=None, ulp=none)
    slow = np.array([[token in row for token in range(9)] for row in x.tolist()])
    assert np.array_equal(entry.has(x, np.zeros(9)), slow)


def test_a_pair_with_a_value_that_nobody_has_counts_as_wrong() -> None:
    mine, how, start = people(40, 2), WAYS["adam"], task().initial(0)
    table = dict(looked(trained(mine, how, start, task()), mine, how, start))
    right = judged(table, mine)["twins-precision"].value
    absent = np.flatnonzero(truly_absent(mine))[:2]
    table["update-twin"] = table["update-twin"].copy()
    before = int(sum(n * (n - 1) // 2 for n in np.bincount(table["update-twin"][table["update-twin"] >= 0])))
    table["update-twin"][absent] = table["update-twin"].max() + 1
    assert judged(table, mine)["twins-precision"].value == pytest.approx(right * before / (before + 1))


def test_an_update_that_is_not_finite_is_not_looked_at() -> None:
    start = task().initial(0)
    broken = {**start, "2.weight": start["2.weight"] * np.float32("nan")}
    for received, sent in ((start, broken), (broken, start)):
        for part in parts().values():
            with pytest.raises(CannotTell, match="not-finite"):
                seen_by(part, OneUpdate(received=received, sent=sent, task=task()), Known(), UpdateSection())
    assert words(notice("update-cannot-tell", why="not-finite", updates=1)).endswith("weights are NaN or infinite.")


def test_the_question_is_a_room() -> None:
    assert every()["update"].options({"names": True}).names


# ------------------------------------------------------------------ in a run


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("update")
    all_of_them = people(900, 7)
    np.savez(folder / "bits.npz", x=all_of_them.x, y=all_of_them.y)
    asked = config(
        data={"name": "npz", "path": str(folder / "bits.npz")},
        federation={"rounds": 3, "members": 0.1, "nonmembers": 0.3, "batch_size": 16, "lr": 1e-3},
        model={"hidden": [128]},
        audit={"attacks": ["loss"], "vantages": ["client", "server"], "questions": {"update": {"names": True}}},
    )
    run(asked, folder / "run", silent)
    return folder / "run"


def test_a_run_has_results_sentences_and_a_section_after_the_verdict(finished: Path) -> None:
    document = load(finished)
    assert {(r.vantage, r.party) for r in document.results if r.question == "update"} >= {
        ("server", None), ("server", "party-0"), ("server", "party-1")
    }  # fmt: skip
    for entry in document.results:
        if entry.question == "update":
            assert entry.estimates["presence"].value == 1
            for name in entry.estimates:
                base = name.removesuffix("-blind").removesuffix("-precision").removesuffix("-recall")
                assert f"{base}-blind" in entry.estimates
    said = [words(one) for one in document.told if one.code == "update-presence"]
    assert any(one.startswith("From party-0's update of round 1, the server can read that nobody there has column")
               for one in said)  # fmt: skip
    page = render(document)
    assert page.index('id="verdict"') < page.index('id="update"') < page.index('id="adversary"')
    assert page.count("From party-0&#39;s update of round 1") == 1


def test_an_update_without_absent_values_says_so_of_itself_alone() -> None:
    """Beside it another party's update may tell."""
    nothing: Table = {"update-absent": np.zeros(3, bool), "update-single": np.zeros(3), "update-twin": np.full(3, -1)}
    one = BesideTruth(party="north", round=1, vantage="server", table=nothing, members=people(3, 0))
    said = PART.say(one, Known(outsiders=None), UpdateSection())
    assert said is not None
    assert (said.code, said.data["party"]) == ("update-none-absent", "north")
    assert words(said).startswith("From north's update of round 1, the server can read of no value")


def test_what_cannot_be_told_is_one_folded_line_and_not_the_second_section(tmp_path: Path) -> None:
    """A usual run: many records behind every update, and nobody asked this question."""
    measured: dict[str, Any] = {"data": {"name": "breast-cancer"}, "audit": {"vantages": ["server"]}}
    run(config(federation={"rounds": 2, "local_epochs": 2}, **measured), tmp_path / "run", silent)
    document = load(tmp_path / "run")
    unknown = [one for one in document.told if one.code == "update-cannot-tell"]
    assert len(unknown) > 1
    page = render(document)
    assert page.index('id="attacks"') < page.index('id="update"')
    section = page[page.index('id="update"') :].partition("</section>")[0]
    assert section.count("What cannot be told from an update") == 1
    assert f"({len(unknown)})</summary>" in section
    assert "cannot be told from 2 updates" not in page


def test_one_part_that_fails_does_not_cost_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> Table:
        raise ValueError("no such thing")

    asked = config(
        federation={"rounds": 2}, audit={"attacks": ["loss"], "vantages": ["server"], "questions": {"update": {}}}
    )
    monkeypatch.setattr(leaves.Leaves, "look", fails)
    found = run(asked, tmp_path / "run", silent)
    assert any(entry.question == "update" for entry in found.results)
    assert not found.failed
    (told,) = [one for one in found.told if one.code == "update-part-failed"]
    assert (told.level, told.data["part"]) == ("gap", "leaves")
    assert found.degraded == [words(told)]
    for part in parts().values():
        monkeypatch.setattr(type(part), "look", fails)
    nothing = run(asked, tmp_path / "nothing", silent)
    assert [entry.attack for entry in nothing.failed] == ["update"]


def test_redacted_results_keep_the_counts_and_no_names(finished: Path) -> None:
    passed_on = redacted(load(finished))
    said = [words(one) for one in passed_on.told if one.code == "update-presence"]
    assert said
    assert not any("column" in one for one in said)
    assert any("that nobody there has" in one and "values of" in one for one in said)


def test_a_recorded_run_is_judged_again_to_the_same_figures(finished: Path, tmp_path: Path) -> None:
    again = replay(finished, [], tmp_path / "again", silent)
    both = [[r.estimates for r in d.results if r.question == "update"] for d in (load(finished), again)]
    assert both[0] == both[1]


# ------------------------------------------------------------------ labels


def test_one_plain_step_tells_how_many_records_each_class_has() -> None:
    how = Training("sgd", 0.1, batch_size=10**6)
    for start in (task().initial(0), later()):
        seen = []
        for seed in (2, 3, 4):
            mine = people(60, seed)
            update = OneUpdate(received=start, sent=trained(mine, how, start, task()), task=task(), examples=60)
            known = Known(outsiders=people(600, 9), classes=CLASSES, training=how.__dict__)
            table = labels.PART.look(update, known, UpdateSection())
            seen.append(BesideTruth(party=str(seed), round=1, vantage="server", table=table, members=mine))
        found = labels.PART.judge(seen, Known(), 0.95)
        assert found["label-error"].value is not None
        assert found["label-error"].value <= 0.1
        assert (found["label-error"].high or 1) < (found["label-error-blind"].value or 0)
        assert (found["label-interval"].high or 0) >= 0.95


def counted(change: Change, more: dict[str, Any] | None = None, **known: Any) -> Table:
    """Labels of one plain step, of an update that was changed."""
    how, mine, start = Training("sgd", 0.1, batch_size=10**6), people(60, 2), later()
    sent = change(start, trained(mine, how, start, task()))
    update = OneUpdate(received=start, sent=sent, task=task(), examples=60, **(more or {}))
    knows = Known(outsiders=people(600, 9), classes=CLASSES, training=how.__dict__, **known)
    return labels.PART.look(update, knows, UpdateSection())


def as_sent(start: State, sent: State) -> State:
    return sent


def noisy_bias(start: State, sent: State) -> State:
    return {name: noisy(start, sent)[name] if value.ndim == 1 else value for name, value in sent.items()}


def clipped(start: State, sent: State) -> State:
    return {name: start[name] + np.float32(0.3) * (value - start[name]) for name, value in sent.items()}


@pytest.mark.parametrize(
    ("change", "more", "known", "why"),
    [
        (clipped, {}, {"defended": True}, "bias-defended"),
        (as_sent, {"parties": ("a", "b"), "by_records": False}, {}, "bias-unweighted"),
        (largest(0.5), {}, {}, "bias-thinned"),
        (noisy, {}, {}, "bias-changed"),
        (noisy_bias, {}, {}, "bias-changed"),
    ],
)
def test_no_counts_of_labels_where_something_else_changed_the_bias(
    change: Change, more: dict[str, Any], known: dict[str, Any], why: str
) -> None:
    assert counted(as_sent)["labels-count"].sum() == 60
    with pytest.raises(CannotTell, match=why):
        counted(change, more, **known)


def test_biases_of_one_plain_step_sum_to_nothing_whatever_the_model_and_its_precision() -> None:
    for classes, n, rate in ((2, 3, 1e-3), (CLASSES, 60, 0.1), (100, 256, 1.0)):
        of = TorchTask(partial(two_layers, classes), classes)
        mine = people(n, 2)
        mine = replace(mine, y=np.random.default_rng(0).integers(0, classes, n))
        for start in (of.initial(0), trained(mine, Training(epochs=30), of.initial(0), of)):
            bias = trained(mine, Training("sgd", rate, batch_size=10**6), start, of)["3.bias"]
            for sent in (bias, bias.astype(np.float16)):
                before = start["3.bias"].astype(sent.dtype).astype(np.float64)
                assert labels.sums_to_nothing(sent, sent - before, rate)


def test_declared_defences_and_weights_of_the_mean_reach_whoever_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    from fedaudit.audit.observer import Shown
    from fedaudit.questions.update.watch import UpdateWatch
    from fedaudit.types import Round, Trained, Vantage

    seen: list[tuple[bool, bool]] = []

    class Listens:
        def look(self, update: OneUpdate, known: Known, options: UpdateSection) -> Table:
            seen.append((known.defended, update.by_records))
            raise CannotTell("thinned")

    monkeypatch.setattr("fedaudit.questions.update.watch.parts", lambda: {"labels": Listens()})
    start, how = later(), WAYS["sgd"]
    sent = {str(n): Trained(trained(people(n, n), how, start, task()), n, 1.0) for n in (10, 40)}

    def mean(*weights: float) -> State:
        states = [one.state for one in sent.values()]
        return {k: np.average([s[k] for s in states], axis=0, weights=weights).astype(np.float32) for k in start}

    def told(aggregate: State, vantage: Vantage, model: Any, *slots: str) -> tuple[bool, bool]:
        seen.clear()
        asked = replace(QUESTION.ask([], {}), slots=frozenset(slots))
        round = Round(1, start, sent, aggregate)
        UpdateWatch(asked).measure(Shown(round, task(), [(vantage, model)], tuple(sent)))
        assert len({*seen}) == 1
        return seen[0]

    fair, even = mean(10, 40), mean(1, 1)
    assert told(fair, Vantage.SERVER, "local") == (False, True)
    assert told(fair, Vantage.SERVER, "local", "aggregate", "serve") == (False, True)
    assert told(fair, Vantage.SERVER, "local", "gradient") == (True, True)
    assert told(fair, Vantage.CLIENT, "global") == (False, True)
    assert told(fair, Vantage.CLIENT, "global", "aggregate") == (True, True)
    assert told(even, Vantage.CLIENT, "global") == (False, False)


@pytest.mark.parametrize("defended", [False, True])
def test_a_run_with_a_defence_counts_no_labels(tmp_path: Path, defended: bool) -> None:
    mine = people(400, 7)
    np.savez(tmp_path / "bits.npz", x=mine.x, y=mine.y)
    how = {"rounds": 2, "members": 0.1, "nonmembers": 0.3, "batch_size": 1000, "lr": 0.1, "optimizer": "sgd"}
    asked = {
        "data": {"name": "npz", "path": str(tmp_path / "bits.npz")},
        "federation": {"parties": 2, **how},
        "model": {"hidden": [32]},
        "defences": [{"name": "clip-only", "clip": 0.1}] if defended else [],
        "audit": {"attacks": ["loss"], "vantages": ["server"], "questions": {"update": {}}},
    }
    run(parse(asked), tmp_path / "run", silent)
    told = load(tmp_path / "run").told
    assert any(one.data.get("why") == "bias-defended" for one in told) == defended
    assert any(one.code == "update-labels" for one in told) != defended


def test_after_several_steps_labels_are_counted_on_request_only() -> None:
    mine, start, how = people(60, 2), task().initial(0), WAYS["adam"]
    lopsided = mine.take(np.flatnonzero(mine.y != 0))
    sent = trained(lopsided, how, start, task())
    update = OneUpdate(received=start, sent=sent, task=task(), examples=len(lopsided))
    known = Known(outsiders=people(600, 9), classes=CLASSES, training=how.__dict__)
    with pytest.raises(CannotTell, match="several-steps"):
        labels.PART.look(update, known, UpdateSection())
    table = labels.PART.look(update, known, UpdateSection(simulate=True))
    seen = [BesideTruth(party="a", round=1, vantage="server", table=table, members=lopsided)]
    found = labels.PART.judge(seen, known, 0.95)
    assert (found["label-error"].value or 0) < (found["label-error-blind"].value or 0)
    assert (found["label-interval"].high or 0) >= 0.95


def test_counts_are_the_nearest_that_sum_to_the_records() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        guess = rng.normal(20, 20, 6)
        found = labels.nearest_counts(guess, 100)
        assert found.sum() == pytest.approx(100)
        assert (found >= 0).all()
        for _ in range(200):  # nothing else of that sum is nearer
            other = rng.dirichlet(np.ones(6)) * 100
            assert np.linalg.norm(found - guess) <= np.linalg.norm(other - guess) + 1e-9
        assert np.array_equal(labels.nearest_counts(guess, 7) % 1, np.zeros(6))


# ------------------------------------------------------------------ what else leaves


def test_counters_means_and_zeros_are_listed() -> None:
    of = TorchTask(
        lambda: nn.Sequential(nn.Linear(WIDE, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, CLASSES)), CLASSES
    )
    mine, start = people(40, 2), of.initial(0)
    sent = trained(mine, WAYS["adam"], start, of)
    update = OneUpdate(received=start, sent=sent, task=of, examples=40, parties=("a",), metrics=("loss",))
    table = leaves.PART.look(update, Known(), UpdateSection())
    found = dict(zip(table["leaves-what"].tolist(), table["leaves-value"].tolist(), strict=True))
    assert found["steps"] == 3
    assert found["means"] == 16
    assert found["examples"] == 40
    assert {"who", "metrics", "zeros"} <= {*found}


# ------------------------------------------------------------------ two checkpoints


def test_two_checkpoints_are_looked_at_without_a_run(tmp_path: Path) -> None:
    mine, start, how = people(40, 2), task().initial(0), WAYS["adam"]
    sent = trained(mine, how, start, task())
    np.savez(tmp_path / "before.npz", allow_pickle=False, **dict(start))
    save_file({name: value.copy() for name, value in sent.items()}, tmp_path / "sent.safetensors")
    (tmp_path / "names.txt").write_text("\n".join(f"code {j}" for j in range(WIDE)))
    files = ["sent.safetensors", "--before", "before.npz", "--names", "names.txt", "--out", "found.json"]
    done = fedaudit("look", *files, cwd=tmp_path)
    assert done.returncode == 0
    absent = [f"code {j}" for j in np.flatnonzero(truly_absent(mine))]
    assert json.loads((tmp_path / "found.json").read_text())["absent"] == absent
    assert absent[0] in done.stdout


def test_where_every_weight_moved_two_checkpoints_do_not_say_why(tmp_path: Path) -> None:
    for name, seed in (("before", 0), ("sent", 1)):
        np.savez(tmp_path / f"{name}.npz", allow_pickle=False, **dict(task().initial(seed)))
    done = fedaudit("look", "sent.npz", "--before", "before.npz", cwd=tmp_path)
    assert done.returncode == 0
    assert "one model does not follow from the other" in " ".join(done.stdout.split())


def test_a_gate_on_a_figure_that_could_not_be_told_is_undecided(finished: Path) -> None:
    """E3: the question was asked; what was not told is neither safe nor wrong use."""
    found = {name for entry in load(finished).results if entry.question == "update" for name in entry.estimates}
    assert "presence" in found
    assert "exact-words" not in found  # the records have no words
    assert judge(finished, parse_rules("exact-words > 0.5")).exit_code == UNDECIDED
    with pytest.raises(FedauditError, match="gate-metric"):
        judge(finished, parse_rules("members-auc > 0.6"))  # was not asked
