"""Rows from agents into the ledger: each once, page by page, whatever one of the nodes does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest

from agent import wire
from agent.client import Unreachable
from agent.simulate import backfill, build_nodes, close_nodes
from agent.simulation.demo import plan_demo
from pricing.attribution import attribute
from pricing.catalog import Catalog
from pricing.errors import LedgerError, LedgerLocked
from pricing.ledger import Ledger
from pricing.ledger_dictionary import read_placements
from pricing.usage import WHOLE_SHARE
from tests.support.usage import content
from tui.errors import ConfigurationError
from tui.sync import NodeSync, placed, sync, usage_rows

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
LAST_PAGE = 10_000


@dataclass(frozen=True)
class Node:
    name: str


def wire_row(sequence: int, node: str = "gpu-01", **changes: object) -> wire.UsageRow:
    starts_at = START + timedelta(seconds=10 * sequence)
    row = wire.UsageRow(
        node=node, sequence=sequence, starts_at=starts_at, ends_at=starts_at + timedelta(seconds=10), gpu="GPU-0", kind="held",
        share=Decimal(1), user="ann", project="vision", job=f"job-{sequence // 100}", gpu_seconds=Decimal(10),
        utilization_ratio=0.5, energy_joules=1234.567, energy_source="counter", placement=1,
    )  # fmt: skip
    return msgspec.structs.replace(row, **changes)


@dataclass
class Agent:
    """An agent's record, served as the wire does; also the client of it."""

    name: str = "gpu-01"
    meter: str = "m1"
    rows: list[wire.UsageRow] = field(default_factory=list)
    first_sequence: int = 1
    claims: int | None = None
    fault: Exception | None = None
    fails_after: int = LAST_PAGE
    asked: list[tuple[int, int]] = field(default_factory=list)
    closed: int = 0

    async def usage(self, after: int = 0, limit: int = 1000) -> wire.UsagePage:
        self.asked.append((after, limit))
        if self.fault is not None and len(self.asked) > self.fails_after:
            raise self.fault
        await asyncio.sleep(0)
        kept = [row for row in self.rows if row.sequence > after and row.sequence >= self.first_sequence]
        page = wire.UsagePage(
            node=self.name, meter=self.meter, rows=tuple(kept[:limit]),
            placements=(wire.Placement(id=1, node=self.name, usd_per_hour="8", gpu_count=1),),
            last_sequence=len(self.rows) if self.claims is None else self.claims, first_sequence=self.first_sequence,
        )  # fmt: skip
        return msgspec.json.decode(msgspec.json.encode(page), type=wire.UsagePage)

    async def aclose(self) -> None:
        self.closed += 1


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    with Ledger.open(":memory:") as ledger:
        yield ledger


def agent(count: int, **fields: object) -> Agent:
    made = Agent(**fields)  # type: ignore[arg-type]
    made.rows += [wire_row(sequence, made.name) for sequence in range(1, count + 1)]
    return made


def clients(*agents: Agent) -> Callable[[Node], Agent]:
    by_name = {agent.name: agent for agent in agents}
    return lambda node: by_name[node.name]


async def sync_one(ledger: Ledger, one: Agent, name: str | None = None) -> NodeSync:
    (result,) = await sync([Node(name or one.name)], ledger, client_for=lambda _: one)
    return result


async def test_all_rows_come_in_pages_and_a_second_sync_brings_only_new_ones(ledger: Ledger) -> None:
    one = agent(12_345)
    assert await sync_one(ledger, one) == NodeSync("gpu-01", 12_345, 0, None)
    assert one.asked == [(0, 1), (0, 5000), (5000, 5000), (10_000, 5000)] and one.closed == 1
    one.asked.clear()
    assert await sync_one(ledger, one) == NodeSync("gpu-01", 0, 0, None)
    assert one.asked == [(12_345, 5000)]
    one.rows.append(wire_row(12_346))
    assert (await sync_one(ledger, one)).new_rows == 1
    assert ledger.check() == []


async def test_an_agent_without_rows_is_no_error(ledger: Ledger) -> None:
    assert await sync_one(ledger, agent(0)) == NodeSync("gpu-01", 0, 0, None)
    assert await sync_one(ledger, agent(1)) == NodeSync("gpu-01", 1, 0, None)


async def test_the_ledger_knows_a_node_by_its_own_name_and_the_result_by_the_configured_one(ledger: Ledger) -> None:
    one = agent(7)
    assert await sync_one(ledger, one, "my alias") == NodeSync("my alias", 7, 0, None)
    assert (ledger.cursor("gpu-01", "m1"), ledger.cursor("my alias", "m2")) == (7, 0)
    assert await sync_one(ledger, one, "my alias") == NodeSync("my alias", 0, 0, None)
    assert ledger.check() == []


