"""The slowest files begin first, so that with several processes nothing waits for them at the end.

A file's tests stay together in one process, which makes their fixtures once; those of the files in SPREAD, which wait much
and share little, go to whichever process is free (`make test`). The last ones in the order are those of tests/ui, a second
each: no process stands still for long while another one ends.

Property tests look at the same examples each time, so that what passes here passes elsewhere; with RACKRATE_EXPLORE=1
(`make explore`) they look for new ones, and for more (tests/support/examples.py).
"""

from __future__ import annotations

import gc
import os
import signal
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

for _threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):  # the processes share the cores already
    os.environ.setdefault(_threads, "1")

# A shell ignores SIGINT for what it starts in the background, `nohup` SIGHUP, and children would inherit that: tests send both.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)

gc.disable()
"""While all tests are imported nothing becomes garbage, and what was imported is never looked through again (`gc.freeze`)."""

# A machine that stands still for a second is no fault of an example: neither deadlines nor "generation is slow".
_patient: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("repeatable", derandomize=True, max_examples=60, **_patient)
settings.register_profile("exploring", settings.get_profile("default"), **_patient)
settings.load_profile("exploring" if os.environ.get("RACKRATE_EXPLORE") else "repeatable")

SLOW = (
    "end_to_end/test_sweep.py",
    "end_to_end/test_job_kills.py",
    "end_to_end/test_training.py",
    "end_to_end/test_kill.py",
    "terminal/",
    "end_to_end/",
    "ui/test_every_action.py",
    "ui/test_snapshots.py",
    "ui/test_blast_nothing.py",
    "agent/test_simulate.py",
    "agent/test_daemon.py",
    "agent/test_schema.py",
    "agent/recipes/test_sweep_ray.py",  # behind the others: one Ray at a time
)
SPREAD = (
    "end_to_end/test_job_kills.py",
    "end_to_end/test_kill.py",
    "end_to_end/test_spot_run.py",
    "tests/ui/",
    "agent/test_simulate.py",
    "agent/test_daemon.py",
    "tui/test_watch.py",
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """That of `--dist loadfile`, with SPREAD."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            path = super()._split_scope(nodeid)
            return nodeid if any(part in path for part in SPREAD) else path

    return Scheduling(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: next((place for place, part in enumerate(SLOW) if part in item.path.as_posix()), len(SLOW)))


def pytest_collection_finish(session: pytest.Session) -> None:
    gc.freeze()
    gc.set_threshold(5_000, 20, 10)  # an app makes some ten thousand objects while it starts
    gc.enable()
