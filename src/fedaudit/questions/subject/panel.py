"""How well an adversary decides which people were trained on."""

import re

from fedaudit.report import words
from fedaudit.report.shapes import PageSection, Panel, Table
from fedaudit.report.values import Results
from fedaudit.report.words import adversary
from fedaudit.stats.wording import count, full_text

ACCURACY = re.compile(r"balanced-accuracy@(\d+)")


def sections(results: Results) -> list[PageSection]:
    """Decisions about people, tuned on a few whose membership is known."""
    tables = []
    for entry in words.pooled(results):
        rows = []
        for name, accuracy in entry.estimates.items():
            if match := ACCURACY.fullmatch(name):
                f1 = entry.estimates.get(f"f1@{match[1]}")
                people = f"{count(accuracy.n_pos)} and {count(accuracy.n_neg)}"
                rows.append([match[1], full_text(name, accuracy), full_text("f1", f1), people])
        if rows:
            head = ("known on each side", "balanced accuracy", "F1", "members and outsiders decided about")
            title = f"{entry.attack}, {adversary(entry.vantage).title.lower()}, {entry.model} models"
            tables.append((title, Table(head, rows, "")))
    if not tables:
        return []
    lead = (
        "For each person the adversary says yes or no, with a threshold that was set on a few people whose membership "
        "it knows. Guessing has a balanced accuracy of 0.5. F1 is shown beside published figures only: whoever says "
        "yes to everybody has an F1 of 0.667 and a balanced accuracy of 0.5."
    )
    return [PageSection("subjects", "Who is in the training data", "Who is in it", [Panel(lead, tables=tables)])]
