"""A file of rates: instance_type, region, purchase, usd_per_hour, term_months, upfront; if told cloud, payment, zone, as_of,
source.

Invariant: `usd_per_hour` is what each hour is billed, `upfront` comes on top and once; a rate that is empty, not a number or
zero is not known, is noted and left out; a commitment without its term is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from fractions import Fraction
from pathlib import Path

from pricing.advice_files import EMPTY, Row, rows
from pricing.catalog import Catalog
from pricing.demand import DemandKey
from pricing.errors import AdviceFileError
from pricing.lookup import did_you_mean, region_key
from pricing.offers import PURCHASES
from pricing.rate_card import HOURS_PER_MONTH, TERM_MONTHS, FileCard, Rate

NEEDED = ("instance_type", "region", "purchase", "usd_per_hour")
OPTIONAL = ("term_months", "upfront", "cloud", "payment", "zone", "as_of", "source")
WAYS_TO_PAY = ("no_upfront", "partial_upfront", "all_upfront")
SHOWN = 5


def read_rates(path: Path, shapes: Catalog | None = None) -> FileCard:
    """AdviceFileError names the file, the row and the column."""
    header, found = rows(path, NEEDED, OPTIONAL)
    reader = _RatesReader()
    for row in found:
        reader.take(row)
    if not reader.rates and not reader.unknown:
        raise AdviceFileError(f"{path.name} has no rate below its header: {', '.join((*NEEDED, *OPTIONAL[:2]))}.")
    return FileCard(reader.rates, (*header.notes, *reader.notes(path.name)), shapes)


class _RatesReader:
    def __init__(self) -> None:
        self.rates: dict[DemandKey, list[Rate]] = {}
        self.unknown: list[tuple[Row, str]] = []
        self._lines: dict[tuple[object, ...], tuple[Rate, int]] = {}
        self._spelt: dict[tuple[str | None, ...], DemandKey] = {}

    def take(self, row: Row) -> None:
        key = self._key(row)
        rate = _rate(row)
        if rate is None:
            self.unknown.append((row, f"{row.text('purchase')} of {key}"))
            return
        same = (*key, rate.purchase, rate.term_months, rate.payment, rate.zone)
        before = self._lines.get(same)
        if before is None:
            self._lines[same] = rate, row.line
            self.rates.setdefault(key, []).append(rate)
        elif before[0][:6] != rate[:6]:
            raise row.fault("usd_per_hour", f"the {rate.purchase} rate of {key} is told otherwise in row {before[1]}: keep one")

    def _key(self, row: Row) -> DemandKey:
        key = DemandKey(row.text("cloud").lower() or None, region_key(row.filled("region")), row.filled("instance_type"))
        return self._spelt.setdefault((*key[:2], key.instance_type.lower()), key)

    def notes(self, name: str) -> list[str]:
        if not self.unknown:
            return []
        rows = "; ".join(f"row {row.line}, {what}" for row, what in self.unknown[:SHOWN])
        more = f"; and {len(self.unknown) - SHOWN} more" if len(self.unknown) > SHOWN else ""
        many = "1 rate is" if len(self.unknown) == 1 else f"{len(self.unknown)} rates are"
        return [f"{name}: {many} empty, zero or no number, and so not known ({rows}{more})."]


def _rate(row: Row) -> Rate | None:
    purchase = _word(row, "purchase", PURCHASES)
    hourly, upfront, months = row.number("usd_per_hour", "price"), row.number("upfront", "price"), _term(row, purchase)
    if upfront and months is None:
        raise row.fault("upfront", f"{purchase} has no term over which an upfront payment could be spread: leave it empty")
    if hourly is None or not (hourly or upfront):
        return None
    upfront = upfront or Fraction(0)
    effective = hourly if months is None else hourly + upfront / (months * HOURS_PER_MONTH)
    return Rate(
        purchase, effective, hourly, upfront, months, _payment(row, months, hourly, upfront), row.text("source") or row.file,
        _day(row), zone=row.text("zone").lower() or None,
    )  # fmt: skip


def _word(row: Row, column: str, words: Sequence[str]) -> str:
    word = row.filled(column).lower().replace("-", "_").replace(" ", "_")
    if word not in words:
        raise row.fault(column, f"{row.text(column)[:40]!r} is not known{did_you_mean(word, words)}: one of {', '.join(words)}")
    return word


def _term(row: Row, purchase: str) -> int | None:
    """Months; None for what does not bind."""
    told, due = row.number("term_months", "term"), TERM_MONTHS.get(purchase)
    if purchase == "capacity_block" or due is None:
        if told and purchase != "capacity_block":
            raise row.fault("term_months", f"{purchase} binds for no term: leave it empty")
        return None
    if not told:
        raise row.fault("term_months", f"it is empty: {purchase} binds for a term, write {due}")
    if told != due:
        raise row.fault("term_months", f"{row.text('term_months')} months are no term of {purchase}: it binds for {due}")
    return due


def _payment(row: Row, months: int | None, hourly: Fraction, upfront: Fraction) -> str | None:
    """As told; else by what is paid when."""
    if months is None:
        return None
    paid = "no_upfront" if not upfront else "partial_upfront" if hourly else "all_upfront"
    if row.text("payment"):
        told = _word(row, "payment", WAYS_TO_PAY)
        if told != paid:
            raise row.fault(
                "payment", f"{told} does not fit an upfront of {float(upfront):g} and {float(hourly):g} an hour: {paid}"
            )
    return paid


def _day(row: Row) -> date | None:
    text = row.text("as_of")
    if text.lower() in EMPTY:
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise row.fault("as_of", f"{text[:40]!r} is no date: write one like 2026-03-01") from None
