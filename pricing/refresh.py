"""Brings the prices of sources into the price book: cloud by cloud, with progress, to be interrupted and resumed.

Invariant: what a source yielded is in the book before it is said to be; one bad row, one bad source or an interruption
never takes the rest with it. Where a fetch was stopped is kept in the book, and the next refresh goes on from there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from pricing.errors import PriceBookError
from pricing.pricebook import PriceBook, PutResult, Refreshed
from pricing.prices import Price
from pricing.sources import NoCredentials, Progress, Skipped, Source, SourceFault, Wanted

CHUNK = 2000
"""Prices that are put at once, at most."""
OVERLAP = timedelta(days=2)
"""Of a history with what is kept of it."""
RESUME_HOURS = 12
"""A fetch that was stopped longer ago begins anew: its pages are gone, and its prices old."""

Tell = Callable[[str, Progress, PutResult], None]
"""Called with the cloud, where its fetch stands, and what became of its prices so far."""


class CloudSummary(NamedTuple):
    """What a refresh did for one cloud."""

    cloud: str
    result: PutResult
    skipped: tuple[Skipped, ...]
    outcome: str
    """`done`, `interrupted`, `failed`, or `no key`."""
    fault: str | None
    """Why it did not end, in a sentence."""
    resumed: bool
    """It went on from where an earlier refresh was stopped."""

    @property
    def whole(self) -> bool:
        """Whether everything that was asked for is in the book."""
        return self.outcome == "done" and not self.result.refused


class Summary(NamedTuple):
    """What a refresh did."""

    clouds: tuple[CloudSummary, ...]

    @property
    def interrupted(self) -> bool:
        return any(cloud.outcome == "interrupted" for cloud in self.clouds)

    @property
    def failed(self) -> bool:
        """Nothing at all came of it."""
        return bool(self.clouds) and all(
            cloud.outcome in ("failed", "no key") and not (cloud.result.new or cloud.result.changed or cloud.result.unchanged)
            for cloud in self.clouds
        )

    @property
    def whole(self) -> bool:
        return all(cloud.whole for cloud in self.clouds)


def refresh(
    book: PriceBook,
    sources: Sequence[tuple[Source, Wanted]],
    now: datetime,
    tell: Tell = lambda cloud, progress, result: None,
    *,
    accept: bool = False,
) -> Summary:
    """Fetches from each source what is wanted of it. An interruption (Ctrl-C) ends it with what is there so far."""
    done: list[CloudSummary] = []
    for source, wanted in sources:
        done.append(_Fetch(book, source, wanted, now, tell, accept).run())
        if done[-1].outcome == "interrupted":
            break
    return Summary(tuple(done))


class _Fetch:
    """One source's part."""

    def __init__(self, book: PriceBook, source: Source, wanted: Wanted, now: datetime, tell: Tell, accept: bool) -> None:
        self._book = book
        self._source = source
        self._now = now
        self._tell = tell
        self._accept = accept
        self._kind = kind_of(wanted)
        token = book.resume_token(source.cloud, self._kind, now - timedelta(hours=RESUME_HOURS))
        self._wanted = wanted._replace(resume=token, since=wanted.since or self._since())
        self._waiting: list[Price] = []
        self._result = PutResult()
        self._skipped: list[Skipped] = []

    def _since(self) -> datetime | None:
        """History is asked for from a while before the last refresh of the same: the rest is kept already."""
        last = self._book.last_done(self._source.cloud, self._kind)
        return None if last is None else last - OVERLAP

    def run(self) -> CloudSummary:
        outcome, fault = "done", None
        try:
            self._read()
            self._flush()
            self._book.keep_resume(self._source.cloud, self._kind, None, self._now)
        except KeyboardInterrupt:
            outcome, fault = "interrupted", "It was interrupted; what came is kept, and the next refresh goes on from there."
        except NoCredentials as error:
            outcome, fault = "no key", str(error)
        except (SourceFault, PriceBookError) as error:
            outcome, fault = "failed", str(error)
        except Exception as error:  # noqa: BLE001 - whatever a source does, the other clouds are refreshed
            outcome, fault = "failed", f"{self._source.name} answered what is not understood ({type(error).__name__}: {error})."
        if outcome != "done":
            with contextlib.suppress(PriceBookError):
                self._flush()
        self._note(outcome, fault)
        return CloudSummary(
            self._source.cloud, self._result, tuple(self._skipped), outcome, fault, self._wanted.resume is not None
        )

    def _read(self) -> None:
        prices = self._source.fetch(self._wanted, self._progress)
        with contextlib.closing(prices) if hasattr(prices, "close") else contextlib.nullcontext():
            for price in prices:
                self._waiting.append(price)
                if len(self._waiting) >= CHUNK:
                    self._flush()

    def _progress(self, progress: Progress) -> None:
        """All that was yielded before is put before the place to resume from is kept."""
        self._flush()
        self._skipped += progress.skipped
        self._book.keep_resume(self._source.cloud, self._kind, progress.resume, self._now)
        self._tell(self._source.cloud, progress, self._result)

    def _flush(self) -> None:
        if self._waiting:
            self._result = self._result.plus(self._put(self._waiting))
            self._waiting.clear()

    def _put(self, prices: Sequence[Price]) -> PutResult:
        try:
            return self._book.put(prices, self._now, accept=self._accept, dated=self._wanted.as_of is not None)
        except PriceBookError:
            raise
        except Exception as error:  # noqa: BLE001 - a row that breaks the put is found and left out
            if len(prices) == 1:
                return PutResult(refused=((prices[0], f"This row is no price ({type(error).__name__}: {error})."),))
        half = len(prices) // 2
        return self._put(prices[:half]).plus(self._put(prices[half:]))

    def _note(self, outcome: str, fault: str | None) -> None:
        """Of today's prices; a list of a day gone by makes none of them newer."""
        if self._wanted.as_of is not None:
            return
        counts = self._result
        with contextlib.suppress(PriceBookError):
            self._book.note_refresh(
                Refreshed(
                    self._source.cloud,
                    self._now,
                    counts.new,
                    counts.changed,
                    counts.unchanged,
                    len(counts.refused),
                    outcome,
                    fault,
                )
            )


def kind_of(wanted: Wanted) -> str:
    """What was asked for, as a text: only a refresh of the same can go on from another's place."""
    types = "all" if wanted.instance_types is None else ",".join(sorted(wanted.instance_types))
    dated = "" if wanted.as_of is None else f" | as of {wanted.as_of:%Y-%m-%d}"
    return f"{','.join(wanted.regions)} | {types} | {','.join(wanted.purchases)}{dated}"
