"""Agents whose jobs are stand-ins, on loopback in a thread of their own, so that commands run in the test's own process."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from agent.listener import Listener, bind
from agent.runtime import NodeAgent
from agent.server import create_app
from tests.support.agents import TOKEN, node_agent, sample
from tests.support.job_service import JobService

T = TypeVar("T")


class Site:
    """`home` is a RACKRATE_HOME whose config.toml names the nodes."""

    def __init__(self, home: Path, jobs: Mapping[str, JobService], *, prices: Mapping[str, str] = {}) -> None:
        self.home = home
        self.jobs = dict(jobs)
        self._prices = prices
        self._listeners: dict[str, Listener] = {}
        self._agents: dict[str, NodeAgent] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="job-site", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self.home.mkdir(parents=True, exist_ok=True)
        (self.home / "token").write_text(TOKEN)
        self.config()

    def config(self, more: str = "") -> None:
        """Writes config.toml for the nodes as they listen now."""
        tables = [
            f'[[nodes]]\nname = "{name}"\nurl = "{self._call(self._serve(name))}"\ntoken_file = "token"\n' for name in self.jobs
        ]
        (self.home / "config.toml").write_text("".join(tables) + more)

    async def _serve(self, name: str) -> str:
        if name not in self._listeners:
            agent = node_agent(name)
            agent.set_info(msgspec.structs.replace(agent.info, cloud="on_premises", usd_per_hour=self._prices.get(name)))
            agent.step(sample(1, node=name))
            agent.jobs = self.jobs[name]
            self._agents[name] = agent
            listener = self._listeners[name] = Listener(create_app(agent), bind("127.0.0.1", 0))
            await listener.start()
        return self._listeners[name].url

    def _call(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(120)

    def do(self, action: Callable[[], T]) -> T:
        """Runs it where the agents live."""

        async def run() -> T:
            return action()

        return self._call(run())

    def until(self, holds: Callable[[], bool], seconds: float = 60) -> None:
        async def wait() -> None:
            async with asyncio.timeout(seconds):
                while not holds():
                    await asyncio.sleep(0.01)

        self._call(wait())

    def empty(self) -> None:
        """As at the start: the nodes' jobs are forgotten."""
        for jobs in self.jobs.values():
            fresh = JobService(jobs.node, usd_per_hour=jobs.usd_per_hour)
            jobs.__dict__.clear()
            jobs.__dict__.update(fresh.__dict__)

    def stop_node(self, name: str) -> int:
        """The agent goes away; returns its port."""
        listener = self._listeners.pop(name)
        port = int(listener.url.rsplit(":", 1)[1])
        self.do(self._agents.pop(name).close_streams)
        self._call(listener.close())
        return port

    def close(self) -> None:
        for name in list(self._listeners):
            self.stop_node(name)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()


@contextlib.contextmanager
def job_site(home: Path, *services: JobService, prices: Mapping[str, str] = {}) -> Iterator[Site]:
    site = Site(home, {service.node: service for service in services}, prices=prices)
    site.start()
    try:
        yield site
    finally:
        site.close()
