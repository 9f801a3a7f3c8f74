"""Jobs on the wire: what a person asks for, what became of it, its log, a dry run, and spot notices.

Sizes in bytes, times UTC, lengths of time in seconds, money as decimal strings in US dollars.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Literal

import msgspec

from agent.wire.base import Message

JobState = Literal["queued", "starting", "running", "stopping", "ended"]
NoticeKind = Literal["terminate", "stop", "hibernate", "rebalance", "maintenance"]
Enforcement = Literal["systemd", "v2", "hybrid", "v1", "none"]
"""What holds a job: a systemd scope, a cgroup v2 subtree, v1 controllers with v2 kill, v1 alone, or nothing."""

GPU_SHARE_PLACES = 6
JOB_ID = r"[0-9a-z]{12}(_[0-9]{1,6})?"
"""Of a job, and of a task of an array (`<array's id>_<index>`)."""


class Gang(Message, kw_only=True):
    """A job's part in a run over several nodes: torch elastic with the c10d rendezvous."""

    id: str
    """The same on every node."""
    nodes: int
    least_nodes: int
    """As many as must be there: `nodes` to stop all when one is lost, 1 to go on elastically."""
    endpoint: str | None = None
    """HOST:PORT of the rendezvous; None while the part is only reserved."""
    host_here: bool = False
    """Whether the rendezvous is served by this node."""
    processes_per_node: int = 1
    """0: no torch elastic: the command runs once on each node, and `RACKRATE_GANG_*` tell it how the others are found."""
    join_timeout_seconds: float = 60.0


class JobSpec(Message, kw_only=True, forbid_unknown_fields=True):
    """What a person asks for: the body of `POST /v1/jobs`. `None` and absent leave it to the node."""

    command: tuple[str, ...]
    """argv; never through a shell. With `shell` it is exactly one text, run by `/bin/sh -c` as it stands."""
    shell: bool = False
    name: str | None = None
    user: str | None = None
    """Who it runs as; the agent decides whether the asker may name this user."""
    project: str | None = None
    gpus: int = 0
    """Whole GPUs, exclusively. Not together with `gpu_share`."""
    gpu_share: Decimal | None = None
    """Part of one GPU, above 0 and below 1, through MPS."""
    gpu_memory_bytes: int | None = None
    """Most GPU memory of a share (MPS pinned limit)."""
    cpus: Decimal | None = None
    """CPUs: a cpuset near its GPUs where whole and possible, always a weight."""
    cpu_quota: bool = False
    """Also a hard quota (it hurts data loaders: throttling is shown)."""
    memory_bytes: int | None = None
    pids: int | None = None
    io_weight: int | None = None
    """1 to 10,000; 100 is everybody's."""
    time_limit_seconds: float | None = None
    budget_usd: Decimal | None = None
    deadline: datetime | None = None
    """Among equal priorities the earliest deadline goes first; one that can no longer be met is said, not refused."""
    interruptible: bool = False
    """May be stopped softly and queued again: on a spot notice, or by a job of higher priority."""
    retries: int = 0
    retry_on: tuple[str, ...] | None = None
    """Causes (`exit`, `signal`, `oom`, `lost`, `node_reboot`, ...); None: `exit`, `signal`, `lost`, `node_reboot`."""
    after: tuple[str, ...] = ()
    """`ID` (must have ended well), `any:ID` (must have ended), `notok:ID` (must have failed)."""
    array: tuple[int, ...] = ()
    array_at_once: int | None = None
    priority: int = 0
    """-1000 to 1000; higher goes first."""
    env: dict[str, str] = {}
    secrets: dict[str, str] = {}
    """Name -> value. Goes into a file of mode 0600 in $CREDENTIALS_DIRECTORY; never comes out of the agent again."""
    workdir: str | None = None
    """Folder on the node to run in."""
    upload: str | None = None
    """`sha256:HEX` of an archive sent before with `PUT /v1/uploads/{sha256}`: unpacked into a folder of the job's own."""
    stop_signal: str = "TERM"
    grace_seconds: float = 30.0
    """From the soft signal to the kill."""
    idle_stop_seconds: float | None = None
    """Stop when its GPUs were allocated but unused for so long."""
    log_quota_bytes: int | None = None
    strict: bool = False
    """Refuse the job if the host cannot enforce one of its limits, instead of running it without."""
    node_usd_per_hour: Decimal | None = None
    """The node's price as the client's catalog says; without it the agent's own configuration counts."""
    gang: Gang | None = None


