"""`jobs`, `job show|logs|cancel|signal|wait`: what became of jobs, on whichever node they are.

Invariant: a node that does not answer is said, and changes the exit code; a log on a terminal can colour text and do
nothing else; what follows a job ends with its exit code.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tui import format as fmt
from tui.commands.context import Context
from tui.commands.follow import LogOut, asking, end_line, follow_parts
from tui.errors import WrongUsage
from tui.exit_codes import ExitCode
from tui.output import print_json, print_rows, say

if TYPE_CHECKING:
    from agent import wire
    from agent.client import AgentClient
    from tui.config import NodeConfig
    from tui.job_find import Found, Listing

MOST_ENDED = 1000


def usage(context: Context, arguments: argparse.Namespace) -> int:
    """`rackrate job` alone."""
    raise WrongUsage("what about the job? `rackrate job show|logs|curves|compare|cancel|signal|wait JOB`; `rackrate jobs` lists them.")


def jobs(context: Context, arguments: argparse.Namespace) -> int:
    """Lists jobs of all nodes."""
    from tui.job_find import list_jobs
    from tui.job_rows import JOB_COLUMNS, JOB_WORDS
    from tui.job_text import job_record

    selects = context.query(arguments.query, JOB_WORDS)
    every = arguments.all or _of_ended(context, arguments.query)
    with context.nodes() as nodes:
        listing = asyncio.run(list_jobs(nodes, context.client_for, MOST_ENDED if every else 0))
    _say_errors(listing)
    for name, problem in listing.problems.items():
        say(f"{fmt.clean(name)}: {fmt.clean(problem)}")
    now = time.monotonic()
    rows = [row for row in _views(listing.found, now) if selects(row, now)]
    if arguments.json:
        print_json([job_record(row.node.name, row.job) for row in rows])
    elif rows:
        print_rows(JOB_COLUMNS, rows, now)
    else:
        say("no jobs" if every else "no jobs run or wait; --all lists those that ended")
    return listing.code


def _of_ended(context: Context, words: Sequence[str]) -> bool:
    """Whether the query asks for what only an ended job has: a cause, how it ended, any state but some."""
    from tui.job_rows import JOB_WORDS
    from tui.query import parse_tree
    from tui.query_tree import Pattern, Text, leaves

    text = " ".join(words)
    for leaf, negated in leaves(parse_tree(text, JOB_WORDS, context.config.filters if "@" in text else {})):
        if isinstance(leaf, Text | Pattern) and leaf.key == "cause":
            return True
        if isinstance(leaf, Text | Pattern) and leaf.key == "state":
            if negated or isinstance(leaf, Pattern) or leaf.text in ("ended", "done", "failed"):
                return True
    return False


def _views(found: Sequence[Found], now: float) -> list[Any]:
    """As the app has them, with the clock of this machine: the nodes' own is not asked."""
    from datetime import UTC, datetime

    from agent import wire
    from tui.fleet import Fleet
    from tui.fleet_jobs import JobView

    fleet = Fleet()
    rows = []
    for one in found:
        if one.node.name not in fleet:
            fleet.add(one.node.name, one.node.url, one.node.tags)
            clock = wire.Sample(node=one.node.name, sequence=0, taken_at=datetime.now(UTC), gpus=())
            fleet.apply(one.node.name, wire.SampleEvent(sample=clock), now)
        rows.append(JobView(fleet[one.node.name], one.job, now))
    return rows


def _say_errors(listing: Listing) -> None:
    for name, error in listing.errors.items():
        say(f"rackrate: {fmt.clean(name)}: {error}")


async def _find(context: Context, nodes: Sequence[NodeConfig], texts: Sequence[str]) -> list[Found]:
    """The jobs that are meant, each once, with its newest state. Nodes that do not answer are said."""
    from tui.job_find import check_typed, find_all, list_jobs

    for text in texts:
        check_typed(text)
    listing = await list_jobs(nodes, context.client_for)
    _say_errors(listing)
    found = [one for text in texts for one in await find_all(listing, nodes, context.client_for, text)]
    return list({(one.node.name, one.job.id): one for one in found}.values())


def _one(found: list[Found], text: str) -> Found:
    if len(found) > 1:
        from tui.job_find import ambiguous

        raise WrongUsage(ambiguous(text, found))
    return found[0]


def show(context: Context, arguments: argparse.Namespace) -> int:
    """Prints everything about a job, or about each part of a run over several nodes."""
    from tui.job_text import job_lines, job_record

    async def ask(nodes: Sequence[NodeConfig]) -> list[tuple[NodeConfig, wire.Job]]:
        found = await _find(context, nodes, [arguments.job])
        jobs = []
        for one in found:
            async with context.client_for(one.node) as client:
                jobs.append((one.node, await client.job(one.job.id)))
        return jobs

    with context.nodes() as nodes:
        found = asking(ask(nodes))
    if arguments.json:
        records = [job_record(node.name, job) for node, job in found]
        print_json(records[0] if len(records) == 1 else records)
    else:
        print("\n\n".join("\n".join(job_lines(node.name, job)) for node, job in found))
    return ExitCode.DONE


def cancel(context: Context, arguments: argparse.Namespace) -> int:
    """Cancels jobs; of a run over several nodes all parts."""
    verb = "Kill by force" if arguments.force else "Stop"
    return _change(context, arguments, verb, lambda client, id: client.cancel(id, force=arguments.force))


def signal(context: Context, arguments: argparse.Namespace) -> int:
    """Signals the first process of jobs."""
    from tui.jobspec import signal_name

    name = signal_name(arguments.signal, "signal")
    return _change(context, arguments, f"Send {fmt.clean(name)} to", lambda client, id: client.signal(id, name))


