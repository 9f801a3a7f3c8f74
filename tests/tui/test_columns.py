"""Columns: what fits, in which order, and how rows are sorted."""

from __future__ import annotations

import random

import pytest

from tests.support.fleets import NOW, small_fleet
from tui.columns import NODE_COLUMNS, age_text, column_sets, fit, sort_rows
from tui.gpu_strip import strip_text

BY_ID = {column.id: column for column in NODE_COLUMNS}


@pytest.mark.parametrize("width", range(0, 220, 7))
@pytest.mark.parametrize("gap", [1, 2])
def test_columns_never_take_more_than_the_width(width: int, gap: int) -> None:
    shown, hidden = fit(NODE_COLUMNS, width, gap)
    assert sum(cells for _, cells in shown) + gap * max(0, len(shown) - 1) <= width
    assert len(shown) + hidden == len(NODE_COLUMNS)


def test_80_columns_show_the_money_and_200_show_everything() -> None:
    shown = [column.id for column, _ in fit(NODE_COLUMNS, 77)[0]]
    assert 6 <= len(shown) <= 8
    assert {"state", "node", "gpus", "usd_per_hour", "idle_usd_per_hour"} <= set(shown)
    assert fit(NODE_COLUMNS, 197)[1] == 0


def test_the_narrowest_screens_still_show_the_name() -> None:
    assert [column.id for column, _ in fit(NODE_COLUMNS, 17)[0]] == ["state", "node"]
    assert [column.id for column, _ in fit(NODE_COLUMNS, 5)[0]] == ["node"]


@pytest.mark.parametrize("width", [40, 60, 77, 117])
def test_the_sets_together_show_every_column_and_each_keeps_the_name(width: int) -> None:
    sets = column_sets(NODE_COLUMNS, width)
    seen = {column.id for shown in sets for column, _ in shown}
    assert seen == set(BY_ID)
    assert all("node" in {column.id for column, _ in shown} for shown in sets)


def test_where_all_fits_there_is_one_set() -> None:
    assert len(column_sets(NODE_COLUMNS, 200)) == 1


@pytest.mark.parametrize("column", NODE_COLUMNS, ids=lambda column: column.id)
def test_unknown_values_are_last_in_both_directions_and_the_order_does_not_depend_on_the_one_before(column: object) -> None:
    fleet = small_fleet()
    for descending in (False, True):
        orders = set()
        for seed in range(5):
            rows = list(fleet)
            random.Random(seed).shuffle(rows)
            ordered = sort_rows(rows, column, NOW, descending=descending, tie=lambda view: view.name)  # type: ignore[arg-type]
            orders.add(tuple(view.name for view in ordered))
            values = [column.value(view, NOW) for view in ordered]  # type: ignore[attr-defined]
            known = [value for value in values if value is not None]
            assert values[: len(known)] == known
        assert len(orders) == 1


def test_every_text_of_every_column_is_a_string_for_every_kind_of_node() -> None:
    for view in small_fleet():
        for column in NODE_COLUMNS:
            assert isinstance(column.text(view, NOW), str)


def test_gpu_bars_tell_lost_idle_and_not_known_apart_without_colour() -> None:
    fleet = small_fleet()
    assert strip_text(fleet["v100-broken"].uses)[-1] == "✗"
    assert strip_text(fleet["a100-half"].uses)[4:] == "○○○○"
    assert strip_text(fleet["cpu-head"].uses) == "–"


def test_a_live_node_is_heard_now_and_an_old_one_says_its_age() -> None:
    fleet = small_fleet()
    assert age_text(fleet["a100-busy"], NOW + 2) == "now"
    assert age_text(fleet["t4-stale"], NOW) == "8s"
    assert age_text(fleet["h100-gone"], NOW) == "3m"
    assert age_text(fleet["never"], NOW) == "–"


def test_sort_keys_are_ten_different_digits() -> None:
    keys = [column.sort_key for column in NODE_COLUMNS if column.sort_key]
    assert len(keys) == len(set(keys)) == 10 and all(key.isdigit() for key in keys)
