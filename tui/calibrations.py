"""Calibrations that were measured, kept as JSON lines in the data directory: added at the end, never changed.

Invariant: each line carries its format and stands alone; a file that is damaged is told with its line and is never written
to. A calibration is known by what it says, so that the same one is kept once, wherever it comes from.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tui.errors import ConfigurationError, Failed, WrongUsage

if TYPE_CHECKING:
    from pricing.calibration import Calibration

FILE = "calibrations.jsonl"
FORMAT, VERSION = "rackrate-calibration", 1
RECIPE_FORMAT = 1
"""Of the lines that the recipe prints."""
ID_LENGTH = 10
LARGEST_FILE = 64 << 20
UNITS = ("flops", "bytes_per_second", "samples_per_second")


class Reading:
    """Takes a log of the recipe as it grows; `told` gets each of its lines."""

    def __init__(self) -> None:
        self.start: dict[str, Any] | None = None
        self.figures: list[dict[str, Any]] = []
        self.sentence: str | None = None
        """What the recipe said went wrong."""
        self._rest = ""

    def feed(self, text: str) -> Iterator[dict[str, Any]]:
        """The lines that are whole now."""
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            if (found := self._line(line)) is not None:
                yield found

    def _line(self, text: str) -> dict[str, Any] | None:
        if text.startswith("rackrate: recipe calibrate: "):
            self.sentence = text.removeprefix("rackrate: recipe calibrate: ")
        try:
            line = json.loads(text) if text.startswith("{") else None
        except ValueError:
            return None
        if not isinstance(line, dict) or "event" not in line:
            return None
        if line["event"] == "start":
            self.start, self.figures = line, []  # a run that was tried again begins anew
        elif line["event"] == "figure":
            self.figures.append(line)
        return line


def calibration(reading: Reading, where: str, **of_node: Any) -> Calibration:
    """Of the lines of a run. `WrongUsage` names what is wrong in `where`."""
    from pricing.calibration import Calibration

    start = reading.start
    if start is None or start.get("recipe") != "calibrate":
        raise WrongUsage(f"{where}: there is no calibration in it; it is what `python -m agent.recipes.calibrate` prints.")
    if start.get("format") != RECIPE_FORMAT:
        raise WrongUsage(f"{where}: it is a calibration of format {start.get('format')!r}, and this program reads {RECIPE_FORMAT}; measure again.")
    if not reading.figures:
        raise WrongUsage(f"{where}: the calibration has no figures; it was broken off before the first one.")
    fields = {
        "node": None, "cloud": None, "region": None, "instance_type": None, "usd_per_hour": None, "gpu_count": start.get("gpus") or 0,
        **{name: start.get(name) for name in ("measured_at", "gpu", "gpu_memory_bytes", "ranks", "cpu", "threads", "torch", "cuda", "driver", "host")},
        **{key: value for key, value in of_node.items() if value is not None},
        "figures": [_figure(one) for one in reading.figures],
    }  # fmt: skip
    try:
        found = msgspec.convert({"id": "", **fields}, Calibration)
    except msgspec.ValidationError as error:
        raise WrongUsage(f"{where}: the calibration is damaged ({error}).") from None
    _check(found, where)
    return msgspec.convert({**msgspec.to_builtins(found), "id": identity(found)}, Calibration)


def _figure(line: Mapping[str, Any]) -> dict[str, Any]:
    own = ("name", "value", "unit", "spread_ratio", "repeats")
    about = {key: value for key, value in line.items() if key not in (*own, "event")}
    return {**{key: line.get(key) for key in own}, "about": about}


def _check(found: Calibration, where: str) -> None:
    """What the types allow and nothing can have measured."""
    for one in found.figures:
        if not 0 < one.value < float("inf") or not 0 <= one.spread_ratio < float("inf") or one.unit not in UNITS:
            raise WrongUsage(f"{where}: the figure {one.name} is none ({one.value} {one.unit}, spread {one.spread_ratio}).")
    if found.ranks < 1 or found.gpu_count < 0 or found.measured_at.tzinfo is None:
        raise WrongUsage(f"{where}: the calibration is damaged (ranks, GPUs or the zone of its time).")


def identity(found: Calibration) -> str:
    """The same for the same measurement, whoever tells of the node."""
    told = msgspec.to_builtins(found)
    words = json.dumps([told["measured_at"], told["host"], told["figures"]], sort_keys=True)
    return hashlib.sha256(words.encode()).hexdigest()[:ID_LENGTH]


def record(found: Calibration) -> dict[str, Any]:
    """A line of the file, and of `--json`."""
    return {"format": FORMAT, "version": VERSION, **msgspec.to_builtins(found)}


def load(data_dir: Path) -> list[Calibration]:
    """Oldest first; nothing where there is no file. `ConfigurationError` names the file and the line."""
    path = data_dir / FILE
    try:
        return list(read(path.read_bytes(), str(path)))
    except FileNotFoundError:
        return []
    except WrongUsage as error:
        raise ConfigurationError(f"{error} Repair the line, or remove the file.") from None
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read ({error.strerror}).") from None


def read(data: bytes, where: str) -> Iterator[Calibration]:
    """Of lines as they are kept. `WrongUsage` names the line."""
    for number, line in enumerate(data.splitlines(), 1):
        if line.strip():
            yield _kept(line, f"{where}, line {number}")


def _kept(line: bytes, where: str) -> Calibration:
    from pricing.calibration import Calibration

    try:
        raw = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise WrongUsage(f"{where}: it is damaged (no JSON).") from None
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        raise WrongUsage(f"{where}: it is no calibration.")
    if raw.get("version") != VERSION:
        raise WrongUsage(f"{where}: it is of version {raw.get('version')!r}, and this program reads {VERSION}.")
    try:
        found = msgspec.convert({key: value for key, value in raw.items() if key not in ("format", "version")}, Calibration)
    except msgspec.ValidationError as error:
        raise WrongUsage(f"{where}: it is damaged ({error}).") from None
    _check(found, where)
    return found


def add(data_dir: Path, found: Iterable[Calibration]) -> list[Calibration]:
    """Those that are new, now kept."""
    data_dir.mkdir(parents=True, exist_ok=True)
    path = data_dir / FILE
    try:
        with path.open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            known = {one.id for one in load(data_dir)}
            fresh = list({one.id: one for one in found if one.id not in known}.values())
            lines = b"".join(msgspec.json.encode(record(one)) + b"\n" for one in fresh)
            if file.tell() and not _ends_well(file.fileno()):
                lines = b"\n" + lines
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise Failed(f"{path}: cannot be written ({error.strerror}).") from None
    return fresh


def _ends_well(handle: int) -> bool:
    return os.pread(handle, 1, os.fstat(handle).st_size - 1) == b"\n"


def of_file(path: Path, **of_node: Any) -> Calibration:
    """Of a log of the recipe, such as a run under Slurm leaves. `WrongUsage`."""
    reading = Reading()
    for _ in reading.feed(text_of(path).decode("utf-8", "replace") + "\n"):
        pass
    return calibration(reading, str(path), **of_node)


def text_of(path: Path) -> bytes:
    """`WrongUsage` for a file that cannot be read, or is too large to be one of these."""
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise WrongUsage(f"{path}: it is larger than {LARGEST_FILE >> 20} MiB, so it is no calibration.")
        return path.read_bytes()
    except OSError as error:
        raise WrongUsage(f"{path}: {(error.strerror or str(error)).lower()}.") from None


def find(kept: Sequence[Calibration], word: str) -> Calibration:
    """By the beginning of its id, else the newest of a node, an instance type or a host. `WrongUsage`."""
    by_id = [one for one in kept if len(word) >= 3 and one.id.startswith(word.lower())]
    if len(by_id) == 1:
        return by_id[0]
    if named := named_by(kept, word):
        return named[-1]
    hint = "`rackrate calibrate list` shows what was measured" if kept else "nothing was measured yet: `rackrate calibrate NODE`"
    raise WrongUsage(f"{word}: {'more than one calibration begins so' if by_id else 'no calibration is of that id, node or instance type'}; {hint}.")


def named_by(kept: Sequence[Calibration], word: str) -> list[Calibration]:
    """All of a node, an instance type or a host, oldest first."""
    wanted = word.lower()
    found = [one for one in kept if wanted in {(name or "").lower() for name in (one.node, one.instance_type, one.host)}]
    return sorted(found, key=lambda one: one.measured_at)


def when(found: Calibration) -> str:
    return f"{found.measured_at:%Y-%m-%d %H:%M}"

