"""`fedaudit serve`: the runs below a folder in a browser, up to date while they are written.

Whoever can read the pages learns names of parties and what was found about them. So:
- It listens on this machine alone, unless an address is given.
- Every request needs the token, which is drawn at each start: once in the address, then in a cookie that no script can
  read and that no other site's page makes the browser send.
- A request for another host name is refused: a page elsewhere may have its name lead to this machine (DNS rebinding).
- No answer allows another site to read it, and no page may fetch anything but its own events, or run any script but
  its own. What runs contain is escaped; their report.html is never served, but made from their results.
- Addresses name runs by a hash of where they lie, which is looked up: no path is ever made from a request.
Nothing is written, and there is nothing to be changed: all requests are GET.
"""

import asyncio
import hashlib
import ipaddress
import secrets
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from fedaudit.errors import FedauditError
from fedaudit.report import html, live, pages
from fedaudit.report.live import ListedRun, LiveSection
from fedaudit.results import advice, running, study
from fedaudit.results.compare import compare
from fedaudit.results.document import RESULTS, Document
from fedaudit.results.running import Follower, Kind

TICK = 0.4  # seconds between two looks at what a page shows
SEARCH = 1.0  # and between two searches for new runs
BEAT = 15.0  # seconds after which an idle connection is used, so that a lost one is noticed
DRAWN = 100  # pages that are kept
PATIENCE = 0.5  # seconds in one look for reading results that were not read yet
TOKEN = "token"
HEADERS = {
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}

Look = Callable[[], list[LiveSection]]


# ------------------------------------------------------------------ what is on disk


class RunFolder:
    """The runs below a folder, as they stand. Pages ask from several threads; one looks at a time."""

    def __init__(self, top: Path):
        self.top = top
        self.followers: dict[Path, Follower] = {}
        self.searched = float("-inf")
        self.folders: list[tuple[Path, Kind]] = []
        self.studies: dict[Path, tuple[object, tuple[Sequence[study.Outcome], Sequence[pages.Part]]]] = {}
        self.lock = threading.Lock()

    def entries(self) -> list[ListedRun]:
        """All that is in the list. Results are read for as long as is bearable, and the others at the next look."""
        with self.lock:
            until = time.monotonic() + PATIENCE
            return [self._entry(folder, kind, until) for folder, kind in self._found()]

    def entry(self, id: str, kind: Kind = "run") -> ListedRun | None:
        """One of these, or the run of a cell of a study."""
        with self.lock:
            for folder, of in self._found():
                inner = [(cell, "run") for cell in running.cells(folder)] if of == "study" and kind == "run" else []
                for place, what in ((folder, of), *inner):
                    if what == kind and self.id(place) == id:
                        return self._entry(place, kind, float("inf"))
        return None

    def cells(self, entry: ListedRun) -> list[ListedRun]:
        with self.lock:
            until = time.monotonic() + PATIENCE
            return [self._entry(folder, "run", until) for folder in running.cells(entry.run.folder)]

    def study(self, entry: ListedRun) -> tuple[Sequence[study.Outcome], Sequence[pages.Part]]:
        """What a study has found. It takes a while, so it is computed again only when a cell has new results."""
        folder = entry.run.folder
        with self.lock:
            files = (folder / study.STUDY, *(cell / RESULTS for cell in running.cells(folder)))
            mark = [running.mark(path) for path in files]
            if folder not in self.studies or self.studies[folder][0] != mark:
                found = study.outcomes(folder)
                self.studies[folder] = mark, (found, pages.study_parts(found, folder))
            return self.studies[folder][1]

    def id(self, folder: Path) -> str:
        return hashlib.sha256(folder.relative_to(self.top).as_posix().encode(errors="surrogateescape")).hexdigest()[:16]

    def _found(self) -> list[tuple[Path, Kind]]:
        now = time.monotonic()
        if now - self.searched > SEARCH:
            self.folders, self.searched = list(running.under(self.top)), now
            here = {folder for folder, _ in self.folders}
            for known in (self.followers, self.studies):  # what was deleted is forgotten
                for folder in [f for f in known if not here & {f, f.parent.parent}]:  # a cell is its study's
                    del known[folder]
        return self.folders

    def _entry(self, folder: Path, kind: Kind, until: float) -> ListedRun:
        follower = self.followers.setdefault(folder, Follower(folder))
        name = folder.relative_to(self.top).as_posix()
        made = ListedRun(self.id(folder), self.top.name if name == "." else name, kind, follower.look())
        if kind == "study":
            inner = [self.followers.setdefault(cell, Follower(cell)).look() for cell in running.cells(folder)]
            heard = max([made.run.heard, *(run.heard for run in inner)])
            cells = sum(run.state == "ended" for run in inner), self._planned(folder)
            going = any(not run.over for run in inner) or cells[0] < cells[1]
            state: running.State = "running" if going else "ended"
            return replace(made, run=replace(made.run, heard=heard, state=state), cells=cells)
        if kind == "advice":  # written when it is whole
            return replace(made, run=replace(made.run, state="ended", heard=running.written(folder / advice.ADVICE)))
        if made.run.state != "ended" or time.monotonic() > until:
            return made
        if not (folder / RESULTS).is_file():
            return made
        try:
            return replace(made, document=follower.document())
        except FedauditError as error:
            return replace(made, run=replace(made.run, state="damaged", why=error.what))

    def _planned(self, folder: Path) -> int:
        try:
            return len(study.load_file(folder).cells)
        except FedauditError:
            return 0


