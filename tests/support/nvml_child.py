"""The child of `tests.support.nvml`: reads the GPUs once for each line on standard input, and prints JSON.

Invariant: a line is a number of seconds by which the sensor's clock moves before the reading.
"""

from __future__ import annotations

import json
import sys

import msgspec

from agent.sensors.nvml import NvmlSensor


def main() -> None:
    """Serves until standard input ends."""
    now = 1000.0
    sensor = NvmlSensor(clock=lambda: now, **json.loads(sys.argv[1]))
    for line in sys.stdin:
        now += float(line)
        reading = sensor.read()
        answer = {
            "reading": reading,
            "inventory": sensor.inventory(),
            "driver": sensor.driver_version,
            "cuda": sensor.cuda_version,
        }
        print(msgspec.json.encode(answer).decode(), flush=True)
    sensor.close()


if __name__ == "__main__":
    main()
