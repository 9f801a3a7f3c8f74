"""Advice: a fleet of 1,000 nodes and a year of hours, from a usage file and from a ledger; and Philly, judged on later weeks.

Invariant: prints figures, asserts none. `python tests/bench/bench_advice.py [NODES]` (default 1000; the goal is 10 s on one core).

The ledger is written as sums directly (a year of days, the hours of the last two weeks and of days that are not full, and the
rows of the last week): what a year of syncs would leave, without the minutes that it takes.
"""

from __future__ import annotations

import csv
import random
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import TypeVar

from pricing.advice import KINDS, Advice, Case, advise
from pricing.advice_judge import Judgement, after, judge
from pricing.catalog import Catalog
from pricing.demand import Demand, from_ledger, read_usage, with_clouds
from pricing.demand_series import Series, philly_series
from pricing.fleet_read import read_fleet
from pricing.ledger import Ledger
from pricing.ledger_merge import HOUR_MS
from pricing.rate_card import CatalogCard, FileCard, LayeredCard, RateCard, read_rates
from pricing.terms import Terms
from pricing.traces import philly_jobs
from pricing.usage import KINDS as USAGE_KINDS
from pricing.usage import WHOLE_SHARE
from tests.bench import philly_usage

HOURS, GPUS = 8760, 8
END = datetime(2026, 11, 30, tzinfo=UTC)
TYPES = ("p4d.24xlarge", "p5.48xlarge", "g5.12xlarge", "g6e.48xlarge", "p3.16xlarge")
REGIONS = ("us-east-1", "us-west-2", "eu-west-1", "us-east-2")
T = TypeVar("T")


def timed(name: str, call: Callable[[], T]) -> T:
    begin, cpu = time.perf_counter(), time.process_time()
    found = call()
    print(f"  {name:<52} {time.perf_counter() - begin:6.2f} s ({time.process_time() - cpu:.2f} s of CPU)")
    return found


def rates(folder: Path) -> FileCard:
    """Reserved and savings-plan rates by assumption for every type and region, on the catalog's on-demand price."""
    lines = ["instance_type,region,purchase,usd_per_hour,term_months,upfront,cloud"]
    catalog = Catalog.embedded()
    for name in TYPES:
        usual = catalog.offers("aws", instance_type=name, purchase="on_demand")[0].price
        for region in REGIONS:
            found = catalog.offers("aws", region, instance_type=name, purchase="on_demand")
            price = found[0].price if found and found[0].price else usual
            assert price is not None  # noqa: S101 - every type has a price somewhere
            if not found:
                lines.append(f"{name},{region},on_demand,{price.amount},,,aws")
            for purchase, months, percent in (("reserved_1y", 12, 37), ("reserved_3y", 36, 57), ("savings_plan_1y", 12, 28)):
                lines.append(f"{name},{region},{purchase},{price.amount * (100 - percent) / 100},{months},,aws")
    (folder / "rates.csv").write_text("\n".join(lines))
    return read_rates(folder / "rates.csv", catalog)


def usage_file(folder: Path, nodes: int) -> Path:
    """20 pools that grow, breathe by day and week, and lose nodes on spot."""
    rng, path = random.Random(7), folder / "usage.csv"
    first = END - timedelta(hours=HOURS)
    each = nodes / (len(TYPES) * len(REGIONS))
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["hour_utc", "instance_type", "region", "count", "cloud"])
        for name in TYPES:
            for region in REGIONS:
                trend, swing = rng.uniform(-0.3, 0.5), rng.uniform(0.05, 0.5)
                for hour in range(HOURS):
                    at = first + timedelta(hours=hour)
                    level = 1 + trend * hour / HOURS + swing * ((8 <= at.hour < 20) - 0.5) - 0.2 * (at.weekday() > 4)
                    count = max(0, round(each * level + rng.gauss(0, each * 0.08)))
                    writer.writerow([f"{at:%Y-%m-%dT%H:00Z}", name, region, count, "aws"])
    return path


