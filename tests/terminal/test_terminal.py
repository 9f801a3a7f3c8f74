"""The app in a real terminal (tmux): what it draws, and that it gives the terminal back however it ends."""

from __future__ import annotations

import ast
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import tmux
from tests.support.simulated import ROOT, Agents
from tests.support.tmux import Tmux, app_pid, command, ended_with, is_alive, live_rows

if tmux.MISSING:
    pytest.skip(tmux.MISSING, allow_module_level=True)

NODES = 3


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agents]:
    running = Agents(tmp_path_factory.mktemp("fleet"))
    yield running
    running.close()


def test_what_is_asserted_of_a_screen_is_asked_of_one_picture() -> None:
    """A picture may be half drawn: asserting `"x" in terminal.text()` is a race, `terminal.wait` and `terminal.when` are none."""
    for path in sorted(Path(__file__).parent.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Assert):
                asked = [call for call in ast.walk(node.test) if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)]
                assert not [call for call in asked if call.func.attr == "text"], f"{path.name}:{node.lineno}"  # type: ignore[attr-defined]


def test_the_jobs_screen_and_the_form_take_keys_and_give_the_terminal_back(agents: Agents) -> None:
    with Tmux(command(agents.config), 80, 24) as terminal:
        terminal.wait(f"{NODES} live")
        terminal.keys("j")
        terminal.wait("Simulated nodes run no jobs")
        terminal.keys("n")
        terminal.wait("nothing is sent before")
        terminal.keys("true", "Enter")
        terminal.wait("All nodes here are simulated", "true")
        terminal.keys("C-c")
        ended_with(terminal, 0)


def test_the_fleet_at_80x24_then_a_node_then_the_end(agents: Agents) -> None:
    with Tmux(command(agents.config), 80, 24) as terminal:
        terminal.wait(f"{NODES} live", *agents.names, "hidden", "q quit")
        terminal.keys("Enter")
        terminal.wait("PCIe", agents.names[0])
        terminal.keys("Escape")
        terminal.wait("IDLE $/H")
        terminal.keys("q")
        terminal.wait(f"watched {NODES} nodes")
        ended_with(terminal, 0)


def test_the_ledger_is_synced_in_the_background_and_today_appears(agents: Agents) -> None:
    with Tmux(command(agents.config), 120, 30) as terminal:
        terminal.wait(f"{NODES} live")
        terminal.when(lambda shown: re.search(r"today ~?\$\d", shown) is not None)
        terminal.keys("q")
        ended_with(terminal, 0)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 0)])
def test_a_signal_ends_it_with_its_code_and_the_terminal_is_given_back(agents: Agents, number: signal.Signals, code: int) -> None:
    with Tmux(command(agents.config), 80, 24) as terminal:
        terminal.wait("live")
        assert not terminal.given_back
        if number is signal.SIGINT:
            terminal.keys("C-c")
        else:
            os.kill(app_pid(terminal), number)
        ended_with(terminal, code)


def test_a_signal_in_a_dialog_gives_the_terminal_back_too(agents: Agents) -> None:
    with Tmux(command(agents.config), 80, 24) as terminal:
        terminal.wait("live")
        terminal.keys(":")
        terminal.wait("a screen, an action")
        os.kill(app_pid(terminal), signal.SIGTERM)
        ended_with(terminal, 143)


def test_it_ends_within_seconds_when_the_terminal_vanishes_though_hup_is_ignored(agents: Agents) -> None:
    terminal = Tmux(command(agents.config, before="trap '' HUP; "), 80, 24)
    try:
        terminal.wait("live")
        pid = app_pid(terminal)
    finally:
        terminal.__exit__(None, None, None)
    deadline = time.monotonic() + 60
    while is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not is_alive(pid)


def test_resizing_in_both_directions_leaves_a_whole_picture(agents: Agents) -> None:
    with Tmux(command(agents.config), 80, 24) as terminal:
        terminal.wait(f"{NODES} live")
        terminal.resize(200, 60)
        terminal.wait("WHERE")
        terminal.resize(20, 5)
        terminal.when(lambda shown: "IDLE" not in shown and agents.names[0][:8] in shown)
        terminal.resize(80, 24)
        terminal.when(lambda shown: "q quit" in shown and shown.count("IDLE $/H") == 1 and len(live_rows(shown)) == NODES)


