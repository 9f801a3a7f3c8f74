"""The app on a line that takes few bytes: it stays within its budget, and keys are answered."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

from tests.support.pty_app import SlowTerminal

BUDGET = 3000
SECONDS = 8.0


@pytest.fixture
def limited() -> Iterator[SlowTerminal]:
    terminal = SlowTerminal(["-m", "tests.support.pty_app", str(BUDGET)])
    yield terminal
    terminal.close()


def test_on_a_slow_line_1000_changing_rows_keep_the_budget_and_a_key_is_painted_at_once(limited: SlowTerminal) -> None:
    limited.wait(b"node-0001")
    limited.wait(b"kB/s", 60)
    limited.pace = 4 * BUDGET
    written = limited.count(SECONDS)
    assert 0 < written <= BUDGET * SECONDS * 1.2
    answers = []
    for _ in range(3):
        limited.newest = b""
        limited.send(b"\x1b[B")
        answers.append(limited.wait("▌".encode(), 5))
    assert min(answers) < 1.0, answers
    limited.newest = b""
    limited.send(b"?")
    limited.wait(b"Filter the rows", 60)


def test_a_terminal_that_takes_nothing_holds_up_neither_signals_nor_the_memory() -> None:
    terminal = SlowTerminal(["-m", "tests.support.pty_app", "0"])
    try:
        terminal.wait(b"node-0001")
        terminal.pace = 1
        for _ in range(60):
            terminal.send(b"\x1b[B")
        time.sleep(2)
        os.kill(terminal.pid, signal.SIGTERM)
        deadline = time.monotonic() + 60
        while terminal.is_alive() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not terminal.is_alive()
    finally:
        terminal.close()
