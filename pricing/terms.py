"""The terms under which the user buys, from `terms.toml`: discounts, commitments, exchange rates, billing, weights.

Invariant: a file is read wholly or not at all; what is wrong is one TermsError with file and key. All dates are UTC
midnights unless they carry an offset; `to` is exclusive; money is text.

    [currency]                                     # what one unit is in USD, from each day on
    CNY = [{ from = 2026-01-01, usd = "0.14" }]
    [[discounts]]                                  # the largest that matches counts; they never stack
    cloud = "aws"
    instance_type = "p4d.*"                        # also: region, purchase
    percent = "12.5"
    from = 2026-01-01
    [[commitments]]
    id = "ri-1"
    kind = "reservation"                           # one instance type, in a region or a zone
    cloud = "aws"
    region = "us-east-1"
    instance_type = "p4d.24xlarge"
    count = 2
    upfront = "60000"                              # per instance, for the whole term
    hourly = "5.20"                                # per instance
    from = 2026-01-01
    to = 2027-01-01
    [[commitments]]
    id = "sp-1"
    kind = "savings_plan"                          # also: region, family = "p5"
    cloud = "aws"
    usd_per_hour = "20"                            # with: percent = "45", rates = { "p5.48xlarge" = "31.1" }, or
    purchase = "savings_plan_3y"                   # the catalog's prices of this purchase option
    from = 2026-01-01
    to = 2029-01-01
    [billing]
    count_minimum = false                          # true: what is billed beyond what ran is idle cost
    [[billing.rules]]
    cloud = "hetzner"
    granularity_seconds = 3600
    [[storage]]                                    # and [[egress]]
    name = "datasets"
    gb = "2000"
    per_gb_month = "0.08"                          # or: per_month = "160"
    project = "vision"
    from = 2026-01-01
    [weights]                                      # see pricing/weights.py
    gpu = "0.95"
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

from pricing import price_steps
from pricing.billing import Rule
from pricing.contracts import Discount
from pricing.currency import Exchange
from pricing.errors import TermsError
from pricing.items import Item
from pricing.ledger_merge import HOUR_MS
from pricing.offers import PURCHASES
from pricing.owned import Commitment
from pricing.price_steps import ALWAYS
from pricing.terms_reader import TableReader, tables
from pricing.weights import Weights

KINDS = ("reservation", "savings_plan")


@dataclass(frozen=True, slots=True)
class Terms:
    """Without a file: list prices, no commitments, no exchange rates."""

    discounts: tuple[Discount, ...] = ()
    commitments: tuple[Commitment, ...] = ()
    exchange: Exchange = field(default_factory=Exchange)
    count_minimum: bool = False
    rules: tuple[Rule, ...] = ()
    items: tuple[Item, ...] = ()
    weights: Weights = field(default_factory=Weights)


def load(path: Path) -> Terms:
    """Reads the file. TermsError names it, and the key that is wrong."""
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise TermsError(f"{path}: cannot be read ({error.strerror}).") from None
    except UnicodeDecodeError as error:
        raise TermsError(f"{path}: is not UTF-8 (byte {error.start}).") from None
    except tomllib.TOMLDecodeError as error:
        raise TermsError(f"{path}: is not valid TOML: {error}.") from None
    return parse(raw, str(path))


def parse(raw: dict[str, object], file: str = "terms.toml") -> Terms:
    """From what TOML gives."""
    top = TableReader(file, "", raw)
    exchange = _exchange(TableReader(file, "currency", top.raw("currency") or {}))
    known = frozenset(exchange.usd)
    count_minimum, rules = _billing(file, TableReader(file, "billing", top.raw("billing") or {}))
    terms = Terms(
        discounts=tuple(_discount(table) for table in tables(file, "discounts", top.raw("discounts"))),
        commitments=_commitments(tables(file, "commitments", top.raw("commitments")), known),
        exchange=exchange,
        count_minimum=count_minimum,
        rules=rules,
        items=tuple(_item(kind, table, known) for kind in ("storage", "egress") for table in tables(file, kind, top.raw(kind))),
        weights=_weights(TableReader(file, "weights", top.raw("weights") or {})),
    )
    top.done()
    return terms


def _exchange(table: TableReader) -> Exchange:
    usd: dict[str, price_steps.Steps] = {}
    for name in table.keys():
        if len(name) != 3 or not name.isascii() or not name.isupper() or name == "USD":
            raise table.fault(name, "is no currency to give a rate for: write its three capital letters, like CNY")
        points: dict[int, Fraction] = {}
        for entry in tables(table.file, f"currency.{name}", table.raw(name)):
            entry.needed("from", "usd")
            at, value = entry.moment("from"), entry.money("usd", above_zero=True)
            entry.done()
            if at in points:
                raise entry.fault("from", "is given twice")
            if at is not None and value is not None:
                points[at] = value
        usd[name] = price_steps.made(sorted(points.items()))
    return Exchange(usd)


def _discount(table: TableReader) -> Discount:
    table.needed("cloud", "percent")
    starts_ms, ends_ms = table.span()
    found = Discount(
        cloud=table.lower("cloud") or "",
        percent=table.percent("percent") or Fraction(0),
        instance_type=table.text("instance_type") or "*",
        purchase=table.lower("purchase", PURCHASES),
        region=table.lower("region"),
        starts_ms=ALWAYS if starts_ms is None else starts_ms,
        ends_ms=ends_ms,
    )
    table.done()
    return found


def _commitments(found: list[TableReader], known: frozenset[str]) -> tuple[Commitment, ...]:
    made: dict[str, Commitment] = {}
    for table in found:
        table.needed("id", "kind", "cloud", "from", "to")
        kind = table.lower("kind", KINDS)
        one = _reservation(table, known) if kind == "reservation" else _savings_plan(table, known)
        table.done()
        if one.id in made:
            raise table.fault("id", f"is '{one.id[:40]}' for a second time: each commitment has an id of its own")
        made[one.id] = one
    return tuple(made.values())


def _reservation(table: TableReader, known: frozenset[str]) -> Commitment:
    table.needed("instance_type", "region")
    if not (table.has("hourly") or table.has("upfront")):
        raise table.fault("hourly", "is missing: give `hourly`, `upfront` (per instance, for the whole term) or both")
    starts_ms, ends_ms = _term(table)
    hours = Fraction(ends_ms - starts_ms, HOUR_MS)
    upfront, hourly = table.money("upfront") or Fraction(0), table.money("hourly") or Fraction(0)
    name = table.text("instance_type") or ""
    if any(sign in name for sign in "*?["):
        raise table.fault("instance_type", "is a pattern: a reservation is of one type")
    return Commitment(
        id=table.text("id") or "",
        kind="reservation",
        cloud=table.lower("cloud") or "",
        starts_ms=starts_ms,
        ends_ms=ends_ms,
        cost_per_hour=upfront / hours + hourly,
        upfront=upfront,
        currency=table.currency("currency", known),
        region=table.lower("region"),
        zone=table.lower("zone"),
        instance_type=name,
        count=table.whole("count", 1, least=1),
    )


def _savings_plan(table: TableReader, known: frozenset[str]) -> Commitment:
    table.needed("usd_per_hour")
    if not any(table.has(key) for key in ("percent", "rates", "purchase")):
        raise table.fault("percent", "is missing: give `percent`, `rates` or `purchase`, to tell what the plan charges")
    starts_ms, ends_ms = _term(table)
    rates = TableReader(table.file, f"{table.place}.rates", table.raw("rates") or {})
    return Commitment(
        id=table.text("id") or "",
        kind="savings_plan",
        cloud=table.lower("cloud") or "",
        starts_ms=starts_ms,
        ends_ms=ends_ms,
        cost_per_hour=table.money("usd_per_hour", above_zero=True) or Fraction(0),
        region=table.lower("region"),
        family=table.lower("family"),
        percent=table.percent("percent"),
        rates={name: rates.money(name, above_zero=True) or Fraction(0) for name in rates.keys()},
        purchase=table.lower("purchase", PURCHASES),
    )


def _term(table: TableReader) -> tuple[int, int]:
    starts_ms, ends_ms = table.span()
    assert starts_ms is not None and ends_ms is not None  # noqa: S101 - `needed` asked for both
    return starts_ms, ends_ms


def _billing(file: str, table: TableReader) -> tuple[bool, tuple[Rule, ...]]:
    count_minimum, rules = table.flag("count_minimum"), tables(file, "billing.rules", table.raw("rules"))
    table.done()
    return count_minimum, tuple(_rule(rule) for rule in rules)


def _rule(table: TableReader) -> Rule:
    table.needed("cloud")
    found = Rule(
        cloud=table.lower("cloud"),
        purchase=table.lower("purchase", PURCHASES),
        granularity_seconds=table.whole("granularity_seconds", 1, least=1),
        minimum_seconds=table.whole("minimum_seconds", 0),
        first_hour_free_if_interrupted=table.flag("first_hour_free_if_interrupted"),
    )
    table.done()
    return found


def _item(kind: str, table: TableReader, known: frozenset[str]) -> Item:
    table.needed("name", "from")
    per_month, gb, each = table.money("per_month"), table.money("gb"), table.money("per_gb_month")
    if (per_month is None) == (gb is None or each is None):
        raise table.fault("per_month", "is to be given, or else `gb` and `per_gb_month`, and not all of them")
    starts_ms, ends_ms = table.span()
    found = Item(
        kind=kind,
        name=table.text("name") or "",
        per_month=per_month if per_month is not None else (gb or 0) * (each or Fraction(0)),
        currency=table.currency("currency", known),
        cloud=table.lower("cloud"),
        region=table.lower("region"),
        project=table.text("project"),
        user=table.text("user"),
        starts_ms=ALWAYS if starts_ms is None else starts_ms,
        ends_ms=ends_ms,
    )
    table.done()
    return found


def _weights(table: TableReader) -> Weights:
    default = Weights()
    given = [table.money(key) for key in ("gpu", "vcpu", "memory_gib")]
    table.done()
    gpu, vcpu, memory = (
        part if part is not None else usual
        for part, usual in zip(given, (default.gpu, default.vcpu, default.memory_gib), strict=True)
    )
    if not (gpu or vcpu or memory):
        raise table.fault("gpu", "and the other weights are all 0: one must be above")
    return Weights(gpu, vcpu, memory)
