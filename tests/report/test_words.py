"""The wording: what is claimed, what is not, and that chance is never called safe."""

import re
from dataclasses import replace
from typing import Any

import pytest

from fedaudit.report import charts, headline_rows, panels, row_titles, verdict, words
from fedaudit.report.values import Results, clean, clean_tree, cleaned
from fedaudit.stats.wording import rate, share, share_span, since_round
from fedaudit.types import Curve, notice
from fedaudit.words import words as in_words
from tests.report import builder
from tests.report.builder import quotable


def said_of(results: Results) -> str:
    """The verdict and its details, as the terminal prints them."""
    return " ".join([*verdict(results), *words.details(results)])


def test_found_reads_as_designed() -> None:
    assert verdict(quotable(builder.minimal())) == [
        "Some. Any party that sees the global models can pick out 7.7 % of the training records (about 139 of 1,800) "
        "while wrongly accusing 1 % of outsiders (95 % interval 6.3–9.1; after 40 rounds, by fta-confidence)."
    ]


@pytest.mark.parametrize(
    ("share", "area", "grade"),
    [
        (0.95, 0.99, "nearly everybody"),
        (0.904, 0.99, "most"),  # its interval begins at 0.89
        (0.6, 0.9, "most"),
        (0.077, 0.7, "some"),
        (0.012, 0.56, "a little"),
        (0.012, 0.503, "nothing found"),
        (None, 0.503, "not known"),
        (0.002, 0.42, "alarm"),
    ],
)
def test_the_grade_follows_the_lower_end(share: float | None, area: float, grade: str) -> None:
    results = quotable(builder.minimal(share, area))
    assert results.headlines[0].grade == grade
    ((who, shown, figure, attack),) = words.summary(results)
    assert (who, shown, attack) == ("client", grade, "fta-confidence, global models")
    assert ("AUC" in figure) == (share is None or grade == "a little")


def test_a_verdict_is_one_sentence_a_vantage() -> None:
    for results in (builder.minimal(), builder.minimal(0.012, 0.56), builder.minimal(0.012, 0.503), builder.results()):
        for headline in quotable(results).headlines:
            assert not re.search(r"\. [A-Z]", headline.sentence)


def test_a_model_that_is_of_no_use_is_said_once_and_first() -> None:
    results = builder.results() | {"useless": "The model itself is of no use: it is right on 5 %."}
    assert verdict(quotable(results))[0].startswith("The model itself is of no use")
    assert said_of(quotable(results)).count("of no use") == 1


def test_of_unmix_one_thing_is_said_once_with_its_price_where_that_is_known() -> None:
    """One page said that it finds as much "wherever both were measured", at a price, and again, in other words and
    without the price, that it finds "about as much". The filter found more in a wide model (docs/unmix.md)."""
    plain = builder.minimal()
    plain["run"]["config"] = {"federation": {}}
    plain["results"][0]["attack"] = plain["headlines"][0]["attack"] = "matched-filter"
    without = builder.read(plain)
    priced = without.noting(told := notice("unmix-not-run", epochs=7.0))
    (one,), (other,) = words.not_run(cleaned(without)), words.not_run(cleaned(priced))
    assert other == in_words(told)
    assert "about 7 local epochs a round" in other
    finds = [said.split("; it ")[0] for said in (one, other)]
    assert finds[0] == finds[1]


def test_the_server_has_its_own_sentence_and_says_what_was_corrected() -> None:
    said = said_of(quotable(builder.results()))
    assert "Whoever runs the server can pick out 12.4 % of the parties' training records" in said
    assert "(95 % interval 11.0–13.8; after 40 rounds, by fta-confidence)" in said
    assert "wider, because the stronger of 2 kinds of models is quoted, the local ones" in said
    assert said.count("the stronger of") == 1


def test_the_unit_is_named() -> None:
    results = builder.minimal()
    results["results"][0]["unit"] = "subject"
    assert "7.7 % of subjects in the training data" in said_of(quotable(results))


def test_nothing_found_is_not_called_safe() -> None:
    said = said_of(quotable(builder.minimal(0.012, 0.503)))
    assert said.startswith(
        "Nothing beyond chance was found for any party that sees the global models at this sample size"
    )
    assert "no proof of safety: up to 2.6 % remains possible" in said
    assert "can pick out" not in said
    assert not re.search(r"\b(is|are) safe\b", said)