async def test_rows_that_the_agent_no_longer_keeps_are_told(ledger: Ledger) -> None:
    one = agent(10)
    await sync_one(ledger, one)
    one.rows += [wire_row(sequence) for sequence in range(11, 31)]
    one.first_sequence = 21
    assert await sync_one(ledger, one) == NodeSync("gpu-01", 10, 10, None)
    (gap,) = ledger.gaps()
    assert (gap.from_sequence, gap.to_sequence) == (11, 20) and gap.noticed_at_ms is not None
    assert ledger.check() == []


async def test_a_wiped_agent_starts_a_record_of_its_own(ledger: Ledger) -> None:
    await sync_one(ledger, agent(20))
    fresh = Agent(meter="m2", rows=[wire_row(n, starts_at=START + timedelta(days=n), ends_at=START + timedelta(days=n, seconds=9)) for n in (1, 2)])
    assert await sync_one(ledger, fresh) == NodeSync("gpu-01", 2, 0, None)
    assert (ledger.cursor("gpu-01", "m1"), ledger.cursor("gpu-01", "m2")) == (20, 2)


async def test_one_node_that_fails_never_stops_the_others(ledger: Ledger) -> None:
    def client_for(node: Node) -> Agent:
        if node.name == "no token":
            raise ConfigurationError("node `no token`: token file is empty.")
        return {
            "silent": agent(3, name="silent", fault=Unreachable("silent is not reachable: timed out"), fails_after=0),
            "halfway": agent(9_000, name="halfway", fault=Unreachable("halfway fell silent"), fails_after=2),
            "mad": Agent(name="mad", rows=[wire_row(1, "mad"), wire_row(3, "mad")], claims=3),
            "broken": agent(3, name="broken", fault=ZeroDivisionError("what"), fails_after=0),
            "good": agent(3, name="good"),
        }[node.name]

    names = ["no token", "silent", "halfway", "mad", "broken", "good"]
    results = await sync([Node(name) for name in names], ledger, client_for=client_for)
    assert [result.node for result in results] == names
    assert [result.new_rows for result in results] == [0, 0, 5000, 0, 0, 3]
    errors = [result.error for result in results]
    assert errors[:3] == ["node `no token`: token file is empty.", "silent is not reachable: timed out", "halfway fell silent"]
    assert "out of order" in str(errors[3]) and "ZeroDivisionError: what" in str(errors[4]) and errors[5] is None


async def test_a_record_that_went_back_is_told_and_nothing_is_taken(ledger: Ledger) -> None:
    await sync_one(ledger, agent(20))
    result = await sync_one(ledger, agent(15))
    assert result.new_rows == 0 and "ends at row 15, but 20 were taken" in str(result.error)


async def test_an_agent_that_promises_rows_and_sends_none_does_not_hold_the_sync(ledger: Ledger) -> None:
    result = await sync_one(ledger, agent(5, claims=99))
    assert result.new_rows == 5 and "sends none after 5" in str(result.error)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"share": Decimal("0.3333333")}, "row 1 has a share of more than six places"),
        ({"starts_at": START + timedelta(microseconds=5)}, "row 1 has a time finer than a millisecond"),
        ({"placement": 7}, "names placement 7"),
    ],
)
async def test_a_row_that_the_ledger_cannot_hold_exactly_is_refused(
    ledger: Ledger, changes: dict[str, object], sentence: str
) -> None:
    result = await sync_one(ledger, Agent(rows=[wire_row(1, **changes)]))
    assert sentence in str(result.error) and result.new_rows == 0
    assert ledger.check() == []


