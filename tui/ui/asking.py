"""Questions to single nodes beside their streams: a minute of history, a list of jobs, and what a person wants done.

Invariant: the app never waits for an answer, and a node is asked by few at a time; when the app ends, so do they.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tui.errors import Failed
from tui.fleet import Fleet
from tui.ui.plot_history import PlotHistory

if TYPE_CHECKING:
    from agent.client import AgentClient
    from tui.config import NodeConfig

HISTORY_SECONDS = 60
LIST_AGAIN_SECONDS = 60.0
"""A node is asked for its whole list of jobs at most this often; what changes meanwhile comes by its stream."""
AT_ONCE = 8


class Asking:
    """`changed` is called when an answer is in the fleet, `complain` with what nobody expected."""

    def __init__(
        self,
        fleet: Fleet,
        nodes: Sequence[NodeConfig],
        client_for: Callable[[NodeConfig], AgentClient] | None,
        clock: Callable[[], float],
        changed: Callable[[], None],
        complain: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._fleet = fleet
        self._nodes = {node.name: node for node in nodes}
        self._client_for = client_for
        self._clock = clock
        self._changed = changed
        self._complain = complain
        self._tasks: set[asyncio.Task[None]] = set()
        self._seeded: set[str] = set()
        self._listed: dict[str, float] = {}
        self.plots = PlotHistory(fleet, self, clock, changed, self.can_ask)
        """The past that is looked at."""

    def can_ask(self, name: str) -> bool:
        """Whether the node can be asked from here."""
        return self._client_for is not None and name in self._nodes

    def speak_to(self, client_for: Callable[[NodeConfig], AgentClient] | None) -> None:
        """Asks others from now on: what is shown is of another time."""
        self._client_for = client_for
        self._seeded.clear()
        self.plots.forget()
        self._listed.clear()

    @property
    def is_waiting(self) -> bool:
        """Whether a question is not answered yet."""
        return bool(self._tasks)

    def client(self, name: str) -> AgentClient:
        """A client of the node, to be closed by the caller. Failed: the node cannot be asked."""
        if self._client_for is None or name not in self._nodes:
            raise Failed(f"{name} cannot be asked from here: it is not among the configured nodes.")
        return self._client_for(self._nodes[name])

    def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Runs it beside the app. An error that it did not expect is a notice, not the end of the program."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._complain(f"unexpected {type(error).__name__}: {error}")

    async def close(self) -> None:
        """Ends all questions."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def history(self, name: str) -> None:
        """The minute before the app was started, once a node."""
        if name in self._nodes and self._client_for is not None and name not in self._seeded and any(self._lacks(name)):
            self._seeded.add(name)
            self.start(self._ask_history(name))

    def other_time(self) -> None:
        """Another moment is shown: what nodes told of before is not what was before it."""
        self._seeded.clear()

    def _lacks(self, name: str) -> Iterable[bool]:
        view = self._fleet[name]
        return (view.past.known(gpu.uuid, HISTORY_SECONDS) < HISTORY_SECONDS - 2 for gpu in view.gpus)

    async def _ask_history(self, name: str) -> None:
        from agent.client import ClientError
        from tui.errors import RackrateError

        try:
            async with self.client(name) as client:
                self._fleet.seed_history(name, await client.history(HISTORY_SECONDS))
        except (ClientError, RackrateError):
            return
        self._changed()

    def job_lists(self, names: Iterable[str]) -> None:
        """The whole lists of jobs, with those that ended before the app was started."""
        now = self._clock()
        due = [name for name in names if self._is_due(name, now)]
        if due:
            self._listed.update(dict.fromkeys(due, now))
            self.start(self._ask_lists(due))

    def _is_due(self, name: str, now: float) -> bool:
        view = self._fleet[name]
        if name not in self._nodes or self._client_for is None or view.info is None or view.info.simulated:
            return False
        return view.connected and now - self._listed.get(name, -1e9) >= LIST_AGAIN_SECONDS

    async def _ask_lists(self, names: Sequence[str]) -> None:
        gate = asyncio.Semaphore(AT_ONCE)

        async def one(name: str) -> None:
            async with gate:
                await self._ask_list(name)

        await asyncio.gather(*(one(name) for name in names))
        self._changed()

    async def _ask_list(self, name: str) -> None:
        from agent.client import ClientError
        from tui.errors import RackrateError

        try:
            async with self.client(name) as client:
                self._fleet.seed_jobs(name, await client.jobs(), self._clock())
        except (ClientError, RackrateError):
            self._listed.pop(name, None)
