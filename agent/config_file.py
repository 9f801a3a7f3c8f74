"""Reads `agent.toml` into typed tables and words what is wrong in it.

Invariant: what is not understood is refused (an unknown key, a float where money stands, a value out of range), in one
sentence that names the file, the key and what is allowed there.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from agent import wire
from agent.errors import ConfigurationError

if TYPE_CHECKING:
    from agent.alerts import Thresholds

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""Names of nodes, and everything that a cloud calls a region, zone or instance type."""
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
"""Names of environment variables."""
_GROUP = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")
_MONEY = re.compile(r"[0-9]{1,12}(\.[0-9]{1,12})?")
_PLACE = re.compile(r"^(?P<problem>.*?)(?: - at (?:key in )?`\$\.?(?P<path>.*)`)?$", re.DOTALL)


class NodeConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[node]`: what the file says about this node; None means that the metadata service is asked."""

    name: str | None = None
    cloud: str | None = None
    region: str | None = None
    zone: str | None = None
    instance_type: str | None = None
    purchase: wire.Purchase | None = None
    usd_per_hour: str | None = None
    """Decimal string above 0, US dollars per hour for the whole node; used where no catalog price exists."""
    on_premises: wire.OnPremises | None = None
    tags: dict[str, str] = {}
    metadata: bool = True
    """False: the cloud's metadata service is never asked."""


class Tls(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    certificate: str | None = None
    key: str | None = None


class MeterTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    row_seconds: Annotated[float, msgspec.Meta(ge=1, le=10)] = 10.0
    retention_days: Annotated[int, msgspec.Meta(ge=1, le=3650)] = 90


class JobsTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[jobs]`: whether and how jobs run on this node. Sizes in bytes."""

    enabled: bool = True
    allow_root: bool = False
    """Whether a job may run as root."""
    users: tuple[str, ...] = ()
    """Who may be run as; empty: everybody whom the node knows."""
    default_pids: Annotated[int, msgspec.Meta(ge=16, le=4_194_304)] = 16_384
    """Processes and threads of a job that names no limit of its own."""
    max_queue: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 10_000
    max_upload_bytes: Annotated[int, msgspec.Meta(ge=1, le=1 << 44)] = 2 << 30
    log_rotate_bytes: Annotated[int, msgspec.Meta(ge=4096, le=1 << 40)] = 16 << 20
    log_quota_bytes: Annotated[int, msgspec.Meta(ge=8192, le=1 << 44)] = 1 << 30
    keep_days: Annotated[int, msgspec.Meta(ge=1, le=3650)] = 30
    """How long an ended job, with its log and checkpoints, is kept."""
    grace_seconds: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 30.0
    """From the soft signal to the kill, where the job says nothing; also the longest that is granted on a spot notice."""
    kill_wait_seconds: Annotated[float, msgspec.Meta(ge=1, le=3600)] = 60.0
    """From the kill until what is still there counts as unkillable."""
    isolation: Literal["auto", "systemd", "cgroup", "none"] = "auto"
    cgroup_parent: str = "rackrate"
    mps_control: str = "nvidia-cuda-mps-control"
    repair_limits: bool = True
    """Whether a limit that was changed behind our back is put right."""
    environment: tuple[str, ...] = ("PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH")
    """Names that a job takes over from the agent's own environment."""


class File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file's shape. `alerts` is decoded apart: its struct is imported only when a file is loaded."""

    listen: str | None = None
    socket: str | None = None
    state_dir: str | None = None
    allowed_hosts: tuple[str, ...] = ()
    node: NodeConfig = NodeConfig()
    tls: Tls = Tls()
    alerts: dict[str, Any] = {}
    meter: MeterTable = MeterTable()
    jobs: JobsTable = JobsTable()
    projects: dict[str, str] = {}


