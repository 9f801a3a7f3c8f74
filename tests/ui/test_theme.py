"""Themes: readable, and never telling a state by colour alone."""

from __future__ import annotations

import pytest
from rich.color import Color

from tests.support.jobs import job_fleet
from tests.support.screens import make_app, press, running, text
from tui import terminal
from tui.ui.app import chosen_theme
from tui.ui.theme import ANSI, DARK, LIGHT, NAMES, PALETTES, STYLES, ansi_styles

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


XTERM = dict(zip(range(16), (
    "#000000", "#cd0000", "#00cd00", "#cdcd00", "#0000ee", "#cd00cd", "#00cdcd", "#e5e5e5",
    "#7f7f7f", "#ff0000", "#00ff00", "#ffff00", "#5c5cff", "#ff00ff", "#00ffff", "#ffffff",
), strict=True))  # fmt: skip
LINUX = dict(zip(range(16), (
    "#000000", "#aa0000", "#00aa00", "#aa5500", "#0000aa", "#aa00aa", "#00aaaa", "#aaaaaa",
    "#555555", "#ff5555", "#55ff55", "#ffff55", "#5555ff", "#ff55ff", "#55ffff", "#ffffff",
), strict=True))  # fmt: skip
"""What the sixteen colours are where nobody changed them."""


@pytest.mark.parametrize("style", READ)
@pytest.mark.parametrize(
    ("ground", "palette", "behind"),
    [("dark", XTERM, "#000000"), ("light", XTERM, "#ffffff"), ("console", LINUX, "#000000"), ("", XTERM, "#000000"), ("", XTERM, "#ffffff")],
)
def test_the_terminals_own_colours_are_readable_on_its_ground(style: str, ground: str, palette: dict[int, str], behind: str) -> None:
    """Also where a terminal shows bold letters in the bright colour."""
    made = ansi_styles(ground)[style]  # type: ignore[arg-type]
    if made.color is None:
        return  # the terminal's own letters
    number = made.color.number
    assert number is not None and ground
    shown = {number, number + 8} if made.bold and number < 8 else {number}
    for one in shown:
        assert contrast(palette[one], behind) >= LEAST_CONTRAST, (style, ground, palette[one])


def test_the_ground_is_what_the_terminal_says_and_else_not_known() -> None:
    assert terminal.ground({"TERM": "linux"}) == "console"
    assert terminal.ground({"TERM": "xterm", "COLORFGBG": "15;0"}) == "dark"
    assert terminal.ground({"TERM": "xterm", "COLORFGBG": "0;default;15"}) == "light"
    assert terminal.ground({"TERM": "xterm"}) == terminal.ground({"COLORFGBG": "default;default"}) == ""
    assert not ansi_styles("console")["dim"].dim, "faint letters of the console are #555555"


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
