"""AWS without AWS: clients whose answers are laid out beforehand (botocore checks their shape), and rows to lay out.

Invariant: a call that was not laid out, or has other arguments than expected, fails the test.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import boto3
from botocore import xform_name
from botocore.config import Config
from botocore.loaders import JSONFileLoader
from botocore.stub import Stubber

from pricing.sources import Progress, Wanted
from pricing.sources.aws_session import AwsSession
from pricing.sources.aws_zones import Zone, Zones

NOW = datetime(2026, 8, 1, 12, tzinfo=UTC)
US_EAST_1 = Zones(
    "us-east-1",
    (
        Zone("us-east-1a", "use1-az2", "us-east-1", "availability-zone"),
        Zone("us-east-1b", "use1-az4", "us-east-1", "availability-zone"),
        Zone("us-east-1-atl-2a", "use1-atl2-az1", "us-east-1-atl-2", "local-zone"),
    ),
)
P4D = frozenset({"p4d.24xlarge"})
Call = tuple[str, dict[str, Any]]

_load_file = JSONFileLoader.load_file
_kept = lru_cache(maxsize=None)(lambda path: _load_file(JSONFileLoader(), path))
JSONFileLoader.load_file = lambda _, path: _kept(path)  # type: ignore[method-assign]  # megabytes, which each session would read


@lru_cache(maxsize=1)
def keys() -> boto3.session.Session:
    """A session with a key that opens nothing; one for all tests, since it reads the large models of the services once."""
    return boto3.session.Session(aws_access_key_id="AKIDEXAMPLE", aws_secret_access_key="none")


class Aws:
    """A session on stubbed clients: `lay` answers, `refuse` with errors; what was slept is in `slept`."""

    def __init__(self) -> None:
        self.slept: list[float] = []
        self.calls: list[Call] = []
        self._stubs: dict[tuple[str, str], Stubber] = {}
        self.session = AwsSession(client_for=self._client, sleep=self.slept.append, jitter=lambda: 1.0)

    def lay(
        self, service: str, operation: str, answer: dict[str, Any], asked: dict[str, Any] | None = None, region="us-east-1"
    ):
        self._stub(service, region).add_response(operation, answer, asked)

    def refuse(self, service: str, operation: str, code: str, message: str = "no", status: int = 400, region="us-east-1"):
        self._stub(service, region).add_client_error(operation, code, message, status)

    def asked(self, operation: str) -> list[dict[str, Any]]:
        """The arguments of all calls of an operation."""
        return [arguments for name, arguments in self.calls if name == operation]

    def all_used(self) -> None:
        for stub in self._stubs.values():
            stub.assert_no_pending_responses()

    def _client(self, service: str, region: str) -> Any:
        return self._stub(service, region).client

    def _stub(self, service: str, region: str) -> Stubber:
        key = (service, region)
        if key not in self._stubs:
            client = keys().client(service, region_name=region, config=Config(retries={"total_max_attempts": 1}))
            client.meta.events.register("provide-client-params.*.*", self._noted)
            self._stubs[key] = Stubber(client)
            self._stubs[key].activate()
        return self._stubs[key]

    def _noted(self, params: dict[str, Any], model: Any, **_: Any) -> None:
        self.calls.append((xform_name(model.name), dict(params)))


class Told(list[Progress]):
    """A callback that keeps what it is told."""

    def __call__(self, progress: Progress) -> None:
        self.append(progress)

    @property
    def skipped(self) -> list[tuple[str, str]]:
        return [(skip.where, skip.reason) for progress in self for skip in progress.skipped]


def wanted(
    *purchases: str, types: frozenset[str] | None = P4D, regions: tuple[str, ...] = ("us-east-1",), **more: Any
) -> Wanted:
    return Wanted(regions, types, purchases, **more)


def product(
    name: str = "p4d.24xlarge", price: object = "21.957642", *, currency: str = "USD", unit: str = "Hrs",
    attributes: dict[str, str] | None = None, reserved: list[dict[str, Any]] | None = None,
    change: Callable[[dict[str, Any]], object] | None = None, family: str = "Compute Instance", region: str = "us-east-1",
) -> str:  # fmt: skip
    """One product of get_products, as AWS writes it: a JSON document in a string."""
    document: dict[str, Any] = {
        "product": {
            "sku": "H7NGEAC6UEHNTKSJ",
            "productFamily": family,
            "attributes": {
                "instanceType": name, "regionCode": region, "operatingSystem": "Linux", "preInstalledSw": "NA",
                "capacitystatus": "Used", "marketoption": "OnDemand", "tenancy": "Shared", "operation": "RunInstances",
                "locationType": "AWS Region", **(attributes or {}),
            },
        },
        "serviceCode": "AmazonEC2",
        "terms": {
            "OnDemand": {
                "H7NGEAC6UEHNTKSJ.JRTCKXETXF": {
                    "priceDimensions": {
                        "H7NGEAC6UEHNTKSJ.JRTCKXETXF.6YS6EN2CT7": {
                            "unit": unit, "beginRange": "0", "endRange": "Inf", "pricePerUnit": {currency: price},
                        }
                    },
                    "effectiveDate": "2026-07-01T00:00:00Z",
                    "termAttributes": {},
                }
            },
            "Reserved": {f"H7NGEAC6UEHNTKSJ.{number}": term for number, term in enumerate(reserved or [])},
        },
    }  # fmt: skip
    if change is not None:
        change(document)
    return json.dumps(document)


def reservation(
    years: int = 1, option: str = "No Upfront", *, hourly: str | None = None, upfront: str | None = None,
    offering: str = "standard", currency: str = "USD",
) -> dict[str, Any]:  # fmt: skip
    """One reserved term of a product."""
    parts = {"Hrs": hourly, "Quantity": upfront}
    return {
        "priceDimensions": {
            unit: {"unit": unit, "pricePerUnit": {currency: text}} for unit, text in parts.items() if text is not None
        },
        "effectiveDate": "2026-07-01T00:00:00Z",
        "termAttributes": {"LeaseContractLength": f"{years}yr", "OfferingClass": offering, "PurchaseOption": option},
    }


def spot_row(price: str, at: datetime, zone: str = "us-east-1a", name: str = "p4d.24xlarge", system: str = "Linux/UNIX"):
    return {
        "InstanceType": name, "ProductDescription": system, "SpotPrice": price, "Timestamp": at, "AvailabilityZone": zone,
    }  # fmt: skip


def zone_rows(zones: Zones = US_EAST_1) -> dict[str, Any]:
    """The answer of describe_availability_zones."""
    return {
        "AvailabilityZones": [
            {"ZoneName": zone.name, "ZoneId": zone.id, "GroupName": zone.group, "ZoneType": zone.kind} for zone in zones.zones
        ]
    }


def rate_row(
    rate: str = "13.27", *, years: int = 1, option: str = "No Upfront", name: str = "p4d.24xlarge", currency: str = "USD",
    unit: str = "Hrs", usage: str = "BoxUsage:p4d.24xlarge", operation: str = "RunInstances", plan: str = "Compute",
    region: str = "us-east-1",
) -> dict[str, Any]:  # fmt: skip
    """One row of describe_savings_plans_offering_rates."""
    return {
        "savingsPlanOffering": {
            "offeringId": "9d3ab4b6", "paymentOption": option, "planType": plan, "durationSeconds": years * 31_536_000,
            "currency": currency,
        },
        "rate": rate, "unit": unit, "productType": "EC2", "serviceCode": "AmazonEC2", "usageType": usage,
        "operation": operation,
        "properties": [
            {"name": "region", "value": region}, {"name": "instanceType", "value": name},
            {"name": "productDescription", "value": "Linux/UNIX"}, {"name": "tenancy", "value": "shared"},
        ],
    }  # fmt: skip


def owned_row(**change: object) -> dict[str, Any]:
    """One row of describe_reserved_instances, which moto does not have."""
    row = {
        "ReservedInstancesId": "ri-1", "InstanceType": "p4d.24xlarge", "InstanceCount": 2, "CurrencyCode": "USD",
        "ProductDescription": "Linux/UNIX", "InstanceTenancy": "default", "Scope": "Region", "OfferingClass": "standard",
        "OfferingType": "Partial Upfront", "FixedPrice": 60000.1, "UsagePrice": 0.0, "State": "active", "Duration": 31_536_000,
        "RecurringCharges": [{"Amount": 6.849315, "Frequency": "Hourly"}], "Start": NOW, "End": NOW.replace(year=2027),
    }  # fmt: skip
    return {key: value for key, value in {**row, **change}.items() if value is not None}


def plan_row(**change: object) -> dict[str, Any]:
    """One row of describe_savings_plans."""
    row = {
        "savingsPlanId": "sp-1", "savingsPlanType": "Compute", "commitment": "12.50000000", "currency": "USD",
        "paymentOption": "No Upfront", "start": "2026-01-01T00:00:00.000Z", "end": "2026-12-31T23:59:59.000Z",
        "upfrontPaymentAmount": "0.0", "state": "active", "termDurationInSeconds": 31_536_000,
    }  # fmt: skip
    return {key: value for key, value in {**row, **change}.items() if value is not None}


def owned_rate_row(rate: str, region: str = "us-east-1", name: str = "p4d.24xlarge", currency: str = "USD") -> dict[str, Any]:
    """One row of describe_savings_plan_rates."""
    row = rate_row(rate, name=name, region=region, usage=f"BoxUsage:{name}")
    return {key: value for key, value in {**row, "currency": currency}.items() if key != "savingsPlanOffering"}


def cost_group(*keys: str, billed: str = "10", used: str = "10", hours: str = "0", unit: str = "Hrs", currency: str = "USD"):
    """One group of get_cost_and_usage with the three metrics that a comparison asks for."""
    money = {"UnblendedCost": billed, "AmortizedCost": used}
    metrics = {name: {"Amount": amount, "Unit": currency} for name, amount in money.items()}
    return {"Keys": list(keys), "Metrics": {**metrics, "UsageQuantity": {"Amount": hours, "Unit": unit}}}


def cost_period(day: int, *groups: dict[str, Any], month: str = "2026-07", estimated: bool = False) -> dict[str, Any]:
    """One day of get_cost_and_usage."""
    span = {"Start": f"{month}-{day:02}", "End": f"{month}-{day + 1:02}"}
    return {"TimePeriod": span, "Total": {}, "Groups": list(groups), "Estimated": estimated}
