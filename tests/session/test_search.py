"""The search over the levers: who goes on, what is proposed next, and what it keeps."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedaudit.config.schema import parse
from fedaudit.errors import FedauditError
from fedaudit.results import advice as results
from fedaudit.results.advice import Tried, beats
from fedaudit.results.gate import Rule, parse_limit
from fedaudit.session import search, trials
from fedaudit.session.levers import NO_CHANGE, Change, Lever, changed, levers, together
from fedaudit.session.search import (
    Contender,
    LeverSearch,
    children,
    fronts,
    further,
    opening,
    spread,
    stopped,
)
from fedaudit.session.trials import (
    FAILED,
    NOT_INSTALLED,
    TRIALS,
    UNFIT,
    Bench,
    FailedTrial,
    Trial,
    kept,
    kept_in,
    train_until,
)
from fedaudit.session.workers import News
from tests.session.advising import FIELD, leaking, look
from tests.worlds import in_turn


def names(looks: list[Tried], places: list[int]) -> list[str]:
    return [looks[place].name for place in places]


def test_those_go_on_that_no_other_beats_and_useless_models_last() -> None:
    assert set(names(FIELD, spread(FIELD, 3))) == {"undefended", "best", "strong"}
    assert names(FIELD, spread(FIELD, 5))[3:] == ["beaten", "hopeless"]
    assert names(FIELD, spread(FIELD, 6))[-1] == "useless"
    assert names(FIELD, spread(FIELD, 1)) == ["undefended"]
    assert set(names(FIELD, spread(FIELD, 2))) == {"undefended", "strong"}  # as far apart as can be


def test_who_gives_away_more_than_half_of_what_the_worst_does_goes_on_last() -> None:
    quiet = [look("slow", 0.13, 0.3), look("frontier", 0.12, 0.32), look("linear", 0.15, 0.34)]
    leaky = [look("as it is", 0.99, 0.35), look("worst", 1.0, 0.1)]
    field = [*leaky, *quiet]
    assert set(names(field, further(field, 3, 0.01))) == {look.name for look in quiet}
    assert names(field, further(field, 4, 0.01))[3] == "as it is"
    assert "as it is" in names(field, spread(field, 3))
    close = [look("a", 0.75, 0.3), look("b", 0.9, 0.4)]  # by AUC, where a guess has a half: .25 is more than half of .4
    assert names(close, further(close, 1, 0.5)) == ["b"]


def test_fronts_are_peeled_one_after_the_other() -> None:
    """The slow twin: in a front nobody is beaten by anybody who was not taken before."""
    rng = np.random.default_rng(0)
    looks = [look(str(n), float(risk), float(right)) for n, (risk, right) in enumerate(rng.random((30, 2)))]
    taken: set[int] = set()
    for front in fronts(looks, range(30)):
        left = set(range(30)) - taken
        beaten = {p for p in left for o in left if beats(looks[o], looks[p])}
        assert set(front) == left - beaten
        taken |= set(front)
    assert len(taken) == 30


def test_the_frontier_is_what_no_other_beats_in_both() -> None:
    assert results.frontier(FIELD) == {"undefended", "best", "strong", "useless"}


def test_children_take_each_lever_from_their_parents_and_are_new() -> None:
    base = parse({"federation": {"rounds": 8}})
    found = levers(base, ["model", "update", "rate"])
    field = [Contender(NO_CHANGE, base, Path("0"), looks=(look("0", 0.9, 0.5),))]
    for n, moved in enumerate(opening(found)[:6], 1):
        single = together(base, list(moved.values()))
        field.append(
            Contender(single, base, Path(str(n)), moved=moved, looks=(look(single.name, 0.9 - n / 10, 0.5 - n / 50),))
        )
    made = children(field, found, 8, np.random.default_rng(0))
    assert made == children(field, found, 8, np.random.default_rng(0))
    keys = [frozenset((lever, change.name) for lever, change in moved.items()) for moved in made]
    assert len(keys) == len(set(keys)) == 8
    assert not set(keys) & {frozenset((k, c.name) for k, c in one.moved.items()) for one in field}
    assert sum(len(moved) > 1 for moved in made) >= 4  # what either parent has moved
    assert children(field[:1], found, 8, np.random.default_rng(0)) == []  # nobody to make them with


def test_a_lever_that_is_moved_elsewhere_does_not_stay_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "ELSEWHERE", 1.0)
    monkeypatch.setattr(search, "ATTEMPTS", 1)  # what was proposed before is not drawn again
    one, other = Change("one", "", {}), Change("other", "", {})
    parents = [Contender(one, None, Path(n), moved={"model": one}, looks=(look(n, 0.5, 0.5),)) for n in "ab"]
    draws = [children(parents, [Lever("model", [one, other])], 1, np.random.default_rng(seed)) for seed in range(20)]
    assert all(made == [{"model": other}] for made in draws)


def test_levers_that_do_most_are_tried_first_together_and_then_every_other_by_itself() -> None:
    found = levers(parse({}))
    order = opening(found)
    assert [set(moved) for moved in order[:7]] == [
        {"update"}, {"model"}, {"rate"}, {"update", "model"}, {"update", "rate"}, {"model", "rate"},
        {"update", "model", "rate"},
    ]  # fmt: skip
    alone = [(name, change.name) for moved in (*order[:3], *order[7:]) for name, change in moved.items()]
    assert {name for name, _ in alone[3:9]} == {"training", "epochs", "batches", "frozen", "parties", "masking"}
    assert len(alone) == len(set(alone)) == sum(len(lever.positions) for lever in found)


def test_what_was_trained_on_counts_as_a_federation_that_stops_there() -> None:
    change = Change("noise", "add noise", {"defences": []})
    assert stopped(change, 8, 8) is change
    cut = stopped(change, 2, 8)
    assert (cut.name, cut.words) == ("noise, 2 rounds", "add noise, and stop after 2 rounds")
    assert cut.overrides == {"defences": [], "federation.rounds": 2}
    assert stopped(NO_CHANGE, 2, 8).name == "2 rounds"


def idle(pieces: Any, *_: Any) -> Any:
    """Nothing may be left to do."""
    assert not pieces
    yield from ()


def test_a_look_is_of_its_own_round_or_there_is_none(tmp_path: Path) -> None:
    given, limit = leaking(tmp_path), parse_limit("auc < 0.6")
    bench = Bench(tmp_path, 1, lambda: None, lambda _: None)
    train_until(Trial(bench.folder(given), given, 4), lambda *_: None)
    one = Contender(NO_CHANGE, given, bench.folder(given))
    with pytest.raises(FedauditError, match="is at round 4, and what was seen after round 2 was not kept") as error:
        LeverSearch(given, [], limit)._looked_at(bench, one, 2, {})
    assert error.value.todo == "Advise in another folder."  # there, another limit was asked


def test_a_search_looks_after_every_rung_and_keeps_what_it_saw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "work", in_turn)
    raw = leaking(tmp_path).as_dict()
    given = parse({**raw, "data": {**raw["data"], "limit": 400}, "audit": {**raw["audit"], "attacks": ["loss"]}})
    limit, found = parse_limit("auc < 0.6"), levers(given, ["model", "rate", "training"])
    bench = Bench(tmp_path, 1, lambda: None, lambda _: None)
    field = LeverSearch(given, found, limit, places=6).run(bench)
    looked = [one for one in field if one.looks]
    assert len(looked) == 6
    assert len([one for one in looked if len(one.looks) == 1]) == 4
    assert sorted(len(one.looks) for one in looked)[-1] == 3  # one was trained to its end
    best = next(one for one in looked if len(one.looks) == 3)
    assert [look.rounds for look in best.looks] == [2, 4, 8]
    assert all(kept(best.folder, look.rounds, limit) == look for look in best.looks)
    assert [one.status for one in best.told(8)] == ["went on", "went on", "trained to the end"]
    assert kept(best.folder, 2, parse_limit("tpr@0.1 < 0.6")) is None  # that was not looked at
    assert kept(best.folder, 2, parse_limit("auc < 0.9")) == best.looks[0]  # a limit that is less strict sees the same
    monkeypatch.setattr(trials, "work", idle)
    again = LeverSearch(given, found, limit, places=6).run(bench)
    assert [one.looks for one in again] == [one.looks for one in field]


def test_what_fails_in_its_first_rounds_is_not_said_to_be_unfit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed for want of memory, it might have fitted, and may do so next time; what was refused before any training
    does not fit."""
    monkeypatch.setattr(trials, "work", in_turn)
    given, said = leaking(tmp_path), list[str]()
    bench = Bench(tmp_path, 1, lambda: None, said.append)
    limit = parse_limit("auc < 0.6")
    by_levers, looks = LeverSearch(given, [], limit), (replace(look("dropout", 0.5, 0.5), rounds=2),)

    def after(wrong: News | None, looks: tuple[Tried, ...] = ()) -> str:
        folder = tmp_path / f"run-{len(said)}"
        one = Contender(Change("dropout", "drop", {}), given, folder, looks=looks)
        return by_levers._looked_at(bench, one, 2, {folder: wrong} if wrong else {}).status

    killed = News(0, "failed", "", "its process was ended by SIGKILL (out of memory?)")
    assert after(killed) == "failed: its process was ended by SIGKILL (out of memory?)"
    assert after(News(0, "failed", "", "it died"), looks) == "failed after round 2: it died"
    assert after(None).startswith("failed: ")  # it left no results
    assert not list(tmp_path.glob("run-*.json"))
    assert not [line for line in said if "to try it again" in line]
    assert after(News(0, "failed", FAILED, "it diverged")) == "failed: it diverged"
    assert said[-1].endswith(f" (delete {kept_in(tmp_path / 'run-3', 2, limit)} to try it again)")
    assert kept(tmp_path / "run-3", 2, limit) == FailedTrial(why="it diverged", unfit=False)
    by_name = {change.name: change for lever in levers(given) for change in lever.positions}
    subjects = changed(given, together(given, [by_name["subject-level DP"]]))
    unfit = Trial(tmp_path / TRIALS / "unfit", subjects, 2)
    assert after(bench.run([unfit])[unfit.folder]).startswith("does not fit: [")
    assert len(said) == 5


