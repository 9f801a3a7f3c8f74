"""The trials of a sweep as its lines tell them."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tui.sweep_show import Gathering, Swept, config_text, metric_text, record


def line(**values: Any) -> str:
    return json.dumps(values)


def trial(number: int, state: str, **values: Any) -> str:
    return line(event="trial", trial=number, state=state, **values)


HEAD = line(event="sweep", name="rates", metric="loss", mode="min", trials=4, search="random", nodes=2)
LINES = [
    "Ray says something", HEAD, trial(1, "started", config={"lr": 0.1234567, "flip": True}, gpus=0.5),
    trial(1, "reported", step=3, metric=0.5, seconds=1.5, cost="0.01", node="a"),
    trial(2, "started", config={"lr": 0.9}, gpus=0.5), trial(2, "reported", step=3, metric=0.9, seconds=1.0, cost="0.02"),
    trial(2, "stopped early", step=4, metric=0.8, seconds=2.0, cost="0.03"),
    trial(3, "started", config={"lr": 0.2}), trial(3, "failed", why="exit 1: no data"), '{"event": "trial", "trial": "x"}', '{"event": ',
]  # fmt: skip


def gathered(lines: list[str]) -> Swept:
    gathering = Gathering()
    gathering.feed(lines)
    return gathering.result()


def test_a_trial_is_what_its_lines_have_told_so_far() -> None:
    swept = gathered(LINES)
    one, two, three = swept.trials
    assert (one.state, one.runs, one.step, one.metric, one.cost, one.node) == ("reported", True, 3, 0.5, Decimal("0.01"), "a")
    assert (two.state, two.runs, two.metric, two.cost) == ("stopped early", False, 0.8, Decimal("0.03"))
    assert (three.state, three.why, three.metric, metric_text(three)) == ("failed", "exit 1: no data", None, "–")
    assert (swept.best, swept.over, swept.command, swept.wanted, swept.nodes) == (1, False, None, 4, 2)
    assert config_text(one) == "lr 0.123457  flip true"


def test_the_end_names_the_best_and_what_the_trials_did_not_cost_is_idle() -> None:
    end = [line(event="best", trial=2, metric=0.8, command="rackrate run"), line(event="swept", trials=3, stopped=None, why="money")]
    swept = gathered([*LINES, *end])
    assert (swept.best, swept.command, swept.over, swept.why) == (2, "rackrate run", True, "money")
    assert swept.trials_cost == Decimal("0.04") and swept.idle(Decimal("0.1")) == Decimal("0.06")
    assert swept.idle(None) is None and gathered([HEAD]).idle(Decimal(1)) is None
    shown = record(swept, Decimal("0.1"))
    assert (shown["job_cost"], shown["idle_cost"]) == ("0.1", "0.06") and [one["best"] for one in shown["trials"]] == [False, True, False]


def test_what_trials_cost_in_jobs_before_this_one_is_no_part_of_it() -> None:
    swept = gathered([*LINES, trial(2, "ended", cost="0.05", earlier="0.03"), trial(4, "ended", cost="0.02", earlier="0.02", kept=True)])
    assert (swept.trials_cost, swept.earlier_cost) == (Decimal("0.03"), Decimal("0.05"))
    assert swept.idle(Decimal("0.1")) == Decimal("0.07") and record(swept, Decimal("0.1"))["trials"][1]["earlier"] == "0.03"


def test_a_sweep_that_goes_on_is_not_over_and_a_higher_metric_wins_where_it_should() -> None:
    again = [line(event="swept", stopped="a soft stop"), HEAD.replace('"min"', '"max"')]
    swept = gathered([*LINES, *again])
    assert (swept.over, swept.stopped, swept.best) == (False, None, 2)


@given(st.lists(st.one_of(st.sampled_from(LINES), st.text().map(lambda text: '{"event"' + text), st.text())))
def test_any_lines_are_taken(lines: list[str]) -> None:
    record(gathered(lines), Decimal(1))
