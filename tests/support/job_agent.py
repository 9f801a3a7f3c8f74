"""A real agent process that runs jobs, on the stand-in NVML, with a cgroup parent of its own; killed and started at will.

Invariant: whatever a test did, no agent, shim, job, cgroup or runtime folder of it is left after `close`.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import httpx

from agent.jobs.context import DEFAULT_PARENT, RUN, _mark
from tests.support.fake_nvml.state import State
from tests.support.nursery import Nursery
from tests.support.nvml import FakeNvml, compiler
from tui.local import end_agent, wait_for_url

ROOT = Path(__file__).parents[2]
CGROUPS = Path("/sys/fs/cgroup")
PRELOAD = (
    "agent.daemon", "agent.jobs.manager", "agent.jobs.starter", "agent.jobs.context", "agent.interruption.watch",
    "agent.sensors.nvml", "agent.sensors.processes", "agent.sensors.simulated",
    "litestar.plugins.attrs", "litestar.middleware.allowed_hosts", "uvicorn.protocols.http.h11_impl", "uvicorn.lifespan.off",
)  # fmt: skip
"""What an agent imports when it starts."""
_PARENTS = iter(range(1, 10_000))


def cgroup_parent() -> str:
    """A name that no other test uses."""
    return f"rackrate-test-{os.getpid()}-{next(_PARENTS)}"


class JobAgent:
    """`state_dir` outlives the process; each start may have a point at which the process kills itself."""

    def __init__(
        self, folder: Path, *, name: str = "box", gpus: int = 0, board: str = "T4", node: str = "metadata = false", extra: str = "",
        jobs: str = "", environment: Mapping[str, str] = {}, many_starts: bool = False,
    ) -> None:  # fmt: skip
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.state, self.log = folder, folder / "state", folder / "agent.log"
        self.parent = cgroup_parent()
        self.nvml = FakeNvml(folder)
        self.nvml.use(State.machine(board, gpus)) if gpus else None
        self.config = folder / "agent.toml"
        self.config.write_text(
            f'[node]\nname = "{name}"\n{node}\nusd_per_hour = "36"\n[meter]\nrow_seconds = 1\n'
            f'[jobs]\nallow_root = true\ncgroup_parent = "{self.parent}"\n{jobs}\n{extra}\n'
        )
        self.environment = environment
        self.process: subprocess.Popen[bytes] | None = None
        self._many_starts = many_starts
        self._nursery: Nursery | None = None
        """Where the processes come from once there are many."""

    def __enter__(self) -> JobAgent:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    def listed(self) -> str:
        """Its lines in config.toml."""
        return f'[[nodes]]\nname = "box"\nurl = "{self.url}"\ntoken_file = "{self.state / "token"}"\n'

    def start(self, die_at: str = "none", **environment: str) -> JobAgent:
        """Starts the process and waits until it serves (or has killed itself)."""
        arguments = ["run", "--listen", "127.0.0.1:0", "--state-dir", str(self.state), "--config", str(self.config)]
        with self.log.open("ab") as words:
            self.process = self._started([die_at, *arguments], {**self.environment, **environment}, words)
        try:
            self.url = wait_for_url(self.process, self.log)
        except Exception:
            if self.process.poll() is None or die_at == "none":
                raise
            return self
        token = (self.state / "token").read_text().strip()
        self.http = httpx.Client(base_url=self.url, headers={"authorization": f"Bearer {token}"}, timeout=20, trust_env=False)
        self._first_sample(die_at)
        return self

    def _started(self, arguments: list[str], environment: dict[str, str], words: BinaryIO) -> subprocess.Popen[bytes]:
        if self._many_starts and not environment:
            self._nursery = self._nursery or Nursery("tests.support.agent_that_dies", PRELOAD, self._environment({}))
            return self._nursery.start(*arguments, stderr=words)
        return subprocess.Popen(
            [sys.executable, "-m", "tests.support.agent_that_dies", *arguments],
            cwd=ROOT, env=self._environment(environment), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=words,
            start_new_session=True,
        )  # fmt: skip

    def _first_sample(self, die_at: str) -> None:
        """Until then the node's GPUs are not known."""
        try:
            wait_for(lambda: self.http.get("/v1/sample").status_code == 200, 60)
        except httpx.HTTPError:
            if die_at == "none":
                raise

    def _environment(self, more: dict[str, str]) -> dict[str, str]:
        """An agent without GPUs needs no stand-in, so no compiler."""
        if self.nvml.path.exists() or compiler() is not None:
            return self.nvml.environment(**more)
        return {**os.environ, "PYTHONPATH": str(ROOT), **more}

    def kill(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.gone()

    def gone(self) -> None:
        """Waits for the end of a process that ends itself."""
        assert self.process is not None
        self.process.wait(30)
        if self.process.stdout:
            self.process.stdout.close()
        if hasattr(self, "http"):
            self.http.close()
        self.process = None

    def end(self) -> None:
        """The orderly end: jobs run on."""
        if self.process is not None:
            end_agent(self.process)
            if hasattr(self, "http"):
                self.http.close()
            self.process = None

    def submit(self, *command: str, **spec: Any) -> str:
        """Id of the new job."""
        answer = self.http.post("/v1/jobs", json={"command": list(command), **spec})
        assert answer.status_code in (200, 201), answer.text
        return str(answer.json()["id"])

    def python(self, script: str, **spec: Any) -> str:
        return self.submit(sys.executable, "-I", "-S", "-c", script, **spec)

    def job(self, id: str) -> dict[str, Any]:
        answer = self.http.get(f"/v1/jobs/{id}")
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def jobs(self, ended: int = 10_000) -> list[dict[str, Any]]:
        return list(self.http.get(f"/v1/jobs?ended={ended}").json()["jobs"])

    def text(self, id: str) -> str:
        return str(self.http.get(f"/v1/jobs/{id}/log?limit=1000000").json()["text"])

    def until(self, id: str, *states: str, seconds: float = 60) -> dict[str, Any]:
        """The job once it is in one of `states`."""
        return wait_for(lambda: one if (one := self.job(id))["state"] in states else None, seconds, lambda: str(self.job(id)))

    def ended(self, id: str, seconds: float = 60) -> dict[str, Any]:
        return self.until(id, "ended", seconds=seconds)

    def groups(self) -> list[Path]:
        """Cgroups of this agent's jobs that exist now."""
        return [path for top in self._tops() for path in top.rglob("job-*") if path.is_dir()]

    def _tops(self) -> list[Path]:
        return [path for pattern in ("*/", "") for path in CGROUPS.glob(f"{pattern}{self.parent}")]

    def processes(self) -> list[int]:
        """Processes in cgroups of this agent's jobs."""
        return [int(pid) for group in self.groups() for pid in _lines(group / "cgroup.procs")]

    def lose_power(self) -> None:
        """Agent, shims and jobs stop at one moment and end without another word, as on a machine that is switched off."""
        if self.process is not None:
            self.process.send_signal(signal.SIGSTOP)
        stopped: set[int] = set()
        while new := {*self.processes(), *self.shims(), *self.marked(str(self.state))} - stopped:
            for pid in new:
                _signal(pid, signal.SIGSTOP)
            stopped |= new
        self.kill()
        self._kill_all()

    def close(self) -> None:
        """Ends everything, without asking the agent."""
        self.kill()
        if self._nursery is not None:
            self._nursery.close()
        self._kill_all()
        for top in self._tops():
            for path in sorted((path for path in top.rglob("*") if path.is_dir()), key=lambda path: -len(path.parts)):
                path.rmdir()
            top.rmdir()
        shutil.rmtree(RUN / (DEFAULT_PARENT + _mark(self.state)), ignore_errors=True)

    def _kill_all(self) -> None:
        for _ in range(1500):
            left = {*self.processes(), *self.shims(), *self.marked(str(self.state))}
            if not left:
                break
            for pid in left:
                _signal(pid, signal.SIGKILL)
            time.sleep(0.02)

    def marked(self, text: str) -> list[int]:
        """Processes with this text in their environment, as the processes of a job have its id and its folder; no zombies."""
        pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
        own = {os.getpid(), self.process.pid if self.process is not None else 0}
        return [pid for pid in pids if pid not in own and _contains(Path(f"/proc/{pid}/environ"), text.encode())]

    def shims(self, id: str = "") -> list[int]:
        """Shims of this agent's jobs, or of one of them, that run now."""
        wanted = str(self.state / "jobs" / id).encode()
        pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
        return [pid for pid in pids if _contains(Path(f"/proc/{pid}/cmdline"), b"shim", wanted)]


def _contains(path: Path, *texts: bytes) -> bool:
    try:
        content = path.read_bytes()
    except OSError:
        return False
    return all(text in content for text in texts)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def wait_for(look: Callable[[], Any], seconds: float = 60, tell: Callable[[], str] = lambda: "") -> Any:
    """The first answer of `look` that is not false."""
    end = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < end, f"not within {seconds} s: {tell()}"
        time.sleep(0.03)
    return found


def usage_rows(agent: JobAgent) -> list[dict[str, Any]]:
    """All usage rows of the node."""
    rows: list[dict[str, Any]] = []
    while page := json.loads(agent.http.get(f"/v1/usage?after={rows[-1]['sequence'] if rows else 0}&limit=10000").content)["rows"]:
        rows += page
    return rows
