"""The ledger: rows per second in, size, how long the reports of a month and of budgets take as the fleet grows, what
retention, backup and check take, and the published traces.

Invariant: prints figures (seconds of a processor) and ratios, asserts none. `python tests/bench/bench_ledger.py [NODES ...]`
(default 100 1000; 1,000 nodes take about six minutes to write and 3 GB of the temporary directory).
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
from pricing.ledger_backup import backup, vacuum
from pricing.ledger_merge import HOUR_MS
from pricing.ledger_retention import retain
from pricing.traces import NodeUsage, on_clusters, on_machines, openb_nodes, openb_pods, philly_jobs
from pricing.usage import WHOLE_SHARE, Placed, Usage

START = datetime(2026, 3, 1, tzinfo=UTC)
START_MS = round(START.timestamp() * 1000)
GPUS = 8
PAGE = 5_000
DAYS = 56
ZONES = ("UTC", "Europe/Berlin", "America/Los_Angeles", "Asia/Kolkata", "America/St_Johns")
TRACES = Path(__file__).parents[3] / "shared" / "data" / "usage"
OPENB_PODS, OPENB_NODES, PHILLY_JOBS = "openb_2023_pods.csv.gz", "openb_2023_nodes.csv.gz", "philly_2017_jobs.csv.gz"
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
    """Seconds of a processor: others on the machine do not count."""
    begin = time.process_time()
    call()
    return time.process_time() - begin


def floor(ledger: Ledger) -> float:
    """The least that a report by day, node and user could take: the month's sums per day, read and nothing else."""

    def read() -> None:
        with ledger.reading() as connection:
            first = connection.execute("SELECT MIN(at) FROM days").fetchone()[0]
            for day in range(first, first + 30):
                connection.execute("SELECT * FROM days WHERE at = ?", (day,)).fetchall()

    return timed(read)


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
        seconds = timed(lambda: fill(ledger, nodes, DAYS * 24))
        with ledger.reading() as connection:
            rows, sums = (connection.execute(f"SELECT COUNT(*) FROM {t}").fetchone()[0] for t in ("usage", "hours"))
        print(f"{nodes} nodes x {GPUS} GPUs, {DAYS} days: {rows:,} rows, {sums:,} hourly sums, written in {seconds:.0f} s")
        reports = {
            "30 days by user,project": ("user,project", "UTC", end),
            "30 days by node": ("node", "UTC", end),
            "30 days by day,node,user": ("day,node,user", "UTC", end),
            "30 days by day (half-hour zone)": ("day", "Asia/Kolkata", end),
            **{f"budget: {DAYS} days by day,project, {tz}": ("day,project", tz, START + timedelta(days=DAYS)) for tz in ZONES},
        }
        spent = {
            name: timed(lambda by=by, tz=tz, until=until: attribute(ledger, catalog, START, until, by, tz=tz))  # type: ignore[misc]
            for name, (by, tz, until) in reports.items()
        }
        spent["cost_summary on the 30th"] = timed(lambda: cost_summary(ledger, catalog, end - timedelta(hours=1)))
        spent["check"] = timed(lambda: print("  check:", ledger.check() or "whole"))
        least = floor(ledger)
        print(f"  {'30 days of sums per day, only read (floor)':<46} {least:7.2f} s")
        for name, taken in spent.items():
            print(f"  {name:<46} {taken:7.2f} s  {taken / least:6.1f} x the floor")
        bench_upkeep(ledger, folder)
    return spent["30 days by day,node,user"]


