"""Makes docs/reproduction.md: what the five papers claim, what is found here, and whether the claim holds.

    python -m docs.make_reproduction [--data FOLDER]     trains and audits what is missing, a run a core
    python -m docs.make_reproduction SETTING ...         the same for these, and prints the claims that they test
    python -m docs.make_reproduction --seeds 10          with ten seeds: `make reproduce-full`
    python -m docs.make_reproduction --page              writes the page from what is there
    python -m docs.make_reproduction --again             the same, after the statistics of all runs were computed again
                                                         from their signals, without training

Runs are kept in runs/reproduction: one that is there is read, an unfinished one goes on where it stopped, and one that
lost an attack, or is of a setting that has changed since, is trained again. FOLDER holds the data sets that no package
brings (cifar10.npz, cifar100.npz, mnist.npz, shakespeare_roles.json.gz); settings that need one that is not there are
left out, and the page says so. It is written after all runs of a seed, and when it is cut off, from all seeds that were
trained. A run that fails is told and left out.
"""

import argparse
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from docs.reproduction_claims import (
    CLAIMS,
    CONFIRMED,
    CONTRADICTED,
    COST,
    NOT_RUN,
    TASK,
    UNDECIDED,
    UNTESTABLE,
    Above,
    Claim,
    Elsewhere,
    Of,
    Within,
)
from docs.reproduction_settings import FILTER, FILTER_OF_PEOPLE, LEAST, SETTINGS, TestedIn
from fedaudit.config.schema import Config, parse
from fedaudit.errors import FedauditError
from fedaudit.questions import metric
from fedaudit.results.compare import risk_difference
from fedaudit.results.document import RESULTS, SCORES, Document, load
from fedaudit.results.run_errors import RunErrors, errors_of_run
from fedaudit.session.recording import continued
from fedaudit.session.replay import replay
from fedaudit.session.run import run
from fedaudit.session.workers import Tell, work
from fedaudit.stats import over_runs
from fedaudit.stats.intervals import of_sum
from fedaudit.stats.wording import fpr_of
from fedaudit.trace.store import RUN, load_manifest
from fedaudit.types import AuditResult, Estimate, UnitErrors

RUNS, PAGE = Path("runs/reproduction"), Path(__file__).parent / "reproduction.md"
MOST = 100  # seeds of a setting


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("settings", nargs="*", metavar="SETTING", help=", ".join(SETTINGS))
    options.add_argument("--data", type=Path, default=Path("../shared/data"))
    options.add_argument("--page", action="store_true", help="train nothing")
    options.add_argument("--again", action="store_true", help="train nothing, but compute the statistics again")
    options.add_argument("--seeds", type=int, default=LEAST, help="at least so many; the page uses all that are there")
    options.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="runs at a time, a core each")
    given = options.parse_args()
    if unknown := [name for name in given.settings if name not in SETTINGS]:
        options.error(f"there is no setting {unknown[0]}; there are {', '.join(SETTINGS)}")
    if given.settings:
        train_all(given.settings, given.data, given.workers, given.seeds, after_a_seed=lambda: None)
        print("\n".join(table([(claim, holds(claim)) for claim in about(given.settings)])))
        return
    try:
        if given.again:
            judge_again(given.workers)
        elif not given.page:
            train_all(list(SETTINGS), given.data, given.workers, given.seeds)
    finally:
        write_page()


def write_page() -> None:
    PAGE.write_text(page(), encoding="utf-8")


def about(settings: Sequence[str]) -> list[Claim]:
    return [one for one in CLAIMS if isinstance(one, Claim) and any(of.setting in settings for of in looked_at(one))]


def looked_at(claim: Claim) -> list[Of]:
    """The figures that are compared, and those beside them."""
    compared = [[test.first, test.second] if isinstance(test, Above) else [test.of] for test in claim.tests]
    return [*(of for each in compared for of in each), *claim.beside]


# ------------------------------------------------------------------ training


def missing(setting: TestedIn, data: Path) -> list[str]:
    return [name for name in setting.data if not (data / name).is_file()]


