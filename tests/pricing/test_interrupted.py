"""Spot nodes that their cloud took back: AWS does not bill the first hour; everything else is billed by the second."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from fractions import Fraction
from random import Random

import pytest

from pricing import closing
from pricing.attribution import attribute
from pricing.calendar import instant, milliseconds
from pricing.ledger import Ledger
from pricing.rates import Pricing
from pricing.report import Report
from pricing.terms import Terms
from pricing.usage import Interruption, Placed, Usage
from tests.support.usage import HOUR_MS, PriceList, random_record, take_all

T0 = milliseconds(datetime(2026, 3, 1, 12, tzinfo=UTC))
MINUTE = 60_000
PRICE = Fraction("3.06")
KEYS = ("", "job", "user", "node", "purchase", "day", "tag:team")


def placed(number: int = 1, cloud: str = "aws", purchase: str = "spot", gpus: int = 2) -> Placed:
    return Placed(number, "spot-1", cloud, "here", None, "gpu_box", purchase, "3.06", None, gpus, "T4", {"team": "red"})


def minutes(first: int, last: int, sequence: int = 1, placement: int = 1) -> list[Usage]:
    """GPU 0 is ann's, GPU 1 idle, minute by minute from T0."""
    rows = []
    for minute in range(first, last):
        starts = T0 + minute * MINUTE
        for gpu, kind, user in (("g0", "held", "ann"), ("g1", "idle", None)):
            rows.append(
                Usage(sequence + len(rows), starts, starts + MINUTE, gpu, kind, None, 10**6, user, None, user and "j1", 0.5, 1000, "counter", placement)
            )
    return rows


def interrupted(at_minute: int, booted_minute: int | None = -1, number: int = 1, cloud: str = "aws", **more: object) -> Interruption:
    booted = None if booted_minute is None else T0 + booted_minute * MINUTE
    at = T0 + at_minute * MINUTE
    return Interruption(number, cloud, str(more.get("kind", "terminate")), at - 2 * MINUTE, at, booted, bool(more.get("withdrawn")))


def report(ledger: Ledger, by: str = "", until: int = 10 * 60, first: int = -60) -> Report:
    found = attribute(ledger, PriceList(), instant(T0 + first * MINUTE), instant(T0 + until * MINUTE), by)  # type: ignore[arg-type]
    assert sum((row.total_cost or 0 for row in found.rows), Fraction(0)) == (found.totals.total_cost or 0)
    return found


def taken(*interruptions: Interruption, ran: int = 40, what: Placed | None = None) -> Ledger:
    ledger = Ledger.open(":memory:")
    ledger.take("spot-1", "m1", minutes(0, ran), [what or placed()], 1, interruptions=interruptions)
    return ledger


@pytest.mark.parametrize("by", KEYS)
def test_what_aws_interrupts_in_its_first_hour_is_free_in_every_grouping(by: str) -> None:
    with taken(interrupted(40)) as ledger:
        found = report(ledger, by)
        assert found.totals.total_cost == 0 == found.totals.list_cost == found.totals.allocated_unused_cost
        assert all(row.total_cost == 0 for row in found.rows) and found.unpriced == ()
        assert found.totals.held_share_ms == found.totals.idle_share_ms == 40 * MINUTE * 10**6
        assert found.notes == (
            "node spot-1: aws terminated it at 2026-03-01 12:40 UTC, 41 minutes after its start; that time is not billed and "
            "costs nothing.",
        )  # fmt: skip


BILLED = {
    "its user stopped it": (taken, ()),
    "after its first hour": (lambda: taken(interrupted(60)), ()),
    "the cloud took the notice back": (lambda: taken(interrupted(40, withdrawn=True)), ()),
    "when it started is not known": (lambda: taken(interrupted(40, None)), ()),
    "on demand": (lambda: taken(interrupted(40), what=placed(purchase="on_demand")), ()),
    "another cloud's rules": (lambda: taken(interrupted(40, cloud="gcp"), what=placed(cloud="gcp")), ()),
}


@pytest.mark.parametrize("case", BILLED)
def test_all_else_is_billed_for_the_time_it_ran(case: str) -> None:
    make, notes = BILLED[case]
    with make() as ledger:
        found = report(ledger)
        assert found.totals.total_cost == PRICE * Fraction(40, 60) and found.notes == notes


def test_exactly_an_hour_is_billed_and_a_millisecond_less_is_not() -> None:
    for short, cost in ((0, PRICE), (1, 0)):
        one = interrupted(60, 0)
        with taken(one._replace(at_ms=one.at_ms - short), ran=60) as ledger:
            assert report(ledger).totals.total_cost == cost


def test_a_machine_that_was_stopped_and_came_back_is_billed_for_its_second_run_only() -> None:
    with taken(interrupted(40, kind="stop")) as ledger:
        ledger.take("spot-1", "m1", minutes(100, 130, 81), [placed()], 1)
        assert report(ledger).totals.total_cost == PRICE / 2
        assert report(ledger, first=20, until=120).totals.total_cost == PRICE / 3  # a range that cuts both


