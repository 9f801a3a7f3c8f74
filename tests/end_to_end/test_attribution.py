"""From the driver to the report: a real agent on the stand-in NVML, synced into a ledger, and priced to the last cent."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest

from pricing.attribution import attribute
from pricing.catalog import Catalog
from pricing.ledger import Ledger
from pricing.report import Report
from tests.support.fake_nvml.state import PRESETS, G
from tests.support.imds import metadata_service
from tests.support.job_agent import JobAgent, usage_rows, wait_for
from tests.support.nvml import compiler
from tui.clients import client_factory
from tui.config import NodeConfig, Paths
from tui.sync import sync

OTHER = "nobody" if os.geteuid() == 0 else None
"""A second user, where this test may be one."""
KEYS = ("job", "user", "node", "gpu_model", "purchase", "day")

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C compiler to build the stand-in NVML library")


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[JobAgent]:
    agent = JobAgent(tmp_path, gpus=1, board="A100")
    yield agent
    agent.close()


@pytest.fixture
def two() -> Iterator[tuple[int, int]]:
    """Two processes, of two users where possible."""
    started = [subprocess.Popen(["/bin/sleep", "600"], user=user, cwd="/") for user in (None, OTHER)]
    yield started[0].pid, started[1].pid
    for process in started:
        process.kill()
        process.wait()


def synced(agent: JobAgent, ledger: Ledger) -> None:
    node = NodeConfig(name="box", url=agent.url, token_file=str(agent.state / "token"))
    paths = Paths(config_file=Path("/config.toml"), data_dir=Path("/"))
    (result,) = asyncio.run(sync([node], ledger, client_for=client_factory(paths)))
    assert result.error is None and ledger.check() == []


def report(ledger: Ledger, start: datetime, end: datetime, by: str = "") -> Report:
    return attribute(ledger, Catalog.embedded(), start, end, by)


def assert_whole_hour_adds_up(ledger: Ledger, rows: list[dict[str, object]]) -> Report:
    """All groupings of what was recorded sum to $36 an hour."""
    starts, ends = (datetime.fromisoformat(str(row[name])) for row, name in ((rows[0], "starts_at"), (rows[-1], "ends_at")))
    total = Fraction(36) * Fraction((ends - starts) // timedelta(milliseconds=1), 3_600_000)
    for by in KEYS:
        found = report(ledger, starts, ends, by)
        assert found.totals.total_cost == total == sum(row.total_cost or 0 for row in found.rows)
    return report(ledger, starts, ends, "user")


def test_mig_instances_cost_their_part_of_the_gpu_and_the_rest_is_idle(agent: JobAgent, two: tuple[int, int]) -> None:
    state = PRESETS["2xA100-mig"]()
    state["count"] = 1
    agent.nvml.use(state)
    agent.start()
    wait_for(lambda: any(row["kind"] == "idle" and row["share"] == "1.000000" for row in usage_rows(agent)))
    state.update({"0.mig.0.procs": f"{two[0]}:{G}", "0.mig.2.procs": f"{two[1]}:{G}"})  # 3g.20gb and 1g.5gb
    agent.nvml.write()
    wait_for(lambda: sum(row["kind"] == "held" for row in usage_rows(agent)) >= 4)
    parts = held_parts(agent)
    held = {Decimal("0.464285"), Decimal("0.133929")} if OTHER else {Decimal("0.598214")}
    assert {share for kind, share in parts if kind == "held"} == held and sum(share for _, share in parts) == 1
    with Ledger.open(":memory:") as ledger:
        synced(agent, ledger)
        by_user = assert_whole_hour_adds_up(ledger, taken(ledger, agent))
    assert by_user.totals.allocated_cost and by_user.totals.idle_unallocated_cost


def held_parts(agent: JobAgent) -> list[tuple[str, Decimal]]:
    """(kind, share) of the newest second's rows."""
    rows = usage_rows(agent)
    newest = max(str(row["starts_at"]) for row in rows)
    return [(str(row["kind"]), Decimal(str(row["share"]))) for row in rows if row["starts_at"] == newest]


def taken(ledger: Ledger, agent: JobAgent) -> list[dict[str, object]]:
    """The rows that the ledger has."""
    cursor = ledger.newest_meter("box")
    assert cursor is not None
    return [row for row in usage_rows(agent) if row["sequence"] <= cursor[1]]


