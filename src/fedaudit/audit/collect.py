"""Collect: measure the signals of every row, and hand each attack what it keeps of the rounds.

A `Sight` is one kind of model (of one party) with one kind of answers. Adversaries who see the same model with the same
answers share a sight, so that nothing is measured twice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.adversary.attacks.base import BaseAttack, Gather
from fedaudit.adversary.shadow import Banks
from fedaudit.adversary.signals import Family, measure, of_variant, searching, updates, variants
from fedaudit.adversary.vantage import GRANTS, View
from fedaudit.audit.costs import ROWS, Ledger, keeping, timed
from fedaudit.audit.patience import HANGS, TooLongError, failure, patience
from fedaudit.audit.settings import Settings, own_records, reference_half
from fedaudit.errors import OF_OTHERS, say
from fedaudit.types import (
    Bools,
    Floats,
    Game,
    Grant,
    Ints,
    Measured,
    ModelKind,
    Moment,
    Notice,
    Records,
    Role,
    Stored,
    Strings,
    Task,
    as_notices,
    notice,
)
from fedaudit.words import words

MAY_BE_ABSENT = {"peer-cosine"}  # all NaN in a round in which no other party took part
# NaN and infinity are looked for in the results and reported there, so numpy need not warn about them as well.
quietly = np.errstate(all="ignore")


class Sight:
    """Global models: one sight for all candidates. Local models: one for each party, with its own candidates."""

    def __init__(
        self,
        *,
        model: ModelKind,
        index: Ints,
        game: Game,
        attacks: Sequence[BaseAttack],
        settings: Settings,
        task: Task | None,
        lasting: bool = True,
        losses: updates.Losses | None = None,
        like: Sight | None = None,
    ):
        """`lasting`: this sight sees every round. If not, it asks only the last model, when a score is needed.
        `losses`: what all sights know of the model that was asked last. `like`: one of the same records and attacks,
        for what does not change from round to round."""
        self.model, self.index, self.candidates = model, index, game.candidates
        self.id, self.party = game.candidates.id[index], game.candidates.party[index]
        self.role = game.truth.role[index]
        self.of_role = {role: self.role == role.value for role in Role}
        subject = game.candidates.subject_number
        self.subject = None if subject is None else subject[index]
        names = game.candidates.subject
        self.who = self.id if names is None else names[index]  # the person of each candidate, or the candidate itself
        self.reference: Bools = like.reference if like else reference_half(game, index)
        self.row_index, self.owner = rows_of(game.candidates.owner, index)
        self.row_ids = game.candidates.rows.id[self.row_index]
        self.attacks = list(attacks)
        self.reductions = {attack.name: attack.reduce(len(index)) for attack in attacks}
        self.lasting = lasting
        self.later = {attack.name for attack in attacks if attack.deferred or not lasting}
        self.first, self.of_first = game.first, game.of_first()[index]
        signals = self.signals(attacks)
        self.losses = losses or updates.Losses()
        fresh = settings.filtering(signals, self.losses)
        self.filters: dict[str, updates.Filtering] = like.filters if like else fresh
        searches = {v: settings.search_of(v) for v in variants(signals, searching.NEEDS)}
        self.usual_own = settings.search.own
        taught = {attack.own or self.usual_own for attack in attacks if "own" in attack.fitted_on}
        numbers = taught | {options.own for options in searches.values()}
        self._own = {many: own_records(game, index, many) for many in numbers}
        self.searches = {v: self._searching(v, options, settings.rounds) for v, options in searches.items()}
        self.unmixings = settings.unmixing(signals)
        self.families = settings.families(self.filters, self.searches, self.unmixings)
        self.ledger = Ledger(self.attacks, self.families, self.later)
        self.layers: dict[str, str] = {}  # signals of one layer: which
        self.banks = Banks(settings.references, self.signals(self.attacks), task)
        self.pending: View | None = None  # the model that a deferred attack asks when it is scored
        self.looked: dict[tuple[str, ...], Measured] = {}  # by signals: what was measured of that model
        self.settled: set[str] = set()  # deferred attacks that have looked at the last model
        self.failed: dict[str, str] = {}
        self.notes: list[Notice] = []
        self.rounds = 0  # how many were absorbed
        self.absorbed = 0  # the last round that was absorbed
        self.epoch_seconds = 0.0  # of the rounds that were absorbed
        self.queries = 0

    @property
    def rows(self) -> Records:
        """Selected when needed, so that the records are not held in memory twice."""
        rows = self.candidates.rows
        return rows if len(self.row_index) == len(rows) else rows.take(self.row_index)

    def own(self, many: int | None) -> Bools:
        """Records of the first party's own that it learns from: so many, or as many as [audit.tear] says."""
        return self._own[many or self.usual_own]

    def _searching(self, variant: str, options: searching.SearchOptions, rounds: int) -> searching.Searching:
        """The queries are shared among the rounds, unless only the last model is searched."""
        distance = f"{searching.DISTANCE}{variant}"
        every_round = any(distance in a.signals and a.name not in self.later for a in self.attacks)
        own = self.own(options.own)
        asked = own | ~self.of_first
        options = replace(options, rounds=rounds if every_round else 1)
        return searching.Searching(options, own[self.owner], asked[self.owner])

    @staticmethod
    def signals(attacks: Iterable[BaseAttack]) -> list[str]:
        return sorted({signal for attack in attacks for signal in attack.signals})

    def wants(self, moment: Moment, last: bool) -> list[str]:
        """The signals to measure at a moment, for attacks that have not failed: of a round, not of a probe. In the last
        planned round this includes those of deferred attacks."""
        alive = [] if moment.probe else [attack for attack in self.attacks if attack.name not in self.failed]
        now = [attack for attack in alive if attack.name not in self.later]
        later = [attack for attack in alive if attack.name in self.later]
        return [*self.signals(now), *(self.signals(later) if last else [])]

    # ------------------------------------------------------------------ one moment

    def measure(self, view: View, epoch_seconds: float, last: bool) -> Measured:
        """The signals of a round. It changes no state, so it may be interrupted."""
        return self.measure_signals(self.wants(view.moment, last), view, epoch_seconds)

    @quietly
    def measure_signals(self, signals: Iterable[str], view: View, epoch_seconds: float) -> Measured:
        asked, spent = view.queries.count, dict[str, float]()
        with timed(spent, ROWS):
            rows = self.rows
        found = Attempt(view, rows, self.reference[self.owner], self.families, spent)
        found.measure(sorted(set(signals)))
        if self.model == "global" and "loss" in found.values and Grant.WEIGHTS in GRANTS[view.vantage, "global"]:
            self.losses.tell(view.weights, rows, found.values["loss"])  # the next round starts from it
        self._ask_references(found, signals, view, rows)
        return Measured(
            rows.id,
            found.values,
            sum(found.spent.values()),
            epoch_seconds,
            failed=found.failed,
            unobserved=frozenset(found.unobserved),
            layers=self._layers(found),
            queries=view.queries.count - asked,
            notes=tuple(found.notes),
            spent=found.spent,
        )

    def _layers(self, found: Attempt) -> dict[str, str]:
        layers = {f"{s}{variant}": one.layer for variant, one in self.filters.items() for s in updates.OF_ONE_LAYER}
        return {name: layer for name, layer in layers.items() if layer is not None and name in found.values}

    def _ask_references(self, found: Attempt, signals: Iterable[str], view: View, rows: Records) -> None:
        party = self.party[self.owner]
        for name in self.banks.metrics:
            try:
                with timed(found.spent, name), patience():
                    found.add(self.banks.answers(name, signals, view, rows, party, self.absorbed))
            except Exception as error:
                found.fail(self.banks.signals_of(name), error)

    @quietly
    def absorb(self, moment: Moment, measured: Measured, stored: bool) -> Measured:
        """Hands the attacks what was measured. A stored round knows what it cost; a live one is timed here."""
        kept: dict[str, float] = {}
        values = in_order(measured, self.row_ids)
        for variant, search in self.searches.items():
            search.remember(of_variant(values, variant))
        for attack in self.attacks:
            if attack.name in self.failed:
                continue
            if attack.name in self.later:
                self.settled.discard(attack.name)
                if not set(attack.signals) <= set(values) and not _hopeless(attack, measured):
                    continue
            with timed(kept, keeping(attack)):
                why = self.reduce(attack, self.reductions[attack.name], moment, values, measured)
            if why:
                self.failed[attack.name] = why
            elif attack.name in self.later:
                self.settled.add(attack.name)
        self.notes += measured.notes
        self.pending, self.absorbed = None, moment.round  # what a deferred attack would look at is no longer last
        self.looked = {}
        self.rounds += 1
        self.epoch_seconds += measured.epoch_seconds
        if not stored:
            spent = {**measured.spent, **kept}
            measured = replace(measured, seconds=sum(spent.values()), spent=spent)
        for attack in self.attacks:
            self.ledger.charge(attack.name, measured.spent)
        self.queries += measured.queries
        self.layers |= measured.layers
        return measured

    def reduce(
        self, attack: BaseAttack, reduction: Any, moment: Moment, values: Mapping[str, Any], measured: Measured
    ) -> str | None:
        """Hands one attack its signals. Returns why it failed, or None; other attacks are not affected."""
        missing = [signal for signal in attack.signals if signal not in values]
        if missing and set(missing) <= measured.unobserved:
            return None  # a gap: not observed is neither zero nor a failure
        if missing:
            reason = words(measured.failed[missing[0]]) if missing[0] in measured.failed else "it was not measured"
            return f"signal {missing[0]!r} in round {moment.round}: {reason}"
        lost = [s for s in attack.signals if s not in MAY_BE_ABSENT and not np.isfinite(values[s]).any()]
        if lost:
            return (
                f"scores are NaN since round {moment.round}: no record has a finite {lost[0]} under the {self.model} "
                "model, as after training that diverged"
            )
        try:
            with patience():
                reduction.observe(moment, self._of_candidates(attack, moment, values))
        except OF_OTHERS as error:
            return f"round {moment.round}: {say(error)}"
        return None

    def _of_candidates(self, attack: BaseAttack, moment: Moment, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """The values of candidates, from those of their rows. A candidate that does not exist at this moment has
        none."""
        mine = {signal: values[signal] for signal in attack.signals}
        if len(self.owner) != len(self.id) or (self.owner != np.arange(len(self.id))).any():
            mine = {name: gather(of, self.owner, len(self.id), attack.gather) for name, of in mine.items()}
        if moment in self.candidates.at:
            absent = ~self.candidates.present(moment)[self.index]
            mine = {name: _without(of, absent) for name, of in mine.items()}
        return mine

    def expect(self, view: View) -> None:
        """What a deferred attack will look at, unless a later model is known; only the model itself is held."""
        if self.later and (self.pending is None or self.pending.moment < view.moment):
            self.pending, self.looked = view.alone(), {}

    def look(self, signals: Iterable[str], view: View) -> Measured:
        """What deferred attacks see of the pending model. It is measured once, for all of them and every snapshot."""
        key = tuple(signals)
        if key not in self.looked:
            found = self.measure_signals(key, view, 0.0)
            self.looked[key] = replace(found, values={name: of for name, of in found.values.items() if name in key})
        return self.looked[key]

    # ------------------------------------------------------------------ between two rounds

    def leave_out(self, names: Collection[str]) -> None:
        """Goes on without these attacks."""
        self.attacks = [attack for attack in self.attacks if attack.name not in names]
        self.reductions = {name: kept for name, kept in self.reductions.items() if name not in names}
        self.ledger.leave_out(names)

    def cost(self, attack: BaseAttack) -> float:
        """Seconds that this attack is charged here, as `costs` defines it."""
        waiting = attack.name in self.later - self.settled
        look = self.looked.get(tuple(attack.signals)) if waiting else None
        return self.ledger.cost(attack.name, look.spent if look else None)

    def state(self) -> Stored:
        """Everything needed to continue with the next round, in this process or another; not the pending model."""
        return {
            "reductions": {name: reduction.state() for name, reduction in self.reductions.items()},
            "banks": self.banks.state(),
            "search": self.searches[""].state() if "" in self.searches else {},
            "searches": {variant: search.state() for variant, search in self.searches.items() if variant},
            "unmixings": {variant: each.state() for variant, each in self.unmixings.items()},
            "settled": sorted(self.settled),
            "failed": dict(self.failed),
            "notes": [note.stored() for note in self.notes],
            "rounds": self.rounds,
            "absorbed": self.absorbed,
            "queries": self.queries,
            "layers": dict(self.layers),
            "charged": self.ledger.state(),
            "epoch_seconds": self.epoch_seconds,
        }

    def restore(self, state: Stored) -> None:
        for name, reduction in self.reductions.items():
            reduction.restore(state["reductions"][name])
        self.banks.restore(state["banks"])
        self.pending, self.looked = None, {}
        for variant, search in self.searches.items():
            search.restore(state["searches"][variant] if variant else state["search"])
        for variant, unmixing in self.unmixings.items():
            unmixing.restore(state["unmixings"][variant])
        self.settled, self.failed = set(state["settled"]), dict(state["failed"])
        self.notes = [*as_notices(state["notes"])]
        self.rounds, self.absorbed, self.queries = state["rounds"], state["absorbed"], state["queries"]
        self.ledger.restore(state["charged"])
        self.epoch_seconds = state["epoch_seconds"]
        self.layers = dict(state["layers"])


def _hopeless(attack: BaseAttack, measured: Measured) -> bool:
    """Did a signal of this attack take too long? Then there is no point in waiting for the last model."""
    return any(signal in measured.failed and measured.failed[signal].code == HANGS for signal in attack.signals)


class Attempt:
    """Measures each family of signals in one pass. If that fails, measures them one by one, so that only the faulty one
    is lost; but not if it took too long, because each of them would."""

    def __init__(
        self, view: View, rows: Records, known: Bools, families: Sequence[Family], spent: dict[str, float] | None = None
    ):
        self.view, self.rows, self.known, self.families = view, rows, known, families
        self.values: dict[str, NDArray[Any]] = {}
        self.failed: dict[str, Notice] = {}
        self.unobserved: set[str] = set()
        self.notes: list[Notice] = []
        self.spent = {} if spent is None else spent  # seconds, by family and bank

    def measure(self, signals: Sequence[str]) -> None:
        for family in self.families:
            mine = [name for name in signals if name in family.needs]
            if mine:
                with timed(self.spent, family.name):
                    self._of(family, mine)

    def _of(self, family: Family, signals: Sequence[str]) -> None:
        try:
            self._measure(family, signals)
        except TooLongError as error:
            self.fail(signals, error)
        except Exception as together:
            failed_before = len(self.failed)
            for name in signals:
                try:
                    self._measure(family, [name])
                except Exception as error:
                    self.fail([name], error)
            if len(self.failed) == failed_before:
                self.notes.append(notice("measured-apart", round=self.view.moment.round, why=say(together)))

    def _measure(self, family: Family, signals: Sequence[str]) -> None:
        with patience(family.expected):
            found = measure(signals, self.view, self.rows, self.known, [family])
        self.add(found)
        self.unobserved |= set(signals) - set(found)

    def add(self, values: Mapping[str, NDArray[Any]]) -> None:
        self.values |= values

    def fail(self, signals: Iterable[str], error: Exception) -> None:
        self.failed |= dict.fromkeys(signals, failure(error))


# ------------------------------------------------------------------ rows and candidates


def rows_of(owner: Ints, index: Ints) -> tuple[Ints, Ints]:
    """The rows of the candidates in `index`, and for each of them the place of its owner there."""
    place = np.full(int(max(owner.max(initial=-1), index.max(initial=-1))) + 1, -1)
    place[index] = np.arange(len(index))
    rows = np.flatnonzero(place[owner] >= 0)
    return rows, place[owner[rows]]


def gather(values: NDArray[Any], owner: Ints, n: int, how: Gather) -> Floats:
    """One value per candidate from its rows: their mean, or all of them sorted (padded with NaN).

    Rows without a value do not count. A candidate without any such row has no value.
    """
    rows = values.reshape(len(values), -1).astype(np.float64)
    finite = np.isfinite(rows)
    if how == "mean":
        count = np.zeros((n, rows.shape[1]))
        np.add.at(count, owner, finite)
        found = np.zeros((n, rows.shape[1]))
        np.add.at(found, owner, np.where(finite, rows, 0.0))
        found = np.where(count > 0, found / np.maximum(count, 1), np.nan)
    else:
        order = np.lexsort((rows[:, 0], owner))
        sizes = np.bincount(owner, minlength=n)
        rank = np.arange(len(owner)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        found = np.full((n, int(sizes.max(initial=1))), np.nan)
        found[owner[order], rank] = np.where(finite[order, 0], rows[order, 0], np.nan)
        return found
    return found[:, 0] if values.ndim == 1 else found


def _without(values: NDArray[Any], absent: Bools) -> Floats:
    kept = values.astype(np.float64)
    kept[absent] = np.nan
    return kept


def in_order(measured: Measured, ids: Strings) -> Mapping[str, Any]:
    """The values in the order of `ids`, joined by id. An id without a value gets NaN."""
    if np.array_equal(measured.id, ids):
        return measured.values
    order = np.argsort(measured.id)
    spot = order[np.minimum(np.searchsorted(measured.id, ids, sorter=order), len(order) - 1)]
    known = measured.id[spot] == ids
    found = {}
    for name, values in measured.values.items():
        found[name] = values[spot].astype(np.float64)
        found[name][~known] = np.nan
    return found
