"""Watches a federation round by round and reports what its adversaries could learn: collect, score, judge."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from fedaudit.adversary.attacks.base import BaseAttack
from fedaudit.adversary.shadow import SIGNALS as OF_REFERENCES
from fedaudit.adversary.shadow import is_outside
from fedaudit.audit.case import Case, Estimates, OverRounds
from fedaudit.audit.collect import Sight
from fedaudit.audit.controls import (
    Blind,
    accuracy,
    commonest_share,
    counts_differ,
    packed,
    right_answers,
    sets_differ,
    texts_differ,
    unpacked,
    useless,
)
from fedaudit.audit.costs import dearest
from fedaudit.audit.groups import Grouping, compared_groups, partition
from fedaudit.audit.observer import Observer, Shown
from fedaudit.audit.outlooks import SHADOW, Outlooks
from fedaudit.audit.patience import TooLongError, patience
from fedaudit.audit.quoted import compared_parties, headlines, more_exposed
from fedaudit.audit.score import Scores, spent
from fedaudit.audit.settings import Settings, of_membership
from fedaudit.audit.trajectories import Trajectories
from fedaudit.config.attack_registry import ATTACKS, BLIND
from fedaudit.errors import OF_OTHERS, FedauditError, say
from fedaudit.questions import named
from fedaudit.stats.strongest import Heard
from fedaudit.types import (
    Audit,
    AuditResult,
    Bools,
    Estimate,
    Game,
    Measured,
    ModelKind,
    Moment,
    Notice,
    Observation,
    Round,
    RoundRisk,
    State,
    Stored,
    Task,
    UnitErrors,
    Vantage,
    as_notices,
    gap,
    notice,
    once,
)
from fedaudit.words.headlines import Scene, worded

POINTS = 12  # of the curve over rounds of an attack that is not primary


class Auditor:
    """Live and stored rounds go through the same `absorb`. `snapshot` may be called after any round and changes
    nothing. `task` may be None if only stored rounds are absorbed."""

    def __init__(self, task: Task | None, game: Game, settings: Settings, *, like: Outlooks | None = None):
        """`like`: of an audit with the same game and settings, for what does not change from round to round."""
        self.task, self.game, self.settings = task, game, settings
        self.fprs, dropped = settings.reachable_fprs(game)
        self.notices = [*settings.notices, *dropped, *_references_assumed(settings.attacks)]
        self.outlooks = Outlooks(game, settings, task, like)
        self.history: dict[tuple[str, str, str], dict[int, Estimates]] = {}
        self.bands: dict[tuple[str, str, str], OverRounds] = {}
        self.trajectories = Trajectories(settings.followed, settings.confidence)
        self.unjudged: list[Notice] = []  # rounds without an estimate of the primary attack
        self.failed: dict[str, str] = {}
        self.dropped: dict[str, float] | None = None  # what cost too much: local epochs a round; None: not known yet
        self.released: State | None = None
        self.asked_by = task
        self.blind = Blind(game, settings.seed)
        self.right: Bools | None = None  # which candidates the released model classifies correctly, if known
        self.last_round = 0
        observers = {name: named(name).observer(asked) for name, asked in settings.asked.items()}
        self.observers: dict[str, Observer] = {name: one for name, one in observers.items() if one is not None}

    def fresh(self) -> Auditor:
        """The same audit before its first round. What was prepared from the records serves it, too."""
        return Auditor(self.task, self.game, self.settings, like=self.outlooks)

    # ------------------------------------------------------------------ collect

    def observe(self, round: Round) -> Observation | None:
        """One round, or one probe, as it happens."""
        return self.absorb(self.measure(round), round)

    def measure(self, round: Round) -> Observation | None:
        """Measures all signals of a round. Slow, and changes no state. None if the round's result was not kept."""
        if not (round.commit or round.probe) or self.task is None:
            return None
        epochs: dict[str | None, float] = {name: trained.epoch_seconds for name, trained in round.sent.items()}
        everybody = sum(epochs.values())
        last = round.index == self.settings.rounds
        of: dict[str | None, Measured] = {}
        for key, view in self.outlooks.views(round, self.task).items():
            sight = self.outlooks.sights[key]
            # Without a signal to measure, too: reference models learn in every round.
            if sight.wants(round.moment, last) or (sight.lasting and not round.probe):
                of[key] = sight.measure(view, epochs.get(key, everybody), last)
        shadow, own = self.settings.shadow, self.outlooks.own
        if own and shadow and not round.probe and (seen := shadow.measure(own, round, self.task, last)):
            of[SHADOW] = seen
        shown = Shown(
            round,
            self.task,
            self.settings.watched(),
            self.game.parties,
            self.settings.serve,
            planned=self.settings.rounds,
            outsiders=self.game.outsiders,
            training=self.settings.training,
            server_lr=self.settings.server_lr,
        )
        for observer in self.observers.values():
            of |= observer.measure(shown)
        return Observation(round.index, of, round.probe)

    def absorb(self, seen: Observation | None, round: Round | None = None) -> Observation | None:
        """Hands the attacks what was measured: live, together with its round, or stored. Returns it with its cost."""
        if seen is None:  # nothing to see in this round, but it counts
            self.last_round = round.index if round else self.last_round
            return None
        costed: dict[str | None, Measured] = {}
        for key, sight in self.outlooks:
            if key in seen.of:
                costed[key] = sight.absorb(seen.moment, seen.of[key], stored=round is None)
                self.failed = sight.failed | self.failed
        for observer in self.observers.values():
            costed |= observer.absorb(seen.moment, seen.of)
        if self.dropped is None and not seen.probe:
            self._drop(self._too_dear(costed))
        if not seen.probe:
            self.released = (round.aggregate or round.broadcast) if round else None
            self.right, self.last_round = None, seen.round
            if round:
                self.expect(round)
            self._remember(seen.round)
            self._picture(seen)
        return Observation(seen.round, costed, seen.probe)

    def _too_dear(self, costed: Mapping[str | None, Measured]) -> dict[str, float] | None:
        """Attacks that took more than the audit may cost, and how much; None if nobody says how long an epoch took."""
        most, local = self.settings.most, [of for key, of in costed.items() if key in self.outlooks.local]
        whole = costed.get(None)
        unit = max(sum(of.epoch_seconds for of in local), whole.epoch_seconds if whole else 0.0)
        if most.together is None and most.each is None:
            return {}
        if not unit:
            return None
        # Attacks with a shadow model are asked for by their adversary; one that failed is told as such.
        attacks = [attack for attack in self.settings.attacks if "shadow" not in attack.fitted_on]
        free = [attack.name for attack in attacks if attack.name not in self.failed]
        strongest = [attack.name for vantage in self.settings.vantages for attack in self.settings.ranked(vantage)]
        order = [name for name in dict.fromkeys([*strongest, *free]) if name in free]
        shares: dict[str, dict[tuple[str | None, str], float]] = {name: {} for name in order}
        for key, sight in self.outlooks:
            for name in shares.keys() & sight.ledger.items.keys() if key in costed else ():
                spent = costed[key].spent
                shares[name] |= {(key, item): spent[item] / unit for item in sight.ledger.items[name] if item in spent}
        prices = {  # as in a result: of the parties' own models, or of the global one
            name: max(
                math.fsum(cost for (key, _), cost in each.items() if (key in self.outlooks.local) == own)
                for own in (True, False)
            )
            for name, each in shares.items()
        }
        each = None if most.each is None else max(most.each, most.seconds / unit)
        return {name: prices[name] for name in dearest(prices, shares, most.together, each)}

    def _drop(self, dear: Mapping[str, float] | None) -> None:
        """Goes on without these attacks, as if nobody had thought of them."""
        if dear:
            kept = [attack for attack in self.settings.attacks if attack.name not in dear]
            self.settings = replace(self.settings, attacks=kept)
            for _, sight in self.outlooks:
                sight.leave_out(dear)
        self.dropped = None if dear is None else dict(dear)

    def release(self, model: State | None, right: Bools | None = None, task: Task | None = None) -> None:
        """Sets the final model after stored rounds, and which records it classifies correctly, if known."""
        self.released, self.right, self.asked_by = model, right, task or self.task

    def passed(self, round: int) -> None:
        """Counts a stored round in which nothing was measured."""
        self.last_round = round

    def wants(self, moment: Moment) -> set[str]:
        """The signals that all attacks together need at a moment."""
        last = moment.round == self.settings.rounds
        names = {signal for sight in self.outlooks.sights.values() for signal in sight.wants(moment, last)}
        used = {signal for attack in self.settings.attacks for signal in attack.signals}
        # Reference models are trained from round to round, so stored signals alone do not bring them to this round.
        return names | {"reference models"} if used & set(OF_REFERENCES) and not moment.probe else names

    def wants_models(self) -> bool:
        """Is there a deferred attack that has no model to look at yet?"""
        return any(sight.later and sight.pending is None for sight in self.outlooks.sights.values())

    def expect(self, round: Round) -> None:
        """Let deferred attacks look at this round's models, where they know of no later ones."""
        if self.task is None or not any(sight.later for sight in self.outlooks.sights.values()):
            return
        for key, view in self.outlooks.views(round, self.task).items():
            self.outlooks.sights[key].expect(view)

    # ------------------------------------------------------------------ score and judge

    @property
    def unseen(self) -> bool:
        """Was no party's local model ever observed? Then there is no result for the server."""
        local = self.outlooks.local.values()
        return bool(local) and self.last_round > 0 and not any(sight.rounds for sight in local)

    def case(self) -> Case:
        """Everything that the judges need, after the rounds so far."""
        settings, failed = self.settings, dict(self.failed)
        if self.unseen:
            rest = tuple(vantage for vantage in settings.vantages if vantage is not Vantage.SERVER)
            settings = replace(settings, vantages=rest or (Vantage.CLIENT,))
        scores = Scores(self.outlooks, settings.shadow.party if settings.shadow else None)
        return Case(
            self.game, settings, self.outlooks, scores=scores, fprs=self.fprs, round=self.last_round,
            bands=self.bands, failed=failed, history=self.history,
        )  # fmt: skip

    def snapshot(self) -> Audit:
        """All results after the rounds so far. Changes no state."""
        if self.last_round < 1:
            raise FedauditError("no-rounds", "no round was observed", "Observe at least one.")
        case = self.case()
        results: list[AuditResult] = []
        errors: dict[tuple[str, str, str], UnitErrors] = {}
        concluded: list[Notice] = []
        lost: list[Notice] = []  # where questions failed that look for themselves
        for vantage, model in case.settings.watched():
            for attack in case.alive(vantage, model):
                with case.blamed_on(attack.name):
                    verdict = named(attack.question).judge(case, attack, vantage, model)
                    results += verdict.results
                    errors.update(verdict.errors)
                    concluded += as_notices(verdict.notices)
            for result_name, observer in self._looking(vantage, model):
                failed: dict[str, str] = {}
                with case.blamed_on(result_name, failed):
                    verdict = observer.judge(case, result_name, vantage, model)
                    results += verdict.results
                    errors.update(verdict.errors)
                    concluded += as_notices(verdict.notices)
                where = {"vantage": vantage.value, "model": model}
                lost += [gap("question-failed-at", question=name, **where, why=why) for name, why in failed.items()]
        answered = {result.attack for result in results}
        for one in lost:
            if one.data["question"] not in answered:  # nowhere
                case.failed.setdefault(one.data["question"], one.data["why"])
        warnings = [one for one in lost if one.data["question"] in answered]
        with case.blamed_on(BLIND):
            results.append(self.blind.judge(case))
            warnings += sets_differ(results[-1].estimates["auc"])
            warnings += counts_differ(results[-1].estimates.get("count-auc"))
            warnings += texts_differ(results[-1].estimates)
        chosen = headlines(case)
        results = [result for result in results if result.attack not in case.failed]
        warnings += [gap("attack-failed", attack=name, why=why) for name, why in case.failed.items()]
        warnings += [one for result in results for one in result.told]
        worth = self.accuracy()
        glossary = {attack.name: ATTACKS.explained(attack.name) for attack in self.settings.attacks}
        brief = {name: ATTACKS.brief(name) for name in glossary}
        glossary |= {name: line for asked in self.settings.looking().values() for name, line in asked.names.items()}
        groups = compared_groups(case, self.groups)
        scene = Scene(
            results,
            self.last_round,
            chosen.name,
            primary=chosen.primary,
            average=chosen.average,
            about=brief,
            groups=groups,
        )
        quoted = worded(chosen.headlines, scene)
        uneven = compared_parties(case, self.groups)
        bounds = [one for name, asked in self.settings.asked.items() for one in named(name).told(asked, quoted)]
        notices = [*as_notices(bounds), *once(concluded), *self.notices]
        notices += [*map(more_exposed, uneven), *self.unjudged]
        if self.dropped:
            most = self.settings.most
            notices.append(notice("attacks-dear", epochs=self.dropped, together=most.together, each=most.each))
        notices += [note for _, sight in self.outlooks for note in sight.notes]
        if not any(sight.epoch_seconds > 0 for sight in self.outlooks.sights.values()):
            notices.append(notice("seconds-for-epochs"))  # a loop without updates, or checkpoints
        worthless = useless(self.game, self.right_answers(), worth)
        found = Audit(
            results=results,
            headlines=quoted,
            accuracy=worth,
            commonest=commonest_share(self.game) if worth else None,
            warnings=once(warnings),
            notices=notices,
            failed=case.failed,
            glossary=glossary,
            errors=errors,
        )
        return replace(
            found, useless=worthless, more_exposed=uneven, groups=groups, trajectories=self.trajectories.found()
        )

    @cached_property
    def groups(self) -> Grouping:
        """Fixed by the records and the sizes of the sets."""
        return partition(self.game, self.settings.legend)

    def _looking(self, vantage: Vantage, model: ModelKind) -> list[tuple[str, Observer]]:
        """What questions that look for themselves find from there, by the names of their results."""
        return [
            (name, self.observers[question])
            for question, asked in self.settings.looking().items()
            if asked.can_be_seen(vantage, model)
            for name in asked.names
        ]

    def accuracy(self) -> Estimates:
        """The accuracy of the released model on members and on outsiders."""
        return accuracy(self.game, self.right_answers(), self.settings.confidence)

    def right_answers(self) -> Bools | None:
        """Which records the released model classifies correctly, if that is known or can be computed."""
        return self.right if self.right is not None else right_answers(self.game, self.asked_by, self.released)

    def deciding(self, vantage: Vantage, limit: str = "") -> BaseAttack | None:
        """The attack that leads in deciding a party's limit: the primary one, or the next that can."""
        return self.settings.primary(vantage, {*self.failed, *self.settings.left_out_of.get(limit, ())})

    def after(self, round: int, vantage: Vantage, model: ModelKind, limit: str = "") -> list[Heard]:
        """What every attack that can decide a limit says after a round, the leading one first. The error is shared
        among all planned rounds and all attacks, because a limit is checked after each of them and by all."""
        leading, silent = self.deciding(vantage, limit), self.settings.left_out_of.get(limit, ())
        said = [
            Heard(attack, model, found[round], found[round], leading is not None and attack == leading.name)
            for (where, attack, kind), found in self.history.items()
            if (where, kind) == (vantage.value, model) and round in found and attack not in silent
        ]
        return sorted(said, key=lambda one: not one.primary)

    def risks(self, round: int) -> list[RoundRisk]:
        """What the leading attacks had found after this round, the newest, each with its place in its band."""
        return [
            RoundRisk(
                vantage=vantage, model=model, attack=attack, metric=metric, value=ends[0], low=ends[1], high=ends[2]
            )
            for (vantage, attack, model), band in self.bands.items()
            for metric, ends in band.at(round).items()
        ]

    def _remember(self, round: int) -> None:
        """What the attacks found after this round, and the place of the leading ones in their band over rounds. The
        others are looked at after some of the rounds, and of very many rounds the leading ones are, too, unless there
        is a limit."""
        case, limits = self.case(), self.settings.left_out_of
        for vantage, model in case.settings.watched():
            leading = {attack.name for limit in ("", *limits) if (attack := self.deciding(vantage, limit))}
            shares = self.settings.shares(len(self.settings.ranked(vantage)), len(limits))
            for attack in (a for a in case.alive(vantage, model) if of_membership(a)):
                leads, place = attack.name in leading, (vantage, attack, model)
                wanted = self.settings.follows if leads else self.thinned.__contains__
                if limits or wanted(round):
                    banded = self.bands if leads and wanted(round) else None
                    self._follow(case, place, round, shares.primary if leads else shares.other, banded)
                    found = self.history.get((vantage.value, attack.name, model), {})
                    for old in [seen for seen in found if seen != round and not wanted(seen)]:
                        del found[old]

    def _picture(self, seen: Observation) -> None:
        """Where members and others are after this round, under global models and under the parties' own."""
        if not self.settings.follows(seen.round):
            return
        of = self.outlooks
        places: dict[ModelKind, dict[str | None, Sight]] = {"global": {None: of.everyone}, "local": {}}
        places["local"].update(of.local)
        for model, sights in places.items():
            measured = [(sight, seen.of[key]) for key, sight in sights.items() if key in seen.of]
            self.trajectories.add(seen.round, model, measured)

    def _follow(
        self,
        case: Case,
        place: tuple[Vantage, BaseAttack, ModelKind],
        round: int,
        confidence: float,
        bands: dict[tuple[str, str, str], OverRounds] | None = None,
    ) -> None:
        vantage, attack, model = place
        sights = self.outlooks.of(vantage, model)
        if any(attack.name in sight.later and attack.name not in sight.settled for sight in sights):
            return  # it is measured at the end only
        of = vantage.value, attack.name, model
        seen = self.history.setdefault(of, {})
        try:
            with patience():
                if round not in seen and any(case.scores.defined(sight, attack) for sight in sights):
                    seen[round] = case.pooled(attack, sights, confidence) | case.decided(attack, sights, confidence)
                    if bands is not None:
                        if of not in bands:
                            bands[of] = case.new_band()
                        bands[of].add(round, case.scores.blocks(sights, attack), seen[round])
        except TooLongError as error:
            self.failed.setdefault(attack.name, say(error))
        except OF_OTHERS as error:  # a gap in the curve; whether the attack failed is decided at the end
            where = {"round": round, "attack": attack.name, "model": model}
            if not any(where.items() <= told.data.items() for told in self.unjudged):
                self.unjudged.append(notice("no-estimate", **where, why=say(error)))

    @cached_property
    def thinned(self) -> frozenset[int]:
        """Rounds after which every attack is looked at: some twelve in all, the first ones and the last among them."""
        planned = self.settings.rounds
        return frozenset({2, planned, *range(1, planned + 1, max(1, planned // POINTS))})

    def score_parts(self) -> Iterator[dict[str, Any]]:
        """Every candidate's score and role, one attack and model at a time, to save memory."""
        case = self.case()
        written: set[tuple[str, str, str | None]] = set()
        outlooks = [one for one in self.outlooks.all if one.model == "global" or not self.unseen]
        # Answers that a defence has bent come last: a score is stored once, as whoever holds the model has it.
        plain = self.outlooks.sights
        ordered = sorted(outlooks, key=lambda one: (one.model == "local", one.sight is not plain.get(one.party)))
        for outlook in ordered:
            alive = [a for a in outlook.attacks if a.name not in {*case.failed, *(self.dropped or ())}]
            for attack in filter(of_membership, alive):
                place = attack.name, outlook.model, outlook.party
                if place in written:
                    continue
                written.add(place)
                with case.blamed_on(attack.name):
                    yield _scored(case.scores, outlook.sight, attack)

    def score_table(self) -> dict[str, list[object]]:
        """All of `score_parts` as plain lists."""
        table: dict[str, list[object]] = {}
        for part in self.score_parts():
            for name, values in part.items():
                column = values.tolist() if isinstance(values, np.ndarray) else [values] * len(part["id"])
                table.setdefault(name, []).extend(column)
        return table

    # ------------------------------------------------------------------ between two rounds

    def state(self) -> Stored:
        """Everything needed to continue with the next round, as arrays and plain values, and for a snapshot before it.

        The last models are not kept, because they may be large: a deferred attack that has not looked at them has no
        result until the next round, and how often the model is right is kept after the last planned round only.
        """
        right = self.right
        if self.last_round >= self.settings.rounds:
            with suppress(*OF_OTHERS):  # a model that cannot be asked has no accuracy, and that is told elsewhere
                right = self.right_answers()
        history = [
            {"of": list(of), "round": round, "found": {name: _plainly(each) for name, each in found.items()}}
            for of, rounds in self.history.items()
            for round, found in rounds.items()
        ]
        return {
            "sights": [sight.state() for _, sight in self.outlooks],
            "history": history,
            "bands": [{"of": list(of), "seen": band.state()} for of, band in self.bands.items()],
            "trajectories": self.trajectories.state(),
            "unjudged": [told.stored() for told in self.unjudged],
            "failed": dict(self.failed),
            "dropped": self.dropped,
            "last_round": self.last_round,
            "right": packed(right),
            "blind": self.blind.state(),
            "observers": {name: observer.state() for name, observer in self.observers.items()},
        }

    def restore(self, state: Stored) -> None:
        self._drop(state["dropped"])
        for (_, sight), stored in zip(self.outlooks, state["sights"], strict=True):
            sight.restore(stored)
        self.history = {}
        for entry in state["history"]:
            vantage, attack, model = entry["of"]
            found = {name: _estimate(fields) for name, fields in entry["found"].items()}
            self.history.setdefault((vantage, attack, model), {})[entry["round"]] = found
        self.bands = {}
        for entry in state["bands"]:
            vantage, attack, model = entry["of"]
            band = self.bands[vantage, attack, model] = self.case().new_band()
            band.restore(entry["seen"])
        self.trajectories.restore(state.get("trajectories", {}))  # a former version kept none
        self.unjudged, self.failed = [*as_notices(state["unjudged"])], dict(state["failed"])
        self.last_round = state["last_round"]
        self.released, self.right = None, unpacked(state["right"])
        self.blind.restore(state["blind"])
        for name, observer in self.observers.items():
            observer.restore(state["observers"][name])


def _references_assumed(attacks: Sequence[BaseAttack]) -> list[Notice]:
    """What the attacks with reference models assume that the adversary knows. It goes with every figure of theirs."""
    using = [attack.name for attack in attacks if set(attack.signals) & set(OF_REFERENCES)]
    outside = [attack.name for attack in attacks if any(is_outside(signal) for signal in attack.signals)]
    informed = [name for name in using if name not in outside]
    said = [notice("references-own", attacks=informed)] if informed else []
    return said + ([notice("references-outside", attacks=outside)] if outside else [])


def _scored(scores: Scores, sight: Sight, attack: Any) -> dict[str, Any]:
    judged = scores.judged(sight, attack)
    return {
        "id": sight.id[judged],
        "subject": None if sight.subject is None else sight.subject[judged],
        "party": sight.party[judged],
        "role": sight.role[judged],
        "attack": attack.name,
        "model": sight.model,
        "score": scores.of(sight, attack)[judged],
        "reference": spent(sight, attack)[judged],
    }


def _plainly(estimate: Estimate) -> dict[str, Any]:
    """Its fields hold nothing that must be copied, as `asdict` would. Curves do not say who is missing."""
    return {field.name: getattr(estimate, field.name) for field in fields(estimate) if field.name != "missing"}


def _estimate(fields: dict[str, Any]) -> Estimate:
    pairs = {name: tuple(value) for name, value in fields.items() if isinstance(value, list)}
    return Estimate(**{**fields, **pairs})


def audit(task: Task, rounds: Iterable[Round], game: Game, settings: Settings) -> Audit:
    """A whole audit in one call."""
    auditor = Auditor(task, game, settings)
    for round in rounds:
        auditor.observe(round)
    return auditor.snapshot()
