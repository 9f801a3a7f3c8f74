"""The past of the plots over a restart: what was there comes back, and what is torn is no error."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from agent import wire
from agent.history import LEVELS, HistoryRing
from agent.history_file import NAME, HistoryFile, load, pack, unpack
from agent.history_level import ROW_BYTES, Kept, Level, LevelSpec

START = datetime(2026, 3, 1, 12, 0, tzinfo=timezone.utc)


def sample(second: float, watts: float | None = 100.0, uuid: str = "GPU-1") -> wire.Sample:
    gpu = wire.Gpu(index=0, uuid=uuid, state="ok", power_watts=watts, utilization_ratio=0.5)
    return wire.Sample(node="n1", sequence=1, taken_at=START + timedelta(seconds=second), gpus=(gpu,))


def ring(seconds: int = 3000, every: int = 1) -> HistoryRing:
    found = HistoryRing("n1")
    for second in range(0, seconds, every):
        found.add(sample(second, float(second)))
    return found


def test_a_restart_keeps_every_level(tmp_path: Path) -> None:
    before, after = ring(), HistoryRing("n1")
    HistoryFile(tmp_path / NAME, before).close()
    assert (tmp_path / NAME).stat().st_mode & 0o777 == 0o600
    assert load(tmp_path / NAME, after)
    assert after.history(900) == before.history(900) and len(after.history(900).gpus["GPU-1"]) == 900
    after.add(sample(3100, 7.0))
    points = after.history(3600).gpus["GPU-1"]
    assert points[-1].power_watts == 7 and points[0].power_watts == 4.5, "the minutes of the restart are a gap"
    assert len(after.history(86_400).gpus["GPU-1"]) >= 49


def test_what_is_torn_foreign_or_missing_is_no_history_and_no_error(tmp_path: Path) -> None:
    path, whole = tmp_path / NAME, pack(ring(200).kept())
    empty = HistoryRing("n1")
    assert not load(path, empty)
    for data in (b"", whole[:-1], whole[:7], b"PK" + whole, whole.replace(b"RRH1", b"RRH9"), bytes([whole[0]]) + whole[1:-3] + b"xyz"):
        path.write_bytes(data)
        assert not load(path, empty) and empty.history(60).gpus == {}
    path.write_bytes(pack([Kept(1.0, b"12345678", {"GPU-1": (b"", b"", b"", b"")})]))
    assert not load(path, empty), "columns of other lengths than the times"
    path.write_bytes(pack([Kept(1.0, b"\0" * 16, {})]))
    assert not load(path, empty), "times that do not grow"
    path.write_bytes(whole)
    assert load(path, empty) and len(empty.history(60).gpus["GPU-1"]) == 60


def test_a_file_that_cannot_be_written_is_said_once_and_ends_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / f".{NAME}.0a1b2c3d").write_bytes(b"of an agent that was killed while it wrote")
    (tmp_path / f".{NAME}.mine").touch()
    HistoryFile(tmp_path / NAME, ring(5)).close()
    assert sorted(one.name for one in tmp_path.iterdir()) == [f".{NAME}.mine", NAME]
    file = HistoryFile(tmp_path / "gone" / NAME, ring(5))
    file.close()
    file.close()
    assert capsys.readouterr().err.count("is not kept") == 1


def test_a_week_takes_seventy_five_kilobytes_a_gpu() -> None:
    assert sum(spec.rows for spec in LEVELS) * ROW_BYTES < 75_000
    assert [spec.reach_seconds for spec in LEVELS] == [900, 3600, 86_400, 604_800]
    full = Level(LevelSpec(600, 1008))
    for place in range(2000):
        full.append(place * 600.0, {"GPU-1": (0.5, 1.0, 2.0, 3.0)})
    kept = full.kept()
    assert len(kept.times) == 8 * 1008 and sum(map(len, kept.columns["GPU-1"])) == ROW_BYTES * 1008
    assert unpack(pack([kept])) == [kept]


def test_each_span_has_its_step() -> None:
    found = ring(86_400, every=30)
    steps = {seconds: found.history(seconds).step_seconds for seconds in (60, 900, 901, 3600, 21_600, 86_400, 86_401, 604_800)}
    assert steps == {60: 1, 900: 1, 901: 10, 3600: 10, 21_600: 60, 86_400: 60, 86_401: 600, 604_800: 600}
    week = found.history(604_800).gpus["GPU-1"]
    assert len(week) == 144 and week[0].power_watts == pytest.approx(285), "the mean of ten minutes"


def test_a_clock_that_jumps_back_far_drops_the_past_only_when_it_insists() -> None:
    level = Level(LevelSpec(60, 100))
    for place in range(100):
        level.append(1_000_000 + place * 60.0, {"GPU-1": (0.5, 1.0, 2.0, 3.0)})
    for place in range(10):
        level.append(place * 60.0, {"GPU-1": (0.1, 1.0, 2.0, 3.0)})
    assert len(level) == 100 and level.newest == 1_000_000 + 99 * 60, "ten rows from 1970 are left out"
    level.append(1_000_000 + 100 * 60.0, {"GPU-1": (0.5, 1.0, 2.0, 3.0)})
    assert len(level) == 100
    for place in range(11):
        level.append(place * 60.0, {"GPU-1": (0.1, 1.0, 2.0, 3.0)})
    assert len(level) == 1 and level.newest == 600.0, "the eleventh is believed"


def test_a_level_is_filled_with_what_is_known_better() -> None:
    found = HistoryRing("n1")
    for second in range(0, 120, 60):
        found.add(sample(second, 1.0))
    at = START.timestamp()
    found.refill(1, [(at - 60 + second, {"GPU-1": (0.5, 1.0, 42.0, 3.0)}) for second in range(60)])
    points = found.history(200).gpus["GPU-1"]
    assert [point.power_watts for point in points] == [42.0] * 60 + [1.0, 1.0]
    found.refill(7, [])
    assert len(found.history(200).gpus["GPU-1"]) == 62, "a step that is not kept changes nothing"
