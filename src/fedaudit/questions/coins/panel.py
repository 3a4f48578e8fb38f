"""The panel of fair coins: what one run proved about epsilon, beside what the accountant says."""

from fedaudit.questions.coins.claims import Held, flipped, held
from fedaudit.report.shapes import PageSection, Panel, Table
from fedaudit.report.values import Results
from fedaudit.report.words import adversary
from fedaudit.stats.wording import NONE, confidence, count

HEAD = ("seen from", "attack", "models", "proved: epsilon at least", "most provable", "claimed", "coins", "confidence")


def sections(results: Results) -> list[PageSection]:
    """None for a run without coins."""
    unit = flipped(results.run.config)
    found = held(unit, results.headlines, results.run.guarantee) if unit else []
    if unit is None or not found:
        return []
    rows = [_row(one) for one in found]
    note = f"{found[0].bound.method}. The bounds hold for all rows at once."
    table = Table(HEAD, rows, note)
    tone = "warn" if any(one.refutes for one in found) else ""
    return [
        PageSection("coins", "Fair coins", "Fair coins", [Panel(_lead(found, unit), tables=[("", table)], tone=tone)])
    ]


def _row(one: Held) -> list[str]:
    bound, claim = one.bound, one.claim
    proved = f"{bound.value:.2f}" if bound.value is not None else f"{NONE} ({bound.reason})"
    most = NONE if bound.ceiling is None else f"{bound.ceiling:.2f}"
    claimed = NONE if claim is None or claim.epsilon is None else f"{claim.epsilon:.4g} at delta {claim.delta:g}"
    where = adversary(one.headline.vantage).title, one.headline.attack, one.headline.model
    return [*where, proved, most, claimed, count(bound.n_pos + bound.n_neg), confidence(bound)]


def _lead(found: list[Held], unit: str) -> str:
    one = "record" if unit == "record" else "person"
    told = (
        f"A fair coin decided about each {one} whether it was trained on. How often an adversary guesses these coins "
        "rightly proves a lower limit of epsilon, whatever the training did."
    )
    claim = found[0].claim
    if any(each.refutes for each in found):
        return f"{told} What was proved lies above what is claimed: the claim of differential privacy is refuted."
    if claim is None:
        return f"{told} There is no claim about one {one} to hold it against."
    return (
        f"{told} It lies below what is claimed, as it must if the claim is true. The distance between the two is what "
        "neither proves: a stronger attack may raise the one, a finer account may lower the other."
    )
