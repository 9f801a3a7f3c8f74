"""`nodes`, `gpus`, `alerts`, `add`, `remove`: what there is and how it does.

Invariant: a node that did not answer is listed with its reason, and the exit code says so (3 none answered, 4 some did not).
"""

from __future__ import annotations

import argparse
import asyncio
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tui import format as fmt
from tui.commands.context import Context
from tui.config import NodeConfig, add_node, check_node, remove_node
from tui.errors import WrongUsage
from tui.exit_codes import ExitCode
from tui.output import print_json, print_rows, print_table, say, say_failures

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent import wire
    from tui.fleet import Fleet, Totals


def look(context: Context) -> Fleet:
    """Asks all nodes once."""
    return context.fleet()


def verdict(fleet: Fleet, *, quiet: bool = False) -> ExitCode:
    """Names the nodes that failed on stderr and chooses the exit code."""
    from tui.fetch import failures

    failed = failures(fleet)
    if not quiet:
        say_failures(failed)
    if not failed:
        return ExitCode.DONE
    return ExitCode.UNREACHABLE if len(failed) == len(fleet) else ExitCode.PARTLY


def nodes(context: Context, arguments: argparse.Namespace) -> ExitCode:
    """Lists nodes with use and money."""
    from tui.columns import NODE_COLUMNS
    from tui.records import node_record

    wanted = context.query(arguments.query)
    fleet, now = look(context), context.clock()
    views = [view for view in fleet if wanted(view, now)]
    names = [view.name for view in views]
    if arguments.sum:
        from tui.commands.sums import print_sums

        code, reached = print_sums(context, arguments, fleet, names, now), verdict(fleet)
        return reached if reached is not ExitCode.DONE else code
    if arguments.json:
        print_json([node_record(view, now) for view in views])
    else:
        print_rows(NODE_COLUMNS, views, now)
        say_totals(fleet.totals(now, names))
    return verdict(fleet)


def say_totals(totals: Totals, *, stdout: bool = False) -> None:
    """One line: nodes by state, GPUs, $ per hour and idle $ per hour."""
    from tui.columns import totals_money

    line = (
        f"{fmt.counted(totals.nodes, 'node')}: {totals.live:,} live, {totals.stale:,} stale, {totals.lost:,} lost; "
        f"{totals.gpus_held:,} of {fmt.counted(totals.gpus, 'GPU')} held; {totals_money(totals)}"
    )
    print(line) if stdout else say(line)


def gpus(context: Context, arguments: argparse.Namespace) -> ExitCode:
    """Lists the selected GPUs of all nodes."""
    from tui.columns import GPU_COLUMNS, GpuRow
    from tui.query_rows import GPU_WORDS
    from tui.records import gpu_record

    wanted = context.query(arguments.query, GPU_WORDS)
    fleet, now = look(context), context.clock()
    rows = [row for view in fleet for use in view.uses if wanted(row := GpuRow(view, use), now)]
    if arguments.json:
        print_json([{"node": row.node.name, **gpu_record(row.node, row.use)} for row in rows])
    else:
        print_rows(GPU_COLUMNS, rows, now)
        for view in fleet:
            if view.info and view.info.gpu_reason:
                say(f"{view.name}: {fmt.clean(view.info.gpu_reason)}")
    return verdict(fleet)


