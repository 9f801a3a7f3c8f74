"""`node drain|undrain|pause-alerts|resume-alerts`: orders to whole nodes, chosen by name or by a query.

Invariant: what would be touched is printed before anything is asked of a node that changes it; a node that refuses or does not
answer does not stop the others, and changes the exit code.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from tui import blast
from tui import format as fmt
from tui.commands.agree import agree
from tui.commands.context import Context
from tui.errors import Failed, WrongUsage
from tui.exit_codes import ExitCode
from tui.node_orders import pause_order, pause_seconds, reason_of
from tui.output import print_json, say

if TYPE_CHECKING:
    from agent import wire
    from agent.client import AgentClient
    from tui.config import NodeConfig
    from tui.fleet import Fleet, NodeView

AT_ONCE = 16
Order = Callable[["AgentClient", "NodeView"], Awaitable["wire.NodeInfo"]]


def usage(context: Context, arguments: argparse.Namespace) -> int:
    """`rackrate node` alone."""
    raise WrongUsage("what about the node? `rackrate node drain|undrain|pause-alerts|resume-alerts NODE`; `rackrate nodes` lists them.")


def drain(context: Context, arguments: argparse.Namespace) -> int:
    """No job starts there any more."""
    reason = reason_of(arguments.reason)

    async def order(client: AgentClient, view: NodeView) -> wire.NodeInfo:
        return await client.drain(reason, who=blast.me())

    return _carry_out(context, arguments, "Drain", order, blast.drain_sentences)


def undrain(context: Context, arguments: argparse.Namespace) -> int:
    """Jobs start there again."""

    async def order(client: AgentClient, view: NodeView) -> wire.NodeInfo:
        return await client.undrain()

    return _carry_out(context, arguments, "Undrain", order, blast.undrain_sentences)


def pause_alerts(context: Context, arguments: argparse.Namespace) -> int:
    """Alerts call nobody for a while."""
    seconds, reason = pause_seconds(arguments.length), reason_of(arguments.reason)

    async def order(client: AgentClient, view: NodeView) -> wire.NodeInfo:
        return await client.pause_alerts(pause_order(seconds, reason, arguments.rule, uuid_of(view, arguments.gpu)))

    def sentences(views: Sequence[NodeView], now: float) -> list[blast.Sentence]:
        return blast.pause_sentences(views, pause_order(seconds, reason, arguments.rule, uuid_of(views[0], arguments.gpu)))

    return _carry_out(context, arguments, f"Pause alerts for {blast.length(seconds)} of", order, sentences)


def resume_alerts(context: Context, arguments: argparse.Namespace) -> int:
    """Ends pauses: all of a node, or those of a rule, or of a GPU."""

    def meant(view: NodeView) -> list[wire.AlertPause]:
        pauses, uuid = view.info.pauses if view.info is not None else (), uuid_of(view, arguments.gpu)
        return [one for one in pauses if arguments.rule in (None, one.rule) and uuid in (None, one.gpu)]

    async def order(client: AgentClient, view: NodeView) -> wire.NodeInfo:
        if arguments.rule is None and arguments.gpu is None:
            return await client.resume_alerts()
        for pause in meant(view):
            await client.resume_alerts(pause.id)
        return await client.node()

    def sentences(views: Sequence[NodeView], now: float) -> list[blast.Sentence]:
        return [(f"It ends {blast.counted(sum(len(meant(view)) for view in views), 'pause')}.", "text")]

    return _carry_out(context, arguments, "Resume alerts of", order, sentences)


def uuid_of(view: NodeView, gpu: str | None) -> str | None:
    """Of a GPU named by its index or UUID. Raises `WrongUsage`."""
    if gpu is None:
        return None
    for one in view.info.gpus if view.info is not None else ():
        if gpu in (one.uuid, str(one.index)):
            return one.uuid
    raise WrongUsage(f"{fmt.clean(view.name)} has no GPU `{fmt.clean(gpu)[:60]}`; `rackrate gpus node:{fmt.clean(view.name)}` lists them.")


# -- choosing, asking, doing -------------------------------------------------------------------------------------------


def _carry_out(
    context: Context, arguments: argparse.Namespace, verb: str, order: Order,
    sentences: Callable[[Sequence[NodeView], float], list[blast.Sentence]],
) -> int:  # fmt: skip
    with context.nodes() as nodes:
        fleet = asyncio.run(_look(context, chosen(context, arguments.node, nodes)))
        now = time.monotonic()
        views = _selected(context, arguments.node, fleet, now)
        known = [view for view in views if view.info is not None]
        names = blast.names_text([view.name for view in views])
        agree(f"{verb} {names}?", sentences(known, now) if known else [], len(views), yes=arguments.yes)
        configured = {node.name: node for node in nodes}
        answers = asyncio.run(_order_all([(configured[view.name], view) for view in views], context, order))
    return report(answers, as_json=arguments.json)


def chosen(context: Context, words: Sequence[str], nodes: Sequence[NodeConfig]) -> list[NodeConfig]:
    """Those that are named, or all where the words are a query."""
    by_name = {node.name: node for node in nodes}
    if all(word in by_name for word in words):
        return [by_name[word] for word in dict.fromkeys(words)]
    context.query(words)  # a wrong one is said before anybody is asked
    return list(nodes)


def _selected(context: Context, words: Sequence[str], fleet: Fleet, now: float) -> list[NodeView]:
    if all(word in fleet for word in words):
        return [fleet[word] for word in dict.fromkeys(words)]
    for view in fleet:
        if view.error:
            say(f"rackrate: {fmt.clean(view.name)}: {fmt.clean(view.error)}")
    wanted = context.query(words)
    if not (found := [view for view in fleet if wanted(view, now)]):
        raise Failed(f"no node is named `{fmt.clean(' '.join(words))}`, and none matches it as a query; `rackrate nodes` lists them.")
    return found


async def _look(context: Context, nodes: Sequence[NodeConfig]) -> Fleet:
    """The nodes with the jobs that they run and that wait there."""
    from agent import wire
    from tui.fetch import fetch
    from tui.job_find import list_jobs

    fleet = await fetch(nodes, context.client_for, context.catalog())
    reached = [node for node in nodes if not fleet[node.name].error]
    for found in (await list_jobs(reached, context.client_for, 0)).found:
        fleet.apply(found.node.name, wire.JobEvent(job=found.job), time.monotonic())
    return fleet


Answer = tuple[str, "wire.NodeInfo | Exception"]


async def _order_all(chosen: Sequence[tuple[NodeConfig, NodeView]], context: Context, order: Order) -> list[Answer]:
    from agent.client import ClientError
    from tui.errors import RackrateError

    gate = asyncio.Semaphore(AT_ONCE)

    async def one(node: NodeConfig, view: NodeView) -> Answer:
        if view.info is None and view.error:  # it did not answer a moment ago, and would be waited for again
            return node.name, ClientError(view.error)
        async with gate:
            try:
                async with context.client_for(node) as client:
                    return node.name, await order(client, view)
            except (ClientError, RackrateError) as error:
                return node.name, error

    return list(await asyncio.gather(*(one(node, view) for node, view in chosen)))


def report(answers: Sequence[Answer], *, as_json: bool) -> int:
    """Prints what became of each node; the exit code."""
    faults: list[int] = []
    records: list[dict[str, Any]] = []
    for name, answer in answers:
        if isinstance(answer, Exception):
            text = fmt.clean(getattr(answer, "text", None) or str(answer))
            say(f"rackrate: {fmt.clean(name)}: {text}")
            faults.append(fault_code(answer))
            records.append({"node": name, "drain": None, "pauses": None, "error": text})
        else:
            records.append(_record(name, answer))
            if not as_json:
                print(f"{fmt.clean(name)}  {_standing(answer)}")
    if as_json:
        print_json(records)
    if faults and len(faults) < len(answers):
        return ExitCode.PARTLY
    return faults[0] if faults else ExitCode.DONE


def _record(name: str, info: wire.NodeInfo) -> dict[str, Any]:
    from tui.job_text import filled

    return {"node": name, "drain": filled(info.drain), "pauses": filled(info.pauses), "error": None}


def _standing(info: wire.NodeInfo) -> str:
    """`drained: new fan`, `takes jobs`, `takes jobs; alerts paused until 14:05`."""
    because = f": {fmt.clean(info.drain.reason)}" if info.drain is not None and info.drain.reason else ""
    parts = [f"drained{because}" if info.drain is not None else "takes jobs"]
    for pause in info.pauses:
        parts.append(f"{fmt.clean(pause.rule or 'all alerts')} paused until {pause.until:%Y-%m-%d %H:%M} UTC")
    return "; ".join(parts)


def fault_code(error: Exception) -> int:
    from agent.client import AgentRefused, ClientError

    if isinstance(error, AgentRefused):
        return ExitCode.USAGE if error.status == 400 else ExitCode.FAILED
    return ExitCode.UNREACHABLE if isinstance(error, ClientError) else int(getattr(error, "exit_code", ExitCode.FAILED))
