"""The spot price history of an AWS region: 90 days of steps, per zone id.

Invariant: a row is the moment since which a price holds; the row before the window's start (the price in force when it
begins) is kept with its own earlier date. A page that is cut without a token is read on from its oldest row, or is a fault.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from pricing.prices import INSTANCE_HOUR, Price
from pricing.sources import Skipped, TruncatedPage, Wanted
from pricing.sources.aws_numbers import BadRow, amount, moment
from pricing.sources.aws_session import AwsSession
from pricing.sources.aws_steps import Batch, Mark
from pricing.sources.aws_zones import Zones

HISTORY = timedelta(days=90)
PAGE = 1000
TYPES_AT_ONCE = 100
LINUX = "Linux/UNIX"
LINUX_NAMES = (LINUX, "Linux/UNIX (Amazon VPC)")


class Window:
    """One pass over the history: chunk of types, from, to, and the token to go on with."""

    def __init__(self, chunk: int, start: datetime, end: datetime, token: str | None = None) -> None:
        self.chunk, self.start, self.end, self.token = chunk, start, end, token

    def mark(self, token: str | None) -> list[Any]:
        return [self.chunk, self.start.isoformat(), self.end.isoformat(), token]

    @classmethod
    def of(cls, mark: list[Any]) -> Window:
        chunk, start, end, token = mark
        return cls(chunk, datetime.fromisoformat(start), datetime.fromisoformat(end), token)


def spot_history(session: AwsSession, zones: Zones, wanted: Wanted, now: datetime, mark: Mark) -> Iterator[Batch]:
    """Spot prices of a region, newest first, page by page. TruncatedPage: see `_older`."""
    start = max(now - HISTORY, wanted.since) if wanted.since else now - HISTORY
    chunks = _chunks(wanted.instance_types)
    first = mark[0] if mark else 0
    reading = _Reading(zones, now, session.currency(zones.region))
    for chunk in range(first, len(chunks)):
        resumed = mark and chunk == first and mark[1] is not None
        yield from _read_window(session, Window.of(mark) if resumed else Window(chunk, start, now), chunks, reading)


def _read_window(session: AwsSession, window: Window | None, chunks: list[list[str]], reading: _Reading) -> Iterator[Batch]:
    """The history of one chunk of types, in as many passes as it takes."""
    client = session.client("ec2", reading.zones.region)
    while window is not None:
        oldest: list[datetime] = []
        for page in session.pages(client, "describe_spot_price_history", _asked(window, chunks), start=window.token):
            rows = page.answer.get("SpotPriceHistory", [])
            prices, skipped = reading.read(rows)
            if page.token is not None:
                yield Batch(prices, skipped, window.mark(page.token))
                continue
            oldest = _moments(rows) if len(rows) >= PAGE else []
            later = _after(window, oldest, reading.zones.region)
            yield Batch(prices, skipped, _following(window, later, len(chunks)))
        window = _after(window, oldest, reading.zones.region)


def _following(window: Window, later: Window | None, chunks: int) -> Mark:
    if later is not None:
        return later.mark(None)
    return [window.chunk + 1, None] if window.chunk + 1 < chunks else None


def _after(window: Window, cut: list[datetime], region: str) -> Window | None:
    """The window below a page that is as long as a page can be and names no next one; None when there is no such page.

    The history of exactly 1,000 rows is whole, and reading on then brings nothing new; but a cut one looks just like it.
    """
    if not cut:
        return None
    oldest = cut[-1]
    if cut != sorted(cut, reverse=True) or oldest >= window.end:
        raise TruncatedPage(
            f"The spot history of {region} was cut after {len(cut)} rows, without a way to read on: "
            "ask for fewer instance types, or for a shorter time."
        )
    return Window(window.chunk, min(window.start, oldest), oldest)


def _asked(window: Window, chunks: list[list[str]]) -> dict[str, Any]:
    asked: dict[str, Any] = {
        "StartTime": window.start,
        "EndTime": window.end,
        "ProductDescriptions": [LINUX],
        "MaxResults": PAGE,
    }
    return {**asked, "InstanceTypes": chunks[window.chunk]} if chunks[window.chunk] else asked


def _chunks(names: frozenset[str] | None) -> list[list[str]]:
    """Types that are asked for together; one empty list: all."""
    if names is None:
        return [[]]
    ordered = sorted(names)
    return [ordered[at : at + TYPES_AT_ONCE] for at in range(0, len(ordered), TYPES_AT_ONCE)]


def _moments(rows: list[dict[str, Any]]) -> list[datetime]:
    return [row["Timestamp"] for row in rows if isinstance(row.get("Timestamp"), datetime)]


class _Reading:
    """Rows into prices, each once. Rows come newest first, so the last one of each series tells what is there twice."""

    def __init__(self, zones: Zones, now: datetime, currency: str) -> None:
        self.zones = zones
        self._now = now
        self._currency = currency
        self._last: dict[tuple[str | None, str], tuple[datetime, Decimal | None]] = {}

    def read(self, rows: list[dict[str, Any]]) -> tuple[list[Price], list[Skipped]]:
        prices: list[Price] = []
        skipped: list[Skipped] = []
        for row in rows:
            try:
                price = self._price(row)
                if self._is_new(price):
                    prices.append(price)
            except BadRow as bad:
                words = (str(row.get(key, "?"))[:40] for key in ("InstanceType", "AvailabilityZone", "Timestamp"))
                skipped.append(Skipped(f"aws spot history {self.zones.region}, {', '.join(words)}", str(bad)))
        return prices, skipped

    def _is_new(self, price: Price) -> bool:
        """Whether it was not read before. BadRow when it was, with another value."""
        series = (price.zone, price.instance_type)
        at, known = self._last.get(series, (None, None))
        if at != price.valid_from:
            self._last[series] = (price.valid_from, price.amount)
            return True
        if known != price.amount:
            raise BadRow(f"It is there twice at one moment: {known} is kept, {price.amount} is left out.")
        return False

    def _price(self, row: dict[str, Any]) -> Price:
        if row.get("ProductDescription") not in LINUX_NAMES:
            raise BadRow(f"It is a price of {str(row.get('ProductDescription'))[:40]!r}, and {LINUX} was asked for.")
        if not row.get("InstanceType"):
            raise BadRow("It names no instance type.")
        return Price(
            cloud="aws",
            region=self.zones.region,
            zone=self._zone(row),
            instance_type=row["InstanceType"],
            purchase="spot",
            amount=amount(row.get("SpotPrice"), "spot price"),
            currency=self._currency,
            unit=INSTANCE_HOUR,
            valid_from=moment(row.get("Timestamp"), "time"),
            fetched_at=self._now,
            source=f"aws spot price history {self._now:%Y-%m-%d}",
        )

    def _zone(self, row: dict[str, Any]) -> str:
        """The zone's id: of its name, which must be one of the region's. BadRow when the two differ, or none is known."""
        name, told = row.get("AvailabilityZone"), row.get("AvailabilityZoneId")
        mapped = self.zones.id_of(str(name)) if name else None
        if mapped and told and mapped != told:
            raise BadRow(f"Its zone {name} is {mapped} and {told} at once.")
        found = mapped or self.zones.id_of(str(told))
        if found is None:
            raise BadRow(f"The zone {str(name)[:40]!r} is none of {self.zones.region}: its id is not known.")
        return found
