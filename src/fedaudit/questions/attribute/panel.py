"""What the models tell about a hidden attribute, with the two guesses that the attack must beat."""

from fedaudit.questions import of
from fedaudit.report.sections import every_estimate
from fedaudit.report.shapes import PageSection, Panel, Table
from fedaudit.report.values import Results
from fedaudit.stats.wording import full_text

# The two differences that matter come first.
NAMES = ("excess-over-blind", "members-minus-nonmembers", "members-auc", "nonmembers-auc", "blind-auc")
TITLES = ("party", "excess over blind", "members minus non-members", "AUC members", "non-members", "blind")
LEAD = (
    "An attribute can often be guessed from the rest of the record by anybody. Training reveals it only as far as the "
    "attack beats a guess that never sees a model (excess over blind), and does better for members than for people who "
    "were not trained on. Each interval holds for its own row."
)


def sections(results: Results) -> list[PageSection]:
    entries = [entry for entry in results.results if (question := of(entry)) and question.name == "attribute"]
    if not entries:
        return []
    rows = [[e.party or "all", *(full_text(name, e.estimates.get(name)) for name in NAMES)] for e in entries]
    everything = every_estimate(entries[:1])
    head = ("attack", "vantage", "model", "measure", "value", "interval", "realised FPR", "people", "compared with")
    folded = [("Counts and methods, all parties", Table((*head, *everything.head[9:]), everything.rows))]
    panel = Panel(LEAD, tables=[("", Table(TITLES, rows))], folded=folded)
    return [PageSection("attribute", "A hidden attribute", "Hidden attribute", [panel])]
