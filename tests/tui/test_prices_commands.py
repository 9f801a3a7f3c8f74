"""`prices`, `prices refresh`, `prices history`, `prices import`: exit codes, words, and what is kept."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import time_machine

from pricing.catalog import Catalog
from pricing.pricebook import PriceBook
from pricing.prices import Price
from pricing.sources import NoCredentials, OnProgress, Progress, Throttled, Wanted
from tests.support.cli import Done
from tui import price_sources
from tui.cli_prices import price_words
from tui.price_sources import PURCHASES, wanted

NOW = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)
Run = Callable[..., Done]


def price(amount: str, *, days: int = 0, zone: str | None = None, purchase: str = "on_demand", cloud: str = "aws") -> Price:
    name = {"aws": "p4d.24xlarge", "gcp": "a2-highgpu-8g"}[cloud]
    region = {"aws": "us-east-1", "gcp": "us-central1"}[cloud]
    since = NOW - timedelta(days=days)
    return Price(cloud, region, zone, name, purchase, Decimal(amount), "USD", "instance_hour", since, NOW, "a fake source")


SPOT = [price(amount, days=days, zone="use1-az1", purchase="spot") for days, amount in ((40, "7.1"), (20, "8.2"), (5, "6.3"))]


class FakeSource:
    """Gives its prices in one page; then raises, if it is told to."""

    def __init__(self, cloud: str, prices: list[Price], fault: BaseException | None = None) -> None:
        self.name = self.cloud = cloud
        self._prices, self._fault = prices, fault

    def fetch(self, wanted: Wanted, on_progress: OnProgress) -> Iterator[Price]:
        yield from self._prices
        on_progress(Progress("prices of \x1b[2Jeverywhere", 1, 2, 1, len(self._prices), "2"))
        if self._fault is not None:
            raise self._fault


@pytest.fixture(autouse=True)
def a_second_later() -> Iterator[None]:
    """Between two commands no midnight passes, and nothing grows old."""
    with time_machine.travel(NOW + timedelta(seconds=1), tick=False):
        yield


@pytest.fixture(autouse=True)
def hundred_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Replaces the clouds by these sources."""

    def replace(*served: FakeSource) -> None:
        def sources(clouds: Any, catalog: Any, now: Any, stack: contextlib.ExitStack) -> list[FakeSource]:
            return [one for one in served if one.cloud in clouds]

        monkeypatch.setattr(price_sources, "sources", sources)

    return replace


@pytest.mark.parametrize(
    ("typed", "known"),
    [
        (["prices", "refresh", "--cloud", "aws"], ["prices-refresh", "--cloud", "aws"]),
        (["--config", "prices", "prices", "history", "x"], ["--config", "prices", "prices-history", "x"]),
        (["prices", "H100", "refresh"], ["prices", "H100", "refresh"]),
        (["prices", "--json", "import"], ["prices", "--json", "import"]),
        (["prices"], ["prices"]),
        (["run", "prices", "refresh"], ["run", "prices", "refresh"]),
    ],
)
def test_only_the_word_right_behind_prices_is_an_action(typed: list[str], known: list[str]) -> None:
    assert price_words(typed) == known


def test_a_refresh_is_seen_by_every_later_command(run: Run, serve: Callable[..., None]) -> None:
    before = run("prices", "p4d", "region:us-east-1", "buy:on-demand")
    assert "21.9576" in before.out and "prices refresh` brings newer ones" in before.err
    serve(FakeSource("aws", [price("20.5"), *SPOT]), FakeSource("gcp", [price("28", cloud="gcp")]))
    done = run("prices", "refresh")
    assert done.code == 0 and "aws: prices of ?[2Jeverywhere (1 of 2)" in done.err
    assert [line.split()[:3] for line in done.out.splitlines()[1:]] == [["aws", "2", "2"], ["gcp", "1", "0"]]
    after = run("prices", "p4d.24xlarge", "region:us-east-1", "buy:on-demand")
    assert "20.5000" in after.out and "a fake source" in after.out and "0 d" in after.out
    assert re.search(r"\(aws was refreshed 0s ago: done\)", after.err)
    (record,) = run("prices", "p4d.24xlarge", "region:us-east-1", "buy:on-demand", "--json").json()
    assert (record["price_per_hour"], record["age_days"], record["source"]) == ("20.5", 0, "a fake source")
    assert record["valid_from"] == NOW.isoformat()
    again = run("prices", "refresh", "--json").json()
    assert [(cloud["cloud"], cloud["new"], cloud["unchanged"]) for cloud in again["clouds"]] == [("aws", 0, 4), ("gcp", 0, 1)]


