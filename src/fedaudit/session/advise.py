"""`fedaudit advise`: what to change so that a federation gives away less, and what that costs.

1. The federation as it is, trained to the end. Where its risk is below the limit, or where nothing is found at all, a
   fresh run with another seed confirms that, and nothing else is trained.
2. A search over the levers (`search`), with the attacks that lead. Secure aggregation is taken first, because it leaves
   the model as it is: risks are then what the global models give away.
3. Three points of what was found: *free*, the lowest risk without a loss of accuracy; *cheap*, the lowest for at most
   two points of it; the *limit*, the most accurate one below it.
4. Each is trained again with another seed and attacked with everything, `unmix` included, by an adversary that knows
   the configuration, beside the unchanged federation with that seed. If the point below the limit is not confirmed,
   the next one is tried, and then no more. Only the intervals of these runs should be quoted, because choosing among
   many favours what looked good by chance. They share their error among the confirming runs that may be made.

"Below the limit" is what the gate calls safe: every upper end below it, the guaranteed ones.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedaudit.config.attack_registry import ATTACKS
from fedaudit.config.schema import AdviseSection, Config
from fedaudit.errors import FedauditError
from fedaudit.results import advice as results
from fedaudit.results.advice import Advice, Confirmed, Risk, Tried, right
from fedaudit.results.compare import accuracy_difference, risk_difference
from fedaudit.results.document import Document, load
from fedaudit.results.gate import ANY, PASSED, Decision, Gate, Rule, judge, sees
from fedaudit.results.schema import SCHEMA
from fedaudit.session.levers import MASKING, NO_CHANGE, Change, Lever, changed, levers, without_people
from fedaudit.session.prepare import refuse_unauthorised
from fedaudit.session.run import Progress
from fedaudit.session.search import LeverSearch, most_rounds, rungs, upper, worst
from fedaudit.session.trials import Bench, Trial
from fedaudit.stats.strongest import proved_ends
from fedaudit.stats.wording import fpr_of
from fedaudit.types import AuditResult, Vantage

CONFIRMING = 4  # changes that are tried again with another seed, at most
FEWEST = 8  # audits: the unchanged federation with two seeds, the confirming runs, and two for the search
MOST_PLACES = 1000  # configurations of one search
CHEAP = 0.02  # of accuracy
GLOBAL = ("global", ANY, "")  # models of findings that are there with masked updates, too; those that failed have none
# What a search asks where nobody named attacks. Against the filter alone, narrow models look as if they helped; unmix
# finds as much in them as in wide ones.
ASKED = ("loss", "matched-filter", "unmix")
BESIDE = ("unmix", "matched-filter+layer=all")  # what confirming runs ask as well
# How a confirming run lies to the limit. The gate's word for the first is not repeated: no run proves that.
LIES = {Decision.SAFE: "below the limit", Decision.UNDECIDED: "undecided", Decision.VIOLATED: "above the limit"}


def advise(
    config: Config, limit: Rule, out: Path, workers: int, progress: Progress, tell: Callable[[str], None]
) -> tuple[Advice, dict[str, Config]]:
    """The advice, and by the name of each point that was confirmed its configuration."""
    refuse_unauthorised(config)
    rate, section = _asked(limit), config.advise or AdviseSection()
    config = looking_at(config.model_copy(update={"advise": None}), _named(config, limit), rate)
    found = levers(config, section.levers, section.keep)
    always = _masking(config, found, limit)
    found = [lever for lever in found if lever.name != MASKING]
    places = _places(section.budget, config)
    most = most_rounds(places, rungs(config)) + (CONFIRMING + 2) * config.federation.rounds
    with progress(f"Trying {places} of many changes", most) as step:
        bench = Bench(out, workers, step, tell)
        own = Unchanged.trained(bench, config, limit)
        searched = _searched(config, limit, own.attacks)
        _refuse_doubted(own, searched, limit)
        again = Again(bench, config, own.attacks, limit, masked=bool(always))
        looks, confirmed = list[Tried](), again.unchanged() if own.quiet else []
        if not (confirmed and again.still_quiet()):
            fitting = found if own.people else without_people(found)
            field = LeverSearch(searched, fitting, limit, always=always, places=places).run(bench)
            looks = [look for one in field for look in one.told(config.federation.rounds)]
            confirmed = again.points(points(looks, own.look, limit, section.keep))
    return _advice(config, limit, [own.look, *looks], confirmed, bench)


def _asked(limit: Rule) -> float | None:
    """The false-positive rate that the limit speaks of. A limit that chance alone breaks is refused."""
    rate = fpr_of(limit.metric)
    if limit.metric != "auc" and rate is None:
        what = f"--limit {said(limit)!r}: advice is about an AUC or a TPR at an FPR between 0 and 1"
        raise FedauditError("limit-metric", what, 'Write "tpr@0.01 < 0.02" or "auc < 0.6".')
    chance = 0.5 if rate is None else rate
    if limit.limit <= chance:
        what = f"--limit {said(limit)!r}: a guess alone has {limit.metric} {chance:g}, so that nothing can be below it"
        raise FedauditError("limit-below-chance", what, f"Set a limit above {chance:g}.")
    return rate


def said(limit: Rule) -> str:
    """As it was given: a rule says what must not be."""
    return limit.text.replace(">", "<")


def _named(config: Config, limit: Rule) -> list[str] | None:
    """With the attack that the limit names, where attacks are named."""
    if limit.attack is None or limit.attack == ANY:
        return None
    ATTACKS.understood(limit.attack)  # or it is refused
    named = config.audit.attacks
    return None if named is None else list(dict.fromkeys((*named, limit.attack)))


def _places(budget: float, config: Config) -> int:
    """How many configurations can be begun so that no more rounds are trained than so many runs have."""
    if budget < FEWEST:
        what = f"advise.budget = {budget:g} runs are too few to search: {CONFIRMING + 2} are kept for confirming"
        raise FedauditError("budget-too-small", what, f"Give at least {FEWEST}.")
    left, places = (budget - CONFIRMING - 2) * config.federation.rounds, 2
    while most_rounds(places + 1, rungs(config)) <= left and places < MOST_PLACES:
        places += 1
    return places


def _masking(config: Config, found: Sequence[Lever], limit: Rule) -> list[Change]:
    """Secure aggregation, where it is a lever and changes anything of what the limit speaks of."""
    here = [change for lever in found if lever.name == MASKING for change in lever.positions]
    seen = Vantage.SERVER in config.audit.vantages
    return here if seen and limit.vantage in (None, ANY) and limit.party is None else []


def _searched(config: Config, limit: Rule, possible: Sequence[str]) -> Config:
    """With the attacks of a search: those that the limit or the configuration names, or those that lead."""
    named = None if limit.attack in (None, ANY) else [str(limit.attack)]
    if named or config.audit.attacks is not None or "matched-filter" not in possible:
        return looking_at(config, named, None)
    return looking_at(config, ASKED, None)


def looking_at(config: Config, attacks: Sequence[str] | None, rate: float | None) -> Config:
    """The same federation, audited with these attacks (None: its own), and at this false-positive rate."""
    audit: dict[str, Any] = {}
    if attacks is not None:
        audit["attacks"] = tuple(attacks)
    if rate is not None and (config.audit.fpr is None or rate not in config.audit.fpr):
        audit["fpr"] = (*(config.audit.fpr or ()), rate)
    return config.model_copy(update={"audit": config.audit.model_copy(update=audit)})


# ------------------------------------------------------------------ the federation as it is


@dataclass(frozen=True)
class Unchanged:
    """What was seen of the federation as it is, with which attacks; `quiet`: nothing has to be searched; `people`: the
    data say whose a record is; `doubted`: attacks whose figures are."""

    look: Tried
    attacks: Sequence[str]
    quiet: bool
    people: bool
    doubted: Sequence[str]

    @classmethod
    def trained(cls, bench: Bench, config: Config, limit: Rule) -> Unchanged:
        folder, planned = own_folder(bench, config), config.federation.rounds
        if failed := bench.run([Trial(folder, config, planned)]):
            what = f"the federation as it is could not be trained: {failed[folder].why.rstrip('.')}"
            raise FedauditError("not-trained", what, "Try it with `fedaudit run` first.")
        gate, document = judge(folder, [limit]), load(folder)
        look = Tried(
            name=NO_CHANGE.name,
            words=NO_CHANGE.words,
            overrides={},
            rounds=planned,
            of=planned,
            status="trained to the end",
            risk=worst(gate),
            upper=upper(gate),
            estimates=results.named(accuracy=document.accuracy),
        )
        attacks = dict.fromkeys(
            r.attack for r in document.results if r.question in OF_MEMBERSHIP and r.attack != "blind"
        )
        people = "split_subjects" in document.run.config["federation"]  # decided where there are any
        doubted = list(dict.fromkeys(finding.attack for finding in gate.findings if finding.doubt))
        return cls(look, list(attacks), below(look, limit) or quiet(gate, limit), people, doubted)


def _refuse_doubted(own: Unchanged, searched: Config, limit: Rule) -> None:
    """All trials have the same calibration records: where an attack that a search asks is doubted, none of them would
    have a risk that could be compared."""
    doubted = [attack for attack in own.doubted if searched.audit.attacks != ASKED or attack in ASKED]
    if doubted:
        what = (
            f"{limit.metric} of {', '.join(doubted)} is doubted in the federation as it is: records that set its "
            "threshold are of another kind than those that are reported on, and so they would be in every trial"
        )
        raise FedauditError(
            "thresholds-doubted",
            what,
            "Draw both from the same population, at the same time: audit.calibration says where they come from.",
        )


def own_folder(bench: Bench, config: Config) -> Path:
    """Not that of the search's first configuration, which may be the same and is looked at earlier."""
    folder = bench.folder(config)
    return folder.with_name(f"own-{folder.name}")


