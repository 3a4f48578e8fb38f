"""What an audit is asked to do. What cannot be done is refused here, before training."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from fedaudit.adversary.attacks.base import BaseAttack
from fedaudit.adversary.shadow import SIGNALS as OF_REFERENCES
from fedaudit.adversary.signals import (
    DEAR,
    FAMILIES,
    OF_ALL_LAYERS,
    Family,
    SignalTrial,
    family_of,
    searching,
    updates,
    variants,
)
from fedaudit.adversary.signals.searching import Searching, SearchOptions
from fedaudit.adversary.signals.updates import Filtering, FilterOptions, Unmixing, UnmixOptions
from fedaudit.adversary.vantage import GRANTS, MODELS
from fedaudit.audit.observer import Asked
from fedaudit.config.attack_registry import plain
from fedaudit.config.schema import DEFAULT_FPR
from fedaudit.errors import FedauditError
from fedaudit.questions import named
from fedaudit.stats import hash_order, needed_for_value, random_half
from fedaudit.stats.strongest import Shares
from fedaudit.types import (
    Bools,
    Game,
    Grant,
    Ints,
    ModelKind,
    Notice,
    Records,
    Role,
    State,
    Task,
    Vantage,
    notice,
    once,
)
from fedaudit.words import needed_for_fpr

if TYPE_CHECKING:  # reference models need torch; an audit without them does not
    from fedaudit.adversary.shadow import References
    from fedaudit.adversary.vantage import Serve
    from fedaudit.audit.outlooks import Shadow

HEADLINE_FPR = 0.01
MOST_FOLLOWED = 500  # rounds after which the leading attacks are looked at
# Fixed before looking: the strongest kind of attack that a vantage can feed is its primary one. Where it can feed none
# of these, the first that was asked for. Unmix is not run everywhere (docs/unmix.md, who leads).
FILTERS = ("matched-filter", "subject-matched")
UNMIXES = ("unmix", "subject-unmix")
STRONGEST_FIRST = (
    *UNMIXES,
    *FILTERS,
    *("fusion", "gradient-cosine", "fta-confidence", "fta-loss", "loss"),
    *("subject-loss", "subject-fta"),
    *("tear", "gap"),
)
# The filter comes after them where its layer is a small head: below this share of the model's weights *and* below so
# many weights for each member in the sum, networks can learn members by heart in layers that it does not look at
# (docs/matched-filter.md, the map).
SMALL_HEAD, FEW_WEIGHTS = 0.2, 5.0


@dataclass(frozen=True)
class Legend:
    """What the numbers of an attribute, or of the classes (under "label"), stand for; and attributes that say nothing
    about anybody, such as the session of a recording."""

    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    technical: frozenset[str] = frozenset()

    def text(self, column: str, number: int) -> str:
        names = self.values.get(column, ())
        return names[number] if 0 <= number < len(names) else str(number)


@dataclass(frozen=True)
class Most:
    """What the audit may cost, which is measured in its first round.

    together: local epochs a round that all attacks may take, the strongest of which stay. each: that one attack may
    take, unless it takes less than `seconds` a round, which keeps nobody waiting.
    """

    together: float | None = None
    each: float | None = None
    seconds: float = 0.0


@dataclass(frozen=True)
class Settings:
    vantages: tuple[Vantage, ...]
    attacks: Sequence[BaseAttack]
    rounds: int  # planned: the band over rounds shares its error among them
    _: KW_ONLY
    fpr: tuple[float, ...] | None = None
    confidence: float = 0.95
    seed: int = 0
    local_epochs: int = 1  # of a party in a round
    told_outcome: bool = True  # what a round came to; a party that audits itself is not
    notices: tuple[Notice, ...] = ()  # what was left out, because it was not asked for by name
    references: References | None = None
    shadow: Shadow | None = None
    server_lr: float = 1.0  # how much of the mean update the server adds to the model
    serve: Serve | None = None  # a defence that changes the answers for adversaries without weights
    filter: FilterOptions = field(default_factory=FilterOptions)  # how the matched filter is set
    search: SearchOptions = field(default_factory=SearchOptions)  # how the boundary is searched by labels
    # By variant of the signals: how an attack with options of its own has them set.
    filters: Mapping[str, FilterOptions] = field(default_factory=dict)
    searches: Mapping[str, SearchOptions] = field(default_factory=dict)
    unmixings: Mapping[str, UnmixOptions] = field(default_factory=dict)  # the plain one is among them
    # By model: weights of the layer that the filter looks at, for each member in the sum.
    weights_per_member: Mapping[str, float] = field(default_factory=dict)
    filter_share: float = 1.0  # of all the model's weights, those of that layer
    # By the text of a party's limit: the attacks that cannot decide it.
    left_out_of: Mapping[str, frozenset[str]] = field(default_factory=dict)
    # By name: the questions for which something was prepared, and what that is.
    asked: Mapping[str, Any] = field(default_factory=dict)
    legend: Legend = field(default_factory=Legend)
    most: Most = Most()  # what the audit may cost
    unseen: frozenset[str] = frozenset()  # trained parameters that no attack on gradients looks at

    @property
    def training(self) -> Mapping[str, Any]:
        """How the parties train, as far as that is known: the fields of `learn.tasks.Training`."""
        return {} if self.references is None else self.references.training

    # ------------------------------------------------------------------ who can run what

    def grants(self, vantage: Vantage, model: ModelKind) -> frozenset[Grant]:
        """What is seen of these models. Whoever is not told what a round came to never has both of its ends."""
        without = {Grant.START} if model == "global" and not self.told_outcome else set()
        return GRANTS[vantage, model] - without

    def feeds(self, vantage: Vantage, model: ModelKind, attack: BaseAttack) -> bool:
        """Can this attack run there? An adversary with a shadow model attacks only one kind of model."""
        if attack.vantage not in (None, vantage):
            return False
        if "shadow" in attack.fitted_on:
            there = self.shadow is not None and (vantage, model) == self.shadow.place
            return there and attack.needs <= self.grants(vantage, model)
        if _has_references(attack) and (self.references is None or self.bent(vantage)):
            return False  # references need to know how parties train, and the model's own answers in every round
        return attack.needs <= self.grants(vantage, model)

    def bent(self, vantage: Vantage) -> bool:
        """Does a defence change the answers that this adversary gets?"""
        return self.serve is not None and Grant.WEIGHTS not in GRANTS[vantage, MODELS[vantage]]

    def on(self, vantage: Vantage, model: ModelKind) -> list[BaseAttack]:
        """The attacks that this vantage can run on this kind of model, in the order in which they were asked for."""
        return [attack for attack in self.attacks if self.feeds(vantage, model, attack)]

    def looking(self) -> dict[str, Asked]:
        """The questions that look for themselves, by name."""
        return {name: asked for name, asked in self.asked.items() if isinstance(asked, Asked)}

    def primary(self, vantage: Vantage, failed: Collection[str] = ()) -> BaseAttack | None:
        """Never chosen by its result. One that failed is replaced by the next kind."""
        return next((attack for attack in self.ranked(vantage) if attack.name not in failed), None)

    def ranked(self, vantage: Vantage) -> list[BaseAttack]:
        """The attacks on who was trained on that this vantage can run, those that are expected to find most first."""
        few = self.weights_per_member.get(MODELS[vantage], FEW_WEIGHTS) < FEW_WEIGHTS
        small = self.filter_share < SMALL_HEAD
        last = FILTERS if small and few else ()
        ordered = [*(name for name in STRONGEST_FIRST if name not in last), *last]
        order = {name: place for place, name in enumerate(ordered)}
        usable = [attack for attack in self.on(vantage, MODELS[vantage]) if of_membership(attack)]
        # One with options of its own comes after the plain one.
        return sorted(usable, key=lambda attack: (order.get(plain(attack.name), len(order)), attack.name not in order))

    def shares(self, attacks: int, limits: int) -> Shares:
        """How the error is shared where so many attacks are looked at after every round. Each limit may have a leading
        attack of its own; without limits, the primary one leads."""
        leading = min(max(limits, 1), attacks)
        return Shares.among(1 - (1 - self.confidence) / self.rounds, leading, attacks - leading)

    def follows(self, round: int) -> bool:
        """Are the leading attacks looked at after this round? They are after every one, unless very many are planned:
        what a band keeps grows with the square of its rounds, and nobody sees more points of a curve."""
        step = math.ceil(self.rounds / MOST_FOLLOWED)
        return round % step == 0 or round in (1, self.rounds)

    @property
    def followed(self) -> int:
        """After how many of the planned rounds they are."""
        return sum(map(self.follows, range(1, self.rounds + 1)))

    def watched(self) -> list[tuple[Vantage, ModelKind]]:
        """The pairs of vantage and model to audit. The global models appear under the server only if there is no
        client, which sees the same."""
        pairs = [(vantage, MODELS[vantage]) for vantage in self.vantages]
        holders = {Vantage.CLIENT, Vantage.SECAGG_SERVER} & set(self.vantages)
        if Vantage.SERVER in self.vantages and not holders:
            pairs.append((Vantage.SERVER, "global"))
        return pairs

    # ------------------------------------------------------------------ what is refused, what is left out

    def checked(self, asked: bool) -> Settings:
        """Refuses a vantage without any attack, and an attack asked for by name that no vantage can run. Adds notices
        about attacks that some vantage cannot run."""
        pairs = self.watched()
        if not self.attacks and not self.looking():
            todo = "Leave audit.attacks out for the default attacks, or name some."
            raise FedauditError("no-attacks", "no attack is to be run, and no question is asked", todo)
        nobody = [a for a in self.attacks if not any(self.feeds(vantage, model, a) for vantage, model in pairs)]
        if nobody and asked:
            raise self._cannot_be_run(nobody[0])
        for question in self.looking().values():
            if not any(question.can_be_seen(vantage, model) for vantage, model in pairs):
                raise self._unseen_question(next(iter(question.names)), question)
        for vantage in self.vantages:
            if not self._can_look(vantage):
                bent = ", which answers as a defence has bent them" if self.bent(vantage) else ""
                what = f"none of the attacks can be run from {vantage.value!r} on the {MODELS[vantage]} models it sees"
                raise FedauditError("vantage", what + bent, "Take the vantage out of [audit], or add an attack.")
        kept = [attack for attack in self.attacks if attack not in nobody]
        return replace(self, attacks=kept, notices=tuple(once((*self.notices, *self._left_out(kept)))))

    def _can_look(self, vantage: Vantage) -> bool:
        """Is there an attack, or a question that looks for itself, to be run from there?"""
        questions = self.looking().values()
        seen = any(question.can_be_seen(vantage, MODELS[vantage]) for question in questions)
        return seen or bool(self.on(vantage, MODELS[vantage]))

    def _cannot_be_run(self, attack: BaseAttack) -> FedauditError:
        if _has_references(attack) and self.references is None:
            what = f"attack {attack.name!r} needs reference models, trained as the parties train"
            return FedauditError("no-references", what, "Use `fedaudit run`, which trains them, or leave it out.")
        if "shadow" in attack.fitted_on and self.shadow is None:
            what = f"attack {attack.name!r} needs an adversary with a shadow model"
            return FedauditError("no-shadow", what, "Use `fedaudit run` with audit.adversary, or leave it out.")
        lacking = {vantage: attack.needs - self.grants(vantage, model) for vantage, model in reversed(self.watched())}
        if all(lacking.values()):
            why, todo = self._lacking(attack.needs), self._elsewhere(attack.needs)
            return FedauditError("vantage", f"attack {attack.name!r} {why}", todo)
        if attack.vantage:  # others see what it needs, and are not whom it stands for
            why = f"is run from the vantage {attack.vantage.value!r} alone, which this audit does not have"
        else:
            why = "needs answers that no defence has changed, and no vantage of this audit has them"
        return FedauditError("vantage", f"attack {attack.name!r} {why}", self._elsewhere(attack.needs, attack.vantage))

    def _unseen_question(self, name: str, question: Asked) -> FedauditError:
        """It is asked by a section, or by a name in audit.attacks."""
        where = "[audit.questions]" if name in self.asked else "audit.attacks"
        todo = f"Take it out of {where}, or add a vantage that sees it: {self._others(question.needs)}."
        return FedauditError("vantage", f"the question {name!r} {self._lacking(question.needs)}", todo)

    def _lacking(self, needs: frozenset[Grant]) -> str:
        lacking = {vantage: needs - self.grants(vantage, model) for vantage, model in reversed(self.watched())}
        short = "; ".join(f"{vantage.value!r} does not see {_and(lacking[vantage])}" for vantage in self.vantages)
        return f"needs {_and(needs)}: {short}"

    def _elsewhere(self, needs: frozenset[Grant], only: Vantage | None = None) -> str:
        others = self._others(needs, only)
        return f"Take the attack out of audit.attacks, or add a vantage that can run it: {others}."

    def _others(self, needs: frozenset[Grant], only: Vantage | None = None) -> str:
        return " or ".join(name for name in _who_grants(needs, only) if name not in self.vantages) or "none"

    def _left_out(self, attacks: Sequence[BaseAttack]) -> list[Notice]:
        """For each vantage, the attacks of this audit that it cannot run. Attacks on updates, which only a server sees,
        are not mentioned."""
        told: list[Notice] = []
        for vantage in self.vantages:
            grants = self.grants(vantage, MODELS[vantage])
            anywhere = [attack for attack in attacks if "shadow" not in attack.fitted_on and attack.vantage is None]
            lacking = [a for a in anywhere if not self.feeds(vantage, MODELS[vantage], a)]
            known = {Grant.UPDATE, Grant.OWN, Grant.SUM}
            lacking = [a for a in lacking if not a.needs - grants <= known or a.needs <= grants]
            by_need: dict[tuple[str, ...], list[str]] = {}
            for attack in lacking:
                by_need.setdefault(tuple(sorted(attack.needs - grants)), []).append(attack.name)
            told += [
                notice("left-out-at", vantage=vantage.value, needs=list(needs), attacks=names)
                for needs, names in by_need.items()
            ]
        return told

    def without_idle_vantages(self) -> Settings:
        """Without the vantages that can run none of the attacks. For a trace, whose vantages were chosen for others."""
        idle = [vantage for vantage in self.vantages if not self._can_look(vantage)]
        if not idle or len(idle) == len(self.vantages):
            return self
        told = notice("vantages-idle", vantages=[vantage.value for vantage in idle])
        kept = tuple(vantage for vantage in self.vantages if vantage not in idle)
        return replace(self, vantages=kept, notices=(*self.notices, told))

    def suited_to(self, task: Task, state: State, rows: Records, asked: bool) -> Settings:
        """Without attacks whose signals this task cannot give, or only slowly. If attacks were asked for by name, the
        former are an error, and the latter run with a notice."""
        trial = SignalTrial(task, state, rows)
        known = trial.gradients if not DEAR.isdisjoint(map(plain, self.signals)) else None
        suited = self if known is None or isinstance(known, str) else self._looking_at(known, task, asked)
        filters = suited.filtering(self.signals)
        searches = {v: self.search_of(v) for v in variants(self.signals, searching.NEEDS)}
        short = {variant: Searching(replace(options, queries=200)) for variant, options in searches.items()}
        families = suited.families(filters, short, suited.unmixing(self.signals))
        slow = known.why_slow if isinstance(known, updates.Coverage) and not known.fast and not asked else None
        unfit: dict[str, str] = {}
        for attack in self.attacks:
            reason = slow if slow and self._over_layers(attack) else trial.why_not(attack.signals, families)
            if reason:
                unfit[attack.name] = reason
        fit = [attack for attack in self.attacks if attack.name not in unfit]
        if unfit and (asked or not fit):
            name, why = next(iter(unfit.items()))
            raise FedauditError("attack-task", f"attack {name!r} cannot be run: {why}", "Take it out of audit.attacks.")
        by_reason: dict[str, list[str]] = {}
        for name, reason in unfit.items():
            by_reason.setdefault(reason, []).append(name)
        notices = [notice("attacks-unfit", why=reason, attacks=names) for reason, names in by_reason.items()]
        over = [attack.name for attack in fit if suited._over_layers(attack)]
        if isinstance(known, updates.Coverage) and over:
            notices += suited._told_of_layers(known, over)
        return replace(suited, attacks=fit, notices=tuple(once((*self.notices, *notices))))

    def _looking_at(self, known: updates.Coverage, task: Task, asked: bool) -> Settings:
        """Where layers are slow and nobody asked for an attack by name, the fast ones are looked at, and no others.
        What the fast way gets wrong is never looked at."""
        without = {**known.odd} if asked or not known.fast else {**known.odd, **known.slow}
        suited = replace(self, unseen=frozenset(name for names in without.values() for name in names))
        module = getattr(task, "architecture", None)
        if module is None or not known.fast:
            return suited
        from fedaudit.adversary.signals.matched import largest_linear, rules

        fast = set(known.fast)
        if not rules(module, fast) or largest_linear(module) in fast:
            return suited
        named = largest_linear(module, fast)  # the layer that is looked at unless one is named

        def at(options: FilterOptions) -> FilterOptions:
            return options if options.layer else replace(options, layer=named)

        return replace(suited, filter=at(self.filter), filters={v: at(one) for v, one in self.filters.items()})

    def _over_layers(self, attack: BaseAttack) -> bool:
        """Does it look at all layers, and not at one?"""
        whole = {f"{s}{v}" for v in variants(attack.signals, updates.NEEDS) if self.filter_of(v).layer == updates.ALL
                 for s in updates.STRENGTH}  # fmt: skip
        return not OF_ALL_LAYERS.isdisjoint(map(plain, attack.signals)) or not whole.isdisjoint(attack.signals)

    def _told_of_layers(self, known: updates.Coverage, attacks: list[str]) -> list[Notice]:
        told = []
        if self.unseen:
            layers = [layer for layer, names in {**known.slow, **known.odd}.items() if self.unseen & set(names)]
            share = known.share(self.unseen)
            told.append(notice("layers-unseen", layers=layers, share=share, attacks=attacks))
        if known.slow and not self.unseen.issuperset(name for names in known.slow.values() for name in names):
            told.append(notice("slow-gradients", why=known.why_slow))
        return told

    def filtering(self, signals: Sequence[str], losses: updates.Losses | None = None) -> dict[str, Filtering]:
        """By variant of these signals, what filters an update."""
        found = variants(signals, updates.NEEDS)
        return {variant: Filtering(self.filter_of(variant), losses, self.unseen) for variant in found}

    def unmixing(self, signals: Sequence[str]) -> dict[str, Unmixing]:
        """By variant of these signals, what unmixes an update."""
        found = variants(signals, updates.OF_UNMIXING)
        return {variant: Unmixing(self.unmixings.get(variant, UnmixOptions()), self.unseen) for variant in found}

    def families(
        self, filters: Mapping[str, Filtering], searches: Mapping[str, Searching], unmixing: Mapping[str, Unmixing]
    ) -> tuple[Family, ...]:
        """All families of signals, with those of the questions that are asked. `filters`, `searches` and `unmixing`:
        what a sight keeps from round to round, by variant."""
        found = [*FAMILIES]
        if self.unseen:
            gradients = partial(updates.measure, without=self.unseen)
            found = [replace(one, measure=gradients) if one.measure is updates.measure else one for one in found]
        for variant, one in filters.items():
            found += [family_of(needs, one.measure, variant) for needs in updates.PASSES]
        found += [family_of(updates.OF_UNMIXING, each.measure, variant) for variant, each in unmixing.items()]
        for variant, search in searches.items():
            seconds = self.search_of(variant).seconds
            found += [family_of(needs, search.measure, variant, self.seed, seconds) for needs in searching.PASSES]
        found += [family for name, asked in self.asked.items() for family in named(name).signals(asked)]
        return tuple(found)

    @property
    def signals(self) -> list[str]:
        return sorted({signal for attack in self.attacks for signal in attack.signals})

    def filter_of(self, variant: str) -> FilterOptions:
        return self.filters[variant] if variant else self.filter

    def search_of(self, variant: str) -> SearchOptions:
        return self.searches[variant] if variant else self.search

    # ------------------------------------------------------------------ what can be calibrated

    def reachable_fprs(self, game: Game) -> tuple[tuple[float, ...], list[Notice]]:
        """The false-positive rates that this game can calibrate. One that was asked for and cannot be is an error."""
        parties = [game.candidates.of_party(party) for party in game.parties]
        everyone = [np.arange(len(game.candidates))]
        only_local = all(MODELS[vantage] == "local" for vantage in self.vantages)
        available = calibrating(game, parties if only_local else everyone)
        left: dict[str, tuple[int, bool]] = {}  # how many records an attack leaves, and whether it is fitted on them
        if self.fpr:  # default rates were not asked for: if one is missing, the result says why
            others = [np.flatnonzero(~game.of_first())]
            for attack in self.attacks:
                fitted, own = attack.calibrates_less, attack.by_first_party
                local = only_local or Grant.UPDATE in attack.needs
                judged = others if own else parties if local else everyone
                if fitted or own:
                    left[attack.name] = calibrating(game, judged, fitted), fitted
        fprs, notices = [], list[Notice]()
        for fpr in self.fpr or DEFAULT_FPR:
            needed = needed_for_value(fpr)
            short = next((name for name, (count, _) in left.items() if count < needed), None)
            if available >= needed and short is None:
                fprs.append(fpr)
                continue
            data: dict[str, Any] = {"fpr": fpr, "needed": needed, "available": available}
            if available >= needed and short is not None:
                data["short"] = {"attack": short, "left": left[short][0], "fitted": left[short][1]}
            if self.fpr:
                without, what = "" if short is None else f", or leave out {short}", needed_for_fpr(**data)
                raise FedauditError("fpr", what, f"Set a larger rate in audit.fpr, use more records{without}.")
            notices.append(notice("fpr-left-out", **data))
        return tuple(fprs), notices


def calibrating(game: Game, panels: Sequence[Ints], fitted: bool = False) -> int:
    """How many calibration records all panels have together, without those that an attack is fitted on."""
    role = game.truth.role
    sizes = [int((role[index] == Role.CALIBRATION.value).sum()) for index in panels]
    taken = [int(reference_half(game, index).sum()) if fitted else 0 for index in panels]
    return sum(sizes) - sum(taken)


def reference_half(game: Game, index: Ints) -> Bools:
    """Half of the calibration records: known non-members on which an attack may be fitted."""
    half = random_half(game.candidates.id[index], "reference")
    return np.asarray(half & (game.truth.role[index] == Role.CALIBRATION.value))


def own_records(game: Game, index: Ints, many: int) -> Bools:
    """Records of the first party that it learns from: half of `many` are its members, and as many are not."""
    member = game.truth.mask(Role.MEMBER)[index]
    mine = game.of_first()[index]
    sides = [np.flatnonzero(mine & member), np.flatnonzero(mine & ~member)]
    fewest = min(many // 2, *(len(side) for side in sides))
    chosen = np.zeros(len(index), bool)
    for side in sides:
        names = game.candidates.id[index[side]]
        chosen[side[hash_order(names, "own")[:fewest]]] = True
    return chosen


def _has_references(attack: BaseAttack) -> bool:
    return bool(set(attack.signals) & set(OF_REFERENCES))


def _and(words: Sequence[str] | frozenset[Grant]) -> str:
    return " and ".join(sorted(words))


def _who_grants(needs: frozenset[Grant], only: Vantage | None) -> list[str]:
    able = {vantage for (vantage, _), grants in GRANTS.items() if needs <= grants}
    return sorted(vantage.value for vantage in able if only in (None, vantage))


def of_membership(attack: BaseAttack) -> bool:
    """Does it ask who was trained on? Then every candidate has a score, and the headline may quote it."""
    return named(attack.question).of_membership
