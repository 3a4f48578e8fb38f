"""How long the page of a very large audit takes: 100,000 records, 200 rounds, 20 parties, 15 attacks.

    python -m docs.make_large_report RUN

Results are made up, with every curve and table as long as such an audit has them. Where Chromium is installed, the time
until the page is loaded and laid out is measured as well.
"""

import math
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from fedaudit.report import html
from fedaudit.results.document import Document, Exposed, ExposedUnit
from fedaudit.types import AuditResult, Cost, Curve, Estimate, GroupFindings, GroupResult, Headline, Subgroup

PARTIES, ATTACKS, ROUNDS, RECORDS, GROUPS = 20, 15, 200, 100_000, 60
PLACES = (("client", "global"), ("server", "local"), ("outsider", "global"))


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


def opened(path: Path) -> float | None:
    """Seconds until a browser has loaded the page, laid it out and written its tree again, with its own start."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        return None
    with tempfile.TemporaryDirectory() as profile:
        asked = [browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}", "--dump-dom"]
        started = time.perf_counter()
        subprocess.run([*asked, path.as_uri()], capture_output=True, check=True, timeout=300)
    return time.perf_counter() - started


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
        seconds = opened(path)
        (Path(folder) / "empty.html").write_text("<p>nothing</p>")
        empty = opened(Path(folder) / "empty.html")
    if seconds is not None and empty is not None:
        print(f"opened in Chromium in {seconds:.1f} s; an empty page takes {empty:.1f} s")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
