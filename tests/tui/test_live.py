"""One stream a node: what a node does wrong costs only itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from agent import wire
from agent.client import Unreachable
from tests.support.fleets import StubCatalog, gpu, info, sample
from tui.config import NodeConfig
from tui.errors import ConfigurationError
from tui.fleet import Fleet
from tui.live import Live

EVENTS: tuple[wire.Event, ...] = (
    wire.NodeEvent(node=info("n", (gpu(0),))),
    wire.SampleEvent(sample=sample("n", (gpu(0),))),
)


class FakeClient:
    """Sends `events`, then raises `error`, hangs (None) or ends ("end")."""

    left_out = 0

    def __init__(self, events: tuple[wire.Event, ...], then: Exception | str | None) -> None:
        self.events = events
        self.then = then
        self.closed = False

    async def stream(self) -> AsyncIterator[wire.Event]:
        for event in self.events:
            yield event
        if isinstance(self.then, Exception):
            raise self.then
        if self.then is None:
            await asyncio.Event().wait()

    async def aclose(self) -> None:
        self.closed = True


def node(name: str) -> NodeConfig:
    return NodeConfig(name=name, url="http://127.0.0.1:1/")


def make(clients: dict[str, Callable[[], FakeClient]]) -> Live:
    return Live(
        Fleet(StubCatalog()),  # type: ignore[arg-type]
        [node(name) for name in clients],
        lambda config: clients[config.name](),  # type: ignore[arg-type, return-value]
        retry_seconds=(0.001,),
    )


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.005)


async def test_a_hanging_a_failing_and_a_broken_node_do_not_hinder_the_good_one() -> None:
    def wrong() -> FakeClient:
        raise ConfigurationError("token file missing")

    live = make({
        "good": lambda: FakeClient(EVENTS, None),
        "hangs": lambda: FakeClient((), None),
        "fails": lambda: FakeClient((), Unreachable("127.0.0.1:1 is not reachable")),
        "wrong": wrong,
        "bug": lambda: FakeClient((), ZeroDivisionError("oops")),
    })  # fmt: skip
    live.start()
    await until(
        lambda: all(live.fleet[name].error for name in ("fails", "wrong", "bug")) and live.fleet["good"].sample is not None
    )
    assert live.fleet["good"].connected and live.fleet["good"].error is None
    assert live.fleet["hangs"].error is None
    assert live.fleet["wrong"].error == "token file missing"
    assert "ZeroDivisionError" in (live.fleet["bug"].error or "")
    await asyncio.wait_for(live.close(), 60)


async def test_a_stream_that_ends_is_opened_again_and_its_client_closed() -> None:
    made: list[FakeClient] = []

    def again() -> FakeClient:
        made.append(FakeClient(EVENTS, "end"))
        return made[-1]

    live = make({"n": again})
    live.start()
    await until(lambda: len(made) >= 3)
    assert all(client.closed for client in made[:-1])
    await live.close()
    assert all(client.closed for client in made)


async def test_events_that_only_newer_agents_know_are_counted_over_all_streams_of_a_node() -> None:
    made: list[FakeClient] = []

    def again() -> FakeClient:
        made.append(FakeClient(EVENTS, "end" if not made else None))
        made[-1].left_out = 2 if len(made) == 1 else 1
        return made[-1]

    live = make({"newer": again, "known": lambda: FakeClient(EVENTS, None)})
    assert live.left_out == {}
    live.start()
    await until(lambda: len(made) == 2 and live.left_out == {"newer": 3})
    made[1].left_out = 5
    assert live.left_out == {"newer": 7}
    await live.close()
    assert live.left_out == {"newer": 7}


async def test_changed_names_are_taken_once() -> None:
    live = make({"n": lambda: FakeClient(EVENTS, None)})
    live.start()
    await until(lambda: live.fleet["n"].sample is not None)
    assert live.take_changed() == {"n"}
    assert live.take_changed() == set()
    await live.close()


async def test_the_last_values_stay_when_the_stream_breaks() -> None:
    live = make({"n": lambda: FakeClient(EVENTS, Unreachable("gone"))})
    live.start()
    await until(lambda: live.fleet["n"].error == "gone")
    assert live.fleet["n"].gpus
    await live.close()
