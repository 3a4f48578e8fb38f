"""A promise for records says what it promises a person: in results.json, on the page, in `verify` and in `compare`."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedaudit.cli.judging import say_comparison
from fedaudit.cli.terminal import console
from fedaudit.config.schema import Config, parse
from fedaudit.defences import build
from fedaudit.privacy.accounting import per_person
from fedaudit.privacy.statement import Group, PerPerson, Process
from fedaudit.report.html import render
from fedaudit.report.pages import comparison_page
from fedaudit.results.compare import compare
from fedaudit.results.document import load
from fedaudit.session.replay import replay
from fedaudit.session.run import run
from fedaudit.session.verify import Check, verify
from fedaudit.types import Records
from tests import sealed
from tests.defences.test_defences import ask, records, setting
from tests.worlds import silent

# ------------------------------------------------------------------ what one person has


def people_of(name: str, sources: dict[str, Records]) -> list[tuple[int, float, int, bool]]:
    where = replace(setting(), sources={party: partial(lambda own: own, own) for party, own in sources.items()})
    (promise,) = build([ask(name=name, noise=1.0, clip=1.0)], where).promises
    return [(g.size, g.process.rate, g.process.releases, g.replaced) for g in promise.people]


def whose(subject: list[str]) -> Records:
    return replace(records(0, len(subject)), subject=np.array(subject))


NOBODY = replace(records(), subject=None)


def test_dp_sgd_knows_what_one_person_has_in_all_parties() -> None:
    """Batches of 8: 8 of 16 in two steps, 8 of 40 in five."""
    small, large = whose([*"aab"] + [f"s{i}" for i in range(13)]), whose([*"cccc"] + [f"l{i}" for i in range(36)])
    assert people_of("dp-sgd", {"small": small, "large": large}) == [(4, 0.2, 5, False), (2, 0.5, 2, False)]
    both = whose([*"aaab"] + [f"l{i}" for i in range(36)])  # three more of one person in the other party
    assert people_of("dp-sgd", {"small": small, "large": both}) == [(5, 0.5, 5, False)]
    assert people_of("dp-sgd", {"small": NOBODY, "large": NOBODY}) == []


def test_dp_fedavg_knows_in_how_many_parties_one_person_is() -> None:
    alone, other, shared = whose(["a"] * 8), whose(["b"] * 8), whose(["a"] * 4 + ["c"] * 4)
    assert people_of("dp-fedavg", {"p": alone, "q": other}) == [(1, 1.0, 1, False)]
    assert people_of("dp-fedavg", {"p": alone, "q": alone}) == [(2, 1.0, 1, False)]
    assert people_of("dp-fedavg", {"p": alone, "q": shared}) == [(2, 1.0, 1, True)]
    assert people_of("dp-fedavg", {"p": NOBODY, "q": NOBODY}) == []
    assert people_of("higradavg", {"p": alone, "q": shared}) == []  # its promise is for people as it is


# ------------------------------------------------------------------ where it is said


def visits(folder: Path, noise: float) -> Config:
    """240 people with three visits each."""
    rng = np.random.default_rng(0)
    subject = np.repeat(np.arange(240), 3)
    x = rng.normal(size=(720, 6)).astype(np.float32)
    np.savez(folder / "visits.npz", x=x, y=(x[:, 0] > 0).astype(int), subject=subject)
    return parse({
        "data": {"name": "npz", "path": str(folder / "visits.npz"), "subject_key": "subject"},
        "federation": {"parties": 2, "rounds": 3, "batch_size": 16, "members": 0.3, "nonmembers": 0.3},
        "model": {"hidden": [8]},
        "audit": {"attacks": ["loss"], "keep": "snapshots"},
        "defences": [{"name": "dp-sgd", "noise": noise, "clip": 1.0}],
    })  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """One with enough noise for three visits, and one without."""
    folder = tmp_path_factory.mktemp("visits")
    for name, noise in (("much", 3.0), ("little", 0.4)):
        run(visits(folder, noise), folder / name, silent, tell=lambda line: None)
    return folder / "much", folder / "little"


def stated(folder: Path) -> PerPerson:
    claim = load(folder).run.guarantee
    assert claim is not None
    assert claim.per_person is not None
    return claim.per_person


def test_results_and_page_say_it(runs: tuple[Path, Path], tmp_path: Path) -> None:
    much, little = map(stated, runs)
    document = load(runs[0])
    claim = document.run.guarantee
    assert claim is not None
    process: Process = claim.process
    assert much == per_person([Group(process, 3)], 3, 1e-5)  # both parties draw alike
    assert (much.epsilon or 0) > 3 * (claim.epsilon or 0)
    assert (little.k, little.epsilon) == (3, None)
    replay(runs[0], [], tmp_path / "again", silent)
    assert stated(tmp_path / "again") == much
    for folder, words in ((runs[0], much.text), (runs[1], "no promise, because one person has up to 3 records")):
        page = render(load(folder))
        assert "<dt>Per person</dt>" in page
        assert words in page
    plain = document.to_json()
    del plain["run"]["guarantee"]["per_person"]
    assert "not stated in these results" in render(type(document).from_json(plain))


def eleventh(found: list[Check]) -> Check:
    (check,) = (one for one in found if one.id == "D11")
    return check


def test_D11_verify_says_it_and_checks_what_is_stated(runs: tuple[Path, Path], tmp_path: Path) -> None:
    much, little = (eleventh(verify(folder, None)) for folder in runs)
    assert (much.outcome, little.outcome) == ("PASS", "PASS")
    assert much.evidence.startswith(stated(runs[0]).text)
    assert little.evidence.endswith("no promise is stated")
    plain = json.loads((runs[0] / "results.json").read_text())
    honest = plain["run"]["guarantee"]["per_person"]
    for lie in ({"epsilon": 0.5 * honest["epsilon"]}, {"delta": 1e-9}, None):
        claim = plain["run"]["guarantee"] | {"per_person": None if lie is None else honest | lie}
        claim = {key: value for key, value in claim.items() if value is not None}
        sealed.write(runs[0] / "results.json", json.dumps(plain | {"run": plain["run"] | {"guarantee": claim}}))
        assert eleventh(verify(runs[0], None)).outcome == "FAIL"
    sealed.write(runs[0] / "results.json", json.dumps(plain))
    config = tmp_path / "c.toml"
    config.write_text(TOML.format(path=runs[0].parent / "visits.npz"))
    assert eleventh(verify(config, None)).evidence.startswith(stated(runs[0]).text)


TOML = """
data = {{name = "npz", path = "{path}", subject_key = "subject"}}
federation = {{parties = 2, rounds = 3, batch_size = 16, members = 0.3, nonmembers = 0.3}}
model = {{hidden = [8]}}
audit = {{attacks = ["loss"]}}
defences = [{{name = "dp-sgd", noise = 3.0, clip = 1.0}}]
"""


def test_compare_says_it(runs: tuple[Path, Path]) -> None:
    found = compare(runs)
    assert [row.per_person for row in found.rows] == [stated(folder) for folder in runs]
    with console.capture() as printed:
        say_comparison(found)
    shown: list[Any] = [printed.get(), comparison_page(found)]
    for text in shown:
        assert f"per person: {stated(runs[0]).text}" in text
        assert "per person: no promise, because one person has up to 3 records" in text
