"""`agent.runtime`: one encoding for all listeners, bounded memory, and nobody waits for anybody."""

from __future__ import annotations

import asyncio
import sqlite3

import msgspec
import pytest

from agent import wire
from agent.errors import StateFull
from agent.jobs.actor import Actor
from agent.runtime import KEPT_SAMPLES, Subscription
from agent.security import OWNER
from tests.support.agents import TOKEN, FakeAlerts, FakeMeter, alert, node_agent, sample


async def events(subscription: Subscription, count: int) -> list[wire.Event]:
    async with asyncio.timeout(60):
        return [wire.event_decoder.decode(await anext(subscription)) for _ in range(count)]


async def test_a_new_listener_gets_the_node_then_active_alerts_then_the_newest_sample() -> None:
    alerts = FakeAlerts()
    agent = node_agent(alerts=alerts)
    alerts.fire(alert("gpu_hot:GPU-0"))
    agent.step(sample(1))
    agent.step(sample(2))
    first, second, third = await events(agent.subscribe(), 3)
    assert first == wire.NodeEvent(node=agent.info)
    assert second == wire.AlertEvent(alert=alert("gpu_hot:GPU-0"))
    assert isinstance(third, wire.SampleEvent) and third.sample.sequence == 2


async def test_a_listener_that_reads_gets_every_sample_in_order() -> None:
    agent = node_agent()
    subscription = agent.subscribe()
    await events(subscription, 1)
    seen = []
    for sequence in range(1, 20):
        agent.step(sample(sequence))
        (event,) = await events(subscription, 1)
        assert isinstance(event, wire.SampleEvent)
        seen.append(event.sample.sequence)
    assert seen == list(range(1, 20))


async def test_a_listener_that_does_not_read_loses_old_samples_but_no_alert_and_no_node() -> None:
    alerts = FakeAlerts()
    agent = node_agent(alerts=alerts)
    slow = agent.subscribe()
    alerts.fire(alert("gpu_lost:GPU-0"))
    for sequence in range(1, 1000):
        agent.step(sample(sequence))
    agent.set_info(msgspec.structs.replace(agent.info, region="us-east-1"))
    alerts.fire(alert("gpu_lost:GPU-0", ended=True))
    alerts.fire(alert("disk_full:/"))
    agent.step(sample(1000))
    waiting = await events(slow, 3 + KEPT_SAMPLES)
    assert waiting[0] == wire.NodeEvent(node=agent.info)
    assert waiting[1] == wire.AlertEvent(alert=alert("gpu_lost:GPU-0", ended=True))
    assert waiting[2] == wire.AlertEvent(alert=alert("disk_full:/"))
    sequences = [event.sample.sequence for event in waiting[3:] if isinstance(event, wire.SampleEvent)]
    assert sequences == list(range(1001 - KEPT_SAMPLES, 1001))


async def test_a_slow_listener_delays_nobody() -> None:
    agent = node_agent()
    agent.subscribe()
    fast = agent.subscribe()
    await events(fast, 1)
    for sequence in range(1, 100):
        agent.step(sample(sequence))
        (event,) = await events(fast, 1)
        assert isinstance(event, wire.SampleEvent) and event.sample.sequence == sequence


async def test_an_event_is_encoded_once_for_all_listeners() -> None:
    agent = node_agent()
    listeners = [agent.subscribe() for _ in range(5)]
    for listener in listeners:
        await events(listener, 1)
    agent.step(sample(1))
    lines = [await anext(listener) for listener in listeners]
    assert all(line is lines[0] for line in lines)


async def test_a_sample_is_not_encoded_when_nobody_listens() -> None:
    agent = node_agent()
    agent.step(sample(1))
    assert agent._sample_body is None
    body = agent.sample_body()
    assert body is not None and msgspec.json.decode(body, type=wire.Sample) == agent.sample


async def test_take_joins_what_waits() -> None:
    agent = node_agent()
    subscription = agent.subscribe()
    agent.step(sample(1))
    agent.step(sample(2))
    block = await subscription.take()
    assert block is not None and block.endswith(b"\n")
    assert [type(event) for event in wire.event_decoder.decode_lines(block)] == [
        wire.NodeEvent, wire.SampleEvent, wire.SampleEvent,
    ]  # fmt: skip


async def test_closing_the_streams_ends_those_who_wait() -> None:
    agent = node_agent()
    subscriptions = [agent.subscribe() for _ in range(3)]
    for subscription in subscriptions:
        await events(subscription, 1)
    waiting = [asyncio.ensure_future(subscription.take()) for subscription in subscriptions]
    await asyncio.sleep(0)
    agent.close_streams()
    async with asyncio.timeout(60):
        assert await asyncio.gather(*waiting) == [None, None, None]
    assert agent.listeners == 0
    with pytest.raises(StopAsyncIteration):
        await anext(subscriptions[0])


async def test_a_closed_listener_is_forgotten() -> None:
    agent = node_agent()
    subscription = agent.subscribe()
    assert agent.listeners == 1
    subscription.close()
    assert agent.listeners == 0


@pytest.mark.parametrize("fault", [StateFull("no space is left"), sqlite3.OperationalError("disk I/O error"), OSError("gone")])
async def test_a_meter_that_cannot_write_is_told_and_stops_nothing(fault: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    meter = FakeMeter()
    agent = node_agent(meter=meter)
    subscription = agent.subscribe()
    await events(subscription, 1)
    meter.fault = fault
    agent.step(sample(1))
    agent.step(sample(2))
    (event, _) = await events(subscription, 2)
    assert isinstance(event, wire.SampleEvent)
    assert [(one.name, one.ok, one.error) for one in event.sample.sensors] == [("meter", False, str(fault))]
    assert agent.meter_error == str(fault)
    meter.fault = None
    agent.step(sample(3))
    assert agent.meter_error is None and agent.sample is not None and agent.sample.sensors == ()
    assert capsys.readouterr().err == f"usage: {fault}\nusage: is written again\n"


async def test_the_meter_sees_the_newest_identity() -> None:
    meter = FakeMeter()
    agent = node_agent(meter=meter)
    agent.step(sample(1))
    agent.set_info(msgspec.structs.replace(agent.info, instance_type="g4dn.xlarge"))
    agent.step(sample(2))
    assert [info.instance_type for info in meter.infos] == [None, "g4dn.xlarge"]


async def test_usage_history_and_alerts_are_those_of_the_parts() -> None:
    meter, alerts = FakeMeter(), FakeAlerts()
    agent = node_agent(meter=meter, alerts=alerts)
    alerts.fire(alert("gpu_lost:GPU-1", ended=True))
    alerts.fire(alert("gpu_hot:GPU-0"))
    for sequence in range(1, 4):
        agent.step(sample(sequence))
    assert [one.sequence for one in agent.usage(1, 1).rows] == [2]
    assert [one.key for one in agent.alert_list().alerts] == ["gpu_hot:GPU-0", "gpu_lost:GPU-1"]
    assert len(agent.history_of(60).gpus["GPU-0"]) == 3


def test_a_node_that_meters_nothing_has_an_empty_page() -> None:
    assert node_agent().usage(5, 10).rows == ()


def test_a_token_is_asked_for_unless_there_is_none() -> None:
    agent = node_agent()
    assert agent.holder_of(TOKEN) == OWNER and agent.holder_of(TOKEN[:-1]) is None and agent.holder_of(None) is None
    assert node_agent(token=None).holder_of(None) == OWNER
    ada = Actor("laptop", "ada")
    agent.token_check = {"other": ada}.get
    assert agent.holder_of("other") == ada and agent.holder_of(TOKEN) is None
