"""Made-up PCIe and NVLink traffic, and what starts the programs that hold GPUs.

Invariant: as everything simulated a pure function of the job, the board and the time; links are read each ten seconds,
as a real agent does.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from agent import wire
from agent.simulation.boards import Board
from agent.simulation.curves import NOISE, NOISE_MASK
from agent.simulation.schedule import Job

EVERY_SECONDS = 10
_LANE_BYTES = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9}
"""PCIe generation -> bytes per second and lane, each way."""
_NVLINK_BYTES = 25e9
"""Of one link, each way."""
_CPUS = {"train": 1.1, "starved": 7.5, "sweep": 1.3, "evaluate": 1.6, "notebook": 0.15, "serve": 2.2}
"""How many CPUs a process of each kind keeps busy."""
_GIB = 1 << 30


def links(board: Board, index: int, salt: int, level: float, together: bool, seconds: float) -> dict[str, Any]:
    """Fields of `wire.Gpu`. `together`: the job holds several GPUs, which exchange gradients."""
    turn = int(seconds) // EVERY_SECONDS
    flicker = NOISE[(turn + salt) & NOISE_MASK]
    pcie = 16 * _LANE_BYTES[board.pcie_generation]
    found: dict[str, Any] = {
        "pcie_receive_bytes_per_second": float(int(pcie * (0.0002 + 0.11 * level * (1 + 0.4 * flicker)))),
        "pcie_transmit_bytes_per_second": float(int(pcie * (0.0001 + 0.04 * level * (1 - 0.4 * flicker)))),
        "nvlinks": board.nvlinks,
        "links_at": datetime.fromtimestamp(turn * EVERY_SECONDS + index, UTC),
    }
    if board.nvlinks:
        rate = board.nvlinks * _NVLINK_BYTES * 0.22 * level if together else 0.0
        found["nvlink_receive_bytes_per_second"] = float(int(rate * (1 + 0.2 * flicker)))
        found["nvlink_transmit_bytes_per_second"] = float(int(rate * (1 + 0.2 * flicker)))
    return found


def host_use(job: Job, level: float, flicker: float) -> tuple[float, int]:
    """CPUs in use by one process of a job, and its resident bytes."""
    return round(max(0.0, _CPUS[job.kind] * (0.3 + 0.7 * level) * (1 + 0.08 * flicker)), 2), int(3 * _GIB + job.memory_ratio * 9 * _GIB)


def launcher_pid(job: Job) -> int:
    """Of the process that started those on the GPUs."""
    return job.pid - 1


def ancestor(job: Job) -> wire.Ancestor:
    """The launcher of a job's processes."""
    program = job.command.removeprefix("python ").removeprefix("-m torch.distributed.run ")
    script = f"torchrun --nproc-per-node=gpu {program}" if job.kind == "train" else f"bash run-{job.kind}.sh"
    return wire.Ancestor(
        pid=launcher_pid(job), parent_pid=1, user=job.user, command=script, job=job.id,
        started_at=datetime.fromtimestamp(int(job.started), UTC),
    )  # fmt: skip
