"""Google's Cloud Billing Catalog (https://cloudbilling.googleapis.com): on demand, spot and resource-based commitments.

It needs an API key. A machine is not sold as one: its price is the sum of its cores, memory, GPUs and local disks.

Invariant: a machine has a price only when every component has one; else it is left out, and is said which is missing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import httpx

from pricing.instances import InstanceType
from pricing.money import to_decimal
from pricing.prices import INSTANCE_HOUR, Price
from pricing.sources import NoCredentials, OnProgress, Progress, Skipped, Wanted
from pricing.sources.web import Web, moment, number, objects

URL = "https://cloudbilling.googleapis.com/v1/services/6F81-5844-456A/skus"
"""Of the service Compute Engine."""
NAME = "The Google Cloud Billing Catalog"
PAGE_SIZE = "5000"
HOURS_PER_MONTH = 730
"""Google's own month."""
GIB = 1 << 30
PLACES = 10
NO_KEY = (
    "Google Cloud tells its prices only with an API key: make one for the Cloud Billing API and set "
    "RACKRATE_GCP_API_KEY; until then the prices that ship with rackrate serve."
)
PURCHASES = {"OnDemand": "on_demand", "Preemptible": "spot", "Commit1Yr": "reserved_1y", "Commit3Yr": "reserved_3y"}
TERM_HOURS = {"reserved_1y": 8760, "reserved_3y": 26280}
UNITS = {"h": 1, "GiBy.h": 1, "GiBy.mo": HOURS_PER_MONTH}
"""Unit of a SKU -> hours in it."""
GPUS = {
    "a2-highgpu": ("A100", "A100 40GB"), "a2-megagpu": ("A100", "A100 40GB"), "a2-ultragpu": ("A100 80GB",),
    "a3-highgpu": ("H100 80GB",), "a3-edgegpu": ("H100 80GB",), "a3-megagpu": ("H100 80GB Mega", "H100 Mega 80GB"),
    "a3-ultragpu": ("H200 141GB", "H200"), "g2-standard": ("L4",), "g4-standard": ("RTX 6000 96GB", "RTX PRO 6000 96GB"),
}  # fmt: skip
"""Machine series -> its GPU as SKUs call it, without `Nvidia` and `Tesla`."""

_SPOT = r"(?P<spot>Spot Preemptible |Preemptible )?"
_HOST = re.compile(rf"{_SPOT}(?P<series>[A-Z]\d\w*) Instance (?P<part>Core|Ram|Local SSD) running in ")
_GPU = re.compile(rf"{_SPOT}(?P<name>.+?)(?: GPU)?(?P<late> attached to (?:Spot )?Preemptible VMs)? running in ")
_DISK = re.compile(r"SSD backed Local Storage(?P<late> attached to (?:Spot )?Preemptible VMs?)?(?: (?:running )?in .+)?$")
_COMMITTED = re.compile(
    r"Commitment v1: (?:(?P<series>[A-Z]\d\w*) (?P<part>Cpu|Ram)|(?P<gpu>.+) GPU|Local SSD) (?:running )?in ", re.IGNORECASE
)


class _Component(NamedTuple):
    """`core:A2`, `ram:A2`, `gpu:A100`, `disk` or `disk:A3`, of one purchase option and region."""

    name: str
    purchase: str
    region: str


class _Rate(NamedTuple):
    """Per core, GiB or GPU, and hour."""

    price: Fraction
    currency: str
    since: datetime


class GcpSource:
    """`pricing.sources.Source` for Google Cloud. `shapes`: the machine types that are to be priced."""

    name = "gcp"
    cloud = "gcp"

    def __init__(
        self,
        api_key: str | None,
        shapes: Iterable[InstanceType],
        now: datetime,
        *,
        url: str = URL,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] | None = None,
    ) -> None:
        self._api_key = api_key
        self._shapes = [shape for shape in shapes if shape.gpu_count]
        self._now = now
        self._url = url
        self._web = lambda: Web(NAME, transport=transport, **({"sleep": sleep} if sleep else {}))
        self._source = f"google cloud billing catalog {now:%Y-%m-%d}"

    def fetch(self, wanted: Wanted, on_progress: OnProgress) -> Iterator[Price]:
        """All pages first, for a sum needs all components; a stopped fetch begins anew. NoCredentials without a key."""
        if not self._api_key:
            raise NoCredentials(NO_KEY)
        rates: dict[_Component, _Rate] = {}
        skipped: list[Skipped] = []
        pages, token = 0, ""
        with self._web() as web:
            while True:
                page = web.get(
                    self._url, {"key": self._api_key, "pageSize": PAGE_SIZE, "currencyCode": "USD", "pageToken": token}
                )
                for sku in objects(page, "skus", NAME):
                    _note(sku, rates, skipped)
                pages += 1
                token = str(page.get("nextPageToken") or "")
                on_progress(Progress("price components", 0, 1, pages, 0, "anew"))
                if not token:
                    break
        rows = 0
        for price in self._machines(rates, wanted, skipped):
            rows += 1
            yield price
        on_progress(Progress("sums of components", 1, 1, pages, rows, None, tuple(skipped)))

    def _machines(self, rates: Mapping[_Component, _Rate], wanted: Wanted, skipped: list[Skipped]) -> Iterator[Price]:
        places = sorted({(rate.region, rate.purchase) for rate in rates})
        for shape in self._shapes:
            if wanted.instance_types is not None and shape.instance_type not in wanted.instance_types:
                continue
            parts = _parts(shape)
            if parts is None:
                skipped.append(Skipped(f"gcp {shape.instance_type}", "which components it is billed by is not known."))
                continue
            for region, purchase in places:
                if purchase in wanted.purchases and (not wanted.regions or region in wanted.regions):
                    price = self._sum(shape, parts, region, purchase, rates, skipped)
                    if price is not None:
                        yield price

    def _sum(
        self, shape: InstanceType, parts: Mapping[tuple[str, ...], Fraction], region: str, purchase: str,
        rates: Mapping[_Component, _Rate], skipped: list[Skipped],
    ) -> Price | None:  # fmt: skip
        found, missing = [], []
        for names, quantity in parts.items():
            rate = next((rate for name in names if (rate := rates.get(_Component(name, purchase, region)))), None)
            if rate is None:
                missing.append(names[0])
            else:
                found.append((rate, quantity))
        if missing:
            if not any(name.startswith("gpu:") for name in missing):  # without the GPU it is not offered there at all
                where = f"gcp {region}, {shape.instance_type}, {purchase}"
                skipped.append(Skipped(where, f"its price is only known in part: no SKU for {', '.join(missing)}."))
            return None
        if len({rate.currency for rate, _ in found}) != 1:
            return None
        total = to_decimal(sum((rate.price * quantity for rate, quantity in found), Fraction(0)), PLACES)
        source = self._source if shape.nvme_bytes is not None else f"{self._source}, without local disks"
        hours = TERM_HOURS.get(purchase)
        return Price(
            "gcp", region, None, shape.instance_type, purchase, total, found[0][0].currency, INSTANCE_HOUR,
            max(rate.since for rate, _ in found), self._now, source, None, "no_upfront" if hours else None,
            Decimal(0) if hours else None, total if hours else None, hours,
        )  # fmt: skip


