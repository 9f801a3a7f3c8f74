"""SIGKILL at random moments, on both sides, while usage flows: nothing is counted twice or lost."""

from __future__ import annotations

import asyncio
import random
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

import pytest

from agent import wire
from pricing.ledger import Ledger
from tests.support.examples import EXPLORE
from tests.support.job_agent import PRELOAD, wait_for
from tests.support.nursery import Nursery
from tui.clients import client_factory
from tui.config import NodeConfig, Paths
from tui.local import end_agent, wait_for_url
from tui.sync import sync

SEEDS = range(20_261_130, 20_261_133)
KILLS = 50 if EXPLORE else 17
"""For each seed."""


class Nurseries(NamedTuple):
    agents: Nursery
    syncers: Nursery


@pytest.fixture(scope="module")
def nurseries() -> Iterator[Nurseries]:
    made = Nurseries(Nursery("agent.cli", PRELOAD), Nursery("tests.support.sync_loop", ("agent.client", "httpx")))
    yield made
    for nursery in made:
        nursery.close()


class Agent:
    """A real agent process on 8 simulated H100s that writes rows of one second."""

    def __init__(self, folder: Path, nursery: Nursery) -> None:
        self.nursery = nursery
        self.state, self.log = folder / "state", folder / "agent.log"
        self.config = folder / "agent.toml"
        self.config.write_text('[node]\nname = "victim"\nmetadata = false\n[meter]\nrow_seconds = 1\n')
        self.start()

    def start(self) -> None:
        arguments = ["run", "--simulate", "8xH100", "--listen", "127.0.0.1:0", "--state-dir", str(self.state)]
        with self.log.open("ab") as words:
            self.process = self.nursery.start(*arguments, "--config", str(self.config), stderr=words)
        self.url = wait_for_url(self.process, self.log)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        assert self.process.stdout
        self.process.stdout.close()

    @property
    def node(self) -> NodeConfig:
        return NodeConfig(name="victim", url=self.url, token_file=str(self.state / "token"))


class Syncer:
    """A client process that syncs without pause."""

    def __init__(self, nursery: Nursery, agent: Agent, ledger: Path) -> None:
        self.process = nursery.start(agent.url, str(agent.state / "token"), str(ledger), stderr=sys.stderr.buffer)
        assert self.process.stdout and self.process.stdout.readline() == b"ready\n"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout
        self.process.stdout.close()


@pytest.fixture
def agent(tmp_path: Path, nurseries: Nurseries) -> Iterator[Agent]:
    agent = Agent(tmp_path, nurseries.agents)
    yield agent
    end_agent(agent.process)


CLIENT_FOR = client_factory(Paths(config_file=Path("/config.toml"), data_dir=Path("/")))


async def all_pages(node: NodeConfig) -> list[wire.UsagePage]:
    client, pages, after = CLIENT_FOR(node), [], 0
    try:
        while not pages or pages[-1].last_sequence > after:
            pages.append(await client.usage(after, 5000))
            after = pages[-1].rows[-1].sequence if pages[-1].rows else pages[-1].last_sequence
    finally:
        await client.aclose()
    return pages


def rows_of(pages: list[wire.UsagePage]) -> list[wire.UsageRow]:
    return [row for page in pages for row in page.rows]


def kinds_of(pages: list[wire.UsagePage]) -> set[str]:
    return {row.kind for row in rows_of(pages)}


@pytest.mark.parametrize("seed", SEEDS)
def test_kills_of_agent_and_client_lose_no_row_and_double_none(
    seed: int, agent: Agent, nurseries: Nurseries, tmp_path: Path
) -> None:
    rng, ledger_file = random.Random(seed), tmp_path / "ledger.db"
    syncer = Syncer(nurseries.syncers, agent, ledger_file)
    wait_for(lambda: asyncio.run(all_pages(agent.node))[-1].rows)  # so that time without an agent is time of this meter
    for kill in range(KILLS):
        time.sleep(rng.uniform(0.0, 1.0) if kill % 2 else rng.uniform(0.0, 4.0))
        if kill % 2:
            syncer.kill()
        else:
            agent.kill()
            agent.start()
            syncer.kill()  # the new agent has a new port
        syncer = Syncer(nurseries.syncers, agent, ledger_file)
    time.sleep(2.5)
    syncer.kill()
    pages = wait_for(lambda: pages if "down" in kinds_of(pages := asyncio.run(all_pages(agent.node))) else None)
    with Ledger.open(ledger_file) as ledger:
        results = asyncio.run(sync([agent.node], ledger, client_for=CLIENT_FOR))
        assert [result.error for result in results] == [None]
        assert list(ledger.check()) == []
        assert ledger.gaps() == []
        newest = ledger.newest_meter("victim")
        assert newest is not None
        meter, cursor = newest
        with ledger.reading() as connection:
            held = connection.execute("SELECT SUM(rows), COUNT(DISTINCT meter_id) FROM usage").fetchone()
        assert held == (cursor, 1)
    rows = rows_of(pages)
    assert {page.meter for page in pages} == {meter}
    assert [row.sequence for row in rows] == list(range(1, len(rows) + 1))
    assert_rows_tile(rows)


def assert_rows_tile(rows: list[wire.UsageRow]) -> None:
    """For each GPU: intervals follow each other without gap or overlap, shares of one interval sum to one."""
    by_gpu: dict[str | None, dict[tuple[object, object], Decimal]] = defaultdict(lambda: defaultdict(Decimal))
    for row in rows:
        by_gpu[row.gpu][row.starts_at, row.ends_at] += row.share
    assert len(by_gpu) == 8
    for spans in by_gpu.values():
        assert set(spans.values()) == {Decimal(1)}
        ordered = sorted(spans)
        assert all(before[1] == after[0] for before, after in zip(ordered, ordered[1:], strict=False))
    assert {row.kind for row in rows} >= {"down"} and {row.kind for row in rows} & {"held", "idle"}
