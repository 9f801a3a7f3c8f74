"""The past of a node for plots: what an agent answered, what its stream brings, and the columns of a curve."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent import wire
from tui.node_history import SPANS, Track, curve, window

AT = datetime(2026, 11, 30, 14, 0, tzinfo=UTC)


def sample(second: float, *values: float | None) -> wire.Sample:
    gpus = tuple(
        wire.Gpu(index=n, uuid=f"G{n}", state="ok", utilization_ratio=value, power_watts=None if value is None else value * 100)
        for n, value in enumerate(values)
    )
    return wire.Sample(node="n", sequence=1, taken_at=AT + timedelta(seconds=second), gpus=gpus)


def history(step: float, **gpus: list[float | None]) -> wire.History:
    points = {
        uuid: tuple(
            wire.HistoryPoint(taken_at=AT + timedelta(seconds=step * place), utilization_ratio=value, temperature_celsius=50.0)
            for place, value in enumerate(values)
        )
        for uuid, values in gpus.items()
    }
    return wire.History(node="n", step_seconds=step, gpus=points)


def test_an_answer_goes_on_with_the_stream_without_a_point_twice() -> None:
    track = Track.of(history(1.0, G0=[0.1, 0.2, 0.3]))
    assert not track.add(sample(2, 0.9)), "the newest sample is in the answer already"
    assert track.add(sample(3, 0.4)) and track.add(sample(4, None))
    assert track.values("G0", "utilization") == [0.1, 0.2, 0.3, 0.4, None] and track.values("nobody", "power") == []
    assert track.values("G0", "temperature") == [50.0, 50.0, 50.0, None, None]


def test_a_gpu_that_comes_later_has_a_gap_before_and_one_that_goes_a_gap_after() -> None:
    track = Track.of(history(1.0, G0=[0.1]))
    track.add(sample(1, 0.2, 0.7))
    track.add(wire.Sample(node="n", sequence=1, taken_at=AT + timedelta(seconds=2), gpus=()))
    assert track.values("G0", "utilization") == [0.1, 0.2, None] and track.values("G1", "utilization") == [None, 0.7, None]


def test_time_that_jumps_back_cuts_what_came_after() -> None:
    track = Track.of(history(1.0, G0=[0.1, 0.2, 0.3, 0.4]))
    track.add(sample(1.5, 0.9))
    assert track.values("G0", "utilization") == [0.1, 0.2, 0.9] and track.newest == AT.timestamp() + 1.5


def test_a_track_is_trimmed_and_shorter_answers_are_padded_in_front() -> None:
    track = Track.of(history(1.0, G0=[0.5] * 500, G1=[0.25]))
    assert track.values("G1", "utilization")[-2:] == [None, 0.25]
    track.trim(60)
    assert 60 <= len(track.times) <= 65 and len(track.values("G0", "utilization")) == len(track.times)


def test_all_gpus_together_are_mean_sum_and_highest_and_an_unknown_part_makes_no_sum() -> None:
    track = Track()
    track.add(sample(0, 0.25, 0.75))
    track.add(sample(1, 0.25, None))
    track.add(sample(2, None, None))
    assert track.together(("G0", "G1"), "utilization") == [0.5, 0.25, None]
    assert track.together(("G0", "G1"), "power") == [100.0, None, None]
    assert track.together(("G0", "G1"), "temperature") == [None, None, None]


def test_a_gap_stays_a_gap_and_counts_in_no_mean() -> None:
    times, values = [0.0, 1.0, 2.0, 7.0, 8.0, 9.0], [1.0, 1.0, 1.0, 0.0, 0.0, 0.0]
    found = curve(times, values, 1.0, 0.0, 10.0, 10)
    assert found.columns == [1.0, 1.0, 1.0, 1.0, None, None, None, 0.0, 0.0, 0.0], "a sample holds a second longer, no more"
    assert found.mean == pytest.approx(4 / 7) and found.highest == 1.0 and found.known_ratio == pytest.approx(0.7)
    nothing = curve([], [], 1.0, 0.0, 10.0, 5)
    assert nothing.columns == [None] * 5 and nothing.mean is None and nothing.known_ratio == 0


def test_a_point_of_ten_minutes_fills_all_its_columns() -> None:
    found = curve([0.0, 600.0], [0.5, 1.0], 600.0, 0.0, 1200.0, 12)
    assert found.columns == [0.5] * 6 + [1.0] * 6 and found.mean == 0.75


@given(st.lists(st.tuples(st.floats(0, 1000), st.one_of(st.none(), st.floats(0, 1))), max_size=60), st.integers(1, 80))
def test_columns_never_leave_the_range_of_what_was_read(points: list[tuple[float, float | None]], count: int) -> None:
    points = sorted({at: value for at, value in points}.items())  # type: ignore[assignment]
    found = curve([at for at, _ in points], [value for _, value in points], 1.0, 100.0, 900.0, count)
    known = [value for value in found.columns if value is not None]
    assert len(found.columns) == count and all(-1e-9 <= value <= 1 + 1e-9 for value in known)
    assert found.highest is None or max(known, default=0) <= found.highest + 1e-9
    assert 0 <= found.known_ratio <= 1


@given(st.floats(1e9, 2e9), st.sampled_from(SPANS), st.integers(10, 400))
def test_a_plot_moves_by_whole_columns_and_ends_with_the_newest(newest: float, span: object, columns: int) -> None:
    start, end = window(newest, span, columns)  # type: ignore[arg-type]
    width = (end - start) / columns
    assert newest <= end + 1e-6 and end - newest <= width + 1e-6
    assert window(newest + width / 1000, span, columns)[1] in (end, pytest.approx(end + width))  # type: ignore[arg-type]


def test_what_was_drawn_is_kept_until_a_quarter_of_a_column_has_come_or_time_moved() -> None:
    track = Track()
    for second in range(100):
        track.add(sample(second, 0.5))
    start = AT.timestamp()
    drawn = track.curve(("G0",), "utilization", start, start + 160, 4)
    track.add(sample(105, 1.0))
    assert track.curve(("G0",), "utilization", start, start + 160, 4) is drawn
    track.add(sample(112, 1.0))
    assert track.curve(("G0",), "utilization", start, start + 160, 4) is not drawn
    assert track.curve(("G0",), "utilization", start + 40, start + 200, 4).columns[:2] != drawn.columns[:2]


def test_sums_grow_with_the_track_and_begin_anew_when_time_jumps_back() -> None:
    track = Track()
    for second in range(5):
        track.add(sample(second, 0.25, 0.75))
    both = ("G0", "G1")
    assert track.together(both, "power") == [100.0] * 5
    track.add(sample(5, 0.5, 0.5, 0.9))
    track.add(sample(2, 1.0, 1.0))
    assert track.together(both, "power") == [100.0, 100.0, 200.0]
    track.trim(0.4)
    assert track.together(both, "power")[-1] == 200.0 and len(track.together(both, "power")) == len(track.times)
