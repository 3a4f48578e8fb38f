"""Panels of a game about people: what the adversary has of them, and how well it decides who was trained on."""

import re

from fedaudit.report import words
from fedaudit.report.adversaries import adversary
from fedaudit.report.shapes import Panel, Table
from fedaudit.report.values import Results
from fedaudit.stats.wording import count, full_text

ACCURACY = re.compile(r"balanced-accuracy@(\d+)")


def holds(results: Results) -> str:
    """What every adversary has of the people it asks about; empty in a game about records."""
    if not words.about_people(results):
        return ""
    federation = results.run.config.get("federation", {})
    fresh = federation.get("fresh") if isinstance(federation, dict) else None
    theirs = "the very records that were trained on" if fresh == 0 else "other records, none of which was trained on"
    return (
        f"This audit asks about people. Of each person the adversaries have {theirs}, at most 100, and of a few people "
        "they know whether they are in the training data. Those few are not reported on."
    )


def decided(results: Results) -> Panel | None:
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
        return None
    lead = (
        "For each person the adversary says yes or no, with a threshold that was set on a few people whose membership "
        "it knows. Guessing has a balanced accuracy of 0.5. F1 is shown beside published figures only: whoever says "
        "yes to everybody has an F1 of 0.667 and a balanced accuracy of 0.5."
    )
    return Panel(lead, (), tables)
