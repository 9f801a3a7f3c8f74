"""Demand: usage files with everything that can be wrong with them, and the ledger, hour by hour."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pricing.catalog import Catalog
from pricing.demand import Demand, DemandKey, from_ledger, read_usage, with_clouds
from pricing.errors import AdviceFileError
from pricing.ledger import Ledger
from pricing.usage import WHOLE_SHARE, Placed, Usage
from tests.support.sample_ledger import fill

HEAD = "hour_utc,instance_type,region,count\n"
P4D, G5 = DemandKey(None, "us-east-1", "p4d.24xlarge"), DemandKey(None, "us-east-1", "g5.xlarge")
START = datetime(2026, 3, 1, 5, tzinfo=UTC)
HOUR_MS = 3_600_000


def read(folder: Path, text: str | bytes) -> Demand:
    file = folder / "usage.csv"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_usage(file)


def row(hour: int, count: object = 1, name: str = "p4d.24xlarge", region: str = "us-east-1", zone: str = "Z") -> str:
    return f"2026-03-01T{hour:02}:00{zone},{name},{region},{count}\n"


def test_a_type_that_an_hour_does_not_name_is_0_there_and_an_hour_that_nobody_names_is_unknown(tmp_path: Path) -> None:
    demand = read(tmp_path, HEAD + row(0, 4) + row(0, 1, "g5.xlarge") + row(1, 5) + row(4, 2) + row(9, 2))
    assert demand.start == datetime(2026, 3, 1, tzinfo=UTC) and demand.hours == 10 and demand.known_hours == 4
    assert demand.series(P4D).tolist() == [4, 5, 2, 2] and demand.series(G5).tolist() == [1, 0, 0, 0]
    assert demand.counts[P4D].tolist() == [4, 5, 0, 0, 2, 0, 0, 0, 0, 2]
    assert demand.partial
    (note,) = demand.notes
    assert "6 of 10 hours (60.0 %) are not told" in note and "2026-03-01T02:00Z for 2 h" in note and "not as 0" in note


def test_means_are_over_known_hours_only(tmp_path: Path) -> None:
    assert read(tmp_path, HEAD + row(0, 4) + row(5, 2)).per_month(P4D) == 3 * 730


def test_rows_in_any_order_give_the_same_demand(tmp_path: Path) -> None:
    rows = [row(hour, hour + 1, name) for hour in range(6) for name in ("p4d.24xlarge", "g5.xlarge")]
    first = read(tmp_path, HEAD + "".join(rows))
    Random(3).shuffle(rows)
    second = read(tmp_path, HEAD + "".join(rows))
    assert list(first.counts) == list(second.counts)
    assert all((first.counts[key] == second.counts[key]).all() for key in first.counts)


def test_fractions_are_nodes_on_average_and_that_is_said(tmp_path: Path) -> None:
    demand = read(tmp_path, HEAD + row(0, "2.5") + row(1, 2))
    assert demand.series(P4D).tolist() == [2.5, 2.0] and not demand.partial
    assert "1 counts are fractions" in demand.notes[0]


def test_an_empty_count_makes_its_hour_unknown(tmp_path: Path) -> None:
    demand = read(tmp_path, HEAD + row(0, 2) + row(1, "") + row(1, 3, "g5.xlarge") + row(2, 2))
    assert demand.known.tolist() == [True, False, True] and demand.counts[G5].tolist() == [0, 0, 0] and demand.partial
    assert "empty count (first in row 3)" in demand.notes[0]


def test_byte_order_marks_blank_lines_capitals_and_columns_in_any_order_are_taken(tmp_path: Path) -> None:
    text = "\ufeff\ufeff Count ,Region,HOUR UTC,Instance Type\r\n\r\n3, US-East-1 ,2026-03-01 07:00,P4D.24xlarge\r\n1,us-east-1,2026-03-01 08:00,p4d.24xlarge\r\n"
    demand = read(tmp_path, text)
    assert list(demand.counts) == [DemandKey(None, "us-east-1", "P4D.24xlarge")]
    assert demand.series(next(iter(demand.counts))).tolist() == [3, 1]


def test_clouds_and_purchase_options_are_kept_apart(tmp_path: Path) -> None:
    head = "hour_utc,instance_type,region,count,cloud,purchase,team\n"
    lines = ["2026-03-01T00:00Z,p4d.24xlarge,us-east-1,3,AWS,spot,red", "2026-03-01T00:00Z,p4d.24xlarge,us-east-1,2,aws,,"]
    demand = read(tmp_path, head + "\n".join(lines))
    (key,) = demand.counts
    assert key.cloud == "aws" and demand.series(key).tolist() == [5]
    assert demand.on_spot(key).tolist() == [3] and demand.committable(key).tolist() == [2]
    assert "'team' is not read" in demand.notes[0]


def test_a_type_of_one_cloud_only_gets_that_cloud(tmp_path: Path) -> None:
    demand = with_clouds(read(tmp_path, HEAD + row(0, 2) + row(0, 1, "made-up")), Catalog.embedded())
    assert set(demand.counts) == {DemandKey("aws", "us-east-1", "p4d.24xlarge"), DemandKey(None, "us-east-1", "made-up")}


def test_hours_with_an_offset_are_turned_into_utc(tmp_path: Path) -> None:
    demand = read(tmp_path, HEAD + row(2, 1, zone="+02:00") + row(3, 4, zone="+02:00"))
    assert demand.start == datetime(2026, 3, 1, tzinfo=UTC) and "turned into UTC" in demand.notes[0]
    across = read(tmp_path, HEAD + "2026-10-25T02:00+02:00,x,r,1\n2026-10-25T02:00+01:00,x,r,2\n")
    assert across.series(DemandKey(None, "r", "x")).tolist() == [1, 2], "the hour that a clock change repeats is two hours"
    assert across.partial and "UTC+02:00 in row 2, UTC+01:00 in row 3" in across.notes[0] and "mixed" in across.notes[0]
    assert not demand.partial


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b"", "usage.csv is empty: it has hour_utc, instance_type, region, count, and may have cloud, purchase"),
        ("\n\n", "is empty"),
        (HEAD, "has no count below its header"),
        ("hour_utc,count\n2026-03-01T00:00Z,1\n", "row 1: there is no column instance_type, region"),
        ("hour-utc,instance_type,region,count\n", r"no column hour_utc \(did you mean hour_utc\?\)"),
        ("hour_utc;instance_type;region;count\n", "not separated by commas"),
        ("hour_utc,instance_type,region,count,count\n", "count stands there twice"),
        (HEAD + row(0) + row(1) + row(0, 2), r"row 4, column hour_utc: 2026-03-01T00:00Z of p4d.24xlarge in us-east-1 stands in row 2"),
        (HEAD + row(0) + row(0, 1, "P4D.24xlarge", "US-EAST-1"), "stands in row 2 already"),
        (HEAD + row(0, -1), "row 2, column count: -1 is negative"),
        (HEAD + row(0, "1,5"), "row 2: it has 5 cells"),
        (HEAD + row(0, '"1,5"'), "decimal comma"),
        (HEAD + row(0, "inf"), "infinite"),
        (HEAD + row(0, "two"), "not a decimal number"),
        (HEAD + row(0, "1e40"), "too large"),
        (HEAD + row(0, "1e12"), "row 2, column count: 1e12 nodes of one type are more than 1,000,000"),
        (HEAD + row(0, "nan"), "has no count below its header .*; row 2 has none"),
        (HEAD + row(0) + row(1, zone=""), r"row 3, column hour_utc: '2026-03-01T01:00' has none, and row 2 has one: write all times in UTC"),
        (HEAD + row(0, zone="") + row(1), "has an offset, and row 2 has none"),
        (HEAD + row(0, zone="+05:30"), r"UTC\+05:30 is not of whole hours"),
        (HEAD + "2026-03-01T00:30Z,x,r,1\n", "is not a full hour"),
        (HEAD + "yesterday,x,r,1\n", "is no hour"),
        (HEAD + ",x,r,1\n", "it is empty"),
        (HEAD + "2026-03-01T00:00Z,,r,1\n", "row 2, column instance_type: it is empty"),
        (HEAD + "2026-03-01T00:00Z,x,,1\n", "row 2, column region: it is empty"),
        (HEAD + row(0) + "2206-03-01T00:00Z,x,r,1\n", "row 2 is of 2026-03-01T00:00Z and row 3 of 2206-03-01T00:00Z, 180 years apart"),
        ("hour_utc,instance_type,region,count,purchase\n2026-03-01T00:00Z,x,r,1,spott\n", r"'spott' is no purchase option \(did you mean spot\?\)"),
        (HEAD.encode() + b"2026-03-01T00:00Z,\xff,r,1\n", "row 2: this is not UTF-8 text"),
        ("hour_utc,instance_type".encode("utf-16"), "not UTF-8 text"),
        (b"\x1f\x8b\x08", "compressed"),
        (HEAD + '2026-03-01T00:00Z,"x,r,1\n', "no whole CSV file"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_sentence_with_file_row_and_column(tmp_path: Path, text: str | bytes, sentence: str) -> None:
    with pytest.raises(AdviceFileError, match=sentence) as caught:
        read(tmp_path, text)
    assert "usage.csv" in str(caught.value) and "\n" not in str(caught.value) and caught.value.exit_code == 2


def test_a_file_that_is_not_there_and_a_folder_are_told(tmp_path: Path) -> None:
    with pytest.raises(AdviceFileError, match="cannot be read"):
        read_usage(tmp_path / "none.csv")
    with pytest.raises(AdviceFileError, match="folder"):
        read_usage(tmp_path)


def test_a_part_of_the_time(tmp_path: Path) -> None:
    demand = read(tmp_path, HEAD + "".join(row(hour, hour) for hour in range(24)))
    part = demand.between(datetime(2026, 3, 1, 2, 30, tzinfo=UTC), datetime(2026, 3, 1, 6, 59, tzinfo=UTC))
    assert part.start.hour == 3 and part.series(P4D).tolist() == [3, 4, 5]
    assert demand.between(datetime(2027, 1, 1, tzinfo=UTC), datetime(2027, 1, 2, tzinfo=UTC)).hours == 0
    assert demand.last(1).hours == 24 and demand.last(3).hours == 24


# --- the ledger -----------------------------------------------------------------------------------------------------


def test_the_ledgers_nodes_are_counted_per_place_type_and_purchase() -> None:
    with Ledger.open(":memory:") as ledger:
        fill(ledger, START, 24 * 4 + 7, 6)
        demand = from_ledger(ledger, 0, 2**50)
    assert demand.start == START and demand.hours == demand.known_hours == 24 * 4 + 7 and not demand.notes
    p4d = DemandKey("aws", "us-east-1", "p4d.24xlarge")
    assert demand.series(p4d).tolist() == [3.0] * demand.hours
    assert demand.on_spot(p4d).tolist() == [1.0] * demand.hours and demand.committable(p4d).tolist() == [2.0] * demand.hours
    assert set(demand.bought[DemandKey("azure", "eastus", "Standard_NC6s_v3")]) == {"on_demand"}


class Stretch:
    """One node that runs in whole milliseconds [begin, end) with `gpus` GPUs, all idle or held."""

    def __init__(self, node: str, begin: int, end: int, gpus: int) -> None:
        self.node, self.begin, self.end, self.gpus = node, begin, end, gpus

    def put(self, ledger: Ledger) -> None:
        kind = "host" if not self.gpus else "held"
        rows, sequence, at = [], 0, self.begin
        while at < self.end:
            until = min(self.end, at // HOUR_MS * HOUR_MS + HOUR_MS)
            for gpu in range(max(1, self.gpus)):
                sequence += 1
                name = f"{self.node}-{gpu}" if self.gpus else None
                rows.append(Usage(sequence, at, until, name, kind, None, WHOLE_SHARE, "ann", None, None, None, None, None, 1))
            at = until
        placed = Placed(1, self.node, "aws", "us-east-1", None, "p4d.24xlarge", "on_demand", gpu_count=self.gpus)
        ledger.take(self.node, self.node, rows, [placed], 1)


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 100 * HOUR_MS), st.integers(1, 80 * HOUR_MS), st.sampled_from((0, 1, 8))), min_size=1, max_size=4),
    st.integers(0, 60), st.integers(61, 200),
)  # fmt: skip
def test_sums_per_day_give_the_same_hours_as_the_rows(stretches: list[tuple[int, int, int]], first: int, last: int) -> None:
    base = 20_000 * 24 * HOUR_MS + 5 * HOUR_MS
    nodes = [
        Stretch(f"n{number}", base + begin, base + begin + length, gpus)
        for number, (begin, length, gpus) in enumerate(stretches)
    ]
    with Ledger.open(":memory:") as ledger:
        for node in nodes:
            node.put(ledger)
        demand = from_ledger(ledger, base + first * HOUR_MS, base + last * HOUR_MS)
    for place in range(demand.hours):
        begin = (demand.first_hour + place) * HOUR_MS
        ran = sum(max(0, min(node.end, begin + HOUR_MS) - max(node.begin, begin)) for node in nodes) / HOUR_MS
        told = sum(counts[place] for counts in demand.counts.values())
        assert told == pytest.approx(ran, abs=1e-9)


def test_a_node_without_a_type_and_rows_that_were_thrown_away_are_told() -> None:
    with Ledger.open(":memory:") as ledger:
        Stretch("a", 10 * HOUR_MS, 20 * HOUR_MS, 1).put(ledger)
        row = Usage(1, 10 * HOUR_MS, 11 * HOUR_MS, "g", "held", None, WHOLE_SHARE, "a", None, None, None, None, None, 1)
        ledger.take("b", "b", [row], [Placed(1, "b", "aws", "us-east-1", gpu_count=1)], 1)
        late = row._replace(sequence=5, starts_ms=15 * HOUR_MS, ends_ms=16 * HOUR_MS)
        ledger.take("b", "b", [late], [Placed(1, "b", "aws", "us-east-1", gpu_count=1)], 5)
        demand = from_ledger(ledger, 0, 2**50)
    assert demand.partial and len(demand.notes) == 2
    assert "node b: rows of up to 4 h were thrown away" in demand.notes[0]
    assert "node b: its cloud or instance type is not known; 2 h" in demand.notes[1]


def test_an_empty_ledger_gives_no_hours() -> None:
    with Ledger.open(":memory:") as ledger:
        demand = from_ledger(ledger, 0, 2**50)
    assert demand.hours == 0 and demand.partial and not demand.counts


def test_hours_of_the_ledger_in_which_nothing_ran_are_0() -> None:
    with Ledger.open(":memory:") as ledger:
        Stretch("a", 10 * HOUR_MS, 12 * HOUR_MS, 1).put(ledger)
        Stretch("b", 30 * HOUR_MS, 31 * HOUR_MS, 1).put(ledger)
        demand = from_ledger(ledger, 0, 2**50)
    (counts,) = demand.counts.values()
    assert demand.known.all() and np.flatnonzero(counts).tolist() == [0, 1, 20]
    assert demand.end - demand.start == timedelta(hours=21)