def test_what_is_refused_or_fails_is_told_and_the_exit_code_says_partly_or_failed(run: Run, serve: Callable[..., None]) -> None:
    aws = FakeSource("aws", [price("20.5"), price("0", days=1)])
    serve(aws, FakeSource("gcp", [], Throttled("Too many requests.")))
    done = run("prices", "refresh")
    assert done.code == 4 and "gcp: Too many requests." in done.err and "is 0: a price is above 0" in done.err
    assert run("prices", "refresh", "--cloud", "gcp").code == 1
    assert re.search(r"\(gcp was refreshed 0s ago: failed: Too many requests\.\)", run("prices", "a2-highgpu-8g").err)
    record = run("prices", "refresh", "--cloud", "aws", "--json").json()
    (refused,) = record["clouds"][0]["refused"]
    assert (refused["instance_type"], refused["price"]) == ("p4d.24xlarge", "0")


def test_a_cloud_without_a_key_fails_only_a_refresh_that_names_it(run: Run, serve: Callable[..., None]) -> None:
    serve(FakeSource("aws", [price("20.5")]), FakeSource("gcp", [], NoCredentials("Set a key.")))
    done = run("prices", "refresh")
    assert done.code == 0 and "gcp: Set a key." in done.err
    assert done.err.count("those that ship with the program") == 1
    assert run("prices", "refresh", "--cloud", "gcp").code == 1
    assert run("prices", "refresh", "--cloud", "gcp", "--cloud", "aws").code == 4


def test_an_interrupted_refresh_keeps_what_came_and_goes_on_the_next_time(run: Run, serve: Callable[..., None]) -> None:
    serve(FakeSource("aws", [price("20.5")], KeyboardInterrupt()), FakeSource("gcp", [price("28", cloud="gcp")]))
    done = run("prices", "refresh")
    assert done.code == 4 and "what came is kept" in done.err and "gcp" not in done.out
    assert "20.5000" in run("prices", "p4d.24xlarge", "buy:on-demand", "region:us-east-1").out
    serve(FakeSource("aws", []))
    assert "went on from an earlier one" in run("prices", "refresh", "--cloud", "aws").out


def test_a_price_that_jumps_is_held_back_until_it_is_accepted(run: Run, serve: Callable[..., None], tmp_path: Path) -> None:
    with PriceBook.open(tmp_path / "prices.db") as book:
        book.put([price("10", days=9)._replace(fetched_at=NOW - timedelta(days=9))], NOW)
    serve(FakeSource("aws", [price("40")]))
    held = run("prices", "refresh")
    assert held.code == 4 and "held back until it is seen again or accepted (--accept)" in held.err
    shown = run("prices", "p4d.24xlarge", "buy:on-demand", "region:us-east-1")
    assert "10.0000" in shown.out and "1 changed prices are held back" in shown.err
    assert run("prices", "refresh", "--accept").code == 0
    assert "40.0000" in run("prices", "p4d.24xlarge", "buy:on-demand", "region:us-east-1").out


def test_history_draws_each_line_and_tells_its_steps(run: Run, tmp_path: Path) -> None:
    with PriceBook.open(tmp_path / "prices.db") as book:
        book.put([price("20.5"), *SPOT, price("9", zone="use1-az2", purchase="spot", days=90)], NOW)
    drawn = run("prices", "history", "P4D.24xlarge", "--region", "us-east-1", "--tz", "UTC")
    assert drawn.code == 0 and "p4d.24xlarge spot in use1-az1 (aws): a fake source" in drawn.out
    assert "max $8.200" in drawn.out and "use1-az2 (aws): a fake source" in drawn.out and "9 USD all the time" in drawn.out
    assert max(map(len, drawn.out.splitlines())) <= 100
    (series,) = run("prices", "history", "p4d.24xlarge", "--zone", "use1-az1", "--days", "30", "--json").json()["series"]
    assert [step["price_per_hour"] for step in series["steps"]] == ["7.1", "8.2", "6.3"]
    on_demand = run("prices", "history", "p4d.24xlarge", "--buy", "on_demand", "--region", "us-east-1")
    assert "20.5 USD all the time" in on_demand.out


def test_history_without_a_book_shows_the_one_price_that_ships(run: Run) -> None:
    shown = run("prices", "history", "p4d.24xlarge", "--region", "us-east-1", "--buy", "on_demand")
    assert shown.code == 0 and "21.9576 USD all the time" in shown.out and "no history is kept" in shown.out
    missing = run("prices", "history", "p4d.24xlarge", "--region", "mars-north-1")
    assert missing.code == 1 and "in mars-north-1 is known" in missing.err
    near = run("prices", "history", "p4d.24xlarg")
    assert near.code == 2 and "did you mean p4d.24xlarge?" in near.err