def test_tenants_of_one_gpu_cost_one_gpu_and_each_is_as_busy_as_he_is(agent: JobAgent, two: tuple[int, int]) -> None:
    if OTHER is None:
        pytest.skip("needs a second user: run as root")
    agent.nvml.state.busy(0, (two[0], G, 90, 1), (two[1], G, 0, 1))
    agent.nvml.write()
    agent.start()
    wait_for(lambda: sum(row["kind"] == "held" and row.get("utilization_ratio") is not None for row in usage_rows(agent)) >= 6)
    newest = usage_rows(agent)[-2:]
    assert [Decimal(row["share"]) for row in newest] == [Decimal("0.5")] * 2
    assert {row["user"]: row["utilization_ratio"] for row in newest} == {"root": 1.0, "nobody": 0.0}
    with Ledger.open(":memory:") as ledger:
        synced(agent, ledger)
        by_user = assert_whole_hour_adds_up(ledger, taken(ledger, agent))
    costs = {row.keys[0]: row.allocated_cost for row in by_user.rows}
    assert costs["root"] == costs["nobody"] == by_user.totals.allocated_cost / 2 and by_user.totals.idle_cost == 0


def test_a_spot_node_that_ec2_takes_back_in_its_first_hour_costs_nothing_and_later_what_it_ran(tmp_path: Path) -> None:
    at = datetime.now(UTC) + timedelta(seconds=90)
    with metadata_service("ec2") as service, Ledger.open(":memory:") as ledger:
        agent = JobAgent(tmp_path, gpus=1, node="", environment={"RACKRATE_EC2_METADATA_URL": service.url})
        try:
            agent.start()
            wait_for(lambda: len(usage_rows(agent)) >= 2)
            synced(agent, ledger)
            assert cost_of(ledger)[0] and interruptions(ledger) == []
            service.values["spot/instance-action"] = json.dumps({"action": "terminate", "time": f"{at:%Y-%m-%dT%H:%M:%SZ}"})
            wait_for(lambda: agent.http.get("/v1/usage").json().get("interruptions"))
            synced(agent, ledger)
        finally:
            agent.close()
        ((cloud, kind, at_ms, booted_ms),) = interruptions(ledger)
        assert (cloud, kind, at_ms) == ("aws", "terminate", int(at.timestamp()) * 1000)
        for minutes in (59, 61):  # as if this machine had been started so long before
            with ledger.writing() as connection:
                connection.execute("UPDATE interruptions SET booted_ms = ?", (at_ms - minutes * 60_000,))
            cost, notes = cost_of(ledger)
            assert (cost == 0) == (minutes < 60) == any("is not billed" in note for note in notes)
        assert booted_ms < at_ms and ledger.check() == []


def interruptions(ledger: Ledger) -> list[tuple[object, ...]]:
    with ledger.reading() as connection:
        return connection.execute("SELECT cloud, kind, at_ms, booted_ms FROM interruptions WHERE NOT withdrawn").fetchall()


def cost_of(ledger: Ledger) -> tuple[Fraction | None, tuple[str, ...]]:
    """Of the hour around now, and what the report notes."""
    now = datetime.now(UTC)
    found = report(ledger, now - timedelta(hours=1), now + timedelta(hours=1))
    return found.totals.total_cost, found.notes


def test_jobs_without_a_gpu_cost_their_part_and_the_node_its_price(agent: JobAgent) -> None:
    agent.start()
    ids = [agent.submit("/bin/sleep", "600", cpus="1", memory_bytes=G), agent.submit("/bin/sleep", "600")]
    for id in ids:
        agent.until(id, "running")
    wait_for(lambda: sum(row["kind"] == "cpu" and row.get("job") == ids[1] for row in usage_rows(agent)) >= 3)
    for id in ids:
        assert agent.http.delete(f"/v1/jobs/{id}?force=true").status_code == 200
    with Ledger.open(":memory:") as ledger:
        synced(agent, ledger)
        rows = [row for row in taken(ledger, agent) if row["kind"] != "cpu"]
        assert_whole_hour_adds_up(ledger, rows)
        found = report(ledger, datetime.fromisoformat(str(rows[0]["starts_at"])), datetime.now(UTC), "job")
    costs = {row.keys[0]: row.allocated_cost for row in found.rows}
    assert costs[ids[0]] > 2 * costs[ids[1]] > 0 and found.totals.allocated_cost == sum(costs[id] for id in ids)
    assert found.totals.held_share_ms == 0 and found.totals.idle_unallocated_cost
