"""What to run: launch.json, checked; and orders to stop: stop.json.

Invariant: after `read_launch` nothing of a job's text can fail in the child for its form; a broken order is no order.
"""

from __future__ import annotations

import json
import math

TYPE_CHECKING = False  # the module `typing` would cost a tenth of the shim's memory
if TYPE_CHECKING:
    from typing import Any

VERSION = 1
_LAST_SIGNAL = 64


class StartError(Exception):
    """The job cannot be started; `str()` is the sentence for the exit record."""


class User:
    """Who the job runs as."""

    __slots__ = ("name", "uid", "gid", "groups")

    def __init__(self, name: str, uid: int, gid: int, groups: list[int]) -> None:
        self.name, self.uid, self.gid, self.groups = name, uid, gid, groups


class Launch:
    """launch.json; texts for the kernel are bytes already."""

    __slots__ = (
        "job", "attempt", "unit", "argv", "environment", "directory", "user", "umask", "no_new_privileges", "group",
        "stop_signal", "grace_seconds", "kill_wait_seconds", "before_kill", "time_limit_seconds",
        "rotate_bytes", "quota_bytes", "free_floor_bytes",
    )  # fmt: skip

    def __init__(self, given: dict[str, Any]) -> None:
        self.job, self.attempt, self.unit = str(given["job"]), int(given["attempt"]), str(given["unit"])
        self.argv = [_text(item) for item in given["argv"]]
        self.environment = _environment(given["environment"])
        self.directory = _text(given["directory"])
        user = given.get("user")
        self.user = user and User(str(user["name"]), int(user["uid"]), int(user["gid"]), list(map(int, user["groups"])))
        self.umask, self.no_new_privileges = int(given["umask"]), bool(given["no_new_privs"])
        self.group: dict[str, Any] = given["group"]
        self._stop(given["stop"])
        limit = given.get("time_limit_seconds")
        self.time_limit_seconds = None if limit is None else float(limit)
        log = given["log"]
        self.rotate_bytes, self.quota_bytes = int(log["rotate_bytes"]), int(log["quota_bytes"])
        self.free_floor_bytes = int(log["free_floor_bytes"])
        if not self.argv or not self.argv[0]:
            raise ValueError("argv is empty")

    def _stop(self, given: dict[str, Any]) -> None:
        self.stop_signal = _signal(given["signal"])
        self.grace_seconds, self.kill_wait_seconds = float(given["grace_seconds"]), float(given["kill_wait_seconds"])
        self.before_kill = [
            ([_text(part) for part in item["argv"]], _environment(item.get("environment") or {}), float(item["seconds"]))
            for item in given.get("before_kill") or ()
        ]


class Order:
    """A wish to stop."""

    __slots__ = ("cause", "signal", "grace_seconds")

    def __init__(self, cause: str, signal: int, grace_seconds: float) -> None:
        self.cause, self.signal, self.grace_seconds = cause, signal, grace_seconds


def read_launch(data: bytes | None) -> Launch:
    """Raises StartError."""
    if data is None:
        raise StartError("launch.json is not there, so the job's process does not know what to run")
    try:
        given = json.loads(data)
        if given["version"] != VERSION:
            raise StartError(f"launch.json is of version {given['version']}, and the job's process knows {VERSION}")
        return Launch(given)
    except StartError:
        raise
    except KeyError as error:
        raise StartError(f"launch.json lacks the key {error}") from None
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise StartError(f"launch.json cannot be used ({error})") from None


def read_order(data: bytes | None) -> Order | None:
    """The order in stop.json, or None where there is none that can be read."""
    if not data:
        return None
    try:
        given = json.loads(data)
        grace = float(given["grace_seconds"])
        if math.isnan(grace):
            return None
        return Order(str(given["cause"]), _signal(given["signal"]), max(0.0, grace))
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def signal_in(word: bytes) -> int | None:
    """The number in a `signal N` line, or None."""
    try:
        return _signal(int(word))
    except ValueError:
        return None


def _signal(given: object) -> int:
    if not isinstance(given, int) or not 1 <= given <= _LAST_SIGNAL:
        raise ValueError(f"{given!r} is not the number of a signal")
    return given


def _environment(given: dict[str, str]) -> dict[bytes, bytes]:
    environment = {_text(name): _text(value) for name, value in given.items()}
    if any(not name or b"=" in name for name in environment):
        raise ValueError("a name in the environment is empty or has an = in it")
    return environment


def _text(given: object) -> bytes:
    if not isinstance(given, str):
        raise TypeError(f"{given!r} is not a text")
    data = given.encode("utf-8", "surrogateescape")
    if b"\0" in data:
        raise ValueError(f"{given!r} has a zero byte in it")
    return data
