"""One GPU that jobs share through MPS: who has which part, the daemon behind it, and how it does.

Invariant: shares sum to at most 1; nothing is promised to a job before the daemon answered and its settings read back
equal; what must survive the agent (`mps_record`) is on disk before it is done. All calls may block for some seconds, and
may come from any thread.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from agent.errors import MpsFault
from agent.isolation import mps_access, mps_record, mps_settings, mps_shares
from agent.isolation.mps_control import ANSWER_SECONDS, CONTROL, Control, ControlV2, MpsAbsent, find_binary
from agent.isolation.mps_daemon import Daemon, Places, folders, foreign_server, places
from agent.isolation.mps_health import Health
from agent.isolation.mps_modes import EXCLUSIVE, ComputeMode, ModeKeeper
from agent.isolation.mps_record import Sharer
from agent.isolation.mps_refusal import client_limit, lacks_limits, refusal
from agent.wire.jobs import MpsClient, MpsSetting, MpsState, PlanStep

__all__ = ["MpsGpu", "left_behind", "refusal"]

_TERMINATE = Path(__file__).with_name("mps_terminate.py")
TERMINATE_SECONDS = 5.0
_OLD_GPU = "GPUs before Volta ignore MPS's thread percentage and memory limit: the share is an agreement, not a limit"


def left_behind(runtime_dir: str | Path) -> tuple[str, ...]:
    """UUIDs of the GPUs that an earlier agent shared: a new one calls `adopt` for each, also with no job."""
    return mps_record.recorded_gpus(folders(Path(runtime_dir)))


class MpsGpu:
    """MPS on one GPU. `run_as_uid` is whose jobs share it unless `plan` or `admit` say (None: this process's user).

    `compute_mode` None leaves the mode alone; `launcher` is an argv prefix of the daemon (a scope of its own);
    `environment` is added to the daemon's; `job_of` tells a client's job by its pid.
    """

    def __init__(
        self,
        uuid: str,
        runtime_dir: str | Path,
        *,
        control: str = CONTROL,
        compute_mode: ComputeMode | None = None,
        run_as_uid: int | None = None,
        memory_total_bytes: int | None = None,
        compute_capability: str | None = None,
        cuda_version: str | None = None,
        launcher: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        job_of: Callable[[int], str | None] = mps_access.job_of,
        answer_seconds: float = ANSWER_SECONDS,
        now: Callable[[], datetime] = datetime.now,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.uuid = uuid
        self._lock = threading.RLock()
        self._uid = os.geteuid() if run_as_uid is None else run_as_uid
        self._old = lacks_limits(compute_capability)
        self._limits = mps_shares.Limits(
            uuid=uuid, memory_total_bytes=memory_total_bytes, clients=client_limit(compute_capability, cuda_version)
        )
        self._job_of = job_of
        self._refused: str | None = None
        self._place = self._find_place(Path(runtime_dir))
        self._control: Control = ControlV2(self._find_control(control), self._place.pipe, seconds=answer_seconds)
        self._daemon = Daemon(self._place, uuid, self._control, launcher=launcher, environment=environment)
        self._health = Health(uuid, self._control, self._place.logs, now, clock)
        self._record = mps_record.load(self._place.root, uuid)
        self._left, self._record.jobs = self._record.jobs, {}  # until `adopt` says which of them still run
        self._modes = ModeKeeper(uuid, compute_mode, self._record, self._save)
        self._started = False
        self._restore: str | None = None

    def _find_place(self, runtime_dir: Path) -> Places:
        try:
            return places(runtime_dir, self.uuid)
        except MpsFault as fault:
            self._refused = str(fault)
            return Places(runtime_dir / "mps", runtime_dir / "mps/pipe", runtime_dir / "mps/logs")

    def _find_control(self, control: str) -> str:
        try:
            return find_binary(control)
        except MpsFault as fault:
            self._refused = self._refused or str(fault)
            return control

    # ---- what there is -------------------------------------------------------------------------------------------------

    @property
    def shares(self) -> dict[str, Decimal]:
        """Job -> its share."""
        with self._lock:
            return {job: mps_shares.share_of(part.share) for job, part in self._record.jobs.items()}

    @property
    def not_enforced(self) -> tuple[str, ...]:
        """Sentences: what MPS cannot hold on this GPU."""
        with self._lock:
            return tuple(sentence for sentence in (_OLD_GPU if self._old else None, self._modes.not_enforced) if sentence)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences about what is wrong now, and about what `stop` could not put back."""
        with self._lock:
            trouble = self._health.trouble() if self._started else None
            return tuple(sentence for sentence in (trouble and trouble.reason, self._restore) if sentence)

    def plan(self, share: Decimal, memory_bytes: int | None = None, *, uid: int | None = None) -> tuple[PlanStep, ...]:
        """Exactly what `start` and `admit` will do, in order. Raises MpsFault as they would; does nothing."""
        with self._lock:
            self._fit("", share, memory_bytes, self._uid if uid is None else uid)
            steps, commands = [], self._control.list_commands(())
            if not self._started:
                if self._modes.will_set():
                    steps.append(PlanStep(kind="mode", target=self.uuid, text=EXCLUSIVE.upper(), limit="gpu"))
                steps.append(PlanStep(kind="run", target=self._control.binary, text=self._daemon.start_text(), limit="gpu"))
                commands += mps_settings.default_commands(self._control, *self._defaults())
            commands += self._control.list_commands(self._health.servers)
            steps += [PlanStep(kind="mps", target=str(self._place.pipe), text=command, limit="gpu") for command in commands]
            return tuple(steps)

    def _defaults(self) -> tuple[Decimal | None, int | None]:
        return self._record.percentage, self._record.pinned_memory_bytes

    # ---- life ----------------------------------------------------------------------------------------------------------

    def start(self, *, uid: int | None = None) -> None:
        """Makes sure that a daemon answers, with the GPU exclusive to it and its defaults set. Raises MpsFault."""
        with self._lock:
            if self._started and self._answers():
                return
            self._check_possible(self._uid if uid is None else uid)
            try:
                self._daemon.make_folders()
                self._modes.take()
                self._daemon.start()
                self._health.answered(self._control.servers())
                mps_settings.apply_defaults(self._control, *self._defaults())
            except MpsFault:
                self._undo()
                raise
            self._started = True

    def _answers(self) -> bool:
        """Whether the daemon that we started is there; False where it may be started again."""
        try:
            self._health.answered(self._control.servers())
        except MpsAbsent:
            if self._record.jobs:
                raise MpsFault(self._health.gone()) from None
            self._started = False
            self._health.forget()
            return False
        return True

    def _undo(self) -> None:
        if self._record.jobs:
            return
        try:
            self._clear()
        except MpsFault:
            pass  # the fault that brought us here says more

    def _clear(self) -> None:
        self._daemon.stop(hangs=self._started and not self._health.answers())
        self._started = False
        self._health.forget()
        self._restore = self._modes.restore()
        self._daemon.remove(keep_record=not self._record.empty())

    def stop(self) -> None:
        """Ends the daemon and puts the compute mode back, once no job is left. Raises MpsFault for what does not end."""
        with self._lock:
            if self._record.jobs:
                raise MpsFault(f"{self.uuid} is still shared by {', '.join(sorted(self._record.jobs))}")
            self._clear()

    def adopt(self, jobs: Mapping[str, Decimal]) -> None:
        """After a restart of the agent: these jobs (-> share) still run here. With none, what an agent left is cleared away."""
        with self._lock:
            if not jobs:
                if self._place.root.exists():
                    self._clear()
                return
            self._record.jobs = {
                job: self._left.get(job) or Sharer(share=mps_settings.share_millionths(share), uid=self._uid)
                for job, share in jobs.items()
            }
            self._started = True
            self._daemon.make_folders()
            self._save()
            self._health.read_log()
            self._health.probe()

    # ---- jobs ----------------------------------------------------------------------------------------------------------

    def admit(self, job: str, share: Decimal, memory_bytes: int | None = None, *, uid: int | None = None) -> dict[str, str]:
        """Gives a job its part; returns the client's environment, in which CUDA_VISIBLE_DEVICES must not be.

        `uid` is the job's user. Raises MpsFault where it does not fit, and then nothing has changed.
        """
        with self._lock:
            user = self._uid if uid is None else uid
            self._health.read_log()
            part = self._fit(job, share, memory_bytes, user)
            if not self._started:
                raise MpsFault(f"the MPS control daemon of {self.uuid} has not been started")
            self._check_clients(user)
            before = dict(self._record.jobs)
            self._record.jobs[job] = part
            try:
                self._save()
            except MpsFault:
                self._record.jobs = before
                raise
            return self._client_environment(part)

    def release(self, job: str) -> None:
        """The job has ended; its part is free. After the last one `stop` is due."""
        with self._lock:
            if self._record.jobs.pop(job, None) is None:
                return
            try:
                self._save()
            except MpsFault:
                pass  # whoever adopts says which jobs run, not the record

    def before_kill(self, unit: str) -> list[dict[str, Any]]:
        """For launch.json: ends the GPU work of the unit's clients, which must come before any kill."""
        argv = [sys.executable, "-I", "-S", str(_TERMINATE), self._control.binary, str(self._place.pipe), "{cgroup_pids}"]
        environment = {"PATH": os.environ.get("PATH", "/usr/bin:/bin")}
        return [{"argv": argv, "environment": environment, "seconds": TERMINATE_SECONDS}]

    def _client_environment(self, part: Sharer) -> dict[str, str]:
        environment = {
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            "CUDA_MPS_PIPE_DIRECTORY": str(self._place.pipe),
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": mps_shares.share_text(part.share * 100),
        }
        if part.memory_bytes is not None:
            environment["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = f"0={mps_settings.memory_text(part.memory_bytes)}"
        return environment

    def _fit(self, job: str, share: Decimal, memory_bytes: int | None, uid: int) -> Sharer:
        self._check_possible(uid)
        if self._started and (trouble := self._health.trouble()):
            raise MpsFault(trouble.reason)
        return mps_shares.fit(self._record, self._limits, job, share, memory_bytes, uid)

    def _check_possible(self, uid: int) -> None:
        if self._refused:
            raise MpsFault(self._refused)
        if closed := mps_access.closed_to(uid, self._place.root.parent):
            who = mps_access.user_name(uid)
            raise MpsFault(
                f"{who} cannot reach the MPS daemon: {closed} is closed to others; open it with `chmod o+x {closed}`"
            )
        if not self._started and (server := foreign_server(self.uuid, self._place.pipe, uid)):
            who = mps_access.user_name(server.uid)
            raise mps_shares.one_user(self.uuid, f"the MPS server {server.pid} of {who}", uid)

    def _check_clients(self, uid: int) -> None:
        """Asks the daemon who is there now."""
        self._health.answered(self._control.servers())
        clients = {server: self._control.clients(server) for server in self._health.servers}
        for server, pids in clients.items():
            owner = mps_access.process_uid(server)
            if pids and owner not in (uid, None):
                raise mps_shares.one_user(self.uuid, f"the MPS server {server} of {mps_access.user_name(owner)}", uid)
        count = sum(map(len, clients.values()))
        if count >= self._limits.clients:
            raise MpsFault(f"{self.uuid} has {count} MPS clients, and takes at most {self._limits.clients}")

    # ---- settings and state --------------------------------------------------------------------------------------------

    def set(self, setting: MpsSetting) -> None:
        """Sets and reads back the defaults of servers that start from now on; they are set again at each start."""
        with self._lock:
            if self._refused:
                raise MpsFault(self._refused)
            percent, memory = setting.active_thread_percentage, setting.pinned_memory_bytes
            percent = None if percent is None else mps_settings.percentage(percent)
            memory = None if memory is None else mps_settings.default_memory_bytes(memory, self._limits.memory_total_bytes)
            if self._started:
                mps_settings.apply_defaults(self._control, percent, memory)
            if percent is not None:
                self._record.percentage = percent
            if memory is not None:
                self._record.pinned_memory_bytes = memory
            self._daemon.make_folders()
            self._save()

    def poll(self) -> tuple[str, ...]:
        """Reads control.log on, and asks the daemon every two seconds. Returns what is new, in sentences."""
        with self._lock:
            if not self._started:
                return ()
            self._health.read_log()
            drift = None
            if self._health.due():
                self._health.probe()
                drift = self._modes.drifted()
            return tuple(sentence for sentence in (drift, self._health.news()) if sentence)

    def state(self) -> MpsState:
        """Sharing of this GPU, asked now."""
        with self._lock:
            if self._refused:
                return MpsState(gpu=self.uuid, state="refused", reason=self._refused)
            facts: dict[str, Any] = {
                "shares": self.shares,
                "client_limit": self._limits.clients,
                "compute_mode": self._modes.found(),
            }
            if not self._started:
                percent, memory = self._defaults()
                facts.update(active_thread_percentage=percent, pinned_memory_bytes=memory)
                return MpsState(gpu=self.uuid, state="off", reason=self._restore, **facts)
            self._health.read_log()
            if self._health.answers() or self._health.due():
                self._health.probe()
            facts.update(self._asked())
            trouble = self._health.trouble()
            if trouble:
                return MpsState(
                    gpu=self.uuid, state=trouble.state, reason=trouble.reason, servers=self._health.servers, **facts
                )
            return MpsState(
                gpu=self.uuid, state="active" if self._health.servers else "idle", servers=self._health.servers, **facts
            )

    def _asked(self) -> dict[str, Any]:
        """Clients and defaults as the daemon tells them; nothing where it does not answer."""
        if not self._health.answers():
            return {}
        try:
            commands = {row.pid: row.command for row in self._control.rows()} if self._health.servers else {}
            listed = {pid for server in self._health.servers for pid in self._control.clients(server)}
            pids = sorted(listed | commands.keys())
            clients = tuple(MpsClient(pid=pid, job=self._job_of(pid), command=commands.get(pid)) for pid in pids)
            percent, memory = self._control.percentage(), self._control.pinned_memory()
        except MpsFault:
            self._health.probe()  # it died or began to hang between two questions
            return {}
        return {"clients": clients, "active_thread_percentage": percent, "pinned_memory_bytes": memory}

    def _save(self) -> None:
        mps_record.save(self._place.root, self._record)
