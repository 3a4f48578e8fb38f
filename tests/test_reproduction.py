"""The papers' claims: every one can be tested as it is written down, and is decided as it says."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from docs import make_reproduction
from docs.make_reproduction import CONFIRMED, LEAST, NOT_RUN, OPPOSITE, UNDECIDED, apart, configured, holds
from docs.reproduction_claims import CLAIMS, FILTER, FILTER_OF_PEOPLE, SETTINGS, Above, Claim, Of, Within
from fedaudit.types import Estimate
from tests.worlds import in_turn

SEEDS = range(LEAST)
TESTED = [claim for claim in CLAIMS if isinstance(claim, Claim)]


def figures(claim: Claim) -> list[Of]:
    tests = [[test.first, test.second] if isinstance(test, Above) else [test.of] for test in claim.tests]
    return [*(of for each in tests for of in each), *claim.beside]


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_is_a_configuration_and_asks_for_all_that_is_looked_at(name: str) -> None:
    config = configured(name, 2, Path("nowhere"))
    assert config.federation.seed == 2
    assert name not in ("subjects-A", "subjects-C", "subjects-flat", "subjects-F") or config.data.data_seed == 2  # type: ignore[attr-defined]
    asked = {str(name) for name in config.audit.attacks or ()} | ({"attribute"} if config.audit.attribute else set())
    wanted = {of.attack for claim in TESTED for of in figures(claim) if of.setting == name}
    assert wanted
    assert wanted <= asked
    assert asked & {FILTER, FILTER_OF_PEOPLE} or config.defences or name in ("roles", "writers")


def test_a_run_that_fails_is_told_and_the_page_is_written_after_each_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [name for name, setting in SETTINGS.items() if not setting.data][:2]
    trained, pages = list[str](), list[int]()

    def run(_: Any, out: Path, *__: Any, **___: Any) -> None:
        trained.append(out.name)
        if out.name == f"{names[0]}-{SEEDS[0]}":
            raise MemoryError

    monkeypatch.setattr(make_reproduction, "RUNS", tmp_path)
    monkeypatch.setattr(make_reproduction, "run", run)
    monkeypatch.setattr(make_reproduction, "work", in_turn)
    monkeypatch.setattr(make_reproduction, "write_page", lambda: pages.append(len(trained)))
    make_reproduction.train_all(names, tmp_path / "data", 1)
    assert trained == [f"{name}-{seed}" for seed in SEEDS for name in names]
    assert pages == [len(names) * place for place in range(1, len(SEEDS) + 1)]
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{names[0]}, seed {SEEDS[0]}: MemoryError")
    assert second.startswith(f"{names[1]}, seed {SEEDS[0]}: done; 2 of {len(trained)} after")


def test_a_page_that_is_cut_off_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(make_reproduction, "RUNS", tmp_path)
    monkeypatch.setattr(make_reproduction, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(make_reproduction, "train_all", interrupted)
    monkeypatch.setattr("sys.argv", ["make_reproduction"])
    with pytest.raises(KeyboardInterrupt):
        make_reproduction.main()
    assert "## Settings" in (tmp_path / "page.md").read_text()


def estimate(value: float, half: float) -> Estimate:
    return Estimate("auc", value, value - half, value + half, 0.95, "", "measured", 100, 100)


@pytest.mark.parametrize(
    ("values", "verdict"), [((0.2, 0.05), CONFIRMED), ((0.2, 0.3), UNDECIDED), ((-0.2, 0.1), OPPOSITE), (None, NOT_RUN)]
)
def test_a_claim_holds_only_with_the_whole_interval(
    values: tuple[float, float] | None, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = estimate(*values) if values else None
    monkeypatch.setattr(make_reproduction, "difference", lambda _: found)
    monkeypatch.setattr(make_reproduction, "mean", lambda _: found)
    monkeypatch.setattr(make_reproduction, "seeds", lambda _: LEAST)
    above, within = Above(Of("a", "b"), Of("a", "c")), Within(Of("a", "b"), 0.1, 0.3)
    for test in (above, within):
        claim = replace(TESTED[0], tests=(test,))
        assert holds(claim) == verdict
    if values:
        assert holds(replace(TESTED[0], tests=(above, Within(Of("a", "b"), 0.9, 1.0)))) == OPPOSITE


def test_two_federations_err_apart() -> None:
    found = apart(estimate(0.7, 0.03), estimate(0.5, 0.04))
    assert found is not None
    assert (found.value, found.low, found.high) == pytest.approx((0.2, 0.15, 0.25))


def test_two_seeds_are_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    above, of = Above(Of("a", "b"), Of("a", "c")), Of("a", "b")
    monkeypatch.setattr(make_reproduction, "difference", lambda _: estimate(0.2, 0.05))
    for ended, verdict in ((2, NOT_RUN), (3, CONFIRMED)):
        monkeypatch.setattr(
            make_reproduction, "seen", lambda asked, n=ended: dict.fromkeys(range(n if asked == of else 9))
        )
        assert holds(replace(TESTED[0], tests=(above,))) == verdict
