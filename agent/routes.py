"""What the agent answers under each path, and the OpenAPI document of it, made from the wire's own structs.

Invariant: every handler of this file only reads; each answer is a struct of `agent.wire`, and every error is a
`wire.Problem`. What changes something is in `agent.routes_jobs` and `agent.routes_nodes`.
Litestar carries it: its schema states our structs exactly (decimals as strings, tags of events), a request costs some
40 us, and it adds 11 MB to uvicorn's 25 MB, which leaves the agent inside its 60 MB.
"""

from __future__ import annotations

import asyncio
import re
import sys
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from litestar import Litestar, MediaType, Request, Response, get, route
from litestar.datastructures import ResponseHeader
from litestar.exceptions import HTTPException, ValidationException
from litestar.openapi import ResponseSpec
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.spec import Components, SecurityScheme
from litestar.params import Parameter
from litestar.plugins.core import MsgspecDIPlugin
from litestar.types import ASGIApp, Receive, Scope, Send

from agent import metrics, routes_curves, routes_jobs, routes_nodes, wire
from agent.asked import FRAMEWORK_SCHEMA, NO_STORE, agent_of
from agent.errors import AgentFault, IsolationFault, JobFault, MpsFault
from agent.runtime import METER_REPORT, NodeAgent, Subscription

NDJSON = "application/x-ndjson"
SSE = "text/event-stream"
STALE_SECONDS = 10.0
LARGEST = 2**53 - 1
"""What JSON carries exactly everywhere."""
LONGEST_HISTORY_SECONDS = 7 * 86_400
MOST_ROWS = 10_000
MOST_LISTENERS = 256
"""Open streams of one node."""
USAGE_RANGES = {"after": f"a whole number from 0 to {LARGEST}", "limit": f"a whole number from 1 to {MOST_ROWS}"}
HISTORY_RANGES = {"seconds": f"a whole number from 1 to {LONGEST_HISTORY_SECONDS}"}


class Health(wire.Message, kw_only=True):
    """`GET /healthz`: whether this agent works. `degraded`: it runs, and `problems` says what does not."""

    status: Literal["ok", "starting", "degraded"]
    version: str | None = None
    started_at: datetime | None = None
    sample_age_seconds: float | None = None
    problems: tuple[str, ...] = ()


class NoSample(HTTPException):
    """The sensors have not read anything yet."""

    status_code = 503
    detail = "the agent has just started and has no reading yet; ask again in a second"


class TooManyListeners(HTTPException):
    """Each open stream holds memory."""

    status_code = 503
    detail = f"{MOST_LISTENERS} streams of this node are open already; close one, or share one among programs"


def health(agent: NodeAgent) -> Health:
    problems = [] if agent.meter_error is None else [f"usage is not being written: {agent.meter_error}"]
    problems += agent.further_problems()
    sensors = () if agent.sample is None else agent.sample.sensors
    problems += [f"{one.name}: {one.error}" for one in sensors if not one.ok and one.name != METER_REPORT]
    age = agent.sample_age_seconds
    if age is not None and age > STALE_SECONDS:
        problems.append(f"the newest reading is {age:.0f} s old")
    status: Literal["ok", "starting", "degraded"] = "degraded" if problems else "starting" if age is None else "ok"
    return Health(
        status=status,
        version=agent.info.agent_version,
        started_at=agent.info.started_at,
        sample_age_seconds=None if age is None else round(age, 3),
        problems=tuple(problems),
    )


PROBLEMS = {
    status: ResponseSpec(wire.Problem, description=text, generate_examples=False)
    for status, text in (
        (401, "No token, or a wrong one."),
        (403, "An Origin header, or a Host that is not this agent's."),
        (429, "Too many wrong tokens from this peer."),
    )
}
BAD_VALUE = {400: ResponseSpec(wire.Problem, description="A parameter is out of range.", generate_examples=False)}


@get("/healthz", summary="Whether the agent works", security=[{}])
async def healthz(request: Request[Any, Any, Any]) -> Health:
    return health(agent_of(request))


@get("/v1/node", summary="Identity and inventory", responses=PROBLEMS)
async def node(request: Request[Any, Any, Any]) -> wire.NodeInfo:
    return agent_of(request).info


