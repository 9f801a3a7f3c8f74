"""The themes: one dark, one light, and one of the terminal's own colours.

Invariant: each named style reads at least 4.5:1 against the background and the cursor (a test computes it), and no state is
told by colour alone. Restraint: one accent, amber for money that stands idle, red for what is lost. Of the terminal's own
colours only those are used that can be read on its ground, none where that is not known.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from rich.style import Style
from textual.theme import BUILTIN_THEMES, Theme

from tui import terminal

DARK, LIGHT, ANSI = "rackrate-dark", "rackrate-light", "ansi"


class Palette(msgspec.Struct, frozen=True, kw_only=True):
    """Colours as `#rrggbb`, or names of the terminal's own."""

    background: str
    raised: str
    """Behind header, footer and dialogs."""
    cursor: str
    """Behind the line under the cursor."""
    text: str
    dim: str
    accent: str
    idle: str
    lost: str
    rule: str
    """Thin separators and the empty part of bars: decoration, not text."""
    dark: bool = True


PALETTES: dict[str, Palette] = {
    DARK: Palette(
        background="#11151a", raised="#191f26", cursor="#2a3540", text="#d8dee6", dim="#97a3b0", accent="#6cc0d6",
        idle="#e6b04d", lost="#ff8a80", rule="#3a4550",
    ),
    LIGHT: Palette(
        background="#fbfaf7", raised="#eeece6", cursor="#d9e4ea", text="#1d232a", dim="#525c66", accent="#0a5f75",
        idle="#7d4f00", lost="#a81c14", rule="#c6c4bc", dark=False,
    ),
}  # fmt: skip


def _colour_styles(palette: Palette) -> dict[str, Style]:
    return {
        "text": Style(color=palette.text),
        "strong": Style(color=palette.text, bold=True),
        "dim": Style(color=palette.dim),
        "accent": Style(color=palette.accent),
        "title": Style(color=palette.accent, bold=True),
        "key": Style(color=palette.accent, bold=True),
        "idle": Style(color=palette.idle, bold=True),
        "lost": Style(color=palette.lost, bold=True),
        "rule": Style(color=palette.rule),
        "page": Style(color=palette.text, bgcolor=palette.background),
        "raised": Style(color=palette.text, bgcolor=palette.raised),
        "cursor": Style(color=palette.text, bgcolor=palette.cursor),
        "mark": Style(color=palette.accent, bold=True),
    }


_OWN: Mapping[terminal.Ground, tuple[str | None, str | None, str | None]] = {
    "": (None, None, None),
    "dark": ("cyan", "yellow", "bright_red"),
    "console": ("cyan", "bright_yellow", "bright_red"),
    "light": ("blue", "magenta", "red"),
}
"""Accent, idle and lost. No colour of the sixteen can be read on black and on white."""


def ansi_styles(ground: terminal.Ground = "") -> dict[str, Style]:
    """Attributes and the terminal's named colours. The console's faint letters are too dark to read."""
    accent, idle, lost = _OWN[ground]
    return {
        "text": Style(),
        "strong": Style(bold=True),
        "dim": Style(dim=ground != "console"),
        "accent": Style(color=accent),
        "title": Style(bold=True),
        "key": Style(bold=True),
        "idle": Style(color=idle, bold=ground != "light"),
        "lost": Style(color=lost, bold=ground != "light", underline=not lost),
        "rule": Style(dim=True),
        "page": Style(),
        "raised": Style(),
        "cursor": Style(reverse=True),
        "mark": Style(bold=True),
    }


STYLES: dict[str, Mapping[str, Style]] = {
    **{name: _colour_styles(palette) for name, palette in PALETTES.items()},
    ANSI: ansi_styles(),
}


def use_ground(ground: terminal.Ground) -> None:
    """From now on the terminal's own colours are those that suit it."""
    STYLES[ANSI] = ansi_styles(ground)


NAMES = tuple(STYLES)


def _theme(name: str, palette: Palette) -> Theme:
    return Theme(
        name=name, dark=palette.dark, primary=palette.accent, secondary=palette.dim, accent=palette.accent,
        warning=palette.idle, error=palette.lost, success=palette.accent, foreground=palette.text,
        background=palette.background, surface=palette.background, panel=palette.raised, boost=palette.raised,
        variables={
            "ansi-background": palette.background, "ansi-foreground": palette.text,
            "rr-raised": palette.raised, "rr-rule": palette.rule, "rr-dim": palette.dim, "rr-cursor": palette.cursor,
            "scrollbar": palette.rule, "scrollbar-background": palette.background,
            "scrollbar-hover": palette.dim, "scrollbar-active": palette.accent,
            "scrollbar-background-hover": palette.background, "scrollbar-background-active": palette.background,
            "input-cursor-background": palette.text, "input-cursor-foreground": palette.background,
            "input-selection-background": palette.cursor,
        },
    )  # fmt: skip


def _ansi_theme() -> Theme:
    return Theme(
        name=ANSI, ansi=True, dark=True, primary="ansi_cyan", secondary="ansi_default", accent="ansi_cyan",
        warning="ansi_yellow", error="ansi_red", success="ansi_default", foreground="ansi_default",
        background="ansi_default", surface="ansi_default", panel="ansi_default", boost="ansi_default",
        variables={
            **BUILTIN_THEMES["ansi-dark"].variables,
            "rr-raised": "ansi_default", "rr-rule": "ansi_default", "rr-dim": "ansi_default", "rr-cursor": "ansi_default",
            "input-cursor-background": "ansi_default", "input-cursor-foreground": "ansi_default",
            "input-selection-background": "ansi_blue",
        },
    )  # fmt: skip


THEMES: tuple[Theme, ...] = (*(_theme(name, palette) for name, palette in PALETTES.items()), _ansi_theme())
