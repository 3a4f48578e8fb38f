"""An ordinary PyTorch loop with the audit beside it: the training never notices, the report says what is missing."""

import copy
import json
import re
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import numpy as np
import pytest
import torch
from torch import nn

from fedaudit.errors import FedauditError
from fedaudit.integrations.loop import Recording, crowded, record
from fedaudit.results.document import SCHEMA_FILE, Document
from fedaudit.results.running import Follower
from fedaudit.types import Observation, Round, Trained
from tests.integrations.worlds import PARTIES, full_disk, games, mean, net, part, train

LABELS = {"vantages": ["label-only-client"], "attacks": ["tear"]}


def loop(audit: Recording | None, model: nn.Module, rounds: range, seed: int = 0) -> None:
    """Federated averaging as somebody might have written it, with one line for the audit."""
    for round in rounds:
        updates = {}
        for party in PARTIES:
            local = copy.deepcopy(model)
            train(local, part(party)[0], seed=seed + round)
            updates[party] = local.state_dict()
        model.load_state_dict(mean(updates))
        if audit is not None:
            audit.observe(round, model, updates=updates)


def recorded(out: Path, model: nn.Module, **options: Any) -> Recording:
    return record(model, games(), out=out, rounds=4, attacks=("fta-confidence", "loss"), **options)


def seeded() -> nn.Module:
    torch.manual_seed(0)
    return net()


def scores(audit: Recording) -> list[object]:
    assert audit.session.auditor is not None
    return audit.session.auditor.score_table()["score"]


def text(document: Document) -> str:
    return " ".join([document.run.status, *document.warnings, *document.notices])


def test_a_loop_is_audited_and_not_changed(tmp_path: Path) -> None:
    plain, watched = seeded(), seeded()
    loop(None, plain, range(1, 5))
    with recorded(tmp_path / "run", watched) as audit:
        loop(audit, watched, range(1, 5))
    assert all(
        torch.equal(a, b) for a, b in zip(plain.state_dict().values(), watched.state_dict().values(), strict=True)
    )
    document = json.loads((tmp_path / "run/results.json").read_text())
    jsonschema.validate(document, json.loads(SCHEMA_FILE.read_text()))
    assert document["run"]["status"] == "complete"
    assert document["run"]["rounds"] == 4
    assert {(e["vantage"], e["model"]) for e in document["results"]} == {("client", "global"), ("server", "local")}
    assert (tmp_path / "run/report.html").read_text().startswith("<!doctype html>")
    assert (tmp_path / "run/scores.parquet").is_file()


def test_the_audit_equals_one_of_the_same_rounds(tmp_path: Path) -> None:
    """The obvious twin: the same states as Rounds through the Auditor, by hand."""
    from fedaudit.data.set_aside import joined
    from fedaudit.integrations.options import checked, make_auditor
    from fedaudit.integrations.plain import numpy_state

    model, by_hand = seeded(), make_auditor(seeded(), joined(*games()), checked(2))
    with record(model, games(), out=tmp_path, rounds=2) as audit:
        for round in range(1, 3):
            before, updates = numpy_state(model.state_dict()), {}
            for party in PARTIES:
                local = copy.deepcopy(model)
                train(local, part(party)[0], seed=round)
                updates[party] = local.state_dict()
            model.load_state_dict(mean(updates))
            audit.observe(round, model, updates=updates)
            sent = {p: Trained(numpy_state(s), len(part(p)[0]), 1.0) for p, s in updates.items()}
            by_hand.observe(Round(round, before, sent, numpy_state(model.state_dict())))
    assert by_hand.score_table()["score"] == scores(audit)


def test_F4_a_hook_that_raises_never_reaches_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, watched = seeded(), seeded()
    loop(None, plain, range(1, 5))
    with recorded(tmp_path, watched) as audit:
        auditor = audit.session.auditor
        assert auditor is not None
        real = auditor.measure

        def broken(round: Round) -> Observation | None:
            if round.index == 2:
                raise ValueError("record 17 was [0.1, 0.2]")
            return real(round)

        monkeypatch.setattr(auditor, "measure", broken)
        loop(audit, watched, range(1, 5))
    assert all(
        torch.equal(a, b) for a, b in zip(plain.state_dict().values(), watched.state_dict().values(), strict=True)
    )
    assert audit.document is not None
    assert "recorded with gaps" in text(audit.document)
    assert "Round 2 is missing: ValueError in test_loop.py" in text(audit.document)
    assert "record 17" not in text(audit.document)  # a foreign message may quote data
    assert "Round 2 is missing" in (tmp_path / "report.html").read_text()


