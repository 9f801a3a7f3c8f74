"""What the well-known XID codes of NVIDIA's driver mean, and what to do about them (after NVIDIA's XID catalogue).

Invariant: a code that does not stand here is still reported, as one whose meaning is not known here.
"""

from __future__ import annotations

from typing import NamedTuple

from agent.wire import Severity


class Xid(NamedTuple):
    """`meaning` and `action` continue a sentence each."""

    meaning: str
    action: str
    severity: Severity = "critical"


_PROGRAM = "most often a fault of the program: run it under compute-sanitizer, and suspect the GPU only if others fail there too"
_RESET = "drain the node and reset the GPU (nvidia-smi --gpu-reset), or reboot"
_REPLACE = "drain the node and reset the GPU; if it comes back, have the GPU replaced"
_GSP = "drain the node and reboot it; if it comes back, update the driver"

XIDS: dict[int, Xid] = {
    8: Xid("the GPU stopped processing (time-out)", _PROGRAM, "warning"),
    13: Xid("exception in the graphics engine (illegal instruction or access)", _PROGRAM, "warning"),
    31: Xid("memory page fault (illegal address)", _PROGRAM, "warning"),
    32: Xid("invalid or corrupted command stream", "check the PCIe connection and the driver version", "warning"),
    38: Xid("error in the driver's firmware", "update the driver, then have the GPU tested"),
    43: Xid("the GPU stopped processing for one program", _PROGRAM, "warning"),
    44: Xid("fault in the graphics engine during a context switch", "have the GPU tested if it comes back", "warning"),
    45: Xid("the program's work was removed after an earlier error or a kill", "look for the XID or the signal before it", "warning"),
    48: Xid("uncorrectable memory error (double-bit ECC)", _REPLACE),
    61: Xid("break in the GPU's internal micro-controller", _RESET),
    62: Xid("the GPU's internal micro-controller halted", _RESET),
    63: Xid("a memory page was retired or a row remapped", "reset the GPU when it is next free, so that the spare row is used", "warning"),
    64: Xid("a memory page could not be retired or a row not remapped", _REPLACE),
    69: Xid("class error in the graphics engine", _PROGRAM, "warning"),
    74: Xid("NVLink error", "check `nvidia-smi nvlink -e`; reset the GPUs, and have link or bridge replaced if it comes back"),
    79: Xid("the GPU has fallen off the bus", "drain the node and power-cycle it; check power, cooling and seating of the GPU"),
    92: Xid("many corrected memory errors (single-bit ECC)", "watch the error counts and plan to have the GPU replaced", "warning"),
    94: Xid("uncorrectable memory error that hit one program only", "restart that program, and reset the GPU when it is free"),
    95: Xid("uncorrectable memory error that may have hit every program", "end all programs on it and reset the GPU before it is used again"),
    109: Xid("time-out of a context switch", "restart the program; reset the GPU if it comes back", "warning"),
    110: Xid("security fault", _RESET),
    119: Xid("time-out of the GPU's system processor (GSP)", _GSP),
    120: Xid("error of the GPU's system processor (GSP)", _GSP),
    121: Xid("corrected errors on the link between CPU and GPU", "reset the GPU when it is next free", "warning"),
    140: Xid("unrecovered memory error", _RESET),
    154: Xid("the driver says that the GPU needs a recovery action", "do what `nvidia-smi -q` names as GPU Recovery Action"),
}

_UNKNOWN = Xid("a code that is not described here", "look it up in NVIDIA's XID catalogue and in the kernel log", "warning")


def xid(code: int) -> Xid:
    return XIDS.get(code, _UNKNOWN)
