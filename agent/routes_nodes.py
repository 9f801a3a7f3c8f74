"""Orders about a whole node over HTTP: drain it and let it go on, pause its alerts and resume them.

Invariant: an order is the matter of everybody on the node: a token that stands for one user may not give one. What changed
is in the audit with the token's name, and in the stream at once.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import Request, delete, get, post, put
from litestar.params import Parameter

from agent import wire
from agent.asked import actor_of, agent_of
from agent.bodies import json_body
from agent.drain import named, one_line
from agent.errors import JobForbidden
from agent.jobs.actor import Actor
from agent.routes_jobs import BODY_STATUSES, answers

BODIES: dict[tuple[str, str], type[msgspec.Struct]] = {
    ("/v1/drain", "put"): wire.DrainOrder,
    ("/v1/alerts/pauses", "post"): wire.PauseOrder,
}
PATHS = ["/v1/drain", "/v1/alerts/pauses", "/v1/alerts/pauses/{id:str}"]


def _entitled(request: Request[Any, Any, Any], what: str) -> Actor:
    """Who asks. JobForbidden: their token stands for one user."""
    actor = actor_of(request)
    if actor.user is not None:
        raise JobForbidden(f"the token {actor.name!r} stands for one user, and {what} is everybody's matter")
    return actor


@put("/v1/drain", status_code=200, summary="Drain the node: no new job starts; running ones go on", responses=answers(*BODY_STATUSES))
async def drain_order(request: Request[Any, Any, Any]) -> wire.NodeInfo:
    order = await json_body(request, wire.DrainOrder)
    agent, actor = agent_of(request), _entitled(request, "whether the node takes jobs")
    if agent.drain.order(named(actor.name, order.who), one_line(order.reason)):
        agent.record(actor.name, actor.peer, "drain", agent.info.node, order.reason or "no reason given")
        agent.orders_changed()
    return agent.info


@delete("/v1/drain", status_code=200, summary="Let a drained node start jobs again", responses=answers())
async def drain_lift(request: Request[Any, Any, Any]) -> wire.NodeInfo:
    agent, actor = agent_of(request), _entitled(request, "whether the node takes jobs")
    if agent.drain.lift():
        agent.record(actor.name, actor.peer, "undrain", agent.info.node, "takes jobs again")
        agent.orders_changed()
    return agent.info


@get("/v1/alerts/pauses", summary="Pauses of alerts that are in force", responses=answers())
async def pause_list(request: Request[Any, Any, Any]) -> wire.AlertPauses:
    agent = agent_of(request)
    return wire.AlertPauses(node=agent.info.node, pauses=agent.pauses.now)


@post("/v1/alerts/pauses", status_code=200, summary="Pause alerts for a while", responses=answers(*BODY_STATUSES))
async def pause_order(request: Request[Any, Any, Any]) -> wire.NodeInfo:
    order = await json_body(request, wire.PauseOrder)
    agent, actor = agent_of(request), _entitled(request, "who is called about the node")
    gpus = tuple(gpu.uuid for gpu in agent.info.gpus)
    pause = agent.pauses.pause(order, named(actor.name, order.who), one_line(order.reason), gpus)
    agent.record(actor.name, actor.peer, "pause_alerts", _about(pause), f"{pause.id} until {pause.until.isoformat(timespec='seconds')}")
    agent.orders_changed()
    return agent.info


@delete("/v1/alerts/pauses", status_code=200, summary="End all pauses", responses=answers())
async def pause_end_all(request: Request[Any, Any, Any]) -> wire.NodeInfo:
    return _end(request, None)


@delete("/v1/alerts/pauses/{id:str}", status_code=200, summary="End one pause", responses=answers(400, 404))
async def pause_end(request: Request[Any, Any, Any], id: Annotated[str, Parameter(description="Of a pause.")]) -> wire.NodeInfo:
    return _end(request, id)


def _end(request: Request[Any, Any, Any], id: str | None) -> wire.NodeInfo:
    agent, actor = agent_of(request), _entitled(request, "who is called about the node")
    for ended in agent.pauses.end(id):
        agent.record(actor.name, actor.peer, "resume_alerts", _about(ended), ended.id)
    agent.orders_changed()
    return agent.info


def _about(pause: wire.AlertPause) -> str:
    return f"{pause.rule or 'all rules'} {pause.gpu or ''}".strip()


HANDLERS = [drain_order, drain_lift, pause_list, pause_order, pause_end_all, pause_end]