def quiet(gate: Gate, limit: Rule) -> bool:
    """Has every attack a figure that may be believed, and is none above chance for sure?"""
    chance = fpr_of(limit.metric) or 0.5
    return all(f.value is not None and f.doubt is None and (f.low or 0.0) <= chance for f in gate.findings)


# ------------------------------------------------------------------ the points


def below(look: Tried, limit: Rule) -> bool:
    return look.upper is not None and look.upper < limit.limit


def points(looks: Sequence[Tried], own: Tried, limit: Rule, keep: Sequence[str] = ()) -> dict[str, list[Tried]]:
    """By the name of a point, those that could be it, the best first."""
    rounds_stay = any(kept in ("federation", "federation.rounds") for kept in keep)
    seen = [look for look in looks if look.risk and (look.rounds == look.of or not rounds_stay)]
    by_risk = sorted(seen, key=lambda look: (look.risk.value if look.risk else math.inf, -right(look)))
    under = sorted((look for look in seen if below(look, limit)), key=lambda look: -right(look))
    useful = [look for look in by_risk if right(look) >= results.HALF * right(own)]
    found = {results.LIMIT: [look for look in under if look in useful] or under or (useful or by_risk)[:1]}
    if own.accuracy and own.accuracy.value is not None:
        for name, cost in ((results.FREE, 0.0), (results.CHEAP, CHEAP)):
            lower = [look for look in by_risk if look.risk and own.risk and look.risk.value < own.risk.value]
            found[name] = [look for look in lower if right(look) >= own.accuracy.value - cost][:1]
    return {name: which for name, which in found.items() if which}


