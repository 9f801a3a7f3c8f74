"""The terms under which the user buys, from `terms.toml`: discounts, commitments, exchange rates, billing, weights.

Invariant: a file is read wholly or not at all; what is wrong is one TermsError with file and key. All dates are UTC
midnights unless they carry an offset; `to` is exclusive; money is text.

Beside it may lie `owned.toml`, which the program writes itself (pricing/owned_file.py). A commitment that stands in both is
one: the user's words count, and what the two say differently is a sentence in `Terms.notes`.

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
    usd_per_hour = "20"                            # or per_hour = "140" with currency = "CNY"; also: upfront = "175200",
                                                   # which is what of it was paid at the start
    purchase = "savings_plan_3y"                   # the catalog's prices of this purchase option; or percent = "45", or
                                                   # rates = { "p5.48xlarge" = "31.1", "eu-west-1/g5.xlarge" = "0.8" }
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

from dataclasses import dataclass, field, replace
from datetime import datetime
from fractions import Fraction
from pathlib import Path

from pricing import commitment_tables, price_steps
from pricing.billing import Rule
from pricing.contracts import Discount
from pricing.currency import Exchange
from pricing.errors import TermsError
from pricing.items import Item
from pricing.offers import PURCHASES
from pricing.owned import Commitment
from pricing.price_steps import ALWAYS
from pricing.terms_reader import TableReader, tables
from pricing.toml_file import read_toml
from pricing.weights import Weights

OWNED = "owned.toml"
"""What `rackrate prices owned --write` keeps beside the file: commitments as AWS tells them."""


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
    owned_at: datetime | None = None
    """When the oldest of what `owned.toml` tells was read; None without one."""
    notes: tuple[str, ...] = ()
    """Sentences: where the user's commitments and those that were read contradict each other."""


def load(path: Path, *, must_exist: bool = True) -> Terms:
    """Reads the file, and the commitments of `owned.toml` beside it, as far as there is one.

    TermsError names the file, and the key that is wrong. `must_exist` False: without the file, list prices count.
    """
    terms = parse(read_toml(path, TermsError), str(path)) if must_exist or path.exists() else Terms()
    beside = path.with_name(OWNED)
    if beside.name == path.name or not beside.is_file():
        return terms
    from pricing.owned_file import merged, read_owned

    known = frozenset(terms.exchange.usd)
    commitments, notes, read_at = merged(terms.commitments, read_owned(read_toml(beside, TermsError), str(beside), known), path.name)
    return replace(terms, commitments=commitments, notes=notes, owned_at=read_at)


def parse(raw: dict[str, object], file: str = "terms.toml") -> Terms:
    """From what TOML gives."""
    top = TableReader(file, "", raw)
    exchange = _exchange(TableReader(file, "currency", top.raw("currency") or {}))
    known = frozenset(exchange.usd)
    count_minimum, rules = _billing(file, TableReader(file, "billing", top.raw("billing") or {}))
    terms = Terms(
        discounts=tuple(_discount(table) for table in tables(file, "discounts", top.raw("discounts"))),
        commitments=commitment_tables.commitments(tables(file, "commitments", top.raw("commitments")), known),
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
