"""HTTP that fails on purpose, around a small ASGI app that counts what reaches it."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

from agent.simulation.faults import Faults, Flap, Stall
from agent.simulation.outage import Outages

STALL = Faults(stall=Stall(key="s", period=240.0))
START, END = STALL.stall.window(1000.0)  # type: ignore[union-attr]


class Clock:
    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


async def one_line(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"line\n", "more_body": True})
    await send({"type": "http.response.body", "body": b"end\n", "more_body": False})


async def ask(app: Any, path: str, sent: list[MutableMapping[str, Any]] | None = None) -> list[MutableMapping[str, Any]]:
    messages: list[MutableMapping[str, Any]] = [] if sent is None else sent

    async def send(message: MutableMapping[str, Any]) -> None:
        messages.append(message)

    async def receive() -> MutableMapping[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    await app({"type": "http", "path": path}, receive, send)
    return messages


async def test_a_node_that_hangs_does_not_delay_the_others() -> None:
    app = Outages(one_line, {"bad": STALL, "good": Faults()}, Clock(START + 1))
    hanging = asyncio.create_task(ask(app, "/nodes/bad/v1/sample"))
    assert len(await asyncio.wait_for(ask(app, "/nodes/good/v1/sample"), 60)) == 3
    assert len(await asyncio.wait_for(ask(app, "/healthz"), 60)) == 3
    assert not hanging.done()
    hanging.cancel()
    await asyncio.gather(hanging, return_exceptions=True)


async def test_a_node_answers_before_and_after_its_stall() -> None:
    clock = Clock(START - 1)
    app = Outages(one_line, {"bad": STALL}, clock)
    assert len(await asyncio.wait_for(ask(app, "/nodes/bad/v1/node"), 60)) == 3
    clock.now = END + 0.001
    assert len(await asyncio.wait_for(ask(app, "/nodes/bad/v1/node"), 60)) == 3


async def test_an_open_stream_pauses_while_its_node_hangs() -> None:
    clock, sent = Clock(START - 1), []
    gate = asyncio.Event()

    async def stream(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await gate.wait()
        await send({"type": "http.response.body", "body": b"late\n", "more_body": False})

    app = Outages(stream, {"bad": STALL}, clock)
    task = asyncio.create_task(ask(app, "/nodes/bad/v1/stream", sent))
    await asyncio.sleep(0)
    clock.now = START + 1
    gate.set()
    await asyncio.sleep(0.05)
    assert [message["type"] for message in sent] == ["http.response.start"]
    app.release()
    await asyncio.wait_for(task, 60)
    assert len(sent) == 2


async def test_release_ends_every_wait_at_once() -> None:
    app = Outages(one_line, {"bad": STALL}, Clock(START + 1))
    tasks = [asyncio.create_task(ask(app, "/nodes/bad/v1/node")) for _ in range(5)]
    await asyncio.sleep(0.01)
    app.release()
    assert [len(messages) for messages in await asyncio.wait_for(asyncio.gather(*tasks), 60)] == [3] * 5


async def test_a_flapping_node_cuts_its_streams_and_tells_the_app_that_the_client_left() -> None:
    clock, sent = Clock(0.0), []
    left = asyncio.Event()
    gate = asyncio.Event()

    async def stream(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"one\n", "more_body": True})
        await gate.wait()
        for _ in range(2):
            await send({"type": "http.response.body", "body": b"two\n", "more_body": True})
        assert (await receive())["type"] == "http.disconnect"
        left.set()

    app = Outages(stream, {"flappy": Faults(flap=Flap(up=3, down=3))}, clock)
    task = asyncio.create_task(ask(app, "/nodes/flappy/v1/stream", sent))
    await asyncio.sleep(0)
    clock.now = 4.0
    gate.set()
    await asyncio.wait_for(task, 60)
    assert left.is_set()
    assert [message.get("more_body") for message in sent] == [None, True, False]


async def test_nothing_fails_before_the_quiet_time_is_over() -> None:
    clock = Clock(START + 1)
    app = Outages(one_line, {"bad": STALL}, clock, not_before=START + 2)
    assert len(await asyncio.wait_for(ask(app, "/nodes/bad/v1/node"), 60)) == 3
    clock.now = START + 3
    hanging = asyncio.create_task(ask(app, "/nodes/bad/v1/node"))
    await asyncio.sleep(0.02)
    assert not hanging.done()
    app.release()
    await asyncio.wait_for(hanging, 60)
