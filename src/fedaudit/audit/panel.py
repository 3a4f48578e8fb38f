"""One model kind and party watched over the rounds: which candidates, and what each attack keeps of them."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.adversary.attacks.base import BaseAttack
from fedaudit.adversary.attacks.series import Series, Table
from fedaudit.adversary.shadow.references import metrics_by_bank
from fedaudit.adversary.signals import GRADIENTS, measure
from fedaudit.audit.patience import patience
from fedaudit.errors import FedauditError
from fedaudit.stats import Block, random_half
from fedaudit.types import Bools, Floats, Game, Ints, Measured, ModelKind, Records, Role, Strings, Task, View

if TYPE_CHECKING:
    from fedaudit.adversary.shadow import References
    from fedaudit.adversary.shadow.bank import Bank
    from fedaudit.audit.attributes import Probe


MAY_BE_ABSENT = {"peer-cosine"}  # all NaN in a round in which no other party took part
# NaN and infinity are looked for in what comes out, and told in words: numpy's own warnings would come on top.
quietly = np.errstate(all="ignore")


class Panel:
    """Global models: one panel for all candidates. Local models: one for each party, with its own candidates."""

    def __init__(
        self,
        model: ModelKind,
        index: Ints,
        game: Game,
        attacks: Sequence[BaseAttack],
        references: "References | None" = None,
    ):
        self.model = model
        self.id, self.party = game.candidates.id[index], game.candidates.party[index]
        self.role = game.truth.role[index]
        subject = game.candidates.subject_number
        self.subject = None if subject is None else subject[index]
        self.index, self.candidates = index, game.candidates
        self.row_ids = game.candidates.rows.id[index]
        self.reductions = {attack.name: attack.reduce(len(index)) for attack in attacks}
        self.now = [attack for attack in attacks if not attack.deferred]
        self.later = [attack for attack in attacks if attack.deferred]
        self.signals = sorted({signal for attack in self.now for signal in attack.signals})
        self.deferred_signals = sorted({signal for attack in self.later for signal in attack.signals})
        self.pending: tuple[View, Task] | None = None  # what deferred attacks look at when they are asked
        self.settled: set[str] = set()  # deferred attacks that have looked
        self.failed: dict[str, str] = {}
        self.rounds = 0
        self.references = references
        self.banks: dict[str, Bank] = {}
        self.absorbed = 0  # the last round taken in
        self.shadow: Panel | None = None  # the adversary's own records, from which some attacks learn
        self.probe: Probe | None = None  # sets a hidden attribute to each of its values in turn
        trained_on = game.truth.mask(Role.MEMBER)
        self.trained_subjects = None if game.candidates.subject is None else game.candidates.subject[trained_on]
        self.barred: str | None = None  # the party that is itself the adversary with the shadow
        self._learnt: dict[str, tuple[tuple[int, ...], Floats]] = {}
        self.reference = reference_half(game, index)
        self.seconds = self.epoch_seconds = self.gradient_seconds = 0.0

    @property
    def rows(self) -> Records:
        """Taken when needed: the records of all parties are not held twice."""
        rows = self.candidates.rows
        return rows if len(self.index) == len(rows) else rows.take(self.index)

    def measure(self, view: View, task: Task, epoch_seconds: float, last: bool) -> Measured:
        """The signals of a round. Changes nothing here, so that it may be broken off."""
        return self._measure(self.wants(last), view, task, epoch_seconds)

    def wants(self, last: bool) -> list[str]:
        """What is measured in a round; in the last one also what was deferred until then."""
        return [*self.signals, *self.deferred_signals] if last else self.signals

    @quietly
    def absorb(self, round: int, measured: Measured, stored: bool) -> Measured:
        """Take in a round. A stored one brings what it cost along; a live one is timed here and returned with it."""
        started = time.perf_counter()
        values = in_order(measured, self.row_ids)
        for attack in (*self.now, *self.later):
            if attack.name in self.failed:
                continue
            if attack.deferred:
                self.settled.discard(attack.name)
                if not set(attack.signals) <= set(values):
                    continue
            self._reduce(attack, round, values, measured.failed)
        self.pending, self.absorbed = None, round
        self.rounds += 1
        if not stored:
            measured = replace(measured, seconds=measured.seconds + time.perf_counter() - started)
        self.seconds += measured.seconds
        self.epoch_seconds += measured.epoch_seconds
        self.gradient_seconds += measured.gradient_seconds
        return measured

    @quietly
    def _measure(self, signals: Iterable[str], view: View, task: Task, epoch_seconds: float) -> Measured:
        started, rows, wanted = time.perf_counter(), self.rows, set(signals)
        values, failed = attempt(sorted(wanted - GRADIENTS), view, rows, task)
        before = time.perf_counter()
        of_gradients, failed_gradients = attempt(sorted(wanted & GRADIENTS), view, rows, task)
        gradient_seconds = time.perf_counter() - before
        values, failed = values | of_gradients, failed | failed_gradients
        for name, metrics in metrics_by_bank([*self.signals, *self.deferred_signals]).items():
            try:
                with patience():
                    values |= self._bank(name, metrics, task).answers(signals, view, self.absorbed)
            except Exception as error:
                failed |= dict.fromkeys((f"{name}-{metric}" for metric in metrics), say(error))
        if self.probe and self.probe.signal in signals:
            try:
                values |= self.probe(view, rows, task)
            except Exception as error:
                failed[self.probe.signal] = say(error)
        return Measured(rows.id, values, time.perf_counter() - started, epoch_seconds, failed, gradient_seconds)

    def _bank(self, name: str, metrics: list[str], task: Any) -> "Bank":
        """Reference models behind signals; they come into being when they are first asked."""
        assert self.references is not None, "signals of references need them"
        if name not in self.banks:
            self.banks[name] = self.references.bank(task, name, metrics, self.rows, self.party)
        return self.banks[name]

    def _reduce(self, attack: BaseAttack, round: int, values: Mapping[str, Any], why: Mapping[str, str]) -> None:
        """One attack that fails is marked, and costs no other attack anything."""
        missing = [signal for signal in attack.signals if signal not in values]
        if missing:
            reason = why.get(missing[0], "it was not measured")
            self.failed[attack.name] = f"signal {missing[0]!r} in round {round}: {reason}"
            return
        lost = [s for s in attack.signals if s not in MAY_BE_ABSENT and not np.isfinite(values[s]).any()]
        if lost:
            self.failed[attack.name] = (
                f"scores are NaN since round {round}: no record has a finite {lost[0]} under the {self.model} model, "
                "as after training that diverged"
            )
            return
        try:
            with patience():
                self.reductions[attack.name].observe(round, values)
        except Exception as error:
            self.failed[attack.name] = f"round {round}: {say(error)}"
        if attack.deferred:
            self.settled.add(attack.name)

    def _settle(self, attack: BaseAttack) -> None:
        """A deferred attack looks at the last model only now that its score is asked for."""
        if self.pending is None:
            raise FedauditError(
                "deferred",
                f"{attack.name} looks at the last model alone, and neither that model nor its signals were kept",
                'Record with audit.keep = "snapshots".',
            )
        view, task = self.pending
        measured = self._measure(attack.signals, view, task, 0.0)
        self.seconds += measured.seconds
        self._reduce(attack, view.round, measured.values, measured.failed)
        if attack.name in self.failed:
            raise FedauditError("attack", self.failed[attack.name], "The other attacks are not affected.")

    def cost(self, attack: BaseAttack) -> float:
        """Seconds: signals that attacks share, and the gradients and reference models that only some of them need."""
        used = set(attack.signals)
        unused = sum(bank.seconds for bank in self.banks.values() if not bank.signals & used)
        return self.seconds - unused - (0.0 if used & GRADIENTS else self.gradient_seconds)

    @quietly
    def scores(self, attack: BaseAttack) -> Floats:
        if not self.rounds:
            return np.full(len(self.id), np.nan)
        if attack.deferred and attack.name not in self.settled:
            self._settle(attack)
        if isinstance(attack, Series):
            return self._scores_by_shadow(attack)
        features = self.reductions[attack.name].features()
        if self.cannot_fit(attack):
            return np.full(len(self.id), np.nan)
        fitted = attack.fit(features[self.reference]) if attack.fits else attack
        return fitted.score(features)

    def _scores_by_shadow(self, attack: Series) -> Floats:
        """Learn from the adversary's own records, over the rounds in which both it and the target were seen."""
        if self.shadow is None:
            raise FedauditError("no-shadow", f"{attack.name} needs an adversary with a shadow", "Set audit.adversary.")
        target, own = self.reductions[attack.name], self.shadow.reductions[attack.name]
        assert isinstance(target, Table)
        assert isinstance(own, Table)
        rounds = tuple(round for round in target.rounds if round in own.rounds)
        if not rounds:
            return np.full(len(self.id), np.nan)
        before = self._learnt.get(attack.name)
        if before is None or before[0] != rounds:
            member = self.shadow.role == Role.MEMBER.value
            before = rounds, attack.learn(own.at(rounds), member).score(target.at(rounds))
            self._learnt[attack.name] = before
        return before[1]

    def defined(self, attack: BaseAttack) -> bool:
        """Has enough been observed for this attack? A party that hardly takes part may never get there."""
        return bool(np.isfinite(self.scores(attack)).any())

    def unscored(self, attack: BaseAttack) -> int:
        """How many candidates have no finite score."""
        return int((~np.isfinite(self.scores(attack)))[self.judged(attack)].sum())

    def cannot_fit(self, attack: BaseAttack) -> bool:
        """One non-member says nothing of how non-members vary."""
        return attack.fits and int(self.reference.sum()) < 2

    def why_undefined(self, attack: BaseAttack) -> str:
        if self.cannot_fit(attack):
            return f"needs 2 known non-members to be fitted on, and there are {int(self.reference.sum())}"
        return "took part in too few rounds"

    def judged(self, attack: BaseAttack) -> Bools:
        """The candidates an attack is about: a party that attacks others knows its own records."""
        return np.asarray(self.party != self.barred) if attack.learns and self.barred else np.ones(len(self.id), bool)

    def block(self, attack: BaseAttack, party: str | None = None) -> Block:
        """The scores, of one party's candidates or all, sorted into the three sets."""
        scores = finite(self.scores(attack), self.id, attack.name)
        mine = self.judged(attack) & (True if party is None else self.party == party)
        calibration = mine & (self.role == Role.CALIBRATION.value)
        if attack.fits:
            calibration &= ~self.reference
        sets = (mine & (self.role == Role.MEMBER.value), mine & (self.role == Role.EVALUATION.value), calibration)
        subject = self.subject
        names = None if subject is None else (subject[sets[0]], subject[sets[1]], subject[sets[2]])
        return Block(scores[sets[0]], scores[sets[1]], scores[sets[2]], names)


