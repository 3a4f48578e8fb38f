"""Whose record is it? What the server can tell, party by party."""

from fedaudit.report.shapes import PageSection, Panel, Table
from fedaudit.report.values import Results
from fedaudit.stats.wording import count, full_text


def sections(results: Results) -> list[PageSection]:
    """The results of `source`, party by party."""
    rows = []
    for entry in results.results:
        if entry.attack == "source" and entry.party:
            named, elsewhere = entry.estimates.get("accuracy"), entry.estimates.get("auc-other-party")
            sizes = (elsewhere.n_pos, elsewhere.n_neg) if elsewhere else (None, None)
            row = [entry.party, full_text("accuracy", named), full_text("auc", elsewhere), *map(count, sizes)]
            rows.append(row)
    if not rows:
        return []
    lead = (
        "Seen by the server: how often the right party is named for a training record, and how well a party's records "
        "are told from the other parties' (chance is 0.5). There is no such AUC for all parties together: every record "
        "would be on both sides."
    )
    head = ("party", "rightly named", "AUC against other parties' records", "own records", "others' records")
    panel = Panel(lead, tables=[("", Table(head, rows))])
    return [PageSection("naming", "Whose record is it?", "Whose record", [panel])]
