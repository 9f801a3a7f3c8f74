"""Who works on the fleet: users, their projects, and when in the week they are at work.

Invariant: activity depends on the hour of the (UTC) week only, so it repeats exactly every seven days.
"""

from __future__ import annotations

import msgspec

HOUR = 3600.0
DAY = 24 * HOUR
WEEK = 7 * DAY
MONDAY = 4 * DAY
"""1970-01-01 was a Thursday: the first Monday began four days later (seconds since the epoch)."""


class User(msgspec.Struct, frozen=True, kw_only=True):
    """One person. `utc_offset_hours` places the office day; `night_owl` works late; weights are relative."""

    name: str
    project: str
    utc_offset_hours: int = 1
    night_owl: bool = False
    weight: float = 1.0
    train: float = 1.0
    sweep: float = 0.5
    evaluate: float = 0.5
    notebook: float = 0.5
    serve: float = 0.0


USERS: tuple[User, ...] = (
    User(name="mira", project="llm", train=3.0, notebook=0.2, weight=1.4),
    User(name="tomas", project="llm", train=2.0, evaluate=1.2, night_owl=True),
    User(name="aisha", project="vision", train=1.5, sweep=1.5),
    User(name="jonas", project="vision", notebook=2.0, train=0.7, utc_offset_hours=0),
    User(name="chen", project="speech", train=1.5, sweep=1.0, utc_offset_hours=-5),
    User(name="priya", project="speech", notebook=1.2, evaluate=1.0, utc_offset_hours=2),
    User(name="lukas", project="serving", serve=3.0, train=0.3, notebook=0.3),
    User(name="sofia", project="serving", serve=2.0, train=0.3, evaluate=1.0, utc_offset_hours=-4),
)

PROJECTS: dict[str, str] = {user.name: user.project for user in USERS}
"""user -> project, as an agent's configuration would say it."""


def hour_of_week(seconds: float, utc_offset_hours: int = 0) -> int:
    """0-167, Monday 00:00 local = 0; `seconds` since the epoch."""
    return int((seconds - MONDAY + utc_offset_hours * HOUR) // HOUR) % 168


def _activity(user: User, week_hour: int) -> float:
    local = (week_hour + user.utc_offset_hours) % 168
    day, hour = divmod(local, 24)
    shift = 4 if user.night_owl else 0
    clock = (hour - shift) % 24
    level = 1.0 if 9 <= clock < 18 else 0.45 if 18 <= clock < 22 else 0.08
    lunch = 0.6 if clock == 12 else 1.0
    return level * lunch * (0.18 if day >= 5 else 1.0)


ACTIVITY: dict[str, tuple[float, ...]] = {
    user.name: tuple(_activity(user, hour) for hour in range(168)) for user in USERS
}
"""user -> 168 hourly levels, 0-1, Monday 00:00 UTC first."""

DEMAND: tuple[float, ...] = tuple(
    sum(ACTIVITY[user.name][hour] * user.weight for user in USERS) / sum(user.weight for user in USERS)
    for hour in range(168)
)
"""How likely anybody starts something, 0-1, by UTC hour of the week."""