# ------------------------------------------------------------------ who may ask


class Doorkeeper:
    """Stands before every page: refuses other hosts and whoever does not have the token, and adds the headers."""

    def __init__(self, app: Any, token: str, hosts: Sequence[str], cookie: str):
        self.app, self.token, self.hosts, self.cookie = app, token, {host.lower() for host in hosts}, cookie

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope)
        answer = self.refusal(request) or self.entered(request)
        await (answer or self.app)(scope, receive, partial(self.send, send))

    def refusal(self, request: Request) -> Response | None:
        if request.headers.get("host", "").lower() not in self.hosts:
            return refused(421, "Another address", "This server answers only to the address that it printed.")
        given = request.query_params.get(TOKEN) or request.cookies.get(self.cookie, "")
        if not secrets.compare_digest(given.encode(errors="replace"), self.token.encode()):
            return refused(403, "The token is missing", "Open the address that fedaudit serve printed, all of it.")
        return None

    def entered(self, request: Request) -> Response | None:
        """Whoever brought the token in the address is sent on without it: addresses are remembered and passed on."""
        if TOKEN not in request.query_params:
            return None
        asked = request.url.remove_query_params(TOKEN)
        here = "/" + asked.path.lstrip("/")  # a browser takes //name for another host
        further = RedirectResponse(f"{here}?{asked.query}" if asked.query else here, 303)
        further.set_cookie(self.cookie, self.token, httponly=True, samesite="strict", path="/")
        return further

    async def send(self, send: Callable[[Any], Awaitable[None]], message: Any) -> None:
        if message["type"] == "http.response.start":
            known = {name for name, _ in message["headers"]}
            more = [(k.encode(), v.encode()) for k, v in HEADERS.items() if k.encode() not in known]
            message = {**message, "headers": [*message["headers"], *more]}
        await send(message)


def answer(page: str, scripts: Sequence[str] = html.SCRIPTS, status: int = 200) -> HTMLResponse:
    policy = f"{html.policy(scripts)}; frame-ancestors 'none'"
    return HTMLResponse(page, status, {"content-security-policy": policy})


def refused(status: int, title: str, sentence: str) -> HTMLResponse:
    return answer(live.refusal(title, sentence), status=status)


MISSING = "No such run is here any more. It may have been moved or deleted: go back to the list of all runs."


# ------------------------------------------------------------------ the pages


