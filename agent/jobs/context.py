"""What all parts of the job manager share: the configuration, the queue's file, the folders, the clocks.

Invariant: two agents on one machine never look after each other's cgroups or run-time folders: both carry a mark of the
state directory, except for the machine's default one.
"""

from __future__ import annotations

import hashlib
import os
import random
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from agent import wire
from agent.config import AgentConfig
from agent.errors import AgentFault
from agent.isolation.host import HostIsolation, detect, nothing, settle
from agent.jobs import attempt_dir
from agent.jobs.audit import Audit
from agent.jobs.ids import IdSource, checked, unit_name
from agent.jobs.store import JobStore
from agent.jobs.uploads import Uploads
from agent.state import worded

JOBS = "jobs"
DEFAULT_PARENT = "rackrate"
SYSTEM_STATE = Path("/var/lib/rackrate")
RUN = Path("/run")


class Context:
    """Belongs to the event loop. `problems`: what is wrong now -> a sentence."""

    def __init__(
        self,
        config: AgentConfig,
        node: str,
        gpus: Callable[[], tuple[wire.GpuInventory, ...]],
        *,
        host: HostIsolation | None = None,
        runtime_root: Path | None = None,
        boot_id: str | None = None,
        durable: bool = True,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self.config = config
        self.jobs = config.jobs
        self.node = node
        self.gpus = gpus
        self.environ = environ
        self.folder = config.state_dir / JOBS
        self.host = settle(host if host is not None else isolation(config))
        self.runtime_root = runtime_root if runtime_root is not None else default_runtime(config)
        self.boot_id = boot_id if boot_id is not None else attempt_dir.boot_id()
        self.ids = IdSource()
        self.rng = random.Random()
        self.problems: dict[str, str] = {}
        self.moment: Callable[[], AbstractContextManager[int]] = standing
        """`boottime_ms`, at which also the usage record begins and ends what is claimed within."""
        self.drained: str | None = None
        """Why nothing starts here: somebody drained the node."""
        try:
            _make(config.state_dir, self.folder)
            self.uploads = Uploads(self.folder / "uploads", self.jobs.max_upload_bytes)
        except OSError as error:
            raise worded(error, self.folder, "cannot be made") from None
        self.store = JobStore.open(self.folder / "queue.db", durable=durable)
        try:
            self.audit = Audit.open(self.folder / "audit.jsonl")
        except AgentFault:
            self.store.close()
            raise

    def close(self) -> None:
        self.audit.close()
        self.store.close()

    def job_folder(self, id: str) -> Path:
        return self.folder / checked(id)

    def attempt_folder(self, id: str, number: int) -> Path:
        return self.job_folder(id) / str(number)

    def runtime(self, id: str, number: int) -> Path:
        """What the job's user may read of one attempt: secrets, the error file."""
        if self.runtime_root is None:
            return self.attempt_folder(id, number) / "run"
        return self.runtime_root / unit_name(id, number)

    def record(self, actor: str, peer: str | None, action: str, object: str, result: str) -> None:
        """A line of the audit. One that cannot be written is said, and does not stop what it is about."""
        try:
            self.audit.write(actor, peer, action, object, result)
        except AgentFault as fault:
            self.problems["audit"] = f"the audit cannot be written: {fault}"
        else:
            self.problems.pop("audit", None)

    def failed(self, what: str, error: BaseException) -> str:
        """Says an error that nobody expected, in a sentence; its trace goes to stderr once."""
        sentence = f"{what}: {error}" if isinstance(error, AgentFault) else f"{what}: {type(error).__name__}: {error}"
        if self.problems.get(what) != sentence and not isinstance(error, AgentFault):
            traceback.print_exception(error, file=sys.stderr)
        self.problems[what] = sentence
        return sentence

    def works(self, what: str) -> None:
        self.problems.pop(what, None)


def now() -> datetime:
    return datetime.now(UTC)


def boottime_ms() -> int:
    """Goes on while the machine sleeps, and starts anew with each boot."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


@contextmanager
def standing() -> Iterator[int]:
    """Without a usage record."""
    yield boottime_ms()


def isolation(config: AgentConfig) -> HostIsolation:
    """How this configuration holds jobs on this host."""
    how = config.jobs.isolation
    if how == "none":
        return nothing("`isolation` in [jobs] of agent.toml is none")
    systemd = {"auto": None, "systemd": True, "cgroup": False}[how]
    return detect(systemd=systemd, parent=cgroup_parent(config))


def cgroup_parent(config: AgentConfig) -> str:
    """The group that all jobs of this agent are below. It is this agent's alone: what it does not know there goes."""
    parent = config.jobs.cgroup_parent
    return parent + _mark(config.state_dir) if parent == DEFAULT_PARENT else parent


def default_runtime(config: AgentConfig) -> Path | None:
    """Root keeps it in memory; another user beside the attempt."""
    return RUN / (DEFAULT_PARENT + _mark(config.state_dir)) if os.geteuid() == 0 else None


def _mark(state_dir: Path) -> str:
    if state_dir == SYSTEM_STATE:
        return ""
    return "_" + hashlib.sha256(os.fsencode(state_dir)).hexdigest()[:8]


def _make(state_dir: Path, folder: Path) -> None:
    """Others may pass through (not list) what leads to a job's own folders, where jobs can run as others."""
    folder.mkdir(mode=0o711, parents=True, exist_ok=True)
    if os.geteuid() == 0:
        os.chmod(folder, 0o711)
        _open_way(state_dir)


def _open_way(state_dir: Path) -> None:
    mode = state_dir.stat().st_mode & 0o777
    if mode & 0o011 != 0o011:
        os.chmod(state_dir, mode | 0o011)
