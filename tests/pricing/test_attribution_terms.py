"""Money adds up under terms too: prices that change, discounts, owned commitments, monthly items, exchange rates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import combinations
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pricing import price_steps
from pricing.attribution import attribute
from pricing.billing import Rule
from pricing.calendar import days, instant, milliseconds, parse_range
from pricing.catalog import Catalog
from pricing.contracts import Discount
from pricing.currency import Exchange
from pricing.grouping import KEYS
from pricing.items import Item
from pricing.ledger import Ledger
from pricing.money import PerHour
from pricing.owned import Commitment
from pricing.price_steps import Steps
from pricing.report import COST_PARTS, Report, Row
from pricing.terms import Terms
from pricing.usage import WHOLE_SHARE, Placed, Usage
from tests.support.examples import examples
from tests.support.usage import HOUR_MS, PriceList, Record, random_record, take_all

START = datetime(2026, 3, 28, 0, 0, tzinfo=UTC)
START_MS = milliseconds(START)
BEFORE, AFTER = START - timedelta(days=3), START + timedelta(days=40)
ALL_KEYS = (*KEYS, "tag:team")
SEEDS = st.integers(0, 2**32)


class Book:
    """Stands in for kept prices: the same steps for every kind of node, scaled by what it asks for."""

    def __init__(
        self, points: Sequence[tuple[datetime, str | None]], currency: str = "USD", purchase: str | None = None
    ) -> None:
        self.points = [(at, None if price is None else PerHour(Decimal(price), currency)) for at, price in points]
        self.purchase = purchase

    def steps(
        self, cloud: str, region: object, zone: object, instance_type: str, purchase: str, start: datetime, end: datetime
    ):  # noqa: ANN201
        """As a price book does: only of [start, end), with the price in force at `start` said to be from then on."""
        if self.purchase not in (None, purchase):
            return []
        carried = [price for at, price in self.points if at <= start][-1:]
        return [(start, price) for price in carried] + [(at, price) for at, price in self.points if start < at < end]


def random_book(rng: Random) -> Book:
    moments = sorted(
        START_MS + rng.choice((rng.randrange(300 * HOUR_MS), HOUR_MS * rng.randrange(300))) for _ in range(rng.randrange(9))
    )
    return Book([(instant(ms), str(Decimal(rng.randrange(1, 10**6)).scaleb(-4))) for ms in moments])


def fleet(ledger: Ledger, seed: int) -> list[Record]:
    """Cloud nodes of one kind or two, so that commitments match them."""
    rng, records = Random(seed), []
    for number in range(rng.randrange(1, 4)):
        record = random_record(rng, f"node-{number}", START_MS)
        purchases = ("on_demand", "on_demand", "reserved_1y", "spot", None)
        placements = [
            one._replace(cloud="aws", region="here", instance_type="gpu_box", purchase=rng.choice(purchases), usd_per_hour=rng.choice(("8", "8", "9.5")))
            for one in record.placements
        ]  # fmt: skip
        records.append(record._replace(placements=placements))
        take_all(ledger, records[-1])
    return records


def random_terms(rng: Random) -> Terms:
    commitments = []
    for number in range(rng.randrange(1, 4)):
        starts_ms = START_MS + rng.randrange(-48 * HOUR_MS, 100 * HOUR_MS)
        ends_ms = starts_ms + rng.randrange(1, 400 * HOUR_MS)
        if rng.random() < 0.5:
            cost = Fraction(rng.randrange(1, 80), 10)
            commitments.append(
                Commitment(f"r{number}", "reservation", "aws", starts_ms, ends_ms, cost, region="here", instance_type="gpu_box", count=rng.randrange(1, 3))
            )  # fmt: skip
        else:
            commitments.append(
                Commitment(
                    f"s{number}",
                    "savings_plan",
                    "aws",
                    starts_ms,
                    ends_ms,
                    Fraction(rng.randrange(1, 15)),
                    percent=Fraction(rng.choice((20, 45))),
                )
            )
    discounts = [
        Discount("aws", Fraction(rng.randrange(1, 60)), starts_ms=START_MS + rng.randrange(50 * HOUR_MS))
        for _ in range(rng.randrange(3))
    ]
    items = [Item("storage", "data", Fraction(100), project="vision", starts_ms=START_MS + 3)] if rng.random() < 0.3 else []
    return Terms(tuple(discounts), tuple(commitments), items=tuple(items), count_minimum=rng.random() < 0.3)


def assert_parts_are_the_total(report: Report) -> None:
    assert all(row.total_cost is not None for row in report.rows)
    for row in (*report.rows, report.totals):
        assert sum(getattr(row, part) for part in COST_PARTS) == row.total_cost
    for name in (*COST_PARTS, "total_cost", "allocated_unused_cost", "list_cost", "contracted_cost"):
        assert sum((getattr(row, name) for row in report.rows), Fraction(0)) == getattr(report.totals, name)


def node_hours(records: Sequence[Record]) -> dict[int, dict[tuple[str, int], Fraction]]:
    """Hour -> (node, placement) -> node-hours, row by row."""
    hours: defaultdict[int, defaultdict[tuple[str, int], Fraction]] = defaultdict(lambda: defaultdict(Fraction))
    for record in records:
        placed = {one.number: one for one in record.placements}
        for row in record.rows:
            parties = 1 if row.kind == "host" else placed[row.placement].gpu_count
            for hour in range(row.starts_ms // HOUR_MS, -(-row.ends_ms // HOUR_MS)):
                length = min(row.ends_ms, (hour + 1) * HOUR_MS) - max(row.starts_ms, hour * HOUR_MS)
                hours[hour][record.node, row.placement] += Fraction(
                    length * row.share_millionths, HOUR_MS * WHOLE_SHARE * parties
                )
    return hours  # type: ignore[return-value]


def plain_steps(record: Record, number: int, book: Book, terms: Terms) -> tuple[Steps, Steps]:
    """(list, contracted) prices of a placement over time."""
    placed = next(one for one in record.placements if one.number == number)
    points = [(milliseconds(at), None if price is None else price.fraction) for at, price in book.points]
    listed = price_steps.made(points, Fraction(placed.usd_per_hour or 0))
    edges = sorted({at for at, _ in listed[1:]} | {one.starts_ms for one in terms.discounts})

    def at(ms: int) -> Fraction | None:
        price = price_steps.value_at(listed, ms)
        percent = max((one.percent for one in terms.discounts if one.starts_ms <= ms), default=Fraction(0))
        return None if price is None else price * (1 - percent / 100)

    return listed, price_steps.made([(edge, at(edge)) for edge in edges], at(price_steps.ALWAYS))


@settings(max_examples=examples(80), deadline=None)
@given(SEEDS, st.lists(st.sampled_from(ALL_KEYS), unique=True))
def test_prices_that_change_within_hours_cost_price_times_time_at_every_level(seed: int, by: list[str]) -> None:
    rng = Random(seed)
    book, terms = random_book(rng), Terms(random_terms(rng).discounts)
    with Ledger.open(":memory:") as ledger:
        records = fleet(ledger, seed)
        report = attribute(ledger, PriceList(), BEFORE, AFTER, by, tz="Europe/Berlin", terms=terms, book=book)
    assert_parts_are_the_total(report)
    listed = contracted = Fraction(0)
    for hour, held in node_hours(records).items():
        for (node, number), amount in held.items():
            record = next(one for one in records if one.node == node)
            levels = plain_steps(record, number, book, terms)
            means = [price_steps.hour_rate(steps, hour) for steps in levels]
            listed += amount * (means[0] or 0)
            contracted += amount * (means[1] or 0)
    assert (report.totals.list_cost, report.totals.contracted_cost) == (listed, contracted)
    assert report.totals.total_cost == contracted


@settings(max_examples=examples(100), deadline=None)
@given(SEEDS, st.lists(st.sampled_from(ALL_KEYS), unique=True), st.booleans())
def test_allocated_idle_and_unused_commitment_are_the_bill(seed: int, by: list[str], changing: bool) -> None:
    rng = Random(seed)
    book, terms = random_book(rng) if changing else Book([]), random_terms(rng)
    terms = Terms(terms.discounts, terms.commitments)
    with Ledger.open(":memory:") as ledger:
        records = fleet(ledger, seed)
        report = attribute(ledger, PriceList(), BEFORE, AFTER, by, terms=terms, book=book, now=AFTER)
    assert_parts_are_the_total(report)
    committed = rest = Fraction(0)
    for one in terms.commitments:
        hours = Fraction(max(0, min(one.ends_ms, milliseconds(AFTER)) - max(one.starts_ms, milliseconds(BEFORE))), HOUR_MS)
        committed += hours * one.whole_cost
    for hour, held in node_hours(records).items():
        rest += uncovered(records, book, terms, hour, held)
    assert report.totals.total_cost == committed + rest
    assert (report.totals.unused_commitment_cost or 0) >= 0


def uncovered(
    records: Sequence[Record], book: Book, terms: Terms, hour: int, held: dict[tuple[str, int], Fraction]
) -> Fraction:
    """What an hour costs beside the commitments, told apart only by price: money first, nodes never."""
    wanted: list[list[Fraction]] = []  # [node-hours, list price, contracted price]
    cost = Fraction(0)
    for (node, number), amount in held.items():
        record = next(one for one in records if one.node == node)
        listed, contracted = (
            price_steps.hour_rate(steps, hour) or Fraction(0) for steps in plain_steps(record, number, book, terms)
        )
        spot = next(one for one in record.placements if one.number == number).purchase == "spot"
        if spot:
            cost += amount * contracted
        else:
            wanted.append([amount, listed, contracted])
    for one in sorted(terms.commitments, key=lambda one: one.id):
        if one.kind == "reservation":
            left, total = one.count * one.part_of_hour(hour), sum(want[0] for want in wanted)
            for want in wanted if total else ():
                want[0] -= min(left, total) * want[0] / total
    plans = [one for one in terms.commitments if one.kind == "savings_plan" and one.part_of_hour(hour)]
    money = {one.id: one.cost_per_hour * one.part_of_hour(hour) for one in plans}
    pairs = sorted(((-(plan.percent or 0), want[1], plan.id, place) for plan in plans for place, want in enumerate(wanted)))
    groups: defaultdict[tuple[Fraction, Fraction, str], list[int]] = defaultdict(list)
    for percent, price, id, place in pairs:
        groups[percent, price, id].append(place)
    for (percent, price, id), places in groups.items():
        rate, total = price * (1 + percent / 100), sum(wanted[place][0] for place in places)
        used = min(total, money[id] / rate) if rate else Fraction(0)
        money[id] -= used * rate
        for place in places if total else ():
            wanted[place][0] -= used * wanted[place][0] / total
    return cost + sum(want[0] * want[2] for want in wanted)


@settings(max_examples=examples(60), deadline=None)
@given(SEEDS, st.lists(st.integers(0, 200 * HOUR_MS), max_size=4), st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kolkata"]))
def test_the_parts_of_a_range_add_up_to_it_under_any_terms(seed: int, cuts: list[int], tz: str) -> None:
    rng = Random(seed)
    book, terms = random_book(rng), random_terms(rng)
    edges = sorted({BEFORE, AFTER, *(instant(START_MS + cut) for cut in cuts)})
    with Ledger.open(":memory:") as ledger:
        fleet(ledger, seed)
        options = {"tz": tz, "terms": terms, "book": book, "now": AFTER}
        parts = [
            amounts(attribute(ledger, PriceList(), one, two, **options).totals)  # type: ignore[arg-type]
            for one, two in zip(edges, edges[1:], strict=False)
        ]
        by_day = attribute(ledger, PriceList(), BEFORE, AFTER, "day", **options)  # type: ignore[arg-type]
        whole = attribute(ledger, PriceList(), BEFORE, AFTER, **options).totals  # type: ignore[arg-type]
    assert [sum(column) for column in zip(*parts, strict=True)] == amounts(by_day.totals) == amounts(whole)


def amounts(row: Row) -> list[Fraction]:
    names = (*COST_PARTS, "allocated_unused_cost", "list_cost", "contracted_cost")
    return [getattr(row, name) for name in names]


def test_every_grouping_of_a_fleet_with_all_terms_adds_up() -> None:
    rng = Random(11)
    book, terms = random_book(rng), random_terms(rng)
    terms = Terms(
        terms.discounts,
        terms.commitments,
        items=(Item("egress", "out", Fraction(70), user="ann", starts_ms=START_MS),),
        count_minimum=True,
    )
    with Ledger.open(":memory:") as ledger:
        fleet(ledger, 5)
        plain = attribute(ledger, PriceList(), BEFORE, AFTER, terms=terms, book=book, now=AFTER).totals
        for by in [by for count in (1, 2, 3) for by in combinations(ALL_KEYS, count)]:
            report = attribute(ledger, PriceList(), BEFORE, AFTER, by, terms=terms, book=book, now=AFTER)
            assert_parts_are_the_total(report)
            assert report.totals == plain


def usage(sequence: int, kind: str, hour: int, **changes: object) -> Usage:
    """A whole hour of one GPU."""
    begin = START_MS + hour * HOUR_MS
    whole = Usage(sequence, begin, begin + HOUR_MS, "GPU-0", kind, None, WHOLE_SHARE, None, None, None, None, None, None, 1)
    return whole._replace(**changes)


NODE = Placed(1, "node", "aws", "here", None, "gpu_box", "on_demand", "8", None, 1, "A100", {"team": "red"})


def report_of(rows: Sequence[Usage], by: str = "", placed: Placed = NODE, hours: int = 48, **options: object) -> Report:
    with Ledger.open(":memory:") as ledger:
        ledger.take(placed.node, "meter", rows, [placed], 1)
        catalog = options.pop("catalog", PriceList())
        return attribute(ledger, catalog, START, START + timedelta(hours=hours), by, **options)  # type: ignore[arg-type]


def test_a_half_used_gpu_shared_by_three_jobs_costs_exactly_one_gpu() -> None:
    shares = (333_334, 333_333, 333_333)
    rows = [
        usage(place, "held", 0, user=user, job=f"j{place}", share_millionths=share, utilization_ratio=0.5)
        for place, (user, share) in enumerate(zip(("ann", "bob", "cho"), shares, strict=True), 1)
    ]
    report = report_of(rows, "job")
    assert [row.allocated_cost for row in report.rows] == [Fraction(8 * share, 10**6) for share in shares]
    assert [row.allocated_unused_cost for row in report.rows] == [Fraction(4 * share, 10**6) for share in shares]
    assert (report.totals.total_cost, report.totals.allocated_unused_cost, report.totals.idle_cost) == (8, 4, 0)


def test_what_was_held_but_not_measured_is_not_called_unused() -> None:
    rows = [usage(1, "held", 0, user="ann"), usage(2, "held", 1, user="ann", utilization_ratio=0.25), usage(3, "idle", 2)]
    (ann, idle) = report_of(rows, "user").rows
    assert (ann.allocated_cost, ann.allocated_unused_cost) == (16, 6)
    assert (idle.idle_cost, idle.allocated_unused_cost) == (8, 0)


def test_a_price_that_the_book_does_not_know_is_the_one_that_the_node_states_and_else_unknown() -> None:
    book = Book([(START, None), (START + timedelta(hours=1), "16")])
    rows = [usage(1, "held", 0, user="ann"), usage(2, "held", 1, user="bob")]
    assert [row.total_cost for row in report_of(rows, "user", book=book).rows] == [8, 16]
    bare = report_of(rows, "user", NODE._replace(usd_per_hour=None), book=book)
    assert [row.total_cost for row in bare.rows] == [None, 16]
    assert bare.unpriced[0].startswith("node node: 1.00 h have no price")


def test_a_discount_comes_off_the_catalogs_price_and_not_off_one_that_the_node_states() -> None:
    terms = Terms((Discount("aws", Fraction(25)),))
    listed = NODE._replace(region="us-east-1", instance_type="p4d.24xlarge", usd_per_hour="99", gpu_count=8)
    stated = listed._replace(instance_type="p9.huge")
    for placed, expected in ((listed, Fraction("21.957642") * 3 / 4 / 8), (stated, Fraction(99, 8))):
        totals = report_of([usage(1, "idle", 0)], placed=placed, catalog=Catalog.embedded(), terms=terms).totals
        assert totals.total_cost == totals.contracted_cost == expected
    assert (
        report_of([usage(1, "idle", 0)], placed=listed, catalog=Catalog.embedded(), terms=terms).totals.list_cost
        == Fraction("21.957642") / 8
    )


def test_a_price_that_rises_at_half_past_counts_from_then_on() -> None:
    book = Book([(START, "8"), (START + timedelta(minutes=90), "16")])
    rows = [usage(1, "held", 0, user="ann"), usage(2, "held", 1, user="bob"), usage(3, "held", 2, user="cho")]
    assert [row.total_cost for row in report_of(rows, "user", book=book).rows] == [8, 12, 16]


@pytest.mark.parametrize("tz", ["Europe/Berlin", "America/New_York"])
def test_days_add_up_over_a_clock_change_with_a_price_that_changes_every_seven_hours(tz: str) -> None:
    first, last = {"Europe/Berlin": ("2026-03-27", "2026-03-31"), "America/New_York": ("2026-10-30", "2026-11-03")}[tz]
    start, end = parse_range(first, last, tz=tz, now=START)
    book = Book([(start + timedelta(hours=7 * step, minutes=20), str(3 + step)) for step in range(20)])
    row = Usage(
        1, milliseconds(start), milliseconds(end), "GPU-0", "held", None, WHOLE_SHARE, "ann", None, None, 0.37, None, None, 1
    )
    with Ledger.open(":memory:") as ledger:
        ledger.take("node", "meter", [row], [NODE], 1)
        whole = attribute(ledger, PriceList(), start, end, tz=tz, book=book)
        by_day = attribute(ledger, PriceList(), start, end, "day", tz=tz, book=book)
        alone = [attribute(ledger, PriceList(), day.start, day.end, tz=tz, book=book).totals for day in days(start, end, tz)]
    assert [row.total_cost for row in by_day.rows] == [row.total_cost for row in alone]
    assert amounts(by_day.totals) == amounts(whole.totals)
    steps = price_steps.made([(milliseconds(at), price.fraction if price else None) for at, price in book.points], Fraction(8))
    assert whole.totals.total_cost == price_steps.integral(steps, milliseconds(start), milliseconds(end))


def reserved(**changes: object) -> Commitment:
    facts: dict[str, object] = {"region": "here", "instance_type": "gpu_box"} | changes
    cost = Fraction(str(facts.pop("cost", "5")))
    return Commitment("ri", "reservation", "aws", START_MS, START_MS + 4 * HOUR_MS, cost, **facts)  # type: ignore[arg-type]


def test_levels_of_price_by_hand() -> None:
    """List 8; contracted 6 (25 %); a reservation for 5 covers hours 0-3, of which the node ran 1 and 2, and then 5."""
    rows = [usage(1, "held", 1, user="ann"), usage(2, "idle", 2), usage(3, "held", 5, user="bob")]
    rows = [row._replace(gpu="GPU-0") for row in rows]
    terms = Terms((Discount("aws", Fraction(25)),), (reserved(),))
    with Ledger.open(":memory:") as ledger:
        for number, row in enumerate(rows, 1):
            ledger.take("node", f"m{number}", [row._replace(sequence=1)], [NODE], 1)
        report = attribute(ledger, PriceList(), START, START + timedelta(hours=6), "user,instance_type,tag:team", terms=terms)
    ann, bob, idle, unused = report.rows
    assert (ann.keys, ann.list_cost, ann.contracted_cost, ann.allocated_cost) == (("ann", "gpu_box", "red"), 8, 6, 5)
    assert (bob.list_cost, bob.contracted_cost, bob.allocated_cost) == (8, 6, 6)
    assert (idle.list_cost, idle.contracted_cost, idle.idle_cost) == (8, 6, 5)
    assert unused.keys == ("(unused commitment)", "gpu_box", "(unused commitment)")
    assert (unused.unused_commitment_cost, unused.total_cost, unused.list_cost, unused.idle_cost) == (10, 10, 0, 0)
    assert (report.totals.total_cost, report.totals.list_cost, report.totals.gpu_hours) == (5 + 6 + 5 + 10, 24, 2)


def test_a_node_that_says_it_is_reserved_costs_the_on_demand_price_where_its_reservation_does_not_reach() -> None:
    class ByPurchase(PriceList):
        def quote(self, cloud, region, zone, instance_type, purchase, *rest: object, **more: object):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
            price = {"on_demand": "8", "reserved_1y": "5"}[purchase]
            return super().quote(cloud, region, zone, instance_type, purchase, price)

    rows = [usage(1, "held", 3, user="ann"), usage(2, "held", 4, user="bob")]
    said = NODE._replace(purchase="reserved_1y", usd_per_hour=None)
    report = report_of(rows, "user", said, catalog=ByPurchase(), terms=Terms(commitments=(reserved(),)))
    assert [row.allocated_cost for row in report.rows[:2]] == [5, 8]
    assert [row.list_cost for row in report.rows[:2]] == [8, 8]
    assert [row.total_cost for row in report_of(rows, "user", said, catalog=ByPurchase()).rows] == [5, 5]


def test_a_reservation_gives_a_price_to_a_type_that_is_not_sold_on_demand_as_far_as_it_reaches() -> None:
    rows = [usage(1, "held", 3, user="ann"), usage(2, "held", 4, user="bob")]
    report = report_of(rows, "user", NODE._replace(usd_per_hour=None), terms=Terms(commitments=(reserved(),)))
    ann, bob, unused = report.rows
    assert (ann.allocated_cost, ann.list_cost, ann.complete) == (5, None, True)
    assert (bob.allocated_cost, bob.complete) == (None, False)
    assert (unused.unused_commitment_cost, report.totals.total_cost, report.totals.complete) == (15, 20, False)
    assert "1.00 h have no price" in report.unpriced[0]


def test_a_commitment_counts_until_now_and_not_into_the_future() -> None:
    terms = Terms(commitments=(reserved(),))
    rows = [usage(1, "idle", 0)]
    assert report_of(rows, terms=terms).totals.unused_commitment_cost == 0  # the ledger ends after one hour
    now = START + timedelta(hours=2, minutes=30)
    assert report_of(rows, terms=terms, now=now).totals.unused_commitment_cost == Fraction("7.5")
    assert report_of(rows, terms=terms, now=START + timedelta(days=9)).totals.unused_commitment_cost == 15


def test_prices_in_another_currency_are_told_from_the_day_of_their_rate_on_and_said_not_to_be_before() -> None:
    exchange = Exchange({"CNY": price_steps.made([(START_MS + HOUR_MS, Fraction("0.14"))])})
    rows = [usage(1, "held", 0, user="ann"), usage(2, "held", 1, user="bob")]
    report = report_of(rows, "user", catalog=PriceList(currency="CNY"), terms=Terms(exchange=exchange))
    assert [row.total_cost for row in report.rows] == [None, Fraction("1.12")]
    assert report.unpriced == (
        "node node: 1.00 h have no price and are in no cost. Its price is in CNY, the report in USD, and no exchange rate is"
        " given for before 2026-03-28.",
    )
    assert report.notes == ("Prices in CNY are told in USD at 1 CNY = 0.14 USD from 2026-03-28.",)
    back = report_of([usage(1, "held", 1)], terms=Terms(exchange=exchange), currency="CNY").totals
    assert back.total_cost == 8 / Fraction("0.14")


def test_commitments_and_items_without_an_exchange_rate_are_in_no_cost_and_that_is_said() -> None:
    terms = Terms(commitments=(reserved(currency="EUR"),), items=(Item("storage", "data", Fraction(9), "EUR"),))
    report = report_of([usage(1, "idle", 0)], terms=terms)
    assert report.totals.total_cost == 8
    assert [note.split(" is in no cost")[0] for note in report.notes] == ["commitment ri", "storage data"]


def test_monthly_items_belong_to_the_project_that_they_name() -> None:
    items = (
        Item("storage", "data", Fraction(31), project="vision", starts_ms=START_MS, ends_ms=START_MS + 24 * HOUR_MS),
        Item("egress", "out", Fraction(62), cloud="aws"),
    )
    report = report_of(
        [usage(1, "held", 23, project="vision", user="ann")], "project,node,cloud", terms=Terms(items=items), hours=24
    )
    assert [(row.keys, row.allocated_cost) for row in report.rows] == [
        (("vision", "node", "aws"), 8), (("vision", "(storage)", "(storage)"), 1),
        (("(none)", "(egress)", "aws"), 2),
    ]  # fmt: skip
    assert report.totals.contracted_cost == report.totals.total_cost


def test_a_begun_hour_is_idle_cost_where_the_terms_ask_for_it() -> None:
    half = usage(1, "held", 0, user="ann")
    half = half._replace(ends_ms=half.starts_ms + HOUR_MS // 2)
    rules = (Rule("aws", granularity_seconds=3600),)
    assert report_of([half], "user").totals.idle_billing_cost == 0
    ann, idle = report_of([half], "user,node", terms=Terms(count_minimum=True, rules=rules)).rows
    assert (ann.allocated_cost, idle.keys, idle.idle_billing_cost, idle.idle_cost) == (4, ("(idle)", "node"), 4, 4)
