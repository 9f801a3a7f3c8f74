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
        "shown": {
            "memory traffic": known(device.memory_utilization()),
            "encoder": known(device.encoder_utilization()),
            "decoder": known(device.decoder_utilization()),
            "memory clock": known(device.clock_infos().memory),
            "most": [known(device.max_clock_infos().sm), known(device.max_clock_infos().memory)],
            "performance state": known(device.performance_state()),
            "compute mode": known(device.compute_mode()),
            "persistence": known(device.persistence_mode()),
            "display": known(device.display_active()),
            "ecc": known(device.total_volatile_uncorrected_ecc_errors()),
            "bus": known(device.bus_id()),
            "pcie": [known(device.pcie_rx_throughput()), known(device.pcie_tx_throughput())],
        },
        "processes": sorted(processes, key=lambda process: process["pid"]),
    }


if __name__ == "__main__":
    print(json.dumps([reading(device) for device in Device.all()]))