ALLOWED: dict[str, str] = {
    "listen": '"HOST:PORT" such as "127.0.0.1:9477" or "[::1]:9477", with a port from 0 to 65535',
    "socket": "the path of a unix socket, at most 107 bytes long, instead of listen",
    "state_dir": "the path of a folder",
    "allowed_hosts": 'a list of host names, such as ["gpu-01.example.org"]',
    "node": "a table [node]",
    "node.name": 'a text of 1 to 64 letters, digits, dots, dashes and underscores, such as "gpu-01"',
    "node.cloud": 'a name such as "aws", "gcp", "azure", "alibaba" or "on_premises"',
    "node.region": 'the cloud\'s own name, such as "us-east-1"',
    "node.zone": 'the cloud\'s own name or id, such as "use1-az1"',
    "node.instance_type": 'the cloud\'s own name, such as "p4d.24xlarge"',
    "node.purchase": "one of " + ", ".join(wire.PURCHASES),
    "node.usd_per_hour": 'a decimal number above 0 in quotes, such as "3.10"',
    "node.metadata": "true or false",
    "node.tags": 'a table of texts, such as { team = "vision" }',
    "node.on_premises": "a table [node.on_premises] with purchase_usd and years",
    "node.on_premises.purchase_usd": 'a decimal number above 0 in quotes, such as "250000"',
    "node.on_premises.years": 'a decimal number above 0 in quotes, such as "4"',
    "node.on_premises.power_watts": 'a decimal number of at least 0 in quotes, such as "6500"',
    "node.on_premises.power_usd_per_kwh": 'a decimal number of at least 0 in quotes, such as "0.18"',
    "tls": "a table [tls] with certificate and key",
    "tls.certificate": "the path of a PEM file, together with tls.key",
    "tls.key": "the path of a PEM file, together with tls.certificate",
    "alerts": "a table [alerts] of thresholds",
    "meter": "a table [meter]",
    "meter.row_seconds": "a number from 1 to 10",
    "meter.retention_days": "a whole number from 1 to 3650",
    "jobs": "a table [jobs]",
    "jobs.enabled": "true or false",
    "jobs.allow_root": "true or false",
    "jobs.users": 'a list of user names, such as ["alice", "bob"]',
    "jobs.default_pids": "a whole number from 16 to 4194304",
    "jobs.max_queue": "a whole number from 1 to 1000000",
    "jobs.max_upload_bytes": "a whole number of bytes, at least 1",
    "jobs.log_rotate_bytes": "a whole number of bytes, at least 4096",
    "jobs.log_quota_bytes": "a whole number of bytes, at least 8192 and not less than log_rotate_bytes",
    "jobs.keep_days": "a whole number from 1 to 3650",
    "jobs.grace_seconds": "a number from 0 to 86400",
    "jobs.kill_wait_seconds": "a number from 1 to 3600",
    "jobs.isolation": '"auto", "systemd", "cgroup" or "none"',
    "jobs.cgroup_parent": 'a name of letters, digits, dashes and underscores, such as "rackrate"',
    "jobs.mps_control": 'the name or path of a program, such as "nvidia-cuda-mps-control"',
    "jobs.repair_limits": "true or false",
    "jobs.environment": 'a list of names of variables, such as ["PATH", "CUDA_HOME"]',
    "projects": 'a table of user = "project"',
}
"""Dotted key -> what may stand there, as the end of a sentence."""

_ABOVE_ZERO = {
    "node.usd_per_hour": True,
    "node.on_premises.purchase_usd": True,
    "node.on_premises.years": True,
    "node.on_premises.power_watts": False,
    "node.on_premises.power_usd_per_kwh": False,
}
"""The decimal keys -> whether the value must be above 0 (else at least 0)."""

_TABLES: dict[str, type[msgspec.Struct]] = {
    "": File,
    "node": NodeConfig,
    "node.on_premises": wire.OnPremises,
    "tls": Tls,
    "meter": MeterTable,
    "jobs": JobsTable,
}

_KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text", list: "a list", dict: "a table"}


def near(word: str, known: Sequence[str]) -> str:
    """` (did you mean 'X'?)` where one of `known` is close to `word`, else nothing."""
    import difflib

    folded = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower().replace("-", "_"), list(folded), n=1, cutoff=0.6)
    return f" (did you mean {folded[close[0]]!r}?)" if close else ""


