"""Jobs without a GPU on a priced node: they cost their part by the weights, and the node costs what it costs."""

from __future__ import annotations

import csv
import io
import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from random import Random

import msgspec
import pytest

from agent import wire
from agent.meter_claims import Claim
from agent.meter_cpu import CpuClaim
from agent.meter_holders import WHOLE
from pricing import closing, ledger_schema
from pricing.attribution import attribute
from pricing.calendar import instant, milliseconds
from pricing.errors import LedgerError
from pricing.ledger import Ledger
from pricing.ledger_retention import retain
from pricing.ledger_state import state
from pricing.owned import Commitment
from pricing.rates import Pricing
from pricing.report import Report
from pricing.reports.focus import FocusSource, facts_of, write_csv
from pricing.reports.table import table
from pricing.terms import Terms
from pricing.usage import Interruption, Placed, Usage
from pricing.weights import GIB, Weights
from tests.support.focus_rules import violations
from tests.support.metering import ANN, BOB, INFO, HandClock, Node, gpu, lost
from tests.support.usage import HOUR_MS, PriceList, random_record, take_all
from tui.sync import interruption, placed, usage_rows

START = milliseconds(datetime(2026, 3, 1, 12, tzinfo=UTC))
PRICE = Fraction(10)
EVEN = Terms(weights=Weights(Fraction(8), Fraction(1, 8), Fraction(1, 32)))
"""Of a node with 1 GPU, 8 vCPUs and 32 GiB: 8 tenths for the GPU, a tenth each for the rest."""
FREE = Terms(weights=Weights(Fraction(1), Fraction(0), Fraction(0)))
ROUNDED = Fraction(1, 10**6)
KEYS = ("", "job", "user", "project", "node", "gpu_model", "purchase", "day", "tag:team", "user,job,day")
PREP = CpuClaim("eve", "data", "prep", 4_000, 8 * GIB)
"""Half the vCPUs and a quarter of the memory: 7.5 % of the price."""


def node(gpus: int = 1, **facts: object) -> Node:
    made = Node(hands=HandClock(START), durable=False, row_seconds=30.0)
    given = {"cpu_count": 8, "memory_total_bytes": 32 * GIB, "usd_per_hour": str(PRICE), "tags": {"team": "red"}}
    made.info = msgspec.structs.replace(INFO, **(given | facts))
    return made


def taken(*nodes: Node, page_rows: int = 10_000) -> Ledger:
    ledger = Ledger.open(":memory:")
    for one in nodes:
        one.meter._end(None)
        after = 0
        while True:
            page = msgspec.json.decode(wire.encoder.encode(one.meter.usage(after, page_rows)), type=wire.UsagePage)
            take(ledger, page)
            after = page.rows[-1].sequence if page.rows else page.last_sequence
            if after == page.last_sequence:
                break
    assert ledger.check() == []
    return ledger


def take(ledger: Ledger, page: wire.UsagePage) -> None:
    ledger.take(
        page.node, page.meter, usage_rows(page.rows), [placed(one) for one in page.placements], page.first_sequence,
        last_sequence=page.last_sequence, interruptions=[interruption(one) for one in page.interruptions],
    )  # fmt: skip


def report(ledger: Ledger, by: str = "job", terms: Terms = EVEN, hours: float = 48, first: float = 0, **more: object) -> Report:
    span = instant(START + int(first * HOUR_MS)), instant(START + int((first + hours) * HOUR_MS))
    found = attribute(ledger, PriceList(), *span, by, terms=terms, **more)  # type: ignore[arg-type]
    for part in ("total_cost", "allocated_cost", "allocated_unused_cost", "idle_cost", "list_cost", "contracted_cost"):
        whole = getattr(found.totals, part)
        if whole is not None:
            assert sum((getattr(row, part) or 0 for row in found.rows), Fraction(0)) == whole
    if float(hours).is_integer() and float(first).is_integer():
        assert all(-ROUNDED <= (row.allocated_unused_cost or 0) <= (row.allocated_cost or 0) for row in (*found.rows, found.totals))
    return found


