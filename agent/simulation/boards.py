"""Facts of the GPU boards that are simulated, and what a preset such as `8xH100` is made of.

Invariant: figures are those of the public data sheets and of `nvidia-smi`; nothing here depends on load or time.
"""

from __future__ import annotations

import msgspec

MIB = 1 << 20
GIB = 1 << 30


class Board(msgspec.Struct, frozen=True, kw_only=True):
    """One board. Powers in watts, clocks in hertz, temperatures in degrees Celsius, memory in bytes."""

    key: str
    model: str
    memory_total_bytes: int
    memory_reserved_bytes: int
    power_limit_watts: float
    idle_watts: float
    """No process holds the GPU."""
    context_watts: float
    """Drawn on top of idle while a process holds a context, even when it computes nothing."""
    clock_sm_max_hertz: int
    clock_sm_idle_hertz: int
    clock_memory_hertz: int
    clock_memory_idle_hertz: int
    pcie_generation: int
    pcie_sleeps: bool
    """The link falls back to generation 1 when idle (boards that sleep in P8)."""
    compute_capability: str
    idle_celsius: float
    busy_celsius: float
    slowdown_celsius: float
    mig_capable: bool = False
    nvlinks: int = 0
    performance_state_idle: int = 0
    driver_version: str = "550.90.07"
    cuda_version: str = "12.4"


MHZ = 1_000_000

BOARDS: dict[str, Board] = {
    board.key: board
    for board in (
        Board(
            key="H100", model="NVIDIA H100 80GB HBM3", memory_total_bytes=81559 * MIB, memory_reserved_bytes=551 * MIB,
            power_limit_watts=700.0, idle_watts=68.0, context_watts=46.0, clock_sm_max_hertz=1980 * MHZ,
            clock_sm_idle_hertz=345 * MHZ, clock_memory_hertz=2619 * MHZ, clock_memory_idle_hertz=2619 * MHZ,
            pcie_generation=5, pcie_sleeps=False, compute_capability="9.0", idle_celsius=29.0, busy_celsius=66.0,
            slowdown_celsius=87.0, mig_capable=True, nvlinks=18,
        ),
        Board(
            key="A100", model="NVIDIA A100-SXM4-40GB", memory_total_bytes=40960 * MIB, memory_reserved_bytes=571 * MIB,
            power_limit_watts=400.0, idle_watts=47.0, context_watts=14.0, clock_sm_max_hertz=1410 * MHZ,
            clock_sm_idle_hertz=210 * MHZ, clock_memory_hertz=1215 * MHZ, clock_memory_idle_hertz=1215 * MHZ,
            pcie_generation=4, pcie_sleeps=False, compute_capability="8.0", idle_celsius=28.0, busy_celsius=64.0,
            slowdown_celsius=89.0, mig_capable=True, nvlinks=12,
        ),
        Board(
            key="A100-80", model="NVIDIA A100-SXM4-80GB", memory_total_bytes=81920 * MIB, memory_reserved_bytes=630 * MIB,
            power_limit_watts=400.0, idle_watts=61.0, context_watts=14.0, clock_sm_max_hertz=1410 * MHZ,
            clock_sm_idle_hertz=210 * MHZ, clock_memory_hertz=1593 * MHZ, clock_memory_idle_hertz=1593 * MHZ,
            pcie_generation=4, pcie_sleeps=False, compute_capability="8.0", idle_celsius=29.0, busy_celsius=66.0,
            slowdown_celsius=89.0, mig_capable=True, nvlinks=12,
        ),
        Board(
            key="V100", model="Tesla V100-SXM2-16GB", memory_total_bytes=16384 * MIB, memory_reserved_bytes=225 * MIB,
            power_limit_watts=300.0, idle_watts=24.0, context_watts=17.0, clock_sm_max_hertz=1530 * MHZ,
            clock_sm_idle_hertz=135 * MHZ, clock_memory_hertz=877 * MHZ, clock_memory_idle_hertz=877 * MHZ,
            pcie_generation=3, pcie_sleeps=False, compute_capability="7.0", idle_celsius=34.0, busy_celsius=68.0,
            slowdown_celsius=87.0, driver_version="535.183.01", cuda_version="12.2", nvlinks=6,
        ),
        Board(
            key="T4", model="Tesla T4", memory_total_bytes=15360 * MIB, memory_reserved_bytes=438 * MIB,
            power_limit_watts=70.0, idle_watts=9.0, context_watts=17.0, clock_sm_max_hertz=1590 * MHZ,
            clock_sm_idle_hertz=300 * MHZ, clock_memory_hertz=5001 * MHZ, clock_memory_idle_hertz=405 * MHZ,
            pcie_generation=3, pcie_sleeps=True, compute_capability="7.5", idle_celsius=33.0, busy_celsius=74.0,
            slowdown_celsius=93.0, performance_state_idle=8, driver_version="535.183.01", cuda_version="12.2",
        ),
        Board(
            key="L4", model="NVIDIA L4", memory_total_bytes=23034 * MIB, memory_reserved_bytes=458 * MIB,
            power_limit_watts=72.0, idle_watts=12.0, context_watts=16.0, clock_sm_max_hertz=2040 * MHZ,
            clock_sm_idle_hertz=210 * MHZ, clock_memory_hertz=6251 * MHZ, clock_memory_idle_hertz=405 * MHZ,
            pcie_generation=4, pcie_sleeps=True, compute_capability="8.9", idle_celsius=34.0, busy_celsius=72.0,
            slowdown_celsius=90.0, performance_state_idle=8,
        ),
    )
}


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """The host around the GPUs: CPUs, memory and local disk in bytes, network in bytes per second."""

    cpu_model: str
    cpu_count: int
    memory_total_bytes: int
    disk_total_bytes: int
    network_bytes_per_second: float