class ConfigurationFile:
    """One TOML file. Paths in it are relative to its own folder. Every method raises ConfigurationError."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def parse(self) -> File:
        raw = self._read()
        self._check_keys("", raw)
        self._check_decimals(raw)
        parsed = self._convert(raw, File, "")
        self._check_names(parsed)
        return parsed

    def thresholds(self, values: Mapping[str, Any]) -> Thresholds:
        """`[alerts]` as `agent.alerts.Thresholds`; an empty table gives its defaults."""
        from agent.alerts import Thresholds

        for name in values:
            self._check_known("alerts", name, Thresholds.__struct_fields__)
        return self._convert(values, Thresholds, "alerts")

    def tls_files(self, tls: Tls, *, must_exist: bool = True) -> tuple[Path | None, Path | None]:
        """(certificate, key), both or neither; both can be read."""
        for here, there in (("certificate", "key"), ("key", "certificate")):
            if getattr(tls, here) is not None and getattr(tls, there) is None:
                raise self.refuse(f"tls.{there}", f"missing beside tls.{here}")
        read = self._readable if must_exist else (lambda key, value: self.path_of(value))
        return read("tls.certificate", tls.certificate), read("tls.key", tls.key)

    def path_of(self, value: str | None) -> Path | None:
        return self.path.parent / Path(value).expanduser() if value is not None else None

    def refuse(self, key: str, problem: str) -> ConfigurationError:
        allowed = f"; allowed is {ALLOWED[key]}" if key in ALLOWED else ""
        return ConfigurationError(f"{self.path}: {key}: {problem}{allowed}")

    def _readable(self, key: str, value: str | None) -> Path | None:
        path = self.path_of(value)
        if path is None:
            return None
        try:
            path.open("rb").close()
        except OSError as error:
            raise self.refuse(key, f"{path} cannot be read ({error.strerror})") from None
        return path

    def _read(self) -> dict[str, Any]:
        try:
            return tomllib.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ConfigurationError(f"{self.path}: there is no such file; `rackrate-agent init` writes one") from None
        except OSError as error:
            raise ConfigurationError(f"{self.path}: the file cannot be read ({error.strerror})") from None
        except UnicodeDecodeError:
            raise ConfigurationError(f"{self.path}: the file is not UTF-8 text, as TOML must be") from None
        except tomllib.TOMLDecodeError as error:
            raise ConfigurationError(f"{self.path}: the file is not valid TOML: {error}") from None

    def _check_keys(self, table: str, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            self._check_known(table, name, _TABLES[table].__struct_fields__)
            key = _dotted(table, name)
            if key not in _TABLES:
                continue
            if not isinstance(value, dict):
                raise self.refuse(key, f"is {_kind(value)}")
            self._check_keys(key, value)

    def _check_known(self, table: str, name: str, known: Sequence[str]) -> None:
        if name not in known:
            place = f"in [{table}]" if table else "at the top level"
            names = ", ".join(known)
            raise self.refuse(_dotted(table, name), f"unknown key{near(name, known)}; allowed {place} are {names}")

    def _check_decimals(self, raw: Mapping[str, Any]) -> None:
        for key, above_zero in _ABOVE_ZERO.items():
            *tables, name = key.split(".")
            holder: Any = raw
            for table in tables:
                holder = holder.get(table, {})
            if name in holder:
                holder[name] = self._decimal(key, holder[name], above_zero)

    def _decimal(self, key: str, value: Any, above_zero: bool) -> str:
        """The value as plain decimal text. A whole number is exact and taken; a float is not."""
        if isinstance(value, float):
            raise self.refuse(key, f"{value} without quotes is a binary fraction, which cannot hold money exactly")
        text = str(value) if type(value) is int else value
        if not isinstance(text, str):
            raise self.refuse(key, f"is {_kind(value)}")
        if not _MONEY.fullmatch(text) or (above_zero and not Decimal(text)):
            raise self.refuse(key, f"{text!r} is refused")
        return text

    def _convert(self, raw: Any, shape: type[Any], table: str) -> Any:
        try:
            return msgspec.convert(raw, shape)
        except msgspec.ValidationError as error:
            raise self._worded(str(error), raw, table) from None

    def _worded(self, fault: str, raw: Mapping[str, Any], table: str) -> ConfigurationError:
        match = _PLACE.match(fault)
        problem, path = (match["problem"], match["path"] or "") if match else (fault, "")
        key = _dotted(table, path)
        if missing := re.search(r"missing required field `(\w+)`", problem):
            return self.refuse(_dotted(key, missing[1]), "is missing")
        value = _at(raw, path)
        if key == "node.purchase" and isinstance(value, str):
            return self.refuse(key, f"{value!r} is none{near(value, wire.PURCHASES)}")
        if key in ALLOWED:
            return self.refuse(key, f"is {_kind(value)}" if isinstance(value, (dict, list, bool)) else f"{value!r} is refused")
        parent = re.sub(r"\[[^\]]*\]$", "", key)
        allowed = f"; allowed is {ALLOWED[parent]}" if parent != key and parent in ALLOWED else ""
        return self.refuse(key, problem[:1].lower() + problem[1:] + allowed)

    def _check_names(self, parsed: File) -> None:
        for field in ("name", "cloud", "region", "zone", "instance_type"):
            value = getattr(parsed.node, field)
            if value is not None and not NAME.fullmatch(value):
                raise self.refuse(f"node.{field}", f"{value!r} is refused")
        self._check_jobs(parsed.jobs)

    def _check_jobs(self, jobs: JobsTable) -> None:
        if not _GROUP.fullmatch(jobs.cgroup_parent):
            raise self.refuse("jobs.cgroup_parent", f"{jobs.cgroup_parent!r} is refused")
        if not jobs.mps_control or not jobs.mps_control.isprintable():
            raise self.refuse("jobs.mps_control", f"{jobs.mps_control!r} is refused")
        for name in jobs.environment:
            if not VARIABLE.fullmatch(name):
                raise self.refuse("jobs.environment", f"{name!r} is refused")
        for name in jobs.users:
            if not name or not name.isprintable() or set(name) & set(" :/,"):
                raise self.refuse("jobs.users", f"{name!r} is refused")
        if jobs.log_quota_bytes < jobs.log_rotate_bytes:
            raise self.refuse("jobs.log_quota_bytes", f"{jobs.log_quota_bytes} is refused")


def _dotted(table: str, name: str) -> str:
    return f"{table}.{name}".strip(".")


def _kind(value: Any) -> str:
    return _KINDS.get(type(value), "a date or time")


def _at(raw: Any, path: str) -> Any:
    for step in path.split(".") if path else ():
        raw = raw.get(step) if isinstance(raw, dict) else None
    return raw