def an_hour_of(one: Node, *gpus: wire.Gpu, cpu: tuple[CpuClaim, ...] = (PREP,), **of_sample: object) -> Ledger:
    one.see(0, *gpus, **of_sample)
    one.meter.claim({}, cpu)
    for _ in range(360):
        one.see(10_000, *gpus, **of_sample)
    return taken(one)


def costs(found: Report) -> dict[str, tuple[Fraction, Fraction]]:
    """group -> (allocated, idle)."""
    return {",".join(row.keys): (row.allocated_cost or Fraction(0), row.idle_cost or Fraction(0)) for row in found.rows}


def test_a_job_without_a_gpu_costs_its_part_by_the_weights_and_who_holds_the_gpu_the_rest() -> None:
    with an_hour_of(node(), gpu(0, ANN)) as ledger:
        assert costs(report(ledger, "user")) == {"ann": (Fraction("9.25"), 0), "eve": (Fraction("0.75"), 0)}
        assert costs(report(ledger, "user,project,job"))["eve,data,prep"] == (Fraction("0.75"), 0)
        assert report(ledger).totals.total_cost == PRICE
        assert report(ledger).totals.held_share_ms == HOUR_MS * WHOLE  # it has no GPU hours


def test_on_an_idle_gpu_node_it_is_taken_out_of_what_is_idle() -> None:
    with an_hour_of(node(), gpu(0)) as ledger:
        found = report(ledger, "user")
        assert costs(found) == {"eve": (Fraction("0.75"), 0), "(idle)": (0, Fraction("9.25"))}
        assert found.totals.idle_unallocated_cost == Fraction("9.25") and found.totals.idle_cost == Fraction("9.25")


def test_lost_gpus_and_hosts_pay_for_it_too() -> None:
    with an_hour_of(node(), lost(0)) as ledger:
        assert report(ledger).totals.idle_lost_cost == Fraction("9.25")
    with an_hour_of(node(), reason="no driver") as ledger:
        # without a GPU, vCPUs and memory are each half of the price
        assert costs(report(ledger, "user")) == {"eve": (Fraction("3.75"), 0), "(host)": (Fraction("6.25"), 0)}


def test_the_weights_are_those_of_the_terms_and_without_weight_it_is_free() -> None:
    with an_hour_of(node(), gpu(0, ANN)) as ledger:
        assert costs(report(ledger, "user", FREE)) == {"ann": (PRICE, 0)}
        memory = Terms(weights=Weights(Fraction(0), Fraction(0), Fraction(1)))
        assert costs(report(ledger, "user", memory)) == {"ann": (Fraction("7.5"), 0), "eve": (Fraction("2.5"), 0)}
        default = costs(report(ledger, "user", Terms()))
        worth = Fraction("0.031611") * 4 + Fraction("0.004237") * 8
        assert default["eve"][0] == PRICE * worth / (Fraction("0.95") + Fraction("0.031611") * 8 + Fraction("0.004237") * 32)


def test_what_the_node_has_is_its_own_account_else_the_catalogs_and_unknown_is_free() -> None:
    class Catalog(PriceList):
        def instance(self, cloud: str, instance_type: str):  # type: ignore[no-untyped-def]  # noqa: ANN202
            shape = super().instance(cloud, "gpu_box")
            return None if shape is None else shape._replace(vcpus=8, memory_bytes=32 * GIB)

    with an_hour_of(node(cpu_count=None, memory_total_bytes=None), gpu(0, ANN)) as ledger:
        assert costs(report(ledger, "user")) == {"ann": (PRICE, 0)}
        span = instant(START), instant(START + HOUR_MS)
        known = attribute(ledger, Catalog(), *span, "user", terms=EVEN)  # type: ignore[arg-type]
        assert costs(known) == {"ann": (Fraction("9.25"), 0), "eve": (Fraction("0.75"), 0)}
        (note,) = report(ledger, "user").notes
        assert note.startswith("node n1: how many vCPUs") and "(prep) have no cost of their own" in note
        assert known.notes == report(ledger, "user", FREE).notes == ()


