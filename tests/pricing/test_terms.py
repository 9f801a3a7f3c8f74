"""terms.toml: what is right is read wholly, and every fault is one sentence with file and key."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest

import pricing.terms as terms_module
from pricing.calendar import parse_instant
from pricing.errors import TermsError
from pricing.price_steps import value_at
from pricing.terms import Terms, load
from pricing.weights import Weights


def ms(text: str) -> int:
    return round(parse_instant(text).timestamp() * 1000)


def read(tmp_path: Path, text: str) -> Terms:
    path = tmp_path / "terms.toml"
    path.write_text(text, encoding="utf-8")
    return load(path)


def test_the_example_of_the_documentation_is_read_as_it_says(tmp_path: Path) -> None:
    said = terms_module.__doc__ or ""
    terms = read(tmp_path, said[said.index("    [currency]") :])
    assert value_at(terms.exchange.usd["CNY"], ms("2026-05-01")) == Fraction("0.14")
    assert value_at(terms.exchange.usd["CNY"], ms("2025-12-31")) is None
    (discount,) = terms.discounts
    assert (discount.cloud, discount.instance_type, discount.percent) == ("aws", "p4d.*", Fraction("12.5"))
    assert (discount.starts_ms, discount.ends_ms) == (ms("2026-01-01"), None)
    reserved, plan = terms.commitments
    assert (reserved.id, reserved.kind, reserved.count) == ("ri-1", "reservation", 2)
    assert reserved.cost_per_hour == Fraction(60_000, 365 * 24) + Fraction("5.20")
    assert reserved.whole_cost == 2 * reserved.cost_per_hour
    assert (plan.kind, plan.cost_per_hour, plan.purchase) == ("savings_plan", 20, "savings_plan_3y")
    assert not terms.count_minimum and terms.rules[0].granularity_seconds == 3600
    assert (terms.items[0].kind, terms.items[0].per_month, terms.items[0].project) == ("storage", 160, "vision")
    assert terms.weights == Weights()


def test_an_empty_file_and_a_byte_order_mark_are_the_default_terms(tmp_path: Path) -> None:
    assert read(tmp_path, "") == read(tmp_path, "\ufeff") == Terms()


def test_times_may_carry_an_offset_and_dates_may_be_text(tmp_path: Path) -> None:
    text = '[[discounts]]\ncloud="AWS"\npercent="5"\nfrom="2026-03-01"\nto=2026-04-01T00:00:00+02:00'
    (discount,) = read(tmp_path, text).discounts
    assert (discount.cloud, discount.starts_ms, discount.ends_ms) == ("aws", ms("2026-03-01"), ms("2026-03-31T22:00Z"))


RESERVED = (
    'id="a"\nkind="reservation"\ncloud="aws"\nregion="r"\ninstance_type="x"\nhourly="1"\nfrom=2026-01-01\nto=2027-01-01\n'
)
PLAN = 'id="a"\nkind="savings_plan"\ncloud="aws"\nusd_per_hour="1"\npercent="30"\nfrom=2026-01-01\nto=2027-01-01\n'


def without(text: str, key: str) -> str:
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith(f"{key}="))


BAD = [
    ("[[discount]]\n", "unknown key `discount`; did you mean `discounts`?"),
    ("surprise = 1\n", "unknown key `surprise`; allowed here: billing, commitments, currency"),
    ("a = [\n", "is not valid TOML"),
    ("[discounts]\ncloud='aws'\n", "`discounts` must be written as [[discounts]], not as a table"),
    ("[[discounts]]\npercent='5'\n", "`discounts[1].cloud` is missing"),
    ("[[discounts]]\ncloud='aws'\npercent='5'\n[[discounts]]\ncloud='aws'\npercentage='5'\n", "`discounts[2].percent` is missing"),
    ("[[discounts]]\ncloud='aws'\npercent='5'\nregoin='x'\n", "unknown key `discounts[1].regoin`; did you mean `region`?"),
    ("[[discounts]]\ncloud='aws'\npercent=5\n", '`discounts[1].percent` must be a decimal number as text, like "3.06", not a whole number'),
    ("[[discounts]]\ncloud='aws'\npercent=0.5\n", "not a float, which is not exact"),
    ("[[discounts]]\ncloud='aws'\npercent='5 %'\n", "`discounts[1].percent` is wrong"),
    ("[[discounts]]\ncloud='aws'\npercent='0,5'\n", "decimal comma"),
    ("[[discounts]]\ncloud='aws'\npercent='101'\n", "a percentage is at most 100"),
    ("[[discounts]]\ncloud='aws'\npercent='0'\n", "must be above 0"),
    ("[[discounts]]\ncloud='aws'\npercent='-5'\n", "must be above 0"),
    ("[[discounts]]\ncloud='aws'\npercent='5'\nfrom='soon'\n", "`discounts[1].from` is 'soon', which is no date"),
    ("[[discounts]]\ncloud='aws'\npercent='5'\nfrom=2026-02-30\n", "is not valid TOML"),
    ("[[discounts]]\ncloud='aws'\npercent='5'\nfrom='2026-02-30'\n", "which is no date"),
    ("[[discounts]]\ncloud='aws'\npercent='5'\nfrom=2026-02-01T08:00:00\n", "a local time: give its offset"),
    ("[[discounts]]\ncloud='aws'\npercent='5'\nfrom=20260201\n", "must be a date like 2026-01-01, not a whole number"),
    ("[[discounts]]\ncloud='aws'\npercent='5'\nfrom=2026-02-01\nto=2026-02-01\n", "`discounts[1].to` is not after `from`"),
    ("[[discounts]]\ncloud='aws'\npercent='5'\npurchase='ondemand'\n", "which is none: did you mean 'on_demand'?"),
    ("[currency]\nyen = []\n", "`currency.yen` is no currency to give a rate for"),
    ("[currency]\nUSD = []\n", "`currency.USD` is no currency to give a rate for"),
    ("[currency]\nCNY = '0.14'\n", "`currency.CNY` must be written as [[currency.CNY]]"),
    ("[currency]\nCNY = [{from=2026-01-01, usd=0.14}]\n", "`currency.CNY[1].usd` must be a decimal number as text"),
    ("[currency]\nCNY = [{from=2026-01-01, usd='0'}]\n", "must be above 0"),
    ("[currency]\nCNY = [{usd='0.14'}]\n", "`currency.CNY[1].from` is missing"),
    ("[currency]\nCNY = [{from=2026-01-01, usd='1'}, {from=2026-01-01, usd='2'}]\n", "`currency.CNY[2].from` is given twice"),
    ("[[commitments]]\n" + RESERVED.replace('"reservation"', '"reserved"'), "which is none: did you mean 'reservation'?"),
    *[("[[commitments]]\n" + without(RESERVED, key), f"`commitments[1].{key}` is missing")
      for key in ("id", "kind", "cloud", "region", "instance_type", "hourly", "from", "to")],
    *[("[[commitments]]\n" + without(PLAN, key), f"`commitments[1].{key}` is missing") for key in ("usd_per_hour", "percent", "to")],
    ("[[commitments]]\n" + RESERVED + "[[commitments]]\n" + RESERVED, "`commitments[2].id` is 'a' for a second time"),
    ("[[commitments]]\n" + RESERVED + "currency='XXX'\n", "`commitments[1].currency` is 'XXX', an unknown currency"),
    ("[[commitments]]\n" + RESERVED + "count=0\n", "must be a whole number of at least 1, not 0"),
    ("[[commitments]]\n" + RESERVED + "family='p5'\n", "unknown key `commitments[1].family`"),
    ("[[commitments]]\n" + RESERVED.replace('type="x"', 'type="p4d.*"'), "a reservation is of one type"),
    ("[[commitments]]\n" + PLAN + "hourly='5'\n", "unknown key `commitments[1].hourly`"),
    ("[[commitments]]\n" + PLAN + "per_hour='5'\n", "`commitments[1].per_hour` is given beside `usd_per_hour`"),
    ("[[commitments]]\n" + PLAN.replace("usd_per_hour", "per_hour"), "`commitments[1].currency` is missing"),
    ("[[commitments]]\n" + PLAN + "rates={'p5.48xlarge'=31}\n", "`commitments[1].rates.p5.48xlarge` must be a decimal number as text"),
    ("[billing]\ncount_minimum='yes'\n", "`billing.count_minimum` must be true or false, not a text"),
    ("[[billing.rules]]\ncloud='aws'\ngranularity_seconds=0\n", "`billing.rules[1].granularity_seconds` must be a whole number of at least 1"),
    ("[[storage]]\nname='x'\n", "`storage[1].from` is missing"),
    ("[[storage]]\nname='x'\nfrom=2026-01-01\n", "`storage[1].per_month` is to be given, or else `gb` and `per_gb_month`"),
    ("[[egress]]\nname='x'\nfrom=2026-01-01\nper_month='1'\ngb='1'\nper_gb_month='1'\n", "and not all of them"),
    ("[[egress]]\nper_month='1'\n", "`egress[1].name` is missing"),
    ("[weights]\ngpu='0'\nvcpu='0'\nmemory_gib='0'\n", "weights are all 0"),
    ("[weights]\nram='1'\n", "unknown key `weights.ram`; allowed here: gpu, memory_gib, vcpu."),
    ("currency = 5\n", "`currency` must be a table, not a whole number"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "sentence"), BAD)
def test_a_wrong_file_is_one_sentence_with_file_and_key(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(TermsError) as caught:
        read(tmp_path, text)
    said = str(caught.value)
    assert said.startswith(f"{tmp_path / 'terms.toml'}: ") and sentence in said and "\n" not in said.rstrip()
    assert caught.value.exit_code == 2


def test_a_file_that_cannot_be_read_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "latin.toml").write_bytes(b"# \xe4\n")
    for name, sentence in (("none.toml", "cannot be read (No such file"), ("latin.toml", "is not UTF-8 (byte 2)")):
        with pytest.raises(TermsError) as caught:
            load(tmp_path / name)
        assert sentence in str(caught.value)


def test_weights_that_are_left_out_keep_their_default(tmp_path: Path) -> None:
    assert read(tmp_path, "[weights]\nvcpu = '0.5'\n").weights == Weights(vcpu=Fraction(Decimal("0.5")))