def bench_churn(folder: Path, nodes: int) -> None:
    """A new job on every node each hour, so that no two hours have a sum in common: the worst for sums per day."""
    with Ledger.open(folder / f"churn{nodes}.db") as ledger:
        for number in range(nodes):
            node = f"node-{number:04}"
            rows = [
                Usage(
                    hour + 1, START_MS + hour * HOUR_MS, START_MS + (hour + 1) * HOUR_MS, node, "held", None, WHOLE_SHARE, "ann",
                    f"project-{number % 4}", f"{node}-{hour}", 0.5, 10**6, "counter", 1,
                )
                for hour in range(DAYS * 24)
            ]  # fmt: skip
            ledger.take(node, node, rows, [placed(node, number)], 1)
        catalog, until = Catalog.embedded(), START + timedelta(days=DAYS)
        for by in ("day,project", "day,job"):
            seconds = timed(lambda by=by: attribute(ledger, catalog, START, until, by, tz="Europe/Berlin"))  # type: ignore[misc]
            each = seconds / (nodes * DAYS * 24) * 1e6
            print(f"{nodes} nodes, {DAYS} days, a new job each hour, by {by:<12} {seconds:7.2f} s ({each:.1f} us a job)")


def bench_upkeep(ledger: Ledger, folder: Path) -> None:
    """Backup, half of the time rolled up, vacuum."""
    middle = START + timedelta(days=DAYS // 2)
    done = {}
    for name, call in {
        "backup": lambda: backup(ledger, folder / "backup.db", force=True),
        f"retain: {DAYS // 2} days rolled up": lambda: retain(ledger, middle, START + timedelta(days=DAYS)),
        "vacuum": lambda: vacuum(ledger),
    }.items():
        seconds = timed(lambda name=name, call=call: done.setdefault(name, call()))  # type: ignore[misc]
        print(f"  {name:<46} {seconds:7.2f} s")
    (folder / "backup.db").unlink()
    print(f"  size {done['vacuum'].before_bytes / 1e6:,.0f} MB, after vacuum {done['vacuum'].after_bytes / 1e6:,.0f} MB")


def bench_traces(folder: Path) -> None:
    """The published traces, wholly: what goes in is what comes out."""
    if not TRACES.is_dir():
        print("traces: ../shared/data/usage is not here")
        return
    sources = {
        "openb": lambda: on_machines(openb_pods(TRACES / OPENB_PODS), openb_nodes(TRACES / OPENB_NODES)),
        "philly": lambda: on_clusters(philly_jobs(TRACES / PHILLY_JOBS), idle=False),
    }
    for name, source in sources.items():
        nodes = list(source())
        rows = sum(len(node.rows) for node in nodes)
        due = sum((row.ends_ms - row.starts_ms) * row.share_millionths for node in nodes for row in node.rows if row.job)
        with Ledger.open(folder / f"{name}.db") as ledger:

            def take(ledger: Ledger = ledger, nodes: list[NodeUsage] = nodes) -> None:
                for node in nodes:
                    for begin in range(0, len(node.rows), PAGE):
                        ledger.take(node.node, node.node, node.rows[begin : begin + PAGE], [node.placed], 1)

            seconds = timed(take)
            report = attribute(ledger, Catalog.embedded(), datetime(2010, 1, 1, tzinfo=UTC), datetime(2030, 1, 1, tzinfo=UTC))
            with ledger.reading() as connection:
                kept = connection.execute("SELECT COUNT(*) FROM usage").fetchone()[0]
        exact = "exactly the trace's" if report.totals.held_share_ms == due else "NOT the trace's"
        hours = float(report.totals.gpu_hours)
        print(f"{name}: {rows:,} rows -> {kept:,} ledger rows in {seconds:.1f} s; {hours:,.2f} GPU-hours, {exact}")


def main(arguments: list[str]) -> None:
    sizes = [int(argument) for argument in arguments] or [100, 1000]
    with tempfile.TemporaryDirectory() as name:
        bench_in(Path(name))
        bench_traces(Path(name))
        for nodes in (10, 100):
            bench_churn(Path(name), nodes)
        seconds = [bench_month(Path(name), nodes) for nodes in sizes]
    for before, after in zip(range(len(sizes)), range(1, len(sizes)), strict=False):
        nodes, time_ = sizes[after] / sizes[before], seconds[after] / seconds[before]
        print(f"growth: {nodes:.1f} x the nodes, {time_:.1f} x the time ({time_ / nodes:.2f} x linear); budget 5 s at 1,000")


if __name__ == "__main__":
    main(sys.argv[1:])