def _parts(shape: InstanceType) -> dict[tuple[str, ...], Fraction] | None:
    """Names of each component (the first that has a rate counts) -> how much of it; None when that is not known."""
    series = "-".join(shape.instance_type.split("-")[:2])
    family = shape.instance_type.split("-")[0].upper()
    gpus = GPUS.get(series)
    if gpus is None or shape.vcpus is None or shape.memory_bytes is None or shape.gpu_count is None:
        return None
    parts: dict[tuple[str, ...], Fraction] = {
        (f"core:{family}",): Fraction(shape.vcpus),
        (f"ram:{family}",): Fraction(shape.memory_bytes, GIB),
        tuple(f"gpu:{name}" for name in gpus): Fraction(shape.gpu_count),
    }
    if shape.nvme_bytes:
        parts[(f"disk:{family}", "disk")] = Fraction(shape.nvme_bytes, GIB)
    return parts


def _note(sku: Mapping[str, Any], rates: dict[_Component, _Rate], skipped: list[Skipped]) -> None:
    """Takes a SKU's rate if it is a component of ours."""
    category = sku.get("category") if isinstance(sku.get("category"), dict) else {}
    found = _component(str(sku.get("description", "")), str(category.get("resourceGroup")), str(category.get("usageType")))
    if found is None:
        return
    name, purchase = found
    rate = _rate(sku)
    if rate is None:
        skipped.append(Skipped(f"gcp sku {sku.get('skuId')}, {sku.get('description')}", "its price, unit or date is none."))
        return
    for region in sku.get("serviceRegions") or ():
        old = rates.get(_Component(name, purchase, str(region)))
        if old is None or old.since < rate.since:
            rates[_Component(name, purchase, str(region))] = rate


def _component(description: str, group: str, usage: str) -> tuple[str, str] | None:
    """Which component, bought how."""
    purchase = PURCHASES.get(usage)
    if purchase in TERM_HOURS:
        found = _COMMITTED.match(description)
        if found is None:
            return None
        if found["series"]:
            return f"{'core' if found['part'].lower() == 'cpu' else 'ram'}:{found['series'].upper()}", purchase
        return (f"gpu:{_gpu_name(found['gpu'])}" if found["gpu"] else "disk"), purchase
    if purchase is None or description.startswith("Commitment"):
        return None
    host, disk = _HOST.match(description), _DISK.match(description)
    if host is not None:
        part = {"Core": "core", "Ram": "ram", "Local SSD": "disk"}[host["part"]]
        return f"{part}:{host['series'].upper()}", _bought(host["spot"], purchase)
    if disk is not None:
        return "disk", _bought(disk["late"], purchase)
    gpu = _GPU.match(description) if group == "GPU" else None
    return None if gpu is None else (f"gpu:{_gpu_name(gpu['name'])}", _bought(gpu["spot"] or gpu["late"], purchase))


def _bought(spot: str | None, purchase: str) -> str:
    return "spot" if spot else purchase  # the category of spot SKUs sometimes says OnDemand


def _gpu_name(name: str) -> str:
    return re.sub(r"\b(nvidia|tesla) ", "", name, flags=re.IGNORECASE).strip()


def _rate(sku: Mapping[str, Any]) -> _Rate | None:
    """Per unit and hour, of the newest pricing; None when it is free, tiered or in a unit of another kind."""
    try:
        info = sku["pricingInfo"][-1]
        expression = info["pricingExpression"]
        hours = UNITS[expression["usageUnit"]]
        price = expression["tieredRates"][-1]["unitPrice"]
        value = Fraction(number(price.get("units") or 0) or 0) + Fraction(int(price.get("nanos") or 0), 10**9)
        since, currency = moment(info["effectiveTime"]), str(price["currencyCode"])
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        return None
    return _Rate(value / hours, currency, since) if since is not None and value > 0 else None
