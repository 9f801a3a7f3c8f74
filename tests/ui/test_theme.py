"""Themes: readable, and never telling a state by colour alone."""

from __future__ import annotations

import pytest
from rich.color import Color

from tests.support.jobs import job_fleet
from tests.support.screens import make_app, press, running, text
from tui.ui.app import chosen_theme
from tui.ui.theme import ANSI, DARK, LIGHT, NAMES, PALETTES, STYLES

LEAST_CONTRAST = 4.5
READ = ("text", "strong", "dim", "accent", "title", "key", "idle", "lost", "mark")
"""Styles that carry text; `rule` only decorates."""


def luminance(colour: str) -> float:
    """WCAG 2.1, relative luminance."""
    parts = [value / 255 for value in Color.parse(colour).get_truecolor()]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_contrast_is_computed_as_wcag_says() -> None:
    assert contrast("#ffffff", "#000000") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("theme", [DARK, LIGHT])
@pytest.mark.parametrize("style", READ)
@pytest.mark.parametrize("ground", ["background", "raised", "cursor"])
def test_every_style_is_readable_on_every_ground(theme: str, style: str, ground: str) -> None:
    colour = STYLES[theme][style].color
    assert colour is not None and colour.name
    assert contrast(colour.name, getattr(PALETTES[theme], ground)) >= LEAST_CONTRAST


def test_the_terminals_own_theme_names_no_exact_colour() -> None:
    for style in STYLES[ANSI].values():
        for colour in (style.color, style.bgcolor):
            assert colour is None or colour.triplet is None
    assert STYLES[ANSI]["cursor"].reverse


def test_all_themes_have_the_same_styles() -> None:
    assert len({frozenset(styles) for styles in STYLES.values()}) == 1


async def test_t_walks_through_all_themes_and_the_text_stays_the_same() -> None:
    app, _ = make_app()
    async with running(app) as pilot:
        shown = text(app).split("\n")[:20]
        seen = []
        for _ in NAMES:
            seen.append(app.theme)
            await press(pilot, "t")
            assert text(app).split("\n")[:20] == shown
        assert set(seen) == set(NAMES) and app.theme == seen[0]


def test_without_colours_or_with_few_the_terminals_own_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert chosen_theme("") == DARK
    assert chosen_theme(LIGHT) == LIGHT
    assert chosen_theme("nonsense") == DARK
    monkeypatch.setenv("NO_COLOR", "1")
    assert chosen_theme("") == ANSI
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "linux")
    monkeypatch.delenv("COLORTERM", raising=False)
    assert chosen_theme("") == ANSI


@pytest.mark.parametrize("theme", NAMES)
async def test_every_screen_can_be_painted_in_every_theme(theme: str) -> None:
    app, _ = make_app(job_fleet(), theme=theme)
    async with running(app, (120, 40)) as pilot:
        for keys in (("enter",), ("escape", "a"), ("escape", "question_mark"), ("escape", "colon"), ("escape", "slash", "x"),
                     ("escape", "escape", "j"), ("enter",), ("escape", "x"), ("escape", "n")):  # fmt: skip
            await press(pilot, *keys)
            assert text(app).strip()


async def test_no_color_paints_no_colour_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app, _ = make_app(theme="")
    async with running(app, (120, 40)):
        for row in app.screen._compositor.render_strips():
            for segment in row.apply_filter(app.get_line_filters()[-1], app.screen.styles.background):
                for colour in (segment.style.color, segment.style.bgcolor) if segment.style else ():
                    assert colour is None or colour.is_default
