"""What the app costs with a whole fleet at 1 Hz, beside a DataTable with the same data and a client that only reads the streams.

    python tests/bench/bench_app.py [--nodes 200] [--gpus 8] [--seconds 20] [--size 200x60]

Invariant: each runs in a process of its own on a pty, on the same simulated fleet; CPU is of that process alone, after it settled.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import fcntl
import itertools
import os
import pty
import resource
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUDGET_PERCENT = 30.0
"""Design: of one core for 1,000 nodes x 8 GPUs, streams included."""
TENTH_BUDGET = (2.5, 4000.0)
"""Design: 10 % of 1,000 nodes changing: 25 ms of CPU and 4 kB a refresh, one a second."""
IDLE_BUDGET_PERCENT = 1.0
FIRST_PAINT_SECONDS = 0.6
SETTLE_SECONDS = 12.0
STALL_SECONDS = 0.1
TROUBLED = 50
"""Of 1,000 nodes so many hang, and as many break off again and again, while the app is measured."""
MONEY_KEYS = (b"c", b"m", b"v", b"B")
CHILDREN = ("streams", "app", "datatable")
IN_MEMORY = ("tenth", "grouped", "idle")
"""1,000 nodes without any network: a tenth of them (ungrouped, and grouped by user), or none, changes each second."""


@contextlib.contextmanager
def fleet(nodes: int, gpus: int, folder: Path) -> Iterator[Path]:
    """Serves the fleet; yields a config.toml of its nodes."""
    token = folder / "token"
    command = [sys.executable, "-m", "agent.cli", "simulate", "--nodes", str(nodes), "--gpus", str(gpus), "--seed", "5",
               "--listen", "127.0.0.1:0", "--token-file", str(token), "--die-with-parent"]  # fmt: skip
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            urls = [process.stdout.readline().strip() for _ in range(nodes)]
            tables = [
                f'[[nodes]]\nname = "{url.rstrip("/").rpartition("/")[2]}"\nurl = "{url}"\ntoken_file = "{token}"\n' for url in urls
            ]
            config = folder / "config.toml"
            config.write_text("\n".join(tables), encoding="utf-8")
            yield config
        finally:
            process.terminate()
            process.wait()


class OnPty:
    """A child on a pseudo-terminal; counts what it writes."""

    def __init__(self, arguments: list[str], size: tuple[int, int]) -> None:
        self.written = 0
        self.first_paint: float | None = None
        self.began = time.monotonic()
        self.pid, self._master = pty.fork()
        if self.pid == 0:
            os.chdir(ROOT)
            os.environ.update(TERM="xterm-256color", COLORTERM="truecolor", LANG="C.UTF-8")
            os.execv(sys.executable, [sys.executable, *arguments])
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))

    def pump(self, seconds: float) -> int:
        """Reads for so long; returns the bytes that came."""
        before, deadline = self.written, time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if not select.select([self._master], [], [], left)[0]:
                break
            try:
                data = os.read(self._master, 1 << 16)
            except OSError:
                break
            if self.first_paint is None and b"live" in data:
                self.first_paint = time.monotonic() - self.began
            self.written += len(data)
        return self.written - before

    def press(self, key: bytes, answer_seconds: float = 2.0) -> float:
        """Seconds from a key to the first byte of the answer that holds the cursor's mark."""
        began = time.monotonic()
        os.write(self._master, key)
        while time.monotonic() - began < answer_seconds:
            if select.select([self._master], [], [], 0.05)[0]:
                data = os.read(self._master, 1 << 16)
                self.written += len(data)
                if "▌".encode() in data:
                    break
        return time.monotonic() - began

    def cpu(self) -> float:
        """Seconds of CPU so far, all threads."""
        fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rss_mb(self) -> float:
        return int(Path(f"/proc/{self.pid}/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize() / 1e6

    def close(self) -> None:
        os.kill(self.pid, signal.SIGTERM)
        self.pump(1.5)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._master)


def measure(kind: str, config: Path, size: tuple[int, int], seconds: float, nodes: int) -> dict[str, float]:
    """One child, measured after it settled."""
    child = OnPty([__file__, "--child", kind, "--config", str(config)], size)
    try:
        child.pump(SETTLE_SECONDS + nodes / 100)
        cpu, began = child.cpu(), time.monotonic()
        written = child.pump(seconds)
        wall = time.monotonic() - began
        result = {"cpu": (child.cpu() - cpu) / wall * 100, "bytes": written / wall, "rss": child.rss_mb()}
        if kind == "app":
            result["paint"] = child.first_paint or float("nan")
            result["key"] = sorted(_keys(child))[-2]
            result["stall"] = stall(config.parent / "stalls", began, time.monotonic())
            opening = time.monotonic()
            for key in MONEY_KEYS:
                child.pump(0.3)
                os.write(child._master, key)
                child.pump(3.0)
                os.write(child._master, b"\x1b")
            child.pump(1.2)
            result["opening"] = stall(config.parent / "stalls", opening, time.monotonic())
        return result
    finally:
        child.close()


def stall(path: Path, start: float, end: float) -> float:
    """Milliseconds: the longest that the loop of the app was late between two moments."""
    rows = [tuple(map(float, line.split())) for line in path.read_text(encoding="ascii").splitlines()]
    return max((late for at, late in rows if start <= at <= end), default=float("nan")) * 1000


def _keys(child: OnPty) -> Iterator[float]:
    for turn in range(30):
        child.pump(0.13)
        yield child.press(b"\x1b[B" if turn % 2 == 0 else b"\x1b[A") * 1000


def report(kind: str, result: dict[str, float], streams: dict[str, float] | None) -> None:
    if kind in IN_MEMORY:
        report_in_memory(kind, result)
        return
    beside = f", {result['cpu'] / streams['cpu']:.2f} x streams alone" if streams and streams["cpu"] else ""
    print(f"{kind:<10} {result['cpu']:5.1f} % of a core ({result['cpu'] / BUDGET_PERCENT:.2f} x the budget for 1,000 nodes{beside}), "
          f"{result['bytes']:7.0f} bytes/s, {result['rss']:.0f} MB RSS", flush=True)  # fmt: skip
    if "paint" in result:
        print(f"{'':<10} first paint {result['paint']:.2f} s ({result['paint'] / FIRST_PAINT_SECONDS:.2f} x budget); "
              f"key to paint, 29th of 30: {result['key']:.0f} ms ({result['key'] / 100:.2f} x budget)", flush=True)  # fmt: skip
        print(f"{'':<10} {_troubled_percent():.1f} % of the nodes hang and as many flap; longest stall of the loop {result['stall']:.0f} ms "
              f"({result['stall'] / STALL_SECONDS / 1000:.2f} x budget), while screens of money are opened first {result['opening']:.0f} ms", flush=True)  # fmt: skip


def _troubled_percent() -> float:
    return int(os.environ["RACKRATE_BENCH_TROUBLED"]) / 10


def report_in_memory(kind: str, result: dict[str, float]) -> None:
    if kind != "idle":
        percent, written = TENTH_BUDGET
        print(f"10 % of 1,000 nodes changing{', in groups' * (kind == 'grouped')}: {result['cpu'] * 10:.0f} ms CPU a refresh ({result['cpu'] / percent:.2f} x budget), "
              f"{result['bytes']:.0f} bytes ({result['bytes'] / written:.2f} x budget)", flush=True)  # fmt: skip
    else:
        print(f"nothing changing: {result['cpu']:.1f} % of a core ({result['cpu'] / IDLE_BUDGET_PERCENT:.2f} x budget), "
              f"{result['bytes']:.0f} bytes/s", flush=True)  # fmt: skip


# -- the children -------------------------------------------------------------------------------------------------


def changed_sample(fleets, name: str, turn: int):  # noqa: ANN001, ANN201
    """Made beforehand: decoding is measured with the streams."""
    users = (f"user-{sum(name.encode()) % 12:02}",)
    gpus = tuple(fleets.gpu(index, node=name, util=(turn * 7 + index) % 100 / 100, users=users) for index in range(8))
    return fleets.wire.SampleEvent(sample=fleets.sample(name, gpus, turn))


def run_in_memory(kind: str) -> None:
    """Steady clock, so that only what is changed on purpose changes."""
    from tests.support import fleets
    from tui.ui.app import RackrateApp

    fleet = fleets.many(1000)
    names = [view.name for view in fleet]
    rounds = [[(name, changed_sample(fleets, name, turn)) for name in names[turn % 10 :: 10]] for turn in range(20)]
    app = RackrateApp(fleet, clock=lambda: fleets.NOW, theme="rackrate-dark")
    coming = itertools.cycle(rounds)

    def change() -> None:
        for name, event in next(coming):
            fleet.apply(name, event, fleets.NOW)

    def begin() -> None:
        if kind == "grouped":
            for _ in range(10):
                change()
            app.screen.action_group_by("user")
        app.set_interval(1.0, change)

    if kind != "idle":
        app.call_later(begin)
    app.run()


def child(kind: str, config: Path) -> None:
    if kind in IN_MEMORY:
        run_in_memory(kind)
        return
    from tui.commands.context import Context

    context = Context(str(config))
    if kind == "app":
        from tui.ui.start import run

        watch_stalls(config.parent / "stalls")
        sys.exit(run(context.config.nodes, troubled(context), ledger_path=None, timezone="UTC", theme="rackrate-dark"))
    allow_many_files()
    asyncio.run(read_streams(context)) if kind == "streams" else run_datatable(context)


def watch_stalls(path: Path) -> None:
    """Each second a line: when (monotonic), and the longest time in it that the app's loop was late."""
    from tui.ui.app import RackrateApp

    async def probe() -> None:
        while True:
            longest, until = 0.0, time.monotonic() + 1
            while time.monotonic() < until:
                before = time.monotonic()
                await asyncio.sleep(0.005)
                longest = max(longest, time.monotonic() - before - 0.005)
            with path.open("a", encoding="ascii") as file:
                print(f"{time.monotonic()} {longest}", file=file)

    loaded = RackrateApp.on_load

    def on_load(self: RackrateApp) -> None:
        self._probe = asyncio.get_running_loop().create_task(probe())  # type: ignore[attr-defined]
        loaded(self)

    RackrateApp.on_load = on_load  # type: ignore[method-assign]


def troubled(context):  # noqa: ANN001, ANN201
    """Clients of which some hang after a few events, and some break off again and again."""
    from agent.client import Unreachable

    names = [node.name for node in context.config.nodes]
    share = len(names) * int(os.environ["RACKRATE_BENCH_TROUBLED"]) // 1000
    hanging, flapping = set(names[:share]), set(names[share : 2 * share])

    def client_for(node):  # noqa: ANN001, ANN202
        client = context.client_for(node)
        stream = client.stream

        async def hangs():  # noqa: ANN202
            async for number, event in _numbered(stream()):
                yield event
                if number > 3:
                    await asyncio.Event().wait()

        async def flaps():  # noqa: ANN202
            async for number, event in _numbered(stream()):
                yield event
                if number > 3:
                    raise Unreachable(f"{node.name} broke off")

        if node.name in hanging | flapping:
            client.stream = hangs if node.name in hanging else flaps
        return client

    return client_for


async def _numbered(events):  # noqa: ANN001, ANN202
    number = 0
    async for event in events:
        yield number, event
        number += 1


def allow_many_files() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))


