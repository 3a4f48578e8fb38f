"""One browser for the tests of this folder, and a page that fails its test if anything goes wrong in it."""

import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from playwright.sync_api import Browser, ConsoleMessage, Dialog, Page, Request, sync_playwright

from fedaudit import server
from tests.browser import setup

QUIET = [
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def absent(what: str) -> None:
    if os.environ.get("CI"):
        pytest.fail(f"{what} is not installed, and in CI nothing is skipped: python -m tests.browser.setup")
    pytest.skip(f"{what} is not installed: python -m tests.browser.setup")


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    """Not longer than for the tests of this folder: as long as it is open, a loop of asyncio runs in this thread, and
    the tests of others may want one of their own."""
    path = setup.browser()
    if path is None:
        absent("Chromium")
    with sync_playwright() as playwright:
        as_root = ["--no-sandbox"] if os.geteuid() == 0 else []
        found = playwright.chromium.launch(executable_path=path, args=[*QUIET, *as_root])
        yield found
        found.close()


@dataclass
class Tab:
    """A page, and all that it complained about or asked for."""

    page: Page
    trouble: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)  # complaints that are the point of a test

    def heard(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.trouble.append(message.text)

    def alarmed(self, dialog: Dialog) -> None:
        self.trouble.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def asked(self, request: Request) -> None:
        self.requests.append(request.url)


Opened = Callable[..., Tab]


@pytest.fixture
def tab(chromium: Browser) -> Iterator[Opened]:
    """`tab(dark=..., width=...)`: a tab of its own. Nothing may be complained about, and no dialog may open."""
    tabs: list[Tab] = []
    contexts = []

    def opened(dark: bool = False, width: int = 1280, height: int = 900, **more: Any) -> Tab:
        scheme = "dark" if dark else "light"
        context = chromium.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, **more)  # type: ignore[arg-type]
        contexts.append(context)
        made = Tab(context.new_page())
        made.page.on("console", made.heard)
        made.page.on("pageerror", lambda error: made.trouble.append(str(error)))
        made.page.on("dialog", made.alarmed)
        made.page.on("request", made.asked)
        tabs.append(made)
        return made

    yield opened
    for context in contexts:
        context.close()
    assert [complaint for one in tabs for complaint in one.trouble if complaint not in one.expected] == []


@pytest.fixture
def live() -> Iterator[Callable[[Path], str]]:
    """`live(folder)`: the address of a server for these runs, in a thread of this process."""
    started = []

    def begun(folder: Path) -> str:
        sock = server.listening("127.0.0.1", 0)
        at: uvicorn.Server
        app = server.application(folder, "token", server.names(sock), ending=lambda: at.should_exit)
        at = uvicorn.Server(uvicorn.Config(app, log_level="warning", ws="none", timeout_graceful_shutdown=1))
        at.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
        thread = threading.Thread(target=at.run, kwargs={"sockets": [sock]}, daemon=True)
        thread.start()
        started.append((at, thread, sock))
        return f"http://{server.names(sock)[0]}"

    yield begun
    for at, thread, sock in started:
        at.should_exit = True
        thread.join(10)
        sock.close()


@pytest.fixture
def barriers() -> Callable[[Page], list[str]]:
    """What axe-core finds in a page that is serious or critical."""
    path = setup.axe()
    if path is None:
        absent(setup.AXE)
    assert path is not None
    script = path.read_text(encoding="utf-8")

    def found(page: Page) -> list[str]:
        page.evaluate(script)
        violations = page.evaluate("() => axe.run(document, {resultTypes: ['violations']}).then(r => r.violations)")
        return [
            f"{one['id']}: {node['html'][:160]} {node['failureSummary'][:200]}"
            for one in violations
            if one["impact"] in ("serious", "critical")
            for node in one["nodes"][:5]
        ]

    return found
