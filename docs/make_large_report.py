"""How long the page of a very large audit takes: 100,000 records, 200 rounds, 20 parties, 15 attacks.

    python -m docs.make_large_report RUN

Results are made up, with every curve and table as long as such an audit has them. Where Chromium is installed, it
says how long the page takes to load and how long it is busy at most, also while it is scrolled, unfolded and sorted.
"""

import math
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

from fedaudit.report import html
from fedaudit.results.document import Document, Exposed, ExposedUnit
from fedaudit.types import AuditResult, Cost, Curve, Estimate, GroupFindings, GroupResult, Headline, ModelKind, Subgroup

PARTIES, ATTACKS, ROUNDS, RECORDS, GROUPS = 20, 15, 200, 100_000, 60
PLACES: tuple[tuple[str, ModelKind], ...] = (("client", "global"), ("server", "local"), ("outsider", "global"))


def estimate(name: str, value: float) -> Estimate:
    ends = value, max(value - 0.02, 0.0), min(value + 0.02, 1.0)
    return Estimate(
        name, *ends, 0.95, "made up", "measured", RECORDS // 3, RECORDS // 3, n_cal=RECORDS // 3, realised_fpr=0.01
    )


def curve(last: float, points: int, start: float) -> Curve:
    x = [float(i + 1) for i in range(points)]
    value = [start + (last - start) * (1 - math.exp(-i / 40)) for i in range(points)]
    return Curve(x, value, [v - 0.02 for v in value], [v + 0.02 for v in value], "made up", simultaneous=True)


def large(template: Document) -> Document:
    results = []
    for vantage, model in PLACES:
        for number in range(ATTACKS):
            auc = 0.55 + 0.02 * number
            found = {"auc": estimate("auc", auc), "tpr@0.01": estimate("tpr@0.01", auc - 0.5)}
            shape = [10 ** (-4 + 4 * i / 199) for i in range(200)]
            roc = Curve(shape, [x**0.4 for x in shape], [x**0.45 for x in shape], [x**0.35 for x in shape], "made up")
            curves = {"roc": roc, "auc": curve(auc, ROUNDS, 0.5), "tpr@0.01": curve(auc - 0.5, ROUNDS, 0.01)}
            one = AuditResult(
                attack=f"attack-{number}", vantage=vantage, model=model, unit="record", party=None, round=ROUNDS,
                estimates=found, cost=Cost(0.5), curves=curves, question="record",
            )  # fmt: skip
            results += [one, *(replace(one, party=f"party-{p:02d}", curves={}) for p in range(PARTIES))]
    groups = [
        GroupResult(
            group=Subgroup("attribute", str(g), "code"), vantage=vantage, model=model, attack="attack-0",
            inside={"auc": estimate("auc", 0.6)}, outside={"auc": estimate("auc", 0.6)},
            beyond={"auc": estimate("auc", 0.0)},
        )
        for vantage, model in PLACES for g in range(GROUPS)
    ]  # fmt: skip
    looked_at = [one.group for one in groups[:GROUPS]]
    headlines = [
        Headline(
            vantage=vantage, attack="attack-0", model=model, estimates=results[0].estimates, compared=45,
            sentence="Made up.", tone="found", grade="some",
        )
        for vantage, model in PLACES
    ]  # fmt: skip
    exposed = [
        ExposedUnit(f"{i:064x}", f"party-{i % PARTIES:02d}", score=1.0, share_of_calibration_above=0.0)
        for i in range(1000)
    ]
    data = replace(template.run.data, records=RECORDS)
    parties = [replace(template.run.parties[0], name=f"party-{p:02d}") for p in range(PARTIES)]
    return replace(
        template,
        run=replace(template.run, data=data, rounds=ROUNDS, parties=parties),
        results=results,
        headlines=headlines,
        exposed=Exposed("attack-0", "client", records=exposed),
        groups=GroupFindings(looked_at=looked_at, comparisons=360, confidence=0.95, results=groups),
    )


WATCH = """
window.longest = 0;
new PerformanceObserver((list) => {
  for (const task of list.getEntries()) window.longest = Math.max(window.longest, task.duration);
}).observe({ type: "longtask", buffered: true });
"""
TOUCH = """async () => {
  const frame = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  let worst = 0;
  const timed = async (act) => {
    const from = performance.now();
    act();
    await frame();
    worst = Math.max(worst, performance.now() - from);
  };
  for (let y = 0; y < document.body.scrollHeight; y += 2000) await timed(() => window.scrollTo(0, y));
  for (const each of document.querySelectorAll("details")) await timed(() => { each.open = true; });
  for (const button of document.querySelectorAll("table.sortable thead th:first-child button"))
    await timed(() => button.click());
  return worst;
}"""


@dataclass(frozen=True)
class Opening:
    """In seconds. A task is what the page does at a stretch, and in which it does not answer."""

    loaded: float
    busy: float  # CPU time of the page's own thread until then
    longest_task: float
    longest_answer: float  # while all of it is scrolled, unfolded and sorted


def opened(path: Path) -> Opening | None:
    """What a browser says of the page."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        return None
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox", "--disable-gpu"])
        page = found.new_page(viewport={"width": 1280, "height": 900})
        page.add_init_script(WATCH)
        inside = page.context.new_cdp_session(page)
        inside.send("Performance.enable", {"timeDomain": "threadTicks"})
        started = time.perf_counter()
        page.goto(path.as_uri(), wait_until="load")
        page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
        loaded = time.perf_counter() - started
        metrics = {one["name"]: one["value"] for one in inside.send("Performance.getMetrics")["metrics"]}
        longest = page.evaluate("window.longest") / 1000
        worst = page.evaluate(TOUCH) / 1000
        found.close()
    return Opening(loaded, metrics["TaskDuration"], longest, worst)


def main(run: Path) -> None:
    from fedaudit.results.document import load

    document = large(load(run))
    started, spent = time.perf_counter(), time.process_time()
    page = html.render(document)
    took, cpu = time.perf_counter() - started, time.process_time() - spent
    print(f"{len(document.results)} results; rendered in {took:.1f} s ({cpu:.1f} s of CPU), {len(page) / 1e6:.1f} MB")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.html"
        path.write_text(page, encoding="utf-8")
        best = [one for _ in range(3) if (one := opened(path)) is not None]
    if best:
        loaded, busy, task, answer = (min(getattr(one, name) for one in best) for name in vars(best[0]))
        print(f"opened in {loaded:.2f} s ({busy:.2f} s of CPU), longest task {1000 * task:.0f} ms; ", end="")
        print(f"scrolled, unfolded and sorted: longest answer {1000 * answer:.0f} ms (each the best of three)")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
