"""Listening: binds the address or the unix socket, and runs uvicorn on it inside a loop that somebody else owns.

Invariant: what cannot be listened on is one sentence before anything is served, and closing never waits for a client:
uvicorn takes no signals, and what is still open after `GRACE_SECONDS` is cut.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import ssl
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvicorn

from agent.errors import ConfigurationError, ListenRefused
from agent.security import check_listen
from agent.version import VERSION_HEADER, installed

GRACE_SECONDS = 1
SOCKET_MODE = 0o660
DEAF_MILLISECONDS = 60_000
"""A client that has acknowledged nothing for so long (gone, or stopped) is cut off; accepted sockets inherit it."""
_BACKLOG = 2048


def bind(host: str, port: int, *, tls: bool = False) -> socket.socket:
    """A bound TCP socket; port 0 takes a free one. Raises ListenRefused (off loopback without TLS, taken, no such address)."""
    check_listen(host, tls)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # asyncio sets TCP_NODELAY only where it reads this
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, host != "::")
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAF_MILLISECONDS)
        bound.bind((host, port))
        bound.listen(_BACKLOG)
    except OSError as error:
        bound.close()
        raise _refused(host, port, error) from None
    bound.setblocking(False)
    return bound


def bind_unix(path: Path) -> socket.socket:
    """A bound unix socket, mode 0660 from its first moment. One that nobody answers any more is replaced."""
    _remove_stale(path)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o777 & ~SOCKET_MODE)
    try:
        bound.bind(str(path))
        bound.listen(_BACKLOG)
    except OSError as error:
        bound.close()
        raise _failed(f"cannot listen on the socket {path} ({error.strerror}); name another path with --socket") from None
    finally:
        os.umask(mask)
    bound.setblocking(False)
    return bound


def _remove_stale(path: Path) -> None:
    try:
        is_socket = stat.S_ISSOCK(path.lstat().st_mode)
    except OSError:
        return
    if not is_socket:
        raise _failed(f"{path} exists and is no socket; remove it, or name another path with --socket")
    if _answers(path):
        raise _failed(f"another process answers on the socket {path}; stop it, or name another path with --socket")
    path.unlink(missing_ok=True)


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return False
        except OSError:
            pass
    return True


def _refused(host: str, port: int, error: OSError) -> ListenRefused:
    where = f"{host}:{port}"
    if error.errno == errno.EADDRINUSE:
        look = f"`ss -ltnp 'sport = :{port}'` names the process"
        return _failed(f"port {port} on {host} is taken by {_owner(port)}; {look}; stop it, or choose another with --listen")
    if error.errno == errno.EACCES:
        return _failed(f"this user may not listen on {where}; choose a port above 1023 with --listen")
    return _failed(f"cannot listen on {where} ({error.strerror or error}); name an address of this machine with --listen")


def _failed(text: str) -> ListenRefused:
    fault = ListenRefused(text)
    fault.exit_code = 1
    return fault


def _owner(port: int) -> str:
    """Who listens on `port`, as far as this user may know."""
    import psutil

    try:
        for connection in psutil.net_connections(kind="tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port and connection.pid:
                return f"{psutil.Process(connection.pid).name()} (process {connection.pid})"
    except (psutil.Error, OSError):
        pass
    return "another process, perhaps an agent that already runs"


class _Uvicorn(uvicorn.Server):
    """Uvicorn without its signal handlers: the daemon has its own."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.serving = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self.serving.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Listener:
    """One app on one socket. `start` returns when it serves; `close` ends it within about `GRACE_SECONDS`."""

    def __init__(
        self, app: Any, bound: socket.socket, *, certificate: Path | None = None, key: Path | None = None
    ) -> None:
        self._socket = bound
        self._tls = certificate is not None
        self._server = _Uvicorn(_configure(app, certificate, key))
        self._task: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """`http://127.0.0.1:9477`, `https://[::1]:9477` or `unix:/run/agent.sock`."""
        if self._socket.family == socket.AF_UNIX:
            return f"unix:{self._path}"
        host, port = self._socket.getsockname()[:2]
        scheme = "https" if self._tls else "http"
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

    @property
    def _path(self) -> str:
        return str(self._socket.getsockname())

    async def start(self) -> None:
        self._task = asyncio.create_task(self._server.serve(sockets=[self._socket]))
        serving = asyncio.ensure_future(self._server.serving.wait())
        await asyncio.wait({self._task, serving}, return_when=asyncio.FIRST_COMPLETED)
        serving.cancel()
        if self._task.done():
            self._task.result()
            raise _failed("the server ended as it started; its message above says why")

    async def ended(self) -> None:
        """Waits for the server to end by itself, which it never should. Raises what ended it."""
        if self._task is not None:
            await asyncio.shield(self._task)
        raise _failed("the HTTP server ended by itself; start the agent again")

    async def close(self) -> None:
        """Stops listening, ends what is open, removes a unix socket."""
        path = self._path if self._socket.family == socket.AF_UNIX else None
        self._server.should_exit = True
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=GRACE_SECONDS + 0.5)
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._socket.close()
        if path is not None:
            Path(path).unlink(missing_ok=True)


def _configure(app: Any, certificate: Path | None, key: Path | None) -> uvicorn.Config:
    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",  # what strangers send is no news
        access_log=False,
        server_header=False,
        headers=[(VERSION_HEADER, told)] if (told := installed()) else [],
        proxy_headers=False,  # else a local client could name any peer in X-Forwarded-For
        timeout_keep_alive=75,
        timeout_graceful_shutdown=GRACE_SECONDS,
        ssl_certfile=certificate,
        ssl_keyfile=key,
    )
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"the TLS certificate {certificate} with the key {key} cannot be used ({error}); `rackrate-agent init` makes both"
        ) from None
    return config
