"""Whatever is painted can be read: each letter of each kept picture against what lies behind it, as WCAG 2.1 computes it.

The sixteen colours of a terminal are looked at where they are chosen (`test_theme`): a picture does not know what they are.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

import pytest

from tests.support.snapshots import SIZES, name_of, stored
from tests.ui.test_theme import LEAST_CONTRAST, contrast
from tui.ui.action import SCREENS, Scope

_CLASS = re.compile(r"\.(terminal-\d+-r\d+) \{ fill: (#[0-9a-f]{6})")
_RECT = re.compile(r'<rect fill="(#[0-9a-f]{6})" x="([\d.]+)" y="([\d.]+)" width="([\d.]+)"')
_TEXT = re.compile(r'<text class="(terminal-\d+-r\d+)" x="([\d.]+)"[^>]*?-line-(\d+)\)"[^>]*>([^<]*)</text>')
_ROW, _FIRST = 24.4, 1.5
"""Height of a line in the SVG that rich writes, and where the first begins."""


def painted(svg: str) -> Iterator[tuple[str, str, str]]:
    """(text, its colour, the colour behind it) of everything that has letters or digits."""
    colours = dict(_CLASS.findall(svg))
    behind: dict[int, list[tuple[float, float, str]]] = {}
    for colour, x, y, width in _RECT.findall(svg):
        behind.setdefault(round((float(y) - _FIRST) / _ROW), []).append((float(x), float(x) + float(width), colour))
    for name, x, line, text in _TEXT.findall(svg):
        if any(map(str.isalnum, words := html.unescape(text))):
            ground = [colour for left, right, colour in behind.get(int(line), ()) if left - 0.2 <= float(x) < right]
            yield words, colours[name], ground[-1]


@pytest.mark.parametrize("mode", ["dark", "light"])
@pytest.mark.parametrize("screen", SCREENS)
def test_all_that_is_painted_has_contrast_enough(screen: Scope, mode: str) -> None:
    seen: dict[tuple[str, str], str] = {}
    for size in SIZES:
        svg = stored(name_of(screen, size, mode))
        assert svg is not None, "`make snapshots`"
        seen.update(((colour, ground), text) for text, colour, ground in painted(svg))
    assert len(seen) > 2, "the pictures are written in another way"
    faint = [f"{text!r}: {colour} on {ground}" for (colour, ground), text in seen.items() if contrast(colour, ground) < LEAST_CONTRAST]
    assert not faint, faint
