"""A table as a consortium of hospitals has it: four unequal sites, missing cells, five classes. Made, with a seed.

Its shape is that of the four heart-disease cohorts: each site fills in other columns, and three tests are hardly ever
done at three of the four. The label follows from the columns a little, so that a network that fits it has to learn
patients by heart. With `visits` patients come back, and with `shared` some of them are in two hospitals.
"""

import csv
from pathlib import Path

import numpy as np

SITES = {"Aachen": 303, "Brno": 264, "Cork": 120, "Delft": 180}  # records
SOME, HARDLY = 0.08, 0.7  # shares of cells that are empty
COLUMNS = ("age", "sex", "pain", "pressure", "cholesterol", "sugar", "ecg", "rate", "angina", "slope", "vessels")


def table(path: Path, *, seed: int = 0, sites: dict[str, int] | None = None, visits: int = 1, shared: int = 0) -> Path:
    """Writes a CSV with `patient`, `hospital`, the COLUMNS and `stage` (healthy, I to IV).

    visits: a patient comes 1 to 2 * visits - 1 times; 1: once. shared: so many patients are in the first two sites.
    """
    rng = np.random.default_rng(seed)
    rows, number = [], 0
    for site, records in (sites or SITES).items():
        left = records
        while left:
            times = min(int(rng.integers(1, 2 * visits)), left)
            severity, person = rng.normal(), rng.normal(size=4)
            for _ in range(times):
                rows.append([f"p{number:04}", site, *_measured(site, severity, person, rng)])
            number, left = number + 1, left - times
    first, second = list(sites or SITES)[:2]
    theirs = [sorted({row[0] for row in rows if row[1] == site}) for site in (first, second)]
    same = dict(zip(theirs[1][:shared], theirs[0][:shared], strict=True))
    rows = [[same.get(row[0], row[0]), *row[1:]] for row in rows]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["patient", "hospital", *COLUMNS, "stage"])
        writer.writerows(rows)
    return path


def _measured(site: str, severity: float, person: np.ndarray, rng: np.random.Generator) -> list[str]:
    """One visit: eleven cells, some of them empty, and the stage."""
    age, pressure, cholesterol, rate = 55 + 9 * person + 2 * rng.normal(size=4)
    sick = severity + 0.7 * rng.normal()
    cells = [
        f"{age:.0f}",
        "male" if person[0] + person[1] > -0.6 else "female",
        ("typical", "atypical", "other", "absent")[int(np.clip(1.5 + sick, 0, 3))],
        f"{75 + pressure:.0f}",
        f"{190 + cholesterol:.0f}",
        "yes" if rng.random() < 0.15 else "no",
        ("normal", "st-t", "hypertrophy")[int(rng.integers(3))],
        f"{190 - rate:.0f}",
        "yes" if sick + rng.normal() > 0.8 else "no",
        ("up", "flat", "down")[int(np.clip(1 + sick + 0.5 * rng.normal(), 0, 2))],
        f"{np.clip(sick + rng.normal(), 0, 3):.0f}",
    ]
    rare = HARDLY if site != "Aachen" else SOME
    empty = np.array([0, 0, 0, SOME, rare if site == "Cork" else SOME, SOME, 0, SOME, SOME, rare, rare])
    kept = rng.random(len(cells)) >= empty
    stage = np.searchsorted([0.1, 0.7, 1.2, 1.8], sick + 1.2 * rng.normal())
    return [cell if there else "" for cell, there in zip(cells, kept, strict=True)] + [
        ("healthy", "I", "II", "III", "IV")[stage]
    ]


CONFIG = """\
[data]
name = "table"
path = "{path}"
label = "stage"
subject = "patient"
attributes = ["hospital"]
impute = "median"

[federation]
parties = 4
partition = "column"
column = "hospital"
members = 0.6
nonmembers = 0.2
rounds = {rounds}
local_epochs = 3
batch_size = 32
lr = 0.003

[model]
hidden = [64]

[audit]
"""


def config(folder: Path, *, rounds: int = 10, **made: int) -> Path:
    """The table and a configuration for it, in a folder; keys of [audit] may be appended."""
    table(folder / "patients.csv", **made)  # type: ignore[arg-type]
    path = folder / "sites.toml"
    path.write_text(CONFIG.format(path="patients.csv", rounds=rounds), encoding="utf-8")
    return path
