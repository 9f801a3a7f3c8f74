"""Laws of the price tables that ship: each row dated, sourced and plausible; facts from the sources stand in them."""

from __future__ import annotations

import csv
from collections import Counter
from datetime import date
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pricing.catalog import CLOUDS, PURCHASES, SNAPSHOT, Catalog, Offer
from pricing.money import to_decimal
from pricing.zones import is_aws_id, is_local

CATALOG = Catalog.embedded()
ALL = CATALOG.offers()
PRICED = [offer for offer in ALL if offer.price is not None]
SHAPES = [shape for cloud in CLOUDS for shape in CATALOG.instances(cloud)]

ON_DEMAND_USD = {
    "K80": (0.3, 1), "M60": (0.6, 2.5), "K520": (0.5, 1), "V520": (0.3, 1), "V620": (2, 5), "V710": (1.5, 4),
    "MI25": (1.5, 3), "T4": (0.4, 4.5), "T4g": (0.4, 1.4), "V100": (1.5, 7), "A10": (2, 9.5), "A10G": (1, 4.2),
    "L4": (0.6, 3.5), "L40S": (1.8, 7.6), "A100": (2.5, 9), "H100": (6, 24), "H200": (7, 22), "B200": (14, 15),
    "B300": (17, 18), "GB200": (27, 55), "MI300X": (6, 12), "RTX PRO 4500": (2.5, 4.1), "RTX PRO 6000": (3, 9),
    "Trainium": (1.3, 1.6), "Inferentia": (0.2, 0.4), "Inferentia2": (0.7, 2), "Gaudi": (1.6, 1.7),
}  # fmt: skip
"""Lowest and highest believable on-demand price of a whole machine per GPU and hour."""

ON_DEMAND_CNY = {"P4": (6, 22), "P100": (10, 24), "V100": (14, 31), "T4": (7, 24), "A10": (8, 32), "A100": (28, 41)}

MEMORY_GIB = {
    "K80": {12}, "M60": {8}, "K520": {4}, "V520": {8}, "V620": {32}, "MI25": {16}, "P4": {8}, "P100": {16}, "T4": {16},
    "T4g": {16}, "V100": {16, 32}, "A10": {22}, "A10G": {22}, "L4": {22}, "L40S": {45}, "A100": {40, 80},
    "H100": {80, 94}, "H200": {141}, "B200": {179}, "B300": {269}, "MI300X": {192}, "RTX PRO 4500": {32},
    "RTX PRO 6000": {96}, "Trainium": {32}, "Trainium2": {96}, "Inferentia": {8}, "Inferentia2": {32}, "Gaudi": {32},
}  # fmt: skip

any_priced = st.sampled_from(PRICED)
aws_spot = st.sampled_from([offer for offer in PRICED if offer.cloud == "aws" and offer.purchase == "spot"])


def on_demand_of(offer: Offer) -> Decimal | None:
    """The regional on-demand price beside an offer, if it is known."""
    found = CATALOG.offers(offer.cloud, offer.region, None, offer.instance_type, purchase="on_demand")
    return found[0].price.amount if found and found[0].price else None


@given(any_priced)
def test_no_price_is_zero_or_negative(offer: Offer) -> None:
    assert offer.price is not None
    assert offer.price.amount > 0


@given(st.sampled_from(ALL))
def test_every_price_has_a_date_and_a_source(offer: Offer) -> None:
    assert date(2024, 1, 1) < offer.as_of < date(2027, 1, 1)
    assert len(offer.source) > 10
    assert offer.region == offer.region.strip().lower() != ""
    assert offer.purchase in PURCHASES


def test_no_offer_stands_twice() -> None:
    keys = Counter((o.cloud, o.region, o.zone, o.instance_type.lower(), o.purchase) for o in ALL)
    assert [key for key, times in keys.items() if times > 1] == []


def test_every_offer_has_a_machine_and_every_machine_a_source() -> None:
    assert [offer for offer in ALL if CATALOG.instance(offer.cloud, offer.instance_type) is None] == []
    assert [shape for shape in SHAPES if not shape.source] == []


