"""`fedaudit serve`: who is let in, what the answers allow, what is shown of runs that are whole, hostile or damaged.

The application is asked directly where it does not matter; streams, signals and ports are those of a real process.
"""

import asyncio
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urljoin

import httpx
import pytest
from starlette.requests import Request

from fedaudit import server
from fedaudit.errors import FedauditError
from fedaudit.privacy.statement import Process, Promise
from fedaudit.report import html, live
from fedaudit.results import advice, study
from fedaudit.results import document as results
from fedaudit.results.running import Follower
from fedaudit.trace.journal import JOURNAL
from fedaudit.trace.store import RUN, Store
from fedaudit.types import RoundRisk
from tests.command import fedaudit
from tests.report import builder
from tests.report.test_paper import tried
from tests.trace.test_store import round_, seen

TOKEN, HOST = "the-token", "127.0.0.1:8712"
HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "' onmouseover='alert(1)",
    "{{ 7 * 7 }}{% for x in y %}",
    "x" * 200,
    "\u202egnp.exe",
    "سجل المرضى",
    "=cmd|' /C calc'!A0",
]


def risks(value: float, attack: str = "loss") -> list[RoundRisk]:
    of = {"vantage": "client", "model": "global", "attack": attack}
    return [
        RoundRisk(**of, metric="tpr@0.01", value=value, low=value / 2, high=2 * value),
        RoundRisk(**of, metric="auc", value=0.5 + value, low=0.5, high=0.6 + value),
    ]


def running(folder: Path, rounds: int = 3, planned: int = 9, parties: Any = ("A", "B")) -> Store:
    """A run in the middle of its training. Whoever asked for it closes it."""
    manifest = {"keep": "signals", "parties": [*parties, "C"], "attacks": ["loss"], "rounds": planned}
    manifest |= {"confidence": 0.9}
    store = Store.create(folder, manifest)
    for number in range(1, rounds + 1):
        store.append(round_(number, parties=parties), seen(number, parties), risks(number / 100))
    return store


def finished(folder: Path, **made: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    results.save(builder.read(builder.results(**made)), folder)
    return folder


@dataclass
class Browser:
    """Asks as one that has been let in."""

    app: Any

    def get(self, address: str, *, cookie: str | None = TOKEN, host: str = HOST, **more: Any) -> httpx.Response:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url=f"http://{HOST}") as client:
                headers = {"host": host} | ({"cookie": f"fedaudit={cookie}"} if cookie is not None else {})
                return await client.request(
                    more.get("method", "GET"), address, headers=headers | more.get("headers", {})
                )

        return asyncio.run(ask())


@pytest.fixture
def going(tmp_path: Path) -> Iterator[Store]:
    with running(tmp_path / "runs" / "deep" / "going") as store:
        yield store


@pytest.fixture
def top(tmp_path: Path, going: Store) -> Path:
    """A running and a finished run, and a damaged one."""
    folder = tmp_path / "runs"
    finished(folder / "done")
    finished(folder / "broken")
    (folder / "broken" / "results.json").write_text("{")
    return folder


@pytest.fixture
def browser(top: Path) -> Browser:
    return Browser(server.application(top, TOKEN, [HOST, "localhost:8712"]))


def links(page: str) -> dict[str, str]:
    return {name: address for address, name in re.findall(r'<a href="(/[a-z]+/[0-9a-f]+)">(.*?)</a>', page)}


# ------------------------------------------------------------------ who is let in


@pytest.mark.parametrize("address", ["/", "/events", "/run/0", "/run/0/report", "/compare?run=0", "/nothing"])
@pytest.mark.parametrize("cookie", [None, "", "wrong", TOKEN[:-1], TOKEN + "x", "\u00e9"])
def test_S3_without_the_token_nothing_is_told(browser: Browser, address: str, cookie: str | None) -> None:
    answer = browser.get(address, cookie=cookie, headers={"cookie": f"fedaudit={cookie}".encode()} if cookie else {})
    assert answer.status_code == 403
    assert "done" not in answer.text
    assert "set-cookie" not in answer.headers


def test_a_wrong_token_in_the_address_is_refused_also_beside_a_right_cookie(browser: Browser) -> None:
    assert browser.get("/?token=wrong", cookie=None).status_code == 403
    assert browser.get("/?token=wrong").status_code == 403


