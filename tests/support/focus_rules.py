"""The rules of FOCUS 1.2 that a file of ours can break, as a checker of the CSV text: `violations(text)`.

Invariant: it knows the specification and nothing of our writer. Each violation names its rule, the row and the column.
The specification's own validator, focus-validator, needs Python 3.12 or newer and is run by hand: of 2.2.1's applicable
rules one fails on our files, InvoiceId-C-005-C, which contradicts InvoiceId-C-004-C.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from decimal import Decimal

NOT_NULL = (
    "BilledCost", "BillingAccountId", "BillingCurrency", "BillingPeriodEnd", "BillingPeriodStart", "ChargeCategory",
    "ChargePeriodEnd", "ChargePeriodStart", "ContractedCost", "EffectiveCost", "InvoiceIssuerName", "ListCost",
    "ProviderName", "PublisherName", "ServiceCategory", "ServiceName", "ChargeFrequency", "ServiceSubcategory",
)  # fmt: skip
MANDATORY = (
    *NOT_NULL[:16], "BillingAccountName", "ChargeClass", "ChargeDescription", "PricingQuantity", "PricingUnit",
)  # fmt: skip
CONDITIONAL = (
    "AvailabilityZone", "BillingAccountType", "ChargeFrequency", "CommitmentDiscountCategory", "CommitmentDiscountId",
    "CommitmentDiscountName", "CommitmentDiscountQuantity", "CommitmentDiscountStatus", "CommitmentDiscountType",
    "CommitmentDiscountUnit", "ConsumedQuantity", "ConsumedUnit", "ContractedUnitPrice", "InvoiceId", "ListUnitPrice",
    "PricingCategory", "RegionId", "RegionName", "ResourceId", "ResourceName", "ResourceType", "ServiceSubcategory",
    "SkuId", "SkuMeter", "SkuPriceDetails", "SkuPriceId", "Tags",
)  # fmt: skip
OTHER_COLUMNS = (
    "CapacityReservationId", "CapacityReservationStatus", "PricingCurrency", "PricingCurrencyContractedUnitPrice",
    "PricingCurrencyEffectiveCost", "PricingCurrencyListUnitPrice", "SubAccountId", "SubAccountName", "SubAccountType",
)  # fmt: skip
ALLOWED = {
    "ChargeCategory": {"Usage", "Purchase", "Tax", "Credit", "Adjustment"},
    "ChargeClass": {"Correction"},
    "ChargeFrequency": {"One-Time", "Recurring", "Usage-Based"},
    "PricingCategory": {"Standard", "Dynamic", "Committed", "Other"},
    "CommitmentDiscountCategory": {"Spend", "Usage"},
    "CommitmentDiscountStatus": {"Used", "Unused"},
    "ServiceCategory": {
        "AI and Machine Learning", "Analytics", "Business Applications", "Compute", "Databases", "Developer Tools",
        "Multicloud", "Identity", "Integration", "Internet of Things", "Management and Governance", "Media", "Migration",
        "Mobile", "Networking", "Security", "Storage", "Web", "Other",
    },
}  # fmt: skip
SUBCATEGORIES = {
    "Virtual Machines": "Compute", "Other (Compute)": "Compute", "Other (Storage)": "Storage",
    "Other (Networking)": "Networking",
}  # fmt: skip
DECIMALS = (
    "BilledCost", "CommitmentDiscountQuantity", "ConsumedQuantity", "ContractedCost", "ContractedUnitPrice", "EffectiveCost",
    "ListCost", "ListUnitPrice", "PricingQuantity",
)  # fmt: skip
TIMES = ("BillingPeriodStart", "BillingPeriodEnd", "ChargePeriodStart", "ChargePeriodEnd")
JSONS = ("Tags", "SkuPriceDetails")
TOGETHER = (
    ("CommitmentDiscountCategory", "CommitmentDiscountId"), ("CommitmentDiscountType", "CommitmentDiscountId"),
    ("CommitmentDiscountUnit", "CommitmentDiscountQuantity"), ("ConsumedUnit", "ConsumedQuantity"),
    ("PricingUnit", "PricingQuantity"), ("RegionName", "RegionId"), ("ResourceType", "ResourceId"),
)  # fmt: skip
PRICED = ("PricingCategory", "PricingQuantity", "ListUnitPrice", "ContractedUnitPrice", "SkuId", "SkuPriceId")
PRODUCTS = (("ListUnitPrice", "ListCost"), ("ContractedUnitPrice", "ContractedCost"))
_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_PLACEHOLDER = re.compile(r"\s*|null|none|n/a|not applicable|-", re.IGNORECASE)
Row = dict[str, str | None]


def violations(text: str) -> list[str]:
    """Sentences, one per broken rule; an empty list where all hold."""
    header, *lines = csv.reader(io.StringIO(text, newline=""))
    rows = [{name: cell or None for name, cell in zip(header, line, strict=True)} for line in lines]
    found = list(_columns(header))
    for number, row in enumerate(rows, start=2):
        found += [f"row {number}: {fault}" for rule in RULES for fault in rule(row)]
    return found + list(_consistent(rows))


def _columns(header: list[str]) -> Iterator[str]:
    yield from (f"mandatory column {name} is missing" for name in MANDATORY if name not in header)
    known = {*MANDATORY, *CONDITIONAL, *OTHER_COLUMNS}
    own = [name for name in header if name.startswith("x_")]
    yield from (f"column {name} is neither FOCUS nor x_" for name in header if name not in known and name not in own)
    if header[len(header) - len(own) :] != own:
        yield "custom columns are not last"
    if len(set(header)) != len(header):
        yield "a column is there twice"


def _formats(row: Row) -> Iterator[str]:
    for name, cell in row.items():
        if cell is not None and _PLACEHOLDER.fullmatch(cell):
            yield f"{name} {cell!r} stands for NULL"
    yield from (f"{name} is no plain number" for name in DECIMALS if row.get(name) and not _NUMBER.fullmatch(row[name] or ""))
    yield from (f"{name} is no UTC time" for name in TIMES if not _TIME.fullmatch(row[name] or ""))
    for name in JSONS:
        if row[name] is not None:
            pairs = json.loads(row[name] or "", object_pairs_hook=list)
            if not isinstance(pairs, list) or len({key for key, _ in pairs}) != len(pairs):
                yield f"{name} is no JSON object with unique keys"
            elif any(isinstance(value, (list, dict)) for _, value in pairs):
                yield f"{name} is not flat"
    if not re.fullmatch("[A-Z]{3}", row["BillingCurrency"] or ""):
        yield "BillingCurrency is not ISO 4217"


def _nulls(row: Row) -> Iterator[str]:
    yield from (f"{name} is NULL" for name in NOT_NULL if row[name] is None)
    if (row.get("PricingCurrency") is None) != (row.get("PricingCurrencyEffectiveCost") is None):
        yield "PricingCurrency and its EffectiveCost are not NULL together"
    for name, other in TOGETHER:
        if (row[name] is None) != (row[other] is None):
            yield f"{name} and {other} are not NULL together"
    usual = row["ChargeCategory"] in ("Usage", "Purchase") and row["ChargeClass"] is None
    yield from (f"{name} is NULL" for name in PRICED if usual and row[name] is None)
    if row["SkuId"] is None and (row["SkuMeter"] or row["SkuPriceDetails"]):
        yield "SkuMeter or SkuPriceDetails without SkuId"
    unused = row["CommitmentDiscountStatus"] == "Unused"
    if (row["ChargeCategory"] != "Usage" or unused) != (row["ConsumedQuantity"] is None) and row["ChargeClass"] is None:
        yield "ConsumedQuantity must be there for usage alone"


def _values(row: Row) -> Iterator[str]:
    for name, allowed in ALLOWED.items():
        if row[name] is not None and row[name] not in allowed:
            yield f"{name} {row[name]!r} is not allowed"
    if SUBCATEGORIES.get(row["ServiceSubcategory"] or "") != row["ServiceCategory"]:
        yield "ServiceSubcategory does not belong to ServiceCategory"
    if row["ChargeFrequency"] == "Usage-Based" and row["ChargeCategory"] == "Purchase":
        yield "a purchase is not usage-based"
    if not (row["ChargePeriodStart"] or "") < (row["ChargePeriodEnd"] or ""):
        yield "the charge period is empty"
    if not (row["BillingPeriodStart"] or "") <= (row["ChargePeriodStart"] or "") < (row["BillingPeriodEnd"] or ""):
        yield "the charge begins outside its billing period"
    if row["ResourceName"] is not None and row["ResourceName"] == row["ResourceId"]:
        yield "ResourceName repeats ResourceId"
    if row["InvoiceIssuerName"] != row["ProviderName"] and row["BilledCost"] != "0":
        yield "BilledCost is not 0 though another one invoices"


def _prices(row: Row) -> Iterator[str]:
    quantity = row["PricingQuantity"]
    for price, cost in PRODUCTS:
        if row[price] is None or quantity is None or row["ChargeClass"] == "Correction":
            continue
        if Decimal(row[price] or 0) < 0:
            yield f"{price} is negative"
        product, told = Decimal(row[price] or 0) * Decimal(quantity), Decimal(row[cost] or 0)
        if abs(product - told) > Decimal("1e-9") * max(abs(told), 1):
            yield f"{price} x PricingQuantity is {product}, {cost} is {told}"


def _commitments(row: Row) -> Iterator[str]:
    used, category = row["CommitmentDiscountStatus"], row["ChargeCategory"]
    if row["CommitmentDiscountId"] is None:
        if used or row["PricingCategory"] == "Committed":
            yield "committed without CommitmentDiscountId"
        return
    if (category == "Usage") != (used is not None):
        yield "CommitmentDiscountStatus belongs to usage"
    if category == "Usage" and row["BilledCost"] != "0":
        yield "BilledCost of covered usage is not 0"
    if category == "Usage" and row["PricingCategory"] != "Committed":
        yield "covered usage is not Committed"
    if category == "Purchase" and (row["EffectiveCost"] != "0" or row["PricingCategory"] == "Committed"):
        yield "a purchase has an EffectiveCost, or is Committed"
    if used != "Used" and row["ResourceId"] != row["CommitmentDiscountId"]:
        yield "ResourceId of a purchase or an unused part is not the commitment"
    if used == "Used" and row["ResourceId"] in (None, row["CommitmentDiscountId"]):
        yield "ResourceId of covered usage is not the resource"
    if row["CommitmentDiscountQuantity"] is None:
        yield "CommitmentDiscountQuantity is NULL"


def _consistent(rows: list[Row]) -> Iterator[str]:
    """Over all rows: one parent for each price, one unit for each commitment, one currency for each account."""
    for child, parent in (
        ("SkuPriceId", "SkuId"), ("CommitmentDiscountId", "CommitmentDiscountUnit"), ("BillingAccountId", "BillingCurrency"),
        ("CommitmentDiscountId", "CommitmentDiscountCategory"),
    ):  # fmt: skip
        parents: defaultdict[str, set[str | None]] = defaultdict(set)
        for row in rows:
            if row[child] is not None:
                parents[row[child] or ""].add(row[parent])
        yield from (f"{child} {name} has several {parent}" for name, found in parents.items() if len(found) > 1)


RULES = (_nulls, _formats, _values, _prices, _commitments)
