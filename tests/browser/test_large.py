"""The page of a very large audit is made in time, and opens without a stall."""

import time
from pathlib import Path

import pytest

from docs.make_large_report import large, opened
from fedaudit.report import html
from tests.report import builder


@pytest.mark.evidence
def test_a_hundred_thousand_records_two_hundred_rounds_twenty_parties_and_fifteen_attacks(tmp_path: Path) -> None:
    document = large(builder.read(builder.results()))
    started = time.process_time()
    page = html.render(document)
    assert time.process_time() - started < 20
    (tmp_path / "report.html").write_text(page, encoding="utf-8")
    found = opened(tmp_path / "report.html")
    assert found is not None
    assert found.busy < 1  # CPU time until it is shown, all of it: no task is longer
