"""How a moment is written, and which ones are refused."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from zoneinfo import ZoneInfo

import pytest

from tui.errors import WrongUsage
from tui.replay_time import milliseconds, moment, when

BERLIN = ZoneInfo("Europe/Berlin")
FIRST, LAST = datetime(2026, 11, 29, 20, 0, tzinfo=UTC), datetime(2026, 11, 30, 13, 5, 10, tzinfo=UTC)
SPAN = SimpleNamespace(starts_ms=milliseconds(FIRST), ends_ms=milliseconds(LAST))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (None, "2026-11-30T13:05:10"),
        ("-2h", "2026-11-30T11:05:10"),
        ("@-1h30m", "2026-11-30T11:35:10"),
        ("+5m", "2026-11-29T20:05:00"),
        ("14:05", "2026-11-30T13:05:00"),
        ("14:05:09", "2026-11-30T13:05:09"),
        ("23:30", "2026-11-29T22:30:00"),
        ("2026-11-30T02:00", "2026-11-30T01:00:00"),
        ("2026-11-30T02:00Z", "2026-11-30T02:00:00"),
        ("2026-11-30 02:00:03+02:00", "2026-11-30T00:00:03"),
    ],
)
def test_a_moment_is_read_in_the_readers_zone(text: str | None, found: str) -> None:
    assert moment(when(text, SPAN, BERLIN)) == datetime.fromisoformat(found).replace(tzinfo=UTC)


@pytest.mark.parametrize("text", ["-999999999d", "+999999999d", "0001-01-01T00:00", "9999-12-31T23:59-14:00"])
def test_what_no_calendar_holds_is_a_sentence(text: str) -> None:
    with pytest.raises(WrongUsage, match="outside the calendar|the recording goes from"):
        when(text, SPAN, BERLIN)


@pytest.mark.parametrize("text", ["", "noon", "25:00", "14:61", "-2x", "-", "2026-13-01T00:00", "-40h", "2027-01-01T00:00", "1:2:3:4"])
def test_what_is_no_moment_of_the_recording_is_a_sentence(text: str) -> None:
    with pytest.raises(WrongUsage) as caught:
        when(text, SPAN, BERLIN)
    assert "write it as" in str(caught.value) or "the recording goes from 2026-11-29 21:00:00 to 2026-11-30 14:05:10" in str(caught.value)
