"""What cannot be a price is refused with a sentence; every price that ships passes its own rules."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from decimal import Decimal

import pytest

from pricing.catalog import Catalog
from pricing.plausible import Judge, Known
from pricing.prices import Price

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
JUDGE = Judge.shipped()


def price(amount: str | None, name: str = "p5.48xlarge", purchase: str = "on_demand", **more: object) -> Price:
    value = None if amount is None else Decimal(amount)
    zone = "use1-az1" if purchase == "spot" else None
    told = Price("aws", "us-east-1", zone, name, purchase, value, "USD", "instance_hour", NOW, NOW, "a test")
    return told._replace(**more)  # type: ignore[arg-type]


def test_every_price_that_ships_is_believable() -> None:
    said = []
    for offer in Catalog.embedded().offers():
        told = Price(
            offer.cloud, offer.region, offer.zone, offer.instance_type, offer.purchase,
            offer.price.amount if offer.price else None, offer.price.currency if offer.price else "USD", "instance_hour",
            datetime.combine(offer.as_of, time(), UTC), NOW, offer.source,
        )  # fmt: skip
        sentence = JUDGE.malformed(told) or JUDGE.judge(told, Known()).sentence
        said += [sentence] if sentence and "a tenth of on-demand" not in sentence else []
    assert said == []


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (price("0"), "is 0: a price is above 0"),
        (price("-1.5"), "is -1.5: a price is above 0"),
        (price("NaN"), "is NaN, which is not a number"),
        (price("Infinity"), "is Infinity, which is not a number"),
        (price("55.04", currency="XXX"), "in 'XXX', which is no currency"),
        (price("55.04", currency="$"), "in '$', which is no currency"),
        (price("55.04", unit="fortnight"), "per 'fortnight', which is no known unit"),
        (price("55.04", purchase="on-demand"), "no such purchase option"),
        (price("55.04", payment="monthly"), "no way to pay"),
        (price("55.04", region=""), "is empty"),
        (price("12", purchase="spot", zone="us-east-1a"), "us-east-1a is a zone's name"),
        (price("55.04", valid_from=datetime(2026, 11, 29)), "has no time zone"),
        (price("55.04", valid_from=NOW + timedelta(days=400)), "more than a year after"),
    ],
)
def test_what_cannot_be_a_price_is_said(wrong: Price, says: str) -> None:
    sentence = JUDGE.malformed(wrong)
    assert sentence is not None and says in sentence and sentence.endswith(".")


@pytest.mark.parametrize(
    ("wrong", "cause"),
    [
        (price("5504"), "it looks like cents: 55.04"),
        (price("0.5504"), "it looks like hundreds of the currency: 55.04"),
        (price("40179.2"), "it looks like a price per month: 55.04"),
        (price("0.0753972603"), "it looks like an hourly price that was taken for a monthly one: 55.04"),
        (price("6.88"), "it looks like the price of one GPU of the instance: 55.04"),
        (price("0.01", "p6-b200.48xlarge"), ""),
        (price("440.32", "p5.48xlarge", unit="gpu_hour"), ""),
    ],
)
def test_a_unit_that_is_off_is_refused_with_the_range_and_the_likely_cause(wrong: Price, cause: str) -> None:
    verdict = JUDGE.judge(wrong, Known(price("55.04")))
    assert verdict.kind == "refused" and cause in verdict.sentence
    assert (
        "per GPU: expected" in verdict.sentence
        and "the last good price, 55.04 seen 2026-11-29 12:00 UTC, stays" in verdict.sentence
    )


def test_spot_above_on_demand_is_refused_where_on_demand_is_certain() -> None:
    for known in (Known(None, price("50.04")), Known()):  # the book's, and the one that ships
        verdict = JUDGE.judge(price("55.0401", purchase="spot"), known)
        assert verdict.kind == "refused" and "the ceiling of spot" in verdict.sentence
    assert JUDGE.judge(price("55.04", purchase="spot"), Known()).kind == "good"  # no spare capacity
    long_ago = price("90", purchase="spot", valid_from=datetime(2025, 1, 1, tzinfo=UTC))
    assert JUDGE.judge(long_ago, Known()).kind == "warned"  # on-demand was 98.32 until 2025
    assert JUDGE.judge(price("60", purchase="spot", zone="use1-atl2-az1"), Known()).kind == "good"  # a place of its own


def test_spot_below_a_tenth_of_on_demand_is_taken_with_a_warning() -> None:
    low = JUDGE.judge(price("5.4", purchase="spot"), Known())
    assert low.kind == "warned" and "below a tenth of on-demand (55.04)" in low.sentence
    assert JUDGE.judge(price("5.504", purchase="spot"), Known()).kind == "good"


def test_a_committed_price_above_on_demand_is_held_back() -> None:
    assert JUDGE.judge(price("56", purchase="reserved_1y"), Known()).kind == "held"
    assert JUDGE.judge(price("33", purchase="reserved_1y"), Known()).kind == "good"


def test_a_change_beyond_the_factor_is_held_back_and_a_spot_price_may_move_within_its_law() -> None:
    last = price("20", "m5.24xlarge")
    held = JUDGE.judge(price("2000", "m5.24xlarge"), Known(last))
    assert held.kind == "held" and "100 times the last good price (20)" in held.sentence
    assert "expected 6.666667 to 60 (a factor of 100: cents?)" in held.sentence
    assert JUDGE.judge(price("55", "m5.24xlarge"), Known(last)).kind == "good"
    assert JUDGE.judge(price("55", purchase="spot"), Known(price("6", purchase="spot"))).kind == "good"
    yuan = JUDGE.judge(price("20", "m5.24xlarge", currency="CNY"), Known(last))
    assert yuan.kind == "held" and "it was in USD, and is told in CNY" in yuan.sentence


def test_a_price_per_gpu_is_held_back_also_where_the_bounds_of_the_model_allow_it() -> None:
    first = JUDGE.judge(price("3.06", "p3.8xlarge"), Known())  # against the price that ships: 12.24 for 4 GPUs
    assert first.kind == "held" and "a factor of 4: one GPU for the instance?" in first.sentence
    assert "the last good price, 12.24 seen 2026-07-20" in first.sentence
    two = price("4", "g4dn.12xlarge")
    assert JUDGE.judge(two._replace(amount=Decimal("0.978")), Known()).kind == "held"
    assert JUDGE.judge(two, Known()).kind == "good"
    assert JUDGE.judge(price("0.263", "g4dn.xlarge"), Known(price("0.526", "g4dn.xlarge"))).kind == "good"  # it has one


def test_a_price_that_is_not_told_is_fine_until_one_was() -> None:
    assert JUDGE.judge(price(None), Known()).kind == "good"
    assert JUDGE.judge(price(None), Known(price("55"))).kind == "refused"
