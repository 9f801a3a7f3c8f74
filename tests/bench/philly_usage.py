"""The Philly trace (Microsoft 2017) as a fleet of p3.16xlarge, and rates to advise on: the files of the README's example.

`python tests/bench/philly_usage.py FOLDER` writes usage.csv (hour by hour, 2017-10-02 to 2017-12-22) and rates.csv there.

Invariant: a node has 8 GPUs; in each hour as many nodes run as the GPU time of all kept clusters fills, rounded up. The
on-demand rate is the catalog's; the reserved rates are assumptions (`DISCOUNTS`), since none could be verified offline.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import numpy as np

from pricing.calendar import EPOCH
from pricing.catalog import Catalog
from pricing.demand_series import Series, philly_series
from pricing.traces import philly_jobs

TRACE = Path(__file__).parents[3] / "shared" / "data" / "usage" / "philly_2017_jobs.csv.gz"
TYPE, REGION, GPUS = "p3.16xlarge", "us-east-1", 8
DISCOUNTS = {"reserved_1y": (12, 37), "reserved_3y": (36, 57)}
"""Purchase -> months, and percent off on-demand without upfront: of the size that AWS publishes for older GPU types."""


def usage_lines(trace: Path = TRACE) -> Iterator[str]:
    """One line an hour of all kept clusters together."""
    yield from lines_of(philly_series(philly_jobs(trace))[-1])


def lines_of(whole: Series) -> Iterator[str]:
    """One line an hour."""
    yield "hour_utc,instance_type,region,count,cloud"
    for place, gpus in enumerate(whole.counts):
        hour = EPOCH + timedelta(hours=whole.first_hour + place)
        yield f"{hour:%Y-%m-%dT%H:00Z},{TYPE},{REGION},{int(np.ceil(gpus / GPUS))},aws"


def rate_lines() -> Iterator[str]:
    """On demand from the catalog, reserved by assumption."""
    (offer,) = Catalog.embedded().offers("aws", REGION, instance_type=TYPE, purchase="on_demand")
    assert offer.price is not None  # noqa: S101 - it ships with one
    yield "instance_type,region,purchase,usd_per_hour,term_months,upfront,cloud,as_of,source"
    yield f"{TYPE},{REGION},on_demand,{offer.price.amount},,,aws,{offer.as_of},{offer.source.replace(',', ';')}"
    for purchase, (months, percent) in DISCOUNTS.items():
        rate = offer.price.amount * (100 - percent) / 100
        yield f"{TYPE},{REGION},{purchase},{rate},{months},,aws,{offer.as_of},assumed {percent} % off on demand; no upfront"


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or not TRACE.is_file():
        print(f"usage: philly_usage.py FOLDER (and the trace at {TRACE.name} in ../shared/data/usage)", file=sys.stderr)
        return 2
    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in (("usage.csv", usage_lines()), ("rates.csv", rate_lines())):
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
        print(f"wrote {folder / name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
