"""Every reader of fedaudit, by name, with what it reads when all is well.

Whatever bytes a reader is given, it reads them or refuses them in words. Any other exception would be a fault.
"""

import io
import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.numpy import save

from fedaudit import data
from fedaudit.adversary.attacks import made
from fedaudit.config.attack_registry import ATTACKS
from fedaudit.config.registry import DATA
from fedaudit.config.schema import load_config, parse
from fedaudit.config.study import load_study
from fedaudit.data.game_file import load_game
from fedaudit.errors import FedauditError
from fedaudit.integrations import checkpoints
from fedaudit.report.html import render
from fedaudit.results import advice, document, study
from fedaudit.results.gate import parse_limit, parse_rules
from fedaudit.results.limits import party_rule
from fedaudit.results.run_errors import load_errors, save_errors
from fedaudit.results.scores import COLUMNS, estimate, read_scores, score_columns
from fedaudit.session.verify.evidence import read_claim
from fedaudit.trace import journal
from fedaudit.trace.segments import DamagedError, Part, checksum, pack_state, unpack_signals, unpack_state
from fedaudit.trace.store import Store, load_manifest
from fedaudit.types import UnitErrors

HERE = Path(__file__).parent
CORPUS = HERE / "corpus"
TESTS = HERE.parent
MADE = TESTS / "trace" / "made_by_former_version"

# What a reader may raise. A damaged file of a trace has an error of its own: its caller adds the round and goes on.
REFUSALS = (FedauditError, DamagedError)


@dataclass(frozen=True)
class Reader:
    """`read` gets the bytes and a folder of its own; `whole`: files that it reads to the end."""

    read: Callable[[bytes, Path], Any]
    whole: Callable[[], Iterable[bytes]]


def attempted(read: Callable[[], Any]) -> Any:
    """What is read, or the error that refuses it. One for users says what is wrong and what to do."""
    try:
        found = read()
    except REFUSALS as error:
        found = error
    assert not isinstance(found, FedauditError) or (found.what and found.todo)
    return found


def is_read(name: str, blob: bytes, folder: Path) -> bool:
    """Are these bytes read? Otherwise they are refused, and whatever else is raised goes on."""
    return not isinstance(attempted(lambda: READERS[name].read(blob, folder)), REFUSALS)


# ------------------------------------------------------------------ how each is read


def _file(name: str, read: Callable[[Path], Any]) -> Callable[[bytes, Path], Any]:
    """From a file of this name, alone in its folder."""

    def from_file(blob: bytes, folder: Path) -> Any:
        path = folder / name
        path.write_bytes(blob)
        return read(path)

    return from_file


def _in_folder(name: str, read: Callable[[Path], Any]) -> Callable[[bytes, Path], Any]:
    return _file(name, lambda path: read(path.parent))


def _words(read: Callable[[str], Any]) -> Callable[[bytes, Path], Any]:
    return lambda blob, _folder: read(blob.decode(errors="surrogateescape"))


def _study(path: Path) -> Any:
    (path.parent / "base.toml").write_text('[data]\nname = "digits"\n')
    return load_study(path)


def _picture(path: Path) -> Any:
    for label in ("a", "b"):
        (path.parent / label).mkdir(exist_ok=True)
        shutil.copy(path, path.parent / label / "one.png")
    return _data(name="images", size=8)(path.parent)


def _journal(path: Path) -> Any:
    """Each line as if fedaudit had written it: what a checksum would not stop."""
    lines = path.read_bytes().split(b"\n")
    sealed = []
    for number, line in enumerate(lines, start=1):
        body = line.rstrip().removesuffix(b"}") + b', "n": %d}' % number
        sealed.append(body.removesuffix(b"}") + b', "check": "' + journal._check(body).encode() + b'"}\n')
    path.write_bytes(b"".join(sealed))
    return _trace(path)


def _trace(path: Path) -> Any:
    shutil.copy(MADE / "cut" / "run.json", path.parent)
    store = Store.read(path.parent)
    told: list[Any] = [*store.damage(), *store.lineage.notes]
    for entry in store.entries()[:5]:
        try:
            store.round(entry)
        except DamagedError as error:
            told.append(error)
    return told, store.lineage.missing()[:5]


def _signals(blob: bytes, _folder: Path) -> Any:
    return unpack_signals(blob, checksum(blob), [Part("north", 2, 0.1, 0.1), Part(None, 1, 0.1, 0.1)])


def _attack(word: str) -> Any:
    """A word with a colon names a module, which would be imported."""
    return ATTACKS.explained(word) if ":" in word else made(word)


def _rule(text: str) -> Any:
    try:
        return parse_limit(text) if "<" in text else party_rule(text)
    except FedauditError:
        return parse_rules(text)


def _data(**options: Any) -> Callable[[Path], Any]:
    """As [data] of a configuration reads it."""
    return lambda path: data.load(DATA.read({"path": path, **options}))


