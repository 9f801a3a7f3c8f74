"""Ends the GPU work of a job's MPS clients before the job is killed: `mps_terminate.py CONTROL PIPE_DIR PIDS [SECONDS]`.

Invariant: exit status 0 only when none of the PIDS (comma between) is on any server's list of clients any more, or none
was; 1 when one still is; 2 when the daemon does not answer, or the call is wrong. Never longer than SECONDS (4.5). A
client that is killed in the middle of its work can hang the GPU for all. Standard library alone: runs with `-I -S`.
"""

import os
import subprocess
import sys
import time

TOTAL_SECONDS = 4.5
PAUSE_SECONDS = 0.05
TRIES = 3


class NoAnswer(Exception):
    """The daemon is gone or silent."""


class Control:
    """The front end of one daemon, until `deadline` (monotonic)."""

    def __init__(self, binary: str, pipe: str, deadline: float) -> None:
        self._binary = binary
        self._environment = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "LC_ALL": "C", "CUDA_MPS_PIPE_DIRECTORY": pipe}
        self._deadline = deadline

    def ask(self, *commands: str) -> list[str]:
        """Lines of the answers. The daemon breaks a connection when a server ends in that moment: asked again."""
        for _ in range(TRIES):
            done = self._run(commands)
            if not done.returncode:
                return done.stdout.splitlines()
            if done.stderr.strip():
                break
        raise NoAnswer(done.stderr.strip() or f"the daemon breaks the connection at {commands[0]}")

    def _run(self, commands: tuple[str, ...]) -> "subprocess.CompletedProcess[str]":
        left = self._deadline - time.monotonic()
        try:
            return subprocess.run(
                [self._binary], input="".join(command + "\n" for command in commands), env=self._environment, cwd="/",
                timeout=max(left, 0.01), capture_output=True, encoding="utf-8", errors="replace",
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise NoAnswer(f"no answer to {commands[0]} in time") from None
        except OSError as error:
            raise NoAnswer(f"{self._binary}: {error.strerror}") from None

    def clients(self, wanted: set[int]) -> dict[int, set[int]]:
        """Server -> those of `wanted` that are its clients."""
        servers = _numbers(self.ask("get_server_list"))
        found = {server: set(_numbers(self.ask(f"get_client_list {server}"))) & wanted for server in servers}
        return {server: pids for server, pids in found.items() if pids}


def _numbers(lines: list[str]) -> list[int]:
    return [int(line) for line in (line.strip() for line in lines) if line.isdecimal()]


def terminate(control: Control, wanted: set[int], deadline: float) -> set[int]:
    """Terminates and looks until none is left or the time is over; the pids that are left."""
    clients = control.clients(wanted)
    asked: set[tuple[int, int]] = set()
    while clients:
        for server, pids in clients.items():
            new = [(server, pid) for pid in sorted(pids) if (server, pid) not in asked]
            if new:
                control.ask(*(f"terminate_client {server} {pid}" for server, pid in new))
                asked.update(new)
        newer = look_again(control, wanted, deadline)
        if newer is None:
            break
        clients = newer
    return set().union(*clients.values()) if clients else set()


def look_again(control: Control, wanted: set[int], deadline: float) -> dict[int, set[int]] | None:
    """The clients a moment later; None when the time is over."""
    if time.monotonic() + PAUSE_SECONDS >= deadline:
        return None
    time.sleep(PAUSE_SECONDS)
    try:
        return control.clients(wanted)
    except NoAnswer:
        if time.monotonic() < deadline:
            raise
        return None


def main(argv: list[str]) -> int:
    """The exit status; what went wrong is a line on standard error."""
    if len(argv) not in (3, 4) or not all(pid.isdecimal() for pid in argv[2].split(",") if pid):
        print("usage: mps_terminate.py CONTROL PIPE_DIR PID[,PID...] [SECONDS]", file=sys.stderr)
        return 2
    wanted = {int(pid) for pid in argv[2].split(",") if pid}
    if not wanted:
        return 0
    deadline = time.monotonic() + (float(argv[3]) if argv[3:] else TOTAL_SECONDS)
    try:
        left = terminate(Control(argv[0], argv[1], deadline), wanted, deadline)
    except NoAnswer as error:
        print(f"MPS clients were not terminated before the kill: {error}", file=sys.stderr)
        return 2
    if left:
        print(f"MPS clients are still connected: {', '.join(map(str, sorted(left)))}", file=sys.stderr)
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