class Attempt(Message, kw_only=True):
    """One run of a job."""

    number: int
    """From 1."""
    gpus: tuple[str, ...] = ()
    started_at: datetime | None = None
    ended_at: datetime | None = None
    cause: str | None = None
    evidence: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    cost: Decimal | None = None


class JobUsage(Message, kw_only=True):
    """What a job has used, over all attempts; None: not measured."""

    cpu_seconds: float | None = None
    memory_peak_bytes: int | None = None
    memory_limit_bytes: int | None = None
    throttled_seconds: float | None = None
    io_read_bytes: int | None = None
    io_write_bytes: int | None = None
    gpu_seconds: float | None = None
    energy_joules: float | None = None
    pids_peak: int | None = None


class Job(Message, kw_only=True):
    """One job, or one task of an array, as it stands: `GET /v1/jobs/{id}`. Secrets are names only."""

    id: str
    state: JobState
    cause: str | None = None
    """One word once ended, and the last attempt's while it waits for the next: `start_error`, `cancelled`, `time_limit`,
    `budget`, `preempted`, `spot_reclaim`, `idle_stop`, `oom`, `signal:N`, `exit:N`, `lost`, `node_reboot`, `unkillable`."""
    evidence: str | None = None
    """A sentence that shows why the cause is that one."""
    name: str | None = None
    node: str
    user: str | None = None
    project: str | None = None
    command: tuple[str, ...] = ()
    shell: bool = False
    gpus: tuple[str, ...] = ()
    """UUIDs while it holds them, and those of the last attempt afterwards."""
    gpus_wanted: int = 0
    gpu_share: Decimal | None = None
    gpu_memory_bytes: int | None = None
    cpus: Decimal | None = None
    memory_bytes: int | None = None
    pids: int | None = None
    priority: int = 0
    interruptible: bool = False
    time_limit_seconds: float | None = None
    budget_usd: Decimal | None = None
    deadline: datetime | None = None
    stop_signal: str | None = None
    grace_seconds: float | None = None
    """From the soft signal to the kill."""
    after: tuple[str, ...] = ()
    array: str | None = None
    """Id of the array that this is a task of."""
    array_index: int | None = None
    array_counts: dict[str, int] = {}
    """Of an array's own row: state -> number of tasks."""
    secrets: tuple[str, ...] = ()
    workdir: str | None = None
    submitted_at: datetime
    started_at: datetime | None = None
    """Of the newest attempt."""
    ended_at: datetime | None = None
    not_before: datetime | None = None
    """When a retry may start."""
    exit_code: int | None = None
    signal: int | None = None
    attempt: int = 0
    """0 before the first start."""
    retries: int = 0
    reason: str | None = None
    """Why it waits, in a sentence."""
    stopping: str | None = None
    """The cause that it is being stopped for."""
    enforcement: Enforcement | None = None
    limits: dict[str, str] = {}
    """What is enforced: `memory` -> `64.0 GiB`, ..."""
    not_enforced: tuple[str, ...] = ()
    """Sentences: what this host cannot enforce, and why."""
    warnings: tuple[str, ...] = ()
    usage: JobUsage | None = None
    usd_per_hour: Decimal | None = None
    """What its allocation costs while it runs; None: the node's price is not known."""
    cost: Decimal | None = None
    """US dollars so far, all attempts; None: not known."""
    left_behind: tuple[str, ...] = ()
    """Sentences about what could not be cleaned away; empty once everything is gone."""
    log_bytes: int | None = None
    log_dropped_lines: int | None = None
    gang: str | None = None
    held_until: datetime | None = None
    """A reservation of a run over several nodes ends then, unless it is started."""
    attempts: tuple[Attempt, ...] = ()


class JobList(Message, kw_only=True):
    """`GET /v1/jobs`: running ones first, then the queue in its order, then those that ended, newest first."""

    node: str
    jobs: tuple[Job, ...]
    problem: str | None = None
    """Why jobs cannot run here now, in a sentence."""


