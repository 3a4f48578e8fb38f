"""The sentence of every notice, by its code. Programs look at the code and its data; only people read what is here.

`words` gives the sentence that stands in results, on the page and in the terminal; `line` is for a log, where what
happened to a round is told without a capital and a full stop. An entry is a text with the notice's data in braces, or a
function of them. A change of words here changes nothing else.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import isnan
from typing import Any

from fedaudit.questions import MINUS, metric
from fedaudit.stats.wording import share, span_text
from fedaudit.types import AuditResult, Notice, as_notices

Figure = Mapping[str, float | None]  # value, low, high
Wording = str | Callable[..., str]


def words(notice: Notice) -> str:
    """A notice as a sentence."""
    if notice.code not in LINES:
        return line(notice)
    text = line(notice)
    return text[:1].upper() + text[1:].rstrip(".") + "."


def line(notice: Notice) -> str:
    """A notice for a log."""
    if "text" in notice.data:
        return str(notice.data["text"])
    found = LINES.get(notice.code) or WORDS[notice.code]
    return found.format(**notice.data) if isinstance(found, str) else found(**notice.data)


def all_words(notices: Iterable[Notice | str]) -> list[str]:
    return [words(notice) for notice in as_notices(notices)]


def with_warnings(result: AuditResult, notices: Sequence[Notice]) -> AuditResult:
    """The result with these warnings, as codes and as sentences."""
    told = (*result.told, *notices)
    return replace(result, told=told, warnings=all_words(told))


# ------------------------------------------------------------------ parts of sentences


def _names(names: Sequence[str]) -> str:
    return ", ".join(names)


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))


def spans(rounds: Sequence[int]) -> str:
    """`round 3`, `rounds 3-5 and 9`"""
    groups: list[list[int]] = []
    for r in rounds:
        if groups and groups[-1][-1] == r - 1:
            groups[-1].append(r)
        else:
            groups.append([r])
    parts = [str(g[0]) if len(g) == 1 else f"{g[0]}-{g[-1]}" for g in groups]
    joined = " and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else "".join(parts)
    return f"round{'s' if len(rounds) != 1 else ''} {joined}"


def _when(round: int, probe: int) -> str:
    return f"Round {round}, probe {probe}" if probe else f"Round {round}"


def _percent(figure: Figure) -> str:
    return f"{figure['value']:.1%} ({figure['low']:.1%}-{figure['high']:.1%})"


def _three(figure: Figure, sign: str = "") -> str:
    value, low, high = figure["value"], figure["low"], figure["high"]
    if value is None or low is None or high is None:
        return "–"
    return f"{value:{sign}.3f} ({low:{sign}.3f} to {high:{sign}.3f})"


def needed_for_fpr(fpr: float, needed: int, available: int, short: Mapping[str, Any] | None = None) -> str:
    """What is said of a false-positive rate that cannot be calibrated, also where that is refused."""
    said = f"FPR {fpr:g} needs {needed} calibration non-members and there are {available}"
    if short is None:
        return said
    why = "it is fitted on the others" if short["fitted"] else "the others are the adversary's own"
    return f"{said}, of which {short['attack']} leaves {short['left']}: {why}"


def needed_in_file(
    fpr: float, needed: int, calibration: int, parties: int | None = None, nonmembers: int | None = None
) -> str:
    """The same for a file of scores: of a run with so many parties, or with so many non-members."""
    if parties is None:
        return (
            f"FPR {fpr:g} needs {2 * needed} non-members, half of them to set the threshold; there are {nonmembers}, "
            f"of which {calibration} set it"
        )
    where = f"the {parties} parties together have" if parties > 1 else "there are"
    return f"FPR {fpr:g} needs {needed} calibration non-members, and {where} {calibration}"


# ------------------------------------------------------------------ the data, and who is in them


def _aside(party: str, evaluation: int, calibration: int) -> str:
    return f"{party} has {evaluation} to report on and {calibration} to set thresholds"


DATA: dict[str, Wording] = {
    "unlabelled": "{rows} of {of} rows of {file} have no label: left out.",
    "cells-filled": lambda file, cells: (
        f"{sum(cells.values())} empty cells of {file} were filled in: "
        f"{_names([f'{name!r} ({filled})' for name, filled in cells.items()])}."
    ),
    "decimal-commas": lambda file, columns: f"Commas were read as decimal points in {file}: {_quoted(columns)}.",
    "cell-flattens": lambda file, rows: (
        f"A number in {file} is more than a hundred times as far from the middle of its column as all others are from "
        "each other, so that these become nearly alike: "
        f"{_names([f'{name!r} in row {row}' for name, row in rows.items()])}. "
        "Correct it, or empty the cell and set data.impute."
    ),
    "ids-learnt": lambda columns: f"Learnt from, though they look like ids (data.keep_ids): {_quoted(columns)}.",
    "single-record": lambda people, of, sessions, fresh: (
        f"{people:,} of {of:,} people have a single {'session' if sessions else 'record'}: nobody trains on it, and "
        f"nothing is asked about them. It takes two to keep a part of them for the adversary alone (federation.fresh = "
        f"{fresh:g}). federation.fresh = 0 asks about everybody: the adversary then has the trained records themselves."
    ),
    "few-aside": lambda few: (
        f"Hardly any non-members: {_names([_aside(**counts) for counts in few])}. What is said of such a party alone "
        "rests on these few."
    ),
    "in-several-parties": lambda people, of: (
        f"{people:,} of {of:,} people have records at several parties. Each has one role in all of them: nobody whom "
        "one party trained on is another party's non-member."
    ),
    "coins-split": (
        "federation.coins = true flips a coin for each record, so that people may have records on both sides "
        '(split_subjects = true is implied). For one coin a person, set federation.partition = "subjects".'
    ),
    "split-people": (
        "{shared:,} of {of:,} non-members belong to people who were trained on: an attack that knows these people "
        "mistakes such records for members, so what is found understates the risk. Give every person one role "
        "(federation.split_subjects = false)."
    ),
    "twins": lambda shared, of, unit: (
        f"{shared} of {of} {'members' if unit == 'record' else 'records of members'} have the same content as a "
        "non-member: nobody can tell such twins apart, so what is found understates the risk of the others. Remove "
        "duplicates before the split."
    ),
    "inputs-binary": lambda kind: (
        f"{'Inputs' if kind == 'binary' else 'Some inputs'} are 0 or 1. Distances to decision boundaries are measured "
        "at points in between, which are no records themselves: an adversary whose queries must be records cannot ask "
        "about them."
    ),
}

DEFENCES: dict[str, Wording] = {
    "counts-public": (
        "The number of records behind each party's update is taken as public: the weighted mean uses it without noise."
    ),
    "not-amplified": (
        "Not every party takes part in every round, but that does not lower epsilon: amplification needs parties drawn "
        'by independent coins (sampling = "poisson"), and hidden from the adversary.'
    ),
    "clip-only": "clip-only clips and adds no noise. It promises nothing; it serves as a baseline for dp-sgd.",
    "memguard": (
        "MemGuard changes the answers of the released model only: adversaries who hold the weights (client, server) "
        "score every record exactly as without it, and so do those who use labels only."
    ),
}


# ------------------------------------------------------------------ what cannot be run, or costs much


def _plain_cosine(attack: str, needed: int, fewest: int, known: bool) -> str:
    whose = 'known non-members; audit.matched.fit = "all" needs none' if known else "candidates"
    return (
        f"{attack} is the plain cosine where it has fewer than {needed} records to fit its whitening on, and the "
        f"smallest set has {fewest} ({whose})."
    )


def _search_time(records: int, queries: int, per_second: float, given_up: float) -> str:
    seconds = records * queries / per_second
    about = f"about {seconds:.0f} seconds" if seconds < 120 else f"about {seconds / 60:.0f} minutes"
    length = about if seconds >= 5 else "a few seconds"
    return (
        f"The search for decision boundaries may ask for {records * queries:,} labels ({records:,} records, at most "
        f"{queries:,} each over all rounds): {length} at {per_second:,.0f} labels a second; audit.tear.queries sets "
        f"how many. The search of a round is given up after {given_up / 60:.0f} minutes."
    )


def _layers_unseen(layers: list[str], share: float, attacks: list[str]) -> str:
    some = [layer or "the model itself" for layer in layers[:5]] + [f"{len(layers) - 5} more"][: len(layers) > 5]
    return (
        f"{100 * share:.2g} % of the trained weights are not looked at by {_names(attacks)}: the gradients of single "
        f"records are slow there ({_names(some)})."
    )


def _attacks_dear(epochs: dict[str, float], together: float | None, each: float | None) -> str:
    found = _names([f"{name} ({cost:.2g} local epochs a round)" for name, cost in epochs.items()])
    if together is None:
        return (
            f"Left out after the first round, because each costs more than {each:g} local epoch a round: {found}. "
            "What is named in audit.attacks is run all the same."
        )
    return f"Left out after the first round, to stay within audit.max_cost = {together:g}: {found}."


READERS = {  # by section of [audit]
    "fusion": "fusion",
    "reference": "lira or another attack with reference models",
    "canary": "canife or one-shot",
    "matched": "matched-filter",
    "tear": "tear or boundary",
}

LEFT_OUT: dict[str, Wording] = {
    "left-out-at": lambda vantage, needs, attacks: (
        f"Left out at {vantage} (needs {' and '.join(needs) or 'answers that no defence has changed'}): "
        f"{_names(attacks)}."
    ),
    "vantages-idle": lambda vantages: f"Left out (none of the attacks can run from there): {_names(vantages)}.",
    "attacks-unfit": lambda why, attacks: f"Left out ({why}): {_names(attacks)}.",
    "slow-gradients": "{why}.",
    "layers-unseen": _layers_unseen,
    "fpr-left-out": lambda **data: f"{needed_for_fpr(**data)}: it is left out.",
    "few-to-calibrate": lambda left, needed, attacks: (
        f"Left out (fitted on half of the calibration records, which leaves {left} of {needed} needed): "
        f"{_names(attacks)}."
    ),
    "answers-not-recorded": "Left out (the answers that {defence!r} changed were not recorded): outsider.",
    "agg-mal-not-recorded": (
        "agg-mal trains a federation of its own, which is not in a trace: its attacks are left out."
    ),
    "section-unread": lambda section: (
        f"[audit.{section}] has no effect, because no attack reads it: add {READERS[section]} to audit.attacks."
    ),
    "attacks-dear": _attacks_dear,
    "unmix-not-run": lambda epochs: (
        "unmix was not run. It finds as much as the matched filter or more wherever both were measured, and would "
        f"cost about {epochs:g} local epochs a round here: name it in audit.attacks to run it."
    ),
    "part-exchanged": lambda weights, whole: (
        f"A part of the model is exchanged and audited: {weights:,} of {whole:,} weights. The rest is frozen, and the "
        "adversary has it."
    ),
    "plain-cosine": _plain_cosine,
    "search-time": _search_time,
    "left-out-of-limit": lambda limit, why, attacks: f"Left out of the limit {limit!r} ({why}): {_names(attacks)}.",
    "limit-if-alike": (
        "If records of one person have much the same score, the limit {limit!r} can never be crossed: the calibration "
        "records are of {people} people."
    ),
    "limit-undecidable": "Not checked: {what}. {todo}",
    "references-own": lambda attacks: (
        f"{_names(attacks)}: the reference models were trained on each party's own records. This is a party's audit of "
        "itself, and an upper estimate for anybody who does not hold these records."
    ),
    "references-outside": lambda attacks: (
        f"{_names(attacks)}: the reference models were trained on data of the adversary's own alone."
    ),
    "seconds-for-epochs": (
        "Costs are in seconds a round, not in epochs, because nobody said how long a local epoch took."
    ),
}


# ------------------------------------------------------------------ what was found


def _changed(vantage: str, model: str, attack: str, name: str, rounds: Sequence[int], change: Figure) -> str:
    value, low, high = (change[end] or 0.0 for end in ("value", "low", "high"))
    way = "rose" if value > 0 else "fell"
    size = f"{100 * abs(value):.1f} percentage points" if metric(name).form == "share" else f"{abs(value):.3f}"
    return (
        f"{vantage}, {model} models: between rounds {rounds[0]} and {rounds[1]} the {metric(name).title} of {attack} "
        f"{way} by {size} ({span_text(name + MINUS, low, high)})."
    )


Unknown = float | None  # NaN is null in results.json


def _unmixed(vantage: str, model: str, attack: str, coverage: float, explained: Unknown, error: Unknown) -> str:
    part = "an unknown part" if explained is None or isnan(explained) else f"{explained:.0%}"
    solved = ""
    if error is None or isnan(error):
        solved = " In a round or more the regression was not solved."
    elif error > 1e-3:
        solved = f" The regression was solved to a relative error of {error:.1e} only."
    return (
        f"{vantage}, {model} models: {attack} explains {part} of the updates by its candidates (mean over "
        f"the rounds). {coverage:.0%} of the members in the sum were before it at a time; whoever knows fewer of "
        f"them finds less (its option coverage).{solved}"
    )


FOUND: dict[str, Wording] = {
    "attack-failed": "{attack} failed and has no result: {why}",
    "question-failed-at": "{question} failed from {vantage} on {model} models, and has no result there: {why}",
    "broken-off": "Ctrl-C was pressed while it was measured",
    "below-chance": "{attack} ranks outsiders above members (AUC wholly below 0.5); the score is not flipped.",
    "fpr-missed": "{attack}: far more than {fpr:.4g} % of outsiders were accused where that was asked: the records "
    "that set the threshold are not like those that are reported on, and there is no figure at this rate.",
    "fpr-undershot": "{attack}: far fewer than {fpr:.4g} % of outsiders were accused where that was asked: the records "
    "that set the threshold are not like those that are reported on, and more may be picked out at this rate.",
    "unscored": "{attack}: {count} of {of} scores are NaN or infinite and were counted as the least suspicious.",
    "ties": lambda vantage, model, attack, share, fpr, values: (
        f"{vantage}, {model} models: {attack}: {share:.0%} of the scores equal the threshold at {fpr:.4g} FPR, and are "
        "accused in part. "
        + (f"The score takes only {values} values. " if values else "The score saturates: are the features scaled? ")
        + "If it changes its value at just this rate, the quoted interval may be too narrow (it misses in 9 %, not in "
        "5 %); the guaranteed ends hold."
    ),
    "sets-differ": (
        "Members and non-members differ without any model (blind AUC {value:.3f}, {low:.3f}-{high:.3f}): only what "
        "attacks find beyond that can come from training."
    ),
    "blind-below-chance": (
        "The blind baseline ranks outsiders above members (AUC {value:.3f}, {low:.3f}-{high:.3f}): the half that it "
        "was fitted on is unlike the other. It is not turned round."
    ),
    "counts-differ": lambda value, low, high: (
        f"There are {'more' if low > 0.5 else 'fewer'} records of a member than of a non-member (AUC of their number "
        f"alone {value:.3f}, {low:.3f}-{high:.3f}): an attack may see that instead of the training."
    ),
    "lengths-differ": lambda value, low, high: (
        f"Texts of members are {'longer' if low > 0.5 else 'shorter'} than those of non-members (AUC of the length "
        f"alone {value:.3f}, {low:.3f}-{high:.3f}): an attack may see that instead of the training."
    ),
    "pairs-differ": (
        "Texts of members and non-members differ in their pairs of neighbouring tokens (AUC without any model "
        "{value:.3f}, {low:.3f}-{high:.3f}): an attack may see that instead of the training."
    ),
    "no-estimate": "Round {round}, {attack} on {model} models has no estimate: {why}.",
    "measured-apart": (
        "Round {round}: signals were measured one by one, because measuring them together failed ({why})."
    ),
    "merged": lambda sites, ranks: (
        f"{sites} sites audited themselves and handed over {'ranks' if ranks else 'scores'} without names. Somebody "
        "with records at two sites counts as two people. Nothing over the rounds, no groups and no blind check "
        "are known here: they stay in the reports of the sites."
    ),
    "merged-without": lambda attacks: f"Without a score at one site at least, and left out: {', '.join(attacks)}.",
    "more-exposed": (
        "{party} is more exposed than the others: {attack} on {model} models has AUC {own:.3f} there and {others:.3f} "
        "elsewhere (difference {value:.3f}, {low:.3f}-{high:.3f}; {confidence:.0%} for all parties and groups "
        "together)."
    ),
    "changed": _changed,
    "unmixed": _unmixed,
    "model-useless": lambda right, commonest: (
        f"The model itself is of no use: it is right on {share(right)} of outsiders, and whoever always names the "
        f"commonest label on {share(commonest)}; a useful model may give away more."
    ),
    "model-not-learnt": lambda right, commonest: (
        f"The model has not learnt, as far as these records show: it is right on {share(right)} of outsiders, whoever "
        f"always names the commonest label on {share(commonest)}, and on its own training records it does no better "
        "than a guess either. Nothing here speaks for a trained model."
    ),
    "agg-mal-stopped": lambda done, of, attacks: (
        f"agg-mal was stopped with {done} of {of} parties isolated: {_names(attacks)} "
        f"{'are about these alone' if done else 'have no result'}."
    ),
    "agg-mal-accuracy": lambda isolated, honest: (
        f"agg-mal: isolated with the shadow, the parties' models are right on {_percent(isolated)} of outsiders, "
        f"against {_percent(honest)} in the honest federation."
    ),
    "agg-mal-error": (
        "agg-mal: isolated with the shadow, the parties' models have a mean squared error of {value:.4g} on "
        "{outsiders} outsiders ({confidence:.0%} interval {low:.4g}-{high:.4g}, Student's t)."
    ),
}


# ------------------------------------------------------------------ single questions


def _source(
    shown: bool, named: Figure, excess: Figure, guesses: Mapping[str, float], parties: int, confidence: float
) -> str:
    verdict = "training gives the party away" if shown else "that training gives it away is not shown"
    return (
        f"source: {verdict}. Shown a training record, the server names the party that holds it in "
        f"{named['value']:.1%} of the cases ({named['low']:.1%}-{named['high']:.1%}): {excess['value']:+.1%} "
        f"({excess['low']:+.1%} to {excess['high']:+.1%}) over the best of three guesses, the same attack on records "
        f"never trained on ({guesses['outside']:.1%}), the label alone ({guesses['label']:.1%}) and always the largest "
        f"of {parties} parties ({guesses['largest']:.1%}); {confidence:.0%} intervals."
    )


# What is said of an attribute, before the figures and between brackets.
OF_ATTRIBUTE = {
    "no-comparison": "no comparison, so nothing can be said",
    "at-chance": "the attack on members is not above chance: no leak is shown",
    "revealed": "training reveals it; the attack beats the blind guess, on members only",
    "trace": (
        "training leaves a trace of it (it is guessed better for members than for others), but the attack does not "
        "beat a classifier that never sees a model"
    ),
    "blind-is-better": "a classifier that never sees a model does better than the attack: no leak is shown",
    "of-everybody": (
        "the attack beats a blind guess, but just as much for people who were not trained on: no leak is shown"
    ),
    "neither": (
        "the attack beats neither a classifier that never sees a model nor itself on people not trained on: no leak is "
        "shown"
    ),
}


def _attribute(name: str, finding: str, figures: Mapping[str, Figure], confidence: float) -> str:
    excess, gap, attack, blind, outside = (figures[one] for one in ("excess", "gap", "members", "blind", "nonmembers"))
    return (
        f"Attribute {name}: {OF_ATTRIBUTE[finding]} (AUC over the blind guess {_three(excess, '+')}, members over "
        f"non-members {_three(gap, '+')}; AUC of the attack {_three(attack)}, of the blind guess {_three(blind)}, of "
        f"the attack on non-members {_three(outside)}; {confidence:.0%} intervals)."
    )


EPSILONS = {
    "epsilon-anytime": "proved, one round",
    "epsilon-ranks": "over ranks, one round",
    "epsilon-bonferroni": "union bound, one round",  # in runs of the former version
    "epsilon-gdp": "Gaussian fit, one round",
    "epsilon-one-run": "proved, whole run",
    "epsilon-one-shot": "estimate, whole run",
    "epsilon-composed": "composed, a heuristic",
    "epsilon-accountant-round": "claimed, one round",
    "epsilon-accountant": "claimed, whole run",
    "epsilon-accountant-renyi": "the same as it is composed here",
}


def _epsilons(found: Mapping[str, Figure]) -> str:
    parts = []
    for name, what in EPSILONS.items():
        if name in found:
            one = found[name]
            span = "" if one["low"] is None or one["high"] is None else f" ({one['low']:.3g}-{one['high']:.3g})"
            parts.append(f"{one['value']:.3g}{span} {what}")
    return f" Epsilon: {'; '.join(parts)}." if parts else ""


def _canife(health: float, norm: float, spread: float, of_a_round: float, epsilons: Mapping[str, Figure]) -> str:
    return (
        f"canife: canary health {health:.4f}, update {norm:.3f} of the clip norm, spread on parties outside the design "
        f"pool {spread:.3g} each ({of_a_round:.3g} for a round).{_epsilons(epsilons)}"
    )


def _noise_missing(sd: float, most: float, expected: float, none: bool) -> str:
    gone = "there is no noise in the sum" if none else "the sum has less noise than is claimed"
    return (
        f"canife: {gone}. The scores have a standard deviation of {sd:.3g} (at most {most:.3g}), and the claimed noise "
        f"alone would give {expected:.3g}."
    )


ONE = {"record": "record", "subject": "person"}


def _coins(
    attack: str,
    vantage: str,
    model: str,
    unit: str,
    value: float | None,
    why: str | None,
    coins: int,
    ceiling: float | None,
    confidence: float,
) -> str:
    start = f"Fair coins: {attack}, seen from {vantage} on {model} models, "
    if value is None:
        return f"{start}proves nothing: {why}."
    most = f"{coins:,} coins could prove {ceiling:.2f} at most" if ceiling is not None else f"{coins:,} coins"
    what = f"proves that epsilon is at least {value:.2f} for one {ONE[unit]}"
    if value == 0:
        what = f"proves nothing about epsilon for one {ONE[unit]}"
    return f"{start}{what} ({100 * confidence:.4g} % confidence, for all vantages to hold at once; {most})."


# ------------------------------------------------------------------ what one update says by itself

WHO_READS = {"server": "the server", "secagg-server": "whoever adds up the updates", "client": "any party"}

# What cannot be told of an update, and why, by its code.
_VALUES, _WHOLE, _WORDS = "Which values nobody has", "Whole records", "Words"
_CLASSES = "How many records each class has"
CANNOT = {
    "not-finite": ("What it says by itself", "weights are NaN or infinite"),
    "no-matrix": (_VALUES, "the model has no weights that the input is multiplied by"),
    "model-unknown": (_VALUES, "how the model takes its input is not known"),
    "input-changed": (_VALUES, "the input is changed before it meets weights that belong to its columns"),
    "tied": (_VALUES, "the weights on the input are used elsewhere in the model, too"),
    "nothing-moved": (_VALUES, "no weight on the input moved at all"),
    "frozen": (_VALUES, "the weights on the input are not trained"),
    "thinned": (
        _VALUES,
        "entries of the update were left out, or are lost in rounding, so that a weight that stands still says nothing",
    ),
    "nothing-stands-still": (_VALUES, "noise, or something like it, moved every weight on the input"),
    "all-moved": (
        _VALUES,
        "every weight on the input moved: every value is somebody's, or noise was added, or one model does not follow "
        "from the other; without records of outsiders these look alike",
    ),
    "inputs-entry": (_WHOLE, "how they meet the model's weights is not known, or they are changed on the way"),
    "inputs-relu": (_WHOLE, "the layer that they meet has no bias, or units that no record switches off"),
    "inputs-unmoved": (_WHOLE, "the layer that they meet did not move by more than rounding"),
    "inputs-one-layer": (_WHOLE, "the model has one layer, which mixes them all"),
    "inputs-normalised": (
        _WHOLE,
        "the optimiser scaled every weight by itself, as Adam does, which hides sums of records",
    ),
    "inputs-merged": (_WHOLE, "it has fewer directions than records, so that one may stand for several"),
    "inputs-too-many": (_WHOLE, "there are more records behind each than can be told apart"),
    "inputs-attention": (_WORDS, "the model has no attention that takes in words one by one"),
    "inputs-full-rank": (_WORDS, "there are more words behind it than the layer is wide"),
    "inputs-no-gap": (_WORDS, "what words made of the layer's move is not to be told from what else moved it"),
    "inputs-all-near": (_WORDS, "nearly every word would fit"),
    "incoming-layers": ("Whether the model was prepared", "it has no dense layers that could be looked at"),
    "classes-unknown": (_CLASSES, "the model, the records of outsiders or the number of records is not known"),
    "no-classes": (_CLASSES, "a record has no single class"),
    "no-bias": (_CLASSES, "the last layer has no bias"),
    "bias-still": (_CLASSES, "the last bias did not move"),
    "bias-defended": (_CLASSES, "a defence changes gradients or updates, and the last bias with them"),
    "bias-unweighted": (_CLASSES, "it is a mean of parties that are not weighed by their records"),
    "bias-thinned": (_CLASSES, "entries of the update were left out"),
    "bias-changed": (_CLASSES, "the last biases do not sum to 0, so that noise, or something like it, moved them"),
    "several-steps": (
        _CLASSES,
        "several steps were made, or Adam's; [audit.questions.update] simulate = true trains parties of outsiders",
    ),
    "nothing-else": ("What else leaves", "nothing came with it"),
}

LEAVES = {
    "who": "which parties took part",
    "examples": "how many records stand behind each update (num-examples)",
    "metrics": "figures that the parties report, such as their own loss",
    "steps": "how many steps were made (BatchNorm's counter)",
    "means": "means of what each layer saw (BatchNorm's running statistics)",
    "zeros": "which weights no record of the party moved (the pattern of zeros)",
}


def _whose_update(party: str | None, round: int, vantage: str) -> str:
    if not vantage:  # two checkpoints, of which nothing more is known
        return "From this update, whoever has it can read"
    whose = "the sum" if party is None else f"{party}'s update"
    return f"From {whose} of round {round}, {WHO_READS.get(vantage, vantage)} can read"


def _named(names: Sequence[str], of: int, what: str) -> str:
    """`bread, milk and 3 others`; without names, how many."""
    if not names:
        return f"{of} {what}{'' if of == 1 else 's'}"
    rest = of - len(names)
    return f"{', '.join(names)}{f' and {rest} others' if rest else ''}"


def _presence(
    party: str | None,
    round: int,
    vantage: str,
    absent: int,
    alone: int | None,
    linked: int,
    of: int,
    at_most: bool,
    tokens: bool,
    shown: Mapping[str, Any],
) -> str:
    what, names = "word" if tokens else "value", shown.get("exposed", {})
    here = "there" if party or not vantage else "in the federation"
    if absent:
        which = f"{_named(names.get('absent', ()), absent, what)} of {of}"
        said = f"that at most {which} are absent {here}" if at_most else f"that nobody {here} has {which}"
    else:
        said = f"that no {what} of {of} is provably absent {here}"
    if alone is not None:
        one = _named(names.get("alone", ()), alone, what)
        said += (
            f", and that exactly one record has {one}" if alone else f", and of no {what} that only one record has it"
        )
        if linked:
            said += f" ({linked} of these can be linked to another of the same record)"
    return f"{_whose_update(party, round, vantage)} {said}."


def _labels(
    party: str | None,
    round: int,
    vantage: str,
    records: int,
    classes: int,
    missing: int,
    within: float,
    shown: Mapping[str, Any],
) -> str:
    largest = [f"about {count:.0f} of class {label}" for label, count in shown.get("exposed", {}).get("counts", ())]
    said = f"how many of {records} records have each of {classes} classes, give or take {within:.1f} on average"
    said += f" ({', '.join(largest)})" if largest else ""
    said += f", and that {missing} of the classes do not occur" if missing else ""
    return f"{_whose_update(party, round, vantage)} {said}."


def _leaves(vantage: str, summed: bool, what: Sequence[str]) -> str:
    if not vantage:
        return f"Beside it, it says {'; '.join(LEAVES[each] for each in what)}."
    beside = "the sum" if summed else "each update"
    return f"Beside {beside}, {WHO_READS.get(vantage, vantage)} sees {'; '.join(LEAVES[each] for each in what)}."


def _cannot_tell(why: str, updates: int) -> str:
    what, because = CANNOT[why]
    return f"{what} cannot be told from {updates} update{'' if updates == 1 else 's'}: {because}."


def _inputs(party: str | None, round: int, vantage: str, count: int, of: int, words: bool) -> str:
    what = (
        f"{count} different words of its records" if words
        else "its one record, in every column" if count == of == 1
        else f"{count} of {of} records, in every column"
    )  # fmt: skip
    return f"{_whose_update(party, round, vantage)} {what}."


SUSPICIOUS = {
    "partners": "{value:.0%} of the units of {where} come in pairs",
    "nested": "in {value:.0%} of the pairs of units of {where}, one fires only if the other does",
    "rare": "{value:.0%} of the units of {where} fire for very few records",
    "aloof": "{value:.0%} of the units of {where} are set so that they would fire for very few records",
    "outsized": "one class of {where} has {value:.3g} times the weight of the others",
    "jump": "{where} changed {value:.3g} times as much as in any round before",
    "unforeseen": "{where} lies {value:.3g} times as far from what earlier rounds foretell as ever before",
}


def suspected(alarms: Sequence[Mapping[str, Any]]) -> str:
    """What looks prepared in a model, in words."""
    return "; ".join(
        SUSPICIOUS[one["figure"]].format(where=one["where"], value=one["value"]) + f" (limit {one['limit']:g})"
        for one in alarms
    )


def _incoming(round: int, alarms: Sequence[Mapping[str, Any]]) -> str:
    return (
        f"The model that was sent out for round {round} looks prepared to give single records away: "
        f"{suspected(alarms)}."
    )


QUESTIONS: dict[str, Wording] = {
    "update-inputs": _inputs,
    "update-incoming": _incoming,
    "update-tampered": (
        "What one update says was read off updates of a model that a dishonest server prepared ({trick}), in a "
        "simulation by authority of whoever started the run. It says nothing about the honest rounds."
    ),
    "update-presence": _presence,
    "update-none-absent": lambda party, round, vantage: (
        f"{_whose_update(party, round, vantage)} of no value that nobody "
        f"{'there' if party or not vantage else 'in the federation'} has it, or that one record alone has it: every "
        "column of the input moved."
    ),
    "update-labels": _labels,
    "update-leaves": _leaves,
    "update-simulates": (
        "Labels are counted by training parties of outsiders: about {epochs} local trainings for each update that is "
        "looked at."
    ),
    "update-unseen": "update: seen from {vantage}, no update was seen in the rounds that it looks at.",
    "update-cannot-tell": _cannot_tell,
    "update-part-failed": "update: of some updates, {part} could not be looked at ({why}). The rest is not affected.",
    "update-nothing": "update: seen from {vantage}, there is nothing to find in these rounds, and so no figure.",
    "source": _source,
    "attribute": _attribute,
    "canife": _canife,
    "one-shot": lambda sent, of, epsilons: f"one-shot: {sent} of {of} canaries took part.{_epsilons(epsilons)}",
    "round-refuted": (
        "canife: the claim of differential privacy does not hold. A round has an epsilon of at least {epsilon:.3g} "
        "({figure}, {confidence:.0%} confidence, {present} + {absent} probes), and {claimed:.3g} is claimed."
    ),
    "run-refuted": (
        "one-shot: the claim of differential privacy does not hold. The whole run has an epsilon of at least "
        "{epsilon:.3g} (epsilon-one-run, {confidence:.0%} confidence), and {claimed:.3g} is claimed."
    ),
    "claim-refuted": (
        "The claim of {defence} is refuted: epsilon for one {unit} is claimed to be {claimed:.4g} at delta {delta:g}, "
        "and {attack}, seen from {vantage}, proves {epsilon:.4g} at least."
    ),
    "noise-missing": _noise_missing,
    "no-noise": "canife: no noise protects the parties: the sum tells every time whether the canary took part.",
    "canaries-dead": "canife: {dead} of {of} scores are of dead canaries, whose update vanishes: they do not count.",
    "canary-weak": "canife: the canary's update has only {norm:.3f} of the clip norm, so the figures understate.",
    "canary-unhealthy": (
        "canife: crafting failed (health {health:.2f}, where 1 is perfect): the canary's update resembles those of "
        "others, so the figures understate what a better one would show. Craft with more audit.canary.steps, or "
        "another target."
    ),
    "canaries-not-random": (
        "one-shot: canaries that were never sent do not look random (p = {p:.1e}); a seed may have been used twice."
    ),
    "coins": _coins,
}


# ------------------------------------------------------------------ what is stored


def _went_back(round: int, origin: int | None, left_out: Sequence[int]) -> str:
    started = "an unknown model" if origin is None else f"the model of round {origin}" if origin else "the first model"
    rest = f"; its earlier {spans(left_out)} {'is' if len(left_out) == 1 else 'are'} left out" if left_out else ""
    return f"Round {round} started from {started}, not from the last one: the server went back{rest}."


def _no_checksum(file: str, damaged: int) -> str:
    lacking = "there is no journal.jsonl beside it that has one"
    why = f"{damaged} lines of journal.jsonl are damaged" if damaged else lacking
    return f"{file} has no checksum ({why}): whether it was changed cannot be told."


STORED: dict[str, Wording] = {
    "answer-late": lambda round, probe, party: f"{_when(round, probe)}: the answer of party {party!r} came late.",
    "answers-differ": lambda round, probe, party: (
        f"{_when(round, probe)}: party {party!r} answered twice, with different models. The first answer counts."
    ),
    "went-back": _went_back,
    "line-damaged": "Line {line} of journal.jsonl is damaged and was skipped.",
    "lines-removed": "{lines} numbered lines of journal.jsonl are not there any more.",
    "line-torn": "The last line of journal.jsonl was only half written.",
    "no-record": lambda rounds: f"There is no record of {spans(rounds)}: a gap, not zero.",
    "rounds-lacking": lambda rounds: f"There is no record of {spans(rounds)}.",
    "files-unlisted": lambda rounds: f"journal.jsonl has no line for {spans(rounds)}, although there are files.",
    "results-unlisted": "journal.jsonl does not know results.json: lines at its end are missing.",
    "no-checksum": _no_checksum,
    "round-damaged": "Round {round}: {why}. That round is left out: it is treated as a gap, not as zero.",
    "recording-stopped": lambda round, why, folder, last: (
        f"Recording stopped{'' if round is None else f' at round {round}'} ({why}). Training and audit went on; "
        f"{folder} holds the rounds up to {last}."
    ),
    "resuming": lambda round, torn: (
        f"Resuming after round {round}{' (the line after it was only half written)' if torn else ''}."
    ),
    "accuracy-missing": "The accuracy of the released model is missing: {why}.",
    "results-shown-only": "The results could not be written to {folder} ({why}): they are only shown here.",
    "spread-shown-only": "The spread over the repeats could not be written to {folder} ({why}): it is shown here.",
    "seen-partly": "Seen up to round {seen} of {planned} planned rounds.",
    "still-looking": lambda round, attacks: (
        f"Interrupted after round {round}. {_names(attacks)} now look at the last model; press Ctrl-C again to leave "
        "out the one that is at work."
    ),
    "repeat-not-trained": "Repeat with seed {seed}: not trained.",
    "repeat-degraded": "Repeat with seed {seed}: {what}",
    "repeat-left-out": (
        "Repeat with seed {seed}: {status}, left out of the spread. Give the same command again to continue."
    ),
    "remarks-left-out": lambda count: (
        f"{count} remark{'' if count == 1 else 's'} of an earlier version, or of other people's code, "
        f"{'was' if count == 1 else 'were'} left out: they are stored as sentences, which may hold names."
    ),
    "redacted": "Exposed records, names and paths were left out of this report.",
}


# ------------------------------------------------------------------ files of scores, and runs side by side

SCORES: dict[str, Wording] = {
    "scores-not-finite": "{scores} scores are not finite and were counted as the least suspicious.",
    "scores-below-chance": "AUC is below 0.5: higher scores must mean 'member'; nothing was flipped.",
    "delta-large": "delta {delta:g} is above 1/{records}: publishing one record at random would satisfy it.",
    "fpr-left-out-of-file": lambda **data: f"{needed_in_file(**data)}: it is left out.",
    "no-id": "There is no id: rows are told apart by what they hold; duplicates are not detected.",
    "scores-of": lambda attack, model: (
        f"Scores of {attack} on {'the global model' if model == 'global' else 'local models'}, with the run's roles."
    ),
    "epsilon-assumptions": (
        "Epsilon: epsilon-ranks, -gdp and -maximised assume that every row is an independent run of the "
        "mechanism, with the unit (member 1) or without it; epsilon-one-run assumes that the rows are units of one "
        "run, each included by a fair coin. A figure whose assumption does not hold here means nothing. Only kind "
        "'proved' is a bound."
    ),
    "rows-of-one-run": (
        "These rows are units of one run, included in fixed shares and not by fair coins: epsilon-one-run (with "
        "federation.members = 0.5) comes closest, and none of the figures is a proof."
    ),
    "rows-tuned-on": (
        "A fair coin decided whether each of these was trained on, but the attack was tuned on some whose coins it was "
        "told: the bound is in results.json, and cannot be computed from scores."
    ),
    "rows-by-coins": (
        "These rows are units of one run, and a fair coin decided about each of them, calibration records excepted: "
        "epsilon-one-run is a proof, about one unit of the coins, and none of the other figures is."
    ),
}

COMPARED: dict[str, Wording] = {
    "of-run": "{run}: {what}",
    "settings-differ": lambda keys: f"These runs differ in more than their defences: {_names(keys)}.",
    "no-accuracy": lambda runs: f"Not ranked, because there is no accuracy (a regression has none): {_names(runs)}.",
    "no-risk": lambda runs: f"Not ranked, because there is no risk at 1 % FPR: {_names(runs)}.",
    "not-settled": lambda runs, vantage, attack, model: (
        f"{runs[0]} and {runs[1]}, {vantage}, {attack}, {model} models: the intervals of their differences hold 0, so "
        "it is not clear which is safer."
    ),
    "risks-overlap": lambda runs: (
        f"{runs[0]} and {runs[1]}: the intervals of their risks overlap, so it is not clear which is safer. The "
        "difference could not be measured on the same records: scores are missing, or not about the same units."
    ),
}


# ------------------------------------------------------------------ what happened to a round: lines of a log


def _not_audited(round: int | None, withheld: bool, why: str, todo: str, **_: object) -> str:
    """`round`: None if it is the whole run, 0 if it is not known which."""
    where = "this run" if round is None else f"round {round}" if round else "a round"
    nothing = ", and nothing is sent" if withheld else ""
    return f"{where} is NOT AUDITED{nothing}: {why}{f'. {todo}' if todo else ''}"


def _limit_unchecked(round: int, limit: str | None, cause: str, attack: str, why: str, rounds: int) -> str:
    if limit is None:
        return f"round {round}: every attack failed"
    causes = {
        "nobody": "nobody attacks",
        "failed": f"{attack} failed ({why})",
        "no-interval": why or "it has no interval",
        "doubted": f"of {attack}, records that set its threshold are of another kind ({why})",
        "no-value": f"{attack} has no value after {rounds} rounds",
    }
    for_all = " for all attacks" * (cause == "doubted")  # the others were checked
    return f"round {round}: the limit {limit!r} is not checked{for_all}: {causes[cause]}"


# Of these, `why` is the error in words, and `error` its code.
FAULTS: dict[str, Wording] = {
    "round-missing": "round {round} is missing: {why}",
    "no-results": "there are no results: {why}",
    "results-unwritten": "the results could not be written: {why}",
    "record-without-end": "the record has no end: {why}",
    "results-not-passed-on": "the results could not be passed on: {why}",
    "claim-unwritten": "round {round}: what the host claims about its noise could not be written: {why}",
    "lack-unwritten": "the note that there are no results could not be written: {why}",
    "restart-unknown": "it is not known whether the server was restarted: {why}",
    "broadcast-missing": "round {round}: the broadcast is missing: {why}",
}

LINES: dict[str, Wording] = {
    **FAULTS,
    "line": "",  # told by its text
    "no-local-model": "no party's own model was observed, so there is no result for the server",
    "training-failed": "the training ended with {error} after round {round}",
    "round-twice": "round {round} arrived twice, with the same content: it is counted once",
    "round-again": "round {round} arrived again with other content: only the first delivery is audited",
    "more": "and {count} more like these",
    "start-unknown": lambda round: (
        f"round {round}: what the parties started from is not known, so their models are left out"
        f"{' (observe(0, model) tells it)' if round == 1 else ''}"
    ),
    "unfinished": "the audit is not finished: its results are there when its block has ended",
    "trace-damaged": "round {round} of the trace is damaged and left out: {why}",
    "parties-failed": lambda round, parties, of: (
        f"round {round}: {parties}{'' if of is None else f' of {of}'} parties failed"
    ),
    "track-failed": "the rounds are no longer copied to {tracker}: {why}",
    "svt-claimed": (
        "{party}: the filter SVTPrivacy has counted epsilon {epsilon:.4g} (delta 0, of a whole update) for {rounds} "
        "updates, {one_round:.4g} each; `fedaudit verify` checks it"
    ),
    "parties-silent": "round {round}: {parties} of {of} parties did not answer",
    "replies-masked": "round {round}: {replies} replies are masked, only their sum is seen",
    "nobody-asked": "round {round}: nobody was asked to train",
    "round-empty": "round {round} is empty: nobody sent a model",
    "round-halted": "round {round} is empty: secure aggregation was halted, too few parties answered",
    "round-unfinished": "round {round} was begun and did not end",
    "late-reply": "round {round}: the answer of {party} came in round {now}, and is left out",
    "old-model-kept": "round {round}: models arrived, and the strategy kept the old one",
    "array-records": "round {round}, {party}: {records} array records in place of one, left out",
    "no-model": lambda party, rounds, why, todo: (
        f"{spans(rounds)}: what {party} sent is no model of the task, so it is not audited: {why}. {todo}"
    ),
    "update-no-better": lambda party, rounds: (
        f"{spans(rounds)}: what {party} sent fits its own members worse than the model that arrived: that is noise of "
        "a defence, a training that went wrong, or an encoded update. If it was encoded, what is found in it says "
        "nothing of a server that knows how"
    ),
    "party-twice": lambda round, party, same: (
        f"round {round}: {party} answered twice, {'the same both times' if same else 'and differently'}: the first is "
        "kept"
    ),
    "unknown-party": lambda party, parties: (
        f"{party!r} is no party of the game ({_names(parties)}), so nothing it sends is audited: give party=, a "
        "function from a reply to the name of its party"
    ),
    "server-restarted": "the server restarted from the model of round {round}; rounds are counted from there",
    "beyond-plan": "more rounds than the {planned} planned: the band over rounds no longer covers all",
    "limit-crossed": "the limit was crossed in round {round}: from then on nothing was sent",
    "limit-unchecked": _limit_unchecked,
    "not-audited": _not_audited,
    "memory-lost": (
        "this node was restarted, and the memory of its audit {why}: what was seen before round {round} is lost"
    ),
    "memory-unwritten": (
        "the memory of this audit could not be written to {folder} ({why}): if this node is restarted, the audit "
        "starts over"
    ),
    "node-restarted": "this node was restarted after round {round}: its audit goes on from what is on disk",
    "never-left": ("round {round} never left this party: its training failed, or the process ended before the audit"),
    "first-seen": (
        "round {round} is the first that this audit saw: the party was not asked before, or its node was restarted "
        "without the folder of its memory"
    ),
}

WORDS: dict[str, Wording] = {**DATA, **DEFENCES, **LEFT_OUT, **FOUND, **QUESTIONS, **STORED, **SCORES, **COMPARED}
