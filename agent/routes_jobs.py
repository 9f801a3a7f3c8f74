"""Jobs over HTTP: submit, dry run, list, show, cancel, signal, the log, uploads, and the sharing of a GPU with MPS.

Invariant: whatever a client asks is asked of the manager in the name of the token's holder; a job's fault is answered
with its own status and sentence; a job's id is checked before anything is looked up by it.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from litestar import Request, delete, get, post, put
from litestar.openapi import ResponseSpec
from litestar.params import Parameter

from agent import wire
from agent.asked import actor_of, agent_of
from agent.bodies import json_body, upload_body
from agent.errors import JobConflict, JobRefused, JobUnknown

if TYPE_CHECKING:
    from agent.jobs.manager import JobManager
    from agent.runtime import NodeAgent

LARGEST = 2**53 - 1
"""What JSON carries exactly everywhere."""
MOST_ENDED = 10_000
MOST_LOG_BYTES = 1024 * 1024
LONGEST_WAIT_SECONDS = 30.0
MOST_UPLOAD_BYTES = 2 * 1024**3
"""Where the manager does not say."""
MOST_DRAINED_BYTES = 64 * 1024**2
"""Of an upload that was refused: read on, so that the client gets to read why."""
MOST_ATTEMPTS = 1_000_000
SHA256 = r"[0-9a-f]{64}"
JobId = Annotated[str, Parameter(description="Of a job, or of a task of an array.")]
GpuName = Annotated[str, Parameter(description="UUID of a GPU.")]
Sha256 = Annotated[str, Parameter(description="Of the archive, in hexadecimal digits.")]
SIMULATED = "jobs cannot run on a simulated node"

_TRUTH = "true or false"
LIST_RANGES = {"ended": f"a whole number from 0 to {MOST_ENDED}"}
SUBMIT_RANGES = {"dry_run": _TRUTH, "reserve": _TRUTH}
CANCEL_RANGES = {"force": _TRUTH}
LOG_RANGES = {
    "offset": f"a whole number from 0 to {LARGEST}",
    "limit": f"a whole number from 1 to {MOST_LOG_BYTES}",
    "wait": f"a number of seconds from 0 to {LONGEST_WAIT_SECONDS:g}",
    "attempt": f"a whole number from 1 to {MOST_ATTEMPTS}",
}
BODIES: dict[tuple[str, str], type[msgspec.Struct]] = {
    ("/v1/jobs", "post"): wire.JobSpec,
    ("/v1/jobs/{id}/signal", "post"): wire.JobSignal,
    ("/v1/jobs/{id}/start", "post"): wire.GangStart,
    ("/v1/mps/{gpu}", "put"): wire.MpsSetting,
}
"""Path and method -> the struct that is sent: handlers read it themselves, so the framework does not know."""


def answers(*statuses: int) -> dict[int, ResponseSpec]:
    texts = {
        400: "What is asked for cannot be done.",
        401: "No token, or a wrong one.",
        403: "This token may not, or the request comes from a web page.",
        404: "There is none of this name.",
        408: "The body did not come.",
        409: "Not in this state.",
        413: "The body is too large.",
        415: "The body is of another kind.",
        429: "Too many wrong tokens from this peer.",
    }
    return {
        one: ResponseSpec(wire.Problem, description=texts[one], generate_examples=False) for one in (401, 403, 429, *statuses)
    }


BODY_STATUSES = (400, 404, 408, 409, 413, 415)


def manager_of(request: Request[Any, Any, Any]) -> JobManager:
    """What runs jobs on the node that is asked. Raises JobConflict where nothing does."""
    agent = agent_of(request)
    if agent.jobs is None:
        raise JobConflict(_absent(agent))
    return agent.jobs


def _absent(agent: NodeAgent) -> str:
    if agent.jobs_fault is not None:
        return f"jobs cannot run on this node: {agent.jobs_fault}"
    return SIMULATED if agent.info.simulated else "jobs are not run on this node: `enabled` is false in [jobs] of its agent.toml"


def checked(job_id: str) -> str:
    """A job's id that may be looked up. Raises JobUnknown for anything else."""
    if not re.fullmatch(wire.JOB_ID, job_id, re.ASCII):
        raise JobUnknown(f"{job_id[:64]!r} is no id of a job: an id is 12 digits and small letters; `rackrate jobs` lists them")
    return job_id


