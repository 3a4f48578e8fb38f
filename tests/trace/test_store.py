"""A trace on disk: what goes in comes out bit for bit, and what was damaged, repeated or contradicted is told."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedaudit.errors import FedauditError
from fedaudit.trace import journal
from fedaudit.trace.lineage import Lineage
from fedaudit.trace.segments import DamagedError, digest, pack_signals, pack_state, unpack_state
from fedaudit.trace.store import Store, safe_name
from fedaudit.types import Measured, Moment, Observation, Round, State, Trained
from fedaudit.words import all_words, spans
from tests import sealed

HOSTILE = ["../../etc/passwd", "a/b", "", "B", "b", "CON", "x\x00y", "<script>", "é" * 200, "\ud800", "party-0", "~"]


def model(seed: float) -> State:
    rng = np.random.default_rng(int(seed * 1000))
    return {
        "z.weight": rng.normal(size=(3, 2)).astype(np.float32),
        "a.half": rng.normal(size=4).astype(np.float16),
        "steps": np.array(int(seed), np.int64),  # an integer buffer without a shape
        "flags": np.array([True, False]),
        "empty": np.zeros((0, 3)),
        "turned": rng.normal(size=(4, 5)).T,  # not contiguous
        "big-endian": rng.normal(size=2).astype(">f8"),
    }


def round_(index: int, start: float | None = None, end: float | None = None, parties: Any = ("A", "B")) -> Round:
    start, end = index - 1 if start is None else start, index if end is None else end
    sent = {name: Trained(model(100 * index + i), 10 + i, 0.25 + i) for i, name in enumerate(parties)}
    return Round(index, model(start), sent, model(end))


def seen(index: int, parties: Any = ("A", "B")) -> Observation:
    rng = np.random.default_rng(index)
    odd = np.array([np.nan, np.inf, -0.0, 5e-324])
    of: dict[str | None, Measured] = {}
    for key in (None, *parties):
        ids = np.array([f"id {i} é\n" for i in range(7)])
        values = {"loss": np.concatenate([odd, rng.normal(size=3)]), "pair": rng.normal(size=(7, 2))}
        if key == "A":
            values["only-a"] = rng.normal(size=7)
        spent = {"loss": rng.random(), f"only {key}": rng.random()}
        of[key] = Measured(ids, values, sum(spent.values()), rng.random(), spent=spent)
    return Observation(index, of)


def create(path: Path, keep: str = "snapshots") -> Store:
    return Store.create(path, {"keep": keep})


def filled(path: Path, keep: str = "snapshots", rounds: int = 4) -> Path:
    store = create(path, keep)
    for index in range(1, rounds + 1):
        store.append(round_(index), seen(index))
    store.close()
    return path


def same_state(a: State, b: State) -> bool:
    return list(a) == list(b) and all(
        np.array_equal(a[k], b[k]) and a[k].shape == b[k].shape and a[k].dtype == b[k].dtype.newbyteorder("=")
        for k in a
    )


def same_bits(a: Observation | None, b: Observation) -> bool:
    assert a is not None
    return list(a.of) == list(b.of) and all(
        list(x.values) == list(y.values)
        and all(x.values[k].tobytes() == y.values[k].tobytes() for k in x.values)
        and [x.seconds, x.epoch_seconds, x.spent, *x.id] == [y.seconds, y.epoch_seconds, y.spent, *y.id]
        for x, y in zip(a.of.values(), b.of.values(), strict=True)
    )


# ------------------------------------------------------------------ what goes in comes out


def test_rounds_and_signals_come_back_bit_for_bit(tmp_path: Path) -> None:
    store = Store.read(filled(tmp_path))
    assert [r.index for r in store.rounds()] == [1, 2, 3, 4]
    for stored, entry in zip(store.rounds(), store.entries(), strict=True):
        given = round_(stored.index)
        assert same_state(stored.broadcast, given.broadcast)
        assert same_state(stored.aggregate, given.aggregate)
        assert list(stored.sent) == ["A", "B"]
        for name, trained in stored.sent.items():
            assert same_state(trained.state, given.sent[name].state)
            assert (trained.examples, trained.epoch_seconds) == (
                given.sent[name].examples,
                given.sent[name].epoch_seconds,
            )
        assert same_bits(store.observation(entry), seen(stored.index))
    assert store.warnings() == []


def test_without_snapshots_only_the_newest_model_is_kept(tmp_path: Path) -> None:
    store = Store.read(filled(tmp_path, "signals"))
    assert [p.name for p in tmp_path.glob("**/*.safetensors")] == ["model-00004.safetensors"]
    released = store.released()
    assert released is not None
    assert same_state(released, model(4))
    assert list(store.rounds()) == []
    assert same_bits(store.observation(store.entries()[2]), seen(3))


def test_a_broadcast_that_is_an_earlier_aggregate_is_not_stored_twice(tmp_path: Path) -> None:
    filled(tmp_path)
    assert [p.parent.name for p in tmp_path.glob("rounds/*/broadcast.safetensors")] == ["00001"]


def test_B18_hostile_party_names_stay_inside_and_apart(tmp_path: Path) -> None:
    assert len({safe_name(name).lower() for name in HOSTILE}) == len(HOSTILE)
    store = create(tmp_path / "run")
    store.append(round_(1, parties=HOSTILE), seen(1, HOSTILE))
    store.close()
    assert {p.name for p in tmp_path.iterdir()} == {"run"}
    (back,) = Store.read(tmp_path / "run").rounds()
    assert list(back.sent) == HOSTILE
    for name, trained in back.sent.items():
        assert same_state(trained.state, round_(1, parties=HOSTILE).sent[name].state)


def test_a_probe_round_is_recorded_and_releases_nothing(tmp_path: Path) -> None:
    store = create(tmp_path, "signals")
    store.append(round_(1), seen(1))
    store.append(Round(2, model(1), {}, model(77), commit=False))
    assert store.append(round_(3, start=1), seen(3)) == "new"
    store.close()
    assert store.lineage.newest == 3
    assert store.warnings() == []


# ------------------------------------------------------------------ repeated, late, contradictory, going back


def test_F5_the_same_round_again_is_ignored_and_another_answer_is_a_conflict(tmp_path: Path) -> None:
    store = create(tmp_path)
    assert store.append(round_(1), seen(1)) == "new"
    before = (tmp_path / "journal.jsonl").read_bytes()
    assert store.append(round_(1), seen(1)) == "repeated"
    assert (tmp_path / "journal.jsonl").read_bytes() == before

    other = round_(1)
    changed = Round(1, other.broadcast, {**other.sent, "B": Trained(model(999), 11, 0.1)}, other.aggregate)
    assert store.append(changed) == "changed"
    assert store.append(changed) == "repeated"  # the conflict is known by now
    store.close()
    store = Store.read(tmp_path)
    (back,) = store.rounds()
    assert same_state(back.sent["B"].state, other.sent["B"].state)
    assert all_words(store.warnings()) == [
        "Round 1: party 'B' answered twice, with different models. The first answer counts."
    ]
    assert len(list(tmp_path.glob("rounds/00001/*conflict*"))) == 1


def test_F5_a_late_party_is_added_and_a_missing_one_is_absent(tmp_path: Path) -> None:
    store = create(tmp_path)
    whole = round_(1)
    early = Round(1, whole.broadcast, {"A": whole.sent["A"]}, whole.aggregate)
    store.append(early, seen(1, ["A"]))
    assert list(Store.read(tmp_path).entries()[0].parties) == ["A"]
    assert store.append(whole) == "changed"
    store.close()
    (back,) = Store.read(tmp_path).rounds()
    assert same_state(back.sent["B"].state, whole.sent["B"].state)


def test_F6_rounds_nobody_recorded_are_a_gap(tmp_path: Path) -> None:
    store = create(tmp_path, "signals")
    store.append(round_(1))
    assert store.append(round_(5)) == "new"  # its start is unknown, but so is what came before
    store.close()
    assert all_words(store.warnings()) == ["There is no record of rounds 2-4: a gap, not zero."]


@pytest.mark.parametrize("keep", ["signals", "snapshots"])
def test_F7_a_server_that_goes_back_opens_a_branch(tmp_path: Path, keep: str) -> None:
    store = create(tmp_path, keep)
    for index in range(1, 6):
        store.append(round_(index), seen(index))
    assert store.append(round_(3, start=2, end=30), seen(13)) == "branch"  # again from the model of round 2
    assert store.append(round_(4, start=30, end=40), seen(14)) == "new"
    assert store.append(round_(4), seen(4)) == "repeated"  # a straggler of the branch left behind
    assert store.append(round_(5, start=2, end=50), seen(15)) == "branch"  # the numbers go on, the model goes back
    assert store.append(round_(6, start=12345, end=60), seen(16)) == "branch"  # from nowhere
    store.close()
    store = Store.read(tmp_path)
    assert [(e.round, e.branch) for e in store.entries()] == [(1, 0), (2, 0), (5, 2), (6, 3)]
    assert all(same_bits(store.observation(e), seen(i)) for e, i in zip(store.entries(), (1, 2, 15, 16), strict=True))
    told = all_words(store.warnings())
    assert len(told) == 3
    assert told[0].startswith("Round 3 started from the model of round 2, not from the last one")
    assert "rounds 3-5 are left out" in told[0]
    assert "Round 6 started from an unknown model" in told[2]


def test_where_a_round_belongs_is_looked_up_as_it_would_be_searched() -> None:
    """200 deliveries: in order, repeated, and from older models."""
    rng, lineage = np.random.default_rng(0), Lineage()
    events: list[tuple[int, str, str]] = []
    models = ["start"]
    for n in range(200):
        again = bool(events) and rng.random() < 0.2
        moment = Moment(int(rng.integers(1, lineage.newest + 3)) if rng.random() < 0.2 else lineage.newest + 1)
        start = models[int(rng.integers(len(models)))] if rng.random() < 0.2 else models[-1]
        made = events[int(rng.integers(len(events)))] if again else (moment.round, start, f"m{n}")
        index, broadcast, aggregate = made
        place = lineage.place(Moment(index), broadcast, aggregate)
        same = [entry for entry in lineage.entries.values() if (entry.round, entry.broadcast, entry.aggregate) == made]
        assert place.known is (same[0] if same else None)
        if place.known:
            continue
        lineage.apply({
            "event": "round", "round": index, "branch": lineage.branch + place.opens, "opens": place.opens,
            "origin": place.origin, "commit": bool(rng.random() < 0.8), "broadcast": broadcast, "aggregate": aggregate,
            "parties": {}, "kept": False, "signals": None, "names": [], "parts": [],
        })  # fmt: skip
        events.append(made)
        models.append(aggregate)
        assert [*lineage.current] == sorted(lineage.current)
        assert lineage.newest == max(lineage.current)
        kept = [entry for entry in lineage.current.values() if entry.commit]
        assert lineage.released is max(kept, key=lambda entry: entry.round, default=None)
    assert lineage.branch > 5
    assert len(lineage.entries) > 100


def test_sentences_about_rounds() -> None:
    assert [spans(r) for r in ([3], [3, 4, 5], [1, 3, 4, 9])] == ["round 3", "rounds 3-5", "rounds 1, 3-4 and 9"]


# ------------------------------------------------------------------ killed, damaged, contested


def test_F1_K33_killed_at_every_byte_of_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever part of the last lines reached the disk: the rounds before are there, and writing goes on."""
    monkeypatch.setattr(time, "time", lambda: 1.0)  # it is part of a line
    whole = (filled(tmp_path, "signals", rounds=3) / "journal.jsonl").read_bytes()
    ends = [i + 1 for i, byte in enumerate(whole) if byte == ord("\n")]
    assert len(ends) == 4  # the checksum of run.json, and three rounds
    cuts = {0, 1, len(whole)} | {end + d for end in ends for d in (-2, -1, 0, 1)} | set(range(0, len(whole), 97))
    for cut in sorted(c for c in cuts if 0 <= c <= len(whole)):
        (tmp_path / "journal.jsonl").write_bytes(whole[:cut])
        complete = sum(end <= cut for end in ends[1:])
        store = Store.resume(tmp_path)
        assert store.lineage.newest == complete
        assert store.torn == (cut not in (0, *ends))
        for index in range(complete + 1, 4):
            assert store.append(round_(index), seen(index)) == "new"
        store.close()
        # Costs are part of the line, and the signals are drawn by round: the journal ends up the same to the byte.
        assert (tmp_path / "journal.jsonl").read_bytes() == whole


