"""The live view in a browser: a new round appears, what a reader did stays, hostile names do nothing."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import expect

from fedaudit.trace.store import Store
from tests.browser.conftest import Opened
from tests.browser.test_report import HOSTILE, LOOK
from tests.test_server import finished, risks, running
from tests.trace.test_store import round_, seen

Live = Callable[[Path], str]
ROUNDS = "dl.facts > div:nth-child(2) > dd"


def test_a_new_round_is_shown_within_two_seconds_and_what_was_unfolded_stays(
    tmp_path: Path, tab: Opened, live: Live
) -> None:
    with running(tmp_path / "one") as store:
        opened = tab()
        page = opened.page
        page.goto(live(tmp_path) + "/?token=token")
        assert "token" not in page.url
        page.get_by_role("link", name="one", exact=True).click()
        page.wait_for_selector("#link:has-text('Live')")
        page.locator("#rounds summary").first.click()
        page.locator("#last thead button").first.click()  # the oldest first
        took = []
        for number in (4, 5, 6):
            store.append(round_(number), seen(number), risks(number / 100))
            written = time.monotonic()
            expect(page.locator(ROUNDS)).to_have_text(f"{number} of 9", timeout=20_000)
            took.append(time.monotonic() - written)
        assert min(took) < 2  # beside other tests, the fastest of three
        assert page.locator("#rounds details").first.get_attribute("open") is not None
        assert page.locator("#last tbody th").all_inner_texts() == ["1", "2", "3", "4", "5", "6"]
        assert page.locator("#rounds svg").count() == 2
        assert page.evaluate(LOOK)["wrong"] == []
        assert {url.split("/")[2] for url in opened.requests} == {page.url.split("/")[2]}


def test_a_run_appears_in_the_list_by_itself_and_two_are_compared(tmp_path: Path, tab: Opened, live: Live) -> None:
    finished(tmp_path / "done")
    page = tab().page
    with running(tmp_path / "one"):
        page.goto(live(tmp_path) + "/?token=token")
        page.get_by_label("compare one").check()
        with running(tmp_path / "two"):
            page.get_by_role("link", name="two").wait_for()
            assert page.get_by_label("compare one").is_checked()
            page.get_by_label("compare two").check()
            page.get_by_role("button", name="Compare the chosen runs").click()
            page.wait_for_selector("svg .line.s2")
            assert page.evaluate(LOOK)["wrong"] == []


def test_a_page_says_when_the_server_is_gone(tmp_path: Path, tab: Opened, live: Live) -> None:
    opened = tab()
    with running(tmp_path / "one"):
        opened.page.goto(live(tmp_path) + "/?token=token")
        opened.page.wait_for_selector("#link:has-text('Live')")
        opened.page.context.set_offline(True)
        opened.page.evaluate("window.dispatchEvent(new Event('pagehide')); window.dispatchEvent(new Event('pageshow'))")
        opened.page.wait_for_selector("#link.lost")
    opened.expected += [text for text in opened.trouble if "ERR_INTERNET_DISCONNECTED" in text]


def test_hostile_names_are_text_also_when_they_come_later(tmp_path: Path, tab: Opened, live: Live) -> None:
    page = tab().page
    page.goto(live(tmp_path) + "/?token=token")
    page.wait_for_selector("#link:has-text('Live')")
    with Store.create(
        tmp_path / "<img src=x onerror=pwned=1>", {"keep": "signals", "parties": HOSTILE, "attacks": HOSTILE}
    ) as store:
        store.append(round_(1, parties=HOSTILE), seen(1, HOSTILE), risks(0.02, attack=HOSTILE[2]))
        page.get_by_role("link", name="<img src=x onerror=pwned=1>").click()
        page.wait_for_selector("#parties")
        store.append(round_(2, parties=HOSTILE), seen(2, HOSTILE), risks(0.03, attack=HOSTILE[1]))
        expect(page.locator("#last tbody th").first).to_have_text("2", timeout=20_000)
        assert page.evaluate("typeof pwned") == "undefined"
        assert page.locator("#parties tbody th").first.inner_text() == HOSTILE[0]
        assert page.evaluate(LOOK)["wrong"] == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_no_serious_barrier(tmp_path: Path, tab: Opened, live: Live, barriers, dark: bool) -> None:  # type: ignore[no-untyped-def]
    page = tab(dark, 390).page
    finished(tmp_path / "done")
    with running(tmp_path / "one"):
        page.goto(live(tmp_path) + "/?token=token")
        page.wait_for_selector("#link:has-text('Live')")
        assert barriers(page) == []
        assert page.evaluate(LOOK)["wrong"] == []
        page.get_by_role("link", name="one", exact=True).click()
        page.wait_for_selector("#link:has-text('Live')")
        assert barriers(page) == []
        assert page.evaluate(LOOK)["wrong"] == []
