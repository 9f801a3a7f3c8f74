"""Azure, Google Cloud and Alibaba Cloud as sources, against a loopback server that answers in the documented shapes."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from pricing.catalog import Catalog
from pricing.prices import Price
from pricing.sources import (
    BadAnswer,
    ExpiredCredentials,
    NoCredentials,
    NoPermission,
    Progress,
    Skipped,
    SourceFault,
    Throttled,
    TruncatedPage,
    Unreachable,
    Wanted,
)
from pricing.sources.alibaba import AlibabaSource, signature
from pricing.sources.azure import AzureSource
from pricing.sources.gcp import GcpSource
from pricing.sources.web import Web, retry_after
from tests.support.price_server import Answer, Asked, price_server

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
H100 = "Standard_ND96isr_H100_v5"


def item(price: float = 98.32, **more: Any) -> dict[str, Any]:
    return {
        "currencyCode": "USD", "tierMinimumUnits": 0.0, "retailPrice": price, "unitPrice": price, "armRegionName": "eastus",
        "location": "US East", "effectiveStartDate": "2026-06-01T00:00:00Z", "meterId": "m", "meterName": "ND96isr H100 v5",
        "productId": "p", "skuId": "DZH318Z0BQPS/00TG", "productName": "Virtual Machines ND H100 v5 Series", "skuName": "ND96isrH100v5",
        "serviceName": "Virtual Machines", "serviceFamily": "Compute", "unitOfMeasure": "1 Hour", "type": "Consumption",
        "isPrimaryMeterRegion": True, "armSkuName": H100, **more,
    }  # fmt: skip


def page(*items: dict[str, Any], following: str | None = None) -> Answer:
    return Answer({"BillingCurrency": "USD", "Items": list(items), "NextPageLink": following, "Count": len(items)})


ALL_OPTIONS = ("on_demand", "spot", "reserved_1y", "reserved_3y", "savings_plan_1y", "savings_plan_3y")
WANTED = Wanted(("eastus",), frozenset({H100}), ALL_OPTIONS)


def fetched(source: Any, wanted: Wanted) -> tuple[list[Price], list[Progress]]:
    told: list[Progress] = []
    return list(source.fetch(wanted, told.append)), told


def test_azure_pages_to_the_end_and_takes_only_linux_machines_of_our_options() -> None:
    plans = [{"term": "1 Year", "retailPrice": 80.5, "unitPrice": 80.5}, {"term": "3 Years", "retailPrice": 60.25}]
    consumption = [
        item(98.32, savingsPlan=plans),
        item(30.5, skuName="ND96isrH100v5 Spot", meterName="ND96isr H100 v5 Spot"),
        item(25.1, skuName="ND96isrH100v5 Low Priority", meterName="ND96isr H100 v5 Low Priority"),
        item(110.0, productName="Virtual Machines ND H100 v5 Series Windows"),
        item(70.0, type="DevTestConsumption"),
        item(1.0, armSkuName="Standard_D2s_v3"),
        item(1.0, armRegionName="westus"),
        item(1.0, unitOfMeasure="1 GB/Month"),
        item(1.0, serviceName="Storage"),
        item("n/a", skuId="broken"),  # type: ignore[arg-type]
    ]
    reservations = [
        item(500000.0, type="Reservation", reservationTerm="1 Year"),
        item(1000000.0, type="Reservation", reservationTerm="3 Years", unitOfMeasure="3 Years"),
    ]

    def answer(asked: Asked, before: int) -> Answer:
        if "$skip" in asked.query:
            return page(*consumption[5:])
        if "Reservation" in asked.query["$filter"]:
            return page(*reservations)
        return page(*consumption[:5], following=f"{server.url}/api?$skip=1000&$filter=x")

    with price_server(answer) as server:
        prices, told = fetched(AzureSource(NOW, url=f"{server.url}/api"), WANTED)
    assert {(price.purchase, price.payment): price.amount for price in prices} == {
        ("on_demand", None): Decimal("98.32"),
        ("savings_plan_1y", "no_upfront"): Decimal("80.5"),
        ("savings_plan_3y", "no_upfront"): Decimal("60.25"),
        ("spot", None): Decimal("30.5"),
        ("reserved_1y", None): Decimal("57.0776255708"),
        ("reserved_3y", None): Decimal("38.0517503805"),
    }
    reserved = next(price for price in prices if price.purchase == "reserved_1y")
    assert (reserved.upfront, reserved.hourly, reserved.term_hours) == (Decimal("500000.0"), 0, 8760)
    first = prices[0]
    assert (first.cloud, first.region, first.instance_type, first.unit, first.currency) == (
        "azure", "eastus", H100, "instance_hour", "USD"
    )  # fmt: skip
    assert (first.valid_from, first.fetched_at, first.sku) == (datetime(2026, 6, 1, tzinfo=UTC), NOW, "DZH318Z0BQPS/00TG")
    assert first.source == "azure retail prices api 2026-11-29"
    asked = [request.query.get("$filter", "") for request in server.asked]
    assert asked[0] == (
        "serviceName eq 'Virtual Machines' and priceType eq 'Consumption' and armRegionName eq 'eastus'"
        f" and (armSkuName eq '{H100}')"
    )
    assert len(asked) == 3 and [one.resume is None for one in told] == [False, False, True]
    assert [one.where for report in told for one in report.skipped] == [f"azure eastus, {H100}, on_demand"]


def test_azure_goes_on_where_it_was_stopped() -> None:
    def answer(asked: Asked, before: int) -> Answer:
        skip = int(asked.query.get("$skip", 0))
        following = f"{server.url}/api?$skip={skip + 1}" if skip < 2 else None
        return page(item(90.0 + skip, skuId=str(skip)), following=following)

    wanted = Wanted(("eastus",), frozenset({H100}), ("on_demand",))
    with price_server(answer) as server:
        source = AzureSource(NOW, url=f"{server.url}/api")
        told: list[Progress] = []
        prices = source.fetch(wanted, told.append)
        first = [next(prices), next(prices)]
        prices.close()  # type: ignore[attr-defined]
        rest, _ = fetched(source, wanted._replace(resume=told[-1].resume))
    assert [price.sku for price in (*first, *rest)] == ["0", "1", "1", "2"]  # the page in work comes again, none is lost


def test_azure_is_not_led_elsewhere_nor_round_in_circles() -> None:
    for link, fault in (("https://example.org/x", BadAnswer), ("{url}/again", TruncatedPage)):

        def answer(asked: Asked, before: int, link: str = link) -> Answer:
            return page(item(), following=link.format(url=server.url))

        with price_server(answer) as server, pytest.raises(fault):
            fetched(AzureSource(NOW, url=f"{server.url}/api"), Wanted(("eastus",), None, ("on_demand",)))


def test_a_server_that_is_busy_is_asked_again_as_late_as_it_says() -> None:
    replies = [
        Answer({}, 429, {"retry-after": "7"}), Answer(b"", 503),
        Answer({}, 429, {"retry-after": "Sun, 29 Nov 2026 12:00:09 GMT", "date": "Sun, 29 Nov 2026 12:00:00 GMT"}),
        Answer({"value": 1.10}),
    ]  # fmt: skip
    waits: list[float] = []
    with price_server(lambda asked, before: replies[before]) as server, Web("The API", sleep=waits.append) as web:
        assert web.get(server.url) == {"value": Decimal("1.1")}
    assert waits[:2] == [7, 2]
    assert waits[2] >= 4  # the server's own date may be added twice: what counts is that it waits


@pytest.mark.parametrize(
    ("reply", "fault", "says", "tries"),
    [
        (Answer({}, 429), Throttled, "too many requests, also after 5 tries", 5),
        (Answer({"Code": "Throttling.User"}, 400), Throttled, "too many requests", 5),
        (Answer({}, 429, {"retry-after": "3600"}), Throttled, "asks to wait 3600 s", 1),
        (Answer(b"oh no", 500), Unreachable, "500", 5),
        (Answer({"error": {"message": "bad filter"}}, 400), BadAnswer, "400 (bad filter)", 1),
        (Answer({"error": {"message": "denied \x1b[2J"}}, 403), NoPermission, "may not read prices", 1),
        (Answer({"error": {"status": "API_KEY_INVALID"}}, 400), ExpiredCredentials, "not valid", 1),
        (Answer(b'{"Items": [', 200), BadAnswer, "no JSON", 1),
        (Answer([1], 200), BadAnswer, "a list where an object", 1),
    ],
)
def test_a_refusal_is_a_sentence_and_only_what_may_help_is_tried_again(
    reply: Answer, fault: type[SourceFault], says: str, tries: int
) -> None:
    with price_server(lambda asked, before: reply) as server, Web("The API", sleep=lambda _: None) as web:
        with pytest.raises(fault) as caught:
            web.get(server.url)
        assert says in str(caught.value) and str(caught.value).isprintable()
        assert len(server.asked) == tries


def test_a_server_that_is_not_there_is_unreachable() -> None:
    with Web("The API", sleep=lambda _: None) as web, pytest.raises(Unreachable, match=r"127\.0\.0\.1 cannot be reached"):
        web.get("http://127.0.0.1:9/")
    assert retry_after({"retry-after": "soon"}) is None and retry_after({"retry-after": "-1"}) is None


def sku(
    description: str, price: str, *, group: str = "CPU", usage: str = "OnDemand", unit: str = "h", region: str = "us-central1"
):
    units, _, rest = price.partition(".")
    return {
        "name": "services/6F81-5844-456A/skus/X", "skuId": "X", "description": description,
        "category": {"serviceDisplayName": "Compute Engine", "resourceFamily": "Compute", "resourceGroup": group, "usageType": usage},
        "serviceRegions": [region],
        "pricingInfo": [{
            "effectiveTime": "2026-11-01T00:00:00Z", "pricingExpression": {"usageUnit": unit, "tieredRates": [
                {"startUsageAmount": 0, "unitPrice": {"currencyCode": "USD", "units": units, "nanos": int(rest.ljust(9, "0"))}}
            ]},
        }],
    }  # fmt: skip


SKUS = [
    sku("A2 Instance Core running in Iowa", "0.031611"),
    sku("A2 Instance Ram running in Iowa", "0.004237", group="RAM", unit="GiBy.h"),
    sku("Nvidia Tesla A100 GPU running in Iowa", "2.933908", group="GPU"),
    sku("Nvidia Tesla A100 80GB GPU running in Iowa", "3.928", group="GPU"),
    sku("SSD backed Local Storage", "0.08", group="LocalSSD", unit="GiBy.mo"),
    sku("Spot Preemptible A2 Instance Core running in Iowa", "0.01", usage="Preemptible"),
    sku("Spot Preemptible A2 Instance Ram running in Iowa", "0.001", group="RAM", usage="Preemptible", unit="GiBy.h"),
    sku("Nvidia Tesla A100 GPU attached to Spot Preemptible VMs running in Iowa", "1.5", group="GPU"),  # says OnDemand
    sku("Commitment v1: A2 Cpu in Iowa for 1 Year", "0.02", usage="Commit1Yr"),
    sku("Commitment v1: A2 Ram in Iowa for 1 Year", "0.003", group="RAM", usage="Commit1Yr", unit="GiBy.h"),
    sku("Commitment v1: Nvidia Tesla A100 GPU running in Iowa for 1 Year", "1.8", group="GPU", usage="Commit1Yr"),
    sku("Nvidia Tesla A100 GPU running in Zurich", "4.1", group="GPU", region="europe-west6"),
    sku("Reserved A2 Instance Core running in Iowa", "9.9"),
    sku("A2 Instance Core running in Oslo", "0", region="europe-north9"),
]
SHAPES = Catalog.embedded().instances("gcp")


def gcp_answers(asked: Asked, before: int) -> Answer:
    half = len(SKUS) // 2
    if asked.query["pageToken"] == "second":
        return Answer({"skus": SKUS[half:], "nextPageToken": ""})
    return Answer({"skus": SKUS[:half], "nextPageToken": "second"})


def test_gcp_sums_the_components_of_a_machine_and_leaves_out_what_is_known_in_part() -> None:
    names = frozenset({"a2-highgpu-1g", "a2-ultragpu-1g"})
    with price_server(gcp_answers) as server:
        source = GcpSource("the key", SHAPES, NOW, url=server.url)
        prices, told = fetched(source, Wanted((), names, ("on_demand", "spot", "reserved_1y")))
    assert {(price.instance_type, price.purchase): price.amount for price in prices} == {
        ("a2-highgpu-1g", "on_demand"): Decimal("3.673385"),  # what the snapshot has
        ("a2-highgpu-1g", "spot"): Decimal("1.705"),
        ("a2-highgpu-1g", "reserved_1y"): Decimal("2.295"),
        ("a2-ultragpu-1g", "on_demand"): Decimal("5.0687178904"),
    }
    assert [request.query["pageToken"] for request in server.asked] == ["", "second"]
    assert {request.query["key"] for request in server.asked} == {"the key"}
    skipped = [one for report in told for one in report.skipped]
    assert (
        Skipped("gcp europe-west6, a2-highgpu-1g, on_demand", "its price is only known in part: no SKU for core:A2, ram:A2.")
        in skipped
    )
    assert any("Oslo" in one.where for one in skipped) and told[-1].resume is None
    assert all("the key" not in repr(one) for one in (*prices, *told))


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (GcpSource(None, SHAPES, NOW), "RACKRATE_GCP_API_KEY"),
        (AlibabaSource(None, None, NOW), "ALIBABA_CLOUD_ACCESS_KEY_ID"),
    ],
)
def test_a_cloud_that_tells_nothing_without_a_key_says_what_to_configure(source: Any, says: str) -> None:
    with pytest.raises(NoCredentials, match=says) as caught:
        fetched(source, WANTED)
    assert "the prices that ship" in str(caught.value)


def alibaba_answers(asked: Asked, before: int) -> Answer:
    query = dict(asked.query)
    sent = query.pop("Signature")
    assert sent == signature(query, "secret")
    if query["Action"] == "DescribePrice":
        if query["InstanceType"] == "ecs.gone":
            return Answer(
                {"Code": "InvalidInstanceType.ValueNotSupported", "Message": "The specified InstanceType is gone."}, 400
            )
        parts = [
            {"Resource": "systemDisk", "OriginalPrice": 0.4},
            {"Resource": "instanceType", "OriginalPrice": 26.46, "TradePrice": 20.0},
        ]
        price = {"Currency": "CNY", "OriginalPrice": 26.86, "TradePrice": 20.4, "DetailInfos": {"DetailInfo": parts}}
        return Answer({"RequestId": "r", "PriceInfo": {"Price": price, "Rules": {"Rule": []}}})
    rows = [{"ZoneId": "cn-beijing-h", "InstanceType": "ecs.gn6v", "SpotPrice": 3.1 + int(query["Offset"]), "OriginPrice": 26.46,
             "Timestamp": f"2026-11-{10 + int(query['Offset'])}T02:00:00Z", "NetworkType": "vpc"}]  # fmt: skip
    return Answer({"Currency": "CNY", "NextOffset": 1 if query["Offset"] == "0" else 0, "SpotPrices": {"SpotPriceType": rows}})


def test_alibaba_asks_signed_for_each_type_and_takes_the_instance_without_its_disk() -> None:
    wanted = Wanted(("cn-beijing",), frozenset({"ecs.gn6v", "ecs.gone"}), ("on_demand", "spot"))
    with price_server(alibaba_answers) as server:
        source = AlibabaSource("id", "secret", NOW, url=f"{server.url}/{{region}}/")
        prices, told = fetched(source, wanted)
        again, _ = fetched(source, wanted._replace(resume=told[0].resume))
    told_of = [
        (price.purchase, price.zone, price.amount, price.valid_from.day)
        for price in prices
        if price.instance_type == "ecs.gn6v"
    ]
    assert told_of == [
        ("on_demand", None, Decimal("26.46"), 29), ("spot", "cn-beijing-h", Decimal("3.1"), 10), ("spot", "cn-beijing-h", Decimal("4.1"), 11)
    ]  # fmt: skip
    assert {price.currency for price in prices} == {"CNY"} and again == prices[1:]
    (skipped,) = [one for report in told for one in report.skipped]
    assert "ecs.gone" in skipped.where and "400 (The specified InstanceType is gone)" in skipped.reason
    nonces = [request.query["SignatureNonce"] for request in server.asked]
    assert len(set(nonces)) == len(nonces) and server.asked[0].path == "/cn-beijing/"


def test_the_signature_is_the_one_that_alibaba_documents() -> None:
    params = {
        "TimeStamp": "2012-12-26T10:33:56Z", "Format": "XML", "AccessKeyId": "testid", "Action": "DescribeRegions",
        "SignatureMethod": "HMAC-SHA1", "RegionId": "region1", "SignatureNonce": "NwDAxvLU6tFE0DVb", "Version": "2014-05-26",
        "SignatureVersion": "1.0",
    }  # fmt: skip
    text = (
        "GET&%2F&AccessKeyId%3Dtestid%26Action%3DDescribeRegions%26Format%3DXML%26RegionId%3Dregion1%26SignatureMethod%3DHMAC-SHA1"
        "%26SignatureNonce%3DNwDAxvLU6tFE0DVb%26SignatureVersion%3D1.0%26TimeStamp%3D2012-12-26T10%253A33%253A56Z%26Version%3D2014-05-26"
    )
    expected = base64.b64encode(hmac.new(b"testsecret&", text.encode(), hashlib.sha1).digest()).decode()
    assert signature(params, "testsecret") == expected


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    yield