def test_F4_strict_lets_it_out(tmp_path: Path) -> None:
    model = seeded()
    with pytest.raises(FedauditError, match=r"missing: 2\.weight"), recorded(tmp_path, model, strict=True) as audit:
        audit.observe(1, {k: v for k, v in model.state_dict().items() if k != "2.weight"})


def test_B6_names_are_listed_both_ways(tmp_path: Path) -> None:
    model = seeded()
    with recorded(tmp_path, model) as audit:
        loop(audit, model, range(1, 3))
        audit.observe(3, {f"outer.{k}": v for k, v in model.state_dict().items()})
        loop(audit, model, range(4, 5))
    assert audit.document is not None
    assert "missing: 0.weight" in text(audit.document)
    assert "unknown: outer.0.weight" in text(audit.document)
    assert "Round 4 starts from" not in text(audit.document)


def test_F5_a_repeated_round_counts_once(tmp_path: Path) -> None:
    model = seeded()
    with recorded(tmp_path, model) as audit:
        loop(audit, model, range(1, 3))
        before = scores(audit)
        audit.observe(2, model)  # the same global model, but no updates: other content
        assert scores(audit) == before
    assert audit.document is not None
    assert "Round 2 arrived again with other content" in text(audit.document)


def test_F7_a_model_from_before_is_a_new_branch(tmp_path: Path) -> None:
    """What the loop threw away is left out, and the audit is that of the branch that was kept."""
    model = seeded()
    with recorded(tmp_path / "back", model) as audit:
        loop(audit, model, range(1, 2))
        old = copy.deepcopy(model.state_dict())
        loop(audit, model, range(2, 4))
        model.load_state_dict(old)
        audit.model = {k: v.numpy() for k, v in old.items()}
        loop(audit, model, range(2, 4), seed=50)
    straight = seeded()
    with recorded(tmp_path / "straight", straight) as other:
        loop(other, straight, range(1, 2))
        loop(other, straight, range(2, 4), seed=50)
    assert scores(audit) == scores(other)
    assert audit.document is not None
    assert "Round 2 started from the model of round 1, not from the last one: the server went back" in text(
        audit.document
    )


def test_a_round_that_is_done_again_has_no_risk_of_the_one_that_was_thrown_away(tmp_path: Path) -> None:
    """The journal told what was found about the model that nobody kept as if it were the new one's."""
    model = seeded()
    with recorded(tmp_path, model) as audit:
        loop(audit, model, range(1, 3))
        old = copy.deepcopy(model.state_dict())
        loop(audit, model, range(3, 4))
        assert Follower(tmp_path).look().rounds[-1].risks
        model.load_state_dict(old)
        audit.model = {k: v.numpy() for k, v in old.items()}
        loop(audit, model, range(3, 4), seed=50)
        assert Follower(tmp_path).look().rounds[-1].risks == ()
        loop(audit, model, range(4, 5))
        assert Follower(tmp_path).look().rounds[-1].risks


def test_a_loop_that_was_killed_goes_on(tmp_path: Path) -> None:
    model = seeded()
    with recorded(tmp_path / "one", model) as whole:
        loop(whole, model, range(1, 5))
    model = seeded()
    first = recorded(tmp_path / "two", model)
    loop(first, model, range(1, 3))
    first.session.trace.store.close()  # type: ignore[union-attr]  # killed: nothing is finished
    with recorded(tmp_path / "two", model) as second:
        loop(second, model, range(3, 5))
    assert scores(second) == scores(whole)
    assert second.document is not None
    assert "Resuming after round 2" in text(second.document)


def test_a_training_that_fails_still_leaves_a_report(tmp_path: Path) -> None:
    def training() -> None:
        model = seeded()
        with recorded(tmp_path, model) as audit:
            loop(audit, model, range(1, 4))
            raise RuntimeError("loader broke")

    with pytest.raises(RuntimeError, match="loader"):
        training()
    document = json.loads((tmp_path / "results.json").read_text())
    assert document["run"]["rounds"] == 3
    assert "The training ended with RuntimeError after round 3." in document["warnings"]