def train_all(
    wanted: Sequence[str],
    data: Path,
    workers: int,
    seeds: int = LEAST,
    after_a_seed: Callable[[], None] | None = None,
) -> None:
    """All settings with one seed first: a page that is cut off is still broad."""
    lacking = {name: missing(SETTINGS[name], data) for name in wanted}
    for name, files in lacking.items():
        if files:
            print(f"{name} is left out: there is no {', '.join(files)} in {data}", flush=True)
    made, began = prepared(data), time.perf_counter()
    many = {name: max(seeds, SETTINGS[name].seeds) for name in wanted if not lacking[name]}
    there = {name: ended(name) for name in many}
    rows = range(max(many.values(), default=0))
    jobs = [(name, seed, made) for seed in rows for name in many if seed < many[name] and seed not in there[name]]
    if any(there.values()):
        print(f"{sum(map(len, there.values()))} runs are there already", flush=True)
    left = Counter(seed for _, seed, _ in jobs)
    with closing(work(jobs, train, workers)) as news:
        for one in news:
            name, seed, _ = jobs[one.piece]
            left[seed] -= 1
            passed, done = (time.perf_counter() - began) / 60, len(jobs) - left.total()
            told = f"{name}, seed {seed}: {one.why or one.kind}; {done} of {len(jobs)} after {passed:.0f} minutes"
            print(f"{told}, about {passed * left.total() / done:.0f} left", flush=True)
            if not left[seed]:
                (after_a_seed or write_page)()


def train(job: tuple[str, int, Path], _: Tell) -> None:
    name, seed, data = job
    folder, config = RUNS / f"{name}-{seed}", configured(name, seed, data)
    if (folder / RUN).is_file() and not of_this_setting(folder, name, seed, data):
        removed(folder)
    goes_on = (folder / RUN).is_file()
    made = run(config, folder, silent, tell=lambda _: None)
    if goes_on and made.degraded:  # reference models do not outlive a kill
        removed(folder)
        run(config, folder, silent, tell=lambda _: None)


def judge_again(workers: int) -> None:
    """A run that cannot be replayed is told, and stays as it is: a malicious aggregator isolates models that no trace
    has."""
    jobs = [(folder.name, folder) for name in SETTINGS for folder, _ in ended(name).values()]
    with closing(work(jobs, judged_again, workers)) as news:
        for done in news:
            print(f"{jobs[done.piece][0]}: {done.why or 'judged again'}", flush=True)
    read.cache_clear()


def judged_again(job: tuple[str, Path], _: Tell) -> None:
    folder = job[1]
    replay(folder, [], folder, silent)


