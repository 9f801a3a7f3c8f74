"""Copying: what is written to the terminal, what a program is given, what becomes a file, and what is said."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest

from tests.support.money_app import until
from tests.support.screens import make_app, running, text
from tui.ui import clipboard
from tui.ui.clipboard import LARGEST_BASE64, SCREEN_CHUNK, osc52, programs
from tui.ui.screens.palette import PaletteScreen


def taken(sequence: str) -> str:
    """What a terminal would have in its clipboard."""
    found = re.findall(r"\x1b\]52;c;([A-Za-z0-9+/=]*)\x07", sequence)
    assert found
    return base64.b64decode(found[0]).decode()


def test_a_terminal_gets_osc_52_and_tmux_gets_it_twice_bare_and_wrapped() -> None:
    plain = osc52("gpu-01\ngpu-02 ✓", {"TERM": "xterm-256color"})
    assert plain is not None and plain.startswith("\x1b]52;c;") and plain.endswith("\x07")
    assert taken(plain) == "gpu-01\ngpu-02 ✓"
    for environ in ({"TMUX": "/tmp/x,1,0", "TERM": "screen"}, {"TERM": "tmux-256color"}):
        wrapped = osc52("gpu-01", environ)
        assert wrapped is not None
        bare, _, passed = wrapped.partition("\x1bPtmux;")
        assert taken(bare) == "gpu-01"
        assert passed.endswith("\x07\x1b\\") and passed.removesuffix("\x1b\\").replace("\x1b\x1b", "\x1b") == bare


def test_screen_gets_pieces_that_it_does_not_cut() -> None:
    sequence = osc52("n" * 1000, {"STY": "1.pts", "TERM": "screen"})
    assert sequence is not None
    pieces = re.findall(r"\x1bP(.*?)\x1b\\", sequence, re.S)
    assert "".join(f"\x1bP{piece}\x1b\\" for piece in pieces) == sequence
    assert max(map(len, pieces)) <= SCREEN_CHUNK and taken("".join(pieces)) == "n" * 1000


def test_a_terminal_called_screen_may_be_tmux_far_away_and_gets_nothing_that_screen_would_print() -> None:
    assert "tmux;" not in str(osc52("x", {"TERM": "screen-256color", "SSH_TTY": "/dev/pts/1"}))


def test_the_largest_text_fits_and_one_byte_more_does_not() -> None:
    fits = LARGEST_BASE64 // 4 * 3
    assert osc52("x" * fits, {}) is not None and osc52("x" * (fits + 3), {}) is None


def test_programs_are_those_of_this_machine_only() -> None:
    everything = lambda name: f"/usr/bin/{name}" if name != "pbcopy" else None  # noqa: E731
    desktop = {"DISPLAY": ":0", "WAYLAND_DISPLAY": "wayland-0"}
    assert programs(desktop, everything) == [["wl-copy"]]
    assert programs({"DISPLAY": ":0"}, everything) == [["xclip", "-selection", "clipboard"]]
    assert programs({}, everything) == [] and programs(desktop, lambda _: None) == []
    assert programs({}, lambda name: name if name == "pbcopy" else None) == [["pbcopy"]]
    assert programs({**desktop, "SSH_CONNECTION": "10.0.0.1 5 10.0.0.2 22"}, everything) == []
    assert programs({"TMUX": "/tmp/x,1,0", "SSH_TTY": "/dev/pts/0"}, everything) == [["tmux", "load-buffer", "-w", "-"]]


def test_a_program_that_fails_hangs_or_is_not_there_took_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(clipboard, "PROGRAM_SECONDS", 60.0)
    assert clipboard.took(["sh", "-c", f"cat > {tmp_path / 'got'}"], "gpu-01")
    assert (tmp_path / "got").read_text() == "gpu-01"
    assert not clipboard.took(["sh", "-c", "exit 1"], "x")
    assert not clipboard.took(["no-such-program"], "x")
    monkeypatch.setattr(clipboard, "PROGRAM_SECONDS", 0.2)
    assert not clipboard.took(["sleep", "9"], "x")


async def test_the_app_copies_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app, _ = make_app(data_dir=tmp_path / "data")
    async with running(app, (120, 30)) as pilot:
        written: list[str] = []
        monkeypatch.setattr(app._driver, "write", written.append)

        async def said(part: str) -> None:
            await until(pilot, lambda: part in text(app), tell=lambda: f"{part!r} is not on the screen:\n{text(app)}")

        app.copy_environ = {"TERM": "xterm"}
        app.copy_text("gpu-01\x1b[31m\x07\u202e\ngpu-02", "2 names")
        await said("copied 2 names (OSC 52)")
        assert taken(written[-1]) == "gpu-01[31m\ngpu-02", "no control character is copied"

        app.copy_environ = {"TMUX": "x"}
        app.copy_text("a", "a name")
        await said("copied a name (OSC 52; tmux takes it with")
        app.copy_text("b", "another name")
        await said("copied another name (OSC 52)")

        app.copy_text("x" * 80_000, "3,000 rows")
        await said("3,000 rows: too large for the terminal's clipboard, written to")
        file = tmp_path / "data" / clipboard.FILE_NAME
        assert file.read_text() == "x" * 80_000 and file.stat().st_mode & 0o777 == 0o600
        assert list(file.parent.iterdir()) == [file] and len(written) == 3

        (tmp_path / "file").write_text("")
        app.files = app.files._replace(data_dir=tmp_path / "file" / "below")
        app.copy_text("x" * 80_000, "rows")
        await said("no file could be written: Not a directory.")
        app.copy_text("\x1b", "nothing")
        await said("There is nothing to copy.")

        await pilot.press("colon")
        await pilot.pause()
        assert isinstance(app.screen, PaletteScreen)
        app.copy_text("a", "a name")
        await said("copied a name (OSC 52)")


async def test_a_program_is_given_the_text_and_named_and_one_that_fails_leaves_it_to_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = [["sh", "-c", f"cat > {tmp_path / 'got'}"]]
    monkeypatch.setattr(clipboard, "programs", lambda environ: commands)
    monkeypatch.setattr(clipboard, "PROGRAM_SECONDS", 60.0)
    app, _ = make_app()
    async with running(app, (120, 30)) as pilot:
        written: list[str] = []
        monkeypatch.setattr(app._driver, "write", lambda data: "]52;" in data and written.append(data))
        monkeypatch.setattr(type(app), "is_headless", property(lambda _: False))
        app.copy_environ = {}
        app.copy_text("gpu-01", "a name")
        await until(pilot, lambda: "copied a name (sh)" in text(app), tell=lambda: text(app))
        assert (tmp_path / "got").read_text() == "gpu-01" and not written
        commands[:] = [["false"]]
        app.copy_text("gpu-02", "another name")
        await until(pilot, lambda: bool(written))
        assert taken(written[-1]) == "gpu-02"
