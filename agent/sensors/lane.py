"""A thread of a sensor: it asks something that may never answer.

Invariant: whoever ends a lane waits no longer than he says. A call that never returns (a driver or a disk in
uninterruptible sleep) keeps its thread: that is said once, the thread is left behind, and it ends by itself should the call
come back; a lane that is started again has a thread and a sign to stop of its own.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)


class Lane:
    """`subject` is who is asked, for the sentence about one that does not answer. Belongs to one thread, which starts and stops it."""

    def __init__(self, name: str, subject: str) -> None:
        self._name = name
        self._subject = subject
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def started(self) -> bool:
        """Whether it was started and not stopped since."""
        return self._thread is not None

    def start(self, work: Callable[[threading.Event], None]) -> None:
        """Runs `work`, once: it returns soon after the event is set (daemon: a call that never returns holds up no end)."""
        if self._thread is not None:
            return
        self._stop = threading.Event()
        self._thread = threading.Thread(target=work, args=(self._stop,), name=self._name, daemon=True)
        self._thread.start()

    def ask_to_stop(self) -> None:
        """Returns at once; `stop` waits."""
        self._stop.set()

    def stop(self, timeout_seconds: float) -> bool:
        """Ends the thread; False when a call still holds it: then what it uses must not be closed."""
        self._stop.set()
        thread, self._thread = self._thread, None
        if thread is None:
            return True
        thread.join(timeout_seconds)
        if thread.is_alive():
            log.warning("%s does not answer; it is left behind", self._subject)
            return False
        return True
