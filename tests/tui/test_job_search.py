"""What is looked for in a log: where it is in a line, in time that is linear whatever it is; and rows of wrapped lines."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent import wire
from tui.job_log import LogBuffer
from tui.job_search import PatternError, needed_by, plain_of, wanted
from tui.job_stamps import stamp_of
from tui.job_wrap import Rows
from tui.query_regex import compile_pattern

PATTERNS = ("a+b", "^a", "b$", "[0-9]+ms", "x*y", "(a|b)*c", "a{2,3}", r"loss=\d+\.\d+", "ab|b+")


@given(st.sampled_from(PATTERNS), st.text("abcxy019ms=. ", max_size=24))
def test_places_are_those_of_pythons_own_engine_and_each_as_long_as_it_can_be(regex: str, text: str) -> None:
    found = compile_pattern(regex).spans(text)
    expected = [match.span() for match in re.finditer(regex, text) if match.group()]
    assert [start for start, _ in found[:1]] == [start for start, _ in expected[:1]]
    for start, end in found:
        assert re.fullmatch(regex.strip("^$"), text[start:end])
    assert all(one[1] <= two[0] for one, two in zip(found, found[1:], strict=False))
    assert bool(found) <= compile_pattern(regex).found(text)


@pytest.mark.parametrize("regex", ["(a|aa)+$", "(.*)(.*)(.*)x", "a(.*b)?", "(a*)*b"])
def test_no_expression_takes_long_on_any_line(regex: str) -> None:
    begin = time.process_time()
    pattern = wanted(f"/{regex}/")
    assert pattern is not None
    pattern.spans("a" * 16_384)
    pattern.matches("a" * 16_384)
    assert time.process_time() - begin < 30


def test_plain_text_is_taken_as_it_stands_and_case_does_not_matter() -> None:
    pattern = wanted("Loss (a|b)*")
    assert pattern is not None and not pattern.regex
    assert pattern.spans("loss (a|b)* LOSS (A|B)*") == [(0, 11), (12, 23)] and not pattern.matches("loss a")
    assert wanted("") is None and wanted("/data/x").regex is False  # type: ignore[union-attr]
    with pytest.raises(PatternError):
        wanted("/(?=x)/")


def test_what_an_expression_needs_is_looked_for_first() -> None:
    for regex, text in ((r"step \d*77 ok", "step "), ("a|b", ""), ("x(yz)?abc", "abc"), ("(abc)", ""), (r"\.log$", ".log"), ("a+bc", "bc")):
        assert needed_by(regex) == text
    pattern = wanted(r"/LOSS=\d+/")
    assert pattern is not None and pattern.may_be_in("x loss=") and not pattern.may_be_in("nothing")
    assert pattern.matches("Loss=12") and not pattern.matches("loss=") and not pattern.matches("12")


@pytest.mark.parametrize(
    ("line", "stamp"),
    [
        ("2026-11-30 14:05:10,123 INFO x", "2026-11-30 14:05:10"), ("[\x1b[32m2026-11-30T14:05:10.5Z\x1b[0m] x", "2026-11-30T14:05:10"),
        ("2026/11/30 14:05:10 x", "2026/11/30 14:05:10"), ("Nov  3 14:05:10 host x", "Nov  3 14:05:10"), ("14:05:10 | x", "14:05:10"),
        ("step 3 took 00:00:10:22", None), ("x" * 60 + " 14:05:10", None), ("no time", None),
    ],
)  # fmt: skip
def test_times_at_the_beginning_of_lines_are_told_as_they_stand(line: str, stamp: str | None) -> None:
    assert stamp_of([line]) == stamp == stamp_of(["none here", line])


def test_what_is_seen_is_what_is_looked_at() -> None:
    pattern = wanted("error")
    assert pattern is not None and pattern.matches(plain_of("er\x1b[31mror\x1b[0m")) and pattern.may_be_in("er\x1b[31mror")
    assert not pattern.may_be_in("all is well\n")


def pages(text: str, sizes: list[int]) -> list[wire.LogPage]:
    data, found, at = text.encode(), [], 0
    for size in [*sizes, len(data)]:
        part = data[at : at + size]
        if part:
            found.append(wire.LogPage(job="j", attempt=1, first_offset=0, offset=at, next_offset=at + len(part),
                                      text=part.decode(errors="replace"), ended=False))  # fmt: skip
        at += len(part)
    return found


LINE = st.text("ab\t\r é漢\x1b[31m", max_size=30)
logs = st.lists(LINE, min_size=1, max_size=60).map("\n".join).filter(bool)


@given(logs, st.lists(st.integers(1, 200), max_size=12), st.integers(0, 12))
def test_a_window_is_the_same_however_it_came_to_be(text: str, sizes: list[int], begin: int) -> None:
    """Pages before and behind, of any size, also cut within characters: lines, their beginnings and what is shown."""
    all_pages = pages(text, sizes)
    begin = min(begin, len(all_pages) - 1)
    buffer, straight = LogBuffer(), LogBuffer()
    for page in all_pages[begin:]:
        buffer.append(page)
    for page in reversed(all_pages[:begin]):
        buffer.prepend(page)
    for page in all_pages:
        straight.append(page)
    assert buffer.lines.texts == straight.lines.texts and buffer.lines.looks == straight.lines.looks
    assert len(buffer.lines.starts) == len(buffer.lines.looks) == len(buffer.lines.texts)
    assert buffer.lines.starts == sorted(buffer.lines.starts)
    if "�" not in "".join(page.text for page in all_pages):
        assert buffer.lines.starts == straight.lines.starts
        raw = text.encode().split(b"\n")
        assert buffer.lines.starts == [sum(len(one) + 1 for one in raw[:at]) for at in range(len(raw))]


@given(st.lists(st.integers(0, 90), max_size=40), st.integers(1, 30))
def test_rows_and_lines_agree(lengths: list[int], width: int) -> None:
    buffer, rows, text = LogBuffer(), Rows(), "".join("x" * length + "\n" for length in lengths)
    for page in pages(text, [37] * 30):
        buffer.append(page)
        rows.update(buffer, len(buffer.lines), width)
    expected = [(line, part) for line, length in enumerate([*lengths, 0]) for part in range(max(1, -(-length // width)))]
    assert len(rows) == (len(expected) if text else 0)
    assert [rows.line_at(row) for row in range(len(rows))] == expected[: len(rows)]
    for line in range(len(lengths)):
        assert rows.line_at(rows.row_of(line)) == (line, 0)
