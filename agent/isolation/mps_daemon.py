"""The life of one GPU's control daemon, in a folder of its own, apart from the agent's.

Invariant: whether a daemon runs is told by the lock that it holds on its folder, never by a stored pid; only a process
that holds it, or a server that names the folder in its environment, is ever killed. One that we did not start is adopted.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shlex
import shutil
import signal
import stat
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from agent.errors import MpsFault
from agent.isolation.mps_access import process_uid
from agent.isolation.mps_control import Control, MpsSilent, search_path
from agent.sensors.processes import clean_text

FOLDER_MODE = 0o711
START_SECONDS, QUIT_SECONDS, END_SECONDS = 10.0, 5, 5.0
SERVER = "nvidia-cuda-mps-server"
_SOCKET_BYTES = 107
_UUID = re.compile(r"GPU-[0-9A-Za-z-]{1,80}")
_PREFIX = "mps-"
_LOCK = struct.Struct("hhqqi4x")


class Places(NamedTuple):
    """Folders of one GPU's daemon; `pipe` and `logs` are below `root`."""

    root: Path
    pipe: Path
    logs: Path


def places(runtime_dir: Path, uuid: str) -> Places:
    """Short, since a socket's path may take 107 bytes in all; MpsFault where it would be longer."""
    if not _UUID.fullmatch(uuid):
        raise MpsFault(f"{uuid!r:.60} is no UUID of a whole GPU (GPU-...)")
    root = runtime_dir.absolute() / (_PREFIX + hashlib.sha256(uuid.encode()).hexdigest()[:8])
    length = len(os.fsencode(root / "pipe/control_privileged"))
    if length > _SOCKET_BYTES:
        raise MpsFault(
            f"the folder {runtime_dir} is too long for the sockets of MPS ({length} bytes, at most {_SOCKET_BYTES}):"
            f" give the agent a runtime directory that is {length - _SOCKET_BYTES} bytes shorter"
        )
    return Places(root, root / "pipe", root / "logs")


def folders(runtime_dir: Path) -> list[Path]:
    """Folders of all GPUs that have one."""
    return sorted(runtime_dir.glob(_PREFIX + "????????"))


