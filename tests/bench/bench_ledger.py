"""The ledger: rows per second in, size, and how long the report of a synthetic month takes as the fleet grows.

Invariant: prints figures and ratios, asserts none. `python tests/bench/bench_ledger.py [NODES ...]` (default 100 1000;
1,000 nodes take about two minutes to write and 1 GB of the temporary directory).
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pricing.attribution import attribute, cost_summary
from pricing.catalog import Catalog
from pricing.ledger import Ledger
from pricing.ledger_merge import HOUR_MS
from pricing.usage import WHOLE_SHARE, Placed, Usage

START = datetime(2026, 3, 1, tzinfo=UTC)
START_MS = round(START.timestamp() * 1000)
GPUS = 8
PAGE = 5_000
WHERE = (("us-east-1", "on_demand"), ("us-west-2", "spot"), ("eu-west-1", "on_demand"))


def placed(node: str, number: int) -> Placed:
    region, purchase = WHERE[number % len(WHERE)]
    return Placed(1, node, "aws", region, None, "p4d.24xlarge", purchase, gpu_count=GPUS, gpu_model="A100", tags={"team": "a"})


def ten_second_rows(count: int, holders: int) -> list[Usage]:
    """As an agent writes them: every GPU every ten seconds, `holders` on each; holders change every half hour."""
    rows: list[Usage] = []
    share, step = WHOLE_SHARE // holders, 0
    while len(rows) < count:
        starts_ms = START_MS + step * 10_000
        for gpu in range(GPUS):
            for holder in range(holders):
                user = f"user{(gpu + holder + step // 180) % 12}"
                row = Usage(
                    len(rows) + 1, starts_ms, starts_ms + 10_000, f"GPU-{gpu}", "held", None, share, user, "vision",
                    f"job{gpu}", 0.61 + gpu / 100, 3_141_592 // holders, "counter", 1,
                )  # fmt: skip
                rows.append(row)
        step += 1
    return rows[:count]


def month_rows(node: str, hours: int) -> Iterator[Usage]:
    """One row per GPU and hour, two in an hour in which the holder changes (each holds for some hours)."""
    rng, sequence = random.Random(node), 0
    holder: list[str | None] = [None] * GPUS
    for hour in range(hours):
        starts_ms = START_MS + hour * HOUR_MS
        for gpu in range(GPUS):
            cuts = [0, HOUR_MS]
            if rng.random() < 0.15:
                cuts.insert(1, rng.randrange(10_000, HOUR_MS, 10_000))
            for begin, end in zip(cuts, cuts[1:], strict=False):
                if begin or not hour:
                    holder[gpu] = rng.choice((None, "ann", "bob", "cho", "dee", "eva"))
                sequence += 1
                user = holder[gpu]
                yield Usage(
                    sequence, starts_ms + begin, starts_ms + end, f"{node}-GPU-{gpu}", "held" if user else "idle", None,
                    WHOLE_SHARE, user, user and "vision", user and f"job-{user}", 0.5, 300 * (end - begin), "counter", 1,
                )  # fmt: skip


def timed(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def bench_in(folder: Path) -> None:
    for holders in (1, 3):
        rows = ten_second_rows(200_000, holders)
        with Ledger.open(folder / f"in{holders}.db") as ledger:

            def take() -> None:
                for begin in range(0, len(rows), PAGE):
                    ledger.take("n", "m", rows[begin : begin + PAGE], [placed("n", 0)], 1)

            seconds = timed(take)
            with ledger.reading() as connection:
                kept = connection.execute("SELECT COUNT(*) FROM usage").fetchone()[0]
        print(f"in, {holders} holder(s) a GPU: {len(rows) / seconds:>10,.0f} rows/s (target 50,000); {len(rows):,} -> {kept:,}")


def fill(ledger: Ledger, nodes: int, hours: int) -> int:
    count = 0
    for number in range(nodes):
        node = f"node-{number:04}"
        rows = list(month_rows(node, hours))
        for begin in range(0, len(rows), PAGE):
            count += ledger.take(node, node, rows[begin : begin + PAGE], [placed(node, number)], 1).new
    return count


def bench_month(folder: Path, nodes: int) -> float:
    path, end = folder / f"month{nodes}.db", START + timedelta(days=30)
    with Ledger.open(path) as ledger:
        catalog = Catalog.embedded()
        seconds = timed(lambda: fill(ledger, nodes, 720))
        with ledger.reading() as connection:
            rows, sums = (connection.execute(f"SELECT COUNT(*) FROM {t}").fetchone()[0] for t in ("usage", "hours"))
        print(f"{nodes} nodes x {GPUS} GPUs, 30 days: {rows:,} rows, {sums:,} hourly sums, written in {seconds:.0f} s")
        reports = {
            "by user,project": ("user,project", "UTC"),
            "by node": ("node", "UTC"),
            "by day,node,user": ("day,node,user", "UTC"),
            "by day (half-hour zone)": ("day", "Asia/Kolkata"),
        }
        spent = {
            name: timed(lambda by=by, tz=tz: attribute(ledger, catalog, START, end, by, tz=tz))  # type: ignore[misc]
            for name, (by, tz) in reports.items()
        }
        spent["cost_summary on the 30th"] = timed(lambda: cost_summary(ledger, catalog, end - timedelta(hours=1)))
    for name, taken in spent.items():
        print(f"  {name:<26} {taken:7.2f} s")
    print(f"  size {path.stat().st_size / 1e6:,.0f} MB")
    return spent["by user,project"]


def main(arguments: list[str]) -> None:
    sizes = [int(argument) for argument in arguments] or [100, 1000]
    with tempfile.TemporaryDirectory() as name:
        bench_in(Path(name))
        seconds = [bench_month(Path(name), nodes) for nodes in sizes]
    for before, after in zip(range(len(sizes)), range(1, len(sizes)), strict=False):
        nodes, time_ = sizes[after] / sizes[before], seconds[after] / seconds[before]
        print(f"growth: {nodes:.1f} x the nodes, {time_:.1f} x the time ({time_ / nodes:.2f} x linear); budget 5 s at 1,000")


if __name__ == "__main__":
    main(sys.argv[1:])
