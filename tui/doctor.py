"""The checks of `rackrate doctor`: each names what it looked at, what it found, and what to do.

Invariant: a check never raises; a fault in one is its own `fail`.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from tui.commands.context import Context
from tui.errors import RackrateError
from tui.format import clean, counted

Status = Literal["ok", "warn", "fail"]
_MARKS = {"ok": "ok  ", "warn": "warn", "fail": "FAIL"}


class Check(msgspec.Struct, frozen=True):
    """One finding. `remedy` says what to do when it is not ok."""

    name: str
    status: Status
    finding: str
    remedy: str | None = None

    def line(self) -> str:
        """One line of text."""
        return clean(f"{_MARKS[self.status]}  {self.name}: {self.finding}" + (f" -> {self.remedy}" if self.remedy else ""))

    def record(self) -> dict[str, Any]:
        """For `--json`."""
        return {"name": self.name, "status": self.status, "finding": self.finding, "remedy": self.remedy}


def run_checks(context: Context) -> list[Check]:
    """All checks in order."""
    checks: list[Check] = []
    for check in (_configuration, _nodes, _ledger, _catalog, _terminal):
        try:
            checks.extend(check(context))
        except RackrateError as error:
            checks.append(Check(check.__name__.strip("_"), "fail", str(error)))
        except Exception as error:  # noqa: BLE001 - the doctor survives whatever it finds
            checks.append(Check(check.__name__.strip("_"), "fail", f"{type(error).__name__}: {error}"))
    return checks


def _configuration(context: Context) -> Iterator[Check]:
    file = context.paths.config_file
    count = len(context.config.nodes)
    if not file.exists():
        yield Check("configuration", "ok", f"{file} does not exist: this machine is shown", "rackrate add URL adds a node")
    else:
        yield Check("configuration", "ok", f"{file}: {counted(count, 'node')}")
    for node in context.config.nodes:
        path = context.paths.token_path(node)
        if path and path.exists() and path.stat().st_mode & 0o077:
            yield Check(
                "token file", "warn", f"{path} can be read by others", f"chmod 600 {path}"
            )


def _nodes(context: Context) -> Iterator[Check]:
    from tui.fetch import fetch

    try:
        with context.nodes() as nodes:
            fleet = asyncio.run(fetch(nodes, context.client_for, context.catalog()))
    except RackrateError as error:
        yield Check("nodes", "fail", str(error))
        return
    for view in fleet:
        if view.error:
            yield Check(f"node {view.name}", "fail", view.error)
            continue
        info = view.info
        assert info is not None
        gpus = counted(len(info.gpus), "GPU") if info.gpus else (info.gpu_reason or "no GPUs")
        yield Check(f"node {view.name}", "ok" if info.gpus or not view.expects_gpus else "warn", gpus)
        if view.usd_per_hour is None:
            yield Check(
                f"price of {view.name}", "warn", view.price_reason or "not known",
                "set instance_type, region and purchase, or usd_per_hour, under [node] in the node's agent.toml",
            )  # fmt: skip
        for sensor in view.sample.sensors if view.sample else ():
            if not sensor.ok and sensor.error:
                yield Check(f"sensor {sensor.name} of {view.name}", "warn", sensor.error)


def _ledger(context: Context) -> Iterator[Check]:
    path = context.paths.ledger_path(context.config)
    with context.open_ledger() as ledger:
        problems = list(ledger.check())
    if problems:
        for problem in problems[:5]:
            yield Check("ledger", "fail", f"{path}: {problem}")
    else:
        yield Check("ledger", "ok", f"{path}: whole, every row once")
    free = shutil.disk_usage(path.parent).free
    yield Check("disk", "ok" if free > 1 << 28 else "warn", f"{free >> 20} MiB free at {path.parent}")


def _catalog(context: Context) -> Iterator[Check]:
    offers = context.catalog().offers()
    newest: dict[str, Any] = {}
    for offer in offers:
        newest[offer.cloud] = max(newest.get(offer.cloud, offer.as_of), offer.as_of)
    dates = ", ".join(f"{cloud} {date}" for cloud, date in sorted(newest.items()))
    if problem := context.catalog().problem:
        yield Check("price book", "warn", problem)
    kept = sum(offer.valid_from is not None for offer in offers)
    origin = f"{kept} of them from the price book" if kept else "all of them ship with the program; rackrate prices refresh"
    yield Check("prices", "ok", f"{counted(len(offers), 'offer')}, {origin}; newest: {dates}")


def _terminal(context: Context) -> Iterator[Check]:
    size = shutil.get_terminal_size((0, 0))
    encoding = (sys.__stderr__.encoding if sys.__stderr__ else None) or "unknown"
    utf8 = encoding.lower().replace("-", "") == "utf8"
    term = os.environ.get("TERM", "not set")
    yield Check(
        "terminal", "ok" if utf8 else "warn", f"TERM={term}, {size.columns}x{size.lines}, {encoding}",
        None if utf8 else "set LANG to a UTF-8 locale for bars and plots; without it plain ASCII is drawn",
    )  # fmt: skip