class Daemon:
    """One control daemon. `launcher` is an argv prefix that starts it in a group of its own; `environment` is added to its."""

    def __init__(
        self,
        where: Places,
        uuid: str,
        control: Control,
        *,
        launcher: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._where = where
        self._uuid = uuid
        self._control = control
        self._launcher = tuple(launcher)
        self._extra = dict(environment or {})

    def environment(self) -> dict[str, str]:
        """What the daemon is told, and nothing of the agent's own."""
        return {
            "CUDA_VISIBLE_DEVICES": self._uuid,
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            "CUDA_MPS_PIPE_DIRECTORY": str(self._where.pipe),
            "CUDA_MPS_LOG_DIRECTORY": str(self._where.logs),
        }

    def start_text(self) -> str:
        """The start as a person could type it."""
        assignments = [f"{name}={value}" for name, value in self.environment().items()]
        return shlex.join([*assignments, *self._launcher, *self._control.start_argv()])

    def pid(self) -> int | None:
        """Of the running daemon (0: it cannot be seen from here), or None where none runs."""
        return lock_holder(self._where.pipe / "control_lock")

    def make_folders(self) -> None:
        """The three folders, closed to listing, ours alone to write."""
        try:
            _make_way(self._where.root.parent)
            for folder in self._where:
                folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
                _check_ours(folder)
                os.chmod(folder, FOLDER_MODE)
        except OSError as error:
            raise MpsFault(f"the folder {self._where.root} of the MPS daemon cannot be made ({error.strerror})") from None

    def start(self) -> None:
        """Starts it, or adopts one that runs in our folder for this GPU. Raises MpsFault with its own words."""
        self.make_folders()
        running = self.pid()
        if running is None:
            self._kill_servers()  # of a daemon that was killed: they would hold the GPU against the new one
            self._launch()
            return
        if (owner := process_uid(running)) not in (os.geteuid(), None):
            raise MpsFault(f"process {running} of user {owner} holds the lock of the MPS daemon in {self._where.root}: end it")
        if (devices := _environment(running).get("CUDA_VISIBLE_DEVICES")) not in (self._uuid, None):
            raise MpsFault(
                f"the MPS control daemon {running} in {self._where.root} serves {devices:.60}, not {self._uuid}: end it"
            )

    def _launch(self) -> None:
        argv = [*self._launcher, *self._control.start_argv()]
        environment = {"PATH": search_path(), "LC_ALL": "C", **self._extra, **self.environment()}
        # a file, not a pipe: the daemon keeps what it was given, and a pipe would wait for it
        with tempfile.TemporaryFile() as words:
            try:
                done = subprocess.run(
                    argv, env=environment, cwd="/", stdin=subprocess.DEVNULL, stdout=words, stderr=words,
                    start_new_session=True, umask=0o022, timeout=START_SECONDS,
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                raise MpsSilent(f"`{shlex.join(argv)}` did not end within {START_SECONDS:g} s") from None
            except OSError as error:
                raise MpsFault(f"{argv[0]} cannot be run ({error.strerror})") from None
            words.seek(0)
            text = clean_text(words.read(2000))
        if done.returncode:
            raise MpsFault(f"the MPS control daemon of {self._uuid} does not start: {text or f'exit status {done.returncode}'}")

    def stop(self, *, hangs: bool = False) -> None:
        """Ends daemon and servers: asked first (not one that hangs), killed if that does not help. MpsFault for what is left."""
        if self.pid() is not None:
            try:
                if not hangs:
                    self._control.quit(QUIT_SECONDS)
            except MpsFault:
                pass  # gone meanwhile, or it hangs
            self._kill_daemon()
        self._kill_servers()

    def _kill_daemon(self) -> None:
        pid = self.pid()
        if pid:
            try:
                descriptor = os.pidfd_open(pid)
            except ProcessLookupError:
                return
            try:
                if self.pid() == pid:  # it still holds the lock, so the descriptor is of the process that we mean
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            except ProcessLookupError:
                pass
            finally:
                os.close(descriptor)
        if not _wait(lambda: self.pid() is None):
            raise MpsFault(
                f"the MPS control daemon {self.pid()} of {self._uuid} does not end: it hangs in the driver; drain the node"
            )

    def _kill_servers(self) -> None:
        ours = [server for server in servers() if server.pipe == str(self._where.pipe)]
        for server in ours:
            _kill(server)
        if ours and not _wait(lambda: not any(_alive(server.pid) for server in ours)):
            left = ", ".join(str(server.pid) for server in ours if _alive(server.pid))
            raise MpsFault(f"the MPS servers {left} of {self._uuid} do not end: they hang in the driver; drain the node")

    def remove(self, *, keep_record: bool) -> None:
        """Removes the folders of a daemon that has ended; with `keep_record` the root and what is in it stay."""
        for folder in (self._where.pipe, self._where.logs) if keep_record else (self._where.root,):
            shutil.rmtree(folder, ignore_errors=True)


class Server(NamedTuple):
    """A running MPS server. `pipe` and `devices` are None where we may not look."""

    pid: int
    uid: int
    pipe: str | None
    devices: str | None


def servers() -> Iterator[Server]:
    """MPS servers on this machine, whosever."""
    for entry in os.listdir("/proc"):
        if entry.isdecimal() and _is_server(entry):
            environment = _environment(int(entry))
            uid = process_uid(int(entry))
            if uid is not None and _alive(int(entry)):  # asked last: of one that ends, the environment reads as empty
                pipe = environment.get("CUDA_MPS_PIPE_DIRECTORY") or ("/tmp/nvidia-mps" if environment else None)
                yield Server(int(entry), uid, pipe, environment.get("CUDA_VISIBLE_DEVICES"))


def foreign_server(uuid: str, pipe: Path, uid: int) -> Server | None:
    """A server of another daemon and another user that may hold this GPU."""
    for server in servers():
        elsewhere = server.devices is not None and "GPU-" in server.devices and uuid not in server.devices
        if server.pipe != str(pipe) and server.uid != uid and not elsewhere:
            return server
    return None


def lock_holder(path: Path) -> int | None:
    """Pid of the process that holds the POSIX lock on a file (0: it is not visible from here); None: nobody, or no file."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        kind, _, _, _, pid = _LOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, _LOCK.pack(fcntl.F_WRLCK, 0, 0, 0, 0)))
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return None if kind == fcntl.F_UNLCK else max(pid, 0)


def _make_way(folder: Path) -> None:
    """The folders above that are missing, each open to pass whatever the umask; those that are there stay as they are."""
    if not folder.exists():
        _make_way(folder.parent)
        folder.mkdir()
        os.chmod(folder, FOLDER_MODE)


def _check_ours(folder: Path) -> None:
    status = os.lstat(folder)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise MpsFault(f"{folder} is not a folder of this user: remove it, or give the agent another runtime directory")


def _is_server(pid: str) -> bool:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return os.path.basename(file.read(4096).split(b"\0", 1)[0]) == SERVER.encode()
    except OSError:
        return False


def _environment(pid: int) -> dict[str, str]:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            raw = file.read(1 << 20)
    except OSError:
        return {}
    pairs = (item.partition("=") for item in raw.decode("utf-8", errors="replace").split("\0"))
    return {name: value for name, equals, value in pairs if equals}


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read(4096).rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except (OSError, IndexError):
        return False


def _kill(server: Server) -> None:
    try:
        descriptor = os.pidfd_open(server.pid)
    except OSError:
        return
    try:
        if _is_server(str(server.pid)) and _environment(server.pid).get("CUDA_MPS_PIPE_DIRECTORY") == server.pipe:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except ProcessLookupError:
        pass
    finally:
        os.close(descriptor)


def _wait(done: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + END_SECONDS
    while not done():
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.02)
    return True
