"""What a simulated fleet costs: CPU of `rackrate-agent simulate` with one open stream a node, as part of one core.

Invariant: only the fleet's own process is counted; the readers here do nothing but throw bytes away.

    python tests/bench/bench_simulate.py [NODES] [GPUS] [SECONDS]
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parents[2]
TARGET = 0.50
START = "import sys; from pathlib import Path; from agent.simulate import simulate; n, g, t = sys.argv[1:]; " \
        "sys.exit(simulate(int(n), int(g), 1, '127.0.0.1:0', token_file=Path(t), die_with_parent=True))"


def cpu_seconds(pid: int) -> float:
    """User and system time that the process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def drain(url: str, token: str, counted: list[int]) -> None:
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    writer.write(f"GET {parts.path}v1/stream HTTP/1.1\r\nHost: {parts.netloc}\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
    try:
        while data := await reader.read(1 << 16):
            counted[0] += len(data)
    finally:
        writer.close()


async def measure(pid: int, urls: list[str], token: str, seconds: float) -> tuple[float, float, float]:
    """Parts of a core without and with streams, and bytes a second over all streams."""
    quiet = await _part_of_a_core(pid, seconds / 3)
    counted = [0]
    readers = [asyncio.create_task(drain(url, token, counted)) for url in urls]
    await asyncio.sleep(3)
    counted[0] = 0
    streaming = await _part_of_a_core(pid, seconds)
    for task in readers:
        task.cancel()
    await asyncio.gather(*readers, return_exceptions=True)
    return quiet, streaming, counted[0] / seconds


async def _part_of_a_core(pid: int, seconds: float) -> float:
    before, begun = cpu_seconds(pid), time.perf_counter()
    await asyncio.sleep(seconds)
    return (cpu_seconds(pid) - before) / (time.perf_counter() - begun)


def main(nodes: int = 200, gpus: int = 8, seconds: float = 15.0) -> None:
    with tempfile.TemporaryDirectory() as folder:
        token_file = Path(folder) / "token"
        command = [sys.executable, "-c", START, str(nodes), str(gpus), str(token_file)]
        begun = time.perf_counter()
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as fleet:
            assert fleet.stdout
            try:
                urls = [fleet.stdout.readline().strip() for _ in range(nodes)]
                started = time.perf_counter() - begun
                quiet, streaming, rate = asyncio.run(measure(fleet.pid, urls, token_file.read_text().strip(), seconds))
                memory = resident_bytes(fleet.pid)
            finally:
                fleet.terminate()
    print(f"simulate: {nodes} nodes x {gpus} GPUs at 1 Hz: start {started:.1f} s, memory {memory / 1e6:.0f} MB")
    print(f"  without streams {quiet:.0%} of a core; with {nodes} streams {streaming:.0%} ({rate / 1e6:.2f} MB/s)")
    print(f"  {streaming / nodes * 1000:.2f} ms CPU a node and second; {streaming / TARGET:.2f} x the target of {TARGET:.0%} for 200 nodes")


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