@dataclass(frozen=True)
class Again:
    """Runs with another seed and all attacks."""

    bench: Bench
    config: Config
    attacks: Sequence[str]
    limit: Rule
    masked: bool

    def unchanged(self) -> list[Confirmed]:
        return self._compared({results.LIMIT: NO_CHANGE})

    def still_quiet(self) -> bool:
        """Does the unchanged federation keep the limit, or show nothing, when it is asked everything?"""
        gate = judge(self.bench.folder(self._other_seed(NO_CHANGE, everything=True)), [self.limit])
        return gate.exit_code == PASSED or quiet(gate, self.limit)

    def points(self, wanted: Mapping[str, Sequence[Tried]]) -> list[Confirmed]:
        found = self._compared({name: _change(which[0]) for name, which in wanted.items()})
        limit = next((one for one in found if results.LIMIT in one.points), None)
        others = (
            [look for look in wanted[results.LIMIT][1:] if below(look, self.limit)] if results.LIMIT in wanted else []
        )
        if limit is not None and not limit.meets:
            known = {one.name for one in found}
            lower = [look for look in others if look.name not in known and _lower(look, wanted[results.LIMIT][0])]
            if lower and len(found) < CONFIRMING:
                found += self._compared({results.LIMIT: _change(lower[0])})
        return found

    def _compared(self, wanted: Mapping[str, Change]) -> list[Confirmed]:
        """What several points have come to is trained once."""
        changes = {change.name: change for change in wanted.values()}
        before = self._other_seed(NO_CHANGE, everything=True)
        runs = {name: self._other_seed(change, everything=True) for name, change in changes.items()}
        failed = self._run(list({self.bench.folder(one): one for one in (before, *runs.values())}.values()))
        plain = {name: self._other_seed(changes[name]) for name, config in runs.items() if config in failed}
        runs |= plain
        failed = [one for one in failed if one == before] + self._run(
            list(plain.values())
        )  # what was added did not fit
        found = []
        for name, config in runs.items():
            if config in failed or before in failed:
                self.bench.tell(f"{name} could not be trained again")
                continue
            names = [point for point, change in wanted.items() if change.name == name]
            folders = self.bench.folder(config), self.bench.folder(before)
            masked = self.masked and name != NO_CHANGE.name
            found.append(compared(names, changes[name], *folders, self.limit, masked))
        return found

    def _run(self, configs: Sequence[Config]) -> list[Config]:
        """To their ends. Returns those that failed."""
        failed = self.bench.run([Trial(self.bench.folder(one), one, one.federation.rounds) for one in configs])
        for why in dict.fromkeys(news.why for news in failed.values()):
            self.bench.tell(why)
        return [one for one in configs if self.bench.folder(one) in failed]

    def _other_seed(self, change: Change, everything: bool = False) -> Config:
        """With the next seed. The error of the intervals is shared among the confirming runs, before any is made.
        Updates are not masked, so that the same run tells what masking changes."""
        plain = {key: value for key, value in change.overrides.items() if not self.masked or key not in OF_MASKING}
        new = changed(self.config, replace(change, overrides=plain))
        if everything and "matched-filter" in self.attacks:
            new = looking_at(new, list(dict.fromkeys((*self.attacks, *BESIDE))), None)
        sure = 1 - (1 - self.config.audit.confidence) / CONFIRMING
        federation = new.federation.model_copy(update={"seed": self.config.federation.seed + 1})
        audit = new.audit.model_copy(update={"confidence": sure})
        return new.model_copy(update={"federation": federation, "audit": audit})


