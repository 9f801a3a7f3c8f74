"""Job output on a terminal: colours stay, everything else that could act on it goes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui.sgr import PLAIN, Look, last_turn, look_after, looks


def shown(text: str) -> str:
    return "".join(part for part, _ in looks(text)[0])


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("\x1b]0;title\x07x", "x"),
        ("\x1b]8;;http://a\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bP1$r\x1b\\y", "y"),
        ("\x1b[2Ja\x1b[10;5Hb\x1b[?1049hc", "abc"),
        ("\x9b2Jz", "z"),
        ("\x1b(Bq\x1bcq", "qq"),
        ("a\x1b", "a"),
        ("a\x1b[31", "a"),
        ("a\tb", "a       b"),
        ("ab\x1b[1m\tc", "ab      c"),
        ("a\x07\x08\x00b", "ab"),
        ("a\u202eb\u2066c", "abc"),
        ("a\xa0b", "a b"),
        ("10%\r50%\r99%", "99%"),
        ("99%\r", "99%"),
        ("windows\r", "windows"),
        ("abc\r\x1b[Knew", "new"),
        ("東京 ok", "東京 ok"),
    ],
)
def test_what_is_to_be_seen(text: str, plain: str) -> None:
    assert shown(text) == plain


@pytest.mark.parametrize(
    ("codes", "look"),
    [
        ("31", Look(foreground=1)),
        ("1;92;44", Look(bold=True, foreground=10, background=4)),
        ("38;5;200", Look(foreground=200)),
        ("38;2;1;2;3;4", Look(foreground=(1, 2, 3), underline=True)),
        ("48:5:17", Look(background=17)),
        ("38;5;999", Look(foreground=255)),
        ("5", PLAIN),
        ("8", PLAIN),
        ("38;9", PLAIN),
        ("31;0", PLAIN),
        ("", PLAIN),
        ("1;22;3;23;7;27;9;29;4;24;31;39;41;49", PLAIN),
        ("?31", PLAIN),
        (">4;1", PLAIN),
    ],
)
def test_colours_are_kept_and_what_hides_or_blinks_is_not(codes: str, look: Look) -> None:
    assert looks(f"\x1b[{codes}mx")[0] == [("x", look)]


def test_a_look_goes_on_in_the_next_line() -> None:
    _, after = looks("\x1b[31mred")
    assert after == look_after("\x1b[31mred", PLAIN) == Look(foreground=1)
    assert looks("still", after)[0] == [("still", Look(foreground=1))]
    assert look_after("plain", after) is after


@given(st.text(st.sampled_from("a\x1b[]0;31m?J\\\x07\x9b\x9d\x90\x9c\r\t\x00東 "), max_size=60))
def test_no_control_character_ever_gets_through(text: str) -> None:
    assert all(part.isprintable() for part, _ in looks(text)[0])
    assert looks(text)[1] == look_after(text, PLAIN)


def test_hostile_lines_take_no_more_than_linear_time() -> None:
    for unit in ("\x9d", "\x1b]", "\x1b[", "\r", "\x1b[31m\r", "\x1bP"):
        looks(unit * 30_000)
        last_turn(unit * 30_000)


def test_of_a_progress_bar_only_the_last_turn_is_kept() -> None:
    assert last_turn("1%\r2%\r3%") == "3%" and last_turn("1%\r2%\r") == "2%\r" and last_turn("x") == "x"
