"""A simulated fleet of 12 nodes behind real agents on loopback, for `rackrate demo` and pictures.

Invariant: it changes no configuration and touches no ledger of the user's, and leaves no process and no file behind.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tui.commands.context import Context
from tui.config import NodeConfig
from tui.errors import Failed
from tui.exit_codes import ExitCode
from tui.local import agent_words, end_agent, read_lines, start_agent
from tui.output import print_rows, say
from tui.terminal import has_terminal

NODES = 12
DAY_SECONDS = 86_400
START_SECONDS = 60.0


@contextlib.contextmanager
def simulated_fleet(*, seed: int) -> Iterator[tuple[Context, tuple[NodeConfig, ...]]]:
    """Starts the fleet with a day of history; yields a context of its own and its nodes."""
    with tempfile.TemporaryDirectory(prefix="rackrate-demo-") as folder:
        home, log, token = Path(folder), Path(folder) / "agent.log", Path(folder) / "token"
        process = start_agent(
            [
                "simulate", "--preset", "demo", "--seed", str(seed), "--history", str(DAY_SECONDS),
                "--listen", "127.0.0.1:0", "--token-file", str(token), "--die-with-parent",
            ],
            log,
        )  # fmt: skip
        try:
            urls = [line.strip() for line in _first(read_lines(process, START_SECONDS), NODES)]
            if len(urls) < NODES:
                raise Failed(f"the simulated fleet did not start: {agent_words(process, log)}")
            yield Context(str(_configuration(home, urls, token))), tuple(_node(url, token) for url in urls)
        finally:
            end_agent(process)


def _first(lines: Iterator[str], count: int) -> Iterator[str]:
    for line in lines:
        if line.startswith("http"):
            yield line
            count -= 1
            if not count:
                return


def _node(url: str, token: Path) -> NodeConfig:
    return NodeConfig(name=url.rstrip("/").rpartition("/")[2], url=url, token_file=str(token))


def _configuration(home: Path, urls: list[str], token: Path) -> Path:
    """A config.toml of its own, so that the commands work on the fleet as on any other."""
    tables = [
        f'[[nodes]]\nname = "{(node := _node(url, token)).name}"\nurl = "{node.url}"\ntoken_file = "{token}"\n'
        for url in urls
    ]
    file = home / "config.toml"
    file.write_text(f'ledger = "{home / "ledger.db"}"\n\n' + "\n".join(tables), encoding="utf-8")
    return file


def run_demo(*, seed: int, handling: Mapping[str, Any]) -> int:
    """The app on the fleet, or its report where there is no terminal. `handling`: keys, theme, filters and limits of the app."""
    if has_terminal():
        say("starting a simulated fleet of 12 nodes ...")
    with simulated_fleet(seed=seed) as (context, nodes):
        if not has_terminal():
            return print_fleet_and_report(context, nodes)
        from tui.ui.start import run

        return run(
            nodes,
            context.client_for,
            ledger_path=context.paths.ledger_path(context.config),
            data_dir=context.paths.config_file.parent,
            timezone=context.timezone_name(),
            **handling,
        )


def print_fleet_and_report(context: Context, nodes: tuple[NodeConfig, ...]) -> int:
    """The same on stdout: the fleet now, what it costs, and the report of the simulated day."""
    import asyncio
    import sys
    import time

    from pricing.attribution import attribute
    from pricing.catalog import Catalog
    from pricing.reports import write
    from tui.columns import NODE_COLUMNS
    from tui.commands.money import say_notes, sync_nodes, sync_verdict
    from tui.commands.nodes import say_totals
    from tui.costs import notes
    from tui.fetch import fetch

    fleet, now = asyncio.run(fetch(nodes, context.client_for)), time.monotonic()
    print("The simulated fleet now\n")
    print_rows(NODE_COLUMNS, list(fleet), now)
    print()
    say_totals(fleet.totals(now), stdout=True)
    end = datetime.now(UTC)
    with context.open_ledger() as ledger:
        results = sync_nodes(context, ledger)
        for title, by in (("by project and user", ["project", "user"]), ("by node", ["node"])):
            report = attribute(ledger, Catalog.embedded(), end - timedelta(days=1), end, by, tz="UTC")
            print(f"\nThe cost of the last simulated day, {title} (USD)\n")
            write(report, sys.stdout, "text")
    sync_verdict(results)
    say_notes(notes(report))
    return ExitCode.DONE
