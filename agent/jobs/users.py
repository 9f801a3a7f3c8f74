"""Who a job runs as: one user of this machine, looked up with all their groups.

Invariant: nobody runs as somebody whom their token does not stand for, and nothing runs as root unless `[jobs] allow_root`.
"""

from __future__ import annotations

import os
import pwd

import msgspec

from agent.config_file import JobsTable
from agent.errors import JobForbidden, JobRefused
from agent.jobs.actor import Actor


class RunAs(msgspec.Struct, frozen=True, kw_only=True):
    """A user as the kernel knows them."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str
    shell: str
    switch: bool
    """Whether the job's process must change to this user: False where the agent already is it."""

    def to_launch(self) -> dict[str, object] | None:
        """As in launch.json; None: stay who we are."""
        if not self.switch:
            return None
        return {"name": self.name, "uid": self.uid, "gid": self.gid, "groups": list(self.groups)}


def run_as(wanted: str | None, actor: Actor, jobs: JobsTable) -> RunAs:
    """Raises JobForbidden where the asker may not, JobRefused where there is no such user."""
    name = _allowed_name(wanted, actor)
    found = look_up(name)
    if os.geteuid() != 0 and found.uid != os.geteuid():
        raise JobForbidden(f"the agent runs as {_own_name()} and can run jobs only as that user, not as {name!r}")
    if found.uid == 0 and not jobs.allow_root:
        raise JobForbidden(
            "a job may not run as root here; name another user with --user, or set `allow_root = true` in [jobs] of agent.toml"
        )
    if jobs.users and found.name not in jobs.users:
        raise JobForbidden(f"jobs may not run as {found.name!r} here; `users` in [jobs] of agent.toml does not name them")
    return found


def look_up(name: str) -> RunAs:
    """Raises JobRefused where the node knows no such user."""
    try:
        entry = pwd.getpwnam(name)
    except (KeyError, ValueError):
        raise JobRefused(f"there is no user {name!r} on this node") from None
    switch = os.geteuid() == 0
    groups = os.getgrouplist(entry.pw_name, entry.pw_gid) if switch else os.getgroups()
    return RunAs(
        name=entry.pw_name,
        uid=entry.pw_uid,
        gid=entry.pw_gid,
        groups=tuple(groups),
        home=entry.pw_dir or "/",
        shell=entry.pw_shell or "/bin/sh",
        switch=switch,
    )


def _allowed_name(wanted: str | None, actor: Actor) -> str:
    if actor.user is not None:
        if wanted is not None and wanted != actor.user:
            raise JobForbidden(f"the token {actor.name!r} stands for the user {actor.user!r} and may not name {wanted!r}")
        return actor.user
    return wanted if wanted is not None else _own_name()


def _own_name() -> str:
    uid = os.geteuid()
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        raise JobRefused(f"the agent's own user {uid} has no name on this node, so that no job can run as it") from None
