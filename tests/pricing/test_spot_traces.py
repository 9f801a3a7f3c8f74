"""Recorded availability for policies: which number means available, windows and long traces, what is left out."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pricing.errors import HistoryError, SpotJobError
from pricing.spot import UNKNOWN, job_of
from pricing.spot_traces import polarity, read_traces, starts_of, states_of, tick_of

JOB = {"work_hours": 4, "deadline_hours": 6, "changeover_hours": 0.2, "on_demand": 3.06, "spot": 0.9731}
PUBLISHED = "data/real/ping_based/us-west-2a_k80_1.json"
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def make(name: str, data: list[Any], gap: object = 600, **other: object) -> Path:
        metadata = {"gap_seconds": gap} | other.pop("metadata", {})  # type: ignore[operator]
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"metadata": metadata, "data": data, **other}))
        return path

    return make


def test_a_trace_that_does_not_tell_which_number_is_available_is_asked_for(write: Write) -> None:
    path = write("a.json", [0, 1] * 30)
    with pytest.raises(SpotJobError, match=r"a\.json: does not tell whether 0 or 1 .* --available 1 .* --available 0"):
        read_traces([path])
    one, zero = (read_traces([path], available=told).traces[0].states for told in (1, 0))
    assert one[:2] == bytes((0, 1)) and zero[:2] == bytes((1, 0))


def test_published_traces_and_those_that_tell_need_no_asking(write: Write) -> None:
    published = write("w/p.json", [0, 0, 1], original_trace=PUBLISHED)
    assert read_traces([published]).traces[0].states == bytes((1, 1, 0))
    told = write("w/t.json", [0, 0, 1], metadata={"available": 1})
    assert read_traces([told]).traces[0].states == bytes((0, 0, 1))
    true = write("w/b.json", [True, False])
    assert read_traces([true]).traces[0].states == bytes((1, 0))
    assert polarity({"metadata": {"available": 7}, "data": []}) is None
    found = read_traces([published], available=1)
    assert found.traces[0].states == bytes((0, 0, 1)) and "0 for available" in found.notes[0]


def test_of_windows_for_several_changeovers_those_of_this_one_are_taken_once(write: Write, tmp_path: Path) -> None:
    for overhead in ("0.02", "0.20"):
        for folder in ("zone", "zone.json"):
            write(f"set/overhead={overhead}/{folder}/3.json", [0] * 40, original_trace=PUBLISHED, metadata={"start_time": 5})
            write(f"set/overhead={overhead}/{folder}/4.json", [0] * 40, original_trace=PUBLISHED, metadata={"start_time": 5})
    found = read_traces([tmp_path / "set"], changeover_hours=0.2)
    assert [one.file for one in found.traces] == ["overhead=0.20/zone/3.json", "overhead=0.20/zone/4.json"]
    archive = tmp_path / "set.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(tmp_path / "set", "set")
    assert len(read_traces([archive], changeover_hours=0.2).traces) == 2
    with pytest.raises(HistoryError, match=r"changeover of 0\.3 h, only for 0\.02, 0\.20 h"):
        read_traces([archive], changeover_hours=0.3)


def test_where_nothing_can_be_read_the_sentence_says_why(write: Write, tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match="no such file"):
        read_traces([tmp_path / "none"])
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(HistoryError, match="holds no availability trace.*is no JSON"):
        read_traces([tmp_path / "x.json"], available=1)
    (tmp_path / "y.json").write_text('{"prices": []}')
    with pytest.raises(HistoryError, match="no availability trace"):
        read_traces([tmp_path / "y.json"], available=1)


def test_a_window_is_run_from_its_first_tick_and_a_long_trace_is_cut_with_its_past(write: Write) -> None:
    job = job_of(**JOB)
    window = read_traces([write("w.json", [1] * 50)], available=1).traces
    worlds, notes = starts_of(window, job)
    assert worlds.states.shape == (1, 36) and worlds.history.shape == (1, 0) and not notes
    long = read_traces([write("l.json", ([1] * 7 + [0] * 5) * 20)], available=1).traces
    worlds, _ = starts_of(long, job, seed=3)
    assert worlds.states.shape == (300, 36)
    whole = np.frombuffer(long[0].states, np.uint8)
    row = int(np.argmax((worlds.history != UNKNOWN).sum(1)))
    known = worlds.history[row][worlds.history[row] != UNKNOWN]
    first = len(known)
    assert (whole[:first] == known).all() and (whole[first : first + 36] == worlds.states[row]).all()
    again, _ = starts_of(long, job, seed=3)
    other, _ = starts_of(long, job, seed=4)
    assert (again.states == worlds.states).all() and (other.states != worlds.states).any()
    assert starts_of(long, job, history_hours=0)[0].history.shape[1] == 0
    assert starts_of(window, job, starts=9)[0].states.shape == (9, 36)


def test_a_trace_that_is_shorter_than_the_deadline_says_so(write: Write) -> None:
    job, short = job_of(**JOB), write("short.json", [1] * 35)
    with pytest.raises(SpotJobError, match=r"short\.json: tells 5\.83 h, and the deadline is 6\.00 h"):
        starts_of(read_traces([short], available=1).traces, job)
    both = read_traces([short, write("good.json", [1] * 40)], available=1).traces
    worlds, notes = starts_of(both, job)
    assert len(worlds.states) == 1 and "1 of 2 traces are too short" in notes[0]


def test_traces_of_different_ticks_are_not_mixed(write: Write) -> None:
    found = read_traces([write("a.json", [1] * 40), write("b.json", [1] * 40, 195)], available=1).traces
    with pytest.raises(SpotJobError, match=r"b\.json: has ticks of 195 s, .*a\.json of 600 s"):
        tick_of(found)
    assert tick_of(found[:1]) == 600_000
    odd = read_traces([write("c.json", [1] * 40, 0.00025)], available=1).traces
    with pytest.raises(SpotJobError, match="no whole number of milliseconds"):
        tick_of(odd)


def test_a_bad_tick_is_unknown_and_told(write: Write) -> None:
    found = read_traces([write("a.json", [1, None, 7, "x", 0] * 10)], available=1)
    assert found.traces[0].states[:5] == bytes((1, UNKNOWN, UNKNOWN, UNKNOWN, 0))
    assert any("neither 0 nor 1" in str(one) for one in found.traps)


def test_for_fitting_windows_of_one_trace_come_together(write: Write, tmp_path: Path) -> None:
    for first in (0, 20):
        write(f"z/{first}.json", [0] * 30 + [1] * 10, original_trace=PUBLISHED, metadata={"start_time": first})
    (states, hours), *others = states_of(read_traces([tmp_path / "z"]).traces)
    assert len(states) == 60 and hours == pytest.approx(1 / 6) and not others