def test_ascii_is_drawn_where_the_encoding_knows_no_more(agents: Agents) -> None:
    with Tmux(command(agents.config), 100, 30, PYTHONIOENCODING="ascii") as terminal:
        shown = terminal.when(lambda shown: f"{NODES} live" in shown and "quit" in shown and len(live_rows(shown)) == NODES)
        assert shown.isascii() and "\\u" not in shown
        assert len({line.rstrip().rfind("now") for line in live_rows(shown)}) == 1, "columns stay aligned"
        terminal.keys("Enter")
        shown = terminal.wait("PCIe")
        assert shown.isascii() and "\\u" not in shown


def test_no_color_writes_no_colour(agents: Agents) -> None:
    with Tmux(command(agents.config, before="NO_COLOR=1 "), 80, 24) as terminal:
        terminal.wait(f"{NODES} live")
        codes = {code for group in re.findall(r"\x1b\[([\d;]*)m", terminal.colours()) for code in group.split(";")}
        assert codes <= {"", "0", "1", "2", "3", "4", "7", "22", "27", "39", "49"}, codes


@pytest.mark.parametrize("term", ["screen", "linux", "vt100", "xterm"])
def test_terminals_of_16_colours_get_no_exact_ones(agents: Agents, term: str) -> None:
    with Tmux(command(agents.config, before=f"COLORTERM= TERM={term} "), 80, 24) as terminal:
        terminal.wait(f"{NODES} live")
        assert "38;2;" not in terminal.colours() and "38;5;" not in terminal.colours()


def test_a_pipe_gets_text_and_no_escape_codes(agents: Agents) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tui.cli", "--config", str(agents.config)], cwd=ROOT, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0 and "\x1b" not in done.stdout + done.stderr
    assert agents.names[0] in done.stdout


def test_a_node_that_accepts_and_never_answers_freezes_nothing(agents: Agents, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        config = tmp_path / "config.toml"
        config.write_text(
            agents.config.read_text(encoding="utf-8") + f'\n[[nodes]]\nname = "silent"\nurl = "http://127.0.0.1:{port}"\n',
            encoding="utf-8",
        )
        with Tmux(command(config), 80, 24) as terminal:
            terminal.wait(f"{NODES} live")
            terminal.wait("silent")
            for key, answer in (
                ("a", "SEVERITY"),
                ("Escape", "IDLE"),
                ("End", "order held"),
                ("Enter", "has not answered"),
                ("?", "On this screen"),
            ):
                terminal.keys(key)
                terminal.wait(answer, seconds=8)
            terminal.keys("q")
            ended_with(terminal, 0, 15)


def test_agents_that_die_become_lost_and_keep_their_last_values(tmp_path: Path) -> None:
    agents = Agents(tmp_path)
    try:
        with Tmux(command(agents.config), 80, 24) as terminal:
            terminal.wait(f"{NODES} live")
            agents.close()
            terminal.wait(f"0 live · {NODES} stale")
            terminal.wait(f"{NODES} lost")
            lost = re.compile(rf"lost .*{agents.names[0]}.*\d+%")
            terminal.when(lambda shown: lost.search(shown) is not None and "is not reach" in shown)
            terminal.keys("q")
            ended_with(terminal, 0)
    finally:
        if agents.process.poll() is None:
            agents.close()


def test_ctrl_z_suspends_and_fg_brings_it_back(agents: Agents) -> None:
    with Tmux(command(agents.config), 80, 24) as terminal:
        terminal.wait(f"{NODES} live")
        os.kill(app_pid(terminal), signal.SIGTSTP)
        assert terminal.until(lambda: terminal.given_back)
        terminal.keys("fg", "Enter")
        assert terminal.until(lambda: not terminal.given_back)
        terminal.wait("IDLE $/H", "q quit")
        terminal.keys("q")
        terminal.wait("watched")
        assert terminal.until(lambda: terminal.given_back)
