"""A sampler of host and GPUs in a process of its own: prints a sample for each line on standard input.

Invariant: what it prints is what `Sampler.sample` gave at that moment, with the seconds that the call took.
"""

from __future__ import annotations

import sys
import threading
import time

import msgspec

from agent.sampler import Sampler
from agent.sensors.host import HostSensor
from agent.sensors.nvml import NvmlSensor


def main() -> None:
    """Serves until standard input ends, then closes the sampler and says how long that took."""
    sampler = Sampler("node", [HostSensor(), NvmlSensor()], deadline_seconds=0.5)
    sampler.start()
    for sequence, _ in enumerate(sys.stdin):
        begin = time.monotonic()
        sample = sampler.sample(sequence)
        row = {"sample": sample, "seconds": time.monotonic() - begin, "threads": threading.active_count()}
        print(msgspec.json.encode(row).decode(), flush=True)
    sampler.close()


if __name__ == "__main__":
    main()
