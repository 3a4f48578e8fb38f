"""The panels in the lower half of the page. A panel without data is None, and the page leaves it out."""

from collections.abc import Sequence

from fedaudit.report import words
from fedaudit.report.adversaries import adversary
from fedaudit.report.helps import TARGET
from fedaudit.report.shapes import Panel, Table
from fedaudit.report.values import Results
from fedaudit.report.words import Finding
from fedaudit.stats.strongest import allowed, epsilon_for
from fedaudit.stats.wording import (
    NONE,
    count,
    fpr_of,
    full_text,
    plain_span,
    rate,
    share,
    value_of,
)

MOST_ROWS = 50


def blind_panel(results: Results, found: Sequence[Finding]) -> Panel | None:
    entry = words.blind(results)
    if entry is None:
        return None
    auc = entry.estimates.get("auc")
    shown = [("Blind guess, AUC", full_text("auc", auc))]
    if counted := entry.estimates.get("count-auc"):
        shown.append(("From the number of a person's records alone, AUC", full_text("auc", counted)))
    if value_of(auc) is None:
        return Panel("The blind check has no value, so it is not known whether the sets differ.", shown, tone="warn")
    for finding in found:
        gap = words.excess(results, finding.headline)
        if gap is not None:
            title = (
                f"Excess of {adversary(finding.vantage).title[0].lower()}{adversary(finding.vantage).title[1:]}, AUC"
            )
            shown.append((title, f"{gap[0]:+.3f} (both intervals together allow {plain_span(*gap[1:])})"))
    if words.sets_differ(results):
        lead = (
            "A guess that never sees a model tells members from outsiders. The two sets were drawn differently, and an "
            "attack may be measuring that difference. Only the excess over the blind guess can be attributed to the "
            "federation. It is better to draw members and outsiders from the same population and audit again."
        )
        return Panel(lead, shown, tone="warn")
    lead = (
        "A guess that never sees a model cannot tell members from outsiders: its interval contains 0.5. What the "
        "attacks find is therefore not explained by a difference between the two sets that this check can see."
    )
    return Panel(lead, shown)


def exposed(results: Results) -> Panel | None:
    found = results.exposed
    if found is None:
        return None
    tables = []
    for kind, units in (("record", found.records), ("subject", found.subjects or ())):
        if not units:
            continue
        more = f"{count(len(units) - MOST_ROWS)} more are in results.json." if len(units) > MOST_ROWS else ""
        ranked = sorted(units, key=lambda u: (u.share_of_calibration_above, -(u.score or 0.0)))
        cells = [
            [
                str(place),
                u.id_hash,
                u.party,
                share(u.share_of_calibration_above),
                NONE if u.score is None else f"{u.score:#.4g}".rstrip("."),
            ]
            for place, u in enumerate(ranked[:MOST_ROWS], start=1)
        ]
        head = ("rank", f"{kind} (hashed)", "party", "outsiders scoring as high", "score")
        tables.append((f"Most exposed {kind}s", Table(head, cells, more)))
    if not tables:
        return None
    these = "these records" if found.records else "records of these people"
    lead = (
        "The training data that the strongest quoted attack would name first, sorted by the share of outsiders of the "
        f"same party that score as high, then by score. This table is itself membership data: it says that {these} "
        "were trained on. The command “fedaudit report RUN --redact” writes the page without it, to be passed on. An "
        "id is hashed with the file “salt” of the run, without which a list of names does not undo it."
    )
    shown = [("Ranked by", found.attack), ("Seen from", adversary(found.vantage).title)]
    return Panel(lead, shown, tables, tone="warn")


def costs(results: Results) -> Panel | None:
    shown = []
    for vantage, own in words.costs(results).items():
        low, high = words.cost_text(min(own)), words.cost_text(max(own))
        shown.append((adversary(vantage).title, f"{low} E" if low == high else f"{low} to {high} E"))
    if not shown:
        return None
    lead = (
        "Measured per round, in units of one local epoch on a party's own training records (1 E). Each attack is "
        "charged what running it alone takes, with every model that must be trained for it; what several attacks share "
        "is charged to each of them, so that their costs add up to more than the audit took. The cheaper an attack is, "
        "the more likely somebody will try it."
    )
    return Panel(lead, shown)


def guarantee(results: Results, name: str | None) -> Panel | None:
    claim = results.run.guarantee
    if claim is None:
        return None
    epsilon, delta, one, rdp = claim.epsilon, claim.delta, claim.epsilon_one_round, claim.epsilon_rdp
    shown = [
        ("Protected unit", claim.unit or NONE),
        ("Epsilon", NONE if epsilon is None else f"{epsilon:.4g}"),
        ("Delta", f"{delta:.3g}"),
        ("Adjacency", claim.adjacency or NONE),
        ("Accountant", claim.accountant),
        *_per_person(results),
    ]
    extra = [
        ("Scope", claim.scope),
        ("Epsilon of one round", "" if one is None else f"{one:.4g}"),
        ("Epsilon by Renyi accounting", "" if rdp is None else f"{rdp:.4g}"),
        ("Holds against", claim.against),
        *(("Problem", problem) for problem in claim.problems),
    ]
    shown += [(title, value) for title, value in extra if value]
    fpr = fpr_of(name or "")
    meaning = ""
    if claim.binding is not None and fpr:
        most, whose = allowed(claim.binding, delta, fpr), ", of people" * (claim.per_person is not None)
        shown.append((f"Most it allows at {rate(fpr)} FPR{whose}", f"{share(most)} picked out"))
        meaning = _allows(most, epsilon_for(TARGET, delta, fpr), rate(fpr))
    lead = (
        "The training claims differential privacy. A claim is a promise about every adversary it covers, an audit is a "
        "measurement of a few attacks: the two may be compared only where they speak of the same unit."
    )
    return Panel(f"{lead}{meaning}", shown)


def _per_person(results: Results) -> list[tuple[str, str]]:
    """A promise for records is a weaker one for a person who has several, or none at all."""
    claim = results.run.guarantee
    if found := claim and claim.per_person:
        return [("Per person", found.text), ("Per person, by", found.method)]
    unknown = claim and claim.unit == "record" and results.run.data.subjects is not None
    return [("Per person", "not stated in these results")] if unknown else []


def _allows(most: float, needed: float, at: str) -> str:
    """What an epsilon permits, in words: a promise that allows everything is no protection at this rate."""
    to = f"At most {share(TARGET)} is allowed from an epsilon of {needed:.2g} downwards."
    if most >= 0.995:
        return (
            f" At {at} false accusations this epsilon allows {share(most)}: a training in which every member can be "
            f"picked out keeps the promise, too, so at this rate it protects nobody. {to}"
        )
    return f" It bounds every adversary, whatever the attack: at {at} false accusations nobody picks out more. {to}"
