"""`rackrate serve` in a real browser (Debian's Chromium): it shows the fleet, takes keys, and ends its processes."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support.simulated import ROOT, Agents
from tui.cli import main

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
NODES = 3
MOST_TABS = 2
HOOK = """Object.defineProperty(Object.prototype, 'fitAddon', {configurable: true, set(value) {
  Object.defineProperty(this, 'fitAddon', {value, writable: true, configurable: true}); window.shown = this.terminal; }});"""
"""The page's terminal is kept in a closure: it is caught when it is made."""
READ = """() => { const b = window.shown.buffer.active;
  return [...Array(window.shown.rows).keys()].map(y => b.getLine(y)?.translateToString(true, 0, window.shown.cols) ?? '').join('\\n'); }"""


def until(holds: Callable[[], Any], what: str | Callable[[], str], seconds: float = 120.0) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := holds():
            return found
        time.sleep(0.1)
    raise AssertionError(what() if callable(what) else what)


class Serving:
    """`rackrate serve` on a free port."""

    def __init__(self, config: Path, *options: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tui.cli", "--config", str(config), "serve", "--port", "0", *options],
            cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()
        assert self.url.startswith("http://127.0.0.1:"), self.url
        self.host = urlsplit(self.url).netloc

    def tabs(self) -> list[int]:
        """The processes of its tabs."""
        words = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text(encoding="ascii").split()
        return [int(word) for word in words]

    def ask(self, path: str, **headers: str) -> tuple[int, dict[str, str], str]:
        connection = HTTPConnection(self.host, timeout=60)
        try:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read().decode(errors="replace")
        finally:
            connection.close()

    def close(self) -> int:
        if self.process.poll() is None:
            self.process.terminate()
        code = self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    pytest.importorskip("textual_serve", reason="textual-serve is not installed: the app in a browser is not tested")
    agents = Agents(tmp_path_factory.mktemp("fleet"), NODES)
    running = Serving(agents.config, "--max-tabs", str(MOST_TABS))
    yield running
    running.close()
    agents.close()


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_without_the_token_there_is_nothing_and_the_token_leaves_the_address(serving: Serving) -> None:
    for path in ("/", "/ws", "/static/js/textual.js", "/download/x", "/?token=wrong", "/static/?token=wrong", "/?token=%C3%A9"):
        status, _, body = serving.ask(path)
        assert status == 403 and "rackrate serve" in body, path
    token = serving.url.partition("token=")[2]
    for wrong in ("wrong", "\xff\xfe", token[:-1], token + "x"):
        assert serving.ask("/", Cookie=f"rackrate_{serving.host.rpartition(':')[2]}={wrong}")[0] == 403
    status, headers, _ = serving.ask(f"/?token={token}")
    assert status == 303 and headers["Location"] == "./"
    cookie = headers["Set-Cookie"]
    assert "HttpOnly" in cookie and "SameSite=Lax" in cookie
    cookie = cookie.partition(";")[0]
    status, headers, body = serving.ask("/", Cookie=cookie)
    assert status == 200 and "frame-ancestors 'none'" in headers["Content-Security-Policy"] and token not in body
    assert "http://" not in body and "https://" not in body, "the page loads nothing from another host"
    assert serving.ask("/static/js/textual.js", Cookie=cookie)[0] == 200
    assert serving.ask("/ws", Cookie=cookie, Origin="http://127.0.0.1:1")[0] == 403, "another site's page"
    assert serving.tabs() == []


async def test_who_connects_and_says_nothing_is_sent_away_and_keeps_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    serve = pytest.importorskip("tui.ui.serve", reason="textual-serve is not installed")
    monkeypatch.setattr(serve, "STRANGER_SECONDS", 0.1)
    tabs, listening = serve.Tabs(["true"], token="right", most=1), socket.create_server(("127.0.0.1", 0))
    runner = await tabs.start(listening)
    host, port = listening.getsockname()

    async def say(text: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(text.encode())
        return reader, writer

    known = await say(f"GET /?fontsize=9 HTTP/1.1\r\nHost: {host}\r\nCookie: rackrate_{port}=right\r\n\r\n")
    assert (await known[0].readline()).startswith(b"HTTP/1.1 200")
    strangers = [await say("GET / HTTP/1.1\r\nHost: x\r\nX-Slow: "), await say("")]
    async with asyncio.timeout(20):
        for reader, _ in strangers:
            assert await reader.read() == b""
    known[1].write(f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nCookie: rackrate_{port}=right\r\n\r\n".encode())
    assert b"HTTP/1.1 200" in await known[0].read(), "who showed the token keeps the connection"
    for _, writer in (known, *strangers):
        writer.close()
    await runner.cleanup()


def test_in_a_browser_the_fleet_is_shown_takes_keys_and_each_tab_is_a_process_that_ends_with_it(serving: Serving, tmp_path: Path) -> None:
    if CHROMIUM is None:
        pytest.skip("chromium is not installed: `rackrate serve` is not tested in a browser")
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: no test in a browser")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        context = browser.new_context(viewport={"width": 1000, "height": 600})
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        context.set_default_timeout(120_000)
        context.add_init_script(HOOK)
        elsewhere: list[str] = []
        context.on("request", lambda request: serving.host not in request.url and not request.url.startswith("data:") and elsewhere.append(request.url))

        def opened() -> Any:
            page = context.new_page()
            page.goto(serving.url)
            assert page.url == f"http://{serving.host}/", "no token in the history"
            return page

        def shows(page: Any, *parts: str) -> str:
            def text() -> str:
                return page.evaluate(READ) if page.evaluate("() => !!window.shown") else ""

            def whole() -> str:
                return shown if all(part in (shown := text()) for part in parts) else ""

            return until(whole, lambda: f"{parts} are not on the screen:\n{text()}")

        first = opened()
        screen = shows(first, f"{NODES} live", "IDLE $/H", "read-only")
        columns = first.evaluate("() => window.shown.cols")
        assert 90 < columns < 130 and len(screen.split("\n")) > 25
        assert first.title() == "rackrate"
        first.keyboard.press("j")
        shows(first, "Simulated nodes run no jobs")
        first.keyboard.press("n")
        shows(first, "n is off: this is read-only")
        first.keyboard.press("Escape")
        shows(first, "IDLE $/H")
        first.keyboard.press("Enter")
        shows(first, "node 1 of 3", "p4d")

        downloads: list[Any] = []
        first.on("download", lambda download: downloads.append(download))
        first.keyboard.press("c")
        shows(first, "› costs", "by project", "TOTAL▾", "llm")
        first.keyboard.press("e")
        shows(first, "to the browser")
        until(lambda: first.wait_for_timeout(100) or bool(downloads), "the export does not reach the browser")
        assert downloads[0].suggested_filename.startswith("costs-") and "cost" in Path(downloads[0].path()).read_text().partition("\n")[0]
        first.keyboard.press("Escape")
        shows(first, "node 1 of 3")

        first.set_viewport_size({"width": 600, "height": 300})
        until(lambda: first.evaluate("() => window.shown.cols") < columns - 20, "the terminal does not follow the window")
        until(lambda: len(shows(first, "node 1 of 3").rstrip().split("\n")) <= 17, "it is not drawn in the smaller window")
        first.set_viewport_size({"width": 1000, "height": 600})

        second = opened()
        shows(second, f"{NODES} live", "IDLE $/H")
        until(lambda: len(serving.tabs()) == 2, "each tab is a process of its own, in a state of its own")
        third = opened()
        shows(third, f"{MOST_TABS} tabs are open, which is the most")
        third.close()
        until(lambda: len(serving.tabs()) == 2, "a tab beyond the most has a process")

        survivor = set(serving.tabs())
        second.close()
        until(lambda: len(serving.tabs()) == 1, "the process of a tab that was closed is still there")
        survivor &= set(serving.tabs())
        first.keyboard.press("q")
        until(lambda: "-closed" in first.evaluate("() => document.body.className"), "the page does not say that the app has ended")
        until(lambda: not serving.tabs(), "the app has ended and its process has not")
        with first.expect_navigation():
            first.keyboard.press("Enter")
        shows(first, f"{NODES} live")
        assert not elsewhere, elsewhere
        pid = serving.tabs()[0]
        assert pid not in survivor

        serving.process.kill()
        serving.process.wait()
        until(lambda: not is_alive(pid), "the process of a tab outlives a server that was killed")
        browser.close()


def test_a_signal_ends_it_with_its_code_and_a_port_that_is_taken_is_a_sentence(tmp_path: Path) -> None:
    pytest.importorskip("textual_serve", reason="textual-serve is not installed")
    config = nobody(tmp_path)
    serving = Serving(config)
    port = serving.host.rpartition(":")[2]
    taken = run("serve", "--port", port, config=config)
    assert serving.close() == 128 + signal.SIGTERM
    assert taken.returncode == 1 and f"cannot listen on 127.0.0.1:{port}" in taken.stderr and "--port 0" in taken.stderr


def nobody(folder: Path) -> Path:
    """A configuration of a node that is not there."""
    config = folder / "config.toml"
    config.write_text('[[nodes]]\nname = "a"\nurl = "http://127.0.0.1:1"\n', encoding="utf-8")
    return config


def run(*words: str, config: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tui.cli", "--config", str(config), *words], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=60, env={**os.environ, "COLUMNS": "200"},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--host", "0.0.0.0"), "--open-to-network"),
        (("--host", "::"), "--open-to-network"),
        (("--host", "no-such-host.invalid"), "there is no such host"),
        (("--port", "99999"), "is no port"),
        (("--max-tabs", "0"), "is no number of tabs"),
        (("--public-url", "fleet.example.org"), "is no address of a page"),
    ],
)
def test_wrong_options_are_a_sentence(
    words: tuple[str, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("textual_serve", reason="textual-serve is not installed")
    try:
        code: object = main(["--config", str(nobody(tmp_path)), "serve", *words])
    except SystemExit as ended:
        code = ended.code
    shown = capsys.readouterr()
    assert code == 2 and said in shown.err and not shown.out