def test_the_token_in_the_address_becomes_a_cookie_that_only_this_site_sends(browser: Browser) -> None:
    answer = browser.get(f"/compare?run=1&token={TOKEN}&run=2", cookie=None)
    assert (answer.status_code, answer.headers["location"]) == (303, "/compare?run=1&run=2")
    said = answer.headers["set-cookie"].lower()
    assert said.startswith(f"fedaudit={TOKEN};")
    assert {"httponly", "samesite=strict", "path=/"} <= {part.strip() for part in said.split(";")}


@pytest.mark.parametrize("path", ["//evil.example/x", "///evil.example", "/%2Fevil.example", "/\\evil.example", "/"])
def test_the_token_leads_to_no_other_host_whatever_the_path(browser: Browser, path: str) -> None:
    """As a server passes it on: a client would take the second part of //evil.example/x for a host itself."""
    sent: list[Any] = []

    async def ask() -> None:
        async def receive() -> Any:
            return {"type": "http.request", "body": b""}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "GET", "scheme": "http", "server": ("127.0.0.1", 8712), "root_path": ""}
        scope |= {"path": unquote(path), "raw_path": path.encode(), "query_string": f"a=1&token={TOKEN}".encode()}
        await browser.app(scope | {"headers": [(b"host", HOST.encode())]}, receive, send)

    asyncio.run(ask())
    location = dict(sent[0]["headers"])[b"location"].decode()
    assert urljoin(f"http://{HOST}/", location).startswith(f"http://{HOST}/")
    assert not location.startswith(("//", "/\\"))
    assert location.endswith("?a=1")


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8712", "127.0.0.1", "127.0.0.1:8713", "", "localhost"])
def test_another_host_name_is_refused_whatever_it_brings(browser: Browser, host: str) -> None:
    """The page of another site may have its name lead here, and its scripts then count as ours."""
    answer = browser.get(f"/?token={TOKEN}", host=host)
    assert (answer.status_code, "set-cookie" in answer.headers) == (421, False)
    assert browser.get("/", host="LOCALHOST:8712").status_code == 200


def test_no_answer_may_be_read_by_another_site_and_all_have_a_strict_policy(browser: Browser) -> None:
    known = links(browser.get("/").text)
    addresses = ["/", known["done"], f"{known['done']}/report", known["deep/going"], "/compared?run=0", "/nothing"]
    for address in addresses:
        for headers in ({}, {"origin": "http://evil.example"}, {"origin": "null"}):
            answer = browser.get(address, headers=headers)
            assert not [name for name in answer.headers if name.startswith("access-control-")]
            policy = answer.headers["content-security-policy"]
            assert policy.startswith("default-src 'none'; style-src 'sha256-")
            assert "frame-ancestors 'none'" in policy
            assert "unsafe" not in policy
            assert "*" not in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["referrer-policy"] == "no-referrer"
            assert answer.headers["cache-control"] == "no-store"
            assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        answer = browser.get("/", method=method, headers={"origin": "http://evil.example"})
        assert answer.status_code == 405
        assert not [name for name in answer.headers if name.startswith("access-control-")]


def test_the_policy_of_a_page_is_that_of_its_header(browser: Browser) -> None:
    answer = browser.get("/")
    (inside,) = re.findall(r'http-equiv="Content-Security-Policy" content="(.*?)"', answer.text)
    said = inside.replace("&#39;", "'")
    assert answer.headers["content-security-policy"] == f"{said}; frame-ancestors 'none'"
    assert said == html.policy(html.LIVE)


@pytest.mark.parametrize(
    "path",
    ["../../secret", "..%2f..%2fsecret", "%2e%2e/%2e%2e/secret", "/etc/passwd", "deep/going", "deep%2Fgoing", "%C3%A9"],
)
def test_no_path_leads_out_of_the_folder_or_to_a_file(browser: Browser, top: Path, path: str) -> None:
    (top.parent / "secret").mkdir()
    finished(top.parent / "secret")
    for address in (f"/run/{path}", f"/run/{path}/report", f"/study/{path}", f"/{path}", f"/compared?run={path}&run=x"):
        answer = browser.get(address)
        assert answer.status_code == 404, address
        assert "baskets" not in answer.text


