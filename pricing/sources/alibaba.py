"""Alibaba Cloud's ECS API: DescribePrice and DescribeSpotPriceHistory. Nothing of it is public: it needs an AccessKey.

Invariant: a price is that of the instance alone (without the disk that DescribePrice adds), at list, in the currency that
the answer names; an answer that does not tell it apart gives no price.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import uuid
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import httpx

from pricing.prices import INSTANCE_HOUR, Price
from pricing.sources import (
    BadAnswer,
    ExpiredCredentials,
    NoCredentials,
    NoPermission,
    OnProgress,
    Progress,
    Skipped,
    TruncatedPage,
    Wanted,
)
from pricing.sources.web import Web, moment, number

URL = "https://ecs.{region}.aliyuncs.com/"
NAME = "Alibaba Cloud's ECS API"
VERSION = "2014-05-26"
HISTORY = timedelta(days=30)
"""How far back spot prices are kept there."""
NO_KEY = (
    "Alibaba Cloud publishes prices only to its accounts: set ALIBABA_CLOUD_ACCESS_KEY_ID and ALIBABA_CLOUD_ACCESS_KEY_SECRET "
    "of a RAM user that may call ecs:DescribePrice and ecs:DescribeSpotPriceHistory; until then the prices that ship serve."
)


class AlibabaSource:
    """`pricing.sources.Source` for Alibaba Cloud. `clock` is the time of each signature, and of nothing else."""

    name = "alibaba"
    cloud = "alibaba"

    def __init__(
        self,
        key_id: str | None,
        secret: str | None,
        now: datetime,
        *,
        clock: Callable[[], datetime] | None = None,
        url: str = URL,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] | None = None,
    ) -> None:
        self._key_id = key_id
        self._secret = secret
        self._now = now
        self._clock = clock or (lambda: now)
        self._url = url
        self._web = lambda: Web(NAME, transport=transport, **({"sleep": sleep} if sleep else {}))
        self._source = f"alibaba cloud ecs api {now:%Y-%m-%d}"

    def fetch(self, wanted: Wanted, on_progress: OnProgress) -> Iterator[Price]:
        """A request per region, type and kind of price. NoCredentials without a key."""
        if not self._key_id or not self._secret:
            raise NoCredentials(NO_KEY)
        kinds = [kind for kind in ("on_demand", "spot") if kind in wanted.purchases]
        steps = [
            (region, name, kind) for region in wanted.regions for name in sorted(wanted.instance_types or ()) for kind in kinds
        ]
        start = int(wanted.resume) if wanted.resume and wanted.resume.isdigit() else 0
        rows = 0
        with self._web() as web:
            for at, (region, name, kind) in enumerate(steps[start:], start):
                read = self._on_demand if kind == "on_demand" else self._spot
                skipped: tuple[Skipped, ...] = ()
                try:
                    for price in read(web, region, name, wanted.since):
                        rows += 1
                        yield price
                except BadAnswer as fault:  # a type that this region does not sell is refused like a wrong one
                    skipped = (Skipped(f"alibaba {region}, {name}, {kind}", str(fault)),)
                done = at + 1
                resume = str(done) if done < len(steps) else None
                on_progress(Progress(f"{kind} prices of {region}", done, len(steps), done - start, rows, resume, skipped))

    def _on_demand(self, web: Web, region: str, name: str, since: datetime | None) -> Iterator[Price]:
        asked = {"Action": "DescribePrice", "ResourceType": "instance", "InstanceType": name, "PriceUnit": "Hour"}
        answer = self._call(web, region, asked)
        info = answer.get("PriceInfo")
        price = info.get("Price") if isinstance(info, dict) else None
        amount = number(_of_instance(price).get("OriginalPrice")) if isinstance(price, dict) else None
        if not isinstance(price, dict) or amount is None:
            raise BadAnswer(f"{NAME} does not tell the instance's price apart from its disk's.")
        yield self._price(region, None, name, "on_demand", amount, price.get("Currency"), self._now)

    def _spot(self, web: Web, region: str, name: str, since: datetime | None) -> Iterator[Price]:
        begin = max(since or self._now - HISTORY, self._now - HISTORY)
        offset = 0
        while True:
            asked = {
                "Action": "DescribeSpotPriceHistory", "NetworkType": "vpc", "OSType": "linux", "InstanceType": name,
                "StartTime": _stamp(begin), "EndTime": _stamp(self._now), "Offset": str(offset),
            }  # fmt: skip
            answer = self._call(web, region, asked)
            listed = answer.get("SpotPrices")
            rows = listed.get("SpotPriceType") if isinstance(listed, dict) else None
            for row in rows if isinstance(rows, list) else ():
                at, amount = moment(row.get("Timestamp")), number(row.get("SpotPrice"))
                if at is not None and amount is not None and row.get("ZoneId"):
                    yield self._price(region, str(row["ZoneId"]), name, "spot", amount, answer.get("Currency"), at)
            following = answer.get("NextOffset")
            if not following or not rows:
                return
            if not isinstance(following, int) or following <= offset:
                raise TruncatedPage(f"{NAME} names no further page of the spot history of {name} in {region}.")
            offset = following

    def _price(
        self, region: str, zone: str | None, name: str, purchase: str, amount: Any, currency: object, since: datetime
    ) -> Price:
        return Price(
            "alibaba", region, zone, name, purchase, amount or None, str(currency or "CNY"), INSTANCE_HOUR, since, self._now,
            self._source,
        )  # fmt: skip

    def _call(self, web: Web, region: str, asked: Mapping[str, str]) -> dict[str, Any]:
        try:
            return web.get(self._url.format(region=region), lambda: self._signed({**asked, "RegionId": region}))
        except (NoPermission, ExpiredCredentials) as fault:
            raise type(fault)(f"{fault} {NO_KEY}") from None

    def _signed(self, asked: Mapping[str, str]) -> dict[str, str]:
        params = {
            **asked, "Format": "JSON", "Version": VERSION, "AccessKeyId": str(self._key_id), "SignatureMethod": "HMAC-SHA1",
            "SignatureVersion": "1.0", "SignatureNonce": uuid.uuid4().hex, "Timestamp": _stamp(self._clock()),
        }  # fmt: skip
        return {**params, "Signature": signature(params, str(self._secret))}


def signature(params: Mapping[str, str], secret: str) -> str:
    """Of a GET request of the RPC style: HMAC-SHA1 over its sorted, percent-encoded parameters."""
    query = "&".join(f"{_encoded(key)}={_encoded(value)}" for key, value in sorted(params.items()))
    text = f"GET&{_encoded('/')}&{_encoded(query)}"
    digest = hmac.new(f"{secret}&".encode(), text.encode(), hashlib.sha1).digest()
    return base64.b64encode(digest).decode()


def _of_instance(price: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of a price that is the instance's."""
    details = price.get("DetailInfos")
    listed = (
        next((value for value in details.values() if isinstance(value, list)), []) if isinstance(details, dict) else details
    )
    for part in listed if isinstance(listed, list) else ():
        if isinstance(part, dict) and part.get("Resource") in ("instanceType", "instance"):
            return part
    return {}


def _encoded(text: str) -> str:
    return quote(text, safe="-_.~")


def _stamp(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
