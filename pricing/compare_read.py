"""Reads a cloud bill line by line: AWS CUR 2.0 (also its older names) or FOCUS, as CSV (plain or .gz) or Parquet.

Invariant: the file is streamed, and what cannot be read is one BillError with the file, the row and the column; nothing is
guessed: no decimal comma, no time without a zone (in Parquet, AWS's columns are UTC by definition), one currency.
Byte-order marks, any number of them, are dropped. Row 1 is the header.

AWS: https://docs.aws.amazon.com/cur/latest/userguide/table-dictionary-cur2.html; FOCUS: https://focus.finops.org (1.0-1.2).
"""

from __future__ import annotations

import csv
import gzip
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from pricing.errors import BadMoney, BillError
from pricing.money import parse_decimal

COMPUTE, STORAGE, NETWORK, TAX, CREDIT, COMMITMENT, DISCOUNT, OTHER = (
    "compute", "storage", "network", "tax", "credit", "commitment", "discount", "other",
)  # fmt: skip
CUR_NEEDED = (
    "line_item_usage_start_date", "line_item_line_item_type", "line_item_unblended_cost", "line_item_currency_code",
)  # fmt: skip
FOCUS_NEEDED = ("ChargePeriodStart", "ChargePeriodEnd", "ChargeCategory", "BilledCost", "EffectiveCost", "BillingCurrency")
Cells = Mapping[str, object]
IDENTITY = "identity_line_item_id"
"""AWS gives each line one."""
REMEMBERED = 500_000
"""Rows, by a number of 64 bits each: 50 MB."""


class Line(NamedTuple):
    """One line of a bill. `billed` is what the invoice says, `cost` the amortised one: what it was used for."""

    row: int
    starts: datetime
    ends: datetime
    kind: str
    billed: Fraction
    cost: Fraction
    listed: Fraction | None
    hours: Fraction | None
    """Instance-hours, of compute."""
    region: str | None
    instance_type: str | None
    resource: str | None
    accounts: tuple[str, ...]
    currency: str
    repeats: int | None = None
    """The row that has the same in every cell, among the first `REMEMBERED`."""


def read(path: Path) -> Iterator[Line]:
    """The lines of a bill in their order. BillError; PricingError for Parquet without pyarrow."""
    records = _parquet(path) if path.suffix.lower() == ".parquet" else _csv(path)
    header: frozenset[str] | None = None
    seen: dict[int, int] = {}
    for row, cells in records:
        if header is None:
            header = frozenset(cells)
            line = _form(path, header)
        reader = _Cells(path, row, cells)
        first = _first_row(seen, row, cells)
        if first is not None and reader.text(IDENTITY):
            raise reader.fault(IDENTITY, f"it is row {first} again, cell for cell: is a part of the bill in the file twice?")
        found = line(reader)
        if found.ends < found.starts:
            raise reader.fault("line_item_usage_end_date / ChargePeriodEnd", "the line ends before it starts.")
        yield found if first is None else found._replace(repeats=first)
    if header is None:
        raise BillError(f"{path}: there is no row in it.")


def _first_row(seen: dict[int, int], row: int, cells: Cells) -> int | None:
    """The row that had the same cells; a bill that is in a file twice begins again with its first rows."""
    print_ = hash(tuple(str(cell) if isinstance(cell, list | dict) else cell for cell in cells.values()))
    if len(seen) < REMEMBERED:
        first = seen.setdefault(print_, row)
        return None if first == row else first
    return seen.get(print_)


def _form(path: Path, header: frozenset[str]):  # noqa: ANN202
    """The reader of a line by the names of the columns."""
    focus = "ChargePeriodStart" in header or "BilledCost" in header
    missing = [name for name in (FOCUS_NEEDED if focus else CUR_NEEDED) if name not in header]
    if not focus and len(missing) == len(CUR_NEEDED):
        raise BillError(
            f"{path}, row 1: this is neither an AWS CUR 2.0 export nor a FOCUS file: column {missing[0]} is missing."
        )
    if missing:
        raise BillError(f"{path}, row 1: column {missing[0]} is missing ({'FOCUS' if focus else 'AWS CUR 2.0'} has it).")
    return _focus_line if focus else _cur_line


