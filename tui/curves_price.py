"""The price of a job without a GPU, for its curves: an agent knows none, for it knows no weights; the reports do.

Invariant: the price an hour is the one that a report comes to by the node's price of now; where it is not known, why is told.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction

import msgspec

from agent import wire
from pricing.weights import Weights
from tui import format as fmt
from tui.curves import Run
from tui.job_price import part_of
from tui.job_rows import has_gpu

PLACES = 9
PART = "its part of the node by processors and memory, at the price of now"
NO_PRICE = "not known: the node has no price; give its instance type, or usd_per_hour, in its agent.toml"
NO_SIZE = "not known: the agent does not tell how many processors and how much memory the node has"


def priced(run: Run, info: wire.NodeInfo, node_price: Fraction | None, weights: Weights, now: datetime | None) -> Run:
    """The run with what its job costs, attempt by attempt; `now` ends one that runs. A job with a GPU is priced by its agent."""
    job = run.job
    if has_gpu(job):
        return run
    price = None if node_price is None or not node_price else fmt.decimal_of(node_price, PLACES)
    spec = wire.JobSpec(command=("-",), cpus=job.cpus, memory_bytes=job.memory_bytes)
    part = part_of(spec, info, price, weights)
    if part is None:
        return run._replace(price_note=NO_PRICE if price is None else NO_SIZE)
    attempts = tuple(msgspec.structs.replace(one, cost=_cost(part, one, now)) for one in job.attempts)
    costs = [one.cost for one in attempts if one.started_at is not None]
    whole = None if None in costs or not costs else sum((cost for cost in costs if cost is not None), Decimal(0))
    known = msgspec.structs.replace(job, usd_per_hour=fmt.decimal_of(part, PLACES), cost=whole, attempts=attempts)
    return run._replace(job=known, price_note=PART)


def _cost(per_hour: Fraction, attempt: wire.Attempt, now: datetime | None) -> Decimal | None:
    end = attempt.ended_at or now
    if attempt.started_at is None or end is None:
        return None
    held = max(timedelta(0), end - attempt.started_at)
    return fmt.decimal_of(per_hour * (held // timedelta(milliseconds=1)) / 3_600_000, PLACES)