def _change(context: Context, arguments: argparse.Namespace, verb: str, change: Callable[[AgentClient, str], Any]) -> int:
    """Does it to each; one that refuses does not stop the others. More than ten are asked about first."""
    from tui.job_text import job_record

    with context.nodes() as nodes:
        meant = _still(asking(_find(context, nodes, arguments.job)))
        _agree(meant, verb, yes=arguments.yes, force=getattr(arguments, "force", False))
        done, faults = asyncio.run(_each(context, meant, change))
    if arguments.json:
        print_json([job_record(node.name, job) for node, job in done])
    else:
        for node, job in done:
            print(f"{job.id}  {fmt.clean(node.name)}  {job.state}{f' ({fmt.clean(job.stopping)})' if job.stopping else ''}")
    if faults and done:
        return ExitCode.PARTLY
    return faults[0] if faults else ExitCode.DONE


def _agree(meant: Sequence[Found], verb: str, *, yes: bool, force: bool) -> None:
    """Of up to ten jobs their names on the command line are the answer."""
    from tui.blast import TYPED_ABOVE, counted, stop_sentences
    from tui.commands.agree import agree

    if len(meant) > TYPED_ABOVE:
        now = time.monotonic()
        views = _views(meant, now)
        sentences = stop_sentences(views, now, force=force) if not verb.startswith("Send") else []
        agree(f"{verb} {counted(len(meant), 'job')}?", sentences, len(meant), yes=yes)


async def _each(
    context: Context, meant: Sequence[Found], change: Callable[[AgentClient, str], Any]
) -> tuple[list[tuple[NodeConfig, wire.Job]], list[int]]:
    from agent.client import AgentRefused, ClientError

    done: list[tuple[NodeConfig, wire.Job]] = []
    faults: list[int] = []
    for found in meant:
        try:
            async with context.client_for(found.node) as client:
                done.append((found.node, await change(client, found.job.id)))
        except ClientError as error:
            text = fmt.clean(error.text) if isinstance(error, AgentRefused) else str(error)
            say(f"rackrate: {fmt.clean(found.node.name)}: {text}")
            faults.append(_fault_code(error))
    return done, faults


def _still(found: list[Found]) -> list[Found]:
    """Of a run over several nodes the parts that have not ended, as long as there is one."""
    alive = {one.job.gang for one in found if one.job.state != "ended"}
    return [one for one in found if one.job.gang is None or one.job.state != "ended" or one.job.gang not in alive]


def _fault_code(error: Exception) -> int:
    from agent.client import AgentRefused

    if not isinstance(error, AgentRefused):
        return ExitCode.UNREACHABLE
    return ExitCode.USAGE if error.status == 400 else ExitCode.FAILED


def wait(context: Context, arguments: argparse.Namespace) -> int:
    """Waits until all have ended; the exit code is that of the first that did not end well, in the order given."""
    from tui.job_follow import exit_code, wait_for_end
    from tui.job_text import job_record

    async def one(found: Found) -> wire.Job:
        async with context.client_for(found.node) as client:
            return await wait_for_end(client, found.job.id, lambda text: say(f"rackrate: {fmt.clean(found.node.name)}: {text}"))

    async def ask(nodes: Sequence[NodeConfig]) -> list[tuple[NodeConfig, wire.Job]]:
        found = await _find(context, nodes, arguments.job)
        return list(zip([each.node for each in found], await asyncio.gather(*map(one, found)), strict=True))

    with context.nodes() as nodes:
        ended = asking(ask(nodes))
    if arguments.json:
        print_json([job_record(node.name, job) for node, job in ended])
    else:
        for node, job in ended:
            say(end_line(node, job))
    return next((code for _, job in ended if (code := exit_code(job))), 0)


def logs(context: Context, arguments: argparse.Namespace) -> int:
    """Prints a job's log; with -f until it has ended."""
    attempt = _number(arguments.attempt, "--attempt", 1)
    lines = _number(arguments.tail, "--tail", 0)
    with context.nodes() as nodes:
        found = _one(asking(_find(context, nodes, [arguments.job])), arguments.job)
        out = LogOut(raw=arguments.raw)
        with out:
            if arguments.follow:
                parts = [(found.node, found.job.id)]
                return follow_parts(context, parts, out=out, only=attempt, lines=lines)
            return asking(_print_log(context, found, attempt, lines, out))


def _number(text: str | None, option: str, least: int) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and least <= int(text) <= 10_000_000):
        raise WrongUsage(f"{option}: {text!r} is no whole number of at least {least}.")
    return int(text)


async def _print_log(context: Context, found: Found, attempt: int | None, lines: int | None, out: LogOut) -> int:
    from tui.job_follow import PAGE_BYTES, tail

    which = attempt or found.job.attempt
    if not which:
        say(f"job {found.job.id} has not started yet{f': {fmt.clean(found.job.reason)}' if found.job.reason else ''}")
        return ExitCode.DONE
    async with context.client_for(found.node) as client:
        if lines is not None:
            out.write((await tail(client, found.job.id, which, lines))[0])
            return ExitCode.DONE
        offset = 0
        while True:
            page = await client.log(found.job.id, offset, limit=PAGE_BYTES, attempt=which)
            if page.offset > offset:
                say(f"({page.offset - offset:,} bytes of the log are no longer kept)")
            out.write(page.text)
            if page.next_offset <= max(offset, page.offset):
                return ExitCode.DONE
            offset = page.next_offset