def _csv(path: Path) -> Iterator[tuple[int, Cells]]:
    try:
        opened = (
            gzip.open(path, "rt", encoding="utf-8", newline="")
            if path.suffix == ".gz"
            else path.open(encoding="utf-8", newline="")
        )
        with opened as stream:
            first = stream.readline().lstrip("\ufeff")
            delimiter = ";" if first.count(";") > first.count(",") else ","
            names = [_snake(name.strip("\ufeff ")) for name in next(csv.reader([first], delimiter=delimiter), [])]
            _check_header(path, names)
            for row, cells in enumerate(csv.reader(stream, delimiter=delimiter), start=2):
                if not cells:
                    continue
                if len(cells) != len(names):
                    raise BillError(
                        f"{path}, row {row}: it has {len(cells)} cells, the header {len(names)}; is the file cut off?"
                    )
                cells[0] = cells[0].lstrip("\ufeff")
                yield row, dict(zip(names, cells, strict=True))
    except UnicodeDecodeError as error:
        raise BillError(f"{path}: it is not UTF-8 (byte {error.start}): save it as `CSV UTF-8`.") from None
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise BillError(f"{path}: the compressed file is damaged or cut off.") from None
    except csv.Error as error:
        raise BillError(f"{path}: it is no CSV ({error}).") from None
    except OSError as error:
        raise BillError(f"{path}: it cannot be read ({(error.strerror or str(error)).lower()}).") from None


def _check_header(path: Path, names: list[str]) -> None:
    if names:
        _form(path, frozenset(names))
    if twice := next((name for place, name in enumerate(names) if name and name in names[:place]), None):
        raise BillError(f"{path}, row 1: there are two columns {twice}: which one counts?")


