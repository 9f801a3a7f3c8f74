"""Money for exactly what is selected: the app's status line and `rackrate nodes QUERY --sum` give the same figures."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from pricing.catalog import Catalog
from pricing.ledger import Ledger
from pricing.rates import Pricing
from pricing.usage import WHOLE_SHARE, Placed, Usage
from tests.support.fleets import NOW
from tests.support.screens import make_app, press, running, text
from tests.tui.test_groups import random_fleet
from tui.commands import sums
from tui.commands.nodes import nodes as nodes_command
from tui.commands.sums import sums_record, sums_text
from tui.fleet import Fleet
from tui.format import usd
from tui.query import parse
from tui.selection import DayCosts, day_costs, ledger_name, selected, so_far
from tui.ui.panes.header import Costs
from tui.ui.widgets.status import FilterBar

AT = datetime(2026, 11, 30, 14, 5, 10, tzinfo=UTC)
HOUR_MS = 3_600_000
TERMS = (
    "state:idle", "state:lost", "state:live", "gpu:A100", "user:ada", "user:bob", "util<50", "util:10..60", "cost>5", "cost<40", "idle>0",
    "tag:team=red", "tag:blue", "type:p4d", "cloud:aws", "region:eu", "node:/n0[0-3]/", "gpus>4", "free>=1", "mem>10", "n01",
)  # fmt: skip


def random_query(rng: Random) -> str:
    """Terms side by side, negated, and in groups."""
    terms = [f"{'!' * (rng.random() < 0.3)}{rng.choice(TERMS)}" for _ in range(rng.randrange(1, 4))]
    if rng.random() < 0.3:
        return f"({' or '.join(terms)}) {rng.choice(TERMS)}"
    return rng.choice((" ", " or ")).join(terms)


def recorded(ledger: Ledger, fleet: Fleet, rng: Random) -> None:
    """Usage of most nodes, of today and of yesterday; some of it without a price."""
    midnight = round(AT.replace(hour=0, minute=0, second=0).timestamp() * 1000)
    for view in fleet:
        if rng.random() < 0.15:
            continue
        price = None if rng.random() < 0.1 else f"{rng.randrange(1, 10**6)}e-4"
        where = Placed(1, view.name, "x", None, None, "box", None, None if price is None else str(Decimal(price)), None, 2, "T4", {})
        rows, sequence = [], 0
        for hour in range(-2, 14, 3):
            begins, ends = midnight + hour * HOUR_MS, midnight + hour * HOUR_MS + rng.randrange(1, 3 * HOUR_MS)
            for gpu in ("a", "b"):
                sequence += 1
                kind = rng.choice(("held", "idle", "lost"))
                who = ("ada", "vision", "j1") if kind == "held" else (None, None, None)
                rows.append(Usage(sequence, begins, ends, gpu, kind, None, WHOLE_SHARE, *who, None, None, None, 1))
        ledger.take(view.name, f"m-{view.name}", rows, [where], 1)


class OnFleet:
    """A context on a prepared fleet and ledger."""

    def __init__(self, fleet: Fleet, path: Path) -> None:
        self._fleet, self._path = fleet, path
        self.terms_path = path.parent / "terms.toml"

    def query(self, words: list[str], kind: Any = None) -> Any:
        return parse(" ".join(words), kind)

    def fleet(self) -> Fleet:
        return self._fleet

    def clock(self) -> float:
        return NOW

    def now(self) -> datetime:
        return AT

    def catalog(self) -> Catalog:
        return Catalog.embedded()

    def timezone_name(self) -> str:
        return "UTC"

    @contextmanager
    def open_ledger(self) -> Iterator[Ledger]:
        with Ledger.open(self._path) as ledger:
            yield ledger


@pytest.mark.parametrize("seed", range(2))
async def test_the_status_line_equals_the_command_for_any_query(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, printed = Random(seed), list[Any]()
    monkeypatch.setattr(sums, "print_json", printed.append)  # the app keeps stdout to itself
    fleet, path = random_fleet(rng, 40), tmp_path / "ledger.db"
    with Ledger.open(path) as ledger:
        recorded(ledger, fleet, rng)
        day = day_costs(so_far(ledger, Pricing(Catalog.embedded()), AT, "UTC").today)
    app, _ = make_app(fleet, costs=Costs(today=sum(day.costs.values(), Fraction(0)), by_node=day))
    context: Any = OnFleet(fleet, path)
    async with running(app, (160, 30)) as pilot:
        counts = set()
        for turn in range(20):
            query = random_query(rng)
            app.screen.query_one(FilterBar).put(query)
            await pilot.pause()
            options = argparse.Namespace(query=query.split(" "), json=True, sum=True, no_sync=True)
            nodes_command(context, options)
            told = printed.pop()
            shown = app.screen.selected()  # type: ignore[attr-defined]
            assert sums_record(shown) == told, query
            counts.add(told["nodes"])
            if turn % 10 == 0 and told["nodes"]:
                assert f"today {'~' * (shown.today is not None and shown.today_partial)}{usd(shown.today)}" in text(app)
                await press(pilot, "home", "space")
                one = app.screen.selected()  # type: ignore[attr-defined]
                assert one == selected(fleet, app.screen.targets(), NOW, day) and "● 1 marked:" in text(app)  # type: ignore[attr-defined]
                app.screen.table.clear_marks()  # type: ignore[attr-defined]
        assert len(counts) > 5, "the queries choose different nodes"


def test_today_of_a_selection_is_the_sum_of_its_nodes_and_says_what_is_not_known() -> None:
    fleet = random_fleet(Random(1), 10)
    names = [view.name for view in fleet]
    day = DayCosts(costs={name: Fraction(1, 3 + place) for place, name in enumerate(names[:8])}, partial=frozenset({names[7]}))
    both = selected(fleet, names[:2], NOW, day)
    assert (both.today, both.today_partial) == (Fraction(7, 12), False) and "today $0.58" in sums_text(both)
    some = selected(fleet, names[6:9], NOW, day)
    assert some.today == Fraction(1, 9) + Fraction(1, 10) and some.today_partial and "today ~$0.21" in sums_text(some)
    none = selected(fleet, names[8:9], NOW, day)
    assert none.today is None and sums_record(none)["today_cost"] is None and sums_text(none).endswith("today –")
    assert selected(fleet, names, NOW, None).today is None and not selected(fleet, names, NOW, None).today_partial
    assert selected(fleet, [], NOW, day).today is None
    assert selected(fleet, names[:1], NOW, replace(day, missing=True)).today_partial
    whole = selected(fleet, None, NOW, day)
    assert whole.today == sum(day.costs.values(), Fraction(0)) and whole.totals == fleet.totals(NOW)


def test_a_node_that_is_configured_twice_is_counted_once_today() -> None:
    fleet = random_fleet(Random(2), 2)
    other = fleet.add("other-name", "http://127.0.0.1:9477/")
    other.info = fleet["n000"].info
    assert ledger_name(other) == "n000"
    day = DayCosts(costs={"n000": Fraction(5)})
    assert selected(fleet, ["n000", "other-name"], NOW, day).today == 5


def test_today_by_node_adds_up_to_the_day_of_the_ledger(tmp_path: Path) -> None:
    from pricing.attribution import cost_summary

    rng = Random(4)
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        recorded(ledger, random_fleet(rng, 30), rng)
        for zone in ("UTC", "America/New_York", "Asia/Kolkata"):
            found = so_far(ledger, Pricing(Catalog.embedded()), AT, zone)
            plain = cost_summary(ledger, Catalog.embedded(), AT, zone)
            assert found.today.totals.total_cost == plain.today.totals.total_cost
            assert found.month.totals.total_cost == plain.month.totals.total_cost
            assert sum(day_costs(found.today).costs.values(), Fraction(0)) == plain.today.totals.total_cost
        assert not day_costs(so_far(ledger, Pricing(Catalog.embedded()), AT + timedelta(days=3), "UTC").today).costs


def test_a_ledger_that_cannot_be_read_leaves_the_other_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "ledger.db"
    path.write_text("this is no ledger, and it is long enough to look at" * 100)
    context: Any = OnFleet(random_fleet(Random(1), 3), path)
    code = nodes_command(context, argparse.Namespace(query=[], json=False, sum=True, no_sync=True))
    said = capsys.readouterr()
    assert code == 4 and "today –" in said.out and "4 nodes" in said.out and "the cost of today is missing" in said.err
