"""`prices import` of spot history: what is taken, and what the traps of such files are called."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import Done

START = datetime.now(UTC).replace(microsecond=0) - timedelta(days=5)
Run = Callable[..., Done]
WORDS = ("prices",)


def history(count: int, **more: object) -> dict[str, Any]:
    rows = [
        {
            "AvailabilityZone": "us-east-1a", "InstanceType": "p3.2xlarge", "ProductDescription": "Linux/UNIX",
            "SpotPrice": f"0.9{number % 7}", "Timestamp": (START - timedelta(minutes=number)).isoformat(), **more,
        }
        for number in range(count)
    ]  # fmt: skip
    return {"SpotPriceHistory": rows}


def test_history_goes_into_the_book_and_is_drawn(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "spot.json"
    file.write_text(json.dumps({**history(50), "NextToken": ""}))
    done = run("import", file, "--zone-id", "us-east-1a=use1-az4")
    assert done.code == 0 and "50 rows: 1 new by zone and type, 49 changes of price added" in done.out
    assert "use1-az4" in run("history", "p3.2xlarge", "--days", "30").out
    again = run("import", file, "--zone-id", "us-east-1a=use1-az4", "--json").json()
    assert (again["unchanged"], again["new"], again["notes"]) == (50, 0, [])


def test_a_full_page_is_taken_and_told_to_be_cut(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "spot.json"
    file.write_text(json.dumps(history(1000, AvailabilityZoneId="use1-az4")))
    done = run("import", file)
    assert done.code == 4 and "1,000 rows" in done.out
    assert "spot.json, row 1000: ends at 1,000 rows which is a full page: older rows are missing" in done.err


def test_rows_that_cannot_be_trusted_are_told_and_the_rest_is_kept(run: Run, tmp_path: Path) -> None:
    found = history(6, AvailabilityZoneId="use1-az4")
    rows = found["SpotPriceHistory"]
    rows[1]["Timestamp"], rows[2]["SpotPrice"], rows[3]["SpotPrice"], rows[4]["SpotPrice"] = "2026-11-01T10:00:00", "0,9", "$0.9", "0"
    file = tmp_path / "spot.json"
    file.write_text(json.dumps(found))
    done = run("import", file)
    assert done.code == 4
    for says in ("row 2: '2026-11-01T10:00:00' has no time zone", "row 3: The price '0,9' has a decimal comma", "row 4: The price '$0.9' carries", "row 5: the price is 0"):
        assert f"spot.json, {says}" in done.err
    named = tmp_path / "named.json"
    named.write_text(json.dumps(history(3)))
    lost = run("import", named)
    assert lost.code == 1 and "--zone-id us-east-1a=ID" in lost.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("none.json",), "no such file"),
        (("spot.json", "--zone-id", "us-east-1a"), "write it as us-east-1a=use1-az2"),
        (("spot.json", "--zone-id", "us-east-1a=us-east-1b"), "write it as us-east-1a=use1-az2"),
        (("spot.json", "--cloud", "gcp"), "of aws alone"),
        (("prices.csv", "--zone-id", "us-east-1a=use1-az2"), "only for spot history"),
    ],
)
def test_wrong_usage_of_import_is_told(run: Run, tmp_path: Path, words: tuple[str, ...], says: str) -> None:
    (tmp_path / "spot.json").write_text("{}")
    done = run("import", tmp_path / words[0], *words[1:])
    assert done.code == 2 and says in done.err


def test_a_file_that_is_no_history_keeps_nothing(run: Run, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"a": ')
    done = run("import", tmp_path / "x.json")
    assert done.code == 1 and "x.json: is no JSON" in done.err
