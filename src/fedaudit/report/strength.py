"""Where the audited federation lies on the measured map of the matched filter: weights of its layer per member."""

from fedaudit.report.shapes import Panel, Table
from fedaudit.report.values import Results
from fedaudit.stats.wording import count

# Weights for each member in the sum, and the share of members found at 1 % FPR after eight rounds of one epoch:
# smallest and largest of all measured federations there (docs/matched-filter.md, "Where it stops").
MAP = (
    (80.0, "97 to 100 %"),
    (40.0, "69 to 99 %"),
    (20.0, "50 to 84 %"),
    (10.0, "11 to 74 %"),
    (5.0, "16 to 44 %"),
    (2.0, "2 to 28 %"),
    (0.0, "2 to 10 %"),
)
SUMS = {"local": "one party's update", "global": "the sum of all parties' updates"}


def strength(results: Results) -> Panel | None:
    weights = results.run.weights_per_member
    looked_for = [entry for entry in results.results if entry.attack == "matched-filter" and entry.layer]
    if not weights or not looked_for:
        return None
    lead = (
        "The matched filter looks for a record's own gradient in an update of one layer. "
        "What counts is how many weights that layer has for each record in the update, not whether the model has "
        "memorised anything. Below is where this federation lies among 12 that were measured, with three seeds each "
        "(docs/matched-filter.md): the smallest and the largest share found, a guide and not a result."
    )
    shown = [("Layer", looked_for[0].layer or "")]
    rows = []
    for model, title in SUMS.items():
        if model in weights:
            rows.append((title, count(round(weights[model])), found_there(weights[model])))
    head = ("seen", "weights per member", "members found at 1 % FPR in measured federations like it")
    return Panel(lead, shown, [("Place on the map", Table(head, rows))])


def found_there(weights: float) -> str:
    return next(found for least, found in MAP if weights >= least)
