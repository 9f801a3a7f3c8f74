"""The calls of one agent that are about jobs: submit, list, follow, stop, and the sharing of a GPU.

Invariant: a file that is uploaded is read piece by piece and never held whole, and what the agent says against a job
arrives as `AgentRefused` with the agent's own sentence, also where it says that there is no such job (404).
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import msgspec

from agent import wire

if TYPE_CHECKING:
    import httpx

PIECE_BYTES = 256 * 1024
LONGEST_WAIT_SECONDS = 30.0
ANSWER_SECONDS = 30.0
"""For what the agent does before it answers: start a daemon, write durably, hold places."""
UNPACK_SECONDS = 600.0
"""From the last byte of an upload to the answer."""

T = TypeVar("T")

_list = msgspec.json.Decoder(wire.JobList)
_job = msgspec.json.Decoder(wire.Job)
_plan = msgspec.json.Decoder(wire.JobPlan)
_page = msgspec.json.Decoder(wire.LogPage)
_curves = msgspec.json.Decoder(wire.JobCurves)
_uploaded = msgspec.json.Decoder(wire.Uploaded)
_mps = msgspec.json.Decoder(wire.MpsState)


class JobCalls:
    """What `agent.client.AgentClient` can do with jobs. Errors: `ClientError`, from every method."""

    if TYPE_CHECKING:

        def _open(
            self, path: str, timeout: httpx.Timeout, method: str = "GET", **sent: Any
        ) -> contextlib.AbstractAsyncContextManager[httpx.Response]: ...
        def _answer(self, status: int, body: bytes, decoder: msgspec.json.Decoder[T], *, ours: bool = False) -> T: ...
        def _allowing(self, read: float) -> httpx.Timeout: ...

    async def jobs(self, ended: int = 200) -> wire.JobList:
        """Running ones, the queue in its order, and at most `ended` that ended, newest first."""
        return await self._ask("GET", f"v1/jobs?ended={ended}", _list)

    async def job(self, id: str) -> wire.Job:
        return await self._ask("GET", _path(id), _job)

    async def submit(self, spec: wire.JobSpec, *, reserve: bool = False) -> wire.Job:
        """Submits a job; `reserve` holds a place for a part of a run over several nodes until `start`."""
        return await self._ask("POST", "v1/jobs?reserve=true" if reserve else "v1/jobs", _job, spec)

    async def dry_run(self, spec: wire.JobSpec) -> wire.JobPlan:
        """What a start would do now. Nothing is done."""
        return await self._ask("POST", "v1/jobs?dry_run=true", _plan, spec)

    async def cancel(self, id: str, *, force: bool = False) -> wire.Job:
        return await self._ask("DELETE", _path(id) + ("?force=true" if force else ""), _job)

    async def signal(self, id: str, name: str) -> wire.Job:
        """`USR1`, `SIGUSR1` or `10`, once, to the job's first process."""
        return await self._ask("POST", _path(id, "/signal"), _job, wire.JobSignal(signal=name))

    async def start(self, id: str, endpoint: str) -> wire.Job:
        """Starts a reserved part; `endpoint` is HOST:PORT of the rendezvous."""
        return await self._ask("POST", _path(id, "/start"), _job, wire.GangStart(endpoint=endpoint))

    async def log(
        self, id: str, offset: int = 0, *, limit: int = 65_536, wait: float = 0, attempt: int | None = None
    ) -> wire.LogPage:
        """The log from byte `offset` on; `wait`: so many seconds (30 at most) for more, where there is none yet."""
        query = f"/log?offset={offset}&limit={limit}&wait={min(wait, LONGEST_WAIT_SECONDS):g}"
        which = "" if attempt is None else f"&attempt={attempt}"
        return await self._ask("GET", _path(id, query + which), _page, seconds=ANSWER_SECONDS + wait)

    async def curves(self, id: str, *, points: int = 200, names: Sequence[str] = ()) -> wire.JobCurves:
        """What the job told of its training, thinned; `behind_bytes` says whether there is more to be read."""
        query = f"/curves?points={points}&names={quote(','.join(names), safe='')}"
        return await self._ask("GET", _path(id, query), _curves)

    async def upload(self, sha256: str, path: Path, *, sent: Callable[[int], None] | None = None) -> wire.Uploaded:
        """Sends a tar.gz file; `sent` is told how many bytes have left so far."""
        headers = {"content-type": "application/gzip", "content-length": str(path.stat().st_size)}
        timeout = self._allowing(UNPACK_SECONDS)
        async with contextlib.aclosing(_pieces(path, sent)) as pieces:
            async with self._open(f"v1/uploads/{sha256}", timeout, "PUT", content=pieces, headers=headers) as response:
                body = await response.aread()
        return self._answer(response.status_code, body, _uploaded, ours=True)

    async def mps(self, gpu: str) -> wire.MpsState:
        return await self._ask("GET", f"v1/mps/{quote(gpu, safe='')}", _mps)

    async def mps_set(self, gpu: str, setting: wire.MpsSetting) -> wire.MpsState:
        return await self._ask("PUT", f"v1/mps/{quote(gpu, safe='')}", _mps, setting)

    async def _ask(
        self,
        method: str,
        path: str,
        decoder: msgspec.json.Decoder[T],
        body: msgspec.Struct | None = None,
        seconds: float = ANSWER_SECONDS,
    ) -> T:
        sent: dict[str, Any] = {}
        if body is not None:
            sent = {"content": wire.encoder.encode(body), "headers": {"content-type": "application/json"}}
        async with self._open(path, self._allowing(seconds), method, **sent) as response:
            answer = await response.aread()
        return self._answer(response.status_code, answer, decoder, ours=True)


def _path(id: str, rest: str = "") -> str:
    return f"v1/jobs/{quote(id, safe='')}{rest}"


async def _pieces(path: Path, sent: Callable[[int], None] | None) -> AsyncIterator[bytes]:
    total = 0
    with path.open("rb") as file:
        while piece := file.read(PIECE_BYTES):
            yield piece
            total += len(piece)
            if sent is not None:
                sent(total)
