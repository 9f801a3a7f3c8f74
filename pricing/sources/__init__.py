"""Where prices are published, read live: one file (or family of files) per source. The only network I/O of `pricing`.

SourceFault                  a source did not give what was asked: says why, and what to do          exit 1
├── NoCredentials            no key is configured for the cloud
├── ExpiredCredentials       the key is known and no longer (or not yet) valid
├── RefusedCredentials       the cloud does not accept the key
├── NoPermission             the key may not make this call: names the permission
├── UnknownRegion            the cloud has no such region, or the account has not enabled it          exit 2
├── Unreachable              no network, no such host, a time-out                                     exit 3
├── Throttled                still refused after all retries
├── BadAnswer                an answer that cannot be understood
│   ├── TruncatedPage        an answer that is cut and gives no way to go on
│   └── StaleToken           the place at which a fetch stopped is no longer known, or is of another one
└── RequestsRefused          a request that costs money was not allowed, or the cap is reached

Invariant: what a source does not say clearly is never a number. One bad row is left out with a sentence (`Skipped`); what
spoils a whole answer is a `SourceFault`. Sources have no clock: they are made with the moment that counts as now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pricing.errors import PricingError

if TYPE_CHECKING:
    from pricing.prices import Price


class SourceFault(PricingError):
    """A source did not give what was asked."""


class NoCredentials(SourceFault):
    """No key is configured; the prices that ship with the program still serve."""


class ExpiredCredentials(SourceFault):
    """The key is known and no longer valid."""


class RefusedCredentials(SourceFault):
    """The cloud does not accept the key: it is wrong, or not for this part of the cloud."""


class NoPermission(SourceFault):
    """The key may not make this call."""


class UnknownRegion(SourceFault):
    """The cloud has no such region, or the account has not enabled it."""

    exit_code = 2


class Unreachable(SourceFault):
    """No network, no such host, or no answer in time."""

    exit_code = 3


class Throttled(SourceFault):
    """The source refused for too many requests, also after all retries."""


class BadAnswer(SourceFault):
    """An answer that cannot be understood."""


class TruncatedPage(BadAnswer):
    """An answer is cut and there is no way to read on."""


class StaleToken(BadAnswer):
    """The place at which a fetch stopped is no longer known, or is one of another fetch."""


class RequestsRefused(SourceFault):
    """A request that costs money was not allowed, or the cap on them is reached."""


class Wanted(NamedTuple):
    """What a refresh asks of a source."""

    regions: tuple[str, ...]
    instance_types: frozenset[str] | None = None
    """None: all that the source lists."""
    purchases: tuple[str, ...] = ("on_demand", "spot")
    """Purchase options in design.md's words."""
    since: datetime | None = None
    """History from here on (UTC), where the source keeps one; None: as far back as it goes."""
    resume: str | None = None
    """`Progress.resume` of a fetch that was stopped: starts after what that one had yielded."""
    as_of: datetime | None = None
    """A day gone by, of whose published list the prices are to be; None: today's."""


class Skipped(NamedTuple):
    """One row, or one place, that was left out."""

    where: str
    """`aws price list us-east-1, p4d.24xlarge, reserved_1y`."""
    reason: str
    """A sentence."""


class Progress(NamedTuple):
    """Where a fetch stands; told after every page, when its rows have been yielded."""

    step: str
    """What is being read, in words: `spot history of us-east-1`."""
    done: int
    """Steps that are finished."""
    total: int | None
    """Steps in all, as far as is known yet."""
    pages: int
    """Answers read since the start."""
    rows: int
    """Prices yielded since the start."""
    resume: str | None
    """Give this as `Wanted.resume` to go on from here; None: all is done."""
    skipped: tuple[Skipped, ...] = ()
    """What was left out since the last report."""


OnProgress = Callable[[Progress], None]


class Source(Protocol):
    """One cloud's published prices. SourceFault when it cannot go on; what was yielded until then is good."""

    name: str
    """`aws`; also in the words of messages."""
    cloud: str
    """The `cloud` of its prices."""

    def fetch(self, wanted: Wanted, on_progress: OnProgress) -> Iterator[Price]:
        """Prices as they come, page by page. May be stopped at any time (close the generator) and resumed."""
        ...
