"""`rackrate-agent doctor`: what the agent needs on this machine, checked one by one.

Invariant: a check changes nothing, never hangs and never hides the ones after it; whatever is not `ok` says what to do.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import stat
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import msgspec

from agent import certificate, identity, private_files, security, state
from agent.config import AgentConfig
from agent.errors import AgentFault

Status = Literal["ok", "warn", "fail"]
NVML_SECONDS = 5.0
_COMFORTABLE_BYTES = 1_000_000_000
_INITIAL_PID_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO, include/linux/proc_ns.h
_CAP_SYS_PTRACE = 19
_TIME_ERROR = 5  # adjtimex(2): the clock is not synchronised
_NOT_BEFORE = datetime(2025, 1, 1, tzinfo=UTC)


class Finding(msgspec.Struct, frozen=True):
    """What one check found; `remedy` says what to do, unless the status is `ok`."""

    status: Status
    detail: str
    remedy: str | None = None


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """A finding with its number and name, as it is printed."""

    number: int
    name: str
    status: Status
    detail: str
    remedy: str | None = None


def examine(load: Callable[[], AgentConfig], root: Path = Path("/")) -> list[Check]:
    """All checks, in order. `load` gives the configuration; without a good one the checks that need it are left out."""
    found: list[tuple[str, Finding]] = []
    config: AgentConfig | None = None
    try:
        config = load()
        found.append(("configuration", Finding("ok", str(config.source or "none: the defaults hold"))))
    except AgentFault as fault:
        remedy = "put the file right; the checks that need it are left out"
        found.append(("configuration", Finding("fail", str(fault), remedy)))
    for name, check in _machine_checks(root) + (_configured_checks(config, root) if config else []):
        found.append((name, _guarded(check)))
    return [
        Check(number=number, name=name, status=one.status, detail=one.detail, remedy=one.remedy)
        for number, (name, one) in enumerate(found, 1)
    ]


def render(checks: list[Check]) -> str:
    """The checks as lines of text, with a summary at the end."""
    lines: list[str] = []
    for check in checks:
        lines.append(f"{check.number:2}. {check.status:4}  {check.name}: {check.detail}")
        if check.remedy:
            lines.append(f"          -> {check.remedy}")
    count = {status: sum(check.status == status for check in checks) for status in ("ok", "warn", "fail")}
    lines.append(f"{count['ok']} ok, {count['warn']} to look at, {count['fail']} failed")
    return "\n".join(lines)


def _machine_checks(root: Path) -> list[tuple[str, Callable[[], Finding]]]:
    return [
        ("driver and NVML", check_driver),
        ("cgroups", lambda: check_cgroups(root)),
        ("other users' processes", lambda: check_processes(root)),
        ("clock", check_clock),
    ]


def _configured_checks(config: AgentConfig, root: Path) -> list[tuple[str, Callable[[], Finding]]]:
    return [
        ("state directory", lambda: check_state(config.state_dir)),
        ("disk space", lambda: check_space(config.state_dir)),
        ("token", lambda: check_token(config.state_dir)),
        ("limits of jobs", lambda: check_isolation(config)),
        ("address", lambda: check_address(config)),
        ("certificate", lambda: check_certificate(config)),
        ("cloud identity", lambda: check_identity(config, root)),
    ]


def _guarded(check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except AgentFault as fault:
        return Finding("fail", str(fault), "see the sentence itself")
    except Exception as error:  # a check that breaks is a finding, and the next ones still count
        return Finding("warn", f"this check itself failed: {type(error).__name__}: {error}", "report it")


def check_driver(seconds: float = NVML_SECONDS) -> Finding:
    """Whether GPUs can be read, asked in a thread: a wedged driver blocks whoever calls it."""
    result: list[Finding] = []

    def ask() -> None:
        result.append(_guarded(_ask_driver))

    thread = threading.Thread(target=ask, name="doctor-nvml", daemon=True)
    thread.start()
    thread.join(seconds)
    if result:
        return result[0]
    remedy = "look for Xid lines in `dmesg`; reset the GPU or reboot"
    return Finding("fail", f"the driver did not answer within {seconds:.0f} s", remedy)


def _ask_driver() -> Finding:
    from agent.sensors.nvml import NvmlSensor, runtime_states

    sensor = NvmlSensor()
    try:
        gpus = sensor.read().gpus or ()
        if not gpus:
            missing = sensor.gpu_reason or "there is no GPU"
            if any(runtime_states(Path("/sys"))):
                return Finding("fail", missing, "until then the agent reports the host alone")
            return Finding("warn", missing, "nothing to do on a node without GPUs: the agent reports the host alone")
        if bad := [f"GPU {gpu.index} is {gpu.state}: {gpu.reason}" for gpu in gpus if gpu.state != "ok"]:
            return Finding("fail", "; ".join(bad), "look for Xid lines in `dmesg`; reset the GPU or reboot")
        models = ", ".join(sorted({gpu.model or "GPU of unknown model" for gpu in gpus}))
        return Finding("ok", f"driver {sensor.driver_version or 'of unknown version'}, {len(gpus)} x {models}")
    finally:
        sensor.close()


def check_cgroups(root: Path) -> Finding:
    """v2 with the controllers that limit jobs is ok; v1 works with fewer limits."""
    folder = root / "sys/fs/cgroup"
    try:
        controllers = (folder / "cgroup.controllers").read_text().split()
    except OSError:
        controllers = []
    if missing := {"cpu", "memory", "pids"} - set(controllers):
        if controllers:
            remedy = "enable them in the parent's cgroup.subtree_control"
            return Finding("warn", f"version 2 without {', '.join(sorted(missing))}", remedy)
        if (folder / "memory").is_dir():
            remedy = "boot with systemd.unified_cgroup_hierarchy=1 for limits that hold for whole jobs"
            return Finding("warn", "version 1", remedy)
        return Finding("warn", "none is mounted", "jobs cannot be limited here; measuring does not need them")
    return Finding("ok", f"version 2 with {', '.join(controllers)}")


def check_isolation(config: AgentConfig) -> Finding:
    """What would hold a job in its limits now, and why nothing better."""
    if not config.jobs.enabled:
        return Finding("ok", "jobs are switched off")
    from agent.isolation.host import describe
    from agent.jobs.context import isolation

    host = isolation(config)
    if host.enforcement == "none":
        remedy = host.remedy or 'set isolation = "auto" in [jobs] of agent.toml'
        return Finding("warn", describe(host), f"{remedy}; until then jobs run without limits")
    if missing := sorted({"cpu", "memory", "pids"} - host.controllers):
        remedy = f"jobs run without the limits of {', '.join(missing)}: have the kernel or the container give them"
        return Finding("warn", f"{host.enforcement}: {describe(host)}", remedy)
    return Finding("ok", f"{host.enforcement}: {describe(host)}")


def check_processes(root: Path) -> Finding:
    """Whether user, command and job of other users' processes can be told."""
    if _pid_namespace(root) not in (None, _INITIAL_PID_NAMESPACE):
        return Finding(
            "warn",
            "the agent runs in a process namespace of its own (a container), and the driver's pids are the host's",
            "start the container with the host's pid namespace (docker: --pid=host, Kubernetes: hostPID: true)",
        )
    if _may_trace(root):
        return Finding("ok", "visible, with their environment")
    if _hides_processes(root):
        return Finding("fail", "/proc is mounted with hidepid", "run the agent as root, or mount /proc with gid= of its group")
    remedy = "run the agent as root, or give it CAP_SYS_PTRACE"
    return Finding("warn", "visible, but not the environment that names their job", remedy)


