"""What the gate tells the routes of a request: which node is asked, and by whom.

Invariant: only `agent.server` puts these into a scope; nothing that a client sends can.
"""

from __future__ import annotations

from typing import Any

from litestar import Request

from agent.jobs.actor import Actor
from agent.runtime import NodeAgent

AGENT = "rackrate.agent"
"""Key of the scope under which the gate puts the node that is asked."""
ACTOR = "rackrate.actor"
"""Key of the scope under which the gate puts whom the request comes from."""
FRAMEWORK_SCHEMA = "/.schema"
"""Where the framework puts pages of its own, which the gate does not serve."""
NO_STORE = "no-store"


def agent_of(request: Request[Any, Any, Any]) -> NodeAgent:
    agent: NodeAgent = request.scope[AGENT]  # type: ignore[typeddict-item]
    return agent


def actor_of(request: Request[Any, Any, Any]) -> Actor:
    """Known on every path but `/healthz`."""
    actor: Actor | None = request.scope[ACTOR]  # type: ignore[typeddict-item]
    if actor is None:
        raise PermissionError("the gate let a request pass without asking whom it comes from")
    return actor
