"""Money adds up: for random usage and prices, for every grouping, for every way to cut time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import combinations
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pricing.attribution import attribute, cost_summary
from pricing.calendar import days, instant, milliseconds, parse_range
from pricing.catalog import Catalog
from pricing.errors import BadGrouping, BadRange
from pricing.grouping import KEYS, parse_by
from pricing.ledger import Ledger
from pricing.money import PerHour
from pricing.report import Report, Row
from pricing.usage import WHOLE_SHARE, Owned, Placed, Usage
from tests.support.examples import examples
from tests.support.usage import HOUR_MS, PriceList, Record, plain_costs, random_record, take_all

START = datetime(2026, 3, 28, 21, 17, 3, 141000, tzinfo=UTC)
START_MS = milliseconds(START)
LONG_AGO, FAR_AHEAD = datetime(2020, 1, 1, tzinfo=UTC), datetime(2030, 1, 1, tzinfo=UTC)
ALL_KEYS = (*KEYS, "tag:team")
SEEDS = st.integers(0, 2**32)
SOME_KEYS = st.lists(st.sampled_from(ALL_KEYS), unique=True)


@contextmanager
def fleet(seed: int, *, priced: bool = True) -> Iterator[tuple[Ledger, list[Record]]]:
    rng = Random(seed)
    records = [random_record(rng, f"node-{n}", START_MS, priced=priced) for n in range(rng.randrange(1, 4))]
    with Ledger.open(":memory:") as ledger:
        for record in records:
            take_all(ledger, record)
        yield ledger, records


def costs_by_node(report: Report) -> dict[str, Fraction]:
    place = report.group_by.index("node")
    costs: defaultdict[str, Fraction] = defaultdict(Fraction)
    for row in report.rows:
        if row.total_cost is not None:
            costs[row.keys[place]] += row.total_cost
    return {node: cost for node, cost in costs.items() if cost}


def assert_adds_up(report: Report, expected: dict[str, Fraction]) -> None:
    known = [row for row in report.rows if row.total_cost is not None]
    for row in known:
        assert row.allocated_cost is not None and row.idle_cost is not None
        assert row.allocated_cost + row.idle_cost == row.total_cost
        assert row.allocated_cost >= 0 and row.idle_cost >= 0
    assert sum((row.total_cost or Fraction(0) for row in known), Fraction(0)) == sum(expected.values(), Fraction(0))
    if known or not report.rows:
        assert report.totals.total_cost == sum(expected.values(), Fraction(0))
    if "node" in report.group_by:
        assert costs_by_node(report) == {node: cost for node, cost in expected.items() if cost}


def times(range_ms: tuple[float, float], records: Sequence[Record]) -> tuple[datetime, datetime]:
    """A range somewhere within the time of the records."""
    end_ms = max(row.ends_ms for record in records for row in record.rows)
    first, second = sorted(START_MS + round((end_ms - START_MS) * part) for part in range_ms)
    return instant(first), instant(second + 1)


@settings(max_examples=examples(150), deadline=None)
@given(SEEDS, SOME_KEYS, st.tuples(st.floats(0, 1), st.floats(0, 1)), st.booleans())
def test_allocated_and_idle_are_price_times_covered_time_for_any_grouping_and_range(
    seed: int, by: list[str], part: tuple[float, float], priced: bool
) -> None:
    with fleet(seed, priced=priced) as (ledger, records):
        start, end = times(part, records)
        report = attribute(ledger, PriceList(), start, end, by, tz="Europe/Berlin")
        assert_adds_up(report, plain_costs(records, milliseconds(start), milliseconds(end)))
        assert report.complete == (not report.unpriced)


def test_every_grouping_adds_up() -> None:
    with fleet(6) as (ledger, records):
        expected = plain_costs(records, 0, 2**62)
        assert len(expected) > 1
        groupings = [by for count in range(len(ALL_KEYS) + 1) for by in combinations(ALL_KEYS, count)]
        assert len(groupings) == 2 ** len(ALL_KEYS)
        for by in groupings:
            assert_adds_up(attribute(ledger, PriceList(), LONG_AGO, FAR_AHEAD, by), expected)


CHANGES = [
    ("Europe/Berlin", "2026-03-27", "2026-04-01", [24, 24, 23, 24, 24]),
    ("Europe/Berlin", "2026-10-24", "2026-10-27", [24, 25, 24]),
    ("America/New_York", "2026-03-07", "2026-03-10", [24, 23, 24]),
    ("America/New_York", "2026-10-31", "2026-11-03", [24, 25, 24]),
    ("Asia/Kolkata", "2026-03-27", "2026-03-30", [24, 24, 24]),
    ("UTC", "2026-03-28", "2026-03-31", [24, 24, 24]),
]


@pytest.mark.parametrize(("tz", "first", "last", "hours"), CHANGES)
def test_the_days_of_a_range_add_up_to_it_over_a_clock_change(tz: str, first: str, last: str, hours: list[int]) -> None:
    start, end = parse_range(first, last, tz=tz, now=START)
    spans = list(days(start, end, tz))
    assert [(day.end - day.start) / timedelta(hours=1) for day in spans] == hours
    row = Usage(
        1, milliseconds(start) - 5, milliseconds(end) + 7, "GPU-0", "held", None, WHOLE_SHARE, "ann", None, None,
        0.37, 10**9 + 1, "counter", 1,
    )  # fmt: skip
    with Ledger.open(":memory:") as ledger:
        ledger.take("node", "meter", [row], [Placed(1, "node", usd_per_hour="3.0731", gpu_count=1)], 1)
        whole = attribute(ledger, PriceList(), start, end, tz=tz).totals
        by_day = attribute(ledger, PriceList(), start, end, "day", tz=tz)
        alone = [attribute(ledger, PriceList(), day.start, day.end, tz=tz).totals for day in spans]
    assert [row.keys for row in by_day.rows] == [(day.label,) for day in spans]
    assert [row.gpu_hours for row in by_day.rows] == hours
    assert [row.total_cost for row in by_day.rows] == [Fraction("3.0731") * hour for hour in hours]
    assert amounts(by_day.totals) == amounts(whole) == [sum(column) for column in zip(*map(amounts, alone), strict=True)]


def amounts(row: Row) -> list[int | Fraction]:
    """What adds up, all of it exact."""
    assert row.allocated_cost is not None and row.idle_cost is not None
    return [
        row.held_share_ms, row.idle_share_ms, row.busy, row.measured_share_ms, row.energy_mj or 0,
        row.allocated_cost, row.idle_cost,
    ]  # fmt: skip


@settings(max_examples=examples(80), deadline=None)
@given(SEEDS, st.lists(st.floats(0, 1), max_size=6), st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kolkata"]))
def test_the_parts_of_a_range_add_up_to_it_in_everything(seed: int, cuts: list[float], tz: str) -> None:
    with fleet(seed) as (ledger, records):
        start, end = times((0.0, 1.0), records)
        edges = sorted({start, end, *(times((cut, cut), records)[0] for cut in cuts)})
        parts = [
            amounts(attribute(ledger, PriceList(), one, two, tz=tz).totals)
            for one, two in zip(edges, edges[1:], strict=False)
            if one < two
        ]
        whole = attribute(ledger, PriceList(), start, end, "day", tz=tz).totals
        assert [sum(column) for column in zip(*parts, strict=True)] == amounts(whole)


@settings(max_examples=examples(60), deadline=None)
@given(SEEDS, st.integers(0, 2**32), SOME_KEYS)
def test_rows_cut_at_any_point_cost_the_same(seed: int, cutting: int, by: list[str]) -> None:
    with fleet(seed) as (ledger, records), Ledger.open(":memory:") as cut:
        for record in records:
            take_all(cut, record._replace(rows=cut_rows(record.rows, Random(cutting))))
        assert cut.check() == ledger.check() == []
        before, after = (attribute(one, PriceList(), LONG_AGO, FAR_AHEAD, by) for one in (ledger, cut))
        for one, two in zip(before.rows, after.rows, strict=True):
            assert (one.keys, one.allocated_cost, one.idle_cost) == (two.keys, two.allocated_cost, two.idle_cost)
            assert (one.held_share_ms, one.idle_share_ms) == (two.held_share_ms, two.idle_share_ms)
            rounding = 1e-6 + 50 / max(1, one.measured_share_ms)  # each row's busy time is a whole number
            assert (one.utilization_ratio or 0) == pytest.approx(two.utilization_ratio or 0, abs=rounding)
            assert (one.energy_mj or 0) == pytest.approx(two.energy_mj or 0, abs=len(records) * 100)  # a cut rounds to mJ
        assert before.totals.energy_mj == after.totals.energy_mj


def cut_rows(rows: Sequence[Usage], rng: Random) -> list[Usage]:
    """The same usage in more rows; the holders of one GPU are cut at the same moments."""
    pieces: list[Usage] = []
    points: dict[tuple[object, int], int] = {}
    for row in rows:
        length, energy = row.ends_ms - row.starts_ms, row.energy_millijoules
        point = points.setdefault((row.gpu, row.starts_ms), rng.randrange(length))
        if not point:
            pieces.append(row._replace(sequence=len(pieces) + 1))
            continue
        first = None if energy is None else energy * point // length
        rest = None if energy is None or first is None else energy - first
        middle = row.starts_ms + point
        pieces.append(row._replace(sequence=len(pieces) + 1, ends_ms=middle, energy_millijoules=first))
        pieces.append(row._replace(sequence=len(pieces) + 1, starts_ms=middle, energy_millijoules=rest))
    return pieces


def usage(sequence: int, kind: str, **changes: object) -> Usage:
    """A whole hour of one GPU, one after the other."""
    begin = START_MS // HOUR_MS * HOUR_MS + sequence * HOUR_MS
    whole = Usage(
        sequence, begin, begin + HOUR_MS, "GPU-0", kind, None, WHOLE_SHARE, None, None, None, None, None, None, 1
    )
    return whole._replace(**changes)


def report_of(rows: Sequence[Usage], placed: Placed, by: str, **options: object) -> Report:
    with Ledger.open(":memory:") as ledger:
        ledger.take(placed.node, "meter", rows, [placed], 1)
        return attribute(ledger, options.pop("catalog", PriceList()), LONG_AGO, FAR_AHEAD, by, **options)  # type: ignore[arg-type]


NODE = Placed(1, "node", "aws", None, None, "gpu_box", "spot", "8", None, 2, "T4", {"team": "red"})


def test_time_that_nobody_held_is_a_row_of_its_own_with_its_three_reasons_apart() -> None:
    rows = [
        usage(1, "held", user="ann", utilization_ratio=0.5, energy_millijoules=3_600_000_000, energy_source="counter"),
        usage(2, "held", user="ann", utilization_ratio=None), usage(3, "idle", utilization_ratio=0.0),
        usage(4, "lost"), usage(5, "down"), usage(6, "down"), usage(7, "held"),
    ]  # fmt: skip
    report = report_of(rows, NODE, "user,project")
    ann, unknown, idle = report.rows
    assert (ann.keys, unknown.keys, idle.keys) == (("ann", "(none)"), ("(unknown)", "(none)"), ("(idle)", "(idle)"))
    assert (ann.gpu_hours, ann.allocated_cost, ann.idle_cost) == (2, 8, 0)
    assert (ann.utilization_ratio, ann.energy_kwh) == (0.5, 1)
    assert (unknown.allocated_cost, unknown.utilization_ratio, unknown.energy_kwh) == (4, None, None)
    assert (idle.idle_unallocated_cost, idle.idle_lost_cost, idle.idle_down_cost, idle.idle_cost) == (4, 4, 8, 16)
    assert (idle.gpu_hours, idle.idle_gpu_hours, idle.utilization_ratio) == (0, 4, None)
    assert (report.totals.total_cost, report.totals.unused_commitment_cost) == (28, 0)


def test_a_name_that_looks_like_our_label_is_shown_in_quotes() -> None:
    report = report_of([usage(1, "held", user="(idle)"), usage(2, "idle")], NODE, "user")
    assert [row.keys for row in report.rows] == [('"(idle)"',), ("(idle)",)]


def test_a_host_without_gpus_is_its_own_holder_and_one_that_lost_its_driver_is_idle() -> None:
    host = usage(1, "host", gpu=None)
    for instance_type, user, allocated, lost in (("cpu_box", "(host)", 8, 0), ("gpu_box", "(idle)", 0, 8), (None, "(host)", 8, 0)):
        (row,) = report_of([host], NODE._replace(instance_type=instance_type, gpu_count=0), "user").rows
        assert (row.keys, row.allocated_cost, row.idle_lost_cost) == ((user,), allocated, lost)
        assert (row.gpu_hours, row.idle_gpu_hours) == (0, 0)


def test_shares_of_one_gpu_split_its_price() -> None:
    rows = [
        usage(1, "held", user=user)._replace(sequence=place, share_millionths=share)
        for place, (user, share) in enumerate((("ann", 333_334), ("bob", 333_333), ("cho", 333_333)), 1)
    ]
    report = report_of(rows, NODE, "user")
    assert [row.allocated_cost for row in report.rows] == [Fraction(4 * share, 10**6) for share in (333_334, 333_333, 333_333)]
    assert report.totals.total_cost == 4


def test_an_unknown_price_is_named_and_never_counted_as_zero() -> None:
    placed = NODE._replace(usd_per_hour=None, instance_type="x9.huge")
    report = report_of([usage(1, "held", user="ann"), usage(2, "idle")], placed, "user")
    for row in (*report.rows, report.totals):
        assert (row.allocated_cost, row.idle_cost, row.unused_commitment_cost, row.total_cost) == (None,) * 4
        assert not row.complete
    assert report.totals.gpu_hours == 1
    assert report.unpriced == (
        "node node: 1.00 h have no price and are in no cost. No price for x9.huge: unknown instance type.",
    )


def test_a_sum_that_leaves_unpriced_time_out_says_that_it_is_partial() -> None:
    placements = [NODE, NODE._replace(number=2, usd_per_hour=None)]
    with Ledger.open(":memory:") as ledger:
        rows = [usage(1, "held", user="ann"), usage(2, "held", user="ann", placement=2), usage(3, "held", user="bob")]
        ledger.take("node", "meter", rows, placements, 1)
        report = attribute(ledger, PriceList(), LONG_AGO, FAR_AHEAD, ["user"])
    ann, bob = report.rows
    assert (ann.allocated_cost, ann.complete, ann.gpu_hours) == (4, False, 2)
    assert (bob.allocated_cost, bob.complete) == (4, True)
    assert (report.totals.total_cost, report.totals.complete, len(report.unpriced)) == (8, False, 1)


def test_a_price_in_another_currency_is_not_mixed_in() -> None:
    rows = [usage(1, "held", user="ann")]
    report = report_of(rows, NODE, "user", catalog=PriceList(currency="CNY"))
    assert report.totals.total_cost is None
    assert "Its price is in CNY, the report in USD, and no exchange rate is given." in report.unpriced[0]
    assert report_of(rows, NODE, "user", catalog=PriceList(currency="CNY"), currency="CNY").totals.total_cost == 4


def test_a_price_that_is_given_for_a_node_wins() -> None:
    report = report_of([usage(1, "idle")], NODE, "node", prices={"node": PerHour(Decimal(20))})
    assert report.totals.total_cost == 10


def test_gpu_rows_of_a_node_that_says_it_has_none_have_no_price() -> None:
    report = report_of([usage(1, "held", user="ann")], NODE._replace(gpu_count=0), "user")
    assert report.totals.total_cost is None and "says that it has none" in report.unpriced[0]


def test_the_catalogs_own_prices_and_owned_nodes_are_used() -> None:
    placed = NODE._replace(region="us-east-1", instance_type="p4d.24xlarge", purchase="on_demand", usd_per_hour="99", gpu_count=8)
    report = report_of([usage(1, "idle")], placed, "node", catalog=Catalog.embedded())
    assert report.totals.total_cost == Fraction("21.957642") / 8
    owned = NODE._replace(
        cloud="on_premises", usd_per_hour=None, gpu_count=1, on_premises=Owned(Decimal(35064), Decimal(4))
    )
    assert report_of([usage(1, "idle")], owned, "node", catalog=Catalog.embedded()).totals.total_cost == 1


def test_a_price_is_asked_for_once_for_all_nodes_alike() -> None:
    catalog = PriceList()
    with Ledger.open(":memory:") as ledger:
        for node in ("a", "b", "c"):
            ledger.take(node, node, [usage(1, "idle")], [NODE._replace(node=node)], 1)
        attribute(ledger, catalog, LONG_AGO, FAR_AHEAD, "node")
    assert catalog.asked == 1


def test_groups_carry_the_facts_of_the_placement() -> None:
    report = report_of([usage(1, "idle")], NODE, "node,gpu_model,cloud,region,instance_type,purchase,tag:team,tag:other,day")
    assert [row.keys for row in report.rows] == [
        ("node", "T4", "aws", "(unknown)", "gpu_box", "spot", "red", "(none)", "2026-03-28")
    ]


def test_an_empty_ledger_costs_nothing_and_is_complete() -> None:
    with Ledger.open(":memory:") as ledger:
        report = attribute(ledger, PriceList(), LONG_AGO, FAR_AHEAD, "day,user")
    assert (report.rows, report.totals.total_cost, report.complete) == ((), 0, True)


def test_usage_that_was_lost_before_a_sync_is_told_in_the_report_it_belongs_to() -> None:
    with Ledger.open(":memory:") as ledger:
        ledger.take("node", "meter", [usage(1, "idle")], [NODE], 1)
        ledger.take("node", "meter", [usage(9, "idle")], [NODE], 9)
        report = attribute(ledger, PriceList(), LONG_AGO, FAR_AHEAD)
        before = attribute(ledger, PriceList(), LONG_AGO, START)
    assert not report.complete and before.complete
    assert report.missing[0].startswith("node node: usage rows 2 to 8 were no longer kept")


def test_today_and_this_month_are_calendar_days_of_the_zone() -> None:
    rows = [usage(n, "held", user="ann") for n in range(1, 73)]
    now = START + timedelta(days=3)
    with Ledger.open(":memory:") as ledger:
        ledger.take("node", "meter", rows, [NODE], 1)
        for tz in ("UTC", "America/New_York"):
            today = next(day for day in days(START, now, tz) if day.end == now).start
            summary = cost_summary(ledger, PriceList(), now, tz)
            assert summary.today.totals == attribute(ledger, PriceList(), today, now, tz=tz).totals
            assert summary.month.totals == attribute(ledger, PriceList(), LONG_AGO, now, tz=tz).totals
        midnight = datetime(2026, 4, 1, tzinfo=UTC)
        assert cost_summary(ledger, PriceList(), midnight, "UTC").month.totals.total_cost == 0


@pytest.mark.parametrize(("by", "sentence"), [
    ("usr", "'usr' is nothing to group by .did you mean 'user'"), ("user,user", "given twice"), ("tag:", "'tag:' is nothing"),
])  # fmt: skip
def test_a_grouping_that_does_not_exist_is_named(by: str, sentence: str) -> None:
    with pytest.raises(BadGrouping, match=sentence):
        parse_by(by)


def test_a_range_without_length_or_zone_is_refused() -> None:
    with Ledger.open(":memory:") as ledger:
        for start, end in ((START, START), (START, START - timedelta(days=1)), (datetime(2026, 1, 1), START)):
            with pytest.raises(BadRange):
                attribute(ledger, PriceList(), start, end if start.tzinfo else datetime(2026, 2, 1))
        with pytest.raises(BadRange, match="no IANA time zone"):
            attribute(ledger, PriceList(), LONG_AGO, START, tz="Nowhere/Here")


def test_a_node_without_gpus_costs_its_price_also_while_its_agent_is_down() -> None:
    start = datetime(2026, 3, 1, 12, tzinfo=UTC)
    at = round(start.timestamp() * 1000)
    rows = [
        Usage(1, at, at + HOUR_MS, None, "host", None, 10**6, None, None, None, None, None, None, 1),
        Usage(2, at + HOUR_MS, at + 3 * HOUR_MS, None, "down", "agent_stopped", 10**6, None, None, None, None, None, None, 1),
    ]
    with Ledger.open(":memory:") as ledger:
        ledger.take("n1", "m1", rows, [Placed(1, "n1", instance_type="cpu_box", usd_per_hour="2")], 1)
        found = attribute(ledger, PriceList(), start, start + timedelta(hours=3), "user")  # type: ignore[arg-type]
    assert {row.keys[0]: row.total_cost for row in found.rows} == {"(host)": 2, "(idle)": 4}
    assert found.totals.idle_down_cost == 4 and found.totals.idle_share_ms == 0 and found.unpriced == ()
