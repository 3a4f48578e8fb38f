"""Records from a second file: those that set thresholds, and an adversary's own."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedaudit.config.schema import Config, load_config, parse
from fedaudit.data import beside, load
from fedaudit.data.beside import read_beside
from fedaudit.errors import FedauditError
from fedaudit.session.prepare import prepare, stage
from fedaudit.types import Dataset, Game, Role
from tests.data.test_own_copies import ADULT
from tests.worlds import watch

WORDS = np.array(["north", "south", "west"])


def rows(count: int, seed: int, people: bool = False) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    kept = {"subject": np.array([f"{seed}-{i // 4}" for i in range(count)])} if people else {}
    return {"x": rng.normal(size=(count, 5)).astype(np.float32), "y": WORDS[rng.integers(0, 3, count)]} | kept


@pytest.fixture
def first(tmp_path: Path) -> Path:
    np.savez(tmp_path / "first.npz", **rows(400, 0))
    return tmp_path / "first.npz"


def asked(first: Path, audit: dict[str, Any], **data: Any) -> Config:
    federation = {"parties": 2, "rounds": 2}
    told = {"attacks": ["loss"], "fpr": [0.05]} | audit
    return parse({"data": {"name": "npz", "path": str(first), **data}, "federation": federation, "audit": told})


def ids(game: Game, role: Role) -> list[str]:
    return sorted(game.candidates.id[game.truth.mask(role)].tolist())


# ------------------------------------------------------------------ how many


def test_so_many_set_thresholds_and_nothing_else_changes(first: Path) -> None:
    whole, fewer, more = (
        stage(asked(first, {"calibration": {"records": n}} if n else {})).game for n in (None, 40, 60)
    )
    for role in (Role.MEMBER, Role.EVALUATION):
        assert ids(fewer, role) == ids(whole, role)
    assert len(ids(fewer, Role.CALIBRATION)) == 40
    # By hash: a larger number adds records, and takes none away.
    assert set(ids(fewer, Role.CALIBRATION)) < set(ids(more, Role.CALIBRATION)) < set(ids(whole, Role.CALIBRATION))
    assert set(fewer.candidates.party[fewer.truth.mask(Role.CALIBRATION)]) == set(whole.parties)
    assert np.array_equal(fewer.members("party-0").x, whole.members("party-0").x)


def test_one_of_each_party_at_least(first: Path) -> None:
    game = stage(asked(first, {"calibration": {"records": 2}, "fpr": []})).game
    assert sorted(game.candidates.party[game.truth.mask(Role.CALIBRATION)]) == ["party-0", "party-1"]
    for wrong in (1, 101):
        with pytest.raises(FedauditError, match=r"there are 100 for 2 parties.*Set 2 to 100"):
            stage(asked(first, {"calibration": {"records": wrong}}))


def test_people_keep_all_their_rows(tmp_path: Path) -> None:
    np.savez(tmp_path / "people.npz", **rows(400, 0, people=True))
    config = asked(tmp_path / "people.npz", {"attacks": None, "calibration": {"records": 9}, "fpr": []})
    config = parse(config.model_dump(exclude_none=True) | {"federation": {"parties": 2, "partition": "subjects"}})
    game = stage(config).game
    assert len(ids(game, Role.CALIBRATION)) == 9
    assert sorted(set(game.candidates.owner.tolist())) == list(range(len(game.candidates)))
    whose = game.candidates.rows.subject
    assert whose is not None
    assert whose.tolist() == game.candidates.id[game.candidates.owner].tolist()


# ------------------------------------------------------------------ a file of their own


def test_thresholds_come_from_their_file(first: Path, tmp_path: Path) -> None:
    other = rows(90, 1)
    np.savez(tmp_path / "other.npz", **other)
    path = str(tmp_path / "other.npz")
    whole = stage(asked(first, {})).game
    game = stage(asked(first, {"calibration": {"path": path}})).game
    known = game.truth.mask(Role.CALIBRATION)
    assert ids(game, Role.MEMBER) == ids(whole, Role.MEMBER)
    assert sorted(game.candidates.rows.x[known][:, 0].tolist()) == sorted(other["x"][:, 0].tolist())
    assert [int((game.candidates.party[known] == name).sum()) for name in game.parties] == [45, 45]
    assert (np.sort(game.candidates.id) == game.candidates.id).all()
    fewer = stage(asked(first, {"calibration": {"path": path, "records": 30}})).game
    assert set(ids(fewer, Role.CALIBRATION)) < set(ids(game, Role.CALIBRATION))
    audit = watch(prepare(asked(first, {"calibration": {"path": path}})))
    assert audit.failed == {}


def test_classes_have_the_numbers_of_the_first_file(first: Path, tmp_path: Path) -> None:
    """A file that lacks the first class would number the others anew."""
    other = rows(60, 1)
    other["y"] = WORDS[1:][np.arange(60) % 2]
    np.savez(tmp_path / "other.npz", **other)
    config = asked(first, {})
    found = read_beside(config.data, tmp_path / "other.npz", load(config.data), "audit.own.path").records
    assert sorted(set(found.y.tolist())) == [1, 2]
    of = {float(x[0]): word for x, word in zip(other["x"], other["y"], strict=True)}
    assert [WORDS[y] for y in found.y] == [of[float(x[0])] for x in found.x]
    np.savez(tmp_path / "other.npz", **(other | {"y": np.where(other["y"] == "west", "east", other["y"])}))
    with pytest.raises(FedauditError, match=r"1 values of label that data\.path has not"):
        read_beside(config.data, tmp_path / "other.npz", load(config.data), "audit.own.path")


@pytest.mark.parametrize("scaling", [{}, {"scale": False}, {"standardise": True, "limit": 100}])
def test_a_table_is_scaled_by_the_first_file(tmp_path: Path, scaling: dict[str, Any]) -> None:
    """Beside the obvious: both files as one, and the rows that came from the second."""
    rng = np.random.default_rng(3)
    lines = [
        f"{a:.3f},{b:.3f},{'ab'[i % 2]},{i % 3}" for i, (a, b) in enumerate(rng.normal([5, -900], [2, 70], (300, 2)))
    ]
    head = "height,depth,kind,label"
    (tmp_path / "one.csv").write_text("\n".join([head, *lines[:240]]))
    (tmp_path / "two.csv").write_text("\n".join([head, *lines[240:]]))
    data = {"name": "table", "path": str(tmp_path / "one.csv"), "label": "label"} | scaling
    options = parse({"data": data}).data
    first = load(options)
    found = read_beside(options, tmp_path / "two.csv", first, "audit.own.path").records
    numbers = np.array([[float(cell) for cell in line.split(",")[:2]] for line in lines])
    scaled = numbers
    if scaling.get("scale") is not False:
        scaled = (numbers - numbers[:240].mean(axis=0)) / numbers[:240].std(axis=0)
    if "standardise" in scaling:
        before = load(options.model_copy(update={"standardise": None})).records.x[:, :2]
        scaled = (scaled - before.mean(axis=0)) / before.std(axis=0)
    wanted = scaled[240:]
    assert np.allclose(np.sort(found.x[:, 0]), np.sort(wanted[:, 0]), atol=2e-5)
    assert np.allclose(np.sort(found.x[:, 1]), np.sort(wanted[:, 1]), atol=2e-5)


def test_adult_is_scaled_by_the_first_file(tmp_path: Path) -> None:
    (tmp_path / "one.data").write_text(ADULT)
    options = parse({"data": {"name": "adult", "path": str(tmp_path / "one.data")}}).data
    first = load(options)
    years = first.records.x[:, 0]
    older = [f"{int(line[:2]) + 10}{line[2:]}" for line in filter(None, ADULT.splitlines())]
    (tmp_path / "two.data").write_text("\n".join(older))
    found = read_beside(options, tmp_path / "two.data", first, "audit.own.path").records
    spread = np.std([39, 50, 38, 28])
    assert np.allclose(np.sort(found.x[:, 0]), np.sort(years) + 10 / spread, atol=1e-5)


def test_a_column_of_two_words_has_the_same_two_in_both(tmp_path: Path) -> None:
    """Else "yes" would be 1 in one file and 0 in the other."""
    rng = np.random.default_rng(3)

    def written(name: str, words: str) -> Path:
        cells = [f"{a:.3f},{words[i % len(words)]},{i % 3}" for i, a in enumerate(rng.normal(size=60))]
        (tmp_path / name).write_text("\n".join(["height,kind,label", *cells]))
        return tmp_path / name

    options = parse({"data": {"name": "table", "path": str(written("one.csv", "ny")), "label": "label"}}).data
    first = load(options)
    assert first.columns == ("height", "kind = y, not n")
    assert len(read_beside(options, written("two.csv", "yn"), first, "audit.own.path").records) == 60
    for words in ("yz", "ay", "y"):
        with pytest.raises(FedauditError, match="other columns"):
            read_beside(options, written("two.csv", words), first, "audit.own.path")


def test_what_both_files_hold_is_refused(first: Path, tmp_path: Path) -> None:
    one, other = rows(400, 0), rows(50, 1)
    np.savez(
        tmp_path / "other.npz", x=np.concatenate([other["x"], one["x"][:3]]), y=np.append(other["y"], one["y"][:3])
    )
    path = str(tmp_path / "other.npz")
    for audit in ({"calibration": {"path": path}}, {"own": {"path": path}, "adversary": "agg-sh"}):
        with pytest.raises(FedauditError, match=r"3 of 53 records of .*other\.npz are also in data\.path"):
            stage(asked(first, audit))


def test_ids_that_both_files_use_are_told_apart_from_records_that_both_hold(first: Path, tmp_path: Path) -> None:
    """Files that number their rows 0, 1, ... have no record in common."""
    np.savez(tmp_path / "numbered.npz", **rows(400, 0), id=np.arange(400))
    np.savez(tmp_path / "other.npz", **rows(50, 1), id=np.arange(390, 440))
    config = asked(tmp_path / "numbered.npz", {"calibration": {"path": str(tmp_path / "other.npz")}})
    with pytest.raises(FedauditError, match=r"10 ids occur in both .* though the contents differ\. Make them unique"):
        stage(config)
    np.savez(tmp_path / "other.npz", **rows(50, 1), id=np.arange(400, 450))
    stage(config)


def test_the_first_file_is_loaded_again_only_where_it_is_asked_for_otherwise(
    first: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez(tmp_path / "other.npz", **rows(50, 1))
    read: list[str] = []

    def counted(options: Any) -> Dataset:
        read.append(options.path.name)
        return load(options)

    monkeypatch.setattr(beside, "load", counted)
    for data, again in (({}, 0), ({"limit": 300}, 1), ({"standardise": True}, 2)):
        read.clear()
        stage(asked(first, {"calibration": {"path": str(tmp_path / "other.npz")}}, **data))
        assert sorted(read) == ["first.npz"] * again + ["other.npz"]


@pytest.mark.parametrize("tokens", [True, False])
@pytest.mark.parametrize(("x", "y", "told"), [(5, 5, ""), (5, 6, "more classes"), (6, 5, "larger numbers of tokens")])
def test_positions_have_no_more_classes_than_those_of_the_first_file(
    tmp_path: Path, tokens: bool, x: int, y: int, told: str
) -> None:
    """A model of the first file has no place for them."""

    def written(name: str, seed: int, highest_x: int, highest_y: int) -> Path:
        given = np.random.default_rng(seed).integers(0, 5, (2, 60, 8))
        given[0, 0, 0], given[1, 0, 0] = highest_x, highest_y
        kind = np.int64 if tokens else np.float32
        np.savez(tmp_path / name, x=given[0].astype(kind), y=given[1])
        return tmp_path / name

    options = parse({"data": {"name": "npz", "path": str(written("first.npz", 0, 4, 5)), "tokens": tokens}}).data
    other = written("other.npz", 1, x, y)
    if told and (tokens or y > 5):
        with pytest.raises(FedauditError, match=f"has {told} than data.path"):
            read_beside(options, other, load(options), "audit.own.path")
    else:
        assert len(read_beside(options, other, load(options), "audit.own.path").records) == 60


def test_a_model_of_labelled_tokens_knows_those_of_the_records_that_are_used(tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(0, 5, (60, 8))
    x[:, 0] = np.arange(60)  # so that few of them have small numbers only
    np.savez(tmp_path / "first.npz", x=x, y=np.arange(60) % 2)
    options = parse({"data": {"name": "npz", "path": str(tmp_path / "first.npz"), "tokens": True, "limit": 20}}).data
    first = load(options)
    most = int(first.records.x.max())
    assert most < 59
    for highest in (most, most + 1):
        np.savez(tmp_path / "other.npz", x=np.full((20, 8), highest) - np.arange(8), y=np.arange(20) % 2)
        if highest == most:
            read_beside(options, tmp_path / "other.npz", first, "audit.own.path")
        else:
            with pytest.raises(FedauditError, match="larger numbers of tokens"):
                read_beside(options, tmp_path / "other.npz", first, "audit.own.path")


def test_people_are_named_in_both_files_or_in_none(first: Path, tmp_path: Path) -> None:
    """Else the records of one person would pass for independent."""
    np.savez(tmp_path / "people.npz", **rows(200, 1, people=True))
    for one, other in ((first, tmp_path / "people.npz"), (tmp_path / "people.npz", first)):
        with pytest.raises(FedauditError, match="says whose a record is, and the other does not"):
            stage(asked(one, {"calibration": {"path": str(other)}, "unit": "record"}))


@pytest.mark.parametrize("audit", [{}, {"adversary": "agg-sh", "attacks": ["gradient-series"], "vantages": ["server"]}])
def test_other_people_only(tmp_path: Path, audit: dict[str, Any]) -> None:
    np.savez(tmp_path / "first.npz", **rows(400, 0, people=True))
    given = {"own" if audit else "calibration": {"path": str(tmp_path / "other.npz")}}
    np.savez(tmp_path / "other.npz", **(rows(40, 1) | {"subject": np.array([f"0-{i // 2}" for i in range(40)])}))
    with pytest.raises(FedauditError, match="people who are trained on or reported on"):
        stage(asked(tmp_path / "first.npz", audit | given))
    np.savez(tmp_path / "other.npz", **rows(40, 1, people=True))
    stage(asked(tmp_path / "first.npz", audit | given))


def test_other_kinds_of_files_are_refused(first: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "wide.npz", x=np.ones((20, 6)), y=np.arange(20) % 2)
    with pytest.raises(FedauditError, match=r"records of another shape than data\.path"):
        stage(asked(first, {"calibration": {"path": str(tmp_path / "wide.npz")}}))
    digits = {"data": {"name": "breast-cancer"}, "audit": {"calibration": {"path": str(first)}}}
    with pytest.raises(FedauditError, match="breast-cancer is not read from one"):
        stage(parse(digits))


def test_paths_are_beside_the_configuration(first: Path, tmp_path: Path) -> None:
    text = '[data]\nname = "npz"\npath = "first.npz"\n[audit.calibration]\npath = "other.npz"\n'
    (tmp_path / "my.toml").write_text(text)
    calibration = load_config(tmp_path / "my.toml").audit.calibration
    assert calibration is not None
    assert calibration.path == tmp_path / "other.npz"


# ------------------------------------------------------------------ an adversary's own


def test_an_aggregator_has_the_share_that_is_asked_for(first: Path) -> None:
    for share, count in ((None, 134), (0.1, 41), (0.5, 201)):  # not set: as many as one of three
        own = stage(asked(first, {"adversary": "agg-sh"} | ({"own": {"share": share}} if share else {}))).own
        assert own is not None
        assert abs(len(own) - count) <= 1
    with pytest.raises(FedauditError, match=r"audit.own.share gives \d+ records: an adversary trains on some"):
        stage(asked(first, {"adversary": "agg-sh", "own": {"share": 0.02}}))


def test_a_second_file_that_is_missing_is_told_by_its_own_key(first: Path, tmp_path: Path) -> None:
    config = asked(first, {"adversary": "agg-sh", "own": {"path": str(tmp_path / "other.npz")}})
    with pytest.raises(FedauditError, match=r"there is no \S+other\.npz\. Check audit\.own\.path"):
        stage(config)


def test_an_aggregator_has_a_file_of_its_own(first: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "other.npz", **rows(80, 1))
    seen = {"adversary": "agg-sh", "attacks": ["gradient-series"], "vantages": ["server"]}
    config = asked(first, seen | {"own": {"path": str(tmp_path / "other.npz")}})
    staged = stage(config)
    assert staged.own is not None
    assert len(staged.own) == 80
    assert len(staged.dataset.records) == 400  # nothing is set aside
    assert watch(prepare(config)).failed == {}


def test_a_file_of_its_own_is_large_enough_to_train_and_to_hold_out(first: Path, tmp_path: Path) -> None:
    """Else nothing would be held out, and the attack would see one label only."""
    for count, enough in ((19, False), (20, True)):
        np.savez(tmp_path / "other.npz", **rows(count, 1))
        for asked_for in ({"adversary": "agg-sh"}, {"attacks": ["outside-lira"]}):
            config = asked(first, asked_for | {"own": {"path": str(tmp_path / "other.npz")}})
            if enough:
                stage(config)
            else:
                with pytest.raises(FedauditError, match=r"gives 19 records: .*held out\. Give 20 or more"):
                    stage(config)


@pytest.mark.parametrize(("people", "split", "enough"), [(1, False, False), (2, False, True), (1, True, True)])
def test_a_file_of_its_own_has_people_to_hold_out(tmp_path: Path, people: int, split: bool, enough: bool) -> None:
    np.savez(tmp_path / "first.npz", **rows(400, 0, people=True))
    np.savez(tmp_path / "other.npz", **rows(40, 1), subject=np.array([f"new-{i % people}" for i in range(40)]))
    config = asked(tmp_path / "first.npz", {"adversary": "agg-sh", "own": {"path": str(tmp_path / "other.npz")}})
    config = parse(
        config.model_dump(exclude_none=True) | {"federation": {"parties": 2, "rounds": 2, "split_subjects": split}}
    )
    if enough:
        shadow = stage(config).ground.shadow
        assert shadow is not None
        assert set(shadow.game.truth.role.tolist()) == {"member", "evaluation"}
    else:
        with pytest.raises(FedauditError, match="gives records of one person, and people are not split"):
            stage(config)


def test_own_data_that_nobody_has_are_refused(first: Path) -> None:
    with pytest.raises(FedauditError, match=r"\[audit.own\] has no effect"):
        stage(asked(first, {"own": {"share": 0.2}}))
    with pytest.raises(FedauditError, match="one of the two"):
        asked(first, {"own": {}})


@pytest.mark.parametrize(("scale", "told"), [(1.0, False), (30.0, True)])
def test_thresholds_from_records_of_another_kind_are_told(
    first: Path, tmp_path: Path, scale: float, told: bool
) -> None:
    """They accuse far more outsiders than was asked for, or none: the figure at that rate means nothing then."""
    other = rows(400, 1)
    np.savez(tmp_path / "other.npz", x=other["x"] / scale, y=other["y"])
    prepared = prepare(asked(first, {"calibration": {"path": str(tmp_path / "other.npz")}}))
    watch(prepared)
    (pooled,) = [r for r in prepared.snapshot().results if (r.party, r.model, r.attack) == (None, "global", "loss")]
    found = pooled.estimates["tpr@0.05"]
    assert ("the outsiders are accused" in (found.reason or "")) == told == (found.value is None)
