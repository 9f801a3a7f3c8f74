"""The cost of a range as a FOCUS 1.2 file (CSV or Parquet), one charge per day, node, holder and tags, day after day.

Invariant: memory holds one day. Costs are written to ten decimal places; of each cost column the cells sum to the exact
total of the range rounded to that place (what rounding one row leaves over is carried to the next), so the sum of
EffectiveCost is the report's total. Numbers have a point and no exponent, times are UTC and end in Z, NULL is an empty
cell of the CSV and null in Parquet. In Parquet, numbers are doubles, as the specification's own validator demands: of
amounts below 100,000 with ten places, a double's shortest text is the exact decimal.
"""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from itertools import islice
from typing import BinaryIO, TextIO

from pricing import calendar, garbage
from pricing.ledger import Ledger
from pricing.ledger_dictionary import read_placements
from pricing.owned import Commitment
from pricing.report import Report
from pricing.reports.focus_charges import KEYS, Charge, Charges, NodeFacts, billing_period, provider_of
from pricing.reports.focus_columns import COLUMNS, COSTS
from pricing.reports.pages import Attribute, Progress
from pricing.reports.parquet import import_arrow

PLACES = 10
"""Of costs."""
FINE_PLACES = 12
"""Of quantities and unit prices: their product is the cost to one part in 10^9, as the specification's validator asks."""
_FINE = 10**FINE_PLACES
ROWS_PER_GROUP = 16_000
_ZERO = Decimal(0).scaleb(-PLACES)
Value = str | Decimal | datetime | None


@dataclass(frozen=True, slots=True)
class FocusSource:
    """A range of the ledger: how to attribute a day of it, and what a report does not tell."""

    attribute: Attribute
    start: datetime
    end: datetime
    tz: str = "UTC"
    currency: str = "USD"
    commitments: Sequence[Commitment] = ()
    nodes: Mapping[str, NodeFacts] = field(default_factory=dict)
    tags: Sequence[str] = ()
    account: str | None = None
    """BillingAccountId; without it, the name of the cloud."""
    exchange: Callable[[str, datetime], Fraction | None] = lambda currency, moment: None
    """What one unit of another currency is in `currency` at a moment."""
    on_progress: Progress = lambda done, count: None

    def charges(self) -> Iterator[Charge]:
        """Day after day: first what was bought, then what was used."""
        made = Charges(self.commitments, self.nodes, self.tags)
        days = list(calendar.days(self.start, self.end, self.tz))
        by = (*KEYS, *(f"tag:{tag}" for tag in self.tags))
        for done, day in enumerate(days):
            self.on_progress(done, len(days))
            made.rates = {one.currency: self._rate(one.currency, day.start) for one in self.commitments}
            yield from made.purchases(day.start, day.end)
            report: Report = self.attribute(day.start, day.end, by)
            for row in report.rows:
                yield from made.of(row, day.start, day.end)
        self.on_progress(len(days), len(days))

    def _rate(self, currency: str, moment: datetime) -> Fraction | None:
        return Fraction(1) if currency == self.currency else self.exchange(currency, moment)

    def rows(self) -> Iterator[dict[str, Value]]:
        """The cells of each row, in the order of `COLUMNS`."""
        rounding = _Carried()
        for charge in self.charges():
            yield _cells(charge, self, rounding)


def facts_of(ledger: Ledger) -> tuple[dict[str, NodeFacts], tuple[str, ...]]:
    """(node -> what it was, where it never changed; all names of tags)."""
    with ledger.reading() as connection:
        placements = read_placements(connection).values()
    zones: defaultdict[str, set[str | None]] = defaultdict(set)
    counts: defaultdict[str, set[int]] = defaultdict(set)
    for placed in placements:
        zones[placed.node].add(placed.zone)
        counts[placed.node].add(placed.gpu_count)
    nodes = {
        node: NodeFacts(*(next(iter(one)) if len(one) == 1 else None for one in (zones[node], counts[node] - {0})))
        for node in zones
    }
    return nodes, tuple(sorted({tag for placed in placements for tag in placed.tags}))


class _Carried:
    """Rounds the cells of a column so that their sum is always the rounded sum."""

    def __init__(self) -> None:
        self._exact: defaultdict[str, Fraction] = defaultdict(Fraction)
        self._units: defaultdict[str, int] = defaultdict(int)

    def round(self, column: str, value: Fraction) -> Decimal:
        if not value:
            return _ZERO
        scaled = value * 10**PLACES
        if scaled.denominator == 1:
            return Decimal(scaled.numerator).scaleb(-PLACES)
        over = self._exact[column] + scaled
        unit = (2 * over.numerator + over.denominator) // (2 * over.denominator)
        self._exact[column] = over - unit
        return Decimal(unit).scaleb(-PLACES)


