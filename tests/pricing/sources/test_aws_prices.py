"""The AWS price list, Savings Plans rates and dated files: every page, exact numbers, and what is left out with a sentence."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from pricing.sources import BadAnswer
from pricing.sources.aws import AwsSource
from pricing.sources.aws_price_files import AwsPriceFiles
from pricing.sources.aws_products import Place, Reading, read_products
from tests.support.aws_stubs import NOW, P4D, US_EAST_1, Aws, Told, product, rate_row, reservation, wanted, zone_rows

JULY = datetime(2026, 7, 1, tzinfo=UTC)
ALL = frozenset({"on_demand", "reserved_1y", "reserved_3y"})


def reading(types: frozenset[str] | None = P4D, purchases: frozenset[str] = ALL, currency: str = "USD") -> Reading:
    return Reading(Place("us-east-1", "us-east-1"), currency, purchases, types, NOW, "aws price list api 2026-08-01")


def test_a_product_gives_its_prices_digit_for_digit_with_place_dates_and_source() -> None:
    terms = [
        reservation(1, "No Upfront", hourly="13.8333000000"),
        reservation(3, "Partial Upfront", hourly="5.0000000000", upfront="131400"),
        reservation(3, "All Upfront", hourly="0.0000000000", upfront="250000"),
        reservation(1, "No Upfront", hourly="15.1", offering="convertible"),
    ]
    prices, skipped = read_products([product(reserved=terms)], reading())
    assert skipped == []
    found = {(price.purchase, price.payment): price for price in prices}
    assert len(found) == len(prices) == 4
    on_demand = found["on_demand", None]
    assert (on_demand.amount, on_demand.currency, on_demand.unit) == (Decimal("21.957642"), "USD", "instance_hour")
    assert (on_demand.region, on_demand.zone, on_demand.valid_from, on_demand.fetched_at) == ("us-east-1", None, JULY, NOW)
    assert (on_demand.source, on_demand.sku) == ("aws price list api 2026-08-01", "H7NGEAC6UEHNTKSJ")
    partial = found["reserved_3y", "partial_upfront"]
    assert (partial.upfront, partial.hourly, partial.term_hours) == (Decimal(131400), Decimal(5), 26280)
    assert partial.amount == Decimal(10)
    assert found["reserved_3y", "all_upfront"].amount == Decimal("9.5129375951")
    assert found["reserved_1y", "no_upfront"].amount == Decimal("13.8333")


def euros(document: dict) -> None:
    (term,) = document["terms"]["OnDemand"].values()
    (dimension,) = term["priceDimensions"].values()
    dimension["pricePerUnit"] = {"EUR": "20"}


def two_currencies(document: dict) -> None:
    (term,) = document["terms"]["OnDemand"].values()
    (dimension,) = term["priceDimensions"].values()
    dimension["pricePerUnit"] = {"USD": "21.9", "CNY": "150"}


def no_date(document: dict) -> None:
    (term,) = document["terms"]["OnDemand"].values()
    del term["effectiveDate"]


def tiers(document: dict) -> None:
    (term,) = document["terms"]["OnDemand"].values()
    (dimension,) = term["priceDimensions"].values()
    term["priceDimensions"]["second"] = dimension


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (product(price="0.0000000000"), "which is no price"),
        (product(price=""), "is missing"),
        (product(price="-3"), "below zero"),
        (product(price="NaN"), "not a number"),
        (product(price="21,95"), "decimal comma"),
        (product(unit="Quantity"), "The unit is 'Quantity', not an hour."),
        (product(change=euros), "It has no price in USD, only in EUR."),
        (product(change=two_currencies), "several currencies (CNY, USD)"),
        (product(change=no_date), "no date"),
        (product(change=tiers), "2 price dimensions"),
        (product(attributes={"regionCode": "us-west-2-lax-1"}), "'us-east-1' was asked for"),
        ("{", "no JSON document"),
        ('["p4d"]', "no JSON document"),
    ],
)
def test_a_bad_product_is_skipped_with_a_sentence_and_never_a_number(text: str, says: str) -> None:
    prices, skipped = read_products([text, product("p4d.24xlarge", "21.9")], reading())
    assert [price.amount for price in prices] == [Decimal("21.9")]
    (skip,) = skipped
    assert says in skip.reason
    assert "us-east-1" in skip.where


@pytest.mark.parametrize(
    ("term", "says"),
    [
        (reservation(1, "All Upfront", hourly="0"), "no upfront price"),
        (reservation(1, "Partial Upfront", upfront="100"), "no hourly price"),
        (reservation(1, "No Upfront", hourly="0.0000000000"), "no hourly price"),
        (reservation(1, "No Upfront", hourly="1", upfront="100"), "an upfront price of 100"),
        (reservation(1, "Heavy Utilization", hourly="1"), "'Heavy Utilization', which is not known"),
        (reservation(5, "No Upfront", hourly="1"), "neither one nor three years"),
        (reservation(1, "No Upfront", hourly="1", currency="EUR"), "no price in USD"),
    ],
)
def test_half_of_a_reserved_price_is_no_price(term: dict, says: str) -> None:
    prices, skipped = read_products([product(reserved=[term])], reading())
    assert [price.purchase for price in prices] == ["on_demand"]
    assert says in skipped[0].reason


@pytest.mark.parametrize(
    "attributes",
    [
        {"marketoption": "CapacityBlock"},
        {"operatingSystem": "Windows"},
        {"preInstalledSw": "SQL Ent"},
        {"capacitystatus": "UnusedCapacityReservation"},
        {"tenancy": "Dedicated"},
        {"operation": "RunInstances:0010"},
    ],
)
def test_another_kind_of_product_is_none_of_ours(attributes: dict[str, str]) -> None:
    assert read_products([product(price="0", attributes=attributes)], reading()) == ([], [])


def test_the_price_list_is_read_to_the_end_over_empty_pages_and_local_zones_are_places_of_their_own() -> None:
    aws, told = Aws(), Told()
    aws.lay("ec2", "describe_availability_zones", zone_rows(), {"AllAvailabilityZones": True})
    aws.lay("pricing", "get_products", {"PriceList": [], "NextToken": "one"})
    aws.lay("pricing", "get_products", {"PriceList": [product(), product("g5.xlarge", "1.006")], "NextToken": ""})
    metal = product("g4dn.metal", "7.824", family="Compute Instance (bare metal)", attributes={"tenancy": "Dedicated"})
    aws.lay("pricing", "get_products", {"PriceList": [metal]})
    aws.lay("pricing", "get_products", {"PriceList": [product("g4dn.2xlarge", "0.94", region="us-east-1-atl-2")]})
    asked = wanted("on_demand", types=None)
    prices = list(AwsSource(aws.session, NOW).fetch(asked, told))
    aws.all_used()
    assert [(price.instance_type, price.zone, str(price.amount)) for price in prices] == [
        ("p4d.24xlarge", None, "21.957642"),
        ("g5.xlarge", None, "1.006"),
        ("g4dn.metal", None, "7.824"),
        ("g4dn.2xlarge", "use1-atl2-az1", "0.94"),
    ]
    assert all(price.region == "us-east-1" for price in prices)
    filters = {pair["Field"]: pair["Value"] for pair in aws.asked("get_products")[0]["Filters"]}
    assert (filters["marketoption"], filters["capacitystatus"], filters["tenancy"]) == ("OnDemand", "Used", "Shared")
    assert [call.get("NextToken") for call in aws.asked("get_products")] == [None, "one", None, None]
    assert (told[-1].done, told[-1].total, told[-1].pages, told[-1].rows, told[-1].resume) == (1, 1, 4, 4, None)


def test_without_permission_for_the_zones_the_region_is_still_priced_and_that_is_said() -> None:
    aws, told = Aws(), Told()
    aws.refuse("ec2", "describe_availability_zones", "UnauthorizedOperation", status=403)
    aws.lay("pricing", "get_products", {"PriceList": [product()]})
    aws.lay("pricing", "get_products", {"PriceList": []})
    assert len(list(AwsSource(aws.session, NOW).fetch(wanted("on_demand"), told))) == 1
    assert told.skipped[0][0] == "local zones of us-east-1"
    assert "allow ec2:DescribeAvailabilityZones" in told.skipped[0][1]


def test_a_price_that_is_listed_twice_is_kept_once_and_a_contradiction_is_told() -> None:
    aws, told = Aws(), Told()
    aws.lay("ec2", "describe_availability_zones", zone_rows(US_EAST_1._replace(zones=US_EAST_1.zones[:1])))
    aws.lay("pricing", "get_products", {"PriceList": [product(), product()], "NextToken": "one"})
    aws.lay("pricing", "get_products", {"PriceList": [product(price="2195.76")]})
    aws.lay("pricing", "get_products", {"PriceList": []})
    (price,) = AwsSource(aws.session, NOW).fetch(wanted("on_demand"), told)
    assert price.amount == Decimal("21.957642")
    assert told.skipped[0][1] == "It is listed twice: 21.957642 is kept, 2195.76 is left out."


def test_china_is_priced_in_yuan_from_its_own_endpoint() -> None:
    aws, told = Aws(), Told()
    zones = US_EAST_1._replace(zones=())
    aws.lay("ec2", "describe_availability_zones", zone_rows(zones), region="cn-north-1")
    rows = [
        product("p3.2xlarge", "27.43", currency="CNY", region="cn-north-1"),
        product("p4d.24xlarge", "9", region="cn-north-1"),
    ]
    aws.lay("pricing", "get_products", {"PriceList": rows}, region="cn-northwest-1")
    aws.lay("pricing", "get_products", {"PriceList": []}, region="cn-northwest-1")
    asked = wanted("on_demand", types=None, regions=("cn-north-1",))
    (price,) = AwsSource(aws.session, NOW).fetch(asked, told)
    assert (price.amount, price.currency, price.region) == (Decimal("27.43"), "CNY", "cn-north-1")
    assert "no price in CNY, only in USD" in told.skipped[0][1]


def test_savings_plan_rates_are_read_to_the_end_and_bad_rows_are_told() -> None:
    aws, told = Aws(), Told()
    call = "describe_savings_plans_offering_rates"
    good = [rate_row("13.27"), rate_row("8.91", years=3, option="All Upfront", usage="USE1-BoxUsage:p4d.24xlarge")]
    others = [
        rate_row("13.27", usage="UnusedBox:p4d.24xlarge"),
        rate_row("14", operation="RunInstances:0010"),
        rate_row("14", plan="EC2Instance"),
        rate_row("14", name="p5.48xlarge"),
    ]
    bad = [rate_row("0"), rate_row(""), rate_row(currency="EUR"), rate_row(unit="Request"), rate_row(region="us-west-2")]
    aws.lay("savingsplans", call, {"searchResults": good[:1], "nextToken": "one"})
    aws.lay("savingsplans", call, {"searchResults": [], "nextToken": "two"})
    aws.lay("savingsplans", call, {"searchResults": [*good[1:], *others, *bad], "nextToken": ""})
    prices = list(AwsSource(aws.session, NOW).fetch(wanted("savings_plan_1y", "savings_plan_3y"), told))
    aws.all_used()
    assert [(price.purchase, price.payment, str(price.amount), price.term_hours) for price in prices] == [
        ("savings_plan_1y", "no_upfront", "13.27", 8760),
        ("savings_plan_3y", "all_upfront", "8.91", 26280),
    ]
    assert [call.get("nextToken") for call in aws.asked(call)] == [None, "one", "two"]
    reasons = " ".join(reason for _, reason in told.skipped)
    assert len(told.skipped) == len(bad)
    for says in ("is no price", "is missing", "currency is EUR", "unit is 'Request'", "'us-west-2'"):
        assert says in reasons


HEADER = (
    '"FormatVersion","v1.0"\n"Disclaimer","x"\n"Publication Date","2025-06-30"\n"Version","1"\n"OfferCode","AmazonEC2"\n'
    '"SKU","OfferTermCode","RateCode","TermType","PriceDescription","EffectiveDate","StartingRange","EndingRange","Unit",'
    '"PricePerUnit","Currency","LeaseContractLength","PurchaseOption","OfferingClass","Product Family","Instance Type",'
    '"Tenancy","Operating System","operation","CapacityStatus","MarketOption","Pre Installed S/W","Region Code"\n'
)
KIND = '"Compute Instance","p4d.24xlarge","Shared","Linux","RunInstances","Used","OnDemand","NA","us-east-1"\n'
FILE = (
    HEADER
    + '"S1","T1","R","OnDemand","x, y","2025-06-01","0","Inf","Hrs","32.7726","USD","","","",' + KIND
    + '"S1","T2","R","Reserved","x","2025-06-01","","","Quantity","87600","USD","1yr","Partial Upfront","standard",' + KIND
    + '"S2","T1","R","OnDemand","x","2025-06-01","0","Inf","Hrs","9","USD","","","",' + KIND.replace("Linux", "Windows")
    + '"S1","T2","R","Reserved","x","2025-06-01","0","Inf","Hrs","9.5","USD","1yr","Partial Upfront","standard",' + KIND
)  # fmt: skip


def dated(text: str) -> tuple[list, Told, Aws]:
    aws, told = Aws(), Told()
    lists = [
        {
            "PriceListArn": "arn:aws:pricing:::price-list/aws/x/USD/y/us-east-1",
            "RegionCode": "us-east-1",
            "FileFormats": ["json", "csv"],
        }
    ]
    aws.lay("pricing", "list_price_lists", {"PriceLists": [], "NextToken": "one"})
    aws.lay("pricing", "list_price_lists", {"PriceLists": lists})
    aws.lay("pricing", "get_price_list_file_url", {"Url": "https://example.invalid/list.csv"})

    @contextmanager
    def opened(url: str):
        assert url == "https://example.invalid/list.csv"
        yield iter(text.splitlines(keepends=True))

    source = AwsPriceFiles(aws.session, JULY.replace(year=2025), NOW, opened)
    return list(source.fetch(wanted("on_demand", "reserved_1y"), told)), told, aws


def test_a_dated_price_list_gives_the_prices_of_its_day() -> None:
    prices, told, aws = dated(FILE)
    assert [(price.purchase, str(price.amount), price.sku) for price in prices] == [
        ("on_demand", "32.7726", "S1"),
        ("reserved_1y", "19.5000000000", "S1"),
    ]
    assert prices[0].valid_from == datetime(2025, 6, 1, tzinfo=UTC)
    assert prices[0].source == "aws price list file 2025-07-01"
    assert aws.asked("list_price_lists")[0]["EffectiveDate"] == JULY.replace(year=2025)
    assert told.skipped == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (FILE[:-40], "cut or damaged at line"),
        ("", "has no header"),
        (FILE.replace('"Tenancy"', '"Tenure"'), "no column for: tenancy"),
    ],
)
def test_a_cut_price_list_gives_nothing_but_a_fault(text: str, says: str) -> None:
    with pytest.raises(BadAnswer, match=says):
        dated(text)