@pytest.fixture
def untrained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks at runs that nobody trained: the more a configuration says, the less it risks."""

    def seen(one: Contender, rung: int, planned: int, _: Rule) -> Tried:
        size = len(str(one.change.overrides)) / 1000
        return replace(look(one.change.name, 0.9 - size, 0.9 - size), rounds=rung, of=planned)

    monkeypatch.setattr(search, "looked", seen)


def failing(defence: str, what: str, begun: list[Trial]) -> Any:
    """In place of `work`: trials with this defence fail."""

    def work(pieces: list[Trial], *_: Any) -> Any:
        begun.extend(pieces)
        for place, piece in enumerate(pieces):
            if any(own.name == defence for own in piece.config.defences):
                yield News(place, "failed", what, "there is no room")

    return work


@pytest.mark.usefixtures("untrained")
def test_a_search_that_is_begun_again_does_not_try_what_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given, limit, said, begun = parse({"federation": {"rounds": 8}}), parse_limit("auc < 0.6"), [""], list[Trial]()
    monkeypatch.setattr(trials, "work", failing("update-noise", FAILED, begun))
    bench, found = Bench(tmp_path, 1, lambda: None, said.append), levers(given, ["update", "rate"])
    field = LeverSearch(given, found, limit, places=8).run(bench)
    failed = [one.change.name for one in field if one.status]
    assert len(failed) >= 2
    assert not any(one.unfit for one in field)
    assert len([one for one in field if not one.unfit]) == 8  # what was begun had its place
    monkeypatch.setattr(trials, "work", idle)
    assert LeverSearch(given, found, limit, places=8).run(bench) == field
    assert said[-1].startswith(f"{failed[-1]}: failed: there is no room (delete {tmp_path}")
    file = Path(said[-1].partition("(delete ")[2].partition(" to try")[0])
    file.unlink()
    begun.clear()
    monkeypatch.setattr(trials, "work", failing("", "", begun))
    LeverSearch(given, found, limit, places=8).run(bench)
    assert file.name.startswith(begun[0].folder.name)


@pytest.mark.usefixtures("untrained")
@pytest.mark.parametrize("why", [UNFIT, NOT_INSTALLED])
def test_what_does_not_fit_takes_no_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    given, limit = parse({"federation": {"rounds": 8}}), parse_limit("auc < 0.6")
    monkeypatch.setattr(trials, "work", failing("dp-sgd", why, []))
    bench, found = Bench(tmp_path, 1, lambda: None, lambda _: None), levers(given, ["training", "rate"])
    field = LeverSearch(given, found, limit, places=8).run(bench)
    assert [one.change.name for one in field if one.unfit][:2] == ["DP-SGD, noise 0.3", "DP-SGD, noise 1"]
    fitting = [one for one in field if not one.unfit]
    assert len(fitting) == 8
    assert len([one for one in fitting[:5] if len(one.moved) == 1]) == 4  # half of the places, by themselves
    lasting = [kept(one.folder, 2, limit) for one in field if one.unfit]
    assert all(lasting) if why == UNFIT else not any(lasting)  # a package may be there next time
