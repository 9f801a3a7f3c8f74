"""The control daemon's own words: one command in, one answer out, never longer than a few seconds.

Invariant: nothing that is not a plain command of letters, digits, dots and blanks reaches the daemon (it answers nonsense
with exit status 0, and some nonsense removes a limit); a daemon that is silent or gone raises, it is never an empty answer.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple, Protocol

from agent.errors import MpsFault
from agent.sensors.processes import clean_text

CONTROL = "nvidia-cuda-mps-control"
ANSWER_SECONDS = 5.0
TRIES = 3
ABSENT = "Cannot find MPS control daemon"
PACKAGES = "Debian: nvidia-cuda-mps; Ubuntu: nvidia-compute-utils-<driver version>; RHEL and SUSE: the driver's cuda/compute-utils package"
_COMMAND = re.compile(r"[a-z][a-z_]*( -?[A-Za-z0-9.]+)*")
_LIST, _PS = "get_server_list", "ps"
_GET_PERCENTAGE, _SET_PERCENTAGE = "get_default_active_thread_percentage", "set_default_active_thread_percentage"
_GET_MEMORY, _SET_MEMORY = "get_default_device_pinned_mem_limit 0", "set_default_device_pinned_mem_limit 0"
_UNITS = {"": 1 << 20, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


class MpsAbsent(MpsFault):
    """No control daemon listens on this pipe directory."""


class MpsSilent(MpsFault):
    """A control daemon is there and does not answer in time."""


class ClientRow(NamedTuple):
    """One row of `ps`."""

    pid: int
    server: int
    command: str | None


class Control(Protocol):
    """What `MpsGpu` asks of a control daemon, whatever the protocol; v2 is below.

    Each method that asks raises MpsAbsent or MpsSilent where there is no answer.
    """

    protocol: int
    binary: str
    pipe: Path

    def start_argv(self) -> list[str]: ...
    def default_commands(self, percent: str | None, memory: str | None) -> list[str]: ...
    def set_percentage(self, text: str) -> None: ...
    def set_pinned_memory(self, text: str) -> None: ...
    def list_commands(self, servers: tuple[int, ...]) -> list[str]: ...
    def servers(self) -> tuple[int, ...]: ...
    def status(self, server: int) -> str | None: ...
    def clients(self, server: int) -> tuple[int, ...]: ...
    def rows(self) -> tuple[ClientRow, ...]: ...
    def percentage(self) -> Decimal | None: ...
    def pinned_memory(self) -> int | None: ...
    def quit(self, seconds: int) -> None: ...


def find_binary(control: str) -> str:
    """Absolute path of the control program; MpsFault with the package to install where there is none."""
    found = shutil.which(control, path=search_path())
    if found is None:
        raise MpsFault(f"the program {control} is not installed, and sharing a GPU needs it: install it ({PACKAGES})")
    return os.path.abspath(found)


def search_path() -> str:
    """PATH, with the folders that hold the MPS programs: the daemon looks for the server there."""
    return os.pathsep.join(
        dict.fromkeys([*os.environ.get("PATH", "").split(os.pathsep), "/usr/bin", "/usr/sbin", "/bin", "/sbin"])
    )


class ControlV2:
    """Protocol 2, the default of all drivers: commands on standard input of `nvidia-cuda-mps-control`.

    `pipe` is CUDA_MPS_PIPE_DIRECTORY of the daemon; `seconds` how long one answer may take.
    """

    protocol = 2

    def __init__(self, binary: str, pipe: Path, *, seconds: float = ANSWER_SECONDS) -> None:
        self.binary = binary
        self.pipe = pipe
        self._seconds = seconds
        self._knows_status = True

    def start_argv(self) -> list[str]:
        """Starts the daemon; its parent ends once it listens."""
        return [self.binary, "-d"]

    def list_commands(self, servers: tuple[int, ...]) -> list[str]:
        """Commands of `servers`, and of `clients` of each of these servers."""
        return [_LIST, *(f"get_client_list {server}" for server in servers)]

    def ask(self, command: str, seconds: float | None = None) -> str:
        """The daemon's answer to one command, as it printed it."""
        if not _COMMAND.fullmatch(command):
            raise MpsFault(f"this is no command for the MPS control daemon: {command!r:.80}")
        limit = self._seconds if seconds is None else seconds
        for _ in range(TRIES):
            done = self._run(command, limit)
            if not done.returncode or command.startswith("quit"):  # its exit status tells how the servers ended
                return done.stdout
            if ABSENT in done.stderr:
                raise MpsAbsent(f"no MPS control daemon answers `{command}`: {clean_text(done.stderr)}")
            # it breaks the connection when a server ends in this moment (seen on 535 and 550), and answers the next time
        raise MpsSilent(
            f"the MPS control daemon breaks the connection at `{command}` ({clean_text(done.stderr) or 'no word why'})"
        )

    def _run(self, command: str, limit: float) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": search_path(), "LC_ALL": "C", "CUDA_MPS_PIPE_DIRECTORY": str(self.pipe)}
        try:
            return subprocess.run(
                [self.binary], input=command + "\n", env=environment, cwd="/", timeout=limit,
                capture_output=True, encoding="utf-8", errors="replace",
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise MpsSilent(f"the MPS control daemon does not answer `{command}` within {limit:g} s") from None
        except OSError as error:
            raise MpsFault(f"{self.binary} cannot be run ({error.strerror}): install it again ({PACKAGES})") from None

    def default_commands(self, percent: str | None, memory: str | None) -> list[str]:
        """Commands of `set_percentage` and `set_pinned_memory`, each with the one that reads it back."""
        percents = [f"{_SET_PERCENTAGE} {percent}", _GET_PERCENTAGE] if percent is not None else []
        return percents + ([f"{_SET_MEMORY} {memory}", _GET_MEMORY] if memory is not None else [])

    def set_percentage(self, text: str) -> None:
        """Default thread percentage of servers that start from now on. Its answer means nothing: read it back."""
        self.ask(f"{_SET_PERCENTAGE} {text}")

    def set_pinned_memory(self, text: str) -> None:
        """Default limit of pinned memory of servers that start from now on. Without an answer: read it back."""
        self.ask(f"{_SET_MEMORY} {text}")

    def quit(self, seconds: int) -> None:
        """Ends the daemon; after `seconds` it forces its servers to end."""
        self.ask(f"quit -t {seconds}", seconds + self._seconds)

    def servers(self) -> tuple[int, ...]:
        """Pids of the running servers."""
        return pids(self.ask(_LIST))

    def status(self, server: int) -> str | None:
        """`INITIALIZING`, `ACTIVE`, `FAULT`, ...; None for a server that is gone, and from drivers before 550."""
        if not self._knows_status:
            return None
        answer = self.ask(f"get_server_status {server}")
        self._knows_status = not answer.startswith("Unknown command")
        words = answer.split()
        return words[0] if len(words) == 1 and words[0].isalpha() and words[0].isupper() else None

    def clients(self, server: int) -> tuple[int, ...]:
        """Pids of a server's clients."""
        return pids(self.ask(f"get_client_list {server}"))

    def rows(self) -> tuple[ClientRow, ...]:
        """Clients of all servers."""
        return client_rows(self.ask(_PS))

    def percentage(self) -> Decimal | None:
        """Default thread percentage, to one decimal."""
        return decimal_of(self.ask(_GET_PERCENTAGE))

    def pinned_memory(self) -> int | None:
        """Default limit of pinned memory in bytes (whole GiB from 1 GiB on); None where there is no limit."""
        return bytes_of(self.ask(_GET_MEMORY))


def pids(answer: str) -> tuple[int, ...]:
    """Numbers that stand alone on their line; sentences such as `Server 5 not found` are not pids."""
    return tuple(int(word) for line in answer.splitlines() if (word := line.strip()).isdecimal() and int(word) > 0)


def decimal_of(answer: str) -> Decimal | None:
    """A number that is the whole answer."""
    text = answer.strip()
    return Decimal(text) if re.fullmatch(r"\d{1,3}(\.\d{1,6})?", text, re.ASCII) else None


def bytes_of(answer: str) -> int | None:
    """`2G`, `512M` or `5` (MiB) -> bytes."""
    found = re.fullmatch(r"(\d{1,12})([KMGT]?)B?", answer.strip(), re.ASCII | re.IGNORECASE)
    return int(found[1]) * _UNITS[found[2].upper()] if found else None


def client_rows(answer: str) -> tuple[ClientRow, ...]:
    """Rows of `ps`, in its form of six columns and in that of eight: both have PID ID SERVER, GPU-..., a number, the rest."""
    lines = answer.splitlines()
    wide = any("PRIORITY" in line for line in lines)
    found = (_row(line.split(), wide) for line in lines)
    return tuple(row for row in found if row is not None)


def _row(words: list[str], wide: bool) -> ClientRow | None:
    if len(words) < 4 or not all(word.isdecimal() for word in words[:3]):
        return None
    device = next((n for n, word in enumerate(words) if word.startswith(("GPU-", "MIG-"))), 3)
    command = " ".join(words[device + (3 if wide else 2) :])
    return ClientRow(int(words[0]), int(words[2]), clean_text(command) or None)
