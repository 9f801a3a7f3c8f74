"""What `rackrate-agent run` is to do: `agent.toml` and the options of the command line, merged into one `AgentConfig`.

Invariant: an option beats the file, the file beats the default; a configuration that loads can be used as it stands.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from agent.config_file import ALLOWED, NAME, ConfigurationFile, File, JobsTable, NodeConfig, near
from agent.errors import ConfigurationError

if TYPE_CHECKING:
    from agent.alerts import Thresholds

__all__ = ["ALLOWED", "NAME", "AgentConfig", "JobsTable", "NodeConfig", "default_path", "load", "split_listen", "state_folder"]

DEFAULT_LISTEN = "127.0.0.1:9477"
DEFAULT_PORT = 9477
SIMULATION_PRESETS = ("8xH100", "8xA100", "4xT4", "8xV100", "1xL4", "none")

_HOST = re.compile(r"[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}(%[A-Za-z0-9._-]{1,20})?\]")
_SOCKET_PATH_MAX = 107  # sun_path of Linux, without its NUL


class AgentConfig(msgspec.Struct, frozen=True, kw_only=True):
    """All that the agent needs to know. Paths are absolute; the file and the options are already merged."""

    state_dir: Path
    listen: str = DEFAULT_LISTEN
    """`HOST:PORT`; an IPv6 host stands in brackets; port 0 takes a free one. Not used where `socket` is set."""
    socket: Path | None = None
    node: NodeConfig = NodeConfig()
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    thresholds: Thresholds | None = None
    """Always set by `load`; None means the defaults of `agent.alerts.Thresholds`."""
    row_seconds: float = 10.0
    retention_days: int = 90
    projects: dict[str, str] = {}
    """User -> project that their GPU time is charged to."""
    jobs: JobsTable = JobsTable()
    allowed_hosts: tuple[str, ...] = ()
    """Further names that a client may use in its Host header."""
    simulate: str | None = None
    """One of `SIMULATION_PRESETS`: readings are made up, no driver is asked."""
    end_when_idle: bool = False
    """End once the program that started the agent is gone, nobody listens, and no job is left."""
    source: Path | None = None
    """The file that was read, or None where there was none."""

    @property
    def host(self) -> str:
        """Without brackets."""
        return split_listen(self.listen)[0]

    @property
    def port(self) -> int:
        return split_listen(self.listen)[1]

    @property
    def tls(self) -> bool:
        return self.tls_certificate is not None


NO_HOME = "this user has no home directory (HOME is not set, and no list of users knows one): set RACKRATE_HOME to a folder"


def configuration_folder(environ: Mapping[str, str]) -> Path:
    """Where `agent.toml` lies by default: RACKRATE_HOME, /etc/rackrate for root, else the platform's folder."""
    if home := environ.get("RACKRATE_HOME"):
        return _absolute(home)
    if os.geteuid() == 0:
        return Path("/etc/rackrate")
    import platformdirs

    return _folder(platformdirs.user_config_dir)


def state_folder(environ: Mapping[str, str]) -> Path:
    """The default state directory: RACKRATE_HOME/agent, /var/lib/rackrate for root, else the platform's folder."""
    if home := environ.get("RACKRATE_HOME"):
        return _absolute(home) / "agent"
    if os.geteuid() == 0:
        return Path("/var/lib/rackrate")
    import platformdirs

    return _folder(platformdirs.user_state_dir)


def _folder(of: Callable[[str, Literal[False]], str]) -> Path:
    try:
        found = Path(of("rackrate", False))
    except RuntimeError:
        found = Path("~")
    if not found.is_absolute():
        raise ConfigurationError(NO_HOME)
    return found


def default_path(environ: Mapping[str, str]) -> Path:
    return configuration_folder(environ) / "agent.toml"


def split_listen(text: str, where: str = "listen") -> tuple[str, int]:
    """`HOST:PORT` -> (host without brackets, port). Raises ConfigurationError, which names `where`."""
    host, _, port = text.rpartition(":")
    if not (_HOST.fullmatch(host) and re.fullmatch(r"[0-9]{1,5}", port) and int(port) <= 65535):
        raise ConfigurationError(f"{where}: {text!r} is no address; allowed is {ALLOWED['listen']}")
    return host.strip("[]"), int(port)


def load(
    path: Path | str | None,
    environ: Mapping[str, str],
    *,
    listen: str | None = None,
    socket: Path | str | None = None,
    state_dir: Path | str | None = None,
    simulate: str | None = None,
    end_when_idle: bool = False,
    new: bool = False,
) -> AgentConfig:
    """The configuration in `path` (None: the default file, where it exists), under the options given as keywords.

    `new` (for `init`): `path` and the certificate that it names need not exist yet.

    Raises ConfigurationError: the file, the key and what is allowed, in one sentence.
    """
    source = _source(path, environ)
    file = ConfigurationFile(source or default_path(environ))
    parsed = file.parse() if source and not (new and not source.exists()) else File()
    certificate, key = file.tls_files(parsed.tls, must_exist=not new)
    return AgentConfig(
        state_dir=_state_dir(state_dir, file.path_of(parsed.state_dir), environ),
        listen=_listen(listen, parsed.listen, file),
        socket=_socket(listen, socket, parsed, file),
        node=_node(parsed.node, environ),
        tls_certificate=certificate,
        tls_key=key,
        thresholds=file.thresholds(parsed.alerts),
        row_seconds=parsed.meter.row_seconds,
        retention_days=parsed.meter.retention_days,
        projects=parsed.projects,
        jobs=parsed.jobs,
        allowed_hosts=parsed.allowed_hosts,
        simulate=_preset(simulate),
        end_when_idle=end_when_idle,
        source=source,
    )


def _absolute(path: Path | str) -> Path:
    return Path(path).expanduser().absolute()


def _source(path: Path | str | None, environ: Mapping[str, str]) -> Path | None:
    if path is not None:
        return _absolute(path)
    found = default_path(environ)
    return found if os.path.lexists(found) else None


def _state_dir(option: Path | str | None, configured: Path | None, environ: Mapping[str, str]) -> Path:
    return _absolute(option) if option is not None else configured or state_folder(environ)


def _listen(option: str | None, configured: str | None, file: ConfigurationFile) -> str:
    for text, where in ((option, "--listen"), (configured, f"{file.path}: listen")):
        if text is not None:
            split_listen(text, where)
            return text
    return DEFAULT_LISTEN


def _socket(listen: str | None, option: Path | str | None, parsed: File, file: ConfigurationFile) -> Path | None:
    if parsed.listen is not None and parsed.socket is not None:
        raise file.refuse("socket", "stands beside listen, but only one of them can be used")
    if listen is not None:
        return None
    path, where = (_absolute(option), "--socket") if option is not None else (file.path_of(parsed.socket), f"{file.path}: socket")
    if path is not None and (length := len(os.fsencode(path))) > _SOCKET_PATH_MAX:
        raise ConfigurationError(f"{where}: the path is {length} bytes long; allowed is {ALLOWED['socket']}")
    return path


def _node(node: NodeConfig, environ: Mapping[str, str]) -> NodeConfig:
    if environ.get("RACKRATE_METADATA", "").lower() in ("off", "0", "false", "no"):
        return msgspec.structs.replace(node, metadata=False)
    return node


def _preset(name: str | None) -> str | None:
    if name is None or name in SIMULATION_PRESETS:
        return name
    known = ", ".join(SIMULATION_PRESETS)
    raise ConfigurationError(f"--simulate: {name!r} is no preset{near(name, SIMULATION_PRESETS)}; allowed is one of {known}")