# ------------------------------------------------------------------ what is read when all is well


def _arrays(**arrays: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def _parquet(columns: Mapping[str, Any], schema: Any = None) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns, schema=schema), sink)
    return bytes(sink.getvalue())


def _stored(*paths: str) -> Callable[[], Iterable[bytes]]:
    return lambda: [(TESTS / path).read_bytes() for path in paths]


def _texts(*texts: str) -> Callable[[], Iterable[bytes]]:
    return lambda: [text.encode() for text in texts]


def _tables() -> Iterable[bytes]:
    yield b"a,b,y\n" + b"".join(b"%d,%d.5,%s\n" % (i, i * i % 7, b"yn"[i % 2 :][:1]) for i in range(12))
    yield 'a;b;y\n1,5;"x ""y""";n\n2,5;"z\n";y\n\n3,0; z;n\n'.encode("utf-8-sig")
    yield b"a\tb\ty\r\n1\tNA\t0\r\n2\t3\t1\r\n"
    yield _parquet({"a": [1.0, 2.5, None], "b": ["u", "v", "u"], "y": [0, 1, 1]})


def _score_files() -> Iterable[bytes]:
    rows = [f"r{i},{i % 2},{i * 37 % 101 / 7:.3f},p{i // 4}" for i in range(48)]
    yield ",".join(COLUMNS).encode() + b"\n" + "\n".join(rows).encode()
    yield b"member;score\n" + b"".join(b"%d;%d,5\n" % (i % 2, i) for i in range(44))
    yield _parquet({"member": [i % 2 for i in range(44)], "score": [float(i) for i in range(44)]})


def _run_scores() -> Iterable[bytes]:
    roles = ["member", "evaluation", "calibration"] * 14
    rows = {"id": [f"r{i}" for i in range(42)], "subject": [None] * 42, "party": ["north"] * 42, "role": roles}
    more = {"attack": ["loss"] * 42, "model": ["global"] * 42, "score": [i / 7 for i in range(42)]}
    yield _parquet({**rows, **more, "reference": [False] * 42}, score_columns())


def _run_errors() -> Iterable[bytes]:
    with TemporaryDirectory() as folder:
        own = UnitErrors(np.array([f"r{i}" for i in range(42)]), np.linspace(-1, 1, 42))
        save_errors({("attribute", "local", name): own for name in ("members-auc", "blind-auc")}, Path(folder))
        yield (Path(folder) / "errors.parquet").read_bytes()


def _states() -> Iterable[bytes]:
    state: dict[str, Any] = {
        "w": np.ones((2, 3), np.float32),
        "b": np.zeros(2, np.float16),
        "n": np.array(3),
        "e": np.ones((0, 2)),
    }
    yield save(state)
    yield pack_state(state)


def _torch_files() -> Iterable[bytes]:
    import torch

    buffer = io.BytesIO()
    torch.save({"state_dict": {"w": torch.ones(2, 3)}}, buffer)
    yield buffer.getvalue()


def _games() -> Iterable[bytes]:
    roles = np.array(["member", "evaluation", "calibration"] * 4)
    rows = {"x": np.arange(24.0).reshape(12, 2), "y": np.arange(12) % 2, "party": np.array(["a", "b"] * 6)}
    yield _arrays(**rows, role=roles)
    yield _arrays(**rows, role=roles, id=np.arange(12), subject=np.array([f"p{i // 2}" for i in range(12)]))


def _data_arrays() -> Iterable[bytes]:
    yield _arrays(x=np.arange(24.0).reshape(12, 2), y=np.arange(12) % 2)
    yield _arrays(x=np.zeros((4, 8, 8), np.uint8), y=np.array(["u", "v"] * 2), id=np.arange(4), attribute=np.eye(4)[0])


def _pictures() -> Iterable[bytes]:
    from PIL import Image

    for kind, mode in (("PNG", "L"), ("PNG", "RGBA"), ("PNG", "P"), ("JPEG", "RGB")):
        buffer = io.BytesIO()
        Image.new(mode, (9, 8)).save(buffer, kind)
        yield buffer.getvalue()


def _journals() -> Iterable[bytes]:
    """Without numbers and checksums, which are added anew."""
    for kept in ("signals", "snapshots", "cut"):
        found = [
            event for event in journal.read(MADE / kept / journal.JOURNAL).events if event["event"] != journal.EVENT
        ]
        lines = [json.dumps({key: value for key, value in event.items() if key != "n"}) for event in found]
        yield "\n".join(lines).encode()


def _signal_files() -> Iterable[bytes]:
    columns = {"id": ["a", "b", "a"], "round": [1] * 3, "party": ["north", "north", None]}
    yield _parquet(
        {
            **columns,
            "signal:loss": [0.1, 0.2, None],
            "signal:few": pa.array([[1.0, 2.0]] * 3, pa.list_(pa.float64(), 2)),
        }
    )


