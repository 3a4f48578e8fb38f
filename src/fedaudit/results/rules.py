"""What a gate forbids, as it is written: `tpr@0.01[attack=loss, party=*] > 0.05 and accuracy < 0.8`."""

import math
import re
from dataclasses import dataclass
from typing import Literal

from fedaudit.errors import FedauditError
from fedaudit.questions import metric as described

SELECTORS = ("attack", "vantage", "party")
ANY = "*"
OUTSIDE = r"(?![^\[]*\])"  # of the brackets: a party may be called "Mercy and Grace"
ACCURACY, EPSILON = "accuracy", "epsilon"
OF_THE_RUN = (ACCURACY, EPSILON)  # not of one attack

Sign = Literal[">", ">=", "<", "<="]


@dataclass(frozen=True)
class Rule:
    """What is not allowed. Without an attack: every one. Without a vantage: all. Without a party:
    pooled. Conditions that are joined by `and` have the same text."""

    text: str
    metric: str
    limit: float
    attack: str | None = None
    vantage: str | None = None
    party: str | None = None
    sign: Sign = ">"

    @property
    def condition(self) -> str:
        return f"{self.metric} {self.sign} {self.limit:g}"

    def broken_for_sure(self, low: float | None, high: float | None) -> bool:
        """Is what must not be the case true of the whole interval?"""
        near = low if self.sign in (">", ">=") else high
        return near is not None and self._holds(near)

    def kept_for_sure(self, low: float | None, high: float | None) -> bool:
        """Is it false of the whole interval?"""
        far = high if self.sign in (">", ">=") else low
        return far is not None and not self._holds(far)

    def _holds(self, value: float) -> bool:
        return {
            ">": value > self.limit,
            ">=": value >= self.limit,
            "<": value < self.limit,
            "<=": value <= self.limit,
        }[self.sign]


def parse_limit(text: str) -> Rule:
    """What is wanted, `tpr@0.01 < 0.02`, as the rule that forbids the rest."""
    if text.count("<") != 1 or ">" in text or "=" in text.partition("]")[2]:
        what = f"--limit {text!r}: it must say of one metric that it is below a limit, by '<'"
        raise FedauditError("gate-rule", what, 'Write it like "tpr@0.01 < 0.02" or "auc[vantage=client] < 0.6".')
    return parse_rule(text.replace("<", ">"))


def parse_rules(text: str) -> list[Rule]:
    """The conditions of one rule, joined by `and`."""
    if re.search(rf"\bor\b{OUTSIDE}", text):
        raise _bad_rule(text, "a rule has no 'or'", "Give --fail-if twice: each rule is checked by itself.")
    return [parse_rule(part, text) for part in re.split(rf"\band\b{OUTSIDE}", text)]


def parse_rule(part: str, text: str | None = None) -> Rule:
    """`METRIC[attack=..., vantage=..., party=...] > LIMIT`; the bracket may be left out. `text`: all of the rule."""
    text = part if text is None else text
    chosen = dict[str, str]()
    bracket = re.search(r"\[(.*?)\]", part)
    if bracket:
        for word in re.split(r",(?=[^,]*=|\s*$)", bracket[1]):
            key, _, value = (each.strip() for each in word.partition("="))
            if key not in SELECTORS or not value or key in chosen:
                raise _bad_rule(text, f"{word.strip()!r} is not one of {', '.join(f'{s}=...' for s in SELECTORS)}")
            chosen[key] = value
    bare = part.replace(bracket[0], " ") if bracket else part
    match = re.fullmatch(r"\s*([a-z][^\s<>=\[\]]*)\s*(>=|>|<=|<)\s*([^\s=<>]+)\s*", bare)
    if not match:
        raise _bad_rule(text, "it must compare one metric with one limit by '>' or '>='")
    metric, sign = _metric(text, match[1]), _sign(match[2])
    if why := _not_limited(metric, sign):
        raise _bad_rule(text, why)
    if chosen and metric in OF_THE_RUN:
        raise _bad_rule(text, f"{metric} is the run's, so that it takes no brackets")
    rule = Rule(text, metric, _limit(text, match[3]), **chosen, sign=sign)
    if why := _out_of_reach(rule):
        raise _bad_rule(text, why)
    return rule


def _out_of_reach(rule: Rule) -> str:
    """Why a rule could never fail, or never pass: most often its limit is written in percent."""
    least, most = described(rule.metric).least, described(rule.metric).most
    if not least <= rule.limit <= most:
        percent = " (0.05 for 5 %)" if most == 1 else ""
        return f"{rule.metric} lies between {least:g} and {most:g}, so that the limit must, too{percent}"
    if (rule.sign, rule.limit) in ((">", most), ("<", least)):
        bound = f"above {most:g}" if rule.sign == ">" else f"below {least:g}"
        return f"{rule.metric} cannot be {bound}: this could never fail"
    return ""


def _not_limited(metric: str, sign: Sign) -> str:
    """Why a metric takes no such limit, if it takes none: as it describes itself."""
    if metric in OF_THE_RUN:
        return f"{sign!r} is not for {metric}" if metric == EPSILON and sign in ("<", "<=") else ""
    about = described(metric)
    if not about.gated:
        return f"{metric} ({about.title}) is what others are compared with, and no risk"
    if sign in ("<", "<=") and about.worse != "lower":
        return f"{sign!r} is for accuracy: no risk is too small"
    if sign in (">", ">=") and about.worse == "lower":
        return f"of {metric}, less is worse: use '<'"
    return ""


def _sign(word: str) -> Sign:
    signs: dict[str, Sign] = {">": ">", ">=": ">=", "<": "<", "<=": "<="}
    return signs[word]


def _metric(text: str, word: str) -> str:
    if not word.startswith("tpr@"):
        return word
    try:
        return f"tpr@{float(word.removeprefix('tpr@')):g}"  # as results name it
    except ValueError:
        raise _bad_rule(text, f"{word!r} names no false-positive rate") from None


def _limit(text: str, word: str) -> float:
    try:
        limit = float(word)
    except ValueError:
        limit = math.nan
    if not math.isfinite(limit):
        raise _bad_rule(text, f"{word!r} is not a number")
    return limit


def _bad_rule(text: str, why: str, todo: str = "") -> FedauditError:
    examples = 'Write it like "tpr@0.01 > 0.05", "auc[attack=loss, party=*] >= 0.6" or "accuracy < 0.8 and auc > 0.6".'
    return FedauditError("gate-rule", f"--fail-if {text!r}: {why}", todo or examples)
