"""The window on a log: whole, bounded, and growing at either end."""

from __future__ import annotations

from agent import wire
from tui.job_log import LONGEST_LINE, PART_BYTES, LogBuffer
from tui.sgr import Look

LINES = [f"line {number:05} {'x' * (number % 40)}" for number in range(6000)]
TEXT = "\n".join(LINES) + "\n"


def page(at: int, size: int, whole: str = TEXT, *, attempt: int = 1, first: int = 0, ended: bool = False) -> wire.LogPage:
    text = whole.encode()[at : at + size]
    return wire.LogPage(
        job="j", attempt=attempt, first_offset=first, offset=at, next_offset=at + len(text),
        text=text.decode(errors="replace"), ended=ended,
    )  # fmt: skip


def texts(buffer: LogBuffer) -> list[str]:
    return [line.text for line in buffer.lines]


def test_pages_of_any_size_give_the_same_lines() -> None:
    for size in (7, 100, 4096, 1 << 20):
        buffer = LogBuffer(kept_bytes=1 << 20)
        for at in range(0, len(TEXT), size):
            buffer.append(page(at, size))
        assert texts(buffer) == [*LINES, ""]


def test_from_the_end_backwards_the_same_lines_come() -> None:
    buffer = LogBuffer(kept_bytes=1 << 20)
    at = len(TEXT) - 5000
    buffer.append(page(at, 5000))
    while not buffer.whole_front:
        size = min(5000, buffer.start)
        before = len(buffer.lines)
        grown = buffer.prepend(page(buffer.start - size, size))
        assert len(buffer.lines) == before + grown
    assert texts(buffer) == [*LINES, ""]


def test_the_window_is_bounded_when_the_log_grows() -> None:
    buffer, gone = LogBuffer(kept_bytes=100_000), 0
    for at in range(0, len(TEXT), 1000):
        gone += buffer.append(page(at, 1000))
        assert buffer.end - buffer.start <= 100_000 + PART_BYTES
        assert sum(len(line.text) + 1 for line in buffer.lines) <= 100_000 + 2 * PART_BYTES
    assert buffer.end == len(TEXT) and texts(buffer)[-2] == LINES[-1]
    assert gone + len(buffer.lines) == len(LINES) + 1, "who reads further up can be kept on the line"


def test_older_pages_push_out_the_newest_and_say_so() -> None:
    buffer = LogBuffer(kept_bytes=50_000)
    buffer.append(page(len(TEXT) - 60_000, 60_000))
    assert not buffer.detached
    buffer.prepend(page(buffer.start - 60_000, 60_000))
    assert buffer.detached and buffer.end < len(TEXT)


def test_a_page_from_elsewhere_changes_nothing_and_a_hole_begins_anew() -> None:
    buffer = LogBuffer()
    buffer.append(page(0, 100))
    lines = list(buffer.lines)
    assert buffer.append(page(50, 100)) == 0 and buffer.prepend(page(300, 10)) == 0
    assert list(buffer.lines) == lines
    buffer.append(page(5000, 100, first=5000))
    assert buffer.start == 5000 and buffer.whole_front


def test_output_without_line_ends_is_cut_and_progress_bars_stay_one_line() -> None:
    buffer = LogBuffer()
    endless = "y" * 100_000
    for at in range(0, len(endless), 5000):
        buffer.append(page(at, 5000, endless))
    assert max(map(len, texts(buffer))) <= LONGEST_LINE and "".join(texts(buffer)) == endless
    bar, buffer = "".join(f"\r{n:>6}%" for n in range(20_000)), LogBuffer()
    for at in range(0, len(bar), 9000):
        buffer.append(page(at, 9000, bar))
    assert len(buffer.lines) == 1 and len(buffer.lines[0].text) < 64 and "19999%" in buffer.lines[0].text


def test_a_colour_goes_on_over_lines_and_pages() -> None:
    buffer = LogBuffer()
    text = "\x1b[31mred\nstill red\n\x1b[0mplain\nend"
    for at in range(0, len(text), 3):
        buffer.append(page(at, 3, text))
    assert [line.look for line in buffer.lines] == [Look(), Look(foreground=1), Look(foreground=1), Look()]


def test_what_the_node_says_of_the_log_is_kept() -> None:
    buffer = LogBuffer()
    buffer.append(page(0, len(TEXT), ended=True))
    assert buffer.ended and buffer.attempt == 1
    buffer.reset(2)
    assert not buffer.lines and buffer.attempt == 2 and not buffer.ended
