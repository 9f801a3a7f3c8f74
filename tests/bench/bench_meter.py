"""What the meter costs: `observe` for 8 GPUs with 2 processes each, beside what a page of usage costs to read.

Run: python tests/bench/bench_meter.py [FOLDER]. FOLDER: where the durable record is written (default: a temporary one).
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from agent import wire  # noqa: E402
from agent.alerts import AlertEngine, Thresholds  # noqa: E402
from agent.meter import Meter  # noqa: E402
from agent.meter_clock import MeterClock  # noqa: E402

GPUS = 8
START_MS = 1_767_225_600_000
INFO = wire.NodeInfo(node="bench", gpus=(), instance_type="p5.48xlarge", cloud="aws")


def sample(number: int, at_ms: int, seconds: float) -> wire.Sample:
    """One reading; each GPU changes one of its two holders every 300 readings, one GPU after the other."""
    taken_at = datetime.fromtimestamp(at_ms / 1000, timezone.utc)
    return wire.Sample(
        node="bench", sequence=number, taken_at=taken_at, gpus=tuple(gpu(place, number, seconds) for place in range(GPUS)),
        sensors=(wire.SensorReport(name="nvml", ok=True, taken_at=taken_at),),
        host=wire.Host(memory_total_bytes=1 << 40, memory_available_bytes=1 << 39),
    )  # fmt: skip


def gpu(place: int, number: int, seconds: float) -> wire.Gpu:
    job = (number + 37 * place) // 300
    return wire.Gpu(
        index=place, uuid=f"GPU-{place:08d}", model="NVIDIA H100 80GB HBM3", state="ok", utilization_ratio=(number % 100) / 100,
        power_watts=500.0, energy_joules_total=500.0 * number * seconds, temperature_celsius=60.0, throttle_reasons=(),
        processes=(wire.Process(pid=1, user="ann", job=f"job-{job}"), wire.Process(pid=2, user="bob", project="vision")),
    )  # fmt: skip


def samples(count: int, step_ms: int) -> list[wire.Sample]:
    return [sample(number, START_MS + number * step_ms, step_ms / 1000) for number in range(count)]


def steady_clock(step_ms: int) -> MeterClock:
    def ticks() -> Iterator[int]:
        at = START_MS
        while True:
            yield at
            at += step_ms

    wall, boot = ticks(), ticks()
    return MeterClock(lambda: next(wall), lambda: next(boot))


def report(name: str, seconds: float, calls: int, unit: str, per_call: int = 1) -> None:
    print(f"{name:44} {seconds / calls * 1e6:9.1f} us a {unit:6} {calls * per_call / seconds:12,.0f} a second")


def live(path: str, durable: bool, name: str) -> None:
    """An hour at 1 Hz by the meter's own clock."""
    readings = samples(3600, 1000)
    meter = Meter.open(path, "bench", durable=durable, clock=steady_clock(1000))
    begun, cpu = time.perf_counter(), time.process_time()
    for reading in readings:
        meter.observe(reading, INFO)
    spent, cpu = time.perf_counter() - begun, time.process_time() - cpu
    report(f"live, 8 GPUs x 2 processes, {name}", spent, len(readings), "sample")
    report("  of it CPU", cpu, len(readings), "sample")
    meter.close()


def past(step_ms: int, row_seconds: float) -> None:
    """A simulated past, as the simulated fleet feeds it."""
    readings = samples(20_000, step_ms)
    meter = Meter.open(":memory:", "bench", durable=False, row_seconds=row_seconds, stall_seconds=120)
    begun = time.perf_counter()
    for reading in readings:
        meter.observe(reading, INFO, at_ms=int(reading.taken_at.timestamp() * 1000))
    meter.flush()
    spent = time.perf_counter() - begun
    rows = meter.usage(0, 1).last_sequence
    report(f"past, {step_ms // 1000} s steps, rows of {row_seconds:.0f} s: GPU readings", spent, len(readings), "sample", GPUS)
    print(f"{'  rows written':44} {rows:9,} rows  {rows / spent:15,.0f} a second")
    read(meter)
    meter.close()


def read(meter: Meter) -> None:
    begun, rows, after = time.perf_counter(), 0, 0
    while True:
        page = meter.usage(after, 10_000)
        if not page.rows:
            break
        wire.encoder.encode(page)
        rows, after = rows + len(page.rows), page.rows[-1].sequence
    report("  usage() and its JSON, 10,000 rows a page", time.perf_counter() - begun, rows, "row")


def alerts() -> None:
    readings = samples(3600, 1000)
    engine = AlertEngine("bench", Thresholds(), "98.32")
    begun = time.perf_counter()
    for reading in readings:
        engine.evaluate(reading)
    report("alerts, 8 GPUs", time.perf_counter() - begun, len(readings), "sample")


def size(path: Path) -> None:
    meter = Meter.open(path, "bench", durable=False)
    rows = meter.usage(0, 1).last_sequence
    meter.close()
    print(f"{'size of the record':44} {path.stat().st_size / rows:9.1f} bytes a row ({rows:,} rows)")


def main() -> None:
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as folder:
        live(f"{folder}/durable.db", True, "durable")
        live(":memory:", False, "in memory")
        size(Path(folder) / "durable.db")
    past(60_000, 60.0)
    past(60_000, 10.0)
    alerts()


if __name__ == "__main__":
    main()
