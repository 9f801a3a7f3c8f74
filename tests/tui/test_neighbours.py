"""Two columns side by side are two: a number at the right edge of one never runs into a number at the left edge of the next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from agent import wire
from tests.support.fleets import AT, NOW, alert, small_fleet
from tests.support.jobs import with_jobs
from tui.columns import FLEET_COLUMNS, GPU_COLUMNS, NODE_COLUMNS, Column, GpuRow, fit
from tui.events import EventLog, EventLook
from tui.job_rows import JOB_COLUMNS
from tui.ui.screens.alerts import ALERT_COLUMNS, AlertRow
from tui.ui.widgets.events_table import EVENT_COLUMNS


def _events() -> list[EventLook]:
    log = EventLog()
    log.look(with_jobs(small_fleet()), NOW, AT)
    return [EventLook(event, AT) for event in log]


def _alerts() -> list[AlertRow]:
    readings = ("0 %", "88 °C", "3.2 GB", "silent for 3m")
    return [AlertRow(alert("gpu-01", reading=reading, threshold="15 s", message="3 minutes"), "0", AT) for reading in readings]


def _rows(name: str) -> tuple[tuple[Column, ...], Sequence[Any]]:
    fleet = with_jobs(small_fleet())
    match name:
        case "nodes":
            return NODE_COLUMNS, list(fleet)
        case "fleet":
            return FLEET_COLUMNS, list(fleet)
        case "gpus":
            return GPU_COLUMNS, [GpuRow(view, use) for view in fleet for use in view.uses]
        case "jobs":
            return JOB_COLUMNS, list(fleet.jobs())
        case "events":
            return EVENT_COLUMNS, _events()
    return ALERT_COLUMNS, _alerts()


@pytest.mark.parametrize("name", ["nodes", "fleet", "gpus", "jobs", "events", "alerts"])
def test_no_number_at_the_right_edge_stands_before_one_at_the_left_edge(name: str) -> None:
    columns, rows = _rows(name)
    assert rows
    pairs = {
        (left.id, right.id): (left, right)
        for width in range(20, 260)
        for shown in [[column for column, _ in fit(columns, width)[0]]]
        for left, right in zip(shown, shown[1:], strict=False)
        if left.align == "right" and right.align == "left"
    }
    for left, right in pairs.values():
        for row in rows:
            assert not right.text(row, NOW)[:1].isdigit(), f"{left.title} {right.title}: {left.text(row, NOW)} {right.text(row, NOW)}"


def test_an_alert_of_a_gpu_can_be_read_at_80_columns() -> None:
    row = AlertRow(wire.Alert(key="k", rule="gpu_idle", severity="warning", node="gpu-01", gpu="GPU-0", message="idle", reading="0 %",
                              since=AT, fired_at=AT), "0", AT)  # fmt: skip
    by_id = {column.id: (column, cells) for column, cells in fit(ALERT_COLUMNS, 78)[0]}
    assert by_id["gpu"][0].align == by_id["reading"][0].align == "left"
    assert by_id["gpu"][0].text(row, NOW) == "0" and by_id["reading"][0].text(row, NOW) == "0 %"
