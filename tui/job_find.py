"""Finds jobs on all nodes by what a person types: an id, its beginning, a name, or the id of a run over several nodes.

Invariant: what fits more than one job is never guessed: the sentence names the candidates. A node that does not answer is
said, because the job may be there.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from agent import wire
from agent.client import AgentClient, AgentRefused, ClientError
from tui import format as fmt
from tui.config import NodeConfig
from tui.errors import Failed, RackrateError, WrongUsage
from tui.exit_codes import ExitCode

AT_ONCE = 64
ENDED = 200
"""Ended jobs of each node that are looked through."""
SHOWN = 5
_TYPED = re.compile(r"[^\s/\\]{1,128}")
_PREFIX = re.compile(r"[0-9a-z]{1,12}(_[0-9]{0,6})?", re.ASCII)
ClientFor = Callable[[NodeConfig], AgentClient]


class NotFound(Failed):
    """No job of this name is on the nodes that answered."""


class Found(NamedTuple):
    node: NodeConfig
    job: wire.Job


class Listing(NamedTuple):
    """What all nodes said."""

    found: tuple[Found, ...]
    errors: dict[str, str]
    """Node -> why it could not be asked."""
    problems: dict[str, str]
    """Node -> why no jobs can run there."""
    nodes: int

    @property
    def code(self) -> ExitCode:
        if not self.errors:
            return ExitCode.DONE
        return ExitCode.UNREACHABLE if len(self.errors) == self.nodes else ExitCode.PARTLY


async def list_jobs(nodes: Sequence[NodeConfig], client_for: ClientFor, ended: int = ENDED) -> Listing:
    """Asks all nodes at once."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(node: NodeConfig) -> wire.JobList | str:
        async with gate:
            try:
                async with client_for(node) as client:
                    return await client.jobs(ended)
            except (ClientError, RackrateError) as error:
                return str(error)

    answers = await asyncio.gather(*(one(node) for node in nodes))
    lists = [(node, answer) for node, answer in zip(nodes, answers, strict=True) if isinstance(answer, wire.JobList)]
    return Listing(
        tuple(Found(node, job) for node, listed in lists for job in listed.jobs),
        {node.name: answer for node, answer in zip(nodes, answers, strict=True) if isinstance(answer, str)},
        {node.name: listed.problem for node, listed in lists if listed.problem},
        len(nodes),
    )


def check_typed(text: str) -> str:
    """Raises `WrongUsage` for what can be no job, before anybody is asked."""
    if not _TYPED.fullmatch(text) or text in (".", ".."):
        raise WrongUsage(f"{fmt.clean(text)[:80]!r} is no id or name of a job; `rackrate jobs` lists them.")
    return text


async def find(listing: Listing, nodes: Sequence[NodeConfig], client_for: ClientFor, text: str) -> Found:
    """The one job that `text` means. Raises `NotFound` or `WrongUsage`."""
    matches = matching(listing, text)
    if len(matches) > 1:
        raise WrongUsage(ambiguous(text, matches))
    if matches:
        return matches[0]
    reached = [node for node in nodes if node.name not in listing.errors]
    if re.fullmatch(wire.JOB_ID, text, re.ASCII) and (found := await _ask_all(reached, client_for, text)):
        return found
    raise not_found(listing, text)


async def find_all(listing: Listing, nodes: Sequence[NodeConfig], client_for: ClientFor, text: str) -> tuple[Found, ...]:
    """As `find`; the id of a run over several nodes, its beginning, or its name means all its parts.

    Of those that cannot be asked nothing is known.
    """
    parts = tuple(found for found in listing.found if found.job.gang is not None and found.job.gang == text)
    matches = matching(listing, text)
    if not parts and len({found.job.gang or found.job.id for found in matches}) == 1:
        parts = matches
    return parts or (await find(listing, nodes, client_for, text),)


def with_parts(listing: Listing, found: Sequence[Found]) -> tuple[Found, ...]:
    """What was found, and of a run over several nodes the other parts too."""
    gangs = {one.job.gang for one in found} - {None}
    known = {(one.node.name, one.job.id) for one in found}
    return (*found, *(one for one in listing.found if one.job.gang in gangs and (one.node.name, one.job.id) not in known))


async def _ask_all(nodes: Sequence[NodeConfig], client_for: ClientFor, id: str) -> Found | None:
    """Of a job that ended so long ago that no list has it."""

    async def one(node: NodeConfig) -> Found | None:
        try:
            async with client_for(node) as client:
                return Found(node, await client.job(id))
        except (AgentRefused, ClientError, RackrateError):
            return None

    answers = await asyncio.gather(*(one(node) for node in nodes))
    return next((answer for answer in answers if answer is not None), None)


def matching(listing: Listing, text: str) -> tuple[Found, ...]:
    """Whole id, else the beginning of one, else a name (of several jobs of a name the only one that has not ended)."""
    exact = tuple(found for found in listing.found if found.job.id == text)
    if exact:
        return exact
    if _PREFIX.fullmatch(text):
        begun = [found for found in listing.found if found.job.id.startswith(text) or (found.job.gang or "").startswith(text)]
        arrays = {found.job.id for found in begun}
        if alone := tuple(found for found in begun if found.job.array not in arrays):
            return alone
    named = tuple(found for found in listing.found if found.job.name == text and found.job.array is None)
    running = tuple(found for found in named if found.job.state != "ended")
    return running if len(running) == 1 else named


def ambiguous(text: str, matches: Sequence[Found]) -> str:
    shown = ", ".join(f"{found.job.id} ({_described(found)})" for found in matches[:SHOWN])
    more = f" and {len(matches) - SHOWN} more" if len(matches) > SHOWN else ""
    return f"{text} could be {len(matches)} jobs: {shown}{more}; type more of the id."


def _described(found: Found) -> str:
    name = f"{fmt.clean(found.job.name)}, " if found.job.name else ""
    return f"{name}{found.job.state} on {fmt.clean(found.node.name)}"


def not_found(listing: Listing, text: str) -> NotFound:
    if not listing.errors:
        return NotFound(f"there is no job {text}; `rackrate jobs --all` lists them.")
    error = NotFound(f"there is no job {text} on the nodes that answered; {', '.join(map(fmt.clean, listing.errors))} did not.")
    error.exit_code = listing.code
    return error
