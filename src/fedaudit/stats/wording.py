"""Numbers as people read them, never without their interval: one way of writing them for results, page and terminal."""

import math
import re
from collections.abc import Mapping, Sequence

from fedaudit.questions import metric, of_membership
from fedaudit.types import AuditResult, Curve, Estimate, Headline, Missing, Why

NONE = "–"
DECISIONS = ("accuracy", "precision", "recall", "f1-balanced")  # of an adversary who says yes or no
TPR = re.compile(r"tpr@(\d+(?:\.\d+)?(?:e-\d+)?)", re.IGNORECASE)


def count(value: float | None) -> str:
    return NONE if value is None else f"{value:,.0f}"


def rate(value: float) -> str:
    """A fixed rate such as an FPR: `1 %`, `0.1 %`."""
    return f"{100 * value:.4g} %"


def decimals(*shares: float | None) -> int:
    """How many decimals a percentage needs: two significant digits of the smallest, at most three decimals."""
    positive = [100 * s for s in shares if s and s > 0]
    smallest = min(positive, default=1.0)
    return 1 if smallest >= 1 else min(3, 1 - math.floor(math.log10(smallest)))


def share(value: float | None, digits: int | None = None) -> str:
    """`7.7 %`"""
    if value is None:
        return NONE
    if value in (0, 1):
        return f"{100 * value:.0f} %"
    return f"{100 * value:.{decimals(value) if digits is None else digits}f} %"


def share_span(low: float | None, high: float | None) -> str:
    """`6.4–9.2` in percent"""
    if low is None or high is None:
        return NONE
    return f"{share(low)[:-2]}–{share(high)[:-2]}"


def plain_span(low: float | None, high: float | None) -> str:
    return NONE if low is None or high is None else f"{low:.3f}–{high:.3f}"


def is_share(name: str) -> bool:
    return metric(name).form == "share"


def number_text(name: str, value: float | None) -> str:
    """As the metric is printed."""
    if value is None:
        return NONE
    form = metric(name).form
    if form == "points":
        return f"{100 * value:+.1f}"
    return share(value) if form == "share" else f"{value:+.3f}" if form == "difference" else f"{value:.3f}"


def span_text(name: str, low: float | None, high: float | None) -> str:
    form = metric(name).form
    if form == "epsilon" and low is not None and high is None:  # a lower bound has one end
        return f"{low:.3f} or more"
    if form in ("points", "difference") and low is not None and high is not None:
        return f"{number_text(name, low)} to {number_text(name, high)}"
    return share_span(low, high) if form == "share" else plain_span(low, high)


def point_text(name: str, value: float | None, low: float | None, high: float | None) -> str:
    """A value with its interval."""
    return NONE if value is None else f"{number_text(name, value)} ({span_text(name, low, high)})"


def value_of(est: Estimate | None) -> float | None:
    return None if est is None else est.value


def value_text(name: str, est: Estimate | None) -> str:
    return number_text(name, value_of(est))


def interval_text(name: str, est: Estimate | None) -> str:
    return NONE if est is None else span_text(name, est.low, est.high)


def full_text(name: str, est: Estimate | None) -> str:
    """Value with its interval and who is missing from it, or a dash with the reason."""
    if est is None or est.value is None:
        return f"{NONE} ({est.reason})" if est and est.reason else NONE
    return ", ".join(filter(None, (point_text(name, est.value, est.low, est.high), without(est))))


WHY: dict[Why, str] = {
    "no-calibration": "none of their records can set a threshold",
    "no-evaluation": "none of their non-members can be reported on",
    "no-members": "none of their members can be reported on",
    "unseen": "they took part too seldom",
    "unfit": "they have too few known non-members for this attack",
}
MOST_LISTED = 6  # parties that are named beside a figure


def without(est: Estimate | None) -> str:
    """Whom a pooled figure says nothing about, and how many members they have; empty where nobody is missing. Whatever
    shows a figure shows this beside it."""
    return "; ".join(map(_gone, est.missing)) if est is not None else ""


def _gone(missing: Missing) -> str:
    named = ", ".join(missing.parties[:MOST_LISTED])
    more = f" and {count(missing.count - MOST_LISTED)} more" if missing.count > MOST_LISTED else ""
    whose = f"{count(missing.count)} of {count(missing.of)} parties with {count(missing.members)} members"
    return f"without {named}{more} ({whose}: {WHY[missing.why]})"


def short_measure(name: str) -> str:
    """What a figure is, behind its value: `at 1 % FPR`, `AUC`."""
    fpr = fpr_of(name)
    return name.replace("auc", "AUC") if fpr is None else f"at {rate(fpr)} FPR"


def confidence(est: Estimate | None) -> str:
    return f"{100 * (est.confidence if est else 0.95):.4g} %"


# ------------------------------------------------------------------ finding one's way in results


def fpr_of(name: str) -> float | None:
    """The false-positive rate in an estimate's name, `tpr@0.01`."""
    found = TPR.fullmatch(name)
    value = float(found[1]) if found else 0.0
    return value if 0 < value < 1 else None


def since_round(curve: Curve | None, chance: float) -> int | None:
    """The first round from which the simultaneous band's lower end stays above chance; unobserved rounds are gaps."""
    if curve is None or not curve.simultaneous:
        return None
    first: int | None = None
    for x, low in zip(curve.x, curve.low, strict=False):
        if low is not None:
            first = None if low <= chance else int(x) if first is None else first
    return first


def main_tpr(quoted: Sequence[Mapping[str, Estimate]]) -> str | None:
    """The TPR everything quotes: at 1 % where that has a value, else at the nearest rate that has one. A doubted figure
    counts as one: at another rate, what other attacks find at this one would be lost."""
    names = {n: f for estimates in quoted for n in estimates if (f := fpr_of(n)) is not None}
    valued = {n for n in names if any((e := own.get(n)) and (e.value is not None or e.doubt) for own in quoted)}
    ranked = sorted(names, key=lambda n: (n not in valued, from_one_percent(n)))
    return ranked[0] if ranked else None


def from_one_percent(name: str) -> tuple[float, float]:
    """How far the FPR of a TPR is from 1 %, by their ratio; of two equally far, the smaller comes first."""
    fpr = fpr_of(name) or 1.0
    return max(fpr / 0.01, 0.01 / fpr), fpr


def behind(results: Sequence[AuditResult], headline: Headline) -> AuditResult | None:
    """The pooled result a headline rests on; results on global models stand under `client` for the server too."""
    pooled = [r for r in results if r.party is None and of_membership(r)]
    same = [r for r in pooled if (r.attack, r.model) == (headline.attack, headline.model)]
    return next((r for r in same if r.vantage == headline.vantage), same[0] if same else None)


def several_kinds(quoted: Sequence[Headline]) -> str:
    """What each run quotes, if they differ: a server quotes the stronger of two kinds of models, which may be another
    one in each run. Empty where all quote the same."""
    kinds = [f"{headline.attack} on {headline.model} models" for headline in quoted]
    return f"each run by what it quotes: {', '.join(kinds)}" if len(set(kinds)) > 1 else ""