def check_clock(now: datetime | None = None, synchronised: bool | None = None) -> Finding:
    """Usage rows carry UTC times, so a wrong clock puts cost on the wrong day."""
    now = now or datetime.now(UTC)
    if now < _NOT_BEFORE:
        remedy = "set the clock (`timedatectl set-ntp true`) before the agent starts"
        return Finding("fail", f"it says {now:%Y-%m-%d}, which is past", remedy)
    synchronised = _synchronised() if synchronised is None else synchronised
    if synchronised is False:
        return Finding("warn", "not synchronised", "start a time service (`timedatectl set-ntp true`, chrony)")
    return Finding("ok", "synchronised" if synchronised else "whether it is synchronised is not known")


def check_state(directory: Path) -> Finding:
    """Whether the agent can use its state directory, without making it."""
    if not directory.exists():
        parent = next(folder for folder in directory.parents if folder.exists())
        if os.access(parent, os.W_OK | os.X_OK):
            return Finding("ok", f"{directory} does not exist yet and can be made")
        remedy = "make it, or name another with --state-dir"
        return Finding("fail", f"{directory} does not exist and cannot be made in {parent}", remedy)
    status = directory.stat()
    if not stat.S_ISDIR(status.st_mode) or not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
        remedy = "give it to them, or name another with --state-dir"
        return Finding("fail", f"{directory} is no folder that this user can write", remedy)
    if status.st_mode & 0o066:
        text = f"{directory} is open to other users (mode {stat.S_IMODE(status.st_mode):04o})"
        return Finding("warn", text, f"chmod 700 {directory}")
    holder = state.lock_holder(directory)
    return Finding("ok", f"{directory}{'' if holder is None else f', in use by the agent that runs (process {holder})'}")


def check_space(directory: Path) -> Finding:
    """Below 16 MB the agent does not start; a node with 8 GPUs writes some 100 MB in 90 days."""
    there = next(folder for folder in (directory, *directory.parents) if folder.exists())
    free = state.free_bytes(there)
    text = f"{free / 1e9:.1f} GB free"
    if free < state.MINIMUM_FREE_BYTES:
        return Finding("fail", text, "free some space, or name another folder with --state-dir")
    if free < _COMFORTABLE_BYTES:
        return Finding("warn", text, "free some space, or lower meter.retention_days in agent.toml")
    return Finding("ok", text)


