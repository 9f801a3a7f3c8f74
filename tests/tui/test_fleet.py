"""The fleet's live state: ages, money, what changed."""

from __future__ import annotations

import random
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent import wire
from tests.support.fleets import AT, NOW, StubCatalog, alert, gpu, idle_gpu, info, lost_gpu, put, sample, small_fleet
from tui.fleet import LOST_SECONDS, STALE_SECONDS, Fleet, NodeView, gpu_use
from tui.past import POINTS, Past


def one(gpus: tuple[wire.Gpu, ...], **fields: object) -> NodeView:
    fleet = Fleet(StubCatalog())  # type: ignore[arg-type]
    put(fleet, "n", gpus, **fields)  # type: ignore[arg-type]
    return fleet["n"]


def test_a_node_is_live_then_stale_then_lost_by_the_age_of_its_sample() -> None:
    view = one((gpu(0),))
    assert view.state(NOW) == "live"
    assert view.state(NOW + STALE_SECONDS) == "live"
    assert view.state(NOW + STALE_SECONDS + 0.1) == "stale"
    assert view.state(NOW + LOST_SECONDS + 0.1) == "lost"
    assert view.gpus, "the last values stay"


def test_a_node_never_heard_is_connecting_until_an_error_makes_it_lost() -> None:
    fleet = Fleet()
    fleet.add("n", "http://x")
    assert fleet["n"].state(NOW) == "connecting"
    assert fleet.failed("n", "refused") == {"n"}
    assert fleet["n"].state(NOW) == "lost"


def test_the_same_error_again_is_no_change() -> None:
    fleet = Fleet()
    fleet.add("n", "http://x")
    fleet.failed("n", "refused")
    assert fleet.failed("n", "refused") == set()
    assert fleet.failed("n", "time-out") == {"n"}


def test_idle_money_is_the_part_of_gpus_that_nobody_holds_or_that_are_lost() -> None:
    view = one((gpu(0), idle_gpu(1), lost_gpu(2)), instance_type="x", usd_per_hour="10")
    assert view.idle_usd_per_hour == Fraction(20, 3)


def test_a_gpu_that_a_job_has_is_held_and_not_idle_though_no_process_uses_it() -> None:
    given = wire.GpuAllocation(job="abc123", user="ada", project="vision", share=Decimal("0.5"))
    view = one((msgspec.structs.replace(idle_gpu(0), allocations=(given,)), idle_gpu(1)))
    assert [(use.held, use.wasted, use.users) for use in view.uses] == [(True, False, ("ada",)), (False, True, ())]
    assert (view.use.held, view.use.wasted) == (1, 1)


def test_a_gpu_whose_holders_the_driver_does_not_tell_is_not_idle() -> None:
    use = gpu_use(gpu(0, users=None, util=0.0))
    assert use.held is None and not use.wasted
    assert one((gpu(0, users=None),)).idle_usd_per_hour == 0


def test_a_node_whose_type_has_gpus_but_reads_none_is_idle_as_a_whole() -> None:
    view = one((), gpu_reason="no driver")
    assert view.idle_usd_per_hour == view.usd_per_hour == Fraction("32.7726")


def test_an_unknown_price_is_none_with_a_reason_and_adds_nothing() -> None:
    fleet = small_fleet()
    mystery = fleet["mystery"]
    assert mystery.usd_per_hour is None and mystery.idle_usd_per_hour is None
    assert "x9.unheard" in (mystery.price_reason or "")
    totals = fleet.totals(NOW, ["mystery", "cpu-head"])
    assert totals.usd_per_hour == Fraction("0.68") and totals.unpriced == 1


def test_a_price_in_another_currency_is_unknown_and_says_so() -> None:
    class Yuan(StubCatalog):
        def quote(self, *place: object, **configured: object) -> object:
            quote = super().quote(*place, **configured)
            quote.price.currency = "CNY"
            return quote

    fleet = Fleet(Yuan())  # type: ignore[arg-type]
    put(fleet, "n", (gpu(0),))
    assert fleet["n"].usd_per_hour is None
    assert "CNY" in (fleet["n"].price_reason or "")


def test_prices_that_come_after_the_samples_are_applied_to_all() -> None:
    fleet = Fleet()
    put(fleet, "n", (gpu(0), idle_gpu(1)))
    assert fleet["n"].usd_per_hour is None and fleet["n"].price_reason is None
    assert fleet.set_catalog(StubCatalog()) == {"n"}  # type: ignore[arg-type]
    assert fleet["n"].idle_usd_per_hour == Fraction("32.7726") / 2


def test_totals_count_states_gpus_and_alerts() -> None:
    totals = small_fleet().totals(NOW)
    assert (totals.nodes, totals.live, totals.stale, totals.lost) == (8, 5, 1, 1)
    assert (totals.gpus, totals.gpus_held, totals.gpus_lost) == (33, 27, 1)
    assert totals.alerts == 2, "one of an agent, and a silent node"


