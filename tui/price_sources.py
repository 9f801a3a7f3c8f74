"""Which sources `prices refresh` asks, with which keys and for what.

Invariant: a key comes from the environment (or from boto3's own chain) and is never shown, kept or logged.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from tui.errors import WrongUsage

if TYPE_CHECKING:
    from pricing.catalog import Catalog
    from pricing.sources import Source, Wanted
    from pricing.sources.aws_session import AwsSession

CLOUDS = ("aws", "azure", "gcp", "alibaba")
LINES_TOLD = 50_000
ANSWER_FOR_ALL = ("azure", "gcp")
"""Clouds whose one answer holds all regions, also those that nobody here has heard of."""
PURCHASES = ("on_demand", "spot", "reserved_1y", "reserved_3y", "savings_plan_1y", "savings_plan_3y")
"""What is asked for by default; capacity blocks only on request, for each block is a question of its own."""


def sources(
    clouds: Sequence[str], catalog: Catalog, now: datetime, stack: contextlib.ExitStack, environ: Mapping[str, str] = os.environ
) -> list[Source]:
    """One source per cloud; `stack` closes what they hold open."""
    return [_source(cloud, catalog, now, stack, environ) for cloud in clouds]


def aws_session() -> AwsSession:
    """With the key of boto3's own chain; whoever asks closes it."""
    from pricing.sources.aws_session import AwsSession

    return AwsSession()


def _source(cloud: str, catalog: Catalog, now: datetime, stack: contextlib.ExitStack, environ: Mapping[str, str]) -> Source:
    match cloud:
        case "aws":
            from pricing.sources.aws import AwsSource

            return AwsSource(stack.enter_context(aws_session()), now)
        case "azure":
            from pricing.sources.azure import AzureSource

            return AzureSource(now)
        case "gcp":
            from pricing.sources.gcp import GcpSource

            return GcpSource(environ.get("RACKRATE_GCP_API_KEY"), catalog.instances("gcp"), now)
        case "alibaba":
            from pricing.sources.alibaba import AlibabaSource

            key, secret = environ.get("ALIBABA_CLOUD_ACCESS_KEY_ID"), environ.get("ALIBABA_CLOUD_ACCESS_KEY_SECRET")
            return AlibabaSource(key, secret, now, clock=_clock)
    raise WrongUsage(f"--cloud {cloud}: there is no live source of it; there are {', '.join(CLOUDS)}.")


def _clock() -> datetime:
    from datetime import UTC

    return datetime.now(UTC)


def dated_lists(day: datetime, stack: contextlib.ExitStack, on_lines: Callable[[str, int], None]) -> Source:
    """AWS's price lists of a day gone by. `on_lines` is told how many lines of a file (its address) have been read."""
    from pricing.sources.aws_price_files import AwsPriceFiles, open_https

    @contextlib.contextmanager
    def opened(url: str) -> Iterator[Iterator[str]]:
        with open_https(url) as lines:
            yield _counted(lines, lambda count: on_lines(url, count))

    return AwsPriceFiles(stack.enter_context(aws_session()), day, day + timedelta(hours=12), opened)


def _counted(lines: Iterable[str], told: Callable[[int], None]) -> Iterator[str]:
    for count, line in enumerate(lines):
        if count % LINES_TOLD == 0:
            told(count)
        yield line


def wanted(
    cloud: str, catalog: Catalog, regions: Sequence[str], types: Sequence[str], purchases: Sequence[str]
) -> Wanted | None:
    """What to ask of a cloud: the GPU types and regions that are known, unless others are named.

    None: none of the types that were named is of this cloud.
    """
    from pricing.lookup import region_key
    from pricing.sources import Wanted

    known = catalog.instances(cloud)
    if types:
        named = [catalog.instance(cloud, name) for name in types]
        names = frozenset(shape.instance_type for shape in named if shape is not None)
        foreign = [other for other in CLOUDS if other != cloud and any(catalog.instance(other, name) for name in types)]
        if not names and foreign:
            return None
        names |= {name for name, shape in zip(types, named, strict=True) if shape is None and not foreign}
    else:
        names = frozenset(shape.instance_type for shape in known if shape.kind != "cpu")
    everywhere = () if cloud in ANSWER_FOR_ALL else sorted({offer.region for offer in catalog.offers(cloud)})
    where = regions or everywhere
    return Wanted(tuple(dict.fromkeys(map(region_key, where))), names, tuple(purchases) or PURCHASES)
