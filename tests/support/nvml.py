"""Programs on the stand-in libnvidia-ml.so.1: compiles it, writes its state, talks to a sensor in a child process.

Invariant: the library is found through LD_LIBRARY_PATH of a child that starts after it was set; no test process loads it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent import wire
from agent.sensors import Reading
from tests.support.fake_nvml.state import State

SOURCES = Path(__file__).parent / "fake_nvml"
ROOT = Path(__file__).parents[2]
_FLAGS = ("-O2", "-fPIC", "-fvisibility=hidden", "-shared", "-Wl,-soname,libnvidia-ml.so.1")


def compiler() -> str | None:
    """The C compiler of this machine, or None."""
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def library(hide: Sequence[str] = ()) -> Path:
    """Folder with a libnvidia-ml.so.1 (compiled once per source and user); functions in `hide` are missing from it."""
    digest = hashlib.sha256("\n".join(sorted(hide)).encode())
    for source in sorted(SOURCES.glob("*.[ch]")):
        digest.update(source.read_bytes())
    folder = Path(tempfile.gettempdir()) / f"rackrate-fake-nvml-{os.getuid()}-{digest.hexdigest()[:16]}"
    if not (folder / "libnvidia-ml.so.1").exists():
        _compile(folder, hide)
    return folder


def _compile(folder: Path, hide: Sequence[str]) -> None:
    folder.mkdir(mode=0o700, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        symbols, built = Path(scratch) / "symbols.map", Path(scratch) / "built.so"
        symbols.write_text("{ local:" + "".join(f" {name};" for name in hide or ("none",)) + " };\n")
        command = [compiler() or "cc", *_FLAGS, f"-Wl,--version-script={symbols}", "-o", str(built)]
        subprocess.run([*command, str(SOURCES / "fake_nvml.c"), "-lpthread"], check=True)
        os.replace(built, folder / "libnvidia-ml.so.1")
    link = folder / "libnvidia-ml.so"
    if not link.is_symlink():
        link.symlink_to("libnvidia-ml.so.1")


class RemoteSensor:
    """An `NvmlSensor` in a child process. `read()` may be told to move the sensor's clock first."""

    def __init__(self, child: subprocess.Popen[str]) -> None:
        self._child = child
        self.inventory: tuple[wire.GpuInventory, ...] = ()
        self.driver_version: str | None = None
        self.cuda_version: str | None = None

    def read(self, advance_seconds: float = 0.0) -> Reading:
        """One reading after the sensor's clock moved forward by `advance_seconds`."""
        assert self._child.stdin is not None and self._child.stdout is not None
        print(advance_seconds, file=self._child.stdin, flush=True)
        line = self._child.stdout.readline()
        if not line:
            raise AssertionError("the sensor's process ended")
        answer: dict[str, Any] = json.loads(line)
        self.inventory = msgspec.convert(answer["inventory"], tuple[wire.GpuInventory, ...])
        self.driver_version, self.cuda_version = answer["driver"], answer["cuda"]
        return msgspec.convert(answer["reading"], Reading)

    def gpus(self, advance_seconds: float = 0.0) -> tuple[wire.Gpu, ...]:
        """The GPUs of one reading."""
        return self.read(advance_seconds).gpus or ()


class FakeNvml:
    """A state file and the environment in which programs see it. `state` is written by `write`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.path = folder / "gpus.state"
        self.sys_root = folder / "sys"
        self.state = State()

    def use(self, state: State) -> State:
        """Makes `state` what every program sees from now on."""
        self.state = state
        return self.write()

    def write(self) -> State:
        """Publishes the changes that were made to `state`."""
        return self.state.write(self.path)

    def environment(self, hide: Sequence[str] = (), **extra: str) -> dict[str, str]:
        """Environment of a child that finds the stand-in."""
        paths = {"LD_LIBRARY_PATH": str(library(hide)), "FAKE_NVML_STATE": str(self.path), "PYTHONPATH": str(ROOT)}
        return {**os.environ, **paths, **extra}

    def run(self, command: Sequence[str], hide: Sequence[str] = ()) -> str:
        """Standard output of a program that ran to its end on the stand-in."""
        return subprocess.run(command, env=self.environment(hide), check=True, capture_output=True, text=True, timeout=60).stdout

    @contextmanager
    def sensor(self, hide: Sequence[str] = (), environment: dict[str, str] | None = None, **options: Any) -> Iterator[RemoteSensor]:
        """A sensor in a child process; `options` go to `NvmlSensor`."""
        options = {"sys_root": str(self.sys_root), "xid_wait_seconds": 0.05, **options}
        command = [sys.executable, "-W", "error", "-m", "tests.support.nvml_child", json.dumps(options)]
        child = subprocess.Popen(
            command, env=environment or self.environment(hide), cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        with child:
            yield RemoteSensor(child)
            assert child.stdin is not None
            child.stdin.close()
            assert child.wait(60) == 0


@pytest.fixture
def fake_nvml(tmp_path: Path) -> FakeNvml:
    """The stand-in library with no state yet (a driver that is not loaded)."""
    if compiler() is None:
        pytest.skip("no C compiler (cc, gcc or clang) to build the stand-in NVML library")
    library()
    return FakeNvml(tmp_path)
