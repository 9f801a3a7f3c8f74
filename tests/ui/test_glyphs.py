"""Plain ASCII: the same layout, cell for cell."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from tests.support.jobs import job_fleet
from tests.support.screens import make_app, press, running, text
from tui.ui.drivers import TerminalDriver
from tui.ui.glyphs import AsciiDriver, to_ascii


@pytest.mark.parametrize("sample", ["▁▂▃▄▅▆▇█", "⠀⣿⡇⢸", "━╸─", "○✗·–…", "▌▴▾", "東京", "é", "plain", "╭╮╰╯│", "\u200b"])
def test_ascii_takes_the_same_cells(sample: str) -> None:
    found = to_ascii(sample)
    assert found.isascii() and len(found) == cell_len(sample)


def test_states_stay_apart() -> None:
    signs = [to_ascii(sign) for sign in "○✗·█–"]
    assert len(set(signs)) == len(signs)


def test_more_dots_look_denser() -> None:
    assert [to_ascii(chr(0x2800 + dots)) for dots in (0, 1, 3, 7, 15, 255)] == [" ", ".", ":", "-", "=", "#"]


def test_escape_sequences_pass_unchanged() -> None:
    assert to_ascii("\x1b[31m○\x1b[0m") == "\x1b[31mo\x1b[0m"


@pytest.mark.parametrize("keys", [(), ("enter",), ("a",), ("question_mark",), ("colon",), ("slash",), ("j",), ("j", "enter"), ("j", "n"), ("j", "x")])
async def test_every_screen_keeps_its_layout_in_ascii(keys: tuple[str, ...]) -> None:
    app, _ = make_app(job_fleet() if "j" in keys else None)
    async with running(app, (120, 40)) as pilot:
        await press(pilot, *keys)
        for line in text(app).split("\n"):
            assert len(to_ascii(line)) == cell_len(line)
            assert "?" * 3 not in to_ascii(line)


def test_the_driver_follows_the_encoding() -> None:
    assert make_app(unicode=False)[0].driver_class is AsciiDriver
    assert make_app(unicode=True)[0].driver_class is TerminalDriver
