"""What must be known of one shared GPU after the agent was killed: its mode before, its defaults, who shares it.

Invariant: the record is on disk before the thing that it tells of is done, and it is written in one step. A record of
before a reboot keeps its defaults alone: the driver forgot the mode and every process is gone.
"""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import msgspec

from agent.errors import MpsFault, StateDirectoryError
from agent.private_files import write_private

RECORD_FILE = "gpu.json"


class Sharer(msgspec.Struct, frozen=True, kw_only=True):
    """A job's part of the GPU: `share` in millionths, memory in bytes, and the user it runs as."""

    share: int
    memory_bytes: int | None = None
    uid: int = 0


class Record(msgspec.Struct, kw_only=True):
    """`mode_before` is the GPU's compute mode before the first share; None: we have not changed it."""

    version: int = 1
    gpu: str
    boot_id: str | None = None
    mode_before: str | None = None
    percentage: Decimal | None = None
    pinned_memory_bytes: int | None = None
    jobs: dict[str, Sharer] = {}

    def empty(self) -> bool:
        """Nothing in it that somebody would miss."""
        return self.mode_before is None and self.percentage is None and self.pinned_memory_bytes is None and not self.jobs


def load(folder: Path, gpu: str) -> Record:
    """The record in this folder, or a new one where there is none that can be read."""
    now = boot_id()
    try:
        record = msgspec.json.decode((folder / RECORD_FILE).read_bytes(), type=Record)
    except (OSError, msgspec.MsgspecError):
        return Record(gpu=gpu, boot_id=now)
    if record.gpu != gpu:
        return Record(gpu=gpu, boot_id=now)
    if record.boot_id != now:
        record.boot_id, record.mode_before, record.jobs = now, None, {}
    return record


def save(folder: Path, record: Record) -> None:
    """Durable; raises MpsFault where it cannot be written."""
    try:
        write_private(folder / RECORD_FILE, msgspec.json.encode(record))
    except StateDirectoryError as error:
        raise MpsFault(str(error)) from None


def recorded_gpus(folders: list[Path]) -> tuple[str, ...]:
    """UUIDs of the GPUs that have a record in one of these folders."""
    found = []
    for folder in folders:
        try:
            found.append(msgspec.json.decode((folder / RECORD_FILE).read_bytes(), type=Record).gpu)
        except (OSError, msgspec.MsgspecError):
            continue
    return tuple(sorted(found))


def boot_id() -> str | None:
    """The kernel's id of this boot."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None