def test_F12_a_flipped_byte_is_told_with_its_round(tmp_path: Path) -> None:
    filled(tmp_path)
    for path in (tmp_path / "signals/00002.parquet", tmp_path / "rounds/00003/party-A~559aead08264d579.safetensors"):
        blob = bytearray(path.read_bytes())
        blob[-40] ^= 1
        path.write_bytes(blob)
    store = Store.read(tmp_path)
    entries = store.entries()
    with pytest.raises(DamagedError, match=r"signals/00002.parquet has another checksum"):
        store.observation(entries[1])
    with pytest.raises(DamagedError, match=r"00003/party-A~.* has another checksum"):
        store.round(entries[2])
    assert same_bits(store.observation(entries[2]), seen(3))
    assert store.round(entries[1]).index == 2


def test_F12_every_byte_of_a_model_counts() -> None:
    blob, expected = pack_state(model(1)), digest(model(1))
    assert same_state(unpack_state(blob, expected), model(1))
    for spot in range(0, len(blob), 7):
        damaged = bytearray(blob)
        damaged[spot] ^= 0x10
        try:
            back = unpack_state(bytes(damaged), expected)
        except DamagedError:
            continue
        assert digest(back) == expected  # white space in the header: nothing that matters
    with pytest.raises(DamagedError, match="safetensors"):
        unpack_state(blob[: len(blob) // 2], expected)


def test_F12_a_damaged_journal_line_is_passed_over_and_named(tmp_path: Path) -> None:
    path = filled(tmp_path, "signals") / "journal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    lines[2] = lines[2].replace(b'"commit": true', b'"commit": trXe')
    path.write_bytes(b"".join(lines))
    store = Store.resume(tmp_path)
    assert [e.round for e in store.entries()] == [1, 3, 4]
    assert all_words(store.warnings()) == [
        "Line 3 of journal.jsonl is damaged and was skipped.",
        "There is no record of round 2: a gap, not zero.",
    ]
    assert store.append(round_(5), seen(5)) == "new"
    store.close()


def test_B17_nothing_executable_and_nothing_huge_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pickle

    filled(tmp_path)
    bomb = pickle.dumps({"loss": [0.0]})
    (tmp_path / "signals/00001.parquet").write_bytes(bomb)
    (tmp_path / "rounds/00001/aggregate.safetensors").write_bytes(bomb)
    store = Store.read(tmp_path)
    for read in (store.observation, store.round):
        with pytest.raises(DamagedError):
            read(store.entries()[0])
    with pytest.raises(DamagedError, match="safetensors"):
        unpack_state((2**62).to_bytes(8, "little") + b"{}", "")
    monkeypatch.setattr("fedaudit.trace.segments.MAX_BYTES", 100)
    with pytest.raises(DamagedError, match="larger than"):
        store.observation(store.entries()[1])


def test_B17_a_journal_cannot_name_files(tmp_path: Path) -> None:
    path = filled(tmp_path / "run", "signals", rounds=1) / "journal.jsonl"
    first, line = path.read_bytes().splitlines(keepends=True)
    event = json.loads(line)
    del event["check"]
    path.write_bytes(first + journal.encode(2, {**event, "round": "../../../etc/passwd"}))
    store = Store.read(tmp_path / "run")
    assert store.entries() == []
    assert store.damaged_lines == [2]


def test_F16_a_newer_schema_is_refused(tmp_path: Path) -> None:
    filled(tmp_path)
    manifest = json.loads((tmp_path / "run.json").read_text())
    sealed.write(tmp_path / "run.json", json.dumps({**manifest, "schema": 2, "attacks": 7}))
    for opens in (Store.read, Store.resume):
        with pytest.raises(FedauditError, match="schema 2") as caught:
            opens(tmp_path)
        assert caught.value.exit_code == 5
    sealed.write(tmp_path / "run.json", "{")
    with pytest.raises(FedauditError, match="not written by fedaudit"):
        Store.read(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"schema": 0},
        {"schema": -5},
        {"schema": "1"},
        {"schema": True},
        {"notices": 7},
        {"notices": [7]},
        {"attacks": {"a": 1}},
        {"config": []},
        {"weights_per_member": {"local": "many"}},
        {"guarantee": ["all"]},
        {"keep": None},
    ],
)
def test_B17_a_manifest_of_another_kind_is_refused_in_words(tmp_path: Path, change: dict[str, Any]) -> None:
    filled(tmp_path)
    manifest = json.loads((tmp_path / "run.json").read_text())
    sealed.write(tmp_path / "run.json", json.dumps({**manifest, **change}))
    with pytest.raises(FedauditError, match="not written by fedaudit, or is damaged") as caught:
        Store.read(tmp_path)
    assert caught.value.exit_code == 5