def removed(folder: Path) -> None:
    """In one step, so that a kill leaves no half of a run."""
    old = folder.with_name(f"{folder.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    folder.rename(old)
    shutil.rmtree(old)


def of_this_setting(folder: Path, name: str, seed: int, data: Path) -> bool:
    try:
        continued(folder, load_manifest(folder), configured(name, seed, data))
    except FedauditError as error:
        if error.code != "other-run":
            raise
        return False
    return True


def configured(name: str, seed: int, data: Path) -> Config:
    """With this seed; people that are made up are other people with another seed."""
    raw = SETTINGS[name].config(data)
    made_up = {"data": raw["data"] | {"data_seed": seed}} if raw.get("data", {}).get("name") == "synthetic" else {}
    return parse(raw | made_up | {"federation": raw.get("federation", {}) | {"seed": seed}})


def prepared(data: Path) -> Path:
    """The folder of the data, with CIFAR-100 at half the resolution beside links to the rest."""
    made = RUNS / "data"
    made.mkdir(parents=True, exist_ok=True)
    for file in data.glob("*"):
        link = made / file.name
        if link.is_symlink() and link.resolve() != file.resolve():
            link.unlink()  # to another folder, or nowhere any more
        if not link.exists():
            link.symlink_to(file.resolve())
    small = made / "cifar100-16.npz"
    if not small.exists() and (data / "cifar100.npz").is_file():
        with np.load(data / "cifar100.npz") as whole:
            x, y = whole["x_train"], whole["y_train"]
        halved = x.reshape(len(x), 16, 2, 16, 2, 3).mean(axis=(2, 4)) / 255
        part = made / "cifar100-16.part.npz"
        np.savez(part, x=halved.transpose(0, 3, 1, 2).astype(np.float32), y=y)
        part.replace(small)
    return made


@contextmanager
def silent(_: str, steps: int) -> Iterator[Callable[[], None]]:
    yield lambda: None


# ------------------------------------------------------------------ what was found


def ended(setting: str) -> dict[int, tuple[Path, Document]]:
    """The run of each seed that came to its end with all attacks, and is one of the setting as it is now."""
    found = {}
    for seed in range(MOST):
        folder = RUNS / f"{setting}-{seed}"
        if (results := folder / RESULTS).is_file():
            try:
                document = read(folder, setting, seed, results.stat().st_mtime_ns)
            except FedauditError as error:
                print(f"{folder} is left out: {error.what}. {error.todo}", flush=True)
                continue
            if document is not None and document.complete:
                found[seed] = (folder, document)
    return found


@cache
def read(folder: Path, setting: str, seed: int, _: int) -> Document | None:
    """Once for all claims, until the file changes."""
    return load(folder) if of_this_setting(folder, setting, seed, RUNS / "data") else None


@dataclass(frozen=True)
class Seen:
    """One figure of one run, and the result that it stands in, if it is an attack's."""

    folder: Path
    result: AuditResult | None
    figure: Estimate


def seen(of: Of) -> dict[int, Seen]:
    """The pooled figure of each seed, where it has a value."""
    found = {}
    for seed, (folder, document) in ended(of.setting).items():
        asked = (of.attack, of.model, None)
        result = next((one for one in document.results if (one.attack, one.model, one.party) == asked), None)
        figure = figure_of(document, result, of.metric)
        if figure is not None and figure.value is not None:
            found[seed] = Seen(folder, result, figure)
    return found


def figure_of(document: Document, result: AuditResult | None, name: str) -> Estimate | None:
    """The cost is that of a round, in local epochs; a time has no error of measuring, only a spread over runs."""
    if name == TASK:
        return document.run.accuracy.get("evaluation")
    if result is None:
        return None
    if name != COST:
        return result.estimates.get(name)
    spent = result.cost.epochs
    return Estimate(COST, spent, spent, spent, 0.95, "audit time over that of a local epoch", "measured", 1, 1)


def limits(name: str) -> tuple[float, float]:
    """What a figure can be."""
    own = {COST: (0.0, np.inf), TASK: (0.0, 1.0)}
    return own.get(name) or (metric(name).least, metric(name).most)


def mean(of: Of) -> Estimate | None:
    each = seen(of)
    least, most = limits(of.metric)
    errors = [errors_of(one) for one in each.values()]
    return over_runs([one.figure for one in each.values()], least, most, errors) if each else None


def difference(test: Above) -> Estimate | None:
    """The mean over seeds of the first minus the second."""
    both = seen(test.first).keys() & seen(test.second).keys()
    known = {seed: one for seed in sorted(both) if (one := difference_of_seed(test, seed)) is not None}
    most = limits(test.first.metric)[1]
    errors = []
    for seed in known:
        first, second = errors_of(seen(test.first)[seed]), errors_of(seen(test.second)[seed])
        errors.append(of_sum(first, second, -1.0) if first and second else None)
    return over_runs(list(known.values()), -most, most, errors) if known else None


def errors_of(one: Seen) -> UnitErrors | None:
    """What each record, or person, adds to the error of this figure, if that is kept; a time has no such error."""
    if one.result is None or one.figure.name == COST:
        return None
    return errors_in(one.folder).of(one.result.attack, one.result.model, one.figure)


@cache
def errors_in(folder: Path) -> RunErrors:
    """Of all figures that claims look at, read once. People who are made up are others in every run, though they have
    the same names."""
    setting, document = folder.name.rpartition("-")[0], load(folder)
    asked = [of for claim in about([setting]) for of in looked_at(claim) if of.setting == setting]
    asked += [strongest(of) for of in asked]
    places = {(of.attack, of.model) for of in asked}
    results = [one for one in document.results if (one.attack, one.model) in places and one.party is None]
    found = errors_of_run(folder, results, {of.metric for of in asked})
    valued = {
        (one.attack, one.model, name)
        for one in results
        for name, figure in one.estimates.items()
        if figure.value is not None and (name == "auc" or fpr_of(name))
    }
    other = (valued & {(of.attack, of.model, of.metric) for of in asked}) - found.known.keys()
    if other and (folder / SCORES).is_file():
        what = f"{len(other)} figures are not what its scores give now, and their errors count as common to all seeds"
        print(f"{folder}: {what}; --again computes them again", flush=True)
    if SETTINGS[setting].config(RUNS / "data").get("data", {}).get("name") != "synthetic":
        return found
    return found.among(str(load_manifest(folder)["data"]))


@cache
def difference_of_seed(test: Above, seed: int) -> Estimate | None:
    """Record by record where both runs have scores and were made from the same data, in one setting or in two. (A
    malicious aggregator's scores are about models that it isolated, and are not kept.)"""
    first, second = seen(test.first)[seed], seen(test.second)[seed]
    paired = None
    alike = test.first.metric == test.second.metric != COST
    if alike and first.result and second.result and same_data(first.folder, second.folder):
        paired = risk_difference((first.folder, first.result), (second.folder, second.result), test.first.metric)
    return paired or apart(first.figure, second.figure)


def same_data(first: Path, second: Path) -> bool:
    """Where it is made up, somebody else may have the same name."""
    return bool(load_manifest(first)["data"] == load_manifest(second)["data"])


def apart(first: Estimate, second: Estimate) -> Estimate | None:
    """As if their errors had nothing to do with each other, as those of two federations."""
    ends = [(e.value, e.low, e.high) for e in (first, second)]
    if any(end is None for each in ends for end in each):
        return None
    (a, a_low, a_high), (b, b_low, b_high) = (tuple(float(end or 0.0) for end in each) for each in ends)
    low, high = a - b - np.hypot(a - a_low, b_high - b), a - b + np.hypot(a_high - a, b - b_low)
    counts = min(first.n_pos, second.n_pos), min(first.n_neg, second.n_neg)
    method = "difference; the intervals' squares added"
    return Estimate(first.name, a - b, float(low), float(high), first.confidence, method, "measured", *counts)


VERDICTS = (CONFIRMED, UNDECIDED, CONTRADICTED, UNTESTABLE, NOT_RUN)


def holds(claim: Claim) -> str:
    """Confirmed if every test of the claim is passed with its whole interval; else the verdict of the worst."""
    outcomes = [outcome(test) for test in claim.tests]
    return next(verdict for verdict in (CONTRADICTED, NOT_RUN, UNDECIDED, CONFIRMED) if verdict in outcomes)


def outcome(test: Above | Within) -> str:
    found = difference(test) if isinstance(test, Above) else mean(test.of)
    if seeds(test) < LEAST or found is None or found.low is None or found.high is None:
        return NOT_RUN
    least, most = (test.by, np.inf) if isinstance(test, Above) else (test.least, test.most)
    if least < found.low and found.high <= most:
        return CONFIRMED
    return CONTRADICTED if found.high < least or found.low > most else UNDECIDED


def seeds(test: Above | Within) -> int:
    """From how many a figure, or a difference, is."""
    if isinstance(test, Within):
        return len(seen(test.of))
    return len(seen(test.first).keys() & seen(test.second).keys())


# ------------------------------------------------------------------ the page


def page() -> str:
    judged = [(one, holds(one) if isinstance(one, Claim) else one.verdict) for one in CLAIMS]
    counts = Counter(verdict for _, verdict in judged)
    parts = [HEAD, "| verdict | claims |", "|---|---|"]
    parts += [f"| {verdict} | {counts[verdict]} |" for verdict in VERDICTS if counts[verdict]]
    parts += [f"| together | {len(judged)} |", ""]
    for paper in dict.fromkeys(claim.paper for claim, _ in judged):
        parts += [f"## {paper}\n", "\n".join(table([one for one in judged if one[0].paper == paper])), ""]
    return "\n".join([*parts, "## Settings\n", *settings(), ""])


HEAD = """# The papers' claims, tested here

Made by `make reproduce` (`docs/make_reproduction.py`). The claims, and how each is decided, are in
`reproduction_claims.py`; the federations in `reproduction_settings.py`. A figure on other data than the paper's is a
counterpart, not a repetition.

- **Verdicts.** *Confirmed*: the whole interval passes the test. *Contradicted*: the whole interval fails it. Otherwise
  the interval leaves it open. Of several comparisons all must pass, and one that is contradicted contradicts the claim;
  intervals are not corrected for their number: of twenty, about one is expected to miss the true value. *Not run with
  three seeds*: the row says what was run. *Not testable here*: the row says what it would take. *Asked*: our threshold.
- **Intervals** are 95 %, for the mean over all possible training runs, if these vary about normally: the spread over
  seeds (Student's t), and what their errors of measuring have in common ([numbers.md](numbers.md)). Every setting
  trained here has at least three seeds; the last table lists them, the model's accuracy and the command.
- **Commands.** The command that ends a row, where there is one, trains what is missing for its claim and judges it.
  Names in *italics* are settings.
- **†** The test was written, or its number of seeds raised, after figures of its setting, or of a similar one, had been
  seen.
- **Models.** *Local* ones are those that a server sees of each party, *global* ones those that every party sees.
- **Figures.** tpr@0.01: the share of members that are found while 1 % of outsiders are accused; the rate may differ
  from the published one. auc: 1/2 is guessing. accuracy: at the threshold that the adversary's own records give, with
  as many members as others; .5 is guessing. balanced-accuracy@25: the same for people, of whom the adversary knows 25
  on each side. cost: time of the audit in a round, over that of one epoch of a party. task: accuracy of the last model
  on outsiders.
- **Canaries.** score-sd: the spread of the scores, in clip norms. accuracy: the share of probes in which the canary was
  rightly called present or absent, at a score of 1/2. canary-health: how much of the loss crafting removed; 1 is all.
- **Attributes.** members-auc: how well the attack names the attribute of members; blind-auc: how well a classifier
  does that sees no model. excess-over-blind and members-minus-nonmembers are differences of AUCs.
- **The matched filter** looks for a record's own gradient in the updates ([matched-filter.md](matched-filter.md)). It
  stands beside nearly every attack on membership, and is often, not always, the strongest.
"""


def table(judged: Sequence[tuple[Claim | Elsewhere, str]]) -> Iterator[str]:
    yield "| verdict | claim | published | found here |"
    yield "|---|---|---|---|"
    for claim, verdict in judged:
        said = f"{claim.place}: {claim.said}{' †' * getattr(claim, 'after_a_look', False)}"
        if isinstance(claim, Elsewhere):
            yield f"| **{verdict}** | {said} | {claim.published} | {claim.found} |"
            continue
        why = claim.why_not if verdict in (UNDECIDED, CONTRADICTED) else ""
        told = ". ".join(filter(None, [f"**{verdict}**", f"{why} {claim.known}".strip()]))
        names = " ".join(dict.fromkeys(of.setting for of in looked_at(claim)))
        command = f"`python -m docs.make_reproduction {names}`"
        yield f"| {told} | {said} | {claim.published} | {'<br>'.join([*figures(claim), command])} |"


MANY = 4  # comparisons with one figure, of which those that hold need not all be told


def figures(claim: Claim) -> Iterator[str]:
    """A line for each setting, kind of model and metric: the figures that are compared, and those beside them; then
    what was asked."""
    compared: dict[str, list[Above]] = {}
    for test in claim.tests:
        if isinstance(test, Above):
            compared.setdefault(names(test)[0], []).append(test)
    told = {what: worth_telling(tests) for what, tests in compared.items()}
    untold = {test.second for what, tests in compared.items() for test in tests if test not in told[what]}
    of_claim = [of for of in looked_at(claim) if of not in untold]
    filters = [strongest(of) for of in of_claim if of.attack != "attribute" and of.metric != TASK]
    lines: dict[tuple[str, str, str], list[str]] = {}
    for of in dict.fromkeys([*of_claim, *(of for of in filters if seen(of))]):
        runs, valued = len(ended(of.setting)), len(seen(of))
        figure = f"{words(mean(of))}{f' in {valued} of {runs} runs' * (valued < runs)}"
        lines.setdefault((of.setting, of.model, of.metric), []).append(f"{of.attack} {figure}".strip())
    for (setting, model, name), each in lines.items():
        yield f"*{setting}*, {model} models, {name}: {', '.join(each)}"
    for test in claim.tests:
        if isinstance(test, Within):
            yield f"asked of {test.of.metric} in *{test.of.setting}*: {asked(test)}"
    for what, tests in compared.items():
        least = {test: f", asked above {test.by:g}" if test.by else "" for test in tests}
        minus = [f"{names(test)[1]} {words(difference(test))}{least[test]}" for test in told[what]]
        others = len(tests) - len(minus)
        yield f"{what} minus {'; minus '.join(minus)}" + (f"; {others} more comparisons hold" if others else "")


def worth_telling(tests: Sequence[Above]) -> list[Above]:
    """All of a few; of many those that do not hold, and the smallest of the others."""
    if len(tests) <= MANY:
        return list(tests)
    held = {test: difference(test) for test in tests if outcome(test) == CONFIRMED}
    smallest = min(held, key=lambda test: ((found := held[test]) and found.value) or 0.0, default=None)
    return [test for test in tests if test not in held or test is smallest]


def names(test: Above) -> tuple[str, str]:
    """What is compared, as shortly as can be: two figures of one attack, one attack on two kinds of models, two attacks
    in one setting, or one in two."""
    first, second = test.first, test.second
    if first.metric != second.metric:
        return f"In *{first.setting}*, {first.metric} of {first.attack}", second.metric
    if (first.setting, first.attack) == (second.setting, second.attack):
        return f"In *{first.setting}*, {first.attack} on {first.model} models", f"on {second.model} ones"
    if first.setting == second.setting:
        return f"In *{first.setting}*, {first.attack}", second.attack
    return f"{first.attack or TASK} in *{first.setting}*", f"in *{second.setting}*"


def asked(test: Within) -> str:
    least, most = limits(test.of.metric)
    if test.least < least:
        return f"at most {test.most:g}"
    return f"above {test.least:g}" if test.most >= most else f"{test.least:g} to {test.most:g}"


def strongest(of: Of) -> Of:
    """What the matched filter finds where this figure is from."""
    attack = FILTER_OF_PEOPLE if of.attack.startswith("subject-") else FILTER
    shared = of.metric == COST or of.metric.startswith(("tpr@", "balanced-accuracy@"))
    return Of(of.setting, attack, of.model, of.metric if shared else "auc")


def words(estimate: Estimate | None) -> str:
    if estimate is None:
        return "not run"
    if estimate.value is None:
        return f"no value ({estimate.reason})"
    return f"{estimate.value:.3f} ({estimate.low:.3f} to {estimate.high:.3f})"


def settings() -> Iterator[str]:
    yield "| setting | what it is | accuracy on members | on others | seeds here | command |"
    yield "|---|---|---|---|---|---|"
    for name, setting in SETTINGS.items():
        done = [str(seed) for seed in ended(name)]
        command = f"`python -m docs.make_reproduction {name}`"
        right = f"{learnt(name, 'members')} | {learnt(name, 'evaluation')}"
        yield f"| {name} | {setting.about} | {right} | {', '.join(done) or 'none'} | {command} |"


def learnt(setting: str, kind: str) -> str:
    """Of which share of these records the last model names the class, in the mean over seeds: a model that has not
    learnt has nothing to give away."""
    shares = [document.run.accuracy[kind] for _, document in ended(setting).values() if kind in document.run.accuracy]
    return words(over_runs(shares)) if shares else "–"


if __name__ == "__main__":
    main()
