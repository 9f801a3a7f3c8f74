"""Alerts of a fleet: the agents' own, priced, and the silent node that only a client can see."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

from agent import wire
from tests.support.fleets import NOW, StubCatalog
from tui.alerts import all_alerts
from tui.fleet import Fleet

AT = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def gpu(index: int) -> wire.Gpu:
    return wire.Gpu(index=index, uuid=f"GPU-{index}", state="ok", processes=())


def fleet_of_one() -> Fleet:
    fleet = Fleet(StubCatalog(), silent_seconds=20)  # type: ignore[arg-type]
    fleet.add("n1", "http://127.0.0.1:1")
    info = wire.NodeInfo(node="n1", gpus=(), cloud="aws", instance_type="p4d.24xlarge", purchase="on_demand", usd_per_hour="8")
    fleet.apply("n1", wire.NodeEvent(node=info), NOW)
    sample = wire.Sample(node="n1", sequence=1, taken_at=AT, gpus=tuple(gpu(i) for i in range(8)))
    fleet.apply("n1", wire.SampleEvent(sample=sample), NOW)
    return fleet


def test_a_node_that_falls_silent_is_a_critical_alert_with_its_price_and_since_when() -> None:
    fleet = fleet_of_one()
    assert all_alerts(fleet, NOW + 19, AT) == []
    [alert] = all_alerts(fleet, NOW + 30, AT)
    assert (alert.rule, alert.severity, alert.node, alert.threshold) == ("node_silent", "critical", "n1", "20 s")
    assert (AT - alert.since).total_seconds() == 30
    assert Decimal(alert.usd_per_hour or 0) == fleet["n1"].usd_per_hour


def test_a_node_that_was_never_heard_and_failed_says_why() -> None:
    fleet = Fleet(silent_seconds=20)
    fleet.add("n2", "http://127.0.0.1:2")
    assert all_alerts(fleet, NOW, AT) == [], "still connecting"
    fleet.failed("n2", "127.0.0.1 port 2 is not reachable")
    [alert] = all_alerts(fleet, NOW, AT)
    assert alert.reading == "never heard" and "port 2" in alert.message and alert.usd_per_hour is None


def test_an_alert_about_a_gpu_costs_that_gpus_part_of_the_price() -> None:
    fleet = fleet_of_one()
    fired = wire.Alert(
        key="gpu_lost:GPU-1", rule="gpu_lost", severity="critical", node="n1", gpu="GPU-1", message="lost", since=AT, fired_at=AT
    )
    fleet.apply("n1", wire.AlertEvent(alert=fired), NOW)
    [alert] = all_alerts(fleet, NOW, AT)
    assert Decimal(alert.usd_per_hour or 0) * 8 == fleet["n1"].usd_per_hour
