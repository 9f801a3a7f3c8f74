"""Files of spot history: each trap is one sentence with file and row, and the rest is read all the same."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from pricing.errors import HistoryError
from pricing.market import Market, SeriesKey, read_history, read_rows, summary

KEY = SeriesKey("us-east-1a", "p3.2xlarge", "Linux/UNIX")


def row(hour: int = 0, price: Any = "1.14", **other: Any) -> dict[str, Any]:
    fields = {
        "AvailabilityZone": "us-east-1a", "InstanceType": "p3.2xlarge", "ProductDescription": "Linux/UNIX",
        "SpotPrice": price, "Timestamp": f"2020-02-20T{hour:02}:00:00.000Z",
    }  # fmt: skip
    return fields | other


def trace(**other: Any) -> dict[str, Any]:
    return {"metadata": {"gap_seconds": 600}, "data": [0, 1, 0]} | other


def traps_of(document: Any, file: str = "us-east-1/p3.json", **options: Any) -> list[tuple[str, int | None, str]]:
    return [(one.kind, one.row, str(one)) for one in read_rows(document, file, **options)[1]]


@pytest.mark.parametrize(
    ("wrong", "kind", "part"),
    [
        (row(1, "0"), "unknown_price", "0, which means unknown"),
        (row(1, "0.000000"), "unknown_price", "0, which means unknown"),
        (row(1, ""), "unknown_price", "is empty"),
        (row(1, "NaN"), "unknown_price", "not a number"),
        (row(1, "1,14"), "unknown_price", "decimal comma"),
        (row(1, "$1.14"), "unknown_price", "currency sign"),
        (row(1, "-1.14"), "unknown_price", "below 0"),
        (row(1, 1.14), "unknown_price", "write it as text"),
        (row(1, AvailabilityZone="moon-1a"), "unknown_zone", "'moon-1a' is no zone of AWS"),
        (row(1, AvailabilityZone=""), "unknown_zone", "names no zone"),
        (row(1, AvailabilityZone="us-west-2a"), "wrong_region", "'us-west-2a' is not in us-east-1"),
        (row(1, Timestamp="2020-02-20T22:54:57"), "local_time", "has no time zone"),
        (row(1, Timestamp="20.02.2020"), "bad_time", "'20.02.2020' is no time"),
        (row(1, InstanceType=""), "bad_row", "no InstanceType"),
        (["us-east-1a"], "bad_row", "no row of spot history"),
        (row(1, AvailabilityZone=5), "bad_row", "no row of spot history"),
    ],
)
def test_a_row_that_cannot_be_trusted_is_told_with_its_place_and_the_rest_is_kept(wrong: Any, kind: str, part: str) -> None:
    rows = [row(2, "2.5"), wrong, row(0, "1.5")]
    fetches, (trap,) = read_rows({"SpotPriceHistory": rows, "NextToken": ""}, "us-east-1/p3.json")
    assert (trap.kind, trap.row, trap.file) == (kind, 2, "us-east-1/p3.json")
    assert str(trap).startswith("us-east-1/p3.json, row 2: ") and part in str(trap) and str(trap).endswith(".")
    (fetch,) = fetches
    moments = [int(datetime(2020, 2, 20, hour, 30, tzinfo=UTC).timestamp() * 1000) for hour in (0, 1)]
    assert fetch.prices.at(moments[0]) == Decimal("1.5")
    assert fetch.prices.at(moments[1]) == (None if kind == "unknown_price" else Decimal("1.5")), "unknown is not the old price"


def test_a_full_page_is_told_and_older_rows_are_not_made_up() -> None:
    page = [row(20, f"1.{n:04}") for n in range(1000)]
    ((kind, place, text),) = traps_of({"SpotPriceHistory": page, "NextToken": "AAH"})
    assert (kind, place) == ("truncated_page", 1000) and "1,000 rows and a token for the next page" in text
    ((kind, _, text),) = traps_of({"SpotPriceHistory": page, "NextToken": ""})
    assert kind == "truncated_page" and "may be missing" in text
    assert [kind for kind, _, _ in traps_of(page)] == ["truncated_page"]
    assert not traps_of({"SpotPriceHistory": page[:999], "NextToken": ""})
    two_pages = [{"SpotPriceHistory": page, "NextToken": "AAH"}, {"SpotPriceHistory": page[:5], "NextToken": ""}]
    assert not traps_of(two_pages), "a request that was paged to its end"
    fetches, _ = read_rows({"SpotPriceHistory": page, "NextToken": "AAH"}, "x.json")
    assert fetches[0].prices.at(int(datetime(2020, 2, 20, 19, tzinfo=UTC).timestamp() * 1000)) is None


def test_an_empty_list_mixed_products_and_pages_without_rows_are_told() -> None:
    assert [kind for kind, _, _ in traps_of({"SpotPriceHistory": []})] == ["empty_list"]
    rows = [row(), row(1), row(1, ProductDescription="Windows"), row(2, ProductDescription="Linux/UNIX (Amazon VPC)")]
    fetches, (trap,) = read_rows({"SpotPriceHistory": rows}, "a.json")
    assert "3 of Linux/UNIX, 1 of Windows" in str(trap)
    assert [(fetch.key.product, fetch.rows) for fetch in fetches] == [("Linux/UNIX", 3), ("Windows", 1)]
    assert [kind for kind, _, _ in traps_of([{"SpotPriceHistory": None}])] == ["bad_row", "empty_list"]


def test_local_times_are_read_once_their_zone_is_said() -> None:
    fetches, traps = read_rows([row(Timestamp="2020-02-20T22:54:57")], "a.json", tz=ZoneInfo("Europe/Berlin"))
    assert not traps and fetches[0].prices.start_ms == int(datetime(2020, 2, 20, 21, 54, 57, tzinfo=UTC).timestamp() * 1000)


def test_a_price_is_known_from_the_carry_in_row_until_the_newest_row_or_until_it_was_fetched() -> None:
    rows = [row(5, "2", AvailabilityZone="us-east-1b"), row(2, "1")]
    market = Market(read_rows(rows, "a.json")[0])
    at = datetime(2020, 2, 20, 4, 59, tzinfo=UTC)
    assert market[KEY].price_at(at) == 1, "the fetch went on until the newest row of another zone"
    assert market[KEY].price_at(datetime(2020, 2, 20, 6, tzinfo=UTC)) is None
    later = Market(read_rows(rows, "a.json", until=datetime(2020, 2, 20, 9, tzinfo=UTC))[0])
    assert later[KEY].price_at(datetime(2020, 2, 20, 8, tzinfo=UTC)) == 1


def test_zone_ids_and_local_zones_are_zones() -> None:
    rows = [row(AvailabilityZone="us-west-2-lax-1a"), row(AvailabilityZone=None, AvailabilityZoneId="use1-az1")]
    assert not [text for _, _, text in traps_of([row(AvailabilityZone="", AvailabilityZoneId="use1-az1")])]
    assert [kind for kind, _, _ in traps_of(rows)] == ["wrong_region", "bad_row"]
    assert {fetch.key.zone for fetch in read_rows(rows[:1], "a.json")[0]} == {"us-west-2-lax-1a"}


def packed(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def test_a_file_a_packed_file_an_archive_and_a_folder_tell_the_same(tmp_path: Path) -> None:
    content = json.dumps({"SpotPriceHistory": [row(1, "2"), row(0, "1")]}).encode()
    (tmp_path / "folder" / "us-east-1").mkdir(parents=True)
    (tmp_path / "folder" / "us-east-1" / "p3.json").write_bytes(content)
    (tmp_path / "folder" / "._p3.json").write_bytes(b"\x00\x05\x16\x07")
    (tmp_path / "folder" / "notes.txt").write_text("no history")
    (tmp_path / "p3.json").write_bytes(b"\xef\xbb\xbf" + content)
    (tmp_path / "p3.json.gz").write_bytes(gzip.compress(content))
    litter = {"._us-east-1": b"\x00", "us-east-1/._p3.json": b"\x00", "__MACOSX/us-east-1/p3.json": b"x"}
    (tmp_path / "p3.tar.gz").write_bytes(packed({"us-east-1/p3.json": content, **litter}))
    seen: list[tuple[int, str]] = []
    for name in ("p3.json", "p3.json.gz", "p3.tar.gz", "folder"):
        reading = read_history(tmp_path / name, on_progress=lambda count, file: seen.append((count, file)))
        assert (reading.files, reading.rows, reading.traps) == (1, 2, [])
        assert Market(reading.fetches)[KEY].price_at(datetime(2020, 2, 20, 0, 59, tzinfo=UTC)) == 1
    assert seen == [(1, "p3.json"), (1, "p3.json.gz"), (1, "us-east-1/p3.json"), (1, "us-east-1/p3.json")]


def test_damaged_and_foreign_files_are_told_and_the_others_are_read(tmp_path: Path) -> None:
    good = json.dumps([row()]).encode()
    files = {"bad.json": b'{"SpotPriceHistory": [', "other.json": b'{"a": 1}', "latin.json": b'"\xff"', "good.json": good}
    files["cut.json.gz"] = gzip.compress(good)[:-9]
    files["deep.json"] = b"[" * 100_000
    (tmp_path / "a.tar.gz").write_bytes(packed(files))
    reading = read_history(tmp_path / "a.tar.gz")
    assert len(reading.fetches) == 1
    assert [(one.kind, one.file) for one in reading.traps] == [
        ("damaged", "bad.json"), ("not_history", "other.json"), ("damaged", "latin.json"),
        ("damaged", "cut.json.gz"), ("damaged", "deep.json"),
    ]  # fmt: skip
    whole = packed({f"{n}.json": json.dumps([row(price=str(n + 1)) for _ in range(50)]).encode() for n in range(400)})
    (tmp_path / "cut.tar.gz").write_bytes(whole[: len(whole) // 2])
    cut = read_history(tmp_path / "cut.tar.gz")
    assert 0 < len(cut.fetches) < 400 and cut.traps[-1].kind == "damaged" and "what came before is kept" in str(cut.traps[-1])


def test_nothing_to_read_is_an_error_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match="no such file"):
        read_history(tmp_path / "none.json")
    with pytest.raises(HistoryError, match=r"holds no \.json file"):
        read_history(tmp_path)
    (tmp_path / "x.tar.gz").write_bytes(b"no archive")
    with pytest.raises(HistoryError, match="damaged or cut off"):
        read_history(tmp_path / "x.tar.gz")


def test_what_one_means_in_a_trace_has_to_be_said(tmp_path: Path) -> None:
    file = tmp_path / "us-west-2a_v100_1.json"
    file.write_text(json.dumps(trace()))
    assert [one.kind for one in read_history(file).traps] == ["not_history"]
    assert read_history(file, available=0).traces[0].states == bytes([1, 0, 1])
    found = read_history(file, available=1).traces[0]
    assert (found.states, found.gap_seconds, found.place) == (bytes([0, 1, 0]), Fraction(600), "us-west-2a_v100_1")


@pytest.mark.parametrize(
    ("document", "kinds", "part"),
    [
        (trace(metadata={}), ["not_history"], "no gap_seconds"),
        (trace(metadata={"gap_seconds": 0}), ["not_history"], "no gap_seconds"),
        (trace(metadata={"gap_seconds": True}), ["not_history"], "no gap_seconds"),
        (trace(metadata={"gap_seconds": 1e300}), ["not_history"], "up to a year"),
        (trace(metadata=None), ["not_history"], "no gap_seconds"),
        (trace(data=[]), ["empty_list"], "no ticks"),
        (trace(data=[0, None, 2]), ["bad_tick", "bad_tick"], "row 2: None is neither 0 nor 1"),
        (trace(data=[7] * 9), ["bad_tick"] * 6, "9 ticks in all"),
        (trace(prices=[1]), ["lengths_differ"], "1 prices for 3 ticks"),
        (trace(prices=["0.9", 0, None]), ["unknown_price", "unknown_price"], "row 2: the price is 0"),
        (trace(metadata={"gap_seconds": 1, "start_time": "soon"}), ["bad_time"], "'soon' is no time"),
        (trace(metadata={"gap_seconds": 1, "start_time": "2023-02-22T09:05:03"}), ["local_time"], "read as UTC"),
        (trace(metadata={"gap_seconds": 1, "start_time": "2023-02-22T09:05:03Z"}), [], ""),
        (trace(metadata={"gap_seconds": 0.5, "start_time": 12}), [], ""),
    ],
)
def test_traps_of_traces(tmp_path: Path, document: dict[str, Any], kinds: list[str], part: str) -> None:
    (tmp_path / "t.json").write_text(json.dumps(document))
    reading = read_history(tmp_path / "t.json", available=1)
    assert [one.kind for one in reading.traps] == kinds
    assert part in " ".join(map(str, reading.traps))


def test_a_trace_keeps_its_prices_exactly_and_ticks_that_mean_nothing_are_unknown(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(
        '{"metadata": {"gap_seconds": 195, "start_time": "2023-02-22T09:05:03Z"}, "data": [0, null, 1], "prices": [0.918, 0, 1]}'
    )
    (found,) = read_history(tmp_path / "t.json", available=1).traces
    assert found.states == bytes([0, 2, 1]) and found.prices == (Decimal("0.918"), None, Decimal(1))
    assert found.price_steps().mean(found.start_ms or 0, (found.start_ms or 0) + 585_000).value == Fraction(959, 1000)


def test_many_traps_of_a_kind_are_told_in_few_lines() -> None:
    _, traps = read_rows([row(n % 24, "0") for n in range(50)], "a.json")
    lines = summary(traps)
    assert len(lines) == 4 and lines[-1] == "... and 47 more of this kind (unknown price)."
