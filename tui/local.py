"""The agent of this machine, started when no node is configured.

Invariant: an agent that this program started ends with it, or, if it has jobs, by itself once they have ended; one that
already runs on the state directory is used and left alone, and one that starts or ends just now is waited for.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from tui.config import NodeConfig, Paths
from tui.errors import Failed, RackrateError

START_SECONDS = 20.0


@contextlib.contextmanager
def local_agent(paths: Paths) -> Iterator[NodeConfig]:
    """Yields this machine as a node."""
    state_dir = paths.data_dir / "agent"
    running = _settled(state_dir)
    if running:
        yield running
        return
    arguments = ["run", "--listen", "127.0.0.1:0", "--state-dir", str(state_dir), "--end-when-idle"]
    process = start_agent(arguments, state_dir / "agent.log")
    try:
        yield _started(process, state_dir)
    finally:
        if process.poll() is None and (jobs := unended_jobs(paths)):
            _leave(process, jobs)
        else:
            end_agent(process)


def _started(process: subprocess.Popen[bytes], state_dir: Path) -> NodeConfig:
    """Our own agent, or that of a program which was quicker."""
    try:
        return _node(wait_for_url(process, state_dir / "agent.log"), state_dir)
    except Failed:
        if (running := _settled(state_dir)) is None:
            raise
        return running


def _settled(state_dir: Path) -> NodeConfig | None:
    """The agent that runs here, or None. One that does not listen yet, or not any more, is waited for."""
    end = time.monotonic() + START_SECONDS
    while True:
        running = running_agent(state_dir)
        if running is not None and _listens(running):
            return running
        if not _held(state_dir):
            return None
        if time.monotonic() > end:
            return running
        time.sleep(0.05)


def _listens(node: NodeConfig) -> bool:
    """One that is busy does."""
    url = urlsplit(node.url)
    try:
        socket.create_connection((url.hostname or "", url.port or 443), START_SECONDS).close()
    except OSError as error:
        return not isinstance(error, ConnectionRefusedError)
    return True


def _held(state_dir: Path) -> bool:
    """Whether an agent has the state directory: it locks it before all else, and lets go of it last."""
    try:
        with (state_dir / "lock").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def unended_jobs(paths: Paths) -> int:
    """How many jobs of this machine's agent run or wait; 0 where it does not answer."""
    import asyncio

    from agent.client import ClientError
    from tui.clients import client_factory

    async def count(node: NodeConfig) -> int:
        async with client_factory(paths)(node) as client:
            return len((await client.jobs(ended=0)).jobs)

    node = running_agent(paths.data_dir / "agent")
    try:
        return asyncio.run(count(node)) if node is not None else 0
    except (ClientError, RackrateError):
        return 0


def _leave(process: subprocess.Popen[bytes], jobs: int) -> None:
    """The agent goes on without us, and ends by itself once its jobs have."""
    if process.stdout:
        process.stdout.close()
    process.returncode = 0  # it is not ours any more: nothing is to wait for it
    what = "1 job of this machine has" if jobs == 1 else f"{jobs} jobs of this machine have"
    sys.stderr.write(f"{what} not ended; the agent goes on until then (`rackrate jobs`)\n")


def _node(url: str, state_dir: Path, fingerprint: str | None = None) -> NodeConfig:
    name = os.uname().nodename or "this-machine"
    return NodeConfig(name=name, url=url, token_file=str(state_dir / "token"), fingerprint=fingerprint)


def running_agent(state_dir: Path) -> NodeConfig | None:
    """The agent that runs on this state directory, or None. Raises `Failed` when it listens only on a unix socket."""
    try:
        known = json.loads((state_dir / "agent.json").read_text(encoding="utf-8"))
        url, pid = str(known["url"]), int(known["pid"])
        os.kill(pid, 0)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if not _is_agent(pid):
        return None
    if not url.startswith("http"):
        raise Failed(f"the agent of this machine (process {pid}) listens only on {url}; start it with --listen HOST:PORT.")
    return _node(url, state_dir, known.get("fingerprint"))


def _is_agent(pid: int) -> bool:
    """The pid may have been given to another program since."""
    try:
        return b"agent" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return True


def start_agent(arguments: list[str], log: Path) -> subprocess.Popen[bytes]:
    """Starts `rackrate-agent` with this Python, in its own session so that Ctrl-C in the terminal is ours alone.

    What it says goes to the file `log`: a pipe that nobody reads would block it one day.
    """
    log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with log.open("wb") as words:
        return subprocess.Popen(
            [sys.executable, "-m", "agent.cli", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=words,
            start_new_session=True,
        )


def wait_for_url(process: subprocess.Popen[bytes], log: Path) -> str:
    """Reads the line `listening on URL`; raises with the agent's own words when it ends instead."""
    for line in read_lines(process, START_SECONDS):
        if "http" in line:
            return line[line.index("http") :].strip()
    raise Failed(f"the agent of this machine did not start: {agent_words(process, log)}")


def read_lines(process: subprocess.Popen[bytes], seconds: float) -> Iterator[str]:
    """Lines of the process's stdout until it ends or `seconds` have passed."""
    assert process.stdout is not None
    deadline = time.monotonic() + seconds
    buffer = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while (left := deadline - time.monotonic()) > 0:
            if not selector.select(left):
                continue
            chunk = os.read(process.stdout.fileno(), 65536)
            if not chunk:
                return
            *lines, buffer = (buffer + chunk).split(b"\n")
            yield from (line.decode(errors="replace") for line in lines)


def agent_words(process: subprocess.Popen[bytes], log: Path) -> str:
    """The last line of what the agent said on stderr."""
    end_agent(process)
    with contextlib.suppress(OSError):
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
        if lines:
            return lines[-1].removeprefix("rackrate-agent: ")
    return f"it ended with code {process.returncode}"


def end_agent(process: subprocess.Popen[bytes]) -> None:
    """TERM, then KILL after five seconds; no process is left."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if process.stdout:
        process.stdout.close()