CLAIM = '[claim]\nepsilon = 3.0\ndelta = 1e-5\nclip = 1.0\nnoise = 2.0\nwhere = "update"\nunit = "record"\n'
CONFIGS = (
    '[data]\nname = "digits"\n[federation]\nparties = 2\nrounds = 3\npartition = "dirichlet"\nbeta = 0.5\n[audit]\n'
    'attacks = ["loss", { name = "fta", signal = "loss" }]\nfpr = [0.01]\n[[defences]]\nname = "dp-sgd"\nclip = 1.0\n',
    '[data]\nname = "table"\npath = "x.csv"\nlabel = "y"\n[model]\nname = "mlp"\nhidden = [8]\n[audit.tear]\n'
    'bounds = [0.0, 1.0]\n[audit.canary]\n[audit.fusion]\nattacks = ["loss", "entropy"]\nweights = [1, 2]\n',
)
STUDIES = ('base = "base.toml"\n[grid]\n"federation.parties" = [2, 4]\n"federation.lr, federation.seed" = [1]\n',)
RULES = (
    "tpr@0.01 > 0.05",
    "auc[attack=fta+signal=loss, vantage=client, party=*] >= 0.6 and accuracy > 0.5",
    "auc < 0.6",
)
WORDS = (
    "fta+signal=loss+degree=2",
    "fta-confidence",
    "lira",
    "fusion+attacks=loss~entropy",
    "tear",
    "package:Name+a=1",
)
ADVICE = advice.Advice(
    schema=1,
    limit="auc < 0.6",
    confidence=0.95,
    rungs=(10,),
    tried=(),
    confirmed=(),
    recommended=None,
    nearest=None,
    sentences=("Nothing is advised.",),
    cost=None,
)
STUDY = study.StudyFile(
    schema=1, base={}, grid={"a.b": (2,)}, cells=(study.ListedCell("abc", {"a.b": 2}),), groups=(("abc",),)
)
PLAYS = json.dumps({"play|ROLE": ["what is said, and said again"], "play|OTHER": ["and answered at length"]})
DOCUMENTS = [f"results/stored/{name}.json" for name in ("people", "private", "canaries", "failed")]


def _as_bytes(value: Any) -> Callable[[], Iterable[bytes]]:
    from fedaudit.results.schema import as_text

    return lambda: [as_text(value).encode()]


def _settings(text: str) -> Any:
    return parse({}, text.splitlines())


READERS: Mapping[str, Reader] = {
    "config": Reader(_file("c.toml", load_config), _texts(*CONFIGS)),
    "set": Reader(_words(_settings), _texts('federation.parties=3\naudit.attacks=["loss"]\ndata.name=digits')),
    "study-grid": Reader(_file("s.toml", _study), _texts(*STUDIES)),
    "claim": Reader(_file("claim.toml", lambda path: read_claim(path, 3)), _texts(CLAIM)),
    "table": Reader(_file("t.csv", _data(name="table", label="y", impute="median")), _tables),
    "scores": Reader(_file("s.csv", lambda path: estimate(path, None, 0.95, 1e-5)), _score_files),
    "scores-of-run": Reader(_file("scores.parquet", read_scores), _run_scores),
    "errors-of-run": Reader(_file("errors.parquet", lambda path: load_errors(path.parent)), _run_errors),
    "npz": Reader(_file("d.npz", _data(name="npz")), _data_arrays),
    "game": Reader(_file("g.npz", load_game), _games),
    "picture": Reader(_file("picture", _picture), _pictures),
    "plays": Reader(_file("p.json", _data(name="shakespeare", length=4)), _texts(PLAYS)),
    "safetensors": Reader(_file("r1.safetensors", lambda path: checkpoints.read(path, False)), _states),
    "torch": Reader(_file("r1.pt", lambda path: checkpoints.read(path, True)), _torch_files),
    "model": Reader(lambda blob, _folder: unpack_state(blob, ""), _states),
    "signals": Reader(_signals, _signal_files),
    "journal": Reader(_file("journal.jsonl", _trace), _stored("trace/made_by_former_version/cut/journal.jsonl")),
    "journal-lines": Reader(_file("journal.jsonl", _journal), _journals),
    "manifest": Reader(_in_folder("run.json", load_manifest), _stored("trace/made_by_former_version/cut/run.json")),
    "results": Reader(_in_folder("results.json", lambda folder: render(document.load(folder))), _stored(*DOCUMENTS)),
    "study": Reader(_in_folder("study.json", study.load_file), _as_bytes(STUDY)),
    "advice": Reader(_in_folder("advice.json", advice.load), _as_bytes(ADVICE)),
    "rule": Reader(_words(_rule), _texts(*RULES)),
    "attack": Reader(_words(_attack), _texts(*WORDS)),
}
