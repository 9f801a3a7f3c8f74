"""What the daemon has beside measuring: the jobs of this node, and the cloud's notices that it will be taken away.

Invariant: jobs run on when this ends; a fault in here never ends the measuring.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from agent import wire
from agent.config import AgentConfig
from agent.errors import AgentFault
from agent.runtime import NodeAgent

if TYPE_CHECKING:
    from agent.interruption.watch import NoticeWatch
    from agent.jobs.manager import JobManager
    from agent.meter import Meter


class Workload:
    """Jobs and notices of one node; made on the event loop that everything of it belongs to."""

    def __init__(self, config: AgentConfig, node: str, agent: NodeAgent, meter: Meter) -> None:
        self._agent = agent
        self._meter = meter
        self._jobs = _open_jobs(config, node, agent, meter) if config.jobs.enabled else None
        self._asks_cloud = config.node.metadata and config.simulate is None
        self._watch: NoticeWatch | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._state_dir = config.state_dir
        agent.jobs = self._jobs
        agent.further_problems = self._problems
        if self._jobs is not None:
            agent.record = self._jobs.record
            agent.orders_changed()
        else:
            agent.record = self._note

    def _problems(self) -> list[str]:
        """What does not work of all this, for `/healthz`."""
        found = [self._agent.jobs_fault, self._jobs.problem if self._jobs is not None else None]
        found.append(self._watch.problem if self._watch is not None else None)
        return [text for text in found if text]

    def _note(self, actor: str, peer: str | None, action: str, object: str, result: str) -> None:
        """A line of the audit of a node that runs no jobs. One that cannot be written is said on stderr."""
        from agent.jobs.audit import Audit

        try:
            folder = self._state_dir / "jobs"
            folder.mkdir(mode=0o711, exist_ok=True)
            audit = Audit.open(folder / "audit.jsonl")
            try:
                audit.write(actor, peer, action, object, result)
            finally:
                audit.close()
        except (AgentFault, OSError) as fault:
            print(f"rackrate-agent: the audit cannot be written: {fault}", file=sys.stderr, flush=True)

    def start(self) -> None:
        """Takes over the jobs that run already, before the first sample."""
        self._loop = asyncio.get_running_loop()
        if self._jobs is not None:
            self._jobs.start()

    def watch(self, cloud: str | None) -> None:
        """Listens for notices of this cloud, once it is known which one it is."""
        from agent.interruption.watch import NoticeWatch

        if self._watch is None and self._asks_cloud and cloud not in (None, "on_premises"):
            self._watch = NoticeWatch(cloud, self._heard)
            self._watch.start()

    def _heard(self, notice: wire.Notice) -> None:
        """In the watch's thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._take, notice)

    def _take(self, notice: wire.Notice) -> None:
        self._meter.notice(notice)
        in_force = self._watch.current if self._watch is not None else None
        self._agent.set_notice(in_force or notice)

    def close(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()
        jobs, self._jobs = self._jobs, None
        if jobs is not None:
            jobs.close()


def _open_jobs(config: AgentConfig, node: str, agent: NodeAgent, meter: Meter) -> JobManager | None:
    """None, and a sentence on stderr, where the queue cannot be read: the node is measured all the same."""
    from agent.jobs.manager import JobManager

    try:
        return JobManager.open(config, node, gpus=lambda: agent.info.gpus, on_change=agent.publish_job, meter=meter)
    except AgentFault as fault:
        agent.jobs_fault = str(fault)
        print(f"rackrate-agent: jobs cannot run: {fault}", file=sys.stderr, flush=True)
        return None