def _cells(charge: Charge, source: FocusSource, rounding: _Carried) -> dict[str, Value]:
    cells: dict[str, Value] = dict.fromkeys(column.name for column in COLUMNS)
    rounded: list[tuple[Fraction, Decimal]] = []
    for name, value in zip(COSTS, (charge.effective, charge.billed, charge.contracted, charge.listed), strict=True):
        same = next((cell for known, cell in rounded if known is value or known == value), None)
        if same is None:
            same = rounding.round(name, value)
            rounded.append((value, same))
        cells[name] = same
    cells |= _when(charge, source)
    cells |= _what(charge)
    cells |= _how_much(charge)
    cells |= _commitment(charge)
    cells["BillingAccountId"] = source.account or (charge.names["cloud"] or "on_premises")
    cells["BillingAccountName"] = source.account or cells["ProviderName"]
    cells["BillingAccountType"] = "Billing account"
    cells["BillingCurrency"] = cells["PricingCurrency"] = source.currency
    for name in ("EffectiveCost", "ListUnitPrice", "ContractedUnitPrice"):
        cells[f"PricingCurrency{name}"] = cells[name]
    return cells


def _when(charge: Charge, source: FocusSource) -> dict[str, Value]:
    begins = charge.start if source.start <= charge.start < source.end else source.start
    period = billing_period(begins, source.tz)
    return {
        "BillingPeriodStart": period[0], "BillingPeriodEnd": period[1],
        "ChargePeriodStart": charge.start, "ChargePeriodEnd": charge.end,
    }  # fmt: skip


def _what(charge: Charge) -> dict[str, Value]:
    names, (provider, service) = charge.names, provider_of(charge.names["cloud"])
    owned, instance_type = charge.commitment, charge.names["instance_type"]
    resource = names["node"]
    if owned is not None and charge.status != "Used":
        resource = owned.id
    category, subcategory, meter = _service(charge)
    sku = f"{names['cloud'] or 'on_premises'}/{instance_type or resource or charge.kind}"
    purchase = names["purchase"] or "on_demand"
    return {
        "ProviderName": provider, "PublisherName": provider, "InvoiceIssuerName": provider, "ServiceName": service,
        "ServiceCategory": category, "ServiceSubcategory": subcategory, "RegionId": names["region"],
        "RegionName": names["region"], "AvailabilityZone": charge.node.zone, "ResourceId": resource,
        "ResourceType": None if resource is None else "Commitment" if resource != names["node"] else "GPU node",
        "ChargeCategory": {"purchase": "Purchase", "adjustment": "Adjustment"}.get(charge.kind, "Usage"),
        "ChargeClass": "Correction" if charge.kind == "adjustment" else None,
        "ChargeDescription": _description(charge), "ChargeFrequency": _frequency(charge),
        "SkuId": None if charge.kind == "adjustment" else sku, "SkuMeter": None if charge.kind == "adjustment" else meter,
        "SkuPriceId": None if charge.kind == "adjustment" else f"{sku}/{names['region'] or 'any'}/{purchase}",
        "SkuPriceDetails": None if charge.kind == "adjustment" else _details(charge), "Tags": charge.tags,
        "x_CostKind": charge.kind, "x_GpuModel": names["gpu_model"], "x_Job": names["job"], "x_Project": names["project"],
        "x_Purchase": names["purchase"], "x_User": names["user"],
    }  # fmt: skip


def _service(charge: Charge) -> tuple[str, str, str]:
    """(ServiceCategory, ServiceSubcategory, SkuMeter)."""
    if charge.kind == "storage":
        return "Storage", "Other (Storage)", "Storage"
    if charge.kind == "egress":
        return "Networking", "Other (Networking)", "Data transfer"
    return "Compute", "Virtual Machines", "Compute usage"


def _details(charge: Charge) -> str | None:
    instance_type, count = charge.names["instance_type"], charge.node.gpu_count
    found: dict[str, object] = {} if instance_type is None else {"InstanceType": instance_type}
    if count:
        found["GpuCount"] = count
    return json.dumps(found) if found else None


def _description(charge: Charge) -> str:
    what, owned = charge.names["instance_type"] or charge.names["node"] or "monthly item", charge.commitment
    if charge.kind == "purchase" and owned is not None:
        return (
            f"{owned.kind.replace('_', ' ').capitalize()} {owned.id}, {'paid upfront' if charge.once else 'paid by the hour'}"
        )
    if charge.kind == "unused commitment":
        return f"Unused part of {owned.id if owned is not None else 'commitments'}"
    return {"idle": f"{what}, held by nobody", "adjustment": "Correction of a closed month"}.get(
        charge.kind, f"{what}, {charge.kind}"
    )


