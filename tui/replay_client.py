"""A node of a recording where an agent's client is expected: it answers what was recorded, as of the replay's moment.

Invariant: nothing is ever changed by it; what was not recorded is a sentence.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agent import wire
from agent.client_errors import AgentRefused
from tui.errors import Failed
from tui.fleet import Fleet
from tui.replay import Recording

NO_LOGS = "logs are not in the recording"
NO_CHANGES = "this is a recording: nothing can be changed in it"


class RecordedClient:
    """The part of `AgentClient` that can be answered from a recording."""

    def __init__(self, name: str, recording: Recording, at_ms: Callable[[], int], fleet: Callable[[], Fleet]) -> None:
        self._name = name
        self._recording = recording
        self._at_ms = at_ms
        self._fleet = fleet
        self.url = f"recording:{name}"

    async def __aenter__(self) -> RecordedClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        return

    async def aclose(self) -> None:
        return

    async def jobs(self, *_: object, **__: object) -> wire.JobList:
        """Those that were known then."""
        view = self._fleet()[self._name]
        return wire.JobList(node=self._name, jobs=tuple(one.job for one in view.jobs), problem=view.jobs.problem)

    async def job(self, ident: str, *_: object, **__: object) -> wire.Job:
        """One of them."""
        found = self._fleet().job(self._name, ident)
        if found is None:
            raise AgentRefused(404, f"there was no job {ident}", self.url)
        return found.job

    async def history(self, seconds: int, *_: object, **__: object) -> wire.History:
        """A point a minute before the moment, a point a sample in the last three."""
        import asyncio

        return await asyncio.to_thread(self._recording.history, self._name, self._at_ms(), seconds)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        why = NO_LOGS if "log" in name or name == "curves" else NO_CHANGES if name not in ("usage", "alerts", "node", "sample", "stream") else "it was not recorded"

        async def refused(*_: object, **__: object) -> Any:
            raise Failed(f"{self._name}: {why}.")

        return refused
