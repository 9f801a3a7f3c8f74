"""The AWS price list as it stood on a day: one CSV file per region, read as it streams in.

Invariant: a file that ends before its rows are whole gives no prices at all: prices come when the last line has been read.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from functools import partial
from typing import Any

from pricing.prices import Price
from pricing.sources import BadAnswer, OnProgress, Unreachable, Wanted
from pricing.sources.aws_price_list import PURCHASES, SERVICE, Listed
from pricing.sources.aws_products import FAMILIES, Place, Reading, read_products
from pricing.sources.aws_session import AwsSession
from pricing.sources.aws_steps import Batch, Mark, Step, run_steps

OpenLines = Callable[[str], AbstractContextManager[Iterable[str]]]
FORMAT = "csv"
HEADER = "SKU"
ATTRIBUTES = {
    "instancetype": "instanceType",
    "operatingsystem": "operatingSystem",
    "preinstalledsw": "preInstalledSw",
    "capacitystatus": "capacitystatus",
    "marketoption": "marketoption",
    "tenancy": "tenancy",
    "operation": "operation",
    "regioncode": "regionCode",
}
"""Columns of the file (without spaces and signs, in small letters) and what the query call names them."""
NEEDED = {
    *ATTRIBUTES,
    "sku",
    "offertermcode",
    "termtype",
    "unit",
    "priceperunit",
    "currency",
    "effectivedate",
    "productfamily",
} - {"marketoption"}


class AwsPriceFiles:
    """`pricing.sources.Source` of the price lists in force on `effective`.

    `now` is when their prices count as seen: on that day, for a list of a day gone by tells nothing of today.
    """

    name = "aws price files"
    cloud = "aws"

    def __init__(self, session: AwsSession, effective: datetime, now: datetime, open_lines: OpenLines | None = None) -> None:
        self._session = session
        self._effective = effective
        self._now = now
        self._open_lines = open_lines or open_https

    def fetch(self, wanted: Wanted, on_progress: OnProgress) -> Iterator[Price]:
        """On-demand and reserved prices of the wanted regions, a region at a time."""
        steps = [
            Step(f"file/{region}", f"price list of {region} on {self._effective:%Y-%m-%d}", partial(self._file, region, wanted))
            for region in dict.fromkeys(wanted.regions)
        ]
        return run_steps(steps, wanted, on_progress)

    def _file(self, region: str, wanted: Wanted, mark: Mark) -> Iterator[Batch]:
        reading = Reading(
            place=Place(region, region),
            currency=self._session.currency(region),
            purchases=PURCHASES.intersection(wanted.purchases),
            instance_types=wanted.instance_types,
            now=self._now,
            source=f"aws price list file {self._effective:%Y-%m-%d}",
        )
        with self._open_lines(self._url(reading)) as lines:
            documents = read_file(lines, wanted.instance_types, region)
        prices, skipped = read_products(documents, reading)
        kept, twice = Listed().kept(prices)
        yield Batch(kept, [*skipped, *twice])

    def _url(self, reading: Reading) -> str:
        """Where the file of the day lies. BadAnswer: the price list of that day is not kept."""
        client = self._session.pricing_client(reading.place.region)
        asked = {
            "ServiceCode": SERVICE,
            "EffectiveDate": self._effective,
            "RegionCode": reading.place.region,
            "CurrencyCode": reading.currency,
        }
        for page in self._session.pages(client, "list_price_lists", asked):
            for found in page.answer.get("PriceLists", []):
                if found.get("RegionCode") == reading.place.region and FORMAT in found.get("FileFormats", [FORMAT]):
                    arn = {"PriceListArn": found["PriceListArn"], "FileFormat": FORMAT}
                    return self._session.call(client, "get_price_list_file_url", arn)["Url"]
        raise BadAnswer(
            f"AWS keeps no price list of {reading.place.region} for {self._effective:%Y-%m-%d}: ask for a later day."
        )


def read_file(lines: Iterable[str], instance_types: frozenset[str] | None, region: str) -> list[dict[str, Any]]:
    """The products of a file as the query call would give them. BadAnswer: it has no header, or a line is cut."""
    reader = csv.reader(lines)
    columns = _columns(reader, region)
    products: dict[str, dict[str, Any]] = {}
    for row in reader:
        if len(row) != len(columns):
            raise BadAnswer(f"The price list file of {region} is cut or damaged at line {reader.line_num}: fetch it again.")
        cells = dict(zip(columns, row, strict=True))
        name = cells["instancetype"]
        if name and cells["productfamily"] in FAMILIES and (instance_types is None or name in instance_types):
            _add(products, cells, reader.line_num)
    return list(products.values())


def _columns(reader: Iterator[list[str]], region: str) -> list[str]:
    for row in reader:
        if row and row[0].lstrip("\ufeff") == HEADER:
            columns = [re.sub(r"[^a-z0-9]", "", cell.lower()) for cell in row]
            if missing := NEEDED.difference(columns):
                raise BadAnswer(f"The price list file of {region} has no column for: {', '.join(sorted(missing))}.")
            return columns
    raise BadAnswer(f"The price list file of {region} has no header: fetch it again.")


def _add(products: dict[str, dict[str, Any]], cells: dict[str, str], line: int) -> None:
    """One line is one price dimension of one term of one product."""
    attributes = {name: cells[column] for column, name in ATTRIBUTES.items() if cells.get(column)}
    product = {"sku": cells["sku"], "productFamily": cells["productfamily"], "attributes": attributes}
    document = products.setdefault(cells["sku"], {"product": product, "terms": {"OnDemand": {}, "Reserved": {}}})
    terms = document["terms"].setdefault(cells["termtype"], {})
    said = {
        "LeaseContractLength": cells.get("leasecontractlength"),
        "OfferingClass": cells.get("offeringclass"),
        "PurchaseOption": cells.get("purchaseoption"),
    }
    day = cells["effectivedate"]
    effective = f"{day}T00:00:00Z" if re.fullmatch(r"\d{4}-\d\d-\d\d", day) else day
    term = {"priceDimensions": {}, "effectiveDate": effective, "termAttributes": said}
    dimension = {"unit": cells["unit"], "pricePerUnit": {cells["currency"]: cells["priceperunit"]}}
    terms.setdefault(cells["offertermcode"], term)["priceDimensions"][str(line)] = dimension


@contextmanager
def open_https(url: str) -> Iterator[Iterator[str]]:
    """The lines of a file on the web, as they come. Unreachable, BadAnswer."""
    import httpx

    try:
        with httpx.stream("GET", url, timeout=60, follow_redirects=True) as answer:
            answer.raise_for_status()
            yield (f"{line}\n" for line in answer.iter_lines())
    except httpx.HTTPStatusError as error:
        raise BadAnswer(f"The price list file cannot be read (HTTP {error.response.status_code}): try again later.") from None
    except httpx.HTTPError as error:
        raise Unreachable(
            f"The price list file cannot be read ({type(error).__name__}): check the network, try again."
        ) from None