MACHINES: dict[str, Machine] = {
    "p5.48xlarge": Machine(cpu_model="AMD EPYC 7R13 Processor", cpu_count=192, memory_total_bytes=2048 * GIB,
                           disk_total_bytes=30_400 * 10**9, network_bytes_per_second=400e9),
    "p4d.24xlarge": Machine(cpu_model="Intel(R) Xeon(R) Platinum 8275CL CPU @ 3.00GHz", cpu_count=96,
                            memory_total_bytes=1152 * GIB, disk_total_bytes=8_000 * 10**9, network_bytes_per_second=50e9),
    "p3.16xlarge": Machine(cpu_model="Intel(R) Xeon(R) CPU E5-2686 v4 @ 2.30GHz", cpu_count=64,
                           memory_total_bytes=488 * GIB, disk_total_bytes=1_000 * 10**9, network_bytes_per_second=3.1e9),
    "p3.2xlarge": Machine(cpu_model="Intel(R) Xeon(R) CPU E5-2686 v4 @ 2.30GHz", cpu_count=8,
                          memory_total_bytes=61 * GIB, disk_total_bytes=500 * 10**9, network_bytes_per_second=1.2e9),
    "g4dn.12xlarge": Machine(cpu_model="Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz", cpu_count=48,
                             memory_total_bytes=192 * GIB, disk_total_bytes=900 * 10**9, network_bytes_per_second=6.2e9),
    "g4dn.xlarge": Machine(cpu_model="Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz", cpu_count=4,
                           memory_total_bytes=16 * GIB, disk_total_bytes=125 * 10**9, network_bytes_per_second=3.1e9),
    "a3-highgpu-8g": Machine(cpu_model="Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz", cpu_count=208,
                             memory_total_bytes=1872 * GIB, disk_total_bytes=6_000 * 10**9, network_bytes_per_second=125e9),
    "a2-highgpu-8g": Machine(cpu_model="Intel(R) Xeon(R) CPU @ 2.20GHz", cpu_count=96, memory_total_bytes=680 * GIB,
                             disk_total_bytes=3_000 * 10**9, network_bytes_per_second=12.5e9),
    "g2-standard-4": Machine(cpu_model="Intel(R) Xeon(R) CPU @ 2.20GHz", cpu_count=4, memory_total_bytes=16 * GIB,
                             disk_total_bytes=375 * 10**9, network_bytes_per_second=1.2e9),
    "c5.4xlarge": Machine(cpu_model="Intel(R) Xeon(R) Platinum 8124M CPU @ 3.00GHz", cpu_count=16,
                          memory_total_bytes=32 * GIB, disk_total_bytes=500 * 10**9, network_bytes_per_second=1.2e9),
}

PLAIN_MACHINE = Machine(cpu_model="AMD EPYC 7543 32-Core Processor", cpu_count=64, memory_total_bytes=512 * GIB,
                        disk_total_bytes=4_000 * 10**9, network_bytes_per_second=3.1e9)

PRESETS: dict[str, tuple[str | None, int]] = {
    "8xH100": ("H100", 8),
    "8xA100": ("A100", 8),
    "4xT4": ("T4", 4),
    "8xV100": ("V100", 8),
    "1xL4": ("L4", 1),
    "none": (None, 0),
}
"""`run --simulate PRESET`: board and how many of it."""
