"""Every screen in each mode at each size, as it was when somebody looked at it last; `make snapshots` keeps new ones."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support import snapshots
from tests.support.snapshots import MODES, SIZES, colours_of, compared, lines_of, name_of, stored
from tui.ui.action import SCREENS, Scope
from tui.ui.glyphs import to_ascii
from tui.ui.screens import advice, costs, market  # noqa: F401 - else they are imported in a thread, and opened later
from tui.ui.theme import DARK, LIGHT, PALETTES

UPDATES = os.environ.get("RACKRATE_SNAPSHOTS") == "update"
DRAWN_OTHERWISE = {"price", "curves"}
"""Their plots have lines of their own in ASCII."""


@pytest.mark.parametrize("mode", MODES)
async def test_every_screen_looks_as_it_did(mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No painted line is wider than the terminal either, and without colours none is painted (`snapshots.picture`)."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    if MODES[mode].no_color:
        monkeypatch.setenv("NO_COLOR", "1")
    known = snapshots.money(tmp_path)
    shots = {name: svg async for name, svg in snapshots.walk(mode, known, SCREENS)}
    assert len(shots) == len(SCREENS) * len(SIZES)
    assert not any(str(tmp_path) in svg for svg in shots.values()), "where it runs must not be seen"
    told = compared(mode, shots)
    assert not told, told


def kept(screen: Scope, size: tuple[int, int], mode: str) -> str:
    svg = stored(name_of(screen, size, mode))
    assert svg is not None, f"{name_of(screen, size, mode)} is missing: `make snapshots`"
    return svg


@pytest.mark.skipif(UPDATES, reason="they are being renewed")
@pytest.mark.parametrize(
    ("screen", "size"),
    [(screen, size) for screen in SCREENS for size in SIZES],
    ids=lambda value: value if isinstance(value, str) else f"{value[0]}x{value[1]}",
)
def test_no_mode_loses_anything_of_the_text(screen: Scope, size: tuple[int, int]) -> None:
    shown = lines_of(kept(screen, size, "dark"))
    assert shown == lines_of(kept(screen, size, "light")) == lines_of(kept(screen, size, "no-color"))
    assert 0 < max(map(len, shown)) <= size[0] and len(shown) <= size[1]
    plain = lines_of(kept(screen, size, "ascii"))
    assert all(line.isascii() for line in plain)
    if screen not in DRAWN_OTHERWISE:
        assert plain == [to_ascii(line).rstrip() for line in shown]
        assert not any("???" in line for line in plain), "a sign without a counterpart"


@pytest.mark.skipif(UPDATES, reason="they are being renewed")
@pytest.mark.parametrize("screen", SCREENS)
def test_colours_are_those_of_the_theme_and_without_colours_there_is_none(screen: Scope) -> None:
    size = SIZES[1]
    for mode, theme in (("dark", DARK), ("light", LIGHT)):
        palette = PALETTES[theme]
        known = {value for name in palette.__struct_fields__ if isinstance(value := getattr(palette, name), str)}
        strange = colours_of(kept(screen, size, mode)) - known - FRAME
        assert not strange, f"{screen}, {mode}: {strange}"
    for colour in colours_of(kept(screen, size, "no-color")) - FRAME:
        parts = [int(colour[place : place + 2], 16) for place in (1, 3, 5)]
        assert max(parts) - min(parts) <= 4, f"{screen} without colours: {colour}"


FRAME = {"#c5c8c6", "#292929", "#608b98"}
"""Of the window that rich draws around, and of text in the terminal's own colours; dim text lies between those."""


def test_a_difference_names_the_picture_and_its_first_line(tmp_path: Path) -> None:
    svg = '<text class="r1" x="{x}" y="1" textLength="9" clip-path="url(#t-line-{line})">{text}</text>'
    before = svg.format(x=0, line=0, text="same") + svg.format(x=24.4, line=1, text="was&#160;so")
    after = svg.format(x=0, line=0, text="same") + svg.format(x=24.4, line=1, text="is&#160;so")
    assert lines_of(before) == ["same", "  was so"]
    told = snapshots.difference("fleet-80x24-dark", before, after, tmp_path)
    assert told == "fleet-80x24-dark: line 2\n    kept:   was so\n    now:    is so"
    assert "+  is so" in (tmp_path / "fleet-80x24-dark.diff").read_text() and (tmp_path / "fleet-80x24-dark.svg").read_text() == after
    assert "colours or attributes" in snapshots.difference("x", before, before + " ", tmp_path)
    assert "no snapshot" in snapshots.difference("x", None, after, tmp_path)


def test_the_snapshots_are_small_and_none_is_left_over() -> None:
    found = {path.stem: path.stat().st_size for path in snapshots.FOLDER.glob("*.svgz")}
    if not UPDATES:
        assert set(found) == {name_of(screen, size, mode) for screen in SCREENS for size in SIZES for mode in MODES}
    assert sum(found.values()) < 3_000_000
