"""Is this installation sound? Audits of three worlds whose truth is known.

*Null*: no candidate was trained on, so whatever an audit says it found is a false alarm. *Leak*: a small part of the
records is trained on for long, so an audit that finds nothing is blind. *Gaussian mechanism*: epsilon is known, so the
proved bound must lie below it and the interval of the Gaussian fit around it, as often as they say. Seeds are fixed:
the same versions always come to the same outcome.

`results.selftest` keeps what came out for later runs.
"""

import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
from scipy import stats

from fedaudit import __version__
from fedaudit.audit import Auditor
from fedaudit.config.schema import Config, parse
from fedaudit.data.beside import only
from fedaudit.federation.simulate import Trainer
from fedaudit.results.selftest import Counted, SelfTest, code
from fedaudit.session.prepare import Prepared, prepare
from fedaudit.session.recording import installed
from fedaudit.session.run import Progress, rounds
from fedaudit.stats import Ranks, gdp_epsilon, proved_epsilon, random_half
from fedaudit.stats.gaussian import gaussian_epsilon
from fedaudit.types import Audit, Role

NULLS, LEAKS, MECHANISMS = 14, 3, 24
TRIALS, MU, DELTA = 100, 1.0, 0.1  # of one simulated mechanism; so many trials prove about half of its epsilon
RARELY = 1e-3  # a chance below which an outcome is not put down to chance
_WORLD: dict[str, Any] = {
    "data": {"name": "digits"},
    "federation": {"parties": 2, "rounds": 4, "batch_size": 32, "lr": 3e-3},
    "model": {"hidden": [64]},
}
_NULL: dict[str, Any] = {"members": 0.3, "nonmembers": 0.3}
_LEAK: dict[str, Any] = {"members": 0.05, "nonmembers": 0.3, "local_epochs": 6}


def selftest(progress: Progress, audit: Config | None = None) -> SelfTest:
    """With the attacks and the confidence of a configuration, or the usual ones."""
    started, confidence = time.perf_counter(), _world(_NULL, 0, audit).audit.confidence
    with progress("Auditing worlds whose truth is known", NULLS + LEAKS + 1) as step:
        alarms, tested = 0, set[str]()
        for seed in range(NULLS):
            found = watch(null_world(_world(_NULL, seed, audit)))
            alarms += any(headline.tone in ("found", "weak", "alarm") for headline in found.headlines)
            tested |= {result.attack for result in found.results}
            step()
        seen = 0
        for seed in range(LEAKS):
            found = watch(prepare(_world(_LEAK, seed, audit)))
            seen += any(headline.tone in ("found", "weak") for headline in found.headlines)
            step()
        above, around, fitted = mechanisms(confidence)
        step()
    return SelfTest(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        fedaudit=__version__,
        code=code(),
        versions=installed(),
        attacks=tuple(sorted(tested)),
        confidence=confidence,
        false_alarms=Counted(alarms, NULLS),
        found=Counted(seen, LEAKS),
        bounds_above=Counted(above, MECHANISMS),
        fits_around=Counted(around, fitted),
        # A headline is wrong on one side with half of the error, and there are two: a party's and the server's.
        sound=alarms <= stats.binom.isf(RARELY, NULLS, 1 - confidence)
        and (seen == LEAKS or audit is not None)  # attacks of one's own choice may be too weak to find it
        and above <= stats.binom.isf(RARELY, MECHANISMS, 1 - confidence)
        and around >= stats.binom.ppf(RARELY, fitted, confidence),
        seconds=time.perf_counter() - started,
    )


def _world(federation: dict[str, Any], seed: int, audit: Config | None) -> Config:
    world = _WORLD | {"federation": _WORLD["federation"] | federation | {"seed": seed}}
    config = parse(world)
    if audit is None:
        return config
    asked = {key: getattr(audit.audit, key) for key in ("attacks", "confidence", "vantages", "adversary")}
    return config.model_copy(update={"audit": config.audit.model_copy(update=asked)})


def watch(prepared: Prepared) -> Audit:
    for round in rounds(prepared):
        prepared.auditor.observe(round)
    return prepared.auditor.snapshot()


def null_world(config: Config) -> Prepared:
    """The parties train on half of the calibration records, which then leave the game: no candidate was trained on."""
    prepared = prepare(config)
    candidates, truth = prepared.game.candidates, prepared.game.truth
    trained_on = truth.mask(Role.CALIBRATION) & random_half(candidates.id, "null-world")
    parties: list[Any] = []
    for party in prepared.parties:
        assert isinstance(party, Trainer)
        mine = candidates.rows.take((trained_on & (candidates.party == party.name))[candidates.owner])
        parties.append(Trainer(party.name, mine, party.training))
    game = only(prepared.game, ~trained_on)
    auditor = Auditor(prepared.task, game, prepared.settings)
    return replace(prepared, game=game, parties=parties, auditor=auditor)


def mechanisms(confidence: float) -> tuple[int, int, int]:
    """Simulated Gaussian mechanisms: bounds above the true epsilon, fitted intervals that hold it, and fits."""
    rng, truth = np.random.default_rng(0), gaussian_epsilon(MU, DELTA)
    above = around = fitted = 0
    for _ in range(MECHANISMS):
        inside, outside = rng.normal(MU, 1.0, TRIALS), rng.normal(0.0, 1.0, TRIALS)
        above += (proved_epsilon(inside, outside, DELTA, Ranks(), confidence).value or 0.0) > truth
        fit = gdp_epsilon(inside, outside, DELTA, confidence)
        if fit.low is not None and fit.high is not None:  # a fit that is rejected says nothing
            fitted, around = fitted + 1, around + (fit.low <= truth <= fit.high)
    return above, around, fitted
