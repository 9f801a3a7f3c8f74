"""Asks the node's own cloud, again and again, whether it will take this node away, and tells it once.

Invariant: one thread, one question at a time; no fault of the service ends it or is told as a notice, and one that
lasts is a sentence in `problem`. A machine of no known cloud is never asked for.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Protocol

from agent.identity import metadata_off, metadata_urls
from agent.interruption.aws import Ec2
from agent.interruption.azure import Azure
from agent.interruption.gcp import Gcp
from agent.interruption.notices import ENDING, NoticeBook, Source
from agent.interruption.service import Service, Unanswered
from agent.meter_clock import boot_ms
from agent.wire import Notice

FIRST_WAIT_SECONDS = 1.0
"""After the first fault; doubled by each further one, up to what the source allows."""
PROBLEM_SECONDS = 60.0
AZURE_PROBLEM_SECONDS = 180.0
CLOSE_SECONDS = 2.0

log = logging.getLogger(__name__)


class Cloud(Protocol):
    """What a cloud's file gives."""

    def sources(self) -> tuple[Source, ...]: ...


class _Asked:
    """One source: when it is due, and since when it fails. Times in seconds of the watch's clock."""

    __slots__ = ("source", "due", "faults", "failing_since", "why")

    def __init__(self, source: Source, due: float) -> None:
        self.source = source
        self.due = due
        self.faults = 0
        self.failing_since: float | None = None
        self.why = ""

    def answered(self, now: float, pace: float) -> None:
        self.faults, self.failing_since = 0, None
        self.due = now + self.source.period_seconds * pace

    def failed(self, now: float, why: str, pace: float) -> None:
        self.why = why
        self.failing_since = now if self.failing_since is None else self.failing_since
        self.due = now + min(self.source.longest_wait_seconds, FIRST_WAIT_SECONDS * 2 ** min(self.faults, 10)) * pace
        self.faults += 1