def reserved() -> Terms:
    """A reservation that pays all of the node, at 6 an hour."""
    one = Commitment("ri", "reservation", "aws", START, START + 4 * HOUR_MS, Fraction(6), region="us-east-1", instance_type="g4dn.12xlarge")
    return replace(EVEN, commitments=(one,))


@pytest.mark.parametrize("terms", [EVEN, reserved()], ids=["on demand", "reserved"])
def test_a_focus_file_tells_them_at_the_price_of_the_node_and_breaks_no_rule(terms: Terms) -> None:
    with an_hour_of(node(purchase="on_demand"), gpu(0, ANN)) as ledger:
        span = instant(START), instant(START + HOUR_MS)

        def attributed(since: datetime, until: datetime, by: object) -> Report:
            return attribute(ledger, PriceList(), since, until, by, terms=terms, now=span[1])  # type: ignore[arg-type]

        nodes, tags = facts_of(ledger)
        stream = io.StringIO(newline="")
        write_csv(FocusSource(attributed, *span, commitments=terms.commitments, nodes=nodes, tags=tags), stream)
        report_itself = attributed(*span, ())
    assert violations(stream.getvalue()) == []
    rows = [row for row in csv.DictReader(io.StringIO(stream.getvalue())) if row["ChargeCategory"] == "Usage"]
    used = {row["x_User"]: (row["PricingQuantity"], row["ListUnitPrice"], row["BilledCost"]) for row in rows}
    billed = (0, 0) if terms.commitments else ("0.75", "9.25")
    assert used == {"eve": ("0.075", "10", str(billed[0])), "ann": ("0.925", "10", str(billed[1]))}
    assert sum(Fraction(row["EffectiveCost"]) for row in rows) == report_itself.totals.total_cost == (6 if terms.commitments else 10)


def test_what_a_commitment_pays_goes_with_them() -> None:
    with an_hour_of(node(purchase="on_demand"), gpu(0, ANN)) as ledger:
        found = report(ledger, "user", reserved(), hours=1, now=instant(START + HOUR_MS))
        paid = {row.keys[0]: [(part.commitment, part.cost, part.node_hours) for part in row.committed] for row in found.rows}
        assert paid == {
            "ann": [("ri", Fraction("5.55"), Fraction("0.925"))], "eve": [("ri", Fraction("0.45"), Fraction("0.075"))],
        }  # fmt: skip
        assert [(part.cost, part.node_hours) for part in found.totals.committed] == [(6, 1)]
        closing.close(ledger, Pricing(PriceList(), terms=reserved()), "2026-03", datetime(2026, 4, 1, tzinfo=UTC))  # type: ignore[arg-type]
        again = {row.keys[0]: [tuple(part) for part in row.committed] for row in march(ledger).rows if row.committed}
        assert again == paid


def test_a_node_without_a_price_has_none_for_such_a_job_either() -> None:
    with an_hour_of(node(usd_per_hour=None), gpu(0, ANN)) as ledger:
        found = report(ledger)
        assert found.totals.total_cost is None and len(found.unpriced) == 1