def ledger_of(path: Path, nodes: int) -> None:
    """A year of sums; every tenth node runs 20 hours of each day, every fiftieth stands idle."""
    last = round(END.timestamp() * 1000) // HOUR_MS
    with Ledger.open(path) as ledger, ledger.writing() as connection:
        held, idle = USAGE_KINDS.index("held"), USAGE_KINDS.index("idle")
        holders = 40
        connection.executemany(
            "INSERT INTO holders VALUES (?, ?, ?, ?, ?)",
            [
                (number, str(number), f"user{number % 12}", f"project{number % 5}", f"job-{number}")
                for number in range(1, holders + 1)
            ],
        )
        connection.execute("INSERT INTO holders VALUES (?, 'none', NULL, NULL, NULL)", (holders + 1,))
        for node in range(1, nodes + 1):
            connection.execute("INSERT INTO nodes VALUES (?, ?)", (node, f"node-{node:04}"))
            connection.execute("INSERT INTO meters (id, node_id, name) VALUES (?, ?, 'm')", (node, node))
            connection.execute(
                "INSERT INTO placements (id, meter_id, number, node, cloud, region, instance_type, purchase, gpu_count, gpu_model,"
                " tags) VALUES (?, ?, 1, ?, 'aws', ?, ?, ?, ?, 'A100', '{}')",
                (
                    node,
                    node,
                    f"node-{node:04}",
                    REGIONS[node % 4],
                    TYPES[node % 5],
                    "spot" if node % 3 == 1 else "on_demand",
                    GPUS,
                ),
            )
            connection.executemany(
                "INSERT INTO gpus VALUES (?, ?)", [(node * 8 + gpu, f"G{node}-{gpu}") for gpu in range(GPUS)]
            )
        for table, rows in (("days", _sums(nodes, last, True)), ("hours", _sums(nodes, last, False))):
            connection.executemany(f"INSERT INTO {table} VALUES (?, ?, ?, ?, ?, ?, ?, NULL)", rows(held, idle, holders))
        connection.executemany(f"INSERT INTO usage VALUES ({', '.join('?' * 18)})", _rows(nodes, last, held, idle, holders))


def _share(node: int, day: int) -> float:
    """Part of its GPU time that a node is held."""
    return 0.0 if node % 50 == 0 else 0.5 + (node * 7 + day * 3) % 50 / 100


def _sums(nodes: int, last: int, daily: bool) -> Callable[[int, int, int], Iterator[tuple[int, ...]]]:
    """Of days: all; of hours: the last 14 days, and days in which a node did not run wholly."""

    def rows(held: int, idle: int, holders: int) -> Iterator[tuple[int, ...]]:
        first_day, last_day = (last - HOURS) // 24, last // 24
        for day in range(first_day, last_day):
            for node in range(1, nodes + 1):
                hours = 20 if node % 10 == 0 else 24
                if not daily and hours == 24 and day < last_day - 14:
                    continue
                for at in [day] if daily else range(day * 24, day * 24 + hours):
                    whole = GPUS * HOUR_MS * WHOLE_SHARE * (hours if daily else 1)
                    part = round(whole * _share(node, day))
                    if part:
                        for holder in ((node + day) % holders + 1, (node + day + 1) % holders + 1):
                            yield at, node, held, holder, part // 2, round(part * 0.3), part // 2
                    yield at, node, idle, holders + 1, whole - part // 2 * (2 if part else 0), 0, whole - part

    return rows


