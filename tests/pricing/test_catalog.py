"""Looking prices up: the right one, a marked estimate, or None with a sentence a person can act on."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pricing.catalog import CLOUDS, PURCHASES, SNAPSHOT, Catalog, Offer
from pricing.errors import CatalogError
from pricing.money import PerHour, to_decimal

CATALOG = Catalog.embedded()
PRICED = [offer for offer in CATALOG.offers() if offer.price is not None]


@dataclass
class Owned:
    purchase_usd: object = Decimal(250_000)
    years: object = Decimal(4)
    power_watts: object = None
    power_usd_per_kwh: object = None


def reason(*asked: str | None) -> str:
    quote = CATALOG.quote(*asked)  # type: ignore[arg-type]
    assert (quote.price, quote.as_of, quote.source, quote.estimated) == (None, None, "", False)
    assert quote.reason is not None and "\n" not in quote.reason
    return quote.reason


def test_the_embedded_catalog_is_one_object() -> None:
    assert Catalog.embedded() is Catalog.embedded()


@given(st.sampled_from(PRICED))
def test_every_offer_is_quoted_as_it_stands(offer: Offer) -> None:
    quote = CATALOG.quote(offer.cloud, offer.region, offer.zone, offer.instance_type, offer.purchase)
    assert (quote.price, quote.as_of, quote.source) == (offer.price, offer.as_of, offer.source)
    assert quote.reason is None and not quote.estimated


@given(
    st.tuples(
        st.none() | st.sampled_from([*CLOUDS, "lambda", ""]),
        st.none() | st.sampled_from(["us-east-1", "eastus", "us-central1", "cn-beijing", "x", ""]),
        st.none() | st.sampled_from(["use1-az1", "us-east-1a", "use1-atl2-az1", "us-central1-a", "1", "", "-"]),
        st.none() | st.sampled_from(["p4d.24xlarge", "NC6s_v3", "a2-highgpu-1g", "p5e.48xlarge", "nothing", ""]),
        st.none() | st.sampled_from([*PURCHASES, "on-demand", ""]),
    )
)
def test_a_quote_has_a_price_or_a_reason_and_never_both(asked: tuple[str | None, ...]) -> None:
    quote = CATALOG.quote(*asked)
    assert (quote.price is None) != (quote.reason is None)
    assert (quote.price is None) == (quote.source == "")
    assert quote.price is None or quote.price.amount > 0


@given(st.tuples(*[st.text(max_size=20)] * 6))
def test_whatever_a_node_says_of_itself_a_quote_never_raises(asked: tuple[str, ...]) -> None:
    quote = CATALOG.quote(*asked)
    assert (quote.price is None) != (quote.reason is None)


def test_unknown_prices_come_last_and_currencies_are_not_mixed() -> None:
    offers = CATALOG.offers()
    known = [offer.price is not None for offer in offers]
    assert known == sorted(known, reverse=True) and not all(known)
    currencies = [offer.price.currency for offer in offers if offer.price]
    assert currencies == sorted(currencies, reverse=True)
    dollars = [offer.price for offer in offers if offer.price and offer.price.currency == "USD"]
    assert dollars == sorted(dollars)


def test_a_type_with_spot_and_no_on_demand_is_not_the_cheapest_on_demand() -> None:
    on_demand = CATALOG.offers("aws", gpu_model="h200", purchase="on_demand")
    assert on_demand[0].instance_type == "p5en.48xlarge"
    assert on_demand[-1].instance_type == "p5e.48xlarge" and on_demand[-1].price is None
    assert "without one" in reason("aws", "us-east-2", None, "p5e.48xlarge", "on_demand")


def test_offers_are_filtered_by_every_argument() -> None:
    assert {o.zone for o in CATALOG.offers("aws", "us-east-1", "use1-az1", "p4d.24xlarge")} == {"use1-az1"}
    assert {o.cloud for o in CATALOG.offers(gpu_model="A100", purchase="on_demand")} == set(CLOUDS)
    assert {o.region for o in CATALOG.offers("AZURE", "East US", instance_type="nc6s_v3")} == {"eastus"}
    assert CATALOG.offers("lambda") == CATALOG.offers(instance_type="nothing") == []


@pytest.mark.parametrize("name", ["Standard_NC6s_v3", "NC6s_v3", "nc6s_v3", "STANDARD_nc6S_V3"])
def test_azure_names_need_neither_case_nor_prefix(name: str) -> None:
    assert CATALOG.quote("azure", "eastus", "1", name, "on_demand").price == PerHour(Decimal("3.06"))
    shape = CATALOG.instance("Azure", name)
    assert shape is not None and shape.instance_type == "Standard_NC6s_v3"


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (
            ("aws", "us-east-1", None, "p4d.24xlarg", "on_demand"),
            "No price for p4d.24xlarg in us-east-1: unknown instance type (did you mean p4d.24xlarge?)",
        ),
        (("aws", "us-east-1", None, "zzz", "spot"), "No price for zzz in us-east-1: unknown instance type"),
        (("azure", "eastus", None, "NC6s_v4", "on_demand"), "(did you mean Standard_NC6s_v3?)"),
        (("aws", "us-eest-1", None, "p4d.24xlarge", "on_demand"), "(did you mean us-west-1 or us-east-1?)"),
        (("azur", "eastus", None, "NC6s_v3", "on_demand"), "of cloud azur are at hand (did you mean azure?)"),
        (("aws", "us-east-1", None, "p4d.24xlarge", "on-demand"), "option on-demand (did you mean on_demand?)"),
        (("gcp", "us-central1", None, "p4d.24xlarge", "spot"), "it is an instance type of aws, not of gcp"),
        ((None, None, None, None, None), "its cloud is not known"),
        (("aws", "us-east-1", None, None, "spot"), "its instance type is not known"),
        (("aws", None, None, "p4d.24xlarge", "spot"), "region is not known"),
        (("aws", "us-west-2", "use1-az1", "p4d.24xlarge", "spot"), "zone use1-az1 lies in us-east-1, not in us-west-2"),
        (("aws", "eu-west-1", None, "p5.48xlarge", "on_demand"), "the catalog has one only in ap-northeast-1"),
        (("azure", "eastus", None, "NC6s_v3", "spot"), "No spot price for Standard_NC6s_v3 in eastus"),
        (("alibaba", "us-east-1", None, "ebmgn7ix.32xlarge", "on_demand"), "lists the type there without one"),
    ],
)
def test_an_unknown_price_is_none_and_says_why(asked: tuple[str | None, ...], says: str) -> None:
    assert says in reason(*asked)


@pytest.mark.parametrize("purchase", [purchase for purchase in PURCHASES if purchase not in ("on_demand", "spot")])
def test_commitment_rates_that_nobody_verified_are_unknown(purchase: str) -> None:
    says = reason("aws", "us-east-1", None, "p4d.24xlarge", purchase)
    assert "are not known offline; set usd_per_hour" in says
    assert CATALOG.offers("aws", purchase=purchase) == []


def test_spot_without_a_zone_is_the_median_of_the_zones_and_marked() -> None:
    quote = CATALOG.quote("aws", "us-east-1", None, "p4d.24xlarge", "spot")
    assert quote.estimated
    assert quote.price == PerHour((Decimal("7.8799") + Decimal("8.1203")) / 2)
    assert "median of 4 zones of us-east-1, $2.4655/h to $8.1915/h, because the zone is not known" in quote.source
    assert quote.as_of == date(2025, 12, 1)


def test_an_odd_number_of_zones_has_a_middle_one() -> None:
    quote = CATALOG.quote("aws", "us-east-2", None, "p5.48xlarge", "spot")
    assert (quote.price, quote.estimated) == (PerHour(Decimal("11.5616")), True)


def test_a_local_zone_is_no_part_of_its_regions_median() -> None:
    quote = CATALOG.quote("aws", "us-east-1", None, "p5.48xlarge", "spot")
    assert "6 zones" in quote.source and "10.2397" not in quote.source


def test_a_local_zone_never_takes_its_regions_price() -> None:
    for zone in ("use1-atl2-az1", "us-east-1-atl-2a"):
        assert "local zone" in reason("aws", "us-east-1", zone, "p5.48xlarge", "on_demand")
    assert "local zone" in reason("aws", "us-west-2", "usw2-lax1-az2", "p5.48xlarge", "spot")


def test_a_zone_name_is_not_taken_for_a_zone_id() -> None:
    quote = CATALOG.quote("aws", "us-east-1", "us-east-1a", "p4d.24xlarge", "spot")
    unzoned = CATALOG.quote("aws", "us-east-1", None, "p4d.24xlarge", "spot")
    assert (quote.price, quote.estimated) == (unzoned.price, True)
    assert "us-east-1a is a name" in quote.source


def test_zones_with_one_price_need_no_estimate() -> None:
    quote = CATALOG.quote("aws", "us-west-2", None, "p6-b300.48xlarge", "spot")
    assert (quote.price, quote.estimated) == (PerHour(Decimal("33.4308")), False)


def test_a_zone_that_is_not_listed_is_unknown_not_the_neighbours_price() -> None:
    says = reason("aws", "us-east-1", "use1-az3", "p4d.24xlarge", "spot")
    assert "No spot price for p4d.24xlarge in use1-az3: the catalog lists it only in use1-az1, use1-az2" in says
    assert "No spot price for p5.4xlarge in use1-az1" in reason("aws", "us-east-1", "use1-az1", "p5.4xlarge", "spot")


@pytest.mark.parametrize(
    ("cloud", "zone", "name"),
    [
        ("aws", "use1-az6", "p4d.24xlarge"),
        ("aws", "us-east-1b", "p4d.24xlarge"),
        ("gcp", "us-central1-a", "a2-highgpu-1g"),
    ],
)
def test_a_zone_tells_its_region(cloud: str, zone: str, name: str) -> None:
    assert CATALOG.quote(cloud, None, zone, name, "on_demand").price is not None


def test_an_unknown_purchase_option_is_an_estimate_at_the_rack_rate() -> None:
    quote = CATALOG.quote("aws", "us-east-1", None, "p4d.24xlarge", None)
    assert (quote.price, quote.estimated) == (PerHour(Decimal("21.957642")), True)
    assert "purchase option is not known" in quote.source


def test_a_catalog_price_wins_over_the_configured_one() -> None:
    quote = CATALOG.quote("aws", "us-east-1", None, "p4d.24xlarge", "on_demand", "99")
    assert quote.price == PerHour(Decimal("21.957642"))


@pytest.mark.parametrize(
    "asked",
    [
        ("aws", "us-east-1", None, "p4d.24xlarge", "reserved_1y"),
        ("aws", "us-east-1", None, "p4d.24xlarge", "spot"),
        ("aws", "us-east-1", None, "unheard-of", "on_demand"),
        ("lambda", "us", None, "gpu_8x", "on_demand"),
        (None, None, None, None, None),
    ],
)
def test_the_configured_price_counts_where_the_catalog_has_none_of_its_own(asked: tuple[str | None, ...]) -> None:
    quote = CATALOG.quote(*asked, "3.10")  # type: ignore[arg-type]
    assert (quote.price, quote.as_of, quote.estimated) == (PerHour(Decimal("3.10")), None, False)
    assert "configuration" in quote.source


@pytest.mark.parametrize("configured", [None, "", " ", "0", "0.00", Decimal(0)])
def test_a_configured_price_of_nothing_is_unknown(configured: str | Decimal | None) -> None:
    quote = CATALOG.quote("lambda", "us", None, "gpu_8x", "on_demand", configured)
    assert quote.price is None and quote.reason is not None


@pytest.mark.parametrize(
    ("configured", "says"), [("3,10", "decimal comma"), ("-1", "negative"), ("nan", "not a number")]
)
def test_a_wrong_configured_price_is_said(configured: str, says: str) -> None:
    quote = CATALOG.quote("on_premises", None, None, None, None, configured)
    assert quote.price is None and quote.reason is not None and says in quote.reason


def test_an_owned_node_costs_its_purchase_over_its_years_plus_its_power() -> None:
    owned = Owned(power_watts=Decimal(6500), power_usd_per_kwh=Decimal("0.18"))
    quote = CATALOG.quote("on_premises", None, None, None, None, None, owned)  # type: ignore[arg-type]
    exact = Fraction(250_000, 4 * 8766) + Fraction(6500, 1000) * Fraction("0.18")
    assert quote.price == PerHour(to_decimal(exact, 10)) == PerHour(Decimal("8.2998197582"))
    assert "4 years of 8,766 h, plus power" in quote.source


def test_an_owned_node_without_its_power_says_that_it_is_not_counted() -> None:
    quote = CATALOG.quote("on_premises", None, None, None, None, None, Owned())  # type: ignore[arg-type]
    assert quote.price == PerHour(Decimal("7.1298197582"))
    assert "power not counted" in quote.source


def test_on_premises_the_configured_price_always_counts() -> None:
    quote = CATALOG.quote("on_premises", None, None, None, None, "3.10", Owned())  # type: ignore[arg-type]
    assert quote.price == PerHour(Decimal("3.10"))


@pytest.mark.parametrize(
    ("owned", "says"),
    [
        (Owned(purchase_usd=Decimal(0)), "purchase_usd of the node is 0: it must be above 0"),
        (Owned(years=Decimal(-4)), "years of the node is -4"),
        (Owned(years=4.0), "not exact"),
        (Owned(power_watts=Decimal(0), power_usd_per_kwh=Decimal(1)), "power_watts of the node is 0"),
        (None, "set usd_per_hour, or purchase_usd and years"),
    ],
)
def test_an_owned_node_without_usable_figures_is_unknown(owned: Owned | None, says: str) -> None:
    quote = CATALOG.quote("on_premises", None, None, None, None, None, owned)  # type: ignore[arg-type]
    assert quote.price is None and quote.reason is not None and says in quote.reason


def test_a_price_per_gpu_is_exact_and_unknown_where_either_part_is() -> None:
    sixth = CATALOG.offers("azure", "eastus", None, "NV6ads_A10_v5")[0]
    assert CATALOG.per_gpu(sixth) == Fraction("0.454") * 6
    assert CATALOG.per_gpu(sixth._replace(price=None)) is None
    assert CATALOG.per_gpu(CATALOG.offers("aws", instance_type="m5.large")[0]) is None


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("us-east-1,,p4d.24xlarge,on_demand,abc,USD,2026-07-20,s", "line 2 is damaged"),
        ("us-east-1,,p4d.24xlarge,on_demand,-1,USD,2026-07-20,s", "line 2 is damaged"),
        ("us-east-1,,p4d.24xlarge,on_demand,0,USD,2026-07-20,s", "line 2 is damaged"),
        ("us-east-1,,p4d.24xlarge,on_demand,1,dollar,2026-07-20,s", "line 2 is damaged"),
        ("us-east-1,,p4d.24xlarge,on_demand,1,USD,yesterday,s", "line 2 is damaged"),
        ("us-east-1,,p4d.24xlarge", "line 2 has 3 cells"),
    ],
)
def test_a_damaged_table_names_its_file_and_line(tmp_path: Path, row: str, says: str) -> None:
    header = "region,zone,instance_type,purchase,price,currency,as_of,source"
    (tmp_path / "aws.csv").write_text(f"{header}\n{row}\n")
    (tmp_path / "instance_types.csv").write_bytes((SNAPSHOT / "instance_types.csv").read_bytes())
    with pytest.raises(CatalogError, match="aws.csv") as caught:
        Catalog(tmp_path).offers("aws")
    assert says in str(caught.value)


def test_a_missing_table_is_a_catalog_error(tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match="instance_types.csv cannot be read"):
        Catalog(tmp_path).instance("aws", "p4d.24xlarge")


def test_a_quote_reads_only_its_own_clouds_table(tmp_path: Path) -> None:
    for name in ("aws.csv", "instance_types.csv"):
        (tmp_path / name).write_bytes((SNAPSHOT / name).read_bytes())
    assert Catalog(tmp_path).quote("aws", "us-east-1", None, "p4d.24xlarge", "on_demand").price is not None


def test_the_catalog_imports_nothing_of_the_agent_or_the_app() -> None:
    code = "import sys, pricing.catalog; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"agent", "tui", "sqlite_utils", "msgspec"} & {name.split(".")[0] for name in done.stdout.split()}


def test_a_nodes_own_words_are_cleaned_before_they_stand_in_a_sentence() -> None:
    says = reason("aws", "us-east-1\x1b[2J", None, "p4d\x1b]0;x\x07" + "y" * 5000, "on_demand")
    assert says.isprintable() and len(says) < 300
