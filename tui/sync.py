"""Brings usage rows from the agents into the ledger, each exactly once.

Invariant: what a page brings and how far it was taken is one transaction of the ledger, so a crash on either side, or
two syncs at once, never count a row twice or lose one. A node that fails never stops the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, Protocol, TypeVar

from agent import wire
from agent.client import ClientError
from pricing.errors import (
    LedgerDamaged,
    LedgerError,
    LedgerFull,
    LedgerLocked,
    PricingError,
)
from pricing.ledger import Ledger, Taken
from pricing.usage import CPU, WHOLE_SHARE, Interruption, Owned, Placed, Usage
from tui.errors import RackrateError

PAGE_ROWS = 5_000
AT_ONCE = 64
"""Nodes that are asked at the same time."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_MIB = 1 << 20


class Named(Protocol):
    """What a node must have: the name it is configured by."""

    @property
    def name(self) -> str: ...


class UsageClient(Protocol):
    """The part of `agent.client.AgentClient` that a sync needs."""

    async def usage(self, after: int = 0, limit: int = 1000) -> wire.UsagePage: ...

    async def aclose(self) -> None: ...


N = TypeVar("N", bound=Named)
T = TypeVar("T")


class NodeSync(NamedTuple):
    """What became of one node, under its configured name. Rows counted before an error are in the ledger."""

    node: str
    new_rows: int
    missing_rows: int
    """Rows that the agent threw away before they were taken."""
    error: str | None


async def sync(
    nodes: Sequence[N], ledger: Ledger, *, client_for: Callable[[N], UsageClient],
    on_progress: Callable[[NodeSync], None] = lambda result: None,
) -> list[NodeSync]:  # fmt: skip
    """Takes all rows that the agents have and the ledger has not; one result per node, in their order.

    `on_progress` is given each node's as soon as it is done.

    The ledger is written in a thread, one page at a time. Nothing is raised for a node: see `error`. A fault of the
    ledger itself (LedgerFull, LedgerLocked, LedgerDamaged) is no node's: it is raised once all nodes are done.
    """
    gate, writing = asyncio.Semaphore(AT_ONCE), asyncio.Lock()
    faults: list[LedgerError] = []

    async def one(node: N) -> NodeSync:
        async with gate:
            each = _Sync(node.name, ledger, writing)
            try:
                result = await each.run(node, client_for)
            except (LedgerFull, LedgerLocked, LedgerDamaged) as fault:
                faults.append(fault)
                return each.result(str(fault))
            on_progress(result)
            return result

    results = list(await asyncio.gather(*(one(node) for node in nodes)))
    if faults:
        raise faults[0]
    return results


class _Broken(Exception):
    """The agent's answers contradict each other; a sentence."""


class _Sync:
    """One node's sync."""

    def __init__(self, name: str, ledger: Ledger, writing: asyncio.Lock) -> None:
        self._name = name
        self._ledger = ledger
        self._writing = writing
        self._new = self._missing = 0

    async def run(self, node: N, client_for: Callable[[N], UsageClient]) -> NodeSync:
        error: str | None = None
        try:
            client = client_for(node)
            try:
                await self._pages(client)
            finally:
                await client.aclose()
        except (LedgerFull, LedgerLocked, LedgerDamaged):
            raise
        except (ClientError, RackrateError, PricingError, _Broken) as fault:
            error = str(fault)
        except Exception as fault:  # whatever one agent sends must not stop the sync of the others
            error = f"its usage could not be taken ({type(fault).__name__}: {fault})"
        return self.result(error)

    def result(self, error: str | None) -> NodeSync:
        """What became of it so far."""
        return NodeSync(self._name, self._new, self._missing, error)

    async def _pages(self, client: UsageClient) -> None:
        page, cursor = await self._first(client)
        while True:
            if page.last_sequence < cursor:
                raise _Broken(
                    f"its usage record ends at row {page.last_sequence}, but {cursor} were taken from it before: was its "
                    "state directory restored from a copy? Remove usage.db there, so that it begins a new record."
                )
            await self._take(page)
            reached = await self._cursor(page)
            if reached >= page.last_sequence:
                return
            if reached == cursor:
                raise _Broken(f"it says that it has rows up to {page.last_sequence}, but sends none after {cursor}.")
            cursor = reached
            page = await client.usage(cursor, PAGE_ROWS)

    async def _first(self, client: UsageClient) -> tuple[wire.UsagePage, int]:
        """The first page after the cursor. Which record the agent writes is known only once it has answered."""
        known = await self._ledger_call(self._ledger.newest_meter, self._name)
        guess = known[1] if known else 0
        page = await client.usage(guess, PAGE_ROWS if known else 1)
        cursor = await self._cursor(page)
        if cursor != guess or (not known and page.last_sequence > cursor + len(page.rows)):
            page = await client.usage(cursor, PAGE_ROWS)
        return page, cursor

    async def _cursor(self, page: wire.UsagePage) -> int:
        return await self._ledger_call(self._ledger.cursor, page.node, page.meter)

    async def _take(self, page: wire.UsagePage) -> None:
        taken = await self._ledger_call(_take, self._ledger, page, datetime.now(UTC))
        self._new += taken.new
        self._missing += taken.missing

    async def _ledger_call(self, call: Callable[..., T], *arguments: object) -> T:
        async with self._writing:
            return await asyncio.to_thread(call, *arguments)


