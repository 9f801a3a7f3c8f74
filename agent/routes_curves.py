"""The curves of a job over HTTP.

Invariant: it only reads, in a thread, and an answer is never longer than the points that were asked for.
"""

from __future__ import annotations

from typing import Annotated, Any

from litestar import Request, get
from litestar.params import Parameter

from agent import wire
from agent.routes_jobs import JobId, answers, checked, manager_of

LEAST_POINTS, MOST_POINTS = 4, 1000
MOST_NAMES_BYTES = 4096
CURVES_RANGES = {
    "points": f"a whole number from {LEAST_POINTS} to {MOST_POINTS}",
    "names": f"names with commas between them, at most {MOST_NAMES_BYTES} characters",
}


@get(
    "/v1/jobs/{id:str}/curves", summary="What a job told of its training, step by step",
    responses=answers(400, 404, 409), opt={"ranges": CURVES_RANGES},
)  # fmt: skip
async def job_curves(
    request: Request[Any, Any, Any],
    id: JobId,
    points: Annotated[int, Parameter(ge=LEAST_POINTS, le=MOST_POINTS, description="Of each curve at most so many.")] = 200,
    names: Annotated[
        str, Parameter(max_length=MOST_NAMES_BYTES, description="Only these, with commas between them; empty: all.")
    ] = "",
) -> wire.JobCurves:
    wanted = tuple(name for name in names.split(",") if name)
    return await manager_of(request).curves(checked(id), points, wanted)


HANDLERS = [job_curves]
