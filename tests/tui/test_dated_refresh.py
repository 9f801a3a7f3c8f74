"""`prices refresh --as-of DATE`: a price list of a day gone by, over loopback, into the history of the price book."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.pricing.sources.test_aws_prices import FILE
from tests.support.aws_stubs import Aws
from tests.support.cli import Done
from tests.support.price_server import Answer, price_server
from tui import price_sources

Run = Callable[..., Done]
WORDS = ("prices",)
ASKED = ("refresh", "--as-of", "2025-07-01", "--region", "us-east-1", "--type", "p4d.24xlarge")


def stubbed(monkeypatch: pytest.MonkeyPatch, url: str) -> Aws:
    aws = Aws()
    arn = {"PriceListArn": "arn:aws:pricing:::price-list/aws/x", "RegionCode": "us-east-1", "FileFormats": ["csv"]}
    aws.lay("pricing", "list_price_lists", {"PriceLists": [arn]})
    aws.lay("pricing", "get_price_list_file_url", {"Url": f"{url}/20250630/us-east-1/index.csv?sign=1"})
    monkeypatch.setattr(price_sources, "aws_session", lambda: aws.session)
    return aws


def test_prices_of_a_day_gone_by_become_history_and_today_stays(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    today = run("p4d.24xlarge", "region:us-east-1", "buy:on-demand").out
    with price_server(lambda asked, before: Answer(FILE.encode())) as server:
        aws = stubbed(monkeypatch, server.url)
        done = run(*ASKED)
    assert done.code == 0 and "aws: reading index.csv" in done.err
    assert done.out.splitlines()[1].split() == ["aws", "2", "0", "0", "0", "0", "done"]
    aws.all_used()
    assert run("p4d.24xlarge", "region:us-east-1", "buy:on-demand").out == today
    steps = run("history", "p4d.24xlarge", "--region", "us-east-1", "--buy", "on_demand", "--days", "900", "--json").json()
    assert "32.7726" in str(steps)
    assert "was refreshed" not in run("p4d.24xlarge").err, "a list of a day gone by is no refresh of today"


def test_a_list_that_is_cut_or_gone_keeps_all_as_it_was(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for answer, says in ((Answer(FILE[:-40].encode()), "cut or damaged at line"), (Answer(b"no", 403), "HTTP 403")):
        with price_server(lambda asked, before, answer=answer: answer) as server:
            stubbed(monkeypatch, server.url)
            done = run(*ASKED)
        assert done.code == 1 and says in done.err
    assert run("history", "p4d.24xlarge", "--region", "us-east-1", "--buy", "on_demand").code == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--as-of", "yesterday", "--region", "us-east-1"), "is no date"),
        (("--as-of", "2199-01-01", "--region", "us-east-1"), "not over yet"),
        (("--as-of", "2025-07-01"), "name the regions"),
        (("--as-of", "2025-07-01", "--region", "eastus", "--cloud", "azure"), "only AWS publishes"),
        (("--as-of", "2025-07-01", "--region", "us-east-1", "--buy", "spot"), "hold no spot prices"),
        (("--as-of", "2025-07-01", "--region", "us-east-1", "--every", "24"), "does not change"),
    ],
)
def test_what_there_is_no_dated_list_of_is_told_before_anything_is_asked(run: Run, words: tuple[str, ...], says: str) -> None:
    done = run("refresh", *words)
    assert done.code == 2 and says in done.err
