"""The app in a browser: a web server, and for each tab a process of the app.

Invariant: nobody without the token gets anything but a refusal; a tab's process ends when its tab or the server ends, whatever
either of them was ended by.

textual-serve brings the terminal of the page (xterm.js), the language that the app speaks on its pipes and the downloads. It has
no authentication, starts through a shell, waits for ever for an app that hangs, and loads a font from another host: those parts
are done here.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import os
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from aiohttp import WSMsgType, web
from textual_serve.app_service import AppService
from textual_serve.server import Server

from tui.terminal import ending
from tui.ui.serve_page import HEADERS, REFUSED, page

END_SECONDS = 3.0
"""How long a tab's app may take to leave before it is killed."""
STRANGER_SECONDS = 10.0
"""How long a connection may take to show the token."""
READY = b"__GANGLION__\n"
STRANGE = ("TMUX", "TMUX_PANE", "STY", "SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY", "NO_COLOR", "COLUMNS", "LINES", "DISPLAY", "WAYLAND_DISPLAY")
"""What is true of the terminal that `serve` was started in, and not of a browser."""
DRIVER = "textual.drivers.web_driver:WebDriver"
GARBLED = (asyncio.IncompleteReadError, asyncio.LimitOverrunError, KeyError, ValueError)
"""The app is gone, or wrote something that is not of its language."""
CELLS = range(1, 1001)
FONT_SIZES = range(6, 73)
LARGEST_MESSAGE = 1 << 20


def tab_environ(environ: Mapping[str, str], width: int, height: int) -> dict[str, str]:
    """Of a tab's app: a terminal with all colours, of this size."""
    kept = {name: value for name, value in environ.items() if name not in STRANGE}
    return {
        **kept, "TEXTUAL_DRIVER": DRIVER, "TEXTUAL_COLOR_SYSTEM": "truecolor", "TERM": "xterm-256color", "COLORTERM": "truecolor",
        "COLUMNS": str(width), "ROWS": str(height), "PYTHONUTF8": "1",
    }  # fmt: skip


class Tab(AppService):
    """One tab's process."""

    def __init__(self, words: Sequence[str], socket: web.WebSocketResponse, downloads: Any) -> None:
        super().__init__(
            "", write_bytes=socket.send_bytes, write_str=socket.send_str, close=socket.close, download_manager=downloads
        )
        self._words = words

    async def _open_app_process(self, width: int = 80, height: int = 24) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        self._process = process = await asyncio.create_subprocess_exec(
            *self._words, stdin=pipe, stdout=pipe, env=tab_environ(os.environ, width, height)
        )
        self._stdin = process.stdin
        return process

    async def run(self) -> None:
        """Hands what the app writes to the tab, until either is gone."""
        assert self._process is not None and self._process.stdout is not None
        stdout = self._process.stdout
        takers = {b"D": self.on_data, b"M": self.on_meta, b"P": self.on_packed}
        with contextlib.suppress(*GARBLED, ConnectionError, RuntimeError):
            await stdout.readuntil(READY)
            while True:
                head = await stdout.readexactly(5)
                await takers[head[:1]](await stdout.readexactly(int.from_bytes(head[1:], "big")))
        with contextlib.suppress(ConnectionError, RuntimeError):
            await self.remote_close()

    async def stop(self) -> None:
        """Asks the app to leave, and sees to it that it does."""
        process, task, self._process = self._process, self._task, None
        if process is None:
            return
        await self._download_manager.cancel_app_downloads(app_service_id=self.app_service_id)
        try:
            async with asyncio.timeout(END_SECONDS):
                await self.send_meta({"type": "quit"})
                await process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        finally:
            if process.returncode is None:  # cancelled meanwhile
                process.kill()
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)