def test_a_link_out_of_the_folder_is_not_followed(browser: Browser, top: Path) -> None:
    elsewhere = finished(top.parent / "elsewhere")
    (top / "shortcut").symlink_to(elsewhere)
    assert "shortcut" not in browser.get("/").text


# ------------------------------------------------------------------ what is shown


def test_the_list_has_every_run_and_a_damaged_one_is_called_damaged(browser: Browser) -> None:
    page = browser.get("/").text
    assert set(links(page)) == {"done", "broken", "deep/going"}
    rows = {name: row for row in page.split("<tr>")[2:] for name in links(row)}
    assert "3 of 9" in rows["deep/going"]
    assert "3.0 % (1.5–6.0) at 1 % FPR" in re.sub("<.*?>", "", rows["deep/going"])
    assert re.search(r" % \(\S+–\S+\) at ", re.sub("<.*?>", "", rows["done"]))  # a grade alone is no number
    assert "damaged" in rows["broken"]
    assert "Traceback" not in page
    broken = links(page)["broken"]
    assert browser.get(broken).status_code == 200
    assert browser.get(f"{broken}/report").status_code == 404


def test_a_run_that_is_started_later_appears(browser: Browser, top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "SEARCH", 0.0)
    before = links(browser.get("/").text)
    with running(top / "later", rounds=1):
        assert set(links(browser.get("/").text)) - set(before) == {"later"}


def test_a_run_shows_its_rounds_and_in_the_end_its_verdict_and_its_report(browser: Browser, top: Path) -> None:
    known = links(browser.get("/").text)
    page = browser.get(known["deep/going"]).text
    assert page.count("<svg") == 2
    assert "Without C." in page
    assert "The full report" not in page
    done = browser.get(known["done"]).text
    assert f'href="{known["done"]}/report"' in done
    report = browser.get(f"{known['done']}/report").text
    assert report == html.render(results.load(top / "done"))


def test_the_full_report_has_the_advice_about_this_run(browser: Browser, top: Path) -> None:
    report = f"{links(browser.get('/').text)['done']}/report"
    found = results.load(top / "done")
    advice.save(replace(tried(), about=advice.federation_of(found.run.config)), top / "done" / advice.OF_RUN)
    assert "None was confirmed." in browser.get(report).text
    (top / "done" / advice.OF_RUN / advice.ADVICE).write_text("{")
    damaged = browser.get(report)
    assert (damaged.status_code, "None was confirmed." in damaged.text) == (200, False)


def test_runs_are_compared_while_they_train_and_when_they_have_ended(browser: Browser, top: Path) -> None:
    finished(top / "again", strong=0.2)
    with running(top / "second"):
        known = links(browser.get("/").text)
        page = browser.get(f"/compare?run={known['second'][-16:]}&run={known['deep/going'][-16:]}").text
        assert page.count("<svg") == 2  # both lines in each
        assert page.count('class="line s1"') == page.count('class="line s2"') == 2
        told = re.sub("<.*?>", "", page).count("3.0 % (1.5–6.0)")
        assert told == 2 * 3  # a tip and a row of the chart's table for each run, and the runs' own table
        assert "at 90 % confidence it holds for all planned rounds" in page
        assert "/compared?" not in page
    both = f"run={known['done'][-16:]}&run={known['again'][-16:]}"
    assert f"/compared?{both}".replace("&", "&amp;") in browser.get(f"/compare?{both}").text
    assert "Verdict" in browser.get(f"/compared?{both}").text
    assert browser.get("/compare?run=x").status_code == 404


def test_a_study_shows_its_frontier_and_the_cells_that_train(browser: Browser, top: Path) -> None:
    grid, cells = {"federation.lr": [1, 2, 3]}, ["c1", "c2", "c3"]
    listed = [study.ListedCell(cell, {"federation.lr": n}) for n, cell in enumerate(cells, start=1)]
    (top / "grid").mkdir()
    study.save_file(study.StudyFile(schema=1, base={}, grid=grid, cells=listed, groups=[cells]), top / "grid")
    for cell, strong in (("c1", 0.05), ("c2", 0.2)):
        finished(top / "grid" / "cells" / cell, strong=strong)
    with running(top / "grid" / "cells" / "c3"):
        page = browser.get("/").text
        assert "2 of 3 cells" in page
        address = links(page)["grid"]
        page = browser.get(address).text
        for heading in ("Usefulness against risk", "Risk by factor", "The cells"):
            assert f"<h2>{heading}</h2>" in page
        inner = links(page)["grid/cells/c3"]
        assert "3 of 9" in browser.get(inner).text


