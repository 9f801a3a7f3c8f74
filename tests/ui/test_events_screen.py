"""The screen of what happened."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

from agent import wire
from tests.support.fleets import AT, alert
from tests.support.jobs import FakeNode, asked_nodes, ended, ident, job, job_fleet, tell
from tests.support.screens import line_with, make_app, press, running, text, tick
from tui.ui.screens.events import EventsScreen, newer_line


async def test_events_go_on_in_the_background_and_lead_to_what_they_are_about() -> None:
    app, clock = make_app(job_fleet())
    async with running(app, (120, 30)) as pilot:
        await tick(app, pilot, clock, 6)
        tell(app.fleet, job(20, name="fresh", started_at=clock.now()), now=clock.at)
        await tick(app, pilot, clock, 3)
        await press(pilot, "E")
        assert isinstance(app.screen, EventsScreen)
        row = line_with(app, "fresh")
        assert row.startswith("▌ 14:05:") and "job" in row and "3s" in row
        assert "✗ 0abc" in line_with(app, "oom,") and "2h" in line_with(app, "oom,") and "! is stale" in line_with(app, "gpu-01          !")
        assert "✗ " in line_with(app, " events  ") and "job " in line_with(app, " events  ")
        tell(app.fleet, job(21, name="newer", started_at=clock.now()), now=clock.at)
        await tick(app, pilot, clock, 3)
        assert line_with(app, "newer").startswith("▌") and "order held" not in text(app), "who stands on the newest stays there"
        await press(pilot, "down", "enter")
        assert app.screen.ident == ident(20)  # type: ignore[attr-defined]
        await press(pilot, "escape", "slash", *"kind:node node:gpu-02", "enter", "enter")
        assert app.screen.place.of == ("gpu-02",)  # type: ignore[attr-defined]
        await press(pilot, "escape")
        tell(app.fleet, ended(20, "exit:0", name="fresh", ended_at=clock.now()), now=clock.at)
        await tick(app, pilot, clock, 3)
        assert "fresh" not in text(app), "the filter holds"
        await press(pilot, "escape")
        assert "ended" in line_with(app, "fresh")
        await pilot.resize_terminal(60, 12)
        await pilot.pause()
        assert "WHAT" in text(app) and "AGO" in text(app)


async def test_agents_are_asked_once_for_what_was_before() -> None:
    class Remembering(FakeNode):
        def client(self):
            found, node = super().client(), self

            async def alerts() -> wire.AlertList:
                node._asked("alerts")
                over = alert(node.name, key="k", rule="gpu_hot", since=AT - timedelta(minutes=40), ended_at=AT - timedelta(minutes=20))
                return wire.AlertList(node=node.name, alerts=(over,))

            found.alerts = alerts  # type: ignore[attr-defined]
            return found

    node = Remembering("gpu-01", [ended(30, "exit:1", name="long ago", ended_at=AT - timedelta(hours=5))])
    app, clock = make_app(job_fleet(), live=Still(), **asked_nodes(node))
    async with running(app, (120, 30)) as pilot:
        for _ in range(2):
            await press(pilot, "E")
            await tick(app, pilot, clock, 3)
            assert "✓" in line_with(app, "gpu_hot is over") and "long ago" in text(app)
            await press(pilot, "escape")
        assert sum("alerts" in str(call) for call in node.calls) == 1


class Still:
    """Streams that bring nothing."""

    left_out: Counter[str] = Counter()

    def start(self) -> None:
        """Nothing is opened."""

    async def close(self) -> None:
        """Nothing is closed."""

    def take_changed(self) -> set[str]:
        return set()


async def test_events_of_newer_kinds_are_told_by_their_number_and_why() -> None:
    live = Still()
    app, clock = make_app(job_fleet(), live=live)
    async with running(app, (120, 30)) as pilot:
        await press(pilot, "E")
        assert "newer" not in text(app)
        live.left_out = Counter({"gpu-01": 1})
        await tick(app, pilot, clock, 3)
        assert " 1 event of gpu-01, of kinds that only newer agents know, is not shown: update rackrate" in text(app)
        live.left_out = Counter({"gpu-01": 1200, "gpu-02": 34})
        await tick(app, pilot, clock, 3)
        assert " 1,234 events of 2 nodes, of kinds that only newer agents know, are not shown: update rackrate" in text(app)
        await pilot.resize_terminal(40, 10)
        await pilot.pause()
        assert " 1,234 events too new: update rackrate" in text(app)
    assert newer_line(Counter(), 80) == ()


async def test_an_empty_list_says_what_would_fill_it() -> None:
    from tui.fleet import Fleet

    app, _ = make_app(Fleet())
    async with running(app) as pilot:
        await press(pilot, "E", "enter")
        assert "Nothing happened yet." in text(app) and "rackrate watch --plain" in text(app)
        await press(pilot, "escape", "B")
        assert "There are no budgets yet." in text(app) and "[[budgets]]" in text(app) and 'amount = "5000"' in text(app)
        await press(pilot, "enter")
        assert app.screen.SCOPE == "budgets"  # type: ignore[attr-defined]


async def test_on_the_narrowest_screens_an_event_names_its_node_and_an_alert_its_rule_and_node() -> None:
    app, clock = make_app(job_fleet())
    async with running(app, (20, 5)) as pilot:
        app.fleet.apply("gpu-01", wire.AlertEvent(alert=alert("gpu-01", rule="gpu_lost", severity="critical")), clock.at)
        await tick(app, pilot, clock, 6)
        await press(pilot, "E")
        assert "! gpu-01 …" in text(app)
        await press(pilot, "a")
        assert "✗ gpu lost gpu-…" in text(app)
