"""Limits against the machine: what it does not have is refused before anything starts.

Invariant: a limit that passes is one that the kernel takes; what cannot be known of the machine is not objected to.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from agent.isolation.host import HostIsolation
from agent.isolation.limits import QUOTA_LEAST_US, QUOTA_PERIOD_US, WEIGHTS, Limits, ranges, size

LEAST_MEMORY_BYTES = 1024 * 1024


def check(host: HostIsolation, limits: Limits) -> list[str]:
    """A sentence for each value that the host cannot take; empty: all are good."""
    return [*_memory(host, limits), *_cpus(host, limits), *_pids(host, limits), *_weights(limits), *_devices(limits)]


def _memory(host: HostIsolation, limits: Limits) -> Iterator[str]:
    wanted, there = limits.memory_bytes, host.capacity.memory_bytes
    if wanted is None:
        return
    if wanted < LEAST_MEMORY_BYTES:
        yield f"a memory limit of {wanted} bytes is too small for any process to start; the least is {size(LEAST_MEMORY_BYTES)}"
    if there is not None and wanted > there:
        yield f"a memory limit of {size(wanted)} is above the node's memory, {size(there)}"


def _cpus(host: HostIsolation, limits: Limits) -> Iterator[str]:
    cpu_ids, nodes = host.capacity.cpu_ids, host.capacity.numa_nodes
    if cpu_ids and (missing := set(limits.cpu_ids) - set(cpu_ids)):
        yield f"there is no CPU {ranges(missing)} for jobs here; there are {ranges(cpu_ids)}"
    if nodes and (missing := set(limits.numa_nodes) - set(nodes)):
        yield f"there is no NUMA node {ranges(missing)} for jobs here; there are {ranges(nodes)}"
    if limits.cpus is None:
        return
    if limits.cpus * QUOTA_PERIOD_US < QUOTA_LEAST_US:
        yield f"{limits.cpus} CPUs is too little; the least is {QUOTA_LEAST_US / QUOTA_PERIOD_US}"
    if cpu_ids and limits.cpus > len(cpu_ids):
        yield f"{limits.cpus} CPUs are more than the {len(cpu_ids)} that the node has for jobs"


def _pids(host: HostIsolation, limits: Limits) -> Iterator[str]:
    most = host.capacity.pid_max
    if limits.pids is not None and limits.pids < 1:
        yield f"a limit of {limits.pids} processes lets nothing start"
    if limits.pids is not None and most is not None and limits.pids > most:
        yield f"a limit of {limits.pids} processes is above the kernel's own, {most} (kernel.pid_max)"


def _weights(limits: Limits) -> Iterator[str]:
    for name, value in (("CPU", limits.cpu_weight), ("I/O", limits.io_weight)):
        if value is not None and value not in WEIGHTS:
            yield f"{name} weights go from {WEIGHTS[0]} to {WEIGHTS[-1]}, so {value} is none"


def _devices(limits: Limits) -> Iterator[str]:
    for path in limits.device_paths or ():
        if not os.path.exists(path):
            yield f"there is no device file {path}"