def test_an_interval_that_begins_at_0_for_want_of_records_is_not_chance() -> None:
    """60.9 % beside an AUC of .98 was said to be no better than chance, because 12 records were missing."""
    results = builder.minimal(0.609, 0.98)
    why = "the lower end is 0 until there are 12 more calibration non-members"
    results["headlines"][0]["estimates"]["tpr@0.01"] |= {"low": 0.0, "high": 0.8, "reason": why}
    said = said_of(quotable(results))
    assert "not settled: 60.9 % of the training records (about 1,096 of 1,800)" in said
    assert why in said
    assert "no better than chance" not in said
    assert "Nothing beyond chance" not in said


def test_a_server_is_never_said_to_do_less_than_a_party() -> None:
    """It sees the global models as well. Its own interval, wider for a choice, may still include chance."""
    results = builder.results()
    results["headlines"][1]["estimates"] = builder.estimates(0.012, 0.503)
    read = quotable(results)
    client, server = (h.sentence for h in read.headlines)
    assert "can pick out 7.7 %" in client
    assert server.startswith(
        "Whoever runs the server sees all that is seen by any party that sees the global models, and can do at least "
        "as much (7.7 % by fta-confidence, 95 % interval 6.3–9.1)."
    )
    assert [h.tone for h in read.headlines] == ["found", "found"]


def test_the_sentence_is_one_field_and_everybody_shows_it() -> None:
    """Page and terminal made sentences of their own; results.json had none."""
    results = builder.results()
    stored = builder.read(results).to_json()
    for headline in stored["headlines"]:
        headline["sentence"] = f"Said of the {headline['vantage']}."
    read = quotable(stored)
    assert verdict(read) == ["Some. Said of the client.", "Some. Said of the server."]


@pytest.mark.parametrize("low, tone", [(0.01, "none"), (0.0100001, "found")])
def test_the_lower_end_decides_not_the_value(low: float, tone: str) -> None:
    results = builder.minimal(0.077, 0.5)
    del results["headlines"][0]["estimates"]["tpr@0.001"]
    results["headlines"][0]["estimates"]["tpr@0.01"]["low"] = low
    (finding,) = words.findings(quotable(results))
    assert finding.tone == tone


def test_a_weak_leak_on_average_is_told_apart_from_none() -> None:
    said = said_of(quotable(builder.minimal(0.012, 0.56)))
    assert "did no better" not in said
    assert "How much any party that sees the global models can pick out is not settled: 1.2 %" in said
    assert "the interval begins at 0 %, which is not above 1 %" in said
    assert "which is which 56.0 % of the time (95 % interval 54.8–57.2; guessing is 50 %; after 40 rounds" in said


@pytest.mark.parametrize("area, tone", [(0.56, "weak"), (0.503, "unknown"), (None, "unknown")])
def test_T6_too_few_non_members_is_not_chance(area: float | None, tone: str) -> None:
    results = builder.minimal(None, area)
    results["headlines"][0]["estimates"]["tpr@0.01"]["reason"] = "needs 57 more calibration non-members"
    (finding,) = words.findings(quotable(results))
    assert finding.tone == tone
    told = " ".join([finding.sentence, *finding.headline.details])
    assert "could not be measured (needs 57 more calibration non-members)" in told
    assert "–%" not in told
    assert "None" not in told


def test_T6_a_lower_end_held_at_zero_says_why() -> None:
    results = builder.minimal(0.05, 0.5)
    why = "the lower end is 0 until there are 12 more calibration non-members"
    del results["headlines"][0]["estimates"]["tpr@0.001"]
    results["headlines"][0]["estimates"]["tpr@0.01"] |= {"low": 0.0, "reason": why}
    assert why in said_of(quotable(results))


def test_T10_blind_comes_first_and_only_the_excess_counts() -> None:
    results = builder.results()
    results["results"][-1] = builder.blind(0.62)
    said = said_of(quotable(results))
    assert said.startswith("Warning: members and outsiders differ even without the model.")
    assert "AUC of 0.620 (95 % interval 0.601–0.639)" in said
    assert "exceeds the blind guess by 0.054 (both intervals together allow 0.023–0.085)" in said
    results["results"][-1] = builder.blind(0.66)
    assert "not clearly above the blind guess" in said_of(quotable(results))
    results["results"][-1] = builder.blind(0.503)
    assert "blind" not in said_of(quotable(results))