@given(
    st.lists(
        st.tuples(st.integers(1, 9), st.sampled_from(["held", "idle", "lost"]), st.sampled_from(["0.1", "24.48", "3.07"])),
        max_size=12,
    )
)
def test_the_sum_of_nodes_is_exactly_the_sum_of_their_prices(nodes: list[tuple[int, str, str]]) -> None:
    make = {"held": gpu, "idle": idle_gpu, "lost": lost_gpu}
    fleet = Fleet(StubCatalog())  # type: ignore[arg-type]
    for number, (count, kind, price) in enumerate(nodes):
        gpus = (gpu(0), *(make[kind](i) for i in range(1, count)))
        put(fleet, f"n{number}", gpus, instance_type="own", usd_per_hour=price)
    totals = fleet.totals(NOW)
    assert totals.usd_per_hour == sum((Fraction(price) for _, _, price in nodes), Fraction(0))
    assert totals.idle_usd_per_hour == sum((view.idle_usd_per_hour or 0 for view in fleet), Fraction(0))


def test_totals_of_parts_add_up_to_the_whole() -> None:
    fleet = small_fleet()
    names = [view.name for view in fleet]
    random.Random(3).shuffle(names)
    left, right = fleet.totals(NOW, names[:3]), fleet.totals(NOW, names[3:])
    whole = fleet.totals(NOW)
    assert left.usd_per_hour + right.usd_per_hour == whole.usd_per_hour
    assert left.idle_usd_per_hour + right.idle_usd_per_hour == whole.idle_usd_per_hour
    assert left.gpus + right.gpus == whole.gpus


def test_an_alert_stays_until_it_ends_and_a_new_connection_starts_afresh() -> None:
    fleet = Fleet(StubCatalog())  # type: ignore[arg-type]
    put(fleet, "n", (gpu(0),))
    fleet.apply("n", wire.AlertEvent(alert=alert("n")), NOW)
    assert len(fleet["n"].alerts) == 1
    fleet.apply("n", wire.AlertEvent(alert=msgspec.structs.replace(alert("n"), ended_at=AT)), NOW)
    assert not fleet["n"].alerts
    fleet.apply("n", wire.AlertEvent(alert=alert("n")), NOW)
    fleet.apply("n", wire.NodeEvent(node=info("n", (gpu(0),))), NOW)
    assert not fleet["n"].alerts


def test_a_sample_after_an_error_clears_it() -> None:
    fleet = small_fleet()
    assert fleet["h100-gone"].error
    fleet.apply("h100-gone", wire.SampleEvent(sample=sample("h100-gone", (gpu(0),))), NOW)
    assert fleet["h100-gone"].error is None and fleet["h100-gone"].state(NOW) == "live"


# -- the past ------------------------------------------------------------------------------------------------


def test_the_past_keeps_the_newest_points_and_not_known_is_none() -> None:
    past = Past()
    for value in range(POINTS + 200):
        past.add((gpu(0, util=None if value % 2 else value % 100 / 100), gpu(1, util=0.5)))
    newest = past.values("GPU-n-0")
    assert len(newest) == POINTS
    assert newest[-2:] == [(POINTS + 198) % 100 / 100, None]
    assert past.known("GPU-n-0") == POINTS // 2 and past.known("GPU-n-1") == POINTS
    assert past.values("GPU-unheard") == []


def test_gpus_that_come_and_go_keep_their_own_past() -> None:
    past = Past()
    past.add((gpu(0, util=0.1), gpu(1, util=0.2)))
    past.add((gpu(1, util=0.3),))
    past.add((gpu(2, util=0.4), gpu(1, util=0.5)))
    assert past.values("GPU-n-1") == [0.2, 0.3, 0.5]
    assert past.values("GPU-n-2") == [None, None, 0.4]


def test_a_past_seeded_by_the_agent_is_placed_by_time_and_replaces_only_less() -> None:
    past = Past()
    past.add((gpu(0, util=0.9),))
    points = tuple(
        wire.HistoryPoint(taken_at=AT - timedelta(seconds=second), utilization_ratio=second / 100) for second in (4, 3, 1, 0)
    )
    assert past.seed(wire.History(node="n", step_seconds=1.0, gpus={"GPU-n-0": points, "GPU-other": points}))
    assert past.values("GPU-n-0", 5) == [0.04, 0.03, None, 0.01, 0.0]
    assert not past.seed(wire.History(node="n", step_seconds=1.0, gpus={"GPU-n-0": points[:1]}))


@pytest.mark.parametrize("count", [0, 1])
def test_a_node_without_gpus_has_an_empty_past(count: int) -> None:
    past = Past()
    for _ in range(count):
        past.add(())
    assert past.values("GPU-n-0") == []


def test_when_a_node_counts_as_lost_can_be_set() -> None:
    fleet = Fleet(silent_seconds=60)
    view = fleet.add("n1", "http://x")
    view.heard_at = NOW
    assert view.state(NOW + 59) == "stale"
    assert view.state(NOW + 61) == "lost"