def reference_half(game: Game, index: Ints) -> Bools:
    """Half of the calibration records: known non-members on which an attack may be fitted."""
    half = random_half(game.candidates.id[index], "reference")
    return np.asarray(half & (game.truth.role[index] == Role.CALIBRATION.value))


def attempt(
    signals: Sequence[str], view: View, rows: Records, task: Task
) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """The signals, all in one pass if that works; else one by one, to lose only the signal that is to blame."""
    values: dict[str, NDArray[Any]] = {}
    failed: dict[str, str] = {}
    try:
        with patience():
            return dict(measure(signals, view, rows, task)), failed
    except Exception:
        for name in signals:
            try:
                with patience():
                    values |= measure([name], view, rows, task)
            except Exception as error:
                failed[name] = say(error)
    return values, failed


def in_order(measured: Measured, ids: Strings) -> Mapping[str, Any]:
    """The values in the order of `ids`: stored or live, they are joined by id; what is not there is NaN."""
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


def say(error: Exception) -> str:
    """Why something failed. Our own errors are in words; a foreign one may quote data, so only its kind is told."""
    if isinstance(error, FedauditError):
        return error.what
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = "" if trace is None else f" in {Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"
    return f"{type(error).__name__}{place}"


def finite(scores: Floats, ids: np.ndarray, attack: str) -> Floats:
    """Scores without NaN and infinity: a few count as the least suspicious, more than 1 % is an error, all means "not
    yet"."""
    bad = ~np.isfinite(scores)
    count = int(bad.sum())
    if 0.01 * len(scores) < count < len(scores):
        first = ids[np.flatnonzero(bad)[0]]
        raise FedauditError(
            "nan-scores",
            f"{attack}: {count} of {len(scores)} scores are NaN or infinite, the first is {first}",
            "Look at that record.",
        )
    return np.where(bad, -np.inf, scores) if count else scores