def test_T10_a_blind_guess_below_chance_is_not_turned_round() -> None:
    """It was: 0.38 became 0.62, and took 0.12 from what the attacks had found."""
    results = builder.results()
    results["results"][-1] = builder.blind(0.38)
    assert not words.sets_differ(quotable(results))
    gap = words.excess(quotable(results), quotable(results).headlines[0])
    assert gap == pytest.approx((0.1742, 0.1622, 0.1862), abs=1e-3)


def test_T12_below_chance_is_an_alarm_and_never_flipped() -> None:
    results = builder.minimal(0.002, 0.42)
    assert said_of(quotable(results)).startswith("Any party that sees the global models ranks outsiders above members")
    assert "0.420" in said_of(quotable(results))
    assert "0.58" not in said_of(quotable(results))
    assert (
        words.warnings(quotable(results)) == []
    )  # whoever measured it knows how many were looked at, and warns or does not
    results["results"][0]["warnings"] = ["AUC wholly below 0.5"]
    assert words.warnings(quotable(results)) == ["AUC wholly below 0.5 [fta-confidence, client]"]


def test_interrupted_is_said_first() -> None:
    results = builder.minimal()
    results["run"]["status"] = "interrupted at round 17"
    results["results"][0]["round"] = 17
    assert verdict(quotable(results))[0].startswith("This run was interrupted at round 17;")
    assert "after 17 rounds" in said_of(quotable(results))


@pytest.mark.parametrize(
    "low, since",
    [
        ([0.0, 0.02, 0.03, 0.04], 2),
        ([0.02, 0.005, 0.03, 0.04], 3),
        ([0.02, 0.03, 0.04, 0.01], None),
        ([0.02, None, 0.03, 0.04], 1),
        ([0.02, 0.03, 0.04, None], 1),
        ([None, None, None, None], None),
        ([], None),
    ],
)
def test_T5_since_is_the_round_from_which_on_the_band_stays_above_chance(low: list[Any], since: int | None) -> None:
    curve = Curve([1, 2, 3, 4], low, low, low, "over rounds", simultaneous=True)
    assert since_round(curve, 0.01) == since
    assert since_round(replace(curve, simultaneous=False), 0.01) is None
    assert since_round(None, 0.01) is None


def test_since_is_in_the_verdict_only_with_a_finding() -> None:
    assert "since round 5" in said_of(quotable(builder.results()))
    none = builder.results(strong=0.01)
    assert "since" not in said_of(quotable(none))


def test_a_server_whose_headline_is_global_still_has_its_local_models_drawn() -> None:
    results = builder.results(parties=2, attacks=2)
    results["headlines"][1] = results["headlines"][0] | {"vantage": "server", "compared": 2}
    lines = words.drawn(quotable(results), words.findings(quotable(results)))
    assert [(f.vantage, f.model, f.attack) for f in lines] == [
        ("client", "global", "fta-confidence"),
        ("server", "local", "fta-confidence"),
    ]


def test_a_server_headline_on_global_models_finds_its_result() -> None:
    results = builder.minimal()
    results["headlines"][0]["vantage"] = "server"
    read = quotable(results)
    assert words.findings(read)[0].entry is read.results[0]


@pytest.mark.parametrize(
    "values, chosen",
    [
        ({"tpr@0.001": 0.1, "tpr@0.01": 0.2}, "tpr@0.01"),
        ({"tpr@0.001": 0.1, "tpr@0.01": None}, "tpr@0.001"),
        ({"tpr@0.001": None, "tpr@0.01": None}, "tpr@0.01"),
        ({"tpr@0.05": 0.1, "tpr@0.1": 0.2, "tpr@0": 0.3, "tpr@x": 0.4}, "tpr@0.05"),
        ({"tpr@0.005": 0.1, "tpr@0.02": 0.2}, "tpr@0.005"),  # as near, by their ratio
        ({"auc": 0.6}, None),
    ],
)
def test_which_rate_is_quoted(values: dict[str, float | None], chosen: str | None) -> None:
    found = {name: builder.tpr(value) for name, value in values.items()}
    results = builder.minimal()
    results["headlines"][0]["estimates"] = found
    assert words.main_tpr(quotable(results)) == chosen


def test_rows_for_the_command_line() -> None:
    results = builder.results(parties=3, attacks=2)
    rows = headline_rows(quotable(results))
    assert [(r.attack, r.vantage, r.primary) for r in rows] == [
        ("fta-confidence", "client", True),
        ("fta-logit", "client", False),
        ("fta-confidence", "server", True),
        ("fta-logit", "server", False),
        ("blind", "–", False),
    ]
    first = rows[0]
    assert (str(first.auc), str(first.tpr)) == ("0.674 (0.662–0.686)", "7.7 % (6.3–9.1)")
    assert (first.realised_fpr, first.cost, first.model) == ("1.1 %", "0.04", "global")
    assert row_titles(quotable(results))[4] == "TPR at 1 % FPR"