def busy_day(seed: int, gpus: int) -> Node:
    """Jobs with and without GPUs, tenants, lost GPUs and stalls, over some hours."""
    rng, one = Random(seed), node(gpus)
    one.see(0, *[gpu(place) for place in range(gpus)], **({} if gpus else {"reason": "no driver"}))
    for _ in range(40):
        one.hands.pass_ms(rng.choice((1, 900, 20_000)))
        jobs = tuple(rng.choice((PREP, CpuClaim("ann", None, "", 500, 0)))._replace(job=f"c{number}") for number in range(rng.randrange(4)))
        share = rng.choice((0, 333_333, WHOLE))
        one.meter.claim({"GPU-0": (Claim("bob", "speech", "g1", share),)} if share and gpus else {}, jobs)
        read = [lost(place) if rng.random() < 0.1 else gpu(place, *rng.choice(((), (ANN,), (ANN, BOB)))) for place in range(gpus)]
        for _ in range(rng.randrange(1, 30)):
            one.see(rng.choice((10_000, 28_000)), *read, **({} if gpus else {"reason": "no driver"}))
        if rng.random() < 0.05:
            one.see(500_000, *read, **({} if gpus else {"reason": "no driver"}))
    return one


@pytest.mark.parametrize("seed,gpus", [(1, 1), (2, 2), (3, 3), (4, 0), (5, 2)])
def test_whatever_runs_every_grouping_sums_to_the_price_of_the_node(seed: int, gpus: int) -> None:
    one = busy_day(seed, gpus)
    with taken(one, page_rows=997) as ledger:
        price = PRICE * Fraction(one.hands.wall_ms - START, HOUR_MS)
        for by in KEYS:
            found = report(ledger, by)
            assert found.totals.total_cost == price
            assert (found.totals.allocated_cost or 0) + (found.totals.idle_cost or 0) == price
            assert all((row.allocated_cost or 0) >= 0 and (row.idle_cost or 0) >= 0 for row in found.rows)
        assert any(row.keys[0].startswith("c") and row.allocated_cost for row in report(ledger, "job").rows)


@pytest.mark.parametrize("seed", range(3))
def test_ranges_that_cut_rows_sum_to_the_whole(seed: int) -> None:
    rng, one = Random(seed), busy_day(seed + 10, 2)
    with taken(one) as ledger:
        whole = report(ledger, "job", hours=40)
        cuts = sorted({0.0, 40.0, *(rng.random() * 12 for _ in range(6))})
        parts: dict[str, Fraction] = {}
        for first, until in zip(cuts, cuts[1:], strict=False):
            for key, (allocated, idle) in costs(report(ledger, "job", hours=until - first, first=first)).items():
                parts[key] = parts.get(key, Fraction(0)) + allocated + idle
        # a cut is a whole millisecond, so the ends of neighbouring ranges are one moment
        assert {key: sum(cost) for key, cost in costs(whole).items()} == {key: cost for key, cost in parts.items() if key in costs(whole)}


def test_pages_of_any_size_make_the_same_ledger() -> None:
    def content(page_rows: int) -> list[tuple[object, ...]]:
        one = busy_day(7, 2)
        with taken(one, page_rows=page_rows) as ledger, ledger.reading() as connection:
            return connection.execute(
                "SELECT hour, starts_ms, ends_ms, part, key, vcpus, memory, rows, last_sequence FROM cpu_usage"
                " JOIN holders ON holders.id = holder_id ORDER BY hour, starts_ms, part, key, vcpus, memory, last_sequence"
            ).fetchall()

    assert content(10_000) == content(333) != []


def test_a_page_that_is_taken_twice_counts_once() -> None:
    one = node()
    with an_hour_of(one, gpu(0, ANN)) as ledger:
        take(ledger, one.meter.usage(0, 10_000))
        assert ledger.check() == [] and report(ledger).totals.total_cost == PRICE
        assert costs(report(ledger, "user"))["eve"] == (Fraction("0.75"), 0)


def test_a_row_that_is_taken_from_what_nobody_knows_is_refused() -> None:
    row = Usage(1, START, START + 1000, None, "cpu", None, 0, "eve", None, "j", None, None, None, 1, "wishes", 1, 1)
    with Ledger.open(":memory:") as ledger, pytest.raises(LedgerError, match="from an unknown kind"):
        ledger.take("n1", "m1", [row], [Placed(1, "n1")], 1)