class LivePages:
    """The pages of a shelf. `ending` says that the server is about to stop: what is still open is closed."""

    def __init__(self, shelf: RunFolder, ending: Callable[[], bool] = lambda: False):
        self.shelf, self.ending = shelf, ending
        self.made: dict[tuple[str, ...], tuple[object, list[LiveSection]]] = {}

    def routes(self) -> list[Route]:
        return [
            Route("/", self.listing),
            Route("/events", self.listing_events),
            Route("/run/{id}", self.run),
            Route("/run/{id}/events", self.run_events),
            Route("/run/{id}/report", self.report),
            Route("/study/{id}", self.study),
            Route("/study/{id}/events", self.study_events),
            Route("/advice/{id}", self.advice),
            Route("/compare", self.compare),
            Route("/compare/events", self.compare_events),
            Route("/compared", self.compared),
        ]

    async def listing(self, request: Request) -> Response:
        return await self._page("all runs", self.shelf.top.name, "/events", self._list, top=True)

    async def listing_events(self, request: Request) -> Response:
        return self._events(request, self._list, SEARCH)

    def _list(self) -> list[LiveSection]:
        entries = self.shelf.entries()
        return self._once(("list",), entries, lambda: live.listing(entries))

    def _once(self, what: tuple[str, ...], of: object, make: Look) -> list[LiveSection]:
        """Drawing takes much longer than looking: what nothing has happened to is drawn once."""
        known = self.made.get(what)
        if known is None or known[0] != of:
            known = of, make()
        self.made.pop(what, None)
        self.made[what] = known  # at the end: it was asked for last
        for oldest in list(self.made)[:-DRAWN]:
            self.made.pop(oldest, None)
        return known[1]

    async def run(self, request: Request) -> Response:
        entry = await self._entry(request, "run")
        if entry is None:
            return refused(404, "Not found", MISSING)
        return await self._page("a run", entry.name, f"{entry.address}/events", partial(self._run, entry.id))

    async def run_events(self, request: Request) -> Response:
        return self._events(request, partial(self._run, request.path_params["id"]))

    def _run(self, id: str) -> list[LiveSection]:
        entry = self.shelf.entry(id)
        return self._once(("run", id), entry, lambda: live.of_run(entry)) if entry else live.instead(MISSING)

    async def report(self, request: Request) -> Response:
        entry = await self._entry(request, "run")
        if entry is None or entry.document is None:
            why = MISSING if entry is None else "There are no results that can be read. " + entry.run.why
            return refused(404, "Not found", why)
        return answer(await asyncio.to_thread(self._report, entry.run.folder, entry.document))

    def _report(self, folder: Path, document: Document) -> str:
        try:
            tried = advice.of_run(folder, document.run.config)
        except (FedauditError, OSError):  # damaged, or about another federation: `fedaudit report` says so
            tried = None
        return html.render(document, advice=tried)

    async def study(self, request: Request) -> Response:
        entry = await self._entry(request, "study")
        if entry is None:
            return refused(404, "Not found", MISSING)
        return await self._page("a study", entry.name, f"{entry.address}/events", partial(self._study, entry.id))

    async def study_events(self, request: Request) -> Response:
        return self._events(request, partial(self._study, request.path_params["id"]), SEARCH)

    def _study(self, id: str) -> list[LiveSection]:
        entry = self.shelf.entry(id, "study")
        if entry is None:
            return live.instead(MISSING)
        (found, parts), cells = self.shelf.study(entry), self.shelf.cells(entry)
        return self._once(("study", id), (found, cells), lambda: live.of_study(found, parts, cells))

    async def advice(self, request: Request) -> Response:
        entry = await self._entry(request, "advice")
        if entry is None:
            return refused(404, "Not found", MISSING)
        try:
            found = await asyncio.to_thread(advice.load, entry.run.folder)
        except FedauditError as error:
            return refused(404, "Damaged", error.what)
        return answer(pages.advice_page(found, entry.name))

    async def compare(self, request: Request) -> Response:
        chosen = await asyncio.to_thread(self._chosen, request)
        if len(chosen) < 2:
            return refused(404, "Choose two runs", "Go back to the list, and choose at least two runs to be compared.")
        address = "/compare/events?" + "&".join(f"run={entry.id}" for entry in chosen)
        return await self._page("runs compared", f"{len(chosen)} runs", address, partial(self._several, request))

    async def compare_events(self, request: Request) -> Response:
        return self._events(request, partial(self._several, request))

    def _several(self, request: Request) -> list[LiveSection]:
        chosen = self._chosen(request)
        if not chosen:
            return live.instead(MISSING)
        return self._once(("compare", *(entry.id for entry in chosen)), chosen, lambda: live.of_several(chosen))

    def _chosen(self, request: Request) -> list[ListedRun]:
        ids = dict.fromkeys(request.query_params.getlist("run"))
        return [entry for id in list(ids)[:50] if (entry := self.shelf.entry(id))]

    async def compared(self, request: Request) -> Response:
        """On the records in common, which takes the scores of all: of ended runs alone."""
        chosen = await asyncio.to_thread(self._chosen, request)
        try:
            found = await asyncio.to_thread(compare, [entry.run.folder for entry in chosen])
        except FedauditError as error:
            return refused(404, "They cannot be compared", f"{error.what}. {error.todo}")
        return answer(await asyncio.to_thread(pages.comparison_page, found))

    # ------------------------------------------------------------------ what they have in common

    async def _entry(self, request: Request, kind: Kind) -> ListedRun | None:
        return await asyncio.to_thread(self.shelf.entry, request.path_params["id"], kind)

    async def _page(self, title: str, name: str, events: str, look: Look, *, top: bool = False) -> Response:
        try:
            shown = await asyncio.to_thread(look)
        except FedauditError as error:
            return refused(404, "Damaged", error.what)
        return answer(live.page(title, name, events, shown, top=top), html.LIVE)

    def _events(self, request: Request, look: Look, every: float = TICK) -> Response:
        return StreamingResponse(self._changes(request, look, every), media_type="text/event-stream")

    async def _changes(self, request: Request, look: Look, every: float) -> AsyncIterator[str]:
        """The sections, now and whenever they have changed. A page that lost its connection gets them anew."""
        sent: list[LiveSection] | None = None
        at = time.monotonic()
        while not self.ending() and not await request.is_disconnected():
            try:
                shown = await asyncio.to_thread(look)
            except FedauditError as error:  # damaged in the meantime
                shown = live.instead(error.what)
            if shown is not sent:
                sent, at = shown, time.monotonic()
                found = str(await asyncio.to_thread(live.parts, shown))
                yield "event: page\n" + "".join(f"data: {line}\n" for line in found.splitlines()) + "\n"
            elif time.monotonic() - at > BEAT:
                at = time.monotonic()
                yield ": still here\n\n"
            await asyncio.sleep(every)


