"""Behind `:`: words that open screens, what completes them, and errors that point at their spot."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pytest

from tests.support.jobs import ident, job_fleet
from tests.support.screens import line_with, make_app, press, running, text
from tui.ui import colon
from tui.ui.colon import Goto, WrongWord
from tui.ui.screens import costs, market  # noqa: F401 - else they are imported in a thread, and opened later
from tui.ui.screens.base import RackrateScreen


class Fixed:
    """A world of three nodes."""

    now = 0.0
    filters: Mapping[str, str] = {"mine": "user:me", "big": "gpus>4"}
    themes: Sequence[str] = ("rackrate-dark", "rackrate-light")

    def nodes(self) -> list[str]:
        return ["gpu-07", "gpu-08", "a-gpu"]

    def gpus(self, node: str) -> list[str]:
        return ["0", "1", "3"] if node == "gpu-07" else []

    def jobs(self) -> Iterable[tuple[str, str]]:
        return [("0abc1", "gpu-07"), ("0abc2", "gpu-08"), ("0def", "gpu-08")]

    def rows(self, word: str) -> Callable[[], Iterable[Any]]:
        return tuple


@pytest.mark.parametrize(
    ("typed", "name", "arguments"),
    [
        ("costs", "costs", ()), (":jobs user:me", "jobs", ("user:me",)), ("node gpu-07", "node", ("gpu-07",)),
        ("gpu gpu-07 3", "gpu", ("gpu-07", "3")), ("job 0abc1", "job", ("0abc1", "gpu-07")), ("job 0d", "job", ("0def", "gpu-08")),
        (" :market  a100 ", "market", ("a100",)), ("events kind:job level:bad", "events", ("kind:job level:bad",)), ("q", "quit", ()),
        ("fleet @mine", "fleet", ("@mine",)), ("forget @mine", "forget", ("mine",)), ("theme", "theme", ()), ("nodes", "fleet", ()),
    ],
)  # fmt: skip
def test_a_line_is_a_word_and_what_it_takes(typed: str, name: str, arguments: tuple[str, ...]) -> None:
    assert colon.read(typed, Fixed()) == Goto(colon.BY_NAME[name], arguments)


@pytest.mark.parametrize(
    ("typed", "spot", "why"),
    [
        ("jbos", "jbos", "did you mean `jobs`?"), ("xyzzy", "xyzzy", "Tab shows them"), ("node gpu-7", "gpu-7", "did you mean"),
        ("node ", "", "is missing"), ("gpu gpu-07 9", "9", "are 0, 1, 3"), ("gpu gpu-07", "", "are 0, 1, 3"), ("gpu gpu-08 0", "0", "no GPU of gpu-08"),
        ("job 0abc", "0abc", "2 jobs begin"), ("job zz", "zz", "no job is known"), ("costs a (b", "(", "not closed"),
        ("jobs users:me", "users", "did you mean `user`?"), (":alerts rule:x sev:y", "sev", "nknown key"), ("advice now", "now", "nothing more"),
        ("fleet @min", "@min", "there are @big, @mine"), ("forget nope", "nope", "filter"), ("theme pink", "pink", "theme"), ("", "", "no screen"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_spot(typed: str, spot: str, why: str) -> None:
    with pytest.raises(WrongWord) as caught:
        colon.read(typed, Fixed())
    assert why in str(caught.value) and str(caught.value)[-1] in ".?"
    assert typed[caught.value.start : caught.value.end].strip() == spot and caught.value.end > caught.value.start


@pytest.mark.parametrize(
    ("typed", "first"),
    [
        ("co", "costs"), (":ev", ":events "), ("node 8", "node gpu-08"), ("gpu gpu-0", "gpu gpu-07 "), ("gpu gpu-07 ", "gpu gpu-07 0"),
        ("job 0d", "job 0def"), ("jobs us", "jobs user:"), ("jobs !sta", "jobs !state:"), ("alerts rule:gpu_h", "alerts rule:gpu_hot"),
        ("fleet @b", "fleet @big"), ("theme l", "theme rackrate-light"), ("forget ", "forget big"), ("events kind:pr", "events kind:price"),
    ],
)  # fmt: skip
def test_tab_completes_words_and_what_they_take(typed: str, first: str) -> None:
    found = colon.completions(typed, Fixed())
    assert found[0].rstrip() == first.rstrip()
    assert colon.completions("costs x", Fixed()) == [] == colon.completions("advice x", Fixed())


async def test_the_line_completes_opens_and_filters() -> None:
    app, _ = make_app(job_fleet())
    async with running(app) as pilot:
        await press(pilot, "colon", *"jo")
        assert ":job ID" in text(app) and "Jobs of the fleet" in text(app)
        await press(pilot, *"bs", "space", *"user:a", "tab", "enter")
        assert "/user:ada" in text(app) and app.screen.SCOPE == "jobs"  # type: ignore[attr-defined]
        await press(pilot, "colon", *"node", "space", *"gpu-1", "enter")
        assert "did you mean `gpu-01`?" in text(app) and line_with(app, "^^^^^").index("^") == line_with(app, "node gpu-1").index("gpu-1")
        await press(pilot, "tab", "enter")
        assert "no node" in text(app) or app.screen.place.of == ("gpu-01",)  # type: ignore[attr-defined]
        await press(pilot, "escape", "colon", *"gpu-02", "enter")
        assert isinstance(app.screen, RackrateScreen) and app.screen.place.of == ("gpu-02",), "a node's name alone finds it"  # type: ignore[union-attr]
        await press(pilot, "colon", *"job", "space", *ident(1), "enter")
        assert app.screen.ident == ident(1)  # type: ignore[attr-defined]
        await press(pilot, "colon", *"events", "space", *"kind:job", "enter")
        await pilot.pause()
        assert "/kind:job" in text(app)
        await press(pilot, "colon", *"fleet", "enter")
        assert len(app.screen_stack) == 1
        await press(pilot, "colon", *"theme", "space", "tab", "enter")
        assert app.theme == "rackrate-dark" or app.theme in colon.completions("theme ", app.world())[0]


async def test_what_is_wrong_stays_in_the_line_and_f1_explains() -> None:
    app, _ = make_app(job_fleet(), read_only=True)
    async with running(app) as pilot:
        await press(pilot, "colon", *"jbos", "enter")
        assert "did you mean `jobs`?" in text(app) and len(app.screen_stack) == 2
        await press(pilot, "f1")
        assert "A word opens a screen" in text(app)
        await press(pilot, "escape", "backspace", "backspace", "backspace", "backspace", *"submit", "enter")
        assert "submit is off: this is read-only." in text(app) and app.screen.SCOPE == "fleet"  # type: ignore[attr-defined]


async def test_the_line_fits_a_small_terminal() -> None:
    app, _ = make_app(job_fleet())
    for size in ((20, 5), (40, 10)):
        async with running(app, size) as pilot:
            await press(pilot, "f2", *"co")
            assert "osts" in text(app)
            await press(pilot, "enter")
            assert app.screen.SCOPE == "costs"  # type: ignore[attr-defined]
        app, _ = make_app(job_fleet())
