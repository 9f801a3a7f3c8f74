"""The slowest files begin first, so that with several processes nothing waits for them at the end."""

from __future__ import annotations

import pytest

SLOW = (
    "end_to_end/test_job_kills.py",
    "end_to_end/test_training.py",
    "end_to_end/test_kill.py",
    "terminal/",
    "end_to_end/",
    "agent/test_schema.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: next((place for place, part in enumerate(SLOW) if part in item.path.as_posix()), len(SLOW)))