@get(
    "/v1/sample",
    summary="The newest readings",
    responses={**PROBLEMS, 503: ResponseSpec(wire.Problem, description="No reading yet.", generate_examples=False)},
)
async def sample(request: Request[Any, Any, Any]) -> Response[wire.Sample]:
    body: Any = agent_of(request).sample_body()
    if body is None:
        raise NoSample
    return Response(body, media_type=MediaType.JSON)


@get(
    "/v1/stream",
    summary="Node, alerts and samples as they come: one JSON event a line, or server-sent events",
    responses={
        **PROBLEMS,
        503: ResponseSpec(wire.Problem, description="Too many streams are open.", generate_examples=False),
        200: ResponseSpec(wire.Event, media_type=NDJSON, description="Without end.", generate_examples=False),
    },
)
async def stream(request: Request[Any, Any, Any]) -> ASGIApp:
    if agent_of(request).listeners >= MOST_LISTENERS:
        raise TooManyListeners
    return EventStream(agent_of(request), sse=SSE in request.headers.get("accept", ""))


@get("/v1/history", summary="Past readings for plots", responses={**PROBLEMS, **BAD_VALUE}, opt={"ranges": HISTORY_RANGES})
async def history(
    request: Request[Any, Any, Any],
    seconds: Annotated[int, Parameter(ge=1, le=LONGEST_HISTORY_SECONDS, description="How far back.")] = 60,
) -> wire.History:
    return agent_of(request).history_of(seconds)


@get(
    "/v1/usage",
    summary="Usage rows after a sequence, in order",
    responses={**PROBLEMS, **BAD_VALUE},
    opt={"ranges": USAGE_RANGES},
)
async def usage(
    request: Request[Any, Any, Any],
    after: Annotated[int, Parameter(ge=0, le=LARGEST, description="The last sequence that is known.")] = 0,
    limit: Annotated[int, Parameter(ge=1, le=MOST_ROWS, description="At most so many rows.")] = 1000,
) -> wire.UsagePage:
    return agent_of(request).usage(after, limit)


@get("/v1/alerts", summary="Active alerts, then those that ended within the last hour", responses=PROBLEMS)
async def alerts(request: Request[Any, Any, Any]) -> wire.AlertList:
    return agent_of(request).alert_list()


@get(
    "/metrics",
    summary="Prometheus metrics (OpenMetrics where the client asks for it)",
    media_type=MediaType.TEXT,
    responses=PROBLEMS,
)
async def prometheus(request: Request[Any, Any, Any]) -> Response[bytes]:
    openmetrics = "application/openmetrics-text" in request.headers.get("accept", "")
    body = metrics.render(agent_of(request), openmetrics=openmetrics)
    return Response(body, media_type=metrics.OPENMETRICS_TYPE if openmetrics else metrics.TEXT_TYPE)


@get("/schema", summary="This document", media_type="application/vnd.oai.openapi+json", responses=PROBLEMS)
async def schema(request: Request[Any, Any, Any]) -> Response[dict[str, Any]]:
    body: Any = wire.encoder.encode(describe(request.app))
    return Response(body, media_type="application/vnd.oai.openapi+json")