class Tabs(Server):
    """`words`: the command of a tab's app. `origin`: what a browser calls us where a proxy stands before us."""

    def __init__(self, words: Sequence[str], *, token: str, most: int, origin: str | None = None) -> None:
        super().__init__("rackrate")
        self._words = words
        self._token = token
        self._most = most
        self._origin = origin
        self._cookie = "rackrate"
        self._open: set[Tab] = set()
        self._known: set[Any] = set()
        """Connections over which the token was shown."""
        self._sweeping: asyncio.Task[None] | None = None

    async def start(self, listening: socket.socket) -> web.AppRunner:
        """Serves on a socket that listens."""
        self._cookie = f"rackrate_{listening.getsockname()[1]}"  # browsers keep one jar for all ports of a host
        runner = web.AppRunner(await self._make_app(), access_log=None, handler_cancellation=True, shutdown_timeout=END_SECONDS)
        await runner.setup()
        await web.SockSite(runner, listening).start()
        self._sweeping = asyncio.create_task(self._sweep(runner))
        return runner

    async def _sweep(self, runner: web.AppRunner) -> None:
        """Connections that show no token in time are closed: who opens many and says nothing would keep everybody else out."""
        since: dict[Any, float] = {}
        while runner.server is not None:
            now, there = asyncio.get_running_loop().time(), runner.server.connections
            since = {one: since.get(one, now) for one in there}
            self._known.intersection_update(there)
            for one in [one for one in there if one not in self._known and now - since[one] >= STRANGER_SECONDS]:
                one.force_close()
            await asyncio.sleep(STRANGER_SECONDS / 4)

    async def _make_app(self) -> web.Application:
        app = web.Application(middlewares=[self._guard])
        app.add_routes([
            web.get("/", self._index),
            web.get("/ws", self.handle_websocket),
            web.get("/download/{key}", self.handle_download),
            web.static("/static", self.statics_path),
        ])  # fmt: skip
        app.on_shutdown.append(self._end_tabs)
        return app

    @web.middleware
    async def _guard(self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> web.StreamResponse:
        """The token in the address becomes a cookie, so that it stays in no history; without either there is nothing to see."""
        if self._is_token(request.query.get("token")) and request.path == "/":
            response: web.StreamResponse = web.Response(status=303, headers={**HEADERS, "Location": "./"})
            response.set_cookie(self._cookie, self._token, httponly=True, samesite="Lax", secure=(self._origin or "").startswith("https"))
            return response
        if not self._is_token(request.cookies.get(self._cookie)):
            return web.Response(status=403, text=REFUSED, content_type="text/html", headers=HEADERS)
        self._known.add(request.protocol)
        return await handler(request)

    def _is_token(self, given: str | None) -> bool:
        return given is not None and hmac.compare_digest(given.encode("utf-8", "replace"), self._token.encode())

    async def _index(self, request: web.Request) -> web.Response:
        size = _number(request.query.get("fontsize"), 15, FONT_SIZES)
        return web.Response(text=page(size), content_type="text/html", headers=HEADERS)

    def _is_ours(self, request: web.Request) -> bool:
        """Whether the page that opens the socket is ours: another site's may send our cookie along."""
        origin = request.headers.get("Origin")
        return origin is None or origin == self._origin or urlsplit(origin).netloc == request.host

    async def handle_websocket(self, request: web.Request) -> web.WebSocketResponse:
        """A tab, from its beginning to its end."""
        if not self._is_ours(request):
            raise web.HTTPForbidden(text="Another site's page cannot open the app.")
        wire = web.WebSocketResponse(heartbeat=15, max_msg_size=LARGEST_MESSAGE)
        await wire.prepare(request)
        if len(self._open) >= self._most:
            await wire.send_bytes(f"{self._most} tabs are open, which is the most (--max-tabs); close one, then start this one again.".encode())
            await wire.close()
            return wire
        tab = Tab(self._words, wire, self.download_manager)
        self._open.add(tab)
        try:
            await tab.start(_number(request.query.get("width"), 80, CELLS), _number(request.query.get("height"), 24, CELLS))
            await self._process_messages(wire, tab)
        finally:
            await asyncio.shield(self._end(tab))
        return wire

    async def _process_messages(self, websocket: web.WebSocketResponse, app_service: AppService) -> None:
        """What the page sends; what is no message of it ends the tab."""
        async for message in websocket:
            if message.type is not WSMsgType.TEXT:
                continue
            try:
                await _told(app_service, websocket, *message.json()[:2])
            except (ValueError, TypeError, KeyError, AttributeError):
                return

    async def _end(self, tab: Tab) -> None:
        try:
            await tab.stop()
        finally:
            self._open.discard(tab)

    async def _end_tabs(self, app: web.Application) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
        await asyncio.gather(*(self._end(tab) for tab in list(self._open)), return_exceptions=True)


async def _told(tab: AppService, wire: web.WebSocketResponse, kind: str, value: Any = None) -> None:
    match kind:
        case "stdin":
            await tab.send_bytes(value.encode("utf-8", "replace"))
        case "resize":
            await tab.set_terminal_size(_cells(value["width"]), _cells(value["height"]))
        case "ping":
            await wire.send_json(["pong", value])
        case "blur":
            await tab.blur()
        case "focus":
            await tab.focus()


def _cells(value: Any) -> int:
    return max(CELLS[0], min(CELLS[-1], int(value)))


def _number(text: str | None, usual: int, allowed: range) -> int:
    try:
        return max(allowed[0], min(allowed[-1], int(text or usual)))
    except ValueError:
        return usual


async def serve_until_ended(tabs: Tabs, listening: socket.socket, ready: Callable[[], None]) -> int:
    """Serves until SIGINT, SIGTERM or SIGHUP; returns its number once all tabs have ended."""
    ended = ending()
    runner = await tabs.start(listening)
    ready()
    try:
        return await ended
    finally:
        await runner.cleanup()