def _take(ledger: Ledger, page: wire.UsagePage, noticed_at: datetime) -> Taken:
    return ledger.take(
        page.node,
        page.meter,
        usage_rows(page.rows),
        [placed(one) for one in page.placements],
        page.first_sequence,
        last_sequence=page.last_sequence,
        noticed_at=noticed_at,
        interruptions=[interruption(one) for one in page.interruptions],
    )


def usage_rows(rows: Sequence[wire.UsageRow]) -> list[Usage]:
    """Wire rows as the ledger takes them. LedgerError for a share or time finer than the ledger keeps."""
    return [
        Usage(
            row.sequence,
            _milliseconds(row.starts_at, row),
            _milliseconds(row.ends_at, row),
            row.gpu,
            row.kind,
            row.reason,
            _millionths(row),
            row.user,
            row.project,
            row.job,
            row.utilization_ratio,
            None if row.energy_joules is None else round(row.energy_joules * 1000),
            row.energy_source,
            row.placement,
            *(_cpu(row) if row.kind == CPU else ()),
        )
        for row in rows
    ]


def _cpu(row: wire.UsageRow) -> tuple[str | None, int, int]:
    """What it is taken from, millionths of a vCPU, MiB."""
    vcpus = (row.vcpus or 0) * WHOLE_SHARE
    mib, rest = divmod(row.memory_bytes or 0, _MIB)
    if vcpus != int(vcpus) or rest:
        raise LedgerError(f"node {row.node}: row {row.sequence} has finer parts of a vCPU or of the memory than the ledger keeps.")
    return row.taken_from, int(vcpus), mib


def _milliseconds(instant: datetime, row: wire.UsageRow) -> int:
    whole, rest = divmod(instant - _EPOCH, _MILLISECOND)
    if rest:
        raise LedgerError(f"node {row.node}: row {row.sequence} has a time finer than a millisecond ({instant}).")
    return whole


def _millionths(row: wire.UsageRow) -> int:
    millionths = row.share * WHOLE_SHARE
    if millionths != int(millionths):
        raise LedgerError(f"node {row.node}: row {row.sequence} has a share of more than six places ({row.share}).")
    return int(millionths)


def interruption(told: wire.Interruption) -> Interruption:
    """What a cloud announced, as the ledger keeps it."""
    return Interruption(
        told.number, told.cloud, told.kind, _floor(told.noticed_at), _floor(told.at),
        None if told.booted_at is None else _floor(told.booted_at), told.withdrawn,
    )  # fmt: skip


def _floor(instant: datetime) -> int:
    return (instant - _EPOCH) // _MILLISECOND


def placed(placement: wire.Placement) -> Placed:
    """What the node was, as the ledger keeps it."""
    owned = placement.on_premises
    return Placed(
        number=placement.id,
        node=placement.node,
        cloud=placement.cloud,
        region=placement.region,
        zone=placement.zone,
        instance_type=placement.instance_type,
        purchase=placement.purchase,
        usd_per_hour=placement.usd_per_hour,
        on_premises=owned
        and Owned(owned.purchase_usd, owned.years, owned.power_watts, owned.power_usd_per_kwh),
        gpu_count=placement.gpu_count,
        gpu_model=placement.gpu_model,
        tags=placement.tags,
        vcpus=placement.vcpus,
        memory_bytes=placement.memory_bytes,
    )