class EventStream:
    """The endless answer, written straight to the server: a layer less for each message of each listener."""

    def __init__(self, agent: NodeAgent, *, sse: bool) -> None:
        self._agent = agent
        self._sse = sse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        subscription = self._agent.subscribe()
        watcher = asyncio.ensure_future(_close_on_disconnect(receive, subscription))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self._headers()})
            while (lines := await subscription.take()) is not None:
                body = _as_sse(lines) if self._sse else lines
                await send({"type": "http.response.body", "body": body, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            watcher.cancel()
            subscription.close()

    def _headers(self) -> list[tuple[bytes, bytes]]:
        kind = SSE if self._sse else NDJSON
        return [
            (b"content-type", kind.encode()),
            (b"cache-control", NO_STORE.encode()),
            (b"x-accel-buffering", b"no"),
        ]


async def _close_on_disconnect(receive: Receive, subscription: Subscription) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    subscription.close()


def _as_sse(lines: bytes) -> bytes:
    return b"".join(b"data: " + line + b"\n\n" for line in lines.split(b"\n") if line)


DESCRIBED: list[Any] = [
    Health, wire.Problem, wire.NodeInfo, wire.Sample, wire.History, wire.UsagePage, wire.AlertList, wire.Event,
    wire.JobList, wire.JobPlan, wire.LogPage, wire.JobCurves, wire.Uploaded, wire.MpsState, wire.AlertPauses,
]  # fmt: skip


def describe(app: Litestar) -> dict[str, Any]:
    """The OpenAPI document, with the docstrings of the structs as descriptions."""
    document = app.openapi_schema.to_schema()
    routes_jobs.describe_bodies(document, routes_nodes.BODIES)
    _, described = msgspec.json.schema_components(DESCRIBED, ref_template="#/components/schemas/{name}")
    for name, component in document["components"]["schemas"].items():
        if text := described.get(name, {}).get("description"):
            component.setdefault("description", text)
    return document


def problem(status: int, text: str) -> Response[Any]:
    body: Any = wire.encoder.encode(wire.Problem(error=text, status=status))
    return Response(body, status_code=status, media_type=MediaType.JSON, headers={"cache-control": NO_STORE})


def _refused(request: Request[Any, Any, Any], error: HTTPException) -> Response[Any]:
    response = problem(error.status_code, _sentence(request, error))
    response.headers.update(error.headers or {})
    if error.status_code == 405:
        response.headers["allow"] = ", ".join(methods_at(request))
    return response


def _sentence(request: Request[Any, Any, Any], error: HTTPException) -> str:
    path = request.scope["root_path"] + request.scope["path"]
    if isinstance(error, ValidationException) and isinstance(error.extra, list):
        wrong = [str(one.get("key")) for one in error.extra if isinstance(one, dict)]
        ranges = request.route_handler.opt.get("ranges", {})
        return "; ".join(f"{name} has to be {ranges[name]}" for name in wrong if name in ranges) or error.detail
    if error.status_code == 404:
        return f"there is nothing at {path}; /schema lists what there is"
    if error.status_code == 405:
        methods = [one for one in methods_at(request) if one != "OPTIONS"]
        return f"{request.method} is not answered at {path}; only {' and '.join(methods)} {'are' if len(methods) > 1 else 'is'}"
    return error.detail


def methods_at(request: Request[Any, Any, Any]) -> list[str]:
    """What is answered at the request's path. (The framework tells only of the first handler of a path.)"""
    path = request.scope["path"].rstrip("/") or "/"
    for one in request.app.routes:
        if re.fullmatch(re.sub(r"\{[^}]*\}", "[^/]+", one.path_format), path):
            return sorted(one.methods)
    return []


@route(
    ["/v1/jobs", "/v1/jobs/{id:str}", "/v1/mps/{gpu:str}", *routes_nodes.PATHS], http_method=["OPTIONS"], include_in_schema=False, status_code=204
)
async def options(request: Request[Any, Any, Any]) -> Response[None]:
    return Response(None, status_code=204, headers={"allow": ", ".join(methods_at(request))})


def _faulty(request: Request[Any, Any, Any], error: AgentFault) -> Response[Any]:
    """A fault of the agent's own tree is a sentence already."""
    status = error.status if isinstance(error, JobFault) else 409 if isinstance(error, (MpsFault, IsolationFault)) else 500
    return problem(status, str(error))


def _broken(request: Request[Any, Any, Any], error: Exception) -> Response[Any]:
    print(f"{request.method} {request.scope['path']}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    return problem(500, "the agent failed to answer; its log says why")


class _Structs(Litestar):
    """With msgspec's structs alone: else what else is installed beside (pydantic, attrs) is imported at each start, for nothing."""

    @staticmethod
    def _get_default_plugins(plugins: list[Any]) -> list[Any]:
        return [*plugins, MsgspecDIPlugin()]


def create_routes() -> Litestar:
    """The framework's part: routing, parameters, encoding. Who may ask was settled before (`agent.server`)."""
    return _Structs(
        route_handlers=[
            healthz,
            node,
            sample,
            stream,
            history,
            usage,
            alerts,
            prometheus,
            schema,
            options,
            *routes_jobs.HANDLERS,
            *routes_curves.HANDLERS,
            *routes_nodes.HANDLERS,
        ],  # fmt: skip
        exception_handlers={HTTPException: _refused, AgentFault: _faulty, Exception: _broken},
        response_headers=[ResponseHeader(name="cache-control", value=NO_STORE, documentation_only=False)],
        openapi_config=OpenAPIConfig(
            title="Rackrate agent",
            version=str(wire.WIRE_VERSION),
            path=FRAMEWORK_SCHEMA,
            security=[{"token": []}],
            components=Components(security_schemes={"token": SecurityScheme(type="http", scheme="bearer")}),
        ),
        logging_config=None,
        debug=False,
    )