async def read_streams(context) -> None:  # noqa: ANN001
    """Reads and decodes, and does nothing with it."""

    async def one(node) -> None:  # noqa: ANN001
        async with context.client_for(node) as client:
            async for _ in client.stream():
                pass

    await asyncio.gather(*(one(node) for node in context.config.nodes))


def run_datatable(context) -> None:  # noqa: ANN001
    """The same columns in Textual's DataTable, each changed cell set once a second."""
    from textual.app import App, ComposeResult
    from textual.widgets import DataTable

    from pricing.catalog import Catalog
    from tui.columns import NODE_COLUMNS
    from tui.fleet import Fleet
    from tui.live import Live

    class Plain(App[None]):
        def compose(self) -> ComposeResult:
            yield DataTable(cursor_type="row")

        def on_mount(self) -> None:
            table = self.query_one(DataTable)
            for column in NODE_COLUMNS:
                table.add_column(column.title, key=column.id, width=column.width)
            self.fleet = Fleet(Catalog.embedded())
            self.live = Live(self.fleet, context.config.nodes, context.client_for)
            self.shown = {view.name: [""] * len(NODE_COLUMNS) for view in self.fleet}
            for name, cells in self.shown.items():
                table.add_row(*cells, key=name)
            self.live.start()
            self.set_interval(1.0, self.tick)

        def tick(self) -> None:
            table, now = self.query_one(DataTable), time.monotonic()
            for name in self.live.take_changed():
                cells = self.shown[name]
                for place, column in enumerate(NODE_COLUMNS):
                    text = column.text(self.fleet[name], now)
                    if text != cells[place]:
                        cells[place] = text
                        table.update_cell(name, column.id, text)

    Plain().run()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--size", default="200x60")
    parser.add_argument("--troubled", type=int, default=TROUBLED, help="of 1,000 nodes, how many hang and how many flap")
    parser.add_argument("--only", choices=(*CHILDREN, *IN_MEMORY), default=None)
    parser.add_argument("--child", choices=(*CHILDREN, *IN_MEMORY), help=argparse.SUPPRESS)
    parser.add_argument("--config", help=argparse.SUPPRESS)
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    allow_many_files()
    if options.child:
        child(options.child, Path(options.config))
        return
    os.environ["RACKRATE_BENCH_TROUBLED"] = str(options.troubled)
    width, height = (int(part) for part in options.size.split("x"))
    print(f"{options.nodes} nodes x {options.gpus} GPUs at 1 Hz, {width}x{height}, {options.seconds:.0f} s each")
    with tempfile.TemporaryDirectory() as folder, fleet(options.nodes, options.gpus, Path(folder)) as config:
        streams = None
        for kind in (options.only,) if options.only else (*CHILDREN, *IN_MEMORY):
            result = measure(kind, config, (width, height), options.seconds, options.nodes)
            streams = streams or (result if kind == "streams" else None)
            report(kind, result, streams)


if __name__ == "__main__":
    main()