def test_the_check_finds_what_is_not_taken_from_anybody() -> None:
    with an_hour_of(node(), gpu(0, ANN)) as ledger:
        with ledger.writing() as connection:
            connection.execute("UPDATE cpu_usage SET vcpus = vcpus + 1 WHERE part = 0")
        assert [fault for fault in ledger.check() if "without a GPU" in fault]
        with ledger.writing() as connection:
            connection.execute("DELETE FROM cpu_usage")
        assert [fault for fault in ledger.check() if "agent rows were taken" in fault]


def test_retention_keeps_them_and_the_sums() -> None:
    one = busy_day(3, 2)
    with taken(one) as ledger:
        before, held = [costs(report(ledger, by)) for by in KEYS], rows_in(ledger, "usage", "cpu_usage")
        closing.close(ledger, replace_terms(CLOSED, EVEN), "2026-03", datetime(2026, 4, 2, tzinfo=UTC))
        stood = state(ledger)
        done = retain(ledger, instant(START + 72 * HOUR_MS), instant(START + 72 * HOUR_MS))
        assert done.ledger_rows == sum(held.values()) and done.agent_rows == stood.agent_rows == state(ledger).rolled_up_rows
        assert rows_in(ledger, "usage", "cpu_usage") == {"usage": 0, "cpu_usage": 0}
        assert 0 < rows_in(ledger, "cpu_hours")["cpu_hours"] < held["cpu_usage"] / 2
        assert ledger.check() == [] and [costs(report(ledger, by)) for by in KEYS] == before
        assert closing.notice(ledger, replace_terms(CLOSED, EVEN), datetime(2026, 4, 3, tzinfo=UTC)) == []


CLOSED = Pricing(PriceList())  # type: ignore[arg-type]


def rows_in(ledger: Ledger, *tables: str) -> dict[str, int]:
    with ledger.reading() as connection:
        return {table: connection.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0] for table in tables}


@pytest.mark.parametrize("seed", range(3))
def test_ranges_that_cut_hours_that_were_rolled_up_sum_to_the_whole_and_each_is_the_price(seed: int) -> None:
    rng, one = Random(seed), busy_day(seed + 20, 2)
    with taken(one) as ledger:
        whole = costs(report(ledger, "job", hours=40))
        retain(ledger, instant(START + 72 * HOUR_MS), instant(START + 72 * HOUR_MS))
        reach = (one.hands.wall_ms - START) / HOUR_MS
        cuts = sorted({0.0, 40.0, *(rng.random() * reach for _ in range(6))})
        parts: dict[str, Fraction] = {}
        for first, until in zip(cuts, cuts[1:], strict=False):
            found = report(ledger, "job", hours=until - first, first=first)
            for key, (allocated, idle) in costs(found).items():
                parts[key] = parts.get(key, Fraction(0)) + allocated + idle
            of_gpus = attribute(ledger, PriceList(), found.start, found.end, "job", terms=FREE)  # type: ignore[arg-type]
            assert found.totals.total_cost == of_gpus.totals.total_cost  # such jobs take, and give, to the last digit
        assert {key: cost for key, cost in parts.items() if cost} == {key: sum(cost) for key, cost in whole.items() if sum(cost)}


def test_rows_that_come_after_the_roll_up_are_counted_and_rolled_up_with_it() -> None:
    one = busy_day(8, 1)
    first = one.meter.usage(0, 10_000)
    with Ledger.open(":memory:") as ledger, taken(one) as whole:
        take(ledger, first)
        cut = instant(START + 72 * HOUR_MS)
        retain(ledger, cut, cut)
        one.meter._end(None)
        take(ledger, one.meter.usage(first.last_sequence, 10_000))
        for _ in range(2):
            assert ledger.check() == [] and all(costs(report(ledger, by)) == costs(report(whole, by)) for by in KEYS)
            retain(ledger, cut, cut)
        assert rows_in(ledger, "cpu_usage") == {"cpu_usage": 0}


