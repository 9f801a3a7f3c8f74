"""A run over several nodes: a place on all of them or on none, then torch elastic on each with one rendezvous.

Invariant: after a refusal, a time-out or Ctrl-C nothing of the run is left on any node that answers; what does not answer
gives its place back by itself within a minute.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import random
import secrets
import socket
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec

from agent import wire
from agent.client import AgentClient, AgentRefused, ClientError
from tui import format as fmt
from tui.errors import RackrateError, WrongUsage
from tui.job_nodes import ClientFor, NoNode, Place, Refused
from tui.jobspec import Wanted, priced

RESERVE_SECONDS = 20.0
"""For all nodes to hold a place; a place is held for a minute."""
START_SECONDS = 30.0
RELEASE_SECONDS = 10.0
PORTS = range(20_000, 32_000)
"""Below the ports that systems give to outgoing connections."""
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


class Part(msgspec.Struct, frozen=True):
    """The job of one node."""

    place: Place
    job: wire.Job


def gang_id() -> str:
    """12 digits and small letters that sort by time, as an agent makes them for a job."""
    ticks = int(time.time() * 8)
    stamp = "".join(_ALPHABET[ticks >> shift & 31] for shift in range(30, -1, -5))
    return stamp + "".join(secrets.choice(_ALPHABET) for _ in range(5))


def gang_of(wanted: Wanted, id: str, *, host_here: bool = False) -> wire.Gang:
    """One node's part as it is submitted."""
    return wire.Gang(
        id=id,
        nodes=wanted.nodes,
        least_nodes=wanted.nodes if wanted.on_node_loss == "stop" else 1,
        host_here=host_here,
        processes_per_node=max(1, wanted.spec.gpus) if wanted.processes_per_node is None else wanted.processes_per_node,
    )


def endpoint_of(wanted: Wanted, places: Sequence[Place]) -> str:
    """HOST:PORT where they meet, on the first node. Raises `WrongUsage` where the others could not reach it."""
    host, port = _split(wanted.rendezvous) if wanted.rendezvous else (_host(places[0]), None)
    if not wanted.rendezvous and _is_loopback(host) and not all(_is_loopback(_host(place)) for place in places):
        raise WrongUsage(
            f"the nodes cannot meet: the address of {places[0].name} is {host}, which only it can reach; name one that the "
            "others can with --rendezvous HOST."
        )
    shown = f"[{host}]" if ":" in host else host
    return f"{shown}:{port or free_port(host)}"


def _split(text: str) -> tuple[str, int | None]:
    parts = urlsplit(f"//{text}")
    return parts.hostname or "", parts.port


def _host(place: Place) -> str:
    return urlsplit(place.node.url).hostname or ""


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def free_port(host: str) -> int:
    """A port by chance, and on this machine one that is free."""
    chosen = random.SystemRandom().sample(PORTS, 50)
    if _is_loopback(host):
        for port in chosen:
            with contextlib.suppress(OSError), socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
                return port
    return chosen[0]


async def run(
    places: Sequence[Place],
    wanted: Wanted,
    client_for: ClientFor,
    *,
    upload: str | None = None,
    reserve_seconds: float = RESERVE_SECONDS,
) -> list[Part]:
    """Reserves on all and starts all, the rendezvous on the first. Raises `Refused`, `NoNode` or `WrongUsage`.

    `upload`: `sha256:HEX` of what each of the nodes has got already.
    """
    id, endpoint = gang_id(), endpoint_of(wanted, places)
    async with contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(client_for(place.node)) for place in places]
        try:
            parts = await _reserve(places, clients, wanted, id, upload, reserve_seconds)
            return await _start(parts, clients, endpoint)
        except BaseException:  # also Ctrl-C: what was reserved must not stay
            await release(places, clients, id)
            raise


async def _reserve(
    places: Sequence[Place],
    clients: Sequence[AgentClient],
    wanted: Wanted,
    id: str,
    upload: str | None,
    seconds: float,
) -> list[Part]:
    """Phase one. Waits for all answers, so that all refusals are told."""
    specs = [
        priced(wanted.spec, place.usd_per_hour, gang=gang_of(wanted, id, host_here=place is places[0]), upload=upload)
        for place in places
    ]
    calls = [client.submit(spec, reserve=True) for client, spec in zip(clients, specs, strict=True)]
    answers = await _all(places, calls, seconds, "has not said within {:.0f} s whether it holds a place")
    return [Part(place, job) for place, job in zip(places, answers, strict=True)]


async def _start(parts: Sequence[Part], clients: Sequence[AgentClient], endpoint: str) -> list[Part]:
    """Phase two: all at once; who comes first waits for the others at the rendezvous."""
    calls = [client.start(part.job.id, endpoint) for client, part in zip(clients, parts, strict=True)]
    answers = await _all([part.place for part in parts], calls, START_SECONDS, "has not said within {:.0f} s that it starts")
    return [Part(part.place, job) for part, job in zip(parts, answers, strict=True)]


async def _all(places: Sequence[Place], calls: Sequence[Any], seconds: float, late: str) -> list[wire.Job]:
    async def one(call: Any) -> wire.Job:
        async with asyncio.timeout(seconds):
            return await call

    answers = await asyncio.gather(*map(one, calls), return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, (ClientError, RackrateError, TimeoutError)):
            raise answer
    faults = [(place, answer) for place, answer in zip(places, answers, strict=True) if isinstance(answer, Exception)]
    if faults:
        raise _refusal(faults, late.format(seconds))
    return [answer for answer in answers if isinstance(answer, wire.Job)]


def _refusal(faults: Sequence[tuple[Place, Exception]], late: str) -> RackrateError:
    parts, statuses = [], []
    for place, fault in faults:
        said = late if isinstance(fault, TimeoutError) else fault.text if isinstance(fault, AgentRefused) else str(fault)
        parts.append(f"{place.name}: {fmt.clean(said).rstrip('.')}")
        statuses.append(fault.status if isinstance(fault, AgentRefused) else 0)
    sentence = f"{'; '.join(parts)}. Nothing runs: the places on the other nodes are given back."
    if not any(statuses):
        return NoNode(sentence)
    return Refused(sentence, 400 if 400 in statuses else 409)


async def release(places: Sequence[Place], clients: Sequence[AgentClient], id: str) -> None:
    """Ends every part that a node knows, also one whose answer never came."""

    async def one(client: AgentClient) -> None:
        with contextlib.suppress(ClientError, RackrateError, TimeoutError):
            async with asyncio.timeout(RELEASE_SECONDS):
                for job in (await client.jobs(0)).jobs:
                    if job.gang == id and job.state != "ended":
                        await client.cancel(job.id, force=True)

    await asyncio.gather(*(one(client) for client in clients))
