"""Cost of live streams: CPU per message and memory of the client, and CPU per message of the server, for N streams at 1 Hz.

    python tests/bench/bench_stream.py [--streams 200] [--seconds 10] [--gpus 8]

Both sides run in processes of their own on loopback. Prints one line of numbers a side, and the ratio to the budget.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUDGET_US = 300.0
"""Design: 30 % of one core for 1,000 nodes at 1 Hz, in all."""


def readings(gpus: int, sequence: int):
    from agent import wire

    processes = (wire.Process(pid=4242, user="alice", command="python train.py", memory_used_bytes=41_000_000_000, job="j1"),)
    return wire.Sample(
        node="bench",
        sequence=sequence,
        taken_at=datetime.now(timezone.utc),
        host=wire.Host(cpu_utilization_ratio=0.37, memory_used_bytes=123_456_789_012, load_1m=3.5),
        gpus=tuple(
            wire.Gpu(
                index=index, uuid=f"GPU-{index:08d}-0000-0000-0000-000000000000", model="NVIDIA H100 80GB HBM3", state="ok",
                utilization_ratio=0.97, memory_used_bytes=41_000_000_000, memory_total_bytes=85_899_345_920,
                power_watts=653.2, power_limit_watts=700.0, temperature_celsius=61.0, energy_joules_total=1.5e9 + sequence,
                throttle_reasons=(), processes=processes,
            )
            for index in range(gpus)
        ),
    )  # fmt: skip


async def serve(streams: int, gpus: int) -> None:
    from agent import wire
    from agent.history import HistoryRing
    from agent.listener import Listener, bind
    from agent.runtime import NodeAgent
    from agent.server import create_app

    class Quiet:
        def evaluate(self, *_: object) -> list[wire.Alert]:
            return []

        def active(self) -> tuple[wire.Alert, ...]:
            return ()

        recent = active

    info = wire.NodeInfo(node="bench", gpus=())
    agents = {f"n{i}": NodeAgent(info, None, Quiet(), HistoryRing(fine_seconds=60, coarse_hours=0), None) for i in range(streams)}
    listener = Listener(create_app(agents), bind("127.0.0.1", 0))
    await listener.start()
    print(listener.url, flush=True)
    sequence = 0
    while True:
        begun = time.monotonic()
        sequence += 1
        for agent in agents.values():
            agent.step(readings(gpus, sequence))
        await asyncio.sleep(max(0.0, begun + 1 - time.monotonic()))


async def watch(url: str, streams: int, seconds: float) -> None:
    from agent.client import AgentClient

    counts = [0] * streams

    async def one(index: int) -> None:
        async with AgentClient(f"{url}/nodes/n{index}/") as client:
            async for _ in client.stream():
                counts[index] += 1

    before = pss_kilobytes(os.getpid())
    tasks = []
    for index in range(streams):
        tasks.append(asyncio.create_task(one(index)))
        if index % 50 == 49:
            await asyncio.sleep(0.2)
    await asyncio.sleep(3)
    started = sum(counts)
    cpu, wall = time.process_time(), time.monotonic()
    server_cpu = cpu_of(int(os.environ["BENCH_SERVER_PID"]))
    await asyncio.sleep(seconds)
    cpu, wall = time.process_time() - cpu, time.monotonic() - wall
    server_cpu = cpu_of(int(os.environ["BENCH_SERVER_PID"])) - server_cpu
    messages = sum(counts) - started
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    after = pss_kilobytes(os.getpid())
    report("client", cpu, messages, wall, BUDGET_US)
    report("server", server_cpu, messages, wall, None)
    print(f"client memory: {after / 1024:.1f} MB PSS, {(after - before) / streams:.1f} kB a stream (imports included)")


def report(side: str, cpu: float, messages: int, wall: float, budget_us: float | None) -> None:
    each = cpu / messages * 1e6
    ratio = "" if budget_us is None else f", {each / budget_us:.2f} x the budget of the whole app"
    print(f"{side}: {each:.0f} us CPU a message, {cpu / wall * 100:.1f} % of a core for {messages / wall:.0f} messages/s{ratio}")


def pss_kilobytes(pid: int) -> int:
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Pss:"))


def cpu_of(pid: int) -> float:
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))
    if options.serve:
        asyncio.run(serve(options.streams, options.gpus))
        return
    command = [sys.executable, __file__, "--serve", "--streams", str(options.streams), "--gpus", str(options.gpus)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url = server.stdout.readline().strip()
            os.environ["BENCH_SERVER_PID"] = str(server.pid)
            asyncio.run(watch(url, options.streams, options.seconds))
        finally:
            server.kill()


if __name__ == "__main__":
    main()