def test_hostile_names_of_runs_parties_and_attacks_are_text(top: Path) -> None:
    for number, name in enumerate(HOSTILE):
        folder = top / (name.replace("/", "∕")[:200] if len(name.encode()) < 240 else f"long-{number}")
        with Store.create(folder, {"keep": "signals", "parties": HOSTILE, "attacks": HOSTILE, "rounds": 3}) as store:
            store.append(round_(1, parties=HOSTILE), seen(1, HOSTILE), risks(0.02, attack=name))
    browser = Browser(server.application(top, TOKEN, [HOST]))
    page = browser.get("/").text
    inner = [browser.get(address).text for address in links(page).values()]
    assert len(inner) == len(HOSTILE) + 3
    for each in [page, *inner]:
        tags = Tags()
        tags.feed(each)
        assert tags.names.count("script") == 1
        assert not {"img", "iframe", "object"} & set(tags.names)
        assert not [name for name in tags.attributes if name.startswith("on") or name == "style"]
        assert "\u202e" not in each
    assert "{{ 7 * 7 }}" in page


class Tags(HTMLParser):
    """What a browser would make elements and attributes of."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.attributes: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes += [name for name, _ in attrs]


def test_numbers_that_nobody_measured_break_no_page(top: Path) -> None:
    """A journal that somebody wrote by hand, with the checksums of its lines."""
    from fedaudit.trace import journal

    with running(top / "odd", rounds=1) as store:
        event = {**json.loads((top / "odd" / JOURNAL).read_text().splitlines()[1])}
    odd = [float("nan"), 1e308, -1e308, float("inf"), 10**400]
    lines = [(top / "odd" / JOURNAL).read_bytes().splitlines(keepends=True)[0]]
    events = []
    for number, value in enumerate(odd, start=2):
        risk = {"vantage": "x", "model": "y", "attack": "z", "metric": "auc", "value": value, "low": value, "high": 1}
        events.append({**event, "round": number, "at": value, "risks": [risk]})
        events += [{**event, "round": number, key: value} for key in ("round", "branch", "probe")]
    for number, made in enumerate(events, start=2):
        made["n"] = number
        made.pop("check", None)
        body = json.dumps(made)
        lines.append(f'{body[:-1]}, "check": "{journal._check(body)}"}}\n'.encode())
    (top / "odd" / JOURNAL).write_bytes(b"".join(lines))
    browser = Browser(server.application(top, TOKEN, [HOST]))
    known = links(browser.get("/").text)
    assert store is not None
    assert browser.get(known["odd"]).status_code == 200
    assert max(Follower(top / "odd").look().rounds, key=lambda one: one.round).round == 5
    with Store.read(top / "odd") as read:
        assert len(read.damaged_lines) == len(events) - 4


# ------------------------------------------------------------------ a real process


@dataclass
class Served:
    process: subprocess.Popen[str]
    address: str
    token: str


@pytest.fixture
def served(top: Path) -> Iterator[Served]:
    asked = [sys.executable, "-m", "fedaudit", "serve", str(top), "--port", "0"]
    with subprocess.Popen(asked, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout
        try:
            first = next(line for line in process.stdout if line.startswith("http://127.0.0.1:"))
            address, _, token = first.strip().partition("/?token=")
            yield Served(process, address, token)
        finally:
            process.kill()


def test_a_new_round_is_sent_within_two_seconds_and_ctrl_c_ends_it_cleanly(served: Served, going: Store) -> None:
    """While a page is open, too: an open stream must not keep the server from ending."""
    with httpx.Client(base_url=served.address, follow_redirects=True, timeout=20) as client:
        page = client.get(f"/?token={served.token}")
        assert page.status_code == 200
        address = links(page.text)["deep/going"]
        with client.stream("GET", f"{address}/events") as stream:
            lines = stream.iter_lines()
            assert next(line for line in lines if "3 of 9" in line)
            going.append(round_(4), seen(4), risks(0.04))
            written = time.monotonic()
            assert next(line for line in lines if "4 of 9" in line)
            assert time.monotonic() - written < 2.0
            served.process.send_signal(signal.SIGINT)
            rest = list(lines)
            assert not [line for line in rest if "Traceback" in line]
    assert served.process.wait(10) == 0
    assert served.process.stdout
    said = served.process.stdout.read()
    assert said.strip() == "Stopped. The runs go on by themselves."


def test_S3_only_this_machine_is_listened_to_and_a_busy_port_is_told(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = fedaudit("serve", str(tmp_path), "--port", str(port), cwd=tmp_path)
    assert done.returncode == 2
    assert f"[port] cannot listen on 127.0.0.1, port {port}: Address already in use" in done.stderr
    assert "--port 0" in done.stderr
    with server.listening("localhost", 0) as sock:
        assert sock.getsockname()[0] == "127.0.0.1"
    for host in ("0.0.0.0", "::", "example.org"):
        with pytest.raises(FedauditError, match="bad-address"):
            server.listening(host, 0)


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    done = fedaudit("serve", "nowhere", cwd=tmp_path)
    assert (done.returncode, "[no-folder] there is no folder nowhere" in done.stderr) == (2, True)
    (tmp_path / RUN).write_text("")
    assert "is a file" in fedaudit("serve", RUN, cwd=tmp_path).stderr


def test_a_run_itself_can_be_served(top: Path) -> None:
    browser = Browser(server.application(top / "done", TOKEN, [HOST]))
    (address,) = links(browser.get("/").text).values()
    assert browser.get(f"{address}/report").status_code == 200


def test_without_its_packages_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "fedaudit.server")
    monkeypatch.delattr("fedaudit.server")
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    done = fedaudit("serve", str(tmp_path), cwd=tmp_path)
    assert done.returncode == 2
    assert "pip install 'fedaudit[serve]'" in done.stderr


def test_what_nothing_has_happened_to_is_drawn_once(top: Path, going: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[str] = []
    real = live.of_run

    def counted(entry: live.ListedRun) -> list[live.LiveSection]:
        drawn.append(entry.name)
        return real(entry)

    monkeypatch.setattr(live, "of_run", counted)
    pages = server.LivePages(server.RunFolder(top))
    id = pages.shelf.id(top / "deep" / "going")
    first = pages._run(id)
    assert pages._run(id) is first
    going.append(round_(4), seen(4), risks(0.04))
    assert pages._run(id) is not first
    assert drawn == ["deep/going", "deep/going"]


def streamed(pages: server.LivePages, look: Callable[[], Any], then: Callable[[], None], monkeypatch: Any) -> list[str]:
    """What is sent first, and what is sent in the six looks after `then`."""
    looks = iter(range(7))
    monkeypatch.setattr(pages, "ending", lambda: next(looks, None) is None)
    monkeypatch.setattr(server, "SEARCH", 0.0)

    class Connected:
        async def is_disconnected(self) -> bool:
            return False

    async def follow() -> list[str]:
        sent: list[str] = []
        async for each in pages._changes(Connected(), look, 0.0):  # type: ignore[arg-type]
            if not sent:
                then()
            sent.append(each)
        return sent

    return asyncio.run(follow())


def test_the_page_of_a_run_that_is_deleted_says_so_once(
    top: Path, going: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = server.LivePages(server.RunFolder(top))
    id = pages.shelf.id(top / "deep" / "going")
    sent = streamed(pages, lambda: pages._run(id), lambda: shutil.rmtree(top / "deep"), monkeypatch)
    assert len(sent) == 2
    assert "data: " in sent[1]
    assert server.MISSING in sent[1]
    assert "running" not in sent[1]
    assert not [folder for folder in pages.shelf.followers if "deep" in folder.parts]  # nothing is kept of it


@pytest.mark.parametrize(("damage", "says"), [(True, "study.json"), (False, server.MISSING)])
def test_the_page_of_a_study_that_is_damaged_or_deleted_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: bool, says: str
) -> None:
    folder = tmp_path / "grid"
    folder.mkdir()
    listed = [study.ListedCell("c1", {"federation.lr": 1})]
    study.save_file(
        study.StudyFile(schema=1, base={}, grid={"federation.lr": [1]}, cells=listed, groups=[["c1"]]), folder
    )
    finished(folder / "cells" / "c1")
    pages = server.LivePages(server.RunFolder(tmp_path))
    id = pages.shelf.id(folder)
    harm = (lambda: (folder / study.STUDY).write_text("{")) if damage else (lambda: shutil.rmtree(folder))
    sent = streamed(pages, lambda: pages._study(id), harm, monkeypatch)  # type: ignore[arg-type]
    assert len(sent) == 2
    assert says in sent[1]


def test_a_finished_advice_is_neither_starting_nor_quiet(tmp_path: Path) -> None:
    (tmp_path / "advised").mkdir()
    (tmp_path / "advised" / advice.ADVICE).write_text("{}")
    (entry,) = server.RunFolder(tmp_path).entries()
    assert (entry.kind, entry.run.state, entry.run.heard > 0) == ("advice", "ended", True)


def test_pages_that_are_kept_are_not_taken_for_one_another_and_not_too_many(
    top: Path, going: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "DRAWN", 3)
    pages = server.LivePages(server.RunFolder(top))
    ids = [pages.shelf.id(folder) for folder in (top / "deep" / "going", top / "done")]

    def several(*chosen: str) -> list[live.LiveSection]:
        return pages._several(
            Request({"type": "http", "query_string": "&".join(f"run={id}" for id in chosen).encode()})
        )

    one = pages._run(ids[1])
    assert several(ids[1]) is not one
    assert pages._run(ids[1]) is one
    assert several() is live.instead(server.MISSING)
    assert pages._list() is not several()
    for number in range(9):
        pages._run(f"nothing-{number}")
        several(*ids)
        pages._run(ids[number % 2])
        pages._list()
    assert len(pages.made) == 3


def test_a_folder_that_is_not_ours_to_read_breaks_no_page(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path.is_file
    (top / "secret").mkdir()

    def guarded(path: Path, **how: Any) -> bool:
        if path.parent.name == "secret":  # as the system answers whoever is not root
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, **how)

    monkeypatch.setattr(Path, "is_file", guarded)
    assert set(links(Browser(server.application(top, TOKEN, [HOST])).get("/").text)) == {"done", "broken", "deep/going"}


def promising(folder: Path, planned: int, rounds: int) -> None:
    process = Process("user", 1.0, 1, "poisson", 0.5)
    promise = Promise(defence="dp-fedavg", process=process, delta=1e-5, units=3, against="everybody")
    manifest = {"keep": "signals", "parties": ["A", "B"], "rounds": planned, "guarantee": [asdict(promise)]}
    with Store.create(folder, manifest) as store:
        for number in range(1, rounds + 1):
            store.append(round_(number), seen(number))
        store.end("complete", None)


def test_without_the_package_that_counts_epsilon_a_page_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("dp_accounting", "dp_accounting.pld", "dp_accounting.rdp"):
        monkeypatch.setitem(sys.modules, name, None)
    promising(tmp_path / "dp", planned=7, rounds=2)
    browser = Browser(server.application(tmp_path, TOKEN, [HOST]))
    page = browser.get(links(browser.get("/").text)["dp"])
    assert page.status_code == 200
    assert "fedaudit[dp]" in page.text
    assert "round 2 of 7" in fedaudit("watch", "dp", cwd=tmp_path).stdout


def test_an_empty_folder_says_that_runs_will_appear(tmp_path: Path) -> None:
    assert "appears here by itself" in Browser(server.application(tmp_path, TOKEN, [HOST])).get("/").text


def test_the_help_says_how_to_begin_who_can_look_and_how_to_end(tmp_path: Path) -> None:
    said = " ".join(fedaudit("serve", "--help", cwd=tmp_path).stdout.split())
    for words in ("fedaudit serve runs", "Only this machine can reach it", "ssh -L", "Ctrl-C ends it", "[serve]"):
        assert words in said
