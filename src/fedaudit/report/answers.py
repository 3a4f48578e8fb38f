"""What a data-protection impact assessment asks of an audit: a sentence for each question, from results alone."""

from collections.abc import Mapping, Sequence

from fedaudit.report import sections, taken, words
from fedaudit.report.values import Results
from fedaudit.report.words import Finding
from fedaudit.stats.wording import count, fpr_of, full_text, plain_span, rate, share

MEMBERSHIP = "Such an attack is given a record, or records of a person, and says whether it was trained on."


def answers(results: Results, found: Sequence[Finding]) -> list[tuple[str, str]]:
    """Question and answer, in the order in which an assessment asks."""
    return [
        ("Which site is concerned most?", _site(results, found)),
        ("What does it mean for one person?", _person(results, found)),
        ("What is this attack?", _attack(results, found)),
        ("Does epsilon hold for a person?", _epsilon(results)),
        ("Who ran this audit, and when?", who(results)),
        ("What was not tested?", untested(results, found)),
    ]


def _site(results: Results, found: Sequence[Finding]) -> str:
    sites = len(results.run.parties)
    if sites < 2:
        return "There is one site alone, so that none can be compared with others."
    worst = max(results.more_exposed, key=lambda one: one.low, default=None)
    if worst is not None:
        apart = f"difference {plain_span(worst.low, worst.high)}, {100 * worst.confidence:.4g} % for all sites together"
        return (
            f"{worst.party} is more exposed than the other sites: shown one of its training records and an outsider, "
            f"{worst.attack} on {worst.model} models tells which is which {share(worst.own)} of the time, elsewhere "
            f"{share(worst.others)} ({apart})."
        )
    if standing := _site_among_groups(results):
        return standing
    compared = _compared(results, found)
    if len(compared) < 2:
        return f"The {count(sites)} sites were not compared with one another."
    of = f"{count(len(compared))} of the {count(sites)} sites" if len(compared) < sites else f"the {count(sites)} sites"
    if results.groups and any(one.stands_out for one in results.groups.results):
        return (
            f"Not known: by the AUC alone, none of {of} is certainly more exposed than the others; but a group stands "
            "out, and its records may be those of one site."
        )
    told = f"none of {of} is certainly more exposed than the others, by the AUC"
    rest = [party.name for party in results.run.parties if party.name not in compared]
    if rest:
        return f"Of those that were compared, none stands out: {told}. Not compared: {', '.join(rest)}."
    return f"No site stands out: {told}."


def _compared(results: Results, found: Sequence[Finding]) -> set[str]:
    """Which sites were compared with one another. Where each audited itself, none was."""
    if results.run.not_handed_over:
        return set()
    fixed = {one.headline.fixed for one in found}
    own = [(entry.party, entry.estimates.get("auc")) for entry in results.results if entry.attack in fixed]
    return {party for party, auc in own if party is not None and auc is not None and auc.low is not None}


def _site_among_groups(results: Results) -> str:
    """Where records of one site are a group, and it stands out: the column by which the parties were made is one of
    the attributes."""
    names = {party.name for party in results.run.parties}
    for one in results.groups.results if results.groups else ():
        if not one.stands_out or one.group.kind != "attribute" or one.group.value not in names:
            continue
        figure = one.stands_out
        fpr = fpr_of(figure)
        what = f"picked out at {rate(fpr)} false accusations, by {one.attack}" if fpr else f"AUC, by {one.attack}"
        return (
            f"{one.group.value} stands out, as the group {one.group.attribute} = {one.group.value}: "
            f"{full_text(figure, one.inside[figure])} {what} on {one.model} models, elsewhere "
            f"{full_text(figure, one.outside[figure])}."
        )
    return ""


def _person(results: Results, found: Sequence[Finding]) -> str:
    data = results.run.data
    if words.about_people(results):
        told = "Every figure here is about people: whether anything of a person's is in the training data."
    elif data.subjects:
        mean = data.records / data.subjects
        told = (
            f"Figures are about single records, of which a person has {mean:.3g} on average ({count(data.records)} "
            f"records of {count(data.subjects)} people). A person is exposed as soon as one of these records is, so "
            "the risk of a person with several is larger than that of a record."
        )
    else:
        told = (
            "Figures are about single records: the data do not say whose a record is, so that nothing is said about a "
            "person who has several."
        )
    group = next((f.headline.most_exposed for f in found if f.headline.most_exposed), "")
    if group:
        return f"{told} They are averages. {group}"
    if "groups" in results.run.not_handed_over:
        return f"{told} They are averages. What the sites found of groups was not handed over."
    if results.groups is None or not results.groups.looked_at:
        return f"{told} They are averages, and no group was looked at."
    looked_at = count(len(results.groups.looked_at))
    out = len({one.group for one in results.groups.results if one.stands_out})
    which = f"{count(out)} {'stands' if out == 1 else 'stand'} out" if out else "none stands out"
    return f"{told} They are averages; of {looked_at} groups that were looked at, {which} from the others."


def _attack(results: Results, found: Sequence[Finding]) -> str:
    quoted = list(dict.fromkeys(finding.attack for finding in found))
    told = [
        f"{name} looks at this: {about}." for name in quoted if (about := results.glossary.get(name, "").rstrip("."))
    ]
    if not quoted:
        return f"No attack on membership has a result. {taken.about_records(results)}"
    return " ".join(
        [*(told or [f"The verdict quotes {' and '.join(quoted)}."]), MEMBERSHIP, taken.about_records(results)]
    )


def unclaimed(results: Results) -> str:
    """Why these results state no promise."""
    if "guarantee" in results.run.not_handed_over:
        return "It is not known: the sites promise different things, or some promise nothing."
    return "No differential privacy is claimed for this training."


def _epsilon(results: Results) -> str:
    claim = results.run.guarantee
    if claim is None:
        known = "guarantee" not in results.run.not_handed_over
        return unclaimed(results) + known * " No epsilon holds, for a person or a record."
    figure = "no finite epsilon" if claim.epsilon is None else f"epsilon {claim.epsilon:.4g} at delta {claim.delta:.3g}"
    if claim.per_person is not None:
        told = f"per person, {claim.per_person.text}"
        return f"The claim is {figure} for each {claim.unit}; {told}. An audit cannot prove that a claim is kept."
    if claim.unit != "record":
        return f"The claim is {figure} for each {claim.unit}. An audit cannot prove that it is kept."
    if results.run.data.subjects is None:
        return (
            f"No: the claim is {figure} for each single record, and the data do not say whose a record is. It promises "
            "less to a person who has several."
        )
    return f"That is not stated: the claim is {figure} for each single record, and a person may have several."


def auditor_of(results: Results) -> str | None:
    """Who answers for the audit, if the configuration says so."""
    section = results.run.config.get("report")
    return (section.get("auditor") if isinstance(section, Mapping) else None) or None


def who(results: Results) -> str:
    """By whom, when, and with what."""
    run, auditor = results.run, auditor_of(results)
    made = f"on {run.created.replace('T', ' ')[:16]} with fedaudit {run.fedaudit}"
    if auditor:
        return f"{auditor} ran this audit, {made}."
    return f"The audit was made {made}. These results do not say by whom: [report] auditor in the configuration does."


def untested(results: Results, found: Sequence[Finding]) -> str:
    absent = sections.untested_vantages(results, found)
    if results.run.not_handed_over:
        return sections.KEPT + f" Nothing was handed over of what these can do: {absent}." * bool(absent)
    more = f" Nor was it asked what these can do: {absent}." if absent else ""
    return sections.untested_questions(results) + more