def test_days_and_cut_ranges_sum_to_the_whole() -> None:
    late = T0 + 11 * HOUR_MS + 30 * MINUTE  # half an hour before midnight
    with Ledger.open(":memory:") as ledger:
        shift = late - T0
        rows = [row._replace(starts_ms=row.starts_ms + shift, ends_ms=row.ends_ms + shift) for row in minutes(0, 90)]
        one = Interruption(1, "aws", "terminate", late, late + 45 * MINUTE, late - MINUTE, False)
        ledger.take("spot-1", "m1", rows, [placed()], 1, interruptions=[one])
        by_day = report(ledger, "day", until=48 * 60)
        # the 15 + 2 minutes after midnight until it is gone are free, the 43 after that are another matter
        assert [row.total_cost for row in by_day.rows] == [0, PRICE * Fraction(43, 60)]


def test_an_interruption_that_is_told_again_changes_what_is_known_of_it() -> None:
    with taken(interrupted(40)) as ledger:
        assert report(ledger).totals.total_cost == 0
        ledger.take("spot-1", "m1", [], [], 1, interruptions=[interrupted(40, withdrawn=True)])
        assert report(ledger).totals.total_cost == PRICE * Fraction(40, 60)


def test_prices_that_nobody_knows_stay_unknown() -> None:
    with taken(interrupted(40), what=placed()._replace(usd_per_hour=None)) as ledger:
        found = report(ledger)
        assert found.totals.total_cost is None and len(found.unpriced) == 1


def test_a_notice_that_comes_after_the_month_was_closed_is_a_correction() -> None:
    with taken() as ledger:
        now, pricing = datetime(2026, 4, 2, tzinfo=UTC), Pricing(PriceList())  # type: ignore[arg-type]
        assert closing.close(ledger, pricing, "2026-03", now).cost == PRICE * Fraction(40, 60)
        assert closing.notice(ledger, pricing, now) == []
        ledger.take("spot-1", "m1", [], [], 1, interruptions=[interrupted(40)])
        (noticed,) = closing.notice(ledger, pricing, now + timedelta(hours=1))
        assert noticed.cost == -PRICE * Fraction(40, 60) and noticed.corrections == 2
        assert closing.notice(ledger, pricing, now + timedelta(hours=2)) == []
        both = attribute(ledger, PriceList(), datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 5, 1, tzinfo=UTC))  # type: ignore[arg-type]
        assert both.totals.total_cost == 0


def test_a_month_that_is_closed_with_an_interruption_keeps_it_free() -> None:
    with taken(interrupted(40)) as ledger:
        now, pricing = datetime(2026, 4, 2, tzinfo=UTC), Pricing(PriceList())  # type: ignore[arg-type]
        assert closing.close(ledger, pricing, "2026-03", now).cost == 0
        assert closing.notice(ledger, pricing, now) == []
        march = attribute(ledger, PriceList(), datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 4, 1, tzinfo=UTC), "user")  # type: ignore[arg-type]
        assert march.totals.total_cost == 0 and march.totals.held_share_ms == 40 * MINUTE * 10**6


def test_minimums_are_not_counted_on_top_of_what_is_free() -> None:
    with taken(interrupted(0, -1), ran=1) as ledger:
        terms = Terms(count_minimum=True)
        found = attribute(ledger, PriceList(), instant(T0), instant(T0 + HOUR_MS), terms=terms)  # type: ignore[arg-type]
        assert found.totals.total_cost == 0


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("by", ["job", "day", "node"])
def test_whatever_is_free_groupings_add_up_and_the_rest_is_as_it_was(seed: int, by: str) -> None:
    rng = Random(seed)
    with Ledger.open(":memory:") as ledger:
        for number in range(4):
            take_all(ledger, random_record(rng, f"n{number}", T0))
        span = instant(T0 - 24 * HOUR_MS), instant(T0 + 40 * 24 * HOUR_MS)
        before = attribute(ledger, PriceList(), *span, "node")  # type: ignore[arg-type]
        at = T0 + rng.randrange(4 * HOUR_MS)
        ledger.take("n0", "meter-n0", [], [], 1, interruptions=[Interruption(1, "aws", "stop", at, at, at - 50 * MINUTE)])
        found, after = (attribute(ledger, PriceList(), *span, key) for key in (by, "node"))  # type: ignore[arg-type]
        assert sum((row.total_cost or 0 for row in found.rows), Fraction(0)) == (found.totals.total_cost or 0)
        costs = [{row.keys[0]: row.total_cost for row in one.rows} for one in (before, after)]
        assert all((costs[1][name] or 0) <= (cost or 0) for name, cost in costs[0].items())
        assert all(costs[1][name] == cost for name, cost in costs[0].items() if name != "n0")


@pytest.mark.parametrize("by", ["", "user", "purchase", "day"])
def test_one_of_many_nodes_that_a_report_cannot_tell_apart_is_free(by: str) -> None:
    with Ledger.open(":memory:") as ledger:
        for number in range(60):
            name = f"spot-{number}"
            rows = [row._replace(gpu=f"{name}-{row.gpu}") for row in minutes(0, 40)]
            told = [interrupted(40)] if number == 7 else []
            ledger.take(name, "m1", rows, [placed()._replace(node=name)], 1, interruptions=told)
        found = report(ledger, by)
        assert found.totals.total_cost == 59 * PRICE * Fraction(40, 60)
        assert found.totals.held_share_ms == 60 * 40 * MINUTE * 10**6