OF_MEMBERSHIP = ("record", "subject")  # questions
OF_MASKING = ("federation.secagg", "audit.vantages")


def _change(look: Tried) -> Change:
    return Change(look.name, look.words, look.overrides)


def _lower(look: Tried, than: Tried) -> bool:
    return look.risk is not None and than.risk is not None and look.risk.value < than.risk.value


def compared(
    names: Sequence[str], change: Change, after: Path, before: Path, limit: Rule, masked: bool = False
) -> Confirmed:
    """The largest risk after the change, beside what the same attack finds from the same vantage without it. The
    largest risk without the change may come from another attack, and is reported separately. `masked`: the updates
    would be; what only the parties' own models give away is then told as what a server would have without that."""
    whole, unchanged = (judge(folder, [limit]) for folder in (after, before))
    documents = {folder: load(folder) for folder in (after, before)}
    gate = replace(whole, findings=[f for f in whole.findings if f.model in GLOBAL]) if masked else whole
    every = whole if limit.attack in (None, ANY) else judge(after, [replace(limit, attack=None)])
    verdicts = {finding.verdict for finding in gate.findings}
    verdict = next(v for v in reversed(LIES) if v in verdicts)
    risk = worst(gate)
    ours, theirs = (_result(documents[folder], risk) for folder in (after, before))
    difference = risk_difference((after, ours), (before, theirs), limit.metric) if ours and theirs else None
    notes = [finding.note for finding in gate.findings if finding.note]
    return Confirmed(
        name=change.name,
        points=names,
        words=change.words,
        overrides=change.overrides,
        seed=documents[after].run.seed,
        verdict=LIES[verdict],
        meets=gate.exit_code == PASSED,
        why_not=notes[0] if notes else "",
        risk=risk,
        risk_before=_risk_of(theirs, limit.metric, unchanged),
        largest_before=worst(unchanged),
        strongest=most_found(documents[after], limit, every, masked),
        unmasked=worst(whole) if masked and len(gate.findings) < len(whole.findings) else None,
        guarantee=documents[after].run.guarantee,
        estimates=results.named(
            accuracy=documents[after].accuracy,
            accuracy_before=documents[before].accuracy,
            accuracy_difference=accuracy_difference(documents[after], documents[before]),
            risk_difference=difference,
        ),
    )