@pytest.mark.parametrize("cloud", CLOUDS)
def test_no_cell_of_a_price_is_a_zero_that_means_unknown(cloud: str) -> None:
    with (SNAPSHOT / f"{cloud}.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert rows
    assert [row for row in rows if row["price"] and not Decimal(row["price"])] == []


def test_each_cloud_keeps_its_own_currency() -> None:
    currencies = {(offer.cloud, offer.price.currency) for offer in PRICED if offer.price}
    assert currencies == {("aws", "USD"), ("gcp", "USD"), ("azure", "USD"), ("alibaba", "CNY")}


@given(aws_spot)
def test_aws_spot_lies_between_a_tenth_of_on_demand_and_on_demand(offer: Offer) -> None:
    # AWS publishes spot at four decimals, on-demand at up to six
    on_demand = on_demand_of(offer)
    if on_demand is None:
        return
    assert offer.price is not None
    assert to_decimal(on_demand / 10, 4) <= offer.price.amount <= to_decimal(on_demand, 4)


def test_the_floor_and_the_ceiling_of_aws_spot_are_both_reached() -> None:
    ratios = set()
    for offer in PRICED:
        on_demand = on_demand_of(offer) if (offer.cloud, offer.purchase) == ("aws", "spot") else None
        if on_demand and offer.price:
            limits = (Decimal("0.1"), Decimal(1))
            ratios |= {part for part in limits if to_decimal(on_demand * part, 4) == offer.price.amount}
    assert ratios == {Decimal("0.1"), Decimal(1)}


def test_gcp_spot_is_below_on_demand_everywhere() -> None:
    for offer in CATALOG.offers("gcp", purchase="spot"):
        on_demand = on_demand_of(offer)
        assert on_demand is not None and offer.price is not None
        assert offer.price.amount < on_demand


def test_aws_spot_is_keyed_by_zone_id_and_everything_else_by_region() -> None:
    for offer in ALL:
        zoned = offer.cloud == "aws" and offer.purchase == "spot"
        assert (offer.zone is not None) == zoned, offer
        assert offer.zone is None or is_aws_id(offer.zone), offer


def test_local_zones_are_places_of_their_own() -> None:
    assert {offer.zone for offer in ALL if offer.zone and is_local(offer.zone)} == {"use1-atl2-az1", "usw2-lax1-az2"}


@given(any_priced)
def test_prices_per_gpu_are_believable(offer: Offer) -> None:
    shape, per_gpu = CATALOG.instance(offer.cloud, offer.instance_type), CATALOG.per_gpu(offer)
    if shape is None or shape.kind == "cpu" or per_gpu is None or shape.gpu_model is None or offer.price is None:
        return
    bounds = ON_DEMAND_USD if offer.price.currency == "USD" else ON_DEMAND_CNY
    low, high = bounds[shape.gpu_model]
    assert per_gpu <= high
    assert per_gpu >= (low if offer.purchase == "on_demand" else low / 12)


def test_every_type_of_machine_was_checked_for_a_believable_price() -> None:
    for offer in PRICED:
        test_prices_per_gpu_are_believable.hypothesis.inner_test(offer)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"{shape.cloud}-{shape.instance_type}")
def test_shapes_are_believable(shape) -> None:  # type: ignore[no-untyped-def]
    if shape.kind == "cpu":
        assert (shape.gpu_model, shape.gpu_count, shape.gpu_memory_bytes) == (None, 0, None)
    else:
        assert shape.gpu_model
        assert shape.gpu_count is None or 0 < shape.gpu_count <= 16
    if shape.gpu_memory_bytes is not None:
        whole = Fraction(shape.gpu_memory_bytes, 1 << 30) / min(Fraction(shape.gpu_count), Fraction(1))
        assert round(whole) in MEMORY_GIB[shape.gpu_model]
    assert shape.vcpus is None or 1 <= shape.vcpus <= 400
    assert shape.memory_bytes is None or 1 <= shape.memory_bytes / (1 << 30) / (shape.vcpus or 1) <= 25
    assert shape.nvme_bytes is None or 0 <= shape.nvme_bytes <= 61e12


