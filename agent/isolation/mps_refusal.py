"""Why a GPU cannot be shared through MPS, and how many clients it takes where it can.

Invariant: a refusal is a sentence that says what stands in the way and what to do; what is not known does not refuse, it
only takes the smaller limit.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from agent.errors import MpsFault
from agent.isolation.mps_control import CONTROL, find_binary
from agent.wire.node import GpuInventory

_OLDEST, _VOLTA = (3, 5), (7, 0)
CLIENTS_BEFORE_VOLTA, CLIENTS, CLIENTS_CUDA_13_1 = 16, 48, 60


def refusal(
    gpu: GpuInventory, *, control: str = CONTROL, platform: str = sys.platform, proc: str | Path = "/proc"
) -> str | None:
    """A sentence, or None where MPS can work on this GPU."""
    if platform != "linux":
        return "sharing a GPU needs MPS, which runs on Linux alone: give the job a whole GPU"
    if _is_wsl(Path(proc)):
        return "sharing a GPU needs MPS, which WSL's driver does not have: give the job a whole GPU"
    if gpu.mig_enabled:
        return f"GPU {gpu.index} is in MIG mode and MPS is not used on it: give the job a MIG instance, or turn MIG off (`nvidia-smi -mig 0`)"
    version = numbers(gpu.compute_capability)
    if version is not None and version < _OLDEST:
        return f"GPU {gpu.index} has compute capability {gpu.compute_capability}, and MPS needs 3.5: give the job a whole GPU"
    if not gpu.uuid.startswith("GPU-"):
        return f"GPU {gpu.index} has no UUID now ({gpu.uuid}): the driver cannot reach it"
    try:
        find_binary(control)
    except MpsFault as fault:
        return str(fault)
    return None


def client_limit(compute_capability: str | None, cuda_version: str | None) -> int:
    """The most processes that MPS lets on one GPU: by its architecture and the driver's CUDA version."""
    version = numbers(compute_capability)
    if version is None or version < _VOLTA:
        return CLIENTS_BEFORE_VOLTA
    return CLIENTS_CUDA_13_1 if (numbers(cuda_version) or (0, 0)) >= (13, 1) else CLIENTS


def lacks_limits(compute_capability: str | None) -> bool:
    """Before Volta neither thread percentage nor memory limit does anything."""
    version = numbers(compute_capability)
    return version is not None and version < _VOLTA


def numbers(version: str | None) -> tuple[int, int] | None:
    """`9.0` -> (9, 0); None for what is no version."""
    found = re.fullmatch(r"(\d{1,4})\.(\d{1,4})", version or "", re.ASCII)
    return (int(found[1]), int(found[2])) if found else None


def _is_wsl(proc: Path) -> bool:
    try:
        return "microsoft" in (proc / "sys/kernel/osrelease").read_text().lower()
    except OSError:
        return False
