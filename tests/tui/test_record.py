"""A recording tells of each moment what the fleet knew then, and its file is hard to break."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent import wire
from tests.support.fleets import AT, alert
from tests.support.jobs import ended, job, notice, queued
from tests.support.recording import START_MS, Stage, told
from tui.errors import Failed
from tui.fleet import Fleet
from tui.record import prune
from tui.record_file import APPLICATION_ID, RecordFile
from tui.replay import Recording
from tui.replay_events import apply


def played(stage: Stage) -> dict[float, dict[str, Any]]:
    """A minute and a half in which everything happens; what the fleet knew at some moments."""
    known: dict[float, dict[str, Any]] = {}

    def keep() -> None:
        known[stage.seconds] = told(stage.fleet, stage.seconds)
        stage.seconds += 0.5
        stage.write()

    stage.seconds = 0.3
    stage.connect("gpu-01", wire.AlertEvent(alert=alert("gpu-01")), wire.JobEvent(job=job(1)), wire.JobEvent(job=queued(2)))
    stage.run(7)
    keep()
    stage.connect("gpu-02", wire.NoticeEvent(notice=notice()))
    stage.tell("gpu-01", wire.JobEvent(job=ended(1, "oom")), wire.JobEvent(job=job(2)))
    stage.run(3)
    keep()
    over = msgspec.structs.replace(alert("gpu-01"), ended_at=AT)
    stage.tell("gpu-01", wire.AlertEvent(alert=over), wire.AlertEvent(alert=alert("gpu-01", key="gpu_hot/x", rule="gpu_hot")))
    stage.tell("gpu-02", wire.NoticeEvent(notice=notice(ended_at=AT)))
    stage.run(52)
    keep()
    stage.fleet.failed("gpu-02", "the connection was refused")
    stage.seconds += 20
    stage.sample("gpu-01")
    keep()
    stage.connect("gpu-01", wire.JobEvent(job=job(3)))  # it tells neither of the alert nor of job 2 any more
    stage.run(2)
    keep()
    stage.fleet.seed_jobs("gpu-01", wire.JobList(node="gpu-01", jobs=(job(3), ended(7), ended(6))), stage.seconds)
    stage.run(1)
    keep()
    return known


def _played() -> Stage:
    stage = Stage(None)
    played(stage)
    stage.write()
    return stage


PLAYED = _played()


def test_each_moment_is_told_as_the_fleet_knew_it_then() -> None:
    stage = Stage(None)
    known = played(stage)
    recording = stage.recording()
    for seconds, expected in known.items():
        fleet = recording.fleet(START_MS + round(seconds * 1000), 5000.0)
        assert told(fleet, 5000.0) == expected, seconds
    assert recording.damage == []


def test_going_on_from_any_moment_leads_to_the_same_as_jumping() -> None:
    stage = Stage(None)
    known = played(stage)
    recording = stage.recording()
    moments = sorted(known)
    for before, after in [*zip(moments, moments[1:], strict=False), (moments[0], moments[-1])]:
        fleet = recording.fleet(START_MS + round(before * 1000), before)
        for happened in recording.between(START_MS + round(before * 1000), START_MS + round(after * 1000)):
            apply(fleet, happened, (happened.at_ms - START_MS) / 1000)
        assert told(fleet, after) == known[after], (before, after)


@given(st.lists(st.integers(0, 1650), min_size=1, max_size=8))
@settings(max_examples=15)
def test_a_moment_is_the_same_whichever_was_looked_at_before(tenths: list[int]) -> None:
    used = Recording(PLAYED.file)
    for tenth in tenths:
        at_ms = START_MS + tenth * 100
        assert told(used.fleet(at_ms, 9.0), 9.0) == told(Recording(PLAYED.file).fleet(at_ms, 9.0), 9.0), tenth
        assert used.between(at_ms, at_ms + 7_000) == Recording(PLAYED.file).between(at_ms, at_ms + 7_000)


def test_a_moment_goes_on_where_a_recorder_still_writes_within_the_tick_of_what_it_wrote() -> None:
    stage = Stage(None)
    stage.connect("gpu-01")
    recording = stage.recording()
    for _ in range(4):
        stage.run(3)
        stage.seconds += 0.74
        stage.write()
        recording.look_again()
        recording.fleet(recording.ends_ms, 9.0)
        stage.seconds += 0.01
        stage.sample("gpu-01", 0.9)
        stage.write()
        recording.look_again()
        fleet = recording.fleet(recording.ends_ms, 9.0)
        assert fleet["gpu-01"].gpus[0].utilization_ratio == 0.9 and told(fleet, 0)["gpu-01"][-1] == told(stage.fleet, 0)["gpu-01"][-1]


def test_a_large_fleet_begins_segments_more_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tui.record.MOST_CHANGES", 40)
    stage = Stage(None)
    known = played(stage)
    recording = stage.recording()
    assert len(recording._streams.segments) > 3
    for seconds, expected in known.items():
        assert told(recording.fleet(START_MS + round(seconds * 1000), 5000.0), 5000.0) == expected, seconds


def test_before_anything_was_heard_the_nodes_are_connecting() -> None:
    stage = Stage(None)
    played(stage)
    fleet = stage.recording().fleet(START_MS + 100, 9.0)
    assert [view.state(9.0) for view in fleet] == ["connecting"] * 2


def test_the_minutes_before_a_moment_are_in_its_plots_and_histories() -> None:
    stage = Stage(None, ("gpu-01",))
    stage.connect("gpu-01")
    stage.run(150)
    recording, at_ms = stage.recording(), START_MS + 140_000
    past = recording.fleet(at_ms, 0.0)["gpu-01"].past.values("GPU-gpu-01-0")
    assert len(past) >= 139 and past[-3:] == [0.38, 0.39, 0.4]
    history = recording.history("gpu-01", at_ms, 60)
    points = history.gpus["GPU-gpu-01-0"]
    assert len(points) == 60 and points[-1].utilization_ratio == 0.4 and points[-1].taken_at == AT + timedelta(seconds=140)
    long = recording.history("gpu-01", at_ms, 86_400)
    assert long.step_seconds == 60 and 2 <= len(long.gpus["GPU-gpu-01-0"]) <= 3


def test_what_is_kept_less_often_is_as_fresh_as_it_was() -> None:
    every_second, every_ten = Stage(None), Stage(None, every=10)
    for stage in (every_second, every_ten):
        stage.connect("gpu-01")
        stage.run(33)
    fleet = every_ten.recording().fleet(START_MS + 33_000, 100.0)
    view = fleet["gpu-01"]
    assert view.sample is not None and view.age_seconds(100.0) == pytest.approx(0, abs=0.2)
    assert view.sample.taken_at >= AT + timedelta(seconds=24)
    assert every_ten.file.size_bytes <= every_second.file.size_bytes


def test_the_oldest_is_dropped_and_what_was_still_so_stays() -> None:
    stage = Stage(None)
    known = played(stage)
    stage.run(130)
    last = stage.seconds
    assert prune(stage.file, START_MS + round(last * 1000) - 30_000) > 0
    recording = stage.recording()
    assert recording.starts_ms > START_MS
    fleet = recording.fleet(START_MS + round(last * 1000), last)
    assert told(fleet, last) == told(stage.fleet, last)
    assert [one.job.id for one in fleet["gpu-01"].jobs][0] == job(3).id
    assert stage.file.rows("SELECT COUNT(*) FROM events WHERE body IS NULL")[0][0] == 0
    assert min(known) * 1000 + START_MS < recording.starts_ms


def test_a_recorder_that_goes_on_begins_anew_and_both_times_can_be_seen(tmp_path: Path) -> None:
    path = tmp_path / "fleet.rec"
    first = Stage(path)
    first.connect("gpu-01", wire.JobEvent(job=job(1)))
    first.run(5)
    first.file.close()
    second = Stage(path, ("gpu-01", "gpu-03"), seconds=100)
    second.connect("gpu-03")
    second.run(3)
    recording = second.recording()
    then, now = recording.fleet(START_MS + 5000, 0.0), recording.fleet(START_MS + 103_000, 0.0)
    assert [view.name for view in then] == ["gpu-01", "gpu-02"] and len(then["gpu-01"].jobs) == 1
    assert [view.name for view in now] == ["gpu-01", "gpu-03"] and len(now["gpu-01"].jobs) == 0
    second.file.close()
    with pytest.raises(Failed, match="by this machine's clock"):
        Stage(path, seconds=50)


def test_no_password_and_no_token_is_in_the_file(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "a.rec")
    stage.connect("gpu-01")
    assert stage.recording().nodes(START_MS)[0].url == "https://gpu-01:9477"
    stage.file.close()
    content = (tmp_path / "a.rec").read_bytes()
    assert b"hunter2" not in content and b"secret.token" not in content
    assert (tmp_path / "a.rec").stat().st_mode & 0o077 == 0


def test_a_second_recorder_on_the_same_file_is_refused_and_readers_are_not(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "a.rec")
    stage.connect("gpu-01")
    stage.write()
    with pytest.raises(Failed, match="another program records into this file"):
        RecordFile.write(tmp_path / "a.rec")
    with RecordFile.read(tmp_path / "a.rec") as file:
        assert Recording(file).fleet(START_MS + 500, 0.0)["gpu-01"].sample is not None
    stage.file.close()
    RecordFile.write(tmp_path / "a.rec").close()


def _newer(path: Path) -> None:
    Stage(path).file.close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
        connection.execute("UPDATE meta SET value = 'rackrate 9.9'")
    connection.close()


def _foreign(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE dog (name)")
    connection.close()


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (_newer, "written by rackrate 9.9 (format 99)"),
        (_foreign, "another program's file, not a recording; it was not touched"),
        (lambda path: path.write_bytes(b"no database at all" * 100), "this is no recording, or it is damaged"),
        (lambda path: path.write_bytes(b""), "this file is empty"),
        (lambda path: None, "there is no such file"),
        (lambda path: path.mkdir(), "there is no such file"),
    ],
)
def test_what_is_no_recording_is_a_sentence(tmp_path: Path, make: Callable[[Path], Any], sentence: str) -> None:
    path = tmp_path / "x.rec"
    make(path)
    with pytest.raises(Failed) as caught:
        RecordFile.read(path)
    assert sentence in str(caught.value) and str(path) in str(caught.value)


def test_of_a_garbled_or_cut_file_the_rest_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "a.rec"
    stage = Stage(path)
    stage.connect("gpu-01")
    stage.run(200)
    stage.write()
    stage.file.close()
    with sqlite3.connect(path) as connection:
        segments = [one for (one,) in connection.execute("SELECT DISTINCT segment_ms FROM chunks ORDER BY 1")]
        connection.execute("UPDATE chunks SET body = ? WHERE segment_ms = ? AND number = 3", (b"\xff" * 40, segments[1]))
    connection.close()
    with RecordFile.read(path) as file:
        recording = Recording(file)
        for segment, seconds in ((segments[0], 30), (segments[1], 10), (segments[2], 30)):
            assert recording.fleet(segment + seconds * 1000, 0.0)["gpu-01"].sample is not None, segment
        assert any("is damaged" in one for one in recording.damage)
    whole = path.read_bytes()
    seen = 0
    for part in (0.3, 0.6, 0.9):
        path.write_bytes(whole[: int(len(whole) * part)])
        try:
            with RecordFile.read(path) as file:
                recording = Recording(file)
                fleet: Fleet = recording.fleet(recording.ends_ms, 0.0)
                seen += sum(view.sample is not None for view in fleet)
        except Failed as error:
            assert "damaged" in str(error) or "can be read" in str(error)
    assert seen >= 0


def test_a_full_disk_is_a_sentence_and_what_was_written_stays(tmp_path: Path) -> None:
    path = tmp_path / "a.rec"
    stage = Stage(path)
    stage.connect("gpu-01")
    stage.run(20)
    stage.write()
    pages = stage.file.rows("PRAGMA page_count")[0][0]
    stage.file.rows(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(Failed, match="the disk is full. What was recorded until now is whole"):
        stage.run(4000)
    stage.file.close()
    with RecordFile.read(path) as file:
        recording = Recording(file)
        assert recording.fleet(recording.ends_ms, 0.0)["gpu-01"].state(0.0) == "live" and recording.damage == []
        assert file.rows("PRAGMA integrity_check") == [("ok",)] and file.rows("PRAGMA application_id") == [(APPLICATION_ID,)]


def test_what_a_killed_recorder_had_half_written_is_taken_back_by_whoever_reads(tmp_path: Path) -> None:
    path, killed = tmp_path / "a.rec", tmp_path / "killed.rec"
    stage = Stage(path)
    stage.connect("gpu-01")
    stage.run(20)
    stage.write()
    with pytest.raises(ZeroDivisionError), stage.file.writing() as connection:
        connection.execute("PRAGMA cache_size = 2")  # so that pages reach the disk before the end
        connection.execute("DELETE FROM chunks")
        connection.executemany("INSERT INTO chunks VALUES (5, ?, 6, ?)", [(number, bytes(3000)) for number in range(100)])
        for end in ("", "-journal"):
            Path(f"{killed}{end}").write_bytes(Path(f"{path}{end}").read_bytes())
        raise ZeroDivisionError
    with RecordFile.read(killed) as file:
        recording = Recording(file)
        assert recording.fleet(recording.ends_ms, 0.0)["gpu-01"].state(0.0) == "live" and recording.damage == []


def test_where_the_clock_is_set_back_the_moments_go_on() -> None:
    stage = Stage(None)
    stage.connect("gpu-01")
    stage.run(90)
    before = stage.now_ms()
    stage.seconds -= 3600
    stage.run(90)
    recording = stage.recording()
    assert before + 88_000 <= recording.ends_ms <= before + 92_000 and recording.starts_ms == stage.began_ms
    for at_ms in (before - 30_000, before + 30_000, recording.ends_ms):
        assert recording.fleet(at_ms, 0.0)["gpu-01"].state(0.0) == "live"
    stage.seconds += 7200
    stage.run(2)
    assert stage.recording().ends_ms == stage.now_ms(), "a clock that is ahead again counts"


def test_of_two_batches_that_are_written_at_once_none_is_garbled() -> None:
    stage = Stage(None)
    stage.connect("gpu-01")
    batches = []
    for _ in range(12):
        stage.run(1, write_every=100)
        batches.append(stage.recorder.take())
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(stage.writer.write, batches))
    recording = stage.recording()
    assert stage.file.rows("SELECT COUNT(*) FROM chunks")[0][0] >= 12 and recording.damage == []
    for at_ms in range(recording.starts_ms, recording.ends_ms, 1000):
        recording.fleet(at_ms, 0.0)
    assert recording.damage == []


def test_the_end_of_an_alert_is_told_however_many_jobs_ended_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tui.record.MOST_KNOWN", 20)
    stage = Stage(None)
    stage.connect("gpu-01", wire.AlertEvent(alert=alert("gpu-01")))
    stage.tell("gpu-01", *(wire.JobEvent(job=ended(number, "oom")) for number in range(1, 60)))
    assert len(stage.recorder._known) <= 20
    stage.seconds = 9.0
    stage.tell("gpu-01", wire.AlertEvent(alert=msgspec.structs.replace(alert("gpu-01"), ended_at=AT)))
    recording = stage.recording()
    assert recording.fleet(START_MS + 8000, 0.0)["gpu-01"].alerts and not recording.fleet(recording.ends_ms, 0.0)["gpu-01"].alerts


def test_damage_is_told_once_however_often_it_is_met(tmp_path: Path) -> None:
    stage = Stage(None)
    stage.connect("gpu-01")
    stage.run(30)
    recording = stage.recording()
    with stage.file.writing() as connection:
        connection.execute("UPDATE chunks SET body = x'ffffffffffff' WHERE number = 3")
        connection.execute("UPDATE events SET body = x'00'")
    for at_ms in range(recording.starts_ms, recording.ends_ms, 3000):
        recording.fleet(at_ms, 0.0)
        recording.between(at_ms, at_ms + 3000)
    assert 1 <= len(recording.damage) == len(set(recording.damage)) <= 4


def test_links_and_ancestors_that_were_told_once_are_known_at_each_moment_after() -> None:
    stage = Stage(None)
    stage.connect("gpu-01")
    stage.run(3)
    one = stage.fleet["gpu-01"].gpus[0]
    linked = msgspec.structs.replace(one, links_at=AT + timedelta(seconds=3), nvlinks=18, nvlinks_down=(3,), pcie_receive_bytes_per_second=1e9)
    above = wire.Ancestor(pid=7, user="ada", command="torchrun")
    told_whole = msgspec.structs.replace(stage.fleet["gpu-01"].sample, gpus=(linked, *stage.fleet["gpu-01"].gpus[1:]), ancestors=(above,))
    stage.tell("gpu-01", wire.SampleEvent(sample=told_whole))
    stage.run(80)
    recording = stage.recording()
    for at_ms in (START_MS + 5000, START_MS + 50_000, recording.ends_ms):
        links = recording.fleet(at_ms, 0.0)["gpu-01"].links
        assert links.ancestors == (above,)
        found = links.by_uuid[one.uuid]
        assert (found.at, found.nvlinks, found.nvlinks_down) == (AT + timedelta(seconds=3), 18, (3,))
        assert abs((found.pcie_receive or 0) / 1e9 - 1) < 0.02
    assert one.uuid not in recording.fleet(START_MS + 2000, 0.0)["gpu-01"].links.by_uuid