FACTS = [
    ("aws", "us-east-1", None, "p4d.24xlarge", "on_demand", "21.957642"),
    ("aws", "us-east-1", None, "p5.48xlarge", "on_demand", "55.04"),
    ("aws", "us-east-1", None, "p5en.48xlarge", "on_demand", "63.296"),
    ("aws", "us-east-1", None, "p6-b200.48xlarge", "on_demand", "113.9328"),
    ("aws", "us-east-1", None, "g6f.large", "on_demand", "0.202"),
    ("aws", "us-east-1", None, "trn1.32xlarge", "on_demand", "21.5"),
    ("aws", "us-east-1", None, "i3en.24xlarge", "on_demand", "10.848"),
    ("aws", "us-west-1", None, "p5.48xlarge", "on_demand", "68.8"),
    ("aws", "eu-west-1", None, "p4d.24xlarge", "on_demand", "23.71569"),
    ("aws", "ap-northeast-1", None, "p3.2xlarge", "on_demand", "4.194"),
    ("aws", "us-east-1", "use1-az1", "p4d.24xlarge", "spot", "2.4655"),
    ("aws", "us-east-1", "use1-az4", "p5.48xlarge", "spot", "55.04"),
    ("aws", "us-east-1", "use1-atl2-az1", "p5.48xlarge", "spot", "10.2397"),
    ("aws", "us-east-2", "use2-az3", "p5e.48xlarge", "spot", "18.7359"),
    ("aws", "eu-south-2", "eus2-az2", "p5en.48xlarge", "spot", "6.836"),
    ("gcp", "us-central1", None, "a2-highgpu-1g", "on_demand", "3.673385"),
    ("gcp", "us-central1", None, "a3-highgpu-8g", "on_demand", "88.490"),
    ("gcp", "us-central1", None, "a3-highgpu-8g", "spot", "50.610"),
    ("gcp", "asia-northeast1", None, "a3-highgpu-8g", "spot", "25.910"),
    ("gcp", "us-central1", None, "g4-standard-48", "spot", "1.800"),
    ("azure", "eastus", None, "Standard_NC6s_v3", "on_demand", "3.06"),
    ("azure", "westeurope", None, "Standard_ND96isr_H100_v5", "on_demand", "127.816"),
    ("azure", "eastus", None, "Standard_NC40ads_H100_v5", "on_demand", "6.98"),
    ("alibaba", "cn-beijing", None, "gn6v-c8g1.2xlarge", "on_demand", "26.46"),
    ("alibaba", "us-east-1", None, "gn6v-c8g1.2xlarge", "on_demand", "18.26"),
]


@pytest.mark.parametrize(("cloud", "region", "zone", "name", "purchase", "amount"), FACTS)
def test_known_facts_stand_in_the_tables(
    cloud: str, region: str, zone: str | None, name: str, purchase: str, amount: str
) -> None:
    quote = CATALOG.quote(cloud, region, zone, name, purchase)
    assert quote.price is not None and not quote.estimated
    assert quote.price.currency == ("CNY" if cloud == "alibaba" else "USD")
    assert to_decimal(quote.price.amount, len(amount.partition(".")[2])) == Decimal(amount)


def test_a_gcp_commitment_is_its_month_over_730_hours_and_says_so() -> None:
    one_year = CATALOG.quote("gcp", "us-central1", None, "a2-highgpu-1g", "reserved_1y")
    assert one_year.price is not None
    assert one_year.price.amount == to_decimal(Fraction("1689.37") / 730, 10)
    assert "730 h" in one_year.source and "1689.37 USD a month" in one_year.source
    assert one_year.as_of == date(2025, 3, 6)


def test_the_newer_file_wins_for_us_east_1() -> None:
    for offer in CATALOG.offers("aws", "us-east-1", purchase="on_demand"):
        assert offer.as_of == date(2026, 7, 20)


MODELS = "K80 V100 T4 T4g A10 A10G L4 L40S A100 H100 H200 B200 B300 GB200 MI300X Trainium Inferentia2 P100"


@pytest.mark.parametrize("model", [*MODELS.split(), "RTX PRO 6000"])
def test_each_accelerator_of_the_sources_has_an_offer(model: str) -> None:
    assert CATALOG.offers(gpu_model=model)


def test_a_part_of_a_gpu_is_an_exact_fraction_with_its_own_memory() -> None:
    eighth, twelfth = CATALOG.instance("aws", "g6f.large"), CATALOG.instance("alibaba", "sgn7i-vws-m2.xlarge")
    assert eighth is not None and twelfth is not None
    assert (eighth.gpu_model, eighth.gpu_count) == ("L4", Fraction(1, 8))
    assert eighth.gpu_memory_bytes == 2861 << 20
    assert twelfth.gpu_count == Fraction(1, 12)


def test_chips_that_nvml_cannot_read_are_marked_as_such() -> None:
    chips = {shape.gpu_model for shape in SHAPES if shape.kind == "ai_chip"}
    assert chips == {"Trainium", "Trainium2", "Inferentia", "Inferentia2", "Gaudi"}


def test_i3en_24xlarge_has_sixty_terabytes_of_nvme() -> None:
    shape = CATALOG.instance("aws", "i3en.24xlarge")
    assert shape is not None
    assert (shape.kind, shape.nvme_bytes) == ("cpu", 60_000_000_000_000)


def test_the_tables_stay_small() -> None:
    assert sum(path.stat().st_size for path in SNAPSHOT.glob("*.csv")) <= 1_500_000