def check_token(directory: Path) -> Finding:
    path = directory / security.TOKEN_FILE
    if not os.path.lexists(path):
        return Finding("ok", "made on the first start")
    try:
        token = security.read_token(directory)
    except AgentFault as fault:
        return Finding("fail", str(fault), f"chmod 600 {path}, or remove it for a new one")
    return Finding("ok", f"{security.token_id(token)}, mode 0600, and {len(security.list_tokens(directory))} further ones")


def check_address(config: AgentConfig) -> Finding:
    """Whether the agent may and can listen where it is told to."""
    if config.socket is not None:
        parent = config.socket.parent
        if os.access(parent, os.W_OK | os.X_OK):
            return Finding("ok", str(config.socket))
        return Finding("fail", f"{parent} cannot be written", "name another path with --socket")
    security.check_listen(config.host, config.tls)
    problem = _bind_error(config.host, config.port)
    if problem is None:
        return Finding("ok", f"{config.listen} is free")
    if problem == errno.EADDRINUSE and (holder := state.lock_holder(config.state_dir)) is not None:
        return Finding("ok", f"{config.listen} is served by the agent that runs (process {holder})")
    remedy = {
        errno.EADDRINUSE: f"find who holds it with `ss -ltnp sport = :{config.port}`, or name another one with --listen",
        errno.EADDRNOTAVAIL: "name an address of this machine (`ip address`) with --listen",
        errno.EACCES: "name a port above 1023 with --listen, or run as root",
    }.get(problem, "name another one with --listen")
    return Finding("fail", f"{config.listen}: {os.strerror(problem).lower()}", remedy)


def check_certificate(config: AgentConfig, now: datetime | None = None) -> Finding:
    if config.tls_certificate is None or config.tls_key is None:
        return Finding("ok", "none; only this machine can reach the agent")
    private_files.check_private(config.tls_key, config.tls_key.stat(), "key")
    found = certificate.read_certificate(config.tls_certificate)
    left = found.not_after - (now or datetime.now(UTC))
    text = f"{config.tls_certificate} ends {found.not_after:%Y-%m-%d}, {found.fingerprint}"
    if left < timedelta(days=30):
        remedy = "`rackrate-agent init --new-certificate`, and give its fingerprint to the clients"
        return Finding("fail" if left < timedelta(0) else "warn", text, remedy)
    return Finding("ok", text)


def check_identity(config: AgentConfig, root: Path) -> Finding:
    """What the node is, and whether that is enough to price it."""
    begin = time.monotonic()
    found = identity.resolve(config.node, root=root)
    fields = {name: getattr(found, name) for name in identity.METADATA_FIELDS}
    text = ", ".join(f"{name} {value} ({found.sources[name]})" for name, value in fields.items() if value) or "not known"
    text = f"{found.name} ({found.sources['node']}): {text}, in {time.monotonic() - begin:.1f} s"
    if found.usd_per_hour or found.on_premises or (found.instance_type and found.region and found.purchase):
        return Finding("ok", text)
    missing = ", ".join(name for name, value in fields.items() if not value)
    return Finding(
        "warn", text, f"without {missing} the cost is unknown: write them, or usd_per_hour, into [node] of agent.toml"
    )


def _bind_error(host: str, port: int) -> int | None:
    """errno of an attempt to listen, None where it went well. Nobody is served."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except socket.gaierror:
            return errno.EADDRNOTAVAIL
        except OSError as error:
            return error.errno or errno.EINVAL
    return None


def _pid_namespace(root: Path) -> str | None:
    try:
        return os.readlink(root / "proc/self/ns/pid")
    except OSError:
        return None


def _may_trace(root: Path) -> bool:
    try:
        lines = (root / "proc/self/status").read_text().splitlines()
        effective = next(line for line in lines if line.startswith("CapEff:"))
        return bool(int(effective.split()[1], 16) >> _CAP_SYS_PTRACE & 1)
    except (OSError, StopIteration):
        return False


def _hides_processes(root: Path) -> bool:
    try:
        mounts = (root / "proc/self/mounts").read_text(errors="replace").splitlines()
    except OSError:
        return False
    options = [fields[3].split(",") for line in mounts if (fields := line.split())[1:3] == ["/proc", "proc"]]
    hiding = {option for one in options for option in one if option.startswith("hidepid=")}
    return bool(hiding - {"hidepid=0", "hidepid=off"})


def _synchronised() -> bool | None:
    """What the kernel says of the clock (adjtimex, which changes nothing with modes 0); None where it cannot be asked."""
    try:
        call: Any = ctypes.CDLL(None, use_errno=True).adjtimex
    except (OSError, AttributeError):
        return None
    answer = call(ctypes.create_string_buffer(512))  # struct timex is 208 bytes
    return None if answer < 0 else answer != _TIME_ERROR
