"""What a job's command has to do with torch elastic: recognises its launchers, and builds the command of a run over nodes.

Invariant: a launcher that gets the soft signal gives its workers less time than the job's grace, unless the user asked
for more, and that is said.

Facts (torch 2.13): every option of torchrun takes its default from `PET_<NAME>`; workers have sessions of their own;
USR1 kills a launcher that was not told to handle it, and leaves its workers behind.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from agent.wire import Gang

DEFAULT_SHUTDOWN_SECONDS = 30.0
SIGNALS = "SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1,SIGUSR2"
_MODULES = ("torch.distributed.run", "torch.distributed.launch", "agent.recipes.torchrun")
_WRAPPERS = ("env", "nohup", "nice", "time", "uv", "poetry", "pipenv", "conda", "run", "exec", "stdbuf")
_IN_SHELL = re.compile(r"(?<![\w.-])(torchrun|torch\.distributed\.(?:run|launch)|accelerate\s+launch)(?![\w.-])")
_PYTHON = re.compile(r"python[0-9.]*")
_OURS = ("--nnodes", "--rdzv-backend", "--rdzv-endpoint", "--rdzv-id", "--rdzv-conf", "--standalone", "--node-rank",
         "--master-addr", "--master-port")  # fmt: skip


class Launcher(NamedTuple):
    """A launcher in a command. Its own options begin at `at`; None: it stands in a shell text."""

    name: str
    at: int | None


def recognise(command: Sequence[str], *, shell: bool = False) -> Launcher | None:
    """The launcher of torch elastic that the command starts with, if any."""
    if shell:
        found = _IN_SHELL.search(command[0])
        return Launcher(re.sub(r"\s+", " ", found[1]), None) if found else None
    for at, word in enumerate(command):
        base = os.path.basename(word)
        if base == "torchrun":
            return Launcher("torchrun", at + 1)
        if base == "accelerate" and tuple(command[at + 1 : at + 2]) == ("launch",):
            return Launcher("accelerate launch", at + 2)
        if _PYTHON.fullmatch(base):
            return _python_module(command, at)
        if base not in _WRAPPERS and not word.startswith("-") and "=" not in word:
            return None
    return None


def _python_module(command: Sequence[str], at: int) -> Launcher | None:
    module = _module_at(command, at)
    if module is not None and command[module] in _MODULES:
        return Launcher(command[module], module + 1)
    return None


def _module_at(command: Sequence[str], python: int) -> int | None:
    """Where the name after `-m` stands; None for a script."""
    at = python + 1
    while at < len(command) and command[at].startswith("-"):
        if command[at] == "-m":
            return at + 1 if at + 1 < len(command) else None
        at += 2 if command[at] in ("-W", "-X") else 1
    return None


def shutdown_seconds(command: Sequence[str], launcher: Launcher, env: Mapping[str, str]) -> float | None:
    """The time-out that the user chose for the workers of a launcher; None where they chose none."""
    options = command[launcher.at :] if launcher.at is not None else re.split(r"[\s=]+", command[0])
    for at, word in enumerate(options):
        name, _, value = word.partition("=")
        if name.replace("_", "-") == "--shutdown-timeout":
            return _seconds(value or next(iter(options[at + 1 : at + 2]), ""))
    for name in ("PET_SHUTDOWN_TIMEOUT", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"):
        if name in env:
            return _seconds(env[name])
    return None


def _seconds(text: str) -> float | None:
    return float(text) if re.fullmatch(r"[0-9]{1,6}", text) else None


def stop_environment(grace_seconds: float) -> dict[str, str]:
    """Variables for every job: a script may start a launcher inside. The workers' time fits into the grace."""
    margin = min(5.0, grace_seconds / 4)
    return {
        "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": str(max(1, int(min(grace_seconds - margin, DEFAULT_SHUTDOWN_SECONDS * 20)))),
        "TORCHELASTIC_SIGNALS_TO_HANDLE": SIGNALS,
        "PET_SIGNALS_TO_HANDLE": SIGNALS,
    }


def grace_warning(command: Sequence[str], *, shell: bool, env: Mapping[str, str], grace_seconds: float) -> str | None:
    """A sentence where the user's own time-out for the workers does not fit into the grace."""
    launcher = recognise(command, shell=shell)
    if launcher is None:
        return None
    asked = shutdown_seconds(command, launcher, env)
    if asked is None or asked < grace_seconds:
        return None
    return (
        f"the grace of {grace_seconds:g} s is not longer than the shutdown time-out of {launcher.name}, {asked:g} s: "
        "a checkpoint may be cut; use a longer --grace or a shorter --shutdown-timeout"
    )


