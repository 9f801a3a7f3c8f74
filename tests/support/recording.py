"""A fleet that is told things and recorded, with time that a test moves.

Invariant: nothing waits and nothing runs beside the test.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from agent import wire
from tests.support.fleets import AT, StubCatalog, gpu, idle_gpu, info, sample
from tui.config import NodeConfig
from tui.fleet import Fleet
from tui.record import Recorder, Writer, begin_session
from tui.record_file import RecordFile
from tui.replay import Recording
from tui.replay_time import milliseconds

START_MS = milliseconds(AT)


class Stage:
    """`names` are nodes of two GPUs. `seconds` since AT is the time; a recorder listens from the beginning."""

    def __init__(self, path: Path | None, names: Sequence[str] = ("gpu-01", "gpu-02"), every: float = 1.0, seconds: float = 0.0, **about: Any) -> None:
        self.names = tuple(names)
        self.seconds = seconds
        self.file = RecordFile.scratch() if path is None else RecordFile.write(path)
        self.fleet = Fleet(StubCatalog())  # type: ignore[arg-type]
        nodes = [NodeConfig(name=name, url=f"https://ada:hunter2@{name}:9477", token_file="secret.token") for name in names]
        for node in nodes:
            self.fleet.add(node.name, node.url)
        self.began_ms = self.now_ms()
        ids = begin_session(self.file, nodes, {"nodes": list(names), "timezone": "Europe/Berlin", **about}, self.began_ms)
        self.fleet.tap = self.recorder = Recorder(ids, self.now_ms, every)
        self.writer = Writer(self.file, self.began_ms)
        self.write()

    def now_ms(self) -> int:
        return START_MS + round(self.seconds * 1000)

    def write(self) -> None:
        self.writer.write(self.recorder.take())

    def tell(self, name: str, *events: wire.Event) -> None:
        for event in events:
            self.fleet.apply(name, event, self.seconds)

    def connect(self, name: str, *events: wire.Event) -> None:
        """A stream opens: who it is, what is told of then, and a sample."""
        self.tell(name, wire.NodeEvent(node=info(name, (gpu(0, node=name), gpu(1, node=name)))), *events)
        self.sample(name)

    def sample(self, name: str, util: float = 0.5) -> None:
        gpus = (gpu(0, node=name, util=util), idle_gpu(1, node=name))
        taken = AT + timedelta(seconds=self.seconds)
        made = sample(name, gpus, 1 + int(self.seconds))
        self.tell(name, wire.SampleEvent(sample=msgspec.structs.replace(made, taken_at=taken)))

    def run(self, seconds: int, write_every: int = 5) -> None:
        """A sample of each node a second."""
        for _ in range(seconds):
            self.seconds += 1
            for name in self.names:
                self.sample(name, (self.seconds % 100) / 100)
            if int(self.seconds) % write_every == 0:
                self.write()

    def recording(self) -> Recording:
        """As it is read again."""
        self.write()
        return Recording(self.file)


def told(fleet: Fleet, now: float) -> dict[str, Any]:
    """What a fleet knows, but for what a recording rounds."""
    return {
        view.name: (
            view.info, dict(view.alerts), [one.job for one in view.jobs], view.notice, view.error, view.state(now),
            None if view.sample is None else (view.sample.taken_at, [one.utilization_ratio and round(one.utilization_ratio, 3) for one in view.gpus], view.users),
        )
        for view in fleet
    }  # fmt: skip
