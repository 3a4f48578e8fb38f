"""`fedaudit look`: what two checkpoints say by themselves, without a run, a model or any record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedaudit.errors import REFUSED, FedauditError
from fedaudit.questions.update import UpdateSection
from fedaudit.questions.update.parts import BesideTruth, CannotTell, Known, OneUpdate, Table, parts, seen_by
from fedaudit.types import Notice, Records, State, notice, once


@dataclass(frozen=True)
class Sighting:
    """What is told, and the tables behind it, by part."""

    told: Sequence[Notice]
    tables: dict[str, Table]

    def plain(self, columns: Sequence[str]) -> dict[str, Any]:
        """As JSON: all values that are listed, by their names or numbers."""
        table = self.tables.get("presence", {})
        if "update-absent" not in table:
            return {"schema": 1, "absent": None, "same-bearers": None}

        def named(which: Any) -> list[Any]:
            return [columns[j] if columns else j + 1 for j in np.flatnonzero(which).tolist()]

        twin = table["update-twin"]
        groups = [named(twin == number) for number in range(int(twin.max(initial=-1)) + 1)]
        return {"schema": 1, "absent": named(table["update-absent"]), "same-bearers": groups}


def looked(before: State, after: State, columns: tuple[str, ...]) -> Sighting:
    """`columns`: what those of the input are called; empty where that is not known."""
    common = [name for name in after if name in before and after[name].shape == before[name].shape]
    if not common or len(common) < max(len(before), len(after)):
        what = "the two files do not hold the same weights: names or shapes differ"
        raise FedauditError("look-names", what, "Give the model that the party received as --before.")
    for name in common:
        if after[name].dtype.kind != before[name].dtype.kind:
            what = f"{name} is {after[name].dtype} in one file and {before[name].dtype} in the other"
            raise FedauditError("look-kinds", what, "Give both as they were exchanged.")
        if any(held.dtype.kind == "f" and not np.isfinite(held).all() for held in (before[name], after[name])):
            what = f"{name} has weights that are NaN or infinite: the training diverged"
            raise FedauditError("not-finite", what, "Give the update of an earlier round.", exit_code=REFUSED)
    options, known = UpdateSection(names=True), Known(columns=columns)
    update = OneUpdate(received={n: before[n] for n in common}, sent={n: after[n] for n in common})
    nobody = Records(np.zeros((0, 0), np.float32), np.zeros(0, np.int64), np.zeros(0, str))
    told: list[Notice] = []
    tables: dict[str, Table] = {}
    for name, part in parts().items():
        if name not in OF_ARRAYS:
            continue
        try:
            tables[name] = seen_by(part, update, known, options)
        except CannotTell as why:
            told.append(notice("update-cannot-tell", why=why.code, updates=1))
            continue
        one = BesideTruth(party=None, round=0, vantage="", table=tables[name], members=nobody)
        if said := part.say(one, known, options):
            told.append(said)
    listed = tables.get("presence", {}).get("update-absent")
    if listed is not None and columns and len(columns) != len(listed):
        what = f"the names are of {len(columns)} columns, and the input has {len(listed)}"
        raise FedauditError("look-columns", what, "Give one name a line, in the order of the columns.")
    return Sighting(once(told), tables)


OF_ARRAYS = ("presence", "leaves")  # parts that need neither a model nor records
