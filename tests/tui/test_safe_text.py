"""`tui.safe_text`: whatever a job writes, a terminal gets colours and text."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui.safe_text import LONGEST_SEQUENCE, RESET, SafeText


def safe(*pieces: str) -> str:
    filtered = SafeText()
    return "".join(filtered.feed(piece) for piece in pieces) + filtered.close()


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("plain \u00fc \u4e2d\t\r\n", "plain \u00fc \u4e2d\t\r\n"),
        ("\x1b[31mred\x1b[0m", "\x1b[31mred\x1b[0m" + RESET),
        ("\x1b[38:2::255:0:0m!", "\x1b[38:2::255:0:0m!" + RESET),
        ("\x9b32mgreen", "\x1b[32mgreen" + RESET),
        ("\x1b[2J\x1b[H\x1b[?25l\x1b[6ngone", "gone"),
        ("\x1b]0;title\x07a\x1b]52;c;cm0=\x1b\\b\x9d0;t\x9cc", "abc"),
        ("\x1bPq#0;~\x1b\\a\x1b_x\x1b\\b\x1b^y\x1b\\c", "abc"),
        ("\x1bcreset\x1b(Bx\x1b=", "resetx"),
        ("a\x00\x07\x08b\x7f\x85", "ab"),
        ("\u202eevil\u202c", "evil"),
        ("\x1b[>4;1m\x1b[?1mx", "x"),
        ("\x1b]0;no end\nnext line", "\nnext line"),
        ("cut \x1b[3", "cut "),
        ("\x1b[31\x1b[2Jx", "x"),
    ],
)
def test_colours_stay_and_the_rest_goes(written: str, shown: str) -> None:
    assert safe(written) == shown


@given(st.lists(st.text(alphabet="ab\x1b[]0;1m?HJ\x07\\\n\x9b\x9dP("), max_size=8))
def test_the_same_comes_out_however_it_is_cut(pieces: list[str]) -> None:
    whole = safe("".join(pieces))
    assert safe(*pieces) == whole
    assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f]", whole)
    assert re.sub(r"\x1b\[[0-9;:]*m", "", whole).count("\x1b") == 0


def test_a_string_without_end_does_not_swallow_the_log() -> None:
    assert safe("\x1b]0;" + "x" * (2 * LONGEST_SEQUENCE), "after").endswith("xafter")
    assert safe("\x1b[" + "1" * 5000 + "m").startswith("1")