async def test_a_ledger_that_fails_is_no_nodes_fault_and_is_raised_when_all_are_done(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    agents = clients(agent(2, name="a"), agent(2, name="b"))
    with Ledger.open(path) as holder, Ledger.open(path, timeout_seconds=0.02) as other:
        with holder.writing(), pytest.raises(LedgerLocked, match="kept the ledger locked"):
            await sync([Node("a"), Node("b")], other, client_for=agents)
        results = await sync([Node("a"), Node("b")], other, client_for=agents)
    assert [(result.new_rows, result.error) for result in results] == [(2, None)] * 2


async def test_the_event_loop_is_free_while_the_ledger_is_written(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: set[int] = set()
    take = ledger.take

    def watched(*arguments: object, **more: object) -> object:
        threads.add(threading.get_ident())
        return take(*arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(ledger, "take", watched)
    await sync_one(ledger, agent(6000))
    assert threads and threading.get_ident() not in threads


async def test_two_syncs_at_once_take_each_row_once(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    agents = [agent(7_000, name=name) for name in ("a", "b", "c")]
    nodes = [Node(one.name) for one in agents]
    with Ledger.open(path) as first, Ledger.open(path) as second:
        results = await asyncio.gather(*(sync(nodes, one, client_for=clients(*agents)) for one in (first, second)))
        assert [result.error for both in results for result in both] == [None] * 6
        assert sum(result.new_rows for both in results for result in both) == 21_000
        assert first.check() == []


async def test_a_simulated_day_of_the_demo_fleet_is_in_the_ledger_row_for_row() -> None:
    end_ms = 1_774_000_000_000
    nodes = build_nodes(plan_demo(end_ms / 1000), 1, None, started_at=datetime.fromtimestamp(end_ms / 1000 - 20_000, UTC))
    try:
        backfill(nodes, end_ms - 4 * 3_600_000, end_ms)
        pages = {node.name: node.meter.usage(0, 10_000_000) for node in nodes}
        agents = [
            Agent(name=name, meter=page.meter, rows=list(page.rows), first_sequence=page.first_sequence)
            for name, page in pages.items()
        ]
        with Ledger.open(":memory:") as ledger:
            for one, page in zip(agents, pages.values(), strict=True):
                one.usage = RealPages(page).usage  # type: ignore[method-assign]
            results = await sync([Node(one.name) for one in agents], ledger, client_for=clients(*agents))
            assert [(result.new_rows, result.error) for result in results] == [(len(page.rows), None) for page in pages.values()]
            assert ledger.check() == []
            assert_same_totals(ledger, [row for page in pages.values() for row in page.rows])
            report = attribute(ledger, Catalog.embedded(), START - timedelta(days=900), START + timedelta(days=900), "node")
            assert {row.keys[0] for row in report.rows} == set(pages)
            assert report.totals.total_cost and report.totals.total_cost > 0
    finally:
        close_nodes(nodes)


class RealPages:
    """Pages of a record as JSON, as they come over HTTP."""

    def __init__(self, whole: wire.UsagePage) -> None:
        self._whole = whole

    async def usage(self, after: int = 0, limit: int = 1000) -> wire.UsagePage:
        rows = tuple(row for row in self._whole.rows if row.sequence > after)[:limit]
        page = msgspec.structs.replace(self._whole, rows=rows)
        return msgspec.json.decode(msgspec.json.encode(page), type=wire.UsagePage)


def assert_same_totals(ledger: Ledger, rows: Sequence[wire.UsageRow]) -> None:
    """GPU time and energy of the ledger are those of the agents' rows, to the millisecond and millijoule."""
    stored = content(ledger)["usage"]
    share_ms = sum((row[6] - row[4]) * row[11] for row in stored)  # type: ignore[operator]
    assert sum(row[16] for row in stored) == len(rows)  # type: ignore[misc]
    whole = sum(((row.ends_at - row.starts_at) // timedelta(milliseconds=1)) * int(row.share * WHOLE_SHARE) for row in rows)
    assert share_ms == whole
    assert sum(row[15] or 0 for row in stored) == sum(round((row.energy_joules or 0) * 1000) for row in rows)  # type: ignore[misc]


def test_a_wire_row_becomes_whole_numbers() -> None:
    (row,) = usage_rows([wire_row(3, share=Decimal("0.333333"))])
    begin = round(START.timestamp() * 1000) + 30_000
    assert (row.starts_ms, row.ends_ms, row.share_millionths, row.energy_millijoules) == (begin, begin + 10_000, 333_333, 1_234_567)
    with pytest.raises(LedgerError):
        usage_rows([wire_row(1, share=Decimal("0.0000001"))])


def test_a_wire_placement_comes_back_from_the_ledger_as_it_was(ledger: Ledger) -> None:
    owned = wire.OnPremises(purchase_usd=Decimal("1000.5"), years=Decimal(3), power_watts=Decimal(700))
    one = placed(
        wire.Placement(
            id=4, node="n", cloud="on_premises", zone="z", purchase="spot", on_premises=owned, gpu_count=2, tags={"a": "b"}
        )
    )
    ledger.take("n", "m", usage_rows([wire_row(1, "n", placement=4)]), [one], 1)
    with ledger.reading() as connection:
        assert list(read_placements(connection).values()) == [one]