def _parquet(path: Path) -> Iterator[tuple[int, Cells]]:
    from pricing.reports.parquet import import_arrow

    arrow = import_arrow()
    try:
        with arrow.parquet.ParquetFile(path) as file:
            wanted = [name for name in file.schema_arrow.names if _wanted(_snake(name))]
            row = 1
            for batch in file.iter_batches(batch_size=4096, columns=wanted):
                for record in batch.to_pylist():
                    row += 1
                    yield row, {_snake(name): value for name, value in record.items()}
    except (arrow.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
        raise BillError(f"{path}: it is no Parquet file that can be read ({reason}).") from None


def _wanted(name: str) -> bool:
    return name == IDENTITY or not name.startswith(("resource_tags", "cost_category", "identity_", "split_line_item"))


def _snake(name: str) -> str:
    """`lineItem/UsageStartDate` as `line_item_usage_start_date`; names without a slash stay."""
    if "/" not in name:
        return name
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|/", "_", name).lower()


@lru_cache(4096)
def _fraction(value: str | int | Decimal) -> Fraction:
    """The lines of a bill repeat few rates, hours and times; most of the time went here."""
    return Fraction(parse_decimal(value, "amount"))


_moment = lru_cache(4096)(datetime.fromisoformat)
_usage = lru_cache(4096)(lambda usage, product: _cur_usage(usage, product))


class _Cells:
    """One row by column name; faults name the file, the row and the column."""

    def __init__(self, path: Path, row: int, cells: Cells) -> None:
        self.path, self.row, self._cells = path, row, cells

    def fault(self, column: str, what: str) -> BillError:
        return BillError(f"{self.path}, row {self.row}, column {column}: {what}")

    def text(self, column: str) -> str | None:
        value = self._cells.get(column)
        return None if value is None else str(value).strip() or None

    def map(self, column: str) -> Mapping[str, object]:
        """A map column: pairs in Parquet, a JSON object in CSV."""
        value = self._cells.get(column)
        if isinstance(value, str):
            try:
                found = json.loads(value) if value.strip() else {}
            except json.JSONDecodeError:
                raise self.fault(column, f"{value[:40]!r} is no JSON object.") from None
            return found if isinstance(found, dict) else {}
        if isinstance(value, list):
            return dict(value)
        return value if isinstance(value, dict) else {}

    def number(self, column: str) -> Fraction | None:
        value = self._cells.get(column)
        if value is None or value == "":
            return None
        if isinstance(value, float):
            value = repr(value)
        try:
            return _fraction(value)
        except BadMoney as error:
            raise self.fault(column, str(error)) from None

    def needed(self, column: str) -> Fraction:
        found = self.number(column)
        if found is None:
            raise self.fault(column, "it is empty; a bill's line has an amount.")
        return found

    def moment(self, column: str) -> datetime:
        value = self._cells.get(column)
        if isinstance(value, datetime):
            return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        try:
            found = _moment(str(value or "").strip())
        except ValueError:
            raise self.fault(column, f"{str(value)[:40]!r} is no time: write one like 2026-11-01T00:00:00Z.") from None
        if found.tzinfo is None:
            raise self.fault(column, f"{str(value)[:40]!r} has no time zone: local and UTC times differ; write it with a Z.")
        return found.astimezone(UTC)

    def one_of(self, *columns: str) -> str | None:
        return next((text for column in columns if (text := self.text(column))), None)


_BOX = re.compile(r"(?:Box|Spot|Dedicated|Host|HostBox|UnusedBox|UnusedDed)Usage:?|UnusedBox:|UnusedDed:|Reservation:")
_STORED = re.compile(r"EBS:|VolumeUsage|TimedStorage|Snapshot|StorageUsage|Storage-|FSx|EFS", re.IGNORECASE)
_MOVED = re.compile(r"DataTransfer|NatGateway|LoadBalancer|LCUUsage|PublicIPv4|Bytes|VPCPeering|CloudFront", re.IGNORECASE)
_STORES = ("AmazonS3", "AmazonEFS", "AmazonFSx", "AmazonGlacier")
_CUR_KINDS = {
    "Tax": TAX, "Credit": CREDIT, "Refund": CREDIT, "EdpDiscount": DISCOUNT, "PrivateRateDiscount": DISCOUNT,
    "BundledDiscount": DISCOUNT, "RiVolumeDiscount": DISCOUNT, "RIFee": COMMITMENT, "SavingsPlanRecurringFee": COMMITMENT,
    "SavingsPlanUpfrontFee": COMMITMENT, "SavingsPlanNegation": COMMITMENT,
}  # fmt: skip


def _cur_line(cells: _Cells) -> Line:
    said, usage = cells.text("line_item_line_item_type") or "", cells.text("line_item_usage_type") or ""
    starts = cells.moment("line_item_usage_start_date")
    ends = cells.moment("line_item_usage_end_date") if cells.text("line_item_usage_end_date") else starts
    kind = _CUR_KINDS.get(said) or (COMMITMENT if said == "Fee" and cells.text("reservation_reservation_a_r_n") else None)
    kind = kind or _usage(usage, cells.text("line_item_product_code"))
    billed = cells.needed("line_item_unblended_cost")
    name = cells.text("product_instance_type") or _text(cells.map("product").get("instance_type"))
    if name is None and kind == COMPUTE and ":" in usage:
        name = usage.rpartition(":")[2]
    return Line(
        cells.row, starts, ends, kind, billed, _amortised(cells, said, billed), cells.number("pricing_public_on_demand_cost"),
        cells.number("line_item_usage_amount") if kind == COMPUTE else None,
        cells.one_of("product_region_code", "product_region") or _text(cells.map("product").get("region")), name,
        _resource(cells.text("line_item_resource_id")),
        tuple(filter(None, (cells.text("line_item_usage_account_id"), cells.text("bill_payer_account_id")))),
        cells.text("line_item_currency_code") or "",
    )  # fmt: skip


def _cur_usage(usage: str, product: str | None) -> str:
    if product in (None, "AmazonEC2") and _BOX.search(usage):
        return COMPUTE
    if product in _STORES or _STORED.search(usage):
        return STORAGE
    return NETWORK if _MOVED.search(usage) else OTHER


def _amortised(cells: _Cells, said: str, billed: Fraction) -> Fraction:
    """What a line cost by use, as AWS's own query library adds it up; where the columns are missing, what was billed."""
    if said == "SavingsPlanCoveredUsage":
        return _first(cells.number("savings_plan_savings_plan_effective_cost"), billed)
    if said == "DiscountedUsage":
        return _first(cells.number("reservation_effective_cost"), billed)
    if said == "SavingsPlanRecurringFee":
        whole, used = (cells.number(f"savings_plan_{name}") for name in ("total_commitment_to_date", "used_commitment"))
        return billed if whole is None or used is None else whole - used
    if said == "RIFee":
        parts = [
            cells.number(f"reservation_unused_{name}") for name in ("amortized_upfront_fee_for_billing_period", "recurring_fee")
        ]
        return billed if all(part is None for part in parts) else sum((part for part in parts if part), Fraction(0))
    nothing = said in ("SavingsPlanNegation", "SavingsPlanUpfrontFee")
    return Fraction(0) if nothing or (said == "Fee" and cells.text("reservation_reservation_a_r_n")) else billed


def _first(value: Fraction | None, other: Fraction) -> Fraction:
    return other if value is None else value


def _focus_line(cells: _Cells) -> Line:
    category, status = cells.text("ChargeCategory") or "", cells.text("CommitmentDiscountStatus")
    details = cells.map("SkuPriceDetails")
    name = _text(details.get("InstanceType")) or cells.one_of("x_InstanceType", "x_SkuInstanceType")
    return Line(
        cells.row, cells.moment("ChargePeriodStart"), cells.moment("ChargePeriodEnd"),
        _focus_kind(category, status, cells, name), cells.needed("BilledCost"), cells.needed("EffectiveCost"),
        cells.number("ListCost"), _focus_hours(cells), cells.one_of("RegionId", "Region"), name,
        _resource(cells.text("ResourceId")),
        tuple(filter(None, (cells.text("SubAccountId"), cells.text("BillingAccountId")))),
        cells.text("BillingCurrency") or "",
    )  # fmt: skip


def _focus_kind(category: str, status: str | None, cells: _Cells, name: str | None) -> str:
    kinds = {"Tax": TAX, "Credit": CREDIT, "Adjustment": OTHER}
    if category == "Purchase" or status == "Unused":
        return COMMITMENT if cells.text("CommitmentDiscountId") else OTHER
    service = cells.text("ServiceCategory")
    if category == "Usage" and service in ("Compute", "AI and Machine Learning") and (name or cells.text("ResourceId")):
        return COMPUTE
    return kinds.get(category) or {"Storage": STORAGE, "Networking": NETWORK}.get(service or "", OTHER)


def _focus_hours(cells: _Cells) -> Fraction | None:
    for quantity, unit in (("PricingQuantity", "PricingUnit"), ("ConsumedQuantity", "ConsumedUnit")):
        if (cells.text(unit) or "").lower() in ("hours", "hour", "hrs", "1 hour"):
            return cells.number(quantity)
    return None


def _resource(text: str | None) -> str | None:
    """The id at the end of an ARN or a resource path."""
    return None if text is None else re.split(r"[/:]", text)[-1] or None


def _text(value: object) -> str | None:
    return None if value is None else str(value).strip() or None


def exact(value: Fraction) -> Decimal:
    """To ten places: a bill's own."""
    return Decimal(round(value * 10**10)).scaleb(-10)