def test_warnings_are_said_once_with_their_places() -> None:
    results = builder.results(parties=9, attacks=1)
    for entry in results["results"]:
        entry["warnings"] = ["few records"] if entry["party"] else []
    said = words.warnings(quotable(results))
    assert len(said) == 2
    assert said[1].startswith("few records [fta-confidence, client, party-0; ")
    assert said[1].endswith("; and 14 more]")


@pytest.mark.parametrize(
    ("low", "high", "ending"),
    [
        (0.046, 0.255, "guessing gives +0.000, which this exceeds."),
        (-0.046, 0.255, "guessing gives +0.000, which is not excluded."),
        (0.0, 0.255, "guessing gives +0.000, which is not excluded."),
        (-0.255, 0.0, "guessing gives +0.000, which is not excluded."),
        (None, None, "guessing gives +0.000, which is not excluded."),
        (-0.255, -0.046, "guessing gives +0.000, and this lies below it."),
    ],
)
def test_a_figure_lies_above_around_or_below_guessing(low: float | None, high: float | None, ending: str) -> None:
    """-0.152 (-0.255 to -0.046) was said not to exclude 0."""
    value = 0.0 if low is None or high is None else (low + high) / 2
    found = {"excess-over-blind": builder.estimate(value) | {"low": low, "high": high}}
    guessed = builder.entry("attribute", "server", None, None, unit="attribute", estimates=found)
    (said,) = words.summed_up(quotable(builder.results() | {"results": [guessed]}))
    assert said.endswith(ending)


def test_cost_has_a_chart_only_where_costs_differ() -> None:
    results = builder.results()
    assert charts.cost(quotable(results)) is not None
    for entry in results["results"]:
        entry["cost"] = {"epochs": 0.29 if entry["vantage"] == "client" else 0.26}
    assert charts.cost(quotable(results)) is None
    panel = panels.costs(quotable(results))
    assert panel is not None
    assert list(panel.facts) == [("Any party", "0.29 E"), ("The server", "0.26 E")]
    results["results"] = [builder.blind()]
    assert panels.costs(quotable(results)) is None


# ------------------------------------------------------------------ values


@pytest.mark.parametrize(
    "value, shown",
    [(0.077, "7.7 %"), (0.0, "0 %"), (1.0, "100 %"), (0.00064, "0.064 %"), (0.129, "12.9 %"), (None, "–")],
)
def test_shares(value: float | None, shown: str) -> None:
    assert share(value) == shown


def test_spans_and_rates() -> None:
    assert share_span(0.0, 0.026) == "0–2.6"
    assert share_span(None, 0.026) == "–"
    assert [rate(f) for f in (0.01, 0.001, 0.0001)] == ["1 %", "0.1 %", "0.01 %"]


@pytest.mark.parametrize(
    "foul, fair",
    [
        ("party-0", "party-0"),
        ("a\x1b[31mb\x1b[0mc", "abc"),
        ("\x1b]0;title\x07x", "x"),
        ("a\nb\tc\x00d", "a b cd"),
        ("=cmd()", "'=cmd()"),
        ("@x", "'@x"),
        ("-x", "'-x"),
        ("-1.5", "-1.5"),
        ("a\u202eb\u2066c", "abc"),
        ("Zürich 東京", "Zürich 東京"),
    ],
)
def test_B18_clean(foul: str, fair: str) -> None:
    assert clean(foul) == fair
    assert clean(clean(foul)) == fair


@pytest.mark.parametrize("size", [201, 801, 1_000_000])
def test_B18_long_strings_are_cut(size: int) -> None:
    cut = clean("x" * size)
    assert len(cut) == 200
    assert cut.endswith("…")
    assert clean(cut) == cut


def test_trees_are_cleaned_whole() -> None:
    deep: Any = "end"
    for _ in range(200):
        deep = [deep]
    tree = clean_tree({"a\x1b[1m": float("nan"), "b": [float("inf"), 10**400, True], "deep": deep})
    assert tree["a"] is None
    assert tree["b"] == [None, None, True]
    assert "end" not in str(tree["deep"])