def test_F10_one_writer_and_a_dead_one_does_not_block(tmp_path: Path) -> None:
    filled(tmp_path)
    code = (
        "import sys, time; from pathlib import Path; from fedaudit.trace.store import Store\n"
        "store = Store.resume(Path(sys.argv[1])); print('open', flush=True); time.sleep(60)"
    )
    other = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "open\n"
        with pytest.raises(FedauditError, match=f"process {other.pid}"):
            Store.resume(tmp_path)
        assert Store.read(tmp_path).lineage.newest == 4  # readers need no lock
    finally:
        os.kill(other.pid, signal.SIGKILL)
        other.communicate()
    Store.resume(tmp_path).close()


def test_what_a_killed_writer_left_half_written_is_swept_away(tmp_path: Path) -> None:
    filled(tmp_path, "signals")
    (tmp_path / "signals/.tmp-00005.parquet.99").write_bytes(b"half")
    store = Store.resume(tmp_path)
    store.close()
    assert not list(tmp_path.rglob(".tmp-*"))


def test_a_failed_write_leaves_a_whole_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = create(tmp_path, "signals")
    store.append(round_(1), seen(1))
    before = (tmp_path / "journal.jsonl").read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            store.append(round_(2), seen(2))
        with pytest.raises(OSError, match="No space left"):
            store.resumed()
    assert (tmp_path / "journal.jsonl").read_bytes() == before
    assert not list(tmp_path.rglob(".tmp-*"))
    assert store.append(round_(2), seen(2)) == "new"
    store.close()
    assert Store.read(tmp_path).lineage.newest == 2


def test_packing_is_deterministic_and_models_are_told_apart() -> None:
    assert pack_signals(3, seen(3).of) == pack_signals(3, seen(3).of)
    states = [model(1), model(2), {**model(1), "extra": np.zeros(1)}, {"w": np.zeros(2)}, {"w": np.zeros((2, 1))}]
    digests = [digest(s) for s in states]
    assert len(set(digests)) == len(digests)
    assert digest(dict(reversed(list(model(1).items())))) == digest(model(1))
