"""`fedaudit verify`: is a claim of differential privacy kept? Checked on a configuration (by probing its mechanism and
by a few rounds of training) or on a recorded trace, fedaudit's own or somebody else's.

There are ten checks: PASS, FAIL or CANNOT TELL, with the evidence. An eleventh is added where it is known how many of
the protected units one person has. See docs/dp.md.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
from scipy import stats

from fedaudit.config.schema import Config, load_config
from fedaudit.errors import FedauditError
from fedaudit.privacy.accounting import per_person, promise_from, stated
from fedaudit.privacy.statement import Promise, Statement
from fedaudit.results import document as results
from fedaudit.session.recording import config_of
from fedaudit.session.verify.evidence import (
    BY_EXAMPLES,
    CONSTANT,
    ROUNDING,
    Claim,
    Declared,
    Noise,
    Observations,
    claimed_by,
    declared_as,
    from_branches,
    from_probe,
    from_trace,
    read_claim,
    read_table,
)
from fedaudit.session.verify.sparse import MECHANISM, DeclaredSparse, judged, seen_in
from fedaudit.trace.journal import vouched
from fedaudit.trace.segments import DamagedError
from fedaudit.trace.store import HOST_CLAIM, RUN, Store
from fedaudit.types import Notice, Round, State, gap
from fedaudit.words import all_words

__all__ = ["Check", "Claim", "CountingTask", "Declared", "check", "from_trace", "verify", "verify_rounds"]

PROBED = 64  # records of one party on which the mechanism is tried
TRAINED = 3  # rounds trained to look at a configuration
UNLIKELY = 1e-6


Outcome = Literal["PASS", "FAIL", "CANNOT TELL"]
Found = tuple[Outcome, str]


@dataclass(frozen=True)
class Check:
    id: str
    question: str
    outcome: Outcome
    evidence: str
    claim: str = ""  # which claim: a run may make several


def verify(path: Path, declared: Path | None, overrides: Iterable[str] = ()) -> list[Check]:
    """A folder holds a trace, anything else is a configuration. Every claim that is made is checked."""
    if path.is_dir() and not (path / RUN).is_file():
        raise FedauditError("no-trace", f"there is no {RUN} in {path}", "Give a folder that `fedaudit run` wrote.")
    if path.is_dir() and list(overrides):
        raise FedauditError("verify-set", f"{path} is a recorded run: its settings cannot be changed", "Remove --set.")
    if path.is_dir():
        return _verify_run(path, declared)
    if declared:
        raise FedauditError(
            "verify-claim",
            f"{path} is a configuration: its claim is what its defences promise, not what {declared} says",
            'Remove --claim, or run it with audit.keep = "snapshots" and give the folder of that run.',
        )
    return _verify_config(load_config(path, overrides))


def verify_rounds(declared: Declared, rounds: Iterable[Round]) -> list[Check]:
    """Any trace: rounds as they were exchanged, and what is said about them."""
    seen = from_trace(Claim(declared, 0), rounds)
    return check(Claim(declared, seen.rounds), seen)


def _verify_run(path: Path, declared: Path | None) -> list[Check]:
    """All released rounds count, also those on abandoned branches."""
    store = Store.read(path)
    entries = [entry for _, entry in sorted(store.lineage.entries.items())]
    done = sum(1 for entry in entries if entry.commit)
    if not done:
        what = f"{path} has no recorded rounds, so nothing can be said about what they spent"
        raise FedauditError("no-rounds", what, "Give a run that was trained, with its journal.")
    newest, lost = store.entries(), all_words(lacking(store))
    left = [f"round {e.round} of branch {e.branch}" for e in entries if e.commit and e not in newest]

    def rounds() -> Iterator[tuple[int, Round]]:
        for entry in entries:
            if entry.kept:
                try:
                    found = store.round(entry)
                except DamagedError as error:
                    lost.append(f"Round {entry.round}: {error}.")
                else:
                    yield entry.branch, found

    if declared is None and (path / HOST_CLAIM).is_file():
        declared = path / HOST_CLAIM
    if declared and (sparse := read_sparse(declared)):
        seen_by = seen_in(sparse, (party for entry in entries for party in entry.parties), rounds())
        return [
            Check(one.id, one.question, *_believed(one.found, lost if one.looks else []), SPARSE)
            for one in judged(sparse, seen_by)
        ]
    claims = [read_claim(declared, done)] if declared else _own_claims(store, path, done)
    found = []
    for claim in claims:
        seen = from_branches(claim, rounds())
        found += check(claim, replace(seen, abandoned=left, lost=list(dict.fromkeys(lost))))
    return found


def read_sparse(path: Path) -> DeclaredSparse | None:
    """None if the claim is of another mechanism."""
    table = read_table(path)
    return declared_as(DeclaredSparse, table, path) if MECHANISM in table else None


def lacking(store: Store) -> list[Notice]:
    """Why the trace may not hold every round that was done."""
    found, results_file = store.incomplete(), store.directory / results.RESULTS
    if results_file.is_file() and not vouched(results_file):
        found.append(gap("results-unlisted"))
    return found


def _own_claims(store: Store, path: Path, done: int) -> list[Claim]:
    """What results.json states about the noise in run.json; before there are results, what they would state."""
    promises = tuple(promise_from(plain) for plain in store.manifest.get("guarantee") or ())
    said = results.load(path).run.guarantee if (path / results.RESULTS).is_file() else None
    return _claims(config_of(store.manifest, path), promises, said or stated(promises, done), done)


def _claims(config: Config, promises: tuple[Promise, ...], said: Statement | None, done: int) -> list[Claim]:
    if not promises or said is None:
        what = "no defence of this configuration promises differential privacy" if not promises else "no round was done"
        raise FedauditError(
            "no-claim", what, "Add a defence that does, such as dp-sgd, or give --claim with a recorded run."
        )
    statements = {one.defence: one for one in (said, *said.further)}
    return [claimed_by(config, promise, statements.get(promise.defence), done) for promise in promises]


def _verify_config(config: Config) -> list[Check]:
    """A few rounds are trained, and a mechanism inside the party is tried on a few records."""
    from fedaudit.session.prepare import prepare
    from fedaudit.session.run import rounds

    prepared = prepare(config)
    planned = config.federation.rounds
    claims = _claims(config, prepared.promises, stated(prepared.promises, planned), planned)
    trained = list(islice(rounds(prepared), TRAINED))
    found = []
    for claim in claims:
        seen = from_trace(claim, trained)
        if claim.said.where == "gradient":  # the probe shows noise and clipping, the trace everything else
            probe = _probe(claim, prepared)
            seen = replace(probe, uncovered=seen.uncovered, present=seen.present, rounds=seen.rounds, fits=seen.fits)
        found += check(claim, seen)
    return found


def _probe(claim: Claim, prepared: Any) -> Observations:
    from fedaudit.learn.tasks import Training

    party, gradient = prepared.parties[0], prepared.defence.gradient
    records = party.source()
    few = records.take(np.arange(min(PROBED, len(records))))
    units = few.id if claim.said.unit == "record" or few.subject is None else few.subject
    state, step = prepared.task.initial(0), Training("sgd", 1.0, 1, len(few))
    found = from_probe(
        claim, state, few, lambda rows, rng: gradient(prepared.task, state, rows, step, rng), units, step.lr
    )
    watched, quarter = CountingTask(prepared.task), Training("sgd", 1e-6, 10, max(1, len(few) // 4))
    gradient(watched, state, few, quarter, np.random.default_rng(0))
    return replace(found, batches=watched.sizes, drawn_from=(len(few), quarter.batch_size / len(few)))


class CountingTask:
    """A task that counts the records of each batch its model is trained on."""

    def __init__(self, task: Any):
        self.task = task
        self.sizes: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.task, name)

    def fresh(self, state: State) -> Any:
        module = self.task.fresh(state)
        module.register_forward_pre_hook(lambda layer, inputs: self.sizes.append(len(inputs[0])))
        return module


# ------------------------------------------------------------------ the checks


def check(claim: Claim, seen: Observations) -> list[Check]:
    checks = [*CHECKS, *([PER_PERSON] if claim.people else [])]
    return [
        Check(id, question, *_believed(judge(claim, seen), [] if id in OF_THE_CLAIM else seen.lost), claim.name)
        for id, question, judge in checks
    ]


def _believed(found: Found, lost: Sequence[str]) -> Found:
    """A failure stands, whatever is missing. That nothing fails says little where part of the record is missing."""
    outcome, evidence = found
    if outcome != "PASS" or not lost:
        return found
    more = f" (and {len(lost) - 1} more such)" if len(lost) > 1 else ""
    return "CANNOT TELL", f"{lost[0].rstrip('.')}{more}. Of what is left: {evidence}"


def _sensitivity(claim: Claim, seen: Observations) -> Found:
    used, needed = claim.sensitivity, claim.said.clip * (2 if claim.said.adjacency == "replace" else 1)
    if used < needed * (1 - ROUNDING):
        short = f"{needed / used:.4g} times too little"
        return "FAIL", f"noise is scaled by {used:g}, one unit can move the sum by {needed:g}: {short}"
    return "PASS", f"noise is scaled by {used:g}, one unit moves the sum by at most {needed:g}"


def _exact_noise(claim: Claim, seen: Observations) -> Found:
    stated = claim.said.epsilon_one_round
    if stated is None:
        return "CANNOT TELL", "no epsilon of one round is stated"
    true = claim.spent(1)
    if true <= stated * (1 + ROUNDING) + 1e-9:
        return "PASS", f"one round costs {true:.4g}, {stated:.4g} is stated"
    classic = math.sqrt(2 * math.log(1.25 / claim.said.delta))
    why = (
        " (the classic formula, which holds below epsilon 1 only)"
        if math.isclose(classic, claim.said.noise * stated, rel_tol=0.02)
        else ""
    )
    return "FAIL", f"one round costs {true:.4g}, {stated:.4g} is stated{why}"


def _noise_is_there(claim: Claim, seen: Observations) -> Found:
    if claim.noise_std == 0:
        return "FAIL", "noise 0 is declared"
    found = [(noise, noise.lacking(noise.arrays)) for noise in seen.noises]
    for noise, lacks in found:
        if lacks:
            scaled = (
                " (if the server scales the noisy mean, claim server_lr)" if claim.said.where == "aggregate" else ""
            )
            size = f"{noise.measured():.3g} a coordinate at most, {noise.std:.3g} is declared"
            return "FAIL", f"{noise.label}: {size}{scaled}"
    told = [noise for noise, lacks in found if lacks is False]
    if not told or _unexplained(seen):
        return "CANNOT TELL", _unexplained(seen) or _blind(claim, seen)
    return (
        "PASS",
        f"{told[0].label}: {told[0].measured():.3g} a coordinate, {told[0].std:.3g} is declared; {len(told)} looked at",
    )


def _noise_differs(claim: Claim, seen: Observations) -> Found:
    found = [(pair, pair.lacking(pair.arrays)) for pair in seen.pairs]
    for pair, lacks in found:
        if lacks and _enough(seen.noises):
            return "FAIL", f"{pair.label} share their noise: it cancels in their difference"
    told = sum(lacks is False for _, lacks in found)
    if seen.noises and not _enough(seen.noises):
        return "CANNOT TELL", "there is too little noise to compare (see D3)"
    if not told or _unexplained(seen):
        return "CANNOT TELL", _unexplained(seen) or _blind(claim, seen)
    return "PASS", f"{told} pairs of rounds, parties and arrays differ as independent noise does"


def _enough(noises: list[Noise]) -> bool:
    return bool(noises) and not any(noise.lacking(noise.arrays) for noise in noises)


def _unexplained(seen: Observations) -> str | None:
    """Why the measured remainder cannot be taken for noise; None if it can."""
    for noise in seen.noises:
        if noise.exceeding():
            what = f"{noise.label}: {noise.measured():.3g} a coordinate, more than the {noise.std:.3g} declared"
            return f"{what}: something else moves the model, too (another server_lr, a server optimiser?)"
    return None


def _everything_covered(claim: Claim, seen: Observations) -> Found:
    if seen.uncovered:
        return "FAIL", f"released without noise: {', '.join(sorted(seen.uncovered)[:5])} (whole numbers)"
    bare: set[str] = set()
    told: set[str] = set()
    for noise in seen.noises:
        for name in noise.arrays:
            lacks = noise.lacking([name])
            (bare if lacks else told if lacks is False else set()).add(name)
    if bare:
        return "FAIL", f"too little noise in {', '.join(sorted(bare)[:5])}"
    if _unexplained(seen):
        return "CANNOT TELL", _unexplained(seen) or ""
    names = set(seen.noises[0].arrays) if seen.noises else set()
    if not names or names - told:
        few = ", ".join(sorted(names - told)[:5])
        return "CANNOT TELL", (f"too small to tell: {few}" if few else _blind(claim, seen)) + _besides(seen)
    return "PASS", f"all {len(names)} arrays carry it{_besides(seen)}"


def _besides(seen: Observations) -> str:
    """What needs no noise, and what is released beside the arrays."""
    still = f"; never changed: {', '.join(sorted(seen.constant)[:5])}" if seen.constant else ""
    others = [energy for (mean, _), energy in seen.fits.items() if mean != BY_EXAMPLES]
    weighted = min((e for (mean, _), e in seen.fits.items() if mean == BY_EXAMPLES), default=math.inf)
    counts = "; the mean is weighted by record counts, which leave the parties without noise"
    return still + (counts if others and weighted < min(others) else "")


def _clip_by_unit(claim: Claim, seen: Observations) -> Found:
    unit = claim.said.unit or "unit"
    if seen.moved is not None:
        if seen.moved > 1 + 10 * ROUNDING:
            return "FAIL", f"replacing one {unit} moved a step {seen.moved:.4g} times as far as clipping allows"
        return "PASS", f"replacing one {unit} moved a step {seen.moved:.2g} times as far as clipping allows"
    if not seen.norms:
        inside = "what left the parties was noisy, or clipped inside: `fedaudit verify CONFIG` probes it"
        return "CANNOT TELL", MASKED if seen.masked else inside
    where, longest = max(seen.norms, key=lambda pair: pair[1])
    if unit != "user":
        return "FAIL", f"whole updates are clipped, which bounds a user's part and not that of one {unit}"
    if longest > claim.said.clip * (1 + ROUNDING):
        if claim.said.clipped == "server":
            return _clipped_on_arrival(claim, seen)
        hint = '(if the server clips what arrives, claim clipped = "server")'
        return "FAIL", f"{where}: an update of norm {longest:.4g}, clipped to {claim.said.clip:g} by declaration {hint}"
    return "PASS", f"{len(seen.norms)} updates, the longest {longest:.4g}, clip {claim.said.clip:g}"


def _clipped_on_arrival(claim: Claim, seen: Observations) -> Found:
    """Updates are recorded before such a server clips them; its sum tells whether it did."""
    if not seen.fits:
        return "CANNOT TELL", "the server clips what arrives, and its sum shows nothing about that"
    least = {now: min(energy for (_, clipped), energy in seen.fits.items() if clipped is now) for now in (True, False)}
    odds = (least[False] - least[True]) / (2 * _variance(seen))
    longer = sum(norm > claim.said.clip for _, norm in seen.norms)
    about = f"{longer} of {len(seen.norms)} updates arrived longer than {claim.said.clip:g}"
    if -odds > -math.log(UNLIKELY):
        return "FAIL", f"{about}, and were added up unclipped"
    if odds > -math.log(UNLIKELY):
        return "PASS", f"{about}, and were clipped before they were added up"
    return "CANNOT TELL", f"{about}; whether the server clipped them is lost in the noise of its sum"


def _variance(seen: Observations) -> float:
    """The variance of the noise that is left over under the likeliest way of averaging."""
    size = sum(v.size for noise in seen.noises for v in noise.arrays.values())
    return max(min(seen.fits.values()) / max(size, 1), 1e-300)


def _sampler(claim: Claim, seen: Observations) -> Found:
    said = claim.said
    if said.accounted_as not in (None, "full", said.sampler):  # "full" counts nothing in favour of privacy
        return "FAIL", f"{said.sampler} sampling is accounted as {said.accounted_as}"
    if said.rate < 1 and said.sampler != "poisson":
        return "FAIL", f"{said.sampler} sampling is amplified with rate {said.rate:g}, as only Poisson sampling is"
    if said.where == "gradient":
        if not seen.batches:
            return "CANNOT TELL", "batches inside a party leave no trace: `fedaudit verify CONFIG` watches them"
        return _coins(said.sampler, seen.batches, *seen.drawn_from, "records a batch")
    if said.rate == 1:
        return "PASS", f"{said.sampler}: nothing is amplified"
    if said.parties is None or not seen.present:
        return "CANNOT TELL", "no rounds were recorded, or the number of parties is not declared"
    return _coins(said.sampler, seen.present, said.parties, said.rate, "parties a round")


def _coins(sampler: str, counts: Sequence[int], n: int, rate: float, what: str) -> Found:
    """Independent coins give numbers that vary, around n x rate."""
    least, most, mean = min(counts), max(counts), sum(counts) / len(counts)
    if sampler != "poisson":
        return "PASS", f"{sampler}: {least} to {most} {what}, and nothing is amplified"
    repeated = float(stats.binom.logpmf(counts[0], n, rate)) * (len(counts) - 1)
    if least == most and rate < 1 and repeated < math.log(UNLIKELY):
        return "FAIL", f"{least} {what} in each of {len(counts)}: a fixed number, not independent coins"
    if stats.binomtest(sum(counts), n * len(counts), rate).pvalue < UNLIKELY:
        return "FAIL", f"{mean:.3g} {what}, {n * rate:.3g} are accounted"
    return "PASS", f"{least} to {most} of {n} {what}, as coins of {rate:.3g} give"


def _composition(claim: Claim, seen: Observations) -> Found:
    done, stated = claim.rounds_done, claim.said.epsilon
    gone = f" ({', '.join(seen.abandoned[:5])} among them: abandoned, but released)" if seen.abandoned else ""
    if claim.said.rounds is not None and claim.said.rounds < done:
        return "FAIL", f"{claim.said.rounds} of {done} rounds{gone} are accounted (was the accountant started anew?)"
    true = claim.spent(done)
    if true > stated * (1 + ROUNDING) + 1e-9:
        covered = next((r for r in range(done - 1, 0, -1) if claim.spent(r) <= stated), 0) if done <= 50 else None
        hint = "" if covered is None else f"; {stated:.4g} covers {covered} rounds"
        return "FAIL", f"{done} rounds{gone} cost {true:.4g}, {stated:.4g} is stated{hint}"
    return "PASS", f"{done} rounds{gone} cost {true:.4g}, {stated:.4g} is stated"


def _stated(claim: Claim, seen: Observations) -> Found:
    missing = [what for what, value in (("unit", claim.said.unit), ("adjacency", claim.said.adjacency)) if not value]
    if missing:
        return "FAIL", f"not stated: {' and '.join(missing)}"
    return "PASS", f"one {claim.said.unit}, {claim.said.adjacency}"


def _denominator(claim: Claim, seen: Observations) -> Found:
    if claim.said.where != "aggregate":
        return "PASS", "the noise is added before anything is averaged: weights are post-processing"
    if not seen.fits:
        return "CANNOT TELL", _blind(claim, seen)
    # One way is accepted over another if it is a million times as likely.
    clips = min(seen.fits, key=lambda way: seen.fits[way])[1]
    fits = {mean: energy for (mean, clipped), energy in seen.fits.items() if clipped is clips}
    constant = fits[CONSTANT]
    unclear, alike = [], []
    for way, energy in fits.items():
        if way == CONSTANT or (constant == energy):
            alike += [way] if way != CONSTANT else []
        elif (constant - energy) / (2 * _variance(seen)) > -math.log(UNLIKELY):
            return "FAIL", f"the sum was divided by {way}, the noise is meant for {CONSTANT}"
        elif (energy - constant) / (2 * _variance(seen)) <= -math.log(UNLIKELY):
            unclear.append(way)
    if unclear:
        return "CANNOT TELL", f"too few rounds, or too much noise, to tell {CONSTANT} from {' and '.join(unclear)}"
    return "PASS", CONSTANT + (f" (here the same as {' and '.join(alike)})" if alike else "")


def _per_person(claim: Claim, seen: Observations) -> Found:
    stated = claim.per_person
    true = per_person(claim.people, claim.rounds_done, claim.said.delta)
    found = f"{true.text}: {true.method}"
    if stated is None:
        return "FAIL", f"nothing is stated about a person; it is {found}"
    if stated.epsilon is not None and (
        true.epsilon is None or true.epsilon > stated.epsilon * (1 + ROUNDING) + 1e-9 or stated.delta < true.delta
    ):
        return "FAIL", f"an epsilon of {stated.epsilon:.4g} at delta {stated.delta:.3g} is stated; it is {found}"
    return "PASS", f"{found}; {'no promise' if stated.epsilon is None else f'{stated.epsilon:.4g}'} is stated"


MASKED = "the updates are masked: only their sum was recorded"


def _blind(claim: Claim, seen: Observations) -> str:
    if claim.said.where == "gradient":
        return "noise inside a party does not show in its update: `fedaudit verify CONFIG` probes it"
    if seen.masked:
        return MASKED
    return (
        "too few numbers to decide"
        if seen.noises
        else 'the trace holds no models: record with audit.keep = "snapshots"'
    )


OF_THE_CLAIM = ("D1", "D2", "D9")  # they look at no round
SPARSE = "sparse vector technique, one whole update"
Checked = tuple[str, str, Callable[[Claim, Observations], Found]]
PER_PERSON: Checked = ("D11", "Is what is stated about one person right?", _per_person)
CHECKS: list[Checked] = [
    ("D1", "Is the noise scaled by what one unit can do?", _sensitivity),
    ("D2", "Is the noise enough for the epsilon of one round?", _exact_noise),
    ("D3", "Is the noise there?", _noise_is_there),
    ("D4", "Is the noise fresh in every round, party and array?", _noise_differs),
    ("D5", "Does everything that is released carry noise?", _everything_covered),
    ("D6", "Is clipping done for the declared unit?", _clip_by_unit),
    ("D7", "Is the sampler the one that was accounted for?", _sampler),
    ("D8", "Are all rounds accounted for?", _composition),
    ("D9", "Are unit and adjacency stated?", _stated),
    ("D10", "Is the denominator constant?", _denominator),
]
