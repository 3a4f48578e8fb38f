"""Which attacks can decide a party's limit is known before the first round, and so is a limit that none can decide."""

from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from fedaudit.adversary.attacks import choose
from fedaudit.data.set_aside import set_aside
from fedaudit.integrations.party import Watch
from fedaudit.results.gate import Rule
from fedaudit.results.limits import UndecidableError, crossed, left_out, party_rule
from fedaudit.stats import Block, needed_for_lower_end, tpr_at_fpr
from fedaudit.stats.strongest import Heard, Shares
from fedaudit.types import Game, Notice, Vantage
from fedaudit.words import all_words, words
from tests.results.test_sizes_agree import game_of

LOSS, FUSION, MERLIN = choose(["loss", "fusion", "merlin"])
ALL = Shares(0.95, 0.95)


def limit(text: str) -> Rule:
    rule = party_rule(text)
    assert rule is not None
    return rule


def test_an_attack_that_is_fitted_on_too_many_calibration_records_is_left_out_and_named() -> None:
    needed = needed_for_lower_end(0.05, 0.95, guaranteed=True)
    names, told = left_out(limit("tpr@0.05 > 0.2"), game_of(1, needed + 10), [LOSS, FUSION], ALL)
    assert names == {"fusion"}
    (line,) = all_words(told)
    assert line.startswith("Left out of the limit 'tpr@0.05 > 0.2' (fitted on ")
    assert line.endswith(f"of {needed} needed): fusion.")
    names, told = left_out(limit("auc > 0.6"), game_of(1, needed + 10), [LOSS, FUSION], ALL)
    assert (names, told) == (frozenset(), [])  # an AUC needs no threshold
    names, told = left_out(limit("auc > 0.6"), game_of(1, needed + 10), [LOSS, MERLIN], ALL)
    assert (names, all_words(told)) == (
        frozenset({"merlin"}),
        ["Left out of the limit 'auc > 0.6' (measured on the last model only): merlin."],
    )


def test_a_limit_that_no_attack_can_decide_is_refused_with_what_to_do() -> None:
    needed = needed_for_lower_end(0.05, 0.95, guaranteed=True)
    few = game_of(1, needed - 1)
    with pytest.raises(
        UndecidableError, match=f"{needed - 1} calibration records are set aside, {needed} are needed.*Set more"
    ):
        left_out(limit("tpr@0.05 > 0.2"), few, [FUSION, LOSS, MERLIN], ALL)
    left_out(limit("tpr@0.05 > 0.2"), game_of(1, needed), [LOSS], ALL)
    with pytest.raises(UndecidableError, match=r"fusion, fitted on \d+ of .*Add an attack that is .* not fitted"):
        left_out(limit("tpr@0.05 > 0.2"), game_of(1, needed), [FUSION], ALL)
    with pytest.raises(UndecidableError, match=r"merlin, measured on the last model only.*Add an attack"):
        left_out(limit("auc > 0.6"), few, [MERLIN], ALL)
    with pytest.raises(UndecidableError, match="no attack tells members from outsiders"):
        left_out(limit("auc > 0.6"), few, [], ALL)


def test_the_other_sets_may_be_too_small_as_well() -> None:
    """60 members and 20 evaluation records: perfect separation does not prove an AUC above 0.98."""
    game = game_of(1, 200)
    assert left_out(limit("auc > 0.7"), game, [LOSS], ALL)[0] == frozenset()
    with pytest.raises(
        UndecidableError, match=r"even with all 60 members above all 20 outsiders.*choose a lower limit"
    ):
        left_out(limit("auc > 0.98"), game, [LOSS], ALL)
    with pytest.raises(UndecidableError, match="even with all 60 members"):
        left_out(limit("tpr@0.05 > 0.99"), game, [LOSS], ALL)


def of_people(people: int, each: int) -> Game:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(people * each, 2)).astype(np.float32)
    return set_aside(x, np.zeros(len(x), int), subject=np.repeat(np.arange(people), each))[1]


def test_people_count_where_they_have_several_records() -> None:
    """About a fifth of the people calibrate. Their records decide a limit if they are worth as much as others."""
    rule = limit("tpr@0.05 > 0.2")
    assert left_out(rule, of_people(1200, 1), [LOSS], ALL) == (frozenset(), [])
    assert left_out(rule, of_people(1200, 4), [LOSS], ALL) == (frozenset(), [])
    with pytest.raises(UndecidableError, match=r"the lower end would be 0\.000"):  # forty people calibrate
        left_out(rule, of_people(200, 6), [LOSS], ALL)
    for text in ("tpr@0.05 > 0.2", "auc > 0.6"):
        with pytest.raises(UndecidableError, match="needs records of 8 subjects"):
            left_out(limit(text), of_people(20, 60), [LOSS], ALL)


def test_the_attacks_beside_the_leading_one_have_a_smaller_share_of_the_error() -> None:
    """What suffices for the first that can decide may be too little for the others."""
    enough = needed_for_lower_end(0.05, 0.95, guaranteed=True)
    ours = choose(["matched-filter", "loss"])
    names, _ = left_out(limit("tpr@0.05 > 0.2"), game_of(1, enough), ours, Shares(0.95, 0.999))
    assert names == {"loss"}
    names, _ = left_out(limit("tpr@0.05 > 0.2"), game_of(1, enough), ours, ALL)
    assert names == frozenset()


@pytest.mark.parametrize("doubted", ["loss", "fta-loss"])
@pytest.mark.parametrize("by", [3.0, -3.0])
def test_a_limit_is_not_checked_where_other_records_set_the_threshold_of_an_attack(doubted: str, by: float) -> None:
    """Of the attack beside the leading one nobody was told, and its party went on sending. So it did where far fewer
    outsiders are accused, and more may be picked out than the limit allows."""
    rng, rule = np.random.default_rng(0), limit("tpr@0.05 > 0.9")

    def heard(name: str) -> Heard:
        shift = by * (name == doubted)
        block = Block(rng.normal(shift, 1, 300), rng.normal(shift, 1, 1500), rng.normal(0, 1, 900))
        found = {rule.metric: tpr_at_fpr([block], 0.05)}
        return Heard(name, "local", found, found, name == "loss")

    def unchecked(*names: str) -> Notice | None:
        said = [heard(name) for name in names]
        assert crossed(rule, said) is None
        settings = SimpleNamespace(primary=lambda *_: LOSS, left_out_of={})
        auditor = SimpleNamespace(settings=settings, failed={}, after=lambda *_: said)
        watching = SimpleNamespace(auditor=auditor, vantage=Vantage.SERVER, party="a")
        return Watch.unchecked(cast(Watch, watching), rule, 3, "local")

    told = unchecked("loss", "fta-loss")
    assert told is not None
    assert f"is not checked for all attacks: of {doubted}, records that set its threshold are of" in words(told)
    assert "of the outsiders are accused where 0.05 was asked" in words(told)
    assert doubted == "loss" or unchecked("loss") is None
