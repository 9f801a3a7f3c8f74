"""How far a command is, and what is said when it is broken off."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tui.progress import BrokenOff, broken_off, live_line

CHILD = """
import signal
from tui.progress import BrokenOff, live_line
with live_line() as line:
    line.tell("reading", ", 1 of 2")
    try:
        signal.pause()
    except KeyboardInterrupt:
        pass
import sys
sys.stderr.write("done\\n")
"""


def on_a_terminal(words: list[str], shown: bytes, env: dict[str, str] | None = None) -> tuple[bytes, int]:
    """What a program writes to its stderr, a terminal, and its exit code; once `shown` is there it is sent SIGINT."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(words, stderr=theirs, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL, env=env)
    os.close(theirs)
    said, sent = b"", False
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:
            break
        if not part:
            break
        said += part
        if shown in said and not sent:
            process.send_signal(signal.SIGINT)
            sent = True
    os.close(ours)
    return said, process.wait(60)


def test_a_long_step_tells_the_time_and_how_it_is_broken_off_and_leaves_no_line() -> None:
    said, code = on_a_terminal([sys.executable, "-c", CHILD], b"Ctrl+C breaks it off")
    assert code == 0 and b"reading, 1 of 2" in said
    assert b"Ctrl+C breaks it off" in said and said.endswith(b"\r\x1b[Kdone\r\n")


def test_without_a_terminal_each_step_is_told_once_or_not_at_all(capsys: pytest.CaptureFixture[str]) -> None:
    with live_line() as line:
        for _ in range(3):
            line.tell("reading", ", 1 of 3", " (1 of 3)")
    with live_line(step_only=True) as line:
        line.tell("nothing of this")
    assert capsys.readouterr().err == "reading (1 of 3)\n"


def test_what_is_broken_off_says_what_became_of_it() -> None:
    with pytest.raises(BrokenOff, match="as it was"), broken_off("report.csv is as it was."):
        raise KeyboardInterrupt
    with pytest.raises(BrokenOff, match="inner"), broken_off("outer"), broken_off("inner"):
        raise KeyboardInterrupt


def test_a_sync_that_is_broken_off_ends_with_130_and_a_sentence(tmp_path: Path) -> None:
    import socket

    hanging = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    nodes = [f'[[nodes]]\nname = "n{i}"\nurl = "http://127.0.0.1:{one.getsockname()[1]}"\n' for i, one in enumerate(hanging)]
    (tmp_path / "config.toml").write_text("\n".join(nodes))
    env = {**os.environ, "RACKRATE_HOME": str(tmp_path)}
    said, code = on_a_terminal([sys.executable, "-m", "tui.cli", "sync"], b"Ctrl+C breaks it off", env)
    assert code == 130 and b"rackrate: broken off: synced: 0 of 2 nodes; the next sync brings what is missing." in said
    assert b"Traceback" not in said
    for one in hanging:
        one.close()