def test_a_round_of_five_local_epochs_is_not_taken_for_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty seconds a round, of two parties with five epochs each: an epoch takes two."""
    clock = SimpleNamespace(perf_counter=count(step=20.0).__next__)
    monkeypatch.setattr("fedaudit.integrations.loop.time", clock)
    told = {}
    for epochs in (1, 5):
        model = seeded()
        with recorded(tmp_path / f"{epochs}", model, local_epochs=epochs) as audit:
            loop(audit, model, range(1, 2))
        (seen,) = Follower(tmp_path / f"{epochs}").look().rounds
        told[epochs] = {party: one.epoch_seconds for party, one in seen.parties.items()}
    assert told == {1: dict.fromkeys(PARTIES, 10.0), 5: dict.fromkeys(PARTIES, 2.0)}
    with pytest.raises(FedauditError) as wrong:
        recorded(tmp_path / "none", seeded(), local_epochs=0)
    assert "local_epochs=" in str(wrong.value)


@pytest.mark.parametrize(("load", "threads", "told"), [(12.0, 2, True), (12.0, 1, False), (0.5, 2, False)])
def test_threads_that_wait_for_each_other_are_told_of_and_left_alone(
    monkeypatch: pytest.MonkeyPatch, load: float, threads: int, told: bool
) -> None:
    monkeypatch.setattr("os.getloadavg", lambda: (load, load, load))
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1}, raising=False)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert ("OMP_NUM_THREADS=1" in crowded()) == told
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)


def test_without_updates_nothing_is_said_about_the_server(tmp_path: Path) -> None:
    model = seeded()
    with recorded(tmp_path, model) as audit:
        for round in range(1, 4):
            train(model, part("north")[0], seed=round)
            audit.observe(round, model)
    assert audit.document is not None
    assert {e.vantage for e in audit.document.results} == {"client"}
    assert "there is no result for the server" in text(audit.document)
    assert "Costs are in seconds a round, not in epochs" in text(audit.document)
    assert all(
        e.cost.epochs is not None and e.cost.epochs < 600 for e in audit.document.results
    )  # and not in billionths of them


def test_F2_a_disk_that_fills_up_costs_the_files_only(tmp_path: Path) -> None:
    model = seeded()
    with recorded(tmp_path / "run", model) as audit:
        loop(audit, model, range(1, 2))
        with full_disk():
            loop(audit, model, range(2, 4))
            audit.session.finish(tmp_path / "run")
        assert audit.document is not None
        assert audit.document.run.rounds == 3
        assert "Recording stopped at round 2 (File too large)" in text(audit.document)
    assert not (tmp_path / "run/signals/00002.parquet").exists()


def test_F2_a_folder_that_cannot_be_written_is_refused_before_training(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FedauditError, match="cannot write"):
        recorded(tmp_path / "file" / "run", seeded())


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"rounds": 1}, "rounds=...: Input should be greater than or equal to 2, got 1"),
        ({"rounds": "three"}, "rounds=...: Input should be a valid integer"),
        ({"rounds": None}, "rounds=...: Input should be a valid integer"),
        ({"vantages": ["sever"]}, "vantages[0]: Input should be 'outsider'"),
        ({"vantages": "server"}, "vantages=[...]: a list is needed, in brackets"),
        ({"confidence": float("nan")}, "confidence=...: Input should be a finite number"),
        ({"confidence": 1.5}, "confidence=...: Input should be less than 1"),
        ({"fpr": [2]}, "fpr[0]: Input should be less than 1"),
        ({"fpr": np.array([0.01, np.nan])}, "fpr[1]: Input should be a finite number"),
        ({"fpr": [0.0001]}, "calibration non-members and there are 383. Set a larger rate in fpr=[...]"),
        ({"seed": -1}, "seed=...: Input should be greater than or equal to 0"),
        ({"keep": "everything"}, "keep=...: Input should be 'signals' or 'snapshots'"),
        ({"fprs": [0.01]}, "there is no argument 'fprs'. Did you mean 'fpr'?"),
        ({"canary": {}}, "canary=... needs a federation that fedaudit trains itself. Leave it out."),
        ({"game": []}, "a game is wanted, and none is given"),
        ({"game": None}, "a game is wanted, and something else is given"),
        ({"game": part("north")}, "the second of what fedaudit.set_aside gives"),
        ({"out": None}, "out=None: a folder is needed"),
        ({"forward": 3}, "forward=... cannot be called"),
        ({"attacks": ["ftb"]}, "unknown attack"),
        ({"attacks": ["loss", "loss"]}, "attacks=[...]: loss is listed twice"),
        (
            {"attacks": ["gap"]},
            "Take the attack out of attacks=[...], or add a vantage that can run it to vantages=[...]",
        ),
        ({"attacks": ["gradient-series"]}, "Leave it out: it needs a federation that fedaudit trains itself"),
        ({"attacks": ["attribute"]}, "guesses a hidden attribute. Leave it out: it needs a federation"),
        ({"attacks": ["canife"]}, "canife in attacks=[...]: its parties cannot be added"),
        ({"attacks": ["lira"]}, "reference models, trained as the parties train. Leave it out"),
        (
            {"attacks": [{"name": "fta", "degree": 0}]},
            'attacks[0]["degree"]: Input should be greater than or equal to 1',
        ),
        ({"attacks": [{"name": "fta", "degre": 1}]}, "attacks[0] has no key 'degre'. Did you mean 'degree'?"),
        ({"attacks": []}, "Leave attacks=[...] out for the default attacks, or name some."),
        ({"questions": {"mine:Q": {}}}, "questions[\"mine:Q\"]: 'mine:Q' names code"),
        ({"questions": {"canary": {}}}, 'questions["canary"]: canary is asked in another way. Leave it out: it needs'),
        ({"questions": {"canary": {"probes": 3}}}, 'questions["canary"]: canary is asked in another way'),
        ({"vantages": ["client", "client"]}, "client is listed twice"),
        (LABELS | {"tear": {"queries": 3}}, 'tear={"queries": ...}: Input should be greater than or equal to 50'),
        (LABELS | {"tear": {"querys": 90}}, "tear={...} has no key 'querys'. Did you mean 'queries'?"),
        (LABELS | {"tear": {"bounds": [0.4, 0.5]}}, 'tear={"bounds": [0.4, 0.5]} would keep the search away'),
        ({"attacks": ["fusion"], "fusion": {"attacks": ["merlin", "loss"]}}, "fusion={...} cannot use 'merlin'"),
    ],
)
def test_wrong_use_is_refused_before_training_in_the_words_of_python(
    tmp_path: Path, change: dict[str, Any], says: str
) -> None:
    given: dict[str, Any] = {"game": games(), "out": tmp_path / "run", "rounds": 4}
    with pytest.raises(FedauditError) as refused:
        record(seeded(), **(given | change))
    assert says in str(refused.value)
    assert not COMMAND_LINE.search(str(refused.value)), refused.value
    assert not (tmp_path / "run").exists()


SECTIONS = r"\[(audit|model|data|federation)[\].]|\b(audit|federation|data)\.[a-z]"
COMMAND_LINE = re.compile(rf"--[a-z]|{SECTIONS}|`fedaudit |configur")


def test_a_folder_that_is_taken_is_refused_in_the_words_of_python(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/chapter.tex").write_text("")
    first = recorded(tmp_path / "run", seeded())
    folders = {"file": "is a file", "mine": "is not empty", "file/run": "cannot write", "run": "is writing to"}
    for name, says in folders.items():
        with pytest.raises(FedauditError, match=says) as refused:
            recorded(tmp_path / name, seeded())
        assert "(out=...)" in str(refused.value)
        assert "--" not in str(refused.value)
    first.session.trace.store.close()  # type: ignore[union-attr]
    with pytest.raises(FedauditError, match="other data") as refused:
        record(seeded(), games()[0], out=tmp_path / "run", rounds=4)
    assert refused.value.todo == "Give another folder (out=...), or remove this one if it is not needed."
    assert refused.value.exit_code == 2


def test_a_model_that_cannot_be_asked_is_refused(tmp_path: Path) -> None:
    class Says(nn.Linear):
        def forward(self, x: torch.Tensor) -> Any:
            return {"logits": super().forward(x)}

    for model, says in ((Says(64, 10), "(forward=...)"), (nn.Linear(3, 10), "cannot be asked about a record")):
        with pytest.raises(FedauditError) as refused:
            record(model, games(), out=tmp_path / "run", rounds=4)
        assert says in str(refused.value)
        assert not COMMAND_LINE.search(str(refused.value))


def test_a_model_with_too_few_outputs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FedauditError, match="4 outputs"):
        record(nn.Linear(64, 4), games(), out=tmp_path, rounds=4)


def test_a_factory_needs_the_first_model(tmp_path: Path) -> None:
    model = seeded()
    with record(net, games(), out=tmp_path, rounds=4, attacks=("loss",)) as audit:
        audit.observe(0, model)
        loop(audit, model, range(1, 4))
    assert audit.document is not None
    assert audit.document.run.status == "recorded up to round 3 of 4"
    assert audit.document.degraded == ["Seen up to round 3 of 4 planned rounds."]