def application(
    top: Path, token: str, hosts: Sequence[str], cookie: str = "fedaudit", ending: Callable[[], bool] = lambda: False
) -> Any:
    site = LivePages(RunFolder(top), ending)

    async def missing(request: Request, error: Exception) -> Response:
        return refused(404, "Not found", "There is no such page.")

    async def failed(request: Request, error: Exception) -> Response:
        return refused(
            500, "A fault of fedaudit", "This page could not be made; the terminal says why. The runs go on."
        )

    handlers: Any = {404: missing, 500: failed}
    return Doorkeeper(Starlette(routes=site.routes(), exception_handlers=handlers), token, hosts, cookie)


# ------------------------------------------------------------------ the process


def listening(host: str, port: int) -> socket.socket:
    """Bound before anything else is done, so that a busy port is told at once."""
    try:
        address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        raise FedauditError(
            "bad-address", f"{host!r} is no address", "Give an IP address, such as 127.0.0.1."
        ) from None
    if address.is_unspecified:
        what = f"{host} would accept any host name, and the check of host names needs one"
        raise FedauditError("bad-address", what, "Give one address, or use ssh -L to reach it from elsewhere.")
    made = socket.socket(socket.AF_INET6 if address.version == 6 else socket.AF_INET)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((str(address), port))
        made.listen()  # a browser that is quicker than the server waits
    except OSError as error:
        made.close()
        what = f"cannot listen on {host}, port {port}: {error.strerror}"
        raise FedauditError("port", what, "Choose another port with --port; --port 0 takes any free one.") from None
    return made


def names(sock: socket.socket) -> list[str]:
    """What a browser may call this server."""
    host, port = sock.getsockname()[:2]
    found = [f"[{host}]" if ":" in host else host]
    found += ["localhost"] if ipaddress.ip_address(host).is_loopback else []
    return [f"{name}:{port}" for name in found] + ([*found] if port == 80 else [])


def serve(top: Path, sock: socket.socket, tell: Callable[[str], None]) -> None:
    """Until Ctrl-C or SIGTERM."""
    token, port = secrets.token_urlsafe(32), sock.getsockname()[1]
    server: uvicorn.Server

    def ending() -> bool:
        return server.should_exit

    app = application(top, token, names(sock), f"fedaudit-{port}", ending)
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        ws="none",
        lifespan="off",
        timeout_graceful_shutdown=2,
    )
    server = uvicorn.Server(config)
    tell(f"http://{names(sock)[0]}/?{TOKEN}={token}")
    try:
        server.run(sockets=[sock])
    except KeyboardInterrupt:  # which uvicorn passes on when all is closed
        pass
    finally:
        sock.close()