def test_import_keeps_the_good_rows_and_names_row_and_column_of_the_others(run: Run, tmp_path: Path) -> None:
    day = (NOW - timedelta(days=1)).date()
    rows = [
        f"us-east-1,,p4d.24xlarge,on_demand,20.25,USD,{day},our list",
        f'us-east-1,use1-az1,p4d.24xlarge,spot,"7,5",USD,{day},our list',
        f"us-east-1,use1-az2,p4d.24xlarge,spot,7.5,EURO,{day},our list",
        f"us-east-1,us-east-1c,p4d.24xlarge,spot,7.5,USD,{day},our list",
        f"us-west-2,,p4d.24xlarge,on_demand,2025,USD,{day},our list",
    ]
    file = tmp_path / "aws.csv"
    file.write_bytes(b"\xef\xbb\xbf\xef\xbb\xbfregion,zone,instance_type,purchase,price,currency,as_of,source\n" + "\n".join(rows).encode())
    done = run("prices", "import", file)
    assert done.code == 4 and "1 price taken: 1 new" in done.out
    for says in ("row 3, column price", "row 4, column currency", "row 5, column price: The spot price", "row 6, column price"):
        assert says in done.err
    assert "20.2500" in run("prices", "p4d.24xlarge", "buy:on-demand", "region:us-east-1").out
    assert run("prices", "import", file, "--json").json()["unchanged"] == 1
    file.write_text("region;price\n")
    wrong = run("prices", "import", file)
    assert wrong.code == 2 and "aws.csv, row 1" in wrong.err
    assert run("prices", "import", tmp_path / "none.csv").code == 1


def test_a_price_book_that_is_damaged_leaves_the_prices_that_ship(run: Run, tmp_path: Path) -> None:
    (tmp_path / "prices.db").write_bytes(b"this is no database, but long enough to look like one" * 100)
    shown = run("prices", "p4d.24xlarge", "region:us-east-1", "buy:on-demand")
    assert shown.code == 0 and "21.9576" in shown.out and "not a price book, or a damaged one" in shown.err
    failed = run("prices", "refresh", "--cloud", "azure")
    assert failed.code == 1 and "prices.db" in failed.err


@pytest.mark.parametrize(
    "words",
    [("refresh", "--cloud", "nope"), ("refresh", "--buy", "on-demand"), ("refresh", "--cloud", "azure", "--type", "p4d.24xlarge"),
     ("refresh", "--every", "0"), ("history", "p4d.24xlarge", "--days", "0"), ("history", "p4d.24xlarge", "--cloud", "nope"),
     ("import", "x.csv", "--cloud", "nope")],
)  # fmt: skip
def test_wrong_usage_is_told(run: Run, words: tuple[str, ...]) -> None:
    done = run("prices", *words)
    assert done.code == 2 and done.err


def test_prices_that_are_old_are_told_to_be(run: Run, serve: Callable[..., None]) -> None:
    assert "were last confirmed more than 180 days ago (alibaba): take them as a hint" in run("prices", "cloud:alibaba").err
    serve(FakeSource("gcp", [price("28", cloud="gcp")]))
    run("prices", "refresh", "--cloud", "gcp")
    fresh = run("prices", "a2-highgpu-8g", "region:us-central1", "buy:on-demand")
    assert "28.0000" in fresh.out and "take them as a hint" not in fresh.err


def test_what_is_asked_of_a_cloud_is_what_is_known_of_it_unless_something_is_named() -> None:
    catalog = Catalog.embedded()
    everything = wanted("aws", catalog, (), (), ())
    assert everything is not None and everything.purchases == PURCHASES and "us-east-1" in everything.regions
    assert everything.instance_types is not None and "p5.48xlarge" in everything.instance_types
    assert not any(name.startswith(("m5.", "c5.")) for name in everything.instance_types)
    named = wanted("azure", catalog, ("East US",), ("nc6s_v3",), ("spot",))
    assert named == Wanted(("eastus",), frozenset({"Standard_NC6s_v3"}), ("spot",))
    assert (wanted("azure", catalog, (), (), ()) or named).regions == ()  # one answer has them all
    assert wanted("gcp", catalog, (), ("p4d.24xlarge",), ()) is None
    new = wanted("aws", catalog, (), ("p9.48xlarge",), ())
    assert new is not None and new.instance_types == frozenset({"p9.48xlarge"})


def test_a_name_that_no_other_table_knows_is_taken_and_told_with_what_is_near(run: Run, tmp_path: Path) -> None:
    day = (NOW - timedelta(days=1)).date()
    rows = [f"{where},,{name},on_demand,{amount},USD,{day},ours" for where, name, amount in (
        ("us-east-1", "p4d.24xlarge", 21), ("us-esat-1", "g5.xlarge", 1), ("us-east-1", "p99.48xlarge", 50), ("us-esat-1", "g6.xlarge", '"0,9"'), ("us-east-1", "g6.xlarge", "0,9"),
    )]  # fmt: skip
    file = tmp_path / "aws.csv"
    file.write_text("region,zone,instance_type,purchase,price,currency,as_of,source\n" + "\n".join(rows))
    done = run("prices", "import", file)
    assert done.code == 4 and "3 prices taken" in done.out
    assert [line.strip() for line in done.err.splitlines()] == [
        "row 5, column price: The price '0,9' has a decimal comma: write a point, like '0.9'.",
        'row 6, column -: it has 9 cells where the header has 8; a comma inside a cell needs quotes, and "0,9" is 0.9.',
        "note: row 3, column region: no other table knows 'us-esat-1' (did you mean us-west-1 or us-east-1?); it was taken.",
        "note: row 4, column instance_type: no other table knows 'p99.48xlarge' (did you mean p5.48xlarge?); it was taken.",
    ]
