"""Ray's processes of a sweep: the head on one node, the others that join it; with a token always.

Invariant: nothing talks to this Ray without the token, which is in a file that only the job can read and in no argv; after
`ended` no process that this one started is left. Ray listens on all addresses of a node, whatever it is told.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import IO, NamedTuple

from agent.recipes.faults import RecipeFault
from agent.recipes.sweep_left import sent
from agent.recipes.sweep_plan import Plan

TOKEN = "ray-token"
"""Name of the job's secret."""
OBJECT_STORE_BYTES = 80_000_000
"""Ray's least is 75 MB; reports are small."""
STARTS = 3
"""Ray ends itself where its helpers, which are Pythons, need more than 15 s to start: on a busy machine the next try finds them in memory."""
HEAD_SECONDS = 90.0
JOIN_SECONDS = 120.0
GONE_SECONDS = 5.0
"""So long the head may be silent before the others end."""
KILL_SECONDS = 30.0
"""What was killed is waited for; what the kernel does not let go is given up after this."""
PORTS = range(20_000, 32_000)
SHORT, PREFIX, LOCK, OPEN, LOG = Path("/tmp"), "rr-", "lock", "r", "ray.log"
"""Where Ray's files are: the path of a socket may have 107 characters."""
_SET_CHILD_SUBREAPER = 36


class Gang(NamedTuple):
    """This node's part in a sweep over several."""

    nodes: int
    host: str
    port: int
    here: bool
    """Whether the head is this node's."""


class NodeLost(RecipeFault):
    """A node of the sweep did not come."""


class NotStarted(NodeLost):
    """Ray itself did not come up; a start anew may help."""


def tried(part: Callable[[], int], stopped: Mapping[str, bool]) -> int:
    """The exit code of a part in the sweep, which is begun anew where Ray dies while it starts; 0 where a soft stop came meanwhile."""
    for left in reversed(range(STARTS)):
        try:
            return part()
        except NotStarted:
            if stopped:
                break
            if not left:
                raise
    return 0


def gang(environment: Mapping[str, str] = os.environ) -> Gang | None:
    endpoint = environment.get("RACKRATE_GANG_ENDPOINT")
    if not endpoint:
        return None
    host, _, port = endpoint.rpartition(":")
    nodes, here = int(environment["RACKRATE_GANG_NODES"]), environment["RACKRATE_GANG_HOST"] == "1"
    return Gang(nodes, host.strip("[]"), int(port), here)


def own_gpus(environment: Mapping[str, str] = os.environ) -> int:
    """That the job was given: their UUIDs stand in CUDA_VISIBLE_DEVICES, and Ray deals these out."""
    return len([one for one in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if one])


def prepare(plan: Plan, work: Path, checkpoints: Path, gpus: int) -> int:
    """Sets this process's environment, which all of Ray's processes take over; the CPUs that Ray may deal out."""
    cpus = max(1, round(plan.at_once * plan.cpus / (1 if plan.gpus else plan.nodes) + 0.499999))
    os.environ |= {
        "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(_token(checkpoints)), "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_enable_worker_prestart": "0", "RAY_prestart_worker_first_driver": "0", "RAY_CHDIR_TO_TRIAL_DIR": "0",
        "RAY_memory_monitor_refresh_ms": "0", "RAY_AIR_NEW_OUTPUT": "0", "RAY_DEDUP_LOGS": "0",
        "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",  # or `ray start` waits for the trials, before anybody tells them to save
        "RAY_kill_child_processes_on_worker_exit": "false",  # a trial whose actor is gone is told so by the kernel, and saves
        "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1", "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1", "TUNE_GLOBAL_CHECKPOINT_S": "5",
        "RACKRATE_SWEEP_WORK": str(work), "RACKRATE_SWEEP_CPUS": str(cpus), "RACKRATE_SWEEP_GPUS": str(gpus),
        "RACKRATE_CHECKPOINT_DIR": str(checkpoints),
        "PYTHONPATH": os.pathsep.join(filter(None, (str(work), os.environ.get("PYTHONPATH")))),
    }  # fmt: skip
    return cpus


def _token(folder: Path) -> Path:
    """The job's secret; a sweep that is no job makes one of its own."""
    given = os.environ.get("CREDENTIALS_DIRECTORY")
    if given and (path := Path(given, TOKEN)).is_file():
        return path
    path = folder / TOKEN
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(secrets.token_hex(32))
    return path


def _start(words: list[str], cpus: int, gpus: int, out: IO[bytes]) -> subprocess.Popen[bytes]:
    rate = os.environ.get("RACKRATE_USD_PER_HOUR", "")
    labels = ["--labels", f"usd_per_hour={rate}"] if rate else []
    return subprocess.Popen(
        [sys.executable, "-m", "ray.scripts.scripts", "start", *words, "--block", "--disable-usage-stats",
         "--object-store-memory", str(OBJECT_STORE_BYTES), "--num-cpus", str(cpus), "--num-gpus", str(gpus),
         "--min-worker-port", "0", "--max-worker-port", "0", "--include-log-monitor", "false", *labels],
        stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
    )  # fmt: skip


@contextlib.contextmanager
def head(meet: Gang | None, cpus: int, gpus: int) -> Iterator[str]:
    """HOST:PORT of a Ray that is this sweep's own."""
    host, port = (socket.gethostbyname(meet.host), meet.port) if meet else ("127.0.0.1", _free_port())
    with _place() as folder, _children(), (folder / LOG).open("ab") as out:
        process = _start(
            ["--head", "--port", str(port), "--node-ip-address", host, "--include-dashboard", "false", "--no-monitor",
             "--temp-dir", str(folder / OPEN), "--ray-client-server-port", str(_free_port())],
            cpus, gpus, out,
        )  # fmt: skip
        try:
            if not (_reached(host, port, HEAD_SECONDS, process) and _whole(folder, HEAD_SECONDS, process)):
                raise NotStarted(f"Ray has not started: {_tail(folder / LOG)}")
            yield f"{host}:{port}"
        finally:
            ended(process)