async def _done(value: Any) -> Any:
    """Some of the manager's answers come at once, and some are waited for."""
    return await value if inspect.isawaitable(value) else value


@get("/v1/jobs", summary="Running jobs, the queue, then those that ended", responses=answers(400), opt={"ranges": LIST_RANGES})
async def job_list(
    request: Request[Any, Any, Any],
    ended: Annotated[int, Parameter(ge=0, le=MOST_ENDED, description="At most so many that ended.")] = 200,
) -> wire.JobList:
    agent = agent_of(request)
    if agent.jobs is None:
        return wire.JobList(node=agent.info.node, jobs=(), problem=_absent(agent))
    return agent.jobs.jobs(ended_limit=ended)


@post(
    "/v1/jobs", status_code=200, summary="Submit a job; with dry_run say what a start would do, and do nothing",
    responses=answers(*BODY_STATUSES), opt={"ranges": SUBMIT_RANGES}, request_max_body_size=None,
)  # fmt: skip
async def job_submit(
    request: Request[Any, Any, Any],
    dry_run: Annotated[bool, Parameter(description="Only say what would be done.")] = False,
    reserve: Annotated[bool, Parameter(description="Hold its place for a minute: part of a run over several nodes.")] = False,
) -> wire.Job | wire.JobPlan:
    spec = await json_body(request, wire.JobSpec)
    manager, actor = manager_of(request), actor_of(request)
    if dry_run and reserve:
        raise JobRefused("a dry run reserves nothing; ask for one of `dry_run` and `reserve`")
    await manager.ready()
    if dry_run:
        return await _done(manager.plan(spec, actor))
    return await _done(manager.reserve(spec, actor) if reserve else manager.submit(spec, actor))


@get("/v1/jobs/{id:str}", summary="One job", responses=answers(400, 404, 409))
async def job_show(request: Request[Any, Any, Any], id: JobId) -> wire.Job:
    return manager_of(request).job(checked(id))


@delete(
    "/v1/jobs/{id:str}", status_code=200, summary="Cancel a job: softly, or with force at once",
    responses=answers(400, 404, 409), opt={"ranges": CANCEL_RANGES},
)  # fmt: skip
async def job_cancel(
    request: Request[Any, Any, Any],
    id: JobId,
    force: Annotated[bool, Parameter(description="Kill without a soft signal before.")] = False,
) -> wire.Job:
    return await _done(manager_of(request).cancel(checked(id), actor_of(request), force=force))


@post("/v1/jobs/{id:str}/signal", status_code=200, summary="Signal a job's first process once", responses=answers(*BODY_STATUSES))
async def job_signal(request: Request[Any, Any, Any], id: JobId) -> wire.Job:
    body = await json_body(request, wire.JobSignal)
    return await _done(manager_of(request).signal(checked(id), body.signal, actor_of(request)))


@post(
    "/v1/jobs/{id:str}/start",
    status_code=200,
    summary="Start a reserved part of a run over several nodes",
    responses=answers(*BODY_STATUSES),
)
async def job_start(request: Request[Any, Any, Any], id: JobId) -> wire.Job:
    body = await json_body(request, wire.GangStart)
    return await _done(manager_of(request).start_reserved(checked(id), body.endpoint, actor_of(request)))