def _frequency(charge: Charge) -> str:
    if charge.kind == "purchase":
        return "One-Time" if charge.once else "Recurring"
    return "One-Time" if charge.kind == "adjustment" else "Usage-Based"


def _how_much(charge: Charge) -> dict[str, Value]:
    if charge.kind == "adjustment":
        return {}
    used = charge.kind not in ("purchase", "unused commitment")
    quantity = _number(charge.quantity)
    consumed, unit = (charge.gpu_hours, "GPU-Hours") if charge.gpu_hours else (charge.quantity, charge.unit)
    category = "Committed" if charge.status else "Dynamic" if charge.names["purchase"] == "spot" else "Standard"
    return {
        "PricingCategory": category, "PricingQuantity": quantity, "PricingUnit": charge.unit,
        "ListUnitPrice": _ratio(charge.listed, charge.quantity),
        "ContractedUnitPrice": _ratio(charge.contracted, charge.quantity),
        "ConsumedQuantity": _number(consumed) if used else None, "ConsumedUnit": unit if used else None,
        "x_GpuHours": _number(charge.gpu_hours),
        "x_UtilizationRatio": None if charge.utilization_ratio is None else round(Decimal(charge.utilization_ratio), 4),
    }  # fmt: skip


def _commitment(charge: Charge) -> dict[str, Value]:
    owned = charge.commitment
    if owned is None:
        return {}
    reserved = owned.kind == "reservation"
    spent = charge.effective if charge.status else charge.billed
    return {
        "CommitmentDiscountId": owned.id, "CommitmentDiscountName": owned.id,
        "CommitmentDiscountCategory": "Usage" if reserved else "Spend",
        "CommitmentDiscountType": "Reservation" if reserved else "Savings Plan",
        "CommitmentDiscountStatus": charge.status,
        "CommitmentDiscountQuantity": _number(charge.quantity if reserved else spent),
        "CommitmentDiscountUnit": "Hours" if reserved else owned.currency,
    }  # fmt: skip


def _number(value: Fraction | None) -> Decimal | None:
    """Half to even."""
    if value is None:
        return None
    whole, rest = divmod(value.numerator * _FINE, value.denominator)
    above = 2 * rest - value.denominator
    return Decimal(whole + (above > 0 or (above == 0 and whole % 2))).scaleb(-FINE_PLACES)


def _ratio(cost: Fraction, quantity: Fraction | None) -> Decimal | None:
    return _number(cost / quantity) if quantity else Decimal(0) if quantity is not None else None


@garbage.paused()
def write_csv(source: FocusSource, stream: TextIO) -> None:
    """UTF-8, a header, one line per charge, NULL as an empty cell. Text stands as it is: the file is for programs."""
    writer = csv.writer(stream)
    writer.writerow([column.name for column in COLUMNS])
    writer.writerows([_text(value) for value in row.values()] for row in source.rows())


def _text(value: Value) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        if value.isascii() and "\0" not in value:
            return value
        return value.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode("utf-8")
    return plain(value) if isinstance(value, Decimal) else _moment(value)


@lru_cache(1024)
def _moment(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"


def plain(value: Decimal) -> str:
    """`786.5424`, `0`, `-3`: no exponent, no zeros that say nothing."""
    text = f"{value:f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


@garbage.paused()
def write_parquet(source: FocusSource, stream: BinaryIO) -> None:
    """The same rows with explicit types. ReportError when pyarrow is not installed."""
    arrow = import_arrow()
    types = {"string": arrow.string(), "decimal": arrow.float64(), "datetime": arrow.timestamp("us", tz="UTC")}
    schema = arrow.schema([arrow.field(one.name, types[one.kind], nullable=one.nullable) for one in COLUMNS])
    rows, first = source.rows(), True
    with arrow.parquet.ParquetWriter(stream, schema, compression="zstd", version="2.6") as writer:
        while (cells := _columns(islice(rows, ROWS_PER_GROUP)))[0] or first:
            first = False
            columns = [arrow.array(column, types[one.kind]) for column, one in zip(cells, COLUMNS, strict=True)]
            writer.write_table(arrow.Table.from_arrays(columns, schema=schema))


def _columns(rows: Iterable[dict[str, Value]]) -> list[list[object]]:
    """Column by column: rows as such take ten times the memory."""
    columns: list[list[object]] = [[] for _ in COLUMNS]
    for row in rows:
        for column, value in zip(columns, row.values(), strict=True):
            column.append(_value(value))
    return columns


def _value(value: Value) -> object:
    if isinstance(value, Decimal):
        return float(value)
    return value.encode("utf-8", "replace").decode("utf-8") if isinstance(value, str) else value
