"""The GPU's compute mode: exclusive to one process (the MPS server) while it is shared, as before afterwards.

Invariant: the mode before is on disk before the mode is changed, so that whoever comes after a killed agent can put it
back; a mode that somebody else set meanwhile is left alone. A mode that we may not set is said, never fatal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import pynvml

from agent.errors import MpsFault
from agent.isolation.mps_record import Record

EXCLUSIVE, DEFAULT, PROHIBITED = "exclusive_process", "default", "prohibited"
MODES = {0: DEFAULT, 1: "exclusive_thread", 2: PROHIBITED, 3: EXCLUSIVE}
_NUMBERS = {name: number for number, name in MODES.items()}


class ModeRefused(MpsFault):
    """The compute mode cannot be read or set; `str()` says why."""


class ComputeMode(Protocol):
    """Compute modes by UUID; each raises ModeRefused."""

    def get(self, uuid: str) -> str: ...
    def set(self, uuid: str, mode: str) -> None: ...


class NvmlComputeMode:
    """Compute modes through NVML, which is initialised for the length of one call: it counts its users."""

    def get(self, uuid: str) -> str:
        """`default`, `exclusive_process`, ..."""
        with _device(uuid, "read") as handle:
            number = pynvml.nvmlDeviceGetComputeMode(handle)
        return MODES.get(number, f"unknown_{number}")

    def set(self, uuid: str, mode: str) -> None:
        """Needs root."""
        with _device(uuid, "set") as handle:
            pynvml.nvmlDeviceSetComputeMode(handle, _NUMBERS[mode])


@contextmanager
def _device(uuid: str, verb: str) -> Iterator[Any]:
    try:
        pynvml.nvmlInit()
        try:
            yield pynvml.nvmlDeviceGetHandleByUUID(uuid)
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        hint = "run the agent as root" if error.value == pynvml.NVML_ERROR_NO_PERMISSION else "look into dmesg"
        reason = str(error).rstrip(".")
        raise ModeRefused(f"the compute mode of {uuid} cannot be {verb} ({reason}, NVML error {error.value}): {hint}") from None


class ModeKeeper:
    """Takes and gives back the mode of one GPU. `save` makes the record durable; `mode` None: modes are not managed."""

    def __init__(self, uuid: str, mode: ComputeMode | None, record: Record, save: Callable[[], None]) -> None:
        self._uuid = uuid
        self._mode = mode
        self._record = record
        self._save = save
        self.not_enforced: str | None = None
        """A sentence while the GPU is not exclusive to MPS."""

    def found(self) -> str | None:
        """The mode now; None where it cannot be read."""
        try:
            return self._mode.get(self._uuid) if self._mode else None
        except ModeRefused:
            return None

    def will_set(self) -> bool:
        """Whether `take` would change the mode now."""
        return self.found() not in (EXCLUSIVE, PROHIBITED, None)

    def take(self) -> None:
        """Makes the GPU exclusive. Raises MpsFault only for a GPU on which nothing may run."""
        self.not_enforced = None
        if self._mode is None:
            return
        try:
            found = self._mode.get(self._uuid)
            if found == PROHIBITED:
                raise MpsFault(
                    f"GPU {self._uuid} is in compute mode PROHIBITED: no program may use it; run `nvidia-smi -c DEFAULT`"
                )
            if found != EXCLUSIVE:
                self._note(self._record.mode_before or found)
                self._mode.set(self._uuid, EXCLUSIVE)
        except ModeRefused as refused:
            self._note(None)
            self.not_enforced = f"a program that does not use MPS can use the GPU beside the jobs that share it: {refused}"

    def restore(self) -> str | None:
        """Puts the mode before back; a sentence where that did not go, and then the record stays for another try."""
        before = self._record.mode_before
        if before is None or self._mode is None:
            return None
        try:
            if self._mode.get(self._uuid) == EXCLUSIVE:
                self._mode.set(self._uuid, before)
        except ModeRefused as refused:
            return f"the GPU was left in compute mode EXCLUSIVE_PROCESS, which was {before.upper()} before: {refused}"
        self._note(None)
        return None

    def drifted(self) -> str | None:
        """Sets the mode again when it was changed behind our back, and says so."""
        if self._record.mode_before is None or self._mode is None:
            return None
        found = self.found()
        if found is None or found == EXCLUSIVE:
            return None
        try:
            self._mode.set(self._uuid, EXCLUSIVE)
        except ModeRefused as refused:
            return f"somebody changed the compute mode of {self._uuid} to {found.upper()} while it is shared: {refused}"
        return f"somebody changed the compute mode of {self._uuid} to {found.upper()} while it is shared; it is EXCLUSIVE_PROCESS again"

    def _note(self, before: str | None) -> None:
        if self._record.mode_before != before:
            self._record.mode_before = before
            self._save()
