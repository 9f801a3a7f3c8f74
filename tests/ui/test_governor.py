"""The governor: how often the app refreshes on a slow line, and what it says of it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual import events

from tests.support.screens import make_app, press, running, text
from tui.terminal import SSH_KBPS, kbps, mouse_works
from tui.ui.drivers import OPENING_SECONDS, MouseOfOld, Pastes, looks_pasted
from tui.ui.governor import BLURRED_SECONDS, BURST_SECONDS, PLOTS_AGAIN_SECONDS, Governor
from tui.ui.widgets import plot
from tui.ui.widgets.plot import OFF, area
from tui.ui.widgets.status import Footer


def governor(budget: float) -> tuple[Governor, SimpleNamespace]:
    time = SimpleNamespace(at=1000.0)
    return Governor(budget, clock=lambda: time.at), time


@given(st.integers(1, 50_000), st.lists(st.integers(0, 9000), min_size=1, max_size=8))
def test_refreshes_stay_within_the_budget_and_one_picture(budget: int, pictures: list[int]) -> None:
    paced, time = governor(budget)
    written = 0
    for second in range(300):
        time.at += 1
        if paced.may_refresh():
            size = pictures[second % len(pictures)]
            paced.queued(size)
            paced.written(size)
            written += size
    assert written <= budget * (300 + BURST_SECONDS) + max(pictures)


def test_without_a_budget_every_second_is_shown_and_no_rate_told() -> None:
    free, time = governor(0)
    for _ in range(20):
        time.at += 1
        assert free.may_refresh()
        free.queued(1_000_000)
        free.written(1_000_000)
    assert free.rate_text() == "" and free.plots and free.wait_seconds(0.2) == 0.2


def test_nothing_is_queued_behind_a_picture_that_the_terminal_has_not_taken() -> None:
    stalled, time = governor(0)
    stalled.queued(5000)
    for _ in range(30):
        time.at += 1
        assert not stalled.may_refresh()
    stalled.written(5000)
    assert stalled.may_refresh()


def test_what_keys_painted_is_paid_for_by_later_refreshes_for_a_minute_at_most() -> None:
    paced, time = governor(1000)
    for _ in range(1000):
        paced.queued(5000)
        paced.written(5000)
    waited = 0
    while not paced.may_refresh():
        time.at += 1
        waited += 1
    assert 50 <= waited <= 60


def test_plots_go_first_and_come_back_when_the_line_has_been_quiet() -> None:
    paced, time = governor(1000)
    paced.queued(8000)
    paced.written(8000)
    assert paced.plots
    for _ in range(2):
        time.at += 1
        assert not paced.may_refresh()
    assert not paced.plots
    time.at += 30
    assert paced.may_refresh() and not paced.plots
    time.at += PLOTS_AGAIN_SECONDS
    assert paced.may_refresh() and paced.plots


def test_the_rate_is_that_of_the_last_five_seconds() -> None:
    paced, time = governor(32_000)
    for _ in range(5):
        paced.queued(12_400)
        time.at += 1
    assert paced.rate_text() == "12 kB/s"
    time.at += 2
    assert paced.rate_text() == "7.4 kB/s"
    time.at += 10
    assert paced.rate_text() == "0 kB/s"


def test_over_ssh_there_is_a_limit_unless_another_one_is_asked_for() -> None:
    far = {"SSH_CONNECTION": "10.0.0.1 5 10.0.0.2 22"}
    assert kbps(None, {}) == 0 and kbps(None, far) == SSH_KBPS
    assert kbps(64, {}) == 64 and kbps(0, far) == 0


async def test_the_footer_tells_the_rate_where_there_is_room_plots_are_left_out_and_a_blurred_app_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tui.ui.app.TICK_SECONDS", 3600.0)  # only the test's own ticks are counted
    slow, time = governor(1000)
    app, _ = make_app(governor=slow)
    try:
        async with running(app, (120, 40)) as pilot:
            app.tick()
            await pilot.pause()
            assert " 0 kB/s" in text(app).split("\n")[-1] and "Enter open" in text(app).split("\n")[-1]
            await press(pilot, "enter")
            app.tick()
            await pilot.pause()
            assert OFF not in text(app) and " 0 kB/s" in text(app)
            slow.plots, slow._plots_off_at = False, time.at
            time.at += 1
            app.tick()
            await pilot.pause()
            assert OFF in text(app)
            await press(pilot, "escape")
            await pilot.resize_terminal(40, 12)
            app.tick()
            await pilot.pause()
            assert "kB/s" not in text(app)
            await pilot.resize_terminal(120, 40)

            drawn: list[float] = []
            redraw, app.redraw = app.redraw, lambda: drawn.append(time.at)  # type: ignore[method-assign]
            app.post_message(events.AppBlur())
            await pilot.pause()
            for _ in range(20):
                time.at += 1
                app.tick()
            assert len(drawn) == 20 / BLURRED_SECONDS
            app.post_message(events.AppFocus())
            await pilot.pause()
            assert len(drawn) == 20 / BLURRED_SECONDS + 1, "who looks again sees now"
            app.redraw = redraw  # type: ignore[method-assign]
            assert app.screen.query_one(Footer)
    finally:
        plot.put_in_force(True)
    assert area([0.5], 3) != [OFF[:3]]


def test_mouse_reports_of_three_bytes_become_digits_wherever_they_are_cut() -> None:
    click, release, wheel = b"\x1b[M \x71\x21", b"\x1b[M#\xff\x30", b"\x1b[M`\x80\x21"
    wanted = b"a\x1b[<0;81;1M\x1b[<0;223;16m\x1b[<64;96;1Mq\x1b[A"
    stream = b"a" + click + release + wheel + b"q\x1b[A"
    assert MouseOfOld().feed(stream) == wanted
    for cut in range(len(stream)):
        if stream[cut - 1 : cut] == b"\x1b" or stream[cut - 2 : cut] == b"\x1b[":
            continue  # ESC may be a key: it waits for nothing
        reader = MouseOfOld()
        assert reader.feed(stream[:cut]) + reader.feed(stream[cut:]) == wanted
    assert MouseOfOld().feed(b"\x1b[M\x00\x00\x00x") == b"x", "what no mouse can have sent is left out"


def test_letters_of_one_read_are_a_paste_unless_a_key_is_held_or_a_filter_is_typed() -> None:
    for pasted in ("excellent", "dy\nq", "rm -rf\r", "dy\r", "/usr/bin\nq\n", "quit"):
        assert looks_pasted(pasted), pasted
    for typed in ("", "q", "d\r", "jjjjjjjjjj", "jkjkjkjk", "\x1b[A\x1b[B", "/gpu:A100\r", ":jobs", "\x1b[200~excellent\x1b[201~"):
        assert not looks_pasted(typed), typed


def test_the_mouse_is_left_alone_in_gnu_screen_which_would_keep_esc_to_itself() -> None:
    assert mouse_works({"TERM": "xterm"}) and mouse_works({"TERM": "screen", "TMUX": "/tmp/x,1,0"}) and mouse_works({})
    assert not mouse_works({"TERM": "screen.xterm-256color"}) and not mouse_works({"TERM": "xterm", "STY": "1.pts"})


def test_what_follows_the_sign_that_opens_a_line_is_typed_though_it_comes_at_once() -> None:
    pastes = Pastes()
    assert not pastes.has("/", 10.0) and not pastes.has("gpu:A100 util<20", 10.1) and not pastes.has(" user:me cost>5", 11.9)
    assert pastes.has("rm -rf\nquit\n", 12.0), "lines are pasted wherever they go"
    assert not pastes.has(":", 20.0) and pastes.has("costs", 20.0 + OPENING_SECONDS), "so long no line takes to open"
    assert not pastes.has("/", 30.0) and not pastes.has("\x1b", 30.1) and pastes.has("costs", 30.2), "Esc has closed it"
    assert not pastes.has("j", 40.0) and pastes.has("costs", 40.1), "no line was opened"