def gang_faults(command: Sequence[str], *, shell: bool, gang: Gang) -> list[str]:
    """Why this command cannot be run over several nodes, a sentence each."""
    if gang.processes_per_node == 0:
        return [] if gang.nodes > 1 else ["a run over several nodes needs more than one"]
    if shell:
        return ["a run over several nodes needs the command itself, not a shell text: the rendezvous is added to it"]
    launcher = recognise(command)
    if launcher is not None and launcher.name == "accelerate launch":
        return ["`accelerate launch` brings a rendezvous of its own; use torchrun, or the script itself"]
    faults = []
    if not 1 <= gang.least_nodes <= gang.nodes:
        faults.append(f"at least {gang.least_nodes} of {gang.nodes} nodes is not possible")
    if gang.processes_per_node < 1:
        faults.append("a run over several nodes needs at least one process on each")
    own = _own_options(command[launcher.at :]) if launcher is not None else ()
    faults.extend(f"{name} is set by the run over several nodes itself; leave it out of the command" for name in own)
    return faults


def _own_options(options: Sequence[str]) -> list[str]:
    """Those of the launcher's options that the rendezvous needs for itself, up to the script."""
    found, at = [], 0
    while at < len(options) and options[at].startswith("-") and options[at] not in ("-m", "--module"):
        name, _, value = options[at].partition("=")
        if (plain := name.replace("_", "-")) in _OURS:
            found.append(plain)
        flag = plain in ("--standalone", "--no-python", "--run-path", "--virtual-local-rank")
        at += 1 if value or flag else 2
    return found


def gang_argv(command: Sequence[str], gang: Gang) -> tuple[str, ...]:
    """The command with the c10d rendezvous in front of the user's script: a torchrun command, or a plain one.

    With no process of torch's on each node the command stays as it is: it finds the others by its environment.
    """
    if gang.processes_per_node == 0:
        return tuple(command)
    options = _gang_options(gang)
    launcher = recognise(command)
    if launcher is not None:
        assert launcher.at is not None
        return (*command[: launcher.at], *options, *command[launcher.at :])
    if not _PYTHON.fullmatch(os.path.basename(command[0])):
        return ("torchrun", *options, "--no-python", *command)
    torch = (command[0], "-m", _MODULES[0], *options)
    module = _module_at(command, 0)
    if module == 2:
        return (*torch, "-m", *command[module:])
    if len(command) > 1 and not command[1].startswith("-"):
        return (*torch, *command[1:])
    return (*torch, "--no-python", *command)  # it has options of the interpreter, or its program in the command


def _gang_options(gang: Gang) -> tuple[str, ...]:
    elastic = gang.least_nodes < gang.nodes
    settings = f"join_timeout={gang.join_timeout_seconds:.0f},last_call_timeout=15,is_host={int(gang.host_here)}"
    return (
        "--nnodes", f"{gang.least_nodes}:{gang.nodes}",
        "--nproc-per-node", str(gang.processes_per_node),
        "--rdzv-backend", "c10d",
        "--rdzv-endpoint", gang.endpoint or "HOST:PORT",
        "--rdzv-id", gang.id,
        "--rdzv-conf", settings,
        "--max-restarts", str(max(3, gang.nodes - gang.least_nodes)) if elastic else "0",
    )  # fmt: skip


def processes_here(command: Sequence[str], *, shell: bool, gpus: int, gang: Gang | None) -> int:
    """How many workers the command starts on this node, as far as it says so."""
    launcher = recognise(command, shell=shell)
    if launcher is None:
        return max(1, gang.processes_per_node) if gang is not None else 1
    words = command[launcher.at :] if launcher.at is not None else re.split(r"[\s=]+", command[0])
    for at, word in enumerate(words):
        name, _, value = word.partition("=")
        if name.replace("_", "-") in ("--nproc-per-node", "--num-processes"):
            value = value or next(iter(words[at + 1 : at + 2]), "")
            return int(value) if re.fullmatch(r"[1-9][0-9]{0,3}", value) else max(1, gpus)
    return max(1, gang.processes_per_node) if gang is not None else 1
