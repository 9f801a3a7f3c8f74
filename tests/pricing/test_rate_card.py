"""Rates: from the catalog with its terms, from a file, and both; what is not known is absent and never 0."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from fractions import Fraction
from pathlib import Path

import pytest

from pricing import terms as terms_file
from pricing.catalog import Catalog
from pricing.contracts import Discount
from pricing.demand import DemandKey
from pricing.errors import AdviceFileError
from pricing.pricebook_read import Current
from pricing.rate_card import (
    CatalogCard,
    FileCard,
    LayeredCard,
    RateCard,
    in_dollars,
    read_rates,
)
from pricing.terms import Terms
from tests.support.advising import reservation

NOW = datetime(2026, 11, 30, tzinfo=UTC)
P3 = DemandKey("aws", "us-east-1", "p3.16xlarge")
HEAD = "instance_type,region,purchase,usd_per_hour,term_months,upfront\n"


def card(terms: Terms = Terms()) -> CatalogCard:  # noqa: B008
    return CatalogCard(Catalog.embedded(), terms, NOW)


def read(folder: Path, text: str | bytes) -> FileCard:
    file = folder / "rates.csv"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_rates(file, Catalog.embedded())


def test_the_catalog_tells_on_demand_per_region_and_spot_per_zone_with_source_and_date() -> None:
    on_demand = card().on_demand(P3)
    assert on_demand is not None and on_demand.usd_per_hour == Fraction("24.48") and on_demand.as_of == date(2026, 7, 20)
    spot = card().rates(P3, "spot")
    assert [rate.zone for rate in spot] == ["use1-az5", "use1-az6", "use1-az2", "use1-az1"], "the cheapest first"
    assert all(rate.source and rate.as_of for rate in spot)
    assert card().rates(P3, "reserved_1y") == [], "reserved rates are not in the snapshot: unknown, not 0"


def test_a_type_that_one_cloud_alone_has_needs_no_cloud_and_an_unknown_type_has_no_rates() -> None:
    found = card()
    assert found.on_demand(P3._replace(cloud=None)) == found.on_demand(P3)
    assert (
        not found.rates(DemandKey(None, "us-east-1", "p9.huge"))
        and found.shape(DemandKey(None, "us-east-1", "p9.huge")) is None
    )
    assert not found.rates(DemandKey("on_premises", "cellar", "box"))
    assert "unknown instance type" in (found.why_not(DemandKey("aws", "us-east-1", "p9.huge"), "on_demand") or "")


def test_the_largest_discount_of_the_terms_comes_off() -> None:
    terms = Terms((Discount("aws", Fraction(10)), Discount("aws", Fraction(25), instance_type="p3.*", purchase="on_demand")))
    on_demand = card(terms).on_demand(P3)
    assert on_demand is not None and on_demand.usd_per_hour == Fraction("24.48") * Fraction(75, 100)
    assert card(terms).rates(P3, "spot")[0].usd_per_hour == Fraction("2.6694") * Fraction(9, 10)


def test_another_currency_has_a_rate_only_where_the_terms_give_one_for_now() -> None:
    key = DemandKey("alibaba", "cn-beijing", "ecs.gn6v-c8g1.2xlarge")
    plain = card()
    assert plain.on_demand(key) is None
    assert "CNY" in plain.notes[0] and "no exchange rate" in plain.notes[0]
    told = card(terms_file.parse({"currency": {"CNY": [{"from": date(2026, 1, 1), "usd": "0.14"}]}}))
    rate = told.on_demand(key)
    assert rate is not None and rate.usd_per_hour == Fraction("26.46") * Fraction("0.14")
    assert "1 CNY = 0.14 USD from 2026-01-01" in told.notes[0]
    late = card(terms_file.parse({"currency": {"CNY": [{"from": date(2027, 1, 1), "usd": "0.14"}]}}))
    assert late.on_demand(key) is None


def test_keys_are_what_has_a_known_price_in_dollars() -> None:
    keys = card().keys()
    assert P3 in keys and len(keys) > 1000 and not any(key.cloud == "alibaba" for key in keys)
    assert keys == sorted(keys)


def test_a_file_amortises_the_upfront_payment_over_the_term_exactly(tmp_path: Path) -> None:
    text = HEAD + (
        "p3.16xlarge,us-east-1,on_demand,24.48,,\n"
        "p3.16xlarge,us-east-1,reserved_1y,15.42,12,0\n"
        "p3.16xlarge,us-east-1,reserved_1y,0,12,126000\n"
        "p3.16xlarge,us-east-1,reserved_1y,7.5,12,64000\n"
        "p3.16xlarge,us-east-1,spot,7.34,,\n"
    )
    found = read(tmp_path, text)
    on_demand = found.on_demand(P3)
    assert on_demand is not None and on_demand.usd_per_hour == Fraction("24.48")
    reserved = found.rates(P3, "reserved_1y")
    assert [(rate.usd_per_hour, rate.payment) for rate in reserved] == [
        (Fraction(126000, 8760), "all_upfront"),
        (Fraction("7.5") + Fraction(64000, 8760), "partial_upfront"),
        (Fraction("15.42"), "no_upfront"),
    ]
    assert {rate.term_months for rate in reserved} == {12}
    assert found.shape(P3) is not None and found.keys() == [P3._replace(cloud=None)]


def test_rates_without_a_cloud_hold_for_any_and_those_with_one_for_a_demand_without(tmp_path: Path) -> None:
    anywhere = read(tmp_path, HEAD + "P3.16xlarge,US-East-1,on_demand,24.48,,\n")
    assert anywhere.on_demand(P3) == anywhere.on_demand(P3._replace(cloud=None)) != None  # noqa: E711
    told = read(tmp_path, "cloud," + HEAD + "aws,p3.16xlarge,us-east-1,on_demand,24.48,,\n")
    assert told.on_demand(P3) is not None and told.on_demand(P3._replace(cloud=None)) is not None
    assert told.on_demand(P3._replace(cloud="gcp")) is None


@pytest.mark.parametrize("cell", ["", "0", "0.00", "NaN", "n/a", "null"])
def test_an_empty_zero_or_missing_price_is_unknown_noted_and_never_the_cheapest(tmp_path: Path, cell: str) -> None:
    found = read(tmp_path, HEAD + f"x,r,on_demand,3,,\nx,r,spot,{cell},,\n")
    assert found.rates(DemandKey(None, "r", "x"), "spot") == []
    assert "1 rate is empty, zero or no number, and so not known (row 3, spot of x in r)" in found.notes[0]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("x,r,reserved_1y,3,,\n", "row 2, column term_months: it is empty: reserved_1y binds for a term, write 12"),
        ("x,r,savings_plan_3y,3,12,\n", "12 months are no term of savings_plan_3y: it binds for 36"),
        ("x,r,on_demand,3,12,\n", "on_demand binds for no term"),
        ("x,r,spot,3,,100\n", "spot has no term over which an upfront payment could be spread"),
        ("x,r,on-demnd,3,,\n", r"'on-demnd' is not known \(did you mean on_demand\?\)"),
        ("x,r,on_demand,-3,,\n", "row 2, column usd_per_hour: -3 is negative"),
        ("x,r,on_demand,$3,,\n", "currency sign"),
        ("x,r,reserved_1y,3,12,-1\n", "column upfront: -1 is negative"),
        (
            "x,r,on_demand,3,,\nx,r,on_demand,4,,\n",
            "row 3, column usd_per_hour: the on_demand rate of x in r is told otherwise in row 2",
        ),
        (",r,on_demand,3,,\n", "column instance_type: it is empty"),
        ("x,r,on_demand,3,\n", "row 2: it has 5 cells where the header has 6"),
        ("", "rates.csv has no rate below its header"),
    ],
)
def test_what_is_wrong_in_a_file_of_rates_is_one_sentence_with_row_and_column(tmp_path: Path, line: str, sentence: str) -> None:
    with pytest.raises(AdviceFileError, match=sentence):
        read(tmp_path, HEAD + line)


def test_a_way_to_pay_that_does_not_fit_its_amounts_is_refused(tmp_path: Path) -> None:
    head = HEAD.rstrip() + ",payment,as_of\n"
    with pytest.raises(AdviceFileError, match="all_upfront does not fit an upfront of 0 and 3 an hour: no_upfront"):
        read(tmp_path, head + "x,r,reserved_1y,3,12,,all_upfront,2026-01-01\n")
    with pytest.raises(AdviceFileError, match="'soon' is no date"):
        read(tmp_path, head + "x,r,reserved_1y,3,12,,,soon\n")


def test_the_same_line_twice_is_one_rate(tmp_path: Path) -> None:
    found = read(tmp_path, HEAD + "x,r,on_demand,3,,\nx,r,on_demand,3.00,,\n")
    assert len(found.rates(DemandKey(None, "r", "x"))) == 1


def test_a_catalog_under_a_file_tells_only_the_purchase_options_that_the_file_leaves_open(tmp_path: Path) -> None:
    found: RateCard = LayeredCard(read(tmp_path, HEAD + "p3.16xlarge,us-east-1,spot,9,,\n"), card())
    assert [rate.usd_per_hour for rate in found.rates(P3, "spot")] == [9]
    on_demand = found.on_demand(P3)
    assert on_demand is not None and on_demand.usd_per_hour == Fraction("24.48")
    assert found.shape(P3) is not None and P3 in found.keys()


class Shelf:
    """A price book with three ways to pay for one type."""

    def current(self, moment: datetime, cloud: str) -> list[Current]:
        if cloud != "aws":
            return []
        told = {"no_upfront": "15.5", "partial_upfront": "14.9", "all_upfront": "14.6"}
        ms = 1_790_000_000_000
        return [
            Current("us-east-1", "", "p3.16xlarge", "reserved_1y", payment, amount, "USD", ms, ms, "price list")
            for payment, amount in told.items()
        ]

    def lines(self, cloud: str, instance_type: str) -> dict:  # type: ignore[type-arg]
        return {}

    def newest(self) -> datetime | None:
        return NOW


def test_a_price_book_tells_each_way_to_pay() -> None:
    found = CatalogCard(Catalog.embedded().with_book(Shelf(), NOW), Terms(), NOW).rates(P3, "reserved_1y")
    assert [(rate.payment, rate.usd_per_hour) for rate in found] == [
        ("all_upfront", Fraction("14.6")), ("partial_upfront", Fraction("14.9")), ("no_upfront", Fraction("15.5")),
    ]  # fmt: skip
    assert found[0].upfront == Fraction("14.6") * 8760 and found[0].hourly == 0 and found[2].hourly == Fraction("15.5")


def test_commitments_in_other_currencies_are_told_in_dollars_or_named() -> None:
    yuan = replace(reservation(2, "70"), currency="CNY", upfront=Fraction(700))
    terms = terms_file.parse({"currency": {"CNY": [{"from": date(2026, 1, 1), "usd": "0.14"}]}})
    terms = replace(terms, commitments=(yuan, reservation(1, "12", id="usd")))
    told, notes = in_dollars(terms, NOW)
    assert [(one.id, one.cost_per_hour, one.upfront, one.currency) for one in told.commitments] == [
        ("r", Fraction("9.8"), Fraction(98), "USD"), ("usd", 12, 0, "USD"),
    ]  # fmt: skip
    assert notes == []
    told, notes = in_dollars(Terms(commitments=(yuan,)), NOW)
    assert told.commitments == () and "commitment r is in no advice" in notes[0] and "no exchange rate" in notes[0]
