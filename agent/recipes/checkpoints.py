"""Checkpoints: one folder each, written aside and renamed when it is whole; the newest whole one is where a training goes on.

Invariant: a folder called `step-N` is whole or damaged from outside, and its hashes tell which; what is not whole is named and
skipped, never read. Nothing is unpickled but tensors and plain values. The whole state of one rank is one file; shards of many
are more (sharded.py), and are read by any number of ranks.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import pickle
import re
import shutil
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from agent.recipes.faults import CheckpointFault

STATE, ABOUT = "state.pt", "about.json"
WHOLE, SHARDS = 1, 2
"""Formats of a folder; raised when a reader of before would read one wrong."""
LAYOUT = "layout"
"""In `model`: of the weights themselves, where the same names and shapes have come to mean something else."""
FILES = "files"
"""Of shards, in `about`: name and hash of each."""
STOPPED, FINISHED = "stopped.json", "finished.json"
"""Markers beside the checkpoints: told to stop and saved; trained to the end."""
_STEP = re.compile(r"step-([0-9]{9})")
_ASIDE = ".writing-"


@dataclass(frozen=True)
class Checkpoint:
    """One that was read whole."""

    path: Path
    step: int
    about: Mapping[str, Any]
    state: Mapping[str, Any]
    """Of shards: `model` as a model has it, and `averages`, the optimizer's state by the weights' names."""

    @property
    def sharded(self) -> bool:
        return FILES in self.about


class NotWhole(Exception):
    """Why one is skipped."""


class Checkpoints:
    """Of one training, in one folder. `identity`: what makes the model; a checkpoint of another one is refused, unless `read_any`."""

    def __init__(self, folder: Path, identity: Mapping[str, object], keep: int = 2, *, read_any: bool = False) -> None:
        self.folder, self.identity, self._keep, self._any = folder, dict(identity), keep, read_any
        self._writer: threading.Thread | None = None
        self._failed: BaseException | None = None
        self._saved = -1
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CheckpointFault(f"{folder}: checkpoints cannot be kept there ({error.strerror}).") from None

    def newest(self, *, gather: bool = True) -> tuple[Checkpoint | None, list[str]]:
        """The newest whole one, and a sentence for each that was skipped. Raises `CheckpointFault` for another model's.

        Without `gather` shards are checked, and their state is left empty.
        """
        skipped = []
        for path in self.folder.glob(f"{_ASIDE}*"):
            skipped.append(f"{path.name} was being written when the training ended, and is removed")
            shutil.rmtree(path, ignore_errors=True)
        for path in self._paths():
            try:
                found = self._read(path, gather)
            except NotWhole as why:
                skipped.append(f"{path} is skipped: {why}")
                continue
            self.goes_on_from(found.step)
            return found, skipped
        return None, skipped

    def goes_on_from(self, step: int) -> None:
        """That one is there already."""
        self._saved = step

    def save(self, step: int, state: Mapping[str, Any], **about: object) -> None:
        """Copies `state` now and writes it in the background. Raises `CheckpointFault` where the one before failed."""
        self.wait()
        if step == self._saved:
            return
        copy = _copied(state)
        self._writer = threading.Thread(target=self._try_write, args=(step, copy, about), name="checkpoint")
        self._writer.start()

    def wait(self) -> None:
        """Until what was saved is on the disk."""
        if self._writer is not None:
            self._writer.join()
            self._writer = None
        if self._failed is not None:
            failed, self._failed = self._failed, None
            raise CheckpointFault(f"{self.folder}: no checkpoint could be written ({failed}).")

    def mark(self, name: str, **values: object) -> None:
        """Writes a marker whole."""
        aside = self.folder / f".{name}.tmp"
        _write(aside, json.dumps(values).encode())
        os.replace(aside, self.folder / name)
        _sync(self.folder)

    def unmark(self, name: str) -> None:
        (self.folder / name).unlink(missing_ok=True)

    def _paths(self) -> list[Path]:
        """Newest first."""
        found = [(int(match[1]), path) for path in self.folder.iterdir() if (match := _STEP.fullmatch(path.name))]
        return [path for _, path in sorted(found, reverse=True)]

    def _try_write(self, step: int, state: Mapping[str, Any], about: Mapping[str, object]) -> None:
        try:
            self._write(step, state, about)
        except (OSError, RuntimeError) as error:
            self._failed = error
            shutil.rmtree(self._aside(step), ignore_errors=True)  # the next one may find room

    def _write(self, step: int, state: Mapping[str, Any], about: Mapping[str, object]) -> None:
        aside = self._aside(step)
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir()
        with (aside / STATE).open("wb") as file:
            hashed = _Hashed(file)
            try:
                torch.save(dict(state), hashed)
            except RuntimeError as error:
                raise hashed.failed or error from None  # torch tells of a wrong position, not of a full disk
            file.flush()
            os.fsync(file.fileno())
        self._commit(step, {"format": WHOLE, "sha256": hashed.hash.hexdigest(), **about})

    def _aside(self, step: int) -> Path:
        return self.folder / f"{_ASIDE}{step}"

    def _commit(self, step: int, facts: Mapping[str, object]) -> None:
        """Gives what was written aside its name, and removes the oldest."""
        aside, final = self._aside(step), self.folder / f"step-{step:09d}"
        _write(aside / ABOUT, json.dumps({"step": step, "model": self.identity, **facts}, indent=1).encode())
        _sync(aside)
        if final.exists():
            shutil.rmtree(final)  # it was not whole, or it would have been gone on from
        os.rename(aside, final)
        _sync(self.folder)
        self._saved = step
        for path in self._paths()[self._keep :]:
            shutil.rmtree(path, ignore_errors=True)

    def _read(self, path: Path, gather: bool) -> Checkpoint:
        about = self._about(path)
        if not self._any:
            if (theirs := about["model"].get("recipe")) != (ours := self.identity.get("recipe")):
                raise CheckpointFault(f"{path} is of the recipe {theirs}, and this is {ours}: name another --checkpoint-dir.")
            check_layout(path, about, self.identity.get(LAYOUT))
        if about["model"] != self.identity and not self._any:
            raise CheckpointFault(f"{path} is of another model ({differences(about['model'], self.identity)});"
                                  " use its settings, or another --checkpoint-dir.")  # fmt: skip
        if FILES in about:
            from agent.recipes import shards

            shards.check(path, about[FILES])
            return Checkpoint(path, int(about["step"]), about, shards.gathered(path) if gather else {})
        try:
            content = (path / STATE).read_bytes()
        except OSError as error:
            raise NotWhole(f"{STATE}: {(error.strerror or str(error)).lower()}") from None
        if hashlib.sha256(content).hexdigest() != about["sha256"]:
            raise NotWhole(f"{STATE} is half-written or damaged (its hash is not that of {ABOUT})")
        try:
            state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        except pickle.UnpicklingError:
            raise NotWhole(f"{STATE} holds more than tensors and plain values") from None
        return Checkpoint(path, int(about["step"]), about, state)

    def _about(self, path: Path) -> dict[str, Any]:
        try:
            about = json.loads((path / ABOUT).read_bytes())
        except OSError as error:
            raise NotWhole(f"{ABOUT}: {(error.strerror or str(error)).lower()}") from None
        except ValueError:
            raise NotWhole(f"{ABOUT} is no JSON") from None
        if not isinstance(about, dict) or not isinstance(about.get("model"), dict) or "step" not in about:
            raise NotWhole(f"{ABOUT} does not say what it holds")
        if "sha256" not in about and not isinstance(about.get(FILES), dict):
            raise NotWhole(f"{ABOUT} does not say what it holds")
        if (number := about.get("format")) not in (WHOLE, SHARDS):
            which = "without a number of its format" if number is None else f"of format {number}"
            raise CheckpointFault(f"{path} is {which}, and this program reads {WHOLE} and {SHARDS}: go on with the Rackrate that wrote it,"
                                  " or name another --checkpoint-dir.")  # fmt: skip
        return about


def check_layout(path: Path, about: Mapping[str, Any], layout: object) -> None:
    """Raises `CheckpointFault` for weights of this recipe that would be read as something else."""
    theirs = about["model"].get(LAYOUT)
    if theirs == layout:
        return
    written = "without a number of its layout" if theirs is None else f"of layout {theirs}"
    recipe = f"recipe {about['model'].get('recipe')}"
    raise CheckpointFault(
        f"{path} was written {written}, and this {recipe} reads {layout}: its weights would be misread. Train anew in another"
        " --checkpoint-dir, or go on with the Rackrate that wrote it."
    )


class _Hashed(io.RawIOBase):
    """A file that hashes what is written to it."""

    def __init__(self, file: io.BufferedWriter) -> None:
        self._file, self.hash = file, hashlib.sha256()
        self.failed: OSError | None = None

    def write(self, data: Any) -> int:
        self.hash.update(data)
        try:
            return self._file.write(data)
        except OSError as error:
            self.failed = error
            raise

    def writable(self) -> bool:
        return True


def _copied(value: Any) -> Any:
    """On the CPU, and not the tensors that the next step changes."""
    if isinstance(value, torch.Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, Mapping):
        return {key: _copied(one) for key, one in value.items()}
    return [_copied(one) for one in value] if isinstance(value, (list, tuple)) else value


def differences(theirs: Mapping[str, object], ours: Mapping[str, object]) -> str:
    """In words; empty where there are none."""
    keys = sorted(key for key in theirs.keys() | ours.keys() if theirs.get(key) != ours.get(key))
    return ", ".join(f"{key} {theirs.get(key)} there, {ours.get(key)} here" for key in keys)


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    with contextlib.suppress(OSError):  # some network file systems refuse it for folders
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