def march(ledger: Ledger, by: str = "user", terms: Terms = EVEN, until_month: int = 4) -> Report:
    span = datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, until_month, 1, tzinfo=UTC)
    return attribute(ledger, PriceList(), *span, by, terms=terms)  # type: ignore[arg-type]


def test_a_closed_month_keeps_what_such_jobs_cost_and_late_ones_correct_it() -> None:
    now, pricing = datetime(2026, 4, 2, tzinfo=UTC), Pricing(PriceList(), terms=EVEN)  # type: ignore[arg-type]
    one = node()
    with an_hour_of(one, gpu(0, ANN)) as ledger:
        before = costs(march(ledger))
        assert closing.close(ledger, pricing, "2026-03", now).cost == PRICE
        assert closing.notice(ledger, pricing, now) == []
        assert costs(march(ledger)) == before == {"ann": (Fraction("9.25"), 0), "eve": (Fraction("0.75"), 0)}
        assert costs(march(ledger, terms=Terms())) == before  # whatever the terms are now
        one.see(10_000, gpu(0, ANN))
        for _ in range(359):
            one.see(10_000, gpu(0, ANN))
        one.meter._end(None)
        take(ledger, one.meter.usage(ledger.cursor("n1", one.meter.meter), 10_000))
        (noticed,) = closing.notice(ledger, pricing, now + timedelta(hours=1))
        assert noticed.cost == PRICE
        assert closing.notice(ledger, pricing, now + timedelta(hours=2)) == []
        assert march(ledger, until_month=5).totals.total_cost == 2 * PRICE


def test_other_weights_are_a_correction_of_a_closed_month_that_sums_to_nothing() -> None:
    now, pricing = datetime(2026, 4, 2, tzinfo=UTC), Pricing(PriceList(), terms=EVEN)  # type: ignore[arg-type]
    with an_hour_of(node(), gpu(0, ANN)) as ledger:
        closing.close(ledger, pricing, "2026-03", now)
        (noticed,) = closing.notice(ledger, replace_terms(pricing, Terms()), now + timedelta(hours=1))
        assert noticed.cost == 0 and noticed.corrections == 2
        assert march(ledger, until_month=5).totals.total_cost == PRICE


def replace_terms(pricing: Pricing, terms: Terms) -> Pricing:
    return pricing._replace(terms=replace(terms))


def test_a_month_closed_by_an_older_program_is_not_taken_for_changed() -> None:
    with Ledger.open(":memory:") as ledger:
        take_all(ledger, random_record(Random(3), "old", START))
        now, pricing = datetime(2026, 5, 2, tzinfo=UTC), Pricing(PriceList())  # type: ignore[arg-type]
        closing.close(ledger, pricing, "2026-03", now)
        with ledger.reading() as connection:
            (usage_print,) = connection.execute("SELECT usage_print FROM closed_months").fetchone()
        assert len(msgspec.json.decode(usage_print)) == 5  # as it was written before there were such rows


def test_what_is_free_because_the_cloud_took_the_node_back_is_free_for_such_jobs_too() -> None:
    one = node()
    with an_hour_of(one, gpu(0, ANN)) as ledger:
        end = one.hands.wall_ms
        ledger.take("n1", one.meter.meter, [], [], 1, interruptions=[Interruption(1, "aws", "stop", end, end, end - HOUR_MS + 1)])
        for by in ("user", "job", "day"):
            found = report(ledger, by)
            assert found.totals.total_cost == PRICE / HOUR_MS  # the one millisecond before its start
            assert all((row.total_cost or 0) >= 0 for row in found.rows)


def test_prices_that_change_within_the_time_are_those_of_each_hour() -> None:
    one = node()
    one.see(0, gpu(0, ANN))
    one.meter.claim({}, (PREP,))
    for _ in range(720):
        one.see(10_000, gpu(0, ANN))
    with taken(one) as ledger:
        terms = Terms(weights=EVEN.weights)
        found = report(ledger, "user", terms, currency="USD")
        assert costs(found) == {"ann": (Fraction("18.5"), 0), "eve": (Fraction("1.5"), 0)}