@contextlib.contextmanager
def _place() -> Iterator[Path]:
    """Of this node's Ray, and nobody else's: Ray itself lets everybody write where its sockets are."""
    _tidy(SHORT)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=SHORT))
    try:
        with (folder / LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _tidy(parent: Path) -> None:
    """What sweeps of this user left that were killed: nobody holds their locks."""
    for folder in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError), (folder / LOCK).open("r+") as lock:
            if folder.lstat().st_uid == os.getuid() and not folder.is_symlink():
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)


def join(meet: Gang, cpus: int, gpus: int, stopped: Mapping[str, bool]) -> int:
    """Gives this node to the head until that has ended; the exit code."""
    return tried(lambda: _given(meet, cpus, gpus, stopped), stopped)


def _given(meet: Gang, cpus: int, gpus: int, stopped: Mapping[str, bool]) -> int:
    """One Ray of this node's, until it or the head ends.

    Raises NotStarted where it was never whole, NodeLost where the head is not there, or goes on without it.
    """
    if not _reached(meet.host, meet.port, JOIN_SECONDS, None, stopped):
        if stopped:
            return 0
        raise NodeLost(f"the sweep's first node was not reached at {meet.host}:{meet.port} within {JOIN_SECONDS:.0f} s.")
    with _place() as folder, _children(), (folder / LOG).open("ab") as out:
        address = f"{socket.gethostbyname(meet.host)}:{meet.port}"
        process = _start(["--address", address, "--temp-dir", str(folder / OPEN)], cpus, gpus, out)
        whole, silent = False, 0.0
        try:
            while silent < GONE_SECONDS and not stopped and process.poll() is None:
                time.sleep(1)
                silent = 0.0 if _answers(meet.host, meet.port) else silent + 1
                whole = whole or _is_whole(folder)
            if stopped:
                return 0
            if not whole:
                raise NotStarted(f"Ray has not started on this node: {_tail(folder / LOG)}")
            if process.poll() is not None and _answers(meet.host, meet.port):
                raise NodeLost(f"Ray has ended on this node: {_tail(folder / LOG)}")
        finally:
            ended(process)
    return 0


def rates(nodes: list[dict[str, object]]) -> Decimal | None:
    """What the nodes that are there cost an hour; None where one has no price."""
    found = Decimal(0)
    for node in nodes:
        if node.get("Alive"):
            labels = node.get("Labels")
            text = labels.get("usd_per_hour") if isinstance(labels, dict) else None
            if text is None:
                return None
            found += Decimal(text)
    return found


# Processes


@contextlib.contextmanager
def _children() -> Iterator[None]:
    """Orphans of Ray's become this process's own, so that it can wait for trials that save."""
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1)
    yield


def ended(process: subprocess.Popen[bytes], seconds: float = 15.0) -> None:
    """Ray softly, the trials that it leaves behind with time to save, and then whatever is left."""
    if process.poll() is None:
        process.terminate()
    limit = time.monotonic() + seconds
    while time.monotonic() < limit and (process.poll() is None or _descendants(os.getpid())):
        _reap(process)
        time.sleep(0.1)
    limit = time.monotonic() + KILL_SECONDS
    while (left := _descendants(os.getpid())) and time.monotonic() < limit:
        for pid in left:
            sent(pid, signal.SIGKILL, lambda pid=pid: pid in _descendants(os.getpid()))
        process.poll()
        _reap(process)
        time.sleep(0.02)
    process.wait()
    _reap(process)


def _reap(process: subprocess.Popen[bytes]) -> None:
    """Orphans that have ended; `process` is waited for by its object alone."""
    for pid in _children_of(os.getpid()):
        if pid != process.pid:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def _children_of(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                found += map(int, (task / "children").read_text().split())
    return found


def _descendants(pid: int) -> list[int]:
    found = _children_of(pid)
    for child in list(found):
        found += _descendants(child)
    return found


# Addresses


def _free_port() -> int:
    """By chance among those that a system gives to nobody who did not ask for this one: it is still free when Ray listens there."""
    for port in random.SystemRandom().sample(PORTS, 50):
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("", port))
            return port
    raise NodeLost(f"no port between {PORTS.start} and {PORTS.stop} is free for Ray on this node.")


def _answers(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), 2).close()
    except OSError:
        return False
    return True


def _reached(
    host: str, port: int, seconds: float, process: subprocess.Popen[bytes] | None, stopped: Mapping[str, bool] = {}
) -> bool:  # fmt: skip
    limit = time.monotonic() + seconds
    while time.monotonic() < limit and (process is None or process.poll() is None) and not stopped:
        if _answers(host, port):
            return True
        time.sleep(0.2)
    return False


def _whole(folder: Path, seconds: float, process: subprocess.Popen[bytes]) -> bool:
    """Whether also the part of Ray that runs actors is there: the port answers long before, and clients wait little."""
    limit = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < limit:
        if _is_whole(folder):
            return True
        time.sleep(0.2)
    return False


def _is_whole(folder: Path) -> bool:
    """The socket of the part that runs actors is there."""
    return any((folder / OPEN).glob("session_*/sockets/raylet"))


def _tail(path: Path) -> str:
    lines = [line.strip() for line in path.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "it says nothing"
