"""What nvitop's own API says of every GPU, as JSON; unknown values are null.

Invariant: no figure is computed here but for the units of the wire.
"""

from __future__ import annotations

import json
from typing import Any

from nvitop import NA, Device


def known(value: Any) -> Any:
    """nvitop's "N/A" is None."""
    return None if value is NA or value == NA else value


def reading(device: Device) -> dict[str, Any]:
    """One device with its processes."""
    processes = [
        {
            "pid": process.pid,
            "memory": known(process.gpu_memory()),
            "sm": known(process.gpu_sm_utilization()),
            "user": known(process.username()),
        }
        for process in device.processes().values()
    ]
    return {
        "index": device.index,
        "name": known(device.name()),
        "uuid": known(device.uuid()),
        "utilization": known(device.gpu_utilization()),
        "memory_used": known(device.memory_used()),
        "memory_total": known(device.memory_total()),
        "power": known(device.power_usage()),
        "limit": known(device.power_limit()),
        "temperature": known(device.temperature()),
        "fan": known(device.fan_speed()),
        "sm_clock": known(device.clock_infos().sm),
        "processes": sorted(processes, key=lambda process: process["pid"]),
    }


if __name__ == "__main__":
    print(json.dumps([reading(device) for device in Device.all()]))
