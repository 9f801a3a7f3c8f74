"""Hourly demand: what a file tells is read exactly, what it leaves open is refused with its place; traces become series."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from pricing.demand_series import Fill, Series, hour_name, hourly, openb_series, philly_series, read_series
from pricing.errors import SeriesError
from pricing.traces import OPENB_START, Job, openb_pods, philly_jobs
from pricing.usage import WHOLE_SHARE

DATA = Path(__file__).parents[3] / "shared" / "data" / "usage"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the traces are not here: ../shared/data/usage")
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(text: str, name: str = "fleet.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        return path

    return write


@pytest.mark.parametrize(
    "hours",
    [
        ("2026-03-01T22:00Z", "2026-03-01T23:00:00Z", "2026-03-02T00:00Z"),
        ("2026-03-01T22:00:00+00:00", "2026-03-01T23:00:00+00:00", "2026-03-02T00:00:00+00:00"),
        ("2026-03-01 22:00", "2026-03-01 23:00:00", "2026-03-02 00:00"),
        ("2026-03-01T22", "2026-03-01T23", "2026-03-02T00"),
        ("492334", "492335", "492336"),
    ],
)
def test_an_hour_is_read_in_every_usual_way(write: Write, hours: tuple[str, ...]) -> None:
    text = "hour_utc,count\n" + "".join(f"{hour},{number}\n" for number, hour in enumerate(hours, 5))
    (series,) = read_series(write(text))
    assert (series.name, hour_name(series.first_hour), series.counts.tolist()) == ("fleet", "2026-03-01T22:00Z", [5, 6, 7])


def test_several_names_in_any_order_with_a_mark_blanks_and_further_columns(write: Write) -> None:
    text = "\ufeffname, count ,hour_utc,note\r\nb,3,2026-03-01T01:00Z,x\r\na,1.0,2026-03-01T00:00Z,\r\nb,2,2026-03-01T00:00Z\r\n"
    found = read_series(write(text, "pools.csv.gz"))
    assert [(one.name, one.counts.tolist()) for one in found] == [("b", [2, 3]), ("a", [1])]


HEAD = "hour_utc,count\n2026-03-01T00:00Z,4\n2026-03-01T01:00Z,4\n"
FAULTS = [
    (HEAD + "2026-03-01T01:00Z,5\n", "line 4, column hour_utc: 2026-03-01T01:00Z is there twice [(]also in line 3[)]"),
    (HEAD + "2026-03-01T04:00Z,5\n", "has no row for 2026-03-01T02:00Z [(]2 hours are missing in all[)].*--gaps zero"),
    (HEAD + "2026-03-01T02:00,5\n", "line 4, column hour_utc: mixed time zones: '2026-03-01T02:00' has no zone, line 2 has one"),
    (HEAD + "2026-03-01T02:00+01:00,5\n", "line 4, column hour_utc: '2026-03-01T02:00.01:00' is not in UTC"),
    (HEAD + "2026-03-01T02:30Z,5\n", "line 4, column hour_utc: '2026-03-01T02:30Z' is not the start of an hour"),
    (HEAD + "soon,5\n", "line 4, column hour_utc: 'soon' is no hour"),
    (HEAD + ",5\n", "line 4, column hour_utc: '' is no hour"),
    (HEAD + "2026-03-01T02:00Z,-1\n", "line 4, column count: '-1' is not a number of nodes"),
    (HEAD + "2026-03-01T02:00Z,1.5\n", "line 4, column count: '1.5' is not a whole number of nodes; --round"),
    (HEAD + "2026-03-01T02:00Z,nan\n", "line 4, column count: 'nan'"),
    (HEAD + "2026-03-01T02:00Z,inf\n", "line 4, column count: 'inf'"),
    (HEAD + "2026-03-01T02:00Z,\n", "line 4, column count: '' is not a number"),
    (HEAD + "2026-03-01T02:00Z\n", "line 4, column count: '' is not a number"),
    (HEAD + "9999-03-01T02:00Z,1\n", "has no row for"),
    ("hour,count\n", "there is no column 'hour_utc'"),
    ("", "there is no column 'hour_utc'"),
    ("hour_utc,count\n", "no rows"),
    ('hour_utc,count\n"2026-03-01T00:00Z,4\n', "cannot be read as CSV"),
]


@pytest.mark.parametrize(("text", "sentence"), FAULTS)
def test_a_fault_is_named_with_file_line_and_column(write: Write, text: str, sentence: str) -> None:
    with pytest.raises(SeriesError, match=f"fleet.csv.*{sentence}"):
        read_series(write(text))


def test_what_is_no_text_or_not_there_is_a_sentence(tmp_path: Path, write: Write) -> None:
    (tmp_path / "bytes.csv").write_bytes(b"hour_utc,count\n\xff\xfe,1\n")
    for path in (tmp_path / "bytes.csv", tmp_path / "none.csv", tmp_path, write("x", "plain.csv").rename(tmp_path / "no.csv.gz")):
        with pytest.raises(SeriesError, match="cannot be read as CSV"):
            read_series(path)


def test_gaps_and_parts_of_nodes_are_filled_where_that_is_asked_for(write: Write) -> None:
    text = HEAD + "2026-03-01T04:00Z,1.6\n"
    (series,) = read_series(write(text), Fill(gaps=True, fractions=True))
    assert series.counts.tolist() == [4, 4, 0, 0, 2]
    with pytest.raises(SeriesError, match="more than 100 years"):
        read_series(write(HEAD + "9999-03-01T02:00Z,1\n"), Fill(gaps=True))


def test_whole_days_are_those_between_midnights() -> None:
    series = Series("x", 24 * 100 - 3, np.arange(60.0)).whole_days()
    assert (series.first_hour, len(series.counts), series.counts[0]) == (2400, 48, 3)
    assert len(Series("x", 1, np.arange(20.0)).whole_days().counts) == 0


def test_the_mean_of_an_hour_is_exact_for_jobs_that_come_and_go_within_it() -> None:
    start, hour = datetime(2026, 3, 1, tzinfo=UTC), 3_600_000
    base = round(start.timestamp() * 1000)
    jobs = [
        Job("before", base - 5 * hour, base + hour // 2, 4, WHOLE_SHARE),
        Job("within", base + hour // 4, base + hour // 2, 8, WHOLE_SHARE),
        Job("fraction", base + hour, base + 3 * hour, 1, WHOLE_SHARE // 2),
        Job("after", base + 23 * hour, base + 99 * hour, 3, WHOLE_SHARE),
        Job("outside", base + 30 * hour, base + 40 * hour, 9, WHOLE_SHARE),
        Job("pair", base + 2 * hour, base + 3 * hour, 2, WHOLE_SHARE),
    ]
    series = hourly("x", jobs, start, 1)
    assert series.first_hour == base // hour and series.counts.tolist() == [4, 0, 2, *[0] * 20, 3]


@needs_data
def test_philly_and_openb_become_the_series_that_the_figures_were_made_on() -> None:
    philly = {one.name: one.counts for one in philly_series(philly_jobs(DATA / "philly_2017_jobs.csv.gz"))}
    assert len(philly) == 12 and all(len(counts) == 1944 for counts in philly.values())
    assert [philly[name].sum() for name in ("ee9e8c", "6c71a0", "6214e9")] == [229_821, 77_165, 84_200]
    assert philly["ALL"].sum() == sum(counts.sum() for name, counts in philly.items() if name != "ALL")
    openb = {one.name: one.counts for one in openb_series(openb_pods(DATA / "openb_2023_pods.csv.gz"), OPENB_START)}
    assert {name: (len(counts), counts.sum()) for name, counts in openb.items()} == {
        "total": (792, 28_677), "LS": (792, 20_078), "other": (792, 7_337),
    }  # fmt: skip