def _result(document: Document, risk: Risk | None) -> AuditResult | None:
    """What this run found at the place of a risk. None if it has no such place, for example no secagg server."""
    return next((r for r in document.results if risk and (r.attack, r.vantage, r.model, r.party) == risk.place), None)


def most_found(document: Document, limit: Rule, gate: Gate, masked: bool = False) -> Risk | None:
    """The largest risk from the vantages of the limit, by any attack, even one that the limit does not name. `gate`: of
    all attacks."""
    seen = [r for r in document.results if r.party == limit.party and r.attack != "blind"]
    seen = [r for r in seen if limit.vantage in (None, ANY) or sees(limit.vantage, r)]
    seen = [r for r in seen if not masked or r.model in GLOBAL]
    found = [risk for r in seen if (risk := _risk_of(r, limit.metric, gate))]
    return max(found, key=lambda risk: (-1.0 if risk.low is None else risk.low, risk.value), default=None)


def _risk_of(result: AuditResult | None, metric: str, gate: Gate) -> Risk | None:
    """With the gate's interval, if the gate looked at it: one figure has one interval wherever it is told. None if it
    is doubted: it is one at another rate."""
    estimate = result.estimates.get(metric) if result else None
    if result is None or estimate is None or estimate.value is None or estimate.doubt:
        return None
    low, high = proved_ends(estimate)
    risk = Risk(
        attack=result.attack, vantage=result.vantage, model=result.model, party=result.party,
        value=estimate.value, low=low, high=high,
    )  # fmt: skip
    judged = [f for f in gate.findings if (f.attack, f.vantage, f.model, f.party) == risk.place]
    return replace(risk, low=judged[0].low, high=judged[0].high) if judged else risk


# ------------------------------------------------------------------ the advice


def _advice(
    config: Config,
    limit: Rule,
    looks: Sequence[Tried],
    confirmed: Sequence[Confirmed],
    bench: Bench,
) -> tuple[Advice, dict[str, Config]]:
    of_limit = [one for one in confirmed if results.LIMIT in one.points]
    meeting = [one for one in confirmed if one.meets]
    recommended = max(meeting, key=lambda one: one.accuracy.value or 0.0 if one.accuracy else 0.0, default=None)
    nearest = recommended or min(of_limit, key=lambda one: _upper(one.risk), default=None)
    own = own_folder(bench, config)
    advice = Advice(
        schema=SCHEMA,
        limit=said(limit),
        confidence=1 - (1 - config.audit.confidence) / CONFIRMING,
        rungs=rungs(config),
        tried=looks,
        confirmed=confirmed,
        recommended=recommended.name if recommended else None,
        nearest=nearest.name if nearest else None,
        sentences=(),
        cost=bench.cost(own),
        about=_about(own),
    )
    advice = replace(advice, sentences=results.sentences(advice, limit))
    pasted = {point: one for one in confirmed for point in one.points if point != results.LIMIT}
    pasted |= {results.LIMIT: nearest} if nearest else {}
    return advice, {point: changed(config, Change(one.name, one.words, one.overrides)) for point, one in pasted.items()}


def _about(unchanged: Path) -> str | None:
    """As it was recorded: with what was decided when the data were read."""
    with contextlib.suppress(FedauditError):
        return results.federation_of(load(unchanged).run.config)
    return None


def _upper(risk: Risk | None) -> float:
    return math.inf if risk is None or risk.high is None else risk.high