def test_a_ledger_of_an_older_program_is_taken_over_with_what_it_holds(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with Ledger.open(path) as ledger:
        take_all(ledger, random_record(Random(5), "old", START))
        before = costs(report(ledger, "node", Terms()))
    older(path)
    with Ledger.open(path) as ledger:
        assert costs(report(ledger, "node", Terms())) == before and ledger.check() == []
        for page in pages(busy_day(1, 2)):
            take(ledger, page)
        assert ledger.check() == []
        assert any(key.startswith("c") for key in costs(report(ledger, "job")))


def pages(one: Node) -> Sequence[wire.UsagePage]:
    one.meter._end(None)
    return [one.meter.usage(0, 10_000)]


def older(path: Path) -> None:
    """Makes the ledger one of format 3."""
    with sqlite3.connect(path) as connection:
        for table in ("cpu_usage", "cpu_hours", "interruptions"):
            connection.execute(f"DROP TABLE {table}")
        for column in ("vcpus", "memory_bytes"):
            connection.execute(f"ALTER TABLE placements DROP COLUMN {column}")
        for column in ("node_hours", "paid"):
            connection.execute(f"ALTER TABLE closed_charges DROP COLUMN {column}")
        connection.execute("DELETE FROM _sqlite_migrations WHERE name >= '0004'")
        connection.execute("PRAGMA user_version = 3")
    connection.close()
    assert ledger_schema.SCHEMA_VERSION > 3


@pytest.mark.parametrize("by", ["", "user", "purchase", "day"])
def test_on_many_nodes_that_a_report_cannot_tell_apart_the_sums_are_those_of_each(by: str) -> None:
    one = node()
    with an_hour_of(one, gpu(0, ANN)) as alone, Ledger.open(":memory:") as ledger:
        page = one.meter.usage(0, 10_000)
        for number in range(60):
            name = f"n{number}"
            placements = [placed(each)._replace(node=name) for each in page.placements]
            rows = [row._replace(gpu=row.gpu and f"{name}-{row.gpu}") for row in usage_rows(page.rows)]
            ledger.take(name, "m", rows, placements, 1, last_sequence=page.last_sequence)
        assert ledger.check() == []
        single = costs(report(alone, by))
        assert costs(report(ledger, by)) == {key: (60 * allocated, 60 * idle) for key, (allocated, idle) in single.items()}


@pytest.mark.parametrize(("busy", "unused"), [(0.0, "9.25"), (0.5, "4.62"), (0.2, "7.40"), (1.0, "0.00")])
def test_what_is_told_as_held_and_not_used_never_exceeds_what_is_allocated(busy: float, unused: str) -> None:
    with an_hour_of(node(), gpu(0, ANN, utilization_ratio=busy)) as ledger:
        told = table(report(ledger, "user"))
        cells = [str(row["allocated_unused_cost"]) for row in (*told.rows, told.totals)]
        assert cells == [unused, "0.00", unused]


def test_what_is_held_and_not_used_is_the_same_by_the_day_and_after_closing() -> None:
    with an_hour_of(node(), gpu(0, ANN, utilization_ratio=0.2)) as ledger:
        expected = Fraction(10 - Fraction(3, 4)) * 8 / 10
        days = {row.keys: row.allocated_unused_cost for row in report(ledger, "user,day").rows}
        assert sum(cost or 0 for cost in days.values()) == expected == report(ledger).totals.allocated_unused_cost
        price = Pricing(PriceList(), {}, "USD", EVEN)
        closing.close(ledger, price, "2026-03", datetime(2026, 4, 2, tzinfo=UTC))
        assert report(ledger, hours=720).totals.allocated_unused_cost == expected
        assert closing.notice(ledger, price, datetime(2026, 4, 3, tzinfo=UTC)) == []