def _rows(nodes: int, last: int, held: int, idle: int, holders: int) -> Iterator[tuple[int, ...]]:
    """One row per GPU and hour of the last week."""
    for hour in range(last - 168, last):
        for node in range(1, nodes + 1):
            if node % 10 == 0 and hour % 24 >= 20:
                continue
            for gpu in range(GPUS):
                kind = idle if gpu >= round(GPUS * _share(node, hour // 24)) else held
                holder = holders + 1 if kind == idle else (node + hour // 24) % holders + 1
                busy = 0 if kind == idle else round(0.6 * HOUR_MS * WHOLE_SHARE)
                yield (
                    hour, node, node, node * 8 + gpu, hour * HOUR_MS, hour, (hour + 1) * HOUR_MS, node, kind, 0, holder, WHOLE_SHARE,
                    0, busy, HOUR_MS, None, 360, hour,
                )  # type: ignore[misc]  # fmt: skip


def told(advice: Advice) -> None:
    kinds = {kind: sum(action.kind == kind for action in advice.actions) for kind in KINDS}
    found = ", ".join(f"{count} {kind}" for kind, count in kinds.items() if count)
    saving, spend = float(advice.saving_per_month), float(advice.spend_per_month or 0)
    print(f"  {found or 'nothing'}; together ${saving:,.0f} of ${spend:,.0f} a month")


def bench_usage(folder: Path, card: RateCard, nodes: int) -> None:
    path = usage_file(folder, nodes)
    print(
        f"{nodes} nodes in {len(TYPES) * len(REGIONS)} pools, {HOURS:,} h, a usage file of {path.stat().st_size / 1e6:.0f} MB"
    )
    begin = time.process_time()
    demand = timed("read the file", lambda: with_clouds(read_usage(path), Catalog.embedded()))
    case = Case(demand, card, END)
    for kind in KINDS:
        timed(f"only {kind}", lambda kind=kind: advise(case, (kind,)))  # type: ignore[misc]
    begin = time.process_time() - begin
    advice = timed("all advice", lambda: advise(case))
    told(advice)


def bench_ledger(folder: Path, card: RateCard, nodes: int) -> None:
    path = folder / "ledger.db"
    print(f"{nodes} nodes, {HOURS:,} h, a ledger")
    timed("(write it)", lambda: ledger_of(path, nodes))
    end_ms = round(END.timestamp() * 1000)
    begin = time.process_time()
    with Ledger.open(path) as ledger:
        demand = timed("demand of the year", lambda: from_ledger(ledger, end_ms - HOURS * HOUR_MS, end_ms))
        fleet = timed("nodes, GPUs and jobs", lambda: read_fleet(ledger, end_ms - HOURS * HOUR_MS, end_ms))
    advice = timed("all advice", lambda: advise(Case(demand, card, END, fleet=fleet)))
    told(advice)
    print(f"  {'in all':<52} {time.process_time() - begin:6.2f} s of CPU (goal: 10 s)")


def bench_philly(folder: Path) -> None:
    if not philly_usage.TRACE.is_file():
        print("philly: ../shared/data/usage is not here")
        return
    (folder / "philly_rates.csv").write_text("\n".join(philly_usage.rate_lines()))
    card = read_rates(folder / "philly_rates.csv", Catalog.embedded())
    *clusters, whole = philly_series(philly_jobs(philly_usage.TRACE))
    demand = _philly(folder, whole)
    print("philly as p3.16xlarge, 1 y reserved at 37 % off: advised at a date, judged on all that follows ($)")
    print(f"  {'advised on':<11} {'later h':>7} {'bought':>6} {'promised':>9} {'its range':>19} {'saved':>9} {'hindsight':>9}  clouds' rule")
    sums: dict[str, Fraction] = defaultdict(Fraction)
    for at, found in _judged(demand, card):
        if found is None:
            print(f"  {at:%Y-%m-%d}   nothing advised")
            continue
        rule = ", ".join(f"{days} d: {count}, {float(saved):,.0f}" for days, (count, saved) in found.look_backs.items())
        low, high = found.together.advised_range
        saved, best = found.together.realised, found.hindsight or Fraction(0)
        told = f"{float(low):>10,.0f}{float(high):>9,.0f}{'' if low <= saved <= high else '!':<1}"
        print(
            f"  {at:%Y-%m-%d} {found.later.known_hours:>8} {found.count:>6} {float(found.together.advised):>9,.0f} {told:>20} "
            f"{float(saved):>8,.0f} {float(best):>9,.0f}  {rule}"
        )
        sums["advice"] += saved
        sums["best in hindsight"] += best
        sums["look back 7 days"] += found.look_backs[7][1]
    print("  in all: " + ", ".join(f"{name} ${float(amount):,.0f}" for name, amount in sums.items()))
    timed("the ranges of the single clusters", lambda: _ranges(folder, clusters, card))


def _philly(folder: Path, series: Series) -> Demand:
    (folder / "philly.csv").write_text("\n".join(philly_usage.lines_of(series)))
    return read_usage(folder / "philly.csv")


def _judged(demand: Demand, card: RateCard) -> Iterator[tuple[datetime, Judgement | None]]:
    for days in (21, 28, 35, 42, 49, 56, 63):
        at = demand.start + timedelta(days=days)
        case = Case(demand.between(demand.start, at), card, at)
        yield at, judge(advise(case, ("commit",)), case, after(case, demand))


def _ranges(folder: Path, clusters: list[Series], card: RateCard) -> None:
    """How often what came of it lies within the range, and within that of what was seen."""
    found = [one for series in clusters for _, one in _judged(_philly(folder, series), card) if one is not None]
    below = sum(one.together.realised < one.together.advised_range[0] for one in found)
    above = sum(one.together.realised > one.together.advised_range[1] for one in found)
    inside = len(found) - below - above
    print(f"  {len(clusters)} single clusters: {inside} of {len(found)} results within their range, {below} below, {above} above")


def main(arguments: list[str]) -> None:
    nodes = int(arguments[0]) if arguments else 1000
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        card = LayeredCard(rates(folder), CatalogCard(Catalog.embedded(), Terms(), END))
        bench_philly(folder)
        bench_usage(folder, card, nodes)
        bench_ledger(folder, card, nodes)


if __name__ == "__main__":
    main(sys.argv[1:])