def alerts(context: Context, arguments: argparse.Namespace) -> ExitCode:
    """Lists the selected active alerts of all nodes, a silent node among them, and those of budgets."""
    from tui.alerts import all_alerts, message_text, severity_text
    from tui.query_rows import ALERT_WORDS, AlertLook
    from tui.records import alert_record

    wanted = context.query(arguments.query, ALERT_WORDS)
    fleet, now, at = look(context), context.clock(), context.now()
    budgets, whole = _of_budgets(context, at)
    looks = [AlertLook(alert, fleet[alert.node] if alert.node else None, at) for alert in all_alerts(fleet, now, at, budgets)]
    found = [look.alert for look in looks if wanted(look, now)]
    if arguments.json:
        unknown: dict[str, object] = {"node": None, "since": None, "fired_at": None}  # of a budget: nobody looked before
        print_json([alert_record(alert) | ({} if alert.node else unknown) for alert in found])
    elif found:
        titles = ("SEVERITY", "NODE", "RULE", "READING", "LIMIT", "SINCE", "$/H", "WHAT TO DO")
        cells = [
            (
                severity_text(alert),
                fmt.clean(alert.node) or fmt.UNKNOWN,
                alert.rule,
                fmt.clean(alert.reading or fmt.UNKNOWN),
                fmt.clean(alert.threshold or fmt.UNKNOWN),
                fmt.age((at - alert.since).total_seconds()) if alert.node else fmt.UNKNOWN,
                f"${alert.usd_per_hour}" if alert.usd_per_hour else fmt.UNKNOWN,
                fmt.clean(message_text(alert, at)),
            )
            for alert in found
        ]
        print_table(titles, cells, ("left",) * 5 + ("right", "right", "left"))
    else:
        say("no alerts")
    code = verdict(fleet)
    return ExitCode.PARTLY if code is ExitCode.DONE and not whole else code


def _of_budgets(context: Context, at: datetime) -> tuple[Sequence[wire.Alert], bool]:
    """What the budgets' thresholds say of the ledger as it is (nothing is synced for it); False where it cannot be read."""
    if not context.config.budgets or not context.paths.ledger_path(context.config).exists():
        return (), True
    from pricing.errors import PricingError
    from tui.budgets import alert_rows, states_of
    from tui.terms import pricing_of

    try:
        with context.open_ledger() as ledger:
            pricing = pricing_of(context, argparse.Namespace())
            return alert_rows(states_of(context.config.budgets, ledger, pricing, context.timezone_name(), at), (), ()), True
    except PricingError as error:
        say(f"rackrate: the alerts of budgets are missing: {error}")
        return (), False


def add(context: Context, arguments: argparse.Namespace) -> ExitCode:
    """Adds a node to config.toml after asking it who it is."""
    from tui.clients import client_factory

    url = arguments.url.rstrip("/")
    token_file = str(Path(arguments.token_file).expanduser().absolute()) if arguments.token_file else None
    node = NodeConfig(
        name=arguments.name or urlsplit(url).hostname or url,
        url=url,
        token_file=token_file,
        fingerprint=arguments.fingerprint,
        tags=tags_of(arguments.tag),
    )
    check_node(node, "rackrate add")
    if not arguments.no_check:
        info = asyncio.run(_ask(client_factory(context.paths)(node)))
        if not arguments.name:
            node = NodeConfig(
                name=info.node, url=url, token_file=token_file, fingerprint=arguments.fingerprint, tags=node.tags
            )
        say(_greeting(info))
    add_node(context.paths, node)
    say(f"added `{node.name}` to {context.paths.config_file}")
    return ExitCode.DONE


async def _ask(client):  # noqa: ANN001, ANN202 - agent.client is imported lazily
    try:
        return await client.node()
    finally:
        await client.aclose()


def _greeting(info) -> str:  # noqa: ANN001
    gpus = f"{len(info.gpus)} x {info.gpus[0].model}" if info.gpus else "no GPUs"
    priced = f"${info.usd_per_hour} an hour" if info.usd_per_hour else "no instance type: give it one in agent.toml to see its cost"
    kind = info.instance_type or priced
    return fmt.clean(f"{info.node}: {gpus}, {kind}")


def tags_of(pairs: list[str]) -> dict[str, str]:
    tags = {}
    for pair in pairs:
        key, found, value = pair.partition("=")
        if not found or not key:
            raise WrongUsage(f"--tag {pair}: a tag is written key=value.")
        tags[key] = value
    return tags


def remove(context: Context, arguments: argparse.Namespace) -> ExitCode:
    """Removes a node from config.toml; its usage stays in the ledger."""
    remove_node(context.paths, arguments.name)
    say(f"removed `{arguments.name}`; its usage stays in the ledger")
    return ExitCode.DONE