class NoticeWatch:
    """Polls in a daemon thread of its own. `on_notice` is called there, with each notice when it is new, when its time
    changed, and (with `ended_at`) when the cloud took it back; it must return soon. In the daemon:

        def heard(notice: wire.Notice) -> None:               # in the watch's thread
            loop.call_soon_threadsafe(node.hear, notice)

        watch = NoticeWatch(identity.cloud, heard)            # once the identity is settled; any cloud, also None
        watch.start()
        ...
        watch.close()

    Several can be in force (a recommendation, then the interruption), so who acts on them looks at `current` rather than
    at what was told last: `jobs.notice(watch.current or notice)`.

    `base_urls`: cloud -> address, instead of RACKRATE_EC2_METADATA_URL and its like, and those instead of the real one.
    `approve`: whether `saved()` lets Azure go ahead before the time. `pace` multiplies all waits (tests use less than 1).
    """

    def __init__(
        self,
        cloud: str | None,
        on_notice: Callable[[Notice], None],
        *,
        base_urls: Mapping[str, str] | None = None,
        environ: Mapping[str, str] = os.environ,
        approve: bool = False,
        pace: float = 1.0,
        timeout_seconds: float = 4.0,
        problem_seconds: float | None = None,
        clock: Callable[[], float] = lambda: boot_ms() / 1000,
    ) -> None:
        self._on_notice = on_notice
        self._approve = approve
        self._pace = pace
        self._clock = clock
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._ended = self._saved = False
        self._thread: threading.Thread | None = None
        self._book = NoticeBook(cloud or "")
        urls = metadata_urls(environ) if base_urls is None else base_urls
        known = cloud in _CLOUDS and cloud in urls and (base_urls is not None or not metadata_off(environ))
        self._service = Service(urls[cloud].rstrip("/"), timeout_seconds) if known and cloud is not None else None
        self._cloud = _CLOUDS[cloud](self._service) if self._service is not None and cloud is not None else None
        self._asked = [_Asked(source, clock()) for source in (self._cloud.sources() if self._cloud is not None else ())]
        default = AZURE_PROBLEM_SECONDS if cloud == "azure" else PROBLEM_SECONDS
        self._problem_seconds = default if problem_seconds is None else problem_seconds
        self._unapproved: str | None = None

    @property
    def current(self) -> Notice | None:
        """The most urgent notice in force."""
        return next(iter(self.notices), None)

    @property
    def notices(self) -> list[Notice]:
        """All in force, the most urgent first."""
        with self._lock:
            return self._book.in_force()

    def seconds_left(self, notice: Notice | None = None) -> float | None:
        """Until `notice` (default: the current one) happens, by a clock that nobody sets; None: not said, or withdrawn."""
        asked = notice or self.current
        with self._lock:
            return None if asked is None else self._book.seconds_left(asked.id, self._clock())

    @property
    def problem(self) -> str | None:
        """A sentence: since when which notices cannot be asked for, and why; None while all is well, or was until just now."""
        now = self._clock()
        for one in self._asked:
            if one.failing_since is not None and now - one.failing_since >= self._problem_seconds:
                return f"spot notices of the cloud may go unnoticed, for {now - one.failing_since:.0f} s now: {one.why}"
        return self._unapproved

    def start(self) -> None:
        """Begins to ask; does nothing where there is nobody to ask, or twice."""
        if self._cloud is not None and self._thread is None and not self._ended:
            self._thread = threading.Thread(target=self._run, daemon=True, name="notices")
            self._thread.start()

    def close(self) -> None:
        """Ends the thread; a question in progress is broken off. Returns within CLOSE_SECONDS."""
        self._ended = True
        self._wake.set()
        if self._service is not None:
            self._service.interrupt()
        if self._thread is not None:
            self._thread.join(CLOSE_SECONDS)

    def saved(self) -> None:
        """All work is saved: where that is configured, the cloud (Azure) need not wait for the announced time."""
        self._saved = True
        self._wake.set()

    def _run(self) -> None:
        while not self._ended:
            wait = self._turn()
            if wait > 0 and not self._ended:
                self._wake.wait(wait)
                self._wake.clear()

    def _turn(self) -> float:
        """Asks the source that is due first, if it is; gives the seconds until the next one."""
        if self._saved:
            self._go_ahead()
        one = min(self._asked, key=lambda one: one.due)
        if one.due <= self._clock():
            self._ask(one)
        return max(0.0, min(one.due for one in self._asked) - self._clock())

    def _ask(self, one: _Asked) -> None:
        try:
            findings = one.source.poll()
        except Unanswered as fault:
            one.failed(self._clock(), str(fault), self._pace)
            return
        except Exception as fault:  # whatever the service sends must not end the watch
            log.warning("a notice could not be read", exc_info=True)
            one.failed(self._clock(), f"{one.source.name}: {type(fault).__name__}: {fault}", self._pace)
            return
        now = self._clock()
        one.answered(now, self._pace)
        with self._lock:
            told = self._book.update(one.source.name, findings, datetime.now(UTC), now)
        for notice in told:
            self._tell(notice)

    def _tell(self, notice: Notice) -> None:
        try:
            self._on_notice(notice)
        except Exception:
            log.warning("nobody could be told: %s", notice.message, exc_info=True)

    def _go_ahead(self) -> None:
        """Tried again with each turn until it worked."""
        ids = [notice.id for notice in self.notices if notice.id is not None and notice.kind in (*ENDING, "maintenance")]
        if not self._approve or not isinstance(self._cloud, Azure) or not ids:
            self._saved = False
            return
        try:
            self._cloud.approve(ids)
        except Unanswered as fault:
            self._unapproved = f"the cloud cannot be told that all is saved: {fault}"
        else:
            self._saved, self._unapproved = False, None


_CLOUDS: dict[str, Callable[[Service], Cloud]] = {"aws": Ec2, "gcp": Gcp, "azure": Azure}
