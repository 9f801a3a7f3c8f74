"""Faults that other programs had with prices and costs: each kind has a test. Those that have no better place stand here.

Invariant: `TESTED` names, for each kind of fault, tests that exist.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pricing import price_steps
from pricing.attribution import attribute
from pricing.calendar import instant
from pricing.catalog import Catalog
from pricing.contracts import Discount, factors
from pricing.ledger import Ledger
from pricing.ledger_merge import HOUR_MS
from pricing.offers import PURCHASES
from pricing.pricebook import PriceBook
from pricing.prices import Price
from pricing.usage import WHOLE_SHARE, Placed, Usage
from tests.support.usage import PriceList

TESTS = Path(__file__).parents[1]
HERE = "pricing/test_faults_of_others.py"
AWS = "pricing/sources/test_aws_prices.py"
TESTED = {
    "spot dearer than on-demand is taken": (
        "pricing/test_planner.py::test_spot_at_or_above_on_demand_is_never_told",
        "pricing/test_advice_spot.py::test_spot_at_on_demand_or_dearer_with_its_interruptions_is_never_advised",
    ),
    "one price per type, whatever zone, option, system or tenancy": (
        "pricing/test_pricebook.py::test_keys_tell_everything_apart_that_has_a_price_of_its_own",
    ),
    "no endpoint, and silently stale prices": (
        "pricing/sources/test_aws_session.py::test_a_real_connection_that_is_refused_is_unreachable",
        "tui/test_prices_commands.py::test_what_is_refused_or_fails_is_told_and_the_exit_code_says_partly_or_failed",
        "pricing/test_pricebook.py::test_ages_tell_how_old_each_kind_is_and_refreshes_how_the_last_one_ended",
    ),
    "China has an endpoint and a currency of its own": (f"{AWS}::test_china_is_priced_in_yuan_from_its_own_endpoint",),
    "a mean of prices is adjusted, not each price": (f"{HERE}::test_each_price_is_discounted_before_an_hour_is_averaged",),
    "a machine without its GPUs, or GPUs without their machine": (
        "pricing/sources/test_web_sources.py::test_gcp_sums_the_components_of_a_machine_and_leaves_out_what_is_known_in_part",
    ),
    "a price of 0 is the cheapest": (
        "pricing/test_plausible.py::test_what_cannot_be_a_price_is_said",
        "pricing/test_catalog.py::test_unknown_prices_come_last_and_currencies_are_not_mixed",
    ),
    "cents for dollars": ("pricing/test_plausible.py::test_a_unit_that_is_off_is_refused_with_the_range_and_the_likely_cause",),
    "the published price is not the billed one": ("pricing/test_compare.py::test_every_kind_of_difference_has_its_part",),
    "prices that were written down once": (
        "tui/test_prices_commands.py::test_prices_that_are_old_are_told_to_be",
        "pricing/test_snapshot.py::test_every_price_has_a_date_and_a_source",
    ),
    "rows that stand there twice": (
        "pricing/test_snapshot.py::test_no_offer_stands_twice",
        "pricing/test_pricebook.py::test_one_offer_with_two_prices_in_one_answer_keeps_the_first_and_says_so",
    ),
    "the region that is cheapest on demand is taken for spot": (f"{HERE}::test_each_purchase_option_has_a_cheapest_place_of_its_own",),
    "the price of a chip for that of a host": (f"{HERE}::test_a_price_of_another_unit_never_prices_a_node",),
    "the price of a GPU for that of an instance": (
        "pricing/test_plausible.py::test_a_price_per_gpu_is_held_back_also_where_the_bounds_of_the_model_allow_it",
    ),
    "priced as one product, bought as another": (
        f"{AWS}::test_a_product_gives_its_prices_digit_for_digit_with_place_dates_and_source",
        f"{HERE}::test_the_product_that_a_price_is_of_stays_with_it",
    ),
    "a component of a machine is missing in its price": (
        "pricing/sources/test_web_sources.py::test_gcp_sums_the_components_of_a_machine_and_leaves_out_what_is_known_in_part",
    ),
    "a price of what is not sold": ("pricing/test_catalog.py::test_a_type_with_spot_and_no_on_demand_is_not_the_cheapest_on_demand",),
    "capacity blocks over on-demand prices": (f"{AWS}::test_another_kind_of_product_is_none_of_ours",),
    "a local zone for its region": ("pricing/test_catalog.py::test_a_local_zone_never_takes_its_regions_price",),
    "types that one region lacks": (f"{HERE}::test_a_type_that_any_one_region_lacks_is_priced_where_it_is",),
    "no price counts as $0.00": ("pricing/test_attribution.py::test_an_unknown_price_is_named_and_never_counted_as_zero",),
    "low priority, Windows and reservations among Azure's prices": (
        "pricing/sources/test_web_sources.py::test_azure_pages_to_the_end_and_takes_only_linux_machines_of_our_options",
    ),
    "two sources that differ": ("pricing/test_overlay.py::test_a_newer_price_of_the_book_counts_with_its_own_date_and_source",),
    "list prices where others were agreed": (
        "pricing/test_planner.py::test_a_discount_of_the_contract_and_a_what_if_change_the_price",
        "pricing/test_attribution_terms.py::test_levels_of_price_by_hand",
    ),
    "an hourly price taken for a monthly one": ("pricing/test_price_file.py::test_a_wrong_period_is_said",),
    "parts that are more than the node, idle below 0, GPUs that cost where there are none": (
        "pricing/test_attribution.py::test_allocated_and_idle_are_price_times_covered_time_for_any_grouping_and_range",
        "pricing/test_attribution.py::test_gpu_rows_of_a_node_that_says_it_has_none_have_no_price",
    ),
    "shares of more than one GPU": (
        "pricing/test_attribution_terms.py::test_a_half_used_gpu_shared_by_three_jobs_costs_exactly_one_gpu",
        "agent/test_meter_use.py::test_each_has_an_equal_part_whatever_he_computes_and_all_are_one_gpu",
    ),
    "the device's figure summed over its tenants": (
        f"{HERE}::test_tenants_that_each_tell_the_devices_utilisation_do_not_make_it_busier",
        "agent/test_meter_use.py::test_the_parts_together_are_as_busy_as_the_gpu",
    ),
    "idle that vanishes where nobody weighs anything": (f"{HERE}::test_idle_is_all_of_it_where_nobody_held_anything",),
    "a truncated history": (
        "pricing/sources/test_aws_spot.py::test_a_page_of_exactly_1000_rows_without_a_token_is_read_on_from_its_oldest_row",
        "pricing/sources/test_aws_spot.py::test_history_is_read_to_the_end_by_zone_id_with_the_price_in_force_at_its_start",
    ),
    "0 for unavailable": (
        "pricing/test_pricebook.py::test_a_price_that_was_not_told_is_kept_as_not_told_and_never_replaces_a_good_one",
    ),
    "byte-order marks, headers in another language, decimal commas": (
        "pricing/test_price_file.py::test_two_byte_order_marks_windows_lines_and_blank_lines_do_no_harm",
        "pricing/test_compare.py::test_older_names_two_byte_order_marks_gzip_and_parquet_say_the_same",
        "tui/test_report_command.py::test_a_csv_begins_with_a_mark_where_it_is_asked_for",
    ),
    "days that do not add up": (
        "pricing/test_attribution.py::test_the_days_of_a_range_add_up_to_it_over_a_clock_change",
        "pricing/test_calendar.py::test_a_day_with_a_clock_change_has_the_hours_it_has",
    ),
    "billing rules of a provider": (
        "pricing/test_billing.py::test_a_machine_is_billed_as_its_provider_documents",
        "pricing/test_interrupted.py::test_what_aws_interrupts_in_its_first_hour_is_free_in_every_grouping",
    ),
    "a look-back that is taken for the future": (
        "pricing/test_advice_commit.py::test_less_than_a_week_tells_nothing_and_less_than_a_month_is_partial",
        "tui/test_spending.py::test_recommendations_of_aws_are_alternatives_with_their_look_back",
    ),
}
"""In the order of the list that the project keeps of them."""
CATALOG = Catalog.embedded()
NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
START_MS = 1_790_000_000_000 // HOUR_MS * HOUR_MS


@pytest.mark.parametrize("kind", TESTED)
def test_each_kind_of_fault_has_a_test(kind: str) -> None:
    for path, _, name in (named.partition("::") for named in TESTED[kind]):
        assert f"def {name}(" in (TESTS / path).read_text(), named_wrongly(path, name)


def named_wrongly(path: str, name: str) -> str:
    return f"{path} has no {name}: name the test that took its place"


moments = st.integers(0, HOUR_MS - 1)


@given(st.lists(st.tuples(moments, st.integers(1, 10_000)), min_size=1, max_size=5), st.lists(st.tuples(moments, moments, st.integers(1, 90)), max_size=4))
def test_each_price_is_discounted_before_an_hour_is_averaged(prices: list, discounts: list) -> None:
    listed = price_steps.made([(0, Fraction(7)), *sorted(dict(prices).items())])
    held = [Discount("aws", Fraction(percent), starts_ms=min(a, b), ends_ms=max(a, b) + 1) for a, b, percent in discounts]
    steps = factors(held, "aws", "us-east-1", "p4d.24xlarge", "on_demand")
    mean = price_steps.hour_rate(price_steps.combined(lambda price, factor: price * factor, listed, steps), 0)
    edges = sorted({0, HOUR_MS, *dict(prices), *(edge for one in held for edge in (one.starts_ms, one.ends_ms or 0))})
    pieces = zip(edges, edges[1:], strict=False)
    exact = sum(price_steps.value_at(listed, a) * price_steps.value_at(steps, a) * (b - a) for a, b in pieces)  # type: ignore[operator]
    assert mean == exact / HOUR_MS


def test_each_purchase_option_has_a_cheapest_place_of_its_own() -> None:
    differs = 0
    for shape in CATALOG.instances("aws"):
        first = {}
        for option in PURCHASES:
            offers = [one for one in CATALOG.offers("aws", instance_type=shape.instance_type, purchase=option) if one.price]
            usd = [one for one in offers if one.price.currency == "USD"]
            if usd:
                assert usd[0].price.amount == min(one.price.amount for one in usd) and {one.purchase for one in usd} == {option}
                first[option] = usd[0].region
        differs += len({first.get("on_demand"), first.get("spot")} - {None}) > 1
    assert differs > 4, "that the places differ is usual"


@pytest.mark.parametrize("unit", ["gpu_hour", "month", "gb_month", "gb"])
def test_a_price_of_another_unit_never_prices_a_node(unit: str) -> None:
    one = Price("aws", "us-east-1", None, "p4d.24xlarge", "on_demand", Decimal("21.9"), "USD", unit, NOW, NOW, "fake")
    with PriceBook.open(":memory:") as book:
        book.put([one], NOW, accept=True)
        assert book.offers_at(NOW, "aws") == book.current(NOW, "aws") == []
        asked = ("aws", "us-east-1", None, "p4d.24xlarge", "on_demand")
        assert CATALOG.with_book(book, NOW + timedelta(days=1)).quote(*asked) == CATALOG.quote(*asked)


def test_the_product_that_a_price_is_of_stays_with_it() -> None:
    one = Price("aws", "us-east-1", None, "p4d.24xlarge", "on_demand", Decimal("21.9"), "USD", "instance_hour", NOW, NOW, "fake", "SKU1")
    with PriceBook.open(":memory:") as book:
        for days, sku in ((0, "SKU1"), (1, None), (2, "SKU2")):
            book.put([one._replace(fetched_at=NOW + timedelta(days=days), sku=sku)], NOW + timedelta(days=days))
            (kept,) = book.offers_at(NOW + timedelta(days=9), "aws")
            assert kept.sku == (sku or "SKU1")


def test_a_type_that_any_one_region_lacks_is_priced_where_it_is() -> None:
    regions = {offer.region for offer in CATALOG.offers("aws")}
    lacking = 0
    for region in sorted(regions):
        here = {offer.instance_type for offer in CATALOG.offers("aws", region=region)}
        for shape in CATALOG.instances("aws"):
            offers = [one for one in CATALOG.offers("aws", instance_type=shape.instance_type) if one.price]
            if shape.instance_type not in here and offers:
                lacking += 1
                one = offers[0]
                quote = CATALOG.quote("aws", one.region, one.zone, shape.instance_type, one.purchase)
                assert quote.price == one.price
    assert lacking > 50


def rows_of(shares: list[int], ratio: float | None, kind: str = "held") -> list[Usage]:
    return [
        Usage(number, START_MS, START_MS + HOUR_MS, "GPU-0", kind, None, share, f"user-{number}", None, None, ratio, None, None, 1)
        for number, share in enumerate(shares, 1)
    ]


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 9), st.floats(0, 1))
def test_tenants_that_each_tell_the_devices_utilisation_do_not_make_it_busier(tenants: int, ratio: float) -> None:
    shares = [WHOLE_SHARE // tenants] * tenants
    shares[0] += WHOLE_SHARE - sum(shares)
    report = cost_of(rows_of(shares, ratio))
    assert report.totals.utilization_ratio == pytest.approx(ratio, abs=1e-5)
    assert all(row.utilization_ratio == pytest.approx(ratio, abs=1e-5) for row in report.rows)
    assert report.totals.gpu_hours == 1 and report.totals.total_cost == 8


def test_idle_is_all_of_it_where_nobody_held_anything() -> None:
    (row,) = rows_of([WHOLE_SHARE], 0.0, "idle")
    report = cost_of([row._replace(user=None)])
    assert (report.totals.idle_cost, report.totals.allocated_cost, report.totals.total_cost) == (8, 0, 8)


def cost_of(rows: list[Usage]):  # noqa: ANN201
    """Of a node with one GPU at $8 an hour, by user."""
    node = Placed(1, "node", "aws", "r", None, "gpu_box", "on_demand", "8", gpu_count=1, gpu_model="A100")
    with Ledger.open(":memory:") as ledger:
        ledger.take("node", "m", rows, [node], 1)
        start = instant(START_MS)
        return attribute(ledger, PriceList(), start, start + timedelta(hours=1), ("user",))  # type: ignore[arg-type]