@get("/v1/jobs/{id:str}/log", summary="A piece of a job's log", responses=answers(400, 404, 409), opt={"ranges": LOG_RANGES})
async def job_log(
    request: Request[Any, Any, Any],
    id: JobId,
    offset: Annotated[int, Parameter(ge=0, le=LARGEST, description="The first byte that is wanted.")] = 0,
    limit: Annotated[int, Parameter(ge=1, le=MOST_LOG_BYTES, description="At most so many bytes.")] = 65_536,
    wait: Annotated[float, Parameter(ge=0, le=LONGEST_WAIT_SECONDS, description="Seconds to wait for more.")] = 0.0,
    attempt: Annotated[int | None, Parameter(ge=1, le=MOST_ATTEMPTS, description="Which run; the newest.")] = None,
) -> wire.LogPage:
    manager, job = manager_of(request), checked(id)
    page = manager.log(job, attempt=attempt, offset=offset, limit=limit)
    if wait and not page.ended and page.next_offset <= offset:
        await _until_it_grows(request, manager, page, offset, wait)
        page = manager.log(job, attempt=page.attempt, offset=offset, limit=limit)
    return page


async def _until_it_grows(
    request: Request[Any, Any, Any], manager: JobManager, page: wire.LogPage, offset: int, seconds: float
) -> None:
    """Returns when there is more, when it has ended, after `seconds`, when the client has gone or the agent ends."""
    growing = asyncio.ensure_future(manager.log_grew(page.job, page.attempt or None, offset, seconds))
    tasks = (growing, asyncio.ensure_future(_gone(request)), asyncio.ensure_future(agent_of(request).closing.wait()))
    try:
        await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _gone(request: Request[Any, Any, Any]) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


@put(
    "/v1/uploads/{sha256:str}", summary="Send the files of a job ahead: a tar.gz and its SHA-256",
    responses=answers(400, 408, 409, 413, 415), request_max_body_size=None,
)  # fmt: skip
async def upload(request: Request[Any, Any, Any], sha256: Sha256) -> wire.Uploaded:
    manager = manager_of(request)
    if not re.fullmatch(SHA256, sha256):
        raise JobRefused(f"{sha256[:80]!r} is no SHA-256; it is 64 hexadecimal digits, in small letters")
    pieces = upload_body(request, getattr(manager, "max_upload_bytes", MOST_UPLOAD_BYTES))
    try:
        return await manager.upload(sha256, pieces)
    except Exception:
        await _drain(pieces)
        raise


async def _drain(pieces: AsyncIterator[bytes]) -> None:
    left = MOST_DRAINED_BYTES
    with suppress(Exception):
        async for piece in pieces:
            left -= len(piece)
            if left < 0:
                return


@get("/v1/mps/{gpu:str}", summary="How a GPU is shared", responses=answers(400, 404, 409))
async def mps_show(request: Request[Any, Any, Any], gpu: GpuName) -> wire.MpsState:
    return await _done(manager_of(request).mps(gpu))


@put("/v1/mps/{gpu:str}", summary="Set the defaults of a GPU's sharing", responses=answers(*BODY_STATUSES))
async def mps_set(request: Request[Any, Any, Any], gpu: GpuName) -> wire.MpsState:
    setting = await json_body(request, wire.MpsSetting)
    return await _done(manager_of(request).mps_set(gpu, setting, actor_of(request)))


HANDLERS = [job_list, job_submit, job_show, job_cancel, job_signal, job_start, job_log, upload, mps_show, mps_set]


def describe_bodies(document: dict[str, Any], more: dict[tuple[str, str], type[msgspec.Struct]] = {}) -> None:
    """Adds what is sent to the OpenAPI document, from the structs themselves; `more` is of other modules."""
    template = "#/components/schemas/{name}"
    bodies = {**BODIES, **more}
    schemas, components = msgspec.json.schema_components(list(bodies.values()), ref_template=template)
    for (path, method), schema in zip(bodies, schemas, strict=True):
        document["paths"][path][method]["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    for name, component in components.items():
        document["components"]["schemas"].setdefault(name, component)
    archive = {"schema": {"type": "string", "format": "binary"}}
    document["paths"]["/v1/uploads/{sha256}"]["put"]["requestBody"] = {
        "required": True,
        "content": {"application/gzip": archive},
    }
