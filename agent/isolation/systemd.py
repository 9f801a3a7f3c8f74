"""systemd as the maker of our groups: one scope for each job in a slice of our own, which it then leaves to us.

Invariant: nothing of a group that systemd made is written except `cgroup.subtree_control` of a scope that it delegated.
Only what systemd was asked for is used: `systemd-run --scope` runs in the caller's place, so the shim keeps its pid, and
it comes back only when the scope is there.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Literal

import msgspec

from agent.isolation.names import scope_name, slice_path

Manager = Literal["system", "user"]
_PROGRAM = "systemd-run"


class Systemd(msgspec.Struct, frozen=True, kw_only=True):
    """A manager that can be asked for scopes."""

    manager: Manager
    root: Path
    """The group below which its slices are."""
    run_dir: str | None = None
    """XDG_RUNTIME_DIR of a user's own manager."""


def absent(run: Path) -> str | None:
    """Why systemd cannot be asked here, None where it can: it is process 1 (sd_booted(3)) and its program is there."""
    if not (run / "systemd/system").is_dir():
        return "systemd does not run this machine"
    return None if shutil.which(_PROGRAM) else f"{_PROGRAM} is not installed"


def find(root: Path, run: Path, uid: int) -> Systemd | str:
    """The manager to ask: the machine's for root, otherwise the user's own; or a sentence why there is none."""
    if uid == 0:
        return Systemd(manager="system", root=root)
    folder = root / f"user.slice/user-{uid}.slice/user@{uid}.service"
    run_dir = run / f"user/{uid}"
    if not (run_dir / "systemd/private").exists():
        return (
            f"user {uid} has no systemd manager of its own: run the agent as root, or `loginctl enable-linger {uid}` "
            "and log in once"
        )
    if not folder.is_dir():
        return f"the group of user {uid}'s systemd manager ({folder}) is not there"
    return Systemd(manager="user", root=folder, run_dir=str(run_dir))


def scope_folder(systemd: Systemd, parent: str, unit: str) -> str:
    """Where the scope of a unit will be."""
    return f"{systemd.root}/{slice_path(parent)}/{scope_name(parent, unit)}"


def launcher(systemd: Systemd, parent: str, unit: str, *, delegate: bool) -> tuple[str, ...]:
    """argv to put before the shim's. `TasksMax` lifts the default of scopes, which would count as a limit of ours."""
    properties = ["--property=Delegate=yes"] if delegate else []
    user = ["--user"] if systemd.manager == "user" else []
    prefix = [_env(), f"XDG_RUNTIME_DIR={systemd.run_dir}"] if systemd.run_dir else []
    return (
        *prefix,
        shutil.which(_PROGRAM) or _PROGRAM,
        *user,
        "--scope",
        "--quiet",
        "--collect",
        f"--unit={scope_name(parent, unit)}",
        f"--slice={parent}.slice",
        *properties,
        "--property=TasksMax=infinity",
        "--",
    )


def _env() -> str:
    return shutil.which("env") or os.path.join("/usr/bin", "env")