class PlanStep(Message, kw_only=True):
    """One thing that a start does: `mkdir` and `write` to a cgroup file, `mps` (a command to the control daemon),
    `mode` (a GPU's compute mode), `enter` (the job's process moves itself in), `run` (a command, as argv joined)."""

    kind: Literal["mkdir", "write", "enter", "mps", "mode", "run"]
    target: str
    text: str | None = None
    limit: str | None = None
    """Which limit it serves: `memory`, `cpus`, `pids`, `io`, `gpu`."""


class JobPlan(Message, kw_only=True):
    """`POST /v1/jobs?dry_run=true`: what a start would do now. Nothing is done."""

    node: str
    starts_now: bool
    reason: str
    """Why these GPUs and CPUs, or why it would wait."""
    gpus: tuple[str, ...] = ()
    gpu_indexes: tuple[int, ...] = ()
    cpus: str | None = None
    """A cpuset list, `0-7`."""
    numa_node: int | None = None
    argv: tuple[str, ...]
    environment: tuple[str, ...]
    """Names only."""
    user: str
    workdir: str | None = None
    enforcement: Enforcement
    steps: tuple[PlanStep, ...] = ()
    not_enforced: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    usd_per_hour: Decimal | None = None


class LogPage(Message, kw_only=True):
    """`GET /v1/jobs/{id}/log?offset=N&limit=N&wait=S&attempt=K`. Offsets count the bytes that the job wrote, from 0."""

    job: str
    attempt: int
    first_offset: int
    """The oldest byte that is still kept."""
    offset: int
    """Of the text's first byte: what was asked for, or `first_offset` where that is later."""
    next_offset: int
    text: str
    """UTF-8 with replacement, cut between characters; control sequences are as the job wrote them."""
    ended: bool
    """No more will come after `next_offset`."""
    dropped_lines: int = 0


class JobSignal(Message, kw_only=True, forbid_unknown_fields=True):
    """Body of `POST /v1/jobs/{id}/signal`."""

    signal: str
    """`USR1`, `SIGUSR1` or `10`; goes once to the job's first process."""


class GangStart(Message, kw_only=True, forbid_unknown_fields=True):
    """Body of `POST /v1/jobs/{id}/start`: a reserved part of a run over several nodes may start."""

    endpoint: str


class Uploaded(Message, kw_only=True):
    """Answer to `PUT /v1/uploads/{sha256}`."""

    upload: str
    """`sha256:HEX`, for `JobSpec.upload`."""
    files: int
    bytes: int


class MpsClient(Message, kw_only=True):
    pid: int
    job: str | None = None
    command: str | None = None


class MpsState(Message, kw_only=True):
    """`GET /v1/mps/{gpu}`: sharing of one GPU."""

    gpu: str
    state: Literal["off", "idle", "active", "degraded", "fault", "refused"]
    """`off`: no daemon; `idle`: no server yet; `degraded`: servers crash-loop; `refused`: MPS cannot work here."""
    reason: str | None = None
    servers: tuple[int, ...] = ()
    clients: tuple[MpsClient, ...] = ()
    active_thread_percentage: Decimal | None = None
    pinned_memory_bytes: int | None = None
    client_limit: int | None = None
    compute_mode: str | None = None
    shares: dict[str, Decimal] = {}
    """Job -> its share; they sum to at most 1."""


class MpsSetting(Message, kw_only=True, forbid_unknown_fields=True):
    """Body of `PUT /v1/mps/{gpu}`: defaults of servers started from now on; None leaves one as it is."""

    active_thread_percentage: Decimal | None = None
    """Above 0, at most 100."""
    pinned_memory_bytes: int | None = None


class Notice(Message, kw_only=True):
    """The cloud will take this node away (or recommends to leave it)."""

    cloud: str
    kind: NoticeKind
    at: datetime | None = None
    """When it happens; None: at once, or not said (a rebalance recommendation)."""
    noticed_at: datetime
    id: str | None = None
    message: str
    """A sentence a person can act on."""
    ended_at: datetime | None = None
    """The cloud took it back."""


class JobCounts(msgspec.Struct, frozen=True):
    """For metrics and headers."""

    queued: int = 0
    starting: int = 0
    running: int = 0
    stopping: int = 0
    ended: int = 0
