"""Every screen in a real terminal: keys, sizes, pastes, copies, another client, and terminals that can do little."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import tmux
from tests.support.pty_app import SlowTerminal
from tests.support.simulated import Agents
from tests.support.tmux import Tmux, command, ended_with, live_rows
from tui.ui import actions

if tmux.MISSING:
    pytest.skip(tmux.MISSING, allow_module_level=True)

NODES = 3
WAYS: dict[str, tuple[tuple[str, ...], str]] = {
    "node": (("Enter",), "› node-0001"),
    "gpu": (("Enter", "Enter"), "› GPU 0"),
    "alerts": (("a",), "› alerts"),
    "events": (("E",), "› events"),
    "submit": (("j", "n"), "nothing is sent before"),
    "jobs": (("j",), "› jobs"),
    "costs": (("c",), "› costs"),
    "budgets": (("B",), "› budgets"),
    "market": (("m",), "› market"),
    "price": (("m", "Enter"), "› price"),
    "advice": (("v",), "› advice"),
    "help": (("?",), "› help"),
}
"""Screen -> the keys that open it from the fleet, and what stands on it. A job, its curves and a card of advice need more than this fleet has."""
LEFT_OUT = {"open", "narrow", "run_chosen", "quit", "interrupt", "export", "back", "go_back", "leave", "send"}
"""Actions that leave the screen or write a file."""
NAMES = {
    "slash": "/", "question_mark": "?", "colon": ":", "left_square_bracket": "[", "right_square_bracket": "]", "space": "Space",
    "comma": ",", "full_stop": ".", "less_than_sign": "<", "greater_than_sign": ">", "at": "@", "plus": "+", "minus": "-",
    "insert": "IC", "delete": "DC", "left": "Left", "right": "Right", "shift+left": "S-Left", "shift+right": "S-Right",
    "ctrl+right": "C-Right", "ctrl+left": "C-Left", "tab": "Tab", "shift+tab": "BTab", "equals_sign": "=",
}  # fmt: skip


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agents]:
    running = Agents(tmp_path_factory.mktemp("fleet"), NODES)
    yield running
    running.close()


def keys_of(screen: str) -> list[str]:
    """The keys of a screen that are no letters, as tmux calls them: those that terminals spell in their own ways."""
    found = []
    for action in actions.of(screen):  # type: ignore[arg-type]
        if action.id in LEFT_OUT or (screen == "submit" and action.changes):
            continue
        for key in action.keys:
            if len(key) == 1:
                continue
            name = NAMES.get(key, key)
            found.append(name.replace("shift+f", "S-F").replace("f", "F", 1) if "f" in name and name[-1].isdigit() and len(name) > 1 else name)
    return [key for key in found if "+" not in key or key == "+"]


def head_and_foot(shown: str) -> list[str]:
    return [line for line in shown.split("\n") if "IDLE $/H" in line or "quit" in line]


def escape(terminal: Tmux) -> None:
    """Esc with a key right behind it would be Alt and that key."""
    terminal.keys("Escape")
    time.sleep(0.15)


def back_to_the_fleet(terminal: Tmux) -> str:
    def is_there(shown: str) -> bool:
        if shown.startswith(" RACKRATE") and "╭" not in shown and f"{NODES} live" in shown and "q quit" in shown and "Enter keeps it" not in shown:
            return True
        escape(terminal)
        return False

    time.sleep(0.5)
    return terminal.when(is_there)


def test_every_screen_takes_its_keys_and_survives_10x3_and_back(agents: Agents) -> None:
    assert {*WAYS, "fleet", "job", "curves", "card"} == set(actions.SCREENS), "a new screen is opened here too"
    with Tmux(command(agents.config), 100, 30) as terminal:
        terminal.wait(f"{NODES} live")
        pressed: set[str] = set()
        for screen, (way, needle) in WAYS.items():
            for key in way:
                before = terminal.text()
                terminal.keys(key)
                terminal.until(lambda: terminal.text() != before, 5)  # noqa: B023
            terminal.wait(needle)
            terminal.resize(10, 3)
            terminal.until(lambda: False, 0.4)
            terminal.resize(100, 30)
            terminal.wait(needle)
            for key in keys_of(screen):
                if key not in pressed:
                    pressed.add(key)
                    terminal.keys(key)
                    escape(terminal)
            terminal.keys("L")
            assert "Traceback" not in back_to_the_fleet(terminal)
        terminal.keys("q")
        ended_with(terminal, 0)


def test_a_paste_is_no_key_a_copy_reaches_the_buffer_and_another_client_sees_a_whole_picture(agents: Agents) -> None:
    with Tmux(command(agents.config), 100, 30) as terminal:
        terminal.tell("set-option", "-s", "set-clipboard", "on")
        before = head_and_foot(terminal.wait(f"{NODES} live", "IDLE $/H", "quit"))
        for text in ("excellent", "dy\nq\n", "qqqs\nq", "x" * 3000 + "q", "/etc/q\nq\n"):
            terminal.paste(text, bracketed=True)
        for text in ("excellent", "dy\nq\n", "quit\n", "dy\n"):
            terminal.paste(text, bracketed=False)
            terminal.until(lambda: False, 0.3)
        back_to_the_fleet(terminal)
        terminal.when(lambda shown: head_and_foot(shown) == before and "drain" not in shown.split("\n")[4])

        terminal.keys("Home", "y")
        assert terminal.until(lambda: terminal.tell("show-buffer").strip() == agents.names[0]), terminal.text()
        terminal.wait("copied")

        for size in ((120, 40), (80, 24)):
            client = SlowTerminal(["-c", f"import os; os.execvp('tmux', {terminal.attach_command()!r})"], size)
            try:
                client.wait(b"IDLE $/H")
                assert terminal.until(lambda: terminal.value("#{session_attached}") == "1")
                assert terminal.until(lambda: f"{size[0]}x{size[1] - 1}" == terminal.value("#{window_width}x#{window_height}"))  # noqa: B023
                client.newest = b""
                client.send(b"j")
                client.wait(b"Simulated nodes run no jobs")
                terminal.wait("Simulated nodes run no jobs")
                client.send(b"\x1b")
                terminal.wait("IDLE $/H")
                terminal.when(lambda shown: "quit" in shown.rstrip().split("\n")[-1])
                terminal.tell("detach-client", "-s", "a")
                assert terminal.until(lambda: terminal.value("#{session_attached}") == "0")
            finally:
                client.close()
        terminal.keys("j")
        terminal.wait("Simulated nodes run no jobs")
        terminal.keys("Escape")
        terminal.wait("IDLE $/H")
        terminal.keys("q")
        ended_with(terminal, 0)


def test_mouse_reports_of_old_terminals_are_clicks_and_no_letters(agents: Agents) -> None:
    terminal = SlowTerminal(["-m", "tui.cli", "--config", str(agents.config)], (160, 40))
    try:
        terminal.wait(agents.names[2].encode())
        for column in (33 + 80, 33 + 100, 255):  # the first is `q`, the others are no UTF-8
            terminal.send(b"\x1b[M \x71\x22".replace(b"\x71", bytes([column])) + b"\x1b[M#" + bytes([column]) + b"\x22")
        terminal.send(b"\xff\xfe\x80")
        terminal.newest = b""
        terminal.send(b"a")
        terminal.wait("› ".encode())
    finally:
        terminal.close()


def test_encodings_that_know_less_than_utf_8_get_ascii_and_columns_that_stand_below_each_other(agents: Agents) -> None:
    for before in ("PYTHONIOENCODING=latin-1", "PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 LC_ALL=C", "LC_ALL=C TERM=vt100"):
        with Tmux(command(agents.config, before=f"{before} "), 100, 30) as terminal:
            shown = terminal.when(lambda shown: f"{NODES} live" in shown and "quit" in shown and len(live_rows(shown)) == NODES)
            assert ("LC_ALL=C TERM" in before) or shown.isascii(), before
            assert "\\u" not in shown and "\\x" not in shown
            lines = live_rows(shown)
            assert len({line.index("node-") for line in lines}) == 1
            assert {line.split("node-")[1][:4] for line in lines} == {name[-4:] for name in agents.names}
            terminal.keys("q")
            ended_with(terminal, 0)


@pytest.mark.skipif(shutil.which("screen") is None, reason="GNU screen is not installed: the app in it is not tested")
def test_in_gnu_screen_it_draws_copies_through_it_and_ends(agents: Agents, tmp_path: Path) -> None:
    program = tmp_path / "app.sh"
    program.write_text(f"#!/bin/sh\n{command(agents.config, after='').replace('clear; ', '')}\n", encoding="utf-8")
    program.chmod(0o755)
    with Tmux(f"clear; env -u TMUX SCREENDIR={tmp_path / 'screens'} screen -U -c /dev/null {program}", 100, 30) as terminal:
        terminal.tell("set-option", "-s", "set-clipboard", "on")
        terminal.wait(f"{NODES} live")
        terminal.keys("j")
        terminal.wait("Simulated nodes run no jobs")
        terminal.keys("Escape")
        terminal.wait("IDLE $/H")
        terminal.keys("Home")
        terminal.keys("y")
        terminal.wait("copied")
        assert terminal.until(lambda: terminal.tell("show-buffer").strip() == agents.names[0]), terminal.text()
        terminal.keys("q")
        terminal.wait("screen is terminating")
